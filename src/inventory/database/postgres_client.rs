//! Tables of other modules in the inventory's server database, with their own statements.
//!
//! The link is the inventory's, so there is one implementation of URLs, TLS and waiting.

use rusqlite::OpenFlags;

use super::InventoryDatabase;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation};
use crate::inventory::store::StoreError;

/// A connection to a server for tables of other modules.
#[derive(Debug)]
pub struct PostgresClient {
    database: InventoryDatabase,
}

impl PostgresClient {
    /// Connects to the server at a place.
    ///
    /// # Errors
    /// It is a file, or see [`StoreError`].
    pub fn open(place: &DatabaseLocation) -> Result<Self, StoreError> {
        Self::come(place, |place| InventoryDatabase::connect(place, OpenFlags::SQLITE_OPEN_READ_WRITE))
    }

    /// Connects like [`Self::open`], and creates the inventory there if it is missing.
    ///
    /// # Errors
    /// It is a file, or see [`StoreError`].
    pub fn make(place: &DatabaseLocation) -> Result<Self, StoreError> {
        Self::come(place, InventoryDatabase::create)
    }

    fn come(
        place: &DatabaseLocation,
        open: impl FnOnce(&DatabaseLocation) -> Result<InventoryDatabase, StoreError>,
    ) -> Result<Self, StoreError> {
        match place {
            DatabaseLocation::File(_) => {
                Err(StoreError::NoFile(place.clone(), "a fleet needs a PostgreSQL server"))
            }
            DatabaseLocation::Server(_) => open(place).map(|database| Self { database }),
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
        let link = self.link();
        link.batch("BEGIN")?;
        let outcome = work(link).and_then(|told| link.batch("COMMIT").map(|()| told));
        if outcome.is_err() {
            // If this fails, the connection is lost and so the transaction is over.
            let _ = link.batch("ROLLBACK");
        }
        outcome
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

impl InventoryDatabase {
    /// Returns a runner of statements about other modules' tables; none for a file.
    pub fn link(&self) -> Option<&DatabaseConnection> {
        matches!(self.link, DatabaseConnection::Postgres(_)).then_some(&self.link)
    }
}
