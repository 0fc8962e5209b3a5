//! Tables of other modules in the inventory's database, with their own statements.
//!
//! The link is the inventory's, so there is one implementation of URLs, TLS and waiting.

use rusqlite::OpenFlags;

use super::connection::InventoryDatabase;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation};
use crate::inventory::error::StoreError;

/// A connection for tables of other modules.
#[derive(Debug)]
pub struct TableClient {
    database: InventoryDatabase,
}

impl TableClient {
    /// Opens a database. A file must exist.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(place: &DatabaseLocation) -> Result<Self, StoreError> {
        InventoryDatabase::existing(place, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .map(|database| Self { database })
    }

    /// Opens a database, and creates the inventory there if it is missing.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn make(place: &DatabaseLocation) -> Result<Self, StoreError> {
        InventoryDatabase::create(place).map(|database| Self { database })
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// It is a file, or see [`StoreError`].
    pub fn of_server(place: &DatabaseLocation) -> Result<Self, StoreError> {
        match place {
            DatabaseLocation::File(_) => Err(StoreError::NoFile(
                place.clone(),
                "this needs a PostgreSQL server: pass postgresql://user@host/database",
            )),
            DatabaseLocation::Server(_) => Self::open(place),
        }
    }

    /// Returns the database, for the inventory's own tables.
    pub(super) fn into_database(self) -> InventoryDatabase {
        self.database
    }

    /// Returns a runner of single statements.
    pub fn link(&self) -> &DatabaseConnection {
        &self.database.link
    }

    /// Runs all statements of `work` in one transaction.
    ///
    /// # Errors
    /// Errors of the database or of `work`.
    pub fn in_transaction<T>(
        &self,
        work: impl FnOnce(&DatabaseConnection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let transaction = self.link().begin_concurrent()?;
        let outcome = work(&transaction)?;
        transaction.commit().map(|()| outcome)
    }

    /// Reconnects if the connection is lost.
    ///
    /// # Errors
    /// The server is unreachable.
    pub fn revive(&mut self) -> Result<(), DatabaseError> {
        self.database.link.reconnect()
    }

    /// Adds the place to an error.
    pub fn fault(&self, error: DatabaseError) -> StoreError {
        self.database.fault(error)
    }
}
