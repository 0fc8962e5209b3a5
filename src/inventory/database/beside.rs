//! Tables of other modules in the inventory's server database, with their own statements.
//!
//! The link is the inventory's, so there is one implementation of URLs, TLS and waiting.

use rusqlite::OpenFlags;

use super::Database;
use crate::database::{DatabaseError, Place};
use crate::database::{Link, Row, Value};
use crate::inventory::store::StoreError;

/// A connection to a server for tables of other modules.
#[derive(Debug)]
pub struct Beside {
    database: Database,
}

/// Runs statements.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    link: &'a Link,
}

impl Beside {
    /// Connects to the server at a place.
    ///
    /// # Errors
    /// It is a file, or see [`StoreError`].
    pub fn open(place: &Place) -> Result<Self, StoreError> {
        Self::come(place, |place| Database::connect(place, OpenFlags::SQLITE_OPEN_READ_WRITE))
    }

    /// Connects like [`Self::open`], and creates the inventory there if it is missing.
    ///
    /// # Errors
    /// It is a file, or see [`StoreError`].
    pub fn make(place: &Place) -> Result<Self, StoreError> {
        Self::come(place, Database::create)
    }

    fn come(
        place: &Place,
        open: impl FnOnce(&Place) -> Result<Database, StoreError>,
    ) -> Result<Self, StoreError> {
        match place {
            Place::File(_) => Err(StoreError::NoFile(place.clone(), "a fleet needs a PostgreSQL server")),
            Place::Server(_) => open(place).map(|database| Self { database }),
        }
    }

    /// Returns the database, for the inventory's own tables.
    pub(super) fn into_database(self) -> Database {
        self.database
    }

    /// Returns a runner of single statements.
    pub fn desk(&self) -> Desk<'_> {
        Desk { link: &self.database.link }
    }

    /// Runs all statements of `work` in one transaction.
    ///
    /// # Errors
    /// Errors of the database or of `work`.
    pub fn together<T>(
        &self,
        work: impl FnOnce(Desk<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let desk = self.desk();
        desk.batch("BEGIN")?;
        let outcome = work(desk).and_then(|told| desk.batch("COMMIT").map(|()| told));
        if outcome.is_err() {
            // If this fails, the connection is lost and so the transaction is over.
            let _ = desk.batch("ROLLBACK");
        }
        outcome
    }

    /// Reconnects if the connection is lost.
    ///
    /// # Errors
    /// The server is unreachable.
    pub fn revive(&mut self) -> Result<(), DatabaseError> {
        self.database.link.revive()
    }

    /// Adds the place to an error.
    pub fn fault(&self, error: DatabaseError) -> StoreError {
        self.database.fault(error)
    }
}

impl Database {
    /// Returns a runner of statements about other modules' tables; none for a file.
    pub fn desk(&self) -> Option<Desk<'_>> {
        matches!(self.link, Link::Postgres(_)).then(|| Desk::new(&self.link))
    }
}

impl<'a> Desk<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self { link }
    }

    /// Returns the first row of an answer.
    ///
    /// # Errors
    /// What the database says.
    pub fn one<T>(
        self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Option<T>, DatabaseError> {
        self.link.one(text, values, read)
    }

    /// Returns every row of a short answer.
    ///
    /// # Errors
    /// What the database says.
    pub fn all<T>(
        self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnMut(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, DatabaseError> {
        self.link.all(text, values, read)
    }

    /// Passes the rows of an answer of any length to `show`.
    ///
    /// # Errors
    /// Errors of the database or of `show`.
    pub fn each<E: From<DatabaseError>>(
        self,
        text: &str,
        values: &[Value<'_>],
        mut show: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.link.each(text, values, |row| show(row).map(std::ops::ControlFlow::Continue))
    }

    /// Changes rows and returns their number.
    ///
    /// # Errors
    /// What the database says.
    pub fn execute(self, text: &str, values: &[Value<'_>]) -> Result<usize, DatabaseError> {
        self.link.execute(text, values)
    }

    /// Waits until no other process writes the inventory, and keeps others from writing until the
    /// transaction ends.
    ///
    /// # Errors
    /// Errors of the database, such as a missing right to write.
    pub fn wait_for_turn(self) -> Result<(), DatabaseError> {
        self.link.wait_for_turn()
    }

    /// Runs several statements without parameters.
    ///
    /// # Errors
    /// What the database says.
    pub fn batch(self, text: &str) -> Result<(), DatabaseError> {
        self.link.batch(text)
    }
}
