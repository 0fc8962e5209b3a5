//! A message whose head was read, and whose body goes by.

use crate::banner::Anomaly;
use crate::banner::framing::{BodyBuffer, BodyReader, Framed, Framing};
use crate::engine::judge::Judge;
use crate::rules::Stage;

/// A message whose body is being read.
#[derive(Debug)]
pub(in crate::engine::dialogue) struct OpenMessage {
    reader: BodyReader,
    pub(super) body: BodyBuffer,
    /// The octets of the head, as long as rules about the body have not been asked.
    pub(super) head: Option<Vec<u8>>,
    /// What follows the head.
    framing: Framing,
}

impl OpenMessage {
    pub(super) fn new(framed: Framed, head: &[u8], judge: &Judge<'_>) -> Self {
        let wanted = judge.law.rules.needs().body;
        let reader = BodyReader::new(framed.framing);
        let foreign = framed.framing.is_foreign();
        let waits = wanted > 0 && !reader.is_done() && !foreign;
        Self {
            reader,
            body: BodyBuffer::new(if foreign { 0 } else { wanted.max(judge.law.config.body_limit) }),
            head: waits.then(|| head.to_vec()),
            framing: framed.framing,
        }
    }

    /// Which rules are asked at the head.
    pub(super) const fn stage(&self) -> Stage {
        if self.head.is_some() { Stage::Head } else { Stage::Whole }
    }

    /// Goes through octets of the body; gives how many belonged to it.
    ///
    /// # Errors
    ///
    /// The body's framing can't be followed.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<usize, Anomaly> {
        let body = &mut self.body;
        self.reader.read(input, |content| body.push(content)).map(|advance| advance.consumed)
    }

    /// Whether the message has ended.
    pub(super) const fn is_done(&self) -> bool {
        self.reader.is_done()
    }

    /// Whether all that is wanted of the body was seen.
    pub(super) fn is_satisfied(&self) -> bool {
        self.is_done() || self.body.is_full()
    }

    /// Octets of the body: those that were announced where it was not read to its end.
    pub(super) fn length(&self) -> u64 {
        let read = self.reader.content_length();
        match self.framing {
            Framing::Length(announced) if !self.is_done() => announced.max(read),
            _ => read,
        }
    }

    /// What follows the head.
    pub(super) const fn framing(&self) -> Framing {
        self.framing
    }

    /// How many octets may be missing without harm.
    pub(super) const fn skippable(&self) -> u64 {
        self.reader.skippable()
    }

    /// Goes over octets that are not there; they must be skippable.
    pub(super) fn skip(&mut self, count: u64) {
        self.reader.skip(count);
    }

    /// Octets of memory held.
    pub(super) fn memory(&self) -> usize {
        self.body.as_slice().len() + self.head.as_ref().map_or(0, Vec::capacity)
    }
}
