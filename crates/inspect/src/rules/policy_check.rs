//! Checks of policies against each other and against the rules.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::limits;
use super::policy::{Policy, PolicyProtocol};
use super::read::{at_policy, at_rule};
use super::rule::Rule;
use super::scope::AddressRule;
use super::source_file::SourceFile;
use super::suggest;
use crate::event::RuleAction;

/// Finds the rules that policies name. A missing or switched-off rule is an error; if the rules are
/// only a part of all (`partial`), it is a warning.
pub(super) fn resolve(
    policies: &mut [Policy],
    rules: &[Rule],
    off: &[Rule],
    sources: &[SourceFile],
    partial: bool,
    report: &mut DiagnosticCollector,
) {
    let level = if partial { DiagnosticLevel::Warning } else { DiagnosticLevel::Error };
    for policy in policies {
        let Some(source) = sources.iter().find(|source| source.name() == &*policy.file) else { continue };
        for named in &mut policy.allow_rules {
            if let Some(rule) = rules.iter().find(|rule| rule.id == named.id) {
                named.index = rule.index;
                continue;
            }
            named.index = usize::MAX;
            let (message, help) = match off.iter().find(|rule| rule.id == named.id) {
                Some(rule) => {
                    let why = rule.off().unwrap_or_default();
                    (format!("the rule `{}` is not in force: {why}", named.id), None)
                }
                None => {
                    let known = rules.iter().map(|rule| rule.id.as_str());
                    let nearest = suggest::nearest(&named.id, known);
                    let help = nearest.map(|nearest| format!("did you mean `{nearest}`?"));
                    (format!("no rule is named `{}`", named.id), help)
                }
            };
            let mut diagnostic = RuleDiagnostic::at(level, source, &named.span, message);
            diagnostic.rule = Some(policy.id.clone());
            report.push(match help {
                Some(help) => diagnostic.with_help(help),
                None => diagnostic,
            });
        }
    }
}

/// Reports policies that never decide, policies that conflict, and rules that contradict them.
pub(super) fn lint(
    policies: &[Arc<Policy>],
    rules: &[Rule],
    sources: &[SourceFile],
    report: &mut DiagnosticCollector,
) {
    let source_of = |file: &str| sources.iter().find(|source| source.name() == file);
    let ports: Vec<Vec<RangeInclusive<u16>>> = policies.iter().map(|one| one.scope.port.ranges()).collect();
    let mut pairs = limits::POLICY_PAIRS;
    for (at, (policy, own)) in policies.iter().zip(&ports).enumerate() {
        let Some(source) = source_of(policy.file()) else { continue };
        let mut warn = |message: String, help: &str| {
            report.push(at_policy(policy, source, DiagnosticLevel::Warning, message).with_help(help));
        };
        if let Some(what) = never(policy) {
            warn(format!("the policy never decides anything: its `{what}` admits none"), "fix its list");
            continue;
        }
        let before = policies.iter().zip(&ports).take(at.min(pairs));
        pairs -= at.min(pairs);
        let mut shadow = None;
        let mut conflict = None;
        for (earlier, theirs) in before {
            if shadow.is_none() && covers(earlier, theirs, policy, own) {
                shadow = Some(earlier);
            } else if conflict.is_none()
                && differs(earlier, policy)
                && meets((earlier, theirs), (policy, own))
            {
                conflict = Some(earlier);
            }
        }
        if let Some(earlier) = shadow {
            let message = format!("the policy {earlier} decides every connection that this one is about");
            warn(message, "put the narrower one first, or take one of them out");
        } else if let Some(earlier) = conflict {
            let message = format!(
                "the policy {earlier} comes first and decides some connections in this one's scope: it allows {}",
                earlier.allows()
            );
            warn(message, "say in `source`, `destination` or `port` which of them are whose");
        }
        against_rules(policy, rules, &mut warn);
    }
    unheard(policies, rules, &source_of, report);
}

/// Returns the part of the scope that admits nothing.
fn never(policy: &Policy) -> Option<&'static str> {
    let scope = &policy.scope;
    let empty = [
        ("source", scope.source.is_never()),
        ("destination", scope.destination.is_never()),
        ("port", scope.port.is_never()),
    ];
    empty.into_iter().find(|(_, never)| *never).map(|(what, _)| what)
}

/// True if the scope of `earlier` contains that of `later`.
fn covers(
    earlier: &Policy,
    theirs: &[RangeInclusive<u16>],
    later: &Policy,
    own: &[RangeInclusive<u16>],
) -> bool {
    let inside = |range: &RangeInclusive<u16>| {
        theirs.iter().any(|wide| wide.start() <= range.start() && range.end() <= wide.end())
    };
    own.iter().all(inside)
        && earlier.scope.source.covers(&later.scope.source)
        && earlier.scope.destination.covers(&later.scope.destination)
}

/// True if some connection is in both scopes, and `later` is not the wider one.
fn meets(
    (earlier, theirs): (&Policy, &[RangeInclusive<u16>]),
    (later, own): (&Policy, &[RangeInclusive<u16>]),
) -> bool {
    let touch = |one: &RangeInclusive<u16>| {
        theirs.iter().any(|other| one.start() <= other.end() && other.start() <= one.end())
    };
    let both = |field: fn(&Policy) -> &AddressRule| field(earlier).meets(field(later));
    own.iter().any(touch)
        && both(|policy| &policy.scope.source)
        && both(|policy| &policy.scope.destination)
        && !covers(later, own, earlier, theirs)
}

/// True if the two policies decide differently.
fn differs(one: &Policy, other: &Policy) -> bool {
    let ids = |policy: &Policy| policy.allow_rules().map(|(_, id)| id.to_owned()).collect::<Vec<_>>();
    one.allow != other.allow || one.otherwise != other.otherwise || ids(one) != ids(other)
}

/// Warns about rules that a policy names without effect.
fn against_rules(policy: &Policy, rules: &[Rule], warn: &mut impl FnMut(String, &str)) {
    for (index, id) in policy.allow_rules() {
        let Some(rule) = rules.get(index) else { continue };
        if rule.action.blocks() {
            let message = format!(
                "the rule `{id}` stops with `{}` what the policy lets pass by it",
                rule.action.name()
            );
            warn(message, "name a rule with `action = \"allow\"`");
        }
        if let Some(allowed) = policy.allow.iter().find(|allowed| allowed.includes(rule.protocol)) {
            let message = format!("`allow` lets all {} pass already, whatever `{id}` says", allowed.name());
            warn(message, "take the protocol out of `allow`");
        }
    }
}

/// Warns about allow rules that no policy names, and about accept rules for protocols that no
/// policy allows.
fn unheard<'s>(
    policies: &[Arc<Policy>],
    rules: &[Rule],
    source_of: &impl Fn(&str) -> Option<&'s SourceFile>,
    report: &mut DiagnosticCollector,
) {
    for rule in rules {
        let Some(source) = source_of(rule.file()) else { continue };
        let named =
            || policies.iter().any(|policy| policy.allow_rules().any(|(index, _)| index == rule.index));
        let mut warn = |message: String, help: &str| {
            report.push(at_rule(rule, source, DiagnosticLevel::Warning, message).with_help(help));
        };
        match rule.action {
            RuleAction::Allow if !named() => {
                warn("no policy names this rule".to_owned(), "name it in `allow_rules` of a `[[policy]]`");
            }
            RuleAction::Accept if !rule.scope.port.within.is_empty() => {
                let own = rule.scope.port.ranges();
                let refuses = |policy: &&Arc<Policy>| {
                    let theirs = policy.scope.port.ranges();
                    let inside = own.iter().all(|range| {
                        theirs.iter().any(|wide| wide.start() <= range.start() && range.end() <= wide.end())
                    });
                    inside
                        && policy.scope.source.is_any()
                        && policy.scope.destination.is_any()
                        && !policy.allow.iter().any(|allowed| passes(*allowed, rule))
                        && !policy.allow_rules().any(|(index, _)| index == rule.index)
                };
                if let Some(policy) = policies.iter().take(64).find(refuses) {
                    let message = format!(
                        "the policy {policy} lets no {} pass to this port, which no accept rule changes",
                        rule.protocol.name()
                    );
                    warn(message, "name the rule in `allow_rules` of that policy");
                }
            }
            _ => {}
        }
    }
}

fn passes(allowed: PolicyProtocol, rule: &Rule) -> bool {
    allowed.includes(rule.protocol) || (matches!(allowed, PolicyProtocol::Other(_)) && rule.shape().is_none())
}
