//! Interrupts slow queries.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::connection::QueryCanceller;

/// Interrupts a connection's work from another thread.
pub enum QueryInterrupter {
    /// In this process.
    Sqlite(rusqlite::InterruptHandle),
    /// By a cancel request to the server.
    Postgres(Box<QueryCanceller>),
    /// By closing the helper process's stream; the process then sends that request. None if the
    /// connection is lost.
    Process(Option<UnixStream>),
}

impl QueryInterrupter {
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
