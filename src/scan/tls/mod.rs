//! TLS of the scan: the offer to servers, and the check of their certificates.
//!
//! A server that refuses the library's offer gets a hello for old servers (`hello`).
//!
//! Nothing is trusted: a handshake continues with any certificate, and the result of checking a chain is a
//! reported fact ([`authorities`]). The server's possession of its key is not verified.

mod authorities;
mod client_config;
mod hello;

use std::sync::Arc;

pub(super) use self::authorities::ChainVerifier;
pub use self::authorities::TrustedAuthorities;
pub(super) use self::client_config::client_config;
pub(super) use self::hello::legacy_hello;

use rustls::pki_types::DnsName;

use crate::terms::GreetingProtocol;

/// Targets that get a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsTargets {
    /// All targets.
    #[default]
    All,
    /// Targets with a usual TLS port; others, and those without TLS after all, get none.
    UsualPorts,
    /// Targets with a usual TLS port of any protocol, and others if they say nothing without TLS.
    AnyProtocol,
}

impl TlsTargets {
    /// Usual ports of HTTP within TLS: IANA's registry, and those of control panels, Kubernetes, Proxmox,
    /// Windows' remote management and Nessus.
    const PORTS: [u16; 15] =
        [443, 981, 1311, 2083, 2087, 2096, 4443, 5986, 6443, 7443, 8006, 8443, 8834, 9443, 10_250];

    /// Usual ports of other protocols within TLS: IANA's registry, and those of Docker and `MQTT`.
    const OTHER_PORTS: [u16; 17] =
        [465, 563, 636, 853, 989, 990, 992, 993, 994, 995, 2376, 3269, 5061, 5223, 5671, 6514, 6697];

    /// True if servers at `port` get a TLS handshake first.
    pub(super) fn includes(self, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::UsualPorts => Self::PORTS.contains(&port),
            Self::AnyProtocol => Self::PORTS.contains(&port) || Self::OTHER_PORTS.contains(&port),
        }
    }
}

/// Offer to servers, and the check of their certificates.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Name for SNI and for the check of certificates; by default the target's name, and none for an address.
    pub name: Option<DnsName<'static>>,
    /// Application protocols to offer, in order.
    pub alpn: Vec<String>,
    /// Protocols to offer to a server that accepts none of those, if any.
    pub second: Vec<String>,
    /// Targets that get a handshake.
    pub with: TlsTargets,
    /// Protocol that upgrades its connection to TLS.
    pub starttls: Option<GreetingProtocol>,
    /// Trusted authorities.
    pub authorities: Arc<TrustedAuthorities>,
}
