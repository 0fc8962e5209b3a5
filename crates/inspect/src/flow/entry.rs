//! One flow: what is known of its two ends, and what was decided of it.

use super::stream::Known;
use super::{AnomalySet, End, FlowKey, Stream};
use crate::event::{Side, Timestamp};
use crate::packet::Segment;

/// No flow.
pub(super) const NONE: u32 = u32::MAX;

/// Where a flow stands; flows of one class are forgotten in the order of their last packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Only a SYN was seen.
    Opening,
    /// Begun in its middle, and neither end has confirmed what was seen of the other.
    Unconfirmed,
    /// Open and undecided.
    Undecided,
    /// Let pass.
    Passed,
    /// Blocked.
    Blocked,
    /// Closed by both ends or reset.
    Closed,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Opening, Self::Unconfirmed, Self::Undecided, Self::Passed, Self::Blocked, Self::Closed];
}

/// What was decided about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ruling {
    /// Nothing yet.
    Undecided,
    /// Everything more may pass.
    Passed,
    /// Nothing more may pass.
    Blocked,
    /// Nothing more may pass, and the next packet resets both ends: without one, nobody knows by which
    /// numbers.
    Refused,
    /// Nothing more may pass, and both ends were reset.
    Rejected,
}

impl Ruling {
    /// True if nothing more may pass.
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Blocked | Self::Refused | Self::Rejected)
    }
}

/// One flow. `C` is what its owner knows about the conversation while it is undecided.
#[derive(Debug)]
pub struct Flow<C> {
    /// What was collected and understood so far; absent before the first data and once decided.
    pub conversation: Option<Box<C>>,
    started: Timestamp,
    pub(super) last_seen: Timestamp,
    pub(super) ends: Ends,
    pub(super) key: FlowKey,
    pub(super) previous: u32,
    pub(super) next: u32,
    /// A number that the owner may note; 0 at the start.
    pub label: u16,
    /// Anomalies that were reported already.
    pub reported: AnomalySet,
    /// What was decided.
    pub ruling: Ruling,
    pub(super) class: Class,
}

/// A SYN, as far as the connection that it opens depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningSyn {
    /// Initial sequence number.
    pub initial: u32,
    /// The end that sent it.
    pub from: End,
    /// Its hop limit.
    pub hop_limit: u8,
    /// Its options.
    pub options: SynOptions,
}

/// The options of a SYN that hold for the rest of its connection, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynOptions(u8);

impl SynOptions {
    /// Stands for a SYN that offers no window scale; the largest shift is 14 (RFC 7323 section 2.3).
    const NO_SCALE: u8 = 15;
    const SIGNED: u8 = 16;

    /// Shift of the sender's windows, and true if the SYN is signed (TCP MD5, TCP-AO).
    pub fn new(scale: Option<u8>, signed: bool) -> Self {
        let scale = scale.map_or(Self::NO_SCALE, |shift| shift.min(Self::NO_SCALE - 1));
        Self(scale | if signed { Self::SIGNED } else { 0 })
    }

    /// The options that [`SynOptions::bits`] gave.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The byte that stands for them.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Shift of the sender's windows, if it offers one.
    pub(super) fn scale(self) -> Option<u8> {
        Some(self.0 & Self::NO_SCALE).filter(|shift| *shift != Self::NO_SCALE)
    }

    /// True if the SYN is signed.
    pub(super) const fn is_signed(self) -> bool {
        self.0 & Self::SIGNED != 0
    }
}

impl OpeningSyn {
    /// The SYN that `segment` is.
    pub(super) fn of(segment: &Segment<'_>, from: End) -> Self {
        Self {
            initial: segment.sequence(),
            from,
            hop_limit: segment.hop_limit(),
            options: SynOptions::new(segment.window_scale(), segment.is_signed()),
        }
    }
}

/// What is known of a flow's two ends by their headers: small enough to be put back when a segment is
/// refused.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub(super) streams: [Stream; 2],
    /// A SYN that may begin the flow again.
    pub(super) reopening: Option<OpeningSyn>,
    pub(super) client: End,
    /// True if it is certain who the client is.
    pub(super) client_known: bool,
}

/// What of a flow changes while a segment of it is read, each for itself.
pub struct Parts<'f, C> {
    /// What was collected and understood so far.
    pub conversation: &'f mut Option<Box<C>>,
    /// What the segment's sender sends.
    pub own: &'f mut Stream,
    /// What its peer sends.
    pub peer: &'f mut Stream,
    /// Anomalies that were reported already.
    pub reported: &'f mut AnomalySet,
}

impl Ends {
    pub(super) const fn new(client: End) -> Self {
        let streams = [Stream::NEW, Stream::NEW];
        Self { streams, reopening: None, client, client_known: false }
    }

    /// What one end sends.
    pub const fn stream(&self, end: End) -> &Stream {
        let [low, high] = &self.streams;
        match end {
            End::Low => low,
            End::High => high,
        }
    }

    pub(super) const fn stream_mut(&mut self, end: End) -> &mut Stream {
        let [low, high] = &mut self.streams;
        match end {
            End::Low => low,
            End::High => high,
        }
    }
}

const _: () = assert!(size_of::<Flow<()>>() <= 152, "a million flows fit into 256 MiB");

impl<C> Flow<C> {
    pub(super) fn new(key: FlowKey, client: End, now: Timestamp) -> Self {
        Self {
            conversation: None,
            started: now,
            last_seen: now,
            ends: Ends::new(client),
            key,
            previous: NONE,
            next: NONE,
            label: 0,
            reported: AnomalySet::default(),
            ruling: Ruling::Undecided,
            class: Class::Opening,
        }
    }

    /// What is known of its ends by their headers.
    pub const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Goes back to what was known before a segment that is refused.
    pub const fn restore(&mut self, ends: Ends) {
        self.ends = ends;
    }

    /// What changes while a segment of one end is read.
    pub const fn parts(&mut self, from: End) -> Parts<'_, C> {
        let [low, high] = &mut self.ends.streams;
        let (own, peer) = match from {
            End::Low => (low, high),
            End::High => (high, low),
        };
        Parts { conversation: &mut self.conversation, own, peer, reported: &mut self.reported }
    }

    /// True if only one end was ever heard, and its SYN neither seen nor answered.
    pub fn is_one_way(&self) -> bool {
        let [low, high] = &self.ends.streams;
        low.known.has(Known::HEARD) != high.known.has(Known::HEARD)
    }

    /// True if a SYN of one end is all that was seen.
    pub fn is_opening(&self) -> bool {
        let [low, high] = &self.ends.streams;
        let alone =
            |one: &Stream, other: &Stream| one.is_from_start() && !one.is_acknowledged() && !other.is_open();
        alone(low, high) || alone(high, low)
    }

    /// Begins the flow anew in its middle.
    pub fn begin_amid(&mut self, client: End, now: Timestamp) {
        self.restart(client, now);
    }

    /// True if one end has acknowledged what was seen of the other: somebody who only forges packets of
    /// one of them can't make it so.
    pub fn is_confirmed(&self) -> bool {
        self.ends.streams.iter().any(|stream| stream.known.has(Known::CONFIRMED))
    }

    /// True if one end has acknowledged bytes near those that were seen of the other: what lies far away was
    /// forged.
    pub fn is_supported(&self) -> bool {
        self.is_confirmed() || self.ends.streams.iter().any(Stream::is_acknowledged_nearby)
    }

    /// True once each end has acknowledged what was seen of the other: neither is forged.
    pub fn is_established(&self) -> bool {
        self.ends.streams.iter().all(|stream| stream.known.has(Known::CONFIRMED))
    }

    /// Its key.
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Time at which its first packet was seen.
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// Where each end stands: sequence number of the next byte in order, where anything of it was seen.
    pub fn positions(&self) -> [Option<u32>; 2] {
        self.ends.streams.map(|stream| stream.is_open().then(|| stream.next()))
    }

    /// Puts the ends where they stood when somebody else looked after the flow.
    pub fn set_positions(&mut self, positions: [Option<u32>; 2]) {
        for (stream, next) in self.ends.streams.iter_mut().zip(positions) {
            if let Some(next) = next {
                stream.open(next);
            }
        }
    }

    /// A SYN that may begin the flow again.
    pub const fn reopening(&self) -> Option<OpeningSyn> {
        self.ends.reopening
    }

    /// Notes a SYN that a predecessor has seen.
    pub const fn set_reopening(&mut self, reopening: Option<OpeningSyn>) {
        self.ends.reopening = reopening;
    }

    /// Time at which its last packet was seen, to a second.
    pub const fn last_seen(&self) -> Timestamp {
        self.last_seen
    }

    /// Where it stands.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Which side an end is.
    pub fn side(&self, end: End) -> Side {
        if end == self.ends.client { Side::Client } else { Side::Server }
    }

    /// Which end a side is.
    pub const fn end(&self, side: Side) -> End {
        match side {
            Side::Client => self.ends.client,
            Side::Server => self.ends.client.other(),
        }
    }

    /// True if the handshake, or what was taken for certain, told who the client is.
    pub const fn client_known(&self) -> bool {
        self.ends.client_known
    }

    /// Says that `end` is the client.
    pub fn set_client(&mut self, end: End) {
        self.ends.client = end;
        self.ends.client_known = true;
    }

    /// What one end sends.
    pub const fn stream(&self, end: End) -> &Stream {
        self.ends.stream(end)
    }

    /// What one end sends.
    pub const fn stream_mut(&mut self, end: End) -> &mut Stream {
        self.ends.stream_mut(end)
    }

    /// Forgets everything but the key: the ends begin a new connection.
    pub(super) fn restart(&mut self, client: End, now: Timestamp) {
        let fresh = Self::new(self.key, client, now);
        let (previous, next, class) = (self.previous, self.next, self.class);
        *self = Self { previous, next, class, last_seen: self.last_seen, ..fresh };
    }
}
