//! The National Vulnerability Database's CVE records, version 2.0 of its API: one object with a list of
//! `vulnerabilities`, which are read one by one.
//!
//! A record's configurations name software by CPE, with ranges of upstream's versions. They do not cover
//! distributions' packages, so the verdict about a version in a range is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    AdvisoryImportError, ImportSelection, PackageWeakness, ProductMap, bounded_json, check_name,
    is_reference, severity, year,
};
use bannerwall_inspect::event::Severity;
use bannerwall_inspect::rules::VersionRequirement;

/// Limit on one file, in bytes, unpacked.
const OCTETS: u64 = 4 << 30;

/// Number of references of one record that a rule keeps.
const REFERENCES: usize = 4;

/// Reads the weaknesses of the wanted products.
pub(super) fn read(
    files: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<Vec<PackageWeakness>, AdvisoryImportError> {
    let mut weaknesses = BTreeMap::new();
    for file in files {
        NvdCollector { products, wanted, weaknesses: &mut weaknesses }.read(file)?;
    }
    Ok(weaknesses.into_values().collect())
}

/// The weaknesses so far, by package and name.
struct NvdCollector<'w> {
    products: &'w ProductMap,
    wanted: &'w ImportSelection,
    weaknesses: &'w mut BTreeMap<(String, String), PackageWeakness>,
}

impl NvdCollector<'_> {
    fn read(self, file: &Path) -> Result<(), AdvisoryImportError> {
        let reader = std::io::BufReader::new(bounded_json::open(file, OCTETS)?);
        let mut json = serde_json::Deserializer::from_reader(reader);
        let read = json.deserialize_map(self).and_then(|()| json.end());
        read.map_err(|error| AdvisoryImportError::json(&file.display().to_string(), &error))
    }

    fn take(&mut self, record: &NvdRecord) -> Result<(), String> {
        check_name(&record.id)?;
        // A rejected number was withdrawn or is a duplicate; its record holds nothing.
        if record.status.eq_ignore_ascii_case("Rejected") {
            return Ok(());
        }
        // A negated node names what must be absent, and an entry that is not vulnerable the platform: neither
        // says that its product is affected.
        let nodes = record.configurations.iter().flat_map(|one| &one.nodes).filter(|node| !node.negate);
        for software in nodes.flat_map(|node| &node.software).filter(|software| software.vulnerable) {
            let Some(name) = CpeName::parse(&software.criteria) else {
                return Err(format!("`{}` is no CPE 2.3 name", software.criteria.escape_default()));
            };
            let range = software.range(&name);
            for package in self.products.of_cpe(&name.software) {
                if !self.wanted.names(package) {
                    continue;
                }
                let key = (package.to_owned(), record.id.clone());
                let weakness = self.weaknesses.entry(key).or_insert_with(|| record.weakness(package));
                match &range {
                    Some(range) => weakness.add_upstream(range),
                    None => weakness.unclear = true,
                }
            }
        }
        Ok(())
    }
}

/// The software of a CPE 2.3 name.
struct CpeName {
    /// `openbsd:openssh`.
    software: String,
    version: String,
    update: String,
}

impl CpeName {
    /// Parses `cpe:2.3:a:VENDOR:PRODUCT:VERSION:UPDATE:…`. A backslash precedes a colon that is no
    /// separator.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = vec![String::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                ':' => parts.push(String::new()),
                // Taken without the backslash, as the product list writes it.
                '\\' => parts.last_mut()?.push(characters.next()?),
                other => parts.last_mut()?.push(other),
            }
        }
        match parts.as_slice() {
            [cpe, edition, _, vendor, product, version, update, ..] if cpe == "cpe" && edition == "2.3" => {
                let software = format!("{vendor}:{product}");
                Some(Self { software, version: version.clone(), update: update.clone() })
            }
            _ => None,
        }
    }
}

impl CpeMatch {
    /// Returns its versions as rules write them, if rules can.
    fn range(&self, name: &CpeName) -> Option<String> {
        let text = match (name.version.as_str(), name.update.as_str()) {
            // `-` is CPE's "not applicable" (NISTIR 7695): no banner shows such a version.
            ("-", _) => return None,
            ("*", _) => {
                let bounds = [
                    (">=", &self.version_start_including),
                    (">", &self.version_start_excluding),
                    ("<=", &self.version_end_including),
                    ("<", &self.version_end_excluding),
                ];
                let given =
                    bounds.iter().filter_map(|(sign, version)| Some(format!("{sign}{}", version.as_ref()?)));
                let given: Vec<String> = given.collect();
                if given.is_empty() { ">=0".to_owned() } else { given.join(", ") }
            }
            (version, "*" | "-") => format!("={version}"),
            // OpenSSH's 8.5p1 is version `8.5` with update `p1`.
            (version, update) => format!("={version}{update}"),
        };
        VersionRequirement::parse(&text).ok().map(|_| text)
    }
}

impl NvdRecord {
    fn weakness(&self, package: &str) -> PackageWeakness {
        let english = self.descriptions.iter().find(|description| description.lang == "en");
        let mut references = vec![self.id.clone(), format!("https://nvd.nist.gov/vuln/detail/{}", self.id)];
        references.extend(self.references.iter().take(REFERENCES).map(|reference| reference.url.clone()));
        references.retain(|reference| is_reference(reference));
        // The newest metric wins: `cvssMetricV40` before `cvssMetricV31`.
        let metrics = self.metrics.values().rev().flatten();
        let word = metrics.filter_map(CvssMetric::severity).next();
        PackageWeakness {
            package: package.to_owned(),
            name: self.id.clone(),
            description: english.map(|description| description.value.clone()).unwrap_or_default(),
            severity: word.and_then(severity).unwrap_or(Severity::Medium),
            published: if self.published.is_empty() { year(&self.id) } else { self.published.clone() },
            changed: self.changed.clone(),
            references,
            lines: Vec::new(),
            upstream: Vec::new(),
            unclear: false,
        }
    }
}

impl CvssMetric {
    fn severity(&self) -> Option<&str> {
        let newer = self.cvss_data.as_ref().and_then(|score| score.base_severity.as_deref());
        newer.or(self.base_severity.as_deref())
    }
}

impl<'de> Visitor<'de> for NvdCollector<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with `vulnerabilities`")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "vulnerabilities" {
                seen = true;
                map.next_value_seed(NvdRecordList(&mut self))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if seen { Ok(()) } else { Err(M::Error::missing_field("vulnerabilities")) }
    }
}

/// The list of records, read one by one.
struct NvdRecordList<'p, 'w>(&'p mut NvdCollector<'w>);

impl<'de> DeserializeSeed<'de> for NvdRecordList<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for NvdRecordList<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of records")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<(), S::Error> {
        while let Some(item) = sequence.next_element::<NvdItem>()? {
            self.0.take(&item.cve).map_err(S::Error::custom)?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct NvdItem {
    cve: NvdRecord,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NvdRecord {
    id: String,
    #[serde(default)]
    published: String,
    #[serde(default, rename = "lastModified")]
    changed: String,
    #[serde(default, rename = "vulnStatus")]
    status: String,
    #[serde(default)]
    descriptions: Vec<NvdDescription>,
    #[serde(default)]
    metrics: BTreeMap<String, Vec<CvssMetric>>,
    #[serde(default)]
    configurations: Vec<CpeConfiguration>,
    #[serde(default)]
    references: Vec<NvdReference>,
}

#[derive(Deserialize)]
struct NvdDescription {
    lang: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CvssMetric {
    base_severity: Option<String>,
    cvss_data: Option<CvssScore>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CvssScore {
    base_severity: Option<String>,
}

#[derive(Deserialize)]
struct CpeConfiguration {
    #[serde(default)]
    nodes: Vec<CpeNode>,
}

#[derive(Deserialize)]
struct CpeNode {
    #[serde(default)]
    negate: bool,
    #[serde(default, rename = "cpeMatch")]
    software: Vec<CpeMatch>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpeMatch {
    vulnerable: bool,
    criteria: String,
    version_start_including: Option<String>,
    version_start_excluding: Option<String>,
    version_end_including: Option<String>,
    version_end_excluding: Option<String>,
}

#[derive(Deserialize)]
struct NvdReference {
    url: String,
}
