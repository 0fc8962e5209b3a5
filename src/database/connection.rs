//! A connection to a PostgreSQL server in this process.
//!
//! Each has its own runtime on the calling thread, which waits for the answer for at most [`PATIENCE`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
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
use super::error::{DatabaseError, Result};
use super::message_limits::{CheckedStream, CheckedTls, ReceiveState};
use super::route::{ServerRoute, routes};
use super::statement_queue::QueuedStatement;
use super::tls::PostgresTls;
use super::work::{ServerWork, WorkKind};

/// Longest time to wait for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The schema's search path, a writer's limit on waiting for another, and the server's limit on a writer
/// that stopped in the middle, for example because its machine is gone.
const SETTINGS: &str =
    "SET search_path = bannerwall; SET client_min_messages = warning; SET lock_timeout = '5s';
                        SET idle_in_transaction_session_timeout = '5min'";

/// Number of statements that stay prepared.
const STATEMENTS: usize = 128;

/// A connection.
pub(super) struct DirectConnection {
    config: Config,
    runtime: Option<Runtime>,
    client: Client,
    route: ServerRoute,
    received: ReceiveState,
    tls: PostgresTls,
    statements: RefCell<HashMap<String, Statement>>,
    /// Prepared statements for many rows.
    of_many: RefCell<HashMap<String, Statement>>,
    /// True if the connection is unusable.
    is_lost: Cell<bool>,
}

impl DirectConnection {
    pub(super) fn open(config: &Config, tls: &PostgresTls) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let ConnectedClient { client, route, received } = connect(&runtime, config, tls)?;
        Ok(Self {
            config: config.clone(),
            runtime: Some(runtime),
            client,
            route,
            received,
            tls: tls.clone(),
            statements: RefCell::default(),
            of_many: RefCell::default(),
            is_lost: Cell::new(false),
        })
    }

    /// True if the connection is unusable.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.get() || self.client.is_closed()
    }

    pub(super) fn canceller(&self) -> QueryCanceller {
        let (token, route) = (self.client.cancel_token(), self.route.clone());
        QueryCanceller { token, config: route.config(&self.config), route, tls: self.tls.clone() }
    }

    /// Runs work on the server; returns the rows of its answer, and the number of changed rows.
    pub(super) fn run(&self, work: &ServerWork<'_>) -> Result<(Vec<tokio_postgres::Row>, u64)> {
        self.wait(async {
            let waiting = &*work.before;
            let before = self.prepare(waiting).await?;
            let text = &*work.text;
            let parameters: Vec<_> = work.values.iter().map(|value| value as _).collect();
            // The pending statements go first; there is no wait for their answers.
            let sending = self.send(&before, waiting);
            match work.kind {
                WorkKind::Query => {
                    let statement = self.statement(text).await?;
                    let (sent, rows) = join(sending, self.client.query(&statement, &parameters)).await;
                    sent.and(rows).map(|rows| (rows, 0))
                }
                // Not prepared, because the next answer has other columns.
                WorkKind::Fetch => Ok((self.client.query(text, &[]).await?, 0)),
                WorkKind::Execute => {
                    let statement = self.statement(text).await?;
                    let (sent, count) = join(sending, self.client.execute(&statement, &parameters)).await;
                    sent.and(count).map(|count| (Vec::new(), count))
                }
                WorkKind::Batch => {
                    sending.await?;
                    if !text.is_empty() {
                        self.client.batch_execute(text).await?;
                    }
                    Ok((Vec::new(), 0))
                }
            }
        })
    }

    async fn prepare(&self, waiting: &[QueuedStatement<'_>]) -> std::result::Result<Vec<Statement>, Error> {
        let mut statements = Vec::with_capacity(waiting.len());
        for (text, _) in waiting {
            statements.push(self.statement_of_many(text).await?);
        }
        Ok(statements)
    }

    /// Sends the pending statements in order without waiting, and then waits for all answers.
    async fn send(
        &self,
        statements: &[Statement],
        waiting: &[QueuedStatement<'_>],
    ) -> std::result::Result<(), Error> {
        let all = statements.iter().zip(waiting);
        let mut answers: Vec<Pin<Box<dyn Future<Output = _> + '_>>> = Vec::with_capacity(waiting.len());
        for (statement, (_, values)) in all {
            answers.push(Box::pin(self.client.execute_raw(statement, values.iter())));
        }
        // A statement is sent when its future is first polled.
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

    /// Returns a statement for many rows, whose parameters are arrays of those of the statement for one
    /// row.
    async fn statement_of_many(&self, text: &str) -> std::result::Result<Statement, Error> {
        if let Some(known) = self.of_many.borrow().get(text) {
            return Ok(known.clone());
        }
        let of_one = self.statement(text).await?;
        let types: Vec<_> = of_one.params().iter().map(Type::name).collect();
        let statement = self.client.prepare(&of_many(text, &types)).await?;
        self.of_many.borrow_mut().insert(text.to_owned(), statement.clone());
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

impl Drop for DirectConnection {
    fn drop(&mut self) {
        // It may be dropped on another runtime's thread, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// True if a connection is unusable after this error.
fn ends(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    error.is_closed() || matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

/// Cancels a connection's work by another connection to the same server.
#[derive(Clone)]
pub struct QueryCanceller {
    token: CancelToken,
    route: ServerRoute,
    config: Config,
    tls: PostgresTls,
}

impl QueryCanceller {
    pub(super) async fn cancel(&self) -> Result<()> {
        let stream = self.route.open(&self.config).await?;
        let (stream, received) = CheckedStream::new(stream, &self.route, &self.config);
        let tls = CheckedTls::new(&self.tls, &self.route, received);
        Ok(self.token.cancel_query_raw(stream, tls).await?)
    }
}

/// A connection, and facts about it.
struct ConnectedClient {
    client: Client,
    route: ServerRoute,
    received: ReceiveState,
}

fn connect(runtime: &Runtime, config: &Config, tls: &PostgresTls) -> Result<ConnectedClient> {
    let outcome = runtime.block_on(async { tokio::time::timeout(PATIENCE, connect_any(config, tls)).await });
    outcome.map_err(|_| DatabaseError::Silent)?
}

/// Connects by the first route that leads to a suitable server.
async fn connect_any(config: &Config, tls: &PostgresTls) -> Result<ConnectedClient> {
    let mut why = DatabaseError::Silent;
    for route in routes(config).await? {
        match connect_by(route, config, tls).await {
            Ok(connected) => return Ok(connected),
            // A server's error is more useful than a route without a server.
            Err(error) if why.is_unavailable() => why = error,
            Err(_) => {}
        }
    }
    Err(why)
}

async fn connect_by(route: ServerRoute, config: &Config, tls: &PostgresTls) -> Result<ConnectedClient> {
    let config = &route.config(config);
    let (stream, received) = CheckedStream::new(route.open(config).await?, &route, config);
    let tls = CheckedTls::new(tls, &route, received.clone());
    let connected = config.connect_raw(stream, tls).await;
    let (client, connection) = connected.map_err(|error| received.or(error))?;
    // Later calls report how the connection ends.
    tokio::spawn(async move { drop(connection.await) });
    let prepared = async {
        client.batch_execute(SETTINGS).await?;
        is_wanted(&client, config).await
    };
    if !prepared.await.map_err(|error| received.or(error))? {
        return Err(std::io::Error::other(
            "the server's mode (read-write or read-only) is not that of target_session_attrs",
        )
        .into());
    }
    Ok(ConnectedClient { client, route, received })
}

/// True if the server accepts writes, or refuses them, as the URL requires (`target_session_attrs`).
async fn is_wanted(client: &Client, config: &Config) -> std::result::Result<bool, Error> {
    let wanted = match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => "off",
        TargetSessionAttrs::ReadOnly => "on",
        _ => return Ok(true),
    };
    let answer = client.simple_query("SHOW transaction_read_only").await?;
    Ok(answer.iter().any(|it| matches!(it, SimpleQueryMessage::Row(row) if row.get(0) == Some(wanted))))
}
