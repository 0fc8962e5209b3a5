//! Reassembly of packets from several datagrams that did not arrive in one call: late ones, or on a network
//! without receive offload.
//!
//! The number and size of packets are bounded. If there are too many, the oldest is evicted.

use std::io::IoSlice;
use std::ops::Range;

use super::piece_number::{MOST_PIECES, PieceNumber};

/// Limit of packets under reassembly.
const SLOTS: usize = 16;

/// Longest packet with its segmentation header: IPv6 with 65,535 bytes after its header.
const LONGEST: usize = 65_535 + 40 + 10;

/// Result of adding a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushResult {
    /// More pieces are missing.
    Waiting,
    /// The packet is complete, in the slot with this number.
    Whole(usize),
    /// The piece is a duplicate, or contradicts others, and was dropped.
    Refused,
}

/// Incomplete packets.
#[derive(Debug, Default)]
pub struct PacketReassembler {
    slots: Vec<ReassemblySlot>,
    /// Number of packets started.
    begun: u64,
    /// Number of packets evicted.
    incomplete: u64,
}

#[derive(Debug, Default)]
struct ReassemblySlot {
    /// Session and number of the packet.
    packet: Option<(u32, u64)>,
    /// Number of packets started before it.
    before: u64,
    /// Positions of the pieces, by number.
    pieces: Vec<Option<Range<usize>>>,
    /// Number of all pieces, once the last one has arrived.
    count: Option<usize>,
    octets: Vec<u8>,
}

impl PacketReassembler {
    /// Adds a piece with a number of `session`.
    pub fn push(&mut self, session: u32, place: PieceNumber, octets: &[u8]) -> PushResult {
        let index = self.slot((session, place.packet));
        let Some(slot) = self.slots.get_mut(index) else { return PushResult::Refused };
        if !slot.take(place, octets) {
            return PushResult::Refused;
        }
        if slot.is_whole() { PushResult::Whole(index) } else { PushResult::Waiting }
    }

    /// Returns the parts of the complete packet in a slot, and frees the slot.
    pub fn parts(&mut self, index: usize) -> Vec<IoSlice<'_>> {
        let Some(slot) = self.slots.get_mut(index) else { return Vec::new() };
        slot.packet = None;
        let ranges = slot.pieces.iter().flatten();
        ranges.filter_map(|range| slot.octets.get(range.clone())).map(IoSlice::new).collect()
    }

    /// Returns the number of evicted packets since the last call.
    pub fn take_incomplete(&mut self) -> u64 {
        std::mem::take(&mut self.incomplete)
    }

    /// Returns the slot of a packet: its own, a free one, or that of the oldest packet.
    fn slot(&mut self, packet: (u32, u64)) -> usize {
        if let Some(index) = self.slots.iter().position(|slot| slot.packet == Some(packet)) {
            return index;
        }
        let index = self.slots.iter().position(|slot| slot.packet.is_none()).unwrap_or_else(|| {
            if self.slots.len() < SLOTS {
                self.slots.push(ReassemblySlot::default());
                return self.slots.len() - 1;
            }
            self.incomplete += 1;
            let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.before);
            oldest.map_or(0, |(index, _)| index)
        });
        if let Some(slot) = self.slots.get_mut(index) {
            slot.begin(packet, self.begun);
        }
        self.begun += 1;
        index
    }
}

impl ReassemblySlot {
    fn begin(&mut self, packet: (u32, u64), before: u64) {
        self.packet = Some(packet);
        self.before = before;
        self.pieces.clear();
        self.count = None;
        self.octets.clear();
    }

    fn take(&mut self, place: PieceNumber, octets: &[u8]) -> bool {
        let index = usize::from(place.piece) % MOST_PIECES;
        let end = self.octets.len() + octets.len();
        let is_there = self.pieces.get(index).is_some_and(Option::is_some);
        let is_beyond = self.count.is_some_and(|count| index >= count);
        let ends_twice = place.is_last && (self.count.is_some() || self.pieces.len() > index + 1);
        if is_there || is_beyond || ends_twice || end > LONGEST {
            return false;
        }
        if self.pieces.len() <= index {
            self.pieces.resize(index + 1, None);
        }
        if place.is_last {
            self.count = Some(index + 1);
        }
        if let Some(piece) = self.pieces.get_mut(index) {
            *piece = Some(self.octets.len()..end);
        }
        self.octets.extend_from_slice(octets);
        true
    }

    fn is_whole(&self) -> bool {
        self.count == Some(self.pieces.len()) && self.pieces.iter().all(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(assembly: &mut PacketReassembler, index: usize) -> Vec<u8> {
        assembly.parts(index).iter().flat_map(|part| part.iter().copied()).collect()
    }

    fn place(packet: u64, piece: usize, pieces: usize) -> PieceNumber {
        PieceNumber::new(packet, piece, pieces)
    }

    #[test]
    fn pieces_of_several_packets_come_in_any_order() {
        let mut assembly = PacketReassembler::default();
        assert_eq!(assembly.push(0, place(7, 2, 3), b"ef"), PushResult::Waiting);
        assert_eq!(assembly.push(0, place(8, 0, 2), b"AB"), PushResult::Waiting);
        assert_eq!(assembly.push(0, place(7, 0, 3), b"ab"), PushResult::Waiting);
        assert_eq!(assembly.push(0, place(7, 0, 3), b"xx"), PushResult::Refused, "it is there");
        let PushResult::Whole(index) = assembly.push(0, place(7, 1, 3), b"cd") else {
            panic!("all are there")
        };
        assert_eq!(whole(&mut assembly, index), b"abcdef");
        let PushResult::Whole(index) = assembly.push(0, place(8, 1, 2), b"C") else {
            panic!("all are there")
        };
        assert_eq!(whole(&mut assembly, index), b"ABC");
        assert_eq!(assembly.take_incomplete(), 0);
    }

    #[test]
    fn pieces_of_two_sessions_never_make_one_packet() {
        let mut assembly = PacketReassembler::default();
        assert_eq!(assembly.push(1, place(7, 0, 2), b"ab"), PushResult::Waiting);
        assert_eq!(assembly.push(2, place(7, 1, 2), b"cd"), PushResult::Waiting);
        assert!(matches!(assembly.push(1, place(7, 1, 2), b"ef"), PushResult::Whole(_)));
    }

    #[test]
    fn what_contradicts_is_refused() {
        let mut assembly = PacketReassembler::default();
        assert_eq!(assembly.push(0, place(1, 1, 2), b"b"), PushResult::Waiting);
        assert_eq!(assembly.push(0, place(1, 2, 3), b"c"), PushResult::Refused, "behind the end");
        assert_eq!(assembly.push(0, place(1, 0, 1), b"a"), PushResult::Refused, "a second end");
        assert_eq!(assembly.push(0, place(2, 0, 2), &vec![0; LONGEST]), PushResult::Waiting);
        assert_eq!(assembly.push(0, place(2, 1, 2), b"b"), PushResult::Refused, "too long");
    }

    #[test]
    fn the_oldest_gives_way_and_is_counted() {
        let mut assembly = PacketReassembler::default();
        for packet in 0..100 {
            assert_eq!(assembly.push(0, place(packet, 0, 2), b"a"), PushResult::Waiting);
        }
        assert_eq!(assembly.take_incomplete(), 100 - SLOTS as u64);
        assert!(matches!(assembly.push(0, place(99, 1, 2), b"b"), PushResult::Whole(_)));
        assert_eq!(assembly.push(0, place(5, 1, 2), b"b"), PushResult::Waiting, "its start is gone");
    }

    #[test]
    fn who_came_later_into_a_slot_that_was_freed_is_not_the_oldest() {
        let mut assembly = PacketReassembler::default();
        let slots = SLOTS as u64;
        for packet in 0..slots {
            assert_eq!(assembly.push(0, place(packet, 0, 2), b"a"), PushResult::Waiting);
        }
        let PushResult::Whole(index) = assembly.push(0, place(0, 1, 2), b"b") else {
            panic!("both are there")
        };
        assert_eq!(whole(&mut assembly, index), b"ab");
        // Into the first slot; then all that were begun before it give way.
        for packet in slots..2 * slots {
            assert_eq!(assembly.push(0, place(packet, 0, 2), b"a"), PushResult::Waiting);
        }
        assert_eq!(assembly.take_incomplete(), slots - 1);
        assert!(matches!(assembly.push(0, place(slots, 1, 2), b"b"), PushResult::Whole(_)));
    }

    proptest! {
        #[test]
        fn any_pieces_leave_it_bounded(
            pieces in prop::collection::vec((0..40_u64, 0..128_usize, 1..129_usize, 0..3_000_usize), 0..600),
        ) {
            let mut assembly = PacketReassembler::default();
            for (packet, piece, count, length) in pieces {
                if let PushResult::Whole(index) = assembly.push(0, place(packet, piece, count), &vec![1; length]) {
                    prop_assert!(whole(&mut assembly, index).len() <= LONGEST);
                }
                prop_assert!(assembly.slots.len() <= SLOTS);
                prop_assert!(assembly.slots.iter().all(|slot| slot.octets.len() <= LONGEST));
            }
        }
    }
}
