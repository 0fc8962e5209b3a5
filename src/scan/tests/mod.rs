//! Whole scans against servers on loopback that behave well and badly.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::event::{ApplicationFacts, Event, EventKind, EventSink, PortState};

const SSH: ProbeOptions = ProbeOptions::Ssh(READING);

const READING: SshOptions = SshOptions { byte_limit: 65_536, hassh: false, host_key: false };

/// Everything that a scan reported.
#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    finished: Vec<(u64, PortState, PortStateReason, ExchangeOutcome, Vec<u8>)>,
}

impl EventSink for Seen {
    fn emit(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl OutcomeSink for Seen {
    fn finished(&mut self, outcome: &TargetOutcome<'_>) {
        let banner = outcome.banner.to_vec();
        let TargetOutcome { target, state, reason, conversation, .. } = outcome;
        self.finished.push((target.index, *state, *reason, *conversation, banner));
    }
}

impl Seen {
    fn one(&self) -> (PortState, ExchangeOutcome) {
        let [(_, state, _, conversation, _)] = self.finished.as_slice() else {
            panic!("not one result: {:?}", self.finished)
        };
        (*state, *conversation)
    }

    fn urls(&self) -> Vec<String> {
        let url = |event: &Event| match &event.kind {
            EventKind::Application(ApplicationFacts::Http(facts)) => {
                Some(facts.request.as_ref()?.url.clone())
            }
            _ => None,
        };
        self.events.iter().filter_map(url).collect()
    }
}

/// Addresses in order.
struct List(std::vec::IntoIter<SocketAddr>, u64);

impl TargetSource for List {
    fn next(&mut self, _now: Instant) -> NextTarget {
        let Some(address) = self.0.next() else { return NextTarget::End };
        self.1 += 1;
        NextTarget::Target(Target { address, index: self.1 - 1, host: None })
    }
}

fn config(probe: ProbeOptions) -> ScannerConfig {
    ScannerConfig {
        probe,
        window: 64,
        first_byte_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_secs(20),
        ..ScannerConfig::default()
    }
}

/// The same with time for a server that gets no processor for a while.
fn patient(probe: ProbeOptions) -> ScannerConfig {
    ScannerConfig { first_byte_timeout: Duration::from_secs(19), ..config(probe) }
}

fn scan(config: &ScannerConfig, targets: Vec<SocketAddr>) -> Seen {
    let parts = vec![(List(targets.into_iter(), 0), Seen::default())];
    let mut parts = run(config, parts).expect("a scan");
    parts.pop().expect("one part").1
}

/// Serves each connection with `serve`, on a thread of its own.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a loopback port")
}

/// The paths of the requests that come, which have no body, until the connection ends.
fn requests(stream: TcpStream) -> impl Iterator<Item = String> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    std::iter::from_fn(move || {
        let line = lines.next()?;
        lines.by_ref().take_while(|field| !field.is_empty()).for_each(drop);
        Some(line.split(' ').nth(1).unwrap_or_default().to_owned())
    })
}

/// Answers requests in order, `limit` on a connection, the last one with `Connection: close`.
fn answer(stream: TcpStream, limit: usize, announce: bool) {
    let mut writer = stream.try_clone().expect("a clone");
    let mut requests = requests(stream);
    for number in 1..=limit {
        let Some(path) = requests.next() else { return };
        let close = if announce && number == limit { "Connection: close\r\n" } else { "" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Path: {path}\r\n{close}\r\n{path}",
            path.len()
        );
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
    // Take in what else was sent, so that the close is a FIN and not a reset.
    let _ = writer.shutdown(std::net::Shutdown::Write);
    requests.for_each(drop);
}

fn http(count: usize) -> HttpOptions {
    let request = |number| HttpRequest { path: format!("/{number}"), ..HttpRequest::default() };
    HttpOptions { requests: (0..count).map(request).collect(), ..HttpOptions::default() }
}

/// Each request answered once, by the answer to that very request.
fn assert_each_once(seen: &Seen, count: usize) {
    let mut urls = seen.urls();
    urls.sort();
    let mut expected: Vec<String> = (0..count).map(|number| format!("/{number}")).collect();
    expected.sort();
    assert_eq!(urls, expected);
    for event in &seen.events {
        let EventKind::Application(ApplicationFacts::Http(facts)) = &event.kind else { continue };
        let (request, response) = (facts.request.as_ref().expect("asked"), facts.response.as_ref());
        let path = response.expect("answered").headers.iter().find(|field| field.name == "X-Path");
        assert_eq!(path.map(|field| field.value.as_str()), Some(request.url.as_str()));
    }
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::Complete));
}

#[test]
fn every_target_is_accounted_for_once_whatever_the_window() {
    let open = server(drop);
    let closed = closed_port();
    let targets: Vec<SocketAddr> =
        (0..300).map(|number| if number % 3 == 0 { open } else { closed }).collect();
    for (window, close) in [(1, CloseMethod::Reset), (7, CloseMethod::Finish), (512, CloseMethod::Reset)] {
        let config =
            ScannerConfig { window, close, descriptors_per_ring: 100, ..config(ProbeOptions::Connect) };
        let mut seen = scan(&config, targets.clone()).finished;
        seen.sort_by_key(|(index, ..)| *index);
        let states = |index: u64| if index.is_multiple_of(3) { PortState::Open } else { PortState::Closed };
        assert!(
            seen.iter()
                .map(|(index, state, ..)| (*index, *state))
                .eq((0..300).map(|index| (index, states(index))))
        );
    }
}

#[test]
fn a_banner_in_single_octets_behind_other_lines_is_read() {
    let address = server(|mut stream| {
        for octet in b"welcome\r\nSSH-2.0-Slow_1.0 comment\r\n" {
            let _ = stream.write_all(&[*octet]);
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = stream.read(&mut [0; 1]);
    });
    let seen = scan(&patient(SSH), vec![address]);
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::Complete));
    let banners = seen.events.iter().filter_map(|event| match &event.kind {
        EventKind::Application(ApplicationFacts::Ssh(facts)) => {
            Some(facts.server.as_ref()?.software_version.clone())
        }
        _ => None,
    });
    assert_eq!(banners.collect::<Vec<_>>(), ["Slow_1.0 comment"]);
}

/// The same line from several ports: what is remembered of it is told of each, and rules about ports are
/// asked for each.
#[test]
fn a_line_that_came_before_is_judged_where_it_comes_from() {
    let serve = |mut stream: TcpStream| {
        let _ = stream.write_all(b"SSH-2.0-Same_1.0\r\n");
        let _ = stream.read(&mut [0; 1]);
    };
    let addresses: Vec<SocketAddr> = (0..4).map(|_| server(serve)).collect();
    let of_one = format!(
        "[[rule]]\nid = 'one'\nprotocol = 'ssh'\naction = 'accept'\nmatch.software = 'Same'\nport = {}\n\
         [[rule]]\nid = 'all'\nprotocol = 'ssh'\naction = 'alert'\nmatch.software = 'Same'\n\
         [[rule]]\nid = 'counted'\nprotocol = 'ssh'\naction = 'alert'\nmatch.software = 'Same'\ncount = {{ times = 1, within = '60s' }}\n",
        addresses[0].port()
    );
    let rules = crate::rules::RuleSet::parse("rules.toml", &of_one).expect("rules").rules;
    let config = ScannerConfig { rules: Arc::new(rules), ..patient(SSH) };
    let seen = scan(&config, addresses.clone());
    assert_eq!(seen.finished.len(), 4);
    let ports = |wanted: fn(&EventKind) -> bool| {
        let events = seen.events.iter().filter(move |event| wanted(&event.kind));
        let ports = events.map(|event| event.flow.as_ref().expect("a flow").endpoints.server.port);
        ports.collect::<std::collections::BTreeSet<_>>()
    };
    let told = ports(|kind| matches!(kind, EventKind::Application(ApplicationFacts::Ssh(_))));
    assert_eq!(told, addresses.iter().map(SocketAddr::port).collect());
    let alerted = ports(|kind| matches!(kind, EventKind::Alert(facts) if facts.rule == "all"));
    assert_eq!(alerted, addresses[1..].iter().map(SocketAddr::port).collect());
    let alerts = seen.events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_)));
    assert_eq!(alerts.count(), 3);
}

#[test]
fn what_no_ssh_server_does_is_told_apart() {
    let silent = server(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    let half = server(|mut stream| drop((stream.write_all(b"SSH-2.0-Op"), stream.read(&mut [0; 1]))));
    let other = server(|mut stream| drop((stream.write_all(b"220 mail\r\n"), stream.read(&mut [0; 1]))));
    let brief = server(drop);
    let endless = server(|mut stream| while stream.write_all(&[b'a'; 4096]).is_ok() {});
    let config = config(ProbeOptions::Ssh(SshOptions { byte_limit: 20_000, ..READING }));
    let config = ScannerConfig { first_byte_timeout: Duration::from_secs(2), ..config };
    for (address, expected) in [
        (silent, ExchangeOutcome::Silent),
        (half, ExchangeOutcome::TimedOut),
        (other, ExchangeOutcome::Foreign),
        (brief, ExchangeOutcome::Ended),
        (endless, ExchangeOutcome::TooLong),
    ] {
        let seen = scan(&config, vec![address]);
        assert_eq!(seen.one(), (PortState::Open, expected));
        assert!(seen.events.is_empty());
    }
    let seen = scan(&config, vec![half]);
    assert_eq!(seen.finished.first().map(|(.., banner)| banner.as_slice()), Some(&b"SSH-2.0-Op"[..]));
}

#[test]
fn many_requests_are_pipelined_and_none_takes_another_ones_answer() {
    let address = server(|stream| answer(stream, usize::MAX, false));
    for connections in [1, 4] {
        let options = HttpOptions { host_connections: connections, ..http(320) };
        assert_each_once(&scan(&config(ProbeOptions::Http(options)), vec![address]), 320);
    }
}

#[test]
fn servers_that_close_behind_some_answers_are_asked_for_the_rest() {
    for (limit, announce) in [(1, true), (1, false), (3, false), (10, true), (100, true)] {
        let address = server(move |stream| answer(stream, limit, announce));
        assert_each_once(&scan(&config(ProbeOptions::Http(http(40))), vec![address]), 40);
    }
}

#[test]
fn a_server_that_stalls_once_is_asked_again() {
    let stalled = std::sync::atomic::AtomicBool::new(false);
    let address = server(move |stream| {
        if stalled.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return answer(stream, usize::MAX, false);
        }
        answer(stream.try_clone().expect("a clone"), 5, false);
        std::thread::sleep(Duration::from_secs(1));
        drop(stream);
    });
    assert_each_once(&scan(&config(ProbeOptions::Http(http(60))), vec![address]), 60);
}

#[test]
fn without_pipelining_each_request_has_its_connection() {
    let address = server(|stream| answer(stream, 1, true));
    let options = HttpOptions { pipeline: false, ..http(12) };
    let seen = scan(&config(ProbeOptions::Http(options)), vec![address]);
    assert_each_once(&seen, 12);
}

#[test]
fn hostile_framing_ends_the_connection_and_is_told() {
    let address = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let answer =
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        let _ = stream.write_all(answer);
        let _ = stream.read(&mut [0; 1]);
    });
    let seen = scan(&patient(ProbeOptions::Http(http(1))), vec![address]);
    assert_eq!(seen.urls().len(), 1, "what follows is nobody's answer");
    let told = |event: &Event| matches!(&event.kind, EventKind::Anomaly(facts) if facts.name == "http_content_length_conflict");
    assert!(seen.events.iter().any(told));
}

/// Answers requests in order with what `answer` makes of the connection's number, the request's
/// number on it and the path; nothing ends the connection.
fn scripted(answer: impl Fn(usize, usize, &str) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let connections = std::sync::atomic::AtomicUsize::new(0);
    server(move |stream| {
        let connection = connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut writer = stream.try_clone().expect("a clone");
        let mut requests = requests(stream);
        for number in 0.. {
            let Some(path) = requests.next() else { return };
            let Some(answer) = answer(connection, number, &path) else { break };
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        let _ = writer.shutdown(std::net::Shutdown::Write);
        requests.for_each(drop);
    })
}

fn good(path: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Path: {path}\r\n\r\n{path}", path.len())
}

#[test]
fn answers_end_where_they_end_whatever_frames_them() {
    let long = "x".repeat(100_000);
    let address = scripted(move |_, number, path| {
        let head =
            |status: &str, fields: &str| format!("HTTP/1.1 {status}\r\nX-Path: {path}\r\n{fields}\r\n");
        Some(match number % 6 {
            0 => {
                head("200 OK", "Transfer-Encoding: chunked\r\n")
                    + "3;a=b\r\nHTT\r\n2\r\nP/\r\n0\r\nX: y\r\n\r\n"
            }
            1 => head("204 No Content", "Content-Length: 5\r\n"),
            2 => head("304 Not Modified", "Content-Length: 5\r\n"),
            3 => {
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n".to_owned()
                    + &good(path)
            }
            4 => head("200 OK", "Content-Length: 100000\r\n") + &long,
            _ => good(path),
        })
    });
    let seen = scan(&config(ProbeOptions::Http(http(90))), vec![address]);
    assert_each_once(&seen, 90);
    let long = |event: &&Event| match &event.kind {
        EventKind::Application(ApplicationFacts::Http(facts)) => {
            facts.response.as_ref().is_some_and(|response| response.body_length == 100_000)
        }
        _ => false,
    };
    assert!(seen.events.iter().filter(long).count() > 5, "bodies are counted whole");
}

#[test]
fn answers_to_head_have_no_body_whatever_they_announce() {
    let address = scripted(|_, _, path| {
        Some(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nX-Path: {path}\r\n\r\n"))
    });
    let mut options = http(60);
    for request in &mut options.requests {
        "HEAD".clone_into(&mut request.method);
    }
    assert_each_once(&scan(&config(ProbeOptions::Http(options)), vec![address]), 60);
}

#[test]
fn bodies_that_only_the_end_of_the_connection_ends_are_whole() {
    for version in ["1.0", "1.1"] {
        let address = server(move |stream| {
            let mut writer = stream.try_clone().expect("a clone");
            let mut requests = requests(stream);
            let Some(path) = requests.next() else { return };
            let answer = format!("HTTP/{version} 200 OK\r\nX-Path: {path}\r\n\r\nas long as it takes");
            let _ = writer.write_all(answer.as_bytes());
            let _ = writer.shutdown(std::net::Shutdown::Write);
            requests.for_each(drop);
        });
        let seen = scan(&config(ProbeOptions::Http(http(30))), vec![address]);
        assert_each_once(&seen, 30);
        let whole = |event: &Event| match &event.kind {
            EventKind::Application(ApplicationFacts::Http(facts)) => {
                facts.response.as_ref().is_some_and(|response| response.body_length == 19)
            }
            _ => true,
        };
        assert!(seen.events.iter().all(whole));
    }
}

#[test]
fn an_answer_that_breaks_off_is_asked_for_again() {
    let address = scripted(|connection, number, path| match (connection, number) {
        (0, 12) => Some(good(path).replace("Content-Length: ", "Content-Length: 9")),
        (0, 13) => None,
        _ => Some(good(path)),
    });
    // The thirteenth announces more than comes before the end.
    assert_each_once(&scan(&config(ProbeOptions::Http(http(60))), vec![address]), 60);
}

#[test]
fn a_request_timeout_is_no_answer() {
    let address = scripted(|connection, number, path| {
        if (connection, number) == (0, 3) {
            return Some(
                "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
            );
        }
        (connection > 0 || number < 3).then(|| good(path))
    });
    assert_each_once(&scan(&config(ProbeOptions::Http(http(40))), vec![address]), 40);
}

#[test]
fn a_server_that_drops_what_is_pipelined_is_asked_in_turn_over_four_connections() {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (now, peak) = (Arc::clone(&asked), Arc::clone(&most));
    let address = server(move |mut stream| {
        use std::sync::atomic::Ordering::SeqCst;
        let mut buffer = [0; 65_536];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            peak.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            // A server that answers at once is asked over one connection.
            std::thread::sleep(Duration::from_millis(40));
            let requests = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let path = requests.split(' ').nth(1).unwrap_or_default();
            now.fetch_sub(1, SeqCst);
            if stream.write_all(good(path).as_bytes()).is_err() {
                break;
            }
        }
    });
    assert_each_once(&scan(&config(ProbeOptions::Http(http(60))), vec![address]), 60);
    let most = most.load(std::sync::atomic::Ordering::SeqCst);
    assert!((2..=4).contains(&most), "{most} requests at once");
}

#[test]
fn one_page_that_hangs_costs_only_itself() {
    let address = server(|stream| {
        let mut writer = stream.try_clone().expect("a clone");
        let mut requests = requests(stream);
        for path in requests.by_ref() {
            if path == "/7" {
                break;
            }
            let _ = writer.write_all(good(&path).as_bytes());
        }
        requests.for_each(drop);
    });
    let seen = scan(&config(ProbeOptions::Http(http(50))), vec![address]);
    let urls: std::collections::BTreeSet<_> = seen.urls().into_iter().collect();
    assert_eq!((seen.urls().len(), urls.len(), urls.contains("/7")), (49, 49, false));
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::TimedOut));
}

#[test]
fn an_oversize_body_is_cut_and_the_rest_asked_anew() {
    let address = server(|stream| {
        let mut writer = stream.try_clone().expect("a clone");
        for path in requests(stream) {
            let mut answer = good(&path).into_bytes();
            if path == "/5" {
                answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\nX-Path: /5\r\n\r\n".to_vec();
                answer.resize(answer.len() + 3_000_000, b'x');
            }
            if writer.write_all(&answer).is_err() {
                return;
            }
        }
    });
    let seen = scan(&config(ProbeOptions::Http(http(40))), vec![address]);
    assert_each_once(&seen, 40);
    let announced = |event: &Event| match &event.kind {
        EventKind::Application(ApplicationFacts::Http(facts)) => {
            facts.response.as_ref().is_some_and(|response| response.body_length == 9_000_000_000)
        }
        _ => false,
    };
    assert!(seen.events.iter().any(announced));
}

#[test]
fn an_idle_connection_closes_while_others_go_on() {
    let idle_closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hangs = std::sync::atomic::AtomicBool::new(true);
    let address = server(move |stream| {
        use std::sync::atomic::Ordering::SeqCst;
        let mut writer = stream.try_clone().expect("a clone");
        let mut requests = requests(stream);
        while let Some(path) = requests.next() {
            if path == "/0" {
                if hangs.swap(false, SeqCst) {
                    requests.for_each(drop);
                    return;
                }
                while !idle_closed.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            if writer.write_all(good(&path).as_bytes()).is_err() {
                return;
            }
        }
        idle_closed.store(true, SeqCst);
    });
    let options = HttpOptions { host_connections: 3, ..http(9) };
    let config =
        ScannerConfig { first_byte_timeout: Duration::from_secs(15), ..config(ProbeOptions::Http(options)) };
    assert_each_once(&scan(&config, vec![address]), 9);
}

#[test]
fn octets_that_nobody_asked_for_are_told_and_taken_for_no_answer() {
    let address = scripted(|_, _, path| Some(good(path) + &good("/smuggled")));
    let seen = scan(&patient(ProbeOptions::Http(http(1))), vec![address]);
    assert_each_once(&seen, 1);
    let told = |event: &Event| matches!(&event.kind, EventKind::Anomaly(facts) if facts.name == "http_unsolicited_response");
    assert!(seen.events.iter().any(told));
}

#[test]
fn a_stopped_scan_leaves_targets_unfinished_and_returns() {
    let silent = server(|mut stream| drop(stream.read(&mut [0; 1])));
    let config = ScannerConfig { first_byte_timeout: Duration::from_secs(60), ..config(SSH) };
    let stop = Arc::clone(&config.stop);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(scan(&config, vec![silent]).finished.is_empty());
    stopper.join().expect("stopped");
}

mod answers;
mod streams;
