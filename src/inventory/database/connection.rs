//! The connection to an inventory.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::OpenFlags;

use super::schema;
use crate::database::{
    DatabaseConnection, DatabaseError, DatabaseLocation, PostgresSession, QueryInterrupter, QueryRow,
    SqlParameter, SqliteFile,
};
use crate::inventory::error::StoreError;

/// An open inventory.
#[derive(Debug)]
pub struct InventoryDatabase {
    pub(super) place: DatabaseLocation,
    pub(super) link: DatabaseConnection,
    /// Identity of the file.
    file: Option<FileIdentity>,
}

impl InventoryDatabase {
    /// Opens an inventory for reading. One of an older version is upgraded.
    ///
    /// # Errors
    /// It does not exist, or see [`StoreError`].
    pub fn open(place: &DatabaseLocation) -> Result<Self, StoreError> {
        let database = Self::existing(place, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let found = schema::check(&database.place, &database.link)?;
        if found == schema::newest() {
            return Ok(database);
        }
        // Only an older schema needs the right to write. A reader of a current one works on a read-only
        // file.
        let brought = Self::existing(place, OpenFlags::SQLITE_OPEN_READ_WRITE);
        match brought.and_then(|database| schema::migrate(&database.place, &database.link)) {
            Ok(()) => Self::existing(place, OpenFlags::SQLITE_OPEN_READ_ONLY),
            Err(error) => {
                let known = schema::newest();
                Err(StoreError::Older { place: place.clone(), found, known, error: Box::new(error) })
            }
        }
    }

    /// Opens an existing inventory for writing.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open_to_write(place: &DatabaseLocation) -> Result<Self, StoreError> {
        let database = Self::existing(place, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::check(&database.place, &database.link)?;
        schema::migrate(&database.place, &database.link)?;
        Ok(database)
    }

    /// Returns a handle that interrupts a slow query from another thread.
    pub fn interrupter(&self) -> QueryInterrupter {
        self.link.interrupter()
    }

    /// True if it can be used again, which is cheaper than opening it.
    pub fn lasts(&self) -> bool {
        matches!(&self.link, DatabaseConnection::Postgres(session) if !session.is_lost())
    }

    /// True if others see what it writes: the server answers, or the file was not replaced.
    pub fn is_current(&self) -> bool {
        match &self.link {
            DatabaseConnection::Postgres(_) => self.lasts(),
            DatabaseConnection::Sqlite(_) => {
                self.file.is_some() && self.file == self.place.file().and_then(file_identity)
            }
        }
    }

    /// Returns a runner of statements about other modules' tables; none for a file.
    pub fn server(&self) -> Option<&DatabaseConnection> {
        matches!(self.link, DatabaseConnection::Postgres(_)).then_some(&self.link)
    }

    pub(super) fn existing(place: &DatabaseLocation, flags: OpenFlags) -> Result<Self, StoreError> {
        if let DatabaseLocation::File(path) = place
            && let Err(error) = std::fs::metadata(path)
        {
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => StoreError::Missing(place.clone()),
                _ => StoreError::File { path: path.clone(), error },
            });
        }
        Self::connect(place, flags)
    }

    /// Opens an inventory for writing; creates it if it is missing.
    pub(super) fn create(place: &DatabaseLocation) -> Result<Self, StoreError> {
        if let DatabaseLocation::File(path) = place {
            // Permissions, and the refusal of planted links, are those of event files.
            crate::output::create(path).map_err(StoreError::Create)?;
        }
        let database = Self::connect(place, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::migrate(&database.place, &database.link)?;
        Ok(database)
    }

    fn connect(place: &DatabaseLocation, flags: OpenFlags) -> Result<Self, StoreError> {
        // This comes before opening: a file that replaces it in between then counts as another one.
        let file = place.file().and_then(file_identity);
        let link = match place {
            DatabaseLocation::File(path) => SqliteFile::open(path, flags).map(DatabaseConnection::Sqlite),
            DatabaseLocation::Server(server) => {
                PostgresSession::open(server.access()).map(Box::new).map(DatabaseConnection::Postgres)
            }
        };
        let fault = |error| StoreError::Database { place: place.clone(), error };
        Ok(Self { link: link.map_err(fault)?, place: place.clone(), file })
    }

    pub(super) fn fault(&self, error: DatabaseError) -> StoreError {
        StoreError::Database { place: self.place.clone(), error }
    }

    /// Adds the place to an error.
    pub(super) fn read<T>(&self, asked: Result<T, DatabaseError>) -> Result<T, StoreError> {
        asked.map_err(|error| self.fault(error))
    }

    /// Passes rows until the callback stops.
    pub(super) fn each<E: From<StoreError>>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        mut show: impl FnMut(&QueryRow<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        // Errors of the database get the place added.
        enum VisitError<E> {
            Database(DatabaseError),
            Own(E),
        }
        impl<E> From<DatabaseError> for VisitError<E> {
            fn from(error: DatabaseError) -> Self {
                Self::Database(error)
            }
        }
        let shown = self.link.each(text, values, |row| show(row).map_err(VisitError::Own));
        shown.map_err(|ending| match ending {
            VisitError::Database(error) => self.fault(error).into(),
            VisitError::Own(error) => error,
        })
    }
}

/// Device and inode, which distinguish a file from another one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity(u64, u64);

pub(super) fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity(metadata.dev(), metadata.ino()))
}
