//! Cache of results for identification lines: most software of a network sends one of a few.

use hashbrown::HashMap;

/// Number of cached lines: more kinds of software than most networks have. When it is exceeded, the cache
/// is emptied, so a sender of ever new lines costs no more than without a cache.
const LINES: usize = 256;

/// Length of the longest cached line, in bytes: RFC 4253 section 4.2 allows no longer one.
const LONGEST: usize = 255;

/// A bounded cache of a value of type `V` for each line.
#[derive(Debug)]
pub struct KnownLines<V>(HashMap<Vec<u8>, V, ahash::RandomState>);

impl<V> Default for KnownLines<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> KnownLines<V> {
    /// Calls `tell` with the value of a line. `work_out` computes it if the line is not cached.
    pub fn with_cached<R>(
        &mut self,
        line: &[u8],
        work_out: impl FnOnce() -> V,
        tell: impl FnOnce(&V) -> R,
    ) -> R {
        // A long line is seldom sent twice, and would take the place of many short ones.
        if line.len() > LONGEST {
            return tell(&work_out());
        }
        // Everything goes at once: an order of use would cost a write for each hit, and the lines in use come
        // back with their next connection.
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
            lines.with_cached(line, || (made += 1, made).1, |value| *value)
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
