//! Connections to databases: an SQLite file, or a database of a PostgreSQL server.
//!
//! Knows where a database is, how to connect and what a statement means there; knows nothing about tables.

mod connection;
mod dialect;
mod error;
pub(crate) mod helper_process;
mod interrupter;
mod link;
mod message_limits;
mod outage;
mod place;
mod postgres;
mod route;
mod sqlite;
mod statement_queue;
mod tls;
mod tls_error;
mod url;
pub(crate) mod values;
mod work;

pub use self::dialect::postgres as dialect_of_server;
pub use self::error::DatabaseError;
pub use self::interrupter::QueryInterrupter;
pub use self::link::{DatabaseConnection, DatabaseTransaction};
pub use self::outage::OutageTracker;
pub use self::place::DatabaseLocation;
pub use self::postgres::PostgresSession;
pub use self::sqlite::SqliteFile;
pub use self::statement_queue::NumberedTable;
pub use self::url::redact_password;
pub(crate) use self::values::values;
pub use self::values::{FromSqlValue, QueryRow, SqlParameter, SqlValue};
