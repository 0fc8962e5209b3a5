//! Runs statements on either database of an inventory, and returns rows.
//!
//! Statements are written once, in the SQL that SQLite and PostgreSQL share, with parameters `?1` or `?`.
//! Different spellings of PostgreSQL are translated when a statement is prepared ([`dialect`]). So the
//! callers need not know the database.

mod cell;
mod connection;
mod dialect;
mod messages;
mod postgres;
pub(crate) mod process;
mod route;
mod sqlite;
mod tls;
mod waiting;

use std::borrow::Cow;
use std::error::Error;
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

pub(crate) use self::cell::values;
pub use self::cell::{Row, Value};
pub use self::connection::Canceller;
pub(super) use self::dialect::postgres as dialect_of_server;
pub use self::messages::Violation;
pub(super) use self::postgres::{Access, Session};
pub(super) use self::sqlite::File;
pub(super) use self::tls::{Certificates, Tls, Verification};
pub(super) use self::waiting::Numbered;

/// Error of a database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Error of SQLite.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// Error of a PostgreSQL server, or of the connection to it.
    #[error(transparent)]
    Postgres(#[from] ServerError),
    /// The helper process for the connection has exited.
    #[error("the process that speaks to the server has ended: {0}")]
    Ended(String),
    /// The server did not answer in time.
    #[error("the server does not answer")]
    Silent,
    /// The socket or the helper process cannot be created, or has failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The server violates a limit or the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A column has an unexpected type.
    #[error("column {0} of an answer holds what does not belong there")]
    Column(usize),
}

impl DatabaseError {
    /// True if a server has refused a value: a type cannot hold it, or it is too large for an index.
    pub(in crate::inventory) fn is_of_content(&self) -> bool {
        self.is_of_class(&["22", "54"])
    }

    /// True if a table is missing or the role lacks a right.
    pub(in crate::inventory) fn is_of_rights(&self) -> bool {
        self.is_of_class(&["42"])
    }

    /// Tests the first two characters of a server's code.
    fn is_of_class(&self, classes: &[&str]) -> bool {
        let Self::Postgres(error) = self else { return false };
        error.code.as_ref().is_some_and(|code| classes.iter().any(|class| code.starts_with(class)))
    }

    /// True if a server has refused a row for its content, so that a retry is useless.
    pub(in crate::inventory) fn is_of_row(&self) -> bool {
        self.is_of_content() || self.is_of_class(&["23"])
    }

    /// True if the server is away, or accepts no connections for now.
    pub(crate) fn is_of_absence(&self) -> bool {
        match self {
            Self::Silent | Self::Ended(_) => true,
            Self::System(error) => is_of_way(error),
            Self::Postgres(error) => error.is_away || self.is_of_class(&["08", "53", "57"]),
            Self::Sqlite(_) | Self::Column(_) | Self::Violation(_) => false,
        }
    }
}

/// Error of a server, or of the connection to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{words}")]
pub struct ServerError {
    words: String,
    /// The server's code (SQLSTATE); none if the error is not the server's.
    code: Option<String>,
    /// True if the server was not reached, or has gone.
    is_away: bool,
}

impl From<tokio_postgres::Error> for ServerError {
    fn from(error: tokio_postgres::Error) -> Self {
        let code = error.code().map(|code| code.code().to_owned());
        let cause = error.source().and_then(<dyn Error>::downcast_ref::<std::io::Error>);
        let is_away = code.is_none() && (error.is_closed() || cause.is_some_and(is_of_way));
        Self { words: connection::words(&error), code, is_away }
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error.into())
    }
}

/// True if no server was reached. Otherwise one answered unexpectedly: an invalid certificate, no TLS, no
/// PostgreSQL.
fn is_of_way(error: &std::io::Error) -> bool {
    !matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput)
}

type Result<T> = std::result::Result<T, DatabaseError>;

/// A connection to a database.
#[derive(Debug)]
pub(super) enum Link {
    Sqlite(File),
    Postgres(Box<Session>),
}

/// Interrupts a connection's work from another thread.
pub enum Interrupter {
    /// In this process.
    Sqlite(rusqlite::InterruptHandle),
    /// By a cancel request to the server.
    Postgres(Box<Canceller>),
    /// By closing the helper process's stream; the process then sends that request. None if the
    /// connection is lost.
    Process(Option<UnixStream>),
}

impl Link {
    /// Reconnects to a server that was away.
    pub(super) fn revive(&mut self) -> Result<()> {
        match self {
            Self::Postgres(session) => session.revive().map(drop),
            Self::Sqlite(_) => Ok(()),
        }
    }

    /// Returns the first row of an answer.
    pub(super) fn one<T>(
        &self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        match self {
            Self::Sqlite(file) => file.one(text, values, read),
            Self::Postgres(session) => {
                let mut read = Some(read);
                let read = |row: &Row<'_>| read.take().map(|read| read(row)).transpose();
                Ok(session.all(text, values, 1, read)?.pop().flatten())
            }
        }
    }

    /// Returns the only row of an answer that always has one.
    pub(super) fn sole<T>(
        &self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.one(text, values, read)?.ok_or(DatabaseError::Column(0))
    }

    /// Returns every row of a short answer.
    pub(super) fn all<T>(
        &self,
        text: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
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
    pub(super) fn each<E: From<DatabaseError>>(
        &self,
        text: &str,
        values: &[Value<'_>],
        show: impl FnMut(&Row<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        match self {
            Self::Sqlite(file) => file.each(text, values, show),
            Self::Postgres(session) => session.each(text, values, show),
        }
    }

    /// Changes rows and returns their number.
    pub(super) fn execute(&self, text: &str, values: &[Value<'_>]) -> Result<usize> {
        match self {
            Self::Sqlite(file) => file.execute(text, values),
            Self::Postgres(session) => session.execute(text, values),
        }
    }

    /// Queues a change of a row; it is sent before any other query and before the transaction ends, and
    /// its error is reported then. [`waiting`] explains which order is kept.
    pub(super) fn put(&self, text: &'static str, values: &[Value<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.execute(text, values).map(drop),
            Self::Postgres(session) => session.put(text, values),
        }
    }

    /// Queues an insert, whose first parameter is the row's number; returns the number.
    pub(super) fn enter(&self, table: Numbered, text: &'static str, values: &[Value<'_>]) -> Result<i64> {
        match self {
            Self::Sqlite(file) => file.enter(text, values),
            Self::Postgres(session) => session.enter(table, text, values),
        }
    }

    /// Returns the answers of a query about any of several rows (`= ANY(?1)`).
    pub(super) fn of_each<T>(
        &self,
        text: &str,
        ids: &[i64],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
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
    pub(super) fn kept<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Sqlite(_) => Cow::Borrowed(text),
            Self::Postgres(_) => cell::without_nul(text),
        }
    }

    /// Makes statements of this transaction use the indexes. A server that does not yet know the tables'
    /// size would scan all of them for a batch.
    pub(super) fn look_up_by_keys(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session.batch(
                "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off",
            ),
        }
    }

    /// Runs several statements without parameters.
    pub(super) fn batch(&self, text: &str) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.batch(text),
            Self::Postgres(session) => session.batch(text),
        }
    }

    /// Runs statements that create tables.
    pub(super) fn script(&self, text: &str) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.batch(text),
            Self::Postgres(session) => session.batch(&dialect::postgres(text)),
        }
    }

    /// Starts a transaction in which no other process writes.
    pub(super) fn transaction(&self) -> Result<Transaction<'_>> {
        match self {
            Self::Sqlite(file) => file.batch("BEGIN IMMEDIATE")?,
            Self::Postgres(session) => session.begin()?,
        }
        Ok(Transaction { link: self, is_over: false })
    }

    /// Starts a transaction in which no other process creates the tables of an empty database.
    pub(super) fn transaction_to_make(&self) -> Result<Transaction<'_>> {
        match self {
            Self::Sqlite(_) => return self.transaction(),
            Self::Postgres(session) => session.begin_making()?,
        }
        Ok(Transaction { link: self, is_over: false })
    }

    /// Starts a transaction in which others may write until it [waits for its turn](Self::wait_for_turn).
    pub(super) fn transaction_of_own(&self) -> Result<Transaction<'_>> {
        self.batch("BEGIN")?;
        Ok(Transaction { link: self, is_over: false })
    }

    /// From here on, no other process writes until the transaction ends.
    pub(super) fn wait_for_turn(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session.wait_for_turn(),
        }
    }

    /// Returns a handle that interrupts a query from another thread.
    pub(super) fn interrupter(&self) -> Interrupter {
        match self {
            Self::Sqlite(file) => Interrupter::Sqlite(file.interrupter()),
            Self::Postgres(session) => session.interrupter(),
        }
    }
}

impl Interrupter {
    /// Interrupts the query, if one is running. It does not wait for the server, so a runtime of tokio
    /// must exist.
    pub fn interrupt(&self) {
        match self {
            Self::Sqlite(handle) => handle.interrupt(),
            Self::Postgres(canceller) => {
                let canceller = canceller.clone();
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    // A failure does no harm: the query has a time limit.
                    runtime.spawn(async move { drop(canceller.cancel().await) });
                }
            }
            Self::Process(stream) => {
                // A process that has exited works on nothing.
                let _ = stream.as_ref().map(|stream| stream.shutdown(Shutdown::Both));
            }
        }
    }
}

/// A transaction; it is rolled back if it is dropped without a commit.
pub(super) struct Transaction<'a> {
    link: &'a Link,
    is_over: bool,
}

impl Transaction<'_> {
    pub(super) fn commit(mut self) -> Result<()> {
        self.link.batch("COMMIT")?;
        self.is_over = true;
        Ok(())
    }
}

impl std::ops::Deref for Transaction<'_> {
    type Target = Link;

    fn deref(&self) -> &Link {
        self.link
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            match self.link {
                // Some errors end the transaction, so this may fail.
                Link::Sqlite(file) => drop(file.batch("ROLLBACK")),
                Link::Postgres(session) => session.roll_back(),
            }
        }
    }
}
