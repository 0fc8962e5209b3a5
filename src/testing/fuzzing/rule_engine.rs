//! Fuzz targets for rule files, and for whole conversations through the engine.

use std::sync::{Arc, LazyLock};

use super::FuzzChoices;
use crate::banner::{Banner, Side, http as heads, kexinit, ssh as identifications};
use crate::engine::{
    AnomalyAction, AnomalyPolicy, ChecksumState, Engine, EngineConfig, HttpInspect, PacketInput,
};
use crate::event::{ApplicationFacts, Event, EventKind, EventSource, Timestamp};
use crate::flow::TrackingMode;
use crate::packet::TcpFlags;
use crate::packet::testing::{SegmentBuilder, endpoint};
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{BannerContext, BannerStage, RuleSet};

/// Separator between a rule file and its banner.
const END_OF_FILE: u8 = 0;

/// Fuzzes a rule file with a banner after a NUL.
pub fn rules(data: &[u8]) {
    let end = data.iter().position(|octet| *octet == END_OF_FILE).unwrap_or(data.len());
    let (text, banner) = data.split_at(end);
    let text = String::from_utf8_lossy(text);
    let _ = FingerprintSet::parse("fuzz.toml", &text).map_err(|error| error.to_string());
    match RuleSet::parse("fuzz.toml", &text) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                assert!(!warning.to_string().is_empty(), "a warning says something");
            }
            let tried = loaded.rules.trials().count();
            assert!(tried <= text.len(), "more examples than octets");
            judge(&loaded.rules, banner.get(1..).unwrap_or_default());
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
}

fn judge(rules: &RuleSet, octets: &[u8]) {
    for from in [Side::Client, Side::Server] {
        if let Some(read) = identifications::identify(from, octets).done() {
            let kex = kexinit::parse(octets).done();
            let identification = read.identification;
            stages_agree(rules, &Banner::Ssh(crate::banner::SshBanner { from, identification, kex }));
        }
    }
    if let Some(read) = heads::parse_request(octets).done() {
        stages_agree(rules, &Banner::Request(read.message));
    }
    if let Some(read) = heads::parse_response(octets).done() {
        stages_agree(rules, &Banner::Response(read.message));
    }
}

/// Asserts that evaluating at the head and again at the end matches the same rules as evaluating once, unless
/// an accept rule ends one of them early.
fn stages_agree(rules: &RuleSet, banner: &Banner<'_>) {
    let ask = |stage| {
        let matches = rules.evaluate(banner, &BannerContext { stage, ..BannerContext::default() });
        matches.iter().map(|found| found.rule.index()).collect::<Vec<_>>()
    };
    let whole = ask(BannerStage::Whole);
    assert!(whole.is_sorted_by(|one, other| one < other), "each once, in order");
    let accepts = |index: &usize| {
        rules.rules().get(*index).is_some_and(|rule| rule.action() == crate::event::RuleAction::Accept)
    };
    if whole.iter().any(accepts) {
        return;
    }
    let mut parts = [ask(BannerStage::Head), ask(BannerStage::Rest)].concat();
    parts.sort_unstable();
    assert_eq!(parts, whole, "what is asked in two parts differs");
}

/// Rules for every protocol and side, with and without fields after the head.
static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| match RuleSet::parse("fuzz.toml", RULE_FILE) {
    Ok(loaded) => Arc::new(loaded.rules),
    Err(error) => panic!("{error}"),
});

const RULE_FILE: &str = r#"
[[rule]]
id = "ssh"
title = "ssh"
protocol = "ssh"
from = "either"
match.software = 'SSH'
action = "drop"

[[rule]]
id = "kex"
title = "kex"
protocol = "ssh"
from = "either"
match.kex = 'sha1'
action = "reject"

[[rule]]
id = "weighed"
title = "weighed"
protocol = "ssh"
from = "either"
match.software = '^OpenSSH_(?<version>\d+\.\d+p\d+)'
action = "drop"
advisory.source = "x"
advisory.report = ["affected", "fixed", "unknown"]
advisory.packages = [{ distribution = "Debian", release = "sid", newest = "9.7p1-7", fixed = "9.7p1-7" }]
advisory.fixed_if = ["strict-kex-server", "debian-12-openssh-sntrup761"]
advisory.affected_if = ["terrapin-chacha20"]

[[rule]]
id = "request"
title = "request"
protocol = "http"
from = "client"
match.method = '^P'
action = "drop"

[[rule]]
id = "response"
title = "response"
protocol = "http"
from = "server"
match.status = '^4'
action = "drop"

[[rule]]
id = "body"
title = "body"
protocol = "http"
from = "server"
match.body = 'x'
action = "alert"
"#;

/// Fuzzes a conversation: any cut must give the same events, and no change of its packets may cause a panic.
pub fn engine(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let pieces = usize::from(choices.octet()).max(1);
    let split = usize::from(choices.word());
    let (client, server) = choices.0.split_at(split.min(choices.0.len()));
    let whole = told(&converse(client, server, usize::MAX));
    let cut = told(&converse(client, server, pieces));
    // After data outside of any message, the parser looks for the next one at the start of segments, too.
    let lost = |told: &[String]| told.iter().any(|fact| fact == "http_unexpected_data");
    if !lost(&whole) && !lost(&cut) {
        let said = [client, server].map(|octets| octets.escape_ascii().to_string());
        assert_eq!(cut, whole, "cuts of {pieces} octets change what is told of {said:?}");
    }
    disturb(data);
}

fn engine_for(enforce: bool, on_anomaly: AnomalyPolicy) -> Engine {
    let config = EngineConfig {
        source: EventSource::Replay,
        tracking: TrackingMode::Lossy,
        enforce,
        on_anomaly,
        http_inspect: HttpInspect::All,
        body_limit: 64,
        flow_limit: 8,
        collect_kex: true,
        ..EngineConfig::default()
    };
    Engine::new(config, Arc::clone(&RULES), None)
}

fn show(engine: &mut Engine, segment: &SegmentBuilder, events: &mut Vec<Event>) {
    let packet = segment.build();
    let input = PacketInput {
        now: Timestamp::from_nanos(1_000_000_000),
        ip: &packet,
        wire_length: packet.len(),
        checksums: ChecksumState::NotReady,
        interface: None,
        vlan: &[],
        packet_number: None,
    };
    let _ = engine.inspect(&input, events);
}

/// Returns the events of a handshake, then all client data, then all server data, in segments of `pieces`
/// bytes.
fn converse(client: &[u8], server: &[u8], pieces: usize) -> Vec<Event> {
    let (mut engine, mut events) = (engine_for(false, AnomalyPolicy::all(AnomalyAction::Alert)), Vec::new());
    let (near, far) = (endpoint("192.0.2.1:40000"), endpoint("198.51.100.2:22"));
    show(&mut engine, &SegmentBuilder::new(near, far).flags(TcpFlags::SYN), &mut events);
    let answer = SegmentBuilder::new(far, near).flags(TcpFlags::SYN | TcpFlags::ACK).acknowledgement(1);
    show(&mut engine, &answer, &mut events);
    let said = u32::try_from(client.len()).unwrap_or_default();
    for (from, to, octets, heard) in [(near, far, client, 0), (far, near, server, said)] {
        let mut sequence = 1_u32;
        // Data above a segment's limit is cut in any case.
        for piece in octets.chunks(pieces.min(32 << 10)) {
            let segment =
                SegmentBuilder::new(from, to).sequence(sequence).acknowledgement(heard + 1).payload(piece);
            show(&mut engine, &segment, &mut events);
            sequence += u32::try_from(piece.len()).unwrap_or_default();
        }
    }
    engine.finish(Timestamp::from_nanos(1_000_000_000), &mut events);
    events
}

/// Returns the events' facts about banners and matches, without packets.
fn told(events: &[Event]) -> Vec<String> {
    let mut told: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.kind {
            // The number of first bytes at the report depends on the cut, so it is left out.
            EventKind::Application(ApplicationFacts::Other(facts)) => {
                Some(format!("other {} {:?}", facts.name, facts.from))
            }
            EventKind::Application(said) => Some(format!("{said:?}")),
            EventKind::Alert(alert) => Some(format!("{} {:?}", alert.rule, alert.from)),
            EventKind::Anomaly(anomaly) => Some(anomaly.name.to_owned()),
            _ => None,
        })
        .collect();
    told.sort();
    told
}

/// Sends segments of both ends with flags, sequence numbers and windows from the fuzzer.
fn disturb(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let (mut engine, mut events) = (engine_for(true, AnomalyPolicy::all(AnomalyAction::Drop)), Vec::new());
    let ends = [endpoint("192.0.2.1:40000"), endpoint("198.51.100.2:22")];
    let mut next = [0_u32; 2];
    while !choices.is_empty() {
        let choice = choices.octet();
        let side = usize::from(choice & 1);
        let [Some(from), Some(to)] = [ends.get(side), ends.get(1 - side)] else { return };
        let flags = choices.octet() & 0x3f;
        let offset = u32::from(choice >> 1 & 0x07);
        let payload = choices.take(usize::from(choices.0.first().copied().unwrap_or_default()));
        let [Some(own), Some(peer)] = [next.get(side).copied(), next.get(1 - side).copied()] else { return };
        let mut segment = SegmentBuilder::new(*from, *to)
            .sequence(own.wrapping_add(offset))
            .acknowledgement(peer)
            .flags(flags)
            .window(u16::from(choice) << 4)
            .payload(payload);
        if choice & 0x80 != 0 {
            segment = segment.hop_limit(1);
        }
        show(&mut engine, &segment, &mut events);
        if let Some(own) = next.get_mut(side) {
            *own = own.wrapping_add(
                u32::try_from(payload.len()).unwrap_or_default() + u32::from(flags & TcpFlags::SYN != 0),
            );
        }
    }
    engine.finish(Timestamp::from_nanos(2_000_000_000), &mut events);
}
