use proptest::prelude::*;

use super::testing::{SegmentBuilder, endpoint};
use super::*;
use crate::event::Endpoint;

fn tcp(packet: &[u8]) -> Segment<'_> {
    match parse(packet, packet.len()).unwrap() {
        ParsedPacket::Tcp(segment) => segment,
        other => panic!("no segment: {other:?}"),
    }
}

fn pairs() -> [(Endpoint, Endpoint); 2] {
    [
        (endpoint("192.0.2.1:40000"), endpoint("198.51.100.2:22")),
        (endpoint("[2001:db8::1]:40000"), endpoint("[2001:db8::2]:22")),
    ]
}

#[test]
fn reads_what_was_built_over_both_versions() {
    for (source, destination) in pairs() {
        let packet = SegmentBuilder::new(source, destination)
            .sequence(0xffff_fff0)
            .acknowledgement(77)
            .flags(TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN)
            .window(512)
            .hop_limit(9)
            .payload(b"SSH-2.0-x\r\n")
            .build();
        let segment = tcp(&packet);
        assert_eq!(segment.source(), source);
        assert_eq!(segment.destination(), destination);
        assert_eq!(segment.sequence(), 0xffff_fff0);
        assert_eq!(segment.acknowledgement(), 77);
        assert!(segment.flags().fin() && segment.flags().ack() && !segment.flags().syn());
        assert_eq!(segment.window(), 512);
        assert_eq!(segment.hop_limit(), 9);
        assert_eq!(segment.payload(), b"SSH-2.0-x\r\n");
        assert_eq!(segment.sequence_length(), 12);
        assert!(segment.is_whole());
        assert!(segment.checksums_valid());
        assert_eq!(segment.header_facts().length as usize, packet.len());
    }
}

#[test]
fn a_wrong_checksum_is_told() {
    for (source, destination) in pairs() {
        let packet = SegmentBuilder::new(source, destination).payload(b"x").bad_checksum().build();
        assert!(!tcp(&packet).checksums_valid());
    }
    let (source, destination) = pairs()[0];
    let mut packet = SegmentBuilder::new(source, destination).build();
    packet[8] ^= 1;
    assert!(!tcp(&packet).checksums_valid(), "the IPv4 header has a checksum of its own");
}

#[test]
fn padding_behind_the_packet_is_left_out() {
    for (source, destination) in pairs() {
        let mut packet = SegmentBuilder::new(source, destination).payload(b"abc").build();
        packet.extend_from_slice(&[0; 6]);
        assert_eq!(tcp(&packet).payload(), b"abc");
        assert!(tcp(&packet).checksums_valid());
    }
}

#[test]
fn a_copy_range_shortens_the_payload_but_not_its_stated_length() {
    let (source, destination) = pairs()[1];
    let packet = SegmentBuilder::new(source, destination).payload(&[7; 100]).build();
    let Ok(ParsedPacket::Tcp(segment)) = parse(&packet[..80], packet.len()) else {
        panic!("no segment");
    };
    assert_eq!(segment.payload().len(), 20);
    assert_eq!(segment.wire_payload_length(), 100);
    assert!(!segment.is_whole());
    assert!(segment.checksums_valid(), "what can't be verified is not called wrong");
}

#[test]
fn headers_behind_the_capture_are_asked_for() {
    let (source, destination) = pairs()[0];
    let packet = SegmentBuilder::new(source, destination).payload(&[7; 100]).build();
    assert_eq!(
        parse(&packet[..30], packet.len()).unwrap_err(),
        PacketError::Captured { needed: 40, captured: 30 }
    );
    assert_eq!(parse(&packet[..30], 30).unwrap_err(), PacketError::Short);
}

#[test]
fn a_stated_length_of_zero_means_the_whole_packet() {
    let (source, destination) = pairs()[0];
    let mut packet = SegmentBuilder::new(source, destination).payload(b"offloaded").build();
    packet[2..4].fill(0);
    assert_eq!(tcp(&packet).payload(), b"offloaded");
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let (source, destination) = pairs()[1];
    let plain = SegmentBuilder::new(source, destination).payload(b"behind options").build();
    let mut packet = plain[..40].to_vec();
    packet[6] = 0;
    packet[4..6].copy_from_slice(&u16::try_from(plain.len() - 24).unwrap().to_be_bytes());
    packet.extend_from_slice(&[60, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend_from_slice(&plain[40..]);
    assert_eq!(tcp(&packet).payload(), b"behind options");
    assert!(tcp(&packet).checksums_valid());
}

#[test]
fn a_reset_is_a_valid_segment_with_the_numbers_asked_for() {
    for (source, destination) in pairs() {
        let offending = SegmentBuilder::new(source, destination).build();
        let addresses = tcp(&offending).addresses();
        let packet = reset(&Reset {
            addresses,
            source_port: source.port,
            destination_port: destination.port,
            sequence: 1234,
            acknowledgement: 5678,
        });
        let segment = tcp(&packet);
        assert!(segment.flags().rst() && segment.flags().ack());
        assert_eq!((segment.sequence(), segment.acknowledgement()), (1234, 5678));
        assert_eq!((segment.source(), segment.destination()), (source, destination));
        assert!(segment.checksums_valid());
        assert_eq!(addresses.destination(), destination.address);
    }
}

proptest! {
    #[test]
    fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..200), wire in 0usize..400) {
        if let Ok(ParsedPacket::Tcp(segment)) = parse(&octets, wire) {
            let _ = (segment.checksums_valid(), segment.header_facts(), segment.window_scale());
            prop_assert!(segment.payload().len() <= segment.wire_payload_length());
        }
    }

    #[test]
    fn a_damaged_packet_never_panics(v6: bool, at in 0usize..60, value: u8, cut in 0usize..80) {
        let (source, destination) = pairs()[usize::from(v6)];
        let mut packet = SegmentBuilder::new(source, destination).payload(b"SSH-2.0-x\r\n").build();
        if let Some(octet) = packet.get_mut(at) {
            *octet = value;
        }
        let cut = cut.min(packet.len());
        if let Ok(ParsedPacket::Tcp(segment)) = parse(&packet[..cut], packet.len()) {
            let _ = (segment.checksums_valid(), segment.timestamp(), segment.sequence_length());
        }
    }
}
