//! The chunked transfer coding, RFC 9112 section 7.1, as a state machine over slices.
//!
//! LF alone is accepted as a line end, as most servers do, except after extensions. White space after a
//! size is accepted, too: old servers pad with it. Anything else that is not a plain size is hostile.

use super::{Anomaly, CHUNK_LIMIT, EXTENSION_LIMIT, TRAILER_LIMIT};

/// Position in a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChunkedDecoder {
    place: ChunkedPosition,
    /// The size that is being read, or the number of data bytes left.
    left: u64,
    /// Number of bytes of the size line or of the trailer so far.
    line: u32,
    /// A limit that was exceeded since the last call of `take_odd`.
    odd: Option<Anomaly>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkedPosition {
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
pub(super) enum ChunkedPiece {
    /// This number of bytes of content.
    Content(usize),
    /// This number of bytes of framing.
    Frame(usize),
    /// The last bytes of the message.
    End(usize),
}

impl ChunkedDecoder {
    pub(super) const fn new() -> Self {
        Self { place: ChunkedPosition::SizeStart, left: 0, line: 0, odd: None }
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
            ChunkedPosition::Data => self.left,
            _ => 0,
        }
    }

    pub(super) const fn skip_data(&mut self, octets: u64) {
        if matches!(self.place, ChunkedPosition::Data) {
            self.left = self.left.saturating_sub(octets);
            if self.left == 0 {
                self.place = ChunkedPosition::DataEnd;
            }
        }
    }

    /// Reads one piece from the start of `input`, which must not be empty.
    pub(super) fn step(&mut self, input: &[u8]) -> Result<ChunkedPiece, Anomaly> {
        if self.place == ChunkedPosition::Data {
            let take = input.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.skip_data(u64::try_from(take).unwrap_or(u64::MAX));
            return Ok(ChunkedPiece::Content(take));
        }
        for (index, &octet) in input.iter().enumerate() {
            let ended = self.frame_octet(octet)?;
            if ended {
                return Ok(ChunkedPiece::End(index + 1));
            }
            if self.place == ChunkedPosition::Data {
                return Ok(ChunkedPiece::Frame(index + 1));
            }
        }
        Ok(ChunkedPiece::Frame(input.len()))
    }

    /// Reads one byte of framing; returns true if it was the last of the message.
    fn frame_octet(&mut self, octet: u8) -> Result<bool, Anomaly> {
        match self.place {
            ChunkedPosition::SizeStart
            | ChunkedPosition::Size
            | ChunkedPosition::Padding
            | ChunkedPosition::Extension
            | ChunkedPosition::SizeLf => {
                self.size_line(octet)?;
            }
            ChunkedPosition::DataEnd | ChunkedPosition::DataLf => self.data_end(octet)?,
            ChunkedPosition::TrailerStart | ChunkedPosition::Trailer | ChunkedPosition::TrailerLf => {
                return self.trailer(octet);
            }
            ChunkedPosition::Data => {}
        }
        Ok(false)
    }

    fn size_line(&mut self, octet: u8) -> Result<(), Anomaly> {
        self.count(EXTENSION_LIMIT, Anomaly::ExtensionTooLong);
        match (self.place, octet) {
            (ChunkedPosition::SizeLf, b'\n') => self.size_line_end(),
            (ChunkedPosition::SizeLf, _) => return Err(Anomaly::ChunkLineEnd),
            (ChunkedPosition::SizeStart | ChunkedPosition::Size, digit) if digit.is_ascii_hexdigit() => {
                self.left = self.left * 16 + u64::from(hexadecimal(digit));
                if self.left > CHUNK_LIMIT {
                    return Err(Anomaly::ChunkSizeHuge);
                }
                self.place = ChunkedPosition::Size;
            }
            (ChunkedPosition::SizeStart, _) => return Err(Anomaly::ChunkSizeInvalid),
            (ChunkedPosition::Size | ChunkedPosition::Padding, b'\n') => self.size_line_end(),
            // Some servers read an extension up to CR LF, so they find the data at another position.
            (ChunkedPosition::Extension, b'\n') => return Err(Anomaly::ChunkLineEnd),
            (ChunkedPosition::Size | ChunkedPosition::Padding | ChunkedPosition::Extension, b'\r') => {
                self.place = ChunkedPosition::SizeLf;
            }
            (ChunkedPosition::Size | ChunkedPosition::Padding, b' ' | b'\t') => {
                self.place = ChunkedPosition::Padding;
            }
            (ChunkedPosition::Size | ChunkedPosition::Padding, b';') | (ChunkedPosition::Extension, _) => {
                self.place = ChunkedPosition::Extension;
            }
            _ => return Err(Anomaly::ChunkSizeInvalid),
        }
        Ok(())
    }

    const fn size_line_end(&mut self) {
        self.line = 0;
        self.place = if self.left == 0 { ChunkedPosition::TrailerStart } else { ChunkedPosition::Data };
    }

    const fn data_end(&mut self, octet: u8) -> Result<(), Anomaly> {
        self.place = match (self.place, octet) {
            (ChunkedPosition::DataEnd, b'\r') => ChunkedPosition::DataLf,
            (_, b'\n') => ChunkedPosition::SizeStart,
            _ => return Err(Anomaly::ChunkUnterminated),
        };
        Ok(())
    }

    const fn trailer(&mut self, octet: u8) -> Result<bool, Anomaly> {
        self.count(TRAILER_LIMIT, Anomaly::TrailerTooLong);
        self.place = match (self.place, octet) {
            (ChunkedPosition::TrailerStart | ChunkedPosition::TrailerLf, b'\n') => return Ok(true),
            (ChunkedPosition::TrailerStart, b'\r') => ChunkedPosition::TrailerLf,
            (ChunkedPosition::TrailerLf, _) => return Err(Anomaly::ChunkLineEnd),
            (_, b'\n') => ChunkedPosition::TrailerStart,
            _ => ChunkedPosition::Trailer,
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
