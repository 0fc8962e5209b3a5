//! TOML values with their positions: reports values of the wrong kind where they are.

use std::ops::Range;

use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::super::source_file::SourceFile;
use super::super::suggest;

/// The file that is read, and its diagnostics.
pub(super) struct ValueReader<'a> {
    pub(super) source: &'a SourceFile,
    pub(super) report: &'a mut DiagnosticCollector,
    /// Lines with invalid TOML: further faults in them are consequences.
    pub(super) broken: &'a [Range<usize>],
    /// Id of the rule that is being read.
    pub(super) rule: Option<String>,
}

/// A key of a table and its value, with the key's position.
pub(super) type Entry<'t, 'i> = (&'t str, Range<usize>, &'t Spanned<DeValue<'i>>);

/// A text of the file with its position.
#[derive(Debug, Clone)]
pub(super) struct SpannedText {
    pub(super) value: String,
    pub(super) span: Range<usize>,
}

/// Returns the entries of a table in the order of the file.
pub(super) fn entries<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Entry<'t, 'i>> {
    let mut entries: Vec<Entry<'t, 'i>> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
    // The table does not keep the file's order, but diagnostics follow it.
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

/// Returns the kind of a TOML value, for messages.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl ValueReader<'_> {
    /// Reports an error.
    pub(super) fn error(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let diagnostic = RuleDiagnostic::at(DiagnosticLevel::Error, self.source, span, message);
        self.push(span, diagnostic);
    }

    /// Reports an error and how to fix it.
    pub(super) fn error_with_help(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let diagnostic =
            RuleDiagnostic::at(DiagnosticLevel::Error, self.source, span, message).with_help(help);
        self.push(span, diagnostic);
    }

    /// Reports a warning and how to fix it.
    pub(super) fn warn(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let diagnostic =
            RuleDiagnostic::at(DiagnosticLevel::Warning, self.source, span, message).with_help(help);
        self.push(span, diagnostic);
    }

    /// Returns true if the bytes `span` were all parsed as TOML.
    pub(super) fn is_whole(&self, span: &Range<usize>) -> bool {
        let lines = self.source.lines(&(span.start..span.end.saturating_sub(1)));
        !self.broken.iter().any(|broken| broken.start < lines.end && lines.start < broken.end)
    }

    fn push(&mut self, span: &Range<usize>, mut diagnostic: RuleDiagnostic) {
        let lines = self.source.lines(span);
        // The broken line itself is reported. What remains around it would only cause errors that follow from
        // it.
        if self.broken.iter().any(|broken| broken.start < lines.end && lines.start < broken.end) {
            return;
        }
        diagnostic.rule.clone_from(&self.rule);
        self.report.push(diagnostic);
    }

    /// Reports a key that is not in `known`.
    pub(super) fn unknown_key<'c>(
        &mut self,
        span: &Range<usize>,
        key: &str,
        place: &str,
        known: impl IntoIterator<Item = &'c str> + Clone,
    ) {
        let message = format!("unknown key `{key}` in {place}");
        match suggest::nearest(key, known.clone()) {
            Some(nearest) => self.error_with_help(span, message, format!("did you mean `{nearest}`?")),
            None => {
                let known: Vec<&str> = known.into_iter().collect();
                self.error_with_help(span, message, format!("known keys: {}", known.join(", ")));
            }
        }
    }

    /// Reports a value of the wrong kind.
    pub(super) fn wrong_kind(&mut self, key: &str, wanted: &str, value: &Spanned<DeValue<'_>>) {
        let message = format!("`{key}` must be {wanted}, not {}", kind(value.get_ref()));
        self.error(&value.span(), message);
    }

    /// Returns the value as a string.
    pub(super) fn text(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<SpannedText> {
        match value.get_ref() {
            DeValue::String(text) => Some(SpannedText { value: text.to_string(), span: value.span() }),
            _ => {
                self.wrong_kind(key, "a string", value);
                None
            }
        }
    }

    /// Returns the value as strings: one, or a list of them.
    pub(super) fn texts(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<SpannedText> {
        match value.get_ref() {
            DeValue::String(text) => vec![SpannedText { value: text.to_string(), span: value.span() }],
            DeValue::Array(values) => {
                let name = format!("{key}[…]");
                values.iter().filter_map(|value| self.text(&name, value)).collect()
            }
            _ => {
                self.wrong_kind(key, "a string or a list of strings", value);
                Vec::new()
            }
        }
    }

    /// Returns the value as one of the `known` names.
    pub(super) fn name<T: Copy>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        known: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(key, value)?;
        if let Some((_, found)) = known.iter().find(|(name, _)| *name == text.value) {
            return Some(*found);
        }
        let names = known.iter().map(|(name, _)| *name);
        let list: Vec<String> = names.clone().map(|name| format!("`{name}`")).collect();
        let message = format!("`{key}` must be one of {}", list.join(", "));
        match suggest::nearest(&text.value, names) {
            Some(nearest) => self.error_with_help(&text.span, message, format!("did you mean `{nearest}`?")),
            None => self.error(&text.span, message),
        }
        None
    }

    /// Returns the value as a whole number within `range`.
    pub(super) fn number(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        range: std::ops::RangeInclusive<u32>,
    ) -> Option<u32> {
        if let DeValue::Integer(number) = value.get_ref() {
            let digits = number.as_str().replace('_', "");
            if let Ok(number) = u32::from_str_radix(&digits, number.radix())
                && range.contains(&number)
            {
                return Some(number);
            }
        }
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        match value.get_ref() {
            DeValue::Integer(_) => self.error(&value.span(), format!("`{key}` must be {wanted}")),
            _ => self.wrong_kind(key, &wanted, value),
        }
        None
    }

    /// Returns the value as a table's entries.
    pub(super) fn table<'t, 'i>(
        &mut self,
        key: &str,
        value: &'t Spanned<DeValue<'i>>,
    ) -> Option<Vec<Entry<'t, 'i>>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(entries(table)),
            _ => {
                self.wrong_kind(key, "a table", value);
                None
            }
        }
    }

    /// Returns the position in the file of the bytes `inner` of a string value. If the string has
    /// escapes there, it returns the whole value.
    pub(super) fn within(&self, text: &SpannedText, inner: &Range<usize>) -> Range<usize> {
        let raw = self.source.text().get(text.span.clone()).unwrap_or_default();
        let mut start = 0;
        for quotes in ["'''", "\"\"\"", "'", "\""] {
            if raw.starts_with(quotes) {
                start = quotes.len();
                break;
            }
        }
        let body = raw.get(start..).unwrap_or_default();
        // TOML: a line end right after the opening quotes of a multi-line string is not part of it.
        let skipped = body.strip_prefix("\r\n").or_else(|| body.strip_prefix('\n')).unwrap_or(body);
        let body = if start == 3 { skipped } else { body };
        // With an escape, positions in the value are not those in the file.
        if !body.starts_with(&text.value) {
            return text.span.clone();
        }
        let start = text.span.start + (raw.len() - body.len());
        start + inner.start..start + inner.end.max(inner.start)
    }
}
