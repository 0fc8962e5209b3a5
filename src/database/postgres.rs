//! Queries to a PostgreSQL server, through a connection in this process or in [another
//! one](super::helper_process).
//!
//! Rows that are only [put](PostgresSession::put) are sent together: see [`super::statement_queue`].

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio_postgres::Config;

use super::connection::DirectConnection;
use super::error::{DatabaseError, Result};
use super::helper_process::{ConnectionStarter, ProcessConnection, rows};
use super::interrupter::QueryInterrupter;
use super::statement_queue::{NumberedTable, QueuedStatement, StatementQueue};
use super::tls::PostgresTls;
use super::values::{QueryRow, SqlParameter};
use super::work::{ServerWork, WorkKind};

/// Lock for a turn to write. Readers continue, and only a role with the right to write the table can take
/// it. The table is seldom vacuumed; a vacuum waits for the lock.
const WRITING: &str = "LOCK TABLE bannerwall.sensors IN SHARE ROW EXCLUSIVE MODE";

/// Lock for a turn to create the tables of an empty database, which has no roles yet.
const MAKING: &str = "SELECT pg_advisory_xact_lock(x'62776976'::int)";

/// Largest number of queued rows.
const TOGETHER: usize = 16_384;

/// Number of row numbers that are reserved at once.
const NUMBERS: usize = 1_024;

/// Number of rows of a long answer that are fetched first, and then each time.
const FETCHED: (usize, usize) = (128, 512);

/// Kind of connection to a server.
#[derive(Clone)]
pub enum ConnectMethod {
    /// In this process.
    Direct(Box<(Config, PostgresTls)>),
    /// In a helper process.
    Process(Arc<ConnectionStarter>),
}

/// A connection of either kind.
enum PostgresConnection {
    Direct(Box<DirectConnection>),
    Process(ProcessConnection),
}

/// Rows of an answer.
enum QueryRows {
    Direct(Vec<tokio_postgres::Row>),
    /// As a helper process sends them.
    Process(Vec<u8>),
}

/// A session with a server.
pub struct PostgresSession {
    access: ConnectMethod,
    client: PostgresConnection,
    /// Queued statements that are not sent yet.
    waiting: RefCell<StatementQueue>,
    /// Reserved numbers for rows.
    numbers: RefCell<[VecDeque<i64>; NumberedTable::COUNT]>,
    /// Number of long answers that are being read.
    cursors: Cell<usize>,
}

impl std::fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSession").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl PostgresConnection {
    fn open(access: &ConnectMethod) -> Result<Self> {
        Ok(match access {
            ConnectMethod::Direct(how) => Self::Direct(Box::new(DirectConnection::open(&how.0, &how.1)?)),
            ConnectMethod::Process(starter) => Self::Process(starter.connect()?),
        })
    }

    fn run(&self, work: &ServerWork<'_>) -> Result<(QueryRows, u64)> {
        match self {
            Self::Direct(connection) => {
                connection.run(work).map(|(rows, count)| (QueryRows::Direct(rows), count))
            }
            Self::Process(connection) => {
                connection.run(work).map(|(rows, count)| (QueryRows::Process(rows), count))
            }
        }
    }
}

impl QueryRows {
    fn iter(&self) -> Box<dyn Iterator<Item = QueryRow<'_>> + '_> {
        match self {
            Self::Direct(all) => Box::new(all.iter().map(QueryRow::Postgres)),
            Self::Process(bytes) => Box::new(rows(bytes).map(QueryRow::Process)),
        }
    }
}

impl PostgresSession {
    /// Connects to a server.
    pub(crate) fn open(access: ConnectMethod) -> Result<Self> {
        Ok(Self {
            client: PostgresConnection::open(&access)?,
            access,
            waiting: RefCell::default(),
            numbers: RefCell::default(),
            cursors: Cell::new(0),
        })
    }

    /// Reconnects if the connection is lost; returns true if it was.
    pub(crate) fn revive(&mut self) -> Result<bool> {
        if !self.is_lost() {
            return Ok(false);
        }
        self.client = PostgresConnection::open(&self.access)?;
        self.waiting.take();
        // A server that has crashed may assign the reserved numbers again.
        self.numbers.take();
        self.cursors.set(0);
        Ok(true)
    }

    /// True if the connection is unusable.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.client {
            PostgresConnection::Direct(connection) => connection.is_lost(),
            PostgresConnection::Process(connection) => connection.is_lost(),
        }
    }

    pub(super) fn interrupter(&self) -> QueryInterrupter {
        match &self.client {
            PostgresConnection::Direct(connection) => {
                QueryInterrupter::Postgres(Box::new(connection.canceller()))
            }
            PostgresConnection::Process(connection) => QueryInterrupter::Process(connection.interrupter()),
        }
    }

    /// Runs work on the server, after the queued statements.
    fn run(&self, kind: WorkKind, text: &str, values: &[SqlParameter<'_>]) -> Result<(QueryRows, u64)> {
        let before = self.waiting.take().into_sendings().into();
        self.client.run(&ServerWork { kind, before, text: text.into(), values: values.into() })
    }

    /// Runs a statement for many rows, whose parameters are arrays, after the queued statements.
    pub(super) fn execute_for_rows(&self, text: &str, columns: Vec<SqlParameter<'_>>) -> Result<()> {
        let mut before: Vec<QueuedStatement<'_>> = self.waiting.take().into_sendings();
        before.push((text.into(), columns));
        let (text, values) = (Cow::Borrowed(""), Cow::default());
        self.client.run(&ServerWork { kind: WorkKind::Batch, before: before.into(), text, values }).map(drop)
    }

    /// Runs work while statements may stay queued.
    fn ask(&self, kind: WorkKind, text: &str) -> Result<QueryRows> {
        let work = ServerWork { kind, before: Cow::default(), text: text.into(), values: Cow::default() };
        Ok(self.client.run(&work)?.0)
    }

    /// Returns the values of the first rows of an answer, up to a limit.
    pub(super) fn all<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        most: usize,
        mut read: impl FnMut(&QueryRow<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (rows, _) = self.run(WorkKind::Query, text, values)?;
        rows.iter().take(most).map(|row| read(&row)).collect()
    }

    pub(super) fn execute(&self, text: &str, values: &[SqlParameter<'_>]) -> Result<usize> {
        let (_, count) = self.run(WorkKind::Execute, text, values)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(super) fn put(&self, text: &'static str, values: &[SqlParameter<'_>]) -> Result<()> {
        self.keep(None, text, &mut values.iter())
    }

    pub(super) fn enter(
        &self,
        table: NumberedTable,
        text: &'static str,
        values: &[SqlParameter<'_>],
    ) -> Result<i64> {
        let number = self.number(table)?;
        self.keep(Some(table), text, &mut std::iter::once(&SqlParameter::Integer(number)).chain(values))?;
        Ok(number)
    }

    fn keep<'v>(
        &self,
        enters: Option<NumberedTable>,
        text: &'static str,
        values: &mut dyn Iterator<Item = &'v SqlParameter<'v>>,
    ) -> Result<()> {
        let count = self.waiting.borrow_mut().put(enters, text, values);
        if count >= TOGETHER { self.send_all() } else { Ok(()) }
    }

    /// Returns a number for a row of a table.
    fn number(&self, table: NumberedTable) -> Result<i64> {
        let next = |session: &Self| session.numbers.borrow_mut()[table as usize].pop_front();
        if let Some(number) = next(self) {
            return Ok(number);
        }
        let name = table.name();
        let query = format!(
            "SELECT nextval(pg_get_serial_sequence('bannerwall.{name}', 'id')) FROM generate_series(1, {NUMBERS})"
        );
        for row in self.ask(WorkKind::Query, &query)?.iter() {
            self.numbers.borrow_mut()[table as usize].push_back(row.get(0)?);
        }
        next(self).ok_or(DatabaseError::Column(0))
    }

    /// Runs several statements without parameters.
    pub(crate) fn batch(&self, text: &str) -> Result<()> {
        self.run(WorkKind::Batch, text, &[]).map(drop)
    }

    /// Starts a transaction in which no other process writes. So numbers of changes have the order in
    /// which readers see them, and rows that a writer has read stay valid until the end.
    pub(super) fn begin(&self) -> Result<()> {
        self.begin_by(WRITING)
    }

    /// Starts a transaction in which no other process creates the tables.
    pub(super) fn begin_making(&self) -> Result<()> {
        self.begin_by(MAKING)
    }

    fn begin_by(&self, lock: &str) -> Result<()> {
        let begun = self.batch(&format!("BEGIN; {lock}"));
        if begun.is_err() {
            // If the wait for the lock failed, the transaction has failed, too.
            self.roll_back();
        }
        begun
    }

    /// Keeps others from writing until the transaction ends.
    pub(super) fn wait_for_turn(&self) -> Result<()> {
        self.batch(WRITING)
    }

    pub(super) fn roll_back(&self) {
        self.waiting.take();
        // If this fails, the connection is lost and so the transaction is over.
        let _ = self.batch("ROLLBACK");
    }

    /// Reads with a cursor, because an answer may be too long for memory.
    pub(super) fn each<E: From<DatabaseError>>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        show: impl FnMut(&QueryRow<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        let number = self.cursors.get();
        if number == 0 {
            self.batch("BEGIN READ ONLY")?;
        }
        self.cursors.set(number + 1);
        let outcome = self.fetch(number, text, values, show);
        self.cursors.set(number);
        if number > 0 {
            // An error ends the transaction, and the cursor with it.
            let _ = self.batch(&format!("CLOSE c{number}"));
        } else if outcome.is_ok() {
            self.batch("COMMIT")?;
        } else {
            self.roll_back();
        }
        outcome
    }

    fn fetch<E: From<DatabaseError>>(
        &self,
        number: usize,
        text: &str,
        values: &[SqlParameter<'_>],
        mut show: impl FnMut(&QueryRow<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        self.execute(&format!("DECLARE c{number} NO SCROLL CURSOR FOR {text}"), values)?;
        let mut wanted = FETCHED.0;
        loop {
            let fetch = format!("FETCH {wanted} FROM c{number}");
            let rows = self.ask(WorkKind::Fetch, &fetch)?;
            let mut count = 0;
            for row in rows.iter() {
                count += 1;
                if show(&row)?.is_break() {
                    return Ok(());
                }
            }
            if count < wanted {
                return Ok(());
            }
            wanted = FETCHED.1;
        }
    }

    fn send_all(&self) -> Result<()> {
        if self.waiting.borrow().is_empty() { Ok(()) } else { self.batch("") }
    }
}
