//! What the HTTP servers of the house have in common: bounded connections, TLS, users and their passwords.
//!
//! Nothing here knows what is shown: a server is given a router, and files were read before it starts, as
//! threads may not open them any more.

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
pub(crate) use failures::Failures;
pub(crate) use gate::Gate;
pub(crate) use host::names_this_machine;
pub(crate) use rates::Rates;
pub(crate) use server::{Limits, Peer, Server, bind};
pub(crate) use tls::{ClientCertificates, File, Tls, TlsFault};
pub(crate) use users::Users;
