//! Debian's security tracker: one JSON object of all source packages.
//!
//! `{package: {CVE: {description, releases: {codename: {status, repositories: {suite: version},
//! fixed_version, urgency}}}}}`. `resolved` with the fixed version `0` means that the release never had
//! the weakness. `end-of-life` means that no work is done any more. `unimportant` means that the package
//! as built may not have it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::{
    AdvisoryImportError, ImportSelection, PackageWeakness, ProductMap, bounded_json, check_name, year,
};
use bannerwall_inspect::event::Severity;
use bannerwall_inspect::rules::advisory::{PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};

/// Limit on the file, in bytes, unpacked.
const OCTETS: u64 = 4 << 30;

/// Names of Debian's releases, with their numbers in package versions.
const RELEASES: &[(&str, &str)] = &[
    ("wheezy", "7"),
    ("jessie", "8"),
    ("stretch", "9"),
    ("buster", "10"),
    ("bullseye", "11"),
    ("bookworm", "12"),
    ("trixie", "13"),
    ("forky", "14"),
    ("duke", "15"),
];

/// Largest number of releases of one weakness, and of suites of one release; honest data have fewer than
/// ten.
const ENTRIES: usize = 64;

/// Function that takes each weakness.
type Take<'t> = dyn FnMut(PackageWeakness) -> Result<(), AdvisoryImportError> + 't;

/// Passes the weaknesses of the wanted packages to `take`, one by one.
pub(super) fn read(
    file: &Path,
    products: &ProductMap,
    wanted: &ImportSelection,
    take: &mut Take<'_>,
) -> Result<(), AdvisoryImportError> {
    let reader = bounded_json::open(file, OCTETS)?;
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(reader));
    let mut refused = None;
    let read = json.deserialize_map(DebianTrackerVisitor { products, wanted, take, refused: &mut refused });
    let read = read.and_then(|()| json.end());
    match refused {
        Some(fault) => Err(fault),
        None => read.map_err(|error| AdvisoryImportError::json(&file.display().to_string(), &error)),
    }
}

/// Visitor of the whole object; it keeps nothing.
struct DebianTrackerVisitor<'w, 't> {
    products: &'w ProductMap,
    wanted: &'w ImportSelection,
    take: &'w mut Take<'t>,
    /// The error with which `take` refused a weakness.
    refused: &'w mut Option<AdvisoryImportError>,
}

impl<'de> Visitor<'de> for DebianTrackerVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the security tracker's object of source packages")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(package) = map.next_key::<String>()? {
            if self.products.has(&package) && self.wanted.names(&package) {
                map.next_value_seed(DebianPackageVisitor { name: &package, tracker: &mut self })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The weaknesses of one package.
struct DebianPackageVisitor<'p, 'w, 't> {
    name: &'p str,
    tracker: &'p mut DebianTrackerVisitor<'w, 't>,
}

impl<'de> DeserializeSeed<'de> for DebianPackageVisitor<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DebianPackageVisitor<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a package's object of weaknesses")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some((name, issue)) = map.next_entry::<String, DebianIssue>()? {
            check_name(&name).map_err(|message| M::Error::custom(format!("{}: {message}", self.name)))?;
            if let Err(fault) = (self.tracker.take)(issue.weakness(self.name, name)) {
                *self.tracker.refused = Some(fault);
                return Err(M::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// Returns the entries of a small object.
fn few<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    struct BoundedMapVisitor<V>(PhantomData<V>);

    impl<'de, V: Deserialize<'de>> Visitor<'de> for BoundedMapVisitor<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "an object of at most {ENTRIES} entries")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut entries = BTreeMap::new();
            while let Some((name, value)) = map.next_entry()? {
                if entries.len() >= ENTRIES {
                    return Err(M::Error::custom(format!("more than {ENTRIES} entries")));
                }
                entries.insert(name, value);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_map(BoundedMapVisitor(PhantomData))
}

/// One weakness of a package.
#[derive(Deserialize)]
struct DebianIssue {
    #[serde(default)]
    description: String,
    #[serde(deserialize_with = "few")]
    releases: BTreeMap<String, DebianRelease>,
}

/// Data about the weakness in one release.
#[derive(Deserialize)]
struct DebianRelease {
    status: DebianStatus,
    #[serde(default, deserialize_with = "few")]
    repositories: BTreeMap<String, CheckedVersion>,
    fixed_version: Option<CheckedVersion>,
    #[serde(default)]
    urgency: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DebianStatus {
    Resolved,
    Open,
    Undetermined,
}

/// A version that dpkg accepts.
#[derive(Clone)]
struct CheckedVersion(PackageVersion);

impl<'de> Deserialize<'de> for CheckedVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        PackageVersion::parse(&text).map(Self).map_err(D::Error::custom)
    }
}

impl DebianIssue {
    fn weakness(self, package: &str, name: String) -> PackageWeakness {
        let severity = self.releases.values().map(DebianRelease::severity).max().unwrap_or(Severity::Medium);
        let lines = self.releases.into_iter().map(|(codename, release)| release.line(&codename));
        let mut lines: Vec<ReleaseAdvisory> = lines.collect();
        lines.sort_by_key(|line| (line.is_development(), line.release.parse::<u32>().unwrap_or(u32::MAX)));
        let mut references = vec![format!("https://security-tracker.debian.org/tracker/{name}")];
        references.extend(name.starts_with("CVE-").then(|| name.clone()));
        references.reverse();
        PackageWeakness {
            package: package.to_owned(),
            published: year(&name),
            name,
            description: self.description,
            severity,
            changed: String::new(),
            references,
            lines,
            upstream: Vec::new(),
            unclear: false,
        }
    }
}

impl DebianRelease {
    fn severity(&self) -> Severity {
        match self.urgency.trim_end_matches('*') {
            "high" => Severity::High,
            "low" => Severity::Low,
            "unimportant" => Severity::Info,
            // `not yet assigned` is no severity.
            _ => Severity::Medium,
        }
    }

    fn line(self, codename: &str) -> ReleaseAdvisory {
        let number = RELEASES.iter().find(|(name, _)| *name == codename).map(|(_, number)| *number);
        let doubtful = matches!(self.urgency.trim_end_matches('*'), "unimportant" | "end-of-life");
        let newest = self.repositories.into_values().map(|version| version.0);
        let newest = newest.max_by(|one, other| {
            one.epoch().cmp(&other.epoch()).then_with(|| one.shown().cmp(&other.shown()))
        });
        let state = match (self.status, self.fixed_version) {
            (DebianStatus::Resolved, Some(fixed)) => fixed_in(fixed.0, newest.as_ref(), doubtful),
            (DebianStatus::Open, _) if !doubtful => ReleaseFixState::Said(PackageStatus::Open),
            (DebianStatus::Resolved | DebianStatus::Open | DebianStatus::Undetermined, _) => {
                ReleaseFixState::Said(PackageStatus::Undetermined)
            }
        };
        let release = number.unwrap_or(codename).to_owned();
        ReleaseAdvisory { distribution: "Debian".to_owned(), release, newest, affected: Vec::new(), state }
    }
}

/// Returns the state of a release with a fixed version whose newest package is `newest`. Banners show no
/// epoch, so versions with different epochs are distinguished here.
fn fixed_in(fixed: PackageVersion, newest: Option<&PackageVersion>, doubtful: bool) -> ReleaseFixState {
    let epoch = newest.map_or(fixed.epoch(), PackageVersion::epoch);
    if fixed.text() == "0" || fixed.epoch() < epoch {
        return ReleaseFixState::Said(PackageStatus::NotAffected);
    }
    if fixed.epoch() > epoch {
        return ReleaseFixState::Said(PackageStatus::Undetermined);
    }
    // If the release began with the fix, it does not matter whether the weakness was exploitable.
    let began_fixed = newest.is_some_and(|newest| newest.shown().start() >= fixed.shown());
    if doubtful && !began_fixed {
        ReleaseFixState::Said(PackageStatus::Undetermined)
    } else {
        ReleaseFixState::Fixed(fixed)
    }
}
