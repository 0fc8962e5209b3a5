//! Responses that go by: an engine that sees the client's bytes, beside one that sees all.

use std::sync::Arc;
use std::time::Duration;

use super::super::testing::{Conversation, NO_SQLMAP, Setup};
use super::super::{Anomaly, AnomalyPolicy, Decision, HttpInspect};
use crate::event::EventKind;
use crate::packet::testing::SegmentBuilder;
use crate::packet::{ParsedPacket, TcpFlags, parse};
use crate::rules::RuleSet;

const FORBIDDEN: &str = "GET /x HTTP/1.1\r\nHost: h\r\nUser-Agent: sqlmap/1\r\n\r\n";
const ALLOWED: &[u8] = b"GET /y HTTP/1.1\r\nHost: h\r\nUser-Agent: curl\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One about responses.
fn of_servers() -> String {
    NO_SQLMAP.replace("no-sqlmap", "s").replace("client", "server").replace("user-agent", "server")
}

fn setup(hands_over: bool) -> Setup {
    let mut setup = Setup::enforcing(NO_SQLMAP);
    setup.config.http_inspect = HttpInspect::Requests;
    setup.config.hands_over = hands_over;
    setup
}

fn standing() -> Conversation {
    let mut talk = setup(true).open();
    assert_eq!(talk.client(ALLOWED), Decision::Undecided);
    assert_eq!(talk.server(ANSWER), Decision::Undecided, "the client may not have it");
    assert_eq!(talk.acknowledge(true), Decision::Stand);
    talk
}

#[test]
fn responses_go_by_once_the_first_is_acknowledged_and_no_rule_blocks_them() {
    let mut talk = standing();
    assert_eq!(talk.engine.counters().released, 1);
    talk.lose_of_server(5000);
    assert_eq!(talk.client(ALLOWED), Decision::Keep);
    talk.lose_of_server(200);
    assert_eq!(talk.client(ALLOWED), Decision::Keep);
    assert_eq!(talk.engine.counters().unseen_octets, 5200);
    assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Block);
    // Without a segment of the client's own for it.
    let mut talk = setup(true).open();
    talk.client(ALLOWED);
    talk.server(ANSWER);
    assert_eq!(talk.client(ALLOWED), Decision::Undecided);
    assert_eq!(talk.server(ANSWER), Decision::Stand);
    let mut talk = setup(false).open();
    for _ in 0..3 {
        assert_eq!(talk.client(ALLOWED), Decision::Undecided);
        assert_eq!(talk.server(ANSWER), Decision::Undecided);
        assert_eq!(talk.acknowledge(true), Decision::Undecided);
    }
    assert_eq!(talk.transactions().len(), 3);
}

#[test]
fn a_request_that_went_by_uninspected_hides_none_behind_it() {
    let mut talk = standing();
    talk.lose_of_client(u32::try_from(ALLOWED.len()).unwrap());
    talk.lose_of_server(u32::try_from(ANSWER.len()).unwrap());
    talk.engine.record_missed(talk.now);
    // What lies before it may be still to come: who answers says whether.
    assert_eq!(talk.client(ALLOWED), Decision::Regain);
    assert_ne!(talk.server(ANSWER), Decision::Stand, "it is not read yet");
    assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Block);
}

#[test]
fn numbers_go_around_and_memory_stays_flat_over_many_requests() {
    let mut talk = standing();
    let (mut kept, mut regained) = (0, 0);
    for number in 0..20_000_u32 {
        talk.lose_of_server(if number % 7 == 0 { 3 << 30 } else { number });
        match talk.client(ALLOWED) {
            Decision::Keep => kept += 1,
            Decision::Regain => {
                regained += 1;
                assert_eq!(talk.server(ANSWER), Decision::Stand, "{number}");
            }
            other => panic!("{number}: {other:?}"),
        }
        assert!(talk.engine.counters().buffered_now < 64 << 10);
        talk.events.clear();
    }
    assert!(kept > 100 * regained && regained > 10, "{kept} {regained}");
    assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Block);
}

#[test]
fn octets_that_the_server_may_not_have_stay_fixed() {
    let mut talk = standing();
    let first = talk.segment(true).payload(ALLOWED);
    assert_eq!(talk.client(ALLOWED), Decision::Keep);
    for _ in 0..100 {
        talk.lose_of_server(100);
        assert_eq!(talk.client(ALLOWED), Decision::Keep);
    }
    let forged = FORBIDDEN.as_bytes()[..ALLOWED.len().min(FORBIDDEN.len())].to_vec();
    let forged = first.payload(&forged).acknowledgement(talk.server_next());
    assert_eq!(talk.show(&forged), Decision::Drop);
}

#[test]
fn what_may_be_a_tunnel_is_read_as_requests() {
    for asked in [
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\nSSH-2.0",
    ] {
        for between in ["", "SSH-2.0-x\r\n", "\x16\x03\x01\x02\n", "+OK\r\n", "\r\n\r\n"] {
            let mut talk = standing();
            assert_eq!(talk.client(asked.as_bytes()), Decision::Keep, "{asked}");
            // What the server says to that goes by: anything.
            talk.lose_of_server(100);
            if !between.is_empty() {
                talk.client(between.as_bytes());
            }
            talk.lose_of_server(100);
            assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Block, "{asked} {between}");
        }
    }
}

#[test]
fn a_tunnel_that_a_later_request_opens_lasts_and_hides_nothing() {
    for asked in [
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        for seed in 0..4 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut talk = standing();
            assert_eq!(talk.client(asked.as_bytes()), Decision::Keep, "{asked}");
            talk.lose_of_server(100);
            for count in 0..500_u32 {
                // As a frame's mask leaves it; the first has no end of a line for long, the last is text.
                let mut octet = || match seed {
                    0 => 0x82,
                    3 => b'a' + random.u8(..26),
                    _ => random.u8(..),
                };
                let octets: Vec<u8> = (0..if count % 2 == 0 { 1200 } else { 6 }).map(|_| octet()).collect();
                let decision = talk.client(&octets);
                match decision {
                    Decision::Keep => talk.lose_of_server(1200),
                    // Within what looks like a head both sides are read.
                    Decision::Regain | Decision::Undecided => {
                        let answered = talk.server(b"more");
                        assert!(matches!(answered, Decision::Stand | Decision::Undecided), "{answered:?}");
                    }
                    other => panic!("{asked} {seed} {count}: {other:?}"),
                }
                talk.wait(Duration::from_secs(if count % 50 == 0 { 3600 } else { 2 }));
                assert!(talk.engine.counters().buffered_now < 256 << 10);
            }
            assert_eq!(talk.engine.counters().budget_spent, 0);
            assert!(!is_odd(&talk));
            // It was none, or it holds requests.
            talk.client(b"\x82\n");
            assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Block, "{asked}");
        }
    }
}

#[test]
fn what_begins_like_a_request_has_an_end() {
    for begun in ["G", "GET /", "GET /x HTTP/1.1\r\nHost: h\r\n"] {
        let mut talk = standing();
        talk.client(begun.as_bytes());
        talk.wait(Duration::from_secs(600));
        assert_eq!(talk.client(b"x"), Decision::Block, "{begun}");
        assert_eq!(talk.engine.counters().budget_spent, 1, "{begun}");
    }
}

/// True if bytes between messages were told of.
fn is_odd(talk: &Conversation) -> bool {
    let odd = Anomaly::UnexpectedData.name();
    talk.events.iter().any(|event| matches!(&event.kind, EventKind::Anomaly(facts) if facts.name == odd))
}

#[test]
fn octets_behind_requests_are_odd_where_no_tunnel_was_asked_for() {
    let mut talk = standing();
    talk.client(b"\x82\n");
    assert!(is_odd(&talk));
    let mut setup = setup(true);
    setup.config.on_anomaly = "http_unexpected_data=drop".parse().unwrap();
    let mut talk = setup.open();
    talk.client(ALLOWED);
    talk.server(ANSWER);
    assert_eq!(talk.acknowledge(true), Decision::Stand);
    talk.client(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(talk.client(b"\x82\n"), Decision::Block);
}

#[test]
fn rules_that_come_into_force_hold_from_the_next_request_on() {
    for rules in [NO_SQLMAP.to_owned(), format!("{NO_SQLMAP}{}", of_servers())] {
        let mut setup = Setup::enforcing("");
        setup.config.http_inspect = HttpInspect::Requests;
        setup.config.hands_over = true;
        let mut talk = setup.open();
        talk.client(ALLOWED);
        talk.server(ANSWER);
        assert_eq!(talk.acknowledge(true), Decision::Stand);
        assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Keep);
        talk.engine.set_rules(Arc::new(RuleSet::parse("then.toml", &rules).unwrap().rules));
        talk.lose_of_server(5000);
        assert_eq!(talk.client(ALLOWED), Decision::Keep, "as it was decided");
        assert_eq!(talk.client(FORBIDDEN.as_bytes()), Decision::Block);
    }
}

#[test]
fn responses_go_by_by_default_where_requests_alone_would_be_blocked() {
    let of_ssh = "[[rule]]\nid = \"s\"\ntitle = \"t\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                  match.banner = 'x'\naction = \"drop\"\nseverity = \"high\"\n";
    let second = |other: &str| format!("{NO_SQLMAP}{other}");
    let telling = |rules: &str| rules.replace("drop", "alert");
    for (rules, odd, expected) in [
        (NO_SQLMAP.to_owned(), AnomalyPolicy::default(), Decision::Stand),
        (second(&telling(&of_servers())), AnomalyPolicy::default(), Decision::Stand),
        (second(&of_servers()), AnomalyPolicy::default(), Decision::Undecided),
        (second(&telling(of_ssh)), AnomalyPolicy::default(), Decision::Stand),
        (second(of_ssh), AnomalyPolicy::default(), Decision::Undecided),
        (
            NO_SQLMAP.replace("from = \"client\"", "from = \"either\""),
            AnomalyPolicy::default(),
            Decision::Undecided,
        ),
        (NO_SQLMAP.to_owned(), "http_unknown_response=drop".parse().unwrap(), Decision::Undecided),
        (telling(NO_SQLMAP), AnomalyPolicy::default(), Decision::Pass),
    ] {
        let mut setup = Setup::enforcing(&rules);
        setup.config.http_inspect = HttpInspect::Auto;
        setup.config.on_anomaly = odd;
        setup.config.hands_over = true;
        let mut talk = setup.open();
        talk.client(ALLOWED);
        talk.server(ANSWER);
        assert_eq!(talk.acknowledge(true), expected, "{rules}");
    }
}

#[test]
fn a_flow_that_ends_while_responses_go_by_is_closed() {
    for far in [0, 5000, 3 << 30] {
        let mut talk = standing();
        talk.client(ALLOWED);
        talk.lose_of_server(far);
        assert_eq!(talk.send(false, TcpFlags::FIN | TcpFlags::ACK, b""), Decision::Undecided);
        let fin = talk.segment(true).acknowledgement(talk.server_next().wrapping_add(1));
        assert_eq!(talk.show(&fin.flags(TcpFlags::FIN | TcpFlags::ACK)), Decision::Undecided);
        assert_eq!(talk.engine.counters().flows_now.undecided, 0, "{far}");
        assert_eq!(talk.transactions().len(), 2);
    }
}

/// What the hook does, and whether the packet gets through.
fn lead(released: &mut bool, talk: &mut Conversation, packet: &[u8], is_client: bool) -> bool {
    let Ok(ParsedPacket::Tcp(segment)) = parse(packet, packet.len()) else { panic!("no segment") };
    if *released && (!is_client || segment.payload().is_empty()) {
        return true;
    }
    match talk.inspect_cut(packet, packet.len()).decision {
        Decision::Stand => *released = true,
        Decision::Keep => {}
        Decision::Undecided if !*released => {}
        Decision::Undecided | Decision::Regain => {
            *released = false;
            return talk.inspect_cut(packet, packet.len()).decision == Decision::Undecided;
        }
        _ => return false,
    }
    true
}

fn request(random: &mut fastrand::Rng, alone: bool) -> (Vec<u8>, &'static str) {
    let inner = FORBIDDEN;
    let long = inner.len();
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    let (text, answer) = match random.u8(..if alone { 10 } else { 8 }) {
        0 => (format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {long}\r\n\r\n{inner}"), ok),
        1 => (
            format!(
                "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{long:x}\r\n{inner}\r\n0\r\n\r\n"
            ),
            ok,
        ),
        2 => ("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), head),
        3 => ("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), ok),
        4 => ("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n".to_owned(), ok),
        5 => (
            format!(
                "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: {long}\r\n\r\n{inner}"
            ),
            ok,
        ),
        6 => (inner.to_owned(), ok),
        8 => (
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n",
        ),
        _ => (String::from_utf8_lossy(ALLOWED).into_owned(), ok),
    };
    (text.into_bytes(), answer)
}

#[test]
fn the_same_requests_are_blocked_as_where_all_is_seen() {
    let (mut unseen, mut blocked) = (0, 0);
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut some, mut all) = (setup(true).open(), setup(false).open());
        let (mut released, [mut client, mut server]) = (false, some.next);
        'flow: for _ in 0..random.usize(2..12) {
            let alone = random.bool();
            let count = if alone { 1 } else { random.usize(1..4) };
            let (mut asked, mut answered) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let (request, answer) = request(&mut random, alone);
                asked.extend(request);
                answered.extend(answer.as_bytes());
            }
            let size = random.usize(5..300);
            let mut packets: Vec<(bool, u32, u32, Vec<u8>)> = Vec::new();
            for part in asked.chunks(size) {
                packets.push((true, client, server, part.to_vec()));
                client = client.wrapping_add(u32::try_from(part.len()).unwrap());
            }
            for part in answered.chunks(random.usize(5..100)) {
                packets.push((false, server, client, part.to_vec()));
                server = server.wrapping_add(u32::try_from(part.len()).unwrap());
            }
            if random.bool() {
                packets.push((true, client, server, Vec::new()));
            }
            if random.u8(..4) == 0 {
                // One comes twice.
                let again = random.usize(..packets.len());
                packets.insert(again, packets[again].clone());
            }
            for (is_client, sequence, other, payload) in packets {
                let segment: SegmentBuilder = some.segment(is_client).sequence(sequence);
                let packet = segment.acknowledgement(other).flags(TcpFlags::ACK).payload(&payload).build();
                let passes = lead(&mut released, &mut some, &packet, is_client);
                let decision = all.inspect_cut(&packet, packet.len()).decision;
                assert_eq!(passes, decision == Decision::Undecided, "{seed}: {decision:?}");
                if decision == Decision::Block {
                    blocked += 1;
                    break 'flow;
                }
            }
        }
        unseen += some.engine.counters().unseen_octets;
    }
    assert!(unseen > 10_000 && blocked > 50, "{unseen} {blocked}");
}
