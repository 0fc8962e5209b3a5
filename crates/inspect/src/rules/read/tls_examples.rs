//! Reads examples of rules about TLS: one side of a handshake, by its parts or as recorded bytes.

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::example::ExampleContent;
use super::super::field::BannerSender;
use super::examples::hexadecimal;
use super::toml_value::{Entry, SpannedText, ValueReader};
use crate::banner::tls::{self, CLIENT_HELLO, RecordPiece, RecordReader, SERVER_HELLO, ServerHelloAnswer};
use crate::event::{CertificateFacts, ProductFacts, TlsAlert, TlsClient, TlsFacts, TlsServer};
use crate::terms::{
    AlertCode, CertificateVerification, CipherSuite, QuicVersion, Side, TlsVersion, TransportProtocol,
};

const KEYS: &[&str] =
    &["sni", "alpn", "version", "cipher", "ja3", "ja4", "ja3s", "ech", "transport", "alert", "hex"];

/// Keys of a server's certificate.
const CERTIFIED: &[&str] = &[
    "subject",
    "issuer",
    "san",
    "serial",
    "not_before",
    "not_after",
    "key",
    "key_bits",
    "signature",
    "self_signed",
    "sha256",
    "verification",
];

/// Reads `{ sni = "example.org", alpn = ["h2"] }`, `{ version = "TLSv1", cipher =
/// "TLS_RSA_WITH_RC4_128_MD5" }`, or `{ hex = "16 03 01 …" }` for the records of a hello.
pub(super) fn example(
    reader: &mut ValueReader<'_>,
    entries: &[Entry<'_, '_>],
    from: BannerSender,
) -> (ExampleContent, Option<ProductFacts>) {
    let known = || KEYS.iter().chain(CERTIFIED);
    let of_server = entries.iter().any(|(key, _, _)| *key == "ja3s" || CERTIFIED.contains(key));
    let side = match from {
        BannerSender::Server => Side::Server,
        BannerSender::Either if of_server => Side::Server,
        BannerSender::Client | BannerSender::Either => Side::Client,
    };
    let mut parts = TlsExampleParts::new(side);
    for (key, span, value) in entries {
        if known().any(|known| known == key) {
            parts.read(reader, key, value);
        } else {
            reader.unknown_key(span, key, "an example", known().copied());
        }
    }
    (ExampleContent::Tls { from: side, facts: Box::new(parts.facts()) }, None)
}

/// The parts of an example that were read so far.
struct TlsExampleParts {
    side: Side,
    client: TlsClient,
    server: TlsServer,
    alert: Option<TlsAlert>,
    verification: Vec<CertificateVerification>,
    quic: Option<QuicVersion>,
    /// True if there is more than an alert.
    hello: bool,
}

impl TlsExampleParts {
    fn new(side: Side) -> Self {
        let (client, server) = (TlsClient::default(), TlsServer::default());
        Self { side, client, server, alert: None, verification: Vec::new(), quic: None, hello: false }
    }

    fn facts(self) -> TlsFacts {
        let Self { side, client, server, alert, verification, quic, hello } = self;
        TlsFacts {
            client: (hello && side == Side::Client).then_some(client),
            server: (hello && side == Side::Server).then_some(server),
            alert,
            verification,
            quic,
            ..TlsFacts::default()
        }
    }

    fn read(&mut self, reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) {
        self.hello |= key != "alert";
        for text in reader.texts(key, value) {
            if let Err(message) = self.take(key, &text) {
                reader.error(&text.span, message);
            }
        }
    }

    fn take(&mut self, key: &str, SpannedText { value, .. }: &SpannedText) -> Result<(), String> {
        match key {
            "sni" => self.client.names.push(value.clone()),
            "alpn" => {
                self.client.alpn.push(value.clone());
                self.server.alpn = Some(value.clone());
            }
            "version" => {
                let names = || TlsVersion::names().collect::<Vec<_>>().join(", ");
                let version = TlsVersion::named(value);
                let version = version.ok_or_else(|| format!("no version is named `{value}`: {}", names()))?;
                (self.client.version, self.server.version) = (version, version);
            }
            "cipher" => {
                let cipher = CipherSuite::named(value);
                let cipher = cipher.ok_or_else(|| format!("no cipher suite is named `{value}`"))?;
                self.client.ciphers.push(cipher);
                self.server.cipher = cipher;
            }
            "ja3" => self.client.ja3.hash.clone_from(value),
            "ja4" => self.client.ja4.clone_from(value),
            "ja3s" => self.server.ja3s.hash.clone_from(value),
            "verification" => {
                let names = || CertificateVerification::names().collect::<Vec<_>>().join(", ");
                let told = CertificateVerification::named(value);
                self.verification.push(told.ok_or_else(|| format!("`{value}` is none of {}", names()))?);
            }
            key if CERTIFIED.contains(&key) => self.certify(key, value)?,
            "ech" if value == "offered" => self.client.ech = true,
            "ech" => return Err("`ech` is `offered`, or is left out".to_owned()),
            "transport" => match value.as_str() {
                "tcp" => {}
                "quic" => self.quic = Some(QuicVersion::V1),
                _ => return Err(format!("`{value}` is neither tcp nor quic")),
            },
            "alert" => {
                let code = AlertCode::named(value).ok_or_else(|| format!("no alert is named `{value}`"))?;
                self.alert = Some(TlsAlert { from: self.side, fatal: true, code });
            }
            _ => self.take_records(value)?,
        }
        Ok(())
    }

    /// Sets a field of the certificate.
    fn certify(&mut self, key: &str, value: &str) -> Result<(), String> {
        if self.server.certificates.is_empty() {
            self.server.certificates.push(CertificateFacts::default());
        }
        let Some(certificate) = self.server.certificates.first_mut() else { return Ok(()) };
        let text = match key {
            "san" => {
                certificate.names.push(value.to_owned());
                return Ok(());
            }
            "self_signed" => {
                certificate.self_signed = value == "true";
                return Ok(());
            }
            "not_after" => {
                let time: jiff::civil::DateTime =
                    value.parse().map_err(|_| format!("`{value}` is no time such as 2026-01-31T12:00:00"))?;
                let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| error.to_string())?;
                certificate.expires = zoned.timestamp().as_second();
                &mut certificate.not_after
            }
            "subject" => &mut certificate.subject,
            "issuer" => &mut certificate.issuer,
            "serial" => &mut certificate.serial,
            "not_before" => &mut certificate.not_before,
            "key" => &mut certificate.key,
            "key_bits" => &mut certificate.key_bits,
            "signature" => &mut certificate.signature,
            _ => &mut certificate.sha256,
        };
        value.clone_into(text);
        Ok(())
    }

    fn take_records(&mut self, text: &str) -> Result<(), String> {
        let octets = hexadecimal(text).ok_or("`hex` must be bytes of two hexadecimal digits each")?;
        let no_hello = || format!("`hex` is no whole hello of a {}", self.side.name());
        let mut records = RecordReader::default();
        match (records.next(&octets), self.side) {
            (RecordPiece::Message(CLIENT_HELLO, body), Side::Client) => {
                self.client = tls::client(body, TransportProtocol::Tcp).ok_or_else(no_hello)?;
            }
            (RecordPiece::Message(SERVER_HELLO, body), Side::Server) => match tls::server(body) {
                Some(ServerHelloAnswer::Hello(server)) => self.server = server,
                Some(ServerHelloAnswer::Retry) | None => return Err(no_hello()),
            },
            _ => return Err(no_hello()),
        }
        Ok(())
    }
}
