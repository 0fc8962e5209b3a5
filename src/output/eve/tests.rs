//! Every kind of event, spelled and compared whole.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::event::*;

fn flow(server: &str) -> FlowContext {
    let client = if server.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
    FlowContext {
        id: u64::MAX,
        transport: TransportProtocol::Tcp,
        endpoints: FlowEndpoints {
            client: Endpoint { address: client.parse().unwrap(), port: 50000 },
            server: Endpoint { address: server.parse().unwrap(), port: 22 },
        },
        from: None,
        interface: None,
        vlan: Vec::new(),
        packet_number: None,
        transaction: None,
        protocol: None,
        established: None,
        midstream: false,
    }
}

fn event(flow: Option<FlowContext>, kind: EventKind) -> Event {
    let timestamp = Timestamp::from_nanos(1_769_860_800_123_456_789);
    Event { timestamp, source: EventSource::Replay, flow, kind }
}

fn ssh_side(banner: &str) -> SshSide {
    SshSide {
        protocol_version: "2.0".to_owned(),
        software_version: banner.trim_start_matches("SSH-2.0-").to_owned(),
        banner: banner.to_owned(),
        ..SshSide::default()
    }
}

fn line(event: &Event, strict: bool) -> String {
    let mut out = Vec::new();
    write(event, &EveOptions { strict, headers: true }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn value(event: &Event, strict: bool) -> Value {
    serde_json::from_str(&line(event, strict)).unwrap()
}

#[test]
fn the_header_stands_in_eves_order() {
    let mut context = flow("192.0.2.2");
    context.interface = Some("eth0".to_owned());
    context.vlan = vec![10, 20];
    context.packet_number = Some(7);
    context.transaction = Some(0);
    let event = event(Some(context), EventKind::Application(ApplicationFacts::Http(Arc::default())));
    let expected = concat!(
        r#"{"timestamp":"2026-01-31T12:00:00.123456+0000","flow_id":2251799813685247,"in_iface":"eth0","#,
        r#""pcap_cnt":7,"event_type":"http","vlan":[10,20],"src_ip":"192.0.2.1","src_port":50000,"#,
        r#""dest_ip":"192.0.2.2","dest_port":22,"proto":"TCP","ip_v":4,"pkt_src":"wire/pcap","#,
        r#""community_id":"1:"#,
    );
    let line = line(&event, true);
    assert!(line.starts_with(expected), "{line}");
    assert!(line.ends_with(",\"tx_id\":0,\"app_proto\":\"http\",\"http\":{}}\n"), "{line}");
}

#[test]
fn ssh_keeps_the_whole_software_version_and_both_sides() {
    let server = SshSide {
        hassh: Some(HasshFingerprint { hash: "ab".to_owned(), algorithms: "a;b;c;d".to_owned() }),
        fingerprint: Some(ProductFacts {
            product: Some("OpenSSH".to_owned()),
            version: Some("9.2p1".to_owned()),
            ..ProductFacts::default()
        }),
        ..ssh_side("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3")
    };
    let facts = SshFacts { client: Some(ssh_side("SSH-2.0-PuTTY_0.70").into()), server: Some(server.into()) };
    let value = value(
        &event(Some(flow("192.0.2.2")), EventKind::Application(ApplicationFacts::Ssh(Arc::new(facts)))),
        false,
    );
    assert_eq!(
        value["ssh"],
        json!({
            "client": {"proto_version": "2.0", "software_version": "PuTTY_0.70"},
            "server": {"proto_version": "2.0", "software_version": "OpenSSH_9.2p1 Debian-2+deb12u3",
                       "hassh": {"hash": "ab", "string": "a;b;c;d"}},
        })
    );
    assert_eq!(
        value["bannerwall"],
        json!({
            "source": "replay", "banner": "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3",
            "product": "OpenSSH", "version": "9.2p1", "client": {"banner": "SSH-2.0-PuTTY_0.70"},
        })
    );
}

#[test]
fn http_takes_its_fields_from_the_headers_whatever_their_case() {
    let field = |name: &str, value: &str| HeaderField { name: name.into(), value: value.into() };
    let facts = HttpFacts {
        request: Some(HttpRequestFacts {
            method: "GET".into(),
            url: "/a".to_owned(),
            version: "HTTP/1.1".into(),
            headers: vec![field("host", "example.org:8080"), field("USER-AGENT", "curl/8")],
            left_out: 0,
        }),
        response: Some(HttpResponseFacts {
            version: "HTTP/1.0".into(),
            status: 301,
            reason: "Moved".into(),
            headers: vec![field("Location", "/b"), field("content-type", "text/html; charset=x")],
            left_out: 0,
            body_length: 12,
            title: Some("Hi".to_owned()),
            fingerprint: None,
        }),
    };
    let value = value(
        &event(Some(flow("192.0.2.2")), EventKind::Application(ApplicationFacts::Http(Arc::new(facts)))),
        false,
    );
    assert_eq!(
        value["http"],
        json!({
            "hostname": "example.org", "http_port": 8080, "url": "/a", "http_user_agent": "curl/8",
            "http_content_type": "text/html", "http_method": "GET", "protocol": "HTTP/1.1", "status": 301,
            "redirect": "/b", "length": 12,
            "request_headers": [{"name": "host", "value": "example.org:8080"},
                                {"name": "USER-AGENT", "value": "curl/8"}],
            "response_headers": [{"name": "Location", "value": "/b"},
                                 {"name": "content-type", "value": "text/html; charset=x"}],
        })
    );
    assert_eq!(value["bannerwall"]["title"], "Hi");
    assert_eq!(value["bannerwall"]["reason"], "Moved");
}

fn alert(blocked: bool, action: RuleAction) -> EventKind {
    let server = ssh_side("SSH-2.0-dropbear_2012.55");
    EventKind::Alert(Arc::new(AlertFacts {
        rule: "dropbear-old".to_owned(),
        title: "Old dropbear".to_owned(),
        category: "outdated".to_owned(),
        action,
        blocked,
        enforced: true,
        severity: Severity::Critical,
        references: vec!["CVE-2012-0920".to_owned()],
        product: ProductFacts { version: Some("2012.55".to_owned()), ..ProductFacts::default() },
        from: Side::Server,
        banner: server.banner.clone(),
        application: ApplicationFacts::Ssh(Arc::new(SshFacts { client: None, server: Some(server.into()) })),
        matched: None,
        let_pass: None,
        resets: None,
        verdict: None,
    }))
}

#[test]
fn an_alert_is_written_from_the_banners_sender() {
    let mut context = flow("192.0.2.2");
    context.protocol = Some(Protocol::Ssh);
    let value = value(&event(Some(context), alert(true, RuleAction::Reject)), false);
    assert_eq!(value["src_ip"], "192.0.2.2");
    assert_eq!(value["dest_port"], 50000);
    assert_eq!(value["direction"], "to_client");
    assert_eq!(value["app_proto"], "ssh");
    assert_eq!(
        value["alert"],
        json!({
            "action": "blocked", "gid": 1, "signature_id": signature_id("dropbear-old"), "rev": 1,
            "signature": "Old dropbear", "category": "outdated", "severity": 1,
            "references": ["CVE-2012-0920"],
            "metadata": {"signature_severity": ["critical"], "rule": ["dropbear-old"]},
        })
    );
    assert_eq!(value["verdict"], json!({"action": "drop", "reject": ["tcp-reset"], "reject_target": "both"}));
    assert_eq!(value["ssh"]["server"]["software_version"], "dropbear_2012.55");
    assert_eq!(
        value["bannerwall"],
        json!({
            "source": "replay", "banner": "SSH-2.0-dropbear_2012.55", "rule": "dropbear-old",
            "action": "reject", "severity": "critical", "from": "server", "version": "2012.55",
            "enforced": true,
        })
    );
}

#[test]
fn an_alert_that_stopped_nothing_was_allowed() {
    let value = value(&event(Some(flow("192.0.2.2")), alert(false, RuleAction::Drop)), true);
    assert_eq!(value["alert"]["action"], "allowed");
    assert_eq!(value["verdict"], json!({"action": "alert"}));
    assert!(value.get("bannerwall").is_none());
}

fn dropped() -> EventKind {
    EventKind::Drop(DropFacts {
        reason: DropReason::FlowMemcap,
        rule: Some("r".to_owned()),
        rejected: false,
        resets: None,
        header: PacketHeader {
            udp_length: 0,
            length: 60,
            traffic_class: 1,
            hop_limit: 64,
            identification: 9,
            sequence: 1,
            acknowledgement: 2,
            window: 3,
            flags: 0x18,
            urgent_pointer: 0,
        },
    })
}

#[test]
fn a_drop_has_the_fields_of_its_ip_version() {
    let common = json!({
        "len": 60, "tcpseq": 1, "tcpack": 2, "tcpwin": 3, "syn": false, "ack": true, "psh": true, "rst": false,
        "urg": false, "fin": false, "tcpres": 0, "tcpurgp": 0, "reason": "flow memcap",
    });
    for (server, own) in [
        ("192.0.2.2", json!({"tos": 1, "ttl": 64, "ipid": 9})),
        ("2001:db8::2", json!({"tc": 1, "hoplimit": 64, "flowlbl": 9})),
    ] {
        let value = value(&event(Some(flow(server)), dropped()), true);
        let mut expected = common.as_object().unwrap().clone();
        expected.extend(own.as_object().unwrap().clone());
        assert_eq!(value["drop"], Value::Object(expected));
        assert_eq!(value["verdict"]["action"], "drop");
    }
}

#[test]
fn only_who_was_sent_a_reset_is_named() {
    use ResetOutcome::{Bridged, Failed, Limited, Routed};
    let why = || Failed("no way".to_owned());
    for (source, to_client, to_server, target) in [
        (EventSource::Guard, Routed, Bridged, json!("both")),
        (EventSource::Guard, Bridged, why(), json!("to_client")),
        (EventSource::Guard, why(), Routed, json!("to_server")),
        (EventSource::Guard, Limited, why(), Value::Null),
    ] {
        let resets = Some(Box::new(ResetFacts { to_client, to_server }));
        let EventKind::Drop(facts) = dropped() else { panic!("it is one") };
        let kind = EventKind::Drop(DropFacts { rejected: true, resets, ..facts });
        let value = value(&Event { source, ..event(Some(flow("192.0.2.2")), kind) }, false);
        assert_eq!(value["verdict"]["reject_target"], target, "{value}");
    }
    let EventKind::Drop(facts) = dropped() else { panic!("it is one") };
    let rejected = EventKind::Drop(DropFacts { rejected: true, ..facts });
    let of = |source| value(&Event { source, ..event(Some(flow("192.0.2.2")), rejected.clone()) }, false);
    assert_eq!(of(EventSource::Replay)["verdict"]["reject_target"], "both", "what would have been sent");
    assert_eq!(of(EventSource::Guard)["verdict"]["reject_target"], Value::Null, "nothing was sent");
}

#[test]
fn a_flow_has_the_fields_of_eves_record() {
    let record = FlowRecord {
        start: Timestamp::from_nanos(1_769_860_800_123_456_789),
        last: Timestamp::from_nanos(1_769_860_803_000_000_000),
        to_server: TrafficVolume { packets: 4, octets: 300 },
        to_client: TrafficVolume { packets: 3, octets: 4000 },
        flags_to_server: 0x1a,
        flags_to_client: 0x13,
        state: FlowState::Bypassed,
        end: FlowEnd::Timeout,
        verdict: FlowVerdict::Passed,
        reason: None,
        rule: None,
        protocol: Some(Protocol::Ssh),
        alerted: true,
        whole: false,
        unseen: 0,
    };
    let context = FlowContext { protocol: record.protocol, ..flow("192.0.2.2") };
    let event = event(Some(context), EventKind::Flow(Box::new(record)));
    let value = value(&event, false);
    assert_eq!(
        value["flow"],
        json!({"pkts_toserver": 4, "pkts_toclient": 3, "bytes_toserver": 300, "bytes_toclient": 4000,
               "start": "2026-01-31T12:00:00.123456+0000", "end": "2026-01-31T12:00:03.000000+0000", "age": 2,
               "state": "bypassed", "reason": "timeout", "alerted": true, "action": "accept"})
    );
    assert_eq!(
        value["tcp"],
        json!({"tcp_flags": "1b", "tcp_flags_ts": "1a", "tcp_flags_tc": "13", "syn": true, "fin": true,
               "psh": true, "ack": true})
    );
    assert_eq!(value["bannerwall"]["flow"], json!({"verdict": "passed", "counted": "until decided"}));
    assert_eq!((&value["event_type"], &value["app_proto"]), (&json!("flow"), &json!("ssh")));
}

#[test]
fn anomalies_name_their_layer() {
    let anomaly = |layer| {
        let facts = AnomalyFacts { layer, name: "overlap_different_data", detail: "2 octets".to_owned() };
        let context =
            FlowContext { from: Some(Side::Client), protocol: Some(Protocol::Http), ..flow("192.0.2.2") };
        value(&event(Some(context), EventKind::Anomaly(facts)), false)
    };
    let stream = anomaly(AnomalyLayer::Stream);
    assert_eq!(stream["anomaly"], json!({"type": "stream", "event": "overlap_different_data"}));
    assert_eq!(stream["direction"], "to_server");
    assert_eq!(stream["bannerwall"]["detail"], "2 octets");
    assert_eq!(
        anomaly(AnomalyLayer::Application)["anomaly"],
        json!({"app_proto": "http", "type": "applayer", "event": "overlap_different_data",
               "layer": "proto_parser"})
    );
}

#[test]
fn a_scan_does_not_invent_its_own_address() {
    let mut context = flow("192.0.2.2");
    context.endpoints.client = Endpoint { address: "0.0.0.0".parse().unwrap(), port: 0 };
    let facts = ConnectFacts {
        state: PortState::Open,
        reason: "".into(),
        said: String::new(),
        round_trip: Some(Duration::from_micros(150)),
        waited_ms: Some(2000),
    };
    let event = Event { source: EventSource::Scan, ..event(Some(context), EventKind::Connect(facts)) };
    let own = value(&event, false);
    assert_eq!(own["event_type"], "connect");
    assert_eq!(own["state"], "open");
    assert_eq!(own["dest_ip"], "192.0.2.2");
    assert_eq!(own["dest_port"], 22);
    assert_eq!(own["bannerwall"], json!({"source": "scan", "round_trip_us": 150, "waited_ms": 2000}));
    for absent in ["src_ip", "src_port", "community_id", "pkt_src"] {
        assert!(own.get(absent).is_none(), "{absent}");
    }
    let mut followed = event.clone();
    followed.flow.iter_mut().for_each(|flow| flow.established = Some(false));
    assert_eq!(value(&followed, false)["bannerwall"]["established"], false);
    assert_eq!(value(&followed, false)["bannerwall"]["midstream"], Value::Null);
    followed.flow.iter_mut().for_each(|flow| flow.midstream = true);
    assert_eq!(value(&followed, false)["bannerwall"]["midstream"], true);
    let mut alert = event.clone();
    alert.flow.iter_mut().for_each(|flow| {
        flow.endpoints.client.address = "192.0.2.1".parse().unwrap();
    });
    let own = value(&alert, false);
    assert_eq!((&own["src_ip"], own.get("src_port")), (&json!("192.0.2.1"), None));
    assert!(own.get("community_id").is_none(), "it would be another flow's");
    let strict = value(&event, true);
    assert!(strict.get("state").is_none());
    assert_eq!(strict["tcp"], json!({"state": "open"}));
}

#[test]
fn stats_have_no_flow() {
    let facts = StatsFacts {
        uptime: Duration::from_secs(3),
        counters: vec![("capture.kernel_packets", 5), ("events.lost", 1)],
    };
    let event = event(None, EventKind::Stats(Box::new(facts)));
    let own = value(&event, false);
    assert_eq!(own["stats"], json!({"uptime": 3, "capture": {"kernel_packets": 5}}));
    assert_eq!(own["bannerwall"], json!({"source": "replay", "stats": {"events": {"lost": 1}}}));
    assert!(value(&event, true).get("bannerwall").is_none());
}

#[test]
fn what_happens_to_the_hook_is_ours_alone() {
    let facts = HookFacts { families: "IPv4".to_owned(), state: "gone", detail: "put back".to_owned() };
    let event = event(None, EventKind::Hook(Box::new(facts)));
    let own = value(&event, false);
    assert_eq!(own["event_type"], "hook");
    let hook = json!({"families": "IPv4", "state": "gone"});
    assert_eq!(own["bannerwall"], json!({"source": "replay", "detail": "put back", "hook": hook}));
    assert!(value(&event, true).get("bannerwall").is_none());
}

#[test]
fn a_ban_says_who_for_how_long_and_why() {
    let facts = BanFacts {
        address: "192.0.2.7".parse().unwrap(),
        state: "banned",
        time: Some(Duration::from_millis(599_001)),
        rule: Some("no-sqlmap".to_owned()),
        banner: "GET / HTTP/1.1".to_owned(),
        detail: None,
    };
    let event = event(None, EventKind::Ban(Box::new(facts)));
    let own = value(&event, false);
    assert_eq!(own["event_type"], "ban");
    let ban = json!({"address": "192.0.2.7", "state": "banned", "seconds": 600});
    let expected = json!({"source": "replay", "rule": "no-sqlmap", "banner": "GET / HTTP/1.1", "ban": ban});
    assert_eq!(own["bannerwall"], expected);
}

#[test]
fn hostile_text_stays_one_line_of_json() {
    let mut side = ssh_side("SSH-2.0-a");
    side.banner = "SSH-2.0-\"\\\n\u{0}\u{1b}[2J".to_owned();
    let facts = SshFacts { client: None, server: Some(side.clone().into()) };
    let event =
        event(Some(flow("192.0.2.2")), EventKind::Application(ApplicationFacts::Ssh(Arc::new(facts))));
    assert_eq!(line(&event, false).matches('\n').count(), 1);
    assert_eq!(value(&event, false)["bannerwall"]["banner"], side.banner);
}

#[test]
fn no_character_is_raw_that_a_terminal_takes_for_a_command() {
    let banner = "SSH-2.0-a\u{9b}2J\u{80}\u{9f}\u{a0}é\u{1b}[2J";
    let facts = SshFacts { client: None, server: Some(ssh_side(banner).into()) };
    let event =
        event(Some(flow("192.0.2.2")), EventKind::Application(ApplicationFacts::Ssh(Arc::new(facts))));
    let told = line(&event, false);
    assert!(!told.trim_end().contains(char::is_control), "{told}");
    assert!(told.contains("a\\u009b2J\\u0080\\u009f\u{a0}é\\u001b[2J"), "{told}");
    assert_eq!(value(&event, false)["ssh"]["server"]["software_version"], banner["SSH-2.0-".len()..]);
}

/// The names of all fields, as the sources beside this one declare them.
fn fields() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/eve");
    let sources = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| !path.ends_with("tests.rs"));
    let text: String = sources.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let declared = regex::Regex::new(
        r#"(?m)((?:^    #\[serde\(.*\)\]\n)?)^    (?:pub(?:\(\w+\))? )?(?:r#)?([a-z_0-9]+): [^{}()]*,$"#,
    );
    let renamed = regex::Regex::new(r#"rename = "(\w+)""#).unwrap();
    let mut names = Vec::new();
    let structs = text.split("Serialize)]\n").skip(1);
    for body in structs.filter_map(|rest| rest.split_once("{\n")?.1.split_once("\n}")).map(|(body, _)| body) {
        let body = format!("{body}\n");
        for found in
            declared.as_ref().unwrap().captures_iter(&body).filter(|found| !found[1].contains("flatten"))
        {
            names.push(
                renamed.captures(&found[1]).map_or_else(|| found[2].to_owned(), |name| name[1].to_owned()),
            );
        }
    }
    names
}

#[test]
fn each_field_stands_in_the_reference() {
    let fields = fields();
    assert!(fields.len() > 150 && fields.iter().any(|field| field == "override"), "{fields:?}");
    bannerwall_test_support::reference::assert_named("reference/events.md", fields);
}
