//! No request is hidden by where the one before it seems to end.

use std::time::Duration;

use super::testing::{Conversation, Setup};
use super::{Decision, HttpInspect};
use crate::event::EventKind;

const RULES: &str = r#"
[[rule]]
id = "agent"
title = "A forbidden agent"
protocol = "http"
from = "client"
match."header.user-agent" = '^sqlmap/'
action = "drop"

[[rule]]
id = "phrase"
title = "A forbidden phrase"
protocol = "http"
from = "client"
match.body = 'forbidden phrase'
action = "drop"
"#;

const FORBIDDEN: &[u8] = b"GET /c HTTP/1.1\r\nUser-Agent: sqlmap/1.0\r\n\r\n";
const READING_ALL: [HttpInspect; 2] = [HttpInspect::All, HttpInspect::Requests];

fn open(inspect: HttpInspect, on_anomaly: &str) -> Conversation {
    let mut setup = Setup::enforcing(RULES);
    setup.config.http_inspect = inspect;
    setup.config.on_anomaly = on_anomaly.parse().unwrap();
    setup.open()
}

fn alerts(talk: &Conversation) -> usize {
    talk.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count()
}

/// Requests that are read to their ends, however long their parts are, with this body.
fn long_requests(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let filler = "Filler: 01234567\r\n".repeat(4_000);
    let length = format!("Content-Length: {}\r\n", body.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    let request = |fields: &str, body: &[u8]| {
        [b"POST /a HTTP/1.1\r\nHost: h\r\n", fields.as_bytes(), b"\r\n", body].concat()
    };
    let chunks = |extension: &str, trailer: &str| {
        let size = format!("{:x}{extension}\r\n", body.len());
        [size.as_bytes(), body, b"\r\n0\r\n", trailer.as_bytes(), b"\r\n"].concat()
    };
    let (long_extension, long_trailer) = (format!(";{}", "a".repeat(5_000)), "X: y\r\n".repeat(12_000));
    vec![
        ("a length within the limit", request(&format!("{length}{filler}"), body)),
        ("a length beyond the limit", request(&format!("{filler}{length}"), body)),
        ("chunked within the limit", request(&format!("{chunked}{filler}"), &chunks("", ""))),
        ("chunked beyond the limit", request(&format!("{filler}{chunked}"), &chunks("", ""))),
        ("a long extension", request(chunked, &chunks(&long_extension, ""))),
        ("a long trailer", request(chunked, &chunks("", &long_trailer))),
    ]
}

#[test]
fn a_request_behind_another_with_long_parts_is_judged() {
    let decoy = format!("POST /b HTTP/1.1\r\nContent-Length: {}\r\n\r\n", FORBIDDEN.len());
    for inspect in READING_ALL {
        for (name, request) in long_requests(decoy.as_bytes()) {
            for size in [1_400, 30_000] {
                let mut talk = open(inspect, "default");
                assert!(!talk.sends(true, &request, size), "{name} {size}: {:?}", talk.anomalies());
                assert!(
                    talk.sends(true, FORBIDDEN, size),
                    "{name} {size} {inspect:?}: {:?}",
                    talk.anomalies()
                );
            }
        }
    }
}

#[test]
fn a_body_behind_long_parts_is_no_request_and_is_judged_as_a_body() {
    let (harmless, bad) = ([FORBIDDEN, b"0123456789"].concat(), b"a forbidden phrase");
    for inspect in READING_ALL {
        for (name, request) in long_requests(&harmless) {
            let mut talk = open(inspect, "default");
            assert!(!talk.sends(true, &request, 1_400), "{name} {inspect:?}: {:?}", talk.anomalies());
            assert!(!talk.sends(true, b"GET /c HTTP/1.1\r\nHost: h\r\n\r\n", 1_400), "{name} {inspect:?}");
            assert_eq!(alerts(&talk), 0, "{name} {inspect:?}");
        }
        for (name, request) in long_requests(bad) {
            let mut talk = open(inspect, "default");
            assert!(talk.sends(true, &request, 1_400), "{name} {inspect:?}: {:?}", talk.anomalies());
        }
    }
    // Also where nothing more is read than the first transaction.
    for (name, request) in long_requests(bad) {
        assert!(open(HttpInspect::First, "default").sends(true, &request, 1_400), "{name}");
    }
}

#[test]
fn a_request_whose_end_is_anybodys_guess_ends_the_connection() {
    let filler = "Filler: 01234567\r\n".repeat(4_000);
    let folded = format!("{filler}Transfer-Encoding:\r\n chunked\r\n");
    let spaced = format!("{filler}Content-Length : 1\r\n");
    let bare = format!("{filler}X: y\nContent-Length: 1\r\n");
    let many = format!("{filler}{}", "Content-Length: 1\r\n".repeat(8_000));
    for (fields, body) in [
        ("Content-Length: 1x\r\n", ""),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", ""),
        ("Content-Length: 99999999999999999999\r\n", ""),
        ("Transfer-Encoding: chunked, gzip\r\n", ""),
        ("Transfer-Encoding: gzip\r\n", ""),
        ("Transfer-Encoding: chunked\r\n", "zz\r\n"),
        ("Transfer-Encoding: chunked\r\n", "1\r\nab\r\n"),
        ("Transfer-Encoding: chunked\r\n", "1;x\na\r\n"),
        ("Content-Length : 1\r\n", ""),
        ("Transfer-Encoding\0: chunked\r\n", ""),
        ("Transfer-Encoding: \u{a0}chunked\r\n", ""),
        ("Transfer-Encoding: \u{b}chunked\r\n", ""),
        ("X: y\rContent-Length: 1\r\n", ""),
        ("X: y\nContent-Length: 1\r\n", ""),
        ("Content-Length: 1\nX: y\r\n", ""),
        (&spaced, ""),
        (&bare, ""),
        (&folded, ""),
        (&many, ""),
    ] {
        let octets = ["POST /a HTTP/1.1\r\nHost: h\r\n", fields, "\r\n", body].concat();
        let shown = &fields[fields.len().saturating_sub(40)..];
        for inspect in READING_ALL {
            let mut talk = open(inspect, "default");
            assert!(talk.sends(true, octets.as_bytes(), 1_400), "{shown:?}");
            assert!(talk.anomalies().contains(&"http_framing_lost"), "{shown:?}: {:?}", talk.anomalies());
            let mut talk = open(inspect, "http_framing_lost=alert");
            assert!(!talk.sends(true, octets.as_bytes(), 1_400), "{shown:?}");
            assert!(talk.anomalies().contains(&"http_framing_lost"), "{shown:?}");
        }
        let mut talk = open(HttpInspect::First, "default");
        assert!(!talk.sends(true, octets.as_bytes(), 1_400), "{shown:?}: nothing is read behind it");
        assert!(!talk.anomalies().contains(&"http_framing_lost"), "{shown:?}");
    }
}

#[test]
fn a_response_whose_end_is_anybodys_guess_ends_the_connection() {
    let filler = "Filler: 01234567\r\n".repeat(4_000);
    let bare = format!("{filler}X: y\nContent-Length: 1\r\n");
    for (fields, body) in [
        ("Content-Length: 1x\r\n", ""),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", ""),
        ("Transfer-Encoding: chunked, gzip\r\n", ""),
        ("Transfer-Encoding: xchunked\r\n", ""),
        ("Transfer-Encoding: chunked\r\n", "zz\r\n"),
        ("Transfer-Encoding: \u{b}chunked\r\n", ""),
        ("X: y\rContent-Length: 1\r\n", ""),
        ("X: y\nContent-Length: 1\r\n", ""),
        ("Content-Length: 1\nX: y\r\n", ""),
        (&bare, ""),
    ] {
        let shown = &fields[fields.len().saturating_sub(40)..];
        let octets = ["HTTP/1.1 200 OK\r\nServer: a\r\n", fields, "\r\n", body].concat();
        for (inspect, is_lost) in
            [(HttpInspect::All, true), (HttpInspect::Requests, false), (HttpInspect::First, false)]
        {
            let mut setup = Setup::enforcing(RULES);
            setup.config.http_inspect = inspect;
            setup.config.hands_over = true;
            let mut talk = setup.open();
            talk.client(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
            assert_eq!(talk.sends(false, octets.as_bytes(), 1_400), is_lost, "{shown:?} {inspect:?}");
            let told = talk.anomalies().contains(&"http_framing_lost");
            assert_eq!(told, is_lost, "{shown:?} {inspect:?}: {:?}", talk.anomalies());
        }
    }
}

#[test]
fn a_tunnel_is_asked_for_without_a_body() {
    let connect = |fields: &str| format!("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    for inspect in READING_ALL {
        for fields in ["Content-Length: 50\r\n", "Transfer-Encoding: chunked\r\n"] {
            let mut talk = open(inspect, "default");
            assert!(talk.sends(true, connect(fields).as_bytes(), 1_400), "{fields}");
            assert_eq!(talk.anomalies(), ["http_framing_lost"], "{fields}");
        }
        let mut talk = open(inspect, "default");
        assert!(!talk.sends(true, connect("Content-Length: 0\r\n").as_bytes(), 1_400));
        assert!(talk.sends(true, FORBIDDEN, 1_400), "who knows no tunnels reads on");
    }
}

#[test]
fn what_is_merely_odd_is_read_as_all_read_it() {
    for fields in ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 5, 5\r\n"] {
        let chunked = fields.contains("chunked");
        let body = if chunked { "5\r\nabcde\r\n0\r\n\r\n" } else { "abcde" };
        let octets = ["POST /a HTTP/1.1\r\nHost: h\r\n", fields, "\r\n", body].concat();
        let mut talk = open(HttpInspect::All, "default");
        assert!(!talk.sends(true, octets.as_bytes(), 1_400), "{fields:?}: {:?}", talk.anomalies());
        assert!(talk.sends(true, FORBIDDEN, 1_400), "{fields:?}");
    }
}

#[test]
fn films_go_on_behind_requests_that_announce_no_end() {
    let rtsp = "RECORD rtsp://h/film RTSP/1.0\r\nCSeq: 3\r\nSession: 7\r\n\r\n";
    let answer = "RTSP/1.0 200 OK\r\nCSeq: 3\r\n\r\n";
    let frame = |octet: u8| [&b"$\0\x04\xb0"[..], &[octet; 1_200]].concat();
    for (asked, answered, server_streams) in [
        (rtsp, answer, true),
        ("SOURCE /film ICE/1.0\r\ncontent-type: audio/ogg\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", false),
        ("SOURCE /film HTTP/1.0\r\nAuthorization: Basic eDp5\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", false),
        ("PUT /film HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", false),
    ] {
        for inspect in [HttpInspect::First, HttpInspect::All, HttpInspect::Requests] {
            let mut talk = open(inspect, "default");
            talk.client(asked.as_bytes());
            talk.server(answered.as_bytes());
            talk.acknowledge(true);
            for count in 0..1_000_u32 {
                let octets = frame(if count % 2 == 0 { 0x80 } else { b'x' });
                assert_ne!(talk.client(&octets), Decision::Block, "{asked:?} {inspect:?} {count}");
                let answers: &[u8] = if server_streams { &octets } else { b"" };
                if !answers.is_empty() {
                    assert_ne!(talk.server(answers), Decision::Block, "{asked:?} {inspect:?} {count}");
                }
                talk.acknowledge(count % 2 == 0);
                talk.wait(Duration::from_secs(1));
            }
            assert_eq!(talk.engine.counters().budget_spent, 0, "{asked:?} {inspect:?}");
            assert!(
                !talk.anomalies().contains(&"http_unexpected_data"),
                "{asked:?} {inspect:?}: {:?}",
                talk.anomalies()
            );
            assert!(talk.engine.counters().buffered_now < 256 << 10);
            if inspect != HttpInspect::First {
                talk.client(b"\n");
                assert!(talk.sends(true, FORBIDDEN, 1_400), "{asked:?} {inspect:?}");
            }
        }
    }
}
