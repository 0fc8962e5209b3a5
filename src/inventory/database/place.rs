//! Location of an inventory: a file, or the URL of a server.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::link::process::{ConnectionStarter, Setup};
use super::link::{Access, Certificates, Tls, Verification};
use crate::privileges::User;

/// Time limit of connecting to a server, if its URL sets none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which sent data may stay without an acknowledgement of the server's kernel.
const DEAD: Duration = Duration::from_secs(15);

/// Directory of a local server's sockets, for a URL without a host.
const SOCKETS: &str = "/var/run/postgresql";

/// The default port.
const USUAL: u16 = 5432;

/// Prefixes of a URL.
const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// A file, or a database of a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An SQLite file.
    File(PathBuf),
    /// A server.
    Server(Box<Server>),
}

/// A database of a PostgreSQL server, with the role that connects.
#[derive(Clone)]
pub struct Server {
    /// The URL as given, without a password.
    url: String,
    pub(super) config: Config,
    /// Created together with the place, while the process may still read the system's certificates.
    pub(super) tls: Tls,
    /// Starter of helper processes for connections, once it is set; shared by all copies.
    starter: Arc<OnceLock<Arc<ConnectionStarter>>>,
}

impl Server {
    /// Returns the kind of connection.
    pub(super) fn access(&self) -> Access {
        match self.starter.get() {
            Some(starter) => Access::Process(Arc::clone(starter)),
            None => Access::Direct(Box::new((self.config.clone(), self.tls.clone()))),
        }
    }
}

impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}

impl Eq for Server {}

/// Error of a URL. It does not repeat the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It is malformed.
    #[error(
        "no URL of a PostgreSQL server, as in postgresql://user@host/database?sslmode=verify-full; characters of a password \
         that mean something in URLs are written as %40"
    )]
    Url,
    /// It requires a verified certificate, but there are no trusted authorities.
    #[error("no CA certificates are installed to verify the server's by: name its CA by sslrootcert=FILE")]
    Certificates,
    /// It requires an unsupported mode.
    #[error("sslmode={0} is not known here: use disable, prefer, require, verify-ca or verify-full")]
    Mode(String),
    /// It names trusted authorities, but requires no verification.
    #[error("sslrootcert verifies nothing with sslmode={0}: use verify-full, verify-ca or require")]
    Unverified(String),
    /// Any of the system's authorities could sign a certificate for another server.
    #[error(
        "sslmode={0} does not check the host, which the system's authorities make useless: use verify-full, or name the \
        server's CA by sslrootcert=FILE"
    )]
    Weak(String),
    /// A client certificate without its key, or the other way round.
    #[error("{0} is missing: sslcert and sslkey go together")]
    Half(&'static str),
    /// A file is unusable.
    #[error("{name}={}: {why}", .path.display())]
    File {
        /// The parameter.
        name: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl Place {
    /// Parses the value of a flag: a URL, or the path of a file.
    ///
    /// # Errors
    /// It is a malformed URL, or requires a verification that is impossible here.
    pub fn parse(text: OsString) -> Result<Self, PlaceError> {
        match text.to_str().filter(|text| is_url(text)) {
            Some(url) => {
                let bare = without_password(url)?;
                let (config, tls) = Self::server(url, std::env::var("PGPASSWORD").ok())?;
                Ok(Self::Server(Box::new(Server { url: bare, config, tls, starter: Arc::default() })))
            }
            None => Ok(Self::File(text.into())),
        }
    }

    /// Returns the settings of a URL's connection.
    pub(super) fn server(url: &str, password: Option<String>) -> Result<(Config, Tls), PlaceError> {
        let config = config(url, password)?;
        let (_, certificates) = certificates(url)?;
        Ok((config, certificates.tls()?))
    }

    /// Shares the helper processes of `other`, if it is the same place.
    #[must_use]
    pub(crate) fn sharing(self, other: &Self) -> Self {
        match (&self, other) {
            (Self::Server(one), Self::Server(two)) if one == two && one.url == two.url => other.clone(),
            _ => self,
        }
    }

    /// From here on, helper processes of `user` (or of the user that root drops to) connect to the server
    /// for this place and all its copies. It does nothing for a file.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn separate(&self, user: Option<&User>) -> std::io::Result<()> {
        let Self::Server(server) = self else { return Ok(()) };
        if server.starter.get().is_none() {
            let password = server.config.get_password().map(<[u8]>::to_vec);
            let setup = Setup { url: server.url.clone(), password, user: user.map(User::number) };
            let starter = Arc::new(ConnectionStarter::start(server.to_string(), &setup)?);
            // If another thread was faster, its starter is as good.
            let _ = server.starter.set(starter);
        }
        Ok(())
    }

    /// Returns the form for a command line, which others may see, and the password, which they may not
    /// see.
    pub(crate) fn word(&self) -> (OsString, Option<Vec<u8>>) {
        match self {
            Self::File(path) => (path.into(), None),
            Self::Server(server) => {
                let password = server.config.get_password().map(<[u8]>::to_vec);
                (OsString::from(&server.url), password)
            }
        }
    }

    /// Returns the file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        if let Self::File(path) = self { Some(path) } else { None }
    }
}

/// Returns a URL without its password. It is split as in [`Config`]: everything before the first `@` is
/// user and password, including `/` and `?`.
fn without_password(url: &str) -> Result<String, PlaceError> {
    let (scheme, rest) = url.split_once("://").ok_or(PlaceError::Url)?;
    let (user, way) = match rest.split_once('@') {
        Some((credentials, way)) => (credentials.split(':').next().map(|user| format!("{user}@")), way),
        None => (None, rest),
    };
    let (way, pairs) = pairs(way);
    let others: Vec<&str> = pairs.into_iter().filter(|pair| !pair.starts_with("password=")).collect();
    let bare = with_pairs(&format!("{scheme}://{}{way}", user.unwrap_or_default()), &others);
    // An escaped name of the parameter (`p%61ssword`) cannot be removed, so it is refused.
    let is_bare = config(&bare, None)?.get_password().is_none();
    is_bare.then_some(bare).ok_or(PlaceError::Url)
}

/// Splits a URL after its credentials at its parameters.
fn pairs(way: &str) -> (&str, Vec<&str>) {
    let (way, query) = way.split_once('?').unwrap_or((way, ""));
    (way, query.split('&').filter(|pair| !pair.is_empty()).collect())
}

fn with_pairs(url: &str, pairs: &[&str]) -> String {
    let mark = if pairs.is_empty() { "" } else { "?" };
    format!("{url}{mark}{}", pairs.join("&"))
}

/// Splits libpq's parameters about certificates from a URL, and returns the URL for [`Config`] and these
/// (<https://www.postgresql.org/docs/current/libpq-connect.html>). The modes have the same meaning;
/// without one, `sslrootcert` implies `verify-full`.
fn certificates(url: &str) -> Result<(String, Certificates), PlaceError> {
    let behind = url.find('@').map_or(0, |at| at + 1);
    let (credentials, way) = url.split_at(behind);
    let (way, pairs) = pairs(way);
    let (mut found, mut mode, mut others) = (Certificates::default(), None, Vec::new());
    let mut roots = None;
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let path = || {
            let decoded = percent_decode_str(value).decode_utf8().map_err(|_| PlaceError::Url)?;
            Ok((!decoded.is_empty()).then(|| PathBuf::from(decoded.as_ref())))
        };
        match name {
            "sslrootcert" => roots = path()?,
            "sslcert" => found.own = path()?,
            "sslkey" => found.key = path()?,
            "sslmode" => mode = Some(value),
            _ => others.push(pair),
        }
    }
    let has_roots = roots.is_some();
    // libpq's word for the system's authorities.
    found.authorities = roots.filter(|path| path.as_os_str() != "system");
    found.verification = match mode {
        Some("verify-full") => Verification::Host,
        None if has_roots => Verification::Host,
        Some(lax @ ("disable" | "prefer")) if has_roots => {
            return Err(PlaceError::Unverified(lax.to_owned()));
        }
        Some("require") if !has_roots => Verification::Nothing,
        Some("require" | "verify-ca") if found.authorities.is_some() => Verification::Authority,
        Some(weak @ ("require" | "verify-ca")) => return Err(PlaceError::Weak(weak.to_owned())),
        None | Some("disable" | "prefer") => Verification::Nothing,
        Some(other) => return Err(PlaceError::Mode(other.to_owned())),
    };
    let mode = match mode {
        Some(lax @ ("disable" | "prefer")) => Some(lax),
        None if !has_roots => None,
        _ => Some("require"),
    };
    let mode = mode.map(|mode| format!("sslmode={mode}"));
    others.extend(mode.as_deref());
    Ok((with_pairs(&format!("{credentials}{way}"), &others), found))
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

/// Without the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(server) => server.fmt(f),
        }
    }
}

/// Returns the settings of a URL's connection.
fn config(url: &str, password: Option<String>) -> Result<Config, PlaceError> {
    let (url, _) = certificates(url)?;
    let mut config: Config = url.parse().map_err(|_| PlaceError::Url)?;
    if config.get_hosts().is_empty() {
        config.host_path(SOCKETS);
    }
    if let (None, Some(password)) = (config.get_password(), password) {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_application_name().is_none() {
        config.application_name("bannerwall");
    }
    config.keepalives_idle(DEAD).tcp_user_timeout(DEAD);
    Ok(config)
}

/// Without the password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(&self.config))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL without the password.
fn named(config: &Config) -> String {
    let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
    let hosts = config.get_hosts().iter().enumerate().map(|(number, host)| {
        let port = config.get_ports().get(number).or(config.get_ports().first());
        let port = port.filter(|port| **port != USUAL).map_or_else(String::new, |port| format!(":{port}"));
        match host {
            Host::Tcp(name) => format!("{name}{port}"),
            Host::Unix(path) => format!("{}{port}", path.display()),
        }
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    format!("postgresql://{user}{hosts}/{}", config.get_dbname().or(config.get_user()).unwrap_or_default())
}

fn is_url(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// Returns a word of a command line as others may see it: without the password of a URL.
pub fn shown(word: &str) -> String {
    let Some(at) = SCHEMES.iter().find_map(|scheme| word.find(scheme)) else { return word.to_owned() };
    let (before, url) = word.split_at(at);
    match config(url, None) {
        Ok(config) => format!("{before}{}", named(&config)),
        Err(_) => format!("{before}postgresql://…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_has_the_url_but_not_the_password() {
        for (url, named) in [
            (
                "postgresql://ann:s3%40cret@db.example:5433/net?sslmode=require",
                "postgresql://ann@db.example:5433/net?sslmode=require",
            ),
            (
                "postgresql:///net?host=/tmp&user=ann&password=s3%40cret",
                "postgresql:///net?host=/tmp&user=ann",
            ),
            ("postgres://ann@db.example/net?password=s3%40cret", "postgres://ann@db.example/net"),
        ] {
            let place = Place::parse(url.into()).unwrap();
            assert_eq!(place.word(), (named.into(), Some(b"s3@cret".to_vec())));
            let Place::Server(again) = Place::parse(named.into()).unwrap() else { panic!("a server") };
            assert_eq!(again.config.get_user(), Some("ann"));
        }
    }

    #[test]
    fn whatever_stands_in_a_password_is_on_no_command_line() {
        for password in ["s3/cret", "s3?cret", "s3:cret", "/?&=#", "s3?password=cret"] {
            let url = format!("postgresql://ann:{password}@db.example/net?sslmode=disable");
            let place = Place::parse(url.into()).unwrap();
            let (word, told) = place.word();
            assert_eq!(word, "postgresql://ann@db.example/net?sslmode=disable");
            assert_eq!(told.as_deref(), Some(password.as_bytes()));
        }
        // A user of that name, and no password.
        let place = Place::parse("postgresql:///net?user=ann@db".into()).unwrap();
        let Place::Server(server) = &place else { panic!("a server") };
        let Place::Server(again) = Place::parse(place.word().0).unwrap() else { panic!("a server") };
        assert_eq!((again.config.get_user(), server), (server.config.get_user(), &again));
        assert_eq!(
            Place::parse("postgresql://ann@db/net?p%61ssword=s3cret".into()).unwrap_err(),
            PlaceError::Url
        );
    }

    #[test]
    fn what_a_url_says_of_certificates_is_known_or_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let junk = folder.path().join("a b.pem");
        std::fs::write(&junk, "no certificate").unwrap();
        let junk = junk.to_str().unwrap().replace(' ', "%20");
        for (query, told) in [
            ("sslmode=verify-ca", "sslmode=verify-ca does not check the host"),
            ("sslmode=require&sslrootcert=system", "sslmode=require does not check the host"),
            ("sslmode=verify_full", "sslmode=verify_full is not known here"),
            ("sslmode=allow", "sslmode=allow is not known here"),
            ("sslmode=prefer&sslrootcert=/x", "sslrootcert verifies nothing with sslmode=prefer"),
            ("sslmode=disable&sslrootcert=system", "sslrootcert verifies nothing with sslmode=disable"),
            ("sslcert=/x", "sslkey is missing"),
            ("sslkey=/x", "sslcert is missing"),
            ("sslrootcert=/not/there.pem", "sslrootcert=/not/there.pem: No such file"),
            (&format!("sslrootcert={junk}"), "a b.pem: no certificate in PEM"),
            (&format!("sslcert={junk}&sslkey=/x"), "sslcert="),
        ] {
            let fault = Place::parse(format!("postgresql://ann:s3cret@db/net?{query}").into()).unwrap_err();
            let fault = fault.to_string();
            assert!(fault.contains(told) && !fault.contains("s3cret"), "{query}: {fault}");
        }
        // Not what stands in a password.
        let place = Place::parse("postgresql://ann:sslmode=verify-ca&sslcert=x@db/net".into()).unwrap();
        assert_eq!(place.word().1.as_deref(), Some(&b"sslmode=verify-ca&sslcert=x"[..]));
        let (url, _) = certificates("postgresql://ann@db/net?sslrootcert=/x&connect_timeout=3").unwrap();
        assert_eq!(url, "postgresql://ann@db/net?connect_timeout=3&sslmode=require");
    }

    #[test]
    fn sslmode_means_what_it_means_to_libpq() {
        use Verification::{Authority, Host, Nothing};
        for (query, mode, verification) in [
            ("", "", Nothing),
            ("sslmode=disable", "?sslmode=disable", Nothing),
            ("sslmode=prefer", "?sslmode=prefer", Nothing),
            ("sslmode=require", "?sslmode=require", Nothing),
            ("sslmode=require&sslrootcert=", "?sslmode=require", Nothing),
            ("sslmode=require&sslrootcert=/x", "?sslmode=require", Authority),
            ("sslmode=verify-ca&sslrootcert=/x", "?sslmode=require", Authority),
            ("sslmode=verify-full", "?sslmode=require", Host),
            ("sslmode=verify-full&sslrootcert=/x", "?sslmode=require", Host),
            ("sslrootcert=/x", "?sslmode=require", Host),
            ("sslrootcert=system", "?sslmode=require", Host),
        ] {
            let (url, found) = certificates(&format!("postgresql://ann@db/net?{query}")).unwrap();
            assert_eq!(url, format!("postgresql://ann@db/net{mode}"), "{query}");
            assert_eq!(found.verification, verification, "{query}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, told) in [
            ("postgresql://ann:s3cret@db.example/net", "postgresql://ann@db.example/net"),
            (
                "postgres://ann:s3cret@db.example:5433/net?sslmode=verify-full",
                "postgresql://ann@db.example:5433/net",
            ),
            ("postgresql:///net?host=/tmp&user=ann&password=s3cret", "postgresql://ann@/tmp/net"),
            ("postgresql://ann:s3cret@/net", "postgresql://ann@/var/run/postgresql/net"),
        ] {
            let place = Place::parse(url.into()).unwrap();
            assert_eq!(place.to_string(), told);
            assert!(!format!("{place:?}").contains("s3cret"), "{place:?}");
            assert_eq!(shown(&format!("--inventory={url}")), format!("--inventory={told}"));
        }
        let wrong = "postgresql://ann:s3cret@db:port/net?what=ever";
        assert!(!Place::parse(wrong.into()).unwrap_err().to_string().contains("s3cret"));
        assert_eq!(shown(wrong), "postgresql://…");
        assert_eq!(shown("-p22"), "-p22");
        assert_eq!(Place::parse("postgresql.db".into()).unwrap(), Place::File("postgresql.db".into()));
    }
}
