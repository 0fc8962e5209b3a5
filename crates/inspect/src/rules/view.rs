//! A rule's view of a banner: its fields by name, and the facts about its connection.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::Duration;

use super::field::Field;
use super::marker::Marker;
use crate::banner::title::title;
use crate::banner::{
    Banner, GreetingBanner, Header, Headers, KexInit, Request, TlsBanner, greeting, same_name,
};
use crate::event::{Certificate, ProductFacts, Side, Timestamp};
use crate::terms::{CipherSuite, Verification};

/// Facts about a banner's connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// The client's address.
    pub source: Option<IpAddr>,
    /// The server's address.
    pub destination: Option<IpAddr>,
    /// The server's port.
    pub port: Option<u16>,
    /// The product that a fingerprint database names.
    pub product: Option<&'a ProductFacts>,
    /// The request that a response answers.
    pub request: Option<&'a Request<'a>>,
    /// The part of the banner that is known.
    pub stage: Stage,
    /// Time at which it was sent.
    pub now: Timestamp,
}

/// The part of a banner that is known, which decides the rules that are judged.
///
/// A caller that cannot wait judges twice: first with `Head`, then with `Rest`, when the KEXINIT or
/// the body was collected or will never come. Together these give the result of `Whole`, except for
/// the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
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
pub(super) struct View<'a> {
    pub(super) banner: &'a Banner<'a>,
    pub(super) context: &'a Context<'a>,
    status: [u8; 3],
    hassh: OnceCell<Option<String>>,
    title: OnceCell<Option<String>>,
    markers: OnceCell<Vec<Marker>>,
}

impl<'a> View<'a> {
    pub(super) fn new(banner: &'a Banner<'a>, context: &'a Context<'a>) -> Self {
        let status = match banner {
            Banner::Response(response) => digits(response.status),
            _ => *b"000",
        };
        let (hassh, title, markers) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { banner, context, status, hassh, title, markers }
    }

    /// Sets a HASSH that is known without the algorithm lists.
    pub(super) fn with_hassh(self, hassh: Option<&str>) -> Self {
        if let Some(hassh) = hassh {
            let _ = self.hassh.set(Some(hassh.to_owned()));
        }
        self
    }

    /// The header fields of an HTTP message.
    pub(super) fn headers(&self) -> Option<&'a Headers<'a>> {
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
    pub(super) fn markers(&self) -> &[Marker] {
        self.markers.get_or_init(|| match self.banner {
            Banner::Ssh(banner) => Marker::seen(banner),
            _ => Vec::new(),
        })
    }

    /// True if the server's certificate has expired or expires within a time.
    pub(super) fn expires_within(&self, time: Duration) -> bool {
        let Banner::Tls(banner) = self.banner else { return false };
        let certificate = banner.facts.certificate().filter(|it| !it.not_after.is_empty());
        certificate.is_some_and(|certificate| {
            let end = self.context.now.after(time).as_nanos() / 1_000_000_000;
            i64::try_from(end).is_ok_and(|end| certificate.expires < end)
        })
    }

    /// Returns every value of a field: none if the banner lacks it, several for repeated headers.
    pub(super) fn values<'v>(&'v self, field: &'v Field) -> Values<'v> {
        if let Field::Header(name) = field {
            return self
                .headers()
                .map_or(Values::NONE, |headers| Values::Headers { rest: headers.iter(), name });
        }
        if let Field::Product | Field::Vendor | Field::ProductVersion | Field::Cpe | Field::Os = field {
            return Values::one(self.fingerprint(field));
        }
        match self.banner {
            Banner::Ssh(banner) => match field {
                Field::Banner => Values::one(Some(banner.identification.line)),
                Field::Protocol => Values::one(Some(banner.identification.protocol_version)),
                Field::Software => Values::one(Some(banner.identification.software)),
                Field::Comments => Values::one(banner.identification.comments),
                _ => self.algorithms(field),
            },
            Banner::Tls(banner) => tls(banner, field),
            Banner::Greeting(banner) => match field {
                Field::Banner => Values::Lines(banner.lines(), None),
                Field::Text => Values::Lines(banner.lines(), Some(banner)),
                Field::Code => Values::one(Some(banner.code())),
                _ => Values::NONE,
            },
            Banner::Other(banner) => Values::one(match field {
                Field::Name => Some(banner.name().as_bytes()),
                Field::First => Some(banner.first),
                Field::Banner => Some(banner.line()),
                _ => None,
            }),
            Banner::Request(request) => Values::one(match field {
                Field::Protocol => Some(request.version),
                Field::Method => Some(request.method),
                Field::Url => Some(request.url),
                Field::Body => Some(request.body),
                _ => None,
            }),
            Banner::Response(response) => Values::one(match field {
                Field::Protocol => Some(response.version),
                Field::Status => Some(self.status.as_slice()),
                Field::Reason => Some(response.reason),
                Field::Body => Some(response.body),
                Field::Title => self.title.get_or_init(|| title(response.body)).as_deref().map(str::as_bytes),
                _ => None,
            }),
        }
    }

    fn algorithms<'v>(&'v self, field: &Field) -> Values<'v> {
        let Some(kex) = self.kex() else { return Values::NONE };
        match field {
            Field::Hassh | Field::HasshServer => {
                let hash = || Some(kex.hassh_of(self.banner.from()).hash);
                Values::one(self.hassh.get_or_init(hash).as_deref().map(str::as_bytes))
            }
            Field::Kex => Values::one(Some(kex.kex)),
            Field::HostKey => Values::one(Some(kex.host_key)),
            Field::Encryption => {
                Values::two(kex.encryption_client_to_server, kex.encryption_server_to_client)
            }
            Field::Mac => Values::two(kex.mac_client_to_server, kex.mac_server_to_client),
            Field::Compression => {
                Values::two(kex.compression_client_to_server, kex.compression_server_to_client)
            }
            Field::Marker => Values::Markers(self.markers().iter()),
            _ => Values::NONE,
        }
    }

    fn fingerprint(&self, field: &Field) -> Option<&'a [u8]> {
        let facts = self.context.product?;
        let text = match field {
            Field::Product => &facts.product,
            Field::Vendor => &facts.vendor,
            Field::ProductVersion => &facts.version,
            Field::Cpe => &facts.cpe,
            Field::Os => &facts.os,
            _ => &None,
        };
        text.as_deref().map(str::as_bytes)
    }
}

/// Returns the values of a field of one side's handshake.
fn tls<'v>(banner: &TlsBanner<'v>, field: &Field) -> Values<'v> {
    if *field == Field::Alert {
        let alert = banner.facts.alert.filter(|alert| alert.from == banner.from);
        return Values::one(alert.map(|alert| alert.code.name().as_bytes()));
    }
    match (banner.from, &banner.facts.client, &banner.facts.server) {
        (Side::Client, Some(client), _) => match field {
            Field::Sni => Values::Texts(client.names.iter()),
            Field::Alpn => Values::Texts(client.alpn.iter()),
            Field::TlsVersion => Values::one(Some(client.version.name().as_bytes())),
            Field::Cipher => Values::Ciphers(client.ciphers.iter()),
            Field::Ja3 => Values::one(Some(client.ja3.hash.as_bytes())),
            Field::Ja4 => Values::one(Some(client.ja4.as_bytes())),
            Field::Ech => Values::one(client.ech.then_some(b"offered")),
            Field::Transport => Values::one(Some(if banner.facts.quic.is_some() { b"quic" } else { b"tcp" })),
            _ => Values::NONE,
        },
        (Side::Server, ..) if *field == Field::Verification => {
            Values::Verifications(banner.facts.verification.iter())
        }
        (Side::Server, ..) if field.needs_certificate() => {
            banner.facts.certificate().map_or(Values::NONE, |certificate| certified(certificate, field))
        }
        (Side::Server, _, Some(server)) => Values::one(match field {
            Field::Alpn => server.alpn.as_deref().map(str::as_bytes),
            Field::TlsVersion => Some(server.version.name().as_bytes()),
            Field::Cipher => Some(server.cipher.name().as_bytes()),
            Field::Ja3s => Some(server.ja3s.hash.as_bytes()),
            _ => None,
        }),
        _ => Values::NONE,
    }
}

/// Returns the values of a field of a server's certificate.
fn certified<'v>(certificate: &'v Certificate, field: &Field) -> Values<'v> {
    let text = match field {
        Field::San => return Values::Texts(certificate.names.iter()),
        Field::Subject => &certificate.subject,
        Field::Issuer => &certificate.issuer,
        Field::Serial => &certificate.serial,
        Field::NotBefore => &certificate.not_before,
        Field::NotAfter => &certificate.not_after,
        Field::Key => &certificate.key,
        Field::KeyBits => &certificate.key_bits,
        Field::Signature => &certificate.signature,
        Field::Sha256 => &certificate.sha256,
        Field::SelfSigned if certificate.self_signed => "true",
        _ => "false",
    };
    // A part that could not be read is empty; it counts as absent.
    Values::one(Some(text.as_bytes()).filter(|text| !text.is_empty()))
}

/// A status code as three digits.
fn digits(status: u16) -> [u8; 3] {
    let digit = |divisor: u16| b'0' + u8::try_from(status / divisor % 10).unwrap_or(0);
    [digit(100), digit(10), digit(1)]
}

/// The values of one field.
pub(super) enum Values<'v> {
    /// At most two values.
    Few(Option<&'v [u8]>, Option<&'v [u8]>),
    /// Values of a header field.
    Headers {
        /// Fields that are still to be compared.
        rest: std::slice::Iter<'v, Header<'v>>,
        /// Name in lower case.
        name: &'v str,
    },
    /// Lines of a greeting; with the banner, the text of each line after the code.
    Lines(greeting::Lines<'v>, Option<&'v GreetingBanner<'v>>),
    /// Several texts.
    Texts(std::slice::Iter<'v, String>),
    /// Names of markers.
    Markers(std::slice::Iter<'v, Marker>),
    /// Names of cipher suites.
    Ciphers(std::slice::Iter<'v, CipherSuite>),
    /// Results of a certificate's verification.
    Verifications(std::slice::Iter<'v, Verification>),
}

impl<'v> Values<'v> {
    const NONE: Self = Self::Few(None, None);

    const fn one(value: Option<&'v [u8]>) -> Self {
        Self::Few(value, None)
    }

    fn two(first: &'v [u8], second: &'v [u8]) -> Self {
        Self::Few(Some(first), (first != second).then_some(second))
    }
}

impl<'v> Iterator for Values<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        match self {
            Self::Few(first, second) => first.take().or_else(|| second.take()),
            Self::Headers { rest, name } => {
                rest.find(|header| same_name(header.name, name)).map(|header| header.value)
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
