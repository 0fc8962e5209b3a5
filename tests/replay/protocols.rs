//! Every protocol of the house through rules, events, every output and metrics, by scan, replay and guard: a
//! place that a new one was forgotten in fails here.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bannerwall_inspect::packet::TcpFlags;
use bannerwall_inspect::packet::testing::{SegmentBuilder, endpoint};
use bannerwall_inspect::terms::{GreetingDialect, Protocol};
use bannerwall_test_support::{Guard, Namespace, as_root, eventually, hello, json_lines};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// One talk in a protocol.
struct Talk {
    protocol: Protocol,
    /// What a client says first; empty where it waits.
    question: Vec<u8>,
    /// What a server says, as soon as it was asked.
    answer: Vec<u8>,
    /// What a rule asks of that.
    condition: &'static str,
    /// How it is scanned for, where it is.
    probe: Option<Vec<&'static str>>,
}

impl Talk {
    fn all() -> impl Iterator<Item = Self> {
        // What is not read is asked for by no scan.
        Protocol::all().filter(|protocol| *protocol != Protocol::Other).map(Self::of)
    }

    fn of(protocol: Protocol) -> Self {
        let text = "match.text = '^Evil (?<version>[\\d.]+)'";
        let (question, answer, condition, probe) = match protocol {
            Protocol::Ssh => (
                b"SSH-2.0-client\r\n".to_vec(),
                b"SSH-2.0-Evil_1.2.3\r\n".to_vec(),
                "match.software = '^Evil_(?<version>[\\d.]+)'",
                Some(vec!["ssh"]),
            ),
            Protocol::Http => (
                b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
                b"HTTP/1.1 200 OK\r\nServer: Evil/1.2.3\r\nContent-Length: 0\r\n\r\n".to_vec(),
                "match.\"header.server\" = '^Evil/(?<version>[\\d.]+)'",
                Some(vec!["http"]),
            ),
            Protocol::Tls => (
                hello::records(&hello::client_hello("example.org", 0), 1 << 14),
                hello::records(&hello::server_hello(0xc02f, "Evil/1.2.3"), 1 << 14),
                "match.alpn = '^Evil/(?<version>[\\d.]+)'",
                None,
            ),
            Protocol::Other => unreachable!("left out above"),
            Protocol::Greeting(greeting) => {
                let opening = greeting.openings().first().expect("an opening");
                let last = match greeting.dialect() {
                    GreetingDialect::Code | GreetingDialect::Status | GreetingDialect::Untagged => {
                        "Evil 1.2.3"
                    }
                };
                let answer = format!("{opening} {last} {} ready\r\n", greeting.name());
                let probe = vec!["greeting", "--protocol", greeting.name()];
                (Vec::new(), answer.into_bytes(), text, Some(probe))
            }
        };
        Self { protocol, question, answer, condition, probe }
    }

    fn name(&self) -> &'static str {
        self.protocol.name()
    }

    fn rule(&self) -> String {
        let (name, condition) = (self.name(), self.condition);
        format!(
            "[[rule]]\nid = \"evil-{name}\"\ntitle = \"Evil\"\nprotocol = \"{name}\"\nfrom = \"server\"\n\
             action = \"alert\"\n{condition}\nversion = \"<2\"\n"
        )
    }

    /// Serves every connection of a listener.
    fn serve(&self, listener: TcpListener) {
        let (asked, answer) = (self.question.len(), self.answer.clone());
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                // A client that has seen enough resets the connection.
                let mut question = vec![0; asked.min(1)];
                let _ = connection.read_exact(&mut question);
                let _ = connection.write_all(&answer);
                let _ = std::io::copy(&mut connection, &mut std::io::sink());
            }
        });
    }

    /// The talk as a capture of raw IP packets, a millisecond apart.
    fn capture(&self) -> Vec<u8> {
        let (client, server) = (endpoint("192.0.2.1:40000"), endpoint("198.51.100.2:999"));
        let question = self.question.as_slice();
        let asked = 100 + u32::try_from(question.len()).expect("a short one");
        let up = || SegmentBuilder::new(client, server);
        let down = || SegmentBuilder::new(server, client).acknowledgement(asked);
        let mut packets = vec![
            up().flags(TcpFlags::SYN).sequence(99).build(),
            down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(499).acknowledgement(100).build(),
            up().sequence(100).acknowledgement(500).build(),
        ];
        if !question.is_empty() {
            packets.push(up().sequence(100).acknowledgement(500).payload(question).build());
        }
        packets.push(down().sequence(500).payload(&self.answer).build());
        let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101]);
        for (number, packet) in (0_u32..).zip(&packets) {
            let length = u32::try_from(packet.len()).expect("a short one");
            file.extend(words(&[1_700_000_000, number * 1000, length, length]));
            file.extend(packet);
        }
        file
    }

    /// Holds that events tell of it under its name, and of the rule about it.
    fn is_told_by(&self, events: &[serde_json::Value], path: &str) {
        let name = self.name();
        let said = events.iter().any(|event| event["event_type"] == name && event["app_proto"] == name);
        assert!(said, "{path}, {name}: {events:?}");
        let is_alert =
            |event: &&serde_json::Value| event["event_type"] == "alert" && event["app_proto"] == name;
        let alert = events.iter().find(is_alert).unwrap_or_else(|| panic!("{path}, {name}: {events:?}"));
        let own = &alert["bannerwall"];
        assert_eq!(
            (&own["rule"], &own["version"]),
            (&format!("evil-{name}").into(), &"1.2.3".into()),
            "{path}"
        );
    }
}

fn rule_file(folder: &Path, talk: &Talk) -> PathBuf {
    let rules = folder.join("rules.toml");
    std::fs::write(&rules, talk.rule()).expect("the folder is ours");
    rules
}

fn run(words: &[&str], rules: &Path, format: &str) -> Output {
    let output =
        Command::new(PROGRAM).args(words).arg("--rules").arg(rules).args(["--format", format]).output();
    let output = output.expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn holds(words: &[&str], rules: &Path, expected: &[(&str, String)]) {
    for (format, expected) in expected {
        let text = String::from_utf8_lossy(&run(words, rules, format).stdout).into_owned();
        assert!(text.contains(expected), "{words:?} {format}: {expected} is not in {text}");
    }
}

#[test]
fn each_protocol_is_scanned_judged_and_told_in_every_format() {
    for talk in Talk::all() {
        let Some(probe) = &talk.probe else { continue };
        let folder = tempfile::tempdir().expect("a folder");
        let rules = rule_file(folder.path(), &talk);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port().to_string();
        talk.serve(listener);
        let mut words = vec!["scan"];
        words.extend(probe);
        words.extend(["127.0.0.1", "-p", &port]);
        talk.is_told_by(&json_lines(&run(&words, &rules, "json").stdout), "scan");
        let name = talk.name();
        let expected = [
            ("text", format!("evil-{name}: Evil")),
            ("csv", format!(",{name},")),
            ("xml", format!("<service name=\"{name}\"")),
            ("grepable", format!("{port}/open/tcp//{name}//")),
        ];
        holds(&words, &rules, &expected);
    }
}

#[test]
fn each_protocol_is_replayed_judged_and_told_in_every_format() {
    for talk in Talk::all() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = rule_file(folder.path(), &talk);
        let file = folder.path().join("talk.pcap");
        std::fs::write(&file, talk.capture()).expect("the folder is ours");
        let words = ["replay", file.to_str().expect("a name in UTF-8")];
        talk.is_told_by(&json_lines(&run(&words, &rules, "json").stdout), "replay");
        let name = talk.name();
        holds(&words, &rules, &[("text", format!("evil-{name}: Evil")), ("csv", format!(",{name},"))]);
    }
}

#[test]
fn each_protocol_is_guarded_judged_told_and_counted() {
    as_root(|| {
        let network = Namespace::new();
        let rules: String = Talk::all().map(|talk| talk.rule()).collect();
        let flags = "--hook output --ports 20000-20099 --metrics 127.0.0.1:9464";
        let guard = Guard::start(&network, PROGRAM, &rules, flags);
        for (port, talk) in (20_000..).zip(Talk::all()) {
            talk.serve(network.listen(([127, 0, 0, 1], port)));
            let mut client: TcpStream = network.connect(([127, 0, 0, 1], port)).expect("it listens");
            client.write_all(&talk.question).expect("it is read");
            let mut answer = vec![0; talk.answer.len()];
            client.read_exact(&mut answer).expect("nothing is blocked");
            assert_eq!(answer, talk.answer);
        }
        let count = |talk: &Talk| {
            let name = talk.name();
            [
                format!("bannerwall_banners_total{{from=\"server\",protocol=\"{name}\"}} 1\n"),
                format!("bannerwall_rule_matches_total{{action=\"alert\",rule=\"evil-{name}\"}} 1\n"),
            ]
        };
        let lines: Vec<String> = Talk::all().flat_map(|talk| count(&talk)).collect();
        eventually("every banner and match in the metrics", || {
            let text = network.run("curl -sS http://127.0.0.1:9464/metrics");
            lines.iter().all(|line| text.contains(line)).then_some(())
        });
        eventually("the events of all", || {
            let events = guard.events();
            let alerts = events.iter().filter(|event| event["event_type"] == "alert").count();
            (alerts == Talk::all().count()).then_some(())
        });
        let mut guard = guard;
        guard.process.signal(bannerwall_test_support::Signal::TERM);
        guard.process.wait_exit();
        let events = guard.events();
        Talk::all().for_each(|talk| talk.is_told_by(&events, "guard"));
        let stats = events.iter().rfind(|event| event["event_type"] == "stats").expect("a last account");
        for talk in Talk::all() {
            let banners = &stats["bannerwall"]["stats"]["banners"][talk.name()];
            assert!(banners.as_u64().is_some_and(|count| count > 0), "{}: {stats}", talk.name());
        }
    });
}
