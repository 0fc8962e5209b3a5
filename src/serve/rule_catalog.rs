//! The rules of the page's rule files: what the page explains and tries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::rules::{BannerSender, Rule, RuleSet};

/// Largest number of lines of a rule that the page shows.
const MOST_LINES: usize = 1_000;

/// Rules by id.
#[derive(Debug, Default)]
pub struct RuleCatalog {
    rules: BTreeMap<String, RuleDetails>,
}

/// A rule as its file has it.
#[derive(Debug, Clone)]
pub(super) struct RuleDetails {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) protocol: &'static str,
    /// The sender of the banners: `server` or `client`; empty for both.
    pub(super) sender: &'static str,
    pub(super) action: &'static str,
    pub(super) severity: &'static str,
    pub(super) category: String,
    pub(super) references: Vec<String>,
    /// Its file, and the line of its `[[rule]]`, counted from 1.
    file: PathBuf,
    line: usize,
}

/// A rule's text in its file.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleText {
    /// The text.
    pub(super) text: String,
    /// Bounds of versions, `>=8.5, <9.8`.
    pub(super) version: Option<String>,
    /// Patched packages.
    pub(super) fixed_in: Vec<String>,
}

impl RuleCatalog {
    /// Returns the rules of a set.
    pub fn new(rules: &RuleSet) -> Self {
        let details = |rule: &Rule| (rule.id().to_owned(), RuleDetails::new(rule));
        Self { rules: rules.rules().iter().map(details).collect() }
    }

    /// Returns the files that the page reads when it shows a rule.
    pub(super) fn files(&self) -> BTreeSet<&Path> {
        self.rules.values().map(|rule| rule.file.as_path()).collect()
    }

    /// Returns a rule.
    pub(super) fn rule(&self, id: &str) -> Option<&RuleDetails> {
        self.rules.get(id)
    }

    /// Returns the rules whose references, id or title contain a text, ignoring case.
    pub(super) fn about<'a>(&'a self, text: &str) -> impl Iterator<Item = &'a RuleDetails> {
        let lower = text.to_lowercase();
        self.rules.values().filter(move |rule| {
            let texts = rule.references.iter().chain([&rule.id, &rule.title]);
            texts.into_iter().any(|text| text.to_lowercase().contains(&lower))
        })
    }
}

impl RuleDetails {
    fn new(rule: &Rule) -> Self {
        Self {
            id: rule.id().to_owned(),
            title: rule.title().to_owned(),
            protocol: rule.protocol().name(),
            sender: match rule.from() {
                BannerSender::Server => "server",
                BannerSender::Client => "client",
                BannerSender::Either => "",
            },
            action: rule.action().name(),
            severity: rule.severity().name(),
            category: rule.category().to_owned(),
            references: rule.references().to_vec(),
            file: PathBuf::from(rule.file()),
            line: rule.place().line,
        }
    }

    /// Reads the rule's text; none if the file has changed since.
    pub(super) fn read_text(&self) -> Option<RuleText> {
        let file = BufReader::new(File::open(&self.file).ok()?);
        let text = text_of(file, self.line)?;
        let table = table_of(&text)?;
        let strings = |name: &str| match table.get(name) {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
            _ => Vec::new(),
        };
        let is_own = table.get("id").and_then(Value::as_str) == Some(&self.id);
        is_own.then(|| RuleText {
            version: strings("version").into_iter().next(),
            fixed_in: strings("fixed_in"),
            text: text.clone(),
        })
    }

    /// Reads the rule's text with a blocking action, to try what it would block.
    pub(super) fn read_blocking_text(&self) -> Option<String> {
        let text = self.read_text()?.text;
        if matches!(self.action, "drop" | "reject" | "ban") {
            return Some(text);
        }
        let mut lines: Vec<&str> = Vec::new();
        for line in text.lines() {
            match line.split_once('=').map(|(key, _)| key.trim()) {
                Some("action") => lines.push("action = \"drop\""),
                Some("mark") => {}
                _ => lines.push(line),
            }
        }
        Some(lines.join("\n") + "\n")
    }
}

/// Reads the text of the rule whose `[[rule]]` is at a line of a file, counted from 1.
fn text_of(file: impl BufRead, line: usize) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in file.lines().skip(line.checked_sub(1)?).take(MOST_LINES) {
        let line = line.ok()?;
        if !lines.is_empty() && line.starts_with("[[") {
            break;
        }
        lines.push(line);
    }
    // Comments before the next rule belong to that.
    while lines.last().is_some_and(|line| line.trim().is_empty() || line.starts_with('#')) {
        lines.pop();
    }
    Some(lines.join("\n") + "\n")
}

/// Returns the only rule of a text.
fn table_of(text: &str) -> Option<Table> {
    let mut table: Table = text.parse().ok()?;
    match table.remove("rule")? {
        Value::Array(mut rules) if rules.len() == 1 => rules.pop()?.try_into().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shipped_rule_is_explained_and_can_be_tried() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
        let selection = crate::rules::RuleSelection { rules: vec![folder], ..Default::default() };
        let loaded = RuleSet::load(&selection).unwrap_or_else(|error| panic!("{error}"));
        let catalog = RuleCatalog::new(&loaded.rules);
        assert!(catalog.rules.len() > 100);
        for rule in catalog.rules.values() {
            let text = rule.read_blocking_text().unwrap_or_else(|| panic!("{}: no text", rule.id));
            let tried = RuleSet::parse("rules", &text).unwrap_or_else(|error| panic!("{error}")).rules;
            assert_eq!(tried.rules().len(), 1, "{text}");
            assert!(tried.rules()[0].action().blocks() || rule.action == "allow", "{text}");
            assert!(super::super::rule_advice::advice(&rule.category).is_some(), "{}", rule.category);
        }
        let fixed = catalog.rule("openssh-regresshion").and_then(RuleDetails::read_text).unwrap();
        assert_eq!(fixed.version.as_deref(), Some(">=8.5, <9.8"));
        assert!(fixed.fixed_in.contains(&"9.2p1 Debian-2+deb12u3".to_owned()));
        assert_eq!(catalog.about("cve-2024-6387").count(), 2);
    }
}
