//! Exports software as a `CycloneDX` 1.6 document: a component for each product and version with the
//! services that run it, and a vulnerability for each rule with findings.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::ExportError;
use crate::inventory::database::InventoryDatabase;
use crate::inventory::database::query::{self, ServiceRecord};
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;

/// The properties that distinguish components.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ComponentKey {
    vendor: Option<String>,
    name: String,
    version: Option<String>,
    patch: Option<String>,
    cpe: Option<String>,
}

/// A rule with findings.
#[derive(Debug)]
struct VulnerabilityEntry {
    title: String,
    severity: String,
    /// Numbers of components.
    affects: Vec<usize>,
}

/// Writes the software of the services that a filter selects; services without a product are left out.
///
/// # Errors
/// Errors of the database or of `out`.
pub fn cyclonedx(
    inventory: &InventoryDatabase,
    filter: &ServiceFilter,
    now: InventoryTime,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut components: BTreeMap<ComponentKey, (usize, Vec<Value>)> = BTreeMap::new();
    let mut findings: BTreeMap<String, VulnerabilityEntry> = BTreeMap::new();
    query::services(inventory, filter, |service| -> Result<(), ExportError> {
        let Some(software) = software(&service) else { return Ok(()) };
        let next = components.len();
        let (number, places) = components.entry(software).or_insert_with(|| (next, Vec::new()));
        places.push(json!({ "location": service.place(), "additionalContext": context(&service) }));
        for found in service.findings {
            let finding = findings.entry(found.rule).or_insert_with(|| VulnerabilityEntry {
                title: found.title,
                severity: found.severity,
                affects: Vec::new(),
            });
            if !finding.affects.contains(number) {
                finding.affects.push(*number);
            }
        }
        Ok(())
    })?;
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": now,
            "tools": { "components": [{
                "type": "application", "name": "bannerwall", "version": env!("CARGO_PKG_VERSION"),
            }] },
        },
        "components": components.into_iter().map(component).collect::<Vec<_>>(),
        "vulnerabilities": findings.into_iter().map(vulnerability).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *out, &document).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

fn software(service: &ServiceRecord) -> Option<ComponentKey> {
    Some(ComponentKey {
        vendor: service.vendor.clone(),
        name: service.product.clone()?,
        version: service.version.clone(),
        patch: service.patch.clone(),
        cpe: service.cpe.clone(),
    })
}

/// Returns the banner, and the time of it.
fn context(service: &ServiceRecord) -> String {
    let (protocol, side, state) = (&service.protocol, &service.side, &service.state);
    format!("{protocol} {side}, {state}, last seen {}: {}", service.last_seen, service.banner)
}

fn component((software, (number, places)): (ComponentKey, (usize, Vec<Value>))) -> Value {
    let mut component = json!({
        "type": "application",
        "bom-ref": reference(number),
        "name": software.name,
        "evidence": { "occurrences": places },
    });
    let known = [("version", software.version), ("publisher", software.vendor), ("cpe", software.cpe)];
    for (name, value) in known {
        if let Some(value) = value {
            component[name] = value.into();
        }
    }
    if let Some(patch) = software.patch {
        component["properties"] = json!([{ "name": "bannerwall:patch", "value": patch }]);
    }
    component
}

fn vulnerability((rule, finding): (String, VulnerabilityEntry)) -> Value {
    let affects: Vec<Value> =
        finding.affects.iter().map(|number| json!({ "ref": reference(*number) })).collect();
    json!({
        "id": rule,
        "source": { "name": "bannerwall" },
        "ratings": [{ "severity": finding.severity, "method": "other" }],
        "description": finding.title,
        "affects": affects,
    })
}

fn reference(number: usize) -> String {
    format!("software-{number}")
}
