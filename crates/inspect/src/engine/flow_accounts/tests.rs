//! Records of flows against the packets that were shown.

use std::time::Duration;

use crate::engine::Decision;
use crate::engine::testing::{Conversation, Setup};
use crate::event::{
    DropReason, EventKind, FlowEnd, FlowRecord, FlowState, FlowVerdict, Protocol, TrafficVolume,
};
use crate::flow::Anomaly;
use crate::packet::TcpFlags;

const REJECT_OLD_SSH: &str = r#"
[[rule]]
id = "old-ssh"
title = "An old server"
protocol = "ssh"
from = "server"
match.software = '^OpenSSH_7'
action = "reject"
"#;

/// Bytes of an IPv4 and a TCP header without options.
const HEADERS: u64 = 40;

fn recording(rules: &str) -> Setup {
    let mut setup = Setup::enforcing(rules);
    setup.config.flow_events = true;
    setup
}

fn records(talk: &Conversation) -> Vec<FlowRecord> {
    let record = |kind: &EventKind| match kind {
        EventKind::Flow(record) => Some(FlowRecord::clone(record)),
        _ => None,
    };
    talk.events.iter().filter_map(|event| record(&event.kind)).collect()
}

fn finish(talk: &mut Conversation) {
    let Conversation { engine, events, now, .. } = talk;
    engine.finish(*now, events);
}

fn volume(packets: u64, payload: u64) -> TrafficVolume {
    TrafficVolume { packets, octets: packets * HEADERS + payload }
}

#[test]
fn every_packet_of_a_flow_is_in_its_record() {
    let mut talk = recording("").open();
    let (client, server) = (b"SSH-2.0-PuTTY\r\n", b"SSH-2.0-OpenSSH_9.8\r\n");
    talk.server(server);
    talk.client(client);
    talk.acknowledge(false);
    talk.client(&[0; 100]);
    talk.send(true, TcpFlags::ACK | TcpFlags::FIN, b"");
    talk.wait(Duration::from_secs(1));
    assert!(records(&talk).is_empty(), "it is not over yet");
    talk.send(false, TcpFlags::RST | TcpFlags::ACK, b"");
    talk.wait(Duration::from_secs(60));
    let [record] = &records(&talk)[..] else { panic!("one record: {:?}", talk.events) };
    // SYN, the handshake's last acknowledgement, two of data, FIN.
    assert_eq!(record.to_server, volume(5, client.len() as u64 + 100));
    // SYN, banner, acknowledgement, RST.
    assert_eq!(record.to_client, volume(4, server.len() as u64));
    assert_eq!((record.state, record.end), (FlowState::Closed, FlowEnd::Timeout));
    assert_eq!((record.protocol, record.verdict), (Some(Protocol::Ssh), FlowVerdict::Passed));
    assert_eq!(record.flags_to_server, 0x1b);
    assert_eq!(record.flags_to_client, 0x1e);
    assert_eq!((record.age(), record.counted()), (1, "whole"));
    assert!(!record.alerted && record.rule.is_none());
}

#[test]
fn a_blocked_flow_is_told_when_it_is_blocked_and_once() {
    let mut talk = recording(REJECT_OLD_SSH).open();
    let banner = b"SSH-2.0-OpenSSH_7.4\r\n";
    assert!(matches!(talk.server(banner), Decision::Reject(_)));
    let [record] = &records(&talk)[..] else { panic!("one record: {:?}", talk.events) };
    assert_eq!((record.verdict, record.reason), (FlowVerdict::Rejected, Some(DropReason::Rules)));
    assert_eq!(record.rule.as_deref(), Some("old-ssh"));
    assert!(record.alerted);
    assert_eq!(record.counted(), "until decided");
    assert_eq!(record.to_client, volume(2, banner.len() as u64));
    talk.client(b"x");
    finish(&mut talk);
    assert_eq!(records(&talk).len(), 1, "the rest of it gets nowhere");
}

#[test]
fn the_record_of_a_flow_that_was_not_whole_in_time_says_why_it_is_blocked() {
    let mut talk = recording("").open();
    talk.server(b"SSH-2.0-OpenSSH");
    talk.wait(Duration::from_secs(300));
    finish(&mut talk);
    let [record] = &records(&talk)[..] else { panic!("one record: {:?}", talk.events) };
    let reason = Some(Anomaly::BudgetSpent.drop_reason());
    assert_eq!((record.verdict, record.reason), (FlowVerdict::Blocked, reason));
}

#[test]
fn what_the_kernel_passes_on_is_said_not_to_be_counted() {
    let mut setup = recording("");
    setup.config.hands_over = true;
    let mut talk = setup.open();
    talk.server(b"SSH-2.0-OpenSSH_9.8\r\n");
    talk.client(b"SSH-2.0-PuTTY\r\n");
    assert_eq!(talk.acknowledge(false), Decision::Pass);
    finish(&mut talk);
    let [record] = &records(&talk)[..] else { panic!("one record: {:?}", talk.events) };
    assert_eq!((record.state, record.end), (FlowState::Bypassed, FlowEnd::Shutdown));
    assert_eq!(record.counted(), "until decided");
}

#[test]
fn a_connection_with_the_same_ports_has_a_record_of_its_own() {
    let mut talk = recording("").open();
    talk.client(b"x");
    talk.send(true, TcpFlags::RST, b"");
    talk.handshake();
    finish(&mut talk);
    let [first, second] = &records(&talk)[..] else { panic!("two records: {:?}", talk.events) };
    assert_eq!((first.end, second.end), (FlowEnd::Reused, FlowEnd::Shutdown));
    assert_eq!((first.to_server, first.to_client), (volume(4, 1), volume(1, 0)));
    assert_eq!((second.to_server, second.to_client), (volume(2, 0), volume(1, 0)));
    assert_eq!(second.flags_to_server, 0x12, "SYN, then ACK");
}

#[test]
fn a_flow_that_gives_way_is_told_and_a_syn_alone_is_new() {
    let mut setup = recording("");
    setup.config.flow_limit = 1;
    let mut talk = setup.open();
    talk.client(b"x");
    talk.other().syn();
    finish(&mut talk);
    let [first, second] = &records(&talk)[..] else { panic!("two records: {:?}", talk.events) };
    assert_eq!((first.end, first.state), (FlowEnd::Forced, FlowState::Established));
    assert_eq!((second.end, second.state), (FlowEnd::Shutdown, FlowState::New));
    assert_eq!((second.to_server, second.to_client), (volume(1, 0), TrafficVolume::default()));
}

#[test]
fn nothing_is_told_of_flows_unless_asked_for() {
    let mut talk = Setup::enforcing(REJECT_OLD_SSH).open();
    talk.server(b"SSH-2.0-OpenSSH_7.4\r\n");
    finish(&mut talk);
    assert!(records(&talk).is_empty());
}
