//! The page's server: what it bears, and what its threads may do.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_rustls::rustls::ServerConfig;

use super::ServeError;
use super::reader::AT_ONCE;
use super::scans::Scans;
use crate::confinement::Confinement;
use crate::privileges::{FILES, keep_or_tell};
use crate::web::{File, Limits, Tls, TlsFault, bind};

/// Live pages stay for an hour and ask anew; threads are for questions to the inventory and for passwords.
const LIMITS: Limits = Limits {
    connections: (128, 32),
    head: Duration::from_secs(15),
    whole: Duration::from_secs(3_600),
    keep_alive: true,
    threads: AT_ONCE + 6,
};

/// The running server; stops when dropped.
#[derive(Debug)]
pub struct Server(crate::web::Server);

/// Certificates and key, from files in PEM.
///
/// # Errors
/// A file cannot be read or used; the message names the flag.
pub(super) fn tls(flags: &str, certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>, ServeError> {
    Tls::new(certificates, key).config().map_err(|TlsFault { file, path, why }| {
        let name = if file == File::Key { "tls-key" } else { "tls-cert" };
        ServeError::Tls { flag: format!("{flags}{name}"), path, why }
    })
}

impl Server {
    pub(super) fn start(
        (flag, address): (&'static str, SocketAddr),
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        (confinement, scans): (Confinement, Option<Arc<Scans>>),
    ) -> Result<Self, ServeError> {
        let listener = bind(address).map_err(|error| ServeError::Listen { flag, address, error })?;
        let server = crate::web::Server::start("serve", listener, tls, router, LIMITS, move |runtime| {
            // The inventory may be another user's.
            keep_or_tell("serve", FILES);
            // What of it the kernel has: whoever runs us need not hear of it each time.
            confinement.apply_or_tell(true);
            if let Some(scans) = scans {
                runtime.spawn(scans.keep());
            }
        });
        server.map(Self).map_err(ServeError::Start)
    }

    /// Where the page is.
    pub fn url(&self) -> String {
        self.0.url()
    }
}
