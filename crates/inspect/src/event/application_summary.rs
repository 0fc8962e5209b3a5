//! A summary of an application's facts, for flat output formats.

use std::borrow::Cow;

use crate::terms::Side;

/// A summary with the columns of a flat output format.
#[derive(Debug, Clone, Default)]
pub struct ApplicationSummary<'a> {
    /// The side that it is about: the server, if it was seen.
    pub from: Option<Side>,
    /// The text that names the software: an identification, a `Server` field, the first line of a
    /// greeting.
    pub banner: Option<Cow<'a, str>>,
    /// The same text without the parts that belong to the protocol.
    pub software: Option<Cow<'a, str>>,
    /// The product that a fingerprint database names.
    pub product: Option<&'a ProductFacts>,
    /// The client's banner and product, if the server's was also seen.
    pub client: Option<(&'a str, Option<&'a ProductFacts>)>,
    /// The status of a response.
    pub status: Option<u16>,
    /// A response's reason phrase; may be empty.
    pub reason: Option<&'a str>,
    /// The version of the protocol: `2.0`, `HTTP/1.0`.
    pub protocol_version: Option<&'a str>,
    /// The request target.
    pub url: Option<&'a str>,
    /// A page's title.
    pub title: Option<&'a str>,
}

/// Facts about a piece of software, from a fingerprint database or a rule's named groups.
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
    /// Operating system's vendor and product, if the banner shows it.
    pub os: Option<String>,
}
