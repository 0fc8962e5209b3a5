//! QUIC, as far as an inspector on the path can read it: the client's Initials, RFC 9000, 9001 and 9369.
//!
//! The connection ID of an Initial determines its keys, so anyone can decrypt it. Its frames hold the
//! bytes of the TLS handshake in any order. This module reassembles them, and they are read as TLS is.
//! The cryptography is rustls'.
//!
//! This module knows no flows and no servers.

mod crypto_stream;
mod frames;
mod initial_keys;
mod packets;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::crypto_stream::{CryptoStream, CryptoStreamError};
pub use self::frames::{MalformedFrame, crypto_frames};
pub use self::initial_keys::InitialKeys;
pub use self::packets::{
    ConnectionId, FIRST_DATAGRAM, LongPacket, LongPacketType, NextPacket, TRAIN_LIMIT, next_packet, trains,
};
