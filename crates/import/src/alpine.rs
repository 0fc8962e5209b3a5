//! Alpine's security database (secdb): the package version that fixes each weakness, one file for each
//! branch.
//!
//! A version `0` means that the package never had the weakness. Alpine's banners do not show a package's
//! revision.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{
    AdvisoryImportError, ImportSelection, PackageWeakness, ProductMap, bounded_json, check_name, year,
};
use bannerwall_inspect::event::Severity;
use bannerwall_inspect::rules::advisory::{PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};

/// Limit on one file, in bytes, unpacked.
const OCTETS: u64 = 1 << 30;

#[derive(Deserialize)]
struct AlpineBranch {
    distroversion: String,
    packages: Vec<AlpineItem>,
}

#[derive(Deserialize)]
struct AlpineItem {
    pkg: AlpinePackage,
}

#[derive(Deserialize)]
struct AlpinePackage {
    name: String,
    #[serde(default)]
    secfixes: BTreeMap<String, Option<Vec<String>>>,
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
        let branch: AlpineBranch =
            serde_json::from_reader(reader).map_err(|error| AdvisoryImportError::json(&place, &error))?;
        let release = branch.distroversion.trim_start_matches('v').to_owned();
        let asked = |package: &&AlpinePackage| products.has(&package.name) && wanted.names(&package.name);
        for package in branch.packages.iter().map(|item| &item.pkg).filter(asked) {
            for (version, names) in &package.secfixes {
                let state = state(version).map_err(|message| AdvisoryImportError::Malformed {
                    place: place.clone(),
                    message: format!("{}: {message}", package.name),
                })?;
                // One entry may hold several names of the same weakness: `CVE-2021-1 GHSA-xxxx`.
                for name in names.iter().flatten().filter_map(|names| names.split_whitespace().next()) {
                    check_name(name).map_err(|message| AdvisoryImportError::Malformed {
                        place: place.clone(),
                        message,
                    })?;
                    let line = ReleaseAdvisory {
                        distribution: "Alpine".to_owned(),
                        release: release.clone(),
                        newest: None,
                        affected: Vec::new(),
                        state: state.clone(),
                    };
                    let key = (package.name.clone(), name.to_owned());
                    let weakness = weaknesses.entry(key).or_insert_with(|| weakness(&package.name, name));
                    weakness.lines.push(line);
                }
            }
        }
    }
    Ok(weaknesses.into_values().collect())
}

fn state(version: &str) -> Result<ReleaseFixState, String> {
    if version == "0" {
        return Ok(ReleaseFixState::Said(PackageStatus::NotAffected));
    }
    PackageVersion::foreign(version).map(ReleaseFixState::Fixed)
}

fn weakness(package: &str, name: &str) -> PackageWeakness {
    PackageWeakness {
        package: package.to_owned(),
        name: name.to_owned(),
        description: String::new(),
        severity: Severity::Medium,
        published: year(name),
        references: vec![name.to_owned(), format!("https://security.alpinelinux.org/vuln/{name}")],
        lines: Vec::new(),
        upstream: Vec::new(),
        changed: String::new(),
        unclear: false,
    }
}
