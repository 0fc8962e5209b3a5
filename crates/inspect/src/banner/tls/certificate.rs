//! The certificates of a server up to TLS 1.2, RFC 5246 section 7.4.2 and RFC 5280.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use tls_parser::{TlsMessageHandshake, parse_tls_handshake_msg_certificate};
use x509_parser::asn1_rs::{Any, Header, Tag};
use x509_parser::certificate::{Validity, X509Certificate};
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2sn};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo, X509Name};

use crate::event::CertificateFacts;

/// Number of certificates of a chain that are read; honest chains have fewer.
const CHAIN_LIMIT: usize = 10;

/// Number of names of a certificate that are reported.
const NAMES_LIMIT: usize = 256;

/// Parses the body of a `CertificateFacts` message: the server's own certificate comes first.
pub fn certificates(body: &[u8]) -> Vec<CertificateFacts> {
    chain(raw_chain(body))
}

/// Returns the DER of each certificate in the body of a `CertificateFacts` message, the server's own first.
pub fn raw_chain(body: &[u8]) -> Vec<&[u8]> {
    match parse_tls_handshake_msg_certificate(body) {
        Ok((_, TlsMessageHandshake::Certificate(message))) => {
            message.cert_chain.iter().take(CHAIN_LIMIT).map(|raw| raw.data).collect()
        }
        _ => Vec::new(),
    }
}

/// Parses the certificates of a chain.
pub fn chain<'a>(chain: impl IntoIterator<Item = &'a [u8]>) -> Vec<CertificateFacts> {
    chain.into_iter().take(CHAIN_LIMIT).map(certificate).collect()
}

/// Returns the readable fields of a certificate.
fn certificate(der: &[u8]) -> CertificateFacts {
    let mut told = CertificateFacts {
        sha1: hexadecimal(&Sha1::digest(der), ":"),
        sha256: hexadecimal(&Sha256::digest(der), ""),
        ..CertificateFacts::default()
    };
    let fields = TbsFields::of(der).unwrap_or_default();
    fields.tell(&mut told);
    if let Ok((_, read)) = X509Certificate::from_der(der) {
        told.names = names(&read);
    }
    told
}

/// The fields of a `TBSCertificate`, RFC 5280 section 4.1, each as its whole element. Fields after one
/// without an end are missing. The enclosing elements may be malformed.
#[derive(Debug, Default)]
struct TbsFields<'a> {
    serial: &'a [u8],
    signature: &'a [u8],
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
    key: &'a [u8],
}

impl<'a> TbsFields<'a> {
    fn of(der: &'a [u8]) -> Option<Self> {
        // The certificate, and the signed part within it. Their lengths may be wrong, so they are
        // ignored.
        let (rest, _) = Header::from_der(der).ok()?;
        let (mut rest, _) = Header::from_der(rest).ok()?;
        let mut next = || element(&mut rest).unwrap_or_default();
        // The oldest certificates omit the version.
        let first = next();
        let is_serial = first.first().is_some_and(|octet| u32::from(*octet) == Tag::Integer.0);
        let serial = if is_serial { first } else { next() };
        Some(Self {
            serial,
            signature: next(),
            issuer: next(),
            validity: next(),
            subject: next(),
            key: next(),
        })
    }

    /// Sets the readable fields.
    fn tell(&self, told: &mut CertificateFacts) {
        if let Ok((_, serial)) = Any::from_der(self.serial) {
            told.serial = hexadecimal(serial.data, ":");
        }
        if let Ok((_, algorithm)) = AlgorithmIdentifier::from_der(self.signature) {
            told.signature = name_of(&algorithm.algorithm);
        }
        let name = |field| X509Name::from_der(field).map_or_else(|_| String::new(), |(_, it)| it.to_string());
        (told.issuer, told.subject) = (name(self.issuer), name(self.subject));
        // RFC 5280 section 4.1.2.6: a subject may be empty; then the names are in extensions.
        told.self_signed = !self.subject.is_empty() && self.subject == self.issuer;
        if let Ok((_, validity)) = Validity::from_der(self.validity) {
            told.not_before = time(validity.not_before);
            told.not_after = time(validity.not_after);
            told.expires = validity.not_after.timestamp();
        }
        if let Ok((_, information)) = SubjectPublicKeyInfo::from_der(self.key) {
            (told.key, told.key_bits) = key(&information);
        }
    }
}

/// Takes the next element.
fn element<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (behind, _) = Any::from_der(rest).ok()?;
    let (element, behind) = rest.split_at_checked(rest.len() - behind.len())?;
    *rest = behind;
    Some(element)
}

/// Returns the kind and length of the public key.
fn key(information: &SubjectPublicKeyInfo<'_>) -> (String, String) {
    let named = |name: &str, bits: usize| (name.to_owned(), bits.to_string());
    match information.parsed() {
        Ok(PublicKey::RSA(key)) => named("rsa", key.key_size()),
        Ok(PublicKey::EC(key)) => named("ec", key.key_size()),
        Ok(PublicKey::DSA(key)) => named("dsa", 8 * key.len()),
        _ => (name_of(&information.algorithm.algorithm), String::new()),
    }
}

/// Returns the alternative names of the subject, RFC 5280 section 4.2.1.6.
fn names(read: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = read.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(octets) => address(octets),
        GeneralName::DirectoryName(name) => Some(name.to_string()),
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).take(NAMES_LIMIT).collect()
}

fn address(octets: &[u8]) -> Option<String> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Some(Ipv4Addr::from(octets).to_string());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string())
}

fn name_of(identifier: &Oid<'_>) -> String {
    oid2sn(identifier, oid_registry()).map_or_else(|_| identifier.to_id_string(), str::to_owned)
}

/// Formats a time as EVE does: UTC without its name.
fn time(time: ASN1Time) -> String {
    jiff::Timestamp::from_second(time.timestamp())
        .map_or_else(|_| String::new(), |time| time.strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

fn hexadecimal(octets: &[u8], between: &str) -> String {
    let mut text = String::with_capacity(3 * octets.len());
    for (place, octet) in octets.iter().enumerate() {
        if place > 0 {
            text.push_str(between);
        }
        let _ = write!(text, "{octet:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A certificate of `openssl req -x509 -newkey ec`, as text of base64.
    const DER: &str = "\
        MIIB7zCCAZSgAwIBAgIEEjSrzTAKBggqhkjOPQQDAjA1MQswCQYDVQQGEwJERTEQMA4GA1UECgwHRXhhbXBsZTEUMB\
        IGA1UEAwwLd3d3LmV4YW1wbGUwHhcNMjYxMTIyMDg0MjA0WhcNMzYxMTE5MDg0MjA0WjA1MQswCQYDVQQGEwJERTEQ\
        MA4GA1UECgwHRXhhbXBsZTEUMBIGA1UEAwwLd3d3LmV4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQyEL\
        Dxn3OWZlWcjoZpBJP7SUrvgbcymOdic/z9zyN7GSHT28yciSDWO/FIO//bh7xRH4132I2k2ZuEZpWsWQW4o4GRMIGO\
        MB0GA1UdDgQWBBQCkAMfkskoyaLcv391wmk7L3fKozAfBgNVHSMEGDAWgBQCkAMfkskoyaLcv391wmk7L3fKozAPBg\
        NVHRMBAf8EBTADAQH/MDsGA1UdEQQ0MDKCC3d3dy5leGFtcGxlhwTAAAIBhxAgAQ24AAAAAAAAAAAAAAABgQthQGIu\
        ZXhhbXBsZTAKBggqhkjOPQQDAgNJADBGAiEAvq5O9I2INNR5zfkoDokRF2FpZ2kPMnC7ARpqSh7fs+cCIQCjJlBspD\
        PGFTwYjN6+2GT0ltSXSawn32yCDgX0sx33hA==";

    fn der() -> Vec<u8> {
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, DER).unwrap()
    }

    fn message(chain: &[&[u8]]) -> Vec<u8> {
        let length = |octets: &[u8]| u32::try_from(octets.len()).unwrap().to_be_bytes()[1..].to_vec();
        let list: Vec<u8> = chain.iter().flat_map(|der| [length(der), der.to_vec()].concat()).collect();
        [length(&list), list].concat()
    }

    #[test]
    fn a_certificate_is_told_as_openssl_tells_it() {
        let der = der();
        let read = certificates(&message(&[&der, b"broken"]));
        let [own, broken] = read.as_slice() else { panic!("{read:?}") };
        assert_eq!(own.subject, "C=DE, O=Example, CN=www.example");
        assert_eq!(own.names, ["www.example", "192.0.2.1", "2001:db8::1", "a@b.example"]);
        assert_eq!(own.serial, "12:34:ab:cd");
        assert_eq!(
            (own.not_before.as_str(), own.not_after.as_str()),
            ("2026-11-22T08:42:04", "2036-11-19T08:42:04")
        );
        assert_eq!((own.key.as_str(), own.key_bits.as_str()), ("ec", "256"));
        assert_eq!((own.signature.as_str(), own.self_signed), ("ecdsa-with-SHA256", true));
        assert_eq!(own.sha256, "1779410bd30a394cef0e6c2ebcb673ebd2c9dd82f62d55b20cacc8dcffbaf515");
        assert_eq!(own.sha1, "77:46:89:6d:ff:89:d2:f1:06:fa:88:ec:71:16:f8:85:75:09:50:6c");
        assert_eq!(broken.subject, "");
        assert_eq!(broken.sha256.len(), 64);
    }

    #[test]
    fn a_broken_certificate_is_told_as_far_as_it_can_be_read() {
        let (whole, der) = (certificate(&der()), der());
        // Cut off within its signature, its key, its subject.
        for (length, fields) in [(der.len() - 1, 9), (220, 7), (140, 5)] {
            let told = certificate(&der[..length]);
            let is_told = |(told, whole): (&String, &String)| told == whole && !told.is_empty();
            let pairs = [
                (&told.serial, &whole.serial),
                (&told.signature, &whole.signature),
                (&told.issuer, &whole.issuer),
                (&told.not_before, &whole.not_before),
                (&told.not_after, &whole.not_after),
                (&told.subject, &whole.subject),
                (&told.key, &whole.key),
                (&told.key_bits, &whole.key_bits),
            ];
            let count = pairs.into_iter().filter(|pair| is_told(*pair)).count();
            assert_eq!(count + usize::from(told.self_signed), fields, "{length}: {told:?}");
        }
        // A day that there is not: all but the time.
        let place = der.windows(13).position(|window| window == b"261122084204Z").unwrap();
        let mut crooked = der.clone();
        crooked[place + 4] = b'9';
        let told = certificate(&crooked);
        assert_eq!((told.not_after.as_str(), told.subject), ("", whole.subject));
        assert_eq!(told.key_bits, whole.key_bits);
    }

    proptest! {
        #[test]
        fn a_certificate_with_any_octet_changed_is_told_all_the_same(place in 0_usize..400, to in any::<u8>()) {
            let mut der = der();
            let place = place % der.len();
            der[place] = to;
            let read = certificates(&message(&[&der]));
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read[0].sha256.len(), 64);
        }

        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = certificates(&octets);
            let _ = certificate(&octets);
        }
    }
}
