//! A `ClientHello` of TLS 1.0 to 1.2 that offers every cipher suite and curve, for servers that refuse the
//! library's hello.
//!
//! Up to TLS 1.2 the server's hello and certificates are not encrypted, so no key has to be agreed on.

use std::sync::LazyLock;

use rustls::pki_types::ServerName;
use tls_parser::{TlsCipherAu, TlsCipherEnc, TlsCipherKx, TlsCipherSuite};

/// Signals that this client renegotiates securely, RFC 5746 section 3.3.
const RENEGOTIATION_SUITE: u16 = 0x00ff;

/// Last elliptic curve in IANA's registry of groups. The finite-field groups after it are left out: a server
/// with other parameters may avoid DHE if a client offers some, RFC 7919 section 4.
const LAST_CURVE: u16 = 41;

/// Signature algorithms: ECDSA, `EdDSA`, RSA-PSS, RSA and DSA with each hash, RFC 8446 section 4.2.3.
const SIGNATURES: [u16; 24] = [
    0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0401, 0x0501,
    0x0601, 0x0303, 0x0301, 0x0203, 0x0201, 0x0602, 0x0502, 0x0402, 0x0302, 0x0202, 0x0101,
];

/// Cipher suites whose key exchange needs only a certificate or nothing, strongest first.
static SUITES: LazyLock<Vec<u16>> = LazyLock::new(|| {
    let mut suites: Vec<&TlsCipherSuite> = (0..=u16::MAX).filter_map(TlsCipherSuite::from_id).collect();
    suites.retain(|suite| is_offered(suite));
    // Servers that follow the client's order then choose a weak suite only if they have no other.
    suites.sort_by_key(|suite| rank(suite));
    suites.iter().map(|suite| suite.id.0).chain([RENEGOTIATION_SUITE]).collect()
});

fn is_offered(suite: &TlsCipherSuite) -> bool {
    use TlsCipherKx::{Aecdh, Dh, Dhe, Ecdh, Ecdhe, Rsa};
    let is_certified = !matches!(suite.au, TlsCipherAu::Psk | TlsCipherAu::Krb5);
    matches!(suite.kx, Rsa | Dh | Dhe | Ecdh | Ecdhe | Aecdh) && is_certified
}

fn rank(suite: &TlsCipherSuite) -> (bool, bool, u8) {
    let is_broken = suite.au == TlsCipherAu::Null
        || matches!(
            suite.enc,
            TlsCipherEnc::Null | TlsCipherEnc::Des | TlsCipherEnc::Rc2 | TlsCipherEnc::Rc4
        )
        || suite.name.contains("EXPORT");
    let kx = match suite.kx {
        TlsCipherKx::Ecdhe => 0,
        TlsCipherKx::Dhe => 1,
        _ => 2,
    };
    (is_broken, suite.mac != tls_parser::TlsCipherMac::Aead, kx)
}

/// Returns the hello's record, with `name` as SNI if it is a host name.
pub(in super::super) fn legacy_hello(name: Option<&ServerName<'_>>, random: [u8; 32]) -> Vec<u8> {
    let mut extensions = Vec::new();
    if let Some(ServerName::DnsName(name)) = name {
        let host = [&[0], &*prefixed(name.as_ref().as_bytes())].concat();
        extensions.extend(extension(0, &prefixed(&host)));
    }
    extensions.extend(extension(10, &prefixed(&numbers((1..=LAST_CURVE).rev()))));
    // All three point formats.
    extensions.extend(extension(11, &[3, 0, 1, 2]));
    extensions.extend(extension(13, &prefixed(&numbers(SIGNATURES))));
    // Extended master secret, which some servers require, RFC 7627.
    extensions.extend(extension(23, &[]));
    let suites = prefixed(&numbers(SUITES.iter().copied()));
    // TLS 1.2, no session to resume, no compression.
    let body = [&[3, 3], &random[..], &[0], &suites, &[1, 0], &prefixed(&extensions)].concat();
    // A handshake message of type 1 with a length of three bytes, in a record of TLS 1.0.
    let message = [&[1, 0], &*prefixed(&body)].concat();
    [&[0x16, 3, 1], &*prefixed(&message)].concat()
}

fn extension(number: u16, content: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes(), &*prefixed(content)].concat()
}

fn numbers(numbers: impl IntoIterator<Item = u16>) -> Vec<u8> {
    numbers.into_iter().flat_map(u16::to_be_bytes).collect()
}

/// Prefixes bytes with their length in two bytes.
fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::DnsName;

    use super::*;
    use crate::banner::tls::{RecordPiece, RecordReader, client};
    use crate::terms::{TlsVersion, TransportProtocol};

    #[test]
    fn the_hello_is_read_back_as_it_was_meant() {
        let name = ServerName::DnsName(DnsName::try_from("www.example").unwrap());
        let octets = legacy_hello(Some(&name), [7; 32]);
        let mut records = RecordReader::default();
        let RecordPiece::Message(1, body) = records.next(&octets) else { panic!("no hello") };
        let read = client(body, TransportProtocol::Tcp).unwrap();
        assert_eq!((read.version, &*read.names), (TlsVersion::TLS_1_2, &["www.example".to_owned()][..]));
        let at = |name: &str| {
            read.ciphers.iter().position(|suite| suite.name() == name).unwrap_or_else(|| panic!("{name}"))
        };
        let order = [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "TLS_DHE_DSS_WITH_AES_256_CBC_SHA",
            "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        for weak in [
            "TLS_RSA_WITH_NULL_MD5",
            "TLS_RSA_EXPORT_WITH_RC4_40_MD5",
            "TLS_DH_anon_WITH_AES_128_CBC_SHA",
            "TLS_ECDH_anon_WITH_NULL_SHA",
        ] {
            assert!(at(weak) > at(order[3]), "{weak}");
        }
        assert!(!read.ciphers.iter().any(|suite| suite.name().contains("PSK")));
        assert!([23, 24, 25, 29, 30].iter().all(|curve| read.groups.contains(curve)), "{:?}", read.groups);
        assert!(octets.len() < 1200, "{}", octets.len());
    }
}
