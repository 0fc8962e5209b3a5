//! Connections that one end says to be over: the other may go on with them.

use std::time::Duration;

use super::tests::{BAD, GOOD, RULES};
use crate::engine::testing::{Conversation, Setup};
use crate::engine::{Decision, OnFailure};
use crate::event::Endpoint;
use crate::packet::TcpFlags;
use crate::packet::testing::SegmentBuilder;

const ENDINGS: [u8; 2] = [TcpFlags::RST | TcpFlags::ACK, TcpFlags::FIN | TcpFlags::ACK];

fn is_stopped(decision: &Decision) -> bool {
    matches!(decision, Decision::Block | Decision::Drop)
}

/// Sends bytes at a distance from those that one end sends next, without moving on.
fn show_at(talk: &mut Conversation, from_client: bool, ahead: i32, octets: &[u8]) -> Decision {
    let next = talk.next[usize::from(!from_client)];
    talk.show(&talk.segment(from_client).sequence(next.wrapping_add_signed(ahead)).payload(octets))
}

#[test]
fn an_end_that_nobody_proved_forgets_nothing_whatever_time_goes_by() {
    for (from_client, ending) in [true, false].into_iter().flat_map(|from| ENDINGS.map(|end| (from, end))) {
        for seconds in [0, 1, 21, 121, 600] {
            for ahead in [3000, -3000, 300_000, 1] {
                let mut talk = Setup::enforcing(RULES).open();
                talk.show(&talk.segment(from_client).flags(ending).hop_limit(3));
                talk.wait(Duration::from_secs(seconds));
                show_at(&mut talk, from_client, ahead, b"x");
                let decision = show_at(&mut talk, from_client, 0, BAD);
                assert!(is_stopped(&decision), "{from_client} {ending} {seconds} {ahead}");
            }
        }
    }
}

#[test]
fn half_a_banner_behind_which_one_end_says_that_it_is_over_is_never_made_whole() {
    let (half, rest) = BAD.split_at(12);
    for (from_client, ending) in [true, false].into_iter().flat_map(|from| ENDINGS.map(|end| (from, end))) {
        for seconds in [0, 21, 121, 145, 600] {
            let mut talk = Setup::enforcing(RULES).open();
            talk.send(from_client, TcpFlags::ACK | TcpFlags::PSH, half);
            talk.acknowledge(!from_client);
            talk.show(&talk.segment(from_client).flags(ending).hop_limit(3));
            talk.wait(Duration::from_secs(seconds));
            talk.wait(Duration::from_secs(30));
            // A SYN that nobody answers, with the number that would make the rest the first bytes.
            let next = talk.next[usize::from(!from_client)];
            talk.show(&talk.segment(from_client).sequence(next.wrapping_sub(1)).flags(TcpFlags::SYN));
            let decision = talk.send(from_client, TcpFlags::ACK | TcpFlags::PSH, rest);
            assert!(is_stopped(&decision), "{from_client} {ending} {seconds}");
        }
    }
}

#[test]
fn a_connection_that_both_ends_have_closed_is_forgotten() {
    let finish: [&[(bool, u8)]; 3] = [
        &[
            (true, TcpFlags::FIN | TcpFlags::ACK),
            (false, TcpFlags::FIN | TcpFlags::ACK),
            (true, TcpFlags::ACK),
        ],
        &[
            (false, TcpFlags::FIN | TcpFlags::ACK),
            (true, TcpFlags::FIN | TcpFlags::ACK),
            (false, TcpFlags::ACK),
        ],
        &[(true, TcpFlags::RST), (false, TcpFlags::RST)],
    ];
    for closing in finish {
        let mut talk = Setup::enforcing(RULES).open();
        talk.client(b"GET / HTTP/1.1\r\nX: ");
        talk.acknowledge(false);
        for (from_client, flags) in closing {
            talk.send(*from_client, *flags, b"");
            if flags & TcpFlags::FIN != 0 {
                talk.next[usize::from(!from_client)] += 1;
            }
        }
        talk.wait(Duration::from_secs(21));
        let now = talk.engine.counters().flows_now;
        assert_eq!((now.closed, now.undecided, now.blocked), (0, 0, 0), "{closing:?}");
        // The same ports again, and one of the directions alone.
        assert_eq!(talk.show(&talk.segment(true).flags(TcpFlags::SYN)), Decision::Undecided);
    }
}

#[test]
fn a_connection_behind_a_barred_one_is_judged_by_itself() {
    for (said, expected) in [(GOOD, Decision::Undecided), (BAD, Decision::Block)] {
        let mut talk = Setup::enforcing(RULES).open();
        talk.client(b"SSH-2.0-Open");
        talk.acknowledge(false);
        talk.send(true, TcpFlags::RST | TcpFlags::ACK, b"");
        talk.wait(Duration::from_secs(300));
        talk.wait(Duration::from_secs(30));
        assert_eq!(talk.client(b"SSH_7.2\r\n"), Decision::Block);
        talk.lose_of_client(1 << 20);
        talk.lose_of_server(1 << 21);
        talk.handshake();
        assert_eq!(talk.client(said), expected);
    }
}

#[test]
fn a_refused_connection_may_be_tried_again_with_the_same_number() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    let syn = talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn), Decision::Undecided);
    let refusal = talk.segment(false).sequence(0).flags(TcpFlags::RST | TcpFlags::ACK);
    assert_eq!(talk.show(&refusal), Decision::Undecided);
    assert_eq!(talk.show(&syn), Decision::Undecided);
    talk.show(&talk.segment(false).sequence(server - 1).flags(TcpFlags::SYN | TcpFlags::ACK));
    assert_eq!(talk.acknowledge(true), Decision::Undecided);
    assert_eq!(talk.client(GOOD), Decision::Undecided);
    assert_eq!(talk.anomalies(), [""; 0]);
    assert_eq!(talk.server(BAD), Decision::Block);
}

#[test]
fn the_ports_of_a_blocked_connection_may_be_used_again_at_once() {
    let mut talk = Setup::enforcing(RULES).open();
    assert_eq!(talk.client(BAD), Decision::Block);
    // The server knows nothing of the end: it answers the SYN as one out of place, and is reset by what that
    // provokes.
    let syn = talk.segment(true).sequence(0x4000_0000).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn), Decision::Undecided);
    let challenge = talk.segment(false);
    assert_eq!(talk.show(&challenge), Decision::Undecided);
    assert_eq!(talk.show(&challenge.payload(b"x")), Decision::Block, "and nothing else");
    assert_eq!(talk.show(&talk.segment(true).flags(TcpFlags::RST)), Decision::Undecided);
    talk.lose_of_client(0x4000_0001 - talk.client_next());
    talk.lose_of_server(1 << 21);
    talk.handshake();
    assert_eq!(talk.client(GOOD), Decision::Undecided);
}

/// Half a head from each of `ports`, whose clients then reset their connections.
fn dead_heads(talk: &mut Conversation, ports: std::ops::Range<u16>) {
    for port in ports {
        let (client, server) = (Endpoint { port, ..talk.client_endpoint() }, talk.server_endpoint());
        let from_client = SegmentBuilder::new(client, server).sequence(100).acknowledgement(900);
        let from_server = SegmentBuilder::new(server, client).sequence(900).acknowledgement(100);
        let head = b"GET / HTTP/1.1\r\nUser-Agent: ";
        let behind = 100 + u32::try_from(head.len()).unwrap();
        for segment in [
            from_client.clone().sequence(99).flags(TcpFlags::SYN),
            from_server.clone().sequence(899).flags(TcpFlags::SYN | TcpFlags::ACK),
            from_client.clone(),
            from_client.clone().payload(head),
            from_server.acknowledgement(behind),
            from_client.sequence(behind).flags(TcpFlags::RST | TcpFlags::ACK),
        ] {
            assert_eq!(talk.show(&segment), Decision::Undecided, "{port}");
        }
    }
}

#[test]
fn dead_connections_keep_nobody_out_and_stay_dead() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_failure = on_failure;
        setup.config.flow_limit = 400;
        let mut talk = setup.midstream();
        dead_heads(&mut talk, 1000..1400);
        for seconds in [0, 30, 120, 60] {
            talk.wait(Duration::from_secs(seconds));
            dead_heads(&mut talk, 2000..2400);
            assert_eq!(talk.engine.counters().no_room, 0, "{on_failure:?}");
        }
        let (client, server) = (Endpoint { port: 2399, ..talk.client_endpoint() }, talk.server_endpoint());
        talk.wait(Duration::from_secs(300));
        let rest =
            SegmentBuilder::new(client, server).sequence(128).acknowledgement(900).payload(b"sqlmap\r\n");
        assert_eq!(talk.show(&rest), Decision::Block, "{on_failure:?}");
    }
}

#[test]
fn a_direction_begins_where_its_receiver_stands_whatever_comes_first() {
    for from_client in [true, false] {
        for ahead in [3000, 1, 300_000, -3000] {
            for size in [BAD.len(), 5] {
                let mut talk = Setup::enforcing(RULES).midstream();
                show_at(&mut talk, from_client, ahead, b"x");
                talk.acknowledge(!from_client);
                let mut decisions = BAD.chunks(size).map(|piece| {
                    let decision = talk.send(from_client, TcpFlags::ACK | TcpFlags::PSH, piece);
                    talk.acknowledge(!from_client);
                    decision
                });
                assert!(decisions.any(|decision| is_stopped(&decision)), "{from_client} {ahead} {size}");
            }
        }
    }
}

#[test]
fn what_is_condemned_stays_so_whatever_its_sender_says() {
    let (half, rest) = BAD.split_at(12);
    for ahead in [300_000, 3_000_000, -300_000] {
        let mut talk = Setup::enforcing(RULES).midstream();
        talk.show(&talk.segment(true).sequence(talk.client_next() - 1).flags(TcpFlags::SYN));
        assert_eq!(talk.client(half), Decision::Undecided);
        assert_eq!(talk.show(&talk.segment(true).payload(rest)), Decision::Drop);
        show_at(&mut talk, true, ahead, b"x");
        assert_eq!(talk.show(&talk.segment(true).payload(rest)), Decision::Drop, "{ahead}");
    }
}

#[test]
fn packets_without_a_connection_are_few_events_and_no_drops() {
    let mut talk = Setup::enforcing(RULES).midstream();
    for _ in 0..20_000 {
        assert_eq!(talk.stranger(TcpFlags::SYN, BAD), Decision::Drop);
        // As fast as a link brings them.
        talk.now = talk.now.before(Duration::from_micros(900));
    }
    talk.wait(Duration::from_secs(30));
    assert!(talk.events.len() <= 100, "{}", talk.events.len());
    assert!(talk.anomalies().iter().all(|name| *name == "unconfirmed_match"), "{:?}", talk.anomalies());
    assert_eq!(talk.anomalies().len(), talk.events.len(), "neither alerts nor drops");
}
