//! Bounds of the upstream versions that an advisory can report. The index skips the advisory for
//! others.
//!
//! Two orders meet here: the data order packages, banners hold upstream versions. Both agree on the
//! first numbers of a version, and only two numbers are compared. So the bounds may admit too many
//! versions, never too few.

use super::super::version::VersionRequirement;
use super::package_advisory::Advisory;
use super::release_advisory::{PackageStatus, ReleaseAdvisory, ReleaseFixState};
use crate::event::AdvisoryVerdict;

impl Advisory {
    /// Returns the versions outside of which nothing in the banner or its key exchange leads to a
    /// match; none if any version may match.
    pub(in crate::rules) fn bounds(&self) -> Option<VersionRequirement> {
        if self.reports(AdvisoryVerdict::Fixed) || !self.spelled.is_empty() {
            return None;
        }
        if self.reports(AdvisoryVerdict::Unknown)
            && self.affected_if.iter().any(|marker| !marker.is_of_packages())
        {
            // The key exchange can contradict a verdict of fixed, for any version.
            return None;
        }
        // If the version leaves the verdict unknown, the key exchange may still decide it.
        let unknown = self.reports(AdvisoryVerdict::Unknown) || !self.affected_if.is_empty();
        if unknown && !self.is_fixed_above() {
            return None;
        }
        let mut numbers: Vec<[u64; 2]> =
            self.lines.iter().flat_map(ReleaseAdvisory::upstreams).map(numbers).collect::<Option<_>>()?;
        numbers.sort_unstable();
        let ([low, below_low], [high, below_high]) = (numbers.first()?, numbers.last()?);
        let upper = format!("<{high}.{}", below_high.checked_add(1)?);
        // A package older than all in the data is not affected, but its verdict may be unknown.
        let text = if unknown { upper } else { format!(">={low}.{below_low}dev, {upper}") };
        VersionRequirement::parse(&text).ok()
    }

    /// Returns true if every version above those in the data is known to be fixed.
    fn is_fixed_above(&self) -> bool {
        let settled = |line: &ReleaseAdvisory| {
            let fixed = matches!(
                line.state,
                ReleaseFixState::Fixed(_) | ReleaseFixState::Said(PackageStatus::NotAffected)
            );
            fixed && line.distribution.eq_ignore_ascii_case("Debian")
        };
        let next = self.lines.iter().find(|line| line.is_development());
        self.upstream.is_none()
            && self.lines.iter().all(settled)
            && next.is_some_and(|line| line.fix().is_some())
    }
}

impl ReleaseAdvisory {
    /// Returns upstream's part of every version in the data.
    fn upstreams(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.affected.iter().chain(self.newest.as_ref()).chain(self.fix());
        all.map(|version| version.shown().upstream)
    }
}

/// Returns the first two numbers of a version; a missing one is 0.
fn numbers(version: &[u8]) -> Option<[u64; 2]> {
    let number = |digits: &[u8]| match digits {
        [] => Some(0),
        digits => std::str::from_utf8(digits).ok()?.parse().ok(),
    };
    let digits = |text: &[u8]| text.iter().take_while(|octet| octet.is_ascii_digit()).count();
    let (first, rest) = version.split_at_checked(digits(version))?;
    let second = rest.strip_prefix(b".").unwrap_or_default();
    Some([number(first)?, number(second.get(..digits(second))?)?])
}
