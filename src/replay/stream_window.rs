//! Sliding window over a stream of bytes: the bytes that are read and not yet consumed.

use std::io::{self, Read};

/// Size of a read in bytes; small enough to stay in a core's cache.
const USUAL: usize = 512 * 1024;

/// Sliding window over `source`.
pub(super) struct StreamWindow<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Number of bytes consumed before `start`.
    offset: u64,
    exhausted: bool,
}

impl<R: Read> StreamWindow<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; USUAL], start: 0, end: 0, offset: 0, exhausted: false }
    }

    /// Returns the bytes that are read and not yet consumed.
    pub(super) fn data(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the window's position in the stream, in bytes.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves the window's start over `count` of its bytes.
    pub(super) fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Reads until the window holds `wanted` bytes; returns false if the stream ends before.
    pub(super) fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.end - self.start < wanted {
            if self.exhausted {
                return Ok(false);
            }
            self.make_room(wanted);
            let space = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.source.read(space) {
                Ok(0) => self.exhausted = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Moves the remaining bytes to the front, and grows the buffer if `wanted` does not fit.
    fn make_room(&mut self, wanted: usize) {
        // Only the unread rest moves, which is usually less than one record.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
    }
}
