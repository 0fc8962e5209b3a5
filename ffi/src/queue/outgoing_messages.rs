//! Messages to the kernel, gathered in one buffer, so that one send carries many.
//!
//! `libnetfilter_queue` writes the content of a message; Rust code does so if that feature is off. Every
//! message has a fixed size, for which space is reserved first.

use super::attribute::{ATTRIBUTE_HEADER, HEADERS, attribute, number};
#[cfg(feature = "libnetfilter_queue")]
use super::libnetfilter_queue as writer;
#[cfg(not(feature = "libnetfilter_queue"))]
use super::rust_messages as writer;
use super::{ConnectionMark, Verdict};
use crate::sys;

/// `NFQA_CT` around `CTA_MARK` and `CTA_MARK_MASK`.
const CONNECTION_MARK: usize = 4 + 8 + 8;
/// Headers, `NFQA_VERDICT_HDR`, `NFQA_MARK` and `NFQA_CT`.
const VERDICT: usize = HEADERS + 12 + 8 + CONNECTION_MARK;
/// Headers, `NFQA_CFG_CMD`, `_PARAMS`, `_QUEUE_MAXLEN`, `_FLAGS` and `_MASK`.
const CONFIGURATION: usize = HEADERS + 8 + 12 + 8 + 8 + 8;

/// Number of bytes above which the buffer is sent before another verdict is added.
const FULL: usize = 16 * 1024;

/// `NLM_F_ACK`.
const WANTS_ACKNOWLEDGEMENT: u16 = 4;

/// Messages that wait to be sent.
#[derive(Debug)]
pub(super) struct OutgoingMessages {
    queue: u16,
    /// Words, because messages start at a multiple of four bytes.
    buffer: Vec<u32>,
    /// Number of bytes in use, a multiple of four.
    length: usize,
    verdicts: u64,
    /// The last packets that are accepted as they are and have no message yet.
    accepted: Option<AcceptedRun>,
    /// True if one message may accept several packets.
    joins_verdicts: bool,
}

/// Consecutive packets that are accepted as they are.
#[derive(Debug, Clone, Copy)]
struct AcceptedRun {
    last: u32,
    is_single: bool,
}

/// Settings of a queue that go into one message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueSettings {
    pub(super) command: Option<u8>,
    pub(super) copy_range: Option<u32>,
    pub(super) maximum_length: Option<u32>,
    /// Values and mask of `NFQA_CFG_F_*`.
    pub(super) flags: Option<(u32, u32)>,
    /// Sequence number, if the message shall be acknowledged.
    pub(super) acknowledge: Option<u32>,
}

impl OutgoingMessages {
    /// Creates an empty buffer for `verdicts` verdicts.
    pub(super) fn new(queue: u16, verdicts: usize) -> Self {
        // A run of accepted packets may need a message before that of the last verdict.
        let octets = ((verdicts + 1) * VERDICT).max(CONFIGURATION);
        let buffer = vec![0; octets.div_ceil(4)];
        Self { queue, buffer, length: 0, verdicts: 0, accepted: None, joins_verdicts: true }
    }

    /// Number of verdicts among the messages.
    pub(super) fn verdicts(&self) -> u64 {
        self.verdicts
    }

    /// True if one more verdict fits.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_for(2 * VERDICT) && self.length < FULL
    }

    /// Gives each packet a message of its own from now on. A packet whose number could not be read would
    /// otherwise get the verdict on those after it.
    pub(super) fn separate_verdicts(&mut self) {
        self.joins_verdicts = false;
    }

    /// The messages, to be sent in one piece.
    pub(super) fn octets(&mut self) -> &[u8] {
        // `push_verdict` has reserved the space.
        let ended = self.end_run();
        debug_assert!(ended, "a run of accepted packets has no room");
        let start = self.buffer.as_ptr().cast::<u8>();
        // SAFETY: the buffer is initialised memory of at least `length` bytes: `push` makes a message within
        // the words that it was given and adds no more than that, and the buffer never shrinks. Any
        // initialised byte is a valid u8, and the borrow of `self` keeps it alive and unchanged.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }

    /// Removes the messages after they were sent.
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.verdicts = 0;
    }

    /// Adds a verdict; `mark` replaces the packet's mark, `connection` bits of its connection's.
    ///
    /// Returns false, and adds nothing, if there is no space.
    #[must_use]
    pub(super) fn push_verdict(
        &mut self,
        id: u32,
        verdict: Verdict,
        mark: Option<u32>,
        connection: Option<ConnectionMark>,
    ) -> bool {
        if verdict == Verdict::Accept && mark.is_none() && connection.is_none() && self.joins_verdicts {
            self.accepted = Some(AcceptedRun { last: id, is_single: self.accepted.is_none() });
            return self.count();
        }
        self.end_run()
            && self.push(VERDICT, |message, queue| {
                writer::begin(message, sys::NFQNL_MSG_VERDICT, queue)
                    && writer::verdict(message, id, verdict.code())
                    && mark.is_none_or(|mark| writer::mark(message, mark))
                    && connection.is_none_or(|mark| connection_mark(message, mark))
            })
            && self.count()
    }

    /// Adds the message about the packets that are accepted as they are. All packets before them have their
    /// verdicts, so one message up to the last of them is enough.
    fn end_run(&mut self) -> bool {
        let Some(AcceptedRun { last, is_single }) = self.accepted.take() else { return true };
        // About one packet the kernel reports if the verdict is too late.
        let kind = if is_single { sys::NFQNL_MSG_VERDICT } else { sys::NFQNL_MSG_VERDICT_BATCH };
        self.push(VERDICT, |message, queue| {
            writer::begin(message, kind, queue) && writer::verdict(message, last, Verdict::Accept.code())
        })
    }

    /// Adds a verdict about every waiting packet up to the one with the number `last`.
    ///
    /// Returns false, and adds nothing, if there is no space.
    #[must_use]
    pub(super) fn push_batch_verdict(&mut self, last: u32, verdict: Verdict) -> bool {
        self.push(VERDICT, |message, queue| {
            writer::begin(message, sys::NFQNL_MSG_VERDICT_BATCH, queue)
                && writer::verdict(message, last, verdict.code())
        }) && self.count()
    }

    /// Adds a verdict that replaces the packet's bytes; `mark` replaces its mark.
    ///
    /// The buffer grows for it, and is full then, because netlink limits a message's length. Returns
    /// false, and adds nothing, if the bytes are too many for an attribute.
    #[must_use]
    pub(super) fn push_replacement(
        &mut self,
        id: u32,
        verdict: Verdict,
        mark: Option<u32>,
        octets: &[u8],
    ) -> bool {
        let Ok(length) = u16::try_from(octets.len() + ATTRIBUTE_HEADER) else { return false };
        if !self.end_run() {
            return false;
        }
        let room = VERDICT + usize::from(length).next_multiple_of(4);
        // Grows and never shrinks here: the next replacement is likely as long.
        let words = (self.length + room).div_ceil(4);
        self.buffer.resize(words.max(self.buffer.len()), 0);
        self.push(room, |message, queue| {
            writer::begin(message, sys::NFQNL_MSG_VERDICT, queue)
                && writer::verdict(message, id, verdict.code())
                && mark.is_none_or(|mark| writer::mark(message, mark))
                && writer::payload(message, octets)
        }) && self.count()
    }

    /// Adds one configuration message with all of `settings`.
    ///
    /// Returns false, and adds nothing, if there is no space.
    #[must_use]
    pub(super) fn push_settings(&mut self, settings: &QueueSettings) -> bool {
        self.push(CONFIGURATION, |message, queue| {
            writer::begin(message, sys::NFQNL_MSG_CONFIG, queue)
                && settings.acknowledge.is_none_or(|sequence| ask_for_answer(message, sequence))
                && settings.command.is_none_or(|command| writer::command(message, command))
                && settings
                    .copy_range
                    .is_none_or(|range| writer::copy(message, sys::NFQNL_COPY_PACKET, range))
                && settings.maximum_length.is_none_or(|length| writer::maximum_length(message, length))
                && settings.flags.is_none_or(|(flags, mask)| {
                    number(message, sys::NFQA_CFG_FLAGS, flags) && number(message, sys::NFQA_CFG_MASK, mask)
                })
        })
    }

    fn has_room_for(&self, octets: usize) -> bool {
        self.buffer.len() * 4 - self.length >= octets
    }

    /// Lets `write` append a message of the queue if `room` bytes are left.
    fn push(&mut self, room: usize, write: impl FnOnce(&mut [u32], u16) -> bool) -> bool {
        let start = self.length / 4;
        let Some(message) = self.buffer.get_mut(start..start + room / 4) else { return false };
        if !write(message, self.queue) {
            return false;
        }
        let Some(&length) = message.first() else { return false };
        let length = length.next_multiple_of(4) as usize;
        if length > message.len() * 4 {
            return false;
        }
        self.length += length;
        true
    }

    /// Counts a verdict that was added.
    fn count(&mut self) -> bool {
        self.verdicts += 1;
        true
    }
}

/// Requests an answer to the message, and sets its sequence number.
fn ask_for_answer(message: &mut [u32], sequence: u32) -> bool {
    let Some([_, kind, its_number]) = message.first_chunk_mut() else { return false };
    // `nlmsg_type` and `nlmsg_flags` share a word.
    let [low, high, flags @ ..] = kind.to_ne_bytes();
    let [first, second] = (u16::from_ne_bytes(flags) | WANTS_ACKNOWLEDGEMENT).to_ne_bytes();
    *kind = u32::from_ne_bytes([low, high, first, second]);
    *its_number = sequence;
    true
}

/// Appends `NFQA_CT` with new values for bits of the connection's mark; the library has no function for
/// it.
fn connection_mark(message: &mut [u32], mark: ConnectionMark) -> bool {
    let mut nested = [0; CONNECTION_MARK - ATTRIBUTE_HEADER];
    let (value, mask) = nested.split_at_mut(8);
    for (octets, kind, bits) in [(value, sys::CTA_MARK, mark.value), (mask, sys::CTA_MARK_MASK, mark.mask)] {
        // An attribute's header is in native byte order, its value in network byte order.
        let ([a, b], [c, d], [e, f, g, h]) = (8_u16.to_ne_bytes(), kind.to_ne_bytes(), bits.to_be_bytes());
        octets.copy_from_slice(&[a, b, c, d, e, f, g, h]);
    }
    attribute(message, sys::NFQA_CT | sys::NLA_F_NESTED, &nested)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(connection: Option<ConnectionMark>) -> Vec<u8> {
        let mut outgoing = OutgoingMessages::new(7, 2);
        assert!(outgoing.push_verdict(9, Verdict::Accept, Some(5), connection));
        let first = outgoing.octets().to_vec();
        assert!(outgoing.push_verdict(9, Verdict::Accept, Some(5), connection));
        assert_eq!(outgoing.octets().len(), 2 * first.len(), "messages stand behind each other");
        assert!(!outgoing.has_room(), "there was room for two");
        first
    }

    #[test]
    fn one_message_accepts_the_packets_of_a_run() {
        let kinds = |verdicts: &[(u32, Verdict)], joins: bool| {
            let mut outgoing = OutgoingMessages::new(7, verdicts.len());
            if !joins {
                outgoing.separate_verdicts();
            }
            for (id, verdict) in verdicts {
                assert!(outgoing.has_room() && outgoing.push_verdict(*id, *verdict, None, None));
            }
            assert_eq!(outgoing.verdicts(), verdicts.len() as u64);
            let messages = outgoing.octets().chunks_exact(HEADERS + 12);
            assert!(messages.remainder().is_empty());
            // The message's kind, the verdict and the packet's number.
            messages.map(|octets| (octets[4], octets[27], octets[31])).collect::<Vec<_>>()
        };
        let (single, batch) = (1, 3);
        let [accept, drop] = [Verdict::Accept, Verdict::Drop];
        assert_eq!(kinds(&[(1, accept)], true), [(single, 1, 1)]);
        assert_eq!(kinds(&[(1, accept), (2, accept), (3, accept)], true), [(batch, 1, 3)]);
        let mixed = [(1, accept), (2, accept), (3, drop), (4, accept), (5, drop)];
        assert_eq!(kinds(&mixed, true), [(batch, 1, 2), (single, 0, 3), (single, 1, 4), (single, 0, 5)]);
        assert_eq!(kinds(&[(1, accept), (2, accept)], false), [(single, 1, 1), (single, 1, 2)]);
    }

    #[test]
    fn a_packets_new_octets_follow_its_verdict_and_fill_the_buffer() {
        let mut outgoing = OutgoingMessages::new(7, 2);
        assert!(outgoing.push_verdict(8, Verdict::Drop, None, None));
        let before = outgoing.octets().len();
        let octets: Vec<u8> = (0..20_001).map(|number: u32| number.to_le_bytes()[0]).collect();
        assert!(outgoing.push_replacement(9, Verdict::Accept, Some(5), &octets));
        assert!(!outgoing.has_room(), "it is sent before the next");
        let message = &outgoing.octets()[before..];
        assert_eq!(message.len(), 20 + 12 + 8 + 4 + 20_004);
        let [low, high, kind, _] = message[40..44].try_into().unwrap();
        assert_eq!((u16::from_ne_bytes([low, high]), kind), (20_005, 10));
        assert_eq!(message[44..20_045], octets[..]);
        assert!(!OutgoingMessages::new(7, 1).push_replacement(9, Verdict::Accept, None, &[0; 65_532]));
    }

    #[test]
    fn settings_stand_in_one_message_that_asks_for_an_answer() {
        let mut outgoing = OutgoingMessages::new(7, 0);
        let settings = QueueSettings {
            command: Some(1),
            copy_range: Some(512),
            maximum_length: Some(1024),
            flags: Some((5, 7)),
            acknowledge: Some(0x0403_0201),
        };
        assert!(outgoing.push_settings(&settings));
        let octets = outgoing.octets();
        assert_eq!(octets.len(), CONFIGURATION);
        assert_eq!(octets[4..8], [[2, 3], 5_u16.to_ne_bytes()].concat()[..], "NLM_F_REQUEST and NLM_F_ACK");
        assert_eq!(octets[8..12], 0x0403_0201_u32.to_ne_bytes());
        assert_eq!(octets[18..20], [0, 7], "the queue");
        assert_eq!(octets[52..56], [0, 0, 0, 5]);
        assert_eq!(octets[60..64], [0, 0, 0, 7]);
    }

    #[test]
    fn a_connections_mark_is_nested_with_its_mask_behind_the_verdict() {
        let plain = octets(None);
        let marked = octets(Some(ConnectionMark { value: 0x4000_0000, mask: 0xC000_0000 }));
        let length = |message: &[u8]| u32::from_ne_bytes(message[..4].try_into().unwrap()) as usize;
        assert_eq!((length(&plain), length(&marked)), (40, 60));
        assert_eq!(marked[4..40], plain[4..40]);
        let word = |at: usize| -> [u8; 4] { marked[at..at + 4].try_into().unwrap() };
        let header = |at| {
            let [a, b, c, d] = word(at);
            (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]))
        };
        assert_eq!(header(40), (20, 0x8000 | 11));
        assert_eq!((header(44), word(48)), ((8, 8), [0x40, 0, 0, 0]));
        assert_eq!((header(52), word(56)), ((8, 21), [0xC0, 0, 0, 0]));
    }
}
