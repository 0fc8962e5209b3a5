//! Connections whose SYN was not seen: where their ends stand, only both can say.

use std::time::Duration;

use super::tests::{BAD, GOOD, RULES};
use crate::engine::Decision;
use crate::engine::testing::{Conversation, Setup};
use crate::packet::{PacketPatch, ParsedPacket, TcpFlags, parse};

fn amid() -> Conversation {
    Setup::enforcing(RULES).midstream()
}

/// Sequence number of the probe that a decision sends on.
fn probed(decision: &Decision) -> Option<u32> {
    let Decision::Patch(patch) = decision else { return None };
    let PacketPatch::Replace(packet) = &**patch else { return None };
    let Ok(ParsedPacket::Tcp(segment)) = parse(packet, packet.len()) else { return None };
    assert!(segment.flags().is_plain() && segment.wire_payload_length() == 0 && segment.checksums_valid());
    Some(segment.sequence())
}

#[test]
fn a_decoy_that_its_receiver_has_acknowledged_before_is_not_read() {
    let start = |talk: &Conversation| talk.server_next();
    let length = u32::try_from(GOOD.len()).unwrap();
    // It ends where the receiver stands, or before that, or begins before that.
    for back in [length, length + 9, 1, 2 * length] {
        for asked in [false, true] {
            let mut talk = amid();
            let at = start(&talk) - back;
            let decoy = talk.server_segment(GOOD).sequence(at);
            if !asked {
                talk.acknowledge(true);
            }
            assert_eq!(probed(&talk.show(&decoy)), Some(at - 1), "{back}");
            assert_eq!(talk.acknowledge(true), Decision::Undecided, "{back}: the receiver answers");
            assert!(probed(&talk.show(&decoy)).is_some(), "{back}");
            assert_eq!(talk.server(BAD), Decision::Block, "{back}");
        }
    }
}

#[test]
fn the_last_fragment_of_what_is_disputed_makes_way_for_the_probe() {
    let mut talk = amid();
    let at = talk.server_next() - u32::try_from(GOOD.len()).unwrap();
    let fragments = talk.server_segment(GOOD).sequence(at).fragments(16);
    let (last, first) = fragments.split_last().unwrap();
    for fragment in first {
        assert_eq!(talk.inspect_cut(fragment, fragment.len()).decision, Decision::Undecided);
    }
    assert_eq!(probed(&talk.inspect_cut(last, last.len()).decision), Some(at - 1));
}

#[test]
fn what_one_flight_brings_before_the_receiver_has_answered_does_not_pass() {
    let mut talk = amid();
    let at = talk.server_next();
    let decoy = talk.server_segment(GOOD).sequence(at - u32::try_from(GOOD.len()).unwrap());
    let ahead = talk.server_segment(GOOD).sequence(at + 3000);
    let bad = talk.server_segment(BAD);
    for segment in [&decoy, &bad, &ahead] {
        assert!(probed(&talk.show(segment)).is_some());
    }
    talk.acknowledge(true);
    assert_eq!(talk.show(&bad), Decision::Block);
}

#[test]
fn a_receiver_that_pretends_to_stand_elsewhere_gets_nothing() {
    for lie in [1000, u32::MAX - 1000, 1] {
        let mut talk = amid();
        let true_place = talk.server_next();
        let pretends = talk.segment(true).acknowledgement(true_place.wrapping_add(lie));
        for _ in 0..3 {
            talk.show(&pretends);
            assert!(probed(&talk.show(&talk.server_segment(BAD))).is_some(), "{lie}");
        }
        talk.acknowledge(true);
        assert_eq!(talk.show(&talk.server_segment(BAD)), Decision::Block, "{lie}");
    }
}

#[test]
fn an_allowed_connection_goes_on_behind_one_probe() {
    let mut talk = amid();
    assert!(probed(&talk.show(&talk.server_segment(GOOD))).is_some());
    talk.acknowledge(true);
    assert_eq!(talk.server(GOOD), Decision::Undecided);
    assert_eq!(talk.client(GOOD), Decision::Undecided, "its place was named by the server");
    assert_eq!(talk.acknowledge(false), Decision::Pass);
    assert_eq!(talk.engine.counters().probes, 1);
}

#[test]
fn an_end_is_not_heard_here_once_it_has_answered_no_probe() {
    let mut talk = amid();
    let bad = talk.server_segment(BAD);
    let mut places = Vec::new();
    for _ in 0..3 {
        places.extend(probed(&talk.show(&bad)));
        if places.len() == 1 {
            (0..9).for_each(|_| assert!(probed(&talk.show(&bad)).is_some(), "a flight is one question"));
        }
        talk.wait(Duration::from_secs(1));
    }
    // Its receiver can take one of them without a word, and not two that are so far apart.
    let start = talk.server_next() - 1;
    assert_eq!(places, [start, start ^ (1 << 31), start]);
    assert_eq!(talk.show(&bad), Decision::Drop, "what is seen is judged");
}

#[test]
fn an_end_that_is_heard_after_all_says_where_it_stands() {
    let mut talk = amid();
    let at = talk.server_next();
    let decoy = talk.server_segment(GOOD).sequence(at - 100);
    for _ in 0..3 {
        assert!(probed(&talk.show(&decoy)).is_some());
        talk.wait(Duration::from_secs(1));
    }
    assert_eq!(talk.show(&decoy), Decision::Undecided);
    talk.acknowledge(true);
    assert!(probed(&talk.show(&talk.server_segment(BAD))).is_some());
    talk.acknowledge(true);
    assert_eq!(talk.server(BAD), Decision::Block);
}

#[test]
fn silence_that_the_sender_has_made_lets_nothing_pass() {
    // Acknowledgements that do not reach the receiver.
    let mut talk = amid();
    for _ in 0..8 {
        talk.wait(Duration::from_secs(40));
        let decision = talk.acknowledge(false);
        assert!(decision == Decision::Undecided || probed(&decision).is_some(), "{decision:?}");
        talk.acknowledge(true);
    }
    assert_eq!(talk.server(BAD), Decision::Block);
    // A SYN that does not, and is sent again.
    let mut talk = amid();
    let syn = talk.segment(true).sequence(talk.client_next() - 1).flags(TcpFlags::SYN);
    for _ in 0..8 {
        talk.show(&syn);
        talk.wait(Duration::from_secs(40));
        talk.acknowledge(true);
    }
    talk.handshake();
    assert_eq!(talk.client(BAD), Decision::Block);
}

#[test]
fn a_monitor_sends_nothing_of_its_own() {
    let mut talk = Setup::monitoring(RULES).midstream();
    assert_eq!(talk.server(BAD), Decision::Undecided);
    assert_eq!(talk.engine.counters().probes, 0);
}
