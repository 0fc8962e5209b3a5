//! The index of rules: finds the rules that may match a banner.
//!
//! The index reaches each rule through one of its conditions: the one that fewest other rules
//! share. All these patterns of one field share one Aho-Corasick automaton of the literals that
//! they require. Patterns without literals, and patterns whose literals too many others share, are
//! compiled into one regular expression. If rules share a pattern but ask for different versions,
//! an index of version ranges ([`ranges`](super::version_ranges)) selects among them. So a banner that
//! matches nothing costs one pass over each of its fields, whether there are ten rules or ten
//! thousand. The results are only candidates; the judge decides.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use regex_automata::meta::Regex;
use regex_automata::{Input, PatternSet};

use super::banner_view::{BannerStage, BannerView, HOST};
use super::evaluate_rule::PatternMemo;
use super::field::BannerField;
use super::list_file::ListValues;
use super::pattern::{PatternId, PatternSyntax, RulePattern, VERSION, together};
use super::pattern_literals::{LiteralRequirement, Literals, required, shortest};
use super::rule::{FieldTest, Rule, RuleCondition};
use super::version;
use super::version_ranges::VersionRangeIndex;
use crate::banner::same_name;
use crate::event::{Protocol, Side};

/// A rule by its position.
type RuleIndex = u32;

/// The candidates of each kind of banner.
#[derive(Debug, Default)]
pub(super) struct CandidateIndex {
    /// By protocol; for each, the client's group and the server's.
    groups: [[SideIndex; 2]; Protocol::COUNT],
}

/// The index of one protocol's and one side's banners.
#[derive(Debug, Default)]
struct SideIndex {
    /// Rules that no condition can reach: they are always candidates.
    free: Vec<RuleIndex>,
    fields: Vec<(BannerField, FieldIndex)>,
    /// By header name in lower case, sorted.
    headers: Vec<(String, FieldIndex)>,
}

/// The index of one field's values.
#[derive(Debug, Default)]
struct FieldIndex {
    /// Rules that require the field to be present.
    present: Vec<RuleIndex>,
    /// Whole values in lower case, sorted, with the rules that they reach.
    whole: Vec<(Vec<u8>, ReachedRules)>,
    lists: Vec<(Arc<ListValues>, Vec<RuleIndex>)>,
    literals: Option<AhoCorasick>,
    /// Rules that each literal reaches.
    literal_reach: Vec<ReachedRules>,
    /// Patterns without usable literals, compiled together.
    others: Option<Regex>,
    /// Rules that each of them reaches.
    other_reach: Vec<ReachedRules>,
    /// Rules of patterns that could not be compiled together.
    always: ReachedRules,
    /// Patterns that several rules share, each with the versions that they ask for.
    versions: Vec<(PatternId, VersionRangeIndex)>,
}

/// The rules and version ranges that a value reaches.
#[derive(Debug, Clone, Default)]
struct ReachedRules {
    rules: Vec<RuleIndex>,
    /// Positions among the index's versions.
    versions: Vec<usize>,
}

impl ReachedRules {
    fn add(&mut self, other: &Self) {
        self.rules.extend_from_slice(&other.rules);
        self.versions.extend_from_slice(&other.versions);
    }
}

/// A running search for candidates.
struct CandidateSearch<'s, 'v> {
    patterns: &'s [RulePattern],
    memo: &'s PatternMemo<'v>,
    candidates: &'s mut Vec<RuleIndex>,
}

impl CandidateIndex {
    pub(super) fn new(rules: &[Rule], patterns: &[RulePattern], shapes: &[PatternSyntax]) -> Self {
        let requirements: Vec<LiteralRequirement> = shapes.iter().map(|shape| required(&shape.hir)).collect();
        let group = |protocol, side| {
            let own: Vec<&Rule> =
                rules.iter().filter(|rule| rule.protocol == protocol && rule.from.includes(side)).collect();
            SideIndex::new(&own, patterns, &requirements)
        };
        let mut groups: [[SideIndex; 2]; Protocol::COUNT] = Default::default();
        for protocol in Protocol::all() {
            groups[protocol.index()] = [Side::Client, Side::Server].map(|side| group(protocol, side));
        }
        Self { groups }
    }

    /// Adds the rules that may match, sorted and without duplicates. `candidates` must be empty.
    pub(super) fn candidates<'v>(
        &'v self,
        view: &'v BannerView<'_>,
        patterns: &[RulePattern],
        memo: &PatternMemo<'v>,
        candidates: &mut Vec<RuleIndex>,
    ) {
        let [client, server] = &self.groups[view.banner.protocol().index()];
        let group = match view.banner.from() {
            Side::Client => client,
            Side::Server => server,
        };
        candidates.extend_from_slice(&group.free);
        let mut search = CandidateSearch { patterns, memo, candidates };
        for (field, index) in &group.fields {
            if field.comes_later() && matches!(view.context.stage, BannerStage::Head | BannerStage::Part) {
                continue;
            }
            for value in view.values(field) {
                index.search(value, &mut search);
            }
        }
        if !group.headers.is_empty() {
            for header in view.headers().into_iter().flat_map(|headers| headers.iter()) {
                for index in find(&group.headers, header.name) {
                    index.search(header.value, &mut search);
                }
            }
            for index in find(&group.headers, HOST.as_bytes()) {
                view.hosts().iter().for_each(|host| index.search(host.as_bytes(), &mut search));
            }
        }
        // Several values may reach the same rule. Sorted, the rules are judged in the set's order.
        candidates.sort_unstable();
        candidates.dedup();
    }
}

impl SideIndex {
    fn new(rules: &[&Rule], patterns: &[RulePattern], requirements: &[LiteralRequirement]) -> Self {
        let popularity = popularity(rules);
        let mut drafts: BTreeMap<&BannerField, FieldIndexBuilder<'_>> = BTreeMap::new();
        // A rule about presence alone has no pattern. The name of its first field reaches it.
        let names: Vec<(BannerField, RuleIndex)> = rules
            .iter()
            .filter(|rule| rule.all.is_empty())
            .filter_map(|rule| Some((BannerField::Header(rule.present.first()?.clone()), rule_index(rule))))
            .collect();
        let mut free = Vec::new();
        for rule in rules {
            match pivot(rule, patterns, requirements, &popularity) {
                Some(condition) => {
                    let draft = drafts.entry(&condition.field).or_default();
                    draft.add(rule, &condition.test, versioned(rule, condition, patterns));
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
                BannerField::Header(name) => group.headers.push((name.clone(), index)),
                field => group.fields.push((field.clone(), index)),
            }
        }
        group.headers.sort_by(|left, right| compare_names(left.0.as_bytes(), right.0.as_bytes()));
        group
    }
}

fn rule_index(rule: &Rule) -> RuleIndex {
    RuleIndex::try_from(rule.index).unwrap_or(RuleIndex::MAX)
}

/// Returns the number of rules that try each pattern.
fn popularity(rules: &[&Rule]) -> HashMap<PatternId, usize> {
    let mut popularity = HashMap::new();
    for rule in rules {
        for condition in &rule.all {
            if let FieldTest::Patterns(ids) = &condition.test {
                for id in ids {
                    *popularity.entry(*id).or_default() += 1;
                }
            }
        }
    }
    popularity
}

/// Returns the condition through which a rule is reached: one with literals, and the least shared
/// of those. A condition that captures the version counts as less shared, because the version index
/// separates its rules.
fn pivot<'r>(
    rule: &'r Rule,
    patterns: &[RulePattern],
    requirements: &[LiteralRequirement],
    popularity: &HashMap<PatternId, usize>,
) -> Option<&'r RuleCondition> {
    // A list is one look-up, however long it is. A vague pattern requires no literal, so it would have to run
    // on every value.
    rule.all.iter().min_by_key(|condition| match &condition.test {
        FieldTest::Values(_) => (false, 0),
        FieldTest::Patterns(ids) => {
            let vague = |id: &PatternId| match requirements.get(id.index()) {
                Some(LiteralRequirement::Whole(_)) => false,
                Some(LiteralRequirement::Holds(sets)) => sets.is_empty(),
                None => true,
            };
            let shared = ids.iter().filter_map(|id| popularity.get(id).copied()).max().unwrap_or(0);
            let told_apart = versioned(rule, condition, patterns);
            // The ranges leave out most of the rules that share the pattern.
            (ids.iter().any(vague), if told_apart { shared.isqrt() } else { shared })
        }
    })
}

/// Returns true if the version that the rule asks for can come only from this condition's pattern.
fn versioned(rule: &Rule, condition: &RuleCondition, patterns: &[RulePattern]) -> bool {
    let tells = |id: &PatternId| patterns.get(id.index()).is_some_and(|pattern| pattern.has_group(VERSION));
    let one_pattern = matches!(&condition.test, FieldTest::Patterns(ids) if ids.len() == 1);
    let sources = rule.all.iter().filter(|one| match &one.test {
        FieldTest::Patterns(ids) => ids.iter().any(tells),
        FieldTest::Values(_) => false,
    });
    // With a second source, the version may come from there, and the ranges would leave the rule out.
    let only = sources.map(std::ptr::from_ref).eq([std::ptr::from_ref(condition)]);
    asked(rule).is_some() && !rule.fingerprint && one_pattern && only
}

/// Returns the versions that the rule asks for, or that its advisory covers.
fn asked(rule: &Rule) -> Option<&version::VersionRequirement> {
    rule.version.as_ref().or(rule.bounds.as_ref())
}

/// The parts from which one field's index is built.
#[derive(Default)]
struct FieldIndexBuilder<'r> {
    present: Vec<RuleIndex>,
    patterns: BTreeMap<PatternId, PatternUsers<'r>>,
    lists: Vec<(&'r Arc<ListValues>, Vec<RuleIndex>)>,
}

/// The rules that share a pattern.
#[derive(Default)]
struct PatternUsers<'r> {
    rules: Vec<RuleIndex>,
    /// Rules whose required version this pattern captures.
    versions: Vec<(&'r version::VersionRequirement, RuleIndex)>,
}

impl<'r> FieldIndexBuilder<'r> {
    fn add(&mut self, rule: &'r Rule, test: &'r FieldTest, versioned: bool) {
        let index = rule_index(rule);
        match test {
            FieldTest::Patterns(ids) => {
                for id in ids {
                    let sharers = self.patterns.entry(*id).or_default();
                    match asked(rule) {
                        Some(asked) if versioned => sharers.versions.push((asked, index)),
                        _ => sharers.rules.push(index),
                    }
                }
            }
            FieldTest::Values(list) => {
                match self.lists.iter_mut().find(|(known, _)| Arc::ptr_eq(known, list)) {
                    Some((_, rules)) => rules.push(index),
                    None => self.lists.push((list, vec![index])),
                }
            }
        }
    }

    fn build(self, patterns: &[RulePattern], requirements: &[LiteralRequirement]) -> FieldIndex {
        let requirement = |id: PatternId| requirements.get(id.index());
        let mut frequency: HashMap<&[u8], usize> = HashMap::new();
        for id in self.patterns.keys() {
            if let Some(LiteralRequirement::Holds(sets)) = requirement(*id) {
                for literal in sets.iter().flatten() {
                    *frequency.entry(literal).or_default() += 1;
                }
            }
        }
        let crowded = |set: &&Literals| {
            set.iter().any(|literal| frequency.get(literal.as_slice()).is_some_and(|count| *count > CROWD))
        };
        let mut versions = Vec::new();
        let mut whole: BTreeMap<&[u8], ReachedRules> = BTreeMap::new();
        let mut literals: BTreeMap<&[u8], ReachedRules> = BTreeMap::new();
        let mut others: Vec<(PatternId, ReachedRules)> = Vec::new();
        for (id, sharers) in self.patterns {
            let reach = sharers.reach(id, &mut versions);
            let (into, set) = match requirement(id) {
                Some(LiteralRequirement::Whole(set)) => (&mut whole, Some(set)),
                Some(LiteralRequirement::Holds(sets)) => {
                    (&mut literals, rarest(sets, &frequency).filter(|set| !crowded(set)))
                }
                None => (&mut literals, None),
            };
            match set {
                Some(set) => set.iter().for_each(|literal| into.entry(literal).or_default().add(&reach)),
                None => others.push((id, reach)),
            }
        }
        let mut index = FieldIndex {
            present: self.present,
            whole: whole.into_iter().map(|(value, reach)| (value.to_vec(), reach)).collect(),
            lists: self.lists.into_iter().map(|(list, rules)| (list.clone(), rules)).collect(),
            versions,
            ..FieldIndex::default()
        };
        index.set_literals(literals);
        index.set_others(others, patterns);
        index
    }
}

impl PatternUsers<'_> {
    /// Returns what the pattern `id` reaches. The versions of several rules get an index.
    fn reach(mut self, id: PatternId, versions: &mut Vec<(PatternId, VersionRangeIndex)>) -> ReachedRules {
        if self.versions.len() < 2 {
            self.rules.extend(self.versions.iter().map(|(_, rule)| rule));
            return ReachedRules { rules: self.rules, versions: Vec::new() };
        }
        versions.push((id, VersionRangeIndex::new(&self.versions)));
        ReachedRules { rules: self.rules, versions: vec![versions.len() - 1] }
    }
}

/// Number of patterns that may share a literal. More are compiled together, so that one banner does
/// not run each of them.
const CROWD: usize = 16;

/// The set whose literals fewest patterns hold, longer ones first.
fn rarest<'s>(sets: &'s [Literals], frequency: &HashMap<&[u8], usize>) -> Option<&'s Literals> {
    sets.iter().min_by_key(|set| {
        let shared: usize = set.iter().filter_map(|literal| frequency.get(literal.as_slice())).sum();
        // Two bytes occur in many texts by chance.
        (shortest(set) < 3, shared, std::cmp::Reverse(shortest(set)))
    })
}

impl FieldIndex {
    fn set_literals(&mut self, literals: BTreeMap<&[u8], ReachedRules>) {
        if literals.is_empty() {
            return;
        }
        // Without case, whatever the pattern says: a wrong candidate only costs time.
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(literals.keys());
        match automaton {
            Ok(automaton) => {
                self.literals = Some(automaton);
                self.literal_reach = literals.into_values().collect();
            }
            // The literals need more state numbers than there are. Trying every rule is slow, but
            // correct.
            Err(_) => literals.values().for_each(|reach| self.always.add(reach)),
        }
    }

    fn set_others(&mut self, others: Vec<(PatternId, ReachedRules)>, patterns: &[RulePattern]) {
        if others.is_empty() {
            return;
        }
        let own: Vec<&RulePattern> = others.iter().filter_map(|(id, _)| patterns.get(id.index())).collect();
        match together(&own) {
            Some(regex) => {
                self.others = Some(regex);
                self.other_reach = others.into_iter().map(|(_, reach)| reach).collect();
            }
            None => others.iter().for_each(|(_, reach)| self.always.add(reach)),
        }
    }

    /// Adds the rules that a value reaches.
    fn search<'v>(&self, value: &'v [u8], search: &mut CandidateSearch<'_, 'v>) {
        search.candidates.extend_from_slice(&self.present);
        self.follow(&self.always, value, search);
        if let Ok(at) = self.whole.binary_search_by(|(known, _)| compare(known, value)) {
            self.whole.get(at).into_iter().for_each(|(_, reach)| self.follow(reach, value, search));
        }
        for (list, rules) in &self.lists {
            if list.entries.contains(value) {
                search.candidates.extend_from_slice(rules);
            }
        }
        // With overlaps, because one literal may lie within another.
        for found in self.literals.iter().flat_map(|literals| literals.find_overlapping_iter(value)) {
            let reach = self.literal_reach.get(found.pattern().as_usize());
            reach.into_iter().for_each(|reach| self.follow(reach, value, search));
        }
        // `is_match` stops at the first match and costs the same for any number of patterns. Only
        // the search for all matches is expensive, so it runs second.
        if let Some(others) = self.others.as_ref().filter(|others| others.is_match(value)) {
            let mut found = PatternSet::new(others.pattern_len());
            others.which_overlapping_matches(&Input::new(value), &mut found);
            for id in found.iter() {
                let reach = self.other_reach.get(id.as_usize());
                reach.into_iter().for_each(|reach| self.follow(reach, value, search));
            }
        }
    }

    fn follow<'v>(&self, reach: &ReachedRules, value: &'v [u8], search: &mut CandidateSearch<'_, 'v>) {
        search.candidates.extend_from_slice(&reach.rules);
        for (id, ranges) in reach.versions.iter().filter_map(|at| self.versions.get(*at)) {
            let captured = search.memo.capture(*id, search.patterns, value);
            if let Some(version) = captured.and_then(|captured| captured.version) {
                ranges.search(version, search.candidates);
            }
        }
    }
}

/// Returns the indices of the header `name`, ignoring case. There is more than one only if rules
/// write a name both with `-` and with `_`.
fn find<'i>(headers: &'i [(String, FieldIndex)], name: &[u8]) -> impl Iterator<Item = &'i FieldIndex> {
    let first = headers.partition_point(|(known, _)| compare_names(known.as_bytes(), name).is_lt());
    let from = headers.get(first..).unwrap_or_default();
    from.iter().take_while(move |(known, _)| same_name(name, known)).map(|(_, index)| index)
}

/// Compares a text in lower case with another one without regard to ASCII case.
fn compare(lower: &[u8], value: &[u8]) -> Ordering {
    lower.iter().copied().cmp(value.iter().map(u8::to_ascii_lowercase))
}

/// Compares names of header fields, low lines taken for hyphens as in [`same_name`].
fn compare_names(one: &[u8], other: &[u8]) -> Ordering {
    let folded = |octet: &u8| if *octet == b'_' { b'-' } else { octet.to_ascii_lowercase() };
    one.iter().map(folded).cmp(other.iter().map(folded))
}
