//! Handshake messages from records, RFC 8446 section 5.1: a record holds several messages or a part of
//! one.

use std::ops::Range;

/// Number of bytes of a record's header: its type, a version, and the length of the content.
const HEADER: usize = 5;

/// Largest first byte of a record's version. Most receivers want 3 and ignore the second byte; Go ignores
/// both before the versions of the hellos are known, up to here.
pub const MAJOR_LIMIT: u8 = 0x0f;

/// Number of bytes of a handshake message's header: its type, and the length of the content.
const MESSAGE_HEADER: usize = 4;

/// Length of the longest accepted record, in bytes: 2^14 and the overhead of encryption, RFC 5246 section
/// 6.2.3.
const RECORD_LIMIT: usize = (1 << 14) + 2048;

/// Length of the longest reassembled message, in bytes: OpenSSL's limit for a `ClientHello`.
pub const MESSAGE_LIMIT: usize = 131_396;

/// Reader of one side's records.
#[derive(Debug, Default)]
pub struct RecordReader {
    /// Number of bytes of the input that were read.
    at: usize,
    /// Bytes of handshake messages from the records.
    held: Vec<u8>,
    /// Number of these bytes that were returned.
    given: usize,
}

/// The next piece of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordPiece<'r> {
    /// It is incomplete until the input has this number of bytes.
    More(usize),
    /// A handshake message: its type and its body.
    Message(u8, &'r [u8]),
    /// An alert: its level and its description.
    Alert(u8, u8),
    /// Keys change: encrypted data may follow.
    ChangeCipherSpec,
    /// A record that is not read.
    Opaque,
    /// The input does not consist of records.
    Never,
}

impl RecordReader {
    /// Returns the next piece of `input`. The input is everything that was sent and not taken yet; it
    /// grows with each call.
    pub fn next(&mut self, input: &[u8]) -> RecordPiece<'_> {
        loop {
            match next_message(&self.held, self.given, MESSAGE_LIMIT) {
                Ok(Some(message)) => {
                    self.given = message.end;
                    let (header, body) = message_in(&self.held, message);
                    return RecordPiece::Message(header, body);
                }
                Ok(None) => {}
                Err(TooLong) => return RecordPiece::Never,
            }
            let rest = input.get(self.at..).unwrap_or_default();
            let Some(([kind, major, _, high, low], behind)) = rest.split_first_chunk::<HEADER>() else {
                return RecordPiece::More(self.at + HEADER);
            };
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if *major > MAJOR_LIMIT || length > RECORD_LIMIT {
                return RecordPiece::Never;
            }
            let end = self.at + HEADER + length;
            let Some(body) = behind.get(..length) else { return RecordPiece::More(end) };
            self.at = end;
            match (kind, body) {
                (0x16, body) => self.hold(body),
                (0x15, [level, description]) => return RecordPiece::Alert(*level, *description),
                (0x14, _) => return RecordPiece::ChangeCipherSpec,
                (0x15 | 0x17 | 0x18, _) => return RecordPiece::Opaque,
                _ => return RecordPiece::Never,
            }
        }
    }

    /// Takes the read bytes: returns their number; the next input begins after them.
    pub fn take(&mut self) -> usize {
        std::mem::take(&mut self.at)
    }

    /// Number of bytes of memory held.
    pub fn memory(&self) -> usize {
        self.held.capacity()
    }

    fn hold(&mut self, body: &[u8]) {
        self.held.drain(..self.given);
        self.given = 0;
        self.held.extend_from_slice(body);
    }
}

/// A handshake message is longer than any receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Returns the position of the handshake message that begins at `at`, if it is complete.
///
/// # Errors
///
/// Returns [`TooLong`] if its body has more than `limit` bytes.
pub fn next_message(octets: &[u8], at: usize, limit: usize) -> Result<Option<Range<usize>>, TooLong> {
    let rest = octets.get(at..).unwrap_or_default();
    let Some(([_, high, middle, low], _)) = rest.split_first_chunk::<MESSAGE_HEADER>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes([0, *high, *middle, *low])).unwrap_or(usize::MAX);
    if length > limit {
        return Err(TooLong);
    }
    let end = at + MESSAGE_HEADER + length;
    Ok((end <= octets.len()).then_some(at..end))
}

/// Returns the type and body of a complete message.
pub fn message_in(octets: &[u8], message: Range<usize>) -> (u8, &[u8]) {
    let message = octets.get(message).unwrap_or_default();
    let kind = message.first().copied().unwrap_or_default();
    (kind, message.get(MESSAGE_HEADER..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&[kind, 3, 1, length[0], length[1]], body].concat()
    }

    /// All pieces of `octets`, shown byte by byte.
    fn pieces(octets: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let (mut records, mut pieces) = (RecordReader::default(), Vec::new());
        for end in 0..=octets.len() {
            loop {
                match records.next(&octets[..end]) {
                    RecordPiece::More(needed) => {
                        assert!(needed > end);
                        break;
                    }
                    RecordPiece::Message(kind, body) => pieces.push((kind, body.to_vec())),
                    RecordPiece::Alert(level, code) => pieces.push((0x15, vec![level, code])),
                    RecordPiece::ChangeCipherSpec => pieces.push((0x14, Vec::new())),
                    RecordPiece::Opaque => pieces.push((0x17, Vec::new())),
                    RecordPiece::Never => return pieces,
                }
            }
        }
        pieces
    }

    #[test]
    fn messages_are_the_same_however_records_cut_them() {
        let messages = [&b"\x02\x00\x00\x03abc"[..], b"\x0b\x00\x00\x00", b"\x0e\x00\x00\x01z"].concat();
        let expected = vec![(2, b"abc".to_vec()), (11, Vec::new()), (14, b"z".to_vec())];
        for size in [1, 2, 5, 7, 100] {
            let octets: Vec<u8> = messages.chunks(size).flat_map(|part| record(0x16, part)).collect();
            assert_eq!(pieces(&octets), expected, "{size}");
        }
        let empty = [record(0x16, b""), record(0x16, &messages)].concat();
        assert_eq!(pieces(&empty), expected);
    }

    #[test]
    fn other_records_are_told_apart() {
        let octets = [
            record(0x15, &[2, 40]),
            record(0x14, &[1]),
            record(0x17, b"secret"),
            record(0x15, b"encrypted"),
            b"\x80\x2e\x01\x03\x01".to_vec(),
        ]
        .concat();
        let expected = vec![(0x15, vec![2, 40]), (0x14, Vec::new()), (0x17, Vec::new()), (0x17, Vec::new())];
        assert_eq!(pieces(&octets), expected);
    }

    #[test]
    fn a_message_longer_than_anybody_takes_is_none() {
        let mut records = RecordReader::default();
        assert_eq!(records.next(&record(0x16, b"\x01\x02\x01\x45")), RecordPiece::Never);
        let mut records = RecordReader::default();
        assert_eq!(records.next(b"\x16\x03\x01\x48\x01"), RecordPiece::Never);
    }

    #[test]
    fn what_was_taken_is_not_in_the_next_input() {
        let octets = [record(0x16, b"\x02\x00"), record(0x16, b"\x00\x01a")].concat();
        let mut records = RecordReader::default();
        assert_eq!(records.next(&octets[..9]), RecordPiece::More(12));
        let used = records.take();
        assert_eq!(used, 7);
        assert_eq!(records.next(&octets[used..]), RecordPiece::Message(2, b"a"));
        assert_eq!(records.take(), octets.len() - used);
    }
}
