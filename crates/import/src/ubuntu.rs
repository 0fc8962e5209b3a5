//! Meaning of a release that is missing in Ubuntu's records.
//!
//! Ubuntu's records name every affected release while it is maintained. So a release is not affected if
//! other records of the package name it, and if it was maintained when the record without it was
//! published.

use std::collections::BTreeMap;

use super::PackageWeakness;
use bannerwall_inspect::rules::advisory::{PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};

/// Number of years for which a release of long-term support gets all updates.
const LONG_TERM_YEARS: u32 = 5;

/// Number of months for which any other release does.
const MONTHS: u32 = 9;

/// Adds the releases that are not listed, so that a rule can judge their packages.
pub(super) fn add_unlisted(weaknesses: &mut [PackageWeakness]) {
    let mut known: BTreeMap<(String, String), PackageVersion> = BTreeMap::new();
    for weakness in weaknesses.iter() {
        for line in weakness.lines.iter().filter(|line| line.distribution == "Ubuntu") {
            for version in line.newest.iter().chain(line.fix()) {
                let newest = known.entry((weakness.package.clone(), line.release.clone()));
                let newest = newest.or_insert_with(|| version.clone());
                if newest.shown() < version.shown() {
                    *newest = version.clone();
                }
            }
        }
    }
    for weakness in weaknesses {
        let listed = |release: &str| {
            // A release has every fix of its extended maintenance.
            let is =
                |line: &&ReleaseAdvisory| line.distribution == "Ubuntu" && line.release.ends_with(release);
            weakness.lines.iter().any(|line| is(&line))
        };
        let missing: Vec<ReleaseAdvisory> = known
            .iter()
            .filter(|((package, release), _)| *package == weakness.package && !listed(release))
            .filter(|((_, release), _)| is_maintained(release, &weakness.published))
            .map(|((_, release), newest)| ReleaseAdvisory {
                distribution: "Ubuntu".to_owned(),
                release: release.clone(),
                newest: Some(newest.clone()),
                affected: Vec::new(),
                state: ReleaseFixState::Said(PackageStatus::NotListed),
            })
            .collect();
        // If Ubuntu lists no release at all, it has not judged the package, and a missing release says
        // nothing.
        if weakness.lines.iter().any(|line| line.distribution == "Ubuntu") {
            weakness.lines.extend(missing);
        }
        weakness.lines.sort_by(|one, other| {
            (&one.distribution, &one.release).cmp(&(&other.distribution, &other.release))
        });
    }
}

/// True if the release `22.04` got updates on the day or in the year `published`.
fn is_maintained(release: &str, published: &str) -> bool {
    let Some((year, month)) = release.split_once('.') else { return false };
    let (Ok(year), Ok(month)) = (year.parse::<u32>(), month.parse::<u32>()) else { return false };
    let long_term = month == 4 && year % 2 == 0;
    let months = (2000 + year) * 12 + month + if long_term { LONG_TERM_YEARS * 12 } else { MONTHS };
    let number =
        |range: std::ops::Range<usize>| published.get(range).and_then(|part| part.parse::<u32>().ok());
    // A year alone may mean its end.
    let Some(at) = number(0..4).map(|year| year * 12 + number(5..7).unwrap_or(12)) else { return false };
    at < months
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_maintained_for_its_time() {
        for (release, published, maintained) in [
            ("22.04", "2024-07-01T00:00:00Z", true),
            ("23.10", "2024-07-01T00:00:00Z", false),
            ("23.10", "2024-06-30T00:00:00Z", true),
            ("20.04", "2025", false),
            ("20.04", "2024", true),
            ("22.04", "", false),
            ("Pro:18.04", "2019-01-01", false),
        ] {
            assert_eq!(is_maintained(release, published), maintained, "{release} {published}");
        }
    }
}
