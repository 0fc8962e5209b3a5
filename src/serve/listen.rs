//! The page's server: what it bears, and what its threads may do.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_rustls::rustls::ServerConfig;

use super::ServeError;
use super::reader::AT_ONCE;
use super::scans::Scans;
use crate::confinement::Confinement;
use crate::diagnostics::tell;
use crate::fleet::Background;
use crate::privileges::{FILES, keep_or_tell};
use crate::web::{File, Limits, Tls, TlsFault};

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
pub struct Server {
    web: crate::web::Server,
    /// Ends behind it.
    _scans: Option<Ending>,
    _merging: Option<Background>,
}

/// What starts scans; it notes at its end which are ended by that.
#[derive(Debug)]
struct Ending(Arc<Scans>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Err(error) = self.0.close() {
            tell(format_args!("bannerwall: scans of the page: {error}"));
        }
    }
}

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
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        (confinement, scans): (Confinement, Option<Arc<Scans>>),
    ) -> Result<Self, ServeError> {
        let ending = scans.clone().map(Ending);
        let web = crate::web::Server::start("serve", listener, tls, router, LIMITS, move |runtime| {
            // The inventory may be another user's.
            keep_or_tell("serve", FILES);
            // What of it the kernel has: whoever runs us need not hear of it each time.
            confinement.apply_or_tell(true);
            if let Some(scans) = scans {
                runtime.spawn(scans.keep());
            }
        });
        Ok(Self { web: web.map_err(ServeError::Start)?, _scans: ending, _merging: None })
    }

    /// The same, and what merges beside it.
    pub(super) fn beside(self, merging: Option<Background>) -> Self {
        Self { _merging: merging, ..self }
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.web.address()
    }

    /// Where the page is.
    pub fn url(&self) -> String {
        self.web.url()
    }
}
