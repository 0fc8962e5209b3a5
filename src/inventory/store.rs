//! The trait of stores that keep the inventory.

use std::time::Duration;

use super::change::InventoryChange;
use super::error::StoreError;
use super::sighting::{AssetKey, NamedSoftware, SightingContent};
use crate::event::Timestamp;

/// All equal sightings of an asset since the last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SightingRecord {
    pub(super) asset: AssetKey,
    pub(super) what: SightingContent,
    pub(super) software: NamedSoftware,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u64,
}

/// Source and purpose of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDescription {
    /// Guard, scan or replay, or the program whose files are imported.
    pub source: &'static str,
    /// True if sightings from before a time already recorded are not counted again: a file may be read
    /// twice.
    pub once: bool,
    /// True if changes are wanted.
    pub reports_changes: bool,
    /// The name of the sensor.
    pub sensor: String,
    /// Description of the targets or files, for a person.
    pub about: String,
}

/// Result of writing a batch.
#[derive(Debug, Default)]
pub(super) struct WriteResult {
    /// Number of written records, from the first on. It is less than all if an earlier call wrote these
    /// but its answer was lost. The caller writes the others again.
    pub(super) records: usize,
    /// The changes that they caused, if the run [wants](RunDescription::reports_changes) them.
    pub(super) changes: Vec<InventoryChange>,
}

/// Keeps sightings: all of a batch or nothing of it.
pub(super) trait SightingStore: Send {
    /// Writes a batch. The caller repeats a refused one from its start, perhaps with further records, or
    /// drops it.
    ///
    /// # Errors
    /// Nothing is known to be written.
    fn write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, StoreError>;

    /// Reopens a file that was deleted or replaced; returns true if it was.
    ///
    /// # Errors
    /// It cannot be opened.
    fn reopen_if_replaced(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Removes data that was last seen before a time.
    ///
    /// # Errors
    /// Nothing was removed.
    fn prune(&mut self, _before: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// Marks servers as gone that were last seen before a time; returns the changes like
    /// [`write`](Self::write).
    ///
    /// # Errors
    /// None is marked as gone.
    fn mark_gone(&mut self, _before: Timestamp) -> Result<Vec<InventoryChange>, StoreError> {
        Ok(Vec::new())
    }

    /// Makes space for `coming` records if it is near its size limit. It removes gone services first,
    /// then those unseen for longest. Returns the number of removed rows.
    ///
    /// # Errors
    /// There is no more space than before.
    fn make_room(&mut self, _coming: usize) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Time for which records may wait to be written together; absent for not at all.
    fn batching_delay(&self) -> Option<Duration> {
        None
    }

    /// Ends the run cleanly; `lost` sightings could not be kept.
    ///
    /// # Errors
    /// The end could not be recorded.
    fn finish(&mut self, lost: u64) -> Result<(), StoreError>;
}
