//! A rule that matches a banner, and the effect of the match.

use std::sync::Arc;
use std::time::Duration;

use super::advisory::AdvisoryFinding;
use super::evaluate_rule::MatchDetails;
use super::field::BannerField;
use super::rule::{PacketMark, Rule};
use crate::event::{AdvisoryVerdict, OverrideFacts, RuleAction, Severity};

/// A rule that matches, and the values that it captured.
#[derive(Debug, Clone)]
pub struct RuleMatch<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The product, from the group named `product` or a fingerprint.
    pub product: Option<String>,
    /// The version, from the group named `version` or a fingerprint.
    pub version: Option<String>,
    /// The field of the first condition that matched, and its value.
    pub(super) matched: Option<(&'r BannerField, Vec<u8>)>,
    /// The finding of the rule's advisory.
    pub(super) finding: Option<AdvisoryFinding<'r>>,
    /// The override that exempts the connection from the rule.
    pub(super) exemption: Option<&'r Arc<OverrideFacts>>,
}

impl<'r> RuleMatch<'r> {
    pub(super) fn new(rule: &'r Rule, found: MatchDetails<'r, '_>) -> Self {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let MatchDetails { captured, matched, finding } = found;
        Self {
            rule,
            product: captured.product.map(text),
            version: captured.version.map(text),
            matched: matched.map(|(field, value)| (field, value.to_vec())),
            finding,
            exemption: None,
        }
    }

    /// Returns the rule's action. It is weaker if the advisory does not say that the package is
    /// affected, or if an override exempts the connection.
    pub fn action(&self) -> RuleAction {
        match self.exemption {
            Some(_) => RuleAction::Alert,
            None => self.rule.action_by(self.finding.as_ref()),
        }
    }

    /// Returns the mark to set.
    pub fn mark(&self) -> Option<PacketMark> {
        self.rule.mark.filter(|_| self.action() == RuleAction::Mark)
    }

    /// Returns the time for which to ban the client.
    pub fn ban(&self) -> Option<Duration> {
        self.rule.ban().filter(|_| self.action() == RuleAction::Ban)
    }

    /// Returns the severity of the match. A fixed package is only `info`; an unknown verdict is at
    /// most `medium`.
    pub fn severity(&self) -> Severity {
        let severity = self.rule.severity;
        match self.finding.map(|finding| finding.verdict()) {
            Some(AdvisoryVerdict::Fixed) => Severity::Info,
            Some(AdvisoryVerdict::Unknown) => severity.min(Severity::Medium),
            Some(AdvisoryVerdict::Affected) | None => severity,
        }
    }
}
