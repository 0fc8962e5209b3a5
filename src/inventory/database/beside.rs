//! What other rooms keep in the database of a server beside the inventory: their own tables, their own
//! statements.
//!
//! The link is the inventory's: one way to read a URL, to speak TLS and to wait for an answer.

use rusqlite::OpenFlags;

use super::link::{Link, Row, Value};
use super::{Database, DatabaseError, Place};
use crate::inventory::store::StoreError;

/// A connection to a server for tables that are not the inventory's.
#[derive(Debug)]
pub struct Beside {
    database: Database,
}

/// Where statements are given.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    link: &'a Link,
}

impl Beside {
    /// Comes to the server at a place.
    ///
    /// # Errors
    /// It is a file, or see [`StoreError`].
    pub fn open(place: &Place) -> Result<Self, StoreError> {
        Self::come(place, |place| Database::connect(place, OpenFlags::SQLITE_OPEN_READ_WRITE))
    }

    /// The same, and makes the inventory there where there is none.
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

    /// The database, for what is the inventory's.
    pub(super) fn into_database(self) -> Database {
        self.database
    }

    /// Statements by themselves.
    pub fn desk(&self) -> Desk<'_> {
        Desk { link: &self.database.link }
    }

    /// All statements that `work` gives, or none of them.
    ///
    /// # Errors
    /// What the database says, or `work`.
    pub fn together<T>(
        &self,
        work: impl FnOnce(Desk<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let desk = self.desk();
        desk.batch("BEGIN")?;
        let outcome = work(desk).and_then(|told| desk.batch("COMMIT").map(|()| told));
        if outcome.is_err() {
            // Where that cannot be told the connection is lost, and so the transaction over.
            let _ = desk.batch("ROLLBACK");
        }
        outcome
    }

    /// Connects anew where the connection is lost.
    ///
    /// # Errors
    /// The server is not there.
    pub fn revive(&mut self) -> Result<(), DatabaseError> {
        self.database.link.revive()
    }

    /// An error, with where it came from.
    pub fn fault(&self, error: DatabaseError) -> StoreError {
        self.database.fault(error)
    }
}

impl Database {
    /// Statements about what other rooms keep beside this inventory; none of a file.
    pub fn desk(&self) -> Option<Desk<'_>> {
        matches!(self.link, Link::Postgres(_)).then(|| Desk::new(&self.link))
    }
}

impl<'a> Desk<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self { link }
    }

    /// The first row of an answer.
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

    /// Every row of an answer that is not long.
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

    /// Shows the rows of an answer of whatever length.
    ///
    /// # Errors
    /// What the database says, or `show`.
    pub fn each<E: From<DatabaseError>>(
        self,
        text: &str,
        values: &[Value<'_>],
        mut show: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.link.each(text, values, |row| show(row).map(std::ops::ControlFlow::Continue))
    }

    /// Changes rows; how many.
    ///
    /// # Errors
    /// What the database says.
    pub fn execute(self, text: &str, values: &[Value<'_>]) -> Result<usize, DatabaseError> {
        self.link.execute(text, values)
    }

    /// Has nobody else write the inventory until the transaction ends.
    ///
    /// # Errors
    /// What the database says, as to one who may not write it.
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
