//! The handshake bytes of one side, reassembled from CRYPTO frames in any order.
//!
//! All bytes are kept, so that repeated bytes can be compared with the first ones. Otherwise a receiver
//! that missed a datagram could reassemble something that was never inspected.

use crate::banner::tls::{TooLong, message_in, next_message};

/// Number of handshake bytes that are reassembled: more than servers accept before they answer.
pub(super) const LIMIT: usize = 1 << 17;

/// Number of separate pieces; adjacent ones are merged. Clients that scatter their hello on purpose make
/// a dozen.
const PIECES: usize = 64;

/// The reason why bytes were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CryptoStreamError {
    /// Repeated bytes have other values than the first ones.
    Conflict,
    /// There are too many bytes, or too many gaps between them.
    TooMany,
}

/// The handshake bytes of one side so far.
#[derive(Debug, Default)]
pub struct CryptoStream {
    /// In order, with gaps between them.
    pieces: Vec<CryptoPiece>,
    /// Number of bytes of messages that were returned.
    given: usize,
}

#[derive(Debug)]
struct CryptoPiece {
    offset: usize,
    octets: Vec<u8>,
}

impl CryptoPiece {
    fn end(&self) -> usize {
        self.offset + self.octets.len()
    }

    /// True if `octets` at `offset` are equal to the bytes known at the same positions.
    fn agrees(&self, offset: usize, octets: &[u8]) -> bool {
        let start = self.offset.max(offset);
        let end = self.end().min(offset + octets.len());
        start >= end
            || self.octets.get(start - self.offset..end - self.offset)
                == octets.get(start - offset..end - offset)
    }
}

impl CryptoStream {
    /// Adds bytes of the handshake.
    ///
    /// # Errors
    ///
    /// Returns [`CryptoStreamError`] if the bytes were not added.
    pub fn take(&mut self, offset: u64, octets: &[u8]) -> Result<(), CryptoStreamError> {
        let offset = usize::try_from(offset).ok().filter(|at| at.saturating_add(octets.len()) <= LIMIT);
        let offset = offset.ok_or(CryptoStreamError::TooMany)?;
        let end = offset + octets.len();
        if octets.is_empty() {
            return Ok(());
        }
        let first = self.pieces.partition_point(|piece| piece.end() < offset);
        let behind = self.pieces.partition_point(|piece| piece.offset <= end);
        let touched = self.pieces.get(first..behind).unwrap_or_default();
        if !touched.iter().all(|piece| piece.agrees(offset, octets)) {
            return Err(CryptoStreamError::Conflict);
        }
        if touched.is_empty() && self.pieces.len() >= PIECES {
            return Err(CryptoStreamError::TooMany);
        }
        if let [whole] = touched
            && whole.offset <= offset
        {
            let known = whole.end() - offset;
            let more = octets.get(known..).unwrap_or_default();
            if let Some(piece) = self.pieces.get_mut(first) {
                piece.octets.extend_from_slice(more);
            }
            return Ok(());
        }
        let start = touched.first().map_or(offset, |piece| piece.offset.min(offset));
        let mut merged = CryptoPiece { offset: start, octets: Vec::new() };
        for piece in touched.iter().filter(|piece| piece.offset <= offset) {
            merged.octets.extend_from_slice(&piece.octets);
        }
        merged.add(offset, octets);
        for piece in touched.iter().filter(|piece| piece.offset > offset) {
            merged.add(piece.offset, &piece.octets);
        }
        self.pieces.splice(first..behind, [merged]);
        Ok(())
    }

    /// Returns the next complete message that was not returned before, as its type and body.
    ///
    /// # Errors
    ///
    /// Returns [`CryptoStreamError::TooMany`] for a message that is longer than any receiver accepts.
    pub fn next_message(&mut self) -> Result<Option<(u8, &[u8])>, CryptoStreamError> {
        let message = next_message(self.beginning(), self.given, LIMIT);
        let Some(range) = message.map_err(|TooLong| CryptoStreamError::TooMany)? else { return Ok(None) };
        self.given = range.end;
        Ok(Some(message_in(self.beginning(), range)))
    }

    /// Number of bytes of memory held.
    pub fn memory(&self) -> usize {
        let octets: usize = self.pieces.iter().map(|piece| piece.octets.capacity()).sum();
        octets + self.pieces.capacity() * size_of::<CryptoPiece>()
    }

    fn beginning(&self) -> &[u8] {
        self.pieces.first().filter(|piece| piece.offset == 0).map_or(&[], |piece| &piece.octets)
    }
}

impl CryptoPiece {
    /// Adds bytes that start within the piece or at its end.
    fn add(&mut self, offset: usize, octets: &[u8]) {
        let known = self.end().saturating_sub(offset);
        self.octets.extend_from_slice(octets.get(known..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"\x01\x00\x00\x06abcdef";

    fn message(frames: &[(u64, &[u8])]) -> Option<Vec<u8>> {
        let mut hellos = CryptoStream::default();
        for (offset, octets) in frames {
            hellos.take(*offset, octets).expect("octets that agree");
        }
        hellos.next_message().expect("a short message").map(|(kind, body)| {
            assert_eq!(kind, 1);
            body.to_vec()
        })
    }

    #[test]
    fn a_message_is_the_same_in_any_order_and_however_often_its_octets_come() {
        let (a, b, c) = ((0, &MESSAGE[..3]), (3, &MESSAGE[3..7]), (7, &MESSAGE[7..]));
        for frames in [[a, b, c], [c, b, a], [b, a, c], [c, a, b], [a, c, b]] {
            assert_eq!(message(&frames).as_deref(), Some(&b"abcdef"[..]), "{frames:?}");
            assert_eq!(message(&frames[..2]), None);
        }
        let overlapping = [(2, &MESSAGE[2..9]), (0, &MESSAGE[..4]), (1, &MESSAGE[1..]), c];
        assert_eq!(message(&overlapping).as_deref(), Some(&b"abcdef"[..]));
    }

    #[test]
    fn what_comes_again_with_other_values_is_refused() {
        let mut hellos = CryptoStream::default();
        hellos.take(4, b"abc").unwrap();
        assert_eq!(hellos.take(5, b"x"), Err(CryptoStreamError::Conflict));
        assert_eq!(hellos.take(0, b"0123x"), Err(CryptoStreamError::Conflict));
        hellos.take(0, &MESSAGE[..4]).unwrap();
        hellos.take(7, b"def").unwrap();
        assert_eq!(hellos.next_message(), Ok(Some((1, &b"abcdef"[..]))));
        assert_eq!(hellos.next_message(), Ok(None));
        assert_eq!(hellos.take(8, b"X"), Err(CryptoStreamError::Conflict), "after it was given, too");
    }

    #[test]
    fn holes_and_octets_have_bounds() {
        let mut hellos = CryptoStream::default();
        let taken = (1..1000_u64).filter(|at| hellos.take(at * 3, b"a").is_ok()).count();
        assert_eq!(taken, PIECES);
        assert_eq!(hellos.take(LIMIT as u64, b"a"), Err(CryptoStreamError::TooMany));
        assert_eq!(hellos.take(u64::MAX, b"a"), Err(CryptoStreamError::TooMany));
        let mut hellos = CryptoStream::default();
        hellos.take(0, b"\x01\xff\xff\xff").unwrap();
        assert_eq!(hellos.next_message(), Err(CryptoStreamError::TooMany));
    }
}
