//! Rules: reads TOML files into validated, compiled rules and judges banners by them.
//!
//! This module owns the rule format, its diagnostics, the order of versions, and the matcher. It
//! reads no socket, no packet and no clock. It decides only which rules match; the caller decides
//! what a match leads to.
//!
//! # Order of evaluation
//!
//! 1. Rules with `action = "accept"` come first, then all others. Within both groups the order is
//!    that of the `--rules` arguments, of the file names in a directory (bytewise), and of the
//!    lines of a file.
//! 2. The first accept rule that matches ends the evaluation. Nothing else is reported for that
//!    banner.
//! 3. Otherwise every rule that matches is reported, in order; a drop does not hide an alert.
//!
//! # Policies
//!
//! A policy decides which protocols a port may speak. The engine asks it before the rules. The
//! first policy whose scope contains the connection applies; policies of local files come before
//! all others. If the policy allows the protocol, the rules still judge the banner. If it does not,
//! no accept rule overrides it. Rules with `action = "allow"` have no effect of their own; policies
//! name them.
//!
//! # Where a version comes from
//!
//! The version comes from the first group named `version` that took part in a match, in the order
//! of the fields of `match`. If there is none and the rule asks about `product`, `vendor`,
//! `product_version`, `cpe` or `os`, it comes from the fingerprint.

pub mod advisory;
mod alert;
mod banner_view;
mod candidate_index;
mod debian;
mod diagnostic;
mod early_head;
mod evaluate_rule;
mod example;
mod explain;
mod field;
pub mod find_rule_files;
pub mod fingerprint;
pub mod kex_marker;
pub mod limits;
mod lint;
mod list_file;
mod match_threshold;
mod pattern;
mod pattern_literals;
mod policy;
mod policy_check;
mod predict_block;
mod probe_request;
mod read;
mod rule;
mod rule_file_drift;
mod rule_override;
mod scope;
mod selection;
mod source_file;
mod suggest;
#[cfg(test)]
mod tests;
pub mod toml_nesting;
mod version;
mod version_ranges;

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::advisory::AdvisoryFinding;
use self::banner_view::BannerView;
use self::candidate_index::CandidateIndex;
use self::diagnostic::DiagnosticCollector;
pub use self::early_head::EarlyHeadParts;
use self::early_head::EarlySides;
use self::evaluate_rule::{MatchDetails, PatternMemo, ScopeCheck, judge};
use self::field::BannerField;
use self::lint::{LintDepth, lint};
use self::pattern::RulePattern;
use self::policy::PolicySet;
use self::read::RuleSetDraft;
use self::rule_file_drift::ReadFile;
use self::source_file::SourceFile;
use crate::banner::Banner;
use crate::event::{AdvisoryVerdict, OverrideFacts, RuleAction, Severity, Timestamp};

pub use self::alert::AlertContext;
pub use self::banner_view::{BannerContext, BannerStage};
pub use self::diagnostic::{DiagnosticLevel, LoadError, RuleDiagnostic};
pub use self::example::RuleExample;
pub use self::explain::{AssumedConnection, ExampleResult, RuleExplanation};
pub use self::field::BannerSender;
pub use self::find_rule_files::TextSource;
pub use self::match_threshold::MatchHistory;
pub use self::policy::{LEARNING_POLICY, Policy, PolicyProtocol, PolicyRuleResult};
pub use self::probe_request::ProbeRequest;
pub use self::rule::{PacketMark, Rule};
pub use self::rule_file_drift::RuleFileDrift;
pub use self::scope::parse_network;
pub use self::selection::{ProfileFilter, RuleSelection};
pub use self::version::VersionRequirement;

/// Validated and compiled rules. Threads share a set by `Arc`; it never changes.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// Rules that a profile or an override switches off.
    off: Vec<Rule>,
    patterns: Vec<RulePattern>,
    index: CandidateIndex,
    needs: RuleNeeds,
    early: EarlySides,
    policies: PolicySet,
    /// All overrides of the local files.
    overrides: Vec<Arc<OverrideFacts>>,
    files: Vec<ReadFile>,
}

/// A rule set and the warnings about its files.
#[derive(Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: RuleSet,
    /// Warnings, in the order of files and lines.
    pub warnings: Vec<RuleDiagnostic>,
}

/// Data that the rules of a set need to be judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleNeeds {
    /// The KEXINIT after an SSH identification.
    pub kex: bool,
    /// Number of bytes of an HTTP body, 0 for none.
    pub body: usize,
    /// A fingerprint database.
    pub fingerprints: bool,
    /// A way to ban clients.
    pub bans: bool,
    /// First bytes of connections whose protocol is not read.
    pub other: bool,
    /// Every request of a keep-alive connection, because a rule may block a later one.
    pub every_request: bool,
    /// Every response of a keep-alive connection, and the content of a tunnel after a later
    /// request: a rule may block for something other than a request.
    pub beside_requests: bool,
    /// Exemptions of overrides, because the engine reports what they let pass.
    pub exemptions: bool,
    /// Requests that a scan must make, each once.
    pub requests: Vec<ProbeRequest>,
}

/// Number of bytes of a body that the rules see, unless the user configures another.
pub const BODY_OCTETS: usize = 4 << 10;

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
    matched: Option<(&'r BannerField, Vec<u8>)>,
    /// The finding of the rule's advisory.
    finding: Option<AdvisoryFinding<'r>>,
    /// The override that exempts the connection from the rule.
    exemption: Option<&'r Arc<OverrideFacts>>,
}

impl RuleSet {
    /// Loads the rules of a selection.
    ///
    /// # Errors
    ///
    /// Returns all errors of all files.
    pub fn load(selection: &RuleSelection) -> Result<LoadedRules, LoadError> {
        Self::read(selection, LintDepth::Quick)
    }

    /// Loads like [`Self::load`], and also warns about rules without examples and about rules that
    /// an accept rule shadows.
    ///
    /// # Errors
    ///
    /// Returns all errors of all files.
    pub fn check(selection: &RuleSelection) -> Result<LoadedRules, LoadError> {
        Self::read(selection, LintDepth::Thorough)
    }

    fn read(selection: &RuleSelection, depth: LintDepth) -> Result<LoadedRules, LoadError> {
        let mut report = DiagnosticCollector::default();
        let empty = if selection.complete { DiagnosticLevel::Error } else { DiagnosticLevel::Warning };
        let mut sources = find_rule_files::read(&selection.rules, &selection.texts, empty, &mut report);
        sources.extend(find_rule_files::read_local(&selection.local, &selection.texts, &mut report));
        Self::build(&sources, selection, report, depth)
    }

    /// Reads rules from the text of one file. Diagnostics show `name`; lists are read from its
    /// directory.
    ///
    /// # Errors
    ///
    /// Returns all errors of the text.
    pub fn parse(name: &str, text: &str) -> Result<LoadedRules, LoadError> {
        let selection = RuleSelection::default();
        Self::build(
            &[SourceFile::new(name, text)],
            &selection,
            DiagnosticCollector::default(),
            LintDepth::Quick,
        )
    }

    /// Returns a set without rules.
    pub fn empty() -> Self {
        Self::default()
    }

    fn build(
        sources: &[SourceFile],
        selection: &RuleSelection,
        mut report: DiagnosticCollector,
        depth: LintDepth,
    ) -> Result<LoadedRules, LoadError> {
        let mut draft = RuleSetDraft::default();
        for source in sources {
            read::file(source, &mut draft, &mut report);
        }
        if selection.learns {
            read::file(&policy::learning(), &mut draft, &mut report);
        }
        let RuleSetDraft { mut rules, patterns, overrides, mut policies, lists, .. } = draft;
        let files = sources.iter().map(SourceFile::read_file).chain(lists).collect();
        selection.switch_off(&mut rules, &mut report);
        rule_override::apply(&overrides, &mut rules, sources, selection, &mut report);
        let overrides = overrides.into_iter().map(|one| one.facts).collect();
        let (mut rules, off): (Vec<Rule>, Vec<Rule>) = rules.into_iter().partition(|rule| rule.off.is_none());
        let is_own = |policy: &Policy| policy.id == LEARNING_POLICY;
        selection.refuse_nothing(rules.is_empty() && policies.iter().all(is_own), &mut report);
        // `sort_by_key` is stable: within both groups the order of files and lines stays.
        rules.sort_by_key(|rule| rule.action != RuleAction::Accept);
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.index = index;
        }
        let (patterns, shapes) = patterns.into_parts();
        policy_check::resolve(&mut policies, &rules, &off, sources, selection.partial, &mut report);
        lint(&rules, &off, &policies, &patterns, sources, depth, &mut report);
        let policies = PolicySet::new(policies);
        if depth == LintDepth::Thorough {
            policy_check::lint(policies.all(), &rules, sources, &mut report);
        }
        let warnings = report.finish()?;
        let needs = RuleNeeds::of(&rules);
        let index = CandidateIndex::new(&rules, &patterns, &shapes);
        let early = EarlySides::new(&rules);
        let rules = Self { rules, off, patterns, index, needs, early, policies, overrides, files };
        Ok(LoadedRules { rules, warnings })
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

    /// Returns the rules that match `banner`, in order. If an accept rule matches, it returns only
    /// that rule.
    ///
    /// The result includes rules with a `count`: ask [`MatchHistory::admit`] whether they take
    /// effect.
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

impl<'r> RuleMatch<'r> {
    fn new(rule: &'r Rule, found: MatchDetails<'r, '_>) -> Self {
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
    /// vulnerable, or if an override exempts the connection.
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

impl RuleNeeds {
    fn of(rules: &[Rule]) -> Self {
        let mut requests: Vec<ProbeRequest> = rules.iter().filter_map(|rule| rule.request.clone()).collect();
        requests.sort();
        requests.dedup();
        Self {
            kex: rules.iter().any(Rule::needs_kex),
            body: if rules.iter().any(Rule::needs_body) { BODY_OCTETS } else { 0 },
            fingerprints: rules.iter().any(Rule::needs_fingerprints),
            every_request: rules.iter().any(Rule::blocks_requests),
            beside_requests: rules.iter().any(Rule::blocks_beside_requests),
            bans: rules.iter().any(|rule| rule.action == RuleAction::Ban),
            other: rules.iter().any(|rule| rule.protocol == crate::event::Protocol::Other),
            exemptions: rules.iter().any(|rule| rule.action.blocks() && rule.scope.exempts_some()),
            requests,
        }
    }
}
