//! Rules that are tried on what was seen, before anybody puts them in force.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::inventory::{Database, Filter, Impact, StoreError, impact};
use crate::rules::{Rule, RuleSet, nesting};

/// What of a trial is shown; more is only counted.
const SHOWN: usize = 500;

/// What became of a trial.
pub(super) enum Outcome {
    /// The rules are none, for this reason.
    Refused(String),
    /// The rules would do this.
    Judged(Judged),
}

/// What rules would stop.
#[derive(Debug, Default, Serialize)]
pub(super) struct Judged {
    /// Rules and policies that would stop something.
    pub(super) sums: Vec<Sum>,
    /// At which services and of which clients; not all where there are many.
    pub(super) impacts: Vec<Impact>,
    /// How many more there are.
    pub(super) more: usize,
    /// Rules that ask more than names.
    pub(super) unforeseen: Vec<String>,
}

/// What one rule or policy would stop.
#[derive(Debug, Serialize)]
pub(super) struct Sum {
    /// `rule` or `policy`.
    pub(super) kind: &'static str,
    /// Its id.
    pub(super) rule: String,
    /// Services and clients.
    pub(super) assets: usize,
    /// Connections that were seen.
    pub(super) connections: i64,
}

/// Judges what was seen by the rules of a text.
///
/// # Errors
/// What the database says.
pub(super) fn run(inventory: &Database, text: &str, filter: &Filter) -> Result<Outcome, StoreError> {
    if let Some(why) = refusal(text) {
        return Ok(Outcome::Refused(why));
    }
    let loaded = match RuleSet::parse("rules", text) {
        Ok(loaded) => loaded,
        Err(error) => return Ok(Outcome::Refused(error.to_string())),
    };
    let mut judged = Judged::default();
    let mut sums: BTreeMap<(&'static str, String), (BTreeSet<_>, i64)> = BTreeMap::new();
    impact(inventory, &loaded.rules, filter, |impact| -> Result<(), StoreError> {
        let sum = sums.entry((impact.kind, impact.rule.clone())).or_default();
        sum.0.insert((impact.address.clone(), impact.port, impact.protocol.clone()));
        sum.1 = sum.1.saturating_add(impact.connections);
        if judged.impacts.len() < SHOWN {
            judged.impacts.push(impact);
        } else {
            judged.more += 1;
        }
        Ok(())
    })?;
    let sum = |((kind, rule), (assets, connections)): (_, (BTreeSet<_>, i64))| Sum {
        kind,
        rule,
        assets: assets.len(),
        connections,
    };
    judged.sums = sums.into_iter().map(sum).collect();
    judged.unforeseen = loaded.rules.unforeseen().map(Rule::id).map(str::to_owned).collect();
    Ok(Outcome::Judged(judged))
}

/// Why a text is not read as rules at all: those would have files of this machine read, or it is no TOML, of
/// which the reader of rules would make what it can.
fn refusal(text: &str) -> Option<String> {
    if nesting::too_deep(text).is_some() {
        return Some("brackets are nested too deeply".to_owned());
    }
    match text.parse::<toml::Table>() {
        Err(error) => Some(error.to_string()),
        Ok(table) if table.contains_key("lists") => {
            Some("`[lists]` names files of the server; write the values into the rules here".to_owned())
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
