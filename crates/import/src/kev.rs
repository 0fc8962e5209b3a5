//! Weaknesses that are known to be exploited: CISA's list.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use super::{Fault, bounded, is_name};

/// Limit on the list, in bytes.
const LIST: u64 = 1 << 30;

/// Names of weaknesses that are known to be exploited.
#[derive(Debug, Clone, Default)]
pub struct Exploited(HashSet<String>);

#[derive(Deserialize)]
struct Catalogue {
    vulnerabilities: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "cveID")]
    name: String,
}

impl Exploited {
    /// Reads `known_exploited_vulnerabilities.json`.
    ///
    /// # Errors
    ///
    /// Returns the fault of the file, with its position.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let reader = std::io::BufReader::new(bounded::open(path, LIST)?);
        let catalogue: Catalogue = serde_json::from_reader(reader)
            .map_err(|error| Fault::json(&path.display().to_string(), &error))?;
        let names: HashSet<String> = catalogue.vulnerabilities.into_iter().map(|entry| entry.name).collect();
        match names.iter().find(|name| !is_name(name)) {
            Some(name) => {
                let message = format!("`{}` is no name of a weakness", name.escape_default());
                Err(Fault::Malformed { place: path.display().to_string(), message })
            }
            None => Ok(Self(names)),
        }
    }

    pub(super) fn holds(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}
