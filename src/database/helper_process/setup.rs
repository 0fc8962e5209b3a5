//! What such a process is started with.

use serde::{Deserialize, Serialize};

/// The subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "database-connections";

/// Settings of the connections.
#[derive(Serialize, Deserialize)]
pub(in crate::database) struct ConnectionSettings {
    pub(in crate::database) url: String,
    /// The password; it must not be shown on a command line.
    pub(in crate::database) password: Option<Vec<u8>>,
    /// Number of the user that the process becomes; if absent, it drops root as the guard does.
    pub(in crate::database) user: Option<u32>,
}
