//! The message reader against messages as the kernel writes them, whole, cut and mangled.

use bannerwall_ffi::queue::netlink_message::{
    AnswerMessage, AnswerSubject, MalformedMessage, PacketMessage, QueueMessage, messages,
};
use proptest::prelude::*;

const PACKET: u16 = 0x0300;
const ERROR: u16 = 2;

/// A message as `struct nlmsghdr` frames it.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).expect("short");
    let mut octets = length.to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend([0; 10]);
    octets.extend(body);
    octets
}

/// An attribute as `struct nlattr` frames it, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("short");
    let mut octets = length.to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(value);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// What `nfqnl_build_packet_message` writes for a packet that the copy range cut to `payload`.
fn packet(id: u32, mark: u32, whole_length: u32, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![2, 0];
    body.extend(7_u16.to_be_bytes());
    let mut header = id.to_be_bytes().to_vec();
    header.extend([0x08, 0x00, 2]);
    body.extend(attribute(1, &header));
    body.extend(attribute(5, &3_u32.to_be_bytes()));
    body.extend(attribute(6, &4_u32.to_be_bytes()));
    if mark != 0 {
        body.extend(attribute(3, &mark.to_be_bytes()));
    }
    // `struct nfqnl_msg_packet_hw`: six octets of eight.
    body.extend(attribute(9, &[0, 6, 0, 0, 2, 0, 0, 0, 0, 1, 0xff, 0xff]));
    let time = [1_700_000_000_u64.to_be_bytes(), 25_u64.to_be_bytes()].concat();
    body.extend(attribute(4, &time));
    body.extend(attribute(14, &3_u32.to_be_bytes()));
    body.extend(attribute(16, &1000_u32.to_be_bytes()));
    body.extend(attribute(17, &100_u32.to_be_bytes()));
    body.extend(attribute(18, b"system_u:object_r:ssh_t"));
    body.extend(attribute(13, &whole_length.to_be_bytes()));
    body.extend(attribute(10, payload));
    message(PACKET, &body)
}

/// The kernel's answer with this errno to a message of this type.
fn answer(errno: i32, kind: u16, sequence: u32) -> Vec<u8> {
    let mut body = (-errno).to_ne_bytes().to_vec();
    body.extend(32_u32.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend([0; 2]);
    body.extend(sequence.to_ne_bytes());
    body.extend([0; 4]);
    message(ERROR, &body)
}

fn only(datagram: &[u8]) -> Result<QueueMessage<'_>, MalformedMessage> {
    let mut read: Vec<_> = messages(datagram).collect();
    assert_eq!(read.len(), 1, "{read:?}");
    read.remove(0)
}

#[test]
fn a_packet_is_read_whole() {
    let datagram = packet(9, 0x4000_0000, 1500, b"octets");
    let expected = PacketMessage {
        queue: 7,
        id: 9,
        hardware_protocol: 0x0800,
        hook: 2,
        mark: 0x4000_0000,
        input_interface: 3,
        output_interface: 4,
        input_bridge_port: 0,
        output_bridge_port: 0,
        hardware_address: Some([2, 0, 0, 0, 0, 1]),
        timestamp: Some(1_700_000_000_000_025_000),
        flags: 3,
        user: Some(1000),
        group: Some(100),
        security_context: Some(b"system_u:object_r:ssh_t"),
        wire_length: 1500,
        payload: b"octets",
    };
    assert!(expected.is_truncated() && !expected.checksums_ready() && expected.is_segmented_later());
    assert_eq!(only(&datagram), Ok(QueueMessage::Packet(expected)));
}

#[test]
fn a_late_verdict_and_an_acknowledgement_are_told_apart() {
    let late = AnswerMessage { errno: 2, about: AnswerSubject::Verdict, sequence: 0 };
    assert_eq!(only(&answer(2, 0x0301, 0)), Ok(QueueMessage::Answer(late)));
    let acknowledged = AnswerMessage { errno: 0, about: AnswerSubject::Configuration, sequence: 5 };
    assert_eq!(only(&answer(0, 0x0302, 5)), Ok(QueueMessage::Answer(acknowledged)));
}

#[test]
fn a_packet_without_its_header_is_malformed() {
    assert_eq!(only(&message(PACKET, &[0, 0, 0, 7])), Err(MalformedMessage { packet: None }));
    assert_eq!(only(&message(PACKET, &[])), Err(MalformedMessage { packet: None }));
}

#[test]
fn an_attribute_shorter_than_its_own_header_is_malformed_and_the_packet_still_known() {
    let mut datagram = packet(9, 0, 0, b"");
    let end = datagram.len();
    datagram[end - 4..end - 2].copy_from_slice(&3_u16.to_ne_bytes());
    assert_eq!(only(&datagram), Err(MalformedMessage { packet: Some(9) }));
}

#[test]
fn the_largest_errno_does_not_overflow() {
    let mut datagram = answer(1, 0x0301, 0);
    datagram[16..20].copy_from_slice(&i32::MIN.to_ne_bytes());
    assert_eq!(only(&datagram), Err(MalformedMessage { packet: None }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_octets_never_panic_and_the_reader_ends(datagram in prop::collection::vec(any::<u8>(), 0..400)) {
        let count = messages(&datagram).count();
        prop_assert!(count <= datagram.len() / 16 + 1);
    }

    #[test]
    fn a_mangled_packet_never_panics_nor_shows_octets_that_are_not_there(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut datagram = packet(1, 2, 300, &payload);
        for (at, octet) in changes {
            let at = at.index(datagram.len());
            datagram[at] = octet;
        }
        datagram.truncate(cut.index(datagram.len() + 1));
        for message in messages(&datagram) {
            if let Ok(QueueMessage::Packet(packet)) = message {
                prop_assert!(packet.payload.len() <= datagram.len());
                prop_assert!(packet.wire_length >= packet.payload.len());
            }
        }
    }

    #[test]
    fn a_cut_packet_keeps_its_identification_once_its_header_was_read(
        payload in prop::collection::vec(any::<u8>(), 1..200),
        keep in any::<prop::sample::Index>(),
    ) {
        let datagram = packet(77, 0, 0, &payload);
        let keep = 32 + keep.index(datagram.len() - 31);
        let cut = &datagram[..keep];
        match only(cut) {
            Ok(QueueMessage::Packet(packet)) => {
                prop_assert_eq!(packet.id, 77);
                prop_assert!(payload.starts_with(packet.payload));
                // The payload may be cut or missing, but it is never taken for the whole packet.
                let seen = !packet.payload.is_empty() || packet.wire_length > 0;
                prop_assert_eq!(packet.wire_length, if seen { payload.len() } else { 0 });
            }
            Ok(other) => prop_assert!(false, "{:?}", other),
            Err(malformed) => prop_assert_eq!(malformed, MalformedMessage { packet: Some(77) }),
        }
    }

    #[test]
    fn what_the_kernel_writes_is_read_back(
        id in any::<u32>(),
        mark in any::<u32>(),
        payload in prop::collection::vec(any::<u8>(), 0..2_000),
        longer in 0_u32..70_000,
    ) {
        let whole = u32::try_from(payload.len()).expect("short") + longer;
        let datagram = packet(id, mark, whole, &payload);
        let Ok(QueueMessage::Packet(packet)) = only(&datagram) else {
            return Err(TestCaseError::fail("no packet"));
        };
        prop_assert_eq!((packet.id, packet.mark), (id, mark));
        prop_assert_eq!(packet.wire_length, usize::try_from(whole).expect("fits"));
        prop_assert_eq!(packet.payload, &payload[..]);
    }

    #[test]
    fn messages_behind_each_other_are_all_read(count in 1_usize..5) {
        let datagram: Vec<u8> = (0..count).flat_map(|_| packet(1, 0, 4, b"four")).collect();
        prop_assert_eq!(messages(&datagram).filter(Result::is_ok).count(), count);
    }
}
