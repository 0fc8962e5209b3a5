use std::io::Cursor;

use super::*;
use crate::event::{ApplicationFacts, Event, EventKind, SshSide};
use crate::packet::TcpFlags;
use crate::packet::testing::{SegmentBuilder, endpoint};

/// A capture of raw IP packets, one a second.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file: Vec<u8> =
        [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101].into_iter().flat_map(u32::to_le_bytes).collect();
    for (second, packet) in (1_000_u32..).zip(packets) {
        let length = u32::try_from(packet.len()).unwrap();
        file.extend([second, 5, length, length].into_iter().flat_map(u32::to_le_bytes));
        file.extend(packet);
    }
    file
}

/// An SSH connection up to both identifications.
fn ssh() -> Vec<Vec<u8>> {
    let (client, server) = (endpoint("192.0.2.1:40000"), endpoint("198.51.100.2:2200"));
    let up = || SegmentBuilder::new(client, server);
    let down = || SegmentBuilder::new(server, client);
    vec![
        up().flags(TcpFlags::SYN).sequence(99).build(),
        down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(999).acknowledgement(100).build(),
        up().sequence(100).acknowledgement(1000).build(),
        down().sequence(1000).acknowledgement(100).payload(b"SSH-2.0-OpenSSH_9.2p1\r\n").build(),
        up().sequence(100).acknowledgement(1023).payload(b"SSH-2.0-client\r\n").build(),
    ]
}

fn replay() -> CaptureReplay {
    let config = ReplayConfig { engine: EngineConfig::default(), checksums: ChecksumState::Verify };
    CaptureReplay::new(config, Arc::new(RuleSet::empty()), None)
}

fn read(replay: &mut CaptureReplay, file: Vec<u8>) -> (Vec<Event>, Result<ControlFlow<()>, ReplayError>) {
    let mut events = Vec::new();
    let outcome = replay
        .read(CaptureInput::new(Cursor::new(file), None).unwrap(), &mut events, || ControlFlow::Continue(()));
    (events, outcome)
}

fn software(side: Option<&SshSide>) -> Option<&str> {
    side.map(|side| side.software_version.as_str())
}

/// Time, client's and server's software of every `ssh` event.
fn identifications(events: &[Event]) -> Vec<(u64, Option<&str>, Option<&str>)> {
    let mut found = Vec::new();
    for event in events {
        if let EventKind::Application(ApplicationFacts::Ssh(facts)) = &event.kind {
            let (client, server) = (software(facts.client.as_deref()), software(facts.server.as_deref()));
            found.push((event.timestamp.as_nanos(), client, server));
        }
    }
    found
}

#[test]
fn a_capture_gives_one_ssh_event_with_its_own_time() {
    let mut replay = replay();
    let (mut events, outcome) = read(&mut replay, capture(&ssh()));
    assert_eq!(outcome.unwrap(), ControlFlow::Continue(()));
    replay.finish(&mut events);
    let expected = (1_004_000_005_000, Some("client"), Some("OpenSSH_9.2p1"));
    assert_eq!(identifications(&events), [expected]);
    assert_eq!((replay.totals().frames, replay.totals().not_ip), (5, 0));
}

#[test]
fn what_comes_before_damage_is_judged() {
    let mut replay = replay();
    let mut file = capture(&ssh());
    file.extend([9; 7]);
    let (mut events, outcome) = read(&mut replay, file);
    assert!(matches!(outcome, Err(ReplayError::Capture(CaptureError::Truncated { .. }))), "{outcome:?}");
    replay.finish(&mut events);
    assert_eq!(identifications(&events).len(), 1);
}

#[test]
fn flows_go_on_in_the_next_file_unless_finished() {
    let (first, second) = (capture(&ssh()[..4]), capture(&ssh()[4..]));
    let mut joined = replay();
    let mut events = read(&mut joined, first.clone()).0;
    events.extend(read(&mut joined, second.clone()).0);
    joined.finish(&mut events);
    assert_eq!(identifications(&events).len(), 1);

    let mut apart = replay();
    let mut events = read(&mut apart, first).0;
    apart.finish(&mut events);
    events.extend(read(&mut apart, second).0);
    apart.finish(&mut events);
    assert_eq!(identifications(&events).len(), 2);
}

#[test]
fn an_unknown_link_type_is_told() {
    let mut file = capture(&ssh());
    file[20] = 250;
    let (_, outcome) = read(&mut replay(), file);
    assert!(matches!(outcome, Err(ReplayError::LinkType(250))), "{outcome:?}");
}

#[test]
fn the_reader_stops_when_told() {
    let packets = vec![ssh()[0].clone(); usize::try_from(LOOK_UP).unwrap() + 10];
    let mut replay = replay();
    let input = CaptureInput::new(Cursor::new(capture(&packets)), None).unwrap();
    let outcome = replay.read(input, &mut Vec::new(), || ControlFlow::Break(()));
    assert_eq!(outcome.unwrap(), ControlFlow::Break(()));
    assert_eq!(replay.totals().frames, LOOK_UP);
}
