use proptest::prelude::*;

use super::*;
use crate::packet::testing::{SegmentBuilder, endpoint};
use crate::packet::{ParsedPacket, parse};

const PAYLOAD: &[u8] = b"SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.10\r\nand some more";

fn segments() -> [SegmentBuilder; 2] {
    [
        SegmentBuilder::new(endpoint("192.0.2.1:22"), endpoint("198.51.100.2:40000")),
        SegmentBuilder::new(endpoint("[2001:db8::1]:22"), endpoint("[2001:db8::2]:40000")),
    ]
    .map(|segment| segment.identification(7).payload(PAYLOAD))
}

fn push(reassembler: &mut FragmentReassembler, packet: &[u8], now: Timestamp) -> ReassemblyResult {
    match parse(packet, packet.len()).unwrap() {
        ParsedPacket::Fragment(fragment) => reassembler.push(&fragment, now),
        other => panic!("no fragment: {other:?}"),
    }
}

fn payload_of(packet: &[u8]) -> Vec<u8> {
    match parse(packet, packet.len()).unwrap() {
        ParsedPacket::Tcp(segment) => {
            assert!(segment.checksums_valid());
            segment.payload().to_vec()
        }
        other => panic!("no segment: {other:?}"),
    }
}

#[test]
fn fragments_in_reverse_order_make_the_packet() {
    for segment in segments() {
        let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
        let mut fragments = segment.fragments(16);
        let first = fragments.remove(0);
        for fragment in fragments.iter().rev() {
            let outcome = push(&mut reassembler, fragment, Timestamp::default());
            assert_eq!(outcome, ReassemblyResult::Waiting);
        }
        let ReassemblyResult::Whole(packet) = push(&mut reassembler, &first, Timestamp::default()) else {
            panic!("not whole");
        };
        assert_eq!(payload_of(&packet), PAYLOAD);
        assert_eq!(reassembler.octets, 0);
    }
}

#[test]
fn a_packet_of_many_tiny_fragments_is_put_together_in_either_order() {
    let payload: Vec<u8> = (0..9000_u32).map(|at| at.to_le_bytes()[0]).collect();
    for segment in segments().map(|segment| segment.payload(&payload)) {
        for reversed in [false, true] {
            let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
            let mut fragments = segment.fragments(8);
            if reversed {
                fragments.reverse();
            }
            let last = fragments.pop().unwrap();
            for fragment in fragments {
                let outcome = push(&mut reassembler, &fragment, Timestamp::default());
                assert_eq!(outcome, ReassemblyResult::Waiting);
            }
            let ReassemblyResult::Whole(packet) = push(&mut reassembler, &last, Timestamp::default()) else {
                panic!("not whole");
            };
            assert_eq!(payload_of(&packet), payload);
        }
    }
}

#[test]
fn more_holes_than_are_kept_track_of_are_told() {
    for segment in segments() {
        let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
        let outcomes: Vec<_> = (0..70)
            .map(|hole| {
                push(&mut reassembler, &segment.fragment(hole * 16, true, &[0; 8]), Timestamp::default())
            })
            .collect();
        assert!(outcomes[..64].iter().all(|outcome| *outcome == ReassemblyResult::Waiting));
        assert!(outcomes[64..].iter().all(|outcome| *outcome == ReassemblyResult::Malformed));
    }
}

#[test]
fn a_fragment_that_contradicts_an_earlier_one_is_left_out() {
    for segment in segments() {
        let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
        let fragments = segment.fragments(24);
        push(&mut reassembler, &fragments[0], Timestamp::default());
        push(&mut reassembler, &fragments[1], Timestamp::default());
        let forged = segment.fragment(24, true, &[b'X'; 24]);
        assert_eq!(push(&mut reassembler, &forged, Timestamp::default()), ReassemblyResult::Conflict);
        let mut last = ReassemblyResult::Waiting;
        for fragment in &fragments[2..] {
            last = push(&mut reassembler, fragment, Timestamp::default());
        }
        let ReassemblyResult::Whole(packet) = last else { panic!("not whole") };
        assert_eq!(payload_of(&packet), PAYLOAD);
    }
}

#[test]
fn a_fragment_behind_the_end_is_malformed() {
    for segment in segments() {
        let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
        push(&mut reassembler, &segment.fragment(8, false, &[1; 8]), Timestamp::default());
        let behind = segment.fragment(16, true, &[1; 8]);
        assert_eq!(push(&mut reassembler, &behind, Timestamp::default()), ReassemblyResult::Malformed);
        let ragged = segment.fragment(0, true, &[1; 7]);
        assert_eq!(push(&mut reassembler, &ragged, Timestamp::default()), ReassemblyResult::Malformed);
    }
}

#[test]
fn number_memory_and_time_are_bounded() {
    let limits = ReassemblyLimits { packets: 4, octets: 64, ..ReassemblyLimits::default() };
    let mut reassembler = FragmentReassembler::new(limits);
    for identification in 0..100 {
        let [segment, _] = segments().map(|segment| segment.identification(identification));
        push(&mut reassembler, &segment.fragment(0, true, &[1; 32]), Timestamp::default());
        assert!(reassembler.packets.len() <= 4);
        assert!(reassembler.octets <= 64);
    }
    let later = Timestamp::default().after(Duration::from_secs(31));
    let [segment, _] = segments();
    push(&mut reassembler, &segment.fragment(0, true, &[1; 32]), later);
    assert_eq!(reassembler.packets.len(), 1);
}

proptest! {
    #[test]
    fn any_order_with_repeats_makes_the_packet(v6: bool, order in proptest::collection::vec(0usize..10, 0..60)) {
        let segment = &segments()[usize::from(v6)];
        let fragments = segment.fragments(8);
        let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
        let mut whole = None;
        for index in order.into_iter().chain(0..fragments.len()) {
            let Some(fragment) = fragments.get(index) else { continue };
            match push(&mut reassembler, fragment, Timestamp::default()) {
                ReassemblyResult::Whole(packet) => {
                    whole = Some(packet);
                    break;
                }
                other => prop_assert_eq!(other, ReassemblyResult::Waiting),
            }
        }
        prop_assert_eq!(payload_of(&whole.unwrap()), PAYLOAD);
    }
}
