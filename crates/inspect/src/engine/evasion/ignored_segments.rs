//! Segments that receivers ignore, forget or wait for, and floods: the inspected bytes are those that pass.

use std::time::Duration;

use super::tests::{BAD, GOOD, RULES};
use crate::engine::testing::{Conversation, Setup};
use crate::engine::{Decision, OnFailure};
use crate::event::{Endpoint, EventKind};
use crate::packet::testing::SegmentBuilder;
use crate::packet::{ParsedPacket, TcpFlags, parse};

fn open() -> Conversation {
    Setup::enforcing(RULES).open()
}

fn alerts(talk: &Conversation) -> usize {
    talk.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count()
}

#[test]
fn a_decoy_that_the_receiver_ignores_decides_nothing() {
    let mut talk = open();
    talk.client(b"SSH-2.0-x\r\n");
    let real = talk.server_segment(BAD);
    assert_eq!(talk.show(&talk.server_segment(GOOD)), Decision::Undecided);
    // The client says again what it has got: nothing of that.
    assert_eq!(talk.acknowledge(true), Decision::Undecided);
    for _ in 0..3 {
        assert_eq!(talk.show(&real), Decision::Drop);
    }
    assert_eq!(talk.anomalies(), ["overlap_different_data"]);
    assert_eq!(
        talk.show(&talk.server_segment(GOOD)),
        Decision::Undecided,
        "what was let through may come again"
    );
}

#[test]
fn octets_in_a_syn_or_its_answer_are_fixed_until_they_are_acknowledged() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
    let answer = talk.segment(false).sequence(server - 1).flags(TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(talk.show(&answer.payload(GOOD)), Decision::Undecided);
    assert_eq!(talk.acknowledge(true), Decision::Undecided);
    assert_eq!(talk.show(&talk.server_segment(BAD)), Decision::Drop);
}

#[test]
fn what_a_refused_segment_says_changes_nothing() {
    let mut talk = open();
    let start = talk.server_next();
    // Ahead of its turn: what the receiver takes last, or first, nobody knows.
    let decoy = talk.server_segment(&GOOD[4..]).sequence(start + 4);
    assert_eq!(talk.show(&decoy), Decision::Undecided);
    assert_eq!(talk.show(&talk.server_segment(BAD)), Decision::Drop);
    assert_eq!(talk.show(&talk.server_segment(&BAD[..4])), Decision::Undecided, "the hole is still there");
    assert_eq!(talk.client(b"SSH-2.0-x\r\n"), Decision::Undecided);
    assert_eq!(talk.acknowledge(false), Decision::Undecided);
    assert_eq!(talk.show(&talk.server_segment(BAD)), Decision::Drop);
}

#[test]
fn a_connection_from_the_same_port_is_judged_whatever_its_first_number() {
    let mut talk = open();
    talk.client(b"SSH-2.0-x\r\n");
    talk.server(GOOD);
    assert_eq!(talk.acknowledge(true), Decision::Pass);
    let next = talk.client_next();
    // As if the SYN of the first connection were sent again.
    let syn = talk.segment(true).sequence(next - 1).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn), Decision::Undecided);
    let answer =
        talk.segment(false).sequence(90_000).acknowledgement(next).flags(TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(talk.show(&answer), Decision::Undecided);
    let bad = talk.segment(false).sequence(90_001).acknowledgement(next).payload(BAD);
    assert_eq!(talk.show(&bad), Decision::Block);
}

#[test]
fn data_in_a_syn_for_ports_in_use_waits_for_the_answer() {
    let mut talk = open();
    talk.client(b"SSH-2.0-x\r\n");
    talk.server(GOOD);
    assert_eq!(talk.acknowledge(true), Decision::Pass);
    let syn = talk.segment(true).sequence(70_000).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn.clone().payload(BAD)), Decision::Drop);
    assert_eq!(talk.show(&syn), Decision::Undecided);
}

#[test]
fn an_upload_costs_no_budget_and_the_answer_is_judged() {
    let mut talk = open();
    talk.client(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n");
    for _ in 0..300 {
        assert_eq!(talk.client(&[b'x'; 30_000]), Decision::Undecided);
        talk.acknowledge(false);
        talk.wait(Duration::from_secs(1));
    }
    assert!(talk.engine.counters().buffered_now < 10_000);
    assert_eq!(talk.server(b"HTTP/1.1 404 No\r\nServer: Apache/2.2\r\n\r\n"), Decision::Block);
}

#[test]
fn a_flow_begun_in_its_middle_blocks_nobody_until_it_is_confirmed() {
    let mut talk = Setup::enforcing(RULES).midstream();
    // Forged by somebody who knows no number of the connection.
    let forged = talk.server_segment(BAD).sequence(0x1234_5678).acknowledgement(0x9abc_def0);
    for _ in 0..2 {
        assert!(matches!(talk.show(&forged), Decision::Patch(_)), "only a probe goes on");
    }
    talk.acknowledge(true);
    talk.acknowledge(false);
    for _ in 0..3 {
        assert_eq!(talk.client(b"what the connection"), Decision::Undecided);
        assert_eq!(talk.server(b"is about"), Decision::Undecided);
    }
    assert_eq!((alerts(&talk), talk.anomalies()), (0, Vec::new()));
    // A SYN that matches is dropped, and blocks nothing yet.
    let mut talk = Setup::enforcing(RULES).midstream();
    assert_eq!(talk.stranger(TcpFlags::SYN, BAD), Decision::Drop);
    assert_eq!((alerts(&talk), talk.anomalies()), (0, vec!["unconfirmed_match"]));
}

/// `established` of the last event, which is the alert's or the drop's.
fn is_established(talk: &Conversation) -> Option<bool> {
    talk.events.last()?.flow.as_ref()?.established
}

#[test]
fn a_connection_is_established_once_both_ends_have_acknowledged_each_other() {
    let mut talk = open();
    talk.client(BAD);
    assert_eq!(is_established(&talk), Some(true));
    // The SYN and the request in it are the client's word, and so is an acknowledgement that was guessed.
    let mut talk = Setup::enforcing(RULES).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    let syn = talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN);
    talk.show(&syn.clone().payload(BAD));
    assert_eq!(is_established(&talk), Some(false));
    let mut talk = Setup::enforcing(RULES).midstream();
    talk.show(&syn);
    talk.show(&talk.segment(false).sequence(server - 1).flags(TcpFlags::SYN | TcpFlags::ACK));
    talk.show(&talk.segment(true).acknowledgement(server - 9).payload(BAD));
    assert_eq!(is_established(&talk), Some(false), "{:?}", talk.events);
    assert_eq!(talk.client(BAD), Decision::Block);
    assert_eq!(is_established(&talk), Some(true));
    let mut talk = Setup::enforcing(RULES).midstream();
    talk.stranger(TcpFlags::SYN, BAD);
    assert_eq!(is_established(&talk), Some(false), "{:?}", talk.events);
}

#[test]
fn an_answer_before_its_syn_does_not_swap_the_sides() {
    let mut talk = Setup::enforcing(&RULES.replace("either", "client")).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    let early = talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN | TcpFlags::ACK);
    talk.show(&early);
    talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
    talk.show(&talk.segment(false).sequence(server - 1).flags(TcpFlags::SYN | TcpFlags::ACK));
    assert_eq!(talk.client(BAD), Decision::Block);
}

#[test]
fn what_an_answer_before_its_syn_acknowledges_is_not_held_against_the_connection() {
    for guess in [5_u32, 0x4000_0000, 0x9000_0000, 0xd000_0000] {
        let mut talk = Setup::enforcing(RULES).midstream();
        let client = talk.client_next();
        let early = talk.segment(true).sequence(client - 1).acknowledgement(guess);
        talk.show(&early.flags(TcpFlags::SYN | TcpFlags::ACK));
        talk.handshake();
        assert_eq!(talk.client(b"GET / HTTP/1.1\r\n"), Decision::Undecided, "{guess}");
    }
}

#[test]
fn a_fin_that_is_only_guessed_ends_nothing() {
    for guess in [5_u32, 0x4000_0000, 0x9000_0000] {
        let mut talk = open();
        talk.client(b"GET / HTTP/1.1\r\n");
        talk.acknowledge(false);
        let fin = talk.segment(true).sequence(guess).flags(TcpFlags::FIN | TcpFlags::ACK);
        talk.show(&fin);
        assert!(!talk.anomalies().contains(&"http_unfinished_head"), "{guess}");
        assert_eq!(talk.client(b"Host: h\r\n\r\n"), Decision::Undecided);
    }
}

#[test]
fn urgent_octets_reach_their_receiver_as_they_were_judged() {
    let mut talk = open();
    let (start, rest) = BAD.split_at(10);
    assert!(matches!(talk.send(false, TcpFlags::ACK | TcpFlags::URG, start), Decision::Patch(_)));
    assert!(matches!(talk.show(&talk.segment(false).urgent(3)), Decision::Patch(_)));
    assert_eq!(talk.server(rest), Decision::Block);
    assert_eq!(talk.anomalies(), ["urgent_data"]);
    let mut talk = open();
    let packet = talk.server_segment(BAD).urgent(1).build();
    let cut = talk.inspect_cut(&packet, 45).decision;
    assert!(matches!(cut, Decision::More { .. }), "{cut:?}");
    assert_eq!(talk.inspect_cut(&packet, packet.len()).decision, Decision::Block);
}

#[test]
fn urgent_data_is_dropped_where_it_is_told_to_be_and_left_alone_by_a_monitor() {
    let mut setup = Setup::enforcing(RULES);
    setup.config.on_anomaly = "urgent_data=drop".parse().unwrap();
    let mut talk = setup.open();
    assert_eq!(talk.show(&talk.segment(false).urgent(3)), Decision::Drop);
    let mut talk = Setup::monitoring(RULES).open();
    assert_eq!(talk.show(&talk.segment(false).urgent(3)), Decision::Undecided);
}

#[test]
fn a_cut_segment_counts_only_when_its_checksum_was_verified() {
    let mut talk = open();
    let decoy = [b"SSH-2.0-OpenSSH_9.9\r\n".as_slice(), &[b'x'; 900]].concat();
    let inspected = talk.show_cut(&talk.server_segment(&decoy).bad_checksum(), 512);
    assert_eq!(inspected.decision, Decision::Drop);
    assert_eq!(talk.server(BAD), Decision::Block);
}

#[test]
fn whoever_hoards_pays_for_full_buffers() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_failure = on_failure;
        setup.config.buffer_limit = 200_000;
        let mut talk = setup.open();
        let head = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 20_000]].concat();
        for _ in 0..40 {
            // Half a head each, without a handshake.
            talk.stranger(TcpFlags::SYN, &head);
            assert!(talk.engine.counters().buffered_now <= 200_000 + 64_000);
        }
        talk.client(b"SSH-2.0-x\r\n");
        assert_eq!(talk.server(BAD), Decision::Block, "{on_failure:?}");
    }
}

#[test]
fn packets_without_a_connection_displace_each_other_only() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_failure = on_failure;
        setup.config.flow_limit = 64;
        let mut talk = setup.open();
        assert_eq!(talk.server(&BAD[..9]), Decision::Undecided);
        for _ in 0..1000 {
            assert_eq!(talk.stranger(TcpFlags::ACK, b""), Decision::Undecided, "{on_failure:?}");
        }
        assert_eq!(talk.server(&BAD[9..]), Decision::Block, "{on_failure:?}");
        assert_eq!(talk.other().syn(), Decision::Undecided);
    }
}

/// Connections to a server that answers: half a head each, or half a handshake. Gives how many SYNs were let
/// through.
fn connections(talk: &mut Conversation, ports: std::ops::Range<u16>, said: Option<&[u8]>) -> usize {
    let mut admitted = 0;
    for port in ports {
        let (client, server) = (Endpoint { port, ..talk.client_endpoint() }, talk.server_endpoint());
        let from_client =
            |sequence| SegmentBuilder::new(client, server).sequence(sequence).acknowledgement(900);
        let answer = SegmentBuilder::new(server, client).sequence(899).acknowledgement(100);
        let syn = talk.show(&from_client(99).acknowledgement(0).flags(TcpFlags::SYN));
        admitted += usize::from(syn == Decision::Undecided);
        talk.show(&answer.flags(TcpFlags::SYN | TcpFlags::ACK));
        if let Some(said) = said {
            talk.show(&from_client(100));
            assert_eq!(talk.show(&from_client(100).payload(said)), Decision::Undecided);
        }
    }
    admitted
}

#[test]
fn a_few_slow_banners_and_a_flood_of_half_handshakes_keep_nobody_out() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_failure = on_failure;
        setup.config.flow_limit = 400;
        let mut talk = setup.open();
        // The first of the slow ones is a forbidden server.
        assert_eq!(talk.server(&BAD[..9]), Decision::Undecided);
        assert_eq!(connections(&mut talk, 1000..1100, Some(b"GET / HTTP/1.1\r\nX: ")), 100);
        assert_eq!(connections(&mut talk, 2000..4000, None), 2000, "{on_failure:?}");
        assert_eq!(connections(&mut talk, 5000..5100, Some(b"GET / HTTP/1.1\r\nX: ")), 100, "honest ones");
        assert_eq!(talk.engine.counters().no_room, 0);
        if on_failure == OnFailure::Closed {
            assert_eq!(
                talk.server(&BAD[9..]),
                Decision::Block,
                "a flow in the middle of a banner is not evicted"
            );
        }
    }
}

#[test]
fn a_piece_that_came_too_early_does_not_blind_what_a_proxy_relays() {
    let mut talk = open();
    let head = b"CONNECT h:22 HTTP/1.1\r\nHost: h\r\n\r\n";
    let start = talk.client_next();
    let behind = start + u32::try_from(head.len()).unwrap();
    talk.show(&talk.segment(true).sequence(behind + 1).payload(b"\n"));
    talk.client(head);
    talk.client(b"\r\n");
    talk.acknowledge(false);
    talk.server(b"HTTP/1.1 200 Connected\r\n\r\n");
    talk.acknowledge(true);
    assert_eq!(talk.client(BAD), Decision::Block);
}

#[test]
fn what_receivers_throw_away_is_dropped_and_the_real_banner_goes_its_way() {
    // How far back the decoy acknowledges, and whether it is signed.
    for (name, back, signed) in [
        ("old_acknowledgement", 66_000, false),
        ("old_acknowledgement", 1, false),
        ("unexpected_signature", 0, true),
    ] {
        let decoy = |talk: &Conversation| {
            let decoy = talk.server_segment(GOOD).acknowledgement(talk.client_next().wrapping_sub(back));
            if signed { decoy.raw_options(&[19, 18]) } else { decoy }
        };
        let mut talk = open();
        assert_eq!(talk.show(&decoy(&talk)), Decision::Drop, "{name}");
        assert_eq!(talk.anomalies(), [name]);
        assert_eq!(talk.server(b"SSH-2.0-dropbear\r\n"), Decision::Undecided, "another allowed one passes");
        let mut talk = open();
        talk.show(&decoy(&talk));
        assert_eq!(talk.server(BAD), Decision::Block, "{name}");
    }
}

#[test]
fn a_second_path_of_a_multipath_connection_is_refused() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let client = talk.client_next();
    let join = talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN).raw_options(&[30, 12, 0x10]);
    assert_eq!(talk.show(&join), Decision::Drop);
    assert_eq!(talk.anomalies(), ["mptcp_join"]);
}

#[test]
fn a_handshake_of_multipath_tcp_goes_on_as_one_of_tcp() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    let capable = |segment: SegmentBuilder| segment.raw_options(&[30, 4, 0x01]);
    let syn = capable(talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
    let answer = talk.segment(false).sequence(server - 1).acknowledgement(client);
    let answer = capable(answer.flags(TcpFlags::SYN | TcpFlags::ACK));
    for segment in [syn.clone(), syn, answer] {
        let packet = segment.build();
        let Decision::Patch(patch) = talk.show(&segment) else { panic!("both ends would speak it") };
        let patched = patch.apply(&packet, packet.len()).expect("it is whole");
        let Ok(ParsedPacket::Tcp(plain)) = parse(&patched, patched.len()) else { panic!("a segment") };
        assert!(plain.option(30).is_none() && plain.checksums_valid());
    }
    assert_eq!(talk.client(b"GET / HTTP/1.1\r\n"), Decision::Undecided, "the flow goes on");
    let mut monitored = Setup::monitoring(RULES).midstream();
    let syn = capable(monitored.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
    assert_eq!(monitored.show(&syn), Decision::Undecided, "a monitor changes nothing");
}

#[test]
fn what_a_server_says_before_its_syn_is_not_taken_for_its_banner() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
    assert_eq!(talk.show(&talk.server_segment(GOOD)), Decision::Drop);
    assert_eq!(talk.anomalies(), ["data_before_handshake"]);
    talk.show(&talk.segment(false).sequence(server - 1).flags(TcpFlags::SYN | TcpFlags::ACK));
    assert_eq!(talk.acknowledge(true), Decision::Undecided);
    assert_eq!(talk.server(BAD), Decision::Block);
}

#[test]
fn a_second_answer_to_a_syn_is_read_afresh_or_nothing_behind_it_is() {
    for first in [4000_u32, 4990, 6000, 0x8000_0000] {
        let mut talk = Setup::enforcing(RULES).midstream();
        let (client, server) = (talk.client_next(), talk.server_next());
        talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
        let answer = talk.segment(false).flags(TcpFlags::SYN | TcpFlags::ACK);
        talk.show(&answer.clone().sequence(first));
        talk.show(&talk.server_segment(GOOD).sequence(first + 1));
        // The client never saw these, and takes this one.
        assert_eq!(talk.show(&answer.clone().sequence(server - 1)), Decision::Undecided, "{first}");
        assert_eq!(talk.acknowledge(true), Decision::Undecided, "{first}");
        assert_eq!(talk.server(BAD), Decision::Block, "{first}");
        // Or it took the first one, and the second was to mislead.
        let mut talk = Setup::enforcing(RULES).midstream();
        talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
        talk.show(&answer.clone().sequence(server - 1));
        talk.show(&answer.sequence(first));
        talk.show(&talk.server_segment(GOOD).sequence(first + 1));
        talk.acknowledge(true);
        assert_eq!(talk.server(BAD), Decision::Drop, "{first}");
    }
}

#[test]
fn data_before_the_first_octet_is_refused() {
    let mut talk = open();
    let start = talk.server_next();
    let early = talk.server_segment(BAD).sequence(start - 2000);
    assert_eq!(talk.show(&early), Decision::Drop);
    assert_eq!(talk.anomalies(), ["out_of_window"]);
    let probe = talk.server_segment(b"\0").sequence(start - 1);
    assert_eq!(talk.show(&probe), Decision::Undecided, "a keep-alive probe before the first byte");
}

#[test]
fn an_urgent_pointer_beside_a_syn_is_taken_off() {
    for flags in [TcpFlags::SYN, TcpFlags::SYN | TcpFlags::ACK] {
        let mut talk = Setup::enforcing(RULES).midstream();
        let segment = talk.segment(true).flags(flags).urgent(28);
        assert!(matches!(talk.show(&segment), Decision::Patch(_)));
    }
}

#[test]
fn a_mere_reset_of_a_blocked_connection_goes_on_and_changes_nothing() {
    let mut talk = open();
    assert_eq!(talk.server(BAD), Decision::Block);
    assert_eq!(talk.show(&talk.segment(true).flags(TcpFlags::RST)), Decision::Undecided);
    assert_eq!(talk.show(&talk.segment(false).flags(TcpFlags::RST | TcpFlags::ACK)), Decision::Undecided);
    let loaded = talk.segment(false).flags(TcpFlags::RST | TcpFlags::ACK).payload(BAD);
    assert_eq!(talk.show(&loaded), Decision::Block);
    assert_eq!(talk.show(&talk.segment(true).flags(TcpFlags::FIN | TcpFlags::ACK)), Decision::Block);
    assert_eq!(talk.server(BAD), Decision::Block);
}

#[test]
fn a_connection_behind_a_reset_one_is_read_where_the_answers_go_another_way() {
    for ending in [TcpFlags::RST | TcpFlags::ACK, TcpFlags::FIN | TcpFlags::ACK] {
        let mut talk = Setup::enforcing(RULES).midstream();
        let start = talk.client_next();
        talk.show(&talk.segment(true).sequence(start - 1).flags(TcpFlags::SYN));
        assert_eq!(talk.client(GOOD), Decision::Undecided);
        talk.send(true, ending, b"");
        for first in [start.wrapping_add(1 << 30), start.wrapping_sub(1 << 20), start + 700] {
            let syn = talk.segment(true).sequence(first - 1).flags(TcpFlags::SYN);
            assert_eq!(talk.show(&syn), Decision::Undecided);
            let bad = talk.segment(true).sequence(first).payload(BAD);
            assert_eq!(talk.show(&bad), Decision::Drop, "{first}");
            assert_eq!(talk.show(&bad), Decision::Drop, "{first}, sent again");
            talk.show(&talk.segment(true).sequence(first).flags(ending));
        }
    }
}

#[test]
fn half_a_banner_is_not_forgotten_for_a_syn_where_the_answers_go_another_way() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let start = talk.client_next();
    talk.show(&talk.segment(true).sequence(start - 1).flags(TcpFlags::SYN));
    let (half, rest) = BAD.split_at(10);
    assert_eq!(talk.client(half), Decision::Undecided);
    // Neither arrives, and what follows is the rest of the line.
    talk.send(true, TcpFlags::RST | TcpFlags::ACK, b"");
    talk.show(&talk.segment(true).sequence(talk.client_next() - 1).flags(TcpFlags::SYN));
    assert_eq!(talk.client(rest), Decision::Drop);
}
