//! Messages to the kernel, gathered in one buffer so that many travel in one send.
//!
//! The only place that calls `libnetfilter_queue`. Every message has a fixed size that is made room
//! for before the library writes, because its functions do not check bounds.

use std::ptr::NonNull;

use libc::nlmsghdr;

use super::{ConnectionMark, Verdict};
use crate::sys;

/// `struct nlmsghdr` and `struct nfgenmsg`, which begin every message.
const HEADERS: usize = 20;
/// `NFQA_CT` around `CTA_MARK` and `CTA_MARK_MASK`.
const CONNECTION_MARK: usize = 4 + 8 + 8;
/// Headers, `NFQA_VERDICT_HDR`, `NFQA_MARK` and `NFQA_CT`.
const VERDICT: usize = HEADERS + 12 + 8 + CONNECTION_MARK;
/// Headers, `NFQA_CFG_CMD`, `_PARAMS`, `_QUEUE_MAXLEN`, `_FLAGS` and `_MASK`.
const CONFIGURATION: usize = HEADERS + 8 + 12 + 8 + 8 + 8;

/// `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;
/// More octets than this are sent before another verdict is added.
const FULL: usize = 16 * 1024;

/// `NLM_F_ACK`.
const WANTS_ACKNOWLEDGEMENT: u16 = 4;

/// Messages that wait to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: u16,
    /// Words, because the library needs four-octet alignment.
    buffer: Vec<u32>,
    /// Octets in use, a multiple of four.
    length: usize,
    verdicts: u64,
}

/// Settings of a queue that go into one message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settings {
    pub(super) command: Option<u8>,
    pub(super) copy_range: Option<u32>,
    pub(super) maximum_length: Option<u32>,
    /// Values and mask of `NFQA_CFG_F_*`.
    pub(super) flags: Option<(u32, u32)>,
    /// Sequence number of a message that shall be acknowledged.
    pub(super) acknowledge: Option<u32>,
}

impl Outgoing {
    /// An empty buffer with room for `verdicts` verdicts.
    pub(super) fn new(queue: u16, verdicts: usize) -> Self {
        let octets = (verdicts * VERDICT).max(CONFIGURATION);
        Self { queue, buffer: vec![0; octets.div_ceil(4)], length: 0, verdicts: 0 }
    }

    /// Number of verdicts among the messages.
    pub(super) fn verdicts(&self) -> u64 {
        self.verdicts
    }

    /// Whether there is room for one more verdict.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_for(VERDICT) && self.length < FULL
    }

    /// The messages, to be sent whole.
    pub(super) fn octets(&self) -> &[u8] {
        let start = self.buffer.as_ptr().cast::<u8>();
        // SAFETY: the buffer is initialised memory of at least `length` octets (`begin` checks), any
        // initialised octet is a valid u8, and the borrow of `self` keeps it alive and unchanged.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }

    /// Forgets the messages, after they were sent.
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.verdicts = 0;
    }

    /// Adds a verdict; `mark` replaces the packet's mark, `connection` bits of its connection's.
    ///
    /// Returns false, and adds nothing, where there is no room.
    #[must_use]
    pub(super) fn push_verdict(
        &mut self,
        id: u32,
        verdict: Verdict,
        mark: Option<u32>,
        connection: Option<ConnectionMark>,
    ) -> bool {
        let Some(message) = self.begin(sys::NFQNL_MSG_VERDICT, VERDICT) else {
            return false;
        };
        // SAFETY: `begin` made `message` a whole header with VERDICT octets of room; this takes 12.
        unsafe { sys::nfq_nlmsg_verdict_put(message.as_ptr(), id.cast_signed(), verdict.code()) };
        if let Some(mark) = mark {
            // SAFETY: as above; this takes 8 more.
            unsafe { sys::nfq_nlmsg_verdict_put_mark(message.as_ptr(), mark) };
        }
        self.verdicts += 1;
        let start = self.length;
        self.end() && connection.is_none_or(|mark| self.append_connection_mark(start, mark))
    }

    /// Adds a verdict that gives the packet other octets; `mark` replaces its mark.
    ///
    /// The buffer grows for it, and is full then: netlink takes no message of any length.
    /// Returns false, and adds nothing, where the octets are too many for an attribute.
    #[must_use]
    pub(super) fn push_replacement(
        &mut self,
        id: u32,
        verdict: Verdict,
        mark: Option<u32>,
        octets: &[u8],
    ) -> bool {
        let Ok(length) = u16::try_from(octets.len() + ATTRIBUTE_HEADER) else { return false };
        let room = VERDICT + usize::from(length).next_multiple_of(4);
        let words = (self.length + room).div_ceil(4);
        self.buffer.resize(words.max(self.buffer.len()), 0);
        let Some(message) = self.begin(sys::NFQNL_MSG_VERDICT, room) else { return false };
        // SAFETY: `begin` made `message` a whole header with `room` octets; this takes 12.
        unsafe { sys::nfq_nlmsg_verdict_put(message.as_ptr(), id.cast_signed(), verdict.code()) };
        if let Some(mark) = mark {
            // SAFETY: as above; this takes 8 more.
            unsafe { sys::nfq_nlmsg_verdict_put_mark(message.as_ptr(), mark) };
        }
        let count = u32::from(length) - 4;
        // SAFETY: as above; this takes `length` octets, padded to four, and reads `count` of `octets`.
        unsafe { sys::nfq_nlmsg_verdict_put_pkt(message.as_ptr(), octets.as_ptr().cast(), count) };
        self.verdicts += 1;
        self.end()
    }

    /// Adds one configuration message with all of `settings`.
    ///
    /// Returns false, and adds nothing, where there is no room.
    #[must_use]
    pub(super) fn push_settings(&mut self, settings: &Settings) -> bool {
        let Some(mut message) = self.begin(sys::NFQNL_MSG_CONFIG, CONFIGURATION) else {
            return false;
        };
        if let Some(sequence) = settings.acknowledge {
            // SAFETY: `begin` had the library initialise this header in our buffer, and nothing else
            // points to it while this reference lives.
            let header = unsafe { message.as_mut() };
            header.nlmsg_flags |= WANTS_ACKNOWLEDGEMENT;
            header.nlmsg_seq = sequence;
        }
        let message = message.as_ptr();
        if let Some(command) = settings.command {
            // SAFETY: `begin` made `message` a whole header with CONFIGURATION octets of room; this takes 8.
            unsafe { sys::nfq_nlmsg_cfg_put_cmd(message, 0, command) };
        }
        if let Some(range) = settings.copy_range {
            // SAFETY: as above; this takes 12 (a header of 4, 5, and padding).
            unsafe { sys::nfq_nlmsg_cfg_put_params(message, sys::NFQNL_COPY_PACKET, range.cast_signed()) };
        }
        if let Some(length) = settings.maximum_length {
            // SAFETY: as above; this takes 8.
            unsafe { sys::nfq_nlmsg_cfg_put_qmaxlen(message, length) };
        }
        let start = self.length;
        self.end()
            && settings.flags.is_none_or(|(flags, mask)| {
                self.append_u32(start, sys::NFQA_CFG_FLAGS, flags)
                    && self.append_u32(start, sys::NFQA_CFG_MASK, mask)
            })
    }

    fn has_room_for(&self, octets: usize) -> bool {
        self.buffer.len() * 4 - self.length >= octets
    }

    /// Starts a message of `kind` behind the others, where `room` octets are left.
    fn begin(&mut self, kind: u16, room: usize) -> Option<NonNull<nlmsghdr>> {
        if !self.has_room_for(room) {
            return None;
        }
        let free = self.buffer.get_mut(self.length / 4..)?.as_mut_ptr();
        // SAFETY: `free` points to at least `room` ≥ HEADERS octets of our buffer, aligned to four, that
        // nothing else borrows.
        let message = unsafe { sys::nfq_nlmsg_put(free.cast(), kind.into(), self.queue.into()) };
        NonNull::new(message)
    }

    /// Counts the message that `begin` started, whose first word is its length.
    fn end(&mut self) -> bool {
        let Some(&length) = self.buffer.get(self.length / 4) else {
            return false;
        };
        self.length += length.next_multiple_of(4) as usize;
        true
    }

    /// Appends `NFQA_CT` to the last message, which starts at octet `start`.
    fn append_connection_mark(&mut self, start: usize, mark: ConnectionMark) -> bool {
        let length = u16::try_from(CONNECTION_MARK).unwrap_or(u16::MAX);
        self.append(start, &[attribute_header(length, sys::NFQA_CT | sys::NLA_F_NESTED)])
            && self.append_u32(start, sys::CTA_MARK, mark.value)
            && self.append_u32(start, sys::CTA_MARK_MASK, mark.mask)
    }

    /// Appends a big-endian number to the last message, which starts at octet `start`.
    ///
    /// libmnl has this as `mnl_attr_put_u32`; two words are not worth another library.
    fn append_u32(&mut self, start: usize, attribute: u16, value: u32) -> bool {
        self.append(start, &[attribute_header(8, attribute), value.to_be()])
    }

    /// Appends words to the last message, which starts at octet `start`.
    fn append(&mut self, start: usize, words: &[u32]) -> bool {
        let at = self.length / 4;
        let Some(room) = self.buffer.get_mut(at..at + words.len()) else {
            return false;
        };
        room.copy_from_slice(words);
        let octets = words.len() * 4;
        let Some(message_length) = self.buffer.get_mut(start / 4) else {
            return false;
        };
        *message_length += u32::try_from(octets).unwrap_or(0);
        self.length += octets;
        true
    }
}

/// `struct nlattr` in one word: length, header included, and type.
fn attribute_header(length: u16, kind: u16) -> u32 {
    let [length, kind] = [length.to_ne_bytes(), kind.to_ne_bytes()];
    u32::from_ne_bytes([length[0], length[1], kind[0], kind[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(connection: Option<ConnectionMark>) -> Vec<u8> {
        let mut outgoing = Outgoing::new(7, 2);
        assert!(outgoing.push_verdict(9, Verdict::Accept, Some(5), connection));
        let first = outgoing.octets().to_vec();
        assert!(outgoing.push_verdict(9, Verdict::Accept, Some(5), connection));
        assert_eq!(outgoing.octets().len(), 2 * first.len(), "messages stand behind each other");
        assert!(!outgoing.has_room(), "there was room for two");
        first
    }

    #[test]
    fn a_packets_new_octets_follow_its_verdict_and_fill_the_buffer() {
        let mut outgoing = Outgoing::new(7, 2);
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
        assert!(!Outgoing::new(7, 1).push_replacement(9, Verdict::Accept, None, &[0; 65_532]));
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
