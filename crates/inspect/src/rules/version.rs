//! Versions of upstream software, and the requirements of rules.
//!
//! One order serves all projects that rules name: `9.2p1` (OpenSSH), `2022.83` (dropbear), `2.4.58`
//! (Apache, nginx, PHP), `1.0.2k` (OpenSSL), and pre-releases such as `2.0.0-rc.1`. A version is
//! read as numbers and words:
//!
//! - numbers compare as numbers, whatever their length; a missing one is 0, so `2.4` = `2.4.0`;
//! - a word that names a pre-release (`dev`, `alpha`, `beta`, `pre`, `rc` and the like) comes
//!   before the end: `2.0rc1` < `2.0`; every other word comes after it: `9.2` < `9.2p1`, `1.0.2` <
//!   `1.0.2k`;
//! - words compare as text without regard to case; a number is greater than a word: `1.0a` < `1.0.1`;
//! - all other characters only separate.
//!
//! Distribution packages have another order, see [`debian`](super::debian).

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Range, RangeInclusive};

/// Compares two versions in the order that the module describes.
pub fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (mut left, mut right) = (VersionTokens(left), VersionTokens(right));
    loop {
        match left.compare_numbers(&mut right) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
        let (left_word, right_word) = (left.word(), right.word());
        match rank(left_word).cmp(&rank(right_word)).then_with(|| compare_words(left_word, right_word)) {
            Ordering::Equal if left_word.is_none() => return Ordering::Equal,
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
}

/// The rest of a version.
#[derive(Clone, Copy)]
struct VersionTokens<'a>(&'a [u8]);

impl<'a> VersionTokens<'a> {
    /// Compares the numbers before the next word of both; a missing number is 0.
    fn compare_numbers(&mut self, other: &mut Self) -> Ordering {
        loop {
            let (left, right) = (self.number(), other.number());
            if left.is_none() && right.is_none() {
                return Ordering::Equal;
            }
            let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
            // Without leading zeros, the longer number is greater.
            match left.len().cmp(&right.len()).then_with(|| left.cmp(right)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
    }

    /// Returns the next number without leading zeros, unless a word or the end comes first.
    fn number(&mut self) -> Option<&'a [u8]> {
        let digits = self.run(u8::is_ascii_digit)?;
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.get(zeros..)
    }

    /// Returns the next word, none at the end.
    fn word(&mut self) -> Option<&'a [u8]> {
        self.run(u8::is_ascii_alphabetic)
    }

    /// Returns the next run of `wanted` bytes after the separators, if one follows.
    fn run(&mut self, wanted: fn(&u8) -> bool) -> Option<&'a [u8]> {
        let start = self.0.iter().position(u8::is_ascii_alphanumeric)?;
        let rest = self.0.get(start..)?;
        let length = rest.iter().take_while(|octet| wanted(octet)).count();
        if length == 0 {
            return None;
        }
        let (run, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some(run)
    }
}

/// Rank of a version's end among the words: after pre-releases, before all others.
const END: u8 = 5;

/// Names of pre-releases and their order.
const PRE_RELEASES: &[(&str, u8)] = &[
    ("dev", 0),
    ("snapshot", 0),
    ("nightly", 0),
    ("git", 0),
    ("test", 0),
    ("alpha", 1),
    ("beta", 2),
    ("milestone", 3),
    ("m", 3),
    ("pre", 3),
    ("preview", 3),
    ("rc", 4),
    ("cr", 4),
];

fn rank(word: Option<&[u8]>) -> u8 {
    let Some(word) = word else { return END };
    let known = PRE_RELEASES.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    known.map_or(END + 1, |(_, rank)| *rank)
}

fn compare_words(left: Option<&[u8]>, right: Option<&[u8]>) -> Ordering {
    let (Some(left), Some(right)) = (left, right) else { return Ordering::Equal };
    // Different names of pre-releases have the same rank if they mean the same stage.
    if rank(Some(left)) < END {
        return Ordering::Equal;
    }
    let lower = |word: &'_ [u8]| word.to_ascii_lowercase();
    lower(left).cmp(&lower(right))
}

/// The comparison of a version with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionOperator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

/// Spellings, longer ones first.
const OPERATORS: &[(&str, VersionOperator)] = &[
    ("<=", VersionOperator::LessOrEqual),
    (">=", VersionOperator::GreaterOrEqual),
    ("!=", VersionOperator::NotEqual),
    ("==", VersionOperator::Equal),
    ("<", VersionOperator::Less),
    (">", VersionOperator::Greater),
    ("=", VersionOperator::Equal),
];

impl VersionOperator {
    const fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct VersionBound {
    operator: VersionOperator,
    version: String,
}

impl VersionBound {
    fn admits(&self, version: &[u8]) -> bool {
        self.operator.holds(compare(version, self.version.as_bytes()))
    }
}

/// The versions that a rule is about: `>=8.5p1, <9.8p1 || =1.2.3`.
///
/// Commas join bounds that must all hold. `||` separates alternatives; one of them must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRequirement {
    text: String,
    alternatives: Vec<Vec<VersionBound>>,
}

/// Fault of a requirement, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementFault {
    /// The bytes at fault.
    pub span: Range<usize>,
    /// Description of the fault.
    pub message: String,
}

impl VersionRequirement {
    /// Reads a requirement.
    ///
    /// # Errors
    ///
    /// Returns the first part that is no bound, with its position in `text`.
    pub fn parse(text: &str) -> Result<Self, RequirementFault> {
        let mut alternatives = Vec::new();
        let mut start = 0;
        for alternative in text.split("||") {
            let mut bounds = Vec::new();
            let mut at = start;
            for part in alternative.split(',') {
                bounds.push(bound(part, at)?);
                at += part.len() + 1;
            }
            alternatives.push(bounds);
            start += alternative.len() + 2;
        }
        Ok(Self { text: text.to_owned(), alternatives })
    }

    /// True if `version` satisfies the requirement.
    pub fn admits(&self, version: &[u8]) -> bool {
        self.alternatives.iter().any(|bounds| bounds.iter().all(|bound| bound.admits(version)))
    }

    /// Returns the end of the run that contains `version`: the first version after it that the
    /// alternative excludes.
    pub(super) fn end_of(&self, version: &[u8]) -> Option<&str> {
        let own = self.alternatives.iter().find(|bounds| bounds.iter().all(|bound| bound.admits(version)))?;
        own.iter().find(|bound| bound.operator == VersionOperator::Less).map(|bound| bound.version.as_str())
    }

    /// Returns every version in a bound.
    pub(super) fn versions(&self) -> impl Iterator<Item = &str> {
        self.alternatives.iter().flatten().map(|bound| bound.version.as_str())
    }

    /// Returns the runs of admitted cells, one for each alternative. `cell` returns the odd cell of
    /// a bound's version; even cells are the gaps between. `last` is the last cell. `!=` excludes
    /// nothing here.
    pub(super) fn runs(&self, last: usize, cell: impl Fn(&[u8]) -> usize) -> Vec<RangeInclusive<usize>> {
        let run = |bounds: &Vec<VersionBound>| {
            bounds.iter().fold(0..=last, |run, bound| {
                let at = cell(bound.version.as_bytes());
                let (low, high) = match bound.operator {
                    VersionOperator::Less => (0, at.saturating_sub(1)),
                    VersionOperator::LessOrEqual => (0, at),
                    VersionOperator::Equal => (at, at),
                    VersionOperator::NotEqual => (0, last),
                    VersionOperator::GreaterOrEqual => (at, last),
                    VersionOperator::Greater => (at + 1, last),
                };
                low.max(*run.start())..=high.min(*run.end())
            })
        };
        self.alternatives.iter().map(run).filter(|run| !run.is_empty()).collect()
    }

    /// True if some version can satisfy it: false for `>2, <1`.
    pub fn is_satisfiable(&self) -> bool {
        self.alternatives.iter().any(|bounds| satisfiable(bounds))
    }
}

impl fmt::Display for VersionRequirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Reads one bound, `>=8.5p1`, that starts at byte `at` of the requirement.
fn bound(part: &str, at: usize) -> Result<VersionBound, RequirementFault> {
    let trimmed = part.trim();
    let start = at + (part.len() - part.trim_start().len());
    let fault = |span: Range<usize>, message: &str| RequirementFault { span, message: message.to_owned() };
    if trimmed.is_empty() {
        let message = "a bound is missing here, such as `>=8.5p1`";
        return Err(fault(at..at + part.len().max(1), message));
    }
    let Some((spelling, operator)) = OPERATORS.iter().find(|(spelling, _)| trimmed.starts_with(spelling))
    else {
        let message = "a bound starts with one of `<`, `<=`, `=`, `!=`, `>=`, `>`";
        return Err(fault(start..start + trimmed.len(), message));
    };
    let rest = trimmed.get(spelling.len()..).unwrap_or_default();
    let version = rest.trim_start();
    let version_start = start + trimmed.len() - version.len();
    let span = version_start..(version_start + version.len()).max(start + trimmed.len());
    if !version.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(fault(span, "a version starts with a digit"));
    }
    let allowed = |character: char| character.is_ascii_alphanumeric() || "._+~-".contains(character);
    if let Some(at) = version.find(|character| !allowed(character)) {
        let behind = version.get(at..).unwrap_or_default();
        if OPERATORS.iter().any(|(spelling, _)| behind.contains(spelling)) {
            let message = "bounds are joined by a comma: `>=1.0, <2.0`";
            return Err(fault(version_start + at..version_start + version.len(), message));
        }
        let message = "a version is made of letters, digits and `.`, `_`, `+`, `~`, `-`";
        return Err(fault(version_start + at..version_start + version.len(), message));
    }
    Ok(VersionBound { operator: *operator, version: version.to_owned() })
}

/// True if some version satisfies all bounds. Between two different versions there is always
/// another one (`1.0` < `1.0a` < `1.0b`), so only the extremes decide.
fn satisfiable(bounds: &[VersionBound]) -> bool {
    let exact = bounds.iter().find(|bound| bound.operator == VersionOperator::Equal);
    // No other version can satisfy the bounds, so this one decides.
    if let Some(exact) = exact {
        return bounds.iter().all(|bound| bound.admits(exact.version.as_bytes()));
    }
    let lower = |bound: &&VersionBound| {
        matches!(bound.operator, VersionOperator::Greater | VersionOperator::GreaterOrEqual)
    };
    let upper = |bound: &&VersionBound| {
        matches!(bound.operator, VersionOperator::Less | VersionOperator::LessOrEqual)
    };
    bounds.iter().filter(lower).all(|low| {
        bounds.iter().filter(upper).all(|high| {
            match compare(low.version.as_bytes(), high.version.as_bytes()) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => {
                    let point = low.version.as_bytes();
                    bounds.iter().all(|bound| bound.admits(point))
                }
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(left: &str, right: &str) -> Ordering {
        compare(left.as_bytes(), right.as_bytes())
    }

    #[test]
    fn each_project_s_own_numbering_is_in_order() {
        let rising: &[&[&str]] = &[
            &["2.9p2", "3.0.2p1", "6.6p1", "6.6.1p1", "7.9p1", "8.5", "8.5p1", "9.2p1", "9.8p1", "10.0p2"],
            &["0.52", "0.53.1", "2011.54", "2012.55", "2022.82", "2022.83", "2024.84"],
            &["1.3.42", "2.2.34", "2.4", "2.4.6", "2.4.49", "2.4.50", "2.4.62"],
            &["0.8.54", "1.9.15", "1.18.0", "1.25.5", "1.27.0"],
            &[
                "0.9.8zh", "1.0.1", "1.0.1f", "1.0.1g", "1.0.2", "1.0.2a", "1.0.2k", "1.0.2za", "1.1.1",
                "3.0.0",
            ],
            &["7.0.0dev", "7.0.0alpha1", "7.0.0alpha2", "7.0.0beta1", "7.0.0RC1", "7.0.0RC10", "7.0.0"],
            &["2.0.0-rc.1", "2.0.0-rc.2", "2.0.0", "2.0.1-beta", "2.0.1"],
            &["9.0.0.M1", "9.0.0", "9.0.1"],
        ];
        for versions in rising {
            for pair in versions.windows(2) {
                assert_eq!(order(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            }
        }
    }

    #[test]
    fn missing_numbers_are_zero_and_separators_only_separate() {
        for (left, right) in [("2.4", "2.4.0"), ("1.0a", "1.0.0a"), ("1.0-rc1", "1.0rc.1"), ("007", "7")] {
            assert_eq!(order(left, right), Ordering::Equal, "{left} {right}");
        }
        assert_eq!(order("99999999999999999999999", "100000000000000000000000"), Ordering::Less);
    }

    #[test]
    fn requirements_admit_what_they_say() {
        let requirement = VersionRequirement::parse(">=8.5p1, <9.8p1 || <4.4p1, !=4.3p2").unwrap();
        for (version, admitted) in [
            ("8.5p1", true),
            ("9.7p1", true),
            ("9.8p1", false),
            ("8.4p1", false),
            ("4.3p1", true),
            ("4.3p2", false),
            ("4.4p1", false),
        ] {
            assert_eq!(requirement.admits(version.as_bytes()), admitted, "{version}");
        }
    }

    #[test]
    fn faults_say_which_octets() {
        for (text, span, word) in [
            ("", 0..1, "missing"),
            (">=1,", 4..5, "missing"),
            (">=1 || ~2", 7..9, "starts with one of"),
            (">=1, <x", 6..7, "digit"),
            (">= 1.0 beta", 6..11, "letters"),
            (">=1.0 <2", 5..8, "comma"),
            ("<", 1..1, "digit"),
        ] {
            let fault = VersionRequirement::parse(text).unwrap_err();
            assert_eq!(fault.span, span, "{text}");
            assert!(fault.message.contains(word), "{text}: {}", fault.message);
        }
    }

    #[test]
    fn contradictions_are_seen() {
        for (text, satisfiable) in [
            (">2, <1", false),
            (">=1, <=1", true),
            (">=1, <=1, !=1", false),
            (">1, <=1.0", false),
            ("=1, =2", false),
            ("=1.0, >=1", true),
            (">2, <1 || =3", true),
            ("!=1", true),
        ] {
            assert_eq!(VersionRequirement::parse(text).unwrap().is_satisfiable(), satisfiable, "{text}");
        }
    }

    fn version() -> impl Strategy<Value = String> {
        prop_oneof![
            "[0-9a-cA-C.~+-]{0,10}",
            "[0-9]{1,2}(\\.[0-9]{1,2}){0,3}(p[0-9]|rc[0-9]|[a-z])?",
            ".{0,8}"
        ]
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in version(), b in version(), c in version()) {
            prop_assert_eq!(order(&a, &a), Ordering::Equal);
            prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            if order(&a, &b).is_le() && order(&b, &c).is_le() {
                prop_assert!(order(&a, &c).is_le());
            }
        }

        #[test]
        fn no_requirement_panics(text in ".{0,40}", version in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(requirement) = VersionRequirement::parse(&text) {
                requirement.admits(&version);
                requirement.is_satisfiable();
            }
        }

        #[test]
        fn an_admitted_version_means_satisfiable(low in version(), high in version(), v in version()) {
            if let Ok(requirement) = VersionRequirement::parse(&format!(">={low}, <{high}"))
                && requirement.admits(v.as_bytes())
            {
                prop_assert!(requirement.is_satisfiable());
            }
        }
    }
}
