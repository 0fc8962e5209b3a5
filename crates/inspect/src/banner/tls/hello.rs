//! The hellos of both sides, RFC 8446 sections 4.1.2 and 4.1.3.
//!
//! They are read as leniently as the most lenient receiver reads them: Go takes session ids of any length,
//! others ignore bytes behind the extensions.

use tls_parser::{
    TlsExtension, parse_tls_extension_alpn_content, parse_tls_extension_elliptic_curves_content,
    parse_tls_extension_signature_algorithms_content,
};

use super::fingerprint::{self, ALPN, FingerprintInput, SERVER_NAME};
use crate::banner::byte_reader::ByteReader;
use crate::event::{TlsClient, TlsServer};
use crate::terms::{CipherSuite, TlsVersion, TransportProtocol, is_grease};

const SUPPORTED_GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const SUPPORTED_VERSIONS: u16 = 43;
/// RFC 9849 section 5.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// The kind of an entry of an SNI extension that is a host name.
const HOST_NAME: u8 = 0;

/// Number of random bytes in a hello.
const RANDOM: usize = 32;

/// The random bytes of a `HelloRetryRequest`, RFC 8446 section 4.1.3.
const RETRY: [u8; RANDOM] = [
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

/// Parses the body of a `ClientHello` from TCP or (in QUIC) UDP; none if it is inconsistent.
pub fn client(body: &[u8], transport: TransportProtocol) -> Option<TlsClient> {
    let mut rest = ByteReader(body);
    let legacy_version = rest.u16()?;
    rest.take(RANDOM)?;
    let _session_id = rest.after_u8()?;
    let ciphers = rest.after_u16()?;
    let _compression = rest.after_u8()?;
    let mut numbers = FingerprintInput { legacy_version, ..FingerprintInput::default() };
    let mut client = TlsClient {
        version: TlsVersion(legacy_version),
        ciphers: numbers_in(ciphers).map(CipherSuite).collect(),
        ..TlsClient::default()
    };
    for extension in extensions(rest)? {
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
    let mut rest = ByteReader(body);
    let legacy_version = rest.u16()?;
    let random = rest.take(RANDOM)?;
    let _session_id = rest.after_u8()?;
    let cipher = CipherSuite(rest.u16()?);
    let _compression = rest.take(1)?;
    if random == RETRY {
        return Some(ServerHelloAnswer::Retry);
    }
    let mut server = TlsServer { version: TlsVersion(legacy_version), cipher, ..TlsServer::default() };
    for extension in extensions(rest)? {
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
    server.ja3s = fingerprint::ja3s(&server, legacy_version);
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
                let offered = numbers_in(content.get(1..).unwrap_or_default());
                let highest = offered.filter(|version| !is_grease(*version)).max();
                self.version = highest.map_or(self.version, TlsVersion);
            }
            ENCRYPTED_CLIENT_HELLO => self.ech = true,
            _ => {}
        }
    }
}

/// Returns the extensions at the end of a hello in order; none for one that is cut off. A hello may end
/// before them.
fn extensions(mut hello: ByteReader<'_>) -> Option<impl Iterator<Item = Option<(u16, &[u8])>>> {
    let mut rest = ByteReader(if hello.0.is_empty() { &[] } else { hello.after_u16()? });
    Some(std::iter::from_fn(move || {
        if rest.0.is_empty() {
            return None;
        }
        let extension = rest.u16().and_then(|number| Some((number, rest.after_u16()?)));
        if extension.is_none() {
            rest.0 = &[];
        }
        Some(extension)
    }))
}

/// Numbers of two bytes.
fn numbers_in(octets: &[u8]) -> impl Iterator<Item = u16> {
    octets.as_chunks().0.iter().map(|number| u16::from_be_bytes(*number))
}

/// Returns the host names of an SNI extension, RFC 6066 section 3, whatever its list says of its length.
fn names(content: &[u8]) -> impl Iterator<Item = String> {
    let mut rest = ByteReader(content.get(2..).unwrap_or_default());
    let entries = std::iter::from_fn(move || Some((rest.u8()?, rest.after_u16()?)));
    entries.filter(|(kind, _)| *kind == HOST_NAME).map(|(_, name)| text(name))
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
