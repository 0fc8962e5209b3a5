//! Overrides: an administrator's local changes to third-party rules.
//!
//! Shipped files stay unchanged, so that an upgrade can replace them. Overrides apply in the order
//! of files and lines, each to the result of those before.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::rule::{PacketMark, Rule};
use super::rule_change::RuleChange;
use super::scope::AddressSet;
use super::selection::RuleSelection;
use super::source_file::SourceFile;
use super::suggest;
use crate::event::{OverrideFacts, RuleAction, Severity, Timestamp};

/// One `[[override]]`.
#[derive(Debug)]
pub(super) struct RuleOverride {
    /// Ids of the rules that it changes, with `*` and `?` as in a shell; empty for any.
    pub(super) rules: Vec<SpannedName>,
    /// Tags of the rules that it changes; empty for any.
    pub(super) tags: Vec<SpannedName>,
    pub(super) enabled: Option<bool>,
    pub(super) action: Option<(RuleAction, Range<usize>)>,
    pub(super) mark: Option<PacketMark>,
    pub(super) ban: Option<Duration>,
    pub(super) severity: Option<Severity>,
    pub(super) exempt: ExemptAddresses,
    /// True if an unknown rule or tag causes only a warning.
    pub(super) optional: bool,
    /// Position, owner, reason and end.
    pub(super) facts: Arc<OverrideFacts>,
}

/// The name of a rule or tag, and its position.
#[derive(Debug)]
pub(super) struct SpannedName {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// Addresses whose connections a rule exempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ExemptAddresses {
    /// Addresses of clients.
    pub(super) source: AddressSet,
    /// Addresses of servers.
    pub(super) destination: AddressSet,
    /// The addresses as the file writes them.
    pub(super) said: Vec<String>,
}

/// Applies `overrides` to `rules`, except those that had ended before `now`. An unknown name is an
/// error; if the rules are only a part of all (`partial`), it is a warning.
pub(super) fn apply(
    overrides: &[RuleOverride],
    rules: &mut Vec<Rule>,
    sources: &[SourceFile],
    selection: &RuleSelection,
    report: &mut DiagnosticCollector,
) {
    for one in overrides {
        let Some(source) = sources.iter().find(|source| source.name() == one.facts.file) else { continue };
        if selection.now.is_some_and(|now| !one.facts.is_in_force(now)) {
            continue;
        }
        let lenient = one.optional || selection.partial;
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
        let until = one.facts.until.filter(|_| one.alters());
        if let Some(until) = until {
            *rules = split(std::mem::take(rules), until, is_meant);
        }
        let holds = |rule: &Rule| until.is_none_or(|until| rule.validity.ends_by(until));
        for rule in rules.iter_mut().filter(|rule| is_meant(rule) && holds(rule)) {
            one.change(rule, source, report);
        }
    }
}

/// Splits each meant rule that is in force at `at`: one copy is in force until then, one from then
/// on.
fn split(rules: Vec<Rule>, at: Timestamp, is_meant: impl Fn(&Rule) -> bool) -> Vec<Rule> {
    let parts = |rule: Rule| match rule.validity.split(at).filter(|_| is_meant(&rule)) {
        Some((before, after)) => {
            vec![Rule { validity: before, ..rule.clone() }, Rule { validity: after, ..rule }]
        }
        None => vec![rule],
    };
    rules.into_iter().flat_map(parts).collect()
}

fn unknown<'c>(
    what: &str,
    name: &SpannedName,
    known: impl Iterator<Item = &'c str>,
    lenient: bool,
    source: &SourceFile,
) -> RuleDiagnostic {
    let level = if lenient { DiagnosticLevel::Warning } else { DiagnosticLevel::Error };
    let message = match name.text.contains(['*', '?']) {
        true => format!("no {what} is named like `{}`", name.text),
        false => format!("no {what} is named `{}`", name.text),
    };
    let diagnostic = RuleDiagnostic::at(level, source, &name.span, message);
    match suggest::nearest(&name.text, known) {
        Some(nearest) => diagnostic.with_help(format!("did you mean `{nearest}`?")),
        None if lenient => diagnostic,
        None => diagnostic.with_help("`optional = true` lets an override be about nothing"),
    }
}

/// A name with `*` (anything) and `?` (one character) as a pattern for whole ids.
fn glob(name: &str) -> Regex {
    let pattern = regex::escape(name).replace(r"\*", ".*").replace(r"\?", ".");
    // Only a name beyond the limits could be too large to compile; no rule has such a name.
    Regex::new(&format!("^(?:{pattern})$")).unwrap_or_else(|_| never())
}

fn never() -> Regex {
    Regex::new(r"\b\B").unwrap_or_else(|_| unreachable!("a constant pattern"))
}

impl RuleOverride {
    /// True if it changes more than exemptions.
    fn alters(&self) -> bool {
        self.enabled.is_some() || self.action.is_some() || self.severity.is_some()
    }

    fn change(&self, rule: &mut Rule, source: &SourceFile, report: &mut DiagnosticCollector) {
        let mut changes = Vec::new();
        if let Some(enabled) = self.enabled
            && enabled == rule.off.is_some()
        {
            changes.push(if enabled { "switched on" } else { "switched off" }.to_owned());
            rule.off = (!enabled).then(|| "switched off".to_owned());
        }
        if let Some((action, span)) = &self.action {
            if *action == RuleAction::Mark && self.mark.or(rule.mark).is_none() {
                let message = "the action `mark` needs the value to set: `mark`";
                let diagnostic = RuleDiagnostic::at(DiagnosticLevel::Error, source, span, message);
                report.push(diagnostic.with_help("for instance `mark = \"0x1/0xff\"`"));
                return;
            }
            if rule.action.blocks() != action.blocks() {
                rule.weakened_by = rule.action.blocks().then(|| Arc::clone(&self.facts));
            }
            if *action != rule.action {
                changes.push(format!("action {} to {}", rule.action.name(), action.name()));
            }
            rule.action = *action;
            rule.ban = self.ban.or(rule.ban);
            rule.mark = (*action == RuleAction::Mark).then(|| self.mark.or(rule.mark)).flatten();
        }
        if let Some(severity) = self.severity
            && severity != rule.severity
        {
            changes.push(format!("severity {} to {}", rule.severity.name(), severity.name()));
            rule.severity = severity;
        }
        if !self.exempt.said.is_empty() {
            changes.push(format!("exempt {}", self.exempt.said.join(" ")));
            rule.scope.exempt(&self.exempt.source, &self.exempt.destination, &self.facts);
        }
        let by = |what| RuleChange { what, by: Arc::clone(&self.facts) };
        rule.changes.extend(changes.into_iter().map(by));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banner::{Banner, SshBanner, ssh};
    use crate::event::Side;
    use crate::rules::{BannerContext, RuleMatch, RuleSet};

    const RULES: &str =
        "[[rule]]\nid = \"old\"\nprotocol = \"ssh\"\nmatch.software = '^Old'\naction = \"drop\"\n";

    fn load(local: &str, now: Option<Timestamp>) -> Result<RuleSet, String> {
        let folder = tempfile::tempdir().unwrap();
        let [rules, own] = ["rules.toml", "own.toml"].map(|name| folder.path().join(name));
        std::fs::write(&rules, RULES).unwrap();
        std::fs::write(&own, local).unwrap();
        let selection = RuleSelection { local: vec![own], now, ..RuleSelection::of(vec![rules]) };
        RuleSet::load(&selection).map(|loaded| loaded.rules).map_err(|error| error.to_string())
    }

    fn at(time: &str) -> Timestamp {
        let time: jiff::Timestamp = time.parse().unwrap();
        Timestamp::from_nanos(u64::try_from(time.as_nanosecond()).unwrap())
    }

    /// Returns the actions of the rules at this time for an old server that 192.0.2.7 asks, and what an
    /// exemption hides.
    fn asked(rules: &RuleSet, time: &str) -> (Vec<RuleAction>, usize) {
        let identification = ssh::parse_line(b"SSH-2.0-OldSSH_1.0").0;
        let banner = Banner::Ssh(SshBanner { from: Side::Server, identification, kex: None });
        let context =
            BannerContext { source: "192.0.2.7".parse().ok(), now: at(time), ..BannerContext::default() };
        let found = rules.evaluate(&banner, &context);
        let exempt = rules.exempted(&banner, &context);
        assert!(exempt.iter().all(|found| found.action() == RuleAction::Alert));
        (found.iter().map(RuleMatch::action).collect(), exempt.len())
    }

    #[test]
    fn an_override_ends_by_the_banner_s_time() {
        let day = "until = 2026-12-31\nowner = \"netops\"\n";
        let exact = "until = 2026-12-31T12:00:00+01:00\n";
        let (drop, alert) = (vec![RuleAction::Drop], vec![RuleAction::Alert]);
        let exempt = "exempt.source = [\"192.0.2.0/24\"]\n";
        for (change, until, before, last, first) in [
            (exempt, day, (vec![], 1), "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
            (exempt, exact, (vec![], 1), "2026-12-31T10:59:59Z", "2026-12-31T11:00:00Z"),
            ("action = \"alert\"\n", day, (alert, 0), "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
            ("enabled = false\n", exact, (vec![], 0), "2026-12-31T10:59:59Z", "2026-12-31T11:00:00Z"),
        ] {
            let local = format!("[[override]]\nrule = \"old\"\n{change}{until}");
            let rules = load(&local, None).unwrap();
            assert_eq!(asked(&rules, last), before, "{local}");
            assert_eq!(asked(&rules, first), (drop.clone(), 0), "{local}");
            assert_eq!(rules.ended(at(last)).count(), 0);
            assert_eq!(rules.ended(at(first)).count(), 1);
            let later = load(&local, Some(at(first))).unwrap();
            assert_eq!(asked(&later, last), (drop.clone(), 0), "it had ended at the start: {local}");
            assert_eq!(later.rules().len() + later.rules_off().len(), 1);
        }
    }

    #[test]
    fn ends_of_several_overrides_follow_one_another() {
        let local = "[[override]]\nrule = \"old\"\naction = \"alert\"\nuntil = 2026-12-31\n\
                     [[override]]\nrule = \"old\"\nenabled = false\nuntil = 2026-11-30\n";
        let rules = load(local, None).unwrap();
        for (time, expected) in [
            ("2026-11-01T00:00:00Z", vec![]),
            ("2026-12-01T00:00:00Z", vec![RuleAction::Alert]),
            ("2027-01-01T00:00:00Z", vec![RuleAction::Drop]),
        ] {
            assert_eq!(asked(&rules, time).0, expected, "{time}");
        }
    }

    #[test]
    fn an_end_that_is_no_point_in_time_is_an_error() {
        for until in ["\"2026-12-31\"", "2026-12-31T12:00:00", "12:00:00", "1"] {
            let local = format!("[[override]]\nrule = \"old\"\nenabled = false\nuntil = {until}\n");
            let error = load(&local, None).unwrap_err();
            assert!(error.contains("`until`") && error.contains("own.toml:4"), "{until}: {error}");
        }
    }
}
