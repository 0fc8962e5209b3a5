//! Bodies that go by: an engine that sees the rest, beside one that sees all.

use std::time::Duration;

use super::super::testing::{Conversation, NO_SQLMAP, Setup};
use super::super::{AnomalyAction, AnomalyPolicy, Decision, HttpInspect};
use crate::event::EventKind;
use crate::packet::testing::SegmentBuilder;
use crate::packet::{ParsedPacket, TcpFlags, parse};

const PLAIN: u8 = TcpFlags::ACK;

fn setup(rules: &str, hands_over: bool) -> Setup {
    let mut setup = Setup::enforcing(rules);
    setup.config.http_inspect = HttpInspect::All;
    setup.config.hands_over = hands_over;
    setup
}

fn open() -> Conversation {
    setup(NO_SQLMAP, true).open()
}

fn request(path: &str, agent: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\n\r\n").into_bytes()
}

fn head(length: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// A conversation within the released body of a first response, which is a MiB long.
fn released() -> Conversation {
    let mut talk = open();
    talk.client(&request("/1", "curl"));
    assert_eq!(talk.server(&head(1 << 20)), Decision::Undecided);
    assert_eq!(talk.acknowledge(true), Decision::Release);
    talk
}

/// So many bytes of the server's go by.
fn go_by(talk: &mut Conversation, count: u32) {
    talk.lose_of_server(count);
}

#[test]
fn a_long_body_is_released_by_what_acknowledges_its_head() {
    let mut talk = open();
    talk.client(&request("/", "curl"));
    let before = talk.segment(true);
    assert_eq!(talk.server(&head(1 << 20)), Decision::Undecided);
    assert_eq!(talk.show(&before), Decision::Undecided, "it says nothing of the head");
    assert_eq!(talk.server(&[0; 1000]), Decision::Undecided);
    assert_eq!(talk.acknowledge(true), Decision::Release);
    assert_eq!(talk.acknowledge(true), Decision::Undecided, "it is released");
    assert_eq!(talk.engine.counters().released, 1);
}

#[test]
fn what_is_short_unknown_or_not_alone_is_not_released() {
    let long = head(1 << 20);
    let cases: [(&[u8], &[u8]); 8] = [
        (&request("/", "curl"), &head((64 << 10) - 1)),
        (&request("/", "curl"), &head(1 << 30)),
        (&request("/", "curl"), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n"),
        (&request("/", "curl"), b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"),
        (&request("/", "curl"), b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nContent-Length: 5\r\n\r\n"),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", &long),
        (&[request("/1", "curl"), request("/2", "curl")].concat(), &long),
        (&[request("/1", "curl"), b"GET /2 HT".to_vec()].concat(), &long),
    ];
    for (asked, answered) in cases {
        let mut setup = setup(NO_SQLMAP, true);
        setup.config.on_anomaly = AnomalyPolicy::all(AnomalyAction::Alert);
        let mut talk = setup.open();
        talk.client(asked);
        talk.server(answered);
        let name = format!("{} {}", asked.escape_ascii(), answered.escape_ascii());
        assert_eq!(talk.acknowledge(true), Decision::Undecided, "{name}");
    }
    let mut talk = setup(NO_SQLMAP, false).open();
    talk.client(&request("/", "curl"));
    talk.server(&long);
    assert_eq!(talk.acknowledge(true), Decision::Undecided, "nobody lets packets by");
    let upload = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    let mut talk = open();
    talk.client(upload);
    talk.server(&long);
    assert_eq!(talk.acknowledge(true), Decision::Undecided, "the request goes on");
    talk.client(b"12345");
    assert_eq!(talk.acknowledge(true), Decision::Release);
}

#[test]
fn a_rule_about_bodies_has_what_it_wants_before() {
    let rule = "[[rule]]\nid = \"b\"\ntitle = \"t\"\nprotocol = \"http\"\nfrom = \"server\"\n\
                match.body = { contains = \"forbidden\" }\naction = \"drop\"\nseverity = \"high\"\n";
    let Ok(parsed) = crate::rules::RuleSet::parse("b.toml", rule) else { return };
    let wanted = parsed.rules.needs().body;
    let mut talk = setup(&format!("{NO_SQLMAP}{rule}"), true).open();
    talk.client(&request("/", "curl"));
    talk.server(&head(1 << 20));
    assert_eq!(talk.acknowledge(true), Decision::Undecided, "{wanted} octets are wanted");
    for _ in 0..wanted / 1000 + 1 {
        talk.server(&[b'x'; 1000]);
    }
    assert_eq!(talk.acknowledge(true), Decision::Release);
}

#[test]
fn the_next_request_is_read_wherever_the_body_stands() {
    for gone in [0, 1, 500_000, 1 << 20] {
        for agent in ["curl", "sqlmap/1"] {
            let mut talk = released();
            go_by(&mut talk, gone);
            let wanted = if agent == "curl" { Decision::Regain } else { Decision::Block };
            assert_eq!(talk.client(&request("/2", agent)), wanted, "{gone}");
            assert_eq!(talk.engine.counters().unseen_octets, u64::from(gone));
            if wanted == Decision::Block {
                continue;
            }
            assert_eq!(talk.acknowledge(true), Decision::Undecided, "another one waits");
            // What was under way goes by unseen, and the rest is seen.
            go_by(&mut talk, ((1 << 20) - gone) / 2);
            let rest = (1 << 20) - gone - ((1 << 20) - gone) / 2;
            let rest = [vec![0; rest as usize], head(3), b"abc".to_vec()].concat();
            for part in rest.chunks(60_000) {
                assert_eq!(talk.server(part), Decision::Undecided);
            }
            let told = talk.transactions();
            assert_eq!(told, [(0, "/1".to_owned(), 200, 1 << 20), (1, "/2".to_owned(), 200, 3)], "{gone}");
            assert_eq!(talk.client(&request("/3", "sqlmap/1")), Decision::Block);
        }
    }
}

#[test]
fn a_request_that_was_queued_before_is_asked_for_again_and_is_none_then() {
    let mut talk = released();
    let early = talk.segment(true).payload(&request("/2", "curl"));
    assert_eq!(talk.show(&early), Decision::Regain);
    assert_eq!(talk.show(&early), Decision::Undecided);
    let forged = talk.segment(true).payload(&request("/2", "mozi"));
    assert_eq!(talk.show(&forged), Decision::Drop, "octets that passed are fixed");
}

#[test]
fn a_flow_that_ends_within_a_body_or_behind_it_is_told() {
    for gone in [7000, 1 << 20] {
        for flags in [TcpFlags::FIN | PLAIN, TcpFlags::RST | PLAIN] {
            let mut talk = released();
            go_by(&mut talk, gone);
            assert_eq!(talk.send(false, flags, b""), Decision::Undecided);
            if flags & TcpFlags::FIN != 0 {
                let fin = talk.segment(true).acknowledgement(talk.server_next().wrapping_add(1));
                talk.show(&fin.flags(TcpFlags::FIN | PLAIN));
            }
            talk.wait(Duration::from_secs(60));
            assert_eq!(talk.transactions(), [(0, "/1".to_owned(), 200, 1 << 20)], "{gone} {flags:x}");
            let odd = talk.events.iter().any(|event| matches!(event.kind, EventKind::Anomaly(_)));
            assert!(!odd, "{:?}", talk.events);
            assert_eq!(talk.engine.counters().flows_now.undecided, 0, "{gone} {flags:x}");
        }
    }
}

#[test]
fn what_goes_by_behind_the_end_is_told_and_the_next_answer_is_read() {
    let mut talk = released();
    go_by(&mut talk, (1 << 20) + 4000);
    assert_eq!(talk.client(&request("/2", "curl")), Decision::Regain);
    talk.server(&head(0));
    assert_eq!(talk.transactions().len(), 2);
    let names: Vec<&str> = talk
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Anomaly(anomaly) => Some(anomaly.name),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["http_unexpected_data"]);
    let mut talk = released();
    let beyond = talk.segment(true).payload(&request("/2", "curl"));
    let far = talk.server_next().wrapping_add(1 << 28);
    assert_eq!(talk.show(&beyond.acknowledgement(far)), Decision::Drop, "nobody sent so much");
}

#[test]
fn a_body_is_released_again_where_the_client_speaks_within_it() {
    let mut talk = released();
    // A keep-alive probe with a byte that is old.
    let probe = talk.segment(true).sequence(talk.client_next().wrapping_sub(1)).payload(b"\n");
    assert_eq!(talk.show(&probe), Decision::Regain);
    assert_eq!(talk.acknowledge(true), Decision::Release);
    go_by(&mut talk, 200_000);
    assert_eq!(talk.acknowledge(true), Decision::Undecided, "it was said");
    go_by(&mut talk, (1 << 20) - 200_000);
    assert_eq!(talk.acknowledge(true), Decision::Undecided, "all of it was gone over");
    assert_eq!(talk.transactions().len(), 1);
}

#[test]
fn another_engine_that_goes_on_knows_what_goes_by() {
    let mut talk = released();
    go_by(&mut talk, 5000);
    let unseen = talk.engine.offloaded_flows();
    assert_eq!(unseen.len(), 1);
    // One that was shown the same packets, and releases nothing.
    let mut other = setup(NO_SQLMAP, false).open();
    other.client(&request("/1", "curl"));
    other.server(&head(1 << 20));
    other.acknowledge(true);
    other.engine.expect_offload(&unseen[0]);
    go_by(&mut other, 5000);
    assert_eq!(other.client(&request("/2", "curl")), Decision::Regain);
    go_by(&mut other, 1000);
    let rest = [vec![0; (1 << 20) - 6000], head(3), b"abc".to_vec()].concat();
    for part in rest.chunks(60_000) {
        assert_eq!(other.server(part), Decision::Undecided);
    }
    assert_eq!(other.transactions().len(), 2);
    assert_eq!(other.client(&request("/3", "sqlmap/1")), Decision::Block);
}

/// What the hook does.
struct Kernel {
    released: bool,
    /// A release that takes effect behind so many packets.
    coming: Option<usize>,
}

impl Kernel {
    /// Shows a packet to the engine unless it goes by; whether it got through.
    fn lead(&mut self, talk: &mut Conversation, packet: &[u8], is_client: bool, delay: usize) -> bool {
        if let Some(left) = &mut self.coming {
            self.released |= *left == 0;
            self.coming = left.checked_sub(1);
        }
        let Ok(ParsedPacket::Tcp(segment)) = parse(packet, packet.len()) else { panic!("no segment") };
        let plain = segment.flags().is_plain() && (!is_client || segment.payload().is_empty());
        if self.released && plain {
            return true;
        }
        let was_released = std::mem::take(&mut self.released);
        match talk.inspect_cut(packet, packet.len()).decision {
            Decision::Release => self.coming = Some(delay),
            Decision::Regain if !was_released => {
                // What was under way is in force before the packet comes by once more.
                self.coming = None;
                self.released = false;
                return talk.inspect_cut(packet, packet.len()).decision == Decision::Undecided;
            }
            Decision::Undecided | Decision::Regain => {}
            _ => return false,
        }
        true
    }
}

/// One exchange after the other, in packets of any size, in order or nearly, some of them twice.
fn packets(random: &mut fastrand::Rng, talk: &Conversation) -> Vec<(bool, Vec<u8>)> {
    let [mut client, mut server] = talk.next;
    let mut packets = Vec::new();
    let exchanges = random.usize(1..6);
    for number in 0..exchanges {
        let agent = if number > 0 && random.u8(..8) == 0 { "sqlmap/1" } else { "curl" };
        let asked = request(&format!("/{number}"), agent);
        let length = *random.choice([&0, &10, &70_000, &200_000, &300_000]).unwrap();
        let answered = [head(length), vec![b'x'; length]].concat();
        for part in asked.chunks(random.usize(1..200)) {
            packets.push((true, segment(talk, true, client, server, part)));
            client = client.wrapping_add(u32::try_from(part.len()).unwrap());
        }
        let mut burst: Vec<(u32, Vec<u8>)> = Vec::new();
        let size = random.usize(2_000..30_000);
        let mut chunks = answered.chunks(size).peekable();
        while let Some(part) = chunks.next() {
            burst.push((server, part.to_vec()));
            server = server.wrapping_add(u32::try_from(part.len()).unwrap());
            // No more at once than the window allows.
            let is_full = (burst.len() + 1) * size > 60_000;
            if is_full || random.u8(..3) == 0 || chunks.peek().is_none() {
                if burst.len() > 1 && random.bool() {
                    let at = random.usize(1..burst.len());
                    // Only neighbours that together fit into what is held ahead of its turn.
                    if burst[at].1.len() < 30_000 {
                        burst.swap(at - 1, at);
                    }
                }
                if random.u8(..4) == 0 {
                    let again = random.usize(..burst.len());
                    burst.push(burst[again].clone());
                }
                for (at, part) in burst.drain(..) {
                    packets.push((false, segment(talk, false, at, client, &part)));
                }
                packets.push((true, segment(talk, true, client, server, b"")));
            }
        }
    }
    packets
}

fn segment(talk: &Conversation, from_client: bool, sequence: u32, other: u32, payload: &[u8]) -> Vec<u8> {
    let segment: SegmentBuilder = talk.segment(from_client).sequence(sequence).acknowledgement(other);
    segment.flags(PLAIN).window(65_000).payload(payload).build()
}

fn told(talk: &Conversation) -> Vec<String> {
    let told = |kind: &EventKind| match kind {
        EventKind::Alert(alert) => Some(format!("alert {}", alert.rule)),
        EventKind::Drop(drop) => Some(format!("drop {:?}", drop.rule)),
        EventKind::Anomaly(anomaly) => Some(format!("anomaly {}", anomaly.name)),
        EventKind::Application(_) => None,
        _ => Some("other".to_owned()),
    };
    let transactions = talk.transactions().into_iter().map(|it| format!("{it:?}"));
    transactions.chain(talk.events.iter().filter_map(|event| told(&event.kind))).collect()
}

#[test]
fn an_engine_that_does_not_see_bodies_tells_what_one_tells_that_does() {
    let mut unseen = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut some, mut all) = (open(), setup(NO_SQLMAP, false).open());
        let mut kernel = Kernel { released: false, coming: None };
        for (is_client, packet) in packets(&mut random, &some) {
            let passes = kernel.lead(&mut some, &packet, is_client, random.usize(..3));
            let decision = all.inspect_cut(&packet, packet.len()).decision;
            assert_eq!(passes, decision == Decision::Undecided, "{seed}: {decision:?}");
            if decision == Decision::Block {
                break;
            }
        }
        for talk in [&mut some, &mut all] {
            talk.engine.finish(talk.now, &mut talk.events);
        }
        assert_eq!(told(&some), told(&all), "{seed}");
        unseen += some.engine.counters().unseen_octets;
    }
    assert!(unseen > 1 << 20, "{unseen}");
}
