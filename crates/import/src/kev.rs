//! Weaknesses that are known to be exploited: CISA's list.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use super::{AdvisoryImportError, bounded_json, check_name};

/// Limit on the list, in bytes.
const LIST: u64 = 1 << 30;

/// Names of weaknesses that are known to be exploited.
#[derive(Debug, Clone, Default)]
pub struct ExploitedWeaknesses(HashSet<String>);

#[derive(Deserialize)]
struct KevCatalogue {
    vulnerabilities: Vec<KevEntry>,
}

#[derive(Deserialize)]
struct KevEntry {
    #[serde(rename = "cveID")]
    name: String,
}

impl ExploitedWeaknesses {
    /// Reads `known_exploited_vulnerabilities.json`.
    ///
    /// # Errors
    ///
    /// Returns the fault of the file, with its position.
    pub fn read(path: &Path) -> Result<Self, AdvisoryImportError> {
        let reader = std::io::BufReader::new(bounded_json::open(path, LIST)?);
        let catalogue: KevCatalogue = serde_json::from_reader(reader)
            .map_err(|error| AdvisoryImportError::json(&path.display().to_string(), &error))?;
        let names: HashSet<String> = catalogue.vulnerabilities.into_iter().map(|entry| entry.name).collect();
        names.iter().try_for_each(|name| check_name(name)).map_err(|message| {
            AdvisoryImportError::Malformed { place: path.display().to_string(), message }
        })?;
        Ok(Self(names))
    }

    pub(super) fn holds(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}
