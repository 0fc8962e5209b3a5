//! The inventory in one SQLite file, which `sqlite3` reads as well.
//!
//! Times are milliseconds since the Unix epoch. The file is in WAL mode: readers and a writer do not wait
//! for each other, and a process that is killed leaves a whole database behind.

mod read;
mod schema;
mod tend;
mod write;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

pub use self::read::{
    Change, Contact, Count, Found, History, HostRecord, HostRow, Overview, PastRun, Rule, Said, Service, Time,
};
pub(super) use self::write::Writer;
use super::store::StoreError;
use crate::event::Timestamp;

/// How long another process that writes is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Statements that are kept compiled.
const STATEMENTS: usize = 64;

/// An open inventory.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    connection: Connection,
}

impl Sqlite {
    /// Opens an inventory to look into it.
    ///
    /// # Errors
    /// It is not there, or see [`StoreError`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::existing(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    /// What ends a question that takes too long, from another thread.
    pub fn interrupter(&self) -> rusqlite::InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    fn existing(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        if let Err(error) = std::fs::metadata(path) {
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => StoreError::Missing(path.to_owned()),
                _ => StoreError::File { path: path.to_owned(), error },
            });
        }
        let database = Self::connect(path, flags)?;
        schema::check(&database)?;
        Ok(database)
    }

    /// Opens an inventory to write it; makes one where there is none.
    fn create(path: &Path) -> Result<Self, StoreError> {
        // The mode and the refusal of planted links are those of event files.
        crate::output::create(path).map_err(StoreError::Create)?;
        let mut database = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::migrate(&mut database)?;
        Ok(database)
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let fault = |error| StoreError::Database { path: path.to_owned(), error };
        let connection =
            Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fault)?;
        connection.busy_timeout(PATIENCE).map_err(fault)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(Self { path: path.to_owned(), connection })
    }

    fn fault(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Database { path: self.path.clone(), error }
    }
}

/// Milliseconds since the Unix epoch; a 64-bit number of nanoseconds always fits.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// An address as it is in the table of hosts.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
