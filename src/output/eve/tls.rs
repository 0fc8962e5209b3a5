//! EVE's `tls` object.

use serde::Serialize;

use super::application::EveDetail;
use crate::event::{CertificateFacts, Ja3Fingerprint, TlsClient, TlsFacts, TlsServer};
use crate::terms::{CipherSuite, TlsVersion};

/// EVE's `tls`.
#[derive(Debug, Serialize)]
pub(super) struct EveTls<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuerdn: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    subjectaltname: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notbefore: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notafter: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sni: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    client_alpns: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    server_alpns: Option<[&'a str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ja3: Option<Ja3Object<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ja3s: Option<Ja3Object<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ja4: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_handshake: Option<ClientHandshake<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_handshake: Option<ServerHandshake<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Ja3Object<'a> {
    hash: &'a str,
    string: &'a str,
}

#[derive(Debug, Serialize)]
struct ClientHandshake<'a> {
    version: &'static str,
    ciphers: Vec<u16>,
    exts: &'a [u16],
    sig_algs: &'a [u16],
}

#[derive(Debug, Serialize)]
struct ServerHandshake<'a> {
    version: &'static str,
    cipher: u16,
    exts: &'a [u16],
}

impl<'a> EveTls<'a> {
    pub(super) fn new(facts: &'a TlsFacts, extent: EveDetail) -> Self {
        let (client, server) = (facts.client.as_ref(), facts.server.as_ref());
        // Of a scan's own hello, only the requested name is written.
        let heard = client.filter(|client| !client.ciphers.is_empty());
        let certificate = facts.certificate();
        let certified = |text: fn(&CertificateFacts) -> &String| {
            certificate.map(|certificate| text(certificate).as_str()).filter(|text| !text.is_empty())
        };
        Self {
            subject: certified(|certificate| &certificate.subject),
            issuerdn: certified(|certificate| &certificate.issuer),
            subjectaltname: certificate.map_or(&[], |certificate| &certificate.names),
            serial: certified(|certificate| &certificate.serial),
            fingerprint: certified(|certificate| &certificate.sha1),
            notbefore: certified(|certificate| &certificate.not_before),
            notafter: certified(|certificate| &certificate.not_after),
            sni: facts.name(),
            version: facts.version().map(TlsVersion::name),
            client_alpns: client.map_or(&[], |client| &client.alpn),
            server_alpns: server.and_then(|server| Some([server.alpn.as_deref()?])),
            ja3: heard.map(|client| Ja3Object::new(&client.ja3)),
            ja3s: server.map(|server| Ja3Object::new(&server.ja3s)),
            ja4: heard.map(|client| client.ja4.as_str()),
            client_handshake: heard.filter(|_| !extent.brief).map(ClientHandshake::new),
            server_handshake: server.filter(|_| !extent.brief).map(ServerHandshake::new),
        }
    }
}

impl<'a> Ja3Object<'a> {
    pub(super) fn new(ja3: &'a Ja3Fingerprint) -> Self {
        Self { hash: &ja3.hash, string: &ja3.string }
    }
}

impl<'a> ClientHandshake<'a> {
    fn new(client: &'a TlsClient) -> Self {
        Self {
            version: client.version.name(),
            ciphers: client.ciphers.iter().map(|CipherSuite(number)| *number).collect(),
            exts: &client.extensions,
            sig_algs: &client.signature_algorithms,
        }
    }
}

impl<'a> ServerHandshake<'a> {
    fn new(server: &'a TlsServer) -> Self {
        Self { version: server.version.name(), cipher: server.cipher.0, exts: &server.extensions }
    }
}
