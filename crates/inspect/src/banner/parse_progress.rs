//! Progress of a parser, and the reason why bytes are not what it expects.

use std::fmt;

/// Progress of a parser with the bytes collected so far.
///
/// The caller keeps the bytes and calls again with a longer slice. A parser keeps no copy, so the result
/// never depends on how the bytes were split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseProgress<T> {
    /// Incomplete: call again with more bytes appended.
    More,
    /// A value from the first `consumed` bytes.
    Done {
        /// The parsed value.
        value: T,
        /// Number of its bytes; the rest belongs to the next message.
        consumed: usize,
    },
    /// It is not that protocol, whatever follows.
    Never(ParseRejection),
}

impl<T> ParseProgress<T> {
    /// Returns the value, if there is one.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done { value, .. } => Some(value),
            Self::More | Self::Never(_) => None,
        }
    }
}

/// The reason why bytes are not what a parser expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParseRejection {
    /// A line before the SSH identification that no implementation reads to its end.
    LineTooLong,
    /// Not a binary packet of SSH, or not one that can precede `SSH_MSG_KEXINIT`.
    NotKexInit,
    /// A name list that does not fit its packet.
    BrokenNameList,
    /// The first line cannot be a request line.
    NotARequest,
    /// The first line cannot be a status line.
    NotAResponse,
    /// The connection preface of HTTP/2, RFC 9113 section 3.4.
    Http2Preface,
    /// Not the handshake of a SOCKS server, or a refusal.
    NotSocks,
    /// No header of the PROXY protocol.
    NotProxied,
    /// Not a reply with which a protocol of greetings begins.
    NotAGreeting,
}

impl ParseRejection {
    /// A stable name for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LineTooLong => "line_too_long",
            Self::NotKexInit => "not_kexinit",
            Self::BrokenNameList => "broken_name_list",
            Self::NotARequest => "not_a_request",
            Self::NotAResponse => "not_a_response",
            Self::Http2Preface => "http2_preface",
            Self::NotSocks => "not_socks",
            Self::NotProxied => "not_proxied",
            Self::NotAGreeting => "not_a_greeting",
        }
    }
}

impl fmt::Display for ParseRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
