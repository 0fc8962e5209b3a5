//! The inventory as a store of a scan's results.

use super::inventory::InventoryError;
use crate::event::EventSource;
use crate::inventory::{Inventory, RecordConfig};
use crate::output::ChannelHandle;
use crate::scan::session::{ResultFeed, ResultStore, StoreFault};

/// Inventory of a scan.
#[derive(Debug)]
pub(super) struct ScanInventory {
    config: RecordConfig,
    /// Inventory, once it is open.
    inventory: Option<Inventory>,
}

impl ScanInventory {
    /// Returns an inventory that is not open yet.
    pub(super) const fn new(config: RecordConfig) -> Self {
        Self { config, inventory: None }
    }
}

impl ResultStore for ScanInventory {
    fn prepare(&self) -> Result<(), StoreFault> {
        Ok(self.config.prepare(None).map_err(InventoryError)?)
    }

    fn start(&mut self, outputs: Vec<ChannelHandle>) -> Result<ResultFeed, StoreFault> {
        let inventory = self.config.start(EventSource::Scan, outputs).map_err(InventoryError)?;
        let (handle, known) = inventory.scan_feed();
        self.inventory = Some(inventory);
        Ok(ResultFeed { handle, known })
    }

    fn finish(self: Box<Self>) -> u64 {
        self.inventory.map_or(0, Inventory::finish)
    }
}
