//! Parsers of banners: SSH identifications, HTTP messages, greetings, and the hellos of TLS and QUIC.
//!
//! This module reads no socket, no queue, no clock and no rule. Every value borrows the bytes that it was
//! parsed from, so a banner can never hold bytes of another one.

pub mod disclosure;
mod event_facts;
pub mod framing;
pub mod greeting;
pub mod html_title;
pub mod http;
pub mod kex_reply;
pub mod kexinit;
mod line_cache;
pub mod proxy_protocol;
pub mod quic;
pub mod recognise;
pub mod socks;
pub mod ssh;
pub mod tls;
pub mod unread_protocols;

use std::fmt;

pub use self::greeting::GreetingBanner;
pub use self::line_cache::KnownLines;
pub use self::recognise::{MessageStart, ProtocolRecognition, beginning, recognise};
pub use self::tls::TlsBanner;
pub use self::unread_protocols::OtherBanner;
pub use crate::terms::{Anomaly, AnomalySet as Anomalies, Protocol, Side};

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

/// A parsed SSH identification, HTTP message head, TLS hello or greeting, with its sender.
#[derive(Debug, Clone)]
pub enum Banner<'a> {
    /// An SSH identification line, perhaps with the KEXINIT that followed it.
    Ssh(SshBanner<'a>),
    /// The head of an HTTP request (always from the client).
    Request(RequestHead<'a>),
    /// The head of an HTTP response (always from the server).
    Response(ResponseHead<'a>),
    /// A hello of TLS, or an alert.
    Tls(TlsBanner<'a>),
    /// The first reply of a server (always from the server).
    Greeting(GreetingBanner<'a>),
    /// The first bytes of a protocol that is not read.
    Other(OtherBanner<'a>),
}

impl Banner<'_> {
    /// The side that sent it.
    pub fn from(&self) -> Side {
        match self {
            Self::Ssh(banner) => banner.from,
            Self::Tls(banner) => banner.from,
            Self::Other(banner) => banner.from,
            Self::Request(_) => Side::Client,
            Self::Response(_) | Self::Greeting(_) => Side::Server,
        }
    }

    /// The protocol that it belongs to.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Ssh(_) => Protocol::Ssh,
            Self::Request(_) | Self::Response(_) => Protocol::Http,
            Self::Tls(_) => Protocol::Tls,
            Self::Greeting(banner) => Protocol::Greeting(banner.greeting),
            Self::Other(_) => Protocol::Other,
        }
    }

    /// The line that describes it best: the identification, the request or status line, the first line of
    /// a greeting, the version and name of a hello.
    pub fn line(&self) -> &[u8] {
        match self {
            Self::Ssh(banner) => banner.identification.line,
            Self::Request(request) => request.line,
            Self::Response(response) => response.line,
            Self::Tls(banner) => banner.line.as_bytes(),
            Self::Greeting(banner) => banner.line(),
            Self::Other(banner) => banner.line(),
        }
    }
}

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

/// One header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpHeader<'a> {
    /// The name as sent; compare it ignoring ASCII case.
    pub name: &'a [u8],
    /// Value without surrounding white space.
    pub value: &'a [u8],
}

/// The header fields of a message, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpHeaders<'a>(Vec<HttpHeader<'a>>);

impl<'a> HttpHeaders<'a> {
    /// Headers from fields in order.
    pub fn new(fields: Vec<HttpHeader<'a>>) -> Self {
        Self(fields)
    }

    /// All fields in order.
    pub fn iter(&self) -> std::slice::Iter<'_, HttpHeader<'a>> {
        self.0.iter()
    }

    /// Every value of the field `name`, in order, ignoring case.
    pub fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 'n {
        self.0
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|header| header.value)
    }

    /// The first value of the field `name`, ignoring case.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|header| header.value)
    }

    /// True if the field `name` is present.
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }
}

/// True if some reader takes two names of header fields for the same: ignoring case, and with `_` for
/// `-`, because applications behind CGI and WSGI can't distinguish these (`HTTP_USER_AGENT`).
pub fn same_name(sent: &[u8], wanted: &str) -> bool {
    let folded = |octet: &u8| if *octet == b'_' { b'-' } else { octet.to_ascii_lowercase() };
    sent.len() == wanted.len() && sent.iter().map(folded).eq(wanted.as_bytes().iter().map(folded))
}

/// The head of an HTTP request, RFC 9112 section 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The whole request line without CR LF.
    pub line: &'a [u8],
    /// Method.
    pub method: &'a [u8],
    /// Request target as sent.
    pub url: &'a [u8],
    /// `HTTP/1.1`; empty for HTTP/0.9.
    pub version: &'a [u8],
    /// Header fields.
    pub headers: HttpHeaders<'a>,
    /// The collected part of the body, decoded from chunks.
    pub body: &'a [u8],
}

/// The head of an HTTP response, RFC 9112 section 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The whole status line without CR LF.
    pub line: &'a [u8],
    /// `HTTP/1.1`.
    pub version: &'a [u8],
    /// Status code.
    pub status: u16,
    /// Reason phrase, perhaps empty.
    pub reason: &'a [u8],
    /// Header fields.
    pub headers: HttpHeaders<'a>,
    /// The collected part of the body (up to the body limit), decoded from chunks.
    pub body: &'a [u8],
}
