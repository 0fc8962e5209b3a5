//! SSH identifications and the name lists behind them.

use crate::terms::Side;

/// One side's SSH identification and, if it was collected, its KEXINIT.
#[derive(Debug, Clone)]
pub struct SshBanner<'a> {
    /// The side that sent it.
    pub from: Side,
    /// The identification line.
    pub identification: SshIdentification<'a>,
    /// The algorithm lists that followed it.
    pub kex: Option<KexInit<'a>>,
}

/// An SSH identification, RFC 4253 section 4.2: `SSH-protoversion-softwareversion SP comments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshIdentification<'a> {
    /// The whole line without CR LF.
    pub line: &'a [u8],
    /// `2.0`, `1.99` or `1.5`.
    pub protocol_version: &'a [u8],
    /// Software version up to the first space.
    pub software: &'a [u8],
    /// Everything after the first space.
    pub comments: Option<&'a [u8]>,
}

/// The name lists of `SSH_MSG_KEXINIT`, RFC 4253 section 7.1, as comma-separated bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KexInit<'a> {
    /// Key exchange algorithms.
    pub kex: &'a [u8],
    /// Host key algorithms.
    pub host_key: &'a [u8],
    /// Ciphers, client to server.
    pub encryption_client_to_server: &'a [u8],
    /// Ciphers, server to client.
    pub encryption_server_to_client: &'a [u8],
    /// MACs, client to server.
    pub mac_client_to_server: &'a [u8],
    /// MACs, server to client.
    pub mac_server_to_client: &'a [u8],
    /// Compression, client to server.
    pub compression_client_to_server: &'a [u8],
    /// Compression, server to client.
    pub compression_server_to_client: &'a [u8],
}
