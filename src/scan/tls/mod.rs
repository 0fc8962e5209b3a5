//! What a scan says and thinks of TLS: how it offers to speak, and what it makes of the certificates that it
//! is shown.
//!
//! Nothing is trusted: a handshake goes on whatever a server shows, and what a chain is worth is a fact that
//! is told ([`authorities`]). That the server has the key of its certificate is not tried.

mod authorities;
mod offer;

use std::sync::Arc;

pub(super) use self::authorities::Appraiser;
pub use self::authorities::Authorities;
pub(super) use self::offer::client_config;

use rustls::pki_types::DnsName;

use crate::terms::Greeting;

/// What is offered to servers, and what their certificates are held against.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The name that is asked for, and that certificates are held against; else the target's own, and none
    /// where that is an address.
    pub name: Option<DnsName<'static>>,
    /// Application protocols that are offered, in order.
    pub alpn: Vec<String>,
    /// The protocol that asks for TLS on a connection of its own.
    pub starttls: Option<Greeting>,
    /// Whose word counts.
    pub authorities: Arc<Authorities>,
}
