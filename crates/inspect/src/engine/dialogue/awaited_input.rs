//! The input that a direction waits for, so that the engine reads bytes once, in whatever pieces they come.

use crate::banner::http::count_steps;

/// So few bytes are looked at as they come; a line is waited for behind them.
pub(super) const FEW: usize = 16;

/// The input that a direction waits for.
#[derive(Debug, Clone, Copy)]
pub struct AwaitedInput {
    /// Unread bytes that were gone over.
    seen: usize,
    need: InputNeed,
}

/// The condition under which unread bytes are read again.
#[derive(Debug, Clone, Copy)]
pub struct InputNeed {
    /// The number of bytes in total.
    octets: usize,
    /// A line end among the new ones.
    line: bool,
}

impl InputNeed {
    /// Returns the need for this number of bytes in total.
    pub(super) const fn octets(octets: usize) -> Self {
        Self { octets, line: false }
    }

    /// A line end, or so many bytes in all.
    pub(super) const fn line(octets: usize) -> Self {
        Self { octets, line: true }
    }

    /// One more byte than there are.
    pub(super) const fn another(input: &[u8]) -> Self {
        Self::octets(input.len() + 1)
    }
}

impl AwaitedInput {
    pub(super) const fn new(seen: usize, need: InputNeed) -> Self {
        Self { seen, need }
    }

    /// True if `unread` has what was waited for.
    pub(super) fn is_met(&mut self, unread: &[u8]) -> bool {
        let new = unread.get(self.seen..).unwrap_or_default();
        if new.is_empty() {
            return false;
        }
        count_steps(new.len());
        let met =
            unread.len() >= self.need.octets || (self.need.line && memchr::memchr(b'\n', new).is_some());
        self.seen = unread.len();
        met
    }
}
