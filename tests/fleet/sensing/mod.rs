//! What tests of sensors have in common: a fleet with two of them, and captures of what they see.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};

use bannerwall_inspect::packet::TcpFlags;
use bannerwall_inspect::packet::testing::{SegmentBuilder, endpoint};
use bannerwall_test_support::json_lines;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

pub fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

pub fn program(words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words).current_dir("/");
    command
}

pub fn run(words: &[&str]) -> Output {
    program(words).output().expect("it runs")
}

/// What it prints, where that is well.
pub fn told(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The same database by another role.
pub fn by(url: &str, role: &str) -> String {
    url.replace("user=postgres", &format!("user={role}"))
}

/// Has a database made into a fleet, with sensors `east` and `west`.
pub fn init(url: &str) -> String {
    let words =
        ["fleet", "init", "--sensor", "east", "--sensor", "west", "--worker", "hand", "--reader", "page"];
    told(&[&words[..], &["--admin", "boss", "--database", url]].concat())
}

pub fn merge(url: &str, words: &[&str]) -> Output {
    run(&[&["fleet", "merge", "--database", &by(url, "hand")], words].concat())
}

/// How the sensors stand, as a reader is told.
pub fn sensors(url: &str) -> Vec<serde_json::Value> {
    json_lines(told(&["fleet", "status", "--format", "json", "--database", &by(url, "page")]).as_bytes())
        .into_iter()
        .filter(|row| row.get("sensor").is_some())
        .collect()
}

/// Connections of SSH to so many servers, each twice, as a capture of raw IP packets.
pub fn capture(servers: u16) -> Vec<u8> {
    capture_of(0..servers)
}

/// The same of these servers. Without its first 24 octets it goes on with one of fewer, so much later that
/// connections there are over.
pub fn capture_of(servers: Range<u16>) -> Vec<u8> {
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101]);
    let mut number = 0;
    for (round, server) in [40_000, 40_001].into_iter().flat_map(|it| servers.clone().map(move |at| (it, at)))
    {
        let client = endpoint(&format!("192.0.2.7:{round}"));
        let [high, low] = server.to_be_bytes();
        let address = Ipv4Addr::new(198, 51, 100, low);
        let server_end = endpoint(&format!("{address}:{}", 22 + u16::from(high)));
        let up = || SegmentBuilder::new(client, server_end).sequence(100).acknowledgement(500);
        let down = || SegmentBuilder::new(server_end, client).sequence(500).acknowledgement(100);
        let said = format!("SSH-2.0-sensed_{server}\r\n");
        for packet in [
            SegmentBuilder::new(client, server_end).flags(TcpFlags::SYN).sequence(99).build(),
            down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(499).build(),
            up().build(),
            down().payload(said.as_bytes()).build(),
            up().acknowledgement(500 + u32::try_from(said.len()).expect("short"))
                .payload(b"SSH-2.0-client_1\r\n")
                .build(),
        ] {
            let length = u32::try_from(packet.len()).expect("a short packet");
            file.extend(words(&[
                1_700_000_000 + 1_000 * u32::from(servers.start) + number / 1000,
                number % 1000 * 1000,
                length,
                length,
            ]));
            file.extend(packet);
            number += 1;
        }
    }
    file
}

pub fn replay(url: &str, capture: &Path, words: &[&str]) -> Command {
    let mut command = program(&["replay", "-q", "-o", "/dev/null", "--inventory", url]);
    command.args(words).arg(capture);
    command
}

/// What is known of services and who said so, whatever way it came.
pub const KNOWN: &str = "SELECT address, services.port, protocol, side, text, count FROM sightings
    JOIN services ON services.id = service JOIN hosts ON hosts.id = host JOIN banners USING (protocol, side)
    WHERE banners.id = sightings.banner ORDER BY 1, 2, 3, 4, 5";
