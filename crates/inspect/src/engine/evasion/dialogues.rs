//! Banners behind what is said before them: whoever reads them at the other end, they are judged.

use bannerwall_test_support::hello::{client_hello, records};

use crate::engine::Decision;
use crate::engine::HttpInspect::{self, All, First, Requests};
use crate::engine::testing::{NO_BAD_TLS_OR_SSH, Setup};
use crate::event::EventKind;
use crate::packet::TcpFlags;

/// Forbids an agent and a server.
const NO_BAD_HTTP: &str = r#"
[[rule]]
id = "agent"
protocol = "http"
from = "client"
match."header.user-agent" = '^bad'
action = "drop"

[[rule]]
id = "server"
protocol = "http"
from = "server"
match."header.server" = '^bad'
action = "drop"
"#;

fn rules() -> String {
    [NO_BAD_TLS_OR_SSH, NO_BAD_HTTP].concat()
}

const SIZES: [usize; 3] = [1, 7, 1400];

const IDENTIFICATION: &[u8] = b"SSH-2.0-bad\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nUser-Agent: bad\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: bad\r\nContent-Length: 0\r\n\r\n";

/// Sender, the client if true, and bytes.
type SaidBytes<'s> = (bool, &'s [u8]);

/// Plays a dialogue whose last part, and no other, is to be blocked.
fn assert_blocked(name: &str, modes: &[HttpInspect], said: &[SaidBytes<'_>]) {
    for mode in modes {
        for size in SIZES {
            let mut setup = Setup::enforcing(&rules());
            setup.config.http_inspect = *mode;
            setup.config.hands_over = *mode == Requests;
            let mut talk = setup.open();
            let ((from_client, last), before) = said.split_last().expect("the case has bytes");
            for (from_client, octets) in before {
                let blocked = talk.sends(*from_client, octets, size);
                assert!(!blocked, "{name} {mode:?} {size}: {}", octets.escape_ascii());
                talk.acknowledge(!from_client);
            }
            let blocked = talk.sends(*from_client, last, size);
            assert!(blocked, "{name} {mode:?} {size}: {:?}", talk.anomalies());
        }
    }
}

fn bad_hello() -> Vec<u8> {
    records(&client_hello("bad.example", 0), 1 << 14)
}

#[test]
fn what_follows_an_upgrade_is_judged() {
    let asks = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    let grants = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n";
    let refuses = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let every = &[First, Requests, All];
    for (name, last) in [("hello", bad_hello().as_slice()), ("identification", IDENTIFICATION)] {
        assert_blocked(name, every, &[(true, asks), (false, grants), (true, last)]);
        assert_blocked(name, every, &[(true, asks), (true, last)]);
        assert_blocked(name, every, &[(true, asks), (false, grants), (true, b"\x01\x02\r\n"), (true, last)]);
    }
    let behind: [SaidBytes<'_>; 4] = [(true, asks), (false, grants), (true, preface), (true, IDENTIFICATION)];
    assert_blocked("preface", every, &behind);
    assert_blocked("request", every, &[(true, asks), (false, grants), (true, REQUEST)]);
    assert_blocked("request", &[Requests, All], &[(true, asks), (false, refuses), (true, REQUEST)]);
    assert_blocked("server", every, &[(true, asks), (false, grants), (false, IDENTIFICATION)]);
    assert_blocked(
        "response",
        every,
        &[(true, asks), (false, grants), (true, b"GET / HTTP/1.1\r\n\r\n"), (false, RESPONSE)],
    );
    // Some clients take any status below 200 for an interim one.
    let plain = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for grants in [&grants[..], b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n"] {
        assert_blocked("interim", every, &[(true, plain), (false, grants), (false, RESPONSE)]);
    }
}

#[test]
fn what_follows_a_tunnel_is_judged() {
    let asks = b"CONNECT h:22 HTTP/1.1\r\nHost: h\r\n\r\n";
    let plain = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for status in [200, 201, 204, 299] {
        let grants = format!("HTTP/1.1 {status} OK\r\n\r\n");
        for (name, last) in
            [("hello", bad_hello().as_slice()), ("identification", IDENTIFICATION), ("request", REQUEST)]
        {
            for asks in [&asks[..], b"connect h:22 HTTP/1.1\r\nHost: h\r\n\r\n"] {
                let said = [(true, asks), (false, grants.as_bytes()), (true, last)];
                assert_blocked(name, &[First, Requests, All], &said);
            }
        }
        let said = [(true, &asks[..]), (false, grants.as_bytes()), (false, IDENTIFICATION)];
        assert_blocked("server", &[First, Requests, All], &said);
    }
    // The client need not wait, and has asked for something else before.
    let said = [(true, &plain[..]), (true, asks), (false, answer), (true, IDENTIFICATION)];
    assert_blocked("early", &[All], &said);
    // The server takes the method for an ordinary one.
    let ordinary = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_blocked("ordinary", &[All], &[(true, asks), (false, ordinary)]);
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_blocked("ordinary", &[All], &[(true, asks), (false, chunked)]);
}

#[test]
fn an_identification_behind_the_preface_of_http_2_is_judged() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let every = &[First, Requests, All];
    assert_blocked("early", every, &[(true, preface), (true, IDENTIFICATION)]);
    assert_blocked("late", every, &[(false, b"SSH-2.0-x\r\n"), (true, preface), (true, IDENTIFICATION)]);
}

#[test]
fn a_banner_is_judged_in_either_role_where_nobody_saw_who_is_the_client() {
    let (client, server) = (
        rules().replace("from = \"either\"", "from = \"client\""),
        rules().replace("from = \"either\"", "from = \"server\""),
    );
    let hello = bad_hello();
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let of_client: &[&[SaidBytes<'_>]] = &[
        &[(true, IDENTIFICATION)],
        &[(false, b"SSH-2.0-x\r\n"), (true, IDENTIFICATION)],
        &[(true, &hello)],
        &[(true, REQUEST)],
        &[(true, b"\r\n"), (true, REQUEST)],
        &[
            (false, b"220 x\r\n"),
            (true, b"EHLO y\r\n"),
            (false, b"250 STARTTLS\r\n"),
            (true, b"STARTTLS\r\n"),
            (false, b"220 go\r\n"),
            (true, &hello),
        ],
        &[(true, b"CONNECT h:1 HTTP/1.1\r\n\r\n"), (false, ok), (true, IDENTIFICATION)],
        &[(false, ok), (true, REQUEST)],
    ];
    let of_server: &[&[SaidBytes<'_>]] = &[
        &[(false, IDENTIFICATION)],
        &[(false, b"hello\r\n"), (false, IDENTIFICATION)],
        &[(true, b"SSH-2.0-x\r\n"), (false, IDENTIFICATION)],
        &[(false, RESPONSE)],
        &[(true, request), (false, RESPONSE)],
    ];
    let dialogues =
        of_client.iter().map(|said| (&client, *said)).chain(of_server.iter().map(|said| (&server, *said)));
    for (rules, said) in dialogues {
        // The guess is that the higher port is the client's.
        for is_as_guessed in [true, false] {
            for size in SIZES {
                let mut setup = Setup::enforcing(rules);
                setup.config.http_inspect = All;
                let mut talk = setup.picked_up();
                let ((from_client, last), before) = said.split_last().expect("the case has bytes");
                for (from_client, octets) in before {
                    let from = *from_client == is_as_guessed;
                    assert!(
                        !talk.sends(from, octets, size),
                        "{} {is_as_guessed} {size}",
                        octets.escape_ascii()
                    );
                    talk.acknowledge(!from);
                }
                let from = *from_client == is_as_guessed;
                let blocked = last.chunks(size).any(|piece| {
                    matches!(
                        talk.send(from, TcpFlags::ACK | TcpFlags::PSH, piece),
                        Decision::Block | Decision::Drop
                    )
                });
                let shown = last.escape_ascii();
                assert!(blocked, "{shown} {is_as_guessed} {size}: {:?}", talk.anomalies());
            }
        }
    }
}

#[test]
fn a_rule_about_either_side_is_told_once_where_both_roles_are_judged() {
    let mut talk = Setup::enforcing(&rules()).picked_up();
    assert_eq!(talk.server(b"SSH-2.0-x\r\n"), Decision::Undecided);
    talk.acknowledge(true);
    assert_eq!(talk.client(IDENTIFICATION), Decision::Block);
    let alerts = talk.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count();
    assert_eq!(alerts, 1);
}

#[test]
fn a_connection_that_shows_its_roles_is_not_read_in_others() {
    let mut talk = Setup::enforcing(&rules()).picked_up();
    talk.client(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    talk.acknowledge(false);
    talk.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(talk.acknowledge(true), Decision::Pass);
}

#[test]
fn an_identification_behind_a_load_balancers_header_is_judged() {
    let client_ip = [&b"\0\0\0\x03\0\0\0\x28\x45\0\0\x28\0\0\0\0\x40\x06"[..], &[0; 30]].concat();
    for header in [&b"PROXY UNKNOWN\r\n"[..], &client_ip] {
        let every = &[First, Requests, All];
        assert_blocked("identification", every, &[(true, header), (true, IDENTIFICATION)]);
        assert_blocked("request", every, &[(true, header), (true, REQUEST)]);
    }
}

#[test]
fn an_identification_behind_a_long_name_for_a_socks_server_is_judged() {
    for length in [1, 255, 256, 1_000] {
        let asks = [&b"\x04\x01\0\x16\xc0\0\x02\x01"[..], &vec![b'u'; length], b"\0"].concat();
        let grants = b"\0\x5a\0\0\0\0\0\0";
        let every = &[First, Requests, All];
        assert_blocked("late", every, &[(true, &asks), (false, grants), (true, IDENTIFICATION)]);
        assert_blocked("early", every, &[(true, &asks), (true, IDENTIFICATION)]);
    }
}

#[test]
fn a_requested_host_is_judged_as_servers_look_it_up() {
    let rules = "[[rule]]\nid = 'host'\nprotocol = 'http'\nfrom = 'client'\naction = 'drop'\n\
                 match.\"header.host\" = '^bad\\.example$'\n";
    for (target, host, is_forbidden) in [
        ("/", "bad.example", true),
        ("/", "BAD.Example", true),
        ("/", "bad.example:80", true),
        ("/", "bad.example.", true),
        ("http://bad.example/", "good.example", true),
        ("HTTP://user@Bad.example:80?x", "good.example", true),
        ("/", "bad.example,good.example", true),
        ("/", "[bad.example]", true),
        ("/", "user@b%61d.example/x", true),
        ("//bad.example/", "good.example", true),
        ("https:\\\\bad.example/", "good.example", true),
        ("/?u=http://bad.example/", "good.example", false),
        ("/", "bad.example.org", false),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut talk = Setup::enforcing(rules).open();
        assert_eq!(talk.sends(true, request.as_bytes(), 1400), is_forbidden, "{request}");
    }
}
