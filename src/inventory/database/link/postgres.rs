//! A connection to a PostgreSQL server.
//!
//! Each has a runtime of its own on the thread that asks, which waits for the answer but no longer than
//! [`PATIENCE`]. Rows that are only [put](Session::put) are sent together: see [`super::waiting`].

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join;
use tokio::runtime::Runtime;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::Type;
use tokio_postgres::{CancelToken, Client, Config, Error, SimpleQueryMessage, Statement};

use super::dialect::{of_many, postgres};
use super::messages::{Guarded, Messages, Received};
use super::route::{Route, routes};
use super::tls::{self, Tls};
use super::waiting::{Numbered, Sending, Waiting};
use super::{DatabaseError, Result, Row, Value};

/// The longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the tables are; how long a writer waits for another one, and how long the server does for a writer that has
/// stopped in the middle, as one whose machine is gone.
const SETTINGS: &str =
    "SET search_path = bannerwall; SET client_min_messages = warning; SET lock_timeout = '5s';
                        SET idle_in_transaction_session_timeout = '5min'";

/// A turn to write. Readers go on, and only a role that may write the table can take it. It is a table that is seldom vacuumed,
/// which waits for the lock.
const WRITING: &str = "LOCK TABLE bannerwall.sensors IN SHARE ROW EXCLUSIVE MODE";

/// A turn to make the tables of an empty database, which has no roles of its own yet.
const MAKING: &str = "SELECT pg_advisory_xact_lock(x'62776976'::int)";

/// Statements that are kept prepared.
const STATEMENTS: usize = 128;

/// Rows that are put before they are sent, at most.
const TOGETHER: usize = 16_384;

/// Numbers of rows that are taken at once.
const NUMBERS: usize = 1_024;

/// Rows of a long answer that are fetched first, and then each time.
const FETCHED: (usize, usize) = (128, 512);

/// A connection.
pub(in crate::inventory::database) struct Session {
    config: Config,
    runtime: Option<Runtime>,
    client: Client,
    route: Route,
    received: Received,
    tls: Tls,
    statements: RefCell<HashMap<String, Statement>>,
    /// Statements for many rows.
    of_many: RefCell<HashMap<&'static str, Statement>>,
    /// What is put, and not sent yet.
    waiting: RefCell<Waiting>,
    /// Numbers for rows that nobody else will use.
    numbers: RefCell<[VecDeque<i64>; Numbered::COUNT]>,
    /// Long answers that are being read.
    cursors: Cell<usize>,
    /// Nothing can be asked any more.
    is_lost: Cell<bool>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_lost", &self.is_lost).finish_non_exhaustive()
    }
}

/// An error in words, with what is behind it.
pub(super) fn words(error: &Error) -> String {
    if let Some(told) = error.as_db_error() {
        return told.message().to_owned();
    }
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        // What stands behind an error of a stream is not its source.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let more = match inner.and_then(|inner| inner.downcast_ref()) {
            Some(fault) => tls::words(fault),
            None => error.to_string(),
        };
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

impl Session {
    pub(in crate::inventory::database) fn open(config: &Config, tls: &Tls) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let Connected { client, route, received } = connect(&runtime, config, tls)?;
        Ok(Self {
            config: config.clone(),
            runtime: Some(runtime),
            client,
            route,
            received,
            tls: tls.clone(),
            statements: RefCell::default(),
            of_many: RefCell::default(),
            waiting: RefCell::default(),
            numbers: RefCell::default(),
            cursors: Cell::new(0),
            is_lost: Cell::new(false),
        })
    }

    /// Connects anew where the connection is lost; whether it was.
    pub(in crate::inventory::database) fn revive(&mut self) -> Result<bool> {
        if !self.is_lost.get() && !self.client.is_closed() {
            return Ok(false);
        }
        let Some(runtime) = &self.runtime else { return Err(DatabaseError::Silent) };
        let Connected { client, route, received } = connect(runtime, &self.config, &self.tls)?;
        (self.client, self.route, self.received) = (client, route, received);
        self.statements.borrow_mut().clear();
        self.of_many.borrow_mut().clear();
        self.waiting.take();
        // A server that has crashed may give them once more.
        self.numbers.take();
        self.cursors.set(0);
        self.is_lost.set(false);
        Ok(true)
    }

    /// Whether nothing can be asked any more.
    pub(in crate::inventory::database) fn is_lost(&self) -> bool {
        self.is_lost.get() || self.client.is_closed()
    }

    pub(super) fn canceller(&self) -> Canceller {
        let (token, route) = (self.client.cancel_token(), self.route.clone());
        Canceller { token, config: route.config(&self.config), route, tls: self.tls.clone() }
    }

    pub(super) fn all(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<tokio_postgres::Row>> {
        let waiting = self.waiting.take().into_sendings();
        self.wait(async {
            let (before, statement) = (self.prepare(&waiting).await?, self.statement(text).await?);
            let parameters: Vec<_> = values.iter().map(|value| value as _).collect();
            // Behind what waits, and without waiting for that.
            let (sent, rows) =
                join(self.send(&before, &waiting), self.client.query(&statement, &parameters)).await;
            sent.and(rows)
        })
    }

    pub(super) fn execute(&self, text: &str, values: &[Value<'_>]) -> Result<usize> {
        let waiting = self.waiting.take().into_sendings();
        let count = self.wait(async {
            let (before, statement) = (self.prepare(&waiting).await?, self.statement(text).await?);
            let parameters: Vec<_> = values.iter().map(|value| value as _).collect();
            let (sent, count) =
                join(self.send(&before, &waiting), self.client.execute(&statement, &parameters)).await;
            sent.and(count)
        })?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(super) fn put(&self, text: &'static str, values: &[Value<'_>]) -> Result<()> {
        self.keep(None, text, &mut values.iter())
    }

    pub(super) fn enter(&self, table: Numbered, text: &'static str, values: &[Value<'_>]) -> Result<i64> {
        let number = self.number(table)?;
        self.keep(Some(table), text, &mut std::iter::once(&Value::Integer(number)).chain(values))?;
        Ok(number)
    }

    fn keep<'v>(
        &self,
        enters: Option<Numbered>,
        text: &'static str,
        values: &mut dyn Iterator<Item = &'v Value<'v>>,
    ) -> Result<()> {
        let count = self.waiting.borrow_mut().put(enters, text, values);
        if count >= TOGETHER { self.send_all() } else { Ok(()) }
    }

    /// A number for a row of a table.
    fn number(&self, table: Numbered) -> Result<i64> {
        let next = |session: &Self| session.numbers.borrow_mut()[table as usize].pop_front();
        if let Some(number) = next(self) {
            return Ok(number);
        }
        let name = table.name();
        let query = format!(
            "SELECT nextval(pg_get_serial_sequence('bannerwall.{name}', 'id')) FROM generate_series(1, {NUMBERS})"
        );
        // What waits may go on doing so.
        let rows = self.wait(async { self.client.query(&self.statement(&query).await?, &[]).await })?;
        for row in &rows {
            self.numbers.borrow_mut()[table as usize].push_back(row.try_get(0)?);
        }
        next(self).ok_or(DatabaseError::Column(0))
    }

    pub(in crate::inventory::database) fn batch(&self, text: &str) -> Result<()> {
        self.send_all()?;
        self.wait(self.client.batch_execute(text))
    }

    /// Begins a transaction in which nobody else writes: numbers of changes are in the order in which readers come
    /// to see them, and what a writer has looked up is so until it ends.
    pub(super) fn begin(&self) -> Result<()> {
        self.begin_by(WRITING)
    }

    /// Begins a transaction in which nobody else makes the tables.
    pub(super) fn begin_making(&self) -> Result<()> {
        self.begin_by(MAKING)
    }

    fn begin_by(&self, lock: &str) -> Result<()> {
        let begun = self.batch(&format!("BEGIN; {lock}"));
        if begun.is_err() {
            // Who has waited too long for the lock is within a transaction that has failed.
            self.roll_back();
        }
        begun
    }

    /// Has nobody else write until the transaction ends.
    pub(super) fn wait_for_turn(&self) -> Result<()> {
        self.batch(WRITING)
    }

    pub(super) fn roll_back(&self) {
        self.waiting.take();
        // Where that cannot be told the connection is lost, and so the transaction over.
        let _ = self.batch("ROLLBACK");
    }

    /// Reads by a cursor: an answer may be longer than what one wants to hold.
    pub(super) fn each<E: From<DatabaseError>>(
        &self,
        text: &str,
        values: &[Value<'_>],
        show: impl FnMut(&Row<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        let number = self.cursors.get();
        if number == 0 {
            self.batch("BEGIN READ ONLY")?;
        }
        self.cursors.set(number + 1);
        let outcome = self.fetch(number, text, values, show);
        self.cursors.set(number);
        if number > 0 {
            // Of an error the transaction ends, and the cursor with it.
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
        values: &[Value<'_>],
        mut show: impl FnMut(&Row<'_>) -> std::result::Result<ControlFlow<()>, E>,
    ) -> std::result::Result<(), E> {
        self.execute(&format!("DECLARE c{number} NO SCROLL CURSOR FOR {text}"), values)?;
        let mut wanted = FETCHED.0;
        loop {
            let fetch = format!("FETCH {wanted} FROM c{number}");
            // Not kept: the next answer has other columns.
            let rows = self.wait(self.client.query(&fetch, &[]))?;
            for row in &rows {
                if show(&Row::Postgres(row))?.is_break() {
                    return Ok(());
                }
            }
            if rows.len() < wanted {
                return Ok(());
            }
            wanted = FETCHED.1;
        }
    }

    fn send_all(&self) -> Result<()> {
        let waiting = self.waiting.take();
        if waiting.is_empty() {
            return Ok(());
        }
        let waiting = waiting.into_sendings();
        self.wait(async { self.send(&self.prepare(&waiting).await?, &waiting).await })
    }

    async fn prepare(&self, waiting: &[Sending]) -> std::result::Result<Vec<Statement>, Error> {
        let mut statements = Vec::with_capacity(waiting.len());
        for (text, _) in waiting {
            statements.push(self.statement_of_many(text).await?);
        }
        Ok(statements)
    }

    /// Sends what waits, in its order and before it waits for anything, and then for all of it.
    async fn send(&self, statements: &[Statement], waiting: &[Sending]) -> std::result::Result<(), Error> {
        let all = statements.iter().zip(waiting);
        let mut answers: Vec<Pin<Box<dyn Future<Output = _> + '_>>> = Vec::with_capacity(waiting.len());
        for (statement, (_, values)) in all {
            answers.push(Box::pin(self.client.execute_raw(statement, values.iter())));
        }
        // Each is sent when it is first asked for.
        let mut early = Vec::with_capacity(answers.len());
        poll_fn(|context| {
            early.extend(answers.iter_mut().map(|answer| match answer.as_mut().poll(context) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => None,
            }));
            Poll::Ready(())
        })
        .await;
        for (answer, early) in answers.into_iter().zip(early) {
            match early {
                Some(outcome) => outcome?,
                None => answer.await?,
            };
        }
        Ok(())
    }

    /// A statement for many rows, whose parameters are arrays of those of the one for a row.
    async fn statement_of_many(&self, text: &'static str) -> std::result::Result<Statement, Error> {
        if let Some(known) = self.of_many.borrow().get(text) {
            return Ok(known.clone());
        }
        let of_one = self.statement(text).await?;
        let types: Vec<_> = of_one.params().iter().map(Type::name).collect();
        let statement = self.client.prepare(&of_many(text, &types)).await?;
        self.of_many.borrow_mut().insert(text, statement.clone());
        Ok(statement)
    }

    async fn statement(&self, text: &str) -> std::result::Result<Statement, Error> {
        if let Some(known) = self.statements.borrow().get(text) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(&postgres(text)).await?;
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= STATEMENTS {
            statements.clear();
        }
        statements.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    fn wait<T>(&self, work: impl Future<Output = std::result::Result<T, Error>>) -> Result<T> {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !self.is_lost.get()) else {
            return Err(DatabaseError::Silent);
        };
        self.received.restart();
        let outcome = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
        let is_over = match &outcome {
            Ok(Ok(_)) => false,
            Ok(Err(error)) => ends(error),
            Err(_) => true,
        };
        if is_over || self.client.is_closed() {
            self.is_lost.set(true);
        }
        outcome.map_err(|_| DatabaseError::Silent)?.map_err(|error| self.received.or(error))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It may be dropped on a thread of another one, which must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether a connection ends with an error.
fn ends(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    error.is_closed() || matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

/// Ends what a connection works on, by another one to the same server.
#[derive(Clone)]
pub struct Canceller {
    token: CancelToken,
    route: Route,
    config: Config,
    tls: Tls,
}

impl Canceller {
    pub(super) async fn cancel(&self) -> Result<()> {
        let stream = self.route.open(&self.config).await?;
        let (stream, received) = Messages::new(stream, &self.route, &self.config);
        let tls = Guarded::new(&self.tls, &self.route, received);
        Ok(self.token.cancel_query_raw(stream, tls).await?)
    }
}

/// A connection, and what is known of it.
struct Connected {
    client: Client,
    route: Route,
    received: Received,
}

fn connect(runtime: &Runtime, config: &Config, tls: &Tls) -> Result<Connected> {
    let outcome = runtime.block_on(async { tokio::time::timeout(PATIENCE, connect_any(config, tls)).await });
    outcome.map_err(|_| DatabaseError::Silent)?
}

/// By the first way that leads to a server which is wanted.
async fn connect_any(config: &Config, tls: &Tls) -> Result<Connected> {
    let mut why = DatabaseError::Silent;
    for route in routes(config).await? {
        match connect_by(route, config, tls).await {
            Ok(connected) => return Ok(connected),
            // What a server said comes before that nobody was met elsewhere.
            Err(error) if why.is_of_absence() => why = error,
            Err(_) => {}
        }
    }
    Err(why)
}

async fn connect_by(route: Route, config: &Config, tls: &Tls) -> Result<Connected> {
    let config = &route.config(config);
    let (stream, received) = Messages::new(route.open(config).await?, &route, config);
    let tls = Guarded::new(tls, &route, received.clone());
    let connected = config.connect_raw(stream, tls).await;
    let (client, connection) = connected.map_err(|error| received.or(error))?;
    // How it ends those who ask come to know.
    tokio::spawn(async move { drop(connection.await) });
    let prepared = async {
        client.batch_execute(SETTINGS).await?;
        is_wanted(&client, config).await
    };
    if !prepared.await.map_err(|error| received.or(error))? {
        return Err(std::io::Error::other(
            "the server is not one that may be written, or not one that may not",
        )
        .into());
    }
    Ok(Connected { client, route, received })
}

/// Whether a server may be written, or may not, as a URL wants it (`target_session_attrs`).
async fn is_wanted(client: &Client, config: &Config) -> std::result::Result<bool, Error> {
    let wanted = match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => "off",
        TargetSessionAttrs::ReadOnly => "on",
        _ => return Ok(true),
    };
    let answer = client.simple_query("SHOW transaction_read_only").await?;
    Ok(answer.iter().any(|it| matches!(it, SimpleQueryMessage::Row(row) if row.get(0) == Some(wanted))))
}
