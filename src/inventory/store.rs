//! What keeps the inventory.

use std::path::PathBuf;

use super::sighting::{Asset, Software, What};
use super::sqlite::Change;
use crate::event::Timestamp;

/// Everything alike that was seen of an asset since it was last written.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) asset: Asset,
    pub(super) what: What,
    pub(super) software: Software,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u64,
}

/// Who sees, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Guard, scan or replay, or whose files are taken over.
    pub source: &'static str,
    /// What was told of a time before is not counted again: a file may be read twice.
    pub once: bool,
    /// Whether changes are wanted.
    pub tells: bool,
    /// The name of this place of observation.
    pub sensor: String,
    /// What is scanned or read, for a person.
    pub about: String,
}

/// Keeps what it is told: all of a batch or nothing of it.
pub(super) trait Store: Send {
    /// Takes a batch; what became different by it, where the run is to [tell](Run::tells).
    ///
    /// # Errors
    /// Nothing of the batch was taken, and it may be told again.
    fn write(&mut self, batch: &[Record]) -> Result<Vec<Change>, StoreError>;

    /// Takes out what was last seen before a time.
    ///
    /// # Errors
    /// Nothing was taken out.
    fn prune(&mut self, before: Timestamp) -> Result<(), StoreError>;

    /// The run is over, cleanly; `lost` things that were seen could not be kept.
    ///
    /// # Errors
    /// It is not known as over.
    fn end(&mut self, lost: u64) -> Result<(), StoreError>;
}

/// Why an inventory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be made; the error names it.
    #[error("{0}")]
    Create(std::io::Error),
    /// The file cannot be looked at, or its thread not be started.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// There is no such inventory to read.
    #[error("{}: no such inventory; guard, scan and replay make one with --inventory", .0.display())]
    Missing(PathBuf),
    /// It is a database, but no inventory.
    #[error("{}: a database, but no inventory of bannerwall", .0.display())]
    Foreign(PathBuf),
    /// There is no run of that number, or it has not ended.
    #[error("#{0}: no run of that number has ended; `bannerwall inventory runs` lists them")]
    Run(i64),
    /// A newer program has made it.
    #[error("{}: its schema is version {found}, and this bannerwall knows up to {known}: use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// What the database said.
    #[error("{}: {error}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: rusqlite::Error,
    },
}
