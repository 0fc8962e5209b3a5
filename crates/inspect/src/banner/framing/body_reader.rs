//! Reader of the bytes after a head, and a bounded buffer for the body.

use super::chunked::{ChunkedDecoder, ChunkedPiece};
use super::{Anomaly, BodyFraming};

/// Reads the bytes after a head and finds the end of the message.
///
/// It keeps no bytes: the caller passes the stream in slices of any size. Its state takes 40 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyReader {
    state: BodyState,
    content: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyState {
    Length { left: u64 },
    Chunked(ChunkedDecoder),
    Endless,
    Done,
}

/// Progress of the reader in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyAdvance {
    /// Number of bytes of the slice that belong to this message. The rest belongs to the next message.
    pub consumed: usize,
    /// True if the message has ended.
    pub done: bool,
    /// A limit that was exceeded and that some readers lack; the reader continues.
    pub odd: Option<Anomaly>,
}

impl BodyReader {
    /// Returns a reader for a message with this framing.
    pub const fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::Length(0) => BodyState::Done,
            BodyFraming::Length(left) => BodyState::Length { left },
            BodyFraming::Chunked => BodyState::Chunked(ChunkedDecoder::new()),
            BodyFraming::UntilClose | BodyFraming::Tunnel | BodyFraming::Upgrade => BodyState::Endless,
        };
        Self { state, content: 0 }
    }

    /// True if the message has ended.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, BodyState::Done)
    }

    /// Number of bytes of content so far, without the framing of chunks.
    pub const fn content_length(&self) -> u64 {
        self.content
    }

    /// Reads `input` and passes each run of content to `content`.
    ///
    /// # Errors
    /// The chunks are ambiguous. The reader must not be used any further.
    pub fn read(&mut self, input: &[u8], mut content: impl FnMut(&[u8])) -> Result<BodyAdvance, Anomaly> {
        let (mut consumed, mut odd) = (0, None);
        while !self.is_done() && consumed < input.len() {
            let rest = input.get(consumed..).unwrap_or_default();
            let used = match &mut self.state {
                BodyState::Done => 0,
                BodyState::Endless => self.pass(rest, rest.len(), &mut content),
                BodyState::Length { left } => {
                    let take = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= octets(take);
                    if *left == 0 {
                        self.state = BodyState::Done;
                    }
                    self.pass(rest, take, &mut content)
                }
                BodyState::Chunked(chunked) => {
                    let piece = chunked.step(rest)?;
                    odd = chunked.take_odd().or(odd);
                    match piece {
                        ChunkedPiece::Content(take) => self.pass(rest, take, &mut content),
                        ChunkedPiece::Frame(take) => take,
                        ChunkedPiece::End(take) => {
                            self.state = BodyState::Done;
                            take
                        }
                    }
                }
            };
            consumed += used;
        }
        Ok(BodyAdvance { consumed, done: self.is_done(), odd })
    }

    fn pass(&mut self, rest: &[u8], take: usize, content: &mut impl FnMut(&[u8])) -> usize {
        content(rest.get(..take).unwrap_or_default());
        self.content += octets(take);
        take
    }

    /// Number of the next bytes that are certainly content, so that the caller may skip them.
    pub const fn skippable(&self) -> u64 {
        match &self.state {
            BodyState::Length { left } => *left,
            BodyState::Chunked(chunked) => chunked.data_left(),
            BodyState::Endless => u64::MAX,
            BodyState::Done => 0,
        }
    }

    /// Skips bytes that are missing (a gap in the capture, a truncated packet), at most
    /// [`Self::skippable`]. Returns the number of skipped bytes.
    pub fn skip(&mut self, wanted: u64) -> u64 {
        let skipped = wanted.min(self.skippable());
        match &mut self.state {
            BodyState::Length { left } => {
                *left -= skipped;
                if *left == 0 {
                    self.state = BodyState::Done;
                }
            }
            BodyState::Chunked(chunked) => chunked.skip_data(skipped),
            BodyState::Endless | BodyState::Done => {}
        }
        self.content += skipped;
        skipped
    }

    /// True if the message is complete when the stream ends here.
    pub const fn is_whole_at_end(&self) -> bool {
        matches!(self.state, BodyState::Done | BodyState::Endless)
    }
}

const _: () = assert!(size_of::<BodyReader>() <= 40);

fn octets(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The first bytes of a body, up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyBuffer {
    octets: Vec<u8>,
    limit: usize,
}

impl BodyBuffer {
    /// Returns an empty buffer for at most `limit` bytes. It allocates only when bytes come.
    pub const fn new(limit: usize) -> Self {
        Self { octets: Vec::new(), limit }
    }

    /// Adds as much of `content` as fits.
    pub fn push(&mut self, content: &[u8]) {
        let room = self.limit.saturating_sub(self.octets.len());
        self.octets.extend_from_slice(content.get(..room).unwrap_or(content));
    }

    /// The collected bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets
    }

    /// True if the buffer is full.
    pub fn is_full(&self) -> bool {
        self.octets.len() >= self.limit
    }

    /// Removes the bytes and keeps the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
    }
}
