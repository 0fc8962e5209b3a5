//! Errors of a database, of the connection to it, and of its URL.

use std::error::Error;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tls_error;

/// Largest size of an answer in bytes, with the overhead of messages and columns. A row of published
/// rules has 32 MiB, a sensor's batch 4 MiB; all others are far smaller.
pub(super) const ANSWER: u64 = 40 << 20;

/// Result of work on a database.
pub(super) type Result<T> = std::result::Result<T, DatabaseError>;

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
    Violation(#[from] ProtocolViolation),
    /// A column has an unexpected type.
    #[error("column {0} of an answer holds what does not belong there")]
    Column(usize),
}

impl DatabaseError {
    /// True if a server has refused a value: a type cannot hold it, or it is too large for an index.
    pub(crate) fn is_data_error(&self) -> bool {
        self.has_code_class(&["22", "54"])
    }

    /// True if a table is missing or the role lacks a right.
    pub(crate) fn is_permission_error(&self) -> bool {
        self.has_code_class(&["42"])
    }

    /// Tests the first two characters of a server's code.
    fn has_code_class(&self, classes: &[&str]) -> bool {
        let Self::Postgres(error) = self else { return false };
        error.code.as_ref().is_some_and(|code| classes.iter().any(|class| code.starts_with(class)))
    }

    /// True if a server has refused a row for its content, so that a retry is useless.
    pub(crate) fn is_row_rejection(&self) -> bool {
        self.is_data_error() || self.has_code_class(&["23"])
    }

    /// True if the server is away, or accepts no connections for now.
    pub(crate) fn is_unavailable(&self) -> bool {
        match self {
            Self::Silent | Self::Ended(_) => true,
            Self::System(error) => is_unreachable(error),
            Self::Postgres(error) => error.is_away || self.has_code_class(&["08", "53", "57"]),
            Self::Sqlite(_) | Self::Column(_) | Self::Violation(_) => false,
        }
    }
}

/// Error of a server, or of the connection to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{words}")]
pub struct ServerError {
    pub(super) words: String,
    /// The server's code (SQLSTATE); none if the error is not the server's.
    pub(super) code: Option<String>,
    /// True if the server was not reached, or has gone.
    pub(super) is_away: bool,
}

impl From<tokio_postgres::Error> for ServerError {
    fn from(error: tokio_postgres::Error) -> Self {
        let code = error.code().map(|code| code.code().to_owned());
        let cause = error.source().and_then(<dyn Error>::downcast_ref::<std::io::Error>);
        let is_away = code.is_none() && (error.is_closed() || cause.is_some_and(is_unreachable));
        Self { words: words(&error), code, is_away }
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error.into())
    }
}

/// True if no server was reached. Otherwise one answered unexpectedly: an invalid certificate, no TLS, no
/// PostgreSQL.
fn is_unreachable(error: &std::io::Error) -> bool {
    !matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput)
}

/// Returns the text of an error, including its causes.
fn words(error: &tokio_postgres::Error) -> String {
    if let Some(told) = error.as_db_error() {
        return told.message().to_owned();
    }
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        // The inner error of a stream's error is not its source.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let more = match inner.and_then(|inner| inner.downcast_ref()) {
            Some(fault) => tls_error::words(fault),
            None => error.to_string(),
        };
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// Violation of a limit or of the protocol by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProtocolViolation {
    /// A message of so many bytes, which none is that was asked for.
    #[error("the server sent an unexpected message of {0} bytes: is it PostgreSQL?")]
    Message(u32),
    /// More than any answer has.
    #[error("the server's answer is larger than {most} MiB and was not read to its end", most = ANSWER >> 20)]
    Answer,
    /// The server requests the password, but its identity is not verified.
    #[error(
        "the server asks for the password in clear text, and is not verified, so that it gets none: use \
         sslmode=verify-full&sslrootcert=FILE, or scram-sha-256 in the server's pg_hba.conf"
    )]
    Cleartext,
}

/// Error of a URL. It does not repeat the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseLocationError {
    /// It is malformed.
    #[error(
        "no URL of a PostgreSQL server, as in postgresql://user@host/database?sslmode=verify-full; characters of a password \
         that mean something in URLs are written as %40"
    )]
    Url,
    /// It requires a verified certificate, but there are no trusted authorities.
    #[error("no CA certificates are installed to verify the server's by: name its CA by sslrootcert=FILE")]
    Certificates,
    /// It requires an unsupported mode.
    #[error("sslmode={0} is not known here: use disable, prefer, require, verify-ca or verify-full")]
    Mode(String),
    /// It names trusted authorities, but requires no verification.
    #[error("sslrootcert verifies nothing with sslmode={0}: use verify-full, verify-ca or require")]
    Unverified(String),
    /// Any of the system's authorities could sign a certificate for another server.
    #[error(
        "sslmode={0} does not check the host, which the system's authorities make useless: use verify-full, or name the \
        server's CA by sslrootcert=FILE"
    )]
    Weak(String),
    /// A client certificate without its key, or the other way round.
    #[error("{0} is missing: sslcert and sslkey go together")]
    Half(&'static str),
    /// A file is unusable.
    #[error("{name}={}: {why}", .path.display())]
    File {
        /// The parameter.
        name: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}
