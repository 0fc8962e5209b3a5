use super::testing::{InitialBuilder, hello};
use super::*;
use crate::banner::tls;
use crate::terms::{QuicVersion, TransportProtocol};

/// RFC 9001 appendix A.2.
const V1: &str = include_str!("vectors/v1-client-initial.hex");

/// RFC 9369 appendix A.2.
const V2: &str = include_str!("vectors/v2-client-initial.hex");

/// RFC 9001 appendix A.4 and RFC 9369 appendix A.4: a Retry of each version.
const RETRIES: [&str; 2] = [
    "ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba",
    "cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6",
];

fn octets(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn packet(datagram: &[u8]) -> LongPacket<'_> {
    match next_packet(datagram) {
        NextPacket::Long(packet, _) => packet,
        other => panic!("{other:?}"),
    }
}

/// The number of the first packet and the message that it holds.
fn opened(datagram: &[u8]) -> Option<(u64, Vec<u8>)> {
    let packet = packet(datagram);
    assert_eq!(packet.kind, LongPacketType::Initial);
    let (mut room, mut hellos) = (Vec::new(), CryptoStream::default());
    let keys = InitialKeys::new(packet.version, &packet.destination).unwrap();
    let (number, payload) = keys.open(&packet, 0, &mut room)?;
    for frame in crypto_frames(&room[payload]) {
        let (offset, octets) = frame.unwrap();
        hellos.take(offset, octets).unwrap();
    }
    let (kind, body) = hellos.next_message().unwrap()?;
    assert_eq!(kind, tls::CLIENT_HELLO);
    Some((number, body.to_vec()))
}

#[test]
fn the_rfcs_samples_are_opened_and_read() {
    for (text, version) in [(V1, QuicVersion::V1), (V2, QuicVersion::V2)] {
        let datagram = octets(text);
        assert_eq!(packet(&datagram).version, version);
        assert_eq!(packet(&datagram).destination.octets(), octets("8394c8f03e515708"));
        let (number, body) = opened(&datagram).expect("keys that fit");
        assert_eq!(number, 2);
        assert_eq!(body.len(), 0xed);
        let client = tls::client(&body, TransportProtocol::Udp).expect("a hello");
        assert_eq!((client.names, client.alpn), (vec!["example.com".to_owned()], vec!["alpn".to_owned()]));
        assert!(client.ja4.starts_with("q13d0211an_"), "{}", client.ja4);
    }
}

#[test]
fn an_octet_that_was_changed_opens_nothing() {
    let datagram = octets(V1);
    for at in [0, 5, 20, 600, 1199] {
        let mut datagram = datagram.clone();
        datagram[at] ^= 1;
        if let NextPacket::Long(packet, _) = next_packet(&datagram) {
            let keys = InitialKeys::new(packet.version, &packet.destination).unwrap();
            assert!(keys.open(&packet, 0, &mut Vec::new()).is_none(), "{at}");
        }
    }
}

#[test]
fn a_retry_has_no_length_and_ends_its_datagram() {
    for text in RETRIES {
        let octets = octets(text);
        let NextPacket::Long(packet, rest) = next_packet(&octets) else { panic!("a long header") };
        assert_eq!((packet.kind, rest.len()), (LongPacketType::Retry, 0));
        assert_eq!(packet.source.octets(), b"\xf0\x67\xa5\x50\x2a\x42\x62\xb5");
    }
}

#[test]
fn what_is_made_here_is_read_in_both_versions_and_one_behind_the_other() {
    let message = hello("www.example", 0);
    for version in [QuicVersion::V1, QuicVersion::V2, QuicVersion(0xff00_001d)] {
        let initial = InitialBuilder { version, ..InitialBuilder::new(b"12345678") };
        let first = initial.clone().crypto(0, &message).padded_to(0);
        assert_eq!(opened(&first).map(|(_, body)| body), Some(message[4..].to_vec()), "{version:?}");
        let both = [first.clone(), initial.number(1).frames(b"\x01").padded_to(900)].concat();
        let NextPacket::Long(_, rest) = next_packet(&both) else { panic!("a first one") };
        assert_eq!(packet(rest).octets.len(), 900);
    }
}

#[test]
fn versions_that_are_not_read_are_told_from_what_is_no_quic() {
    let mut datagram = octets(V1);
    datagram[1..5].copy_from_slice(&0xface_b002_u32.to_be_bytes());
    assert!(matches!(next_packet(&datagram), NextPacket::Unknown(QuicVersion(0xface_b002))));
    assert!(matches!(next_packet(&datagram[..1199]), NextPacket::Other), "no client's first");
    datagram[1..5].fill(0);
    assert!(matches!(next_packet(&datagram), NextPacket::Other), "a server's list of versions");
    for other in [&b""[..], b"\x16\xfe\xfd", b"\x80", b"\xc0\0\0\0\x01", &[0x40; 1200], &[0xff; 1200]] {
        assert!(matches!(next_packet(other), NextPacket::Other), "{other:x?}");
    }
}

#[test]
fn datagrams_in_a_train_are_found() {
    let second = InitialBuilder::new(b"12345678").crypto(0, &hello("www.example", 0)).padded_to(300);
    let train = [&[0x41; 300][..], &second].concat();
    assert!(trains(&train).eq([&second[..]]));
}
