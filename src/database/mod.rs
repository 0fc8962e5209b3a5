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

pub use self::absence::{Absence, Pauses};
pub(crate) use self::cell::values;
pub use self::cell::{Row, Value};
pub use self::dialect::postgres as dialect_of_server;
pub use self::error::DatabaseError;
pub use self::interrupter::Interrupter;
pub use self::link::{Link, Transaction};
pub use self::place::Place;
pub use self::postgres::Session;
pub use self::sqlite::File;
pub use self::url::shown;
pub use self::waiting::Numbered;
