//! The inventory in a database: an SQLite file, which `sqlite3` can also read, or a database of a
//! PostgreSQL server for several machines. Tables and queries are the same in both; [`crate::database`]
//! handles the differences.
//!
//! Times are milliseconds since the Unix epoch. A file is in WAL mode: readers and a writer do not block
//! each other, and a killed process leaves a consistent database.

mod maintenance;
mod read;
mod schema;
mod sensor_inbox;
mod size_limit;
mod table_client;
mod write;

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::OpenFlags;

pub(super) use self::read::PeerBanner;
pub use self::read::{
    ClientContact, HostRecord, HostRow, InventoryChange, InventoryOverview, InventoryTime, PastRun,
    RuleSummary, ServiceBanner, ServiceCursor, ServiceFinding, ServiceHistory, ServiceRecord, ValueCount,
};
pub use self::schema::schema_of_server;
pub(super) use self::sensor_inbox::{OutgoingBatch, SensorBacklog, SensorInbox};
pub use self::table_client::TableClient;
pub(super) use self::write::RunWriter;
pub use self::write::{BatchMerger, BatchRecords, ReceivedBatch, TransactionalWriter};
use super::store::StoreError;
use crate::database::{
    DatabaseConnection, DatabaseError, DatabaseLocation, PostgresSession, QueryInterrupter, SqliteFile,
};
use crate::event::Timestamp;

/// An open inventory.
#[derive(Debug)]
pub struct InventoryDatabase {
    place: DatabaseLocation,
    link: DatabaseConnection,
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
        let found = schema::check(&database)?;
        if found == schema::newest() {
            return Ok(database);
        }
        // Only an older schema needs the right to write. A reader of a current one works on a read-only
        // file.
        let brought = Self::existing(place, OpenFlags::SQLITE_OPEN_READ_WRITE);
        match brought.and_then(|mut database| schema::migrate(&mut database)) {
            Ok(()) => Self::existing(place, OpenFlags::SQLITE_OPEN_READ_ONLY),
            Err(error) => {
                let known = schema::newest();
                Err(StoreError::Older { place: place.clone(), found, known, error: Box::new(error) })
            }
        }
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

    fn existing(place: &DatabaseLocation, flags: OpenFlags) -> Result<Self, StoreError> {
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
    fn create(place: &DatabaseLocation) -> Result<Self, StoreError> {
        if let DatabaseLocation::File(path) = place {
            // Permissions, and the refusal of planted links, are those of event files.
            crate::output::create(path).map_err(StoreError::Create)?;
        }
        let mut database = Self::connect(place, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::migrate(&mut database)?;
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

    fn fault(&self, error: DatabaseError) -> StoreError {
        StoreError::Database { place: self.place.clone(), error }
    }
}

/// Device and inode, which distinguish a file from another one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity(u64, u64);

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity(metadata.dev(), metadata.ino()))
}

/// Returns milliseconds since the Unix epoch; a 64-bit number of nanoseconds always fits.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// Returns an address as the table of hosts stores it.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
