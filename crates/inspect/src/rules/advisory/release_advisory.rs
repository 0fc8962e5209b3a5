//! Data about the packages of one release: its newest package, and which are fixed.

use std::fmt;

use super::package::PackageVersion;

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
const DEVELOPMENT: &str = "sid";

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
    pub(in crate::rules) const NAMES: [(&'static str, Self); 4] = [
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
