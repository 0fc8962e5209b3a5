//! The protocol that one side's first bytes are recognized as.

/// Protocol of one side's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtocolRecognition {
    /// An SSH identification.
    Ssh,
    /// An HTTP/1.x (or 0.9) message.
    Http,
    /// Open. RFC 4253 lets a server send any lines before its identification, and clients skip these.
    ///
    /// SMTP and FTP greet like that, and TLS begins like that, too. It is SSH only if an identification
    /// follows, and not if both ends turn out to speak another protocol.
    PerhapsSsh,
    /// Everything that a client says to a SOCKS server; relayed bytes follow.
    Relayed,
    /// Too few bytes to decide.
    More,
}
