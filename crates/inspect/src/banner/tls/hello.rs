//! The hellos of both sides, RFC 8446 sections 4.1.2 and 4.1.3.

use tls_parser::{
    SNIType, TlsExtension, parse_tls_extension_alpn_content, parse_tls_extension_elliptic_curves_content,
    parse_tls_extension_signature_algorithms_content, parse_tls_extension_sni_content,
    parse_tls_handshake_client_hello, parse_tls_handshake_server_hello,
};

use super::fingerprint;
use crate::event::{TlsClient, TlsServer};
use crate::terms::{CipherSuite, TlsVersion, TransportProtocol, is_grease};

/// Numbers of extensions, IANA's registry.
pub(super) const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
pub(super) const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
/// RFC 9849 section 5.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// The random bytes of a `HelloRetryRequest`, RFC 8446 section 4.1.3.
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// A server's answer to a client's hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerHelloAnswer {
    /// Its own hello.
    Hello(TlsServer),
    /// A request for another one (`HelloRetryRequest`).
    Retry,
}

/// Numbers from which fingerprints are made, including GREASE.
#[derive(Debug, Default)]
pub(super) struct FingerprintInput {
    /// The version field, which newer clients freeze at 1.2.
    pub(super) legacy_version: u16,
    pub(super) point_formats: Vec<u8>,
    /// The first application protocol that is offered, as bytes.
    pub(super) first_alpn: Vec<u8>,
}

/// Parses the body of a `ClientHello` from TCP or (in QUIC) UDP; none if it is inconsistent.
pub fn client(body: &[u8], transport: TransportProtocol) -> Option<TlsClient> {
    let (rest, hello) = parse_tls_handshake_client_hello(body).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let mut numbers = FingerprintInput { legacy_version: hello.version.0, ..FingerprintInput::default() };
    let mut client = TlsClient {
        version: TlsVersion(hello.version.0),
        ciphers: hello.ciphers.iter().map(|cipher| CipherSuite(cipher.0)).collect(),
        ..TlsClient::default()
    };
    for extension in extensions(hello.ext.unwrap_or_default()) {
        let (number, content) = extension?;
        client.extensions.push(number);
        client.take(number, content, &mut numbers);
    }
    client.ja3 = fingerprint::ja3(&client, &numbers);
    client.ja4 = fingerprint::ja4(&client, &numbers, transport);
    Some(client)
}

/// Parses the body of a `ServerHello`; none if it is inconsistent.
pub fn server(body: &[u8]) -> Option<ServerHelloAnswer> {
    let (rest, hello) = parse_tls_handshake_server_hello(body).ok()?;
    if !rest.is_empty() {
        return None;
    }
    if hello.random == RETRY {
        return Some(ServerHelloAnswer::Retry);
    }
    let mut server = TlsServer {
        version: TlsVersion(hello.version.0),
        cipher: CipherSuite(hello.cipher.0),
        ..TlsServer::default()
    };
    for extension in extensions(hello.ext.unwrap_or_default()) {
        let (number, content) = extension?;
        server.extensions.push(number);
        match number {
            SUPPORTED_VERSIONS => {
                server.version =
                    content.try_into().map_or(server.version, |it| TlsVersion(u16::from_be_bytes(it)));
            }
            ALPN => server.alpn = protocols(content).next().map(text),
            _ => {}
        }
    }
    server.ja3s = fingerprint::ja3s(&server, hello.version.0);
    Some(ServerHelloAnswer::Hello(server))
}

impl TlsClient {
    /// Reads the wanted parts of an extension; ignores an extension that can't be read.
    fn take(&mut self, number: u16, content: &[u8], numbers: &mut FingerprintInput) {
        match number {
            SERVER_NAME => self.names.extend(names(content)),
            SUPPORTED_GROUPS => {
                if let Ok((_, TlsExtension::EllipticCurves(groups))) =
                    parse_tls_extension_elliptic_curves_content(content)
                {
                    self.groups = groups.iter().map(|group| group.0).collect();
                }
            }
            POINT_FORMATS => numbers.point_formats = content.get(1..).unwrap_or_default().to_vec(),
            SIGNATURE_ALGORITHMS => {
                if let Ok((_, TlsExtension::SignatureAlgorithms(algorithms))) =
                    parse_tls_extension_signature_algorithms_content(content)
                {
                    self.signature_algorithms = algorithms;
                }
            }
            ALPN => {
                numbers.first_alpn = protocols(content).next().unwrap_or_default().to_vec();
                self.alpn = protocols(content).map(text).collect();
            }
            SUPPORTED_VERSIONS => {
                let offered = content.get(1..).unwrap_or_default().chunks_exact(2);
                let offered = offered.filter_map(|pair| Some(u16::from_be_bytes(pair.try_into().ok()?)));
                let highest = offered.filter(|version| !is_grease(*version)).max();
                self.version = highest.map_or(self.version, TlsVersion);
            }
            ENCRYPTED_CLIENT_HELLO => self.ech = true,
            _ => {}
        }
    }
}

/// Returns the extensions in order; none for one that is cut off.
fn extensions(mut octets: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    std::iter::from_fn(move || {
        if octets.is_empty() {
            return None;
        }
        let extension = octets.split_first_chunk::<4>().and_then(|([high, low, more, less], behind)| {
            let length = usize::from(u16::from_be_bytes([*more, *less]));
            let (content, rest) = behind.split_at_checked(length)?;
            octets = rest;
            Some((u16::from_be_bytes([*high, *low]), content))
        });
        if extension.is_none() {
            octets = &[];
        }
        Some(extension)
    })
}

/// Returns the host names of an SNI extension, RFC 6066 section 3.
fn names(content: &[u8]) -> Vec<String> {
    match parse_tls_extension_sni_content(content) {
        Ok((_, TlsExtension::SNI(names))) => {
            names.iter().filter(|(kind, _)| *kind == SNIType::HostName).map(|(_, name)| text(name)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the application protocols of an ALPN extension, RFC 7301 section 3.1.
fn protocols(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let list = match parse_tls_extension_alpn_content(content) {
        Ok((_, TlsExtension::ALPN(list))) => list,
        _ => Vec::new(),
    };
    list.into_iter()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}
