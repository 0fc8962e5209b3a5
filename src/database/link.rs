//! Runs statements on an SQLite file or a PostgreSQL server, and returns rows.
//!
//! Statements are written once, in the SQL that SQLite and PostgreSQL share, with parameters `?1` or `?`.
//! Different spellings of PostgreSQL are translated when a statement is prepared ([`super::dialect`]). So
//! the callers need not know the database.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Duration;

use super::dialect;
use super::error::{DatabaseError, Result};
use super::interrupter::QueryInterrupter;
use super::postgres::PostgresSession;
use super::sqlite::SqliteFile;
use super::statement_queue::NumberedTable;
use super::values::{QueryRow, SqlParameter, values, without_nul};

/// A connection to a database.
#[derive(Debug)]
pub enum DatabaseConnection {
    /// To a file.
    Sqlite(SqliteFile),
    /// To a server.
    Postgres(Box<PostgresSession>),
}

impl DatabaseConnection {
    /// Reconnects to a server that was away.
    pub fn reconnect(&mut self) -> Result<()> {
        match self {
            Self::Postgres(session) => session.revive().map(drop),
            Self::Sqlite(_) => Ok(()),
        }
    }

    /// Returns the first row of an answer.
    pub fn one<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        read: impl FnOnce(&QueryRow<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        match self {
            Self::Sqlite(file) => file.one(text, values, read),
            Self::Postgres(session) => {
                let mut read = Some(read);
                let read = |row: &QueryRow<'_>| read.take().map(|read| read(row)).transpose();
                Ok(session.all(text, values, 1, read)?.pop().flatten())
            }
        }
    }

    /// Returns the only row of an answer that always has one.
    pub fn sole<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        read: impl FnOnce(&QueryRow<'_>) -> Result<T>,
    ) -> Result<T> {
        self.one(text, values, read)?.ok_or(DatabaseError::Column(0))
    }

    /// Returns every row of a short answer.
    pub fn all<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        mut read: impl FnMut(&QueryRow<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(file) => {
                let mut all = Vec::new();
                file.each(text, values, |row| -> Result<_> {
                    all.push(read(row)?);
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(all)
            }
            Self::Postgres(session) => session.all(text, values, usize::MAX, read),
        }
    }

    /// Passes the rows of an answer of any length until the callback stops. Other queries may run
    /// meanwhile.
    pub fn each<E: From<DatabaseError>>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        show: impl FnMut(&QueryRow<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        match self {
            Self::Sqlite(file) => file.each(text, values, show),
            Self::Postgres(session) => session.each(text, values, show),
        }
    }

    /// Changes rows and returns their number.
    pub fn execute(&self, text: &str, values: &[SqlParameter<'_>]) -> Result<usize> {
        match self {
            Self::Sqlite(file) => file.execute(text, values),
            Self::Postgres(session) => session.execute(text, values),
        }
    }

    /// Runs a statement for each row of values. A server gets all rows at once.
    pub fn execute_for_rows<const N: usize>(&self, text: &str, rows: &[[SqlParameter<'_>; N]]) -> Result<()> {
        match self {
            _ if rows.is_empty() => Ok(()),
            Self::Sqlite(file) => rows.iter().try_for_each(|row| file.execute(text, row).map(drop)),
            Self::Postgres(session) => {
                let column =
                    |at: usize| SqlParameter::Many(rows.iter().map(|row| row[at].borrowed()).collect());
                session.execute_for_rows(text, (0..N).map(column).collect())
            }
        }
    }

    /// Queues a change of a row; it is sent before any other query and before the transaction ends, and
    /// its error is reported then. [`super::statement_queue`] explains which order is kept.
    pub fn queue(&self, text: &'static str, values: &[SqlParameter<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.execute(text, values).map(drop),
            Self::Postgres(session) => session.put(text, values),
        }
    }

    /// Queues an insert, whose first parameter is the row's number; returns the number.
    pub fn queue_insert(
        &self,
        table: NumberedTable,
        text: &'static str,
        values: &[SqlParameter<'_>],
    ) -> Result<i64> {
        match self {
            Self::Sqlite(file) => file.enter(text, values),
            Self::Postgres(session) => session.enter(table, text, values),
        }
    }

    /// Returns the answers of a query about any of several rows (`= ANY(?1)`).
    pub fn query_each<T>(
        &self,
        text: &str,
        ids: &[i64],
        mut read: impl FnMut(&QueryRow<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        if let Self::Postgres(_) = self {
            return self.all(text, &[ids.iter().copied().collect()], read);
        }
        let (text, mut all) = (text.replace("ANY(?1)", "?1"), Vec::new());
        for id in ids {
            all.append(&mut self.all(&text, values![*id], &mut read)?);
        }
        Ok(all)
    }

    /// Returns a text as it would be read back.
    pub fn kept<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Sqlite(_) => Cow::Borrowed(text),
            Self::Postgres(_) => without_nul(text),
        }
    }

    /// Makes statements of this transaction use the indexes. A server that does not yet know the tables'
    /// size would scan all of them for a batch.
    pub fn look_up_by_keys(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session.batch(
                "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off",
            ),
        }
    }

    /// Limits the time for which a server waits for the rest of this transaction, so that a client that is
    /// stopped does not block others for longer.
    pub fn limit_idle_time(&self, limit: Duration) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session
                .batch(&format!("SET LOCAL idle_in_transaction_session_timeout = {}", limit.as_millis())),
        }
    }

    /// True if the database is a file.
    pub const fn is_file(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Runs several statements without parameters.
    pub fn batch(&self, text: &str) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.batch(text),
            Self::Postgres(session) => session.batch(text),
        }
    }

    /// Runs statements that create tables.
    pub fn script(&self, text: &str) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.batch(text),
            Self::Postgres(session) => session.batch(&dialect::postgres(text)),
        }
    }

    /// Starts a transaction in which no other process writes.
    pub fn transaction(&self) -> Result<DatabaseTransaction<'_>> {
        match self {
            Self::Sqlite(file) => file.batch("BEGIN IMMEDIATE")?,
            Self::Postgres(session) => session.begin()?,
        }
        Ok(DatabaseTransaction { link: self, is_over: false })
    }

    /// Starts a transaction in which no other process creates the tables of an empty database.
    pub fn begin_schema_creation(&self) -> Result<DatabaseTransaction<'_>> {
        match self {
            Self::Sqlite(_) => return self.transaction(),
            Self::Postgres(session) => session.begin_making()?,
        }
        Ok(DatabaseTransaction { link: self, is_over: false })
    }

    /// Starts a transaction in which others may write a server until it [waits for its
    /// turn](Self::wait_for_turn).
    pub fn begin_concurrent(&self) -> Result<DatabaseTransaction<'_>> {
        match self {
            // A transaction that reads first could not write if another one has written meanwhile.
            Self::Sqlite(file) => file.batch("BEGIN IMMEDIATE")?,
            Self::Postgres(session) => session.batch("BEGIN")?,
        }
        Ok(DatabaseTransaction { link: self, is_over: false })
    }

    /// From here on, no other process writes until the transaction ends.
    pub fn wait_for_turn(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session.wait_for_turn(),
        }
    }

    /// Returns a handle that interrupts a query from another thread.
    pub fn interrupter(&self) -> QueryInterrupter {
        match self {
            Self::Sqlite(file) => QueryInterrupter::Sqlite(file.interrupter()),
            Self::Postgres(session) => session.interrupter(),
        }
    }
}

/// A transaction; it is rolled back if it is dropped without a commit.
pub struct DatabaseTransaction<'a> {
    link: &'a DatabaseConnection,
    is_over: bool,
}

impl DatabaseTransaction<'_> {
    /// Commits it.
    pub fn commit(mut self) -> Result<()> {
        self.link.batch("COMMIT")?;
        self.is_over = true;
        Ok(())
    }
}

impl std::ops::Deref for DatabaseTransaction<'_> {
    type Target = DatabaseConnection;

    fn deref(&self) -> &DatabaseConnection {
        self.link
    }
}

impl Drop for DatabaseTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            match self.link {
                // Some errors end the transaction, so this may fail.
                DatabaseConnection::Sqlite(file) => drop(file.batch("ROLLBACK")),
                DatabaseConnection::Postgres(session) => session.roll_back(),
            }
        }
    }
}
