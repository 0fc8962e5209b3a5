//! Patterns: the regex crate's syntax over bytes. Patterns are checked on loading and compiled on
//! first use.
//!
//! Unicode is off unless a pattern sets `(?u)`. Then `.` and `\w` match bytes, so a banner with
//! bytes that are not UTF-8 cannot evade a rule, and case folding is ASCII's. Matching takes time
//! linear in the banner's length for every pattern. Rules that use the same pattern share it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use regex_automata::meta::{self, Regex};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};
use regex_syntax::hir::{Hir, HirKind};

use super::limits;

/// A pattern of a rule set, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PatternId(u32);

impl PatternId {
    pub(super) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The group whose text is the version.
pub(super) const VERSION: &str = "version";
/// The group whose text is the product.
pub(super) const PRODUCT: &str = "product";
/// The group whose text is the distribution's name.
pub(super) const DISTRIBUTION: &str = "distribution";
/// The group whose text is the distribution's revision.
pub(super) const REVISION: &str = "revision";

/// Named groups that have a meaning in rules.
const KNOWN: [&str; 4] = [PRODUCT, VERSION, DISTRIBUTION, REVISION];
/// Number of groups whose positions fit on the stack.
const FEW_GROUPS: usize = 8;

/// One checked pattern.
#[derive(Debug)]
pub(super) struct RulePattern {
    text: String,
    /// Names and numbers of its groups.
    groups: Vec<(String, usize)>,
    /// Numbers of the groups in [`KNOWN`].
    known: [Option<usize>; KNOWN.len()],
    impossible: bool,
    regex: OnceLock<Option<Regex>>,
}

impl RulePattern {
    /// Returns the pattern as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// True if it matches nothing at all, such as `[^\s\S]`.
    pub(super) fn is_impossible(&self) -> bool {
        self.impossible
    }

    /// True if it has a group of this name.
    pub(super) fn has_group(&self, name: &str) -> bool {
        self.groups.iter().any(|(group, _)| group == name)
    }

    /// True if it has a group of [`KNOWN`].
    pub(super) fn has_known_group(&self) -> bool {
        self.known.iter().any(Option::is_some)
    }

    /// True if it matches somewhere in `value`.
    pub(super) fn is_match(&self, value: &[u8]) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(value))
    }

    /// Returns the groups of [`KNOWN`] in the first match: product, version, distribution and
    /// revision.
    // The slots of all groups up to the last wanted one are needed; most patterns have few, so they
    // fit on the stack.
    pub(super) fn captures<'v>(&self, value: &'v [u8]) -> Option<[Option<&'v [u8]>; KNOWN.len()]> {
        let groups = self.known.iter().flatten().max()? + 1;
        let mut few = [None; 2 * FEW_GROUPS];
        let mut many = Vec::new();
        let slots = if groups <= FEW_GROUPS {
            few.get_mut(..2 * groups)?
        } else {
            many.resize(2 * groups, None);
            &mut many
        };
        self.regex()?.search_slots(&Input::new(value), slots)?;
        Some(self.known.map(|group| text(value, slots, group?)))
    }

    /// Returns the compiled pattern. Its program was built and measured on loading, so compiling
    /// fails only if memory runs out.
    fn regex(&self) -> Option<&Regex> {
        self.regex.get_or_init(|| compile(&self.text)).as_ref()
    }
}

/// Returns the text of a group: from the position in its first slot to the one in its second.
fn text<'v>(value: &'v [u8], slots: &[Option<NonMaxUsize>], group: usize) -> Option<&'v [u8]> {
    let place = |slot: usize| slots.get(slot).copied().flatten().map(NonMaxUsize::get);
    value.get(place(2 * group)?..place(2 * group + 1)?)
}

fn compile(text: &str) -> Option<Regex> {
    // No limit here: `intern` has measured the program already.
    let config = meta::Config::new()
        .utf8_empty(false)
        .nfa_size_limit(None)
        .hybrid_cache_capacity(limits::LAZY_AUTOMATON_OCTETS);
    meta::Regex::builder().configure(config).syntax(language()).build(text).ok()
}

/// Compiles several patterns into one that reports which of them match; none if it is too large.
pub(super) fn together(patterns: &[&RulePattern]) -> Option<Regex> {
    let texts: Vec<&str> = patterns.iter().map(|pattern| pattern.text()).collect();
    // `All`, because the default reports only the first pattern that matches at the leftmost position. No
    // groups: this set only selects candidates, and each group would take memory.
    let config = meta::Config::new()
        .match_kind(MatchKind::All)
        .utf8_empty(false)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(limits::PROGRAM_OCTETS * 64))
        .hybrid_cache_capacity(limits::LAZY_AUTOMATON_OCTETS * 16);
    meta::Regex::builder().configure(config).syntax(language()).build_many(&texts).ok()
}

fn language() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).nest_limit(limits::PATTERN_NESTING)
}

/// Fault of a pattern, with its bytes if one position is at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatternFault {
    pub(super) span: Option<Range<usize>>,
    pub(super) message: String,
}

impl PatternFault {
    fn whole(message: impl Into<String>) -> Self {
        Self { span: None, message: message.into() }
    }
}

/// Parts of a pattern that only the compiler of the index needs.
#[derive(Debug)]
pub(super) struct PatternSyntax {
    /// Its syntax tree.
    pub(super) hir: Hir,
}

/// All patterns of a rule set, without duplicates.
#[derive(Debug, Default)]
pub(super) struct PatternTable {
    patterns: Vec<RulePattern>,
    shapes: Vec<PatternSyntax>,
    known: HashMap<String, PatternId>,
    work: usize,
}

impl PatternTable {
    /// Returns the pattern `text`. A new one is checked and measured first.
    pub(super) fn intern(&mut self, text: &str) -> Result<PatternId, PatternFault> {
        if let Some(id) = self.known.get(text) {
            return Ok(*id);
        }
        if text.len() > limits::PATTERN_OCTETS {
            let message =
                format!("a pattern of {} bytes; at most {} are allowed", text.len(), limits::PATTERN_OCTETS);
            return Err(PatternFault::whole(message));
        }
        if self.work > limits::ALL_PROGRAMS {
            return Err(PatternFault::whole(
                "the patterns of all rules together need too much memory; this one was not read",
            ));
        }
        let hir = parse(text)?;
        self.work += tree_work(&hir);
        let program = self.measure(&hir);
        // A refused pattern has cost as much as the largest accepted one. Counted, a file of such patterns
        // cannot keep the loader busy for long.
        self.work += *program.as_ref().unwrap_or(&limits::PROGRAM_OCTETS);
        program?;
        let id = PatternId(u32::try_from(self.patterns.len()).unwrap_or(u32::MAX));
        let groups = group_names(&hir);
        let number = |name: &str| groups.iter().find(|(group, _)| group == name).map(|(_, number)| *number);
        let known = KNOWN.map(number);
        // regex-syntax knows no minimum length exactly if the expression never matches.
        let impossible = hir.properties().minimum_len().is_none();
        let regex = OnceLock::new();
        self.patterns.push(RulePattern { text: text.to_owned(), groups, known, impossible, regex });
        self.shapes.push(PatternSyntax { hir });
        self.known.insert(text.to_owned(), id);
        Ok(id)
    }

    /// Returns the size of the program of `hir` in bytes, if it is within the limit.
    fn measure(&self, hir: &Hir) -> Result<usize, PatternFault> {
        let config =
            thompson::Config::new().utf8(false).shrink(false).nfa_size_limit(Some(limits::PROGRAM_OCTETS));
        let nfa = NFA::compiler().configure(config).build_from_hir(hir);
        nfa.map(|nfa| nfa.memory_usage()).map_err(|error| match error.size_limit() {
            Some(_) => PatternFault::whole(format!(
                "the compiled pattern is larger than {} KiB; are its repetitions needed?",
                limits::PROGRAM_OCTETS >> 10
            )),
            None => PatternFault::whole(error.to_string()),
        })
    }

    pub(super) fn get(&self, id: PatternId) -> Option<&RulePattern> {
        self.patterns.get(id.index())
    }

    /// Splits into the patterns and the parts that only compiling needs.
    pub(super) fn into_parts(self) -> (Vec<RulePattern>, Vec<PatternSyntax>) {
        (self.patterns, self.shapes)
    }
}

fn parse(text: &str) -> Result<Hir, PatternFault> {
    let mut parser = regex_syntax::ParserBuilder::new();
    let parser = parser.unicode(false).utf8(false).nest_limit(limits::PATTERN_NESTING);
    parser.build().parse(text).map_err(|error| match &error {
        regex_syntax::Error::Parse(fault) => syntax_fault(fault.span(), fault.kind()),
        regex_syntax::Error::Translate(fault) => syntax_fault(fault.span(), fault.kind()),
        other => PatternFault::whole(other.to_string()),
    })
}

fn syntax_fault(span: &regex_syntax::ast::Span, kind: &impl ToString) -> PatternFault {
    PatternFault { span: Some(span.start.offset..span.end.offset), message: kind.to_string() }
}

/// Returns a measure of the cost of reading the tree: classes may hold many ranges.
fn tree_work(hir: &Hir) -> usize {
    let mut work = 0_usize;
    visit(hir, &mut |hir| {
        work += match hir.kind() {
            HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => 16 * class.ranges().len(),
            HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => 4 * class.ranges().len(),
            HirKind::Literal(literal) => literal.0.len(),
            _ => 64,
        };
    });
    work
}

fn group_names(hir: &Hir) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    visit(hir, &mut |hir| {
        if let HirKind::Capture(capture) = hir.kind() {
            let number = usize::try_from(capture.index).unwrap_or(usize::MAX);
            names.extend(capture.name.as_deref().map(|name| (name.to_owned(), number)));
        }
    });
    names
}

/// Calls `on` for each node. [`limits::PATTERN_NESTING`] bounds the recursion.
fn visit(hir: &Hir, on: &mut impl FnMut(&Hir)) {
    on(hir);
    for sub in hir.kind().subs() {
        visit(sub, on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_octets_that_are_no_utf8() {
        let mut patterns = PatternTable::default();
        let id = patterns.intern(r"^Open.SSH_(?<version>\d+)(?i:x)$").unwrap();
        let pattern = patterns.get(id).unwrap();
        assert!(pattern.is_match(b"Open\xffSSH_9X"));
        assert!(pattern.has_group(VERSION));
        assert_eq!(pattern.captures(b"Open\xffSSH_12x"), Some([None, Some(b"12".as_slice()), None, None]));
        assert_eq!(pattern.captures(b"OpenSSH_x"), None);
    }

    #[test]
    fn groups_are_told_apart_however_many_there_are() {
        let mut patterns = PatternTable::default();
        let unnamed = "(x)?".repeat(FEW_GROUPS);
        let text = format!(r"^{unnamed}(?<revision>r)?(?<product>\w+)/(?<version>[\d.]*)");
        let id = patterns.intern(&text).unwrap();
        let captures = patterns.get(id).unwrap().captures(b"xnginx/1.2").unwrap();
        assert_eq!(captures, [Some(b"nginx".as_slice()), Some(b"1.2"), None, None]);
    }

    #[test]
    fn one_text_is_one_pattern() {
        let mut patterns = PatternTable::default();
        let id = patterns.intern("a").unwrap();
        assert_eq!(patterns.intern("a"), Ok(id));
        assert_ne!(patterns.intern("b"), Ok(id));
        assert_eq!(patterns.into_parts().0.len(), 2);
    }

    #[test]
    fn faults_say_which_octets() {
        let fault = PatternTable::default().intern("ab(c").unwrap_err();
        assert_eq!(fault.span, Some(2..3));
        assert!(fault.message.contains("unclosed group"), "{}", fault.message);
        let fault = PatternTable::default().intern(r"x(?<a>1)(?<a>2)").unwrap_err();
        assert!(fault.span.is_some(), "{fault:?}");
    }

    #[test]
    fn exploding_patterns_are_refused_soon() {
        let nested = format!("{}a{}", "(".repeat(2_000), ")".repeat(2_000));
        let long = "a".repeat(limits::PATTERN_OCTETS + 1);
        for text in ["(?:a{1000}){1000}", r"(?:(?:\w{99}){99}){99}", &nested, &long, r"(?u)\pL{1000}{1000}"] {
            assert!(PatternTable::default().intern(text).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn all_patterns_together_are_bounded() {
        let mut patterns = PatternTable::default();
        let refused = (0..10_000).find_map(|n| patterns.intern(&format!("a{{2000}}{n}")).err());
        assert!(refused.is_some_and(|fault| fault.message.contains("together")));
    }
}
