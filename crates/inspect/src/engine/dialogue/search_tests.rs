//! Banners behind what is not read: a server that overlooks it reads them.

use bannerwall_test_support::hello::{alert, certificates, client_hello, records, server_hello};
use proptest::prelude::*;

use crate::engine::testing::{Conversation, NO_BAD_TLS_OR_SSH, NO_SQLMAP, Setup};
use crate::engine::{Decision, HttpInspect, OnFailure};
use crate::event::{ApplicationFacts, Event, EventKind};

const SIZES: [usize; 3] = [1, 7, 1400];
const CHANGE: &[u8] = b"\x14\x03\x03\0\x01\x01";

/// Who says what: the client where it is true.
type Said = (bool, Vec<u8>);

fn said(parts: &[(bool, &[u8])]) -> Vec<Said> {
    parts.iter().map(|(from_client, octets)| (*from_client, octets.to_vec())).collect()
}

fn hello(name: &str) -> Vec<u8> {
    records(&client_hello(name, 0), 1 << 14)
}

/// What protocols say before they go on in TLS, and what clients may say before that.
fn prefixes() -> Vec<(&'static str, Vec<Said>)> {
    let request = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
    let answer = b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\0\x04\0\x04\0";
    let warnings = [0x15, 3, 1, 0, 2, 1, 90].repeat(40);
    let proxy = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x9c\x40\0\x50";
    let client_ip = [&b"\0\0\0\x03\0\0\0\x28\x45\0\0\x28\0\0\0\0\x40\x06"[..], &[0; 30]].concat();
    let socks = [b"\x04\x01\0\x19\xc0\0\x02\x01".as_slice(), &[b'u'; 1000], b"\0"].concat();
    let noise: Vec<Said> =
        (0..40).flat_map(|_| said(&[(true, b"NOOP x\r\n"), (false, b"250 ok\r\n")])).collect();
    let mail = said(&[(false, b"220 mail ESMTP\r\n")]);
    let start = said(&[(true, b"STARTTLS\r\n"), (false, b"220 go\r\n")]);
    vec![
        ("postgresql", said(&[(true, b"\0\0\0\x08\x04\xd2\x16\x2f"), (false, b"S")])),
        (
            "mysql",
            said(&[
                (false, b"J\0\0\0\x0a5.7.1\0"),
                (
                    true,
                    b"\x20\0\0\x01\x85\xae\x7f\0\0\0\0\x01\x21\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                ),
            ]),
        ),
        ("ldap", said(&[(true, request), (false, answer)])),
        (
            "xmpp",
            said(&[
                (true, b"<stream:stream to='h' version='1.0'>"),
                (false, b"<stream:stream><stream:features><starttls/></stream:features>"),
                (true, b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
                (false, b"<proceed/>"),
            ]),
        ),
        ("nntp", said(&[(false, b"200 news\r\n"), (true, b"STARTTLS\r\n"), (false, b"382 go\r\n")])),
        ("sieve", said(&[(false, b"OK\r\n"), (true, b"STARTTLS\r\n"), (false, b"OK \"go\"\r\n")])),
        (
            "telnet",
            said(&[
                (false, b"\xff\xfd\x2e"),
                (true, b"\xff\xfb\x2e\xff\xfa\x2e\x01\xff\xf0"),
                (false, b"\xff\xfa\x2e\x01\xff\xf0"),
            ]),
        ),
        (
            "an unknown command",
            [mail.clone(), said(&[(true, b"XYZZY\r\n"), (false, b"500 no\r\n")]), start.clone()].concat(),
        ),
        (
            "a reset",
            [mail.clone(), said(&[(true, b"RSET\r\n"), (false, b"250 ok\r\n")]), start.clone()].concat(),
        ),
        (
            "a mail",
            [
                mail.clone(),
                said(&[
                    (true, b"DATA\r\n"),
                    (false, b"354 go\r\n"),
                    (true, b"x\r\n.\r\n"),
                    (false, b"250 ok\r\n"),
                ]),
                start.clone(),
            ]
            .concat(),
        ),
        ("many commands", [mail, noise, start].concat()),
        (
            "a refused login",
            said(&[
                (false, b"* OK\r\n"),
                (true, b"a LOGIN x y\r\n"),
                (false, b"a NO\r\n"),
                (true, b"b STARTTLS\r\n"),
                (false, b"b OK\r\n"),
            ]),
        ),
        (
            "a user",
            said(&[
                (false, b"+OK\r\n"),
                (true, b"USER x\r\n"),
                (false, b"+OK\r\n"),
                (true, b"STLS\r\n"),
                (false, b"+OK\r\n"),
            ]),
        ),
        (
            "a request",
            said(&[
                (false, b"* OK\r\n"),
                (true, b"GET / HTTP/1.1\r\n"),
                (false, b"GET BAD\r\n"),
                (true, b"b STARTTLS\r\n"),
                (false, b"b OK\r\n"),
            ]),
        ),
        ("one warning", said(&[(true, &[0x15, 3, 1, 0, 2, 1, 90])])),
        ("warnings", said(&[(true, &warnings)])),
        ("proxy 1", said(&[(true, b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n")])),
        ("proxy 2", said(&[(true, proxy)])),
        ("proxy with a client IP header", said(&[(true, &client_ip)])),
        ("socks 4", said(&[(true, &socks), (false, b"\0\x5a\0\0\0\0\0\0")])),
        (
            "a hello's beginning",
            said(&[
                (false, b"* OK\r\n"),
                (true, b"\x16\x03\x01\x3f\xff\x01\0\x3f\0\x03\x03\r\n"),
                (false, b"* BAD\r\n"),
            ]),
        ),
    ]
}

/// Says it in segments of `size` bytes; whether one was blocked.
fn say(talk: &mut Conversation, said: &[Said], size: usize) -> bool {
    said.iter().any(|(from_client, octets)| talk.sends(*from_client, octets, size))
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
fn a_hello_behind_any_prefix_is_judged_and_told_with_its_answer() {
    let answer = records(&[server_hello(0xc02f, "h2"), certificates(&[b"x"])].concat(), 1 << 14);
    for (name, before) in prefixes() {
        for size in SIZES {
            let mut talk = Setup::enforcing(NO_BAD_TLS_OR_SSH).open();
            assert!(!say(&mut talk, &before, size), "{name} {size}: {:?}", told(&talk.events));
            assert!(talk.sends(true, &hello("bad.example"), size), "{name} {size}: {:?}", told(&talk.events));
            let mut talk = Setup::monitoring(NO_BAD_TLS_OR_SSH).open();
            say(&mut talk, &before, size);
            say(&mut talk, &[(true, hello("a.example")), (false, answer.clone())], size);
            talk.engine.finish(talk.now, &mut talk.events);
            let tls = talk.events.iter().find_map(|event| match &event.kind {
                EventKind::Application(ApplicationFacts::Tls(facts)) => Some(facts),
                _ => None,
            });
            let facts = tls.unwrap_or_else(|| panic!("{name} {size}: {:?}", told(&talk.events)));
            assert_eq!(facts.name(), Some("a.example"), "{name} {size}");
            let certificates = facts.server.as_ref().map(|server| server.certificates.len());
            assert_eq!(certificates, Some(1), "{name} {size}");
        }
    }
}

#[test]
fn a_second_hello_behind_a_prefix_and_a_retry_is_judged() {
    let mut retry = server_hello(0x1301, "h2");
    retry[6..38].copy_from_slice(&[
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ]);
    let retry = [records(&retry, 1 << 14), CHANGE.to_vec()].concat();
    for (name, before) in prefixes() {
        for size in SIZES {
            let mut talk = Setup::enforcing(NO_BAD_TLS_OR_SSH).open();
            let rest = [(true, hello("a.example")), (false, retry.clone()), (true, CHANGE.to_vec())];
            assert!(!say(&mut talk, &[before.clone(), rest.to_vec()].concat(), size), "{name} {size}");
            assert!(talk.sends(true, &hello("bad.example"), size), "{name} {size}: {:?}", told(&talk.events));
        }
    }
}

#[test]
fn a_hello_is_found_while_the_servers_octets_go_by() {
    let mut setup = Setup::enforcing(NO_BAD_TLS_OR_SSH);
    setup.config.hands_over = true;
    let mut talk = setup.open();
    talk.client(b"\0\0\0\x08\x04\xd2\x16\x2f");
    talk.server(b"N");
    assert_eq!(talk.acknowledge(true), Decision::Stand);
    talk.lose_of_server(5_000_000);
    assert_eq!(talk.client(b"\0\0\0\x08\x04\xd2\x16\x2f"), Decision::Keep);
    talk.lose_of_server(1);
    assert_eq!(talk.client(&hello("a.example")), Decision::Regain, "its answer is to be read");
    talk.server(&records(&server_hello(0xc02f, "h2"), 1 << 14));
    talk.server(&alert(40));
    talk.engine.finish(talk.now, &mut talk.events);
    assert!(told(&talk.events).contains(&"tls".to_owned()), "{:?}", told(&talk.events));
    let mut setup = Setup::enforcing(NO_BAD_TLS_OR_SSH);
    setup.config.hands_over = true;
    let mut talk = setup.open();
    talk.client(b"\0\0\0\x08\x04\xd2\x16\x2f");
    talk.server(b"N");
    assert_eq!(talk.acknowledge(true), Decision::Stand);
    assert_eq!(talk.client(&hello("bad.example")), Decision::Block);
}

#[test]
fn an_identification_behind_what_a_server_of_ssh_overlooks_is_judged() {
    let post = b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\nbody\r\n";
    for inspect in [HttpInspect::First, HttpInspect::All] {
        for before in [
            &b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: h\r\n",
            b"GET /\r\n",
            b"OPTIONS rtsp://h RTSP/1.0\r\nCSeq: 1\r\n\r\n",
            b"\x04\x01\0\x16\xc0\0\x02\x01user\r\n",
            b"\x05\x01\r\n",
            b"SSH-\r\n",
            post,
        ] {
            for size in SIZES {
                let mut setup = Setup::enforcing(NO_BAD_TLS_OR_SSH);
                setup.config.http_inspect = inspect;
                let mut talk = setup.open();
                talk.server(b"SSH-2.0-x\r\n");
                assert!(!talk.sends(true, before, size), "{}", before.escape_ascii());
                let shown = before.escape_ascii();
                assert!(
                    talk.sends(true, b"SSH-2.0-bad\r\n", size),
                    "{shown} {size} {:?}",
                    told(&talk.events)
                );
                if before == post {
                    continue;
                }
                // The server has not said yet what it is.
                let mut setup = Setup::enforcing(NO_BAD_TLS_OR_SSH);
                setup.config.http_inspect = inspect;
                let mut talk = setup.open();
                talk.sends(true, before, size);
                assert!(
                    talk.sends(true, b"SSH-2.0-bad\r\n", size),
                    "early {shown} {size} {:?}",
                    told(&talk.events)
                );
            }
        }
    }
}

#[test]
fn a_body_may_hold_anything_unless_the_server_speaks_ssh() {
    for inspect in [HttpInspect::First, HttpInspect::All] {
        for (answer, blocked) in
            [(&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..], false), (b"SSH-2.0-x\r\n", true)]
        {
            let mut setup = Setup::enforcing(NO_BAD_TLS_OR_SSH);
            setup.config.http_inspect = inspect;
            let mut talk = setup.open();
            let upload = [
                b"POST / HTTP/1.1\r\nContent-Length: 999\r\n\r\n\r\nSSH-2.0-bad\r\n",
                &hello("bad.example")[..],
            ]
            .concat();
            assert!(!talk.sends(true, &upload, 1400), "{inspect:?}");
            assert_eq!(talk.server(answer) == Decision::Block, blocked, "{inspect:?}");
        }
    }
}

#[test]
fn a_request_behind_a_load_balancers_header_is_judged() {
    for (_, before) in prefixes().into_iter().filter(|(name, _)| name.starts_with("proxy")) {
        for size in SIZES {
            let mut talk = Setup::enforcing(NO_SQLMAP).open();
            assert!(!say(&mut talk, &before, size));
            assert!(talk.sends(true, b"GET / HTTP/1.1\r\nUser-Agent: sqlmap/1\r\n\r\n", size));
        }
    }
}

/// Bytes that follow from a seed, as any binary stream's.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).take(count / 8).flatten().collect()
}

#[test]
fn no_stream_of_random_octets_is_cut() {
    let streams = 10_000_u64;
    let (mut cut, mut requests) = (Vec::new(), 0);
    for seed in 0..streams {
        let mut setup = Setup::enforcing(NO_SQLMAP);
        setup.config.http_inspect = if seed % 3 == 0 { HttpInspect::First } else { HttpInspect::All };
        // A fortieth of the usual, so that a stream need not be long to spend it.
        setup.config.stream_budget = 6 << 10;
        let mut talk = if seed % 2 == 0 { setup.open() } else { setup.midstream() };
        let octets = noise(seed, 12_000);
        let (own, other) = octets.split_at(8_000);
        let from_client = seed % 4 < 2;
        for (part, answer) in own.chunks(1_000).zip(other.chunks(if seed % 8 < 4 { 500 } else { 4_000 })) {
            let blocked = talk.sends(from_client, part, 1_000) || talk.sends(!from_client, answer, 4_000);
            talk.wait(std::time::Duration::from_secs(130));
            if blocked || talk.engine.counters().budget_spent > 0 {
                cut.push(seed);
                break;
            }
        }
        talk.engine.finish(talk.now, &mut talk.events);
        requests += told(&talk.events).iter().filter(|told| *told == "http").count();
    }
    assert_eq!((cut.as_slice(), requests), (&[][..], 0));
}

#[test]
fn other_protocols_in_lines_are_no_http() {
    for (client, server) in [
        (&b"CONNECT {\"verbose\":false}\r\nPING\r\n"[..], &b"INFO {}\r\n"[..]),
        (b"0032git-upload-pack /project.git\0host=h\x00032want 0a53 multi_ack\n", b"003f0a53 HEAD\0\n"),
        (b"OPTIONS rtsp://h RTSP/1.0\r\nCSeq: 1\r\n\r\n", b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n"),
        (b"\x01\x02 /\xff \x03\n\x04\x05", b"\xff\xfe"),
    ] {
        let mut talk = Setup::enforcing("").open();
        talk.client(client);
        talk.server(server);
        for _ in 0..40 {
            assert_ne!(talk.client(&[b'x'; 20_000]), Decision::Block, "{}", client.escape_ascii());
            talk.acknowledge(false);
            talk.wait(std::time::Duration::from_secs(60));
        }
        talk.engine.finish(talk.now, &mut talk.events);
        assert!(!told(&talk.events).contains(&"http".to_owned()), "{:?}", told(&talk.events));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_hello_behind_any_octets_is_judged_however_it_is_cut(
        before in proptest::collection::vec(any::<u8>(), 1..300),
        record in 1_usize..600,
        size in 1_usize..600,
        padding in 0_usize..1500,
    ) {
        prop_assume!(!before.starts_with(&[0x16]));
        let mut talk = Setup::enforcing(NO_BAD_TLS_OR_SSH).open();
        talk.server(b"\x01\x02");
        talk.client(&before);
        talk.server(b"\x03");
        let hello = records(&client_hello("bad.example", padding), record);
        prop_assert!(talk.sends(true, &hello, size), "{:?}", told(&talk.events));
    }
}

#[test]
fn an_upgrade_behind_which_no_hello_is_found_is_an_anomaly_that_closed_stops() {
    for (on_failure, refused) in
        [(OnFailure::Open, false), (OnFailure::Closed, false), (OnFailure::Closed, true)]
    {
        let mut setup = Setup::enforcing(NO_BAD_TLS_OR_SSH);
        setup.config.on_failure = on_failure;
        let mut talk = setup.open();
        talk.server(b"220 mail ESMTP\r\n");
        talk.client(b"EHLO x\r\n");
        talk.server(b"250 STARTTLS\r\n");
        talk.client(b"STARTTLS\r\n");
        if refused {
            talk.server(b"454 not now\r\n");
        }
        let lines = b"a line of a letter\r\n".repeat(1000);
        let blocked = (0..60).any(|_| {
            talk.acknowledge(false);
            talk.client(&lines) == Decision::Block
        });
        assert_eq!(blocked, on_failure == OnFailure::Closed && !refused, "{on_failure:?} {refused}");
        assert_eq!(talk.anomalies().contains(&"upgrade_not_followed"), !refused, "{:?}", talk.anomalies());
    }
}
