//! Explanations for `rules test`: why each rule matches a banner or not.

use super::advisory::AdvisoryFinding;
use super::banner_view::BannerView;
use super::evaluate_rule::{MatchDetails, MismatchReason, PatternMemo, ScopeCheck, judge, scope_as_told};
use super::example::RuleExample;
use super::field::{BannerField, BannerSender};
use super::pattern::RulePattern;
use super::rule::{FieldTest, Rule, RuleCondition};
use super::rule_set::RuleSet;
use super::scope::AssumedConnection;
use crate::banner::Banner;
use crate::event::{RuleAction, VerdictFacts};

/// The result of one rule for a banner, with its reason.
#[derive(Debug, Clone)]
pub struct RuleExplanation<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// True if it matches.
    pub matches: bool,
    /// The rule's action, given the advisory's verdict.
    pub action: RuleAction,
    /// True if a KEXINIT, which is missing, may change the result.
    pub(super) open: bool,
    /// The reason, in one line.
    pub reason: String,
    /// The verdict of the rule's advisory, if it was asked.
    pub verdict: Option<VerdictFacts>,
}

/// The result of one example of a rule.
#[derive(Debug, Clone)]
pub struct ExampleResult<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The example.
    pub example: &'r RuleExample,
    /// True if the rule should match: false for counterexamples.
    pub expected: bool,
    /// The result, and its reason.
    pub explanation: RuleExplanation<'r>,
}

impl ExampleResult<'_> {
    /// Returns true if the rule did what the example expects.
    pub const fn passed(&self) -> bool {
        self.explanation.matches == self.expected
    }
}

impl RuleSet {
    /// Tries every example and counterexample with its rule.
    pub fn trials(&self) -> impl Iterator<Item = ExampleResult<'_>> {
        self.rules.iter().flat_map(move |rule| {
            let examples = rule.examples.iter().map(|example| (example, true));
            let counterexamples = rule.counterexamples.iter().map(|example| (example, false));
            examples.chain(counterexamples).map(move |(example, expected)| {
                let explanation = self.explain_rule(rule, example, rule.from(), AssumedConnection::default());
                ExampleResult { rule, example, expected, explanation }
            })
        })
    }

    /// Returns every rule's result for a banner that `from` sent, in the order of judgement.
    ///
    /// It tests only the addresses and the port that `ends` names. A response counts as the answer
    /// to a rule's request.
    pub fn explain(
        &self,
        example: &RuleExample,
        from: BannerSender,
        ends: AssumedConnection,
    ) -> Vec<RuleExplanation<'_>> {
        let mut accepted: Option<&Rule> = None;
        let mut explanations = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            let mut explanation = self.explain_rule(rule, example, from, ends);
            if let Some(accept) = accepted {
                let ended =
                    format!("not evaluated: the accept rule `{}` ended the evaluation; else: ", accept.id);
                explanation.reason.insert_str(0, &ended);
                explanation.matches = false;
            } else if explanation.matches && rule.action == RuleAction::Accept && rule.scope.is_settled(ends)
            {
                accepted = Some(rule);
            }
            explanations.push(explanation);
        }
        explanations
    }

    pub(super) fn explain_rule<'r>(
        &'r self,
        rule: &'r Rule,
        example: &RuleExample,
        from: BannerSender,
        ends: AssumedConnection,
    ) -> RuleExplanation<'r> {
        let outcome = example.with(from, rule.request.as_ref(), |banner, context, hassh| {
            let view = BannerView::new(banner, context).with_hassh(hassh);
            let memo = PatternMemo::default();
            let judged = judge(rule, &self.patterns, &view, &memo, ScopeCheck::No);
            let (matches, reason, finding) =
                match judged.and_then(|found| scope_as_told(rule, ends).map(|()| found)) {
                    Ok(found) => (true, because(rule, found, ends), found.finding),
                    Err(MismatchReason::Unreported(finding)) => (false, unreported(&finding), Some(finding)),
                    Err(miss) => (false, self.why(rule, miss, &view), None),
                };
            let awaited = |finding: &AdvisoryFinding<'_>| {
                matches!(banner, Banner::Ssh(banner) if banner.kex.is_none() && finding.may_be_told(banner))
            };
            RuleExplanation {
                rule,
                matches,
                action: rule.action_by(finding.as_ref()),
                open: finding.as_ref().is_some_and(awaited),
                reason,
                verdict: finding.map(|finding| finding.facts()),
            }
        });
        outcome.unwrap_or_else(|reason| RuleExplanation {
            rule,
            matches: false,
            action: rule.action,
            open: false,
            reason,
            verdict: None,
        })
    }

    fn why(&self, rule: &Rule, miss: MismatchReason<'_, '_>, view: &BannerView<'_>) -> String {
        match miss {
            MismatchReason::Protocol => format!("it is about {}", rule.protocol.name()),
            MismatchReason::Sender => format!("it is about what the {} sends", rule.from.name()),
            MismatchReason::Stage => "it needs the KEXINIT, which is not there".to_owned(),
            MismatchReason::Source => "the client's address is not in `source`".to_owned(),
            MismatchReason::Destination => "the server's address is not in `destination`".to_owned(),
            MismatchReason::Port => "the server's port is not in `port`".to_owned(),
            MismatchReason::NotNow => "an override puts another form of it in force now".to_owned(),
            MismatchReason::Exempt => "an override exempts the address".to_owned(),
            MismatchReason::Request(probe) => {
                format!("it is about answers to {} {}", probe.method, probe.path)
            }
            MismatchReason::Present(name) => format!("the header field {name} is present"),
            MismatchReason::Absent(name) => format!("the header field {name} is missing"),
            MismatchReason::NoField(condition) => format!("the banner has no `{}`", condition.field),
            MismatchReason::NoMatch(condition) => {
                format!("{} does not match {}", shown(&condition.field, view), self.tested(condition))
            }
            MismatchReason::Unless(condition) => {
                format!(
                    "{} matches unless.{1} {2}",
                    shown(&condition.field, view),
                    condition.field,
                    self.tested(condition)
                )
            }
            MismatchReason::Distribution => {
                "its advisory is about another distribution's packages".to_owned()
            }
            MismatchReason::Unreported(finding) => unreported(&finding),
            MismatchReason::Valid => "the certificate is valid for longer".to_owned(),
            MismatchReason::NoVersion => "no version could be read".to_owned(),
            MismatchReason::Version(version) => {
                let wanted = rule.version.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("the version {} is not {wanted}", lossy(version))
            }
            MismatchReason::Fixed(fixed, package) => {
                let (distribution, revision) = (lossy(package.distribution), lossy(package.revision));
                format!("{distribution}-{revision} is fixed: it is at least {fixed}")
            }
        }
    }

    fn tested(&self, condition: &RuleCondition) -> String {
        match &condition.test {
            FieldTest::Values(list) => format!("an entry of the list @{}", list.name),
            FieldTest::Patterns(ids) => {
                let texts: Vec<String> = ids
                    .iter()
                    .filter_map(|id| self.patterns.get(id.index()))
                    .map(|pattern: &RulePattern| format!("'{}'", pattern.text()))
                    .collect();
                texts.join(" or ")
            }
        }
    }
}

/// Returns the reasons of a match, without its patterns.
fn because(
    rule: &Rule,
    MatchDetails { captured, finding, .. }: MatchDetails<'_, '_>,
    ends: AssumedConnection,
) -> String {
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
fn unreported(finding: &AdvisoryFinding<'_>) -> String {
    format!("{}: {}", finding.verdict().name(), finding.reason())
}

fn shown(field: &BannerField, view: &BannerView<'_>) -> String {
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
