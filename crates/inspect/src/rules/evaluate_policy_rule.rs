//! Evaluates a rule that a policy names.

use super::banner_view::{BannerContext, BannerView};
use super::evaluate_rule::{MismatchReason, PatternMemo, ScopeCheck, judge};
use super::rule::Rule;
use super::rule_set::RuleSet;
use crate::banner::Banner;

/// The result of a rule that a policy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyRuleResult {
    /// The rule matches.
    Matches,
    /// The rule does not match.
    Differs,
    /// The rule is about another kind of banner, or about data that comes later.
    Silent,
}

impl RuleSet {
    /// Returns the result of a rule that a policy names. A rule that is no longer there counts as
    /// differing.
    pub fn opinion(
        &self,
        (index, id): (usize, &str),
        banner: &Banner<'_>,
        context: &BannerContext<'_>,
    ) -> PolicyRuleResult {
        // The position may be that of an older rule set: the rule set may have been reloaded since.
        let is_meant = |rule: &&Rule| rule.id == id && rule.validity.includes(context.now);
        let at = self.rules.get(index).filter(is_meant);
        let Some(rule) = at.or_else(|| self.rules.iter().find(is_meant)) else {
            return PolicyRuleResult::Differs;
        };
        let view = BannerView::new(banner, context);
        match judge(rule, &self.patterns, &view, &PatternMemo::default(), ScopeCheck::Yes) {
            Ok(_) => PolicyRuleResult::Matches,
            Err(MismatchReason::Protocol | MismatchReason::Sender | MismatchReason::Stage) => {
                PolicyRuleResult::Silent
            }
            Err(_) => PolicyRuleResult::Differs,
        }
    }
}
