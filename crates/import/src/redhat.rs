//! Red Hat's statements in CSAF's VEX profile: one file for each weakness. For each product's packages it
//! says whether they are fixed, affected or not.
//!
//! Red Hat's banners show no package revision, so these rules can only name the fix.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Fault, Products, Wanted, Weakness, bounded, is_name, is_reference, severity, year};
use bannerwall_inspect::event::Severity;
use bannerwall_inspect::rules::advisory::{Line, PackageVersion, State, Status};

/// Limit on one file, in bytes, unpacked.
const OCTETS: u64 = 1 << 30;

#[derive(Deserialize)]
struct Statement {
    document: Document,
    #[serde(default)]
    product_tree: Tree,
    #[serde(default)]
    vulnerabilities: Vec<Vulnerability>,
}

#[derive(Deserialize)]
struct Document {
    aggregate_severity: Option<Text>,
    #[serde(default)]
    tracking: Tracking,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Default, Deserialize)]
struct Tracking {
    #[serde(default)]
    current_release_date: String,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct Reference {
    url: String,
}

#[derive(Default, Deserialize)]
struct Tree {
    #[serde(default)]
    relationships: Vec<Relationship>,
}

/// A package in a product.
#[derive(Deserialize)]
struct Relationship {
    full_product_name: FullName,
    product_reference: String,
    relates_to_product_reference: String,
}

#[derive(Deserialize)]
struct FullName {
    product_id: String,
}

#[derive(Deserialize)]
struct Vulnerability {
    cve: Option<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    release_date: String,
    #[serde(default)]
    product_status: Statuses,
}

#[derive(Default, Deserialize)]
struct Statuses {
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
pub(super) fn read(files: &[PathBuf], products: &Products, wanted: &Wanted) -> Result<Vec<Weakness>, Fault> {
    let mut weaknesses: BTreeMap<(String, String), Weakness> = BTreeMap::new();
    for file in files {
        let place = file.display().to_string();
        let reader = std::io::BufReader::new(bounded::open(file, OCTETS)?);
        let statement: Statement =
            serde_json::from_reader(reader).map_err(|error| Fault::json(&place, &error))?;
        for vulnerability in &statement.vulnerabilities {
            let Some(name) = &vulnerability.cve else { continue };
            if !is_name(name) {
                let message = format!("`{}` is no name of a weakness", name.escape_default());
                return Err(Fault::Malformed { place, message });
            }
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

impl Statement {
    /// Returns the lines of each source package, release by release.
    fn lines(&self, vulnerability: &Vulnerability) -> Vec<(String, Line)> {
        let known: BTreeMap<&str, &Relationship> = self
            .product_tree
            .relationships
            .iter()
            .map(|one| (one.full_product_name.product_id.as_str(), one))
            .collect();
        let status = &vulnerability.product_status;
        let said = [
            (&status.fixed, None),
            (&status.known_affected, Some(Status::Open)),
            (&status.known_not_affected, Some(Status::NotAffected)),
            (&status.under_investigation, Some(Status::Undetermined)),
        ];
        let mut lines = Vec::new();
        for (ids, status) in said {
            for relationship in ids.iter().filter_map(|id| known.get(id.as_str())) {
                lines.extend(relationship.line(status));
            }
        }
        lines
    }

    fn weakness(&self, vulnerability: &Vulnerability, package: &str, name: &str) -> Weakness {
        let word = self.document.aggregate_severity.as_ref().map(|severity| severity.text.as_str());
        let mut references = vec![name.to_owned()];
        references.extend(self.document.references.iter().take(2).map(|reference| reference.url.clone()));
        references.retain(|reference| is_reference(reference));
        let date = &vulnerability.release_date;
        Weakness {
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

impl Relationship {
    /// Returns the source package and its line with `status`. Without a status, the reference names the
    /// fixed version.
    fn line(&self, status: Option<Status>) -> Option<(String, Line)> {
        let (package, release, state) = match status {
            None => {
                // openssh-0:8.7p1-38.el9_4.1.src
                let source = self.product_reference.strip_suffix(".src")?;
                let (rest, revision) = source.rsplit_once('-')?;
                let (package, version) = rest.rsplit_once('-')?;
                let release = number_behind(revision, ".el")?;
                let fix = PackageVersion::foreign(&format!("{version}-{revision}")).ok()?;
                (package, release, State::Fixed(fix))
            }
            Some(status) => {
                let package = self.product_reference.strip_suffix(".src").unwrap_or(&self.product_reference);
                (
                    package,
                    number_behind(&self.relates_to_product_reference, "enterprise_linux_")?,
                    State::Said(status),
                )
            }
        };
        let line =
            Line { distribution: "Red Hat".to_owned(), release, newest: None, affected: Vec::new(), state };
        Some((package.to_owned(), line))
    }
}

fn number_behind(text: &str, mark: &str) -> Option<String> {
    let (_, behind) = text.split_once(mark)?;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    Some(digits).filter(|digits| !digits.is_empty())
}
