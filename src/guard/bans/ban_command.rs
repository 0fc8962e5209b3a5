//! Commands about bans, through the control socket.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Commands of an administrator, through the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum BanCommand {
    /// Return all bans.
    List,
    /// Ban an address.
    Add {
        /// The address to ban.
        address: IpAddr,
        /// Duration of the ban.
        seconds: u64,
    },
    /// End the ban of an address.
    Remove {
        /// The address to unban.
        address: IpAddr,
    },
}
