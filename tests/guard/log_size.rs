//! What hostile ends can make of a log: how long it gets for what they send, and what it must not hold.

use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_inspect::packet::TcpFlags;
use bannerwall_inspect::packet::testing::{SegmentBuilder, endpoint};
use bannerwall_test_support::json_lines;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Octets of payload of one segment.
const SEGMENT: usize = 1400;

/// A capture of raw IP packets, a millisecond apart, and the octets of those packets.
fn pcap(packets: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101]);
    for (number, packet) in (0_u32..).zip(packets) {
        let length = u32::try_from(packet.len()).unwrap();
        file.extend(words(&[1_700_000_000, number * 1000, length, length]));
        file.extend(packet);
    }
    (file, packets.iter().map(Vec::len).sum())
}

/// A connection in which a client asks `request` and a server answers `response`, with its handshake.
fn connection(request: &[u8], response: &[u8]) -> Vec<Vec<u8>> {
    let (client, server) = (endpoint("192.0.2.1:40000"), endpoint("198.51.100.2:80"));
    let from = |client_speaks: bool, sequence: u32, acknowledgement: u32| {
        let (source, destination) = if client_speaks { (client, server) } else { (server, client) };
        SegmentBuilder::new(source, destination).sequence(sequence).acknowledgement(acknowledgement)
    };
    let mut packets = vec![
        from(true, 99, 0).flags(TcpFlags::SYN).build(),
        from(false, 499, 100).flags(TcpFlags::SYN | TcpFlags::ACK).build(),
        from(true, 100, 500).build(),
    ];
    let (mut asked, mut answered) = (100, 500);
    for part in request.chunks(SEGMENT) {
        packets.push(from(true, asked, answered).payload(part).build());
        asked += u32::try_from(part.len()).unwrap();
    }
    for part in response.chunks(SEGMENT) {
        packets.push(from(false, answered, asked).payload(part).build());
        answered += u32::try_from(part.len()).unwrap();
    }
    packets.push(from(false, answered, asked).flags(TcpFlags::ACK | TcpFlags::FIN).build());
    packets.push(from(true, asked, answered + 1).flags(TcpFlags::ACK | TcpFlags::FIN).build());
    packets.push(from(false, answered + 1, asked + 1).build());
    packets
}

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")
}

/// The header lines of every example of a shipped rule about HTTP servers.
fn example_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(rules()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        let rules = file.get("rule").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        for example in rules.iter().filter_map(|rule| rule.get("examples")?.as_array()).flatten() {
            let Some(head) = example.as_str().filter(|text| text.starts_with("HTTP/")) else { continue };
            let fields = head.lines().skip(1).take_while(|line| !line.is_empty());
            lines.extend(fields.filter(|line| !line.starts_with("Content-Length")).map(str::to_owned));
        }
    }
    lines
}

/// Replays a connection and gives its events and the octets of log for each octet of traffic.
fn replay(request: &[u8], response: &[u8], format: &str, flags: &[&str]) -> (String, f64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hostile.pcap");
    let (octets, traffic) = pcap(&connection(request, response));
    std::fs::write(&file, octets).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["replay", "--format", format, "--rules"]).arg(rules()).args(flags).arg(&file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let ratio = output.stdout.len() as f64 / traffic as f64;
    (String::from_utf8(output.stdout).unwrap(), ratio)
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn a_hostile_server_cannot_fill_the_log() {
    let lines = example_lines();
    assert!(lines.len() > 20, "the shipped rules have examples: {}", lines.len());
    let response = |padding: &str, until: usize| {
        let mut head = format!("HTTP/1.1 200 OK\r\n{}\r\n", lines.join("\r\n"));
        for number in 0.. {
            if head.len() >= until {
                break;
            }
            head.push_str(&format!("X-{number}: {padding}\r\n"));
        }
        head + "Content-Length: 0\r\n\r\n"
    };
    for (what, head, limit) in [
        ("the examples alone", response("", 0), 4.0),
        ("60 KB", response(&"a".repeat(80), 60_000), 4.0),
        ("60 KB of short fields", response("", 60_000), 4.0),
        ("60 KB of control octets", response(&"\u{1}".repeat(80), 60_000), 4.0),
    ] {
        let (log, ratio) = replay(REQUEST, head.as_bytes(), "json", &[]);
        let events = json_lines(log.as_bytes());
        let alerts = events.iter().filter(|event| event["event_type"] == "alert").count();
        println!("{what}: {} octets, {alerts} alerts, {ratio:.2} octets of log for each", head.len());
        assert!(alerts >= 5, "{alerts}");
        let cut = events.iter().find(|event| event["anomaly"]["event"] == "alerts_cut");
        assert!(cut.is_some(), "the rules without an alert are named: {events:?}");
        assert!(ratio <= limit, "{what}: {ratio}");
    }
}

const SECRET_REQUEST: &[u8] = b"GET /?token=s3cret-query HTTP/1.1\r\nHost: h\r\nUser-Agent: sqlmap/1.7\r\n\
    Authorization: Basic s3cret-basic\r\nCookie: session=s3cret-cookie\r\nX-Api-Key: s3cret-key\r\n\
    Referer: http://user:s3cret-user@h/\r\n\r\n";
const SECRET_RESPONSE: &[u8] = b"HTTP/1.1 302 Found\r\nServer: Apache/2.4.49 (Unix)\r\n\
    Set-Cookie: id=s3cret-set; Path=/\r\nLocation: http://h/?access_token=s3cret-location\r\n\
    Content-Length: 0\r\n\r\n";

#[test]
fn credentials_are_masked_in_every_output_unless_asked_for() {
    for format in ["text", "json", "csv"] {
        for flags in [&[][..], &["--eve-strict"], &["--log-headers", "none"]] {
            let (log, _) = replay(SECRET_REQUEST, SECRET_RESPONSE, format, flags);
            assert!(log.contains("Apache") && !log.contains("s3cret"), "{log}");
        }
    }
    let (log, _) = replay(SECRET_REQUEST, SECRET_RESPONSE, "json", &["--log-headers", "all"]);
    for secret in ["query", "basic", "cookie", "key", "user", "set", "location"] {
        assert!(log.contains(&format!("s3cret-{secret}")), "{secret}: {log}");
    }
    let (log, _) = replay(SECRET_REQUEST, SECRET_RESPONSE, "json", &["--log-headers", "none"]);
    assert!(!log.contains("request_headers") && log.contains("\"http_user_agent\":\"sqlmap/1.7\""), "{log}");
}
