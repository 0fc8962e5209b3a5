//! EVE's `quic` object.

use std::borrow::Cow;

use serde::Serialize;

use super::application::EveDetail;
use super::tls::Ja3Object;
use crate::event::{TlsClient, TlsFacts};
use crate::terms::QuicVersion;

/// Numbers of extensions, IANA's registry.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// EVE's `quic`.
#[derive(Debug, Serialize)]
pub(super) struct EveQuic<'a> {
    version: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sni: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ja3: Option<Ja3Object<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ja4: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<EveQuicExtension<'a>>,
}

/// An extension of the client's hello.
#[derive(Debug, Serialize)]
struct EveQuicExtension<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    r#type: u16,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    values: &'a [String],
}

impl<'a> EveQuic<'a> {
    pub(super) fn new(facts: &'a TlsFacts, version: QuicVersion, extent: EveDetail) -> Self {
        let client = facts.client.as_ref();
        Self {
            version: version.name(),
            sni: facts.name(),
            ja3: client.map(|client| Ja3Object::new(&client.ja3)),
            ja4: client.map(|client| client.ja4.as_str()),
            extensions: client.filter(|_| !extent.brief).map(extensions).unwrap_or_default(),
        }
    }
}

fn extensions(client: &TlsClient) -> Vec<EveQuicExtension<'_>> {
    let extension = |number: &u16| match *number {
        SERVER_NAME => EveQuicExtension { name: Some("server_name"), r#type: *number, values: &client.names },
        ALPN => EveQuicExtension { name: Some("alpn"), r#type: *number, values: &client.alpn },
        _ => EveQuicExtension { name: None, r#type: *number, values: &[] },
    };
    client.extensions.iter().map(extension).collect()
}
