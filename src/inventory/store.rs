//! The trait of stores that keep the inventory, and their errors.

use std::path::PathBuf;
use std::time::Duration;

use super::database::InventoryChange;
use super::sighting::{AssetKey, NamedSoftware, SightingContent};
use crate::database::{DatabaseError, DatabaseLocation};
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
    pub tells: bool,
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
    /// The changes that they caused, if the run [wants](RunDescription::tells) them.
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

/// Error of using an inventory.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be created; the error names it.
    #[error("{0}")]
    Create(std::io::Error),
    /// The file cannot be checked, or its thread cannot be started.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The file was deleted or replaced, and cannot be reopened.
    #[error("its file was deleted or replaced: {0} (if its folder was replaced, too, restart)")]
    Renew(Box<Self>),
    /// The process that notifies cannot be started.
    #[error("cannot start the process that notifies: {0}")]
    Notifier(std::io::Error),
    /// There is no inventory to read.
    #[error("{0}: no such inventory; guard, scan and replay create it with --inventory")]
    Missing(DatabaseLocation),
    /// It is a database, but no inventory.
    #[error("{0}: a database, but not an inventory of bannerwall")]
    Foreign(DatabaseLocation),
    /// No run of that number has ended.
    #[error("#{0}: no finished run has this number; see `bannerwall inventory runs`")]
    Run(i64),
    /// A newer version of the program has created it.
    #[error(
        "{place}: its schema is version {found}, and this bannerwall knows up to {known}: use a newer one"
    )]
    Newer {
        /// The inventory.
        place: DatabaseLocation,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// An older version of the program has created it, and it cannot be upgraded.
    #[error("{place}: its schema is version {found}, and cannot be brought to version {known}: {error}")]
    Older {
        /// The inventory.
        place: DatabaseLocation,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
        /// The error of the upgrade.
        error: Box<StoreError>,
    },
    /// The operation needs a file, which it does not have.
    #[error("{0}: {1}")]
    NoFile(DatabaseLocation, &'static str),
    /// The role is a sensor's, which may only insert batches.
    #[error("{0}: its role is a sensor's, which may only insert batches: {1}")]
    Sensor(DatabaseLocation, &'static str),
    /// The role belongs to another sensor.
    #[error("{place}: its role is that of sensor {known}, and --sensor says {named}")]
    OtherSensor {
        /// The inventory.
        place: DatabaseLocation,
        /// The sensor whose role it is.
        known: String,
        /// The one that was named.
        named: String,
    },
    /// The role is no sensor's, but a sensor is required.
    #[error("{0}: its role is no sensor's, but --spill is only for sensors")]
    NoSensor(DatabaseLocation),
    /// The spill directory cannot be used.
    #[error("with --spill {}: {why}", folder.display())]
    Spill {
        /// Path of the directory.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// Error of the database.
    #[error("{place}: {error}")]
    Database {
        /// The inventory.
        place: DatabaseLocation,
        /// The error.
        error: DatabaseError,
    },
}

impl StoreError {
    fn database(&self) -> Option<&DatabaseError> {
        match self {
            Self::Database { error, .. } => Some(error),
            _ => None,
        }
    }

    /// True if something is missing or not permitted for this role.
    pub(super) fn is_permission_error(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_permission_error)
    }

    /// True if the written data is at fault, so that a retry is useless.
    pub(super) fn is_data_error(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_data_error)
    }

    /// True if a server has refused a row for its content, so that a retry is useless.
    pub(super) fn is_row_rejection(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_row_rejection)
    }

    /// True if a server is away, or accepts no connections for now.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_unavailable)
    }
}
