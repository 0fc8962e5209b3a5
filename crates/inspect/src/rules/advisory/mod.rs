//! Advisories: a distribution's data about one weakness in one package, and the verdict about a
//! banner: affected, fixed or unknown.
//!
//! An advisory holds a [`ReleaseAdvisory`] for each release, and one for the development line (`sid`). Only a
//! package's own line judges it: a fix in another release, with a greater or a smaller version,
//! proves nothing.
//!
//! | the banner shows | the line | vulnerable | fixed |
//! |---|---|---|---|
//! | `2+deb12u2` | Debian 12's | below the fix, or no fix and not newer than the data | from the fix on, or not affected |
//! | `2`, with which Debian 12 began | Debian 12's | the same | the same |
//! | `5`, between two releases | `sid` | below `sid`'s fix, where the release before was affected, too | from `sid`'s fix on |
//! | `5+deb10u4`, of a release that is not in the data | `sid` | never | if the release began with
//! `sid`'s fix |
//! | an upstream version only | all | never | if `sid` fixed an older upstream version |
//!
//! Ubuntu's data list every affected version, and the list decides ([`ubuntu`]). Versions outside
//! of upstream's affected ranges are fixed. Versions inside may have been patched by their builder,
//! so their verdict is unknown.
//!
//! If the identification leaves the verdict unknown, the key exchange may settle it
//! ([`marker`](super::kex_marker)): the advisory names markers that prove the fix or the weakness. A
//! marker never overrules the identification. If they contradict each other, the verdict is
//! unknown.
//!
//! In all other cases the verdict is unknown, with a reason. It is also unknown for a third-party
//! build (`2+deb12u2.example1`) whose number would be vulnerable.

mod bounds;
mod evaluate_advisory;
mod package;
mod ubuntu;

use std::fmt;

pub(super) use self::evaluate_advisory::{AdvisoryFinding, ShownPackage};
pub use self::package::PackageVersion;
use super::kex_marker::KexMarker;
use super::version::VersionRequirement;
use crate::banner::SshBanner;
use crate::event::AdvisoryVerdict;

/// Data about one weakness in one package, release by release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advisory {
    /// Publisher of the data.
    pub(super) source: String,
    /// Date of the data, `2026-11-20`; may be empty.
    pub(super) date: String,
    /// Verdicts that cause a match.
    pub(super) report: Vec<AdvisoryVerdict>,
    /// True if a blocking rule also blocks if the verdict is unknown.
    pub(super) block_unknown: bool,
    /// Upstream versions as banners show them, with the spelling of the package.
    pub(super) spelled: Vec<(String, String)>,
    /// One line for each release.
    pub(super) lines: Vec<ReleaseAdvisory>,
    /// Upstream's versions that have the weakness.
    pub(super) upstream: Option<VersionRequirement>,
    /// Markers of a side that has the fix.
    pub(super) fixed_if: Vec<KexMarker>,
    /// Markers of a side that has the weakness.
    pub(super) affected_if: Vec<KexMarker>,
}

/// The packages of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseAdvisory {
    /// `Debian`.
    pub distribution: String,
    /// `12`, or [`DEVELOPMENT`].
    pub release: String,
    /// The newest package in the data.
    pub newest: Option<PackageVersion>,
    /// Every affected package, in the order of versions, if the data list them.
    pub affected: Vec<PackageVersion>,
    /// State of the release's packages.
    pub state: ReleaseFixState,
}

/// Name of Debian's development line.
pub(super) const DEVELOPMENT: &str = "sid";

/// State of a release's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseFixState {
    /// This version and later ones are fixed.
    Fixed(PackageVersion),
    /// All packages have the same status.
    Said(PackageStatus),
}

/// Status of all packages of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageStatus {
    /// None ever had the weakness.
    NotAffected,
    /// None is fixed.
    Open,
    /// The distribution has not decided.
    Undetermined,
    /// The data cover the release and do not list it as affected.
    NotListed,
}

impl PackageStatus {
    /// The statuses with their names in rules.
    pub(super) const NAMES: [(&'static str, Self); 4] = [
        ("not-affected", Self::NotAffected),
        ("open", Self::Open),
        ("undetermined", Self::Undetermined),
        ("not-listed", Self::NotListed),
    ];

    /// The name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAffected => "not-affected",
            Self::Open => "open",
            Self::Undetermined => "undetermined",
            Self::NotListed => "not-listed",
        }
    }
}

impl ReleaseAdvisory {
    /// Returns true if this is the development line.
    pub fn is_development(&self) -> bool {
        self.release == DEVELOPMENT
    }

    /// Returns the package with which the release began, if the version marks updates.
    pub fn began(&self) -> Option<PackageVersion> {
        let newest = self.newest.as_ref().filter(|_| !self.is_development())?;
        newest.shown().update().is_none_or(|update| update.added).then(|| newest.start())
    }

    /// Returns the version that fixes it.
    pub const fn fix(&self) -> Option<&PackageVersion> {
        match &self.state {
            ReleaseFixState::Fixed(version) => Some(version),
            _ => None,
        }
    }
}

impl fmt::Display for ReleaseAdvisory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.distribution, self.release)
    }
}

impl Advisory {
    /// Returns true if the key exchange can settle an unknown verdict.
    pub(super) fn asks_markers(&self) -> bool {
        !self.fixed_if.is_empty() || !self.affected_if.is_empty()
    }

    /// Returns true if the key exchange of a side with this identification can change a verdict.
    pub(super) fn may_be_marked(&self, banner: &SshBanner<'_>) -> bool {
        self.fixed_if.iter().chain(&self.affected_if).any(|marker| marker.fits(banner))
    }

    /// Returns true if a blocking rule may have to wait for the key exchange.
    pub(super) fn may_block_by_markers(&self) -> bool {
        let awaited = |marker: &KexMarker| self.block_unknown || !marker.is_of_packages();
        !self.affected_if.is_empty() || self.fixed_if.iter().any(awaited)
    }

    /// Returns true if `verdict` causes a match.
    pub(super) fn reports(&self, verdict: AdvisoryVerdict) -> bool {
        self.report.contains(&verdict)
    }
}
