//! Literals that every match of a pattern contains.
//!
//! All literals are in ASCII lower case. They serve only to skip patterns, so a set may admit too
//! many texts but never too few.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// Literals of which at least one is in every match.
pub(super) type Literals = BTreeSet<Vec<u8>>;

/// Largest number of literals in one set.
const SET_LIMIT: usize = 32;

/// Length of the longest literal that is put together, in bytes.
const LENGTH_LIMIT: usize = 64;

/// Length of the shortest useful literal: shorter ones are in too many texts.
const SHORTEST: usize = 2;

/// The property of a text that a match of the pattern requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LiteralRequirement {
    /// The whole text, in lower case, is one of these.
    Whole(Literals),
    /// For each of these sets, the text holds one of its literals.
    Holds(Vec<Literals>),
}

/// Returns what a text must contain for `hir` to match somewhere in it.
pub(super) fn required(hir: &Hir) -> LiteralRequirement {
    let facts = facts(hir);
    // Both sets hold only assertions that every alternative requires.
    let anchored = hir.properties().look_set_prefix().contains(Look::Start)
        && hir.properties().look_set_suffix().contains(Look::End);
    match facts.exact {
        Some(exact) if anchored => LiteralRequirement::Whole(exact),
        Some(exact) => LiteralRequirement::Holds(useful(exact).into_iter().collect()),
        None => LiteralRequirement::Holds(facts.required),
    }
}

/// Facts about the texts that a part of a pattern matches.
#[derive(Default)]
struct LiteralFacts {
    /// All of them, if there are few.
    exact: Option<Literals>,
    /// Sets of literals; each match contains one literal of each set.
    required: Vec<Literals>,
}

impl LiteralFacts {
    fn exactly(literals: Literals) -> Self {
        Self { exact: Some(literals), required: Vec::new() }
    }

    /// Returns the best single set.
    fn best(self) -> Option<Literals> {
        let exact = self.exact.and_then(useful);
        exact
            .into_iter()
            .chain(self.required)
            .max_by_key(|set| (shortest(set), SET_LIMIT - set.len().min(SET_LIMIT)))
    }
}

fn facts(hir: &Hir) -> LiteralFacts {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => LiteralFacts::exactly(empty()),
        HirKind::Literal(literal) if literal.0.len() <= LENGTH_LIMIT => {
            LiteralFacts::exactly(BTreeSet::from([literal.0.to_ascii_lowercase()]))
        }
        HirKind::Literal(literal) => {
            let head = literal.0.get(..LENGTH_LIMIT).unwrap_or_default().to_ascii_lowercase();
            LiteralFacts { exact: None, required: vec![BTreeSet::from([head])] }
        }
        HirKind::Class(class) => class_literals(class).map(LiteralFacts::exactly).unwrap_or_default(),
        HirKind::Repetition(repetition) => repeated(repetition),
        HirKind::Capture(capture) => facts(&capture.sub),
        HirKind::Concat(parts) => concatenated(parts),
        HirKind::Alternation(parts) => alternatives(parts),
    }
}

fn empty() -> Literals {
    BTreeSet::from([Vec::new()])
}

fn class_literals(class: &Class) -> Option<Literals> {
    // With both cases of each letter there are twice as many members as literals.
    let limit = 2 * SET_LIMIT;
    let members: Vec<Vec<u8>> = match class {
        Class::Bytes(class) => class
            .iter()
            .flat_map(|range| range.start()..=range.end())
            .take(limit + 1)
            .map(|octet| vec![octet])
            .collect(),
        Class::Unicode(class) => class
            .iter()
            .flat_map(|range| range.start()..=range.end())
            .take(limit + 1)
            .map(|character| character.to_string().into_bytes())
            .collect(),
    };
    if members.len() > limit {
        return None;
    }
    let literals: Literals = members.into_iter().map(|member| member.to_ascii_lowercase()).collect();
    (literals.len() <= SET_LIMIT).then_some(literals)
}

fn repeated(repetition: &Repetition) -> LiteralFacts {
    let sub = facts(&repetition.sub);
    match (repetition.min, repetition.max) {
        (0, Some(1)) => {
            // Without the part, its place is empty. So none of its literals is required.
            let exact = sub.exact.and_then(|exact| bounded(exact.into_iter().chain(empty()).collect()));
            LiteralFacts { exact, required: Vec::new() }
        }
        (0, _) => LiteralFacts::default(),
        (1, Some(1)) => sub,
        // The part occurs at least once, so its literals are required; their number is open.
        _ => LiteralFacts {
            exact: None,
            required: sub.exact.and_then(useful).into_iter().chain(sub.required).collect(),
        },
    }
}

fn concatenated(parts: &[Hir]) -> LiteralFacts {
    let mut required = Vec::new();
    let mut run = empty();
    let mut whole = true;
    for part in parts {
        let part = facts(part);
        let joined = part.exact.as_ref().and_then(|exact| joined(&run, exact));
        match (joined, part.exact) {
            (Some(joined), _) => run = joined,
            (None, exact) => {
                // The run cannot grow: the literals collected so far are required as they are.
                whole = false;
                required.extend(useful(std::mem::replace(&mut run, exact.unwrap_or_else(empty))));
                required.extend(part.required);
            }
        }
    }
    if whole {
        return LiteralFacts::exactly(run);
    }
    required.extend(useful(run));
    LiteralFacts { exact: None, required }
}

fn alternatives(parts: &[Hir]) -> LiteralFacts {
    let parts: Vec<LiteralFacts> = parts.iter().map(facts).collect();
    if parts.iter().all(|part| part.exact.is_some()) {
        let all: Literals = parts.iter().filter_map(|part| part.exact.clone()).flatten().collect();
        if let Some(exact) = bounded(all) {
            return LiteralFacts::exactly(exact);
        }
    }
    // If one alternative requires nothing, the whole requires nothing.
    let best: Option<Vec<Literals>> = parts.into_iter().map(LiteralFacts::best).collect();
    let union = best.and_then(|sets| bounded(sets.into_iter().flatten().collect()));
    LiteralFacts { exact: None, required: union.into_iter().collect() }
}

/// Returns each of `left` followed by each of `right`, unless these are too many or too long.
fn joined(left: &Literals, right: &Literals) -> Option<Literals> {
    if left.len() * right.len() > SET_LIMIT {
        return None;
    }
    let pairs = left.iter().flat_map(|head| right.iter().map(move |tail| [head.as_slice(), tail].concat()));
    let joined: Literals = pairs.collect();
    joined.iter().all(|literal| literal.len() <= LENGTH_LIMIT).then_some(joined)
}

fn bounded(literals: Literals) -> Option<Literals> {
    (literals.len() <= SET_LIMIT).then_some(literals)
}

fn useful(literals: Literals) -> Option<Literals> {
    (shortest(&literals) >= SHORTEST).then_some(literals)
}

/// Length of the shortest literal, 0 for none.
pub(super) fn shortest(literals: &Literals) -> usize {
    literals.iter().map(Vec::len).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pattern: &str) -> Hir {
        regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).unwrap()
    }

    fn holds(pattern: &str) -> Vec<Vec<String>> {
        let LiteralRequirement::Holds(sets) = required(&parse(pattern)) else { panic!("{pattern}: whole") };
        sets.into_iter()
            .map(|set| set.into_iter().map(|literal| String::from_utf8(literal).unwrap()).collect())
            .collect()
    }

    #[test]
    fn literals_that_no_match_can_do_without_are_found() {
        assert_eq!(holds("^OpenSSH_(?<version>\\d+\\.\\d+)"), [["openssh_"]]);
        assert_eq!(holds("(?i)^Apache/2\\.4\\.(49|50)\\b"), [["apache/2.4.49", "apache/2.4.50"]]);
        assert_eq!(holds("foo.*bar"), [["foo"], ["bar"]]);
        assert_eq!(
            holds("(foo|ba[rz])x+"),
            [vec!["barx", "bazx", "foox"]].map(|_| vec!["bar", "baz", "foo"])
        );
        assert_eq!(holds("(ab){2,}c?"), [["ab"]]);
        assert_eq!(holds("\\d+\\.\\d+"), Vec::<Vec<String>>::new());
        assert_eq!(holds("(foo)?\\d+"), Vec::<Vec<String>>::new());
        assert_eq!(holds("foo|\\d"), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_pattern_of_the_whole_text_is_known_as_such() {
        let whole = |pattern: &str| required(&parse(pattern));
        let set = |literals: &[&str]| {
            LiteralRequirement::Whole(literals.iter().map(|literal| literal.as_bytes().to_vec()).collect())
        };
        assert_eq!(whole("^200$"), set(&["200"]));
        assert_eq!(whole("^(?:GET|POST)$"), set(&["get", "post"]));
        assert_eq!(whole("^a?$"), set(&["", "a"]));
        assert!(matches!(whole("^200"), LiteralRequirement::Holds(_)));
        assert!(matches!(whole("(?m)^200$"), LiteralRequirement::Holds(_)));
        assert!(matches!(whole("^a|b$"), LiteralRequirement::Holds(_)));
    }
}
