use std::sync::Arc;
use std::time::Duration;

use super::testing::{Conversation, Setup, event_kind};
use super::*;
use crate::event::{ApplicationFacts, DropReason, Event, EventKind};
use crate::packet::{ParsedPacket, TcpFlags, parse};

const DROP_OLD_SSH: &str = r#"
[[rule]]
id = "old-ssh"
title = "An old server"
protocol = "ssh"
from = "server"
match.software = '^OpenSSH_7'
action = "drop"
"#;

const BANNER: &[u8] = b"SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.10\r\n";

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(event_kind).collect()
}

#[test]
fn the_segment_that_completes_a_matching_banner_is_the_one_that_is_stopped() {
    for v6 in [false, true] {
        let mut talk = Setup::enforcing(DROP_OLD_SSH).v6(v6).open();
        assert_eq!(talk.server(&BANNER[..20]), Decision::Undecided);
        assert_eq!(talk.server(&BANNER[20..BANNER.len() - 1]), Decision::Undecided);
        assert_eq!(talk.server(&BANNER[BANNER.len() - 1..]), Decision::Block);
        assert_eq!(talk.client(b"SSH-2.0-x\r\n"), Decision::Block);
        assert_eq!(kinds(&talk.events), ["alert", "drop", "ssh"]);
    }
}

#[test]
fn reject_resets_both_ends_with_the_numbers_that_they_expect() {
    for v6 in [false, true] {
        let rules = DROP_OLD_SSH.replace("\"drop\"", "\"reject\"");
        let mut talk = Setup::enforcing(&rules).v6(v6).open();
        talk.server(&BANNER[..10]);
        talk.client(b"SSH-2.0-x\r\n");
        let (client_next, server_next) = (talk.client_next(), talk.server_next());
        let Decision::Reject(resets) = talk.server(&BANNER[10..]) else { panic!("not rejected") };
        for (octets, sequence) in [(&resets.to_receiver, server_next), (&resets.to_sender, client_next)] {
            let Ok(ParsedPacket::Tcp(reset)) = parse(octets, octets.len()) else { panic!("no segment") };
            assert!(reset.flags().rst() && reset.checksums_valid());
            assert_eq!(reset.sequence(), sequence);
        }
        assert_eq!(resets.receiver, talk.client_endpoint().address);
        assert_eq!(resets.sender, talk.server_endpoint().address);
    }
}

/// A conversation of which every transaction is read.
fn reading_all() -> Conversation {
    let mut setup = Setup::monitoring("");
    setup.config.http_inspect = HttpInspect::All;
    setup.open()
}

#[test]
fn packets_that_anybody_can_send_fill_no_log() {
    let mut talk = Setup::monitoring("").midstream();
    for _ in 0..20_000_u32 {
        let mut packet = talk.server_packet(b"x");
        if let Some(last) = packet.last_mut() {
            *last ^= 1;
        }
        talk.inspect_cut(&packet, packet.len());
    }
    let told = kinds(&talk.events).len() as u64;
    assert!((64..1000).contains(&told), "{told}");
    assert_eq!(told + talk.engine.counters().events_suppressed, 20_000);
    assert_eq!(talk.engine.counters().anomalies(Anomaly::BadChecksum), 20_000);
}

/// Sends the same packet 20,000 times at once; each is dropped for this anomaly.
fn drops_fill_no_log(name: &str, mut talk: Conversation, packet: &[u8]) {
    let moment = talk.now;
    for _ in 0..20_000 {
        talk.now = moment;
        assert_eq!(talk.inspect_cut(packet, packet.len()).decision, Decision::Drop, "{name}");
    }
    let told = kinds(&talk.events);
    assert_eq!(told.first(), Some(&"anomaly"), "{name}");
    let EventKind::Anomaly(first) = &talk.events[0].kind else { panic!("{name}") };
    assert_eq!(first.name, name);
    assert!(told.len() < 1000, "{name}: {}", told.len());
    let drops = told.iter().filter(|kind| **kind == "drop").count() as u64;
    assert!(
        drops + told.len() as u64 + talk.engine.counters().events_suppressed >= 20_000,
        "{name}: the others are counted"
    );
}

#[test]
fn packets_that_are_dropped_fill_no_log_and_the_first_is_told() {
    let talk = Setup::enforcing("").midstream();
    let packet = talk.server_segment(b"x").bad_checksum().build();
    drops_fill_no_log("bad_checksum", talk, &packet);
    let talk = Setup::enforcing("").open();
    let packet = talk.server_segment(b"x").flags(TcpFlags::PSH).build();
    drops_fill_no_log("data_without_ack", talk, &packet);
    let talk = Setup::enforcing("").open();
    let mut packet = talk.server_packet(b"x");
    // A TCP header of four bytes.
    packet[32] = 0x10;
    drops_fill_no_log("malformed_packet", talk, &packet);
}

#[test]
fn a_response_is_not_taken_for_another_requests_however_many_wait() {
    let mut talk = reading_all();
    for number in 0..300 {
        let method = if number % 3 == 0 { "HEAD" } else { "GET" };
        talk.client(format!("{method} /{number} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    }
    for number in 0..300_u16 {
        let body = if number % 3 == 0 { "" } else { "abc" };
        let status = 400 + number;
        talk.server(format!("HTTP/1.1 {status} OK\r\nContent-Length: 3\r\n\r\n{body}").as_bytes());
    }
    let transactions = talk.transactions();
    let answered: Vec<_> = transactions.iter().filter(|(_, _, status, _)| *status > 0).collect();
    assert_eq!(answered.len(), 300, "every response is told");
    for (number, url, status, length) in &answered {
        assert_eq!((u32::from(*status), *length), (400 + number, if number % 3 == 0 { 0 } else { 3 }));
        assert!(url.is_empty() || *url == format!("/{number}"), "{url} for {number}");
    }
    assert_eq!(answered.iter().filter(|(_, url, ..)| !url.is_empty()).count(), 128);
    assert_eq!(transactions.len(), 300 + 300 - 128, "and every request, the oldest on their own");
}

#[test]
fn a_replay_does_not_wait_for_ever_for_what_a_capture_lacks() {
    let mut setup = Setup::monitoring("");
    setup.config.http_inspect = HttpInspect::All;
    setup.config.tracking = TrackingMode::Lossy;
    let mut talk = setup.open();
    talk.client(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    talk.lose_of_server(50);
    for _ in 0..70 {
        talk.server(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    }
    assert_eq!(talk.transactions().len(), 70);
}

#[test]
fn a_segment_cut_by_the_copy_range_is_asked_for_again() {
    let mut talk = Setup::enforcing(DROP_OLD_SSH).open();
    let packet = talk.server_packet(BANNER);
    let inspected = talk.inspect_cut(&packet, 60);
    assert_eq!(inspected.decision, Decision::More { octets: packet.len() });
    assert_eq!(talk.engine.counters().packets, 3, "it is the same packet when it comes again");
    assert_eq!(talk.inspect_cut(&packet, packet.len()).decision, Decision::Block);
}

#[test]
fn a_monitor_marks_nothing() {
    let rules = DROP_OLD_SSH.replace("action = \"drop\"", "action = \"mark\"\nmark = \"0x10/0xf0\"");
    let mut talk = Setup::monitoring(&rules).open();
    let packet = talk.server_packet(BANNER);
    assert_eq!(talk.inspect_cut(&packet, packet.len()).mark, None);
    assert!(kinds(&talk.events).contains(&"alert"), "it is told all the same");
}

#[test]
fn a_mark_is_given_with_this_and_every_later_packet() {
    let rules = DROP_OLD_SSH.replace("action = \"drop\"", "action = \"mark\"\nmark = \"0x10/0xf0\"");
    let mut talk = Setup::enforcing(&rules).open();
    let packets = [talk.server_packet(BANNER), talk.segment(true).payload(b"SSH-2.0-x\r\n").build()];
    for packet in [&packets[0], &packets[1], &packets[1]] {
        assert_eq!(talk.inspect_cut(packet, packet.len()).mark.map(|mark| mark.value), Some(0x10));
    }
}

#[test]
fn a_flow_that_ends_early_tells_what_was_seen() {
    let mut talk = Setup::monitoring("").open();
    talk.server(b"SSH-2.0-OpenSSH_9.8\r\n");
    talk.engine.tick(talk.now.after(Duration::from_secs(6 * 24 * 3600)), &mut talk.events);
    assert_eq!(kinds(&talk.events), ["ssh"]);
    assert_eq!(talk.engine.counters().buffered_now, 0);
    assert_eq!(talk.engine.counters().flows_now.undecided, 0);
}

#[test]
fn a_full_table_makes_room_when_failing_open_and_refuses_when_failing_closed() {
    for closed in [false, true] {
        let mut setup = Setup::monitoring("");
        setup.config.flow_limit = 1;
        setup.config.on_failure = if closed { OnFailure::Closed } else { OnFailure::Open };
        let mut talk = setup.open();
        talk.server(b"SSH-2.0-");
        let mut other = Conversation::other(&mut talk);
        let decision = other.syn();
        assert_eq!(decision, if closed { Decision::Drop } else { Decision::Undecided });
    }
}

#[test]
fn reloaded_rules_keep_the_counts_of_those_that_stay() {
    let mut talk = Setup::monitoring(DROP_OLD_SSH).open();
    talk.server(BANNER);
    assert_eq!(talk.engine.counters().matches, [1]);
    let rules = RuleSet::parse("again.toml", DROP_OLD_SSH).unwrap().rules;
    talk.engine.set_rules(Arc::new(rules));
    assert_eq!(talk.engine.counters().matches, [1]);
    talk.engine.set_rules(Arc::new(RuleSet::empty()));
    assert!(talk.engine.counters().matches.is_empty());
}

#[test]
fn every_request_is_read_where_a_rule_in_force_would_block_one() {
    const NO_SQLMAP: &str = "[[rule]]\nid = \"r\"\ntitle = \"t\"\nprotocol = \"http\"\nfrom = \"client\"\n\
                             match.\"header.user-agent\" = '^sqlmap/'\naction = \"drop\"\nseverity = \"high\"\n";
    let alerts = NO_SQLMAP.replace("drop", "alert");
    let of_servers = NO_SQLMAP.replace("client", "server").replace("user-agent", "server");
    let decided = |enforce: bool, rules: &str, then: &str, extent| {
        let mut setup = if enforce { Setup::enforcing(rules) } else { Setup::monitoring(rules) };
        setup.config.http_inspect = extent;
        let mut talk = setup.open();
        talk.engine.set_rules(Arc::new(RuleSet::parse("then.toml", then).unwrap().rules));
        talk.client(b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: curl/8\r\n\r\n");
        talk.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.acknowledge(true);
        talk.client(b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: sqlmap/1.7\r\n\r\n")
    };
    for (enforce, rules, extent, expected) in [
        (true, NO_SQLMAP, HttpInspect::Auto, Decision::Block),
        (true, NO_SQLMAP, HttpInspect::First, Decision::Pass),
        (true, NO_SQLMAP, HttpInspect::All, Decision::Block),
        (false, NO_SQLMAP, HttpInspect::Auto, Decision::Pass),
        (true, &alerts, HttpInspect::Auto, Decision::Pass),
        (true, &of_servers, HttpInspect::Auto, Decision::Pass),
    ] {
        assert_eq!(decided(enforce, rules, rules, extent), expected, "{enforce} {extent:?} {rules}");
        // As a reload leaves it.
        assert_eq!(decided(enforce, "", rules, extent), expected, "{enforce} {extent:?} {rules}");
    }
    assert_eq!(decided(true, NO_SQLMAP, &alerts, HttpInspect::Auto), Decision::Pass);
}

#[test]
fn a_familiar_line_is_judged_by_the_rules_in_force_and_by_its_addresses() {
    let scoped = DROP_OLD_SSH.replace("[[rule]]", "[[rule]]\ndestination = [\"203.0.113.0/24\"]");
    let mut talk = Setup::enforcing("").midstream();
    let expect = |talk: &mut Conversation, server: &str, expected: Decision| {
        // The second time the line is known.
        for _ in 0..2 {
            talk.reopen(server.parse().unwrap());
            talk.client(b"SSH-2.0-Client\r\n");
            let decision = talk.server(BANNER);
            let decision = if decision == Decision::Undecided { talk.acknowledge(true) } else { decision };
            assert_eq!(decision, expected, "{server}");
        }
    };
    expect(&mut talk, "198.51.100.2", Decision::Pass);
    talk.engine.set_rules(Arc::new(RuleSet::parse("scoped.toml", &scoped).unwrap().rules));
    expect(&mut talk, "198.51.100.2", Decision::Pass);
    expect(&mut talk, "203.0.113.2", Decision::Block);
    expect(&mut talk, "198.51.100.2", Decision::Pass);
    talk.engine.set_rules(Arc::new(RuleSet::parse("all.toml", DROP_OLD_SSH).unwrap().rules));
    expect(&mut talk, "198.51.100.2", Decision::Block);
}

#[test]
fn fragments_are_put_together_and_the_last_one_is_stopped() {
    for v6 in [false, true] {
        let mut talk = Setup::enforcing(DROP_OLD_SSH).v6(v6).open();
        let mut fragments = talk.server_segment(BANNER).identification(9).fragments(24);
        let last = fragments.pop().unwrap();
        for fragment in &fragments {
            assert_eq!(talk.inspect_cut(fragment, fragment.len()).decision, Decision::Undecided);
        }
        assert_eq!(talk.inspect_cut(&last, last.len()).decision, Decision::Block);
    }
}

#[test]
fn a_retransmitted_end_of_a_blocked_banner_stays_blocked() {
    let mut talk = Setup::enforcing(DROP_OLD_SSH).open();
    let packet = talk.server_packet(BANNER);
    for _ in 0..3 {
        assert_eq!(talk.inspect_cut(&packet, packet.len()).decision, Decision::Block);
    }
    assert_eq!(talk.send(false, TcpFlags::SYN, b""), Decision::Undecided, "another connection may begin");
}

#[test]
fn a_spent_time_budget_is_told_once_when_only_monitoring() {
    let mut setup = Setup::monitoring("");
    setup.config.on_anomaly = AnomalyPolicy::all(AnomalyAction::Drop);
    let mut talk = setup.open();
    talk.server(b"SSH-2.0-never ends");
    talk.now = talk.now.after(Duration::from_secs(121));
    assert_eq!(talk.server(b" ..."), Decision::Pass);
    assert_eq!(talk.server(b" ..."), Decision::Pass);
    assert_eq!(kinds(&talk.events), ["anomaly", "other"]);
}

const DROP_CURL: &str = r#"
[[rule]]
id = "old-curl"
title = "curl"
protocol = "http"
from = "client"
match."header.user-agent" = '^curl/7'
action = "drop"
"#;

const CURL: &[u8] = b"GET /x HTTP/1.1\r\nUser-Agent: curl/7.1\r\n\r\n";

#[test]
fn a_kept_alive_connection_is_read_to_its_end_when_all_transactions_are_asked_for() {
    for large in [false, true] {
        let mut setup = Setup::enforcing(DROP_CURL);
        setup.config.http_inspect = HttpInspect::All;
        let mut talk = setup.open();
        for _ in 0..4 {
            assert_eq!(talk.client(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"), Decision::Undecided);
            talk.now = talk.now.after(Duration::from_secs(50));
            let length = if large { 3_000_000 } else { 3 };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(talk.server(head.as_bytes()), Decision::Undecided);
            for body in vec![b'x'; length].chunks(30_000) {
                assert_eq!(talk.server(body), Decision::Undecided);
            }
        }
        assert_eq!(talk.client(CURL), Decision::Block);
    }
}

#[test]
fn a_body_whose_cut_segments_come_out_of_order_or_twice_ends_where_it_ends() {
    for order in [[1, 0, 2, 3].as_slice(), &[0, 0, 1, 2, 3], &[0, 2, 1, 1, 3], &[3, 1, 0, 2]] {
        let mut setup = Setup::enforcing("");
        setup.config.http_inspect = HttpInspect::All;
        let mut talk = setup.open();
        talk.client(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
        talk.server(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n");
        let part = |start: u32, number: u32| start + number * 1000;
        let start = talk.server_next();
        for number in order {
            let segment = talk.server_segment(&[b'x'; 1000]).sequence(part(start, *number));
            assert_eq!(talk.show_cut(&segment, 512).decision, Decision::Undecided);
        }
        let last = talk.server_segment(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(talk.show(&last.sequence(part(start, 4))), Decision::Undecided);
        let expected = [(0, "/a".to_owned(), 200, 4000), (1, "/b".to_owned(), 404, 0)];
        assert_eq!(talk.transactions(), expected, "{order:?}");
    }
}

#[test]
fn a_segment_that_had_to_be_asked_for_again_is_rejected_with_the_receivers_number() {
    let rules = DROP_CURL.replace("\"drop\"", "\"reject\"");
    let mut talk = Setup::enforcing(&rules).open();
    let head = format!("GET /{} HTTP/1.1\r\nUser-Agent: curl/7.1\r\n\r\n", "x".repeat(900));
    let segment = talk.segment(true).payload(head.as_bytes());
    let Decision::Reject(resets) = talk.show_cut(&segment, 512).decision else { panic!("not rejected") };
    assert_eq!(sequence_of(&resets.to_receiver), talk.client_next());
    assert_eq!(sequence_of(&resets.to_sender), talk.server_next());
}

#[test]
fn the_first_segment_of_a_flow_that_was_picked_up_is_rejected_with_the_receivers_number() {
    let rules = DROP_OLD_SSH.replace("\"drop\"", "\"reject\"");
    let mut talk = Setup::enforcing(&rules).picked_up();
    let expected = talk.server_next();
    let Decision::Reject(resets) = talk.server(BANNER) else { panic!("not rejected") };
    assert_eq!(sequence_of(&resets.to_receiver), expected);
    assert_eq!(sequence_of(&resets.to_sender), talk.client_next());
}

fn sequence_of(packet: &[u8]) -> u32 {
    let Ok(ParsedPacket::Tcp(reset)) = parse(packet, packet.len()) else { panic!("no segment") };
    reset.sequence()
}

#[test]
fn a_mark_that_the_first_octets_of_a_cut_segment_earn_is_not_forgotten() {
    let rules = DROP_CURL.replace("action = \"drop\"", "action = \"mark\"\nmark = \"0x10/0xf0\"");
    let mut setup = Setup::enforcing(&rules);
    setup.config.http_inspect = HttpInspect::All;
    let mut talk = setup.open();
    let next = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(900));
    let segment = talk.segment(true).payload(&[CURL, next.as_bytes()].concat());
    assert_eq!(talk.show_cut(&segment, 512).mark.map(|mark| mark.value), Some(0x10));
}

#[test]
fn what_would_be_blocked_in_a_cut_segment_is_told_and_the_rest_of_it_read() {
    let mut setup = Setup::monitoring(DROP_CURL);
    setup.config.http_inspect = HttpInspect::All;
    let mut talk = setup.open();
    let next = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(900));
    let both = [CURL, next.as_bytes()].concat();
    let segment = talk.segment(true).payload(&both);
    assert_eq!(talk.show_cut(&segment, 512).decision, Decision::Undecided);
    let end = talk.client_next() + u32::try_from(both.len()).unwrap();
    let third = talk.segment(true).payload(CURL).sequence(end);
    assert_eq!(talk.show(&third), Decision::Undecided);
    assert_eq!(kinds(&talk.events), ["alert", "alert"]);
}

#[test]
fn a_packet_that_is_dropped_for_want_of_room_is_told_as_dropped() {
    let mut setup = Setup::monitoring("");
    setup.config.flow_limit = 1;
    setup.config.on_failure = OnFailure::Closed;
    let mut talk = setup.open();
    talk.server(b"SSH-2.0-");
    assert_eq!(talk.other().syn(), Decision::Drop);
    let told = talk.events.last().map(|event| &event.kind);
    assert!(matches!(told, Some(EventKind::Drop(drop)) if drop.reason == DropReason::FlowMemcap), "{told:?}");
}

#[test]
fn a_server_that_takes_the_data_of_a_reopening_syn_is_read() {
    let mut talk = Setup::enforcing(DROP_OLD_SSH).open();
    talk.send(true, TcpFlags::FIN | TcpFlags::ACK, b"");
    talk.send(false, TcpFlags::RST | TcpFlags::ACK, b"");
    let syn = talk.segment(true).sequence(70_000).flags(TcpFlags::SYN).payload(b"SSH-2.0-x\r\n");
    assert_eq!(talk.show(&syn), Decision::Undecided);
    let behind = 70_001 + 11;
    let answer = talk.segment(false).sequence(90_000).acknowledgement(behind);
    assert_eq!(talk.show(&answer.clone().flags(TcpFlags::SYN | TcpFlags::ACK)), Decision::Undecided);
    assert_eq!(talk.show(&answer.sequence(90_001).payload(BANNER)), Decision::Block);
}

/// A conversation that a capture began to record in its middle, of which every transaction is read.
fn captured_midstream() -> Conversation {
    let mut setup = Setup::monitoring("");
    setup.config.http_inspect = HttpInspect::All;
    setup.config.tracking = TrackingMode::Lossy;
    setup.midstream()
}

#[test]
fn heads_that_a_capture_cuts_short_are_told_as_far_as_they_go() {
    let mut talk = captured_midstream();
    let request = talk.segment(true).payload(b"GET /a HTTP/1.1\r\nHost: h\r\nCookie: 1234\r\n\r\n").build();
    talk.inspect_cut(&request, request.len() - 10);
    let response = talk.server_packet(b"HTTP/1.1 404 No\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n");
    talk.inspect_cut(&response, response.len() - 10);
    assert_eq!(talk.transactions(), [(0, "/a".to_owned(), 404, 0)]);
    assert_eq!(kinds(&talk.events), ["http"], "a capture's limit is no anomaly");
}

#[test]
fn fields_behind_a_request_without_a_version_are_told_with_it() {
    for pieces in [
        [&b"GET /a\r\nHost: h\r\nUser-A"[..], b"gent: x\r\n\r\nGET /b HTTP/1.1\r\nHost: i\r\n\r\n"],
        // Empty lines that come in one segment with it are no part of it.
        [b"GET /b HTTP/1.1\r\nHost: i\r\n\r\n\r\n", b"\r\nGET /a\r\nHost: h\r\nUser-Agent: x\r\n\r\n"],
    ] {
        let mut talk = reading_all();
        for piece in pieces {
            talk.client(piece);
        }
        talk.engine.finish(talk.now, &mut talk.events);
        let mut fields: Vec<_> = talk
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Application(ApplicationFacts::Http(http)) => {
                    http.request.as_ref().map(|request| request.headers.len())
                }
                _ => None,
            })
            .collect();
        fields.sort_unstable();
        assert_eq!(fields, [1, 2], "{}", pieces.concat().escape_ascii());
        assert_eq!(kinds(&talk.events), ["anomaly", "http", "http"], "only the version is missing");
    }
}
