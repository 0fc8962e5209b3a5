//! `bannerwall serve`: the inventory for a browser, and the same as JSON, over HTTP.
//!
//! Pages are whole without JavaScript, name no foreign origin, and show whatever came from the network as
//! text ([`text::Shown`]). Nothing here writes into the inventory but the journal of [`scans`] and, of a
//! fleet, what sensors have sent ([`Background`]), and nothing that guard, scan or replay do waits for it.

mod access;
mod alerts;
mod answer;
mod api;
mod attempt;
mod listen;
mod live;
mod pages;
mod plot;
mod reader;
mod scans;
mod text;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use tokio_rustls::rustls::ServerConfig;

pub use self::access::AccessError;
use self::access::{Access, Login, check};
pub use self::alerts::Alerts;
pub use self::listen::Server;
use self::reader::Reader;
use self::scans::Scans;
pub(crate) use self::scans::runner;
pub use self::scans::{Bounds, ScanConfig};
use crate::confinement::Confinement;
use crate::fleet::Background;
use crate::inventory::{Database, Place, StoreError};
use crate::privileges::{FILES, leave_root_or_tell};
use crate::web::bind;

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
    /// What may be scanned from the page.
    pub scans: ScanConfig,
    /// True if what sensors of a fleet have sent is merged beside it.
    pub merges: bool,
    /// The flags that say so, as errors name them: where it is listened, and what those of access begin with.
    pub flags: (&'static str, &'static str),
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anybody who reaches the address would see the inventory.
    #[error("{} {address}: others reach this address, so {own}token-file or {own}htpasswd is needed", flags.0, own = flags.1)]
    NoLogin {
        /// It.
        address: SocketAddr,
        /// See [`ServeConfig::flags`].
        flags: (&'static str, &'static str),
    },
    /// Secrets would be sent in the clear.
    #[error("{} {address}: others reach this address, so {own}tls-cert and {own}tls-key are needed", flags.0, own = flags.1)]
    NoTls {
        /// It.
        address: SocketAddr,
        /// See [`ServeConfig::flags`].
        flags: (&'static str, &'static str),
    },
    /// The inventory cannot be read.
    #[error("--inventory {0}")]
    Inventory(#[from] StoreError),
    /// Token or users cannot be read.
    #[error("{flag} {error}")]
    Access {
        /// Whose value it is.
        flag: String,
        /// What is wrong.
        error: AccessError,
    },
    /// Certificates or key cannot be used.
    #[error("{flag} {}: {why}", path.display())]
    Tls {
        /// Whose value it is.
        flag: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The address cannot be listened on.
    #[error("{flag}: cannot listen on {address}: {error}")]
    Listen {
        /// Whose value it is.
        flag: &'static str,
        /// As it was asked for.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// What starts scans cannot be started.
    #[error("--scan-allow: {0}")]
    Scans(std::io::Error),
    /// What merges cannot be started.
    #[error("cannot start what merges: {0}")]
    Merging(std::io::Error),
    /// The server's thread cannot be started.
    #[error("cannot start the HTTP server: {0}")]
    Start(std::io::Error),
}

/// Everything that a confined thread could not open any more.
struct Opened {
    listener: TcpListener,
    access: Access,
    tls: Option<Arc<ServerConfig>>,
    scans: Option<Arc<Scans>>,
}

impl ServeConfig {
    /// Opens everything, leaves root, confines the calling thread, and answers until the server is dropped.
    /// For a process that does nothing else: no thread of it keeps more rights than those that speak to
    /// browsers.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start_confined(&self) -> Result<Server, ServeError> {
        let opened = self.open()?;
        // The inventory may be another user's.
        leave_root_or_tell(FILES);
        self.confinement().apply_or_tell(true);
        self.serve(opened, None)
    }

    /// Listens and answers until the server is dropped, and shows alerts of this process.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(&self, alerts: &Alerts) -> Result<Server, ServeError> {
        self.serve(self.open()?, Some(alerts))
    }

    fn open(&self) -> Result<Opened, ServeError> {
        let (address, flags) = (self.listen, self.flags);
        let (login, tls) = self.access()?;
        let listener = bind(address).map_err(|error| {
            let flag = flags.0;
            ServeError::Listen { flag, address, error }
        })?;
        let scans = self.scans(listener.local_addr().unwrap_or(address))?;
        Ok(Opened { listener, access: Access::new(login, address.ip()), tls, scans })
    }

    fn serve(
        &self,
        Opened { listener, access, tls, scans }: Opened,
        alerts: Option<&Alerts>,
    ) -> Result<Server, ServeError> {
        let reader = Reader::new(self.inventory.clone(), alerts.map(Alerts::board), scans.clone());
        let router = router(Arc::new(reader), access);
        let server = Server::start(listener, tls, router, (self.confinement(), scans))?;
        let merges = self.merges && self.inventory.file().is_none();
        let merging = merges.then(|| Background::start(&self.inventory, Some(self.confinement())));
        Ok(server.beside(merging.transpose().map_err(ServeError::Merging)?))
    }

    /// Looks whether it would be shown to whom it may: reads what says so, and makes nothing.
    ///
    /// # Errors
    /// Login or TLS are missing, or cannot be used.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        self.access().map(drop)
    }

    fn access(&self) -> Result<(Login, Option<Arc<ServerConfig>>), ServeError> {
        let (address, flags) = (self.listen, self.flags);
        let login = self.login()?;
        let tls = self.tls.as_ref();
        let tls = tls.map(|(certificates, key)| listen::tls(flags.1, certificates, key)).transpose()?;
        if !address.ip().to_canonical().is_loopback() && tls.is_none() {
            return Err(ServeError::NoTls { address, flags });
        }
        Ok((login, tls))
    }

    /// The files that are read at the start.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let tls = self.tls.iter().flat_map(|(certificates, key)| [certificates, key]);
        self.token_file.iter().chain(&self.htpasswd).chain(tls).map(PathBuf::as_path)
    }

    /// What starts scans, where any may be; the inventory is there then, and can be written. No other page
    /// that runs has its name: machines may be called alike, and be started at different times.
    fn scans(&self, listening: SocketAddr) -> Result<Option<Arc<Scans>>, ServeError> {
        if self.scans.bounds.allowed.is_empty() {
            return Ok(Database::open(&self.inventory).map(|_| None)?);
        }
        drop(Database::open_to_write(&self.inventory)?);
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let start = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let page = format!("{machine} {listening} ({})", start.get(..8).unwrap_or("unknown start"));
        let scans = Scans::start(&self.scans, &self.inventory, page).map_err(ServeError::Scans)?;
        Ok(Some(Arc::new(scans)))
    }

    fn login(&self) -> Result<Login, ServeError> {
        let (address, flags) = (self.listen, self.flags);
        let fault = |name: &str| {
            let flag = format!("{}{name}", flags.1);
            move |error| ServeError::Access { flag, error }
        };
        match (&self.token_file, &self.htpasswd) {
            (Some(path), _) => Login::token(path).map_err(fault("token-file")),
            (None, Some(path)) => Login::users(path).map_err(fault("htpasswd")),
            (None, None) if address.ip().to_canonical().is_loopback() => Ok(Login::Local),
            (None, None) => Err(ServeError::NoLogin { address, flags }),
        }
    }

    /// What its threads may do: speak to browsers, and look into the inventory, whose log readers write as
    /// well.
    fn confinement(&self) -> Confinement {
        let speaking = Confinement::default().speaking();
        match self.inventory.file() {
            Some(file) => speaking.writing(file),
            None => speaking.finding_servers(),
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
