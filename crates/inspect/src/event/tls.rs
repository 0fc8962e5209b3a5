//! Facts about TLS, as far as it is not encrypted.

use super::application_summary::ApplicationSummary;
use crate::terms::{
    AlertCode, CertificateVerification, CipherSuite, QuicVersion, Side, TlsVersion, TransportProtocol,
};

/// Facts about one handshake.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFacts {
    /// The client's hello; the first one, if the server requested another.
    pub client: Option<TlsClient>,
    /// The server's.
    pub server: Option<TlsServer>,
    /// True if the server requested another hello (`HelloRetryRequest`).
    pub retried: bool,
    /// The first alert that was read.
    pub alert: Option<TlsAlert>,
    /// Results of verifying the server's certificates, if that was tried: by a scan.
    pub verification: Vec<CertificateVerification>,
    /// The version of QUIC; none for TLS over TCP.
    pub quic: Option<QuicVersion>,
}

/// A `ClientHello`, RFC 8446 section 4.1.2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsClient {
    /// The highest version that it offers.
    pub version: TlsVersion,
    /// The host names that it requests (SNI), as they were sent; an honest hello has one.
    pub names: Vec<String>,
    /// Application protocols that it offers, in order.
    pub alpn: Vec<String>,
    /// Cipher suites that it offers, in order, including GREASE.
    pub ciphers: Vec<CipherSuite>,
    /// Numbers of its extensions, in order, including GREASE.
    pub extensions: Vec<u16>,
    /// Groups of its key exchange, in order, including GREASE.
    pub groups: Vec<u16>,
    /// Signature algorithms that it accepts, in order.
    pub signature_algorithms: Vec<u16>,
    /// True if it offers Encrypted Client Hello, or pretends to: then the requested name may be another
    /// one's.
    pub ech: bool,
    /// JA3.
    pub ja3: Ja3Fingerprint,
    /// JA4.
    pub ja4: String,
}

/// A `ServerHello`, RFC 8446 section 4.1.3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsServer {
    /// The version that was chosen.
    pub version: TlsVersion,
    /// The cipher suite that was chosen.
    pub cipher: CipherSuite,
    /// The application protocol that was chosen, if it is not encrypted.
    pub alpn: Option<String>,
    /// Numbers of its extensions, in order.
    pub extensions: Vec<u16>,
    /// JA3S.
    pub ja3s: Ja3Fingerprint,
    /// Its certificates, its own first, if they are not encrypted: before TLS 1.3.
    pub certificates: Vec<CertificateFacts>,
}

/// An X.509 certificate, RFC 5280. If it can't be read, only the digests are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateFacts {
    /// The subject: `C=DE, O=Example, CN=www.example`.
    pub subject: String,
    /// The issuer.
    pub issuer: String,
    /// Further names: of hosts, addresses, mailboxes and URIs.
    pub names: Vec<String>,
    /// Hexadecimal digits with colons between bytes.
    pub serial: String,
    /// UTC, `2026-01-31T12:00:00`.
    pub not_before: String,
    /// UTC, `2026-01-31T12:00:00`.
    pub not_after: String,
    /// The same as `not_after`, in seconds since the Unix epoch.
    pub expires: i64,
    /// The kind of key: `rsa`, `ec`, `dsa`, or its name in the registry of object identifiers.
    pub key: String,
    /// The length of the key as a decimal number; empty if unknown.
    pub key_bits: String,
    /// The signature algorithm's name, `sha256WithRSAEncryption`.
    pub signature: String,
    /// True if subject and issuer are the same; the signature was not verified.
    pub self_signed: bool,
    /// SHA-1 of the whole, hexadecimal digits with colons between bytes.
    pub sha1: String,
    /// SHA-256 of the whole, 64 hexadecimal digits.
    pub sha256: String,
}

/// A JA3 or JA3S fingerprint: MD5 (hexadecimal), and the numbers from which it was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ja3Fingerprint {
    /// 32 hexadecimal digits.
    pub hash: String,
    /// `771,4865-4866,0-23,29-23,0`.
    pub string: String,
}

/// An alert, RFC 8446 section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsAlert {
    /// The side that sent it.
    pub from: Side,
    /// True if it ends the connection.
    pub fatal: bool,
    /// The description.
    pub code: AlertCode,
}

impl TlsFacts {
    /// The transport protocol.
    pub const fn transport(&self) -> TransportProtocol {
        if self.quic.is_some() { TransportProtocol::Udp } else { TransportProtocol::Tcp }
    }

    /// The name that the client requested.
    pub fn name(&self) -> Option<&str> {
        self.client.as_ref()?.names.first().map(String::as_str)
    }

    /// The version that was chosen, else the highest that was offered.
    pub fn version(&self) -> Option<TlsVersion> {
        let offered = self.client.as_ref().map(|client| client.version);
        self.server.as_ref().map(|server| server.version).or(offered)
    }

    /// Returns a summary of one side in one line: `TLS 1.3 example.org`, `TLS 1.2
    /// TLS_RSA_WITH_AES_128_CBC_SHA`.
    pub fn line(&self, side: Side) -> String {
        let parts = match side {
            Side::Client => self.client.as_ref().map(|client| {
                let name = client.names.first().map_or("", String::as_str);
                (client.version, name)
            }),
            Side::Server => self.server.as_ref().map(|server| (server.version, server.cipher.name())),
        };
        match (parts, self.alert.filter(|alert| alert.from == side)) {
            (Some((version, "")), _) => version.name().to_owned(),
            (Some((version, rest)), _) => format!("{} {rest}", version.name()),
            (None, Some(alert)) => format!("alert {}", alert.code.name()),
            (None, None) => String::new(),
        }
    }

    /// Returns the subject of the server's certificate, its end, and what is wrong with it.
    pub fn certified(&self) -> Option<String> {
        let certificate = self.certificate()?;
        let day = certificate.not_after.split('T').next().unwrap_or_default();
        let name = match certificate.subject.as_str() {
            "" => certificate.names.first().map_or("", String::as_str),
            subject => subject,
        };
        let until = if day.is_empty() { String::new() } else { format!("until {day}") };
        let faults = self.verification.iter().filter(|told| **told != CertificateVerification::Valid);
        let parts = [name, &until].into_iter().chain(faults.map(|fault| fault.name()));
        Some(parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "))
    }

    /// The server's own certificate.
    pub fn certificate(&self) -> Option<&CertificateFacts> {
        self.server.as_ref()?.certificates.first()
    }

    /// The approximate number of bytes of its text.
    pub(super) fn weight(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |client| {
            let texts: usize = client.names.iter().chain(&client.alpn).map(String::len).sum();
            let numbers = client.ciphers.len() + client.extensions.len() + client.groups.len();
            texts + 2 * (numbers + client.signature_algorithms.len()) + client.ja3.string.len()
        });
        let server = self.server.as_ref().map_or(0, |server| {
            let certificates: usize = server.certificates.iter().map(CertificateFacts::weight).sum();
            server.ja3s.string.len() + certificates
        });
        size_of::<Self>() + client + server
    }

    pub(super) fn summary(&self) -> ApplicationSummary<'_> {
        let answered = self.server.is_some() || self.alert.is_some_and(|alert| alert.from == Side::Server);
        let from = if answered { Side::Server } else { Side::Client };
        ApplicationSummary {
            from: Some(from),
            banner: Some(self.line(from).into()),
            protocol_version: self.version().map(TlsVersion::name),
            url: self.name(),
            ..ApplicationSummary::default()
        }
    }
}

impl CertificateFacts {
    fn weight(&self) -> usize {
        let names: usize = self.names.iter().map(String::len).sum();
        size_of::<Self>() + self.subject.len() + self.issuer.len() + names
    }
}
