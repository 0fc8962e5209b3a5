use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::banner::quic::testing::{InitialBuilder, hello};
use crate::engine::{
    AnomalyPolicy, ChecksumState, DecidedFlow, Decision, Engine, EngineConfig, FlowTimeouts, OnFailure,
    PacketInput,
};
use crate::event::{ApplicationFacts, Endpoint, Event, EventKind, Timestamp, TransportProtocol};
use crate::flow::{Anomaly, FlowClass, FlowDecision, KeyEnd};
use crate::packet::testing::{datagram, endpoint};
use crate::rules::RuleSet;
use crate::terms::{QuicVersion, Side};

const RULES: &str = r#"
[[rule]]
id = "forbidden"
protocol = "tls"
from = "client"
severity = "high"
action = "drop"
title = "A forbidden name"
match.sni = '^forbidden\.example$'
examples = [{ sni = "forbidden.example" }]
"#;

const FORBIDDEN: &str = "forbidden.example";

/// A client, a server, and the engine between them.
struct Scene {
    engine: Engine,
    events: Vec<Event>,
    now: Timestamp,
    client: Endpoint,
    server: Endpoint,
    checksums: ChecksumState,
}

impl Scene {
    fn new(change: impl FnOnce(&mut EngineConfig)) -> Self {
        Self::under(RULES, change)
    }

    fn under(rules: &str, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let rules = RuleSet::parse("test.toml", rules).expect("rules without errors").rules;
        let on_anomaly = AnomalyPolicy::default();
        let mut config = EngineConfig { enforce: true, on_anomaly, ..EngineConfig::default() };
        change(&mut config);
        Self {
            engine: Engine::new(config, Arc::new(rules), None),
            events: Vec::new(),
            now: Timestamp::from_nanos(1_000_000_000_000),
            client: endpoint("192.0.2.1:50000"),
            server: endpoint("198.51.100.2:443"),
            checksums: ChecksumState::Verify,
        }
    }

    fn show(&mut self, packet: &[u8]) -> Decision {
        let input = PacketInput {
            now: self.now,
            ip: packet,
            wire_length: packet.len(),
            checksums: self.checksums,
            interface: None,
            vlan: &[],
            packet_number: None,
        };
        self.engine.inspect(&input, &mut self.events).decision
    }

    fn client(&mut self, payload: &[u8]) -> Decision {
        self.show(&datagram(self.client, self.server, payload))
    }

    fn server(&mut self, payload: &[u8]) -> Decision {
        self.show(&datagram(self.server, self.client, payload))
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.engine.tick(self.now, &mut self.events);
    }

    fn names(&self) -> Vec<String> {
        let name = |event: &Event| match &event.kind {
            EventKind::Application(ApplicationFacts::Tls(facts)) => {
                assert_eq!(event.flow.as_ref().map(|flow| flow.transport), Some(TransportProtocol::Udp));
                Some(facts.name().unwrap_or_default().to_owned())
            }
            _ => None,
        };
        self.events.iter().filter_map(name).collect()
    }

    fn kinds(&self) -> Vec<&'static str> {
        let kind = |event: &Event| match &event.kind {
            EventKind::Application(_) => "hello",
            EventKind::Alert(_) => "alert",
            EventKind::Drop(_) => "drop",
            EventKind::Anomaly(facts) => facts.name,
            EventKind::Flow(_) => "flow",
            _ => "other",
        };
        self.events.iter().map(kind).collect()
    }
}

/// A client's Initial with a hello for a name.
fn initial(name: &str) -> InitialBuilder {
    InitialBuilder::new(b"original").crypto(0, &hello(name, 0))
}

/// What a server that calls itself `server` answers to the connection `original`: an Initial.
fn answer() -> Vec<u8> {
    answer_to(b"original")
}

fn answer_to(original: &[u8]) -> Vec<u8> {
    let answer = InitialBuilder {
        keyed_by: original.to_vec(),
        destination: b"client".to_vec(),
        source: b"server".to_vec(),
        side: Side::Server,
        ..InitialBuilder::new(original)
    };
    answer.frames(b"\x02\x00\x00\x00\x00").padded_to(60)
}

/// What it says next: a packet of the handshake that needs the hello.
fn handshake() -> Vec<u8> {
    let mut packet = b"\xe0\0\0\0\x01\x06client\x06server\x40\x28".to_vec();
    packet.extend([9; 40]);
    packet
}

const SHORT: &[u8] = &[0x41; 60];

#[test]
fn an_allowed_hello_lets_the_flow_pass() {
    let mut scene = Scene::new(|_| {});
    assert_eq!(scene.client(&initial("www.example").build()), Decision::Pass);
    assert_eq!(scene.server(&answer()), Decision::Pass);
    assert_eq!((scene.client(SHORT), scene.server(SHORT)), (Decision::Pass, Decision::Pass));
    assert_eq!(scene.names(), ["www.example"]);
    assert_eq!(scene.engine.counters().udp_flows, 1);
}

#[test]
fn a_forbidden_hello_never_passes_however_often_it_comes() {
    let mut scene = Scene::new(|_| {});
    for number in 0..4 {
        assert_eq!(scene.client(&initial(FORBIDDEN).number(number).build()), Decision::Drop);
    }
    assert_eq!(scene.kinds(), ["alert", "hello", "drop"], "told once");
    assert_eq!(scene.engine.counters().flows_dropped, 1);
}

#[test]
fn a_flow_that_another_engine_has_blocked_keeps_its_client() {
    for turned in [false, true] {
        let mut first = Scene::new(|_| {});
        if turned {
            std::mem::swap(&mut first.client, &mut first.server);
        }
        assert_eq!(first.client(&initial(FORBIDDEN).build()), Decision::Drop);
        let table = first.engine.datagrams.table();
        let id =
            FlowClass::ALL.into_iter().find_map(|class| table.by_age(class).next()).expect("it is known");
        let key = *table.get(id).key();
        let client = if key.endpoint(KeyEnd::Low) == first.client { KeyEnd::Low } else { KeyEnd::High };
        let mut next = Scene::new(|_| {});
        let blocked = DecidedFlow {
            transport: TransportProtocol::Udp,
            key,
            client,
            ruling: FlowDecision::Blocked,
            positions: [None; 2],
            reopening: None,
            mark: None,
            told: false,
            age: Duration::ZERO,
        };
        next.engine.restore_decided(&blocked, first.now);
        let id = next.engine.datagrams.table().find(&key).expect("it is known");
        assert_eq!(next.engine.datagrams.facts_of(id).endpoints().client, first.client, "{turned}");
    }
}

#[test]
fn a_monitor_tells_and_lets_pass() {
    let mut scene = Scene::new(|config| config.enforce = false);
    assert_eq!(scene.client(&initial(FORBIDDEN).build()), Decision::Pass);
    assert_eq!(scene.kinds(), ["alert", "hello"]);
}

#[test]
fn parts_pass_and_the_one_that_makes_a_forbidden_hello_whole_does_not() {
    let message = hello(FORBIDDEN, 2000);
    let part = |from: usize, to: usize| InitialBuilder::new(b"original").crypto(from, &message[from..to]);
    let end = message.len();
    for (first, last) in [(part(0, 1000), part(1000, end)), (part(1000, end), part(0, 1000))] {
        let mut scene = Scene::new(|_| {});
        assert_eq!(scene.client(&first.build()), Decision::Undecided);
        assert_eq!(scene.client(&last.clone().number(1).build()), Decision::Drop);
        // What is lost is sent again, alone and in smaller parts.
        assert_eq!(scene.client(&last.number(2).build()), Decision::Drop);
    }
}

#[test]
fn a_server_that_has_acknowledged_a_part_is_cut_off_in_both_directions() {
    let message = hello(FORBIDDEN, 2000);
    let mut scene = Scene::new(|_| {});
    assert_eq!(
        scene.client(&InitialBuilder::new(b"original").crypto(0, &message[..900]).build()),
        Decision::Undecided
    );
    assert_eq!(scene.server(&answer()), Decision::Undecided);
    let rest = InitialBuilder {
        destination: b"server".to_vec(),
        ..InitialBuilder::new(b"original").number(1).crypto(900, &message[900..])
    };
    assert_eq!(scene.client(&rest.build()), Decision::Block);
    assert_eq!((scene.server(&answer()), scene.client(SHORT)), (Decision::Block, Decision::Block));
}

#[test]
fn another_connection_of_the_same_ports_is_judged_too() {
    let mut scene = Scene::new(|_| {});
    scene.client(&initial("www.example").build());
    scene.server(&answer());
    scene.server(&handshake());
    let other = InitialBuilder::new(b"another1").crypto(0, &hello(FORBIDDEN, 0));
    assert_eq!(scene.client(&other.build()), Decision::Drop);
    // Anybody may have sent it with the client's address.
    assert_eq!((scene.client(SHORT), scene.server(SHORT)), (Decision::Pass, Decision::Pass));
    assert_eq!(scene.names(), ["www.example", FORBIDDEN]);
}

#[test]
fn behind_a_retry_the_same_hello_is_told_once_and_another_one_judged() {
    let retry = b"\xf0\0\0\0\x01\x06client\x06serverTOKEN0123456789abcdef";
    let again = |name: &str| {
        let token = b"TOKEN".to_vec();
        InitialBuilder { token, ..InitialBuilder::new(b"server") }.crypto(0, &hello(name, 0)).number(1)
    };
    let mut scene = Scene::new(|_| {});
    scene.client(&initial("www.example").build());
    assert_eq!(scene.server(retry), Decision::Pass);
    assert_eq!(scene.client(&again("www.example").build()), Decision::Pass);
    assert_eq!(scene.names(), ["www.example"]);
    let mut scene = Scene::new(|_| {});
    scene.client(&initial("www.example").build());
    scene.server(retry);
    assert_eq!(scene.client(&again(FORBIDDEN).build()), Decision::Drop);
}

#[test]
fn a_second_hello_behind_the_first_is_judged() {
    let (first, second) = (hello("www.example", 0), hello(FORBIDDEN, 0));
    let mut scene = Scene::new(|_| {});
    assert_eq!(scene.client(&InitialBuilder::new(b"original").crypto(0, &first).build()), Decision::Pass);
    scene.server(&answer());
    let destination = b"server".to_vec();
    let again = InitialBuilder { destination, ..InitialBuilder::new(b"original") };
    assert_eq!(scene.client(&again.number(1).crypto(first.len(), &second).build()), Decision::Block);
}

#[test]
fn octets_of_a_hello_can_not_be_changed_behind_the_judges_back() {
    let (allowed, forbidden) = (hello("permitted.example", 0), hello(FORBIDDEN, 0));
    assert_eq!(allowed.len(), forbidden.len());
    let mut scene = Scene::new(|_| {});
    let from = |message: &[u8], at: usize| InitialBuilder::new(b"original").crypto(at, &message[at..]);
    assert_eq!(scene.client(&from(&allowed, 0).build()), Decision::Pass);
    assert_eq!(scene.client(&from(&forbidden, 40).number(1).build()), Decision::Drop);
    assert_eq!(scene.kinds(), ["hello", "quic_overlap_different_data", "drop"]);
    // The server goes on with the handshake: it has the hello. A client that does not know that yet repeats
    // it.
    scene.server(&[answer(), handshake()].concat());
    assert_eq!(scene.client(&from(&allowed, 0).number(2).build()), Decision::Pass);
    assert_eq!(scene.client(&from(&forbidden, 0).number(3).build()), Decision::Drop);
    // Once it speaks to the server by its name, nothing begins it again.
    let destination = b"server".to_vec();
    let known = InitialBuilder { destination, ..InitialBuilder::new(b"original").number(4).frames(b"\x01") };
    assert_eq!(scene.client(&known.build()), Decision::Pass);
    assert_eq!(scene.client(&from(&allowed, 0).number(5).build()), Decision::Drop);
}

#[test]
fn what_a_hello_was_put_together_from_is_known_however_packets_are_numbered_and_whatever_comes_between() {
    let (allowed, forbidden) = (hello("permitted.example", 0), hello(FORBIDDEN, 0));
    let part = |message: &[u8], from: usize, to: usize| {
        InitialBuilder::new(b"original").crypto(from, &message[from..to])
    };
    let end = allowed.len();
    for others in [0, 20] {
        let mut scene = Scene::new(|_| {});
        assert_eq!(scene.client(&part(&allowed, 0, 40).build()), Decision::Undecided);
        // This one may never arrive.
        assert_eq!(scene.client(&part(&allowed, 40, end).number(70_000).build()), Decision::Pass);
        for other in 0..others {
            let other = InitialBuilder::new(&[other; 8]).crypto(0, &hello("www.example", 0));
            assert_eq!(scene.client(&other.build()), Decision::Pass);
        }
        assert_eq!(scene.client(&part(&forbidden, 40, end).number(1).build()), Decision::Drop);
    }
}

#[test]
fn what_a_server_throws_away_is_no_part_of_a_hello() {
    let message = hello("www.example", 0);
    let (start, end) = message.split_at(40);
    let mut scene = Scene::new(|_| {});
    let decoy = InitialBuilder::new(b"original").crypto(40, end);
    assert_eq!(scene.client(&decoy.padded_to(1100)), Decision::Drop, "RFC 9000 section 14.1");
    let begun = InitialBuilder::new(b"original").number(1).crypto(0, start);
    assert_eq!(scene.client(&begun.build()), Decision::Undecided);
}

#[test]
fn the_answer_to_one_connection_says_nothing_of_another_one_with_the_same_name() {
    let (allowed, forbidden) = (hello("permitted.example", 0), hello(FORBIDDEN, 0));
    let of = |original: &[u8], message: &[u8]| InitialBuilder::new(original).crypto(0, message);
    let mut scene = Scene::new(|_| {});
    for original in [b"original", b"another1"] {
        assert_eq!(scene.client(&of(original, &allowed).build()), Decision::Pass);
    }
    scene.server(&[answer_to(b"another1"), handshake()].concat());
    let known = InitialBuilder { destination: b"server".to_vec(), ..of(b"another1", b"").number(1) };
    assert_eq!(scene.client(&known.build()), Decision::Pass);
    // The bytes of the first one's hello are known as before.
    assert_eq!(scene.client(&of(b"original", &forbidden).number(1).build()), Decision::Drop);
    assert_eq!(scene.client(&of(b"original", &allowed).number(2).build()), Decision::Pass);
}

#[test]
fn a_server_that_waits_for_the_rest_of_a_forbidden_hello_does_not_get_it_later() {
    let message = hello(FORBIDDEN, 2000);
    let mut scene = Scene::new(|_| {});
    let part = |from: usize, to: usize| InitialBuilder::new(b"original").crypto(from, &message[from..to]);
    assert_eq!(scene.client(&part(0, 1000).build()), Decision::Undecided);
    let rest = part(1000, message.len());
    assert_eq!(scene.client(&rest.clone().number(1).build()), Decision::Drop);
    scene.server(&answer());
    scene.wait(Duration::from_secs(30));
    assert_eq!(scene.client(&rest.number(2).build()), Decision::Drop);
    scene.wait(Duration::from_secs(3_600));
    assert_eq!(scene.engine.counters().budget_spent, 0, "it was told already");
}

#[test]
fn a_datagram_that_no_queue_shows_whole_is_refused() {
    let mut scene = Scene::new(|_| {});
    let mut packet = datagram(scene.client, scene.server, &initial(FORBIDDEN).padded_to(65_507));
    let wire_length = packet.len();
    packet.truncate(65_531);
    let input = PacketInput {
        now: scene.now,
        ip: &packet,
        wire_length,
        checksums: ChecksumState::Verify,
        interface: None,
        vlan: &[],
        packet_number: None,
    };
    assert_eq!(scene.engine.inspect(&input, &mut scene.events).decision, Decision::Drop);
}

#[test]
fn keys_are_tried_a_few_times_a_datagram_at_most() {
    let mut scene = Scene::new(|_| {});
    let crowd = [&InitialBuilder::new(b"original").padded_to(60)[..]; 30].concat();
    assert_eq!(scene.client(&crowd), Decision::Drop);
    assert!(scene.kinds().contains(&"quic_unreadable_initial"));
}

#[test]
fn acknowledgements_behind_the_hello_pass_unread() {
    let mut scene = Scene::new(|_| {});
    scene.client(&initial("www.example").build());
    scene.server(&[answer(), handshake()].concat());
    let destination = b"server".to_vec();
    let acknowledgement = InitialBuilder { destination, ..InitialBuilder::new(b"original") };
    let acknowledgement = acknowledgement.number(1).frames(b"\x02\x00\x00\x00\x00");
    assert_eq!(scene.client(&acknowledgement.build()), Decision::Pass);
    assert_eq!(scene.kinds(), ["hello"]);
}

#[test]
fn version_2_is_read_and_a_client_may_go_over_to_it() {
    let message = hello(FORBIDDEN, 1500);
    let mut scene = Scene::new(|_| {});
    let first = InitialBuilder::new(b"original").crypto(0, &message[..800]);
    assert_eq!(scene.client(&first.build()), Decision::Undecided);
    let second = InitialBuilder {
        version: QuicVersion::V2,
        destination: b"server".to_vec(),
        ..InitialBuilder::new(b"original").number(1).crypto(800, &message[800..])
    };
    assert_eq!(scene.client(&second.build()), Decision::Drop);
    let mut scene = Scene::new(|_| {});
    let version = QuicVersion::V2;
    assert_eq!(scene.client(&InitialBuilder { version, ..initial(FORBIDDEN) }.build()), Decision::Drop);
}

#[test]
fn a_version_that_is_not_read_is_told_and_passes_unless_it_is_refused() {
    let mut packet = initial("www.example").build();
    packet[1..5].copy_from_slice(b"\x0a\x1a\x2a\x3a");
    let mut scene = Scene::new(|_| {});
    assert_eq!(scene.client(&packet), Decision::Undecided);
    let EventKind::Anomaly(facts) = &scene.events[0].kind else { panic!("an anomaly") };
    assert!(facts.name == "quic_unknown_version" && facts.detail.ends_with("0x0a1a2a3a"), "{facts:?}");
    let mut scene = Scene::new(|config| config.on_anomaly = "quic_unknown_version=drop".parse().unwrap());
    assert_eq!(scene.client(&packet), Decision::Drop);
}

#[test]
fn what_belongs_to_no_known_connection_passes_by_a_rule_and_takes_no_room() {
    let mut scene = Scene::new(|_| {});
    assert_eq!(scene.client(SHORT), Decision::Pass);
    assert_eq!(scene.server(&handshake()), Decision::Undecided, "of a handshake whose hello came elsewhere");
    let mut garbage = initial("www.example").build();
    garbage[700] ^= 1;
    assert_eq!(scene.client(&garbage), Decision::Drop, "nobody can open it");
    let mut scene = Scene::new(|config| config.on_anomaly = "alert".parse().unwrap());
    assert_eq!(scene.client(&garbage), Decision::Undecided);
    assert_eq!(scene.kinds(), ["quic_unreadable_initial"]);
    assert_eq!(scene.engine.counters().udp_flows, 0);
    let counters = scene.engine.counters();
    assert_eq!((counters.anomalies(Anomaly::QuicUnreadable), counters.datagrams), (1, 1));
}

#[test]
fn a_wrong_checksum_is_ignored_as_its_receiver_does() {
    let mut scene = Scene::new(|_| {});
    let mut packet = datagram(scene.client, scene.server, &initial("www.example").build());
    packet[26] ^= 1;
    assert_eq!(scene.show(&packet), Decision::Drop);
    assert_eq!(scene.kinds(), ["bad_checksum", "drop"]);
}

#[test]
fn a_hello_in_a_train_of_datagrams_is_found() {
    let mut scene = Scene::new(|_| {});
    scene.checksums = ChecksumState::NotReady;
    let train = [&[0x41; 1200][..], &initial(FORBIDDEN).build()].concat();
    assert_eq!(scene.client(&train), Decision::Drop);
}

#[test]
fn a_hello_that_is_not_whole_in_time_is_given_up() {
    let part = InitialBuilder::new(b"original").crypto(0, &hello(FORBIDDEN, 0)[..90]).build();
    let mut scene = Scene::new(|config| config.on_anomaly = "drop".parse().unwrap());
    assert_eq!(scene.client(&part), Decision::Undecided);
    scene.wait(Duration::from_secs(121));
    assert_eq!(scene.client(SHORT), Decision::Block);
    let mut scene = Scene::new(|_| {});
    assert_eq!(scene.client(&part), Decision::Undecided);
    scene.wait(Duration::from_secs(121));
    assert_eq!(scene.engine.counters().udp_flows_now.undecided, 0, "forgotten");
}

#[test]
fn more_unfinished_hellos_than_are_read_are_dropped() {
    let mut scene = Scene::new(|_| {});
    let begin = |id: u8| InitialBuilder::new(&[id; 8]).crypto(0, &hello(FORBIDDEN, 0)[..90]).build();
    for id in 0..8 {
        assert_eq!(scene.client(&begin(id)), Decision::Undecided);
    }
    assert_eq!(scene.client(&begin(8)), Decision::Drop);
    assert_eq!(scene.client(&begin(0)), Decision::Undecided);
}

/// Initials of a thousand clients whose hellos never become whole.
fn flood(scene: &mut Scene, clients: u16) -> usize {
    let part = InitialBuilder::new(b"original").crypto(0, &hello(FORBIDDEN, 1000)[..900]).build();
    let flood = (0..clients).filter(|client| {
        let source = Endpoint { port: 1000 + client, ..scene.client };
        scene.show(&datagram(source, scene.server, &part)) == Decision::Undecided
    });
    flood.count()
}

#[test]
fn a_flood_of_beginnings_displaces_itself_or_is_dropped() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let limits = |config: &mut EngineConfig| {
            config.on_failure = on_failure;
            config.flow_limit = 400;
        };
        let mut scene = Scene::new(limits);
        let passed = flood(&mut scene, 300);
        assert_eq!(passed, if on_failure == OnFailure::Open { 300 } else { 100 });
        scene.engine.tick(scene.now, &mut scene.events);
        assert_eq!(scene.engine.counters().udp_flows_now.undecided, 100);
        let octets = |config: &mut EngineConfig| {
            config.on_failure = on_failure;
            config.buffer_limit = 400 << 10;
        };
        let mut scene = Scene::new(octets);
        flood(&mut scene, 300);
        assert!(scene.engine.counters().udp_buffered_now < 110 << 10, "{on_failure:?}");
    }
}

#[test]
fn flows_are_forgotten_in_time_and_told_of() {
    let mut scene = Scene::new(|config| config.flow_events = true);
    scene.client(&initial("www.example").build());
    scene.server(&answer());
    scene.wait(FlowTimeouts::default().datagrams);
    let Some(EventKind::Flow(record)) = scene.events.last().map(|event| &event.kind) else {
        panic!("a record")
    };
    assert_eq!((record.to_server.packets, record.to_client.packets), (1, 1));
    assert_eq!(scene.engine.counters().udp_buffered_now, 0);
}

#[test]
fn a_policy_lets_only_through_what_it_names() {
    let policy = |allow: &str| {
        format!("{RULES}\n[[policy]]\nid = \"only\"\nport = 443\n{allow}\notherwise = \"drop\"\n")
    };
    let mut scene = Scene::under(&policy("allow = [\"tls\"]"), |_| {});
    assert_eq!(scene.client(&initial("www.example").build()), Decision::Pass);
    let mut scene = Scene::under(&policy("allow = [\"http\"]"), |_| {});
    assert_eq!(scene.client(&initial("www.example").build()), Decision::Drop);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However a hello is cut into frames, put into datagrams and shuffled: none but the last lets it become
    /// whole, and that one is judged.
    #[test]
    fn any_split_of_a_hello_comes_to_the_same(
        size in 0_usize..3000,
        cuts in prop::collection::vec(0_usize..3000, 0..12),
        order in any::<u32>(),
        twice in 0_usize..7,
        together in 1_usize..4,
        forbidden: bool,
    ) {
        let name = if forbidden { FORBIDDEN } else { "permitted.example" };
        let message = hello(name, size);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % message.len()).collect();
        cuts.extend([0, message.len()]);
        cuts.sort_unstable();
        // Some bytes come twice.
        let overlap = |at: usize| at.saturating_sub(twice);
        let mut frames: Vec<(usize, &[u8])> =
            cuts.windows(2).map(|pair| (overlap(pair[0]), &message[overlap(pair[0])..pair[1]])).collect();
        frames.sort_by_key(|(at, _)| (u32::try_from(*at).unwrap() ^ order).wrapping_mul(2_654_435_761));
        let mut scene = Scene::new(|_| {});
        let mut decisions = Vec::new();
        for (number, frames) in (0..).zip(frames.chunks(together)) {
            let start = InitialBuilder::new(b"original").number(number);
            let initial = frames.iter().fold(start, |initial, (at, octets)| initial.crypto(*at, octets));
            decisions.push(scene.client(&initial.build()));
        }
        prop_assert_eq!(scene.names(), [name]);
        let whole = decisions.iter().position(|decision| *decision != Decision::Undecided);
        let expected = if forbidden { Decision::Drop } else { Decision::Pass };
        prop_assert!(decisions[whole.unwrap()..].iter().all(|decision| *decision == expected), "{:?}", decisions);
    }

    /// Bytes that anybody may send do no harm.
    #[test]
    fn any_octets_are_taken(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let mut scene = Scene::new(|_| {});
        for payload in &payloads {
            let initial = InitialBuilder::new(b"original").frames(payload).build();
            scene.client(payload);
            scene.client(&initial);
            scene.server(payload);
        }
    }
}
