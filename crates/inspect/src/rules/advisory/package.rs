//! Package versions, as distributions' data write them and as banners show them.

use std::cmp::Ordering;
use std::fmt;

use super::super::debian::compare_part;

/// A package version of a distribution's data that dpkg accepts: `1:9.2p1-2+deb12u3`.
///
/// The epoch is only displayed: no banner shows one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageVersion {
    text: String,
    epoch: u32,
    /// Start and end of upstream's version.
    upstream: (usize, usize),
}

impl PackageVersion {
    /// Reads a version as dpkg does (`lib/dpkg/parsehelp.c`, Debian policy 5.6.12).
    ///
    /// # Errors
    ///
    /// Returns dpkg's reason for refusing it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text, "")
    }

    /// Reads a version of a distribution without dpkg, `9.3_p2-r0` or `0:8.7p1-38.el9_4.1`. It is
    /// displayed, and only its upstream part is compared.
    ///
    /// # Errors
    ///
    /// Returns the reason if it is no version.
    pub fn foreign(text: &str) -> Result<Self, String> {
        Self::read(text, "_^")
    }

    fn read(text: &str, more: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("`{}` is no package version: {why}", text.escape_default()));
        let (epoch, start) = match text.split_once(':') {
            None => (0, 0),
            Some((epoch, _)) if epoch.is_empty() || !epoch.bytes().all(|octet| octet.is_ascii_digit()) => {
                return refuse("its epoch is no number");
            }
            Some((epoch, _)) => match epoch.parse::<i32>() {
                Ok(number) => (number.unsigned_abs(), epoch.len() + 1),
                Err(_) => return refuse("its epoch is too large"),
            },
        };
        let rest = text.get(start..).unwrap_or_default();
        let (upstream, revision) = match rest.rsplit_once('-') {
            Some((_, "")) => return refuse("its revision is empty"),
            Some((upstream, revision)) => (upstream, revision),
            None => (rest, ""),
        };
        if !upstream.starts_with(|first: char| first.is_ascii_digit()) {
            return refuse("it does not start with a digit");
        }
        let strange = |part: &str, allowed: &str| {
            let is_strange = |one: &char| !allowed.contains(*one) && !more.contains(*one);
            part.chars().find(|one| !one.is_ascii_alphanumeric() && is_strange(one))
        };
        match strange(upstream, ".-+~:").or_else(|| strange(revision, ".+~")) {
            Some(character) => refuse(&format!("it holds {character:?}")),
            None => Ok(Self { text: text.to_owned(), epoch, upstream: (start, start + upstream.len()) }),
        }
    }

    /// Returns the version as the data write it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the epoch, 0 if there is none.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the version at which the release's updates began.
    pub(in crate::rules) fn start(&self) -> Self {
        let updates = self.shown().revision.len() - self.shown().start().revision.len();
        let text = self.text.get(..self.text.len() - updates).unwrap_or(&self.text);
        Self { text: text.to_owned(), ..*self }
    }

    /// Returns the installed form: without the epoch.
    pub fn shown(&self) -> DpkgVersion<'_> {
        let (start, end) = self.upstream;
        let upstream = self.text.get(start..end).unwrap_or_default().as_bytes();
        DpkgVersion { upstream, revision: self.text.get(end + 1..).unwrap_or_default().as_bytes() }
    }
}

impl fmt::Display for PackageVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// A package's upstream version and revision, ordered as dpkg orders packages of one epoch.
#[derive(Debug, Clone, Copy)]
pub struct DpkgVersion<'a> {
    /// `9.2p1`.
    pub upstream: &'a [u8],
    /// `2+deb12u3`; empty if there is none.
    pub revision: &'a [u8],
}

impl Ord for DpkgVersion<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let upstream = compare_part(self.upstream, other.upstream);
        upstream.then_with(|| compare_part(self.revision, other.revision))
    }
}

impl PartialOrd for DpkgVersion<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DpkgVersion<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DpkgVersion<'_> {}

impl<'a> DpkgVersion<'a> {
    /// Removes the suffixes of a rebuild without changes to the source: `~bpo11+1` (Debian's
    /// backports), `+b2` (a build for one architecture), `+rpt1` and `+rpi1` (Raspberry Pi).
    pub(in crate::rules) fn without_rebuild(self) -> Self {
        let mut revision = self.revision;
        for mark in [b"~bpo".as_slice(), b"+rpt", b"+rpi", b"+b"] {
            let at = revision.windows(mark.len()).position(|part| part == mark);
            let Some((kept, behind)) = at.and_then(|at| revision.split_at_checked(at)) else { continue };
            let number = behind.get(mark.len()..).unwrap_or_default();
            let plain = |octet: &u8| octet.is_ascii_digit() || matches!(octet, b'+' | b'.' | b'u');
            if !number.is_empty() && number.iter().all(plain) {
                revision = kept;
            }
        }
        Self { revision, ..self }
    }

    /// Returns Debian's suffix of an update, if there is one: `+deb12u3`, `~deb12u1`.
    pub(in crate::rules) fn update(self) -> Option<DebianUpdateSuffix<'a>> {
        let at = self.revision.windows(4).position(|part| matches!(part, b"+deb" | b"~deb"))?;
        let (start, mark) = self.revision.split_at_checked(at)?;
        let (release, behind) = digits(mark.get(4..)?);
        let (number, rest) = digits(behind.strip_prefix(b"u").unwrap_or_default());
        let rebuilt = number.is_empty() || !rest.is_empty();
        let added = mark.first() == Some(&b'+');
        (!release.is_empty()).then_some(DebianUpdateSuffix { start, release, added, rebuilt })
    }

    /// Returns the version at which the release's updates began.
    pub fn start(self) -> Self {
        self.update().map_or(self, |update| Self { revision: update.start, ..self })
    }

    /// Returns true if Debian itself gives such a revision. A third party may have patched any
    /// other package.
    pub(in crate::rules) fn is_plain(self) -> bool {
        let number = |octet: &u8| octet.is_ascii_digit() || *octet == b'.';
        match self.update() {
            Some(update) => !update.rebuilt && update.start.iter().all(number),
            None => self.revision.iter().all(number),
        }
    }
}

/// Debian's suffix of an update within a release.
#[derive(Debug, Clone, Copy)]
pub(in crate::rules) struct DebianUpdateSuffix<'a> {
    /// The revision before it, `2`.
    start: &'a [u8],
    /// The release's number, `12`.
    pub(in crate::rules) release: &'a [u8],
    /// True for `+`: an update of the release's first package. False for `~`: a newer package
    /// brought into the release.
    pub(in crate::rules) added: bool,
    /// True if text follows the update's number.
    rebuilt: bool,
}

fn digits(part: &[u8]) -> (&[u8], &[u8]) {
    let length = part.iter().take_while(|octet| octet.is_ascii_digit()).count();
    part.split_at_checked(length).unwrap_or((part, &[]))
}

/// Returns upstream's version without the suffixes of a repackaging: `1.3.8` of `1.3.8+dfsg`, `2.0`
/// of `2.0~dfsg1`, `9.3` of Alpine's `9.3_p2`.
pub(in crate::rules) fn released(upstream: &[u8]) -> &[u8] {
    let marks = [b"_".as_slice(), b"+dfsg", b"~dfsg", b".dfsg", b"+ds", b"~ds", b"+repack", b"+really"];
    let at =
        marks.iter().filter_map(|mark| upstream.windows(mark.len()).position(|part| part == *mark)).min();
    at.and_then(|at| upstream.get(..at)).unwrap_or(upstream)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn installed(text: &str) -> DpkgVersion<'_> {
        let (upstream, revision) = text.rsplit_once('-').unwrap_or((text, ""));
        DpkgVersion { upstream: upstream.as_bytes(), revision: revision.as_bytes() }
    }

    #[test]
    fn versions_are_taken_apart() {
        for (text, epoch, upstream, revision) in [
            ("1:9.2p1-2+deb12u3", 1, "9.2p1", "2+deb12u3"),
            ("2.4.57-2", 0, "2.4.57", "2"),
            ("2.4", 0, "2.4", ""),
            ("3:1.0-rc1-2", 3, "1.0-rc1", "2"),
        ] {
            let version = PackageVersion::parse(text).unwrap();
            assert_eq!(version.epoch(), epoch, "{text}");
            let shown = version.shown();
            assert_eq!(
                (shown.upstream, shown.revision),
                (upstream.as_bytes(), revision.as_bytes()),
                "{text}"
            );
            assert_eq!(version.to_string(), text);
        }
    }

    #[test]
    fn what_dpkg_refuses_is_refused() {
        for text in
            ["", "x", ":1", "a:1", "1:", "1.0-", "1 2", "1_0", "-1", "99999999999:1", "1.0-1:2", "1\n"]
        {
            let error = PackageVersion::parse(text).unwrap_err();
            assert!(error.contains("no package version"), "{text}: {error}");
        }
    }

    #[test]
    fn rebuilds_are_what_they_were_built_from() {
        for (text, source) in [
            ("9.2p1-2+deb12u3~bpo11+1", "9.2p1-2+deb12u3"),
            ("9.2p1-2+b1", "9.2p1-2"),
            ("9.2p1-2+deb12u3+rpt1", "9.2p1-2+deb12u3"),
            ("9.2p1-5+bananapi1", "9.2p1-5+bananapi1"),
            ("9.2p1-2", "9.2p1-2"),
        ] {
            let (left, right) = (installed(text).without_rebuild(), installed(source));
            assert_eq!(left.revision, right.revision, "{text}");
        }
    }

    #[test]
    fn other_people_s_packages_are_known_as_such() {
        for (text, plain) in [
            ("9.2p1-2", true),
            ("9.2p1-2.1", true),
            ("9.2p1-2+deb12u3", true),
            ("9.2p1-2~deb12u1", true),
            ("9.2p1-2+deb12u3.example1", false),
            ("9.2p1-5+bananapi1", false),
            ("9.2p1-3ubuntu0.1", false),
        ] {
            assert_eq!(installed(text).is_plain(), plain, "{text}");
        }
    }

    #[test]
    fn repackaging_is_no_version() {
        for (upstream, version) in [("1.3.8+dfsg", "1.3.8"), ("2.0~dfsg1", "2.0"), ("9.2p1", "9.2p1")] {
            assert_eq!(released(upstream.as_bytes()), version.as_bytes());
        }
    }

    fn version() -> impl Strategy<Value = String> {
        ("([0-9]{1,2}:)?", "[0-9][0-9a-zA-Z.+~:-]{0,8}", "(-[0-9a-zA-Z.+~:_]{0,6})?")
            .prop_map(|(epoch, upstream, revision)| epoch + &upstream + &revision)
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,24}") {
            let _ = PackageVersion::parse(&text).map(|version| version.start().shown().is_plain());
            let shown = DpkgVersion { upstream: text.as_bytes(), revision: text.as_bytes() };
            let _ = (shown.without_rebuild().update(), shown.is_plain(), released(text.as_bytes()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn dpkg_takes_what_is_taken(text in version()) {
            let dpkg = std::process::Command::new("dpkg").args(["--validate-version", &text]).output();
            // Not a Debian: nobody to ask.
            if let Ok(told) = dpkg {
                prop_assert_eq!(PackageVersion::parse(&text).is_ok(), told.status.success(), "{}", text);
            }
        }
    }
}
