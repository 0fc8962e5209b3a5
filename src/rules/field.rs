//! The names by which rules speak of parts of a banner.

use std::fmt;

use crate::event::{Protocol, Side};

/// Who sent the banner that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// The client only.
    Client,
    /// The server only.
    Server,
    /// Both are judged.
    Either,
}

impl Sender {
    /// The name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Either => "either",
        }
    }

    /// Whether a banner of `side` is judged.
    pub const fn includes(self, side: Side) -> bool {
        matches!(
            (self, side),
            (Self::Either, _) | (Self::Client, Side::Client) | (Self::Server, Side::Server)
        )
    }
}

/// A part of a banner that patterns can be tried on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Field {
    /// SSH: the whole identification line.
    Banner,
    /// SSH: `2.0`; HTTP: `HTTP/1.1`.
    Protocol,
    /// SSH: the software version, up to the first space.
    Software,
    /// SSH: everything behind the first space.
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
    /// HTTP response: three digits.
    Status,
    /// HTTP response: the reason phrase.
    Reason,
    /// HTTP response: the text of the first `<title>`.
    Title,
    /// HTTP: what of the body was collected.
    Body,
    /// HTTP request: the method.
    Method,
    /// HTTP request: the request target.
    Url,
    /// HTTP: each value of a header field; the name in lower case.
    Header(String),
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

/// Which banners have a field.
struct Scope {
    protocol: Option<Protocol>,
    side: Option<Side>,
}

const SSH: Scope = Scope { protocol: Some(Protocol::Ssh), side: None };
const HTTP: Scope = Scope { protocol: Some(Protocol::Http), side: None };
const REQUEST: Scope = Scope { protocol: Some(Protocol::Http), side: Some(Side::Client) };
const RESPONSE: Scope = Scope { protocol: Some(Protocol::Http), side: Some(Side::Server) };
const ALL: Scope = Scope { protocol: None, side: None };

/// The fields with one name each; `header.NAME` comes beside them.
const FIELDS: &[(&str, Field, Scope)] = &[
    ("banner", Field::Banner, SSH),
    ("protocol", Field::Protocol, ALL),
    ("software", Field::Software, SSH),
    ("comments", Field::Comments, SSH),
    ("hassh", Field::Hassh, Scope { protocol: Some(Protocol::Ssh), side: Some(Side::Client) }),
    ("hassh_server", Field::HasshServer, Scope { protocol: Some(Protocol::Ssh), side: Some(Side::Server) }),
    ("kex", Field::Kex, SSH),
    ("host_key", Field::HostKey, SSH),
    ("encryption", Field::Encryption, SSH),
    ("mac", Field::Mac, SSH),
    ("compression", Field::Compression, SSH),
    ("status", Field::Status, RESPONSE),
    ("reason", Field::Reason, RESPONSE),
    ("title", Field::Title, RESPONSE),
    ("body", Field::Body, HTTP),
    ("method", Field::Method, REQUEST),
    ("url", Field::Url, REQUEST),
    ("product", Field::Product, ALL),
    ("vendor", Field::Vendor, ALL),
    ("product_version", Field::ProductVersion, ALL),
    ("cpe", Field::Cpe, ALL),
    ("os", Field::Os, ALL),
];

/// Header fields with a short name, of requests only.
const SHORT_HEADERS: &[(&str, &str)] = &[("host", "host"), ("user_agent", "user-agent")];

/// Why a name is no field of a rule.
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

impl Field {
    /// The field `name` of a rule about `protocol` and `sender`; where these are unknown (they are at
    /// fault themselves), any field passes.
    pub(super) fn parse(
        name: &str,
        protocol: Option<Protocol>,
        sender: Option<Sender>,
    ) -> Result<Self, FieldFault> {
        let (field, scope) = Self::find(name, protocol, sender)?;
        match (scope.protocol, protocol) {
            (Some(needed), Some(given)) if needed != given => return Err(FieldFault::Protocol(needed)),
            _ => {}
        }
        match (scope.side, sender) {
            (Some(Side::Client), Some(Sender::Server | Sender::Either)) => {
                Err(FieldFault::Side(Side::Client))
            }
            (Some(Side::Server), Some(Sender::Client | Sender::Either)) => {
                Err(FieldFault::Side(Side::Server))
            }
            _ => Ok(field),
        }
    }

    fn find(
        name: &str,
        protocol: Option<Protocol>,
        sender: Option<Sender>,
    ) -> Result<(Self, &'static Scope), FieldFault> {
        if let Some(header) = name.strip_prefix("header.") {
            let header = header_name(header).ok_or(FieldFault::HeaderName)?;
            return Ok((Self::Header(header), &HTTP));
        }
        if let Some((_, header)) = SHORT_HEADERS.iter().find(|(short, _)| *short == name) {
            return Ok((Self::Header((*header).to_owned()), &REQUEST));
        }
        if let Some((_, field, scope)) = FIELDS.iter().find(|(known, _, _)| *known == name) {
            return Ok((field.clone(), scope));
        }
        let candidates = Self::names(protocol, sender);
        let nearest = super::suggest::nearest(name, candidates.iter().map(String::as_str)).map(str::to_owned);
        Err(FieldFault::Unknown { nearest })
    }

    /// Every name that a rule about `protocol` and `sender` may use.
    pub(super) fn names(protocol: Option<Protocol>, sender: Option<Sender>) -> Vec<String> {
        let fits = |scope: &Scope| {
            let protocols = scope.protocol.is_none() || protocol.is_none() || scope.protocol == protocol;
            let sides = match (scope.side, sender) {
                (None, _) | (_, None) => true,
                (Some(side), Some(sender)) => sender != Sender::Either && sender.includes(side),
            };
            protocols && sides
        };
        let plain = FIELDS.iter().filter(|(_, _, scope)| fits(scope)).map(|(name, _, _)| (*name).to_owned());
        let short = SHORT_HEADERS.iter().filter(|_| fits(&REQUEST)).map(|(name, _)| (*name).to_owned());
        let headers = fits(&HTTP).then(|| "header.NAME".to_owned());
        plain.chain(short).chain(headers).collect()
    }

    /// Whether it is known only once the KEXINIT was seen.
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
        )
    }

    /// Whether it is known only once some of the body was seen.
    pub(super) const fn needs_body(&self) -> bool {
        matches!(self, Self::Title | Self::Body)
    }

    /// Whether it comes from a fingerprint database and not from the banner itself.
    pub(super) const fn is_fingerprint(&self) -> bool {
        matches!(self, Self::Product | Self::Vendor | Self::ProductVersion | Self::Cpe | Self::Os)
    }
}

/// A header field's name in lower case, none where it is not a token.
pub(super) fn header_name(name: &str) -> Option<String> {
    let token = |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet);
    (!name.is_empty() && name.as_bytes().iter().all(token)).then(|| name.to_ascii_lowercase())
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Header(name) = self {
            return write!(formatter, "header.{name}");
        }
        let known = FIELDS.iter().find(|(_, field, _)| field == self);
        formatter.write_str(known.map_or("", |(name, _, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_belong_to_a_protocol_and_a_side() {
        let parse = |name, protocol, sender| Field::parse(name, Some(protocol), Some(sender));
        assert_eq!(parse("software", Protocol::Ssh, Sender::Either), Ok(Field::Software));
        assert_eq!(
            parse("software", Protocol::Http, Sender::Server),
            Err(FieldFault::Protocol(Protocol::Ssh))
        );
        assert_eq!(parse("status", Protocol::Http, Sender::Client), Err(FieldFault::Side(Side::Server)));
        assert_eq!(parse("url", Protocol::Http, Sender::Either), Err(FieldFault::Side(Side::Client)));
        assert_eq!(
            parse("header.X-Powered-By", Protocol::Http, Sender::Server),
            Ok(Field::Header("x-powered-by".to_owned()))
        );
        assert_eq!(parse("header.a b", Protocol::Http, Sender::Server), Err(FieldFault::HeaderName));
        assert_eq!(
            parse("user_agent", Protocol::Http, Sender::Client),
            Ok(Field::Header("user-agent".to_owned()))
        );
    }

    #[test]
    fn a_near_miss_gets_a_suggestion_that_the_rule_may_use() {
        let nearest = |name, protocol, sender| match Field::parse(name, Some(protocol), Some(sender)) {
            Err(FieldFault::Unknown { nearest }) => nearest,
            other => panic!("{other:?}"),
        };
        assert_eq!(nearest("sofware", Protocol::Ssh, Sender::Server).as_deref(), Some("software"));
        assert_eq!(nearest("useragent", Protocol::Http, Sender::Client).as_deref(), Some("user_agent"));
        assert_eq!(nearest("xyzzy", Protocol::Ssh, Sender::Server), None);
    }

    #[test]
    fn each_field_shows_its_name() {
        for (name, field, _) in FIELDS {
            assert_eq!(field.to_string(), *name);
        }
    }
}
