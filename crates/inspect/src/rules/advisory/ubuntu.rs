//! Ubuntu's packages: the data list every affected version, and the list decides. Ranges serve only
//! versions newer than the list.
//!
//! A release's packages share upstream's version and the revision at which they left the
//! development line: `3ubuntu0.7` and `3ubuntu0.10` are one [`PackageSeries`], `3ubuntu0.20.04.1` is
//! another. Packages of the extended maintenance and of FIPS (`+esm1`, `+Fips2`) have lines of
//! their own.

use super::evaluate_advisory::{AdvisoryFinding, VerdictReason};
use super::package::{DpkgVersion, PackageVersion};
use super::package_advisory::Advisory;
use super::release_advisory::{PackageStatus, ReleaseAdvisory, ReleaseFixState};

impl Advisory {
    /// Judges one of Ubuntu's packages.
    pub(super) fn judge_ubuntu<'r>(
        &'r self,
        package: DpkgVersion<'_>,
        lines: &[&'r ReleaseAdvisory],
    ) -> AdvisoryFinding<'r> {
        let listed = |line: &&ReleaseAdvisory| line.affected.iter().any(|version| version.shown() == package);
        let mut listing = lines.iter().copied().filter(listed);
        if let Some(first) = listing.next() {
            let fixed = listing.find(|line| first.fix().is_none() && line.fix().is_some());
            return self.finding(VerdictReason::Listed, fixed.or(Some(first)));
        }
        let service = UbuntuService::of(package);
        let own = |line: &&ReleaseAdvisory| line.service() == service && line.shares_series(package);
        // If a weakness was fixed before a service derived its package, the derived package has the
        // fix, too.
        let before = service.made_of(package);
        let fixed = |line: &&ReleaseAdvisory| {
            before.is_some_and(|before| {
                line.service() == UbuntuService::Release && line.fixes_of_series(before)
            })
        };
        let line = lines.iter().copied().find(own).or_else(|| lines.iter().copied().find(fixed));
        let ground = line.map_or(VerdictReason::UnknownRelease, |line| unlisted(line, package));
        self.finding(ground, line)
    }
}

/// Returns the reason for a package that a line of its series does not list.
fn unlisted(line: &ReleaseAdvisory, package: DpkgVersion<'_>) -> VerdictReason {
    let newer = line.known().all(|version| version.shown() < package);
    match &line.state {
        ReleaseFixState::Fixed(fix) if package >= fix.shown() => VerdictReason::Fixed,
        ReleaseFixState::Fixed(_) if line.affected.iter().all(|version| version.shown() < package) => {
            VerdictReason::BelowFix
        }
        ReleaseFixState::Said(PackageStatus::NotAffected) => VerdictReason::NotAffected,
        ReleaseFixState::Said(PackageStatus::NotListed) if !newer => VerdictReason::NotListed,
        ReleaseFixState::Said(PackageStatus::Open | PackageStatus::NotListed) if newer => {
            VerdictReason::NewerThanData
        }
        ReleaseFixState::Said(PackageStatus::Undetermined) => VerdictReason::Undetermined,
        ReleaseFixState::Fixed(_) | ReleaseFixState::Said(_) => VerdictReason::Unlisted,
    }
}

impl ReleaseAdvisory {
    /// Returns every version in the data.
    fn known(&self) -> impl Iterator<Item = &PackageVersion> {
        self.affected.iter().chain(self.newest.as_ref()).chain(self.fix())
    }

    /// Returns the service that the release's name stands for: `22.04`, `Pro:22.04`,
    /// `Pro:FIPS:22.04`.
    fn service(&self) -> UbuntuService {
        match self.release.to_ascii_uppercase() {
            name if name.contains("FIPS") => UbuntuService::Fips,
            name if name.contains(':') => UbuntuService::Extended,
            _ => UbuntuService::Release,
        }
    }

    fn shares_series(&self, package: DpkgVersion<'_>) -> bool {
        let series = PackageSeries::of(package);
        self.known().any(|version| series.is_one_with(&PackageSeries::of(version.shown())))
    }

    fn fixes_of_series(&self, package: DpkgVersion<'_>) -> bool {
        self.shares_series(package) && self.fix().is_some_and(|fix| package >= fix.shown())
    }
}

/// The service that publishes packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UbuntuService {
    /// The release itself.
    Release,
    /// The extended maintenance: `+esm1`.
    Extended,
    /// Packages with certified cryptography: `+Fips1`, `.fips.0.7`.
    Fips,
}

impl UbuntuService {
    fn of(package: DpkgVersion<'_>) -> Self {
        match (mark(package, b"fips"), mark(package, b"+esm")) {
            (Some(_), _) => Self::Fips,
            (None, Some(_)) => Self::Extended,
            (None, None) => Self::Release,
        }
    }

    /// Returns the release's package from which a service's package was derived, if the revision
    /// shows that.
    fn made_of(self, package: DpkgVersion<'_>) -> Option<DpkgVersion<'_>> {
        let at = match self {
            Self::Release => return None,
            Self::Extended => mark(package, b"+esm"),
            Self::Fips => mark(package, b"+fips"),
        };
        at.and_then(|at| package.revision.get(..at)).map(|revision| DpkgVersion { revision, ..package })
    }
}

/// Returns the position of a suffix in a revision, ignoring case.
fn mark(package: DpkgVersion<'_>, mark: &[u8]) -> Option<usize> {
    package.revision.windows(mark.len()).position(|part| part.eq_ignore_ascii_case(mark))
}

/// The properties that all packages of one release share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PackageSeries<'a> {
    upstream: &'a [u8],
    /// The revision at which they left the development line: `3` of `3ubuntu0.10`.
    start: &'a [u8],
    /// The release in an update's suffix: `20.04` of `4ubuntu0.20.04.1`; none if it is no update.
    release: Option<&'a [u8]>,
}

impl<'a> PackageSeries<'a> {
    fn of(package: DpkgVersion<'a>) -> Self {
        let DpkgVersion { upstream, revision } = package;
        let bare = Self { upstream, start: without_build(revision), release: None };
        let Some(mark) = revision.windows(6).position(|part| part == b"ubuntu") else { return bare };
        let behind = revision.get(mark + 6..).unwrap_or_default();
        let number = behind.iter().take_while(|octet| octet.is_ascii_digit()).count();
        let (digits, update) = behind.split_at_checked(number).unwrap_or_default();
        // There was no package `3ubuntu0`: the release began with Debian's `3`.
        let end = if digits == b"0" { mark } else { mark + 6 + number };
        let start = revision.get(..end).unwrap_or_default();
        let release = match update.strip_prefix(b".") {
            Some([a, b, b'.', c, d, ..]) if [a, b, c, d].iter().all(|octet| octet.is_ascii_digit()) => {
                update.get(1..6)
            }
            Some(_) => Some(b"".as_slice()),
            None if update.first() == Some(&b'+') => Some(b"".as_slice()),
            None => None,
        };
        Self { upstream, start, release }
    }

    fn is_one_with(&self, other: &Self) -> bool {
        let release = match (self.release, other.release) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.upstream == other.upstream && self.start == other.start && release
    }
}

/// Removes the suffix of a build without changes to the source: `1build2`.
fn without_build(revision: &[u8]) -> &[u8] {
    let at = revision.windows(5).position(|part| part == b"build");
    at.and_then(|at| revision.get(..at)).unwrap_or(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(text: &str) -> PackageSeries<'_> {
        let (upstream, revision) = text.rsplit_once('-').unwrap();
        PackageSeries::of(DpkgVersion { upstream: upstream.as_bytes(), revision: revision.as_bytes() })
    }

    #[test]
    fn a_release_s_packages_are_one_series() {
        for (one, other, same) in [
            ("8.9p1-3ubuntu0.7", "8.9p1-3ubuntu0.10", true),
            ("8.9p1-3", "8.9p1-3ubuntu0.10", true),
            ("9.6p1-3ubuntu13", "9.6p1-3ubuntu13.3", true),
            ("9.6p1-3ubuntu13", "9.6p1-3ubuntu12", false),
            ("8.2p1-4ubuntu0.20.04.1", "8.2p1-4ubuntu0.22.04.1", false),
            ("8.2p1-4", "8.2p1-4ubuntu0.22.04.1", true),
            ("8.2p1-4ubuntu0.9", "8.2p1-4ubuntu0.13+esm1", true),
            ("8.9p1-3ubuntu0.7", "8.8p1-3ubuntu0.7", false),
            ("9.9p1-3build1", "9.9p1-3ubuntu0.1", true),
        ] {
            assert_eq!(series(one).is_one_with(&series(other)), same, "{one} {other}");
        }
    }
}
