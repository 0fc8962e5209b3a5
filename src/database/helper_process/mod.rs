//! Helper processes that speak to a PostgreSQL server, so that a server's answer cannot harm a guard.
//!
//! A [`ConnectionStarter`] is this program again (`bannerwall database-connections`), started before the
//! guard is confined. It has the URL and the password, and forks a process for each connection
//! ([`helper`]), which holds the socket and speaks TLS. Such a process may do nothing else, has bounded
//! memory, and may die: the guard then has lost a connection, and the next one starts another process.
//! The starter reads nothing but the guard's requests. If it dies, its parent forks another one, because
//! a confined guard could not start this program again.
//!
//! Work goes to the process as a frame: its length (32 bits, little-endian) and that many bytes of
//! postcard. A letter precedes each frame of the answer: rows, then the end. This side limits the rows
//! again.

mod client;
mod frame;
mod helper;
mod setup;

pub(super) use self::client::{ConnectionStarter, ProcessConnection};
pub(super) use self::frame::rows;
pub(crate) use self::helper::serve;
pub(super) use self::setup::ConnectionSettings;
pub(crate) use self::setup::SUBCOMMAND;
