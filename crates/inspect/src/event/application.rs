//! What was said in one of the protocols that bannerwall reads: the facts of each, and what all have
//! in common.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;

use super::TlsFacts;
use crate::terms::{Greeting, Protocol, Side};

/// What was said, shared by the event that tells it and the alerts about it.
#[derive(Debug, Clone, PartialEq)]
pub enum Application {
    /// SSH identifications of one flow, with what was seen of each side.
    Ssh(Arc<SshFacts>),
    /// One HTTP transaction (or the half of it that was seen).
    Http(Arc<HttpFacts>),
    /// One TLS handshake, as far as it is said in the open.
    Tls(Arc<TlsFacts>),
    /// A server's greeting.
    Greeting(Arc<GreetingFacts>),
    /// What is not read: its first bytes, and a name for them.
    Other(Arc<OtherFacts>),
}

/// What was said in the words of a table with one row an event.
#[derive(Debug, Clone, Default)]
pub struct Summary<'a> {
    /// Whom it is about: the server where it was seen.
    pub from: Option<Side>,
    /// What names the software: an identification, a `Server` field, the first line of a greeting.
    pub banner: Option<Cow<'a, str>>,
    /// The same without what belongs to the protocol.
    pub software: Option<Cow<'a, str>>,
    /// What a fingerprint database says of it.
    pub product: Option<&'a ProductFacts>,
    /// The client's banner and product, where the server's was seen, too.
    pub client: Option<(&'a str, Option<&'a ProductFacts>)>,
    /// The status of an answer.
    pub status: Option<u16>,
    /// An answer's reason phrase, perhaps empty.
    pub reason: Option<&'a str>,
    /// The version of the protocol that it speaks: `2.0`, `HTTP/1.0`.
    pub protocol_version: Option<&'a str>,
    /// What was asked for.
    pub url: Option<&'a str>,
    /// A page's title.
    pub title: Option<&'a str>,
}

impl Application {
    /// Which protocol it was.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Ssh(_) => Protocol::Ssh,
            Self::Http(_) => Protocol::Http,
            Self::Tls(_) => Protocol::Tls,
            Self::Greeting(facts) => Protocol::Greeting(facts.greeting),
            Self::Other(_) => Protocol::Other,
        }
    }

    /// The name of the events that tell it: of TLS in QUIC that of QUIC, else the protocol's.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tls(facts) if facts.quic.is_some() => "quic",
            _ => self.protocol().name(),
        }
    }

    /// Bytes of its text, roughly.
    pub(super) fn weight(&self) -> usize {
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

    /// What a table says of it.
    pub fn summary(&self) -> Summary<'_> {
        match self {
            Self::Ssh(facts) => facts.summary(),
            Self::Http(facts) => facts.summary(),
            Self::Tls(facts) => facts.summary(),
            Self::Greeting(facts) => facts.summary(),
            Self::Other(facts) => facts.summary(),
        }
    }
}

/// What was seen of the two SSH identifications of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SshFacts {
    /// The client's; shared with all flows in which the same line was said.
    pub client: Option<Arc<SshSide>>,
    /// The server's, likewise.
    pub server: Option<Arc<SshSide>>,
}

impl SshFacts {
    /// The key that the server has shown.
    pub fn host_key(&self) -> Option<&HostKey> {
        self.server.as_ref()?.host_key.as_ref()
    }

    fn summary(&self) -> Summary<'_> {
        let shown = self.server.as_ref().or(self.client.as_ref());
        let other = self.server.as_ref().and(self.client.as_ref());
        Summary {
            from: Some(if self.server.is_some() { Side::Server } else { Side::Client }),
            banner: shown.map(|side| side.banner.as_str().into()),
            software: shown.map(|side| side.software_version.as_str().into()),
            product: shown.and_then(|side| side.fingerprint.as_ref()),
            protocol_version: shown.map(|side| side.protocol_version.as_str()),
            client: other.map(|side| (side.banner.as_str(), side.fingerprint.as_ref())),
            ..Summary::default()
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
    /// HASSH of the KEXINIT, where it was seen.
    pub hassh: Option<Hassh>,
    /// The key of a server, where it was asked for it.
    pub host_key: Option<HostKey>,
    /// What the fingerprint database calls it.
    pub fingerprint: Option<ProductFacts>,
}

/// The public key by which clients know an SSH server, RFC 4253 section 8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// Its type: `ssh-ed25519`.
    pub algorithm: &'static str,
    /// As OpenSSH shows it: `SHA256:` and base64 without padding.
    pub fingerprint: String,
    /// What the signature says that came with it.
    pub signature: Signature,
}

/// Whether a server has shown that a key is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// It has signed with it.
    Good,
    /// The signature is another key's, or none.
    Bad,
    /// It was not tried: of its kind none can be.
    Untried,
}

impl HostKey {
    /// What tells it from others: `SHA256:… ssh-ed25519`.
    pub fn name(&self) -> String {
        format!("{} {}", self.fingerprint, self.algorithm)
    }
}

/// Its name, and what its signature is worth where that is not all.
impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        match self.signature {
            Signature::Good => Ok(()),
            other => write!(f, " (signature {})", other.name()),
        }
    }
}

impl Signature {
    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Untried => "untried",
        }
    }
}

/// A HASSH fingerprint: MD5 (hexadecimal) and the algorithm lists that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hassh {
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
    fn summary(&self) -> Summary<'_> {
        let response = self.response.as_ref();
        let server = response.and_then(|response| response.header("Server"));
        Summary {
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
    /// Bytes of text, roughly.
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
    /// Header fields that are not told, because there were too many.
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
    /// Header fields that are not told, because there were too many.
    pub left_out: u32,
    /// Bytes of the body that were seen so far.
    pub body_length: u64,
    /// Text of the first `<title>` within the inspected part of the body.
    pub title: Option<String>,
    /// What the fingerprint database calls the server.
    pub fingerprint: Option<ProductFacts>,
}

impl HttpRequestFacts {
    /// The first value of a header field, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }
}

impl HttpResponseFacts {
    /// The first value of a header field, whatever the case of its name.
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
    /// Which protocol.
    pub greeting: Greeting,
    /// `220`, `+OK`, `* OK`.
    pub code: String,
    /// Its lines whole, without their ends; at least one.
    pub lines: Vec<String>,
    /// What each line says behind its code.
    pub texts: Vec<String>,
    /// True if the server means to serve.
    pub welcome: bool,
    /// What the fingerprint database calls it.
    pub fingerprint: Option<ProductFacts>,
}

impl GreetingFacts {
    fn summary(&self) -> Summary<'_> {
        Summary {
            from: Some(Side::Server),
            banner: self.lines.first().map(|line| line.as_str().into()),
            software: Some(self.texts.join(" ").into()),
            product: self.fingerprint.as_ref(),
            ..Summary::default()
        }
    }
}

/// The first bytes of a flow that speaks nothing that bannerwall reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherFacts {
    /// What it is, `tls`; `unknown` where nothing tells.
    pub name: &'static str,
    /// Whose bytes tell it, or else were first.
    pub from: Option<Side>,
    /// The client's first bytes, perhaps none.
    pub client: Vec<u8>,
    /// The server's first bytes, perhaps none.
    pub server: Vec<u8>,
}

impl OtherFacts {
    /// Bytes of one side that are told at most.
    pub const TOLD: usize = 64;

    /// What one side said first.
    pub fn first(&self, side: Side) -> &[u8] {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// First bytes as printable ASCII, anything else escaped: `RFB 003.008\n`.
    pub fn text(octets: &[u8]) -> String {
        octets.escape_ascii().to_string()
    }

    fn summary(&self) -> Summary<'_> {
        let first = self.from.map(|from| self.first(from)).unwrap_or_default();
        Summary {
            from: self.from,
            banner: Some(Self::text(first).into()),
            software: Some(self.name.into()),
            ..Summary::default()
        }
    }
}

/// What a fingerprint database or a rule's named captures say of a piece of software.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProductFacts {
    /// Vendor, `OpenBSD`.
    pub vendor: Option<String>,
    /// Product, `OpenSSH`.
    pub product: Option<String>,
    /// Version, `9.2p1`.
    pub version: Option<String>,
    /// CPE name, `cpe:/a:openbsd:openssh:9.2p1`.
    pub cpe: Option<String>,
    /// Operating system vendor and product, where the banner tells.
    pub os: Option<String>,
}
