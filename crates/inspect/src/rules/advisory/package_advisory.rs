//! Data about one weakness in one package, release by release.

use super::release_advisory::ReleaseAdvisory;
use crate::banner::SshBanner;
use crate::event::AdvisoryVerdict;
use crate::rules::kex_marker::KexMarker;
use crate::rules::version::VersionRequirement;

/// Data about one weakness in one package, release by release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules) struct Advisory {
    /// Publisher of the data.
    pub(in crate::rules) source: String,
    /// Date of the data, `2026-11-20`; may be empty.
    pub(in crate::rules) date: String,
    /// Verdicts that cause a match.
    pub(in crate::rules) report: Vec<AdvisoryVerdict>,
    /// True if a blocking rule also blocks if the verdict is unknown.
    pub(in crate::rules) block_unknown: bool,
    /// Upstream versions as banners show them, with the spelling of the package.
    pub(in crate::rules) spelled: Vec<(String, String)>,
    /// One line for each release.
    pub(in crate::rules) lines: Vec<ReleaseAdvisory>,
    /// Upstream's versions that have the weakness.
    pub(in crate::rules) upstream: Option<VersionRequirement>,
    /// Markers of a side that has the fix.
    pub(in crate::rules) fixed_if: Vec<KexMarker>,
    /// Markers of a side that has the weakness.
    pub(in crate::rules) affected_if: Vec<KexMarker>,
}

impl Advisory {
    /// Returns true if the key exchange can settle an unknown verdict.
    pub(in crate::rules) fn asks_markers(&self) -> bool {
        !self.fixed_if.is_empty() || !self.affected_if.is_empty()
    }

    /// Returns true if the key exchange of a side with this identification can change a verdict.
    pub(in crate::rules) fn may_be_marked(&self, banner: &SshBanner<'_>) -> bool {
        self.fixed_if.iter().chain(&self.affected_if).any(|marker| marker.fits(banner))
    }

    /// Returns true if a blocking rule may have to wait for the key exchange.
    pub(in crate::rules) fn may_block_by_markers(&self) -> bool {
        let awaited = |marker: &KexMarker| self.block_unknown || !marker.is_of_packages();
        !self.affected_if.is_empty() || self.fixed_if.iter().any(awaited)
    }

    /// Returns true if `verdict` causes a match.
    pub(in crate::rules) fn reports(&self, verdict: AdvisoryVerdict) -> bool {
        self.report.contains(&verdict)
    }
}
