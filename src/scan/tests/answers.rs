//! Answers that come late, for others, or not to their end.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::event::{ApplicationFacts, HttpResponseFacts};

/// What was answered, by path.
fn responses(seen: &Seen) -> Vec<(String, HttpResponseFacts)> {
    let of = |event: &Event| match &event.kind {
        EventKind::Application(ApplicationFacts::Http(facts)) => {
            Some((facts.request.as_ref()?.url.clone(), facts.response.clone()?))
        }
        _ => None,
    };
    seen.events.iter().filter_map(of).collect()
}

fn ask(probe: HttpOptions, silence: Duration, address: SocketAddr) -> Seen {
    let config = ScannerConfig { first_byte_timeout: silence, ..config(ProbeOptions::Http(probe)) };
    scan(&config, vec![address])
}

/// One thread or many; each page but the first takes `delay`.
fn slow(one_thread: bool, keep: bool, delay: Duration) -> SocketAddr {
    let turn = Mutex::new(());
    server(move |stream| {
        let _turn = one_thread.then(|| turn.lock().expect("nobody panics"));
        let mut writer = stream.try_clone().expect("a clone");
        for path in requests(stream) {
            if path != "/0" {
                std::thread::sleep(delay);
            }
            let close = if keep { "" } else { "Connection: close\r\n" };
            let answer = good(&path).replacen("X-Path", &format!("{close}X-Path"), 1);
            if writer.write_all(answer.as_bytes()).is_err() || !keep {
                return;
            }
        }
    })
}

#[test]
fn pages_that_are_slower_than_the_first_are_all_waited_for() {
    let delays = [300, 1200].map(Duration::from_millis);
    std::thread::scope(|scope| {
        for (one_thread, keep) in [(true, true), (true, false), (false, true), (false, false)] {
            for delay in delays {
                scope.spawn(move || {
                    let address = slow(one_thread, keep, delay);
                    assert_each_once(&ask(http(6), Duration::from_secs(4), address), 6);
                });
            }
        }
    });
}

/// As Undertow does: what came together is read together, and one bad request is answered for all.
fn batches(stream: TcpStream) {
    let (mut stream, mut buffer) = (stream, [0; 65_536]);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let paths: Vec<_> = text.split("\r\n\r\n").filter_map(|head| head.split(' ').nth(1)).collect();
        if paths.iter().any(|path| path.contains('|')) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        for path in paths {
            if stream.write_all(good(path).as_bytes()).is_err() {
                return;
            }
        }
    }
}

#[test]
fn one_error_for_many_requests_is_nobodys_until_each_was_asked_alone() {
    for place in [0, 1, 30, 59] {
        let mut options = http(60);
        "/a|b".clone_into(&mut options.requests[place].path);
        let seen = ask(options, Duration::from_secs(4), server(batches));
        let answers = responses(&seen);
        assert_eq!(answers.len(), 60, "{place}");
        for (path, response) in answers {
            assert_eq!(response.status, if path == "/a|b" { 400 } else { 200 }, "{path}, {place}");
        }
    }
}

#[test]
fn heads_are_told_whose_bodies_come_too_slowly_to_be_read() {
    let address = server(|stream| {
        let mut writer = stream.try_clone().expect("a clone");
        let Some(path) = requests(stream).next() else { return };
        let head = format!("HTTP/1.1 200 OK\r\nX-Path: {path}\r\nContent-Length: 9000\r\n\r\n");
        let mut sent = writer.write_all(head.as_bytes());
        while sent.is_ok() {
            std::thread::sleep(Duration::from_millis(100));
            sent = writer.write_all(b".");
        }
    });
    assert_each_once(&ask(http(6), Duration::from_secs(1), address), 6);
}

#[test]
fn heads_are_told_whose_bodies_have_no_end() {
    let address = server(|stream| {
        let mut writer = stream.try_clone().expect("a clone");
        let mut requests = requests(stream);
        let Some(path) = requests.next() else { return };
        let _ = writer.write_all(format!("HTTP/1.1 200 OK\r\nX-Path: {path}\r\n\r\nand then").as_bytes());
        requests.for_each(drop);
    });
    assert_each_once(&ask(http(4), Duration::from_millis(600), address), 4);
}

#[test]
fn a_head_that_only_the_end_of_the_connection_ends_is_judged() {
    let address = server(|stream| {
        let mut writer = stream.try_clone().expect("a clone");
        let mut requests = requests(stream);
        let Some(path) = requests.next() else { return };
        let head = format!("HTTP/1.1 200 OK\r\nServer: Old/1.0\r\nX-Path: {path}\r\n");
        let _ = writer.write_all(head.as_bytes());
        let _ = writer.shutdown(std::net::Shutdown::Write);
        requests.for_each(drop);
    });
    let seen = ask(http(5), Duration::from_secs(2), address);
    assert_each_once(&seen, 5);
    let names: BTreeSet<_> = seen
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Anomaly(facts) => Some(facts.name),
            _ => None,
        })
        .collect();
    assert_eq!(names, BTreeSet::from(["http_unfinished_head"]));
}

#[test]
fn a_port_that_accepts_and_resets_at_once_is_open() {
    let address = server(|stream| {
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    });
    let http = ProbeOptions::Http(http(1));
    for probe in [ProbeOptions::Connect, SSH, http] {
        let seen = scan(&config(probe), vec![address; 60]);
        assert_eq!(seen.finished.len(), 60);
        for (_, state, reason, conversation, _) in &seen.finished {
            assert_eq!(*state, PortState::Open, "{reason:?} {conversation:?}");
        }
    }
}

#[test]
fn who_waits_to_be_spoken_to_is_spoken_to() {
    // As sslh does: nothing is said before the client has.
    let address = server(|mut stream| {
        if stream.read(&mut [0; 64]).is_ok_and(|length| length > 0) {
            let _ = stream.write_all(b"SSH-2.0-Behind_1.0\r\n");
            let _ = stream.read(&mut [0; 64]);
        }
    });
    let config = ScannerConfig { first_byte_timeout: Duration::from_secs(5), ..config(SSH) };
    assert_eq!(scan(&config, vec![address]).one(), (PortState::Open, ExchangeOutcome::Complete));
}

#[test]
fn a_server_that_repeats_our_identification_is_no_ssh_server() {
    // As Dovecot does at its IMAP port, where it takes the line for a tagged command.
    let address = server(|stream| {
        let _ = (&stream).write_all(b"* OK [CAPABILITY IMAP4rev1] Dovecot ready.\r\n");
        let mut line = String::new();
        let _ = BufReader::new(&stream).read_line(&mut line);
        let _ = write!(&stream, "{} BAD Error in IMAP command received by server.\r\n", line.trim_end());
        let _ = (&stream).read(&mut [0; 64]);
    });
    let reading = SshOptions { hassh: true, ..READING };
    let seen = scan(&patient(ProbeOptions::Ssh(reading)), vec![address]);
    assert!(seen.events.is_empty(), "{:?}", seen.events);
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::Foreign));
}
