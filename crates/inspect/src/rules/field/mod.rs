//! Names of a banner's fields in rules: one table for each protocol.

mod greeting;
mod http;
mod ssh;
mod tls;
mod unread_protocol;

use std::fmt;

use crate::event::{Protocol, Side};

/// The sender of the banners that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BannerSender {
    /// The client only.
    Client,
    /// The server only.
    Server,
    /// Both are judged.
    Either,
}

impl BannerSender {
    /// The name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Either => "either",
        }
    }

    /// True if a banner of `side` is judged.
    pub const fn includes(self, side: Side) -> bool {
        matches!(
            (self, side),
            (Self::Either, _) | (Self::Client, Side::Client) | (Self::Server, Side::Server)
        )
    }
}

/// A part of a banner that rules can test.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum BannerField {
    /// SSH: the identification line; greeting: each of its lines; unread protocol: the first line.
    Banner,
    /// SSH: `2.0`; HTTP: `HTTP/1.1`.
    Protocol,
    /// SSH: the software version, up to the first space.
    Software,
    /// SSH: everything after the first space.
    Comments,
    /// SSH: HASSH of a client.
    Hassh,
    /// SSH: HASSH of a server.
    HasshServer,
    /// SSH: the offered key exchange algorithms, comma-separated.
    Kex,
    /// SSH: the offered host key algorithms.
    HostKey,
    /// SSH: the offered ciphers, each direction by itself.
    Encryption,
    /// SSH: the offered MACs, each direction by itself.
    Mac,
    /// SSH: the offered compression, each direction by itself.
    Compression,
    /// SSH: the name of each marker that the KEXINIT shows.
    Marker,
    /// HTTP response: three digits.
    Status,
    /// HTTP response: the reason phrase.
    Reason,
    /// HTTP response: the text of the first `<title>`.
    Title,
    /// HTTP: the collected part of the body.
    Body,
    /// HTTP request: the method.
    Method,
    /// HTTP request: the request target.
    Url,
    /// HTTP: each value of a header field; the name in lower case.
    Header(String),
    /// TLS: each host name that a client asks for.
    Sni,
    /// TLS: each application protocol that a client offers, the one that a server chose.
    Alpn,
    /// TLS: the highest version that a client offers, the one that a server chose.
    TlsVersion,
    /// TLS: each cipher suite that a client offers, the one that a server chose.
    Cipher,
    /// TLS: JA3 of a client.
    Ja3,
    /// TLS: JA4 of a client.
    Ja4,
    /// TLS: JA3S of a server.
    Ja3s,
    /// TLS: `offered` if a client offers Encrypted Client Hello.
    Ech,
    /// TLS: the transport, `tcp` or `quic`.
    Transport,
    /// TLS: the description of an alert.
    Alert,
    /// TLS: the subject of the server's certificate.
    Subject,
    /// TLS: the issuer of the certificate.
    Issuer,
    /// TLS: each alternative name of the certificate.
    San,
    /// TLS: the certificate's serial number.
    Serial,
    /// TLS: start of the certificate's validity.
    NotBefore,
    /// TLS: end of the certificate's validity.
    NotAfter,
    /// TLS: the kind of its key.
    Key,
    /// TLS: the length of its key.
    KeyBits,
    /// TLS: the signature's algorithm.
    Signature,
    /// TLS: `true` if subject and issuer are the same.
    SelfSigned,
    /// TLS: its SHA-256.
    Sha256,
    /// TLS: each result of the certificate's verification.
    Verification,
    /// A greeting: `220`, `+OK`, `* OK`.
    Code,
    /// Greeting: the text of each line after the code.
    Text,
    /// Unread protocol: its name, by its first bytes: `tls`.
    Name,
    /// Unread protocol: its first bytes.
    First,
    /// Fingerprint: the product.
    Product,
    /// Fingerprint: the vendor.
    Vendor,
    /// Fingerprint: the product's version.
    ProductVersion,
    /// Fingerprint: the CPE name.
    Cpe,
    /// Fingerprint: the operating system.
    Os,
}

/// A name of a field, and its sender if only one side sends it.
pub(super) struct FieldRow {
    name: &'static str,
    field: BannerField,
    side: Option<Side>,
}

impl FieldRow {
    const fn either(name: &'static str, field: BannerField) -> Self {
        Self { name, field, side: None }
    }

    const fn of(side: Side, name: &'static str, field: BannerField) -> Self {
        Self { name, field, side: Some(side) }
    }
}

/// Fields of every protocol: those of a fingerprint.
const COMMON: &[FieldRow] = &[
    FieldRow::either("product", BannerField::Product),
    FieldRow::either("vendor", BannerField::Vendor),
    FieldRow::either("product_version", BannerField::ProductVersion),
    FieldRow::either("cpe", BannerField::Cpe),
    FieldRow::either("os", BannerField::Os),
];

/// Returns the fields with a fixed name that banners of `protocol` have.
const fn table(protocol: Protocol) -> &'static [FieldRow] {
    match protocol {
        Protocol::Ssh => ssh::FIELDS,
        Protocol::Http => http::FIELDS,
        Protocol::Tls => tls::FIELDS,
        Protocol::Greeting(_) => greeting::FIELDS,
        Protocol::Other => unread_protocol::FIELDS,
    }
}

/// The reason why a name is no field of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FieldFault {
    /// No rule has such a field.
    Unknown { nearest: Option<String> },
    /// Rules of another protocol have it.
    Protocol(Protocol),
    /// Only this side sends it.
    Side(Side),
    /// Not the name of a header field, RFC 9110 section 5.1.
    HeaderName,
}

impl BannerField {
    /// Returns the field `name` of a rule about `protocol` and `sender`. If these are unknown,
    /// because they are faulty themselves, any field passes.
    pub(super) fn parse(
        name: &str,
        protocol: Option<Protocol>,
        sender: Option<BannerSender>,
    ) -> Result<Self, FieldFault> {
        let (field, side) = Self::find(name, protocol, sender)?;
        match (side, sender) {
            (Some(side), Some(sender)) if sender == BannerSender::Either || !sender.includes(side) => {
                Err(FieldFault::Side(side))
            }
            _ => Ok(field),
        }
    }

    fn find(
        name: &str,
        protocol: Option<Protocol>,
        sender: Option<BannerSender>,
    ) -> Result<(Self, Option<Side>), FieldFault> {
        let own = |protocol: Protocol| {
            let rows = COMMON.iter().chain(table(protocol));
            let plain = rows.filter(|row| row.name == name).map(|row| (row.field.clone(), row.side)).next();
            match protocol {
                Protocol::Http => http::named(name).transpose().or(plain.map(Ok)),
                _ => plain.map(Ok),
            }
        };
        if let Some(found) = protocol.and_then(own) {
            return found;
        }
        let other = Protocol::all().find_map(|other| own(other).map(|found| (other, found)));
        match (protocol, other) {
            (None, Some((_, found))) => return found,
            (Some(_), Some((other, Ok(_)))) => return Err(FieldFault::Protocol(other)),
            _ => {}
        }
        let candidates = Self::names(protocol, sender);
        let nearest = super::suggest::nearest(name, candidates.iter().map(String::as_str)).map(str::to_owned);
        Err(FieldFault::Unknown { nearest })
    }

    /// Returns every name that a rule about `protocol` and `sender` may use.
    pub(super) fn names(protocol: Option<Protocol>, sender: Option<BannerSender>) -> Vec<String> {
        let fits = |side: Option<Side>| match (side, sender) {
            (None, _) | (_, None) => true,
            (Some(side), Some(sender)) => sender != BannerSender::Either && sender.includes(side),
        };
        let mut names: Vec<String> = Vec::new();
        for about in Protocol::all().filter(|about| protocol.is_none_or(|asked| asked == *about)) {
            let own = table(about).iter().filter(|row| fits(row.side)).map(|row| row.name.to_owned());
            let headers = (about == Protocol::Http).then(|| http::names(fits(Some(Side::Client))));
            names.extend(own.chain(headers.into_iter().flatten()));
        }
        names.extend(COMMON.iter().map(|row| row.name.to_owned()));
        let mut known = std::collections::HashSet::new();
        names.retain(|name| known.insert(name.clone()));
        names
    }

    /// Returns true if it needs the KEXINIT.
    pub(super) const fn needs_kex(&self) -> bool {
        matches!(
            self,
            Self::Hassh
                | Self::HasshServer
                | Self::Kex
                | Self::HostKey
                | Self::Encryption
                | Self::Mac
                | Self::Compression
                | Self::Marker
        )
    }

    /// Returns true if it needs the body.
    pub(super) const fn needs_body(&self) -> bool {
        matches!(self, Self::Title | Self::Body)
    }

    /// Returns true if it needs the server's certificate.
    pub(super) const fn needs_certificate(&self) -> bool {
        matches!(
            self,
            Self::Subject
                | Self::Issuer
                | Self::San
                | Self::Serial
                | Self::NotBefore
                | Self::NotAfter
                | Self::Key
                | Self::KeyBits
                | Self::Signature
                | Self::SelfSigned
                | Self::Sha256
                | Self::Verification
        )
    }

    /// Returns true if it comes after the head of a banner.
    pub(super) const fn comes_later(&self) -> bool {
        self.needs_kex() || self.needs_body() || self.needs_certificate()
    }

    /// Returns true if it comes from a fingerprint database.
    pub(super) const fn is_fingerprint(&self) -> bool {
        matches!(self, Self::Product | Self::Vendor | Self::ProductVersion | Self::Cpe | Self::Os)
    }
}

/// Returns a header field's name in lower case, or none if it is no token.
pub(super) fn header_name(name: &str) -> Option<String> {
    let token = |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet);
    (!name.is_empty() && name.as_bytes().iter().all(token)).then(|| name.to_ascii_lowercase())
}

impl fmt::Display for BannerField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Header(name) = self {
            return write!(formatter, "header.{name}");
        }
        let mut rows = Protocol::all().flat_map(table).chain(COMMON);
        formatter.write_str(rows.find(|row| row.field == *self).map_or("", |row| row.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_belong_to_a_protocol_and_a_side() {
        let parse = |name, protocol, sender| BannerField::parse(name, Some(protocol), Some(sender));
        assert_eq!(parse("software", Protocol::Ssh, BannerSender::Either), Ok(BannerField::Software));
        assert_eq!(
            parse("software", Protocol::Http, BannerSender::Server),
            Err(FieldFault::Protocol(Protocol::Ssh))
        );
        assert_eq!(
            parse("status", Protocol::Http, BannerSender::Client),
            Err(FieldFault::Side(Side::Server))
        );
        assert_eq!(parse("url", Protocol::Http, BannerSender::Either), Err(FieldFault::Side(Side::Client)));
        assert_eq!(
            parse("header.X-Powered-By", Protocol::Http, BannerSender::Server),
            Ok(BannerField::Header("x-powered-by".to_owned()))
        );
        assert_eq!(parse("header.a b", Protocol::Http, BannerSender::Server), Err(FieldFault::HeaderName));
        assert_eq!(
            parse("user_agent", Protocol::Http, BannerSender::Client),
            Ok(BannerField::Header("user-agent".to_owned()))
        );
    }

    #[test]
    fn a_near_miss_gets_a_suggestion_that_the_rule_may_use() {
        let nearest = |name, protocol, sender| match BannerField::parse(name, Some(protocol), Some(sender)) {
            Err(FieldFault::Unknown { nearest }) => nearest,
            other => panic!("{other:?}"),
        };
        assert_eq!(nearest("sofware", Protocol::Ssh, BannerSender::Server).as_deref(), Some("software"));
        assert_eq!(nearest("useragent", Protocol::Http, BannerSender::Client).as_deref(), Some("user_agent"));
        assert_eq!(nearest("xyzzy", Protocol::Ssh, BannerSender::Server), None);
    }

    #[test]
    fn each_field_shows_its_name() {
        for row in Protocol::all().flat_map(table).chain(COMMON) {
            assert_eq!(row.field.to_string(), row.name);
        }
    }

    #[test]
    fn each_field_stands_in_the_reference() {
        let names = BannerField::names(None, None).into_iter().filter(|name| name != "header.NAME");
        bannerwall_test_support::reference::assert_named("reference/rules.md", names);
    }
}
