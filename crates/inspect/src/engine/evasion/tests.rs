use std::time::Duration;

use proptest::prelude::*;

use crate::engine::AnomalyAction::{Alert, Drop};
use crate::engine::testing::{Conversation, Setup};
use crate::engine::{AnomalyAction, AnomalyPolicy, ChecksumState, Decision};
use crate::event::EventKind;
use crate::packet::TcpFlags;

pub(super) const RULES: &str = r#"
[[rule]]
id = "old-ssh"
title = "An old server"
protocol = "ssh"
from = "either"
match.software = '^OpenSSH_7'
action = "drop"

[[rule]]
id = "old-apache"
title = "An old server"
protocol = "http"
from = "server"
match."header.server" = '^Apache/2\.2'
action = "drop"
"#;

pub(super) const BAD: &[u8] = b"SSH-2.0-OpenSSH_7.2\r\n";
pub(super) const GOOD: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";

fn open(policy: AnomalyAction) -> Conversation {
    let mut setup = Setup::enforcing(RULES);
    setup.config.on_anomaly = AnomalyPolicy::all(policy);
    setup.open()
}

/// Sends a server's segment that the receiver would ignore, then the real banner: the first is told
/// (and dropped where the policy says so), the second blocked.
fn is_told_and_the_banner_blocked(
    name: &str,
    trick: impl Fn(&Conversation) -> crate::packet::testing::SegmentBuilder,
) {
    for policy in [Alert, Drop] {
        let mut talk = open(policy);
        let segment = trick(&talk);
        let expected = if policy == Drop { Decision::Drop } else { Decision::Undecided };
        assert_eq!(talk.show(&segment), expected, "{name} {policy:?}");
        assert_eq!(talk.anomalies(), [name]);
        assert_eq!(talk.server(BAD), Decision::Block, "{name} {policy:?}");
    }
}

#[test]
fn a_wrong_checksum_is_ignored() {
    is_told_and_the_banner_blocked("bad_checksum", |talk| talk.server_segment(GOOD).bad_checksum());
}

#[test]
fn data_without_ack_is_ignored() {
    is_told_and_the_banner_blocked("data_without_ack", |talk| talk.server_segment(GOOD).flags(TcpFlags::PSH));
}

#[test]
fn an_acknowledgement_of_unsent_data_is_ignored() {
    is_told_and_the_banner_blocked("ack_of_unsent_data", |talk| {
        talk.server_segment(GOOD).acknowledgement(talk.client_next() + 9)
    });
}

#[test]
fn data_beyond_the_window_is_ignored() {
    is_told_and_the_banner_blocked("out_of_window", |talk| {
        talk.server_segment(GOOD).sequence(talk.server_next() + 70_000)
    });
}

#[test]
fn syn_with_fin_is_ignored() {
    is_told_and_the_banner_blocked("contradictory_flags", |talk| {
        talk.server_segment(GOOD).flags(TcpFlags::SYN | TcpFlags::FIN)
    });
}

#[test]
fn a_reset_with_a_wrong_sequence_number_changes_nothing() {
    is_told_and_the_banner_blocked("reset_wrong_sequence", |talk| {
        talk.segment(false).sequence(talk.server_next() + 500).flags(TcpFlags::RST)
    });
}

#[test]
fn a_syn_inside_a_connection_makes_nothing_forgotten() {
    is_told_and_the_banner_blocked("syn_in_connection", |talk| {
        talk.segment(true).sequence(77).flags(TcpFlags::SYN)
    });
}

#[test]
fn the_first_octets_count_and_others_are_told() {
    for policy in [Alert, Drop] {
        let mut talk = open(policy);
        let forged = talk.server_segment(b"SSH-1.9-x\r\n");
        talk.server(&BAD[..12]);
        assert_eq!(talk.show(&forged), Decision::Drop, "{policy:?}");
        assert_eq!(talk.anomalies(), ["overlap_different_data"]);
        assert_eq!(talk.server(&BAD[12..]), Decision::Block);
    }
}

#[test]
fn urgent_and_expiring_data_is_told_and_dropped_by_policy() {
    for (name, urgent) in [("urgent_data", true), ("hop_limit_drop", false)] {
        for policy in [Alert, Drop] {
            let mut talk = open(policy);
            let segment = talk.server_segment(b"SSH-2.0-Op");
            let segment = if urgent { segment.urgent(3) } else { segment.hop_limit(2) };
            let dropped = talk.show(&segment) == Decision::Drop;
            assert_eq!(dropped, policy == Drop);
            assert_eq!(talk.anomalies(), [name]);
            assert_eq!(talk.server(BAD), Decision::Block);
        }
    }
}

#[test]
fn a_split_handshake_does_not_swap_the_sides() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let (client, server) = (talk.client_next(), talk.server_next());
    talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN));
    talk.show(&talk.segment(false).sequence(server - 1).flags(TcpFlags::SYN));
    talk.show(&talk.segment(true).sequence(client - 1).flags(TcpFlags::SYN | TcpFlags::ACK));
    assert_eq!(talk.anomalies(), ["split_handshake"]);
    assert_eq!(talk.server(BAD), Decision::Block);
    let from = talk.events.iter().find_map(|event| match &event.kind {
        EventKind::Alert(alert) => Some(alert.from),
        _ => None,
    });
    assert_eq!(from, Some(crate::event::Side::Server));
}

#[test]
fn data_in_a_syn_is_inspected_with_the_syn() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let syn = talk.segment(true).sequence(talk.client_next() - 1).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn.clone().payload(BAD)), Decision::Drop);
    assert_eq!(talk.show(&syn), Decision::Undecided, "as senders do without an answer");
    let answer = talk.segment(false).sequence(talk.server_next() - 1).flags(TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(talk.show(&answer), Decision::Block, "the server's answer shows that the client is real");
}

#[test]
fn what_comes_instead_of_refused_data_in_a_syn_is_read_afresh() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let syn = talk.segment(true).sequence(talk.client_next() - 1).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn.payload(GOOD)), Decision::Undecided);
    let answer = talk.segment(false).sequence(talk.server_next() - 1).flags(TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(talk.show(&answer), Decision::Undecided);
    assert_eq!(talk.anomalies(), ["fast_open_refused"]);
    assert_eq!(talk.client(BAD), Decision::Block);
}

#[test]
fn the_tiny_segment_that_fills_the_last_hole_is_stopped() {
    let mut talk = open(Alert);
    let start = talk.server_next();
    let segment = talk.segment(false);
    for at in (1..BAD.len()).rev() {
        let sequence = start + u32::try_from(at).unwrap();
        let tiny = segment.clone().sequence(sequence).payload(&BAD[at..=at]);
        assert_eq!(talk.show(&tiny), Decision::Undecided);
    }
    assert_eq!(talk.show(&segment.payload(&BAD[..1])), Decision::Block);
    assert!(talk.anomalies().is_empty());
}

#[test]
fn a_banner_behind_64_kib_of_other_lines_is_found() {
    let mut talk = open(Alert);
    let lines = [b"All work and no play makes Jack a dull boy, as they say.\r\n".as_slice(); 20].concat();
    for _ in 0..60 {
        assert_eq!(talk.server(&lines), Decision::Undecided);
    }
    assert_eq!(talk.server(BAD), Decision::Block);
    assert_eq!(talk.anomalies(), ["ssh_long_preamble"]);
    let mut talk = open(Drop);
    assert!((0..60).any(|_| talk.server(&lines) == Decision::Block));
    assert_eq!(talk.anomalies(), ["ssh_long_preamble"]);
}

#[test]
fn the_first_fragment_counts_and_another_that_differs_is_told() {
    for policy in [Alert, Drop] {
        let mut talk = open(policy);
        let segment = talk.server_segment(BAD).identification(9);
        let fragments = segment.fragments(24);
        let (last, first) = fragments.split_last().unwrap();
        for fragment in first {
            assert_eq!(talk.inspect_cut(fragment, fragment.len()).decision, Decision::Undecided);
        }
        let forged = segment.fragment(0, true, &[b'X'; 24]);
        let expected = if policy == Drop { Decision::Drop } else { Decision::Undecided };
        assert_eq!(talk.inspect_cut(&forged, forged.len()).decision, expected);
        assert_eq!(talk.anomalies(), ["fragment_overlap_different_data"]);
        assert_eq!(talk.inspect_cut(last, last.len()).decision, Decision::Block);
    }
}

#[test]
fn more_out_of_order_than_is_held_is_told_and_dropped_by_policy() {
    for policy in [Alert, Drop] {
        let mut talk = open(policy);
        let start = talk.server_next();
        let ahead = |number: u32| talk.server_segment(b"x").sequence(start + 100 + 2 * number);
        let segments: Vec<_> = (0..70).map(ahead).collect();
        let dropped = segments.iter().filter(|segment| talk.show(segment) == Decision::Drop).count();
        assert_eq!(dropped > 0, policy == Drop, "{policy:?}");
        assert_eq!(talk.anomalies(), ["reorder_limit"]);
        assert_eq!(talk.server(BAD), Decision::Block);
    }
}

#[test]
fn octets_between_messages_are_told_and_blocked_by_policy() {
    for policy in [Alert, Drop] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_anomaly = AnomalyPolicy::all(policy);
        setup.config.http_inspect = crate::engine::HttpInspect::All;
        let mut talk = setup.open();
        talk.client(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let blocked = talk.server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello") == Decision::Block;
        assert_eq!(blocked, policy == Drop);
        assert_eq!(talk.anomalies(), ["http_unexpected_data"]);
        assert_eq!(talk.server(b"HTTP/1.1 200 OK\r\nServer: Apache/2.2\r\n\r\n"), Decision::Block);
    }
}

#[test]
fn more_lines_than_the_budget_are_told_and_blocked_by_policy() {
    for policy in [Alert, Drop] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_anomaly = AnomalyPolicy::all(policy);
        // Less than what is an anomaly by itself.
        setup.config.stream_budget = 1 << 10;
        let mut talk = setup.open();
        talk.client(b"SSH-2.0-x\r\n");
        let lines = [b"All work and no play.\r\n".as_slice(); 50].concat();
        let last = (0..400).map(|_| talk.server(&lines)).find(|decision| *decision != Decision::Undecided);
        let expected = if policy == Drop { Decision::Block } else { Decision::Pass };
        assert_eq!(last, Some(expected));
        assert_eq!(talk.anomalies(), ["inspection_budget_spent"]);
    }
}

#[test]
fn whoever_speaks_alone_may_go_on_and_what_ends_it_is_judged() {
    for (begun, client_alone, client_ends) in
        [("", true, false), ("", false, true), ("", false, false), ("list", false, false)]
    {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_anomaly = "drop,banner=alert".parse().unwrap();
        let mut talk = setup.open();
        let say = |talk: &mut Conversation, client, octets: &[u8]| match client {
            true => talk.client(octets),
            false => talk.server(octets),
        };
        talk.client(begun.as_bytes());
        let (zeros, letters, ends) = ([0; 65_000], [b'a'; 65_000], [b'\n'; 65_000]);
        for octets in [zeros; 8].iter().chain([zeros, letters, ends].iter().cycle().take(120)) {
            assert_eq!(say(&mut talk, client_alone, octets), Decision::Undecided);
            talk.acknowledge(!client_alone);
            // A line that was begun has to end some time.
            talk.wait(Duration::from_millis(if begun.is_empty() { 1000 } else { 1 }));
        }
        assert!(talk.engine.counters().buffered_now < 300_000);
        assert_eq!(say(&mut talk, client_ends, BAD), Decision::Block, "{begun} {client_alone} {client_ends}");
    }
}

#[test]
fn a_client_that_has_begun_no_request_may_be_answered_for_ever() {
    // What iperf3 begins with: a cookie of 36 letters and NUL.
    let cookie = [[b'a'; 36].as_slice(), b"\0"].concat();
    for pieces in [1, 37] {
        let mut setup = Setup::enforcing(RULES);
        setup.config.on_anomaly = "drop,banner=alert".parse().unwrap();
        let mut talk = setup.open();
        for piece in cookie.chunks(pieces) {
            assert_eq!(talk.client(piece), Decision::Undecided);
            talk.acknowledge(false);
        }
        assert_eq!(talk.server(&[0; 65_000]), Decision::Undecided);
        assert!(talk.passes_once_searched(), "in {pieces}");
    }
}

#[test]
fn what_a_queue_does_not_show_replaces_nothing_that_was_not_received() {
    let lines = [b"a line\r\n".as_slice(); 350].concat();
    let mut forged = lines.clone();
    forged.truncate(1400);
    forged.extend_from_slice(&[b"\r\n", BAD].concat());
    forged.resize(lines.len(), b' ');
    // All of it in order, or its end ahead of its turn.
    for ahead in [false, true] {
        let mut talk = open(Alert);
        // Where the kernel has verified them, or nobody needs to, a packet's start is enough at first.
        talk.checksums = ChecksumState::NotReady;
        let start = talk.server_next();
        let (first, second) = lines.split_at(460);
        let at =
            |talk: &Conversation, sequence, octets: &[u8]| talk.server_segment(octets).sequence(sequence);
        talk.show(&at(&talk, start + 460, second));
        if !ahead {
            talk.show(&at(&talk, start, first));
        }
        // Nothing is acknowledged: the client took none of it.
        let decision = talk.show_cut(&at(&talk, start, &forged), 512).decision;
        assert_eq!(decision, Decision::Drop, "{ahead}");
    }
}

#[test]
fn what_one_side_alone_sends_passes_where_the_other_is_never_seen() {
    let mut talk = Setup::enforcing(RULES).midstream();
    let octets = [0; 60_000];
    let mut decisions = Vec::new();
    for _ in 0..40 {
        decisions.push(talk.client(&octets));
        talk.wait(Duration::from_secs(5));
    }
    assert_eq!(decisions.last(), Some(&Decision::Pass), "{decisions:?}");
}

#[test]
fn a_first_line_without_end_in_the_longest_packets_blocks_nobody() {
    let mut talk = open(Alert);
    for _ in 0..20 {
        let segment = talk.segment(true).payload(&[b'a'; 65_535 - 40]);
        assert_eq!(talk.show_cut(&segment, 65_531).decision, Decision::Undecided);
        talk.lose_of_client(65_495);
        talk.acknowledge(false);
    }
}

#[test]
fn packets_too_long_to_be_seen_whole_come_in_any_order() {
    // The longest of loopback; the queue gives all but four bytes.
    let payload = [0; 65_535 - 40];
    let mut setup = Setup::enforcing(RULES);
    setup.config.on_anomaly = "drop,banner=alert".parse().unwrap();
    let mut talk = setup.open();
    for _ in 0..20 {
        let first = talk.server_segment(&payload);
        let second = first.clone().sequence(talk.server_next() + 65_495);
        let acknowledgement = talk.segment(true).acknowledgement(talk.server_next() + 2 * 65_495);
        for segment in [&second, &first, &acknowledgement] {
            let decision = talk.show_cut(segment, 65_531).decision;
            assert_eq!(decision, Decision::Undecided, "{:?}", talk.anomalies());
        }
        talk.lose_of_server(2 * 65_495);
    }
    assert_eq!(talk.server(BAD), Decision::Block);
}

proptest! {
    #[test]
    fn random_packets_never_panic(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..20)) {
        let mut talk = open(Drop);
        for mut packet in packets {
            if let Some(first) = packet.first_mut() {
                *first = if *first < 128 { 0x45 } else { 0x60 };
            }
            talk.inspect_cut(&packet, packet.len());
        }
    }

    #[test]
    fn what_is_found_does_not_depend_on_segmentation(cuts in proptest::collection::vec(1usize..12, 0..20)) {
        let mut talk = open(Alert);
        let mut rest = BAD;
        let mut decisions = Vec::new();
        for cut in cuts.into_iter().chain([BAD.len()]) {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            rest = later;
            if !now.is_empty() {
                decisions.push(talk.server(now));
            }
        }
        let last = decisions.pop();
        prop_assert_eq!(last, Some(Decision::Block));
        prop_assert!(decisions.iter().all(|decision| *decision == Decision::Undecided));
    }
}

#[test]
fn data_that_its_receiver_ignores_does_not_make_its_sender_the_client() {
    let mut setup = Setup::enforcing(&RULES.replace("either", "server"));
    setup.config.on_anomaly = AnomalyPolicy::all(Alert);
    let mut talk = setup.midstream();
    talk.acknowledge(true);
    let ignored = talk.segment(false).flags(0).payload(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(talk.show(&ignored), Decision::Undecided);
    assert_eq!(talk.server(BAD), Decision::Block);
}
