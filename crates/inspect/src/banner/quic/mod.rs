//! QUIC as far as anybody on the way can read it: the client's Initials, RFC 9000, 9001 and 9369.
//!
//! What an Initial is encrypted with follows from the connection ID that it is addressed to, so that it hides
//! nothing; in it the octets of the TLS handshake come in frames, in any order. They are put together here
//! and read as TLS is. The cryptography is rustls'.
//!
//! Nothing here knows of flows or of who answers.

mod crypto;
mod frames;
mod initial;
mod packets;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::crypto::{Hellos, Refused};
pub use self::frames::{Malformed, crypto_frames};
pub use self::initial::InitialKeys;
pub use self::packets::{
    ConnectionId, FIRST_DATAGRAM, Kind, LongPacket, Next, TRAIN_LIMIT, next_packet, trains,
};
