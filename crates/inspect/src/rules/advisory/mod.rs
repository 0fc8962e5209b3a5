//! What a distribution says of one weakness in one of its packages, and what follows for a banner: it is
//! vulnerable, mended, or cannot be told.
//!
//! An advisory holds a [`Line`] for each release, and one for the line in which the next release grows
//! (`sid`). A package is judged by its own line only: that another release has mended a greater or a
//! smaller version says nothing of it.
//!
//! | the banner shows | the line | vulnerable | mended |
//! |---|---|---|---|
//! | `2+deb12u2` | Debian 12's | below the fix, or no fix and not newer than the data | from the fix on, or not affected |
//! | `2`, with which Debian 12 began | Debian 12's | the same | the same |
//! | `5`, between two releases | `sid` | below `sid`'s fix, where the release before was affected, too | from `sid`'s fix on |
//! | `5+deb10u4`, of a release that is not in the data | `sid` | never | if the release began with `sid`'s fix |
//! | an upstream version only | all | never | if `sid` mended an older upstream version |
//!
//! Ubuntu's data list every version that is affected, and are judged by that ([`ubuntu`]). What upstream says
//! of its versions mends those outside of its ranges; those within may be mended by whoever built the
//! package.
//!
//! What the identification leaves open, the key exchange may tell ([`marker`](super::marker)): it mends or
//! betrays the weaknesses that the advisory names markers for. It never overrules what the identification
//! tells: where they deny each other, nobody can tell.
//!
//! Everything else cannot be told, and the reason is said. So is a package that somebody else has built
//! (`2+deb12u2.example1`) and that would be vulnerable by its number.

mod bounds;
mod judge;
mod package;
mod ubuntu;

use std::fmt;

pub(super) use self::judge::{Finding, Shown};
pub use self::package::PackageVersion;
use super::marker::Marker;
use super::version::Requirement;
use crate::banner::SshBanner;
use crate::event::Verdict;

/// What is known of one weakness in one package, release by release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advisory {
    /// Whose data it is.
    pub(super) source: String,
    /// When the data were taken, `2026-11-20`; perhaps empty.
    pub(super) date: String,
    /// What is worth a match.
    pub(super) report: Vec<Verdict>,
    /// True if a rule that blocks does so, too, where nobody can tell.
    pub(super) block_unknown: bool,
    /// Upstream versions as banners show them, and as the package spells them.
    pub(super) spelled: Vec<(String, String)>,
    /// One for each release.
    pub(super) lines: Vec<Line>,
    /// Upstream's versions that have the weakness.
    pub(super) upstream: Option<Requirement>,
    /// What a side offers that has the mending.
    pub(super) mended_by: Vec<Marker>,
    /// What a side offers that has the weakness.
    pub(super) betrayed_by: Vec<Marker>,
}

/// One release's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `Debian`.
    pub distribution: String,
    /// `12`, or [`DEVELOPMENT`].
    pub release: String,
    /// The newest package that the data know of.
    pub newest: Option<PackageVersion>,
    /// Every package that has the weakness, in the order of versions, where the data list them.
    pub affected: Vec<PackageVersion>,
    /// What is said of them.
    pub state: State,
}

/// The release that is the next one's beginning.
pub(super) const DEVELOPMENT: &str = "sid";

/// What is said of a release's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// From this one on they are mended.
    Fixed(PackageVersion),
    /// The same of all of them.
    Said(Status),
}

/// What is said of all packages of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// None ever had the weakness.
    NotAffected,
    /// None is mended.
    Open,
    /// The distribution itself does not say.
    Undetermined,
    /// They were known and are not among those that are affected.
    NotListed,
}

impl Status {
    /// Their names in rules.
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

impl Line {
    /// True if it is the line in which the next release grows.
    pub fn is_development(&self) -> bool {
        self.release == DEVELOPMENT
    }

    /// The package with which the release began, where its updates are marked as such.
    pub fn began(&self) -> Option<PackageVersion> {
        let newest = self.newest.as_ref().filter(|_| !self.is_development())?;
        newest.shown().update().is_none_or(|update| update.added).then(|| newest.start())
    }

    /// The version that mends it.
    pub const fn fix(&self) -> Option<&PackageVersion> {
        match &self.state {
            State::Fixed(version) => Some(version),
            _ => None,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.distribution, self.release)
    }
}

impl Advisory {
    /// True if the key exchange may tell what the identification does not.
    pub(super) fn asks_markers(&self) -> bool {
        !self.mended_by.is_empty() || !self.betrayed_by.is_empty()
    }

    /// True if the key exchange of a side that identifies itself so may tell anything.
    pub(super) fn may_be_marked(&self, banner: &SshBanner<'_>) -> bool {
        self.mended_by.iter().chain(&self.betrayed_by).any(|marker| marker.fits(banner))
    }

    /// True if a side may be stopped for what its key exchange tells, or not until that told nothing else.
    pub(super) fn may_block_by_markers(&self) -> bool {
        let awaited = |marker: &Marker| self.block_unknown || !marker.is_of_packages();
        !self.betrayed_by.is_empty() || self.mended_by.iter().any(awaited)
    }

    /// True if `verdict` is worth a match.
    pub(super) fn reports(&self, verdict: Verdict) -> bool {
        self.report.contains(&verdict)
    }
}
