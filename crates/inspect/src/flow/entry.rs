//! One flow: the state of its two ends, and the decision about it.

use super::stream::StreamFlags;
use super::{AnomalySet, FlowKey, KeyEnd, StreamState};
use crate::event::{Side, Timestamp};
use crate::packet::Segment;

/// Marker for no flow.
pub(super) const NONE: u32 = u32::MAX;

/// Unanswered probes after which an end counts as one whose packets take another path.
const PROBES: u8 = 3;

/// Half of all sequence numbers: more than twice the largest window.
const FAR_APART: u32 = 1 << 31;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// State of a flow in the table. Flows of one class are evicted in the order of their last packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowClass {
    /// Only a SYN was seen.
    Opening,
    /// Picked up in its middle, and neither end has confirmed data of the other.
    Unconfirmed,
    /// Open and undecided.
    Undecided,
    /// Allowed.
    Passed,
    /// Blocked.
    Blocked,
    /// Closed by both ends or reset.
    Closed,
}

impl FlowClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Opening, Self::Unconfirmed, Self::Undecided, Self::Passed, Self::Blocked, Self::Closed];
}

/// The decision about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowDecision {
    /// Nothing yet.
    Undecided,
    /// All further packets pass.
    Passed,
    /// All further packets are dropped.
    Blocked,
    /// All further packets are dropped, and the next one causes resets of both ends: only a packet shows
    /// the sequence numbers.
    Refused,
    /// All further packets are dropped, and both ends were reset.
    Rejected,
}

impl FlowDecision {
    /// True if all further packets are dropped.
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Blocked | Self::Refused | Self::Rejected)
    }
}

/// One flow. `C` is its owner's state of the dialogue while it is undecided.
#[derive(Debug)]
pub struct Flow<C> {
    /// The collected data and the dialogue so far; absent before the first data and after the decision.
    pub conversation: Option<Box<C>>,
    started: Timestamp,
    pub(super) last_seen: Timestamp,
    pub(super) ends: EndStates,
    pub(super) key: FlowKey,
    pub(super) previous: u32,
    pub(super) next: u32,
    /// A number for the owner's use; 0 at the start.
    pub label: u16,
    /// Anomalies that were reported already.
    pub reported: AnomalySet,
    /// The decision.
    pub ruling: FlowDecision,
    pub(super) class: FlowClass,
}

/// The properties of a SYN that matter for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningSyn {
    /// Initial sequence number.
    pub initial: u32,
    /// The end that sent it.
    pub from: KeyEnd,
    /// Its hop limit.
    pub hop_limit: u8,
    /// Its options.
    pub options: SynOptions,
}

/// The options of a SYN that hold for the rest of its connection, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynOptions(u8);

impl SynOptions {
    /// Value for a SYN that offers no window scale; the largest shift is 14 (RFC 7323 section 2.3).
    const NO_SCALE: u8 = 15;
    const SIGNED: u8 = 16;

    /// Creates options: the shift of the sender's windows, and true if the SYN is signed (TCP MD5,
    /// TCP-AO).
    pub fn new(scale: Option<u8>, signed: bool) -> Self {
        let scale = scale.map_or(Self::NO_SCALE, |shift| shift.min(Self::NO_SCALE - 1));
        Self(scale | if signed { Self::SIGNED } else { 0 })
    }

    /// Returns the options from [`SynOptions::bits`].
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The options as a byte.
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
    /// Returns the properties of the SYN `segment`.
    pub(super) fn of(segment: &Segment<'_>, from: KeyEnd) -> Self {
        Self {
            initial: segment.sequence(),
            from,
            hop_limit: segment.hop_limit(),
            options: SynOptions::new(segment.window_scale(), segment.is_signed()),
        }
    }
}

/// State of a flow's two ends by their headers. It is small, so it can be restored if a segment is
/// refused.
#[derive(Debug, Clone, Copy)]
pub struct EndStates {
    pub(super) streams: [StreamState; 2],
    /// A SYN that may open the flow again.
    pub(super) reopening: Option<OpeningSyn>,
    pub(super) client: KeyEnd,
    /// True if it is certain which end is the client.
    pub(super) client_known: bool,
    /// Number of unanswered probes; those within one second count once.
    pub(super) probes: u8,
    /// Second of the last probe, modulo 256.
    pub(super) probed: u8,
}

/// The parts of a flow that change while a segment is read, borrowed separately.
pub struct FlowParts<'f, C> {
    /// The collected data and the dialogue so far.
    pub conversation: &'f mut Option<Box<C>>,
    /// The stream of the segment's sender.
    pub own: &'f mut StreamState,
    /// The stream of its peer.
    pub peer: &'f mut StreamState,
    /// Anomalies that were reported already.
    pub reported: &'f mut AnomalySet,
}

impl EndStates {
    pub(super) const fn new(client: KeyEnd) -> Self {
        let streams = [StreamState::NEW, StreamState::NEW];
        Self { streams, reopening: None, client, client_known: false, probes: 0, probed: 0 }
    }

    /// The stream of one end.
    pub const fn stream(&self, end: KeyEnd) -> &StreamState {
        let [low, high] = &self.streams;
        match end {
            KeyEnd::Low => low,
            KeyEnd::High => high,
        }
    }

    /// Sets `end` as the client.
    pub const fn set_client(&mut self, end: KeyEnd) {
        self.client = end;
        self.client_known = true;
    }

    pub(super) const fn stream_mut(&mut self, end: KeyEnd) -> &mut StreamState {
        let [low, high] = &mut self.streams;
        match end {
            KeyEnd::Low => low,
            KeyEnd::High => high,
        }
    }
}

const _: () = assert!(size_of::<Flow<()>>() <= 152, "a million flows fit into 256 MiB");

impl<C> Flow<C> {
    pub(super) fn new(key: FlowKey, client: KeyEnd, now: Timestamp) -> Self {
        Self {
            conversation: None,
            started: now,
            last_seen: now,
            ends: EndStates::new(client),
            key,
            previous: NONE,
            next: NONE,
            label: 0,
            reported: AnomalySet::default(),
            ruling: FlowDecision::Undecided,
            class: FlowClass::Opening,
        }
    }

    /// State of its ends by their headers.
    pub const fn ends(&self) -> &EndStates {
        &self.ends
    }

    /// Restores the state before a segment that is refused.
    pub const fn restore(&mut self, ends: EndStates) {
        self.ends = ends;
    }

    /// Returns the parts that change while a segment of one end is read.
    pub const fn parts(&mut self, from: KeyEnd) -> FlowParts<'_, C> {
        let [low, high] = &mut self.ends.streams;
        let (own, peer) = match from {
            KeyEnd::Low => (low, high),
            KeyEnd::High => (high, low),
        };
        FlowParts { conversation: &mut self.conversation, own, peer, reported: &mut self.reported }
    }

    /// True if only one end was ever seen, and its SYN was neither seen nor answered.
    pub fn is_one_way(&self) -> bool {
        let [low, high] = &self.ends.streams;
        low.known.has(StreamFlags::HEARD) != high.known.has(StreamFlags::HEARD)
    }

    /// True if only one end was ever heard, and the other has answered none of the probes.
    pub fn is_proven_one_way(&self) -> bool {
        self.is_one_way() && self.ends.probes >= PROBES
    }

    /// Sequence number of a probe for a segment at `sequence`. A receiver does not answer an empty segment
    /// within its window. Of two numbers that are far apart, one is outside of it.
    pub fn probe_at(&self, sequence: u32) -> u32 {
        let before = sequence.wrapping_sub(1);
        if self.ends.probes.is_multiple_of(2) { before } else { before ^ FAR_APART }
    }

    /// Records that a probe was sent.
    pub const fn note_probe(&mut self, now: Timestamp) {
        let [.., second] = (now.as_nanos() / NANOS_PER_SECOND).to_be_bytes();
        // A burst of retransmissions is one attempt: the receiver had no time to answer in between.
        if self.ends.probes == 0 || second != self.ends.probed {
            (self.ends.probes, self.ends.probed) = (self.ends.probes.saturating_add(1), second);
        }
    }

    /// True if both ends agree that the bytes at `sequence` come next from an end whose SYN was not seen, or
    /// have agreed on other bytes before.
    ///
    /// One end alone proves nothing. The sender may send bytes that its receiver ignores. The receiver may
    /// acknowledge bytes that were never sent.
    pub const fn agrees_on(&mut self, from: KeyEnd, sequence: u32) -> bool {
        let stream = self.ends.stream_mut(from);
        stream.agree_on(sequence);
        stream.is_agreed()
    }

    /// True if bytes of an end were read at a position on which its receiver has not agreed.
    pub fn has_read_disputed(&self, from: KeyEnd) -> bool {
        let stream = self.ends.stream(from);
        stream.known.has(StreamFlags::SEEN) && !stream.is_agreed()
    }

    /// True if the SYN of an end was seen.
    pub fn is_from_start(&self) -> bool {
        self.ends.streams.iter().any(StreamState::is_from_start)
    }

    /// True if only a SYN of one end was seen.
    pub fn is_opening(&self) -> bool {
        let [low, high] = &self.ends.streams;
        let alone = |one: &StreamState, other: &StreamState| {
            one.is_from_start() && !one.is_acknowledged() && !other.is_open()
        };
        alone(low, high) || alone(high, low)
    }

    /// Resets the flow: it is picked up in its middle.
    pub fn begin_amid(&mut self, client: KeyEnd, now: Timestamp) {
        self.restart(client, now);
    }

    /// True if one end has acknowledged data that was seen of the other. Forging packets of one end is
    /// not enough for that.
    pub fn is_confirmed(&self) -> bool {
        let agrees = |known: StreamFlags| known.has(StreamFlags::CONFIRMED) || known.has(StreamFlags::AGREED);
        self.ends.streams.iter().any(|stream| agrees(stream.known))
    }

    /// True if one end has acknowledged bytes near those that were seen of the other. Bytes far away were
    /// forged.
    pub fn is_supported(&self) -> bool {
        self.is_confirmed() || self.ends.streams.iter().any(StreamState::is_acknowledged_nearby)
    }

    /// True once each end has acknowledged data of the other: neither is forged.
    pub fn is_established(&self) -> bool {
        self.ends.streams.iter().all(|stream| stream.known.has(StreamFlags::CONFIRMED))
    }

    /// Its key.
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Time at which its first packet was seen.
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// Returns each end's position: the sequence number of the next byte in order, if anything of it was
    /// seen.
    pub fn positions(&self) -> [Option<u32>; 2] {
        self.ends.streams.map(|stream| stream.is_open().then(|| stream.next()))
    }

    /// Sets the positions that a predecessor had recorded.
    pub fn set_positions(&mut self, positions: [Option<u32>; 2]) {
        for (stream, next) in self.ends.streams.iter_mut().zip(positions) {
            // Only the position is known. Acknowledgements and windows have to be seen again.
            if let Some(next) = next {
                stream.open(next);
            }
        }
    }

    /// A SYN that may open the flow again.
    pub const fn reopening(&self) -> Option<OpeningSyn> {
        self.ends.reopening
    }

    /// Sets a SYN that a predecessor has seen.
    pub const fn set_reopening(&mut self, reopening: Option<OpeningSyn>) {
        self.ends.reopening = reopening;
    }

    /// Time of its last packet, to a second.
    pub const fn last_seen(&self) -> Timestamp {
        self.last_seen
    }

    /// Its class.
    pub const fn class(&self) -> FlowClass {
        self.class
    }

    /// Returns the side of an end.
    pub fn side(&self, end: KeyEnd) -> Side {
        if end == self.ends.client { Side::Client } else { Side::Server }
    }

    /// Returns the end of a side.
    pub const fn end(&self, side: Side) -> KeyEnd {
        match side {
            Side::Client => self.ends.client,
            Side::Server => self.ends.client.other(),
        }
    }

    /// True if the handshake, or another proof, showed which end is the client.
    pub const fn client_known(&self) -> bool {
        self.ends.client_known
    }

    /// Sets `end` as the client.
    pub const fn set_client(&mut self, end: KeyEnd) {
        self.ends.set_client(end);
    }

    /// The stream of one end.
    pub const fn stream(&self, end: KeyEnd) -> &StreamState {
        self.ends.stream(end)
    }

    /// The stream of one end.
    pub const fn stream_mut(&mut self, end: KeyEnd) -> &mut StreamState {
        self.ends.stream_mut(end)
    }

    /// Resets everything but the key: the ends open a new connection.
    pub(super) fn restart(&mut self, client: KeyEnd, now: Timestamp) {
        let fresh = Self::new(self.key, client, now);
        let (previous, next, class) = (self.previous, self.next, self.class);
        *self = Self { previous, next, class, last_seen: self.last_seen, ..fresh };
    }
}
