//! The inventory as a reader of the guard's events.

use std::time::Duration;

use crate::diagnostics::log_line;
use crate::event::EventSource;
use crate::guard::{AttachedError, EventReader, EventSender, ReaderCounts, ReaderStart, RunningReader};
use crate::inventory::{Inventory, RecordConfig, StoreError};
use crate::privileges::UnprivilegedUser;

/// Inventory that is not open yet.
pub(super) struct InventoryReader(pub(super) RecordConfig);

/// Open inventory.
struct RunningInventory(Inventory);

/// Error of opening the inventory.
#[derive(Debug, thiserror::Error)]
#[error("--inventory {0}")]
pub(super) struct InventoryError(#[from] pub(super) StoreError);

impl EventReader for InventoryReader {
    fn prepare(&self, user: Option<&UnprivilegedUser>) -> Result<(), AttachedError> {
        self.0.prepare(user).map_err(InventoryError)?;
        let started = self.0.place.start_helpers(user);
        Ok(started.map_err(|error| format!("--inventory {}: {error}", self.0.place))?)
    }

    fn start(
        self: Box<Self>,
        ReaderStart { outputs, succeeds }: ReaderStart,
    ) -> Result<Box<dyn RunningReader>, AttachedError> {
        let started = self.0.with_takeover(succeeds).start(EventSource::Guard, outputs);
        Ok(Box::new(RunningInventory(started.map_err(InventoryError)?)))
    }
}

impl RunningReader for RunningInventory {
    fn sender(&self) -> EventSender {
        let observer = self.0.observer();
        Box::new(move |event| observer.share(event))
    }

    fn counts(&self) -> ReaderCounts {
        let (dropped, set_aside) = self.0.dropped();
        ReaderCounts {
            lost: self.0.lost(),
            evicted: self.0.removed_for_space(),
            replaced: self.0.replaced(),
            dropped,
            set_aside,
            waiting: self.0.waiting(),
        }
    }

    fn obstacle(&self) -> Option<String> {
        self.0.file_fault().map(|fault| format!("cannot write the inventory: {fault}"))
    }

    fn finish(self: Box<Self>, patience: Duration) -> ReaderCounts {
        let Some(finished) = self.0.finish_within(patience) else {
            log_line("bannerwall: the inventory did not store the last sightings in time");
            return ReaderCounts::default();
        };
        if finished.missing() > 0 {
            log_line(format_args!("bannerwall: the inventory lacks sightings: {}", finished.missing()));
        }
        let (lost, dropped, set_aside) = (finished.lost, finished.dropped, finished.set_aside);
        ReaderCounts { lost, dropped, set_aside, ..ReaderCounts::default() }
    }
}
