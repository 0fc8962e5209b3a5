//! Finds every fault of TOML syntax in a rule file.
//!
//! After a fault, a parser guesses where to go on and may lose the rest of a file. So a file with
//! faults is parsed table by table, and each table shows only its own faults. Lines at fault are
//! then overwritten with spaces, and the rest is read as usual: positions stay the same.

use std::borrow::Cow;
use std::ops::Range;

use toml::de::{DeTable, Error};

use super::super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::super::limits;
use super::super::source_file::SourceFile;
use super::super::toml_nesting;

/// Returns the text without invalid lines, and the lines (counted from 0) that were removed.
pub(super) fn sound<'s>(
    source: &'s SourceFile,
    report: &mut DiagnosticCollector,
) -> (Cow<'s, str>, Vec<Range<usize>>) {
    let text = source.text();
    if toml_nesting::too_deep(text).is_none() && DeTable::parse(text).is_ok() {
        return (Cow::Borrowed(text), Vec::new());
    }
    let mut damage = SyntaxRepair { source, report, broken: Vec::new() };
    let mut sound = String::with_capacity(text.len());
    for table in tables(text) {
        if damage.report.is_full() {
            // Further faults are not reported, and comparing each with those before costs time.
            sound.push_str(&spaces(text.get(table).unwrap_or_default()));
            continue;
        }
        let repaired = damage.repair(text.get(table.clone()).unwrap_or_default(), table.start);
        sound.push_str(&repaired);
    }
    if let Some(at) = toml_nesting::too_deep(&sound) {
        // Each table is sound, but all together are not: nothing of the file can be read.
        damage.refuse(&at);
        sound = spaces(text);
    }
    // Only faults between tables are left, such as a table that is defined twice.
    let (_, faults) = DeTable::parse_recoverable(&sound);
    for fault in faults.iter().take(limits::DIAGNOSTICS) {
        damage.note(fault, 0);
    }
    let broken = damage.broken;
    (Cow::Owned(sound), broken)
}

/// Returns the bytes of each table, header first. The text before the first header counts as a
/// table.
fn tables(text: &str) -> Vec<Range<usize>> {
    let headers = text.match_indices("\n[").map(|(at, _)| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(headers).collect();
    let ends = starts.iter().skip(1).copied().chain(std::iter::once(text.len()));
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Number of attempts to parse a table, each without the lines that were at fault before.
const ATTEMPTS: usize = 8;

struct SyntaxRepair<'a, 's> {
    source: &'s SourceFile,
    report: &'a mut DiagnosticCollector,
    broken: Vec<Range<usize>>,
}

impl SyntaxRepair<'_, '_> {
    /// Returns the table at byte `start` of the file without invalid lines. It reports only faults
    /// of the first attempt: later ones may be consequences of removed lines.
    fn repair<'t>(&mut self, table: &'t str, start: usize) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(table);
        for attempt in 0..ATTEMPTS {
            if let Some(at) = toml_nesting::too_deep(&text) {
                self.refuse(&(at.start + start..at.end + start));
                break;
            }
            let (_, faults) = DeTable::parse_recoverable(&text);
            if faults.is_empty() {
                return text;
            }
            let mut octets = text.into_owned().into_bytes();
            for fault in &faults {
                if attempt == 0 {
                    self.note(fault, start);
                }
                blank(&mut octets, fault.span().unwrap_or(0..0).start);
            }
            text = Cow::Owned(String::from_utf8(octets).unwrap_or_default());
        }
        // A bracket or quote is not closed: the rest of the table cannot be read.
        self.broken.push(self.source.lines(&(start..(start + table.len()).saturating_sub(1))));
        let header = table.find('\n').unwrap_or(table.len());
        let mut octets = table.as_bytes().to_vec();
        for octet in octets.iter_mut().skip(header).filter(|octet| **octet != b'\n') {
            *octet = b' ';
        }
        let header_only = String::from_utf8(octets).unwrap_or_default();
        let sound = toml_nesting::too_deep(&header_only).is_none() && DeTable::parse(&header_only).is_ok();
        Cow::Owned(if sound { header_only } else { spaces(table) })
    }

    /// Reports a fault of the part of the file that starts at `start`.
    fn note(&mut self, fault: &Error, start: usize) {
        let span = fault.span().unwrap_or(0..0);
        self.report_once(&(span.start + start..span.end + start), fault.message().to_owned());
    }

    /// Reports brackets that are nested too deeply to parse.
    fn refuse(&mut self, span: &Range<usize>) {
        self.report_once(span, toml_nesting::message());
    }

    /// Reports at most one fault for each line.
    fn report_once(&mut self, span: &Range<usize>, message: String) {
        let lines = self.source.lines(span);
        if self.broken.iter().any(|known| known.start < lines.end && lines.start < known.end) {
            return;
        }
        self.broken.push(lines);
        self.report.push(RuleDiagnostic::at(DiagnosticLevel::Error, self.source, span, message));
    }
}

/// Overwrites the line that holds the byte `at`.
fn blank(octets: &mut [u8], at: usize) {
    let at = at.min(octets.len().saturating_sub(1));
    let before = octets.get(..at).unwrap_or_default();
    let start = before.iter().rposition(|octet| *octet == b'\n').map_or(0, |end| end + 1);
    for octet in octets.iter_mut().skip(start).take_while(|octet| **octet != b'\n') {
        *octet = b' ';
    }
}

/// Returns as many bytes as `text` has, with its line ends kept.
fn spaces(text: &str) -> String {
    text.bytes().map(|octet| if octet == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn faults(text: &str) -> (String, Vec<String>) {
        let source = SourceFile::new("a.toml", text);
        let mut report = DiagnosticCollector::default();
        let (sound, _) = sound(&source, &mut report);
        let found = report.finish().err().map(|error| error.diagnostics).unwrap_or_default();
        let places = found.iter().filter_map(|one| one.place).map(|place| place.to_string()).collect();
        (sound.into_owned(), places)
    }

    #[test]
    fn each_table_shows_its_own_faults() {
        let text = "[[rule]]\nid = \"a\nb\nc = 1\n[[rule]]\nd = [1,\ne = 2\n[[rule]]\nf = 1\nf = 2\ng = x\n";
        let (sound, places) = faults(text);
        assert_eq!(places, ["2:8", "3:2", "7:3", "10:1", "11:5"]);
        assert_eq!(sound.len(), text.len());
        assert!(sound.contains("c = 1") && sound.contains("f = 1") && !sound.contains("f = 2"), "{sound}");
        assert!(toml::from_str::<toml::Table>(&sound).is_ok(), "{sound}");
    }

    #[test]
    fn sound_text_stays_as_it_is() {
        let text = "[lists]\na = 'b'\n[[rule]]\nid = '''\n[[rule]]\n'''\n";
        assert_eq!(faults(text), (text.to_owned(), Vec::new()));
    }

    #[test]
    fn brackets_that_no_parser_should_follow_are_one_fault_a_table() {
        let text = format!("[[rule]]\nx = {}\n[[rule]]\ny = 1\n", "[".repeat(100_000));
        let (sound, places) = faults(&text);
        assert_eq!(places.len(), 1, "{places:?}");
        assert!(sound.contains("y = 1"));
        let (_, places) = faults(&"[[rule]]\nx = {".repeat(20_000));
        assert!(!places.is_empty());
    }

    proptest! {
        #[test]
        fn offsets_survive(text in "(\\[\\[rule\\]\\]\n|[a-c] = |\"|'''|\\[|\\]|x|é|\n|#|1){0,40}") {
            let (sound, _) = faults(&text);
            prop_assert_eq!(sound.len(), text.len());
            let ends = |text: &str| text.match_indices('\n').map(|(at, _)| at).collect::<Vec<_>>();
            prop_assert_eq!(ends(&sound), ends(&text));
        }
    }
}
