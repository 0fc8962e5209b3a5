//! A reload of the rules, and its result.

use serde::{Deserialize, Serialize};

use crate::event::Timestamp;

/// A reload and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadRecord {
    /// Time of the reload.
    pub at: Timestamp,
    /// The reason for the refusal; absent if the rules were accepted.
    pub error: Option<String>,
}
