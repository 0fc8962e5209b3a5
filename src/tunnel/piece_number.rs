//! Number of a piece at the start of its datagram.
//!
//! ```text
//!  0       1       2       3       4       5       6       7
//! | kind  |        packet (48 bits)                       | piece (7 bits), last (1 bit) |
//! ```
//!
//! A packet that is larger than a datagram, such as most packets before segmentation, is sent in several
//! pieces of equal length, except for the last. Each piece has its own number, so it can be encrypted and
//! identified alone.

/// Limit of pieces in a packet.
pub const MOST_PIECES: usize = 1 << 7;

/// Size of a number in bytes.
pub const OCTETS: usize = 7;

/// Packet numbers wrap after this number.
const PACKETS: u64 = 1 << 48;

/// Number of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceNumber {
    /// Number of the packet, from its sender.
    pub packet: u64,
    /// Number of the piece, from 0.
    pub piece: u8,
    /// True if no further piece follows.
    pub is_last: bool,
}

impl PieceNumber {
    /// Returns the number of piece `index` of `pieces` of a packet.
    pub fn new(packet: u64, index: usize, pieces: usize) -> Self {
        let piece = u8::try_from(index % MOST_PIECES).unwrap_or_default();
        Self { packet: packet % PACKETS, piece, is_last: index + 1 == pieces }
    }

    /// Returns the number as 56 bits, unique among the pieces under one key.
    pub fn number(self) -> u64 {
        self.packet << 8 | u64::from(self.piece) << 1 | u64::from(self.is_last)
    }

    /// Encodes the number in network byte order.
    pub fn to_octets(self) -> [u8; OCTETS] {
        let [_, octets @ ..] = self.number().to_be_bytes();
        octets
    }

    /// Decodes the result of [`Self::to_octets`].
    pub fn from_octets(octets: [u8; OCTETS]) -> Self {
        let mut number = [0; 8];
        number[1..].copy_from_slice(&octets);
        let [.., piece] = number;
        Self { packet: u64::from_be_bytes(number) >> 8, piece: piece >> 1, is_last: piece & 1 == 1 }
    }

    /// True if this piece directly follows `other`.
    pub fn follows(self, other: Self) -> bool {
        self.packet == other.packet && self.piece == other.piece + 1 && !other.is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_packet_piece_and_end() {
        let last = PieceNumber::new(0x1234_5678_9abc, 44, 45);
        assert_eq!(last, PieceNumber { packet: 0x1234_5678_9abc, piece: 44, is_last: true });
        assert_eq!(last.to_octets(), [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 89]);
        for octets in [[0; 7], [0xff; 7], [1, 2, 3, 4, 5, 6, 7]] {
            assert_eq!(PieceNumber::from_octets(octets).to_octets(), octets);
        }
        assert!(last.follows(PieceNumber::new(0x1234_5678_9abc, 43, 45)));
        assert!(!last.follows(PieceNumber::new(0x1234_5678_9abb, 43, 45)), "of another packet");
        assert!(!last.follows(PieceNumber::new(0x1234_5678_9abc, 43, 44)), "behind the end");
        assert_eq!(PieceNumber::new(PACKETS, 0, 1).packet, 0, "they go round");
    }

    #[test]
    fn no_two_pieces_have_one_number() {
        let mut numbers: Vec<u64> = Vec::new();
        for packet in 0..4 {
            numbers
                .extend((0..MOST_PIECES).map(|piece| PieceNumber::new(packet, piece, MOST_PIECES).number()));
        }
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
        assert!(numbers.iter().all(|number| *number < 1 << 56));
    }
}
