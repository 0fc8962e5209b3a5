//! Which piece of which packet a datagram carries: the number at its start.
//!
//! ```text
//!  0       1       2       3       4       5       6       7
//! | kind  |        packet (48 bits)                       | piece (7 bits), last (1 bit) |
//! ```
//!
//! A packet that is longer than a datagram, as most that are still to be segmented, goes as several of them,
//! all but the last equally long. Each has a number of its own, so that it can be sealed and known again by
//! itself.

/// The most pieces that a packet is cut into.
pub const MOST_PIECES: usize = 1 << 7;

/// Octets that a number takes.
pub const OCTETS: usize = 7;

/// The numbers of packets go round after so many.
const PACKETS: u64 = 1 << 48;

/// A piece's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The packet, counted by its sender.
    pub packet: u64,
    /// The piece, counted from 0.
    pub piece: u8,
    /// True if no further piece follows.
    pub is_last: bool,
}

impl Place {
    /// The number of piece `index` of `pieces` of a packet.
    pub fn new(packet: u64, index: usize, pieces: usize) -> Self {
        let piece = u8::try_from(index % MOST_PIECES).unwrap_or_default();
        Self { packet: packet % PACKETS, piece, is_last: index + 1 == pieces }
    }

    /// As one number of 56 bits, which no other piece under the same key has.
    pub fn number(self) -> u64 {
        self.packet << 8 | u64::from(self.piece) << 1 | u64::from(self.is_last)
    }

    /// As it stands in a datagram, in network order.
    pub fn to_octets(self) -> [u8; OCTETS] {
        let [_, octets @ ..] = self.number().to_be_bytes();
        octets
    }

    /// Reads what [`Self::to_octets`] gave.
    pub fn from_octets(octets: [u8; OCTETS]) -> Self {
        let mut number = [0; 8];
        number[1..].copy_from_slice(&octets);
        let [.., piece] = number;
        Self { packet: u64::from_be_bytes(number) >> 8, piece: piece >> 1, is_last: piece & 1 == 1 }
    }

    /// True if this is the piece right behind `other`.
    pub fn follows(self, other: Self) -> bool {
        self.packet == other.packet && self.piece == other.piece + 1 && !other.is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_packet_piece_and_end() {
        let last = Place::new(0x1234_5678_9abc, 44, 45);
        assert_eq!(last, Place { packet: 0x1234_5678_9abc, piece: 44, is_last: true });
        assert_eq!(last.to_octets(), [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 89]);
        for octets in [[0; 7], [0xff; 7], [1, 2, 3, 4, 5, 6, 7]] {
            assert_eq!(Place::from_octets(octets).to_octets(), octets);
        }
        assert!(last.follows(Place::new(0x1234_5678_9abc, 43, 45)));
        assert!(!last.follows(Place::new(0x1234_5678_9abb, 43, 45)), "of another packet");
        assert!(!last.follows(Place::new(0x1234_5678_9abc, 43, 44)), "behind the end");
        assert_eq!(Place::new(PACKETS, 0, 1).packet, 0, "they go round");
    }

    #[test]
    fn no_two_pieces_have_one_number() {
        let mut numbers: Vec<u64> = Vec::new();
        for packet in 0..4 {
            numbers.extend((0..MOST_PIECES).map(|piece| Place::new(packet, piece, MOST_PIECES).number()));
        }
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
        assert!(numbers.iter().all(|number| *number < 1 << 56));
    }
}
