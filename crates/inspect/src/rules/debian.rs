//! Debian package versions, and the test whether a distribution has fixed a weakness.
//!
//! The order is dpkg's (`lib/dpkg/version.c`, Debian policy 5.6.12): epoch, upstream version, then
//! revision. Digits compare as numbers. `~` sorts before the end, letters before all other
//! characters.
//!
//! # Backports
//!
//! Distributions fix old releases without a new upstream version, and the revision alone does not
//! order them: Ubuntu's `9.3p1-1ubuntu3.6` is fixed and `8.9p1-3ubuntu0.9` is not, though
//! `3ubuntu0.9` is the greater revision. So a [`FixedPackage`] entry covers one *branch* only:
//!
//! - `Debian-2+deb12u3`, `9.2p1 Debian-2+deb12u3`: revisions of the same base `2` and release `deb12`; fixed
//!   when its revision ≥ the entry's
//! - `Ubuntu-3ubuntu0.10`, `8.9p1 Ubuntu-3ubuntu0.10`: `3ubuntu0` and `3ubuntu0.N` (and `3`, which is the
//!   same as `3ubuntu0`); fixed when its revision ≥ the entry's
//! - `9.7p1 Debian-7`, `9.7p1 Ubuntu-7ubuntu1`: the development line; fixed when upstream version and
//!   revision ≥ the entry's
//! - `Debian-7`: revisions without a release; fixed when its revision ≥ the entry's
//!
//! In an entry of the first two kinds, the upstream version must equal the banner's. A rebuild for
//! an older release (`2+deb12u3~bpo11+1`) counts as its original. Raspbian's packages count as
//! Debian's.

use std::cmp::Ordering;
use std::fmt;

use super::version;

/// Compares like dpkg's `verrevcmp`: runs of other characters and runs of digits alternate.
pub(super) fn compare_part(mut left: &[u8], mut right: &[u8]) -> Ordering {
    while !left.is_empty() || !right.is_empty() {
        // The end counts as a digit, as in dpkg's loop (lib/dpkg/version.c:verrevcmp): otherwise the loop
        // would run past it.
        let digit = |part: &[u8]| part.first().is_none_or(u8::is_ascii_digit);
        while !digit(left) || !digit(right) {
            match weight(left.first()).cmp(&weight(right.first())) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
            left = left.get(1..).unwrap_or_default();
            right = right.get(1..).unwrap_or_default();
        }
        let (left_number, left_rest) = split_digits(left);
        let (right_number, right_rest) = split_digits(right);
        match compare_digits(left_number, right_number) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
        (left, right) = (left_rest, right_rest);
    }
    Ordering::Equal
}

/// Returns the weight of dpkg's `order`: `~` before the end and digits, then letters, then
/// everything else.
fn weight(octet: Option<&u8>) -> i32 {
    match octet {
        Some(b'~') => -1,
        None | Some(b'0'..=b'9') => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    }
}

fn split_digits(part: &[u8]) -> (&[u8], &[u8]) {
    let length = part.iter().take_while(|octet| octet.is_ascii_digit()).count();
    part.split_at_checked(length).unwrap_or((part, &[]))
}

/// Compares runs of digits as numbers of any length.
fn compare_digits(left: &[u8], right: &[u8]) -> Ordering {
    let significant = |digits: &'_ [u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let left = left.get(significant(left)..).unwrap_or_default();
    let right = right.get(significant(right)..).unwrap_or_default();
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

/// A distribution's package as a banner names it: `Debian-2+deb12u3`, `Ubuntu-3ubuntu0.10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageRevision<'a> {
    /// `Debian`, `Ubuntu`, `Raspbian`.
    pub distribution: &'a [u8],
    /// `2+deb12u3`.
    pub revision: &'a [u8],
}

impl<'a> PackageRevision<'a> {
    /// Finds `NAME-REVISION` as a word of an SSH banner's comments.
    pub fn find(comments: &'a [u8]) -> Option<Self> {
        comments.split(|octet| *octet == b' ').find_map(Self::parse)
    }

    /// Reads `NAME-REVISION`, where the name is made of letters and the revision starts with a digit.
    pub fn parse(word: &'a [u8]) -> Option<Self> {
        let hyphen = word.iter().position(|octet| *octet == b'-')?;
        let (distribution, revision) = (word.get(..hyphen)?, word.get(hyphen + 1..)?);
        let named = !distribution.is_empty() && distribution.iter().all(u8::is_ascii_alphabetic);
        (named && revision.first()?.is_ascii_digit()).then_some(Self { distribution, revision })
    }

    /// Guesses the distribution from the revision alone, for `PHP/7.4.3-4ubuntu2.19`.
    pub fn guess(revision: &'a [u8]) -> Self {
        let ubuntu = revision.windows(6).any(|part| part == b"ubuntu");
        Self { distribution: if ubuntu { b"Ubuntu" } else { b"Debian" }, revision }
    }
}

/// The first package of a branch in which a weakness is fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedPackage {
    text: String,
    upstream: Option<String>,
    distribution: String,
    revision: String,
}

impl FixedPackage {
    /// Reads `[UPSTREAM ]DISTRIBUTION-REVISION`, such as `9.2p1 Debian-2+deb12u3`.
    ///
    /// # Errors
    ///
    /// Returns the expected form if the text has another.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (upstream, package) = match text.trim().split_once(char::is_whitespace) {
            Some((upstream, package)) => (Some(upstream), package.trim_start()),
            None => (None, text.trim()),
        };
        let form = "write it as banners do: `Debian-2+deb12u3` or `9.2p1 Debian-2+deb12u3`";
        let PackageRevision { distribution, revision } =
            PackageRevision::parse(package.as_bytes()).ok_or_else(|| form.to_owned())?;
        let strange = |character: &char| !character.is_ascii_alphanumeric() && !".+~-".contains(*character);
        if let Some(character) = String::from_utf8_lossy(revision).chars().find(strange) {
            return Err(format!("a Debian revision has no {character:?}; {form}"));
        }
        // No banner shows the epoch: it orders packages only within the archive.
        let upstream = upstream.map(|version| version.split_once(':').map_or(version, |(_, rest)| rest));
        if upstream.is_some_and(|version| !version.starts_with(|first: char| first.is_ascii_digit())) {
            return Err(format!("an upstream version starts with a digit; {form}"));
        }
        Ok(Self {
            text: text.to_owned(),
            upstream: upstream.map(str::to_owned),
            distribution: String::from_utf8_lossy(distribution).into_owned(),
            revision: String::from_utf8_lossy(revision).into_owned(),
        })
    }

    /// True if the entry names the upstream version of its branch.
    pub fn has_upstream(&self) -> bool {
        self.upstream.is_some()
    }

    /// Returns true if the entry's revision names its release.
    pub fn is_release(&self) -> bool {
        !matches!(PackageBranch::of(self.revision.as_bytes()), PackageBranch::Development)
    }

    /// Returns true if a banner with this upstream version (if known) and package belongs to the
    /// entry's branch and is at least as new.
    pub fn covers(&self, upstream: Option<&[u8]>, package: PackageRevision<'_>) -> bool {
        let ours = self.distribution.as_bytes();
        let raspbian = package.distribution.eq_ignore_ascii_case(b"Raspbian");
        let theirs = if raspbian { b"Debian".as_slice() } else { package.distribution };
        if !ours.eq_ignore_ascii_case(package.distribution) && !ours.eq_ignore_ascii_case(theirs) {
            return false;
        }
        let (entry, revision) = (self.revision.as_bytes(), without_rebuild(package.revision));
        let (ours, theirs) = (PackageBranch::of(entry), PackageBranch::of(revision));
        let at_least = compare_part(revision, entry).is_ge();
        let Some(wanted) = &self.upstream else { return ours == theirs && at_least };
        let Some(upstream) = upstream else { return false };
        match (version::compare(upstream, wanted.as_bytes()), ours) {
            (Ordering::Less, _) => false,
            // A branch that left the development line after the entry contains the fix, too.
            (Ordering::Equal, PackageBranch::Development) => {
                compare_part(theirs.start(revision), entry).is_ge()
            }
            (Ordering::Equal, _) => ours == theirs && at_least,
            // On the development line, whatever came later has the fix. A release with another upstream
            // version is another branch.
            (Ordering::Greater, branch) => branch == PackageBranch::Development,
        }
    }
}

impl fmt::Display for FixedPackage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Removes the suffix of a rebuild for an older release: `2+deb12u3~bpo11+1` was built from
/// `2+deb12u3`.
fn without_rebuild(revision: &[u8]) -> &[u8] {
    let mark = revision.windows(4).position(|part| part == b"~bpo");
    mark.and_then(|at| revision.get(..at)).unwrap_or(revision)
}

/// The line of packages that a revision belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PackageBranch<'a> {
    /// Updates of a release, with the revision at which they left the development line: `2` and
    /// `12` of `2+deb12u3`; `3ubuntu13` of `3ubuntu13.3`; `4ubuntu0` and `20.04` of
    /// `4ubuntu0.20.04.1`.
    Release { start: &'a [u8], release: &'a [u8] },
    /// The line from which the next release is made.
    Development,
}

impl<'a> PackageBranch<'a> {
    fn of(revision: &'a [u8]) -> Self {
        Self::debian(revision).or_else(|| Self::ubuntu(revision)).unwrap_or(Self::Development)
    }

    /// `2+deb12u3`.
    fn debian(revision: &'a [u8]) -> Option<Self> {
        let mark = revision.windows(4).position(|part| part == b"+deb")?;
        let (release, _) = split_digits(revision.get(mark + 4..)?);
        Some(Self::Release { start: revision.get(..mark)?, release })
    }

    /// `3ubuntu13.3`, `4ubuntu0.20.04.1`, `2ubuntu2+esm1`; but not `3ubuntu13`.
    fn ubuntu(revision: &'a [u8]) -> Option<Self> {
        let mark = revision.windows(6).position(|part| part == b"ubuntu")?;
        let (number, update) = split_digits(revision.get(mark + 6..)?);
        let update = update.strip_prefix(b".").or_else(|| update.starts_with(b"+").then_some(update))?;
        let release = match update {
            [a, b, b'.', c, d, ..] if [a, b, c, d].iter().all(|octet| octet.is_ascii_digit()) => {
                update.get(..5)?
            }
            _ => b"",
        };
        Some(Self::Release { start: revision.get(..mark + 6 + number.len())?, release })
    }

    /// Returns the revision at which the branch left the development line.
    fn start<'r>(&self, revision: &'r [u8]) -> &'r [u8]
    where
        'a: 'r,
    {
        match self {
            Self::Release { start, .. } => start,
            Self::Development => revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;

    use super::*;

    /// Compares two Debian package versions as `dpkg --compare-versions` does.
    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        let (left, right) = (Package::split(left), Package::split(right));
        compare_digits(left.epoch, right.epoch)
            .then_with(|| compare_part(left.upstream, right.upstream))
            .then_with(|| compare_part(left.revision, right.revision))
    }

    /// `[epoch:]upstream[-revision]`.
    struct Package<'a> {
        epoch: &'a [u8],
        upstream: &'a [u8],
        revision: &'a [u8],
    }

    impl<'a> Package<'a> {
        fn split(version: &'a [u8]) -> Self {
            let (epoch, rest) = match version.iter().position(|octet| *octet == b':') {
                Some(colon) => (version.get(..colon), version.get(colon + 1..)),
                None => (None, Some(version)),
            };
            let rest = rest.unwrap_or_default();
            let (upstream, revision) = match rest.iter().rposition(|octet| *octet == b'-') {
                Some(hyphen) => (rest.get(..hyphen), rest.get(hyphen + 1..)),
                None => (Some(rest), None),
            };
            Self {
                epoch: epoch.unwrap_or_default(),
                upstream: upstream.unwrap_or_default(),
                revision: revision.unwrap_or_default(),
            }
        }
    }

    fn order(left: &str, right: &str) -> Ordering {
        compare(left.as_bytes(), right.as_bytes())
    }

    #[test]
    fn the_order_is_dpkg_s() {
        for (left, expected, right) in [
            ("1:9.2p1-2+deb12u2", Ordering::Less, "1:9.2p1-2+deb12u3"),
            ("1:9.2p1-2+deb12u9", Ordering::Less, "1:9.2p1-2+deb12u10"),
            ("1:8.9p1-3ubuntu0.9", Ordering::Less, "1:8.9p1-3ubuntu0.10"),
            ("1:9.2p1-2~bpo11+1", Ordering::Less, "1:9.2p1-2"),
            ("2:1.0-1", Ordering::Greater, "1:9.0-1"),
            ("1.0~rc1-1", Ordering::Less, "1.0-1"),
            ("1.0", Ordering::Equal, "0:1.0-0"),
            ("1.0a", Ordering::Less, "1.0+"),
            ("1.00", Ordering::Equal, "1.0"),
            ("7.6p1-4", Ordering::Less, "7.6p1-4ubuntu0.3"),
        ] {
            assert_eq!(order(left, right), expected, "{left} {right}");
            assert_eq!(order(right, left), expected.reverse(), "{right} {left}");
        }
    }

    #[test]
    fn revisions_are_found_in_comments() {
        for (comments, expected) in [
            ("Debian-2+deb12u3", Some(("Debian", "2+deb12u3"))),
            ("Ubuntu-3ubuntu0.10", Some(("Ubuntu", "3ubuntu0.10"))),
            ("some Raspbian-10+deb10u2+rpt1 thing", Some(("Raspbian", "10+deb10u2+rpt1"))),
            ("FreeBSD-20240701", Some(("FreeBSD", "20240701"))),
            ("Debian-", None),
            ("-2", None),
            ("", None),
        ] {
            let expected = expected.map(|(distribution, revision)| PackageRevision {
                distribution: distribution.as_bytes(),
                revision: revision.as_bytes(),
            });
            assert_eq!(PackageRevision::find(comments.as_bytes()), expected, "{comments}");
        }
    }

    fn covers(entry: &str, upstream: &str, package: &str) -> bool {
        let package = PackageRevision::parse(package.as_bytes()).unwrap();
        FixedPackage::parse(entry).unwrap().covers(Some(upstream.as_bytes()), package)
    }

    #[test]
    fn an_entry_speaks_of_its_own_branch_only() {
        for (entry, upstream, package, fixed) in [
            ("Debian-2+deb12u3", "9.2p1", "Debian-2+deb12u2", false),
            ("Debian-2+deb12u3", "9.2p1", "Debian-2+deb12u3", true),
            ("Debian-2+deb12u3", "9.2p1", "Debian-2+deb12u10", true),
            ("Debian-2+deb12u3", "9.2p1", "Debian-2", false),
            ("Debian-2+deb12u3", "9.3p1", "Debian-3", false),
            ("Debian-2+deb12u3", "8.4p1", "Debian-5+deb11u4", false),
            ("Debian-2+deb12u3", "9.2p1", "Raspbian-2+deb12u3+rpt1", true),
            ("Debian-2+deb12u3", "9.2p1", "Debian-2+deb12u3~bpo11+1", true),
            ("Debian-2+deb12u3", "9.2p1", "Ubuntu-2+deb12u3", false),
            ("Ubuntu-1ubuntu3.6", "9.3p1", "Ubuntu-1ubuntu3.6", true),
            ("Ubuntu-1ubuntu3.6", "9.3p1", "Ubuntu-1ubuntu3.5", false),
            ("Ubuntu-1ubuntu3.6", "9.3p1", "Ubuntu-1ubuntu3", false),
            ("Ubuntu-1ubuntu3.6", "8.9p1", "Ubuntu-3ubuntu0.9", false),
            ("Ubuntu-1ubuntu3.6", "9.0p1", "Ubuntu-1ubuntu7.1", false),
            ("Ubuntu-3ubuntu0.10", "8.9p1", "Ubuntu-3", false),
            ("Ubuntu-3ubuntu13.3", "9.6p1", "Ubuntu-3ubuntu13", false),
            ("Ubuntu-3ubuntu13.3", "9.6p1", "Ubuntu-3ubuntu13.16", true),
            ("Ubuntu-4ubuntu0.20.04.3", "8.2p1", "Ubuntu-4ubuntu0.22.04.4", false),
            ("Ubuntu-4ubuntu0.20.04.3", "8.2p1", "Ubuntu-4ubuntu0.20.04.4", true),
            ("9.2p1 Debian-2+deb12u3", "9.2p1", "Debian-2+deb12u3", true),
            ("9.2p1 Debian-2+deb12u3", "9.3p1", "Debian-2+deb12u4", false),
            ("1:9.7p1 Debian-7", "9.7p1", "Debian-6", false),
            ("1:9.7p1 Debian-7", "9.7p1", "Debian-7", true),
            ("1:9.7p1 Debian-7", "9.6p1", "Debian-9", false),
            ("9.7p1 Debian-7", "10.0p1", "Debian-5+deb13u1", true),
            ("9.7p1 Debian-7", "9.7p1", "Debian-5+deb13u9", false),
            ("9.7p1 Ubuntu-7ubuntu1", "9.7p1", "Ubuntu-7ubuntu4.3", true),
            ("Debian-7", "9.7p1", "Debian-8", true),
            ("Debian-7", "7.4p1", "Debian-10+deb9u7", false),
        ] {
            assert_eq!(covers(entry, upstream, package), fixed, "{entry} | {upstream} {package}");
        }
    }

    #[test]
    fn entries_that_are_no_packages_are_refused() {
        for text in ["", "2+deb12u3", "Debian", "Debian-x", "Debian-2 9.2p1", "p1 Debian-2", "Debian-2:3"] {
            assert!(FixedPackage::parse(text).is_err(), "{text}");
        }
    }

    fn package() -> impl Strategy<Value = String> {
        ("([0-9]:)?", "[0-9][0-9a-zA-Z.+~]{0,8}", "(-[0-9a-zA-Z.+~]{1,8})?")
            .prop_map(|(epoch, upstream, revision)| epoch + &upstream + &revision)
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in package(), b in package(), c in package()) {
            prop_assert_eq!(order(&a, &a), Ordering::Equal);
            prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            if order(&a, &b).is_le() && order(&b, &c).is_le() {
                prop_assert!(order(&a, &c).is_le());
            }
        }

        #[test]
        fn no_octets_panic(a in prop::collection::vec(any::<u8>(), 0..20), b in prop::collection::vec(any::<u8>(), 0..20)) {
            compare(&a, &b);
            if let Some(package) = PackageRevision::find(&a) {
                let _ = FixedPackage::parse(&String::from_utf8_lossy(&b)).map(|fixed| fixed.covers(Some(&a), package));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        #[test]
        fn dpkg_agrees(a in package(), b in package()) {
            let holds = |operator: &str| {
                let status = std::process::Command::new("dpkg").args(["--compare-versions", &a, operator, &b]).status();
                status.ok().map(|status| status.success())
            };
            // Not a Debian: nobody to ask.
            if let Some(less) = holds("lt") {
                prop_assert_eq!(order(&a, &b).is_lt(), less, "{} lt {}", a, b);
                prop_assert_eq!(order(&a, &b).is_eq(), holds("eq") == Some(true), "{} eq {}", a, b);
            }
        }
    }

    /// Two versions that often differ in a character only, where the order is delicate.
    fn pair() -> impl Strategy<Value = (String, String)> {
        let near = (package(), 0..12_usize, "[0-9a-zA-Z.+~]?").prop_map(|(version, at, character)| {
            let at = at.clamp(1, version.len());
            let (before, behind) = version.split_at(at);
            let other = if behind.starts_with([':', '-']) {
                format!("{before}{character}{behind}")
            } else {
                format!("{before}{character}{}", behind.get(1..).unwrap_or_default())
            };
            (version, other)
        });
        prop_oneof![3 => near, 1 => (package(), package())]
    }

    #[test]
    fn dpkg_s_own_library_orders_a_hundred_thousand_pairs_alike() {
        const COMPARE: &str = "my ($a, $b) = split; my ($x, $y) = map { Dpkg::Version->new($_) } $a, $b; \
                               die \"$_\" unless $x->is_valid && $y->is_valid; print version_compare($a, $b), \"\\n\"";
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let pairs: Vec<(String, String)> =
            (0..100_000).map(|_| pair().new_tree(&mut runner).unwrap().current()).collect();
        let asked = tempfile::NamedTempFile::new().unwrap();
        let lines: String = pairs.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
        std::fs::write(asked.path(), lines).unwrap();
        let mut perl = std::process::Command::new("perl");
        perl.args(["-MDpkg::Version", "-ne", COMPARE]).stdin(std::fs::File::open(asked.path()).unwrap());
        let told = match perl.output() {
            Ok(told) if told.status.success() => String::from_utf8(told.stdout).unwrap(),
            told => {
                eprintln!("skipped: no Dpkg::Version here: {told:?}");
                return;
            }
        };
        let mut equal = 0;
        for ((a, b), told) in pairs.iter().zip(told.lines()) {
            assert_eq!((order(a, b) as i8).to_string(), told, "{a} {b}");
            equal += usize::from(a != b && told == "0");
        }
        assert_eq!(told.lines().count(), pairs.len());
        assert!(equal > 100, "some are spelled otherwise and equal: {equal}");
    }
}
