//! Parsers of banners: SSH identifications, HTTP messages, greetings, and the hellos of TLS and QUIC.
//!
//! This module reads no socket, no queue, no clock and no rule. Every value borrows the bytes that it was
//! parsed from, so a banner can never hold bytes of another one.

mod byte_reader;
pub mod disclosure;
mod event_facts;
mod first_bytes_cursor;
pub mod framing;
pub mod greeting;
pub mod html_title;
pub mod http;
mod http_start;
pub mod kex_reply;
pub mod kexinit;
mod line_cache;
mod message_head;
mod parse_progress;
mod protocol_recognition;
pub mod proxy_protocol;
pub mod quic;
pub mod recognise;
pub mod socks;
pub mod ssh;
mod ssh_banner;
pub mod tls;
pub mod unread_protocols;

pub use self::greeting::GreetingBanner;
pub use self::line_cache::KnownLines;
pub use self::message_head::{HttpHeader, HttpHeaders, RequestHead, ResponseHead, same_name};
pub use self::parse_progress::{ParseProgress, ParseRejection};
pub use self::protocol_recognition::ProtocolRecognition;
pub use self::recognise::{MessageStart, beginning, recognise};
pub use self::ssh_banner::{KexInit, SshBanner, SshIdentification};
pub use self::tls::TlsBanner;
pub use self::unread_protocols::OtherBanner;
pub use crate::terms::{Anomaly, AnomalySet as Anomalies, Protocol, Side};

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
