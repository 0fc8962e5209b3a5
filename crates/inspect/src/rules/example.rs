//! Examples: banners that a rule must match or must not match, tried by `rules test` and `rules
//! check`.

use std::time::SystemTime;

use serde::Deserialize;

use crate::banner::html_title::title;
use crate::banner::{
    Banner, GreetingBanner, KexInit, OtherBanner, ParseProgress, RequestHead, ResponseHead, SshBanner,
    SshIdentification, TlsBanner, greeting, http, kexinit, ssh,
};
use crate::event::{ProductFacts, Protocol, Side, SshSide, TlsClient, TlsFacts};
use crate::terms::GreetingProtocol;

use super::banner_view::{BannerContext, BannerStage};
use super::field::BannerSender;
use super::fingerprint::FingerprintSet;
use super::probe_request::ProbeRequest;
use super::source_file::TextPosition;
use super::toml_nesting;

/// One example or counterexample.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleExample {
    pub(super) place: TextPosition,
    pub(super) content: ExampleContent,
    /// The product that a fingerprint database would name.
    pub(super) product: Option<ProductFacts>,
}

/// The bytes of an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExampleContent {
    Ssh {
        line: Vec<u8>,
        /// The name lists of the KEXINIT.
        kex: Option<KexAlgorithms>,
        /// The HASSH, if it is known without the lists.
        hassh: Option<String>,
    },
    Http {
        request: Option<ExampleMessage>,
        response: Option<ExampleMessage>,
    },
    Greeting {
        greeting: GreetingProtocol,
        /// The whole reply.
        octets: Vec<u8>,
    },
    /// One side of a handshake and its facts.
    Tls {
        from: Side,
        facts: Box<TlsFacts>,
    },
    /// First bytes of a protocol that is not read.
    Other(Vec<u8>),
}

impl ExampleContent {
    /// Returns a greeting from a text whose lines may end with LF alone, or without a line end.
    pub(super) fn greeting(greeting: GreetingProtocol, text: &str) -> Self {
        let mut octets = Vec::with_capacity(text.len() + 2);
        for line in text.lines() {
            octets.extend_from_slice(line.as_bytes());
            octets.extend_from_slice(b"\r\n");
        }
        Self::Greeting { greeting, octets }
    }

    /// Returns a client hello that asks for a name.
    pub(super) fn asks_for(name: &str) -> Self {
        let client = TlsClient { names: vec![name.to_owned()], ..TlsClient::default() };
        let facts = TlsFacts { client: Some(client), ..TlsFacts::default() };
        Self::Tls { from: Side::Client, facts: Box::new(facts) }
    }
}

/// The name lists of an example's KEXINIT.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KexAlgorithms {
    pub(super) kex: String,
    pub(super) host_key: String,
    pub(super) encryption: NameListPair,
    pub(super) mac: NameListPair,
    pub(super) compression: NameListPair,
}

/// A name list for each direction; written once if both are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub(super) struct NameListPair {
    to_server: String,
    to_client: String,
}

impl From<String> for NameListPair {
    fn from(both: String) -> Self {
        Self { to_server: both.clone(), to_client: both }
    }
}

/// An HTTP message as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExampleMessage {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl ExampleMessage {
    /// Returns a message from a text whose lines may end with LF alone, and whose empty line may be
    /// missing.
    pub(super) fn from_text(text: &str) -> Self {
        let split = ["\r\n\r\n", "\n\n"].iter().filter_map(|end| text.split_once(end));
        let (head, body) = split.min_by_key(|(head, _)| head.len()).unwrap_or((text, ""));
        let mut octets = Vec::with_capacity(head.len() + 4);
        for line in head.trim_end_matches(['\r', '\n']).split('\n') {
            octets.extend_from_slice(line.strip_suffix('\r').unwrap_or(line).as_bytes());
            octets.extend_from_slice(b"\r\n");
        }
        octets.extend_from_slice(b"\r\n");
        Self { head: octets, body: body.as_bytes().to_vec() }
    }

    fn request(&self) -> Result<RequestHead<'_>, String> {
        match http::parse_request(&self.head) {
            ParseProgress::Done { value, .. } => Ok(RequestHead { body: &self.body, ..value.message }),
            ParseProgress::More => Err("the request is cut off".to_owned()),
            ParseProgress::Never(reason) => Err(reason.to_string()),
        }
    }

    fn response(&self) -> Result<ResponseHead<'_>, String> {
        match http::parse_response(&self.head) {
            ParseProgress::Done { value, .. } => Ok(ResponseHead { body: &self.body, ..value.message }),
            ParseProgress::More => Err("the response is cut off".to_owned()),
            ParseProgress::Never(reason) => Err(reason.to_string()),
        }
    }
}

impl RuleExample {
    /// Returns the protocol of a text, guessed from its beginning, or none if no banner begins like
    /// this.
    pub fn protocol_of(text: &str) -> Option<Protocol> {
        if text.as_bytes().starts_with(ssh::PREFIX) {
            return Some(Protocol::Ssh);
        }
        if text.starts_with("HTTP/") || text.contains(" HTTP/") {
            return Some(Protocol::Http);
        }
        match greeting::parse(format!("{text}\r\n").as_bytes(), 0) {
            ParseProgress::Done { value, .. } => Some(Protocol::Greeting(value.greeting)),
            _ => None,
        }
    }

    /// Returns an example from its text: an SSH identification line, an HTTP head, a greeting, or
    /// the name that a TLS client asks for.
    ///
    /// # Errors
    ///
    /// Returns the reason if the text is no banner of that protocol.
    pub fn from_text(text: &str, protocol: Protocol, from: BannerSender) -> Result<Self, String> {
        let content = match protocol {
            Protocol::Ssh => {
                let line = text.strip_suffix('\n').unwrap_or(text);
                let line = line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec();
                ExampleContent::Ssh { line, kex: None, hassh: None }
            }
            Protocol::Http => {
                let message = ExampleMessage::from_text(text);
                if text.starts_with("HTTP/") {
                    ExampleContent::Http { request: None, response: Some(message) }
                } else {
                    ExampleContent::Http { request: Some(message), response: None }
                }
            }
            Protocol::Tls => ExampleContent::asks_for(text),
            Protocol::Greeting(greeting) => ExampleContent::greeting(greeting, text),
            Protocol::Other => ExampleContent::Other(text.as_bytes().to_vec()),
        };
        let example = Self { place: TextPosition { line: 1, column: 1 }, content, product: None };
        example.check(from)?;
        Ok(example)
    }

    /// Adds the KEXINIT to an example of SSH. `octets` is what the side sends first (its
    /// identification may come before the KEXINIT), or a text with a line for each field: `kex =
    /// "…"`.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no KEXINIT.
    pub fn with_kexinit(mut self, octets: &[u8]) -> Result<Self, String> {
        let ExampleContent::Ssh { kex, .. } = &mut self.content else {
            return Err("only a banner of SSH has one".to_owned());
        };
        let identified = octets.split(|octet| *octet == b'\n').any(|line| line.starts_with(ssh::PREFIX));
        let read = match std::str::from_utf8(octets) {
            Ok(text) if !identified && !text.contains('\0') => KexAlgorithms::from_text(text)?,
            _ => KexAlgorithms::from_stream(octets)?,
        };
        if read == KexAlgorithms::default() {
            return Err("the KEXINIT is empty".to_owned());
        }
        *kex = Some(read);
        Ok(self)
    }

    /// Adds the product that a fingerprint database names.
    #[must_use]
    pub fn identified(mut self, from: BannerSender, fingerprints: &FingerprintSet) -> Self {
        let product = self.with(from, None, |banner, _, _| match banner {
            Banner::Ssh(banner) => fingerprints.ssh(SshSide::from(banner).software_version.as_bytes()),
            Banner::Response(response) => {
                let title = title(response.body);
                fingerprints.http_response(response, title.as_deref().map(str::as_bytes))
            }
            Banner::Greeting(banner) => fingerprints.greeting(banner),
            Banner::Request(_) | Banner::Tls(_) | Banner::Other(_) => None,
        });
        self.product = product.ok().flatten();
        self
    }

    /// Returns the example's position in its file.
    pub const fn place(&self) -> TextPosition {
        self.place
    }

    /// Returns the example in one line.
    pub fn summary(&self) -> String {
        let first_line = |message: &ExampleMessage| {
            let line = message.head.split(|octet| *octet == b'\r').next().unwrap_or_default();
            String::from_utf8_lossy(line).into_owned()
        };
        match &self.content {
            ExampleContent::Ssh { line, .. } => String::from_utf8_lossy(line).into_owned(),
            ExampleContent::Http { response: Some(message), .. }
            | ExampleContent::Http { request: Some(message), .. } => first_line(message),
            ExampleContent::Http { .. } => String::new(),
            ExampleContent::Greeting { octets, .. } => {
                let line = octets.split(|octet| *octet == b'\n').next().unwrap_or_default();
                String::from_utf8_lossy(line.trim_ascii_end()).into_owned()
            }
            ExampleContent::Tls { from, facts } => facts.line(*from),
            ExampleContent::Other(octets) => octets.escape_ascii().to_string(),
        }
    }

    /// Checks that the example is a banner of `from`.
    pub(super) fn check(&self, from: BannerSender) -> Result<(), String> {
        self.with(from, None, |_, _, _| ())
    }

    /// Calls `judge` with the banner, its context, and the HASSH if the example states it.
    ///
    /// If a response has no request, it counts as the answer to `answers`, the rule's request.
    pub(super) fn with<R>(
        &self,
        from: BannerSender,
        answers: Option<&ProbeRequest>,
        judge: impl FnOnce(&Banner<'_>, &BannerContext<'_>, Option<&str>) -> R,
    ) -> Result<R, String> {
        let now = SystemTime::now().into();
        let context = BannerContext {
            product: self.product.as_ref(),
            stage: BannerStage::Whole,
            now,
            ..BannerContext::default()
        };
        match &self.content {
            ExampleContent::Ssh { line, kex, hassh } => {
                let identification = identification(line)?;
                let from = if from == BannerSender::Client { Side::Client } else { Side::Server };
                let kex = kex.as_ref().map(KexAlgorithms::as_kex);
                // A HASSH without lists still means that a KEXINIT was seen.
                let kex = kex.or_else(|| hassh.as_ref().map(|_| KexInit::default()));
                let banner = Banner::Ssh(SshBanner { from, identification, kex });
                Ok(judge(&banner, &context, hassh.as_deref()))
            }
            ExampleContent::Http { request, response } => {
                let synthetic = answers.map(ExampleMessage::of_probe);
                let question = request.as_ref().or(synthetic.as_ref());
                let question = question.map(ExampleMessage::request).transpose()?;
                let Some(message) = response else {
                    let banner = Banner::Request(question.ok_or("the example has no message")?);
                    if from == BannerSender::Server {
                        return Err("a response begins with `HTTP/`".to_owned());
                    }
                    return Ok(judge(&banner, &context, None));
                };
                if from == BannerSender::Client {
                    return Err("this is a response; the rule is about requests".to_owned());
                }
                let context = BannerContext { request: question.as_ref(), ..context };
                Ok(judge(&Banner::Response(message.response()?), &context, None))
            }
            ExampleContent::Tls { from: side, facts } => {
                if !from.includes(*side) {
                    return Err(format!("this is what a {} says", side.name()));
                }
                let line = facts.line(*side);
                Ok(judge(&Banner::Tls(TlsBanner { from: *side, facts, line: &line }), &context, None))
            }
            ExampleContent::Other(octets) => {
                let banner = first_octets(octets, from)?;
                Ok(judge(&Banner::Other(banner), &context, None))
            }
            ExampleContent::Greeting { greeting, octets } => {
                Ok(judge(&Banner::Greeting(greeting_in(octets, *greeting)?), &context, None))
            }
        }
    }
}

fn identification(line: &[u8]) -> Result<SshIdentification<'_>, String> {
    if !line.starts_with(ssh::PREFIX) {
        return Err("an SSH banner begins with `SSH-`".to_owned());
    }
    if line.iter().any(|octet| matches!(octet, b'\n' | b'\r')) {
        return Err("an SSH banner is one line".to_owned());
    }
    Ok(ssh::parse_line(line).0)
}

/// Returns the greeting in `octets`, which must be one whole reply of that protocol.
fn greeting_in(octets: &[u8], wanted: GreetingProtocol) -> Result<GreetingBanner<'_>, String> {
    let port = wanted.ports().first().copied().unwrap_or_default();
    match greeting::parse(octets, port) {
        ParseProgress::Done { value, consumed } if value.greeting == wanted && consumed == octets.len() => {
            Ok(value)
        }
        ParseProgress::Done { .. } => Err("the greeting is of another protocol, or more than one".to_owned()),
        ParseProgress::More => Err("the greeting is cut off".to_owned()),
        ParseProgress::Never(reason) => Err(reason.to_string()),
    }
}

/// Returns first bytes as a banner. If the side is open, it is the one for which the bytes have a
/// name.
fn first_octets(octets: &[u8], from: BannerSender) -> Result<OtherBanner<'_>, String> {
    if octets.is_empty() {
        return Err("there are no bytes".to_owned());
    }
    let of = |side| OtherBanner::settled(side, octets);
    Ok(match from {
        BannerSender::Client => of(Side::Client),
        BannerSender::Server => of(Side::Server),
        BannerSender::Either if of(Side::Server).name.is_some() => of(Side::Server),
        BannerSender::Either => of(Side::Client),
    })
}

impl ExampleMessage {
    /// Returns the request that a scan would make for a rule.
    fn of_probe(probe: &ProbeRequest) -> Self {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: example\r\n", probe.method, probe.path);
        for (name, value) in &probe.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        Self::from_text(&text)
    }
}

impl From<&KexInit<'_>> for KexAlgorithms {
    fn from(kex: &KexInit<'_>) -> Self {
        let text = |list: &[u8]| String::from_utf8_lossy(list).into_owned();
        let directions =
            |to_server, to_client| NameListPair { to_server: text(to_server), to_client: text(to_client) };
        Self {
            kex: text(kex.kex),
            host_key: text(kex.host_key),
            encryption: directions(kex.encryption_client_to_server, kex.encryption_server_to_client),
            mac: directions(kex.mac_client_to_server, kex.mac_server_to_client),
            compression: directions(kex.compression_client_to_server, kex.compression_server_to_client),
        }
    }
}

impl KexAlgorithms {
    fn from_text(text: &str) -> Result<Self, String> {
        if let Some(at) = toml_nesting::too_deep(text) {
            return Err(format!("byte {}: brackets are nested too deeply", at.start));
        }
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }

    /// Reads the KEXINIT from what a side sends first, after its identification or without one.
    fn from_stream(octets: &[u8]) -> Result<Self, String> {
        let behind =
            octets.split_inclusive(|octet| *octet == b'\n').position(|line| line.starts_with(ssh::PREFIX));
        let lines = behind.map_or(0, |line| line + 1);
        let skipped: usize =
            octets.split_inclusive(|octet| *octet == b'\n').take(lines).map(<[u8]>::len).sum();
        let packet = octets.get(skipped..).unwrap_or_default();
        if packet.is_empty() {
            return Err("there is no KEXINIT behind the identification; some servers send it only once the \
                        client has identified itself"
                .to_owned());
        }
        match kexinit::parse(packet) {
            ParseProgress::Done { value, .. } => Ok(Self::from(&value)),
            ParseProgress::More => Err("the KEXINIT is cut off".to_owned()),
            ParseProgress::Never(reason) => Err(reason.to_string()),
        }
    }

    fn as_kex(&self) -> KexInit<'_> {
        KexInit {
            kex: self.kex.as_bytes(),
            host_key: self.host_key.as_bytes(),
            encryption_client_to_server: self.encryption.to_server.as_bytes(),
            encryption_server_to_client: self.encryption.to_client.as_bytes(),
            mac_client_to_server: self.mac.to_server.as_bytes(),
            mac_server_to_client: self.mac.to_client.as_bytes(),
            compression_client_to_server: self.compression.to_server.as_bytes(),
            compression_server_to_client: self.compression.to_client.as_bytes(),
        }
    }
}
