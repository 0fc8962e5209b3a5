//! Shared parts of the HTTP servers: bounded connections, TLS, users and their passwords.
//!
//! This module does not know the content: a server gets a router. Its files are read before the start, since
//! its threads cannot open them later.

mod config;
mod connection_limit;
mod credentials;
mod host_check;
mod login;
mod login_failures;
mod rate_limit;
mod server;
mod tls;
mod users;

pub use config::WebConfig;
pub(crate) use credentials::credentials;
pub(crate) use host_check::names_this_machine;
pub(crate) use login::LoginLayer;
pub(crate) use login_failures::LoginFailures;
pub(crate) use rate_limit::AddressRateLimits;
pub(crate) use server::{PeerAddress, WebServer, WebServerLimits, bind};
pub(crate) use users::WebUsers;
