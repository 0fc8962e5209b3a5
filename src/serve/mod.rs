//! `bannerwall serve`: the inventory as web pages and as JSON, over HTTP.
//!
//! Pages work without JavaScript, load nothing from other sites, and escape all data from the network
//! ([`html_escape::HtmlEscaper`]). The page writes only the queue of [`scans`] into the inventory and, for
//! a fleet, merged batches ([`BackgroundMerge`]). Guard, scan and replay never wait for it.

mod access;
mod api;
mod csv_response;
mod database_reader;
mod event_stream;
mod html_escape;
mod live_alerts;
mod overview_facts;
mod page_frame;
mod pages;
mod plot;
mod relative_time;
mod report;
mod response;
mod rule_advice;
mod rule_catalog;
mod rule_test;
mod scans;
mod serve_error;
mod server;
mod strict_parameters;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use tokio_rustls::rustls::ServerConfig;

use self::access::{AccessControl, LoginMethod, check};
use self::database_reader::DatabaseReader;
pub use self::live_alerts::AlertFeed;
pub use self::report::{ReportConfig, write_report};
pub use self::rule_catalog::RuleCatalog;
use self::scans::PageScans;
pub(crate) use self::scans::worker as scan_worker;
pub use self::scans::{ScanConfig, ScanPermissions, ScanPreparer};
pub use self::serve_error::ServeError;
pub use self::server::PageServer;
use crate::confinement::Confinement;
use crate::database::DatabaseLocation;
use crate::fleet::BackgroundMerge;
use crate::inventory::{InventoryDatabase, own_name};
use crate::privileges::{FILES, leave_root_or_warn};
use crate::web::{WebConfig, WebUsers, bind};

/// Limit of a request's body, in bytes: rules to test.
const BODY: usize = 1 << 20;

/// Configuration of the page.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The inventory.
    pub inventory: DatabaseLocation,
    /// Listening address; port 0 picks a free port.
    pub listen: SocketAddr,
    /// File with the token to require.
    pub token_file: Option<PathBuf>,
    /// TLS, and users with password hashes.
    pub web: Option<WebConfig>,
    /// Rules that the page explains and tries.
    pub rules: Arc<RuleCatalog>,
    /// Scans that the page may start.
    pub scans: Option<ScanConfig>,
    /// True to merge batches of a fleet's sensors in the background.
    pub merges: bool,
    /// Flags for error messages: that of the address, and the prefix of those for access.
    pub flags: (&'static str, &'static str),
}

/// Resources that a confined thread could not open.
struct ServeResources {
    listener: TcpListener,
    access: AccessControl,
    tls: Option<Arc<ServerConfig>>,
    scans: Option<Arc<PageScans>>,
}

impl ServeConfig {
    /// Opens all files, leaves root, confines the calling thread, and serves until the server is dropped. It
    /// is for a process without other tasks: no thread keeps more rights than those that serve browsers.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub fn start_confined(&self) -> Result<PageServer, ServeError> {
        let opened = self.open()?;
        // The inventory may belong to another user.
        leave_root_or_warn(FILES);
        self.confinement().apply_or_warn(true);
        self.serve(opened, None)
    }

    /// Serves until the server is dropped, and shows alerts of this process.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub fn start(&self, alerts: &AlertFeed) -> Result<PageServer, ServeError> {
        self.serve(self.open()?, Some(alerts))
    }

    fn open(&self) -> Result<ServeResources, ServeError> {
        let (address, flags) = (self.listen, self.flags);
        let (login, tls) = self.access()?;
        let listener = bind(address).map_err(|error| {
            let flag = flags.0;
            ServeError::Listen { flag, address, error }
        })?;
        let scans = self.scans()?;
        Ok(ServeResources { listener, access: AccessControl::new(login, address.ip()), tls, scans })
    }

    fn serve(
        &self,
        ServeResources { listener, access, tls, scans }: ServeResources,
        alerts: Option<&AlertFeed>,
    ) -> Result<PageServer, ServeError> {
        let (rules, board) = (Arc::clone(&self.rules), alerts.map(AlertFeed::board));
        let reader = DatabaseReader::new(self.inventory.clone(), rules, board, scans);
        let reader = Arc::new(reader);
        let router = router(Arc::clone(&reader), access);
        // The first visitor of a large inventory does not wait until all services are counted.
        let prepare = async move { pages::prepare(&reader).await };
        let server = PageServer::start(listener, tls, router, self.confinement(), prepare)?;
        let merges = self.merges && self.inventory.file().is_none();
        let merging = merges.then(|| BackgroundMerge::start(&self.inventory, Some(self.confinement())));
        Ok(server.beside(merging.transpose().map_err(ServeError::Merging)?))
    }

    /// Checks the settings of access, without binding the address.
    ///
    /// # Errors
    ///
    /// Login or TLS are missing or invalid.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        self.access().map(drop)
    }

    fn access(&self) -> Result<(LoginMethod, Option<Arc<ServerConfig>>), ServeError> {
        let (address, flags) = (self.listen, self.flags);
        let (tls, users) = self.web.as_ref().map(WebConfig::parts).unwrap_or_default();
        let login = self.login(users)?;
        // A password or token must not cross the network in clear text.
        if !address.ip().to_canonical().is_loopback() && tls.is_none() {
            return Err(ServeError::NoTls { address, flags });
        }
        Ok((login, tls))
    }

    /// Returns the files that are read at the start, and the rule files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.token_file.iter().map(PathBuf::as_path).chain(self.rules.files())
    }

    /// Returns the page's access to the queue of scans, if any are permitted. The page's scans wait for a
    /// page of the same machine and address.
    fn scans(&self) -> Result<Option<Arc<PageScans>>, ServeError> {
        drop(InventoryDatabase::open(&self.inventory)?);
        let Some(config) = &self.scans else { return Ok(None) };
        let pool = format!("{} {}", own_name(), self.listen);
        Ok(Some(Arc::new(PageScans::start(config, &self.inventory, pool)?)))
    }

    fn login(&self, users: Option<Arc<WebUsers>>) -> Result<LoginMethod, ServeError> {
        let (address, flags) = (self.listen, self.flags);
        match (&self.token_file, users) {
            (Some(_), Some(_)) => Err(ServeError::TwoLogins { flags }),
            (Some(path), None) => LoginMethod::token(path).map_err(|error| {
                let flag = format!("{}token-file", flags.1);
                ServeError::Access { flag, error }
            }),
            (None, Some(users)) => Ok(LoginMethod::Users(users)),
            (None, None) if address.ip().to_canonical().is_loopback() => Ok(LoginMethod::Local),
            (None, None) => Err(ServeError::NoLogin { address, flags }),
        }
    }

    /// Returns the confinement of the threads: they serve browsers, and read the inventory and the rules.
    /// Readers of the inventory write to its log, too.
    fn confinement(&self) -> Confinement {
        let files = self.rules.files();
        let speaking = files.into_iter().fold(Confinement::default().speaking(), Confinement::reading);
        match self.inventory.file() {
            Some(file) => speaking.writing(file),
            None => speaking.finding_servers(),
        }
    }
}

fn router(reader: Arc<DatabaseReader>, access: AccessControl) -> Router {
    pages::routes()
        .nest("/api", api::routes())
        .fallback(pages::nowhere)
        .with_state(reader)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(Arc::new(access), check))
        .layer(from_fn(response::guard))
}
