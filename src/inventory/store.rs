//! What keeps the inventory.

use std::path::PathBuf;
use std::time::Duration;

use super::database::{Change, DatabaseError, Place};
use super::sighting::{Asset, Software, What};
use crate::event::Timestamp;

/// Everything alike that was seen of an asset since it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// True if changes are wanted.
    pub tells: bool,
    /// The name of this place of observation.
    pub sensor: String,
    /// What is scanned or read, for a person.
    pub about: String,
}

/// What was taken of a batch.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Records, from the first on: fewer than all where these were written by a call before, whose answer was
    /// lost. The others are to be told again.
    pub(super) records: usize,
    /// What became different by them, where the run is to [tell](Run::tells).
    pub(super) changes: Vec<Change>,
}

/// Keeps what it is told: all of a batch or nothing of it.
pub(super) trait Store: Send {
    /// Takes a batch. One that was refused is told again from its beginning, with others behind it, or not at
    /// all.
    ///
    /// # Errors
    /// It is not known that anything was taken.
    fn write(&mut self, batch: &[Record]) -> Result<Taken, StoreError>;

    /// Opens a file again that was deleted or replaced since it was opened; true if it was.
    ///
    /// # Errors
    /// It cannot be opened.
    fn renew(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Takes out what was last seen before a time.
    ///
    /// # Errors
    /// Nothing was taken out.
    fn prune(&mut self, _before: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// Knows servers as gone that were last seen before a time; gives that as [`write`](Self::write) does.
    ///
    /// # Errors
    /// None is known as gone.
    fn unseen(&mut self, _before: Timestamp) -> Result<Vec<Change>, StoreError> {
        Ok(Vec::new())
    }

    /// Makes room for so many records where it is nearly as large as it may become: what is gone and what was
    /// not seen for longest goes. How many rows went.
    ///
    /// # Errors
    /// There is no more room than before.
    fn fit(&mut self, _coming: usize) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Time for which records may wait to be written together; not at all where absent.
    fn gathers(&self) -> Option<Duration> {
        None
    }

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
    /// The file was deleted or replaced, and cannot be opened again.
    #[error("its file was deleted or replaced: {0} (if its folder was replaced, too, restart)")]
    Renew(Box<Self>),
    /// There is no such inventory to read.
    #[error("{0}: no such inventory; guard, scan and replay make one with --inventory")]
    Missing(Place),
    /// It is a database, but no inventory.
    #[error("{0}: a database, but no inventory of bannerwall")]
    Foreign(Place),
    /// There is no run of that number, or it has not ended.
    #[error("#{0}: no run of that number has ended; `bannerwall inventory runs` lists them")]
    Run(i64),
    /// A newer program has made it.
    #[error(
        "{place}: its schema is version {found}, and this bannerwall knows up to {known}: use a newer one"
    )]
    Newer {
        /// Where it is.
        place: Place,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// An older program has made it, and it cannot be brought up to date.
    #[error("{place}: its schema is version {found}, and cannot be brought to version {known}: {error}")]
    Older {
        /// Where it is.
        place: Place,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
        /// Why not.
        error: Box<StoreError>,
    },
    /// It has no file that something could be done with.
    #[error("{0}: {1}")]
    NoFile(Place, &'static str),
    /// It is come to as a sensor, which may only enter what it sees.
    #[error("{0}: its role is a sensor's, which only tells what it sees: {1}")]
    Sensor(Place, &'static str),
    /// It knows another sensor by the role that it is come to as.
    #[error("{place}: its role is that of sensor {known}, and --sensor says {named}")]
    OtherSensor {
        /// Where it is.
        place: Place,
        /// The sensor whose role it is.
        known: String,
        /// The one that was named.
        named: String,
    },
    /// It is no sensor's, and something is to be kept for one.
    #[error("{0}: its role is no sensor's, and --spill keeps what a sensor sends")]
    NoSensor(Place),
    /// The folder for what is to be sent cannot be used.
    #[error("with --spill {}: {why}", folder.display())]
    Spill {
        /// Which.
        folder: PathBuf,
        /// Why not.
        why: String,
    },
    /// What the database said.
    #[error("{place}: {error}")]
    Database {
        /// Where it is.
        place: Place,
        /// What it said.
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

    /// True if it is not there what was asked for, or not for who asks.
    pub(super) fn is_of_rights(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_of_rights)
    }

    /// True if what was to be written is at fault, and would be each time.
    pub(super) fn is_of_content(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_of_content)
    }

    /// True if a server has refused a row as it is, and would each time.
    pub(super) fn is_of_row(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_of_row)
    }

    /// True if a server is away, or takes nobody for now.
    pub(crate) fn is_of_absence(&self) -> bool {
        self.database().is_some_and(DatabaseError::is_of_absence)
    }
}
