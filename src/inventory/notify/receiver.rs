//! A receiver of notifications.

use serde::{Deserialize, Serialize};

/// A receiver of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotificationReceiver {
    /// A URL that takes JSON by `POST`.
    Url(String),
    /// A command that a shell runs, with JSON on its standard input.
    Command(String),
}
