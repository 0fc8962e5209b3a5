//! The inventory in a database: an SQLite file, which `sqlite3` can also read, or a database of a
//! PostgreSQL server for several machines. Tables and queries are the same in both; [`crate::database`]
//! handles the differences.
//!
//! Times are milliseconds since the Unix epoch. A file is in WAL mode: readers and a writer do not block
//! each other, and a killed process leaves a consistent database.

mod connection;
pub mod maintenance;
pub mod query;
mod schema;
mod sensor_inbox;
mod size_limit;
mod table_client;
mod write;

pub use self::connection::InventoryDatabase;
pub use self::schema::schema_of_server;
pub(super) use self::sensor_inbox::{OutgoingBatch, SensorBacklog, SensorInbox};
pub use self::table_client::TableClient;
pub(super) use self::write::RunWriter;
pub use self::write::{BatchMerger, BatchRecords, ReceivedBatch, TransactionalWriter};
