//! A connection to an SQLite file.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, InterruptHandle, OpenFlags, OptionalExtension as _, params_from_iter};

use super::dialect::sqlite;
use super::error::{DatabaseError, Result};
use super::values::{QueryRow, SqlParameter};

/// Longest wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of statements that stay compiled.
const STATEMENTS: usize = 64;

/// An open file.
#[derive(Debug)]
pub struct SqliteFile(Connection);

impl SqliteFile {
    /// Opens a file.
    pub(crate) fn open(path: &Path, flags: OpenFlags) -> Result<Self> {
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(PATIENCE)?;
        // A confined process may create no other file than the inventory's.
        connection.execute_batch("PRAGMA temp_store = MEMORY")?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(Self(connection))
    }

    /// Returns the number that a pragma has.
    pub(crate) fn pragma(&self, name: &str) -> Result<i64> {
        Ok(self.0.pragma_query_value(None, name, |row| row.get(0))?)
    }

    /// Sets a pragma to a number.
    pub(crate) fn set_pragma(&self, name: &str, value: i64) -> Result<()> {
        // Some pragmas return a row.
        Ok(self.0.pragma_update_and_check(None, name, value, |_| Ok(())).optional().map(drop)?)
    }

    /// Returns the number that a query without parameters returns.
    pub(crate) fn count(&self, text: &str) -> Result<i64> {
        Ok(self.0.query_row(text, [], |row| row.get(0))?)
    }

    pub(super) fn interrupter(&self) -> InterruptHandle {
        self.0.get_interrupt_handle()
    }

    pub(super) fn one<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        read: impl FnOnce(&QueryRow<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.0.prepare_cached(&sqlite(text))?;
        let mut rows = statement.query(params_from_iter(values))?;
        match rows.next()? {
            Some(row) => read(&QueryRow::Sqlite(row)).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn each<E: From<DatabaseError>>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        mut show: impl FnMut(&QueryRow<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        let fault = |error: rusqlite::Error| E::from(error.into());
        let mut statement = self.0.prepare_cached(&sqlite(text)).map_err(fault)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            if show(&QueryRow::Sqlite(row))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn execute(&self, text: &str, values: &[SqlParameter<'_>]) -> Result<usize> {
        Ok(self.0.prepare_cached(&sqlite(text))?.execute(params_from_iter(values))?)
    }

    /// The number is NULL, so that SQLite assigns one.
    pub(super) fn enter(&self, text: &str, values: &[SqlParameter<'_>]) -> Result<i64> {
        let values = std::iter::once(&SqlParameter::Null).chain(values);
        self.0.prepare_cached(&sqlite(text))?.execute(params_from_iter(values))?;
        Ok(self.0.last_insert_rowid())
    }

    /// Runs several statements without parameters.
    pub(crate) fn batch(&self, text: &str) -> Result<()> {
        Ok(self.0.execute_batch(text)?)
    }
}
