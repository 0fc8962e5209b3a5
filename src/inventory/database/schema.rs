//! The tables, and the upgrades from older versions.

use crate::database::{
    DatabaseConnection, DatabaseError, DatabaseLocation, DatabaseTransaction, SqliteFile, dialect_of_server,
    values,
};
use crate::inventory::error::StoreError;

/// Identifies an inventory among SQLite databases: `bwiv`, its `application_id`.
const APPLICATION: i64 = 0x6277_6976;

/// One step for each version; the first creates version 1.
const STEPS: [&str; 11] = [
    include_str!("schema-1.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
    include_str!("schema-5.sql"),
    include_str!("schema-6.sql"),
    include_str!("schema-7.sql"),
    include_str!("schema-8.sql"),
    include_str!("schema-9.sql"),
    include_str!("schema-10.sql"),
    include_str!("schema-11.sql"),
];

/// The form of version 4 on a server.
const UNTIED: (i64, &str) = (4, include_str!("schema-4-server.sql"));

/// The first version with stored sums of rules.
const SUMMED_UP: i64 = 3;

/// Fills the empty table of rules.
pub(super) const SUM_UP: &str = include_str!("rules.sql");

/// Settings of a file.
const SETTINGS: &str =
    "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
    PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;";

/// Functions of SQLite that PostgreSQL lacks, next to the tables.
const FUNCTIONS: &str = "
CREATE SCHEMA IF NOT EXISTS bannerwall;
CREATE OR REPLACE FUNCTION bannerwall.min(bigint, bigint) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT least($1, $2)';
CREATE OR REPLACE FUNCTION bannerwall.max(bigint, bigint) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT greatest($1, $2)';
CREATE OR REPLACE FUNCTION bannerwall.instr(text, text) RETURNS integer
  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT strpos($1, $2)';
CREATE OR REPLACE FUNCTION bannerwall.datetime(bigint, text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  AS $$SELECT to_char(to_timestamp($1) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')$$;
CREATE TABLE bannerwall.schema_version (version bigint NOT NULL);
INSERT INTO bannerwall.schema_version VALUES (0)";

/// Returns the statements that create the tables in a server's empty database.
pub fn schema_of_server() -> String {
    let steps = STEPS.iter().map(|text| dialect_of_server(text));
    let steps: String = steps.map(|text| format!("{text}\n")).collect();
    let (newest, (_, untied)) = (newest(), UNTIED);
    // The statements that sum up findings find none yet.
    format!(
        "{FUNCTIONS};\nSET search_path = bannerwall;\n{steps}{untied}\nUPDATE schema_version SET version = {newest};\n"
    )
}

/// The version that this program writes.
pub(super) fn newest() -> i64 {
    STEPS.len() as i64
}

/// Returns the version of an inventory.
///
/// # Errors
/// It is no inventory, or one of a newer version.
pub(super) fn check(place: &DatabaseLocation, link: &DatabaseConnection) -> Result<i64, StoreError> {
    match (version(place, link)?, link) {
        (0, DatabaseConnection::Sqlite(_)) => Err(StoreError::Foreign(place.clone())),
        (0, DatabaseConnection::Postgres(_)) => Err(StoreError::Missing(place.clone())),
        (found, _) => Ok(found),
    }
}

/// Upgrades an inventory, or an empty database, to the newest version.
///
/// # Errors
/// It is no inventory, a newer one, or not writable; then it stays unchanged.
pub(super) fn migrate(place: &DatabaseLocation, link: &DatabaseConnection) -> Result<(), StoreError> {
    let fault = |error| StoreError::Database { place: place.clone(), error };
    let found = version(place, link)?;
    if let DatabaseConnection::Sqlite(file) = link {
        file.batch(SETTINGS).map_err(fault)?;
    }
    if found == newest() {
        return Ok(());
    }
    // There is no table yet that a transaction could lock, so the creation has its own lock.
    let step = if found == 0 { link.begin_schema_creation() } else { link.transaction() };
    let step = step.map_err(fault)?;
    // Another process may have been faster, and may be of a newer version.
    let found = version(place, link)?;
    upgrade(&step, found).and_then(|()| step.commit()).map_err(fault)
}

/// Applies the steps after a version.
fn upgrade(step: &DatabaseTransaction<'_>, found: i64) -> Result<(), DatabaseError> {
    if found == newest() {
        return Ok(());
    }
    if let (0, DatabaseConnection::Postgres(_)) = (found, &**step) {
        step.batch(FUNCTIONS)?;
    }
    for text in STEPS.iter().skip(usize::try_from(found).unwrap_or_default()) {
        step.script(text)?;
    }
    // SQLite writes its tables by one process at a time. On a server, several writers would wait for
    // each other at the foreign keys.
    if let (true, DatabaseConnection::Postgres(_)) = (found < UNTIED.0, &**step) {
        step.batch(UNTIED.1)?;
    }
    if found < SUMMED_UP {
        step.execute(SUM_UP, &[])?;
    }
    match &**step {
        DatabaseConnection::Sqlite(file) => {
            file.set_pragma("application_id", APPLICATION)?;
            file.set_pragma("user_version", newest())
        }
        DatabaseConnection::Postgres(_) => {
            step.execute("UPDATE schema_version SET version = ?1", values![newest()]).map(drop)
        }
    }
}

/// Returns the version of an inventory, 0 for an empty database.
fn version(place: &DatabaseLocation, link: &DatabaseConnection) -> Result<i64, StoreError> {
    let found = match link {
        DatabaseConnection::Sqlite(file) => version_of_file(file),
        DatabaseConnection::Postgres(_) => version_of_server(link),
    };
    let fault = |error| StoreError::Database { place: place.clone(), error };
    let Some(found) = found.map_err(fault)? else {
        return Err(StoreError::Foreign(place.clone()));
    };
    if found > newest() {
        return Err(StoreError::Newer { place: place.clone(), found, known: newest() });
    }
    Ok(found)
}

fn version_of_file(file: &SqliteFile) -> Result<Option<i64>, DatabaseError> {
    let (application, version) = (file.pragma("application_id")?, file.pragma("user_version")?);
    if application == APPLICATION {
        return Ok(Some(version));
    }
    let tables = file.count("SELECT count(*) FROM sqlite_schema")?;
    // An empty database is free to use. Any other file belongs to another program and must not be
    // changed.
    Ok(((application, version, tables) == (0, 0, 0)).then_some(0))
}

fn version_of_server(link: &DatabaseConnection) -> Result<Option<i64>, DatabaseError> {
    let count = |query: &str| link.sole(query, &[], |row| row.get::<i64>(0));
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('bannerwall')";
    if count(tables)? == 0 {
        return Ok(Some(0));
    }
    if count(&format!("{tables} AND relname = 'schema_version'"))? == 0 {
        return Ok(None);
    }
    count("SELECT max(version) FROM bannerwall.schema_version").map(Some)
}
