//! Explanations for `rules test`: why each rule matches a banner or not.

use std::net::IpAddr;

use super::advisory::Finding;
use super::example::Example;
use super::field::{Field, Sender};
use super::judge::{Found, Memo, Miss, Scoped, judge, scope_as_told};
use super::pattern::Pattern;
use super::rule::{Condition, Rule, Test};
use super::view::View;
use super::{Action, RuleSet};
use crate::banner::Banner;
use crate::event::VerdictFacts;

/// The result of one rule for a banner, with its reason.
#[derive(Debug, Clone)]
pub struct Explanation<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// True if it matches.
    pub matches: bool,
    /// The rule's action, given the advisory's verdict.
    pub action: Action,
    /// True if a KEXINIT, which is missing, may change the result.
    pub(super) open: bool,
    /// The reason, in one line.
    pub reason: String,
    /// The verdict of the rule's advisory, if it was asked.
    pub verdict: Option<VerdictFacts>,
}

/// The connection that a banner is assumed to belong to, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    /// The client's address.
    pub source: Option<IpAddr>,
    /// The server's address.
    pub destination: Option<IpAddr>,
    /// The server's port.
    pub port: Option<u16>,
}

/// The result of one example of a rule.
#[derive(Debug, Clone)]
pub struct Trial<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The example.
    pub example: &'r Example,
    /// True if the rule should match: false for counterexamples.
    pub expected: bool,
    /// The result, and its reason.
    pub explanation: Explanation<'r>,
}

impl Trial<'_> {
    /// Returns true if the rule did what the example expects.
    pub const fn passed(&self) -> bool {
        self.explanation.matches == self.expected
    }
}

impl RuleSet {
    /// Tries every example and counterexample with its rule.
    pub fn trials(&self) -> impl Iterator<Item = Trial<'_>> {
        self.rules.iter().flat_map(move |rule| {
            let examples = rule.examples.iter().map(|example| (example, true));
            let counterexamples = rule.counterexamples.iter().map(|example| (example, false));
            examples.chain(counterexamples).map(move |(example, expected)| {
                let explanation = self.explain_rule(rule, example, rule.from(), Ends::default());
                Trial { rule, example, expected, explanation }
            })
        })
    }

    /// Returns every rule's result for a banner that `from` sent, in the order of judgement.
    ///
    /// It tests only the addresses and the port that `ends` names. A response counts as the answer
    /// to a rule's request.
    pub fn explain(&self, example: &Example, from: Sender, ends: Ends) -> Vec<Explanation<'_>> {
        let mut accepted: Option<&Rule> = None;
        let mut explanations = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            let mut explanation = self.explain_rule(rule, example, from, ends);
            if let Some(accept) = accepted {
                let ended =
                    format!("not evaluated: the accept rule `{}` ended the evaluation; else: ", accept.id);
                explanation.reason.insert_str(0, &ended);
                explanation.matches = false;
            } else if explanation.matches && rule.action == Action::Accept && rule.scope.is_settled(ends) {
                accepted = Some(rule);
            }
            explanations.push(explanation);
        }
        explanations
    }

    pub(super) fn explain_rule<'r>(
        &'r self,
        rule: &'r Rule,
        example: &Example,
        from: Sender,
        ends: Ends,
    ) -> Explanation<'r> {
        let outcome = example.with(from, rule.request.as_ref(), |banner, context, hassh| {
            let view = View::new(banner, context).with_hassh(hassh);
            let memo = Memo::default();
            let judged = judge(rule, &self.patterns, &view, &memo, Scoped::No);
            let (matches, reason, finding) =
                match judged.and_then(|found| scope_as_told(rule, ends).map(|()| found)) {
                    Ok(found) => (true, because(rule, found, ends), found.finding),
                    Err(Miss::Unreported(finding)) => (false, unreported(&finding), Some(finding)),
                    Err(miss) => (false, self.why(rule, miss, &view), None),
                };
            let awaited = |finding: &Finding<'_>| {
                matches!(banner, Banner::Ssh(banner) if banner.kex.is_none() && finding.may_be_told(banner))
            };
            Explanation {
                rule,
                matches,
                action: rule.action_by(finding.as_ref()),
                open: finding.as_ref().is_some_and(awaited),
                reason,
                verdict: finding.map(|finding| finding.facts()),
            }
        });
        outcome.unwrap_or_else(|reason| Explanation {
            rule,
            matches: false,
            action: rule.action,
            open: false,
            reason,
            verdict: None,
        })
    }

    fn why(&self, rule: &Rule, miss: Miss<'_, '_>, view: &View<'_>) -> String {
        match miss {
            Miss::Protocol => format!("it is about {}", rule.protocol.name()),
            Miss::Sender => format!("it is about what the {} sends", rule.from.name()),
            Miss::Stage => "it needs the KEXINIT, which is not there".to_owned(),
            Miss::Source => "the client's address is not in `source`".to_owned(),
            Miss::Destination => "the server's address is not in `destination`".to_owned(),
            Miss::Port => "the server's port is not in `port`".to_owned(),
            Miss::NotNow => "an override puts another form of it in force now".to_owned(),
            Miss::Exempt => "an override exempts the address".to_owned(),
            Miss::Request(probe) => format!("it is about answers to {} {}", probe.method, probe.path),
            Miss::Present(name) => format!("the header field {name} is present"),
            Miss::Absent(name) => format!("the header field {name} is missing"),
            Miss::NoField(condition) => format!("the banner has no `{}`", condition.field),
            Miss::NoMatch(condition) => {
                format!("{} does not match {}", shown(&condition.field, view), self.tested(condition))
            }
            Miss::Unless(condition) => {
                format!(
                    "{} matches unless.{1} {2}",
                    shown(&condition.field, view),
                    condition.field,
                    self.tested(condition)
                )
            }
            Miss::Distribution => "its advisory is about another distribution's packages".to_owned(),
            Miss::Unreported(finding) => unreported(&finding),
            Miss::Valid => "the certificate is valid for longer".to_owned(),
            Miss::NoVersion => "no version could be read".to_owned(),
            Miss::Version(version) => {
                let wanted = rule.version.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("the version {} is not {wanted}", lossy(version))
            }
            Miss::Fixed(fixed, package) => {
                let (distribution, revision) = (lossy(package.distribution), lossy(package.revision));
                format!("{distribution}-{revision} is fixed: it is at least {fixed}")
            }
        }
    }

    fn tested(&self, condition: &Condition) -> String {
        match &condition.test {
            Test::Values(list) => format!("an entry of the list @{}", list.name),
            Test::Patterns(ids) => {
                let texts: Vec<String> = ids
                    .iter()
                    .filter_map(|id| self.patterns.get(id.index()))
                    .map(|pattern: &Pattern| format!("'{}'", pattern.text()))
                    .collect();
                texts.join(" or ")
            }
        }
    }
}

/// Returns the reasons of a match, without its patterns.
fn because(rule: &Rule, Found { captured, finding, .. }: Found<'_, '_>, ends: Ends) -> String {
    let mut reasons = match finding {
        Some(finding) => vec![format!("{}: {}", finding.verdict().name(), finding.reason())],
        None => vec!["all its conditions hold".to_owned()],
    };
    if let (Some(version), Some(requirement)) = (captured.version, &rule.version) {
        reasons.push(format!("the version {} is {requirement}", lossy(version)));
    }
    if !rule.fixed_in.is_empty() {
        reasons.push("no fixed package covers it".to_owned());
    }
    if !rule.scope.is_settled(ends) {
        reasons
            .push("unknown addresses and port were not tested (--source, --destination, --port)".to_owned());
    }
    reasons.extend(rule.changes.iter().map(ToString::to_string));
    if let Some(request) = &rule.request {
        reasons.push(format!("if it answers {} {}", request.method, request.path));
    }
    if let Some(count) = rule.count {
        reasons.push(format!("from {} times within {} s on", count.times, count.within.as_secs()));
    }
    reasons.join("; ")
}

/// Returns the text of an advisory's verdict that the rule does not report.
fn unreported(finding: &Finding<'_>) -> String {
    format!("{}: {}", finding.verdict().name(), finding.reason())
}

fn shown(field: &Field, view: &View<'_>) -> String {
    let values: Vec<String> = view.values(field).take(3).map(|value| format!("{:?}", cut(value))).collect();
    format!("{field} {}", values.join(", "))
}

fn cut(value: &[u8]) -> String {
    let text = lossy(value);
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn lossy(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}
