//! Reads one `[[policy]]` table.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::policy::{AllowRule, BUDGET, Policy, PolicyProtocol};
use super::super::scope::RuleScope;
use super::super::suggest;
use super::toml_value::{Entry, SpannedText, ValueReader};
use super::{DeclaredLists, RuleSetDraft, rule_values, scope};
use crate::event::RuleAction;

const KEYS: &[&str] = &[
    "id",
    "title",
    "port",
    "source",
    "destination",
    "allow",
    "allow_rules",
    "otherwise",
    "silent_after",
    "budget",
    "midstream",
];

const OTHERWISE: &[(&str, RuleAction)] =
    &[("drop", RuleAction::Drop), ("reject", RuleAction::Reject), ("alert", RuleAction::Alert)];

const MIDSTREAM: &[(&str, bool)] = &[("pass", false), ("judge", true)];

/// The largest budget, in bytes.
const BUDGET_LIMIT: u32 = 16 << 20;

/// The parts of a policy that were read so far.
#[derive(Default)]
struct PolicyParts {
    id: Option<SpannedText>,
    title: Option<SpannedText>,
    scope: RuleScope,
    allow: Vec<PolicyProtocol>,
    allow_rules: Vec<AllowRule>,
    otherwise: Option<RuleAction>,
    silent_after: Option<Duration>,
    budget: Option<u32>,
    midstream: Option<bool>,
    /// The scope in words.
    about: String,
    /// The ports as the file writes them, for a generated id.
    ports: Vec<String>,
}

/// Reads one policy; none if it has a fault.
pub(super) fn read(
    reader: &mut ValueReader<'_>,
    table: &Spanned<DeValue<'_>>,
    end: usize,
    file: &Arc<str>,
    lists: &mut DeclaredLists,
    draft: &mut RuleSetDraft,
) -> Option<Policy> {
    let errors = reader.report.errors();
    let entries = reader.table("policy", table)?;
    let whole = reader.is_whole(&(table.span().start..end));
    let mut parts = PolicyParts::default();
    for entry in &entries {
        parts.read_entry(reader, entry, lists);
    }
    let given: Vec<&str> = entries.iter().map(|(key, _, _)| *key).collect();
    if whole && !given.contains(&"allow") && !given.contains(&"allow_rules") {
        let help = "`allow = \"ssh\"`, `allow_rules = [\"ID\"]`, or `allow = []` for nothing at all";
        reader.error_with_help(&table.span(), "the policy does not say what it allows", help);
    }
    if parts.allow.len() > 1 && parts.allow.contains(&PolicyProtocol::Any) {
        reader.error(&table.span(), "`any` already allows the other entries");
    }
    let (place, _, _) = reader.source.locate(table.span().start);
    let id = parts.claim(reader, place.line, file, draft);
    if reader.report.errors() > errors || !whole {
        return None;
    }
    Some(Policy {
        id,
        title: parts.title.map(|title| title.value),
        scope: parts.scope,
        allow: parts.allow,
        allow_rules: parts.allow_rules,
        otherwise: parts.otherwise.unwrap_or(RuleAction::Drop),
        silent_after: parts.silent_after,
        budget: parts.budget.map_or(BUDGET, u64::from),
        midstream: parts.midstream.unwrap_or_default(),
        local: reader.source.is_local(),
        about: parts.about,
        file: file.clone(),
        place,
    })
}

impl PolicyParts {
    fn read_entry(
        &mut self,
        reader: &mut ValueReader<'_>,
        (key, span, value): &Entry<'_, '_>,
        lists: &mut DeclaredLists,
    ) {
        match *key {
            "id" => self.id = rule_values::identifier(reader, value),
            "title" => self.title = rule_values::line(reader, key, value),
            "port" => {
                self.scope.port = scope::ports(reader, value);
                self.ports = said(value);
                self.about.push_str(&format!(" to port {}", self.ports.join(", ")));
            }
            "source" => {
                self.scope.source = scope::addresses(reader, key, value, lists);
                self.about.push_str(&format!(" from {}", said(value).join(", ")));
            }
            "destination" => {
                self.scope.destination = scope::addresses(reader, key, value, lists);
                self.about.push_str(&format!(" at {}", said(value).join(", ")));
            }
            "allow" => self.allow = allow(reader, value),
            "allow_rules" => {
                let rules = rule_values::lines(reader, key, value);
                self.allow_rules = rules
                    .into_iter()
                    .map(|SpannedText { value, span }| AllowRule { id: value, index: 0, span })
                    .collect();
            }
            "otherwise" => self.otherwise = reader.name(key, value, OTHERWISE),
            "silent_after" => self.silent_after = rule_values::duration(reader, key, value),
            "budget" => self.budget = reader.number(key, value, 64..=BUDGET_LIMIT),
            "midstream" => self.midstream = reader.name(key, value, MIDSTREAM),
            _ => reader.unknown_key(span, key, "a policy", KEYS.iter().copied()),
        }
    }

    /// Returns the policy's id. A policy without one is named after its ports.
    fn claim(
        &self,
        reader: &mut ValueReader<'_>,
        line: usize,
        file: &Arc<str>,
        draft: &mut RuleSetDraft,
    ) -> String {
        if let Some(id) = &self.id {
            let (place, _, _) = reader.source.locate(id.span.start);
            if let Some(before) = draft.claim(&id.value, format!("{file}:{place}")) {
                let message = format!("the id `{}` was given before, at {before}", id.value);
                reader.error(&id.span, message);
            }
            return id.value.clone();
        }
        let plain = |port: &String| port.bytes().all(|octet| octet.is_ascii_digit() || octet == b'-');
        let named = !self.ports.is_empty() && self.ports.len() <= 4 && self.ports.iter().all(plain);
        let ports = if named { self.ports.join("-") } else { "any".to_owned() };
        let id = format!("policy-{ports}");
        if draft.claim(&id, format!("{file}:{line}")).is_none() {
            return id;
        }
        let numbered = (line..).map(|number| format!("{id}-{number}"));
        let free = numbered.into_iter().find(|id| draft.claim(id, format!("{file}:{line}")).is_none());
        free.unwrap_or(id)
    }
}

/// `"ssh"` or `["ssh", "tls"]`.
fn allow(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<PolicyProtocol> {
    let mut all = Vec::new();
    for text in reader.texts("allow", value) {
        match PolicyProtocol::named(&text.value) {
            Some(allowed) if all.contains(&allowed) => {}
            Some(allowed) => all.push(allowed),
            None => unknown(reader, &text.value, &text.span),
        }
    }
    all
}

fn unknown(reader: &mut ValueReader<'_>, name: &str, span: &Range<usize>) {
    let known = PolicyProtocol::names();
    let help = match suggest::nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known protocols: {}", known.join(", ")),
    };
    reader.error_with_help(span, format!("no protocol is named `{name}`"), help);
}

/// Returns the entries as the file writes them.
fn said(value: &Spanned<DeValue<'_>>) -> Vec<String> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::String(text) => Some(text.trim().to_owned()),
        _ => None,
    };
    match value.get_ref() {
        DeValue::Array(values) => values.iter().filter_map(|value| one(value.get_ref())).collect(),
        value => one(value).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_stands_in_the_documentation() {
        bannerwall_test_support::reference::assert_named("rules/policies.md", KEYS);
    }

    #[test]
    fn each_key_is_read() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules/read/policy.rs"))
            .unwrap();
        for key in KEYS {
            assert!(text.matches(&format!("\"{key}\"")).count() >= 2, "{key}");
        }
    }
}
