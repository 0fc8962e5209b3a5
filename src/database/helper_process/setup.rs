//! The setup with which such a process starts.

use serde::{Deserialize, Serialize};

/// The subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "database-connections";

/// Settings of the connections.
#[derive(Serialize, Deserialize)]
pub(crate) struct ConnectionSettings {
    /// URL of the server, without the password.
    pub(crate) url: String,
    /// The password; it must not be shown on a command line.
    pub(crate) password: Option<Vec<u8>>,
    /// Number of the user that the process becomes; if absent, it drops root as the guard does.
    pub(crate) user: Option<u32>,
}
