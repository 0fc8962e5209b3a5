//! Flows of which packets went by that nobody has shown: a full queue lets them under `--on-failure open`.

use std::time::Duration;

use super::tcp_flows::MISSED_SHOWS;
use super::testing::{Conversation, NO_SQLMAP, Setup};
use super::{ChecksumState, Decision, HttpInspect, PacketInput};
use crate::event::EventKind;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn request(agent: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\n\r\n").into_bytes()
}

/// A connection that has said nothing.
fn open() -> Conversation {
    let mut setup = Setup::enforcing(NO_SQLMAP);
    setup.config.http_inspect = HttpInspect::All;
    setup.open()
}

/// A connection whose first transaction was seen.
fn talk() -> Conversation {
    let mut talk = open();
    talk.client(&request("curl"));
    talk.server(ANSWER);
    talk.acknowledge(true);
    talk
}

/// The next transactions go by, with all that acknowledges them.
fn go_by(talk: &mut Conversation, count: u32) {
    talk.lose_of_client(count * u32::try_from(request("curl").len()).unwrap());
    talk.lose_of_server(count * u32::try_from(ANSWER.len()).unwrap());
}

#[test]
fn what_speaks_of_octets_that_were_never_seen_passes_where_some_went_by() {
    for count in [1, 3, 10_000] {
        let mut talk = talk();
        go_by(&mut talk, count);
        assert_eq!(talk.client(&request("curl")), Decision::Drop, "nothing is known to have gone by");
        talk.lose_of_client(0u32.wrapping_sub(u32::try_from(request("curl").len()).unwrap()));
        talk.engine.record_missed(talk.now);
        assert_eq!(talk.client(&request("curl")), Decision::Undecided, "{count}");
        assert_eq!(talk.server(ANSWER), Decision::Undecided, "{count}");
        assert_eq!(talk.acknowledge(true), Decision::Undecided, "{count}");
        assert_eq!(talk.client(&request("sqlmap/1")), Decision::Block, "{count}: it is read on behind that");
    }
}

#[test]
fn a_forbidden_request_right_behind_what_went_by_is_read_once_that_is_known_to_have_arrived() {
    let mut talk = talk();
    go_by(&mut talk, 2);
    talk.engine.record_missed(talk.now);
    // What lies before it may be still to come, until the server has acknowledged both.
    assert_eq!(talk.client(&request("sqlmap/1")), Decision::Undecided);
    talk.server(ANSWER);
    assert_eq!(talk.client(&request("curl")), Decision::Block);
}

#[test]
fn flows_that_began_later_and_times_much_later_are_looked_at_as_ever() {
    let mut talk = talk();
    talk.engine.record_missed(talk.now);
    talk.wait(MISSED_SHOWS + Duration::from_secs(1));
    go_by(&mut talk, 1);
    assert_eq!(talk.client(&request("curl")), Decision::Drop);

    let mut talk = open();
    let before = talk.now.before(Duration::from_secs(10));
    talk.engine.record_missed(before);
    talk.client(&request("curl"));
    talk.server(ANSWER);
    go_by(&mut talk, 1);
    assert_eq!(talk.client(&request("curl")), Decision::Drop);
}

/// A packet passes unjudged.
fn pass_by(talk: &mut Conversation, packet: &[u8]) {
    let input = PacketInput {
        now: talk.now,
        ip: packet,
        wire_length: packet.len(),
        checksums: ChecksumState::Verify,
        interface: None,
        vlan: &[],
        packet_number: None,
    };
    talk.engine.follow_uninspected(&input, &mut talk.events);
}

fn alerts_and_drops(talk: &Conversation) -> usize {
    let is_one = |kind: &EventKind| matches!(kind, EventKind::Alert(_) | EventKind::Drop(_));
    talk.events.iter().filter(|event| is_one(&event.kind)).count()
}

#[test]
fn a_banner_that_passes_unjudged_is_neither_told_nor_dropped_when_it_comes_again() {
    let bad = request("sqlmap/1");
    let length = u32::try_from(bad.len()).unwrap();
    for (cut, before) in [(0, true), (0, false), (20, true), (bad.len() - 4, false)] {
        let mut talk = if before { talk() } else { open() };
        let (judged, passed) = bad.split_at(cut);
        if cut > 0 {
            assert_eq!(talk.client(judged), Decision::Undecided);
        }
        let again = talk.segment(true).payload(passed);
        pass_by(&mut talk, &again.build());
        for _ in 0..3 {
            assert_eq!(talk.show(&again), Decision::Undecided, "{cut}");
        }
        talk.lose_of_client(length - u32::try_from(cut).unwrap());
        assert_eq!(talk.server(ANSWER), Decision::Undecided, "{cut}");
        assert_eq!(talk.acknowledge(true), Decision::Undecided, "{cut}");
        assert_eq!(alerts_and_drops(&talk), 0, "{cut} {:?}", talk.events);
        assert_eq!(talk.client(&request("sqlmap/1")), Decision::Block, "{cut}: what comes next is judged");
    }
}

#[test]
fn a_wrong_checksum_passes_nothing_by() {
    let mut talk = talk();
    let packet = talk.segment(true).payload(&request("curl")).bad_checksum().build();
    pass_by(&mut talk, &packet);
    assert_eq!(talk.client(&request("sqlmap/1")), Decision::Block);
}
