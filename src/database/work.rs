//! Work that a connection to a server does.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::statement_queue::QueuedStatement;
use super::values::SqlParameter;

/// Work for a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerWork<'a> {
    pub(super) kind: WorkKind,
    /// Queued statements that are sent first.
    #[serde(borrow)]
    pub(super) before: Cow<'a, [QueuedStatement<'a>]>,
    /// A statement, or several of a batch; may be empty in a batch.
    #[serde(borrow)]
    pub(super) text: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) values: Cow<'a, [SqlParameter<'a>]>,
}

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkKind {
    /// Reads rows.
    Query,
    /// Reads rows of a cursor.
    Fetch,
    /// Changes rows.
    Execute,
    /// Runs statements without parameters.
    Batch,
}
