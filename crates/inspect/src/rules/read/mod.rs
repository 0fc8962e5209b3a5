//! Reads rules from TOML, and finds every fault of a file in one pass.
//!
//! The file is first parsed as TOML with recovery. The parts that parsed are then read as rules, so
//! a missing quote does not hide a misspelt field further down.

mod advisory;
mod conditions;
mod examples;
mod overrides;
mod policy;
mod rule;
mod rule_values;
mod scope;
mod tls_examples;
mod toml_syntax;
mod toml_value;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use self::toml_value::ValueReader;
use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::kex_marker::is_shipped;
use super::limits;
use super::list_file::{ListFile, ListValues};
use super::pattern::PatternTable;
use super::policy::Policy;
use super::rule::Rule;
use super::rule_override::RuleOverride;
use super::scope::AddressSet;
use super::source_file::ReadFile;
use super::source_file::SourceFile;

/// State that all files of a rule set share while they are read.
#[derive(Debug, Default)]
pub(super) struct RuleSetDraft {
    /// The rules so far, in the order of files and lines.
    pub(super) rules: Vec<Rule>,
    /// Their patterns.
    pub(super) patterns: PatternTable,
    /// The overrides so far, in the order of files and lines.
    pub(super) overrides: Vec<RuleOverride>,
    /// The policies so far, in the order of files and lines.
    pub(super) policies: Vec<Policy>,
    /// The files of lists.
    pub(super) lists: Vec<ReadFile>,
    /// Position of each id's definition.
    ids: HashMap<String, String>,
}

/// The keys of a rule file.
const FILE_KEYS: &[&str] = &["pack", "rule", "policy", "override", "lists", "product", "marker"];
const PACK_KEYS: &[&str] = &["profiles", "tags"];

/// Settings of a file for all its rules: `[pack]`.
#[derive(Debug, Default)]
struct PackSettings {
    /// Profiles of rules that name none themselves.
    profiles: Vec<String>,
    /// Tags of all rules.
    tags: Vec<String>,
}

impl PackSettings {
    fn read(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Self {
        let mut pack = Self::default();
        for (key, span, value) in reader.table("pack", value).unwrap_or_default() {
            match key {
                "profiles" => pack.profiles = rule_values::labels(reader, key, value),
                "tags" => pack.tags = rule_values::labels(reader, key, value),
                _ => reader.unknown_key(&span, key, "`[pack]`", PACK_KEYS.iter().copied()),
            }
        }
        pack
    }
}

/// Reads one file into `draft`; faults go to `report`.
pub(super) fn file(source: &SourceFile, draft: &mut RuleSetDraft, report: &mut DiagnosticCollector) {
    let (text, broken) = toml_syntax::sound(source, report);
    let (document, _) = DeTable::parse_recoverable(&text);
    let mut reader = ValueReader { source, report, broken: &broken, rule: None };
    let mut lists = DeclaredLists::default();
    let mut pack = PackSettings::default();
    let entries = toml_value::entries(document.get_ref());
    for (key, span, value) in &entries {
        match *key {
            "lists" => lists.read(&mut reader, value),
            "pack" => pack = PackSettings::read(&mut reader, value),
            // Only `rules import` reads products.
            "rule" | "policy" | "override" | "product" => {}
            "marker" if is_shipped(source.text()) => {}
            "marker" => reader.warn(
                span,
                "markers are built in: these are not read",
                "`match.marker` asks for those that are shipped, and `match.kex` for names of your own",
            ),
            _ => reader.unknown_key(span, key, "a rule file", FILE_KEYS.iter().copied()),
        }
    }
    let file: Arc<str> = source.name().into();
    for (key, _, value) in &entries {
        let read = match *key {
            "rule" => rules(&mut reader, value, (&file, &pack), &mut lists, draft),
            "policy" => policies(&mut reader, value, &file, &mut lists, draft),
            "override" => overrides(&mut reader, value, &file, &mut lists, draft),
            _ => Some(()),
        };
        if read.is_none() {
            return;
        }
    }
    draft.lists.extend(lists.files());
    lists.warn_of_unused(&mut reader);
}

/// Reads every `[[rule]]`; none if a bound is reached.
fn rules(
    reader: &mut ValueReader<'_>,
    value: &Spanned<DeValue<'_>>,
    belonging: (&Arc<str>, &PackSettings),
    lists: &mut DeclaredLists,
    draft: &mut RuleSetDraft,
) -> Option<()> {
    let Some(tables) = tables(reader, value, "rule") else { return Some(()) };
    for (index, table) in tables.iter().enumerate() {
        room(reader, table, draft.rules.len(), (limits::RULES, "rules"))?;
        let end = end(reader, tables, index);
        if let Some(rule) = rule::read(reader, table, end, belonging, lists, draft) {
            draft.rules.push(rule);
        }
        reader.rule = None;
    }
    Some(())
}

/// Reads every `[[policy]]`; none if a bound is reached.
fn policies(
    reader: &mut ValueReader<'_>,
    value: &Spanned<DeValue<'_>>,
    file: &Arc<str>,
    lists: &mut DeclaredLists,
    draft: &mut RuleSetDraft,
) -> Option<()> {
    let Some(tables) = tables(reader, value, "policy") else { return Some(()) };
    for (index, table) in tables.iter().enumerate() {
        room(reader, table, draft.policies.len(), (limits::POLICIES, "policies"))?;
        let end = end(reader, tables, index);
        let read = policy::read(reader, table, end, file, lists, draft);
        draft.policies.extend(read);
    }
    Some(())
}

/// Reads every `[[override]]`, which only local files may hold; none if a bound is reached.
fn overrides(
    reader: &mut ValueReader<'_>,
    value: &Spanned<DeValue<'_>>,
    file: &Arc<str>,
    lists: &mut DeclaredLists,
    draft: &mut RuleSetDraft,
) -> Option<()> {
    let Some(tables) = tables(reader, value, "override") else { return Some(()) };
    if !reader.source.is_local() {
        let help = "put the file into /etc/bannerwall/local.d, or name it with --local";
        reader.error_with_help(&value.span(), "a rule file holds no overrides", help);
        return Some(());
    }
    for table in tables {
        room(reader, table, draft.overrides.len(), (limits::OVERRIDES, "overrides"))?;
        draft.overrides.extend(overrides::read(reader, table, file, lists));
    }
    Some(())
}

/// Returns the tables of `[[name]]`; reports an error if it is anything else.
fn tables<'v, 'i>(
    reader: &mut ValueReader<'_>,
    value: &'v Spanned<DeValue<'i>>,
    name: &str,
) -> Option<&'v [Spanned<DeValue<'i>>]> {
    if let DeValue::Array(tables) = value.get_ref() {
        return Some(tables);
    }
    let message = format!("`{name}` must be a list of tables");
    reader.error_with_help(&value.span(), message, format!("write `[[{name}]]`"));
    None
}

/// Checks that one more table may be read: none if there are `limit` already, or too many errors.
fn room(
    reader: &mut ValueReader<'_>,
    table: &Spanned<DeValue<'_>>,
    count: usize,
    (limit, of): (usize, &str),
) -> Option<()> {
    if count >= limit {
        reader.error(&table.span(), format!("more than {limit} {of}"));
        return None;
    }
    (!reader.report.is_full()).then_some(())
}

/// Returns the end of a table's text: the start of the next one, or the end of the file.
fn end(reader: &ValueReader<'_>, tables: &[Spanned<DeValue<'_>>], index: usize) -> usize {
    tables.get(index + 1).map_or(reader.source.text().len(), |next| next.span().start)
}

impl RuleSetDraft {
    /// Records an id. If it was recorded before, returns the earlier position.
    fn claim(&mut self, id: &str, place: String) -> Option<String> {
        if let Some(before) = self.ids.get(id) {
            return Some(before.clone());
        }
        self.ids.insert(id.to_owned(), place);
        None
    }
}

/// The lists that a file names; each is converted on its first use.
#[derive(Default)]
pub(super) struct DeclaredLists {
    known: HashMap<String, DeclaredList>,
}

struct DeclaredList {
    span: Range<usize>,
    list: Option<ListFile>,
    used: bool,
    values: Option<Arc<ListValues>>,
    addresses: Option<AddressSet>,
}

impl DeclaredLists {
    fn files(&self) -> impl Iterator<Item = ReadFile> {
        self.known.values().filter_map(|named| named.list.as_ref()).map(ListFile::file)
    }

    /// Reads the `[lists]` table and the files that it names.
    fn read(&mut self, reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) {
        for (name, span, value) in reader.table("lists", value).unwrap_or_default() {
            let Some(path) = reader.text(name, value) else { continue };
            let list = ListFile::read(name, &path.value, reader.source);
            if let Err(reason) = &list {
                reader.error(&path.span, reason.clone());
            }
            let named = DeclaredList { span, list: list.ok(), used: false, values: None, addresses: None };
            self.known.insert(name.to_owned(), named);
        }
    }

    /// Returns the list `name` as values; reports an unknown name.
    fn values(
        &mut self,
        reader: &mut ValueReader<'_>,
        name: &str,
        span: &Range<usize>,
    ) -> Option<Arc<ListValues>> {
        let named = self.find(reader, name, span)?;
        let list = named.list.as_ref()?;
        Some(named.values.get_or_insert_with(|| Arc::new(list.values())).clone())
    }

    /// Returns the list `name` as networks; reports an unknown name.
    fn addresses(
        &mut self,
        reader: &mut ValueReader<'_>,
        name: &str,
        span: &Range<usize>,
    ) -> Option<AddressSet> {
        let named = self.find(reader, name, span)?;
        let list = named.list.as_ref()?;
        Some(named.addresses.get_or_insert_with(|| list.addresses(reader.report)).clone())
    }

    fn find(
        &mut self,
        reader: &mut ValueReader<'_>,
        name: &str,
        span: &Range<usize>,
    ) -> Option<&mut DeclaredList> {
        if !self.known.contains_key(name) {
            let message = format!("no list is named `{name}`");
            let nearest = super::suggest::nearest(name, self.known.keys().map(String::as_str));
            let help = nearest.map_or_else(
                || format!("name its file: `[lists]` with `{name} = \"FILE\"`"),
                |nearest| format!("did you mean `@{nearest}`?"),
            );
            reader.error_with_help(span, message, help);
        }
        let named = self.known.get_mut(name)?;
        named.used = true;
        Some(named)
    }

    fn warn_of_unused(&self, reader: &mut ValueReader<'_>) {
        let mut unused: Vec<_> = self.known.iter().filter(|(_, named)| !named.used).collect();
        unused.sort_by_key(|(_, named)| named.span.start);
        for (name, named) in unused {
            reader.warn(
                &named.span,
                format!("no rule of this file uses the list `{name}`"),
                format!("write `\"@{name}\"` where its entries belong"),
            );
        }
    }
}

/// Returns a diagnostic about a policy that was already read, at its `[[policy]]`.
pub(super) fn at_policy(
    policy: &Policy,
    source: &SourceFile,
    level: DiagnosticLevel,
    message: String,
) -> RuleDiagnostic {
    let start = source.start_of(policy.place);
    let mut diagnostic = RuleDiagnostic::at(level, source, &(start..start + "[[policy]]".len()), message);
    diagnostic.rule = Some(policy.id.clone());
    diagnostic
}

/// Returns a diagnostic about a rule that was already read, at its `[[rule]]`.
pub(super) fn at_rule(
    rule: &Rule,
    source: &SourceFile,
    level: DiagnosticLevel,
    message: String,
) -> RuleDiagnostic {
    let start = source.start_of(rule.place);
    let mut diagnostic = RuleDiagnostic::at(level, source, &(start..start + "[[rule]]".len()), message);
    diagnostic.rule = Some(rule.id.clone());
    diagnostic
}
