//! Fuzz targets for TLS: records, hellos and certificates.

use super::FuzzChoices;
use crate::banner::tls::{
    self as handshakes, CERTIFICATE, CLIENT_HELLO, RecordPiece, RecordReader, SERVER_HELLO, ServerHelloAnswer,
};
use crate::event::CertificateFacts;
use crate::terms::TransportProtocol;

/// Result for a piece: a record's type, a message's type, and its bytes.
type HandshakePiece = (u8, u8, Vec<u8>);

/// Fuzzes records of one side with a cut: the result must be the same, and hellos must parse.
pub fn tls(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let cut = usize::from(choices.word());
    let octets = choices.0;
    let (part, _) = octets.split_at(cut.min(octets.len()));
    let found = pieces(&[octets]);
    assert_eq!(pieces(&[part, octets]), found, "a cut changes what is said");
    for (_, kind, body) in found.iter().filter(|(record, ..)| *record == 0x16) {
        match *kind {
            CLIENT_HELLO => {
                if let Some(client) = handshakes::client(body, TransportProtocol::Tcp) {
                    assert_eq!(client.ja3.hash.len(), 32, "an MD5 in hexadecimal");
                    assert!(client.ja4.starts_with('t'), "over TCP");
                }
            }
            SERVER_HELLO => {
                if let Some(ServerHelloAnswer::Hello(server)) = handshakes::server(body) {
                    assert_eq!(server.ja3s.hash.len(), 32, "an MD5 in hexadecimal");
                }
            }
            CERTIFICATE => handshakes::certificates(body).iter().for_each(holds),
            _ => {}
        }
    }
}

/// Fuzzes a certificate, whole or not.
pub fn certificate(data: &[u8]) {
    let told = handshakes::chain([data]);
    assert_eq!(told.len(), 1, "what cannot be read is told, too");
    told.iter().for_each(holds);
    assert_eq!(handshakes::chain([data]), told, "the same again");
}

fn holds(certificate: &CertificateFacts) {
    assert_eq!(certificate.sha256.len(), 64, "a SHA-256 in hexadecimal");
    assert_eq!(certificate.sha1.len(), 59, "a SHA-1 in hexadecimal with colons");
    let bits = &certificate.key_bits;
    assert!(bits.bytes().all(|octet| octet.is_ascii_digit()), "a number, or none: {bits}");
    assert!(!certificate.self_signed || certificate.subject == certificate.issuer, "by its own name");
}

/// Returns all pieces of bytes that arrive in stages; each stage includes those before it.
fn pieces(stages: &[&[u8]]) -> Vec<HandshakePiece> {
    let (mut records, mut found) = (RecordReader::default(), Vec::new());
    for stage in stages {
        loop {
            found.push(match records.next(stage) {
                RecordPiece::More(needed) => {
                    assert!(needed > stage.len(), "waits for what is there");
                    break;
                }
                RecordPiece::Message(kind, body) => (0x16, kind, body.to_vec()),
                RecordPiece::Alert(level, code) => (0x15, level, vec![code]),
                RecordPiece::ChangeCipherSpec => (0x14, 0, Vec::new()),
                RecordPiece::Opaque => (0x17, 0, Vec::new()),
                RecordPiece::Never => {
                    found.push((0, 0, Vec::new()));
                    return found;
                }
            });
        }
    }
    found
}
