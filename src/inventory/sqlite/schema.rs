//! The tables, and how those of an older program become today's.

use rusqlite::TransactionBehavior;

use super::{Sqlite, StoreError};

/// What tells an inventory from other databases: `bwiv`, SQLite's `application_id`.
const APPLICATION: i64 = 0x6277_6976;

/// One step a version: the first makes version 1 of nothing.
const STEPS: [&str; 2] = [include_str!("schema.sql"), include_str!("overview.sql")];

/// The version that this program writes.
fn newest() -> i64 {
    STEPS.len() as i64
}

/// Refuses what is no inventory, or one of a newer program.
///
/// # Errors
/// As said.
pub(super) fn check(database: &Sqlite) -> Result<(), StoreError> {
    match version(database)? {
        0 => Err(StoreError::Foreign(database.path.clone())),
        _ => Ok(()),
    }
}

/// Brings an inventory, or an empty file, to the newest version.
///
/// # Errors
/// It is none, a newer one, or cannot be written; it is then as it was.
pub(super) fn migrate(database: &mut Sqlite) -> Result<(), StoreError> {
    let found = version(database)?;
    let path = database.path.clone();
    // No file but its own: a confined process may make no other one.
    let settings = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
                    PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;";
    let outcome = (|| {
        database.connection.execute_batch(settings)?;
        if found == newest() {
            return Ok(());
        }
        let step = database.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been quicker.
        let found: i64 = step.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for step_from in STEPS.iter().skip(usize::try_from(found).unwrap_or_default()) {
            step.execute_batch(step_from)?;
        }
        step.pragma_update(None, "application_id", APPLICATION)?;
        step.pragma_update(None, "user_version", newest())?;
        step.commit()
    })();
    outcome.map_err(|error| StoreError::Database { path, error })
}

/// The version of an inventory, 0 for an empty file.
fn version(database: &Sqlite) -> Result<i64, StoreError> {
    let number = |pragma: &str| {
        let value = database.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        value.map_err(|error| database.fault(error))
    };
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION {
        let tables =
            database.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
        let tables: i64 = tables.map_err(|error| database.fault(error))?;
        let is_empty = (application, version, tables) == (0, 0, 0);
        return if is_empty { Ok(0) } else { Err(StoreError::Foreign(database.path.clone())) };
    }
    if version > newest() {
        return Err(StoreError::Newer { path: database.path.clone(), found: version, known: newest() });
    }
    Ok(version)
}
