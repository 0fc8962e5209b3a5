//! What was worked out of identification lines that came before: most of a network's software says one
//! of a few.

use hashbrown::HashMap;

/// Lines that are remembered: more kinds of software than most networks have. Beyond, all are
/// forgotten, so that somebody who sends ever new ones makes nothing slower than it was.
const LINES: usize = 256;

/// The longest line that is remembered, in octets: RFC 4253 section 4.2 allows no longer one.
const LONGEST: usize = 255;

/// A value of type `V` for each line, bounded.
#[derive(Debug)]
pub struct KnownLines<V>(HashMap<Vec<u8>, V, ahash::RandomState>);

impl<V> Default for KnownLines<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> KnownLines<V> {
    /// Gives `tell` the value of a line, which `work_out` makes if the line is not remembered.
    pub fn know<R>(&mut self, line: &[u8], work_out: impl FnOnce() -> V, tell: impl FnOnce(&V) -> R) -> R {
        if line.len() > LONGEST {
            return tell(&work_out());
        }
        if self.0.len() >= LINES && !self.0.contains_key(line) {
            self.0.clear();
        }
        tell(self.0.entry_ref(line).or_insert_with(work_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_worked_out_once_unless_it_is_too_long_or_too_many_came() {
        let mut lines = KnownLines::default();
        let mut made = 0;
        let mut know = |lines: &mut KnownLines<usize>, line: &[u8]| {
            lines.know(line, || (made += 1, made).1, |value| *value)
        };
        let line = b"SSH-2.0-a";
        assert_eq!([know(&mut lines, line), know(&mut lines, line)], [1, 1]);
        let long = [b'x'; LONGEST + 1];
        assert_eq!([know(&mut lines, &long), know(&mut lines, &long)], [2, 3]);
        for number in 0..LINES {
            know(&mut lines, format!("SSH-2.0-{number}").as_bytes());
        }
        assert!(lines.0.len() <= LINES);
        let again = know(&mut lines, line);
        assert!(again > 3, "it was forgotten with the others");
    }
}
