//! TLS as far as it is not encrypted: hellos, alerts and, up to TLS 1.2, certificates.
//!
//! Handshake messages are reassembled from records as they come; a hello is parsed once it is complete.
//! Nothing here decrypts.

mod certificate;
mod fingerprint;
mod hello;
mod records;

pub use self::certificate::{certificates, chain, raw_chain};
pub use self::hello::{ServerHelloAnswer, client, server};
pub use self::records::{
    MAJOR_LIMIT, MESSAGE_LIMIT, RecordPiece, RecordReader, TooLong, message_in, next_message,
};

use crate::event::TlsFacts;
use crate::terms::Side;

/// The type of a client's hello, RFC 8446 section 4.
pub const CLIENT_HELLO: u8 = 1;

/// The type of a server's hello, and of its `HelloRetryRequest`.
pub const SERVER_HELLO: u8 = 2;

/// The type of a chain of certificates.
pub const CERTIFICATE: u8 = 11;

/// The type of `SupplementalData`, which may precede the certificates, RFC 4680 section 2.
pub const SUPPLEMENTAL_DATA: u8 = 23;

/// The level of an alert that ends the connection, RFC 8446 section 6.
pub const FATAL: u8 = 2;

/// The facts of one side of a handshake.
#[derive(Debug, Clone, Copy)]
pub struct TlsBanner<'a> {
    /// The side whose hello or alert it is about.
    pub from: Side,
    /// The facts of both sides.
    pub facts: &'a TlsFacts,
    /// A summary in one line.
    pub line: &'a str,
}
