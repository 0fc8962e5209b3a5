//! Evaluates the part of an HTTP head that has come so far.

use super::banner_view::BannerContext;
use super::early_head::is_http;
use super::field::BannerField;
use super::match_threshold::MatchHistory;
use super::rule::Rule;
use super::rule_set::RuleSet;
use crate::banner::Banner;
use crate::event::{RuleAction, Timestamp};

impl RuleSet {
    /// Returns true if the part of a head in `banner` is enough for some rule to block, whatever
    /// follows.
    ///
    /// It counts nothing for thresholds: the caller judges the banner again if this returns true.
    pub fn would_block(
        &self,
        banner: &Banner<'_>,
        context: &BannerContext<'_>,
        thresholds: &MatchHistory,
        now: Timestamp,
    ) -> bool {
        let source = context.source;
        let effective = |rule: &Rule| source.is_none_or(|source| thresholds.would_admit(rule, source, now));
        let matches = self.evaluate(banner, context);
        let accepted = matches.iter().any(|found| found.rule.action == RuleAction::Accept);
        let blocks = matches.iter().any(|found| found.action().blocks() && effective(found.rule));
        blocks && !accepted && !self.may_accept(banner, context)
    }

    /// Returns true if an accept rule may match once more of the head has come.
    fn may_accept(&self, banner: &Banner<'_>, context: &BannerContext<'_>) -> bool {
        let accepts = self.rules.iter().take_while(|rule| rule.action == RuleAction::Accept);
        accepts.filter(|rule| is_http(rule, banner.from()) && rule.is_in_scope(context)).any(|rule| {
            let headers =
                rule.conditions().any(|condition| matches!(condition.field, BannerField::Header(_)));
            headers || rule.fingerprint || !rule.present.is_empty() || !rule.absent.is_empty()
        })
    }
}
