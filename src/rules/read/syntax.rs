//! The TOML of a rule file, with every fault of its syntax.

use std::ops::Range;

use serde_spanned::Spanned;
use toml::de::DeTable;

use super::super::diagnostic::{Diagnostic, Level, Report};
use super::super::source::SourceFile;

/// What could be understood, and the lines (counted from 0) that could not.
pub(super) fn parse<'s>(
    source: &'s SourceFile,
    report: &mut Report,
) -> (Spanned<DeTable<'s>>, Vec<Range<usize>>) {
    let (document, faults) = DeTable::parse_recoverable(source.text());
    let mut broken: Vec<Range<usize>> = Vec::new();
    for fault in faults {
        let span = fault.span().unwrap_or(0..0);
        let lines = source.lines(&span);
        // One fault makes the parser stumble several times over one line.
        if broken.iter().any(|known| known.start < lines.end && lines.start < known.end) {
            continue;
        }
        broken.push(lines);
        report.push(Diagnostic::at(Level::Error, source, &span, fault.message()));
        if report.is_full() {
            break;
        }
    }
    (document, broken)
}
