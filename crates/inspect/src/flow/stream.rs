//! The state of one direction of a flow, in a few words.

use super::OpeningSyn;

/// Returns the distance from `from` to `to` on the circle of sequence numbers (RFC 9293 section 3.4):
/// positive if `to` comes later.
pub const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

/// Distance after a SYN up to which numbers still show what is before it.
const NEAR: i32 = 1 << 30;

/// Largest distance from earlier bytes at which bytes belong to the same connection.
pub const NEARBY: u32 = 1 << 20;

/// A number of bytes larger than any window.
const BEHIND: u32 = 1 << 24;

/// State of the bytes that one end sends.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamState {
    /// Sequence number of the next byte in order.
    pub(super) next: u32,
    /// The number after the last byte ever seen, SYN and FIN included.
    pub(super) highest: u32,
    /// The number up to which the receiver has acknowledged.
    pub(super) acknowledged: u32,
    /// The number after the last byte that the receiver's window has ever allowed.
    pub(super) edge: u32,
    /// The initial sequence number, if a SYN was seen.
    pub(super) initial: u32,
    /// The number of the sender's FIN.
    pub(super) end: u32,
    pub(super) known: StreamFlags,
    /// Shift for the sender's own windows, from its SYN.
    pub(super) scale: u8,
    /// The highest hop limit seen.
    pub(super) hop_limit: u8,
}

/// The numbers of a [`StreamState`] that are valid, and further facts about it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamFlags(u16);

impl StreamFlags {
    pub(super) const NEXT: u16 = 1;
    pub(super) const INITIAL: u16 = 2;
    pub(super) const ACKNOWLEDGED: u16 = 4;
    pub(super) const SCALE: u16 = 8;
    pub(super) const END: u16 = 16;
    pub(super) const RESET: u16 = 32;
    /// Its SYN was a SYN-ACK.
    pub(super) const SYN_ACK: u16 = 64;
    /// A segment of its own that takes sequence space was seen.
    pub(super) const SEEN: u16 = 128;
    /// Its SYN was signed.
    pub(super) const SIGNED: u16 = 1024;
    /// Any segment of its own was seen.
    pub(super) const HEARD: u16 = 512;
    /// The other end has acknowledged data of it: the numbers belong to the connection.
    pub(super) const CONFIRMED: u16 = 256;
    /// It has acknowledged something, so it has received the other end's SYN.
    pub(super) const ANSWERS: u16 = 2048;
    /// It is so far from its SYN that numbers do not show any more what is before that.
    pub(super) const FAR: u16 = 4096;
    /// It has sent more than one initial number; its receiver has to show which one counts.
    pub(super) const RESTARTED: u16 = 8192;
    /// Its SYN was not seen, and both ends have agreed on the next sequence number.
    pub(super) const AGREED: u16 = 16_384;

    pub(super) const fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    pub(super) const fn set(&mut self, bit: u16) {
        self.0 |= bit;
    }

    pub(super) const fn clear(&mut self, bit: u16) {
        self.0 &= !bit;
    }
}

impl StreamState {
    /// A direction without any state.
    pub(super) const NEW: Self = Self {
        next: 0,
        highest: 0,
        acknowledged: 0,
        edge: 0,
        initial: 0,
        end: 0,
        known: StreamFlags(0),
        scale: 0,
        hop_limit: 0,
    };

    /// Sequence number of the next byte in order. The receiver expects it if everything that passed has
    /// arrived.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// True if anything of this direction has been seen.
    pub const fn is_open(&self) -> bool {
        self.known.has(StreamFlags::NEXT)
    }

    /// True if the direction was followed from its SYN on.
    pub const fn is_from_start(&self) -> bool {
        self.known.has(StreamFlags::INITIAL)
    }

    /// True if both ends agree on the next sequence number: by the SYN, or by a segment that starts at the
    /// receiver's last acknowledgement.
    pub(super) const fn is_agreed(&self) -> bool {
        self.is_from_start() || self.known.has(StreamFlags::AGREED)
    }

    /// Starts the direction at `sequence`, if its receiver expects that number and no data of it was read.
    pub(super) const fn agree_on(&mut self, sequence: u32) {
        // Bytes of it that were read before decide against a new start: they may be a decoy.
        let awaited = self.is_acknowledged() && self.acknowledged == sequence;
        if awaited && !self.known.has(StreamFlags::SEEN) && !self.is_agreed() {
            self.open(sequence);
            self.known.set(StreamFlags::AGREED);
        }
    }

    /// True if a SYN with this number is the one that the direction began with.
    pub const fn began_with(&self, initial: u32) -> bool {
        self.is_from_start() && self.initial == initial
    }

    /// True if its sender waits for the answer to its SYN. Until then it accepts nothing else (RFC 9293
    /// section 3.10.7.3).
    pub const fn is_syn_sent(&self) -> bool {
        self.is_from_start() && !self.known.has(StreamFlags::SYN_ACK) && !self.known.has(StreamFlags::ANSWERS)
    }

    /// True if the receiver has acknowledged anything.
    pub const fn is_acknowledged(&self) -> bool {
        self.known.has(StreamFlags::ACKNOWLEDGED)
    }

    /// True if the receiver has acknowledged all bytes before `sequence`.
    pub const fn is_acknowledged_to(&self, sequence: u32) -> bool {
        self.is_acknowledged() && distance(sequence, self.acknowledged) >= 0
    }

    /// True if the receiver has acknowledged bytes near the next ones.
    pub(super) const fn is_acknowledged_nearby(&self) -> bool {
        self.is_open()
            && self.is_acknowledged()
            && distance(self.next, self.acknowledged).unsigned_abs() <= NEARBY
    }

    /// True if everything up to the sender's FIN was seen in order.
    pub const fn is_complete(&self) -> bool {
        self.known.has(StreamFlags::END)
            && self.known.has(StreamFlags::NEXT)
            && distance(self.end, self.next) >= 0
    }

    /// True if the receiver has acknowledged the sender's FIN.
    pub const fn is_end_acknowledged(&self) -> bool {
        self.known.has(StreamFlags::END) && self.is_acknowledged_to(self.end.wrapping_add(1))
    }

    /// True if its sender has reset the connection.
    pub const fn is_reset(&self) -> bool {
        self.known.has(StreamFlags::RESET)
    }

    /// Skips `count` bytes at `sequence` that need not be read.
    pub fn pass_over(&mut self, sequence: u32, count: usize) {
        let end = sequence.wrapping_add(u32::try_from(count).unwrap_or(u32::MAX));
        if !self.is_open() {
            self.open(sequence);
        }
        self.reach(end);
        if distance(self.next, end) > 0 {
            self.next = end;
        }
    }

    /// True if its sender has sent a FIN, in order or ahead of a gap.
    pub const fn has_end(&self) -> bool {
        self.known.has(StreamFlags::END)
    }

    /// Returns the number up to which bytes go: a FIN takes a number, but is no byte.
    pub const fn octets_to(&self, number: u32) -> u32 {
        if self.has_end() && distance(self.end, number) > 0 { self.end } else { number }
    }

    /// Records that the receiver may have allowed bytes up to `edge` in a packet that was not seen.
    pub const fn allow(&mut self, edge: u32) {
        if distance(self.edge, edge) > 0 {
            self.edge = edge;
        }
    }

    /// Records that bytes up to `end` were sent and allowed, but not seen.
    pub const fn skip_unseen(&mut self, end: u32) {
        self.reach(end);
        // What was sent and received unseen must have been within the window.
        self.allow(end);
    }

    /// Moves ahead to `at`, which the receiver or the sender itself has shown. Returns the number of
    /// skipped bytes, modulo 2³². A number a little before is old.
    pub const fn jump_to(&mut self, at: u32, received: bool) -> u32 {
        let ahead = at.wrapping_sub(self.next);
        if ahead > u32::MAX - BEHIND {
            return 0;
        }
        if ahead > BEHIND {
            // Numbers do not show any more what is before the SYN.
            self.known.set(StreamFlags::FAR);
            self.highest = at;
            self.edge = at;
            // Without a proof of receipt up to a window of bytes may still be replaced.
            self.acknowledged = if received { at } else { at.wrapping_sub(BEHIND) };
        }
        self.next = at;
        self.skip_unseen(at);
        ahead
    }

    /// Resets everything, except that the end was seen.
    pub(super) const fn forget(&mut self) {
        *self = Self::NEW;
        self.known.set(StreamFlags::HEARD);
    }

    /// Returns an earlier start of a direction whose SYN was not seen: the first of `count` bytes at
    /// `sequence` that its receiver has not acknowledged. `None` if none of them is before the known
    /// bytes.
    pub fn begins_before(&self, sequence: u32, count: usize) -> Option<u32> {
        let first = self.initial.wrapping_add(1);
        let unclear = self.is_open() && !self.is_from_start() && !self.known.has(StreamFlags::FAR);
        let end = sequence.wrapping_add(u32::try_from(count).ok()?);
        // An acknowledgement of bytes that were never seen may be forged.
        let is_known = self.is_acknowledged() && distance(self.acknowledged, self.highest) >= 0;
        let at =
            if is_known && distance(sequence, self.acknowledged) > 0 { self.acknowledged } else { sequence };
        let before = distance(at, first);
        (unclear && before > 0 && before.unsigned_abs() <= NEARBY && distance(at, end) > 0).then_some(at)
    }

    /// Starts the direction with the byte at `sequence`.
    pub(super) const fn open(&mut self, sequence: u32) {
        self.initial = sequence.wrapping_sub(1);
        self.next = sequence;
        self.highest = sequence;
        self.known.set(StreamFlags::NEXT);
    }

    /// Moves the start of a direction whose SYN was not seen to an earlier byte.
    pub(super) const fn begin_earlier(&mut self, sequence: u32) {
        self.next = sequence;
        self.initial = sequence.wrapping_sub(1);
    }

    /// Starts the direction with a SYN.
    pub(super) fn synchronise(&mut self, syn: &OpeningSyn) {
        if !self.is_open() {
            // That was about an earlier connection.
            self.known.clear(StreamFlags::ACKNOWLEDGED);
        }
        self.initial = syn.initial;
        self.hop_limit = syn.hop_limit;
        self.known.set(StreamFlags::HEARD | StreamFlags::INITIAL | StreamFlags::SEEN);
        self.known.clear(StreamFlags::SCALE | StreamFlags::SIGNED);
        if let Some(scale) = syn.options.scale() {
            self.scale = scale;
            self.known.set(StreamFlags::SCALE);
        }
        if syn.options.is_signed() {
            self.known.set(StreamFlags::SIGNED);
        }
        self.open(syn.initial.wrapping_add(1));
    }

    /// Records that bytes up to `end` were sent.
    pub const fn reach(&mut self, end: u32) {
        self.known.set(StreamFlags::SEEN);
        if distance(self.highest, end) > 0 {
            self.highest = end;
        }
        if distance(self.initial, self.highest) > NEAR {
            self.known.set(StreamFlags::FAR);
        }
    }

    /// True if a sequence number is before the first byte of a direction that was followed from its SYN
    /// on.
    pub(super) const fn is_before_start(&self, sequence: u32) -> bool {
        self.is_from_start()
            && !self.known.has(StreamFlags::FAR)
            && distance(self.initial.wrapping_add(1), sequence) < 0
    }

    /// Records the receiver's last acknowledgement in a direction of which no data was seen.
    pub(super) const fn await_at(&mut self, upto: u32, edge: u32) {
        (self.acknowledged, self.edge) = (upto, edge);
        self.known.set(StreamFlags::ACKNOWLEDGED);
    }

    /// Records an acknowledgement and window of the receiver.
    pub(super) const fn acknowledge(&mut self, upto: u32, edge: u32) {
        // Offsets from the SYN, unsigned: `distance` is ambiguous once a connection is longer than half of
        // the circle.
        let since = upto.wrapping_sub(self.initial).wrapping_sub(1);
        let known = self.is_from_start() && since <= self.highest.wrapping_sub(self.initial);
        // Without the SYN only the number behind the last byte proves that the end has seen them; others can
        // be guessed.
        if self.known.has(StreamFlags::SEEN) && (upto == self.highest || known) {
            self.known.set(StreamFlags::CONFIRMED);
        }
        if !self.known.has(StreamFlags::ACKNOWLEDGED) {
            self.acknowledged = upto;
            self.edge = edge;
            self.known.set(StreamFlags::ACKNOWLEDGED);
            return;
        }
        // Segments may be reordered, so an older acknowledgement takes nothing back.
        if distance(self.acknowledged, upto) > 0 {
            self.acknowledged = upto;
        }
        // Nor does a smaller window: bytes may be on their way that the larger one allowed.
        if distance(self.edge, edge) > 0 {
            self.edge = edge;
        }
    }
}
