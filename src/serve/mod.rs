//! `bannerwall serve`: the inventory for a browser, and the same as JSON, over HTTP.
//!
//! Pages are whole without JavaScript, name no foreign origin, and show whatever came from the network as text
//! ([`text::Shown`]). Nothing here writes into the inventory, and nothing that guard, scan or replay do waits
//! for it.

mod access;
mod answer;
mod api;
mod attempt;
mod listen;
mod live;
mod pages;
mod plot;
mod reader;
mod text;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};

pub use self::access::AccessError;
use self::access::{Access, Login, check};
pub use self::listen::Server;
use self::reader::Reader;
use crate::inventory::{Database, Place, StoreError};

/// Octets of a request's body, at most: rules that are to be tried.
const BODY: usize = 1 << 20;

/// What is shown, where, and to whom.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The inventory.
    pub inventory: Place,
    /// Where it is listened; port 0 picks one.
    pub listen: SocketAddr,
    /// A file with the token that is asked for.
    pub token_file: Option<PathBuf>,
    /// A file with users and hashes of their passwords.
    pub htpasswd: Option<PathBuf>,
    /// Files with certificates and key of TLS, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anybody who reaches the address would see the inventory.
    #[error("--listen {0}: others reach this address, so --token-file or --htpasswd is needed")]
    NoLogin(SocketAddr),
    /// Secrets would be sent in the clear.
    #[error("--listen {0}: others reach this address, so --tls-cert and --tls-key are needed")]
    NoTls(SocketAddr),
    /// The inventory cannot be read.
    #[error("--inventory {0}")]
    Inventory(#[from] StoreError),
    /// Token or users cannot be read.
    #[error("{flag} {error}")]
    Access {
        /// Whose value it is.
        flag: &'static str,
        /// What is wrong.
        error: AccessError,
    },
    /// Certificates or key cannot be used.
    #[error("{flag} {}: {why}", path.display())]
    Tls {
        /// Whose value it is.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The address cannot be listened on.
    #[error("--listen: cannot listen on {address}: {error}")]
    Listen {
        /// As it was asked for.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The server's thread cannot be started.
    #[error("cannot start the HTTP server: {0}")]
    Start(std::io::Error),
}

impl ServeConfig {
    /// Listens and answers until the server is dropped.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(&self) -> Result<Server, ServeError> {
        let login = self.login()?;
        let tls = self.tls.as_ref().map(|(certificates, key)| listen::tls(certificates, key)).transpose()?;
        if !self.listen.ip().to_canonical().is_loopback() && tls.is_none() {
            return Err(ServeError::NoTls(self.listen));
        }
        drop(Database::open(&self.inventory)?);
        let access = Access::new(login, self.listen.ip());
        let router = router(Arc::new(Reader::new(self.inventory.clone())), access);
        Server::start(self.listen, tls, router)
    }

    fn login(&self) -> Result<Login, ServeError> {
        let fault = |flag| move |error| ServeError::Access { flag, error };
        match (&self.token_file, &self.htpasswd) {
            (Some(path), _) => Login::token(path).map_err(fault("--token-file")),
            (None, Some(path)) => Login::users(path).map_err(fault("--htpasswd")),
            (None, None) if self.listen.ip().to_canonical().is_loopback() => Ok(Login::Local),
            (None, None) => Err(ServeError::NoLogin(self.listen)),
        }
    }
}

fn router(reader: Arc<Reader>, access: Access) -> Router {
    pages::routes()
        .nest("/api", api::routes())
        .fallback(pages::nowhere)
        .with_state(reader)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(Arc::new(access), check))
        .layer(from_fn(answer::guard))
}
