//! Records of the OSV schema (<https://ossf.github.io/osv-schema/>): files, directories of them, and zip
//! archives.
//!
//! In Debian's and Ubuntu's ecosystems, each release becomes a line. In ecosystems of upstream's own
//! packages (`PyPI`, `Maven` …), the ranges of versions stay as they are. A withdrawn record is no
//! weakness.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use cvss::Cvss;
use serde::Deserialize;
use serde_json::Value;

use super::bounded_json::{self, BoundedJson};
use super::{
    AdvisoryImportError, ImportSelection, PackageWeakness, ProductMap, archive, check_name, is_reference,
    severity, ubuntu, year,
};
use bannerwall_inspect::event::Severity;
use bannerwall_inspect::rules::VersionRequirement;
use bannerwall_inspect::rules::advisory::{PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};

/// Limit on one record, in bytes. Once parsed, short versions take ten times that memory.
const RECORD: u64 = 16 << 20;

/// Limit on all records of an archive, in bytes, unpacked.
const ARCHIVE: u64 = 16 << 30;

/// Ecosystems of upstream's own packages.
const UPSTREAMS: &[&str] =
    &["PyPI", "Maven", "npm", "Go", "crates.io", "RubyGems", "Packagist", "NuGet", "Hex"];

/// Reads the weaknesses of the wanted packages from files, directories and archives.
pub(super) fn read(
    paths: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<Vec<PackageWeakness>, AdvisoryImportError> {
    let mut collected = OsvCollector { products, wanted, weaknesses: BTreeMap::new() };
    for path in paths {
        collected.path(path)?;
    }
    let rated = |(weakness, severity): (PackageWeakness, Option<Severity>)| PackageWeakness {
        severity: severity.unwrap_or(Severity::Medium),
        ..weakness
    };
    let mut weaknesses: Vec<PackageWeakness> = collected.weaknesses.into_values().map(rated).collect();
    ubuntu::add_unlisted(&mut weaknesses);
    Ok(weaknesses)
}

/// The weaknesses so far, by package and name.
struct OsvCollector<'w> {
    products: &'w ProductMap,
    wanted: &'w ImportSelection,
    /// Each with its severity, if any record rates it.
    weaknesses: BTreeMap<(String, String), (PackageWeakness, Option<Severity>)>,
}

impl OsvCollector<'_> {
    fn path(&mut self, path: &Path) -> Result<(), AdvisoryImportError> {
        if path.is_dir() {
            let mut entries: Vec<PathBuf> = Vec::new();
            for entry in
                std::fs::read_dir(path).map_err(|error| AdvisoryImportError::unreadable(path, error))?
            {
                entries.push(entry.map_err(|error| AdvisoryImportError::unreadable(path, error))?.path());
            }
            // The first record of a weakness gives its description. The directory's own order would make it
            // depend on the file system.
            entries.sort();
            let is_record = |path: &PathBuf| path.is_dir() || has_ending(path, "json");
            return entries.iter().filter(|path| is_record(path)).try_for_each(|path| self.path(path));
        }
        if has_ending(path, "zip") {
            return self.archive(path);
        }
        let reader = BufReader::new(bounded_json::open(path, RECORD)?);
        self.record(&path.display().to_string(), reader)
    }

    fn archive(&mut self, path: &Path) -> Result<(), AdvisoryImportError> {
        let name = path.display().to_string();
        let malformed = |place: &str, message: String| AdvisoryImportError::Malformed {
            place: place.to_owned(),
            message,
        };
        let mut archive = archive::open(path)?;
        let members: Result<Vec<String>, _> =
            archive.file_names().map(|member| member.map(Cow::into_owned)).collect();
        let mut members = members.map_err(|error| malformed(&name, error.to_string()))?;
        members.retain(|member| has_ending(Path::new(member), "json"));
        members.sort();
        let mut left = ARCHIVE;
        for member in members {
            let place = format!("{name}:{}", member.escape_default());
            // The stated size is not trusted. All members share one limit, because a small archive can expand
            // to any size.
            let entry = archive.by_name(&member).map_err(|error| malformed(&place, error.to_string()))?;
            let mut bounded = BoundedJson::new(entry, RECORD.min(left));
            self.record(&place, BufReader::new(&mut bounded))?;
            left -= bounded.octets();
        }
        Ok(())
    }

    fn record(&mut self, place: &str, reader: impl std::io::Read) -> Result<(), AdvisoryImportError> {
        let record: OsvRecord =
            serde_json::from_reader(reader).map_err(|error| AdvisoryImportError::json(place, &error))?;
        let malformed = |message: String| AdvisoryImportError::Malformed { place: place.to_owned(), message };
        // A withdrawn record stays in the archive, but no longer applies.
        if record.withdrawn.is_some() {
            return Ok(());
        }
        let name = record.name();
        check_name(&name).map_err(&malformed)?;
        for affected in &record.affected {
            let Some(package) = affected.package.as_ref().and_then(OsvPackage::name) else { continue };
            if !self.products.has(&package) || !self.wanted.names(&package) {
                continue;
            }
            let about = affected.about().map_err(malformed)?;
            let key = (package.clone(), name.clone());
            let entry = self.weaknesses.entry(key);
            let (weakness, severity) = entry.or_insert_with(|| (record.weakness(&package, &name), None));
            *severity = (*severity).max(record.severity()).max(affected.severity());
            match about {
                AffectedContent::Line(line) if !weakness.lines.contains(&line) => weakness.lines.push(line),
                AffectedContent::Upstream(range) => weakness.add_upstream(&range),
                AffectedContent::Line(_) => {}
                AffectedContent::Nothing => weakness.unclear = true,
            }
        }
        Ok(())
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
}

#[derive(Deserialize)]
struct OsvRecord {
    id: String,
    #[serde(default)]
    published: String,
    #[serde(default)]
    modified: String,
    withdrawn: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    upstream: Vec<String>,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    details: String,
    #[serde(default)]
    severity: Vec<OsvSeverity>,
    #[serde(default)]
    references: Vec<OsvReference>,
    #[serde(default)]
    affected: Vec<OsvAffected>,
    database_specific: Option<Value>,
}

#[derive(Deserialize)]
struct OsvSeverity {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    score: String,
}

#[derive(Deserialize)]
struct OsvReference {
    url: String,
}

#[derive(Deserialize)]
struct OsvAffected {
    package: Option<OsvPackage>,
    #[serde(default)]
    ranges: Vec<OsvRange>,
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default)]
    severity: Vec<OsvSeverity>,
    ecosystem_specific: Option<Value>,
}

#[derive(Deserialize)]
struct OsvPackage {
    ecosystem: String,
    name: String,
}

#[derive(Deserialize)]
struct OsvRange {
    #[serde(rename = "type")]
    kind: RangeKind,
    #[serde(default)]
    events: Vec<OsvEvent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum RangeKind {
    Semver,
    Ecosystem,
    Git,
}

/// One event of a range: exactly one of these fields is set.
#[derive(Deserialize)]
struct OsvEvent {
    introduced: Option<String>,
    fixed: Option<String>,
    last_affected: Option<String>,
}

/// The usable content of an entry.
enum AffectedContent {
    /// A release of a distribution.
    Line(ReleaseAdvisory),
    /// Upstream's versions, as rules write them.
    Upstream(String),
    /// Nothing usable.
    Nothing,
}

impl OsvRecord {
    /// Returns the CVE if there is exactly one, else the record's own name.
    fn name(&self) -> String {
        // `UBUNTU-CVE-2024-6387` is the distribution's record of the CVE behind the prefix.
        let own = ["UBUNTU-", "DEBIAN-"].iter().find_map(|prefix| self.id.strip_prefix(prefix));
        if let Some(name) = own {
            return name.to_owned();
        }
        let others = self.aliases.iter().chain(&self.upstream);
        let mut cves: Vec<&String> =
            std::iter::once(&self.id).chain(others).filter(|name| name.starts_with("CVE-")).collect();
        cves.sort();
        cves.dedup();
        if let [cve] = cves.as_slice() { (*cve).clone() } else { self.id.clone() }
    }

    fn weakness(&self, package: &str, name: &str) -> PackageWeakness {
        let about = if self.summary.is_empty() { &self.details } else { &self.summary };
        let mut references = vec![name.to_owned()];
        references.extend((self.id != name).then(|| self.id.clone()));
        references.extend(self.references.iter().take(REFERENCES).map(|reference| reference.url.clone()));
        references.retain(|reference| is_reference(reference));
        references.dedup();
        PackageWeakness {
            package: package.to_owned(),
            name: name.to_owned(),
            description: about.clone(),
            severity: Severity::Medium,
            published: if self.published.is_empty() { year(name) } else { self.published.clone() },
            changed: self.modified.clone(),
            references,
            lines: Vec::new(),
            upstream: Vec::new(),
            unclear: false,
        }
    }

    /// Returns the record's rating in words, else by its highest CVSS score.
    fn severity(&self) -> Option<Severity> {
        let own = self.severity.iter().find(|score| score.kind == "Ubuntu").map(|score| score.score.as_str());
        let database = self.database_specific.as_ref().and_then(|value| value.get("severity")?.as_str());
        own.or(database).and_then(severity).or_else(|| scored(&self.severity))
    }
}

/// The severity of the highest score.
fn scored(scores: &[OsvSeverity]) -> Option<Severity> {
    let vectors = scores.iter().filter_map(|score| score.score.parse::<Cvss>().ok());
    let severities = vectors.map(|vector| match vector.severity() {
        cvss::Severity::None => Severity::Info,
        cvss::Severity::Low => Severity::Low,
        cvss::Severity::Medium => Severity::Medium,
        cvss::Severity::High => Severity::High,
        cvss::Severity::Critical => Severity::Critical,
    });
    severities.max()
}

/// Number of references of one record that a rule keeps.
const REFERENCES: usize = 4;

impl OsvPackage {
    /// Returns its name in the list of products: a source package, or `PyPI:paramiko`.
    fn name(&self) -> Option<String> {
        let family = self.ecosystem.split(':').next().unwrap_or_default();
        if UPSTREAMS.contains(&family) {
            return Some(format!("{family}:{}", self.name));
        }
        matches!(family, "Debian" | "Ubuntu").then(|| self.name.clone())
    }
}

impl OsvAffected {
    fn about(&self) -> Result<AffectedContent, String> {
        let Some(package) = &self.package else { return Ok(AffectedContent::Nothing) };
        let mut parts = package.ecosystem.split(':');
        match parts.next() {
            Some("Debian") => {
                self.line("Debian", parts.next().unwrap_or("sid").to_owned()).map(AffectedContent::Line)
            }
            Some("Ubuntu") => {
                let release: Vec<&str> = parts.filter(|part| *part != "LTS").collect();
                self.line("Ubuntu", release.join(":")).map(AffectedContent::Line)
            }
            _ => Ok(self.upstream().map_or(AffectedContent::Nothing, AffectedContent::Upstream)),
        }
    }

    fn line(&self, distribution: &str, release: String) -> Result<ReleaseAdvisory, String> {
        let mut affected = Vec::with_capacity(self.versions.len());
        for version in &self.versions {
            affected.push(PackageVersion::parse(version)?);
        }
        affected.sort_by(|one, other| one.shown().cmp(&other.shown()));
        let mut fix = None;
        let events = || {
            self.ranges.iter().filter(|range| range.kind != RangeKind::Git).flat_map(|range| &range.events)
        };
        for fixed in events().filter_map(|event| event.fixed.as_ref()) {
            fix = Some(PackageVersion::parse(fixed)?);
        }
        let newest = affected.last().cloned();
        // Banners show no epoch: versions with another one would be ambiguous.
        let epoch = fix.as_ref().or(newest.as_ref()).map_or(0, PackageVersion::epoch);
        affected.retain(|version| version.epoch() == epoch);
        let state = match fix {
            Some(fix) if fix.text() != "0" => ReleaseFixState::Fixed(fix),
            Some(_) => ReleaseFixState::Said(PackageStatus::NotAffected),
            None if events().any(|event| event.introduced.is_some()) => {
                ReleaseFixState::Said(PackageStatus::Open)
            }
            None => ReleaseFixState::Said(PackageStatus::Undetermined),
        };
        // For Debian's releases, the list is derived from the ranges and adds nothing.
        let affected = if distribution == "Ubuntu" { affected } else { Vec::new() };
        Ok(ReleaseAdvisory { distribution: distribution.to_owned(), release, newest, affected, state })
    }

    /// Returns the ranges of upstream's versions, as rules write them.
    fn upstream(&self) -> Option<String> {
        let mut alternatives: Vec<String> = Vec::new();
        // A range of Git holds commits, which no banner shows.
        for range in self.ranges.iter().filter(|range| range.kind != RangeKind::Git) {
            let mut from: Option<&str> = None;
            for event in &range.events {
                if let Some(introduced) = &event.introduced {
                    from = Some(introduced);
                }
                let end = match (&event.fixed, &event.last_affected) {
                    (Some(fixed), _) => Some(format!("<{fixed}")),
                    (None, Some(last)) => Some(format!("<={last}")),
                    (None, None) => None,
                };
                if let (Some(end), Some(start)) = (end, from.take_if(|_| event.introduced.is_none())) {
                    // `0` stands for "before any version" (OSV schema), so that there is no lower bound.
                    alternatives.push(if start == "0" { end } else { format!(">={start}, {end}") });
                }
            }
            alternatives.extend(from.map(|start| format!(">={start}")));
        }
        if alternatives.is_empty() {
            alternatives.extend(self.versions.iter().map(|version| format!("={version}")));
        }
        let text = alternatives.join(" || ");
        VersionRequirement::parse(&text).ok().map(|_| text)
    }

    /// Returns the distribution's rating in words, else the highest CVSS score for this package.
    fn severity(&self) -> Option<Severity> {
        let specific = self.ecosystem_specific.as_ref();
        let word = specific.and_then(|it| it.get("ubuntu_priority").or_else(|| it.get("urgency"))?.as_str());
        word.and_then(severity).or_else(|| scored(&self.severity))
    }
}
