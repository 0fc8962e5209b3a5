//! Loads the rules of a selection: reads their files, applies overrides and profiles, checks the
//! result, and indexes it.

use super::candidate_index::CandidateIndex;
use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, LoadError, RuleDiagnostic};
use super::early_head::EarlySides;
use super::lint::{LintDepth, lint};
use super::policy::{LEARNING_POLICY, Policy};
use super::policy_set::PolicySet;
use super::read::RuleSetDraft;
use super::rule::Rule;
use super::rule_needs::RuleNeeds;
use super::rule_set::RuleSet;
use super::selection::RuleSelection;
use super::source_file::SourceFile;
use super::{find_rule_files, policy, policy_check, read, rule_override};
use crate::event::RuleAction;

/// A rule set and the warnings about its files.
#[derive(Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: RuleSet,
    /// Warnings, in the order of files and lines.
    pub warnings: Vec<RuleDiagnostic>,
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
}
