//! A loaded rule set, and the evaluation of banners by it.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use super::banner_view::{BannerContext, BannerStage, BannerView};
use super::candidate_index::CandidateIndex;
use super::diagnostic::{DiagnosticLevel, RuleDiagnostic};
use super::early_head::{EarlyHeadParts, EarlySides};
use super::evaluate_rule::{PatternMemo, ScopeCheck, judge};
use super::pattern::RulePattern;
use super::policy::Policy;
use super::policy_set::PolicySet;
use super::rule::Rule;
use super::rule_match::RuleMatch;
use super::rule_needs::RuleNeeds;
use super::source_file::ReadFile;
use crate::banner::Banner;
use crate::event::{FlowEndpoints, OverrideFacts, RuleAction, Side, Timestamp};

/// Validated and compiled rules. Threads share a set by `Arc`; it never changes.
#[derive(Debug, Default)]
pub struct RuleSet {
    pub(super) rules: Vec<Rule>,
    /// Rules that a profile or an override switches off.
    pub(super) off: Vec<Rule>,
    pub(super) patterns: Vec<RulePattern>,
    pub(super) index: CandidateIndex,
    pub(super) needs: RuleNeeds,
    pub(super) early: EarlySides,
    pub(super) policies: PolicySet,
    /// All overrides of the local files.
    pub(super) overrides: Vec<Arc<OverrideFacts>>,
    pub(super) files: Vec<ReadFile>,
}

impl RuleSet {
    /// Returns a set without rules.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns the files that the rules were read from, with the files of their lists.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().map(|file| &file.path)
    }

    /// The rules in the order in which they are judged.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rules that are switched off, in the order of files and lines.
    pub fn rules_off(&self) -> &[Rule] {
        &self.off
    }

    /// Returns the overrides of the local files, in order, including those that have expired.
    pub fn overrides(&self) -> &[Arc<OverrideFacts>] {
        &self.overrides
    }

    /// Returns a warning for each override that has expired at `now`.
    pub fn ended(&self, now: Timestamp) -> impl Iterator<Item = RuleDiagnostic> {
        self.overrides.iter().filter(move |one| !one.is_in_force(now)).map(|one| {
            let until = one.until.unwrap_or_default();
            let owner = one.owner.as_ref().map(|owner| format!(" (owner: {owner})")).unwrap_or_default();
            let message = format!("the override of line {} has had no effect since {until}{owner}", one.line);
            RuleDiagnostic::of_file(DiagnosticLevel::Warning, one.file.as_str(), message)
                .with_help("remove it, or extend `until`")
        })
    }

    /// Returns the data that must be collected or requested so that every rule can be judged.
    pub fn needs(&self) -> &RuleNeeds {
        &self.needs
    }

    /// Returns the parts of the heads of `side` that blocking rules are about.
    pub fn early(&self, side: Side) -> &EarlyHeadParts {
        match side {
            Side::Client => &self.early.client,
            Side::Server => &self.early.server,
        }
    }

    /// The policies in order of precedence.
    pub fn policies(&self) -> &[Arc<Policy>] {
        self.policies.all()
    }

    /// True if a policy limits how long both sides may be silent.
    pub fn has_impatient_policies(&self) -> bool {
        self.policies.impatient
    }

    /// Returns the policy that decides about a connection.
    pub fn policy(&self, ends: &FlowEndpoints) -> Option<&Arc<Policy>> {
        self.policies.find(ends)
    }

    /// Returns the rules that match `banner`, in order. If an accept rule matches, it returns only
    /// that rule.
    ///
    /// The result includes rules with a `count`: ask [`MatchHistory::admit`](super::MatchHistory::admit)
    /// whether they take effect.
    pub fn evaluate<'r>(&'r self, banner: &Banner<'_>, context: &BannerContext<'_>) -> Vec<RuleMatch<'r>> {
        let view = BannerView::new(banner, context);
        let memo = PatternMemo::default();
        let accepted = OnceCell::new();
        let is_accepted = || *accepted.get_or_init(|| self.accepts_head(banner, context));
        let mut matches = Vec::new();
        for rule in self.candidates(&view, &memo).into_iter().filter_map(|index| self.rule(index)) {
            // Only policies name these rules; their match alone has no effect.
            if rule.action == RuleAction::Allow {
                continue;
            }
            let Ok(found) = judge(rule, &self.patterns, &view, &memo, ScopeCheck::Yes) else { continue };
            // An accept rule that needs no KEXINIT was judged without it. Such a rule ended the
            // evaluation then, so it also has to end it here.
            if context.stage == BannerStage::Rest && rule.is_weighed_at_end() && is_accepted() {
                continue;
            }
            matches.push(RuleMatch::new(rule, found));
            if rule.action == RuleAction::Accept {
                break;
            }
        }
        matches
    }

    /// Returns the blocking rules that would match `banner` if no override exempted the connection,
    /// in order. If an accept rule matches, it returns none. Rules with a `count` are left out,
    /// because their effect depends on earlier banners.
    pub fn exempted<'r>(&'r self, banner: &Banner<'_>, context: &BannerContext<'_>) -> Vec<RuleMatch<'r>> {
        let mut matches = Vec::new();
        if !self.needs.exemptions {
            return matches;
        }
        let view = BannerView::new(banner, context);
        let memo = PatternMemo::default();
        for rule in self.candidates(&view, &memo).into_iter().filter_map(|index| self.rule(index)) {
            if rule.action == RuleAction::Accept
                && judge(rule, &self.patterns, &view, &memo, ScopeCheck::Yes).is_ok()
            {
                return Vec::new();
            }
            if !rule.action.blocks() || rule.count.is_some() {
                continue;
            }
            let Some(by) = rule.exemption(context) else { continue };
            if let Ok(found) = judge(rule, &self.patterns, &view, &memo, ScopeCheck::Unexempted) {
                matches.push(RuleMatch { exemption: Some(by), ..RuleMatch::new(rule, found) });
            }
        }
        matches
    }

    /// Returns true if an accept rule ended the evaluation before the KEXINIT came.
    fn accepts_head(&self, banner: &Banner<'_>, context: &BannerContext<'_>) -> bool {
        let context = BannerContext { stage: BannerStage::Head, ..*context };
        let view = BannerView::new(banner, &context);
        let memo = PatternMemo::default();
        let candidates = self.candidates(&view, &memo).into_iter().filter_map(|index| self.rule(index));
        let mut accepts = candidates.take_while(|rule| rule.action == RuleAction::Accept);
        accepts.any(|rule| judge(rule, &self.patterns, &view, &memo, ScopeCheck::Yes).is_ok())
    }

    /// Returns every rule that matches `banner`, in order, for any addresses and port. No accept
    /// rule hides the rules after it. [`Rule::is_in_scope`] decides which of them take effect for
    /// one connection.
    pub fn evaluate_anywhere<'r>(
        &'r self,
        banner: &Banner<'_>,
        context: &BannerContext<'_>,
    ) -> Vec<RuleMatch<'r>> {
        let view = BannerView::new(banner, context);
        let memo = PatternMemo::default();
        let candidates = self.candidates(&view, &memo);
        let rules = candidates.into_iter().filter_map(|index| self.rule(index));
        let rules = rules.filter(|rule| rule.action != RuleAction::Allow);
        let judged = |rule: &'r Rule| {
            let found = judge(rule, &self.patterns, &view, &memo, ScopeCheck::No).ok()?;
            Some(RuleMatch::new(rule, found))
        };
        rules.filter_map(judged).collect()
    }

    /// Returns the positions of the rules that may match, in order.
    fn candidates<'v>(&'v self, view: &'v BannerView<'_>, memo: &PatternMemo<'v>) -> Vec<u32> {
        let mut candidates = Vec::new();
        self.index.candidates(view, &self.patterns, memo, &mut candidates);
        candidates
    }

    fn rule(&self, index: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(index).ok()?)
    }
}
