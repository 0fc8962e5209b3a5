//! What a scan says and thinks of TLS: how it offers to speak, and what it makes of the certificates that it
//! is shown.
//!
//! A server that refuses what the library offers gets a hello for old servers (`hello`).
//!
//! Nothing is trusted: a handshake goes on whatever a server shows, and what a chain is worth is a fact that
//! is told ([`authorities`]). That the server has the key of its certificate is not tried.

mod authorities;
mod hello;
mod offer;

use std::sync::Arc;

pub(super) use self::authorities::Appraiser;
pub use self::authorities::Authorities;
pub(super) use self::hello::legacy_hello;
pub(super) use self::offer::client_config;

use rustls::pki_types::DnsName;

use crate::terms::Greeting;

/// Whom TLS is spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum With {
    /// Everybody.
    #[default]
    All,
    /// Whom a port says to speak it; with others, and where there is none after all, it goes without.
    UsualPorts,
}

impl With {
    /// Ports that are usual for HTTP within TLS: IANA's registry, and what control panels, Kubernetes,
    /// Proxmox, Windows' remote management and Nessus listen at.
    const PORTS: [u16; 15] =
        [443, 981, 1311, 2083, 2087, 2096, 4443, 5986, 6443, 7443, 8006, 8443, 8834, 9443, 10_250];

    /// True if servers at `port` are asked for TLS first.
    pub(super) fn includes(self, port: u16) -> bool {
        self == Self::All || Self::PORTS.contains(&port)
    }
}

/// What is offered to servers, and what their certificates are held against.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The name that is asked for, and that certificates are held against; else the target's own, and none
    /// where that is an address.
    pub name: Option<DnsName<'static>>,
    /// Application protocols that are offered, in order.
    pub alpn: Vec<String>,
    /// Those that are offered to a server that takes none of them, if any.
    pub second: Vec<String>,
    /// Whom TLS is spoken with.
    pub with: With,
    /// The protocol that asks for TLS on a connection of its own.
    pub starttls: Option<Greeting>,
    /// Whose word counts.
    pub authorities: Arc<Authorities>,
}
