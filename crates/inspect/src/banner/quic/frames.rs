//! Frames of an Initial, RFC 9000 sections 12.4 and 19.

use crate::banner::byte_reader::ByteReader;

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;
const CONNECTION_CLOSE: u8 = 0x1c;

/// A frame that an Initial may not have, or that is cut off: its receiver closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedFrame;

/// Returns the handshake bytes of each CRYPTO frame in turn, with their offset in the handshake.
pub fn crypto_frames(payload: &[u8]) -> impl Iterator<Item = Result<(u64, &[u8]), MalformedFrame>> {
    let mut reader = ByteReader(payload);
    std::iter::from_fn(move || {
        loop {
            let kind = reader.u8()?;
            match frame(kind, &mut reader) {
                Some(None) => {}
                Some(Some(crypto)) => return Some(Ok(crypto)),
                None => {
                    reader.0 = &[];
                    return Some(Err(MalformedFrame));
                }
            }
        }
    })
}

/// Reads a frame after its type. Returns none if it can't be read; returns an inner none if it carries no
/// handshake bytes.
fn frame<'f>(kind: u8, reader: &mut ByteReader<'f>) -> Option<Option<(u64, &'f [u8])>> {
    match kind {
        PADDING | PING => {}
        ACK | ACK_ECN => acknowledgement(kind, reader)?,
        CRYPTO => {
            let offset = reader.varint()?;
            return Some(Some((offset, reader.after_varint()?)));
        }
        CONNECTION_CLOSE => {
            let (_code, _frame) = (reader.varint()?, reader.varint()?);
            let _reason = reader.after_varint()?;
        }
        _ => return None,
    }
    Some(None)
}

/// Section 19.3: the highest number and a delay, ranges, and perhaps three counts.
fn acknowledgement(kind: u8, reader: &mut ByteReader<'_>) -> Option<()> {
    let (_highest, _delay, ranges, _first) =
        (reader.varint()?, reader.varint()?, reader.varint()?, reader.varint()?);
    let counts = if kind == ACK_ECN { 3 } else { 0 };
    for _ in 0..ranges.checked_mul(2)?.checked_add(counts)? {
        reader.varint()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &[u8]) -> Vec<Result<(u64, &[u8]), MalformedFrame>> {
        crypto_frames(payload).collect()
    }

    #[test]
    fn what_stands_between_crypto_frames_is_gone_over() {
        let acks = b"\x02\x05\x00\x01\x02\x00\x01\x03\x05\x00\x00\x02\x01\x02\x40\x03";
        let close = b"\x1c\x0a\x06\x03why";
        let payload = [b"\0\0\x01\x06\x00\x03abc", &acks[..], b"\x06\x40\x05\x01z", close, b"\0"].concat();
        assert_eq!(read(&payload), [Ok((0, &b"abc"[..])), Ok((5, b"z"))]);
    }

    #[test]
    fn frames_that_no_initial_has_end_it() {
        assert_eq!(read(b"\x06\x00\x01a\x08\x00\x06\x00\x01b"), [Ok((0, &b"a"[..])), Err(MalformedFrame)]);
        assert_eq!(read(b"\x06\x00\x05abcd"), [Err(MalformedFrame)]);
        assert_eq!(read(b"\x02\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00"), [Err(MalformedFrame)]);
    }
}
