//! Attachments of a guard: the inventory and the page, which read its events, and published rules. Also the
//! inventory of a scan.
//!
//! Guard and scan use only traits ([`EventReader`], [`RuleSource`], [`ResultStore`]), so the packet path
//! depends on no database and no web server. This module implements the traits.

mod inventory;
mod page;
mod rules;
mod scan;

use crate::fleet::rules::{FleetRulesConfig, RulePoller};
use crate::guard::{EventReader, RuleSource};
use crate::inventory::RecordConfig;
use crate::scan::session::ResultStore;
use crate::serve::ServeConfig;
use inventory::InventoryReader;
use page::PageReader;
use rules::PublishedRules;
use scan::ScanInventory;

/// Returns the readers of a guard with this inventory and this page of it.
pub fn readers(inventory: Option<RecordConfig>, page: Option<ServeConfig>) -> Vec<Box<dyn EventReader>> {
    let sensor = inventory.as_ref().map_or_else(String::new, |inventory| inventory.sensor.clone());
    let inventory = inventory.map(|config| Box::new(InventoryReader(config)) as Box<dyn EventReader>);
    let page = page.map(|config| Box::new(PageReader { config, sensor }) as Box<dyn EventReader>);
    inventory.into_iter().chain(page).collect()
}

/// Returns the source of published rules.
pub fn rule_source(from: FleetRulesConfig) -> Box<dyn RuleSource> {
    Box::new(PublishedRules(RulePoller::new(from)))
}

/// Returns the store of a scan's results in this inventory.
pub fn result_store(inventory: RecordConfig) -> Box<dyn ResultStore> {
    Box::new(ScanInventory::new(inventory))
}
