//! A message whose head was read: the reader of its body for guard, replay and scan.

use super::{Anomaly, BodyAdvance, BodyBuffer, BodyFraming, BodyReader};
use crate::banner::http::KeptHead;

/// A message whose head was read and whose body is being read.
#[derive(Debug)]
pub struct FramedMessage {
    /// The head, if it will be needed again.
    head: Option<KeptHead>,
    reader: BodyReader,
    body: BodyBuffer,
    framing: BodyFraming,
}

impl FramedMessage {
    /// Returns a message with this framing; `body` is an empty buffer for the first bytes of its body.
    pub const fn new(framing: BodyFraming, body: BodyBuffer) -> Self {
        Self { head: None, reader: BodyReader::new(framing), body, framing }
    }

    /// Keeps the head while the message is read.
    pub fn keep(&mut self, head: KeptHead) {
        self.head = Some(head);
    }

    /// The head, if it was kept.
    pub const fn head(&self) -> Option<&KeptHead> {
        self.head.as_ref()
    }

    /// Takes the head out, if it was kept.
    pub const fn take_head(&mut self) -> Option<KeptHead> {
        self.head.take()
    }

    /// Replaces the framing, because further fields have come. No byte of the body was read yet.
    pub fn framed(self, framing: BodyFraming) -> Self {
        Self { reader: BodyReader::new(framing), framing, ..self }
    }

    /// Reads bytes of the body and returns the progress.
    ///
    /// # Errors
    ///
    /// The body's framing can't be followed.
    pub fn read(&mut self, input: &[u8]) -> Result<BodyAdvance, Anomaly> {
        let body = &mut self.body;
        self.reader.read(input, |content| body.push(content))
    }

    /// True if the message has ended.
    pub const fn is_done(&self) -> bool {
        self.reader.is_done()
    }

    /// True if the message is complete when the stream ends here.
    pub const fn is_whole_at_end(&self) -> bool {
        self.reader.is_whole_at_end()
    }

    /// True if as much of the body was collected as is wanted.
    pub fn is_satisfied(&self) -> bool {
        self.is_done() || self.body.is_full()
    }

    /// Number of bytes of the body that were read.
    pub const fn content_length(&self) -> u64 {
        self.reader.content_length()
    }

    /// Length of the body in bytes: the announced length if it was not read to its end.
    pub fn length(&self) -> u64 {
        match self.framing {
            BodyFraming::Length(announced) if !self.is_done() => announced.max(self.content_length()),
            _ => self.content_length(),
        }
    }

    /// The framing of the body.
    pub const fn framing(&self) -> BodyFraming {
        self.framing
    }

    /// The collected bytes of the body.
    pub fn body(&self) -> &[u8] {
        self.body.as_slice()
    }

    /// Returns the buffer of the body, for the next message.
    pub fn into_body(self) -> BodyBuffer {
        self.body
    }

    /// Number of bytes that may be missing without harm.
    pub const fn skippable(&self) -> u64 {
        self.reader.skippable()
    }

    /// Skips bytes that are missing; they must be skippable.
    pub fn skip(&mut self, count: u64) {
        self.reader.skip(count);
    }

    /// Number of bytes of memory held.
    pub fn memory(&self) -> usize {
        self.body.as_slice().len() + self.head.as_ref().map_or(0, KeptHead::memory)
    }
}
