//! Requests to a guard, and its replies.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guard::bans::ban_command::BanCommand;

/// Maximum length of a request, in bytes.
pub(super) const REQUEST: u64 = 4 << 10;

/// Maximum length of a reply, in bytes: more than all diagnostics that a load of rules keeps.
pub(super) const REPLY: u64 = 4 << 20;

/// Limit of the time for which a peer may send a request or read the reply.
pub(super) const PEER: Duration = Duration::from_secs(2);

/// Limit of the time for which the guard may read its rules.
const RELOAD: Duration = Duration::from_secs(60);

/// Limit of the time for any other request.
const WORK: Duration = Duration::from_secs(5);

/// A request to a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum ControlRequest {
    /// Read the rules again. The result is a [`RulesInForce`].
    Reload,
    /// Report the state of the run. The result is a [`GuardStatus`](crate::guard::GuardStatus).
    Status,
    /// Report the blocks of an address. The result is a [`WhyReport`](crate::guard::WhyReport).
    Why {
        /// The address of a client or a server.
        address: IpAddr,
        /// Its port; absent for all ports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// Show or change the bans. The result is a [`BanList`](crate::guard::BanList).
    Bans {
        /// The command.
        order: BanCommand,
    },
}

/// Returns the limit of the time for a request.
pub const fn work(request: &ControlRequest) -> Duration {
    match request {
        ControlRequest::Reload => RELOAD,
        ControlRequest::Status | ControlRequest::Why { .. } | ControlRequest::Bans { .. } => WORK,
    }
}

/// The reply of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ControlReply<T> {
    /// The result of the request.
    Result(T),
    /// The reason for which it failed.
    Error(String),
}

/// Result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesInForce {
    /// Number of rules in force now.
    pub rules: usize,
}

pub(super) fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}
