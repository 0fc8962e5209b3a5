//! Statements to whichever database keeps an inventory, and rows of it.
//!
//! Statements are written once, in the SQL that SQLite and PostgreSQL share, with parameters `?1` or `?`.
//! What of it PostgreSQL spells otherwise is put into its words where a statement is prepared ([`dialect`]),
//! so that nothing above knows which of them it speaks to.

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

/// Why a database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// What SQLite said.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What a PostgreSQL server said, or that it is no more to be reached.
    #[error(transparent)]
    Postgres(#[from] ServerError),
    /// The process that spoke to the server has ended.
    #[error("the process that speaks to the server has ended: {0}")]
    Ended(String),
    /// The server has not answered for so long.
    #[error("the server does not answer")]
    Silent,
    /// What the server is spoken to by cannot be made, or does not lead to it.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The server sends what is not taken.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// Something else stands in a column than what should.
    #[error("column {0} of an answer holds what does not belong there")]
    Column(usize),
}

impl DatabaseError {
    /// True if a server has refused a value that it was sent: one that a type cannot hold, or too large for
    /// an index.
    pub(in crate::inventory) fn is_of_content(&self) -> bool {
        self.is_of_class(&["22", "54"])
    }

    /// True if a server does not have what it was asked for, or not for who asks.
    pub(in crate::inventory) fn is_of_rights(&self) -> bool {
        self.is_of_class(&["42"])
    }

    /// By the first two characters of a server's code.
    fn is_of_class(&self, classes: &[&str]) -> bool {
        let Self::Postgres(error) = self else { return false };
        error.code.as_ref().is_some_and(|code| classes.iter().any(|class| code.starts_with(class)))
    }

    /// True if a server has refused a row as it is, and would each time.
    pub(in crate::inventory) fn is_of_row(&self) -> bool {
        self.is_of_content() || self.is_of_class(&["23"])
    }

    /// True if the server is away, or takes nobody for now.
    pub(crate) fn is_of_absence(&self) -> bool {
        match self {
            Self::Silent | Self::Ended(_) => true,
            Self::System(error) => is_of_way(error),
            Self::Postgres(error) => error.is_away || self.is_of_class(&["08", "53", "57"]),
            Self::Sqlite(_) | Self::Column(_) | Self::Violation(_) => false,
        }
    }
}

/// What a server said, or why it can no more be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{words}")]
pub struct ServerError {
    words: String,
    /// What the server calls it (SQLSTATE); none if it said nothing.
    code: Option<String>,
    /// True if it was not met, or has gone.
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

/// True if nobody was met. Else somebody was, who has not said what was to come: a certificate that does not
/// verify, no TLS, no PostgreSQL.
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

/// Ends from another thread what a connection works on.
pub enum Interrupter {
    /// In this process.
    Sqlite(rusqlite::InterruptHandle),
    /// By a request to the server.
    Postgres(Box<Canceller>),
    /// By the end of what a process is asked by, which then makes that request; none where it is lost.
    Process(Option<UnixStream>),
}

impl Link {
    /// Connects anew to a server that was away.
    pub(super) fn revive(&mut self) -> Result<()> {
        match self {
            Self::Postgres(session) => session.revive().map(drop),
            Self::Sqlite(_) => Ok(()),
        }
    }

    /// The first row of an answer.
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

    /// The only row of an answer that always has one.
    pub(super) fn sole<T>(
        &self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.one(text, values, read)?.ok_or(DatabaseError::Column(0))
    }

    /// Every row of an answer that is not long.
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

    /// Shows the rows of an answer of whatever length, until there are enough. Others may be asked for
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

    /// Changes rows; how many.
    pub(super) fn execute(&self, text: &str, values: &[Value<'_>]) -> Result<usize> {
        match self {
            Self::Sqlite(file) => file.execute(text, values),
            Self::Postgres(session) => session.execute(text, values),
        }
    }

    /// Changes a row, before anything else is asked or the transaction ends: what goes wrong is told then.
    /// See [`waiting`] for what of the order stays.
    pub(super) fn put(&self, text: &'static str, values: &[Value<'_>]) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.execute(text, values).map(drop),
            Self::Postgres(session) => session.put(text, values),
        }
    }

    /// The same of a statement that enters a row, whose first parameter is its number; gives that.
    pub(super) fn enter(&self, table: Numbered, text: &'static str, values: &[Value<'_>]) -> Result<i64> {
        match self {
            Self::Sqlite(file) => file.enter(text, values),
            Self::Postgres(session) => session.enter(table, text, values),
        }
    }

    /// What a question about any of several rows (`= ANY(?1)`) is answered with.
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

    /// A text as it comes back.
    pub(super) fn kept<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Sqlite(_) => Cow::Borrowed(text),
            Self::Postgres(_) => cell::without_nul(text),
        }
    }

    /// Has statements of this transaction look rows up by their keys: a server that does not know yet how
    /// large the tables have become would read all of them for a batch.
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

    /// Runs statements that make tables.
    pub(super) fn script(&self, text: &str) -> Result<()> {
        match self {
            Self::Sqlite(file) => file.batch(text),
            Self::Postgres(session) => session.batch(&dialect::postgres(text)),
        }
    }

    /// Begins a transaction in which nobody else writes.
    pub(super) fn transaction(&self) -> Result<Transaction<'_>> {
        match self {
            Self::Sqlite(file) => file.batch("BEGIN IMMEDIATE")?,
            Self::Postgres(session) => session.begin()?,
        }
        Ok(Transaction { link: self, is_over: false })
    }

    /// Begins a transaction in which nobody else makes the tables of an empty database.
    pub(super) fn transaction_to_make(&self) -> Result<Transaction<'_>> {
        match self {
            Self::Sqlite(_) => return self.transaction(),
            Self::Postgres(session) => session.begin_making()?,
        }
        Ok(Transaction { link: self, is_over: false })
    }

    /// Begins a transaction in which others may write until it [waits for its turn](Self::wait_for_turn).
    pub(super) fn transaction_of_own(&self) -> Result<Transaction<'_>> {
        self.batch("BEGIN")?;
        Ok(Transaction { link: self, is_over: false })
    }

    /// From here to the end of the transaction nobody else writes.
    pub(super) fn wait_for_turn(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(session) => session.wait_for_turn(),
        }
    }

    /// What ends a question from another thread.
    pub(super) fn interrupter(&self) -> Interrupter {
        match self {
            Self::Sqlite(file) => Interrupter::Sqlite(file.interrupter()),
            Self::Postgres(session) => session.interrupter(),
        }
    }
}

impl Interrupter {
    /// Ends the question, where there still is one. Does not wait for a server to do so, which a runtime of
    /// tokio has to be there for.
    pub fn interrupt(&self) {
        match self {
            Self::Sqlite(handle) => handle.interrupt(),
            Self::Postgres(canceller) => {
                let canceller = canceller.clone();
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    // That it could not be told is no harm: it has a time of its own.
                    runtime.spawn(async move { drop(canceller.cancel().await) });
                }
            }
            Self::Process(stream) => {
                // One that has ended works on nothing.
                let _ = stream.as_ref().map(|stream| stream.shutdown(Shutdown::Both));
            }
        }
    }
}

/// All that is written in it, or nothing where it is dropped before its end.
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
                // It may be over already: some errors end it.
                Link::Sqlite(file) => drop(file.batch("ROLLBACK")),
                Link::Postgres(session) => session.roll_back(),
            }
        }
    }
}
