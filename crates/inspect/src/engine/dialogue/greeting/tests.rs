use crate::engine::Decision;
use crate::engine::testing::Setup;
use crate::event::{Event, EventKind};

const RULE: &str = r#"
[[rule]]
id = "old"
title = "t"
protocol = "smtp"
match.text = 'Exim 4\.8'
action = "drop"
"#;

fn kinds(events: &[Event]) -> Vec<&'static str> {
    let name = |event: &Event| match &event.kind {
        EventKind::Application(said) => said.protocol().name(),
        EventKind::Alert(_) => "alert",
        EventKind::Drop(_) => "drop",
        _ => "other",
    };
    events.iter().map(name).collect()
}

#[test]
fn the_segment_that_completes_a_forbidden_greeting_is_stopped_however_it_is_cut() {
    let greeting = b"220-mail.example\r\n220-ESMTP Exim 4.89\r\n220 ready\r\n";
    for size in [1, 2, 7, greeting.len()] {
        for early in [&b""[..], b"EHLO x\r\n", b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n"] {
            let mut talk = Setup::enforcing(RULE).open();
            if !early.is_empty() {
                talk.client(early);
            }
            let mut pieces = greeting.chunks(size).peekable();
            while let Some(piece) = pieces.next() {
                let decision = talk.server(piece);
                let last = pieces.peek().is_none();
                assert_eq!(decision == Decision::Block, last, "{size} {}", early.escape_ascii());
            }
            let told = kinds(&talk.events);
            assert!(["alert", "drop"].iter().all(|kind| told.contains(kind)), "{told:?}");
            // A greeting is the server's first word.
            assert_eq!(told.contains(&"smtp"), early.is_empty(), "{told:?}");
        }
    }
}

#[test]
fn other_greetings_are_told_once_and_pass() {
    let mut talk = Setup::enforcing(RULE).open();
    assert_eq!(talk.server(b"220 mail.example ESMTP Exim 4.96\r\n"), Decision::Undecided);
    talk.client(b"EHLO x\r\n");
    assert_eq!(talk.server(b"250 mail.example\r\n"), Decision::Undecided, "it may yet become TLS");
    assert_eq!(talk.client(b"MAIL FROM:<a@example>\r\n"), Decision::Undecided);
    assert_eq!(talk.server(b"250 ok\r\n"), Decision::Undecided);
    assert!(talk.passes_once_searched());
    assert_eq!(kinds(&talk.events), ["smtp"]);
}

#[test]
fn an_answer_to_a_client_that_spoke_first_is_no_greeting() {
    let mut talk = Setup::enforcing(RULE).open();
    talk.client(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n");
    talk.server(b"+OK\r\n");
    talk.engine.finish(talk.now, &mut talk.events);
    assert_eq!(kinds(&talk.events), ["other"]);
}

#[test]
fn an_ssh_server_may_say_a_greeting_first() {
    let mut talk = Setup::enforcing(RULE).open();
    talk.server(b"220 hello\r\nSSH-2.0-OpenSSH_9.8\r\n");
    talk.client(b"SSH-2.0-x\r\n");
    talk.engine.finish(talk.now, &mut talk.events);
    assert_eq!(kinds(&talk.events), ["smtp", "ssh"]);
}

#[test]
fn a_greeting_that_the_end_cuts_short_is_judged() {
    let mut talk = Setup::enforcing(RULE).open();
    talk.server(b"220-ESMTP Exim 4.89\r\n220-and");
    talk.engine.finish(talk.now, &mut talk.events);
    assert_eq!(kinds(&talk.events).iter().filter(|kind| **kind == "alert").count(), 1);
}

#[test]
fn lines_without_end_are_gone_over_within_bounds() {
    let mut talk = Setup::enforcing(RULE).open();
    talk.server(b"220-x\r\n");
    for _ in 0..200 {
        talk.server(b"\n");
    }
    assert_eq!(kinds(&talk.events), ["smtp"]);
}
