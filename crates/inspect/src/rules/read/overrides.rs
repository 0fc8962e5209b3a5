//! Reads one `[[override]]` table of a local file.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::rule::PacketMark;
use super::super::rule_override::{ExemptAddresses, RuleOverride, SpannedName};
use super::super::scope::AddressSet;
use super::rule::{ACTIONS, SEVERITIES};
use super::toml_value::{SpannedText, ValueReader};
use super::{DeclaredLists, rule_values, scope};
use crate::event::{OverrideFacts, RuleAction, Severity, Timestamp};

const KEYS: &[&str] = &[
    "rule", "tag", "enabled", "action", "mark", "ban", "severity", "exempt", "until", "owner", "reason",
    "optional",
];
const EXEMPT_KEYS: &[&str] = &["source", "destination"];

#[derive(Default)]
struct OverrideParts {
    rules: Vec<SpannedName>,
    tags: Vec<SpannedName>,
    enabled: Option<bool>,
    action: Option<(RuleAction, Range<usize>)>,
    mark: Option<PacketMark>,
    ban: Option<Duration>,
    severity: Option<Severity>,
    exempt: ExemptAddresses,
    until: Option<Timestamp>,
    owner: Option<String>,
    reason: Option<String>,
    optional: bool,
}

/// Reads one override; none if it has a fault.
pub(super) fn read(
    reader: &mut ValueReader<'_>,
    table: &Spanned<DeValue<'_>>,
    file: &Arc<str>,
    lists: &mut DeclaredLists,
) -> Option<RuleOverride> {
    let errors = reader.report.errors();
    let entries = reader.table("override", table)?;
    let mut parts = OverrideParts::default();
    for (key, span, value) in &entries {
        match *key {
            "rule" => parts.rules = names(reader, key, value),
            "tag" => parts.tags = names(reader, key, value),
            "enabled" => parts.enabled = truth(reader, key, value),
            "action" => parts.action = reader.name(key, value, ACTIONS).map(|action| (action, value.span())),
            "mark" => parts.mark = rule_values::mark(reader, value),
            "ban" => parts.ban = rule_values::duration(reader, key, value),
            "severity" => parts.severity = reader.name(key, value, SEVERITIES),
            "exempt" => parts.exempt = exempt(reader, value, lists),
            "until" => parts.until = until(reader, key, value),
            "owner" => parts.owner = rule_values::line(reader, key, value).map(|text| text.value),
            "reason" => parts.reason = rule_values::line(reader, key, value).map(|text| text.value),
            "optional" => parts.optional = truth(reader, key, value).unwrap_or_default(),
            _ => reader.unknown_key(span, key, "an override", KEYS.iter().copied()),
        }
    }
    let given: Vec<&str> = entries.iter().map(|(key, _, _)| *key).collect();
    check(reader, &table.span(), &given, &parts);
    if reader.report.errors() > errors || !reader.is_whole(&table.span()) {
        return None;
    }
    let (place, _, _) = reader.source.locate(table.span().start);
    let OverrideParts {
        rules,
        tags,
        enabled,
        action,
        mark,
        ban,
        severity,
        exempt,
        until,
        owner,
        reason,
        optional,
    } = parts;
    let facts = OverrideFacts { file: file.to_string(), line: place.line, owner, reason, until };
    let facts = Arc::new(facts);
    Some(RuleOverride { rules, tags, enabled, action, mark, ban, severity, exempt, optional, facts })
}

fn check(reader: &mut ValueReader<'_>, header: &Range<usize>, given: &[&str], parts: &OverrideParts) {
    if !given.contains(&"rule") && !given.contains(&"tag") {
        let help = "`rule = \"ID\"` (or a list, or `apache-*`), `tag = \"hardening\"`";
        reader.error_with_help(header, "the override does not say what it is about", help);
    }
    if !["enabled", "action", "severity", "exempt"].iter().any(|key| given.contains(key)) {
        let help =
            "`enabled = false`, `action = \"alert\"`, `severity = \"low\"` or `exempt = [\"192.0.2.0/24\"]`";
        reader.error_with_help(header, "the override changes nothing", help);
    }
    let marks = parts.action.as_ref().is_some_and(|(action, _)| *action == RuleAction::Mark);
    if given.contains(&"mark") && !marks {
        reader.error(header, "`mark` belongs to `action = \"mark\"`");
    }
    let bans = parts.action.as_ref().is_some_and(|(action, _)| *action == RuleAction::Ban);
    if given.contains(&"ban") && !bans {
        reader.error(header, "`ban` belongs to `action = \"ban\"`");
    }
}

fn names(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<SpannedName> {
    let texts = rule_values::lines(reader, key, value);
    if texts.is_empty() {
        reader.error(&value.span(), format!("`{key}` names nothing"));
    }
    texts.into_iter().map(|SpannedText { value, span }| SpannedName { text: value, span }).collect()
}

/// Reads `2026-12-31`, the last day (UTC) of the override, or `2026-12-31T12:00:00Z`.
fn until(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Timestamp> {
    let DeValue::Datetime(time) = value.get_ref() else {
        reader.wrong_kind(key, "a date without quotes, such as 2026-12-31 or 2026-12-31T12:00:00Z", value);
        return None;
    };
    let text = time.to_string();
    let end_of = |day: jiff::civil::Date| day.tomorrow()?.to_zoned(jiff::tz::TimeZone::UTC);
    let end = match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(time),
        Err(_) if time.time.is_some() => None,
        // A date without a time includes that day, so the override ends at the next midnight.
        Err(_) => text.parse().and_then(end_of).ok().map(|end| end.timestamp()),
    };
    let nanos = end.and_then(|end| u64::try_from(end.as_nanosecond()).ok());
    if nanos.is_none() {
        let help = "a date (2026-12-31), or a time with its offset (2026-12-31T12:00:00Z)";
        reader.error_with_help(&value.span(), format!("`{key}` is no point in time"), help);
    }
    nanos.map(Timestamp::from_nanos)
}

fn truth(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<bool> {
    match value.get_ref() {
        DeValue::Boolean(truth) => Some(*truth),
        _ => {
            reader.wrong_kind(key, "true or false", value);
            None
        }
    }
}

/// Reads `exempt = ["192.0.2.0/24"]`, for either end of a connection, or each end by itself:
/// `exempt.source`, `exempt.destination`.
fn exempt(
    reader: &mut ValueReader<'_>,
    value: &Spanned<DeValue<'_>>,
    lists: &mut DeclaredLists,
) -> ExemptAddresses {
    let mut exempt = ExemptAddresses::default();
    let DeValue::Table(_) = value.get_ref() else {
        let either = networks(reader, "exempt", value, lists, &mut exempt.said);
        return ExemptAddresses { source: either.clone(), destination: either, ..exempt };
    };
    for (key, span, value) in reader.table("exempt", value).unwrap_or_default() {
        let mut said = Vec::new();
        match key {
            "source" => exempt.source = networks(reader, key, value, lists, &mut said),
            "destination" => exempt.destination = networks(reader, key, value, lists, &mut said),
            _ => reader.unknown_key(&span, key, "`exempt`", EXEMPT_KEYS.iter().copied()),
        }
        exempt.said.extend(said.into_iter().map(|one| format!("{key} {one}")));
    }
    exempt
}

fn networks(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    lists: &mut DeclaredLists,
    said: &mut Vec<String>,
) -> AddressSet {
    said.extend(reader.texts(key, value).into_iter().map(|text| text.value));
    let rule = scope::addresses(reader, key, value, lists);
    if !rule.without.is_empty() {
        reader.error(&value.span(), "an exemption names addresses; `!` has no meaning here");
    }
    rule.within.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_stands_in_the_documentation() {
        bannerwall_test_support::reference::assert_named("rules/overrides.md", KEYS);
    }
}
