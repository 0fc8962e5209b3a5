//! Which rules have a chance with a banner: the shared matcher.
//!
//! Each rule is reached by one of its conditions only, the one that fewest other rules share. The
//! patterns of these conditions that are tried on one field share one Aho-Corasick automaton of the
//! literals that they cannot do without; the few patterns without literals share one regular
//! expression. So a banner that matches nothing costs one pass over each of its fields, whether there
//! are ten rules or ten thousand. What is found here is a candidate: the judge has the last word.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use regex_automata::meta::Regex;
use regex_automata::{Input, PatternSet};

use super::field::Field;
use super::list::Values;
use super::literals::{Literals, Requirement, required, shortest};
use super::pattern::{Pattern, PatternId, Shape, together};
use super::rule::{Condition, Rule, Test};
use super::view::{Stage, View};
use crate::event::{Protocol, Side};

/// A rule by its position.
type RuleIndex = u32;

/// The candidates of each kind of banner.
#[derive(Debug, Default)]
pub(super) struct Index {
    ssh_client: Group,
    ssh_server: Group,
    http_client: Group,
    http_server: Group,
}

/// Everything about the banners of one protocol and side.
#[derive(Debug, Default)]
struct Group {
    /// Rules with nothing to be reached by.
    free: Vec<RuleIndex>,
    fields: Vec<(Field, FieldIndex)>,
    /// By header name in lower case, sorted.
    headers: Vec<(String, FieldIndex)>,
}

/// Everything that is tried on the values of one field.
#[derive(Debug, Default)]
struct FieldIndex {
    /// Rules that ask for the field to be there.
    present: Vec<RuleIndex>,
    /// Whole values in lower case, sorted, and the rules that they reach.
    whole: Vec<(Vec<u8>, Vec<RuleIndex>)>,
    lists: Vec<(Arc<Values>, Vec<RuleIndex>)>,
    literals: Option<AhoCorasick>,
    /// The rules that each literal reaches.
    literal_rules: Vec<Vec<RuleIndex>>,
    /// Patterns without literals, tried together.
    others: Option<Regex>,
    /// The rules that each of them reaches.
    other_rules: Vec<Vec<RuleIndex>>,
    /// The rules of patterns that could not be put together.
    always: Vec<RuleIndex>,
}

impl Index {
    pub(super) fn new(rules: &[Rule], patterns: &[Pattern], shapes: &[Shape]) -> Self {
        let requirements: Vec<Requirement> = shapes.iter().map(|shape| required(&shape.hir)).collect();
        let group = |protocol, side| {
            let own: Vec<&Rule> =
                rules.iter().filter(|rule| rule.protocol == protocol && rule.from.includes(side)).collect();
            Group::new(&own, patterns, &requirements)
        };
        Self {
            ssh_client: group(Protocol::Ssh, Side::Client),
            ssh_server: group(Protocol::Ssh, Side::Server),
            http_client: group(Protocol::Http, Side::Client),
            http_server: group(Protocol::Http, Side::Server),
        }
    }

    /// Adds the rules that have a chance, sorted and each once; `candidates` is empty before.
    pub(super) fn candidates(&self, view: &View<'_>, candidates: &mut Vec<RuleIndex>) {
        let group = match (view.banner.protocol(), view.banner.from()) {
            (Protocol::Ssh, Side::Client) => &self.ssh_client,
            (Protocol::Ssh, Side::Server) => &self.ssh_server,
            (Protocol::Http, Side::Client) => &self.http_client,
            (Protocol::Http, Side::Server) => &self.http_server,
        };
        candidates.extend_from_slice(&group.free);
        for (field, index) in &group.fields {
            let later = field.needs_body() || field.needs_kex();
            if later && view.context.stage == Stage::Head {
                continue;
            }
            for value in view.values(field) {
                index.search(value, candidates);
            }
        }
        if !group.headers.is_empty() {
            for header in view.headers().into_iter().flat_map(|headers| headers.iter()) {
                if let Some(index) = find(&group.headers, header.name) {
                    index.search(header.value, candidates);
                }
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
    }
}

impl Group {
    fn new(rules: &[&Rule], patterns: &[Pattern], requirements: &[Requirement]) -> Self {
        let popularity = popularity(rules);
        let mut drafts: BTreeMap<&Field, Draft<'_>> = BTreeMap::new();
        let names: Vec<(Field, RuleIndex)> = rules
            .iter()
            .filter(|rule| rule.all.is_empty())
            .filter_map(|rule| Some((Field::Header(rule.present.first()?.clone()), rule_index(rule))))
            .collect();
        let mut free = Vec::new();
        for rule in rules {
            match pivot(rule, requirements, &popularity) {
                Some(condition) => {
                    drafts.entry(&condition.field).or_default().add(rule_index(rule), &condition.test);
                }
                None if rule.present.is_empty() => free.push(rule_index(rule)),
                None => {}
            }
        }
        for (field, rule) in &names {
            drafts.entry(field).or_default().present.push(*rule);
        }
        let mut group = Self { free, ..Self::default() };
        for (field, draft) in drafts {
            let index = draft.build(patterns, requirements);
            match field {
                Field::Header(name) => group.headers.push((name.clone(), index)),
                field => group.fields.push((field.clone(), index)),
            }
        }
        group.headers.sort_by(|left, right| left.0.cmp(&right.0));
        group
    }
}

fn rule_index(rule: &Rule) -> RuleIndex {
    RuleIndex::try_from(rule.index).unwrap_or(RuleIndex::MAX)
}

/// How many rules try each pattern.
fn popularity(rules: &[&Rule]) -> HashMap<PatternId, usize> {
    let mut popularity = HashMap::new();
    for rule in rules {
        for condition in &rule.all {
            if let Test::Patterns(ids) = &condition.test {
                for id in ids {
                    *popularity.entry(*id).or_default() += 1;
                }
            }
        }
    }
    popularity
}

/// The condition by which a rule is reached: one with literals, and of those the least shared.
fn pivot<'r>(
    rule: &'r Rule,
    requirements: &[Requirement],
    popularity: &HashMap<PatternId, usize>,
) -> Option<&'r Condition> {
    rule.all.iter().min_by_key(|condition| match &condition.test {
        Test::Values(_) => (false, 0),
        Test::Patterns(ids) => {
            let vague = |id: &PatternId| match requirements.get(id.index()) {
                Some(Requirement::Whole(_)) => false,
                Some(Requirement::Holds(sets)) => sets.is_empty(),
                None => true,
            };
            let shared = ids.iter().map(|id| popularity.get(id).copied().unwrap_or(0)).max();
            (ids.iter().any(vague), shared.unwrap_or(0))
        }
    })
}

/// What one field's index is made of.
#[derive(Default)]
struct Draft<'r> {
    present: Vec<RuleIndex>,
    patterns: BTreeMap<PatternId, Vec<RuleIndex>>,
    lists: Vec<(&'r Arc<Values>, Vec<RuleIndex>)>,
}

impl<'r> Draft<'r> {
    fn add(&mut self, rule: RuleIndex, test: &'r Test) {
        match test {
            Test::Patterns(ids) => {
                for id in ids {
                    self.patterns.entry(*id).or_default().push(rule);
                }
            }
            Test::Values(list) => match self.lists.iter_mut().find(|(known, _)| Arc::ptr_eq(known, list)) {
                Some((_, rules)) => rules.push(rule),
                None => self.lists.push((list, vec![rule])),
            },
        }
    }

    fn build(self, patterns: &[Pattern], requirements: &[Requirement]) -> FieldIndex {
        let requirement = |id: PatternId| requirements.get(id.index());
        let mut frequency: HashMap<&[u8], usize> = HashMap::new();
        for id in self.patterns.keys() {
            if let Some(Requirement::Holds(sets)) = requirement(*id) {
                for literal in sets.iter().flatten() {
                    *frequency.entry(literal).or_default() += 1;
                }
            }
        }
        let mut whole: BTreeMap<&[u8], Vec<RuleIndex>> = BTreeMap::new();
        let mut literals: BTreeMap<&[u8], Vec<RuleIndex>> = BTreeMap::new();
        let mut others: Vec<(PatternId, Vec<RuleIndex>)> = Vec::new();
        for (id, rules) in self.patterns {
            let (into, set) = match requirement(id) {
                Some(Requirement::Whole(set)) => (&mut whole, Some(set)),
                Some(Requirement::Holds(sets)) => (&mut literals, rarest(sets, &frequency)),
                None => (&mut literals, None),
            };
            match set {
                Some(set) => {
                    for literal in set {
                        into.entry(literal).or_default().extend_from_slice(&rules);
                    }
                }
                None => others.push((id, rules)),
            }
        }
        let mut index = FieldIndex {
            present: self.present,
            whole: whole.into_iter().map(|(value, rules)| (value.to_vec(), rules)).collect(),
            lists: self.lists.into_iter().map(|(list, rules)| (list.clone(), rules)).collect(),
            ..FieldIndex::default()
        };
        index.set_literals(literals);
        index.set_others(others, patterns);
        index
    }
}

/// The set whose literals fewest patterns hold, longer ones first.
fn rarest<'s>(sets: &'s [Literals], frequency: &HashMap<&[u8], usize>) -> Option<&'s Literals> {
    sets.iter().min_by_key(|set| {
        let shared: usize = set.iter().filter_map(|literal| frequency.get(literal.as_slice())).sum();
        (shortest(set) < 3, shared, std::cmp::Reverse(shortest(set)))
    })
}

impl FieldIndex {
    fn set_literals(&mut self, literals: BTreeMap<&[u8], Vec<RuleIndex>>) {
        if literals.is_empty() {
            return;
        }
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(literals.keys());
        match automaton {
            Ok(automaton) => {
                self.literals = Some(automaton);
                self.literal_rules = literals.into_values().collect();
            }
            // More literals than state numbers: slow, but right.
            Err(_) => self.always.extend(literals.into_values().flatten()),
        }
    }

    fn set_others(&mut self, others: Vec<(PatternId, Vec<RuleIndex>)>, patterns: &[Pattern]) {
        if others.is_empty() {
            return;
        }
        let own: Vec<&Pattern> = others.iter().filter_map(|(id, _)| patterns.get(id.index())).collect();
        match together(&own) {
            Some(regex) => {
                self.others = Some(regex);
                self.other_rules = others.into_iter().map(|(_, rules)| rules).collect();
            }
            None => self.always.extend(others.into_iter().flat_map(|(_, rules)| rules)),
        }
    }

    /// Adds the rules that a value reaches.
    fn search(&self, value: &[u8], candidates: &mut Vec<RuleIndex>) {
        candidates.extend_from_slice(&self.present);
        candidates.extend_from_slice(&self.always);
        if let Ok(at) = self.whole.binary_search_by(|(known, _)| compare(known, value)) {
            candidates.extend(self.whole.get(at).into_iter().flat_map(|(_, rules)| rules));
        }
        for (list, rules) in &self.lists {
            if list.entries.contains(value) {
                candidates.extend_from_slice(rules);
            }
        }
        for found in self.literals.iter().flat_map(|literals| literals.find_overlapping_iter(value)) {
            candidates.extend(self.literal_rules.get(found.pattern().as_usize()).into_iter().flatten());
        }
        if let Some(others) = &self.others {
            let mut found = PatternSet::new(others.pattern_len());
            others.which_overlapping_matches(&Input::new(value), &mut found);
            for id in found.iter() {
                candidates.extend(self.other_rules.get(id.as_usize()).into_iter().flatten());
            }
        }
    }
}

/// The index of the header `name`, whatever the case of its letters.
fn find<'i>(headers: &'i [(String, FieldIndex)], name: &[u8]) -> Option<&'i FieldIndex> {
    let at = headers.binary_search_by(|(known, _)| compare(known.as_bytes(), name)).ok()?;
    headers.get(at).map(|(_, index)| index)
}

/// Compares a text in lower case with another one without regard to ASCII case.
fn compare(lower: &[u8], value: &[u8]) -> Ordering {
    lower.iter().copied().cmp(value.iter().map(u8::to_ascii_lowercase))
}
