//! Connections to databases: an SQLite file, or a database of a PostgreSQL server.
//!
//! Knows where a database is, how to connect and what a statement means there; knows nothing about tables.

mod absence;
mod cell;
mod connection;
mod dialect;
mod error;
mod interrupter;
mod link;
mod messages;
mod place;
mod postgres;
pub(crate) mod process;
mod route;
mod sqlite;
mod tls;
mod tls_error;
mod url;
mod waiting;
mod work;

pub use self::absence::{OutageTracker, RetryBackoff};
pub(crate) use self::cell::values;
pub use self::cell::{QueryRow, SqlParameter};
pub use self::dialect::postgres as dialect_of_server;
pub use self::error::DatabaseError;
pub use self::interrupter::QueryInterrupter;
pub use self::link::{DatabaseConnection, DatabaseTransaction};
pub use self::place::DatabaseLocation;
pub use self::postgres::PostgresSession;
pub use self::sqlite::SqliteFile;
pub use self::url::redact_password;
pub use self::waiting::NumberedTable;
