//! What a server answers to an upload is judged, however long the upload is and takes; and what one side
//! sends without a word of the other one arrives.
//!
//! `BANNERWALL_UPLOADS_LARGEST` is the length of the largest one in octets (default 3,000,000), and
//! `BANNERWALL_UPLOADS_SLOWEST` the time in seconds that ten octets take (default 2).

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use bannerwall_test_support::raw::Cargo;
use bannerwall_test_support::{Guard, JUDGES_ALL, Line, Namespace, as_root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often one side sends 64 KiB where the other one says nothing: more than the budget of lines before an
/// identification.
const TIMES: usize = 200;

/// How long a blocked client waits.
const HASTE: Duration = Duration::from_secs(2);

const FORBIDDEN: &str = "BadHttpd/1.0";
const ALLOWED: &str = "OkHttpd/1.0";

fn number(name: &str, default: usize) -> usize {
    match std::env::var(format!("BANNERWALL_UPLOADS_{name}")) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("BANNERWALL_UPLOADS_{name} is a number")),
        Err(_) => default,
    }
}

/// An upload of so many octets.
#[derive(Debug, Clone, Copy)]
struct Upload {
    octets: usize,
    pause: Duration,
    /// The client waits for `100 Continue`.
    asks_first: bool,
}

fn uploads() -> Vec<Upload> {
    let at_once = |octets| Upload { octets, pause: Duration::ZERO, asks_first: false };
    let slowest = Duration::from_millis(u64::try_from(number("SLOWEST", 2)).expect("a time") * 100);
    let largest = number("LARGEST", 3_000_000);
    vec![
        at_once(10),
        at_once(200_000),
        at_once(300_000),
        at_once(1_300_000),
        at_once(largest),
        Upload { asks_first: true, ..at_once(300_000) },
        Upload { pause: slowest, ..at_once(10) },
    ]
}

/// Answers one request in the name of `software`, when all of its body is there.
fn serve(listener: TcpListener, upload: Upload, software: &'static str) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        // The client may be gone by then, which it tells by itself.
        let _ = answer(&mut stream, upload, software);
    })
}

fn answer(stream: &mut TcpStream, upload: Upload, software: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet)?;
        head.extend_from_slice(&octet);
    }
    if upload.asks_first {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = stream.take(u64::try_from(upload.octets).expect("a length"));
    std::io::copy(&mut body, &mut std::io::sink())?;
    let stream = body.into_inner();
    write!(stream, "HTTP/1.1 200 OK\r\nServer: {software}\r\nContent-Length: 2\r\n\r\nok")
}

/// What the client reads in answer to its upload.
fn upload(line: &Line, address: SocketAddr, upload: Upload, patience: Duration) -> std::io::Result<Vec<u8>> {
    let mut stream = line.client.connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let expect = if upload.asks_first { "Expect: 100-continue\r\n" } else { "" };
    let length = upload.octets;
    write!(stream, "POST /x HTTP/1.1\r\nHost: a.example\r\n{expect}Content-Length: {length}\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    if upload.asks_first {
        let count = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
    }
    if upload.pause.is_zero() {
        stream.write_all(&vec![0; length])?;
    } else {
        for _ in 0..length {
            stream.write_all(&[0])?;
            std::thread::sleep(upload.pause);
        }
    }
    stream.set_read_timeout(Some(patience))?;
    while !answer.ends_with(b"ok") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(answer)
}

fn play(line: &Line, one: Upload, software: &'static str, patience: Duration) -> String {
    let any: SocketAddr = (Line::SERVER_V4.parse::<std::net::IpAddr>().expect("an address"), 0).into();
    let listener = line.server.listen(any);
    let address = listener.local_addr().expect("it is bound");
    let server = serve(listener, one, software);
    let answer = upload(line, address, one, patience).unwrap_or_default();
    // A server that still reads is cut off by its client's end.
    drop(server);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether links carry packets of many segments, as hosts hand them to fast interfaces.
fn segment_early(line: &Line) {
    for (namespace, interface) in
        [(&line.client, "eth0"), (&line.server, "eth0"), (&line.router, "left"), (&line.router, "right")]
    {
        namespace.run(&format!("ip link set dev {interface} gso_max_segs 1"));
    }
}

fn judge_all(line: &Line, flags: &str, with_gso: bool) -> Vec<String> {
    let mut failures = Vec::new();
    for one in uploads() {
        let name = format!("{one:?}, {}, {flags}", if with_gso { "GSO" } else { "no GSO" });
        // A field that does not end may go on: no client acts on it yet.
        if play(line, one, FORBIDDEN, HASTE).contains(&format!("{FORBIDDEN}\r\n")) {
            failures.push(format!("a forbidden server's answer arrived: {name}"));
        }
        if !play(line, one, ALLOWED, PATIENCE).ends_with("ok") {
            failures.push(format!("an allowed server's answer did not arrive: {name}"));
        }
    }
    failures
}

fn judge_mode(flags: &str, with_gso: bool) -> Vec<String> {
    let line = Line::new();
    if !with_gso {
        segment_early(&line);
    }
    let all = format!("--hook forward --enforce {JUDGES_ALL} {flags}");
    let _guard = Guard::start(&line.router, PROGRAM, Cargo::RULES, &all);
    judge_all(&line, flags, with_gso)
}

#[test]
fn the_answer_to_an_upload_of_any_length_is_judged() {
    as_root(|| {
        let modes =
            ["", "--on-failure closed --on-anomaly drop"].map(|flags| [(flags, true), (flags, false)]);
        let failures: Vec<String> = std::thread::scope(|scope| {
            let judge = |(flags, with_gso)| scope.spawn(move || judge_mode(flags, with_gso));
            let threads: Vec<_> = modes.into_iter().flatten().map(judge).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("judging does not panic")).collect()
        });
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    });
}

/// How many octets arrive that one side alone sends.
fn arrived(namespace: &Namespace, octets: &[u8], from_client: bool) -> usize {
    let listener = namespace.listen((Ipv4Addr::LOCALHOST, 0));
    let client = namespace.connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (server, _) = listener.accept().expect("a client");
    let (mut sender, mut receiver) = if from_client { (client, server) } else { (server, client) };
    sender.set_write_timeout(Some(PATIENCE)).expect("a socket");
    receiver.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let reader = std::thread::spawn(move || {
        let mut count = 0;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = receiver.read(&mut buffer) {
            count += read;
        }
        count
    });
    for _ in 0..TIMES {
        if sender.write_all(octets).is_err() {
            break;
        }
    }
    drop(sender);
    reader.join().expect("reading does not panic")
}

#[test]
fn what_one_side_alone_sends_arrives_whole() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = Guard::start(&namespace, PROGRAM, Cargo::RULES, "--hook input --enforce");
        let log = b"<34>1 2026-11-22T10:00:00Z a.example app 1 - - one of many messages in a log\n";
        let log: Vec<u8> = log.iter().copied().cycle().take(1 << 16).collect();
        // Of all values, in no order.
        let film: Vec<u8> =
            (0..1_u32 << 16).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for (name, octets) in [("a log", log), ("a film", film), ("zeros", vec![0; 1 << 16])] {
            for from_client in [true, false] {
                let count = arrived(&namespace, &octets, from_client);
                assert_eq!(
                    count,
                    TIMES << 16,
                    "{name}, from the client: {from_client}: {:?}",
                    guard.events()
                );
            }
        }
    });
}
