//! Faults of a rule file and their position: file, line, column, the quoted line with the fault
//! marked.
//!
//! A diagnostic owns its quotation, so it can be shown after its file was closed.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level as Grade, Origin, Renderer, Snippet};

use super::limits;
use super::source_file::{SourceFile, TextPosition, floor};

/// Effect of a diagnostic on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiagnosticLevel {
    /// The file is refused.
    Error,
    /// The file is accepted, but you should check it.
    Warning,
}

impl DiagnosticLevel {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One fault of a rule file. `Display` shows it with the line quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDiagnostic {
    /// Error or warning.
    pub level: DiagnosticLevel,
    /// Name of the file as it was given.
    pub file: String,
    /// Position in the file; absent if the whole file is at fault.
    pub place: Option<TextPosition>,
    /// The fault and its reason.
    pub message: String,
    /// The way to fix it, if it is known.
    pub help: Option<String>,
    /// The id of the rule at fault, if it has one.
    pub rule: Option<String>,
    quotation: Option<QuotedLine>,
}

/// The line at fault and the range of bytes to mark.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QuotedLine {
    line: String,
    mark: Range<usize>,
}

/// Length of the longest quoted line: in a longer one the mark cannot be found.
const LONGEST_QUOTED_LINE: usize = 2_000;

impl RuleDiagnostic {
    /// Creates a diagnostic of a whole file: it cannot be read, for instance.
    pub(super) fn of_file(
        level: DiagnosticLevel,
        file: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            level,
            file: file.into(),
            place: None,
            message: message.into(),
            help: None,
            rule: None,
            quotation: None,
        }
    }

    /// Creates a diagnostic of the bytes `span` of `source`.
    pub(super) fn at(
        level: DiagnosticLevel,
        source: &SourceFile,
        span: &Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        let (place, line, start) = source.locate(span.start);
        let mark = floor(line, span.start.saturating_sub(start))..floor(line, span.end.saturating_sub(start));
        let quotation = (line.len() <= LONGEST_QUOTED_LINE)
            .then(|| QuotedLine { line: line.to_owned(), mark: mark.start..mark.end.max(mark.start) });
        Self { place: Some(place), quotation, ..Self::of_file(level, source.name(), message) }
    }

    /// Adds how to fix it.
    #[must_use]
    pub(super) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn render(&self, renderer: &Renderer) -> String {
        let grade = match self.level {
            DiagnosticLevel::Error => Grade::ERROR,
            DiagnosticLevel::Warning => Grade::WARNING,
        };
        let mut group = grade.primary_title(printable(&self.message)).elements(self.position());
        if let Some(help) = &self.help {
            group = group.element(Grade::HELP.message(printable(help)));
        }
        renderer.render(&[group])
    }

    /// Returns the element that shows the position: a snippet if the line is known.
    fn position(&self) -> Vec<annotate_snippets::Element<'_>> {
        let path = printable(&self.file);
        match (&self.quotation, self.place) {
            (Some(quotation), Some(place)) => {
                let annotation = AnnotationKind::Primary.span(quotation.mark.clone());
                let snippet = Snippet::source(quotation.line.as_str())
                    .path(path)
                    .line_start(place.line)
                    .annotation(annotation);
                vec![snippet.into()]
            }
            (None, Some(place)) => {
                vec![Origin::path(path).line(place.line).char_column(place.column).into()]
            }
            (_, None) => vec![Origin::path(path).into()],
        }
    }
}

impl fmt::Display for RuleDiagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(&Renderer::plain()))
    }
}

/// Returns `text` on one line with control characters escaped, because rule files may come from
/// anywhere.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let escape = character.is_control();
            let escaped = escape.then(|| character.escape_default()).into_iter().flatten();
            escaped.chain((!escape).then_some(character))
        })
        .collect()
}

/// Error of loading a rule set: all faults, in the order of files and lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(.diagnostics, *.omitted))]
pub struct LoadError {
    /// Errors and warnings, sorted by file and then by position.
    pub diagnostics: Vec<RuleDiagnostic>,
    /// Number of further errors that were not kept.
    pub omitted: usize,
}

impl LoadError {
    /// Returns the diagnostics that refuse the rule set.
    pub fn errors(&self) -> impl Iterator<Item = &RuleDiagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.level == DiagnosticLevel::Error)
    }
}

fn summary(diagnostics: &[RuleDiagnostic], omitted: usize) -> String {
    let errors = omitted + diagnostics.iter().filter(|one| one.level == DiagnosticLevel::Error).count();
    let mut text = format!("{errors} {} in the rules\n", if errors == 1 { "fault" } else { "faults" });
    for diagnostic in diagnostics {
        text.push_str(&diagnostic.to_string());
        text.push_str("\n\n");
    }
    if omitted > 0 {
        text.push_str(&format!("and {omitted} more\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

/// Collects diagnostics up to a bound.
#[derive(Debug, Default)]
pub(super) struct DiagnosticCollector {
    errors: Vec<RuleDiagnostic>,
    warnings: Vec<RuleDiagnostic>,
    omitted: usize,
}

impl DiagnosticCollector {
    /// Adds a diagnostic. Beyond the limit it only counts errors and drops warnings.
    pub(super) fn push(&mut self, diagnostic: RuleDiagnostic) {
        let kept = match diagnostic.level {
            DiagnosticLevel::Error => &mut self.errors,
            DiagnosticLevel::Warning => &mut self.warnings,
        };
        if kept.len() < limits::DIAGNOSTICS {
            kept.push(diagnostic);
        } else {
            self.omitted += usize::from(diagnostic.level == DiagnosticLevel::Error);
        }
    }

    /// Returns the number of errors found so far.
    pub(super) fn errors(&self) -> usize {
        self.errors.len() + self.omitted
    }

    /// Returns true if further errors are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= limits::DIAGNOSTICS
    }

    /// Returns the warnings if there is no error, else all diagnostics as an error.
    pub(super) fn finish(mut self) -> Result<Vec<RuleDiagnostic>, LoadError> {
        let refused = !self.errors.is_empty();
        let mut diagnostics = self.errors;
        diagnostics.append(&mut self.warnings);
        // The sort is stable, so files stay in the order in which they were first named.
        let mut files = HashMap::new();
        for diagnostic in &diagnostics {
            let next = files.len();
            files.entry(diagnostic.file.clone()).or_insert(next);
        }
        diagnostics.sort_by_key(|one| (files.get(&one.file).copied(), one.place, one.level));
        if refused { Err(LoadError { diagnostics, omitted: self.omitted }) } else { Ok(diagnostics) }
    }
}
