//! Bans that rules ask for, and enforcement of a part of the flows.

use std::net::IpAddr;
use std::time::Duration;

use super::testing::{Conversation, NO_SQLMAP, Setup};
use super::{BanRequest, Decision, EnforceOnly};
use crate::event::{Event, EventKind};
use crate::packet::TcpFlags;

const SQLMAP: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r\n";

fn banning(more: &str) -> String {
    format!("{}{more}\n", NO_SQLMAP.replace("\"drop\"", "\"ban\""))
}

fn banned(talk: &mut Conversation) -> Option<BanRequest> {
    talk.engine.take_ban().map(|ban| *ban)
}

#[test]
fn the_client_of_an_established_connection_is_banned_for_the_rule_s_time() {
    for (v6, client) in [(false, "192.0.2.1"), (true, "2001:db8::1")] {
        for (more, seconds) in [("", 600), ("ban = \"1h\"", 3600)] {
            let mut talk = Setup::enforcing(&banning(more)).v6(v6).open();
            assert_eq!((talk.client(SQLMAP), banned(&mut talk).is_some()), (Decision::Block, true));
            let mut talk = Setup::enforcing(&banning(more)).v6(v6).open();
            talk.client(SQLMAP);
            let ban = banned(&mut talk).unwrap();
            assert_eq!((ban.client, ban.rule.as_str()), (client.parse::<IpAddr>().unwrap(), "no-sqlmap"));
            assert_eq!((ban.banner.as_str(), ban.time), ("GET / HTTP/1.1", Duration::from_secs(seconds)));
            assert_eq!(banned(&mut talk), None, "once");
        }
    }
}

#[test]
fn nobody_is_banned_on_the_word_of_one_end() {
    // Without a handshake.
    let mut talk = Setup::enforcing(&banning("")).midstream();
    talk.client(SQLMAP);
    assert_eq!(banned(&mut talk), None);
    // Confirmed by the server's answer, and still nobody has seen who opened it.
    let mut talk = Setup::enforcing(&banning("")).picked_up();
    talk.client(&SQLMAP[..20]);
    talk.acknowledge(false);
    assert_eq!((talk.client(&SQLMAP[20..]), banned(&mut talk)), (Decision::Block, None));
    // The server has answered a SYN whose sender never acknowledges it.
    let mut talk = Setup::enforcing(&banning("")).midstream();
    let [client, server] = talk.next;
    let syn = talk.segment(true).sequence(client.wrapping_sub(1)).flags(TcpFlags::SYN);
    talk.show(&syn);
    let answer = talk.segment(false).sequence(server.wrapping_sub(1)).acknowledgement(client);
    talk.show(&answer.flags(TcpFlags::SYN | TcpFlags::ACK));
    for acknowledgement in [server.wrapping_add(1), server.wrapping_sub(1), server.wrapping_add(1 << 20), 0] {
        let forged = talk.segment(true).acknowledgement(acknowledgement);
        talk.show(&forged.flags(TcpFlags::ACK | TcpFlags::PSH).payload(SQLMAP));
        assert_eq!(banned(&mut talk), None, "{acknowledgement}");
    }
    talk.acknowledge(true);
    assert_eq!(talk.client(SQLMAP), Decision::Block);
    assert!(banned(&mut talk).is_some(), "the client itself");
}

#[test]
fn a_monitor_and_other_actions_ban_nobody() {
    let mut talk = Setup::monitoring(&banning("")).open();
    talk.client(SQLMAP);
    assert_eq!(banned(&mut talk), None);
    let mut talk = Setup::enforcing(NO_SQLMAP).open();
    talk.client(SQLMAP);
    assert_eq!(banned(&mut talk), None);
}

#[test]
fn a_rule_with_a_count_bans_from_that_match_on() {
    let mut talk = Setup::enforcing(&banning("count = { times = 3, within = '1m' }")).open();
    let server = talk.server_endpoint().address;
    for expected in [false, false, true] {
        talk.client(SQLMAP);
        assert_eq!(banned(&mut talk).is_some(), expected);
        talk.reopen(server);
    }
}

#[test]
fn a_ban_is_asked_for_where_an_earlier_rule_drops() {
    let both = NO_SQLMAP.to_owned() + &banning("").replace("no-sqlmap", "second");
    let mut talk = Setup::enforcing(&both).open();
    assert_eq!(talk.client(SQLMAP), Decision::Block);
    assert_eq!(banned(&mut talk).map(|ban| ban.rule).as_deref(), Some("second"));
}

/// Actions of alerts and whether they were enforced, and the number of drop events.
fn told(events: &[Event]) -> (Vec<bool>, usize) {
    let alerts = events.iter().filter_map(|event| match &event.kind {
        EventKind::Alert(facts) => Some(facts.blocked),
        _ => None,
    });
    (alerts.collect(), events.iter().filter(|event| matches!(event.kind, EventKind::Drop(_))).count())
}

#[test]
fn flows_outside_of_what_is_enforced_are_alerted_about() {
    let only = |text: &str| {
        let mut setup = Setup::enforcing(&banning(""));
        setup.config.enforce_only = text.parse().unwrap();
        setup.open()
    };
    for (text, blocks) in
        [("192.0.2.0/24", true), ("198.51.100.2", true), ("203.0.113.0/24", false), ("100%", true)]
    {
        let mut talk = only(text);
        assert_eq!(talk.client(SQLMAP) == Decision::Block, blocks, "{text}");
        assert_eq!(banned(&mut talk).is_some(), blocks, "{text}");
        assert_eq!(told(&talk.events), (vec![blocks], usize::from(blocks)), "{text}");
    }
}

#[test]
fn packets_that_mislead_an_inspector_pass_outside_of_what_is_enforced() {
    for (text, expected) in [("203.0.113.0/24", Decision::Undecided), ("192.0.2.0/24", Decision::Drop)] {
        let mut setup = Setup::enforcing("");
        setup.config.enforce_only = text.parse().unwrap();
        let mut talk = setup.open();
        let wrong = talk.server_segment(b"x").bad_checksum().build();
        assert_eq!(talk.inspect_cut(&wrong, wrong.len()).decision, expected, "{text}");
        // A TCP header of four bytes belongs to no flow.
        let mut malformed = talk.server_packet(b"x");
        malformed[32] = 0x10;
        assert_eq!(talk.inspect_cut(&malformed, malformed.len()).decision, expected, "{text}");
        assert_eq!(talk.anomalies().len(), 2, "{text}");
    }
}

#[test]
fn a_share_is_enforced_flow_by_flow() {
    let mut setup = Setup::enforcing(NO_SQLMAP);
    setup.config.enforce_only = EnforceOnly::Share(50);
    let mut talk = setup.open();
    let server = talk.server_endpoint().address;
    let blocked = (0..200).filter(|_| {
        talk.reopen(server);
        talk.client(SQLMAP) == Decision::Block
    });
    let blocked = blocked.count();
    assert!((70..130).contains(&blocked), "{blocked} of 200");
    let (alerts, drops) = told(&talk.events);
    assert_eq!((alerts.len(), drops), (200, blocked));
    assert_eq!(alerts.iter().filter(|enforced| **enforced).count(), blocked);
}
