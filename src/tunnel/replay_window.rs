//! Replay protection: records the received pieces under one key.

use super::piece_number::PieceNumber;

/// Number of packets before the newest whose pieces are still accepted.
const WIDTH: usize = 1024;

/// Received pieces of the newest packets.
#[derive(Debug)]
pub struct ReplayWindow {
    /// Number of the newest packet.
    newest: u64,
    /// Bits of the pieces, by the packet number's remainder.
    pieces: Vec<u128>,
}

impl ReplayWindow {
    /// Returns an empty window.
    pub fn new() -> Self {
        Self { newest: 0, pieces: vec![0; WIDTH] }
    }

    /// Records an authentic piece; returns false for a duplicate or a too old piece.
    pub fn admit(&mut self, place: PieceNumber) -> bool {
        let width = WIDTH as u64;
        if place.packet + width <= self.newest {
            return false;
        }
        if place.packet > self.newest {
            let passed = (place.packet - self.newest).min(width);
            for packet in place.packet - passed + 1..=place.packet {
                *self.of(packet) = 0;
            }
            self.newest = place.packet;
        }
        let (seen, bit) = (self.of(place.packet), 1 << (place.piece & 0x7f));
        let is_new = *seen & bit == 0;
        *seen |= bit;
        is_new
    }

    fn of(&mut self, packet: u64) -> &mut u128 {
        let index = usize::try_from(packet % WIDTH as u64).unwrap_or_default();
        &mut self.pieces[index]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn place(packet: u64, piece: u8) -> PieceNumber {
        PieceNumber { packet, piece, is_last: false }
    }

    #[test]
    fn a_piece_is_admitted_once_and_not_when_it_is_old() {
        let mut window = ReplayWindow::new();
        assert!(window.admit(place(0, 0)));
        assert!(!window.admit(place(0, 0)));
        assert!(window.admit(place(0, 127)));
        assert!(window.admit(place(5, 3)) && window.admit(place(4, 3)) && window.admit(place(5, 4)));
        assert!(!window.admit(PieceNumber { is_last: true, ..place(5, 3) }), "another end changes nothing");
        assert!(window.admit(place(1023, 0)) && !window.admit(place(0, 0)));
        assert!(window.admit(place(1024, 0)));
        assert!(!window.admit(place(0, 9)), "too old");
        assert!(window.admit(place(1, 9)));
        assert!(window.admit(place(1 << 47, 0)) && !window.admit(place(1024, 1)));
    }

    proptest! {
        #[test]
        fn nothing_is_admitted_twice(
            steps in prop::collection::vec((0..3_000_u64, 0..128_u8), 0..2_000),
            jumps in prop::collection::vec(0..5_000_u64, 0..4),
        ) {
            let (mut window, mut admitted) = (ReplayWindow::new(), HashSet::new());
            for (index, (packet, piece)) in steps.iter().enumerate() {
                let packet = packet + jumps.iter().take(index / 500).sum::<u64>();
                if window.admit(place(packet, *piece)) {
                    prop_assert!(admitted.insert((packet, *piece)));
                }
            }
        }
    }
}
