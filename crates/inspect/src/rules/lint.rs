//! Warnings about rules that are well-formed but cannot work as their author intended.

use std::collections::{HashMap, HashSet};

use super::banner_view::BannerView;
use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::evaluate_rule::{PatternMemo, ScopeCheck, judge, names_package};
use super::field::BannerField;
use super::kex_marker::KexMarker;
use super::limits;
use super::pattern::{PatternId, RulePattern};
use super::policy::Policy;
use super::read::at_rule;
use super::rule::{FieldTest, Rule, RuleCondition};
use super::source_file::SourceFile;
use crate::event::RuleAction;

/// Extent of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LintDepth {
    /// Cheap checks: every start of the program runs them.
    Quick,
    /// All checks: `rules check` runs them.
    Thorough,
}

/// Reports suspicious rules. `rules` are in the order of judgement.
pub(super) fn lint(
    rules: &[Rule],
    off: &[Rule],
    policies: &[Policy],
    patterns: &[RulePattern],
    sources: &[SourceFile],
    depth: LintDepth,
    report: &mut DiagnosticCollector,
) {
    if depth == LintDepth::Thorough && report.errors() == 0 {
        let rules = rules.iter().chain(off).map(Rule::file);
        let files: HashSet<&str> = rules.chain(policies.iter().map(Policy::file)).collect();
        let empty = |source: &&SourceFile| {
            !files.contains(source.name()) && !source.is_local() && !source.holds_no_rules()
        };
        for source in sources.iter().filter(empty) {
            let message = "the file holds no rule";
            report.push(RuleDiagnostic::of_file(DiagnosticLevel::Warning, source.name(), message));
        }
    }
    let sources: HashMap<&str, &SourceFile> = sources.iter().map(|source| (source.name(), source)).collect();
    let mut statuses = HashMap::new();
    let mut pairs = limits::SHADOW_PAIRS;
    for rule in rules {
        let Some(source) = sources.get(rule.file()) else { continue };
        if let Some(reason) = never(rule, patterns, &mut statuses) {
            let diagnostic =
                at_rule(rule, source, DiagnosticLevel::Warning, format!("the rule never matches: {reason}"));
            report.push(diagnostic);
        }
        if depth == LintDepth::Quick {
            continue;
        }
        if rule.examples.is_empty() && rule.advisory.is_none() {
            let diagnostic =
                at_rule(rule, source, DiagnosticLevel::Warning, "the rule has no example".to_owned())
                    .with_help("add a banner that it matches: `examples = [\"…\"]`; `rules test` tries it");
            report.push(diagnostic);
        }
        if is_uncertain(rule, patterns) {
            let message = "the rule blocks packages that a distribution has fixed without a new version";
            let help = "exclude these with a condition (`fixed_in` with `match.comments`, `unless.kex`), use `action = \"alert\"`, or state why there are none: `certain = \"…\"`";
            let diagnostic = at_rule(rule, source, DiagnosticLevel::Warning, message.to_owned());
            report.push(diagnostic.with_help(help));
        }
        if let Some(accept) = shadow(rule, rules, patterns, &mut pairs) {
            let message = format!(
                "the accept rule `{}` ({}:{}) takes every banner that this rule is about",
                accept.id(),
                accept.file(),
                accept.place()
            );
            report.push(at_rule(rule, source, DiagnosticLevel::Warning, message));
        }
    }
}

/// Returns true if the rule blocks connections for a weakness that it derives from an upstream
/// version alone. A distribution's patched package keeps that version, so something else must
/// identify patched packages: the package itself (`fixed_in`, if the rule requires a banner that
/// names one) or the key exchange.
fn is_uncertain(rule: &Rule, patterns: &[RulePattern]) -> bool {
    let weakness = rule.references.iter().any(|reference| reference.starts_with("CVE-"));
    let told = rule.certain.is_some() || rule.advisory.is_some();
    if !rule.action.blocks() || rule.version.is_none() || !weakness || told {
        return false;
    }
    // The rule's examples show whether it also matches banners that name no package.
    let by_package = !rule.fixed_in.is_empty()
        && !rule.examples.is_empty()
        && rule.examples.iter().all(|example| {
            let named = example.with(rule.from, rule.request.as_ref(), |banner, context, hassh| {
                let view = BannerView::new(banner, context).with_hassh(hassh);
                names_package(rule, patterns, &view)
            });
            named == Ok(true)
        });
    let tells =
        |condition: &RuleCondition| condition.field.needs_kex() || condition.field == BannerField::Comments;
    !by_package && !rule.unless.iter().any(tells)
}

/// Returns the reason why no banner can match, if that is certain.
fn never(rule: &Rule, patterns: &[RulePattern], statuses: &mut HashMap<PatternId, bool>) -> Option<String> {
    for (name, address) in [("source", &rule.scope.source), ("destination", &rule.scope.destination)] {
        if address.is_never() {
            return Some(format!("its `{name}` admits no address"));
        }
    }
    if rule.scope.port.is_never() {
        return Some("its `port` admits no port".to_owned());
    }
    if let Some(name) = rule.absent.iter().find(|name| rule.present.contains(name)) {
        return Some(format!("the header field {name} must be both absent and present"));
    }
    let asked = |name: &String| rule.all.iter().any(|one| one.field == BannerField::Header(name.clone()));
    if let Some(name) = rule.absent.iter().find(|name| asked(name)) {
        return Some(format!("the header field {name} must be absent and match a pattern"));
    }
    if let Some(condition) = rule.all.iter().find(|condition| rule.unless.contains(condition)) {
        return Some(format!("`match.{0}` and `unless.{0}` are the same", condition.field));
    }
    if let Some(condition) = rule.all.iter().find(|condition| !possible(condition, patterns, statuses)) {
        return Some(format!("nothing can match its pattern for `{}`", condition.field));
    }
    let body = rule.all.iter().any(|condition| condition.field.needs_body());
    if body && rule.request.as_ref().is_some_and(|request| request.method == "HEAD") {
        return Some("the answer to HEAD has no body".to_owned());
    }
    None
}

/// Returns true if some value of the field may satisfy the condition. It finds only easy cases of
/// impossible ones.
fn possible(
    condition: &RuleCondition,
    patterns: &[RulePattern],
    statuses: &mut HashMap<PatternId, bool>,
) -> bool {
    let ids = match &condition.test {
        FieldTest::Values(list) if condition.field == BannerField::Marker => {
            return KexMarker::names().any(|name| list.entries.contains(name.as_bytes()));
        }
        FieldTest::Values(list) => return !list.entries.is_empty(),
        FieldTest::Patterns(ids) => ids,
    };
    ids.iter().any(|id| {
        let Some(pattern) = patterns.get(id.index()) else { return true };
        if pattern.is_impossible() {
            return false;
        }
        if condition.field == BannerField::Marker {
            return KexMarker::names().any(|name| pattern.is_match(name.as_bytes()));
        }
        // HTTP statuses are the numbers 100 to 999: so few that each can be tried.
        let status = || (100..=999_u16).any(|status| pattern.is_match(status.to_string().as_bytes()));
        condition.field != BannerField::Status || *statuses.entry(*id).or_insert_with(status)
    })
}

/// Returns the first accept rule before `rule` that accepts every banner that `rule` could match:
/// one that requires no more than `rule`, or that matches each of its examples. It compares at most
/// `pairs` pairs.
fn shadow<'r>(
    rule: &Rule,
    rules: &'r [Rule],
    patterns: &[RulePattern],
    pairs: &mut usize,
) -> Option<&'r Rule> {
    let before = rules.get(..rule.index.min(*pairs)).unwrap_or_default();
    before
        .iter()
        .take_while(|accept| accept.action == RuleAction::Accept)
        .inspect(|_| *pairs -= 1)
        .find(|accept| covers(accept, rule) || takes_examples(accept, rule, patterns))
}

/// Returns true if `accept` matches every banner that `rule` matches, judged by their texts alone.
fn covers(accept: &Rule, rule: &Rule) -> bool {
    use super::field::BannerSender;
    let subset = |less: &[RuleCondition], more: &[RuleCondition]| less.iter().all(|one| more.contains(one));
    accept.protocol == rule.protocol
        && (accept.from == BannerSender::Either || accept.from == rule.from)
        && subset(&accept.all, &rule.all)
        && subset(&accept.unless, &rule.unless)
        && accept.absent.iter().all(|name| rule.absent.contains(name))
        && accept.present.iter().all(|name| rule.present.contains(name))
        && (accept.version.is_none() || accept.version == rule.version)
        && (accept.fixed_in.is_empty() || accept.fixed_in == rule.fixed_in)
        && accept.advisory.is_none()
        && (accept.request.is_none() || accept.request == rule.request)
        && (accept.scope.is_any() || accept.scope == rule.scope)
        && accept.count.is_none()
        && accept.later <= rule.later
}

fn takes_examples(accept: &Rule, rule: &Rule, patterns: &[RulePattern]) -> bool {
    if rule.examples.is_empty() || !accept.scope.is_any() || accept.count.is_some() {
        return false;
    }
    rule.examples.iter().all(|example| {
        let taken = example.with(rule.from, rule.request.as_ref(), |banner, context, hassh| {
            let view = BannerView::new(banner, context).with_hassh(hassh);
            judge(accept, patterns, &view, &PatternMemo::default(), ScopeCheck::No).is_ok()
        });
        taken == Ok(true)
    })
}
