//! What the administrator of one machine says about rules of others: overrides.
//!
//! Shipped files stay as they are, so that an upgrade can replace them. Overrides are applied in the
//! order of files and lines, each to the rules as those before left them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use super::diagnostic::{Diagnostic, Level, Report};
use super::rule::{Mark, Rule};
use super::scope::Addresses;
use super::suggest;
use super::text::SourceFile;
use crate::event::{Action, Severity};

/// One `[[override]]`.
#[derive(Debug)]
pub(super) struct Override {
    /// Ids that it is about, with `*` and `?` as in a shell; any where there are none.
    pub(super) rules: Vec<Name>,
    /// Tags that it is about; any where there are none.
    pub(super) tags: Vec<Name>,
    pub(super) enabled: Option<bool>,
    pub(super) action: Option<(Action, Range<usize>)>,
    pub(super) mark: Option<Mark>,
    pub(super) ban: Option<Duration>,
    pub(super) severity: Option<Severity>,
    pub(super) exempt: Exempt,
    /// Why, for those who read `rules list`.
    pub(super) reason: Option<String>,
    /// A rule or tag that is not there is worth a warning only.
    pub(super) optional: bool,
    pub(super) file: Arc<str>,
    pub(super) line: usize,
}

/// The name of a rule or tag, and where it stands.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// Addresses whose connections a rule leaves alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exempt {
    /// Of clients.
    pub(super) source: Addresses,
    /// Of servers.
    pub(super) destination: Addresses,
    /// As the file says it, for a person.
    pub(super) said: Vec<String>,
}

/// Something that an override changed about a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What: `action drop to alert`.
    pub what: String,
    /// Why, where the override says so.
    pub reason: Option<String>,
    /// The file of the override.
    pub file: Arc<str>,
    /// The line of its `[[override]]`, from 1.
    pub line: usize,
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({}:{}", self.what, self.file, self.line)?;
        match &self.reason {
            Some(reason) => write!(formatter, ": {reason})"),
            None => write!(formatter, ")"),
        }
    }
}

/// Applies `overrides` to `rules`. What they name and nobody knows is an error, or, where the rules
/// are only a part of all (`partial`), a warning.
pub(super) fn apply(
    overrides: &[Override],
    rules: &mut [Rule],
    sources: &[SourceFile],
    partial: bool,
    report: &mut Report,
) {
    for one in overrides {
        let Some(source) = sources.iter().find(|source| source.name() == &*one.file) else { continue };
        let lenient = one.optional || partial;
        let ids: Vec<Regex> = one.rules.iter().map(|name| glob(&name.text)).collect();
        for (name, id) in one.rules.iter().zip(&ids) {
            if !rules.iter().any(|rule| id.is_match(&rule.id)) {
                let known = rules.iter().map(|rule| rule.id.as_str());
                report.push(unknown("rule", name, known, lenient, source));
            }
        }
        let tags: BTreeSet<&str> = rules.iter().flat_map(Rule::tags).collect();
        for name in one.tags.iter().filter(|name| !tags.contains(name.text.as_str())) {
            report.push(unknown("tag", name, tags.iter().copied(), lenient, source));
        }
        let is_meant = |rule: &Rule| {
            (ids.is_empty() || ids.iter().any(|id| id.is_match(&rule.id)))
                && (one.tags.is_empty()
                    || one.tags.iter().any(|name| rule.tags().any(|tag| tag == name.text)))
        };
        for rule in rules.iter_mut().filter(|rule| is_meant(rule)) {
            one.change(rule, source, report);
        }
    }
}

fn unknown<'c>(
    what: &str,
    name: &Name,
    known: impl Iterator<Item = &'c str>,
    lenient: bool,
    source: &SourceFile,
) -> Diagnostic {
    let level = if lenient { Level::Warning } else { Level::Error };
    let message = match name.text.contains(['*', '?']) {
        true => format!("no {what} is named like `{}`", name.text),
        false => format!("no {what} is named `{}`", name.text),
    };
    let diagnostic = Diagnostic::at(level, source, &name.span, message);
    match suggest::nearest(&name.text, known) {
        Some(nearest) => diagnostic.with_help(format!("did you mean `{nearest}`?")),
        None if lenient => diagnostic,
        None => diagnostic.with_help("`optional = true` lets an override be about nothing"),
    }
}

/// A name with `*` (anything) and `?` (one character) as a pattern for whole ids.
fn glob(name: &str) -> Regex {
    let pattern = regex::escape(name).replace(r"\*", ".*").replace(r"\?", ".");
    // Only a name beyond the bounds of names could be too large to compile; it is nobody's name then.
    Regex::new(&format!("^(?:{pattern})$")).unwrap_or_else(|_| never())
}

fn never() -> Regex {
    Regex::new(r"\b\B").unwrap_or_else(|_| unreachable!("a constant pattern"))
}

impl Override {
    fn change(&self, rule: &mut Rule, source: &SourceFile, report: &mut Report) {
        let mut changes = Vec::new();
        if let Some(enabled) = self.enabled
            && enabled == rule.off.is_some()
        {
            changes.push(if enabled { "switched on" } else { "switched off" }.to_owned());
            rule.off = (!enabled).then(|| "switched off".to_owned());
        }
        if let Some((action, span)) = &self.action {
            if *action == Action::Mark && self.mark.or(rule.mark).is_none() {
                let message = "the action `mark` needs the value to set: `mark`";
                let diagnostic = Diagnostic::at(Level::Error, source, span, message);
                report.push(diagnostic.with_help("for instance `mark = \"0x1/0xff\"`"));
                return;
            }
            if *action != rule.action {
                changes.push(format!("action {} to {}", rule.action.name(), action.name()));
            }
            rule.action = *action;
            rule.ban = self.ban.or(rule.ban);
            rule.mark = (*action == Action::Mark).then(|| self.mark.or(rule.mark)).flatten();
        }
        if let Some(severity) = self.severity
            && severity != rule.severity
        {
            changes.push(format!("severity {} to {}", rule.severity.name(), severity.name()));
            rule.severity = severity;
        }
        if !self.exempt.said.is_empty() {
            changes.push(format!("exempt {}", self.exempt.said.join(" ")));
            rule.scope.exempt(&self.exempt.source, &self.exempt.destination);
        }
        rule.changes.extend(changes.into_iter().map(|what| Change {
            what,
            reason: self.reason.clone(),
            file: self.file.clone(),
            line: self.line,
        }));
    }
}
