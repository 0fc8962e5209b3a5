//! Tests rules against the recorded services and clients, without putting them in force.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::inventory::{InventoryDatabase, RuleImpact, ServiceFilter, StoreError, impact};
use crate::rules::{Rule, RuleSet, toml_nesting};

/// Limit of listed results; the rest is only counted.
const SHOWN: usize = 500;

/// Result of a test.
pub(super) enum RuleTestOutcome {
    /// The rules are invalid, for this reason.
    Refused(String),
    /// The rules would block this.
    Judged(RuleTestResult),
}

/// Services and clients that rules would block.
#[derive(Debug, Default, Serialize)]
pub(super) struct RuleTestResult {
    /// Rules and policies that would block something.
    pub(super) sums: Vec<RuleTestSum>,
    /// Affected services and clients, up to a limit.
    pub(super) impacts: Vec<RuleImpact>,
    /// Number of further ones.
    pub(super) more: usize,
    /// Rules that need more than names.
    pub(super) unforeseen: Vec<String>,
}

/// Result of one rule or policy.
#[derive(Debug, Serialize)]
pub(super) struct RuleTestSum {
    /// `rule` or `policy`.
    pub(super) kind: &'static str,
    /// Id of the rule or policy.
    pub(super) rule: String,
    /// Number of services and clients.
    pub(super) assets: usize,
    /// Number of recorded connections.
    pub(super) connections: i64,
}

/// Tests the rules in a text against the inventory.
///
/// # Errors
///
/// Error of the database.
pub(super) fn run(
    inventory: &InventoryDatabase,
    text: &str,
    filter: &ServiceFilter,
) -> Result<RuleTestOutcome, StoreError> {
    // The text comes from the network, so it is checked before the parser of rules sees it.
    if let Some(why) = refusal(text) {
        return Ok(RuleTestOutcome::Refused(why));
    }
    let loaded = match RuleSet::parse("rules", text) {
        Ok(loaded) => loaded,
        Err(error) => return Ok(RuleTestOutcome::Refused(error.to_string())),
    };
    let mut judged = RuleTestResult::default();
    let mut sums: BTreeMap<(&'static str, String), (BTreeSet<_>, i64)> = BTreeMap::new();
    impact(inventory, &loaded.rules, filter, |impact| -> Result<(), StoreError> {
        let sum = sums.entry((impact.kind, impact.rule.clone())).or_default();
        // The sums cover everything, although only the first results are listed.
        sum.0.insert((impact.address.clone(), impact.port, impact.protocol.clone()));
        sum.1 = sum.1.saturating_add(impact.connections);
        if judged.impacts.len() < SHOWN {
            judged.impacts.push(impact);
        } else {
            judged.more += 1;
        }
        Ok(())
    })?;
    let sum = |((kind, rule), (assets, connections)): (_, (BTreeSet<_>, i64))| RuleTestSum {
        kind,
        rule,
        assets: assets.len(),
        connections,
    };
    judged.sums = sums.into_iter().map(sum).collect();
    judged.unforeseen = loaded.rules.unforeseen().map(Rule::id).map(str::to_owned).collect();
    Ok(RuleTestOutcome::Judged(judged))
}

/// Returns a reason to refuse a text before its rules are parsed: it would read files of this machine, or it
/// is not TOML. The parser of rules would read as much of that as it can.
fn refusal(text: &str) -> Option<String> {
    if toml_nesting::too_deep(text).is_some() {
        return Some("brackets are nested too deeply".to_owned());
    }
    match text.parse::<toml::Table>() {
        Err(error) => Some(error.to_string()),
        Ok(table) if table.contains_key("lists") => {
            Some("`[lists]` would read files of the server; write the values into the rules".to_owned())
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_name_files_are_told_apart() {
        let lists = "[lists]\nsecrets = \"/etc/passwd\"\n";
        let nested = format!("a = {}{}\n{lists}", "[".repeat(1000), "]".repeat(1000));
        for text in [
            lists,
            "lists.secrets = \"/etc/passwd\"\n",
            "\"lists\" = { secrets = \"/etc/passwd\" }\n",
            // Of what is no TOML the reader of rules would take what is.
            &format!("!\n{lists}"),
            &format!("{lists}x = 1\nx = 2\n"),
            "[lists",
            &nested,
        ] {
            assert!(refusal(text).is_some(), "{text}");
        }
        assert!(refusal("[[rule]]\nid = \"lists\"\n").is_none());
    }
}
