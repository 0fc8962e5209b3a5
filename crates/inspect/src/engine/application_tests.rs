//! Tricks of the application layer: what real servers and clients read must be judged, however it is
//! dressed and however it is cut.

use proptest::prelude::*;

use super::testing::{Conversation, Setup};
use super::{AnomalyAction, AnomalyPolicy, Decision, HttpInspect};
use crate::banner::http::take_steps;
use crate::banner::recognise::FIRST_LINE_LIMIT;
use crate::event::EventKind;
use crate::packet::TcpFlags;

const RULES: &str = r#"
[[rule]]
id = "ssh-server"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^dropbear'
action = "drop"

[[rule]]
id = "ssh-client"
title = "A forbidden client"
protocol = "ssh"
from = "client"
match.software = '^libssh'
action = "drop"

[[rule]]
id = "agent"
title = "A forbidden agent"
protocol = "http"
from = "client"
match."header.user-agent" = '^sqlmap/'
action = "drop"

[[rule]]
id = "server"
title = "A forbidden server"
protocol = "http"
from = "server"
match."header.server" = '^BadHttpd/'
action = "drop"
"#;

const BAD_SSH: &[u8] = b"SSH-2.0-dropbear_2022.83\r\n";
const BAD_AGENT: &[u8] = b"User-Agent: sqlmap/1.0\r\n";
const BAD_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: BadHttpd/1\r\n\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn open() -> Conversation {
    Setup::enforcing(RULES).open()
}

fn open_all() -> Conversation {
    let mut setup = Setup::enforcing(RULES);
    setup.config.http_inspect = HttpInspect::All;
    setup.open()
}

fn alerts(talk: &Conversation) -> Vec<String> {
    let name = |event: &crate::event::Event| match &event.kind {
        EventKind::Alert(alert) => Some(alert.rule.clone()),
        _ => None,
    };
    talk.events.iter().filter_map(name).collect()
}

fn identification_is_blocked_behind(preamble: &[u8], client: &[u8]) {
    for size in [1, 7, 1400] {
        let mut talk = open();
        if !client.is_empty() {
            talk.client(client);
        }
        let octets = [preamble, BAD_SSH].concat();
        let shown = preamble.get(..40).unwrap_or(preamble).escape_ascii();
        assert!(talk.sends(false, &octets, size), "{shown} {size}");
    }
}

#[test]
fn a_long_line_may_stand_before_a_servers_identification() {
    let long = [vec![b'x'; 9000], b"\r\n".to_vec()].concat();
    identification_is_blocked_behind(&long, b"");
    identification_is_blocked_behind(&long, b"SSH-2.0-OpenSSH_9.9\r\n");
}

#[test]
fn an_identification_behind_megabytes_of_lines_is_found() {
    let mut talk = open();
    talk.client(b"SSH-2.0-OpenSSH_9.9\r\n");
    let lines = [b"All work and no play.\r\n".as_slice(); 600].concat();
    for _ in 0..80 {
        assert_eq!(talk.server(&lines), Decision::Undecided);
        talk.acknowledge(true);
    }
    assert_eq!(talk.server(BAD_SSH), Decision::Block);
    assert_eq!(talk.anomalies(), ["ssh_long_preamble"]);
}

#[test]
fn a_line_is_judged_as_a_client_reads_it_that_leaves_returns_out() {
    for before in [b"\r".as_slice(), b"hello\r\n\r\r", b"hello\n\r"] {
        for size in [1, 7, 1400] {
            let mut talk = open();
            assert!(talk.sends(false, &[before, BAD_SSH].concat(), size), "{before:?} {size}");
            assert_eq!(talk.anomalies(), ["ssh_disputed_identification"]);
        }
    }
    let mut talk = open();
    let honest = [b"\rhello\r\n".as_slice(), b"SSH-2.0-OpenSSH_9.2\r\n"].concat();
    assert!(!talk.sends(false, &honest, 1400));
    assert!(talk.anomalies().is_empty());
}

#[test]
fn a_line_is_judged_where_clients_cut_a_longer_one() {
    for length in [255, 256, 510, 768] {
        let octets = [vec![b'x'; length], BAD_SSH.to_vec()].concat();
        for size in [1, 100, 1400] {
            let mut talk = open();
            assert!(talk.sends(false, &octets, size), "{length} {size}");
            assert_eq!(talk.anomalies(), ["ssh_disputed_identification"]);
        }
    }
    let mut talk = open();
    assert!(!talk.sends(false, &[vec![b'x'; 100], BAD_SSH.to_vec()].concat(), 1400));
}

fn request_is_blocked(start: &[u8]) {
    let octets = [start, BAD_AGENT, b"\r\n"].concat();
    for size in [1, 1000, 30_000] {
        let mut talk = open();
        let shown = start.get(..60).unwrap_or(start).escape_ascii();
        assert!(talk.sends(true, &octets, size), "{shown} {size}");
        assert_eq!(alerts(&talk), ["agent"], "{shown} {size}");
    }
}

#[test]
fn long_parts_do_not_hide_a_request() {
    let many = |octets: &[u8], times: usize| octets.repeat(times);
    request_is_blocked(&[many(b"\r\n", 400), b"GET / HTTP/1.1\r\n".to_vec()].concat());
    request_is_blocked(&[many(b" ", 300), b"GET / HTTP/1.1\r\n".to_vec()].concat());
    request_is_blocked(&[many(b"M", 100), b" / HTTP/1.1\r\n".to_vec()].concat());
    request_is_blocked(&[b"BREW /".to_vec(), many(b"a", 20_000), b" HTTP/1.1\r\n".to_vec()].concat());
    request_is_blocked(&[b"GET / HTTP/1.1\r\n".to_vec(), many(b"a:\r\n", 3_000)].concat());
    request_is_blocked(&[b"GET / HTTP/1.1\r\n".to_vec(), many(b"Filler: 01234567\r\n", 5_000)].concat());
    for asked in [true, false] {
        let mut talk = open();
        if asked {
            talk.client(REQUEST);
        }
        assert!(talk.sends(false, &[many(b" ", 300), BAD_RESPONSE.to_vec()].concat(), 100));
    }
}

#[test]
fn a_rule_about_several_fields_is_met_when_the_last_has_come() {
    let rules = RULES.replace(
        "match.\"header.server\"",
        "match.status = '^2'\nmatch.\"header.x-powered-by\" = 'PHP'\nmatch.\"header.server\"",
    );
    let mut talk = Setup::enforcing(&rules).open();
    talk.client(REQUEST);
    assert_eq!(talk.server(b"HTTP/1.1 200 OK\r\nX-Powered-By: PHP/5\r\n"), Decision::Undecided);
    assert_eq!(talk.server(b"Server: Other\r\n"), Decision::Undecided);
    assert_eq!(talk.server(b"Server: BadHttpd/1\r\n"), Decision::Block);
}

#[test]
fn rules_that_a_later_field_may_decide_wait_for_the_end_of_the_head() {
    let unless = RULES.replace(
        "match.\"header.server\" = '^BadHttpd/'",
        "match.\"header.server\" = '^BadHttpd/'\nunless.\"header.x-mended\" = 'yes'",
    );
    let accepts = format!(
        "{RULES}\n[[rule]]\nid = 'ours'\ntitle = 'ours'\nprotocol = 'http'\nfrom = 'server'\n\
         match.\"header.x-mended\" = 'yes'\naction = 'accept'\n"
    );
    for rules in [unless, accepts] {
        for (last, expected) in [("X-Mended: yes\r\n\r\n", false), ("X-Mended: no\r\n\r\n", true)] {
            let mut talk = Setup::enforcing(&rules).open();
            talk.client(REQUEST);
            assert_ne!(talk.server(b"HTTP/1.1 200 OK\r\nServer: BadHttpd/1\r\n"), Decision::Block);
            assert_eq!(talk.server(last.as_bytes()) == Decision::Block, expected, "{last}");
        }
    }
}

#[test]
fn a_rule_that_counts_takes_effect_on_parts_of_heads_at_its_number() {
    let rules = RULES.replace(
        "match.\"header.user-agent\" = '^sqlmap/'",
        "match.\"header.user-agent\" = '^sqlmap/'\ncount = { times = 2, within = '60s' }",
    );
    let mut talk = Setup::enforcing(&rules).open();
    let server = talk.server_endpoint().address;
    assert_ne!(talk.client(b"GET / HTTP/1.1\r\nUser-Agent: sqlmap/1\r\n"), Decision::Block);
    assert_ne!(talk.client(b"\r\n"), Decision::Block);
    talk.reopen(server);
    assert_eq!(talk.client(b"GET / HTTP/1.1\r\nUser-Agent: sqlmap/1\r\n"), Decision::Block);
}

#[test]
fn what_a_client_sends_before_a_proxy_agrees_is_judged() {
    let connect = b"CONNECT h:22 HTTP/1.1\r\nHost: h:22\r\n\r\n";
    let agent = [b"GET / HTTP/1.1\r\n", BAD_AGENT, b"\r\n"].concat();
    for early in [&b"SSH-2.0-libssh_0.9\r\n"[..], &agent] {
        for mut talk in [open(), open_all()] {
            assert_eq!(talk.client(&[connect, early].concat()), Decision::Block);
        }
        for mut talk in [open(), open_all()] {
            talk.client(connect);
            assert_eq!(talk.client(early), Decision::Block);
        }
    }
    for mut talk in [open(), open_all()] {
        talk.client(&[&connect[..], b"SSH-2.0-OpenSSH_9.9\r\n"].concat());
        assert_eq!(talk.server(b"HTTP/1.1 200 Connected\r\n\r\n"), Decision::Undecided);
        assert_eq!(talk.server(BAD_SSH), Decision::Block);
    }
    let mut talk = open();
    talk.client(connect);
    talk.server(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(talk.acknowledge(true), Decision::Pass);
}

/// Each pair of what client and server say first: when the flow is let pass.
#[test]
fn foreign_protocols_are_told_once_both_sides_have_spoken_and_pass_once_they_were_searched() {
    for (first_is_client, first, second) in [
        (true, &b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], &b"\x15\x03\x03\0\x02\x02\x28"[..]),
        (false, b"220 mail ESMTP\r\n", b"MAIL FROM:<a@example>\r\n"),
        (false, b"J\0\0\0\n5.7.1\0", b"\x20\0\0\x01\x85"),
        (true, b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
        (true, b"OPTIONS sip:x SIP/2.0\r\n", b"SIP/2.0 200 OK\r\n"),
        (true, b"\0\0\0\x08\x04\xd2\x16\x2f", b"N"),
    ] {
        let mut talk = open();
        assert_eq!(talk.send(first_is_client, TcpFlags::ACK, first), Decision::Undecided);
        talk.send(!first_is_client, TcpFlags::ACK, second);
        assert!(talk.passes_once_searched(), "{}", first.escape_ascii());
        talk.engine.finish(talk.now, &mut talk.events);
        let told = match first {
            [b'2', ..] => "smtp",
            [0x16, ..] => "tls",
            _ => "other",
        };
        let [event] = talk.events.as_slice() else { panic!("{:?}", talk.events) };
        let EventKind::Application(said) = &event.kind else { panic!("{event:?}") };
        assert_eq!(said.protocol().name(), told);
    }
}

#[test]
fn an_answer_that_is_no_response_is_told() {
    for answer in [b"HTTP 200 OK\r\n\r\n".as_slice(), b"\0HTTP/1.1 200 OK\r\n\r\n"] {
        let mut talk = open();
        talk.client(REQUEST);
        talk.server(answer);
        assert_eq!(talk.anomalies(), ["http_unknown_response"]);
    }
}

/// Steps for `duplicates` one-byte segments behind `begun`.
fn steps_of_duplicates(begun: &[u8], from_client: bool) -> usize {
    let mut talk = open();
    if !from_client {
        talk.client(b"GET / HTTP/1.1\r\n\r\n");
    }
    for piece in begun.chunks(1000) {
        talk.send(from_client, TcpFlags::ACK, piece);
    }
    let next = if from_client { talk.client_next() } else { talk.server_next() };
    let segment = talk.segment(from_client);
    take_steps();
    for _ in 0..1000 {
        talk.show(&segment.clone().sequence(next - 1).payload(b"\n"));
    }
    take_steps()
}

#[test]
fn duplicates_cost_no_more_behind_a_long_head() {
    for (from_client, line) in [(true, &b"GET / HTTP/1.1\r\n"[..]), (false, b"HTTP/1.1 200 OK\r\n")] {
        for filler in [&b"a\n"[..], b"\n ", b"a:\n", b"x"] {
            let long = [line, &filler.repeat(60_000 / filler.len())].concat();
            let (short, long) =
                (steps_of_duplicates(line, from_client), steps_of_duplicates(&long, from_client));
            assert!(long <= 2 * short, "{long} steps, {short} behind a short head");
        }
    }
}

#[test]
fn octets_that_come_one_by_one_are_each_gone_over_a_few_times_at_most() {
    for (client, server) in [
        (&b"GET / HTTP/1.1\r\n"[..], &b""[..]),
        (b"BREW ", b""),
        (b" ", b""),
        (b"\x04", b""),
        (b"\x04\x01", b""),
        (b"\x05\xff", b""),
        (b"\x16\x03", b""),
        (b"GET /\r\n", b""),
        (REQUEST, b"HTTP/1.1 200 OK\r\n"),
        (b"", b"\x01"),
        (b"", b"SSH-2.0-"),
    ] {
        for filler in [&b"a\n"[..], b"x", b" ", b"User-Agent: a\n"] {
            let mut talk = open();
            if !server.is_empty() {
                talk.client(client);
            }
            let octets =
                [if server.is_empty() { client } else { server }, &filler.repeat(8_000 / filler.len())]
                    .concat();
            take_steps();
            talk.sends(server.is_empty(), &octets, 1);
            let steps = take_steps();
            // The name of a SOCKS 4 request is read again with each byte, until it is as long as a first line.
            let names = if octets.starts_with(b"\x04\x01") { FIRST_LINE_LIMIT * FIRST_LINE_LIMIT } else { 0 };
            assert!(steps <= 8 * octets.len() + names, "{steps} steps for {} octets", octets.len());
        }
    }
}

#[test]
fn packets_before_the_key_exchange_are_gone_over_once() {
    let rules = format!(
        "{RULES}\n[[rule]]\nid = 'kex'\ntitle = 'kex'\nprotocol = 'ssh'\nfrom = 'server'\n\
         match.kex = 'sha1'\naction = 'drop'\n"
    );
    let mut talk = Setup::enforcing(&rules).open();
    talk.server(b"SSH-2.0-OpenSSH_9.9\r\n");
    let ignore = b"\0\0\0\x02\0\x02";
    for _ in 0..1000 {
        talk.server(ignore);
    }
    assert!(talk.engine.counters().buffered_now < 20_000, "none of them is kept");
}

/// What was told and decided, without what depends on how much of a head came before a flow was stopped.
fn told(talk: &Conversation) -> Vec<String> {
    let mut told: Vec<String> = talk
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Alert(alert) => Some(format!("{} {:?}", alert.rule, alert.from)),
            EventKind::Anomaly(anomaly) => Some(anomaly.name.to_owned()),
            _ => None,
        })
        .collect();
    told.sort();
    told
}

/// What either side may say, in parts that are put together in any order.
fn said() -> impl Strategy<Value = Vec<u8>> {
    let part = proptest::sample::select(vec![
        &b"\r\n"[..],
        b"\n",
        b" ",
        b"SSH-2.0-OpenSSH_9\r\n",
        BAD_SSH,
        b"SSH-2.0-libssh_1\r\n",
        b"SS",
        b"GET / HTTP/1.1\r\n",
        b"GET /a\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        b"Host: h\r\n",
        BAD_AGENT,
        b"X: a\rUser-Agent: sqlmap/2\r\n",
        b" User-Agent: sqlmap/3\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 103 Hints\r\n",
        b"Server: BadHttpd/1\r\n",
        b"Content-Length: 3\r\n\r\nabc",
        b"\x16\x03\x01",
        b"220 mail\r\n",
        b"220-ESMTP\r\n",
        b"EHLO x\r\n",
        b"STARTTLS\r\n",
        b"250 ok\r\n",
        b"+OK\r\n",
        b"STLS\r\n",
        b"* OK\r\n",
        b"a STARTTLS\r\n",
        b"a OK\r\n",
        b"\x05\x01\x00",
    ]);
    proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// Says it all in segments of some size; whether and what was told.
fn converse(said: &[(bool, Vec<u8>)], size: usize, all: bool, enforce: bool) -> (bool, Vec<String>) {
    let mut setup = if enforce { Setup::enforcing(RULES) } else { Setup::monitoring(RULES) };
    setup.config.http_inspect = if all { HttpInspect::All } else { HttpInspect::First };
    setup.config.on_anomaly = AnomalyPolicy::all(AnomalyAction::Alert);
    let mut talk = setup.open();
    let blocked = said.iter().any(|(from_client, octets)| talk.sends(*from_client, octets, size));
    talk.engine.finish(talk.now, &mut talk.events);
    (blocked, told(&talk))
}

#[test]
fn a_command_that_begins_as_no_text_is_none_however_it_comes() {
    let said = [(false, b"220-ESMTP\r\n".to_vec()), (true, b"\x16\x03\x01a STARTTLS\r\nGET /a\r\n".to_vec())];
    for size in [1, 3, 1400] {
        assert_eq!(converse(&said, size, true, false), (false, Vec::new()), "{size}");
    }
}

#[test]
fn an_identification_within_what_looks_like_a_hello_is_told_however_it_comes() {
    let said = [(true, b"\x16\x03\x01\x16\x03\x01GET / HTTP/1.1\r\nSSH-2.0-OpenSSH_9\r\n".to_vec())];
    for size in [1, 3, 1400] {
        assert_eq!(
            converse(&said, size, true, true),
            (false, vec!["ssh_disputed_identification".to_owned(), "tls_disputed_hello".to_owned()]),
            "{size}"
        );
    }
}

#[test]
fn an_identification_within_a_head_is_told_however_its_body_comes() {
    let said = [
        (true, b"GET / HTTP/1.1\r\n".to_vec()),
        (true, b"SSH-2.0-OpenSSH_9\r\nContent-Length: 3\r\n\r\nabc".to_vec()),
    ];
    for size in [1, 3, 1400] {
        assert_eq!(
            converse(&said, size, false, true),
            (false, vec!["http_header_without_colon".to_owned(), "ssh_disputed_identification".to_owned()]),
            "{size}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn segmentation_changes_neither_verdict_nor_events(
        said in proptest::collection::vec((any::<bool>(), said()), 1..5),
        size in 1_usize..9,
        all: bool,
    ) {
        let whole = converse(&said, 1400, all, true);
        let cut = converse(&said, size, all, true);
        // Behind what belongs to no message the next one is looked for at the start of segments, too.
        let lost = |told: &[String]| told.iter().any(|fact| fact == "http_unexpected_data");
        prop_assume!(!lost(&whole.1) && !lost(&cut.1));
        prop_assert_eq!(whole.0, cut.0, "{:?} {:?}", whole.1, cut.1);
        if !whole.0 {
            prop_assert_eq!(&whole.1, &cut.1);
        }
        let (whole, cut) = (converse(&said, 1400, all, false).1, converse(&said, size, all, false).1);
        prop_assume!(!lost(&whole) && !lost(&cut));
        prop_assert_eq!(whole, cut);
    }
}
