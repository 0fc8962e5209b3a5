//! Error of serving the page.

use std::net::SocketAddr;

use super::access::AccessError;
use super::scans::ScanStartError;
use crate::inventory::StoreError;

/// Error of serving the page.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Everyone who can reach the address would see the inventory.
    #[error("{} {address}: other machines can reach this address: pass {own}token-file, or {own}web-config with basic_auth_users", flags.0, own = flags.1)]
    NoLogin {
        /// Address.
        address: SocketAddr,
        /// See [`ServeConfig::flags`](super::ServeConfig::flags).
        flags: (&'static str, &'static str),
    },
    /// Passwords and data would be sent unencrypted.
    #[error("{} {address}: other machines can reach this address: pass {own}web-config with tls_server_config", flags.0, own = flags.1)]
    NoTls {
        /// Address.
        address: SocketAddr,
        /// See [`ServeConfig::flags`](super::ServeConfig::flags).
        flags: (&'static str, &'static str),
    },
    /// The inventory is unreadable.
    #[error("--inventory {0}")]
    Inventory(#[from] StoreError),
    /// The token is unreadable.
    #[error("{flag} {error}")]
    Access {
        /// Flag of the file.
        flag: String,
        /// Reason.
        error: AccessError,
    },
    /// It is unclear whether both are required.
    #[error("{own}token-file and users in {own}web-config exclude each other", own = flags.1)]
    TwoLogins {
        /// See [`ServeConfig::flags`](super::ServeConfig::flags).
        flags: (&'static str, &'static str),
    },
    /// The address cannot be bound.
    #[error("{flag}: cannot listen on {address}: {error}")]
    Listen {
        /// Flag of the address.
        flag: &'static str,
        /// Requested address.
        address: SocketAddr,
        /// Reason.
        error: std::io::Error,
    },
    /// No scans can be started.
    #[error("--scan-allow: {0}")]
    Scans(#[from] ScanStartError),
    /// The thread that merges batches cannot be started.
    #[error("cannot start the thread that merges batches: {0}")]
    Merging(std::io::Error),
    /// The server's thread cannot be started.
    #[error("cannot start the HTTP server: {0}")]
    Start(std::io::Error),
}
