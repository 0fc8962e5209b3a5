//! One protocol hands over to another: whatever follows is read like a connection of its own, however it
//! is cut.

use bannerwall_test_support::hello;
use proptest::prelude::*;

use crate::engine::testing::{Conversation, Setup};
use crate::engine::{Decision, HttpInspect};
use crate::event::{Event, EventKind};
use crate::packet::TcpFlags;

const RULES: &str = r#"
[[rule]]
id = "ssh"
title = "t"
protocol = "ssh"
from = "either"
match.software = '^bad'
action = "drop"

[[rule]]
id = "agent"
title = "t"
protocol = "http"
from = "client"
match."header.user-agent" = '^bad'
action = "drop"

[[rule]]
id = "server"
title = "t"
protocol = "http"
from = "server"
match."header.server" = '^bad'
action = "drop"

[[rule]]
id = "name"
title = "t"
protocol = "tls"
from = "client"
match.sni = '^bad'
action = "drop"

[[rule]]
id = "mail"
title = "t"
protocol = "smtp"
match.text = 'bad'
action = "drop"
"#;

/// Who says what: the client where it is true.
type Said = (bool, &'static [u8]);

const SMTP: [Said; 5] = [
    (false, b"220-mail.example ESMTP\r\n220 ready\r\n"),
    (true, b"EHLO x\r\n"),
    (false, b"250-mail.example\r\n250-PIPELINING\r\n250 STARTTLS\r\n"),
    (true, b"STARTTLS\r\n"),
    (false, b"220 go\r\n"),
];

const CONNECT: [Said; 2] =
    [(true, b"CONNECT h:22 HTTP/1.1\r\nHost: h\r\n\r\n"), (false, b"HTTP/1.1 200 Connected\r\n\r\n")];

/// What leads to another dialogue on the same connection.
fn hand_overs() -> Vec<(&'static str, Vec<Said>)> {
    vec![
        ("connect", CONNECT.to_vec()),
        ("socks 4", vec![(true, b"\x04\x01\0\x16\xc0\0\x02\x01\0"), (false, b"\0\x5a\0\0\0\0\0\0")]),
        (
            "socks 5",
            vec![
                (true, b"\x05\x01\0"),
                (false, b"\x05\0"),
                (true, b"\x05\x01\0\x03\x01h\0\x16"),
                (false, b"\x05\0\0\x01\0\0\0\0\0\0"),
            ],
        ),
        ("smtp", SMTP.to_vec()),
        (
            "ftp",
            vec![
                (false, b"220 (vsFTPd 3.0.3)\r\n"),
                (true, b"FEAT\r\n"),
                (false, b"211-Features:\r\n AUTH TLS\r\n211 End\r\n"),
                (true, b"auth tls\r\n"),
                (false, b"234 Proceed\r\n"),
            ],
        ),
        (
            "pop3",
            vec![
                (false, b"+OK ready\r\n"),
                (true, b"CAPA\r\n"),
                (false, b"+OK\r\nSTLS\r\n.\r\n"),
                (true, b"STLS\r\n"),
                (false, b"+OK go\r\n"),
            ],
        ),
        (
            "imap",
            vec![
                (false, b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n"),
                (true, b"a1 CAPABILITY\r\na2 STARTTLS\r\n"),
                (false, b"* CAPABILITY IMAP4rev1 STARTTLS\r\na1 OK\r\na2 OK go\r\n"),
            ],
        ),
        ("connect, then smtp", [&CONNECT[..], &SMTP].concat()),
        ("smtp, then connect", [&SMTP[..], &CONNECT].concat()),
    ]
}

/// What may follow, the last of it forbidden.
const FOLLOWING: [&[Said]; 7] = [
    &[(false, b"SSH-2.0-bad\r\n")],
    &[(true, b"SSH-2.0-bad\r\n")],
    &[(false, b"hello\r\nSSH-2.0-OpenSSH_9.9\r\n"), (true, b"SSH-2.0-bad\r\n")],
    &[(true, b"GET / HTTP/1.1\r\nUser-Agent: bad\r\n")],
    &[(true, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), (false, b"HTTP/1.1 200 OK\r\nServer: bad\r\n")],
    &[(false, b"220-mail.example\r\n220 ESMTP bad\r\n")],
    &[(true, b"EHLO early\r\n"), (false, b"220 ESMTP bad\r\n")],
];

const SIZES: [usize; 4] = [1, 2, 7, 1400];

/// Says it in segments of `size` bytes; what was decided of the last one.
fn say(talk: &mut Conversation, said: &[Said], size: usize) -> Decision {
    let mut decision = Decision::Undecided;
    for (from_client, octets) in said {
        for piece in octets.chunks(size) {
            assert_eq!(decision, Decision::Undecided, "{}", piece.escape_ascii());
            decision = talk.send(*from_client, TcpFlags::ACK | TcpFlags::PSH, piece);
        }
    }
    decision
}

fn told(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match &event.kind {
        EventKind::Application(said) => said.protocol().name().to_owned(),
        EventKind::Alert(alert) => alert.rule.clone(),
        EventKind::Anomaly(anomaly) => anomaly.name.to_owned(),
        _ => "other".to_owned(),
    };
    events.iter().map(name).collect()
}

#[test]
fn what_follows_a_hand_over_is_read_like_a_connection_of_its_own() {
    for (name, before) in hand_overs() {
        for following in FOLLOWING {
            for size in SIZES {
                for http_inspect in [HttpInspect::First, HttpInspect::All] {
                    let mut setup = Setup::enforcing(RULES);
                    setup.config.http_inspect = http_inspect;
                    let mut talk = setup.open();
                    assert_eq!(say(&mut talk, &before, size), Decision::Undecided, "{name} {size}");
                    let decision = say(&mut talk, following, size);
                    assert_eq!(
                        decision,
                        Decision::Block,
                        "{name} {following:?} {size} {:?}",
                        told(&talk.events)
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_told_around_a_hand_over_does_not_depend_on_segments() {
    for (name, before) in hand_overs() {
        for following in FOLLOWING {
            let events = SIZES.map(|size| {
                let mut talk = Setup::monitoring(RULES).open();
                say(&mut talk, &before, size);
                say(&mut talk, following, size);
                talk.engine.finish(talk.now, &mut talk.events);
                told(&talk.events)
            });
            assert!(events.iter().all(|told| *told == events[0]), "{name} {following:?} {events:?}");
            assert!(events[0].len() >= 2, "{name} {events:?}");
        }
    }
}

#[test]
fn a_hello_behind_a_hand_over_is_judged_and_told() {
    let record = |message: &[u8]| -> &'static [u8] { hello::records(message, 1 << 14).leak() };
    let (bad, good) = (record(&hello::client_hello("bad.example", 0)), record(&hello::client_hello("a", 0)));
    let answer = record(&[hello::server_hello(0xc02f, "h2"), hello::certificates(&[b"x"])].concat());
    for (name, before) in hand_overs() {
        let (last, rest) = before.split_last().expect("somebody grants it");
        for size in SIZES {
            for early in [false, true] {
                let begin = |talk: &mut Conversation| say(talk, if early { rest } else { &before }, size);
                let mut talk = Setup::enforcing(RULES).open();
                begin(&mut talk);
                assert_eq!(say(&mut talk, &[(true, bad)], 1400), Decision::Block, "{name} {size} {early}");
                let mut talk = Setup::enforcing(RULES).open();
                begin(&mut talk);
                let granted = if early { vec![*last] } else { Vec::new() };
                say(&mut talk, &[vec![(true, good)], granted, vec![(false, answer)]].concat(), size);
                assert!(told(&talk.events).contains(&"tls".to_owned()), "{name} {size} {early}");
                assert_eq!(talk.acknowledge(true), Decision::Pass, "{name} {size} {early}");
            }
        }
    }
}

#[test]
fn an_encrypted_connection_behind_a_hand_over_passes_once_both_sides_have_spoken() {
    let (hello, answer) = (&b"\x16\x03\x01\x02\0\x01\0"[..], &b"\x15\x03\x03\0\x02\x02\x28"[..]);
    for (name, before) in hand_overs() {
        for size in SIZES {
            let mut talk = Setup::enforcing(RULES).open();
            say(&mut talk, &before, size);
            say(&mut talk, &[(true, hello), (false, answer)], size);
            assert!(talk.passes_once_searched(), "{name} {size}");
            // Who may begin before it is granted.
            let (last, rest) = before.split_last().expect("somebody grants it");
            let mut talk = Setup::enforcing(RULES).open();
            say(&mut talk, rest, size);
            say(&mut talk, &[(true, hello), *last, (false, answer)], size);
            assert!(talk.passes_once_searched(), "early {name} {size}");
        }
    }
}

#[test]
fn where_an_upgrade_is_refused_the_dialogue_goes_on() {
    for (greeting, asked, refused, next) in [
        (&b"220 ESMTP\r\n"[..], &b"STARTTLS\r\n"[..], &b"454 no\r\n"[..], &b"MAIL FROM:<a@b>\r\n"[..]),
        (b"+OK\r\n", b"STLS\r\n", b"-ERR\r\n", b"USER x\r\n"),
        (b"* OK\r\n", b"a STARTTLS\r\n", b"a NO\r\n", b"b LOGIN x y\r\n"),
        (b"220 FTP\r\n", b"AUTH TLS\r\n", b"534 no\r\n", b"USER x\r\n"),
    ] {
        for size in SIZES {
            let mut talk = Setup::enforcing(RULES).open();
            let said = |talk: &mut Conversation, from_client, octets: &'static [u8]| {
                assert_eq!(say(talk, &[(from_client, octets)], size), Decision::Undecided);
            };
            said(&mut talk, false, greeting);
            said(&mut talk, true, asked);
            said(&mut talk, false, refused);
            talk.client(next);
            assert!(talk.passes_once_searched(), "{}", greeting.escape_ascii());
        }
    }
}

#[test]
fn a_dialogue_that_asks_for_no_upgrade_passes() {
    for (greeting, first) in [
        (&b"220 ESMTP\r\n"[..], &b"MAIL FROM:<a@b>\r\n"[..]),
        (b"220 FTP\r\n", b"USER x\r\n"),
        (b"+OK\r\n", b"USER x\r\n"),
        (b"* OK\r\n", b"a LOGIN x y\r\n"),
        (b"220 ESMTP\r\n", b"\x16\x03\x01"),
        (b"220 hello\r\n", b"STLS\r\n"),
    ] {
        for size in SIZES {
            let mut talk = Setup::enforcing(RULES).open();
            say(&mut talk, &[(false, greeting)], size);
            for piece in first.chunks(size) {
                talk.client(piece);
            }
            assert!(talk.passes_once_searched(), "{}", first.escape_ascii());
        }
    }
}

#[test]
fn a_request_that_is_answered_by_no_http_is_told_as_a_request_alone() {
    let said: &[(bool, &[u8])] =
        &[(true, b"CONNECT h:1 HTTP/1.1\r\n\r\n"), (false, b"a OK\r\n"), (true, b"220 ESMTP x\r\n")];
    for size in [1, 1400] {
        let mut talk = Setup::monitoring(RULES).open();
        for (from_client, octets) in said {
            for piece in octets.chunks(size) {
                talk.send(*from_client, TcpFlags::ACK | TcpFlags::PSH, piece);
            }
        }
        talk.engine.finish(talk.now, &mut talk.events);
        let mut told = told(&talk.events);
        told.sort();
        assert_eq!(told, ["http", "http_unknown_response"], "{size}");
    }
}

/// What either side may say around a greeting.
fn parts() -> impl Strategy<Value = &'static [u8]> {
    proptest::sample::select(vec![
        &b"220 ESMTP x\r\n"[..],
        b"220-ESMTP\r\n",
        b"220 go\r\n",
        b"250 ok\r\n",
        b"454 no\r\n",
        b"+OK\r\n",
        b"-ERR\r\n",
        b".\r\n",
        b"* OK\r\n",
        b"a OK\r\n",
        b"a NO\r\n",
        b"EHLO x\r\n",
        b"CAPA\r\n",
        b"STARTTLS\r\n",
        b"STLS\r\n",
        b"a STARTTLS\r\n",
        b"MAIL\r\n",
        b"START",
        b"\r\n",
        b"\x16\x03\x01",
        b"SSH-2.0-bad\r\n",
        b"GET / HTTP/1.1\r\nUser-Agent: bad\r\n\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn segments_change_nothing_around_a_greeting(
        said in proptest::collection::vec((any::<bool>(), parts()), 1..9),
        size in 1_usize..9,
        enforce: bool,
    ) {
        let [whole, cut] = [1400, size].map(|size| {
            let mut talk = if enforce { Setup::enforcing(RULES) } else { Setup::monitoring(RULES) }.open();
            let blocked = said.iter().any(|(from_client, octets)| {
                let mut pieces = octets.chunks(size);
                pieces.any(|piece| talk.send(*from_client, TcpFlags::ACK | TcpFlags::PSH, piece) == Decision::Block)
            });
            talk.engine.finish(talk.now, &mut talk.events);
            let mut told = told(&talk.events);
            if blocked {
                // How much was told before depends on how much of it had come.
                told.clear();
            }
            told.sort();
            (blocked, told)
        });
        prop_assert_eq!(whole, cut);
    }
}
