//! Connections whose SYN was not seen: where their ends stand, only both can say.

use std::time::Duration;

use bannerwall_test_support::hello::{client_hello, records};

use super::tests::{BAD, GOOD, RULES};
use crate::engine::testing::{Conversation, NO_SQLMAP, Setup};
use crate::engine::{Decision, HttpInspect};
use crate::event::{ApplicationFacts, EventKind};
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

/// A connection whose client has the lower port, so that the guess of its roles is wrong. Its first bytes
/// show nothing.
fn guessed_wrongly(setup: Setup) -> Conversation {
    let mut talk = setup.picked_up();
    talk.server(b"GE");
    talk.acknowledge(true);
    assert_eq!(talk.server(b"T / HTTP/1.1\r\nHost: h\r\n\r\n"), Decision::Undecided);
    talk.acknowledge(true);
    talk
}

#[test]
fn events_follow_the_roles_that_both_ends_have_shown() {
    for mut setup in [Setup::enforcing(RULES), Setup::monitoring(RULES)] {
        setup.config.http_inspect = HttpInspect::All;
        let mut talk = guessed_wrongly(setup);
        talk.client(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.acknowledge(false);
        talk.server(b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
        talk.acknowledge(true);
        talk.client(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        let told: Vec<_> =
            talk.events.iter().filter_map(|event| Some((&event.kind, event.flow.as_ref()?))).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        for (kind, flow) in told {
            assert!(matches!(kind, EventKind::Application(ApplicationFacts::Http(_))), "{kind:?}");
            assert_eq!((flow.endpoints.client.port, flow.midstream), (22, true));
        }
    }
}

#[test]
fn a_hello_shows_the_client_of_a_connection_whose_beginning_was_not_seen() {
    let mut talk = Setup::enforcing(RULES).picked_up();
    talk.server(&records(&client_hello("h.example", 0), 1 << 14));
    talk.acknowledge(true);
    talk.show(&talk.server_segment(b"x").bad_checksum());
    let clients: Vec<u16> =
        talk.events.iter().filter_map(|event| Some(event.flow.as_ref()?.endpoints.client.port)).collect();
    assert_eq!(clients, [22, 22], "an anomaly and a drop");
}

#[test]
fn a_policy_is_that_of_the_server_once_both_ends_have_shown_which_one_it_is() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (allowed, expected) in [("ssh", Decision::Block), ("http", Decision::Undecided)] {
        let policy = format!("[[policy]]\nport = 40000\nallow = \"{allowed}\"\nmidstream = \"judge\"\n");
        let mut talk = guessed_wrongly(Setup::enforcing(&policy));
        assert_eq!(talk.client(ok), expected, "{allowed}");
    }
    // A rule that a policy names was asked before the roles were shown.
    let named = |agent: &str| {
        format!(
            "[[rule]]\nid = \"r\"\nprotocol = \"http\"\nfrom = \"client\"\naction = \"alert\"\n\
             match.\"header.host\" = '^{agent}$'\n\
             [[policy]]\nport = 40000\nallow_rules = [\"r\"]\nmidstream = \"judge\"\n"
        )
    };
    for (host, expected) in [("x", Decision::Block), ("h", Decision::Undecided)] {
        let mut talk = guessed_wrongly(Setup::enforcing(&named(host)));
        assert_eq!(talk.client(ok), expected, "{host}");
    }
}

#[test]
fn what_is_forbidden_stays_so_behind_roles_that_were_guessed_wrongly() {
    let mut setup = Setup::enforcing(NO_SQLMAP);
    setup.config.http_inspect = HttpInspect::All;
    let mut talk = guessed_wrongly(setup);
    talk.client(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
    talk.acknowledge(false);
    talk.client(b"llo");
    talk.acknowledge(false);
    // Other bytes for those that were read in the other roles.
    let other = talk.segment(true).sequence(talk.client_next() - 3).payload(b"LLO");
    assert_eq!(talk.show(&other), Decision::Undecided, "its receiver has them");
    talk.server(b"GET / HTTP/1.1\r\nUser-Agent: sql");
    assert_eq!(talk.server(b"map/1\r\n\r\n"), Decision::Block);
    let clients: Vec<u16> = talk
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Alert(_) | EventKind::Drop(_) => Some(event.flow.as_ref()?.endpoints.client.port),
            _ => None,
        })
        .collect();
    assert_eq!(clients, [22, 22]);
}
