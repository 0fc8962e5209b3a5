//! The inventory in SQLite and PostgreSQL.

mod changes;
mod exchange;
mod records;
mod server;
