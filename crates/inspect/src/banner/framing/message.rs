//! A message behind its head, as guard, replay and scan read it alike: give it octets, ask how far it is.

use super::{Advance, Anomaly, BodyBuffer, BodyReader, Framing};
use crate::banner::http::KeptHead;

/// A message whose head was read and whose body goes by.
#[derive(Debug)]
pub struct Message {
    /// The head, where somebody will look at it again.
    head: Option<KeptHead>,
    reader: BodyReader,
    body: BodyBuffer,
    framing: Framing,
}

impl Message {
    /// One that is framed so; `body` takes the beginning of its body, and is empty.
    pub const fn new(framing: Framing, body: BodyBuffer) -> Self {
        Self { head: None, reader: BodyReader::new(framing), body, framing }
    }

    /// Keeps the head as long as the message is read.
    pub fn keep(&mut self, head: KeptHead) {
        self.head = Some(head);
    }

    /// The head, if it was kept.
    pub const fn head(&self) -> Option<&KeptHead> {
        self.head.as_ref()
    }

    /// Gives the head away, if it was kept.
    pub const fn take_head(&mut self) -> Option<KeptHead> {
        self.head.take()
    }

    /// The same, framed so: fields have come that were not there when it was made. Nothing of the body was
    /// read yet.
    pub fn framed(self, framing: Framing) -> Self {
        Self { reader: BodyReader::new(framing), framing, ..self }
    }

    /// Goes through octets of the body; gives how far it came.
    ///
    /// # Errors
    ///
    /// The body's framing can't be followed.
    pub fn read(&mut self, input: &[u8]) -> Result<Advance, Anomaly> {
        let body = &mut self.body;
        self.reader.read(input, |content| body.push(content))
    }

    /// True if the message has ended.
    pub const fn is_done(&self) -> bool {
        self.reader.is_done()
    }

    /// True if it is whole when the stream ends here.
    pub const fn is_whole_at_end(&self) -> bool {
        self.reader.is_whole_at_end()
    }

    /// True if all that is wanted of the body was seen.
    pub fn is_satisfied(&self) -> bool {
        self.is_done() || self.body.is_full()
    }

    /// Octets of the body that went by.
    pub const fn content_length(&self) -> u64 {
        self.reader.content_length()
    }

    /// Octets of the body: those that were announced where it was not read to its end.
    pub fn length(&self) -> u64 {
        match self.framing {
            Framing::Length(announced) if !self.is_done() => announced.max(self.content_length()),
            _ => self.content_length(),
        }
    }

    /// What follows the head.
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// What was kept of the body.
    pub fn body(&self) -> &[u8] {
        self.body.as_slice()
    }

    /// Gives the room of the body back, for the next message.
    pub fn into_body(self) -> BodyBuffer {
        self.body
    }

    /// How many octets may be missing without harm.
    pub const fn skippable(&self) -> u64 {
        self.reader.skippable()
    }

    /// Goes over octets that are not there; they must be skippable.
    pub fn skip(&mut self, count: u64) {
        self.reader.skip(count);
    }

    /// Octets of memory held.
    pub fn memory(&self) -> usize {
        self.body.as_slice().len() + self.head.as_ref().map_or(0, KeptHead::memory)
    }
}
