//! Fingerprints of hellos: JA3 and JA3S (github.com/salesforce/ja3), JA4 (github.com/FoxIO-LLC/ja4,
//! `technical_details/JA4.md`).

use std::fmt::Write as _;

use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::event::{Ja3Fingerprint, TlsClient, TlsServer};
use crate::terms::{self, CipherSuite, TlsVersion, TransportProtocol, is_grease};

/// Number of the extension with the server's name, IANA's registry.
pub(super) const SERVER_NAME: u16 = 0;

/// Number of the extension with application protocols.
pub(super) const ALPN: u16 = 16;

/// Numbers from which fingerprints are made, including GREASE.
#[derive(Debug, Default)]
pub(super) struct FingerprintInput {
    /// The version field, which newer clients freeze at 1.2.
    pub(super) legacy_version: u16,
    pub(super) point_formats: Vec<u8>,
    /// The first application protocol that is offered, as bytes.
    pub(super) first_alpn: Vec<u8>,
}

/// Largest number in JA4's counts.
const COUNT_LIMIT: usize = 99;

/// Number of digits of each hash in a JA4.
const JA4_DIGITS: usize = 12;

/// Returns the JA3 of a client: version, cipher suites, extensions, groups and point formats, without
/// GREASE.
pub(super) fn ja3(client: &TlsClient, numbers: &FingerprintInput) -> Ja3Fingerprint {
    let mut string = String::with_capacity(256);
    let _ = write!(string, "{},", numbers.legacy_version);
    list(&mut string, ciphers(client));
    string.push(',');
    list(&mut string, without_grease(&client.extensions));
    string.push(',');
    list(&mut string, without_grease(&client.groups));
    string.push(',');
    list(&mut string, numbers.point_formats.iter().map(|format| u16::from(*format)));
    hashed(string)
}

/// Returns the JA3S of a server: version, cipher suite and extensions.
pub(super) fn ja3s(server: &TlsServer, legacy_version: u16) -> Ja3Fingerprint {
    let mut string = format!("{legacy_version},{},", server.cipher.0);
    list(&mut string, server.extensions.iter().copied());
    hashed(string)
}

/// Returns the JA4 of a client.
pub(super) fn ja4(client: &TlsClient, numbers: &FingerprintInput, transport: TransportProtocol) -> String {
    let mut ciphers: Vec<u16> = ciphers(client).collect();
    let mut extensions: Vec<u16> = without_grease(&client.extensions).collect();
    let domain = if extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
    let [first, last] = ends(&numbers.first_alpn);
    let carrier = if transport == TransportProtocol::Udp { 'q' } else { 't' };
    // The count of extensions includes SNI and ALPN, although the list that is hashed below leaves them out
    // (JA4's technical details).
    let mut ja4 = format!(
        "{carrier}{}{domain}{:02}{:02}{first}{last}",
        version(client.version),
        ciphers.len().min(COUNT_LIMIT),
        extensions.len().min(COUNT_LIMIT)
    );
    // Sorted, because browsers shuffle their extensions for each connection. The signature algorithms keep
    // the client's order.
    ciphers.sort_unstable();
    extensions.retain(|number| ![SERVER_NAME, ALPN].contains(number));
    extensions.sort_unstable();
    let mut kept = hexadecimal(extensions.into_iter());
    let algorithms = hexadecimal(without_grease(&client.signature_algorithms));
    if !algorithms.is_empty() {
        kept.push('_');
        kept.push_str(&algorithms);
    }
    for part in [hexadecimal(ciphers.into_iter()), kept] {
        ja4.push('_');
        shortened(&part, &mut ja4);
    }
    ja4
}

fn ciphers(client: &TlsClient) -> impl Iterator<Item = u16> {
    client.ciphers.iter().map(|CipherSuite(number)| *number).filter(|number| !is_grease(*number))
}

fn without_grease(numbers: &[u16]) -> impl Iterator<Item = u16> {
    numbers.iter().copied().filter(|number| !is_grease(*number))
}

/// Adds numbers with hyphens between them.
fn list(text: &mut String, numbers: impl Iterator<Item = u16>) {
    for (place, number) in numbers.enumerate() {
        if place > 0 {
            text.push('-');
        }
        let _ = write!(text, "{number}");
    }
}

fn hashed(string: String) -> Ja3Fingerprint {
    Ja3Fingerprint { hash: terms::hexadecimal(&Md5::digest(&string)), string }
}

/// Returns numbers of four hexadecimal digits with commas between them.
fn hexadecimal(numbers: impl Iterator<Item = u16>) -> String {
    let mut text = String::new();
    for number in numbers {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{number:04x}");
    }
    text
}

/// Adds the first digits of the SHA-256 of a list; zeros for an empty one.
fn shortened(part: &str, ja4: &mut String) {
    if part.is_empty() {
        ja4.push_str("000000000000");
        return;
    }
    for octet in Sha256::digest(part).iter().take(JA4_DIGITS / 2) {
        let _ = write!(ja4, "{octet:02x}");
    }
}

const fn version(version: TlsVersion) -> &'static str {
    match version.0 {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        _ => "00",
    }
}

/// Returns the first and last character of an application protocol. If one of them is no letter or digit,
/// it returns the first and last hexadecimal digit.
fn ends(protocol: &[u8]) -> [char; 2] {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else { return ['0', '0'] };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)];
    }
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    [digit(first >> 4), digit(last & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(ciphers: &[u16], extensions: &[u16], groups: &[u16], algorithms: &[u16]) -> TlsClient {
        TlsClient {
            ciphers: ciphers.iter().copied().map(CipherSuite).collect(),
            extensions: extensions.to_vec(),
            groups: groups.to_vec(),
            signature_algorithms: algorithms.to_vec(),
            ..TlsClient::default()
        }
    }

    /// The examples of JA3's own README.
    #[test]
    fn ja3_is_that_of_its_authors_examples() {
        let ciphers = [47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
        let numbers =
            FingerprintInput { legacy_version: 769, point_formats: vec![0], ..FingerprintInput::default() };
        let found = ja3(&client(&ciphers, &[0, 10, 11], &[23, 24, 25], &[]), &numbers);
        assert_eq!(found.string, "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0");
        assert_eq!(found.hash, "ada70206e40642a3e4461f35503241d5");
        let numbers = FingerprintInput { legacy_version: 769, ..FingerprintInput::default() };
        let found = ja3(&client(&[4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99], &[], &[], &[]), &numbers);
        assert_eq!(found.hash, "de350869b8c85de67a350c8d186f11e6");
    }

    /// The example of JA4's own description, with GREASE and in another order.
    #[test]
    fn ja4_is_that_of_its_authors_example() {
        let ciphers = [
            0x5a5a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014,
            0x009c, 0x009d, 0x002f, 0x0035,
        ];
        let extensions = [
            0x3a3a, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012,
            0x002b, 0xff01, 0x000b, 0x000a, 0x0015, 0x9a9a,
        ];
        let algorithms = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
        let mut client = client(&ciphers, &extensions, &[], &algorithms);
        client.version = TlsVersion(0x0304);
        let numbers = FingerprintInput { first_alpn: b"h2".to_vec(), ..FingerprintInput::default() };
        assert_eq!(ja4(&client, &numbers, TransportProtocol::Tcp), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn ja4_counts_to_99_and_says_zeros_for_nothing() {
        let nothing = ja4(&TlsClient::default(), &FingerprintInput::default(), TransportProtocol::Tcp);
        assert_eq!(nothing, "t00i000000_000000000000_000000000000");
        let many: Vec<u16> = (1..200).collect();
        let found =
            ja4(&client(&many, &many, &[], &[]), &FingerprintInput::default(), TransportProtocol::Tcp);
        assert!(found.starts_with("t00i999900_"), "{found}");
    }

    /// The table of JA4's description.
    #[test]
    fn application_protocols_are_named_by_their_ends() {
        for (protocol, expected) in [
            (&b""[..], "00"),
            (b"h2", "h2"),
            (b"http/1.1", "h1"),
            (b"a", "aa"),
            (b"\xab", "ab"),
            (b"\xab\xcd", "ad"),
            (b"\x30\xab", "3b"),
            (b"\x30\x31\xab\xcd", "3d"),
            (b"\x30\xab\xcd\x31", "01"),
        ] {
            assert_eq!(String::from_iter(ends(protocol)), expected, "{protocol:x?}");
        }
    }
}
