//! Search for the line ends of a head, without inspecting bytes twice.

use std::ops::Range;

use super::lenient;

/// Position of the search in a head that comes piece by piece.
///
/// Each call passes the same bytes with more appended; inspected bytes are not inspected again.
#[derive(Debug, Clone, Default)]
pub struct HeadSearch {
    /// Number of inspected bytes.
    searched: usize,
    /// Start of the incomplete line.
    start: usize,
    /// Number of complete lines that are not empty.
    lines: usize,
}

/// One complete line of a head, with its line end, by its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadLine {
    /// The request line or the status line.
    First(Range<usize>),
    /// A header field, or a part of one.
    Field(Range<usize>),
    /// The empty line that ends the head.
    End,
}

impl HeadSearch {
    /// Returns the next complete line. Empty lines before the first one are skipped.
    pub fn next_line(&mut self, octets: &[u8]) -> Option<HeadLine> {
        loop {
            let new = octets.get(self.searched..)?;
            steps::count(new.len());
            let Some(end) = memchr::memchr(b'\n', new) else {
                self.searched = octets.len();
                return None;
            };
            steps::uncount(new.len() - end - 1);
            self.searched += end + 1;
            let range = self.start..self.searched;
            self.start = self.searched;
            let line = octets.get(range.clone()).unwrap_or_default();
            match (self.lines, is_empty(line)) {
                (0, _) if line.iter().all(|octet| lenient::is_space(*octet)) => {}
                (0, _) => {
                    self.lines = 1;
                    return Some(HeadLine::First(range));
                }
                (_, true) => return Some(HeadLine::End),
                (_, false) => {
                    self.lines += 1;
                    return Some(HeadLine::Field(range));
                }
            }
        }
    }
}

/// True if only CR precede the line's end.
fn is_empty(line: &[u8]) -> bool {
    line.iter().all(|octet| matches!(octet, b'\r' | b'\n'))
}

/// Counts inspected bytes, in tests: the work must be bounded by the new bytes.
#[cfg(test)]
pub mod steps {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    /// Adds bytes that are gone over.
    pub fn count(octets: usize) {
        STEPS.set(STEPS.get() + octets);
    }

    /// Takes back those that were not reached.
    pub fn uncount(octets: usize) {
        STEPS.set(STEPS.get() - octets);
    }

    /// Returns the number of searches since the last call.
    pub fn take() -> usize {
        STEPS.take()
    }
}

#[cfg(not(test))]
pub mod steps {
    pub const fn count(_octets: usize) {}
    pub const fn uncount(_octets: usize) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(octets: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<HeadLine> {
        let mut search = HeadSearch::default();
        let mut found = Vec::new();
        for end in cuts.chain([octets.len()]) {
            while let Some(line) = search.next_line(&octets[..end.min(octets.len())]) {
                let last = line == HeadLine::End;
                found.push(line);
                if last {
                    return found;
                }
            }
        }
        found
    }

    #[test]
    fn lines_are_told_in_order() {
        let octets = b"\r\n \nGET / HTTP/1.1\r\nA: b\n\r\r\nrest\n";
        let expected = [HeadLine::First(4..20), HeadLine::Field(20..25), HeadLine::End];
        assert_eq!(lines(octets, [].into_iter()), expected);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing_and_no_octet_is_searched_twice(
            octets in "[ a:\r\n]{0,80}",
            step in 1_usize..9,
        ) {
            let octets = octets.as_bytes();
            let whole = lines(octets, [].into_iter());
            steps::take();
            prop_assert_eq!(&lines(octets, (0..octets.len()).step_by(step)), &whole);
            prop_assert!(steps::take() <= octets.len());
        }
    }
}
