//! Server of the page: its limits, and the confinement of its threads.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_rustls::rustls::ServerConfig;

use super::database_reader::AT_ONCE;
use super::serve_error::ServeError;
use crate::confinement::Confinement;
use crate::fleet::BackgroundMerge;
use crate::privileges::{FILES, keep_or_warn};
use crate::web::WebServerLimits;

/// Live pages stay for an hour and reconnect. Threads are for queries of the inventory and for passwords.
const LIMITS: WebServerLimits = WebServerLimits {
    connections: (128, 32),
    head: Duration::from_secs(15),
    whole: Duration::from_secs(3_600),
    keep_alive: true,
    threads: AT_ONCE + 6,
};

/// Running server; stops when dropped.
#[derive(Debug)]
pub struct PageServer {
    web: crate::web::WebServer,
    _merging: Option<BackgroundMerge>,
}

impl PageServer {
    /// Starts the server, which runs `prepare` beside its first requests.
    pub(super) fn start(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        confinement: Confinement,
        prepare: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, ServeError> {
        let web = crate::web::WebServer::start("serve", listener, tls, router, LIMITS, move |runtime| {
            // The inventory may belong to another user.
            keep_or_warn("serve", FILES);
            // Warnings about missing kernel features would repeat at every start, so they are left out.
            confinement.apply_or_warn(true);
            runtime.spawn(prepare);
        });
        Ok(Self { web: web.map_err(ServeError::Start)?, _merging: None })
    }

    /// Adds the background thread that merges batches.
    pub(super) fn beside(self, merging: Option<BackgroundMerge>) -> Self {
        Self { _merging: merging, ..self }
    }

    /// Returns the listening address.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.web.address()
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        self.web.url()
    }
}
