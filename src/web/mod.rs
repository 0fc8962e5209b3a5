//! Shared parts of the HTTP servers: bounded connections, TLS, users and their passwords.
//!
//! This module does not know the content: a server gets a router. Its files are read before the start, since
//! its threads cannot open them later.

mod basic;
mod config;
mod failures;
mod gate;
mod host;
mod rates;
mod seats;
mod server;
mod tls;
mod users;

pub(crate) use basic::credentials;
pub use config::WebConfig;
pub(crate) use failures::LoginFailures;
pub(crate) use gate::LoginLayer;
pub(crate) use host::names_this_machine;
pub(crate) use rates::AddressRateLimits;
pub(crate) use server::{PeerAddress, WebServer, WebServerLimits, bind};
pub(crate) use tls::{ClientCertificates, TlsFileError, TlsFileKind, WebTlsSettings};
pub(crate) use users::WebUsers;
