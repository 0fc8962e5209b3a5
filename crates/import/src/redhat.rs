//! Red Hat's statements in CSAF's VEX profile: one file for each weakness. For each product's packages it
//! says whether they are fixed, affected or not.
//!
//! Red Hat's banners show no package revision, so these rules can only name the fix.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{
    AdvisoryImportError, ImportSelection, PackageWeakness, ProductMap, bounded_json, check_name,
    is_reference, severity, year,
};
use bannerwall_inspect::event::Severity;
use bannerwall_inspect::rules::advisory::{PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};

/// Limit on one file, in bytes, unpacked.
const OCTETS: u64 = 1 << 30;

#[derive(Deserialize)]
struct VexStatement {
    document: CsafDocument,
    #[serde(default)]
    product_tree: CsafProductTree,
    #[serde(default)]
    vulnerabilities: Vec<CsafVulnerability>,
}

#[derive(Deserialize)]
struct CsafDocument {
    aggregate_severity: Option<CsafText>,
    #[serde(default)]
    tracking: CsafTracking,
    #[serde(default)]
    references: Vec<CsafReference>,
}

#[derive(Default, Deserialize)]
struct CsafTracking {
    #[serde(default)]
    current_release_date: String,
}

#[derive(Deserialize)]
struct CsafText {
    text: String,
}

#[derive(Deserialize)]
struct CsafReference {
    url: String,
}

#[derive(Default, Deserialize)]
struct CsafProductTree {
    #[serde(default)]
    relationships: Vec<CsafRelationship>,
}

/// A package in a product.
#[derive(Deserialize)]
struct CsafRelationship {
    full_product_name: FullName,
    product_reference: String,
    relates_to_product_reference: String,
}

#[derive(Deserialize)]
struct FullName {
    product_id: String,
}

#[derive(Deserialize)]
struct CsafVulnerability {
    cve: Option<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    release_date: String,
    #[serde(default)]
    product_status: VexStatuses,
}

#[derive(Default, Deserialize)]
struct VexStatuses {
    #[serde(default)]
    fixed: Vec<String>,
    #[serde(default)]
    known_affected: Vec<String>,
    #[serde(default)]
    known_not_affected: Vec<String>,
    #[serde(default)]
    under_investigation: Vec<String>,
}

/// Reads the weaknesses of the wanted packages.
pub(super) fn read(
    files: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<Vec<PackageWeakness>, AdvisoryImportError> {
    let mut weaknesses: BTreeMap<(String, String), PackageWeakness> = BTreeMap::new();
    for file in files {
        let place = file.display().to_string();
        let reader = std::io::BufReader::new(bounded_json::open(file, OCTETS)?);
        let statement: VexStatement =
            serde_json::from_reader(reader).map_err(|error| AdvisoryImportError::json(&place, &error))?;
        for vulnerability in &statement.vulnerabilities {
            let Some(name) = &vulnerability.cve else { continue };
            check_name(name)
                .map_err(|message| AdvisoryImportError::Malformed { place: place.clone(), message })?;
            for (package, line) in statement.lines(vulnerability) {
                if !products.has(&package) || !wanted.names(&package) {
                    continue;
                }
                let weakness = weaknesses
                    .entry((package.clone(), name.clone()))
                    .or_insert_with(|| statement.weakness(vulnerability, &package, name));
                if !weakness.lines.contains(&line) {
                    weakness.lines.push(line);
                }
            }
        }
    }
    Ok(weaknesses.into_values().collect())
}

impl VexStatement {
    /// Returns the lines of each source package, release by release.
    fn lines(&self, vulnerability: &CsafVulnerability) -> Vec<(String, ReleaseAdvisory)> {
        let known: BTreeMap<&str, &CsafRelationship> = self
            .product_tree
            .relationships
            .iter()
            .map(|one| (one.full_product_name.product_id.as_str(), one))
            .collect();
        let status = &vulnerability.product_status;
        let said = [
            (&status.fixed, None),
            (&status.known_affected, Some(PackageStatus::Open)),
            (&status.known_not_affected, Some(PackageStatus::NotAffected)),
            (&status.under_investigation, Some(PackageStatus::Undetermined)),
        ];
        let mut lines = Vec::new();
        for (ids, status) in said {
            for relationship in ids.iter().filter_map(|id| known.get(id.as_str())) {
                lines.extend(relationship.line(status));
            }
        }
        lines
    }

    fn weakness(&self, vulnerability: &CsafVulnerability, package: &str, name: &str) -> PackageWeakness {
        let word = self.document.aggregate_severity.as_ref().map(|severity| severity.text.as_str());
        let mut references = vec![name.to_owned()];
        references.extend(self.document.references.iter().take(2).map(|reference| reference.url.clone()));
        references.retain(|reference| is_reference(reference));
        let date = &vulnerability.release_date;
        PackageWeakness {
            package: package.to_owned(),
            name: name.to_owned(),
            description: vulnerability.title.clone(),
            severity: word.and_then(severity).unwrap_or(Severity::Medium),
            published: if date.is_empty() { year(name) } else { date.clone() },
            changed: self.document.tracking.current_release_date.clone(),
            references,
            lines: Vec::new(),
            upstream: Vec::new(),
            unclear: false,
        }
    }
}

impl CsafRelationship {
    /// Returns the source package and its line with `status`. Without a status, the reference names the
    /// fixed version.
    fn line(&self, status: Option<PackageStatus>) -> Option<(String, ReleaseAdvisory)> {
        let (package, release, state) = match status {
            None => {
                // openssh-0:8.7p1-38.el9_4.1.src
                let source = self.product_reference.strip_suffix(".src")?;
                let (rest, revision) = source.rsplit_once('-')?;
                let (package, version) = rest.rsplit_once('-')?;
                let release = number_after(revision, ".el")?;
                let fix = PackageVersion::foreign(&format!("{version}-{revision}")).ok()?;
                (package, release, ReleaseFixState::Fixed(fix))
            }
            Some(status) => {
                let package = self.product_reference.strip_suffix(".src").unwrap_or(&self.product_reference);
                (
                    package,
                    number_after(&self.relates_to_product_reference, "enterprise_linux_")?,
                    ReleaseFixState::Said(status),
                )
            }
        };
        let line = ReleaseAdvisory {
            distribution: "Red Hat".to_owned(),
            release,
            newest: None,
            affected: Vec::new(),
            state,
        };
        Some((package.to_owned(), line))
    }
}

fn number_after(text: &str, mark: &str) -> Option<String> {
    let (_, behind) = text.split_once(mark)?;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    Some(digits).filter(|digits| !digits.is_empty())
}
