//! What rules do with real traffic: lists, scopes, thresholds, accept rules and fingerprints, tried on
//! captures that are written here and replayed by the program.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::json_lines;
use etherparse::PacketBuilder;
use serde_json::Value;
use tempfile::TempDir;

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const FINGERPRINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fingerprints.toml");

/// A capture under way: whole connections, one a second.
struct Capture {
    octets: Vec<u8>,
    connections: u16,
}

impl Capture {
    fn new() -> Self {
        // A pcap file of raw IP packets (link type 101), microseconds, little-endian.
        let mut octets = Vec::new();
        for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
            octets.extend_from_slice(&word.to_le_bytes());
        }
        Self { octets, connections: 0 }
    }

    /// An SSH connection whose client and server introduce themselves.
    fn ssh(&mut self, client: Ipv4Addr, server: Ipv4Addr, client_says: &str, server_says: &str) {
        self.connections += 1;
        let (ours, theirs) = ((client, 40_000 + self.connections), (server, 22));
        let lines = [client_says, server_says].map(|line| format!("{line}\r\n"));
        let length = |line: &str| u32::try_from(line.len()).expect("a short line");
        let (said, answered) = (1_001 + length(&lines[0]), 9_001 + length(&lines[1]));
        let tcp = |from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), sequence: u32| {
            PacketBuilder::ipv4(from.0.octets(), to.0.octets(), 64).tcp(from.1, to.1, sequence, 64_000)
        };
        let mut packet = Vec::new();
        let mut write = |builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>, payload: &[u8]| {
            packet.clear();
            builder.write(&mut packet, payload).expect("a Vec takes all");
            self.octets.extend_from_slice(&u32::from(self.connections).to_le_bytes());
            self.octets.extend_from_slice(&0_u32.to_le_bytes());
            let length = u32::try_from(packet.len()).expect("a short packet").to_le_bytes();
            self.octets.extend_from_slice(&length);
            self.octets.extend_from_slice(&length);
            self.octets.extend_from_slice(&packet);
        };
        write(tcp(ours, theirs, 1_000).syn(), &[]);
        write(tcp(theirs, ours, 9_000).syn().ack(1_001), &[]);
        write(tcp(ours, theirs, 1_001).ack(9_001), &[]);
        write(tcp(ours, theirs, 1_001).ack(9_001).psh(), lines[0].as_bytes());
        write(tcp(theirs, ours, 9_001).ack(said).psh(), lines[1].as_bytes());
        write(tcp(ours, theirs, said).ack(answered).fin(), &[]);
        write(tcp(theirs, ours, answered).ack(said + 1).fin(), &[]);
        write(tcp(ours, theirs, said + 1).ack(answered + 1), &[]);
    }
}

/// A folder with a capture, rules and lists.
struct Trial {
    folder: TempDir,
}

impl Trial {
    fn new(capture: &Capture, rules: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let trial = Self { folder };
        trial.write("capture.pcap", &capture.octets);
        trial.write("rules.toml", rules.as_bytes());
        trial
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, octets: &[u8]) {
        std::fs::write(self.path(name), octets).expect("the folder is ours");
    }

    /// All events of a replay.
    fn replay(&self, flags: &[&str]) -> Vec<Value> {
        let output = Command::new(env!("CARGO_BIN_EXE_bannerwall"))
            .args([Path::new("replay"), &self.path("capture.pcap"), Path::new("--rules")])
            .arg(self.path("rules.toml"))
            .args(["--format", "json"])
            .args(flags)
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output.stdout)
    }

    /// The rules that matched and the clients' addresses, in order.
    fn alerts(&self, flags: &[&str]) -> Vec<(String, String)> {
        let events = self.replay(flags);
        let alerts = events.iter().filter(|event| event["event_type"] == "alert");
        alerts
            .map(|alert| {
                let to_client = alert["direction"] == "to_client";
                let client = if to_client { &alert["dest_ip"] } else { &alert["src_ip"] };
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (text(&alert["bannerwall"]["rule"]), text(client))
            })
            .collect()
    }
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

fn said(rule: &str, number: u8) -> (String, String) {
    (rule.to_owned(), host(number).to_string())
}

#[test]
fn values_and_networks_come_from_lists_beside_the_rules() {
    let mut capture = Capture::new();
    capture.ssh(host(1), SERVER, "SSH-2.0-Go", "SSH-2.0-OpenSSH_9.9");
    capture.ssh(host(2), SERVER, "SSH-2.0-libssh_0.10.6", "SSH-2.0-OpenSSH_9.9");
    capture.ssh(host(3), SERVER, "SSH-2.0-Gopher", "SSH-2.0-OpenSSH_9.9");
    capture.ssh(host(200), SERVER, "SSH-2.0-OpenSSH_9.9", "SSH-2.0-OpenSSH_9.9");
    let rules = r#"
        lists = { forbidden = "forbidden.txt", guests = "guests.txt" }
        [[rule]]
        id = "forbidden"
        protocol = "ssh"
        from = "client"
        match.software = "@forbidden"
        action = "alert"
        [[rule]]
        id = "guest"
        protocol = "ssh"
        from = "client"
        source = ["@guests"]
        match.software = '.'
        action = "alert"
    "#;
    let trial = Trial::new(&capture, rules);
    trial.write("forbidden.txt", b"# whole values\nGo\n\nlibssh_0.10.6\r\n");
    trial.write("guests.txt", b"192.0.2.128/25  # the guests' network\n");
    assert_eq!(trial.alerts(&[]), [said("forbidden", 1), said("forbidden", 2), said("guest", 200)]);
}

#[test]
fn a_counted_rule_speaks_from_the_nth_match_of_one_source_within_the_window() {
    let mut capture = Capture::new();
    // One connection a second: host 1 comes five times, host 2 twice, between them.
    for number in [1, 2, 1, 1, 2, 1, 1] {
        capture.ssh(host(number), SERVER, "SSH-2.0-Go", "SSH-2.0-OpenSSH_9.9");
    }
    let rule = |count: &str| {
        format!(
            "[[rule]]\nid = 'guesser'\nprotocol = 'ssh'\nfrom = 'client'\nmatch.software = '^Go$'\naction = 'alert'\n{count}\n"
        )
    };
    let trial = Trial::new(&capture, &rule("count = { times = 3, within = '60s' }"));
    assert_eq!(trial.alerts(&[]), [said("guesser", 1), said("guesser", 1), said("guesser", 1)]);
    // Host 1 comes in the seconds 1, 3, 4, 6 and 7: twice there is one second between two of its own.
    trial.write("rules.toml", rule("count = { times = 2, within = '1s' }").as_bytes());
    assert_eq!(trial.alerts(&[]), [said("guesser", 1), said("guesser", 1)]);
    trial.write("rules.toml", rule("count = { times = 6, within = '60s' }").as_bytes());
    assert_eq!(trial.alerts(&[]), []);
    trial.write("rules.toml", rule("").as_bytes());
    assert_eq!(trial.alerts(&[]).len(), 7);
}

#[test]
fn source_and_destination_are_client_and_server_and_can_be_negated() {
    let inside = Ipv4Addr::new(203, 0, 113, 7);
    let mut capture = Capture::new();
    capture.ssh(host(1), SERVER, "SSH-2.0-Go", "SSH-2.0-Old_1");
    capture.ssh(host(66), SERVER, "SSH-2.0-Go", "SSH-2.0-Old_1");
    capture.ssh(host(1), inside, "SSH-2.0-Go", "SSH-2.0-Old_1");
    for (scope, expected) in [
        ("source = ['192.0.2.0/24', '!192.0.2.66']", vec![said("old", 1), said("old", 1)]),
        ("source = '!192.0.2.66'", vec![said("old", 1), said("old", 1)]),
        ("source = '!192.0.2.0/24'", vec![]),
        // The server's own address is its destination, whoever sent the banner.
        ("source = '198.51.100.0/24'", vec![]),
        ("destination = '198.51.100.0/24'", vec![said("old", 1), said("old", 66)]),
        ("destination = '!198.51.100.0/24'", vec![said("old", 1)]),
        ("destination = ['0.0.0.0/0', '!203.0.113.7']\nsource = '!192.0.2.1'", vec![said("old", 66)]),
        ("port = '!22'", vec![]),
        ("port = [22, '2200-2299']\nsource = '192.0.2.66'", vec![said("old", 66)]),
    ] {
        let rules = format!(
            "[[rule]]\nid = 'old'\nprotocol = 'ssh'\nmatch.software = '^Old_'\naction = 'alert'\n{scope}\n"
        );
        assert_eq!(Trial::new(&capture, &rules).alerts(&[]), expected, "{scope}");
    }
}

#[test]
fn an_accept_rule_comes_first_wherever_it_stands() {
    let mut capture = Capture::new();
    capture.ssh(host(1), SERVER, "SSH-2.0-Go", "SSH-2.0-Old_1");
    capture.ssh(host(2), SERVER, "SSH-2.0-Go", "SSH-2.0-Old_1");
    let rules = r#"
        [[rule]]
        id = "old"
        protocol = "ssh"
        match.software = '^Old_'
        action = "drop"
        [[rule]]
        id = "any"
        protocol = "ssh"
        from = "either"
        match.software = '.'
        action = "alert"
        [[rule]]
        id = "ours"
        protocol = "ssh"
        from = "either"
        source = ["192.0.2.1"]
        match.software = '.'
        action = "accept"
    "#;
    let trial = Trial::new(&capture, rules);
    let alerts = trial.alerts(&["--enforce"]);
    assert_eq!(alerts, [said("any", 2), said("old", 2), said("any", 2)]);
    let dropped: Vec<Value> = trial.replay(&["--enforce"]);
    let dropped = dropped.iter().filter(|event| event["event_type"] == "drop").count();
    assert!(dropped > 0, "what is not accepted is dropped");
}

#[test]
fn fingerprints_name_products_in_events_and_to_rules() {
    let mut capture = Capture::new();
    capture.ssh(host(1), SERVER, "SSH-2.0-OpenSSH_9.9", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2");
    capture.ssh(host(2), SERVER, "SSH-2.0-OpenSSH_9.9", "SSH-2.0-dropbear_2020.81");
    let rules = r#"
        [[rule]]
        id = "old-dropbear"
        protocol = "ssh"
        match.product = '^Dropbear'
        version = "<2022.83"
        action = "alert"
        [[rule]]
        id = "openbsd"
        protocol = "ssh"
        match.vendor = '^OpenBSD$'
        match.os = 'Linux'
        match.cpe = ':openssh:9\.2p1'
        action = "alert"
    "#;
    let trial = Trial::new(&capture, rules);
    assert_eq!(trial.alerts(&[]), [], "nobody names products without fingerprints");
    let flags = ["--fingerprints", FINGERPRINTS];
    assert_eq!(trial.alerts(&flags), [said("openbsd", 1), said("old-dropbear", 2)]);
    let events = trial.replay(&flags);
    let first = events.iter().find(|event| event["event_type"] == "ssh").expect("an ssh event");
    let own = &first["bannerwall"];
    for (name, expected) in [
        ("vendor", "OpenBSD"),
        ("product", "OpenSSH"),
        ("version", "9.2p1"),
        ("cpe", "cpe:/a:openbsd:openssh:9.2p1"),
        ("os", "Debian Linux"),
    ] {
        assert_eq!(own[name], expected, "{name} of {own}");
    }
    assert_eq!(own["client"]["version"], "9.9", "{own}");
}

#[test]
fn a_blocked_connection_is_one_line_that_says_what_matched() {
    let mut capture = Capture::new();
    capture.ssh(host(1), SERVER, "SSH-2.0-OpenSSH_9.9", "SSH-2.0-Evil_1.0");
    capture.ssh(host(2), SERVER, "SSH-2.0-OpenSSH_9.9", "SSH-2.0-Odd_1.0");
    let rule = |id: &str, software: &str, action: &str| {
        format!(
            "[[rule]]\nid = \"{id}\"\ntitle = \"{id}\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
             match.software = '{software}'\naction = \"{action}\"\n"
        )
    };
    let trial = Trial::new(&capture, &(rule("evil", "^Evil", "reject") + &rule("odd", "^Odd", "alert")));
    let lines = |flags: &[&str]| -> Vec<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bannerwall"));
        command.args([Path::new("replay"), &trial.path("capture.pcap"), Path::new("--rules")]);
        let output = command.arg(trial.path("rules.toml")).args(flags).output().expect("the program starts");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    };
    let of = |lines: &[String], client: u8| -> Vec<String> {
        let client = format!(" {}:", host(client));
        lines.iter().filter(|line| line.contains(&client)).cloned().collect()
    };
    let enforced = lines(&["--enforce"]);
    let [blocked] = &of(&enforced, 1)[..] else { panic!("{enforced:?}") };
    assert!(blocked.contains(" BLOCKED ") && blocked.contains("SSH-2.0-Evil_1.0"), "{blocked}");
    assert!(blocked.ends_with("would be reset"), "{blocked}");
    let passed = of(&enforced, 2);
    assert!(passed.iter().any(|line| line.contains(" odd: odd (alert only) ")), "{passed:?}");
    let monitored = lines(&[]);
    assert!(of(&monitored, 1).iter().any(|line| line.contains("(would reject)")), "{monitored:?}");
    assert!(monitored.iter().all(|line| !line.contains("(alert only)")), "{monitored:?}");
    let csv = lines(&["--format", "csv"]).join("\n");
    assert!(csv.contains("\"software: \"\"Evil_1.0\"\"\""), "{csv}");
}
