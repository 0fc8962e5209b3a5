//! Errors of using an inventory.

use std::path::PathBuf;

use crate::database::{DatabaseError, DatabaseLocation};

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
