//! What is attached to a guard: the inventory and the page, which read its events, and published rules.
//!
//! The guard knows traits alone ([`crate::guard::EventReader`]), so that the packet path depends on no
//! database and no web server. What implements them stands here.

mod inventory;
mod page;
mod rules;

use crate::fleet::rules::{RulesFrom, Taker};
use crate::guard::{EventReader, RuleSource};
use crate::inventory::RecordConfig;
use crate::serve::ServeConfig;
use inventory::InventoryReader;
use page::PageReader;
use rules::PublishedRules;

/// Returns the readers of a guard with this inventory and this page of it.
pub fn readers(inventory: Option<RecordConfig>, page: Option<ServeConfig>) -> Vec<Box<dyn EventReader>> {
    let sensor = inventory.as_ref().map_or_else(String::new, |inventory| inventory.sensor.clone());
    let inventory = inventory.map(|config| Box::new(InventoryReader(config)) as Box<dyn EventReader>);
    let page = page.map(|config| Box::new(PageReader { config, sensor }) as Box<dyn EventReader>);
    inventory.into_iter().chain(page).collect()
}

/// Returns the source of rules that are published there.
pub fn rule_source(from: RulesFrom) -> Box<dyn RuleSource> {
    Box::new(PublishedRules(Taker::new(from)))
}
