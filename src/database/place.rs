//! Location of a database: a file, or the URL of a server.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio_postgres::Config;

use super::error::DatabaseLocationError;
use super::helper_process::{ConnectionSettings, ConnectionStarter};
use super::postgres::ConnectMethod;
use super::tls::PostgresTls;
use super::url::{connect_settings, is_broken_url, is_url, named, without_password};
use crate::privileges::UnprivilegedUser;

/// A file, or a database of a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseLocation {
    /// An SQLite file.
    File(PathBuf),
    /// A server.
    Server(Box<PostgresServer>),
}

/// A database of a PostgreSQL server, with the role that connects.
#[derive(Clone)]
pub struct PostgresServer {
    /// The URL as given, without a password.
    url: String,
    pub(super) config: Config,
    /// Created together with the place, while the process may still read the system's certificates.
    pub(super) tls: PostgresTls,
    /// Starter of helper processes for connections, once it is set; shared by all copies.
    starter: Arc<OnceLock<Arc<ConnectionStarter>>>,
}

impl PostgresServer {
    /// Returns the kind of connection.
    pub fn access(&self) -> ConnectMethod {
        match self.starter.get() {
            Some(starter) => ConnectMethod::Process(Arc::clone(starter)),
            None => ConnectMethod::Direct(Box::new((self.config.clone(), self.tls.clone()))),
        }
    }
}

impl PartialEq for PostgresServer {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}

impl Eq for PostgresServer {}

impl DatabaseLocation {
    /// Parses the value of a flag: a URL, or the path of a file.
    ///
    /// # Errors
    /// It is a malformed URL, or requires a verification that is impossible here.
    pub fn parse(text: OsString) -> Result<Self, DatabaseLocationError> {
        Self::with_password(text, std::env::var("PGPASSWORD").ok())
    }

    /// Parses a URL whose password is not in it, or the path of a file.
    ///
    /// # Errors
    /// See [`Self::parse`].
    pub(crate) fn with_password(
        text: OsString,
        password: Option<String>,
    ) -> Result<Self, DatabaseLocationError> {
        match text.to_str().filter(|text| is_url(text)) {
            Some(url) => {
                let bare = without_password(url)?;
                let (config, tls) = connect_settings(url, password)?;
                Ok(Self::Server(Box::new(PostgresServer { url: bare, config, tls, starter: Arc::default() })))
            }
            None if text.to_str().is_some_and(is_broken_url) => Err(DatabaseLocationError::Url),
            None => Ok(Self::File(text.into())),
        }
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
    pub(crate) fn start_helpers(&self, user: Option<&UnprivilegedUser>) -> std::io::Result<()> {
        let Self::Server(server) = self else { return Ok(()) };
        if server.starter.get().is_none() {
            let password = server.config.get_password().map(<[u8]>::to_vec);
            let setup = ConnectionSettings {
                url: server.url.clone(),
                password,
                user: user.map(UnprivilegedUser::number),
            };
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

impl From<PathBuf> for DatabaseLocation {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for DatabaseLocation {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

/// Without the password.
impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(server) => server.fmt(f),
        }
    }
}

/// Without the password.
impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(&self.config))
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
            let place = DatabaseLocation::parse(url.into()).unwrap();
            assert_eq!(place.word(), (named.into(), Some(b"s3@cret".to_vec())));
            let DatabaseLocation::Server(again) = DatabaseLocation::parse(named.into()).unwrap() else {
                panic!("a server")
            };
            assert_eq!(again.config.get_user(), Some("ann"));
        }
    }

    #[test]
    fn whatever_stands_in_a_password_is_on_no_command_line() {
        for password in ["s3/cret", "s3?cret", "s3:cret", "/?&=#", "s3?password=cret"] {
            let url = format!("postgresql://ann:{password}@db.example/net?sslmode=disable");
            let place = DatabaseLocation::parse(url.into()).unwrap();
            let (word, told) = place.word();
            assert_eq!(word, "postgresql://ann@db.example/net?sslmode=disable");
            assert_eq!(told.as_deref(), Some(password.as_bytes()));
        }
        // A user of that name, and no password.
        let place = DatabaseLocation::parse("postgresql:///net?user=ann@db".into()).unwrap();
        let DatabaseLocation::Server(server) = &place else { panic!("a server") };
        let DatabaseLocation::Server(again) = DatabaseLocation::parse(place.word().0).unwrap() else {
            panic!("a server")
        };
        assert_eq!((again.config.get_user(), server), (server.config.get_user(), &again));
        assert_eq!(
            DatabaseLocation::parse("postgresql://ann@db/net?p%61ssword=s3cret".into()).unwrap_err(),
            DatabaseLocationError::Url
        );
    }
}
