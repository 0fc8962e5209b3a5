//! A rule's view of a banner: its fields by name, and the facts about its connection.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::Duration;

use super::field::BannerField;
use super::host_name::{lookups, lookups_of_target};
use super::kex_marker::KexMarker;
use crate::banner::html_title::title;
use crate::banner::{
    Banner, GreetingBanner, HttpHeader, HttpHeaders, KexInit, RequestHead, TlsBanner, greeting, same_name,
};
use crate::event::{CertificateFacts, ProductFacts, Side, Timestamp};
use crate::terms::{CertificateVerification, CipherSuite};

/// Facts about a banner's connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct BannerContext<'a> {
    /// The client's address.
    pub source: Option<IpAddr>,
    /// The server's address.
    pub destination: Option<IpAddr>,
    /// The server's port.
    pub port: Option<u16>,
    /// The product that a fingerprint database names.
    pub product: Option<&'a ProductFacts>,
    /// The request that a response answers.
    pub request: Option<&'a RequestHead<'a>>,
    /// The part of the banner that is known.
    pub stage: BannerStage,
    /// Time at which it was sent.
    pub now: Timestamp,
}

/// The part of a banner that is known, which decides the rules that are judged.
///
/// A caller that cannot wait judges twice: first with `Head`, then with `Rest`, when the KEXINIT or
/// the body was collected or will never come. Together these give the result of `Whole`, except for
/// the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BannerStage {
    /// The whole banner: every rule is judged.
    #[default]
    Whole,
    /// The KEXINIT or the body may follow: rules that need them wait.
    Head,
    /// Only the rules that `Head` left out.
    Rest,
    /// A part of an HTTP head and no more: rules are left out that ask for what is not there (`absent`,
    /// A part of an HTTP head. Rules wait if they require something to be absent (`absent`,
    /// `unless`) or need data after the head.
    Part,
}

/// A banner with its context. Derived fields are computed on first use.
pub(super) struct BannerView<'a> {
    pub(super) banner: &'a Banner<'a>,
    pub(super) context: &'a BannerContext<'a>,
    status: [u8; 3],
    hassh: OnceCell<Option<String>>,
    title: OnceCell<Option<String>>,
    markers: OnceCell<Vec<KexMarker>>,
    hosts: OnceCell<Vec<String>>,
}

impl<'a> BannerView<'a> {
    pub(super) fn new(banner: &'a Banner<'a>, context: &'a BannerContext<'a>) -> Self {
        let status = match banner {
            Banner::Response(response) => digits(response.status),
            _ => *b"000",
        };
        let (hassh, title) = (OnceCell::new(), OnceCell::new());
        let (markers, hosts) = (OnceCell::new(), OnceCell::new());
        Self { banner, context, status, hassh, title, markers, hosts }
    }

    /// Sets a HASSH that is known without the algorithm lists.
    pub(super) fn with_hassh(self, hassh: Option<&str>) -> Self {
        if let Some(hassh) = hassh {
            let _ = self.hassh.set(Some(hassh.to_owned()));
        }
        self
    }

    /// The header fields of an HTTP message.
    pub(super) fn headers(&self) -> Option<&'a HttpHeaders<'a>> {
        match self.banner {
            Banner::Ssh(_) | Banner::Tls(_) | Banner::Greeting(_) | Banner::Other(_) => None,
            Banner::Request(request) => Some(&request.headers),
            Banner::Response(response) => Some(&response.headers),
        }
    }

    /// The KEXINIT, if it was seen.
    pub(super) fn kex(&self) -> Option<&'a KexInit<'a>> {
        match self.banner {
            Banner::Ssh(banner) => banner.kex.as_ref(),
            _ => None,
        }
    }

    /// The markers that the KEXINIT shows.
    pub(super) fn markers(&self) -> &[KexMarker] {
        self.markers.get_or_init(|| match self.banner {
            Banner::Ssh(banner) => KexMarker::seen(banner),
            _ => Vec::new(),
        })
    }

    /// True if the server's certificate has expired or expires within a time.
    pub(super) fn expires_within(&self, time: Duration) -> bool {
        let Banner::Tls(banner) = self.banner else { return false };
        // Without a readable end, nothing is known about the expiry, and `expires` holds no date.
        let certificate = banner.facts.certificate().filter(|it| !it.not_after.is_empty());
        certificate.is_some_and(|certificate| {
            let end = self.context.now.after(time).as_nanos() / 1_000_000_000;
            i64::try_from(end).is_ok_and(|end| certificate.expires < end)
        })
    }

    /// Returns every value of a field: none if the banner lacks it, several for repeated headers.
    pub(super) fn values<'v>(&'v self, field: &'v BannerField) -> FieldValues<'v> {
        if let BannerField::Header(name) = field {
            let Some(headers) = self.headers() else { return FieldValues::NONE };
            let hosts: &[String] = if name == HOST { self.hosts() } else { &[] };
            return FieldValues::Headers { rest: headers.iter(), name, hosts: hosts.iter() };
        }
        if let BannerField::Product
        | BannerField::Vendor
        | BannerField::ProductVersion
        | BannerField::Cpe
        | BannerField::Os = field
        {
            return FieldValues::one(self.fingerprint(field));
        }
        match self.banner {
            Banner::Ssh(banner) => match field {
                BannerField::Banner => FieldValues::one(Some(banner.identification.line)),
                BannerField::Protocol => FieldValues::one(Some(banner.identification.protocol_version)),
                BannerField::Software => FieldValues::one(Some(banner.identification.software)),
                BannerField::Comments => FieldValues::one(banner.identification.comments),
                _ => self.algorithms(field),
            },
            Banner::Tls(banner) if *field == BannerField::Sni => self.requested(banner),
            Banner::Tls(banner) => tls(banner, field),
            Banner::Greeting(banner) => match field {
                BannerField::Banner => FieldValues::Lines(banner.lines(), None),
                BannerField::Text => FieldValues::Lines(banner.lines(), Some(banner)),
                BannerField::Code => FieldValues::one(Some(banner.code())),
                _ => FieldValues::NONE,
            },
            Banner::Other(banner) => FieldValues::one(match field {
                BannerField::Name => Some(banner.name().as_bytes()),
                BannerField::First => Some(banner.first),
                BannerField::Banner => Some(banner.line()),
                _ => None,
            }),
            Banner::Request(request) => FieldValues::one(match field {
                BannerField::Protocol => Some(request.version),
                BannerField::Method => Some(request.method),
                BannerField::Url => Some(request.url),
                BannerField::Body => Some(request.body),
                _ => None,
            }),
            Banner::Response(response) => FieldValues::one(match field {
                BannerField::Protocol => Some(response.version),
                BannerField::Status => Some(self.status.as_slice()),
                BannerField::Reason => Some(response.reason),
                BannerField::Body => Some(response.body),
                BannerField::Title => {
                    self.title.get_or_init(|| title(response.body)).as_deref().map(str::as_bytes)
                }
                _ => None,
            }),
        }
    }

    /// Returns each name that a client asks for as it was sent, and as servers look it up.
    fn requested<'v>(&'v self, banner: &TlsBanner<'v>) -> FieldValues<'v> {
        let Some(client) = banner.facts.client.as_ref().filter(|_| banner.from == Side::Client) else {
            return FieldValues::NONE;
        };
        FieldValues::Texts(client.names.iter().chain(self.hosts()))
    }

    /// Names of hosts as servers look them up, where they differ from those that a client sent.
    pub(super) fn hosts(&self) -> &[String] {
        self.hosts.get_or_init(|| match self.banner {
            Banner::Tls(TlsBanner { facts, .. }) => {
                let names = facts.client.iter().flat_map(|client| &client.names);
                names.flat_map(|name| lookups(name.as_bytes())).collect()
            }
            Banner::Request(request) => {
                // RFC 9112 section 3.2.2: the target's authority counts, whatever Host says.
                let target = lookups_of_target(request.method, request.url);
                request.headers.all(HOST).flat_map(lookups).chain(target).collect()
            }
            _ => Vec::new(),
        })
    }

    fn algorithms<'v>(&'v self, field: &BannerField) -> FieldValues<'v> {
        let Some(kex) = self.kex() else { return FieldValues::NONE };
        match field {
            BannerField::Hassh | BannerField::HasshServer => {
                let hash = || Some(kex.hassh_of(self.banner.from()).hash);
                FieldValues::one(self.hassh.get_or_init(hash).as_deref().map(str::as_bytes))
            }
            BannerField::Kex => FieldValues::one(Some(kex.kex)),
            BannerField::HostKey => FieldValues::one(Some(kex.host_key)),
            BannerField::Encryption => {
                FieldValues::two(kex.encryption_client_to_server, kex.encryption_server_to_client)
            }
            BannerField::Mac => FieldValues::two(kex.mac_client_to_server, kex.mac_server_to_client),
            BannerField::Compression => {
                FieldValues::two(kex.compression_client_to_server, kex.compression_server_to_client)
            }
            BannerField::Marker => FieldValues::Markers(self.markers().iter()),
            _ => FieldValues::NONE,
        }
    }

    fn fingerprint(&self, field: &BannerField) -> Option<&'a [u8]> {
        let facts = self.context.product?;
        let text = match field {
            BannerField::Product => &facts.product,
            BannerField::Vendor => &facts.vendor,
            BannerField::ProductVersion => &facts.version,
            BannerField::Cpe => &facts.cpe,
            BannerField::Os => &facts.os,
            _ => &None,
        };
        text.as_deref().map(str::as_bytes)
    }
}

/// The field that names the requested host.
pub(super) const HOST: &str = "host";

/// Returns the values of a field of one side's handshake.
fn tls<'v>(banner: &TlsBanner<'v>, field: &BannerField) -> FieldValues<'v> {
    if *field == BannerField::Alert {
        // The facts are those of both sides; an alert is only its sender's.
        let alert = banner.facts.alert.filter(|alert| alert.from == banner.from);
        return FieldValues::one(alert.map(|alert| alert.code.name().as_bytes()));
    }
    match (banner.from, &banner.facts.client, &banner.facts.server) {
        (Side::Client, Some(client), _) => match field {
            BannerField::Alpn => FieldValues::texts(&client.alpn),
            BannerField::TlsVersion => FieldValues::one(Some(client.version.name().as_bytes())),
            BannerField::Cipher => FieldValues::Ciphers(client.ciphers.iter()),
            BannerField::Ja3 => FieldValues::one(Some(client.ja3.hash.as_bytes())),
            BannerField::Ja4 => FieldValues::one(Some(client.ja4.as_bytes())),
            BannerField::Ech => FieldValues::one(client.ech.then_some(b"offered")),
            BannerField::Transport => {
                FieldValues::one(Some(if banner.facts.quic.is_some() { b"quic" } else { b"tcp" }))
            }
            _ => FieldValues::NONE,
        },
        (Side::Server, ..) if *field == BannerField::Verification => {
            FieldValues::Verifications(banner.facts.verification.iter())
        }
        (Side::Server, ..) if field.needs_certificate() => {
            banner.facts.certificate().map_or(FieldValues::NONE, |certificate| certified(certificate, field))
        }
        (Side::Server, _, Some(server)) => FieldValues::one(match field {
            BannerField::Alpn => server.alpn.as_deref().map(str::as_bytes),
            BannerField::TlsVersion => Some(server.version.name().as_bytes()),
            BannerField::Cipher => Some(server.cipher.name().as_bytes()),
            BannerField::Ja3s => Some(server.ja3s.hash.as_bytes()),
            _ => None,
        }),
        _ => FieldValues::NONE,
    }
}

/// Returns the values of a field of a server's certificate.
fn certified<'v>(certificate: &'v CertificateFacts, field: &BannerField) -> FieldValues<'v> {
    let text = match field {
        BannerField::San => return FieldValues::texts(&certificate.names),
        BannerField::Subject => &certificate.subject,
        BannerField::Issuer => &certificate.issuer,
        BannerField::Serial => &certificate.serial,
        BannerField::NotBefore => &certificate.not_before,
        BannerField::NotAfter => &certificate.not_after,
        BannerField::Key => &certificate.key,
        BannerField::KeyBits => &certificate.key_bits,
        BannerField::Signature => &certificate.signature,
        BannerField::Sha256 => &certificate.sha256,
        BannerField::SelfSigned if certificate.self_signed => "true",
        _ => "false",
    };
    // A part that could not be read is empty; it counts as absent.
    FieldValues::one(Some(text.as_bytes()).filter(|text| !text.is_empty()))
}

/// A status code as three digits.
fn digits(status: u16) -> [u8; 3] {
    let digit = |divisor: u16| b'0' + u8::try_from(status / divisor % 10).unwrap_or(0);
    [digit(100), digit(10), digit(1)]
}

/// The values of one field.
pub(super) enum FieldValues<'v> {
    /// At most two values.
    Few(Option<&'v [u8]>, Option<&'v [u8]>),
    /// Values of a header field.
    Headers {
        /// Fields that are still to be compared.
        rest: std::slice::Iter<'v, HttpHeader<'v>>,
        /// Name in lower case.
        name: &'v str,
        /// Further values.
        hosts: std::slice::Iter<'v, String>,
    },
    /// Lines of a greeting; with the banner, the text of each line after the code.
    Lines(greeting::ReplyLines<'v>, Option<&'v GreetingBanner<'v>>),
    /// Several texts.
    Texts(std::iter::Chain<std::slice::Iter<'v, String>, std::slice::Iter<'v, String>>),
    /// Names of markers.
    Markers(std::slice::Iter<'v, KexMarker>),
    /// Names of cipher suites.
    Ciphers(std::slice::Iter<'v, CipherSuite>),
    /// Results of a certificate's verification.
    Verifications(std::slice::Iter<'v, CertificateVerification>),
}

impl<'v> FieldValues<'v> {
    const NONE: Self = Self::Few(None, None);

    const fn one(value: Option<&'v [u8]>) -> Self {
        Self::Few(value, None)
    }

    fn texts(texts: &'v [String]) -> Self {
        Self::Texts(texts.iter().chain(&[]))
    }

    fn two(first: &'v [u8], second: &'v [u8]) -> Self {
        // Most sides offer the same list in both directions. It is searched once.
        Self::Few(Some(first), (first != second).then_some(second))
    }
}

impl<'v> Iterator for FieldValues<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        match self {
            Self::Few(first, second) => first.take().or_else(|| second.take()),
            Self::Headers { rest, name, hosts } => {
                let value = rest.find(|header| same_name(header.name, name)).map(|header| header.value);
                value.or_else(|| hosts.next().map(String::as_bytes))
            }
            Self::Texts(texts) => texts.next().map(String::as_bytes),
            Self::Verifications(told) => told.next().map(|told| told.name().as_bytes()),
            Self::Markers(markers) => markers.next().map(|marker| marker.name().as_bytes()),
            Self::Ciphers(ciphers) => ciphers.next().map(|cipher| cipher.name().as_bytes()),
            Self::Lines(lines, None) => lines.next(),
            Self::Lines(lines, Some(banner)) => lines.next().map(|line| banner.text(line)),
        }
    }
}
