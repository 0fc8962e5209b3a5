//! The text of a rule file, with an index of its lines.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::text_source::TextSource;
use crate::terms::cut;
use crate::terms::hash::Sha256Digest;

/// A position in a file; line and column count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextPosition {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

impl fmt::Display for TextPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// A file that rules were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadFile {
    pub(super) path: PathBuf,
    pub(super) digest: Sha256Digest,
}

/// One rule file's name and text.
#[derive(Debug)]
pub(super) struct SourceFile {
    name: String,
    text: String,
    /// True if it is a local file, which may change rules of other files.
    local: bool,
    /// The source of the lists that it names.
    beside: TextSource,
    /// Offset of each line, in bytes.
    starts: Vec<usize>,
}

impl SourceFile {
    pub(super) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.into(), text, local: false, beside: TextSource::Files, starts }
    }

    /// Sets the source of the lists that it names.
    pub(super) fn with_list_source(self, texts: &TextSource) -> Self {
        Self { beside: texts.clone(), ..self }
    }

    /// The source of the lists that it names.
    pub(super) const fn texts(&self) -> &TextSource {
        &self.beside
    }

    /// Marks the file as local: it may change rules of other files.
    pub(super) fn into_local(self) -> Self {
        Self { local: true, ..self }
    }

    /// True if it may change rules of other files.
    pub(super) const fn is_local(&self) -> bool {
        self.local
    }

    /// True if it defines products or markers instead of rules: `rules import` reads these.
    pub(super) fn holds_no_rules(&self) -> bool {
        self.text.lines().any(|line| matches!(line.trim_end(), "[[product]]" | "[[marker]]"))
    }

    /// The name as it was given.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path and the digest of its text.
    pub(super) fn read_file(&self) -> ReadFile {
        ReadFile { path: self.name().into(), digest: Sha256Digest::of(self.text.as_bytes()) }
    }

    /// The whole text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position of the byte `offset`, its line without the line end, and the offset of
    /// that line.
    pub(super) fn locate(&self, offset: usize) -> (TextPosition, &str, usize) {
        let offset = floor(&self.text, offset);
        let index = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.starts.get(index).copied().unwrap_or(0);
        let end = self.starts.get(index + 1).copied().unwrap_or(self.text.len());
        let line = self.text.get(start..end).unwrap_or_default().trim_end_matches(['\n', '\r']);
        let before = self.text.get(start..offset).unwrap_or_default();
        (TextPosition { line: index + 1, column: before.chars().count() + 1 }, line, start)
    }

    /// Returns the byte offset of a position in this file, for lines of ASCII.
    pub(super) fn start_of(&self, place: TextPosition) -> usize {
        self.starts.get(place.line.saturating_sub(1)).map_or(0, |start| start + place.column - 1)
    }

    /// Returns the lines (counted from 0) that the bytes `span` touch.
    pub(super) fn lines(&self, span: &Range<usize>) -> Range<usize> {
        let line = |offset| self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        line(span.start)..line(span.end.max(span.start)) + 1
    }
}

/// Returns the greatest character boundary of `text` that is not after `index`.
pub(super) fn floor(text: &str, index: usize) -> usize {
    cut(text, index).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let source = SourceFile::new("a", "one\r\nzwölf = x\n");
        let at = source.text().find('x').unwrap_or_default();
        assert_eq!(source.locate(at), (TextPosition { line: 2, column: 9 }, "zwölf = x", 5));
        assert_eq!(source.locate(0).0, TextPosition { line: 1, column: 1 });
        assert_eq!(source.locate(10_000).0, TextPosition { line: 3, column: 1 });
        assert_eq!(source.lines(&(0..at)), 0..2);
    }
}
