//! Floods of packets that belong to no connection, and connections that are over: honest connections pass,
//! forbidden ones are judged, and events stay few.
//!
//! `BANNERWALL_FLOODS_SECONDS` is the length of each flood (default 3) and `BANNERWALL_FLOODS_MEGABITS` its
//! rate in Mbit/s. Without a rate it is 4 at most, and held back while many packets wait: tests drive a
//! program without optimisation on a machine that does other things, and what passes a queue that is full
//! is its own affair. `BANNERWALL_FLOODS_FLOWS` is the length of the flow table (default 2,000).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bannerwall_test_support::raw::{Battlefield, Cargo, Flags, Packet};
use bannerwall_test_support::{Guard, Nginx, as_root, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// What the guard may hold in memory: its buffers (64 MiB), its table, and itself.
const MEMORY: u64 = 200 << 20;

/// Flows between looks at the queue, and packets that may wait in it: half of what fits.
const STRIDE: u32 = 64;
const WAITING: u64 = 512;

/// How long an honest connection may take while the machine is flooded.
const PATIENCE: Duration = Duration::from_secs(10);

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(format!("BANNERWALL_FLOODS_{name}")) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("BANNERWALL_FLOODS_{name} is a number")),
        Err(_) => default,
    }
}

/// A kind of flood.
#[derive(Debug, Clone, Copy)]
enum Flood {
    /// Acknowledgements of nothing.
    BareAcks,
    /// Data amid connections that nobody knows.
    Midstream,
    /// Beginnings of heads behind a SYN that nobody answers.
    HalfHeads,
}

/// The packets of one flow of a flood that nobody answers.
fn flow(flood: Flood, number: u32) -> Vec<Packet> {
    let [_, a, b, c] = number.to_be_bytes();
    let source =
        SocketAddr::from(([203, 0, 113, a.wrapping_mul(64) | (b & 63)], u16::from_be_bytes([b, c]) | 1024));
    let unanswered = SocketAddr::from(([198, 51, 100, 200], 80));
    let mut packet = Packet::new(source, unanswered);
    packet.sequence = number.wrapping_mul(2_654_435_761);
    packet.acknowledgement = 77;
    let head = [b"GET / HTTP/1.1\r\nHost: a.example\r\nX: ".as_slice(), &[b'x'; 1_200]].concat();
    match flood {
        Flood::BareAcks => vec![packet.flags(Flags::ACK)],
        Flood::Midstream => vec![Packet { payload: vec![b'x'; 1_240], ..packet }],
        Flood::HalfHeads => {
            let syn = packet.clone().flags(Flags::SYN);
            let sequence = packet.sequence.wrapping_add(1);
            vec![syn, Packet { sequence, payload: head, ..packet }]
        }
    }
}

/// Sends a flood at its rate until it is over; gives the number of packets.
fn send(field: &Battlefield, flood: Flood, is_over: &AtomicBool) -> u64 {
    let octets_a_second = number("MEGABITS", 4) * 125_000;
    let paced = std::env::var_os("BANNERWALL_FLOODS_MEGABITS").is_none();
    let start = Instant::now();
    let (mut sent, mut packets) = (0, 0);
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        for packet in flow(flood, number) {
            let octets = packet.build();
            sent += octets.len() as u64;
            packets += 1;
            field.inject(&octets);
        }
        while paced && number.is_multiple_of(STRIDE) && field.router.waiting_packets() > WAITING {
            std::thread::sleep(Duration::from_millis(2));
        }
        while sent > u64::try_from(start.elapsed().as_micros()).unwrap_or(0) * octets_a_second / 1_000_000 {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    packets
}

/// What a client reads of a page.
fn get(field: &Battlefield, agent: &str, patience: Duration) -> std::io::Result<String> {
    let server = SocketAddr::new(Battlefield::real_address(false), 80);
    let mut stream = field.raw_namespace().inside(|| TcpStream::connect_timeout(&server, patience))?;
    stream.set_read_timeout(Some(patience))?;
    write!(
        stream,
        "GET /index.html HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What came of connections during a flood.
#[derive(Debug, Default)]
struct Counts {
    honest: usize,
    honest_through: usize,
    forbidden: usize,
    forbidden_through: usize,
}

fn try_connections(field: &Battlefield, counts: &mut Counts) {
    let until = Instant::now() + Duration::from_secs(number("SECONDS", 3));
    while Instant::now() < until {
        counts.honest += 1;
        let answer = get(field, "honest/1", PATIENCE);
        counts.honest_through += usize::from(answer.is_ok_and(|answer| answer.ends_with("hello world")));
        counts.forbidden += 1;
        let answer = get(field, "sqlmap/1", Duration::from_millis(300));
        counts.forbidden_through += usize::from(answer.is_ok_and(|answer| answer.ends_with("hello world")));
    }
}

fn resident(guard: &Guard) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", guard.process.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

#[test]
fn floods_neither_stop_honest_connections_nor_hide_forbidden_ones() {
    as_root(|| {
        let mut failures = Vec::new();
        for mode in ["open", "closed"] {
            let field = Battlefield::new();
            let _nginx = Nginx::start(&field.real, 80, "");
            // A table that is full as soon as the default one is at the full rate for a minute.
            let flows = number("FLOWS", 2_000);
            let flags = format!("--hook forward --enforce --on-failure {mode} --flow-limit {flows}");
            let guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, &flags);
            for flood in [Flood::BareAcks, Flood::Midstream, Flood::HalfHeads] {
                let (mut counts, is_over) = (Counts::default(), AtomicBool::new(false));
                let packets = std::thread::scope(|scope| {
                    let flooder = scope.spawn(|| send(&field, flood, &is_over));
                    try_connections(&field, &mut counts);
                    is_over.store(true, Ordering::Relaxed);
                    flooder.join().expect("sending does not panic")
                });
                eventually("an empty queue", || (field.router.waiting_packets() == 0).then_some(()));
                let memory = resident(&guard);
                let text = format!("{mode}, {flood:?}, {packets} packets: {counts:?}, {} MiB", memory >> 20);
                println!("{text}");
                let is_well = counts.honest_through == counts.honest && counts.forbidden_through == 0;
                if !is_well || memory > MEMORY {
                    failures.push(text);
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    });
}

/// Connections that stand within a request's head, which their server waits for.
fn half_heads(field: &Battlefield, count: usize) -> Vec<TcpStream> {
    let server = SocketAddr::new(Battlefield::real_address(false), 80);
    let half_head = |_| {
        let connected = field.raw_namespace().inside(|| TcpStream::connect_timeout(&server, PATIENCE));
        let mut stream = connected.expect("the handshake passes");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ").expect("the connection is open");
        stream
    };
    (0..count).map(half_head).collect()
}

#[test]
fn connections_that_reset_within_a_head_take_no_place_from_others() {
    const FLOWS: usize = 400;
    as_root(|| {
        let field = Battlefield::new();
        let _nginx = Nginx::start(&field.real, 80, "");
        let flags = format!("--hook forward --enforce --on-failure closed --flow-limit {FLOWS}");
        let _guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, &flags);
        for stream in half_heads(&field, FLOWS) {
            // Closing ends it by a reset.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
        }
        let failures: Vec<_> = (0..50)
            .map(|_| get(&field, "honest/1", PATIENCE))
            .filter(|answer| !answer.as_ref().is_ok_and(|answer| answer.ends_with("hello world")))
            .collect();
        assert!(failures.is_empty(), "{} of 50: {:?}", failures.len(), failures.first());
        let forbidden = get(&field, "sqlmap/1", Duration::from_millis(300));
        assert!(forbidden.is_err(), "{forbidden:?}");
    });
}

#[test]
fn packets_without_a_connection_are_no_events() {
    as_root(|| {
        let field = Battlefield::new();
        let _nginx = Nginx::start(&field.real, 80, "");
        let guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, "--hook forward --enforce");
        let forbidden = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1\r\n\r\n";
        for number in 1..=20_000 {
            let mut packets = flow(Flood::Midstream, number);
            for packet in &mut packets {
                packet.payload = forbidden.to_vec();
                field.inject(&packet.build());
            }
            while number.is_multiple_of(STRIDE) && field.router.waiting_packets() > WAITING {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        eventually("an empty queue", || (field.router.waiting_packets() == 0).then_some(()));
        assert!(get(&field, "sqlmap/1", Duration::from_millis(300)).is_err());
        let is_drop = |event: &serde_json::Value| event["event_type"] == "drop";
        let events = eventually("the drop of a connection's request", || {
            let events = guard.events();
            events.iter().any(is_drop).then_some(events)
        });
        assert_eq!(events.iter().filter(|event| is_drop(event)).count(), 1, "of the connection");
        assert!(events.iter().all(|event| event["event_type"] != "anomaly"), "{events:?}");
        assert!(events.len() <= 10, "{} events", events.len());
    });
}
