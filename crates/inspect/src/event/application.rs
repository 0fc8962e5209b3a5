//! Facts of the application protocols that bannerwall reads, and their common summary.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;

use super::application_summary::{ApplicationSummary, ProductFacts};
use super::tls::TlsFacts;
use crate::terms::{GreetingProtocol, Protocol, Side};

/// The facts of one exchange. The event about it and the alerts share them.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplicationFacts {
    /// SSH identifications of one flow, with facts about each side.
    Ssh(Arc<SshFacts>),
    /// One HTTP transaction, or the half of it that was seen.
    Http(Arc<HttpFacts>),
    /// One TLS handshake, as far as it is not encrypted.
    Tls(Arc<TlsFacts>),
    /// A server's greeting.
    Greeting(Arc<GreetingFacts>),
    /// A protocol that is not read: its first bytes, and a name for them.
    Other(Arc<OtherFacts>),
}

impl ApplicationFacts {
    /// The protocol of the exchange.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Ssh(_) => Protocol::Ssh,
            Self::Http(_) => Protocol::Http,
            Self::Tls(_) => Protocol::Tls,
            Self::Greeting(facts) => Protocol::Greeting(facts.greeting),
            Self::Other(_) => Protocol::Other,
        }
    }

    /// The name of its events: `quic` for TLS in QUIC, else the protocol's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tls(facts) if facts.quic.is_some() => "quic",
            _ => self.protocol().name(),
        }
    }

    /// The approximate number of bytes of its text.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Ssh(facts) => {
                let sides = facts.server.iter().chain(&facts.client);
                sides
                    .map(|side| {
                        2 * side.banner.len() + side.hassh.as_ref().map_or(0, |it| it.algorithms.len())
                    })
                    .sum()
            }
            Self::Http(facts) => facts.weight(),
            Self::Tls(facts) => facts.weight(),
            Self::Greeting(facts) => facts.lines.iter().chain(&facts.texts).map(String::len).sum(),
            Self::Other(facts) => facts.client.len() + facts.server.len(),
        }
    }

    /// Returns the summary.
    pub fn summary(&self) -> ApplicationSummary<'_> {
        match self {
            Self::Ssh(facts) => facts.summary(),
            Self::Http(facts) => facts.summary(),
            Self::Tls(facts) => facts.summary(),
            Self::Greeting(facts) => facts.summary(),
            Self::Other(facts) => facts.summary(),
        }
    }
}

/// Facts about the two SSH identifications of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SshFacts {
    /// The client's; shared by all flows with the same line.
    pub client: Option<Arc<SshSide>>,
    /// The server's; shared in the same way.
    pub server: Option<Arc<SshSide>>,
}

impl SshFacts {
    /// The key that the server has presented.
    pub fn host_key(&self) -> Option<&HostKey> {
        self.server.as_ref()?.host_key.as_ref()
    }

    fn summary(&self) -> ApplicationSummary<'_> {
        let shown = self.server.as_ref().or(self.client.as_ref());
        let other = self.server.as_ref().and(self.client.as_ref());
        ApplicationSummary {
            from: Some(if self.server.is_some() { Side::Server } else { Side::Client }),
            banner: shown.map(|side| side.banner.as_str().into()),
            software: shown.map(|side| side.software_version.as_str().into()),
            product: shown.and_then(|side| side.fingerprint.as_ref()),
            protocol_version: shown.map(|side| side.protocol_version.as_str()),
            client: other.map(|side| (side.banner.as_str(), side.fingerprint.as_ref())),
            ..ApplicationSummary::default()
        }
    }
}

/// One SSH identification, RFC 4253 section 4.2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SshSide {
    /// `2.0` or `1.99`.
    pub protocol_version: String,
    /// Software version and comments, whole: `OpenSSH_9.2p1 Debian-2+deb12u3`.
    pub software_version: String,
    /// The whole identification line, without its line end.
    pub banner: String,
    /// HASSH of the KEXINIT, if it was seen.
    pub hassh: Option<HasshFingerprint>,
    /// The key of a server, if a scan asked for it.
    pub host_key: Option<HostKey>,
    /// The product that the fingerprint database names.
    pub fingerprint: Option<ProductFacts>,
}

/// The public key by which clients recognize an SSH server, RFC 4253 section 8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// Its type: `ssh-ed25519`.
    pub algorithm: &'static str,
    /// Fingerprint as OpenSSH shows it: `SHA256:` and base64 without padding.
    pub fingerprint: String,
    /// Result of verifying the signature that came with the key.
    pub signature: SignatureResult,
}

/// Result of verifying a host key's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureResult {
    /// The server proved possession of the key.
    Good,
    /// The signature is missing or belongs to another key.
    Bad,
    /// The signature was not verified, because its algorithm is not supported.
    Untried,
}

impl HostKey {
    /// The name that identifies the key: `SHA256:… ssh-ed25519`.
    pub fn name(&self) -> String {
        format!("{} {}", self.fingerprint, self.algorithm)
    }
}

/// The name, and the signature's result if it is not good.
impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        match self.signature {
            SignatureResult::Good => Ok(()),
            other => write!(f, " (signature {})", other.name()),
        }
    }
}

impl SignatureResult {
    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Untried => "untried",
        }
    }
}

/// A HASSH fingerprint: MD5 (hexadecimal), and the algorithm lists from which it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HasshFingerprint {
    /// 32 hexadecimal digits.
    pub hash: String,
    /// `kex;encryption;mac;compression`.
    pub algorithms: String,
}

/// One header field as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderField {
    /// Name in the sender's spelling.
    pub name: CompactString,
    /// Value without surrounding white space.
    pub value: CompactString,
}

/// One HTTP transaction; either half may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpFacts {
    /// The request's head.
    pub request: Option<HttpRequestFacts>,
    /// The (final) response's head.
    pub response: Option<HttpResponseFacts>,
}

impl HttpFacts {
    fn summary(&self) -> ApplicationSummary<'_> {
        let response = self.response.as_ref();
        let server = response.and_then(|response| response.header("Server"));
        ApplicationSummary {
            from: response.map(|_| Side::Server),
            banner: server.map(Cow::from),
            software: server.map(Cow::from),
            product: response.and_then(|response| response.fingerprint.as_ref()),
            client: None,
            status: response.map(|response| response.status),
            reason: response.map(|response| response.reason.as_str()),
            protocol_version: response
                .map(|response| response.version.as_str())
                .or_else(|| self.request.as_ref().map(|request| request.version.as_str())),
            url: self.request.as_ref().map(|request| request.url.as_str()),
            title: response.and_then(|response| response.title.as_deref()),
        }
    }
}

impl HttpFacts {
    /// The approximate number of bytes of text.
    fn weight(&self) -> usize {
        let fields = |headers: &[HeaderField]| -> usize {
            headers
                .iter()
                .map(|field| 2 * size_of::<CompactString>() + field.name.len() + field.value.len())
                .sum()
        };
        let request = self.request.as_ref().map_or(0, |request| request.url.len() + fields(&request.headers));
        let response = self.response.as_ref().map_or(0, |response| fields(&response.headers));
        request + response
    }
}

/// The head of an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpRequestFacts {
    /// `GET`, as sent.
    pub method: CompactString,
    /// The request target, as sent.
    pub url: String,
    /// `HTTP/1.1`; empty for HTTP/0.9.
    pub version: CompactString,
    /// Header fields in order.
    pub headers: Vec<HeaderField>,
    /// Number of header fields that were left out, because there were too many.
    pub left_out: u32,
}

/// The head of an HTTP response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpResponseFacts {
    /// `HTTP/1.1`.
    pub version: CompactString,
    /// Status code, 100 to 999.
    pub status: u16,
    /// Reason phrase, perhaps empty.
    pub reason: CompactString,
    /// Header fields in order.
    pub headers: Vec<HeaderField>,
    /// Number of header fields that were left out, because there were too many.
    pub left_out: u32,
    /// Number of bytes of the body seen so far.
    pub body_length: u64,
    /// Text of the first `<title>` within the inspected part of the body.
    pub title: Option<String>,
    /// The product that the fingerprint database names.
    pub fingerprint: Option<ProductFacts>,
}

impl HttpRequestFacts {
    /// The first value of a header field, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }
}

impl HttpResponseFacts {
    /// The first value of a header field, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }
}

fn first<'a>(headers: &'a [HeaderField], name: &str) -> Option<&'a str> {
    headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value.as_str())
}

/// A server's greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreetingFacts {
    /// The protocol.
    pub greeting: GreetingProtocol,
    /// `220`, `+OK`, `* OK`.
    pub code: String,
    /// Its lines without their ends; at least one.
    pub lines: Vec<String>,
    /// The text of each line after its code.
    pub texts: Vec<String>,
    /// True if the server is ready to serve.
    pub welcome: bool,
    /// The product that the fingerprint database names.
    pub fingerprint: Option<ProductFacts>,
}

impl GreetingFacts {
    fn summary(&self) -> ApplicationSummary<'_> {
        ApplicationSummary {
            from: Some(Side::Server),
            banner: self.lines.first().map(|line| line.as_str().into()),
            software: Some(self.texts.join(" ").into()),
            product: self.fingerprint.as_ref(),
            ..ApplicationSummary::default()
        }
    }
}

/// The first bytes of a flow whose protocol is not read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherFacts {
    /// The name of the protocol, `tls`; `unknown` if the bytes do not show it.
    pub name: &'static str,
    /// The side whose bytes show the name, or else the side that spoke first.
    pub from: Option<Side>,
    /// The client's first bytes; may be empty.
    pub client: Vec<u8>,
    /// The server's first bytes; may be empty.
    pub server: Vec<u8>,
}

impl OtherFacts {
    /// Largest number of bytes of one side in an event.
    pub const TOLD: usize = 64;

    /// The first bytes of one side.
    pub fn first(&self, side: Side) -> &[u8] {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// Returns first bytes as printable ASCII with everything else escaped: `RFB 003.008\n`.
    pub fn text(octets: &[u8]) -> String {
        octets.escape_ascii().to_string()
    }

    fn summary(&self) -> ApplicationSummary<'_> {
        let first = self.from.map(|from| self.first(from)).unwrap_or_default();
        ApplicationSummary {
            from: self.from,
            banner: Some(Self::text(first).into()),
            software: Some(self.name.into()),
            ..ApplicationSummary::default()
        }
    }
}
