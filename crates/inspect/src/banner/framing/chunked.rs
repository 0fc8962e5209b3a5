//! The chunked transfer coding, RFC 9112 section 7.1, as a state machine over slices.
//!
//! LF alone is accepted as a line end, as most servers do, except after extensions. White space after a
//! size is accepted, too: old servers pad with it. Anything else that is not a plain size is hostile.

use super::{Anomaly, CHUNK_LIMIT, EXTENSION_LIMIT, TRAILER_LIMIT};

/// Position in a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunked {
    place: Place,
    /// The size that is being read, or the number of data bytes left.
    left: u64,
    /// Number of bytes of the size line or of the trailer so far.
    line: u32,
    /// A limit that was exceeded since the last call of `take_odd`.
    odd: Option<Anomaly>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first digit of a size.
    SizeStart,
    /// Within a size.
    Size,
    /// After a size, in white space.
    Padding,
    /// Within extensions.
    Extension,
    /// After the CR of a size line.
    SizeLf,
    /// Within data.
    Data,
    /// After data, before its line end.
    DataEnd,
    /// After data and CR.
    DataLf,
    /// At the start of a trailer line.
    TrailerStart,
    /// Within a trailer line.
    Trailer,
    /// After CR at the start of a trailer line.
    TrailerLf,
}

/// Meaning of the bytes at the start of a slice.
pub(super) enum Piece {
    /// This number of bytes of content.
    Content(usize),
    /// This number of bytes of framing.
    Frame(usize),
    /// The last bytes of the message.
    End(usize),
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self { place: Place::SizeStart, left: 0, line: 0, odd: None }
    }

    /// Returns a limit that was exceeded since the last call. Reading continues: servers that accept more
    /// find the same end.
    pub(super) const fn take_odd(&mut self) -> Option<Anomaly> {
        self.odd.take()
    }

    const fn count(&mut self, limit: u32, odd: Anomaly) {
        self.line = self.line.saturating_add(1);
        if self.line == limit + 1 {
            self.odd = Some(odd);
        }
    }

    pub(super) const fn data_left(&self) -> u64 {
        match self.place {
            Place::Data => self.left,
            _ => 0,
        }
    }

    pub(super) const fn skip_data(&mut self, octets: u64) {
        if matches!(self.place, Place::Data) {
            self.left = self.left.saturating_sub(octets);
            if self.left == 0 {
                self.place = Place::DataEnd;
            }
        }
    }

    /// Reads one piece from the start of `input`, which must not be empty.
    pub(super) fn step(&mut self, input: &[u8]) -> Result<Piece, Anomaly> {
        if self.place == Place::Data {
            let take = input.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.skip_data(u64::try_from(take).unwrap_or(u64::MAX));
            return Ok(Piece::Content(take));
        }
        for (index, &octet) in input.iter().enumerate() {
            let ended = self.frame_octet(octet)?;
            if ended {
                return Ok(Piece::End(index + 1));
            }
            if self.place == Place::Data {
                return Ok(Piece::Frame(index + 1));
            }
        }
        Ok(Piece::Frame(input.len()))
    }

    /// Reads one byte of framing; returns true if it was the last of the message.
    fn frame_octet(&mut self, octet: u8) -> Result<bool, Anomaly> {
        match self.place {
            Place::SizeStart | Place::Size | Place::Padding | Place::Extension | Place::SizeLf => {
                self.size_line(octet)?;
            }
            Place::DataEnd | Place::DataLf => self.data_end(octet)?,
            Place::TrailerStart | Place::Trailer | Place::TrailerLf => return self.trailer(octet),
            Place::Data => {}
        }
        Ok(false)
    }

    fn size_line(&mut self, octet: u8) -> Result<(), Anomaly> {
        self.count(EXTENSION_LIMIT, Anomaly::ExtensionTooLong);
        match (self.place, octet) {
            (Place::SizeLf, b'\n') => self.size_line_end(),
            (Place::SizeLf, _) => return Err(Anomaly::ChunkLineEnd),
            (Place::SizeStart | Place::Size, digit) if digit.is_ascii_hexdigit() => {
                self.left = self.left * 16 + u64::from(hexadecimal(digit));
                if self.left > CHUNK_LIMIT {
                    return Err(Anomaly::ChunkSizeHuge);
                }
                self.place = Place::Size;
            }
            (Place::SizeStart, _) => return Err(Anomaly::ChunkSizeInvalid),
            (Place::Size | Place::Padding, b'\n') => self.size_line_end(),
            // Some servers read an extension up to CR LF, so they find the data at another position.
            (Place::Extension, b'\n') => return Err(Anomaly::ChunkLineEnd),
            (Place::Size | Place::Padding | Place::Extension, b'\r') => self.place = Place::SizeLf,
            (Place::Size | Place::Padding, b' ' | b'\t') => self.place = Place::Padding,
            (Place::Size | Place::Padding, b';') | (Place::Extension, _) => self.place = Place::Extension,
            _ => return Err(Anomaly::ChunkSizeInvalid),
        }
        Ok(())
    }

    const fn size_line_end(&mut self) {
        self.line = 0;
        self.place = if self.left == 0 { Place::TrailerStart } else { Place::Data };
    }

    const fn data_end(&mut self, octet: u8) -> Result<(), Anomaly> {
        self.place = match (self.place, octet) {
            (Place::DataEnd, b'\r') => Place::DataLf,
            (_, b'\n') => Place::SizeStart,
            _ => return Err(Anomaly::ChunkUnterminated),
        };
        Ok(())
    }

    const fn trailer(&mut self, octet: u8) -> Result<bool, Anomaly> {
        self.count(TRAILER_LIMIT, Anomaly::TrailerTooLong);
        self.place = match (self.place, octet) {
            (Place::TrailerStart | Place::TrailerLf, b'\n') => return Ok(true),
            (Place::TrailerStart, b'\r') => Place::TrailerLf,
            (Place::TrailerLf, _) => return Err(Anomaly::ChunkLineEnd),
            (_, b'\n') => Place::TrailerStart,
            _ => Place::Trailer,
        };
        Ok(false)
    }
}

const fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.saturating_sub(b'A') + 10,
    }
}
