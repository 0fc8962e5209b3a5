//! One truth on every path: the same octets lead to the same matches in the live guard, in the replay
//! of what tcpdump recorded beside it, and in the scan whose connections both of them saw.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::{
    Namespace, PATIENT, Running, Signal, as_root, end_capture, eventually, json_lines, send_in_chunks,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Rules about what the shipped packs have none about: the scan's own side, and what follows an SSH banner.
const MORE_RULES: &str = r#"
[[rule]]
id = "any-ssh-client"
title = "A client"
protocol = "ssh"
from = "client"
match.software = '.'
action = "alert"
examples = ["SSH-2.0-x"]
counterexamples = ["SSH-2.0-"]

[[rule]]
id = "old-key-exchange"
title = "A key exchange of old"
protocol = "ssh"
from = "server"
match.kex = 'group1-sha1'
action = "alert"
examples = [{ banner = "SSH-2.0-x", kex = "diffie-hellman-group1-sha1" }]
counterexamples = [{ banner = "SSH-2.0-x", kex = "curve25519-sha256" }]

[[rule]]
id = "any-get"
title = "A request"
protocol = "http"
from = "client"
match.method = '^GET$'
action = "alert"
examples = ["GET / HTTP/1.1\r\nHost: a\r\n\r\n"]
counterexamples = ["HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"]
"#;

/// What SSH servers say before anything is asked, and how many octets they send at a time.
const SSH: [(&str, usize); 7] = [
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.1\r\n", 1000),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", 1),
    ("SSH-1.99-OpenSSH_3.9p1\n", 1000),
    ("SSH-2.0-dropbear_2019.77\r\n", 7),
    ("SSH-1.5-Cisco-1.25\n", 1000),
    ("Lines of text\r\nmay come first\r\nSSH-2.0-libssh_0.8.1\r\n", 5),
    ("SSH-2.0-\u{fc}ber secret \u{7f}\r\n", 3),
];

/// What HTTP servers answer to `GET /`; to anything else they know nothing.
const HTTP: [(&str, usize); 6] = [
    ("HTTP/1.1 200 OK\r\nServer: Apache/2.2.8 (Ubuntu) PHP/5.2.4\r\nContent-Length: 5\r\n\r\nhello", 1000),
    ("HTTP/1.1 200 OK\r\nServer: nginx/1.14.0\r\nX-Powered-By: PHP/5.6.40\r\nContent-Length: 0\r\n\r\n", 3),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: Microsoft-IIS/6.0\r\n\r\n\
         1f\r\n<title>Index of /backup</title>\r\n\r\n0\r\n\r\n",
        11,
    ),
    (
        "HTTP/1.1 401 No\nServer : GoAhead-Webs\nWWW-Authenticate: Basic realm=\"x\"\nContent-Length: 0\n\n",
        1000,
    ),
    ("HTTP/1.1 200 OK\r\nX: folded\r\n value\r\nServer: lighttpd/1.4.35\r\nContent-Length: 0\r\n\r\n", 1),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /login\r\nServer: Jetty(6.1.26)\r\nContent-Length: 0\r\n\r\n",
        9,
    ),
];

/// The answer where a server knows nothing.
const UNKNOWN: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// A KEXINIT with algorithms that rules are about.
fn kexinit() -> Vec<u8> {
    let list = |names: &str| [&u32::try_from(names.len()).unwrap().to_be_bytes(), names.as_bytes()].concat();
    let mut payload = [vec![20], vec![7; 16]].concat();
    for names in ["diffie-hellman-group1-sha1", "ssh-dss", "3des-cbc", "3des-cbc"] {
        payload.extend(list(names));
    }
    for names in ["hmac-md5", "hmac-md5", "none", "none", "", ""] {
        payload.extend(list(names));
    }
    payload.extend([0; 5]);
    let padding = 8 - (payload.len() + 5) % 8 + 8;
    let length = u32::try_from(payload.len() + padding + 1).unwrap();
    [&length.to_be_bytes()[..], &[u8::try_from(padding).unwrap()], &payload, &vec![0; padding]].concat()
}

/// Serves every connection to a free port of the namespace's loopback; gives the port.
fn serve(namespace: &Namespace, serve: impl Fn(TcpStream) + Send + Copy + 'static) -> u16 {
    let listener: TcpListener = namespace.listen((Ipv4Addr::LOCALHOST, 0));
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Says a banner and a KEXINIT, then listens to the end.
fn speak_ssh(mut stream: TcpStream, banner: &str, chunk: usize) {
    // The scan resets the connection once it has seen enough.
    let _ = send_in_chunks(&mut stream, &[banner.as_bytes(), &kexinit()].concat(), chunk);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Answers requests, also pipelined ones, until the end.
fn speak_http(mut stream: TcpStream, page: &str, chunk: usize) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        received.extend_from_slice(&buffer[..count]);
        while let Some(end) = received.windows(4).position(|octets| octets == b"\r\n\r\n") {
            let request: Vec<u8> = received.drain(..end + 4).collect();
            let answer = if request.starts_with(b"GET / ") { page } else { UNKNOWN };
            if send_in_chunks(&mut stream, answer.as_bytes(), chunk).is_err() {
                return;
            }
        }
    }
}

/// A namespace with servers in it, and files that all three paths are given.
struct Stage {
    namespace: Namespace,
    folder: tempfile::TempDir,
    ssh: Vec<u16>,
    http: Vec<u16>,
}

impl Stage {
    fn new() -> Self {
        let namespace = Namespace::new();
        let ssh = SSH.iter().map(|(banner, chunk)| serve(&namespace, |it| speak_ssh(it, banner, *chunk)));
        let ssh = ssh.collect();
        let http = HTTP.iter().map(|(page, chunk)| serve(&namespace, |it| speak_http(it, page, *chunk)));
        let http = http.collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("more.toml"), MORE_RULES).unwrap();
        Self { namespace, folder, ssh, http }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program inside, with the rules and fingerprints that are the same for all.
    fn command(&self, words: &str) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = self.namespace.command(PROGRAM);
        command.args(words.split_whitespace()).args(["--format", "json", "--rules"]).arg(root.join("rules"));
        command.arg("--rules").arg(self.file("more.toml"));
        command.arg("--fingerprints").arg(root.join("tests/fixtures/fingerprints.toml"));
        command
    }

    /// Runs the program to its end; gives its events.
    fn run(&self, words: &str) -> Vec<Value> {
        let output = self.command(words).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words}: {stderr}");
        json_lines(&output.stdout)
    }

    fn scan(&self, protocol: &str, ports: &[u16]) -> Vec<Value> {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        self.run(&format!("scan {protocol} 127.0.0.1 -p {} --close fin {PATIENT}", ports.join(",")))
    }
}

/// A match: the server's port, the rule, who sent the banner, what it was, product and version.
type Match = (u64, String, String, String, String, String);

/// How often each match is told.
fn matches(events: &[Value]) -> BTreeMap<Match, usize> {
    let mut matches = BTreeMap::new();
    for event in events.iter().filter(|event| event["event_type"] == "alert") {
        let own = &event["bannerwall"];
        let text = |name: &str| own[name].as_str().unwrap_or_default().to_owned();
        let from_server = own["from"] == "server";
        // An alert's source is who sent the banner.
        let port = if from_server { &event["src_port"] } else { &event["dest_port"] };
        let port = port.as_u64().expect("a port");
        let found = (port, text("rule"), text("from"), text("banner"), text("product"), text("version"));
        *matches.entry(found).or_default() += 1;
    }
    matches
}

/// What both sides said: ssh and http events without times and addresses.
fn banners(events: &[Value]) -> BTreeMap<String, usize> {
    let mut banners = BTreeMap::new();
    for event in events {
        for kind in ["ssh", "http"] {
            if event["event_type"] == kind {
                *banners.entry(format!("{} {}", event["dest_port"], event[kind])).or_default() += 1;
            }
        }
    }
    banners
}

/// Asserts that two readings are the same; says only where they differ.
fn assert_same<K: Ord + std::fmt::Debug>(what: &str, one: &BTreeMap<K, usize>, other: &BTreeMap<K, usize>) {
    let only = |one: &BTreeMap<K, usize>, other: &BTreeMap<K, usize>| -> Vec<String> {
        let differs = one.iter().filter(|(key, count)| other.get(key) != Some(count));
        differs.map(|(key, count)| format!("{count} times {key:?}")).collect()
    };
    let (first, second) = (only(one, other), only(other, one));
    assert!(first.is_empty() && second.is_empty(), "{what}: {first:#?} against {second:#?}");
}

fn from_servers(matches: &BTreeMap<Match, usize>) -> Vec<&Match> {
    matches.keys().filter(|found| found.2 == "server").collect()
}

#[test]
fn guard_replay_and_scan_find_the_same_matches() {
    as_root(|| {
        for backend in ["libnetfilter_queue", "nfq"] {
            let stage = Stage::new();
            let capture = stage.file("capture.pcap");
            let mut guard = Running::start(
                stage.command(&format!("guard --backend {backend} --hook input --http-inspect all")),
            );
            guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
            let mut tcpdump = stage.namespace.command("tcpdump");
            tcpdump
                .args(["-i", "lo", "-U", "--immediate-mode", "-s", "4096", "-B", "32768", "-w"])
                .arg(&capture);
            let tcpdump = Running::start(tcpdump);
            tcpdump.wait_stderr("the capture", |text| text.contains("listening on lo").then_some(()));

            let mut scanned = stage.scan("ssh", &stage.ssh);
            scanned.extend(stage.scan("http", &stage.http));

            // Both ends of every connection are closed before the recorders stop.
            eventually("the end of every connection", || {
                let sockets = stage.namespace.run("ss -Htn state established");
                sockets.is_empty().then_some(())
            });
            let told = end_capture(tcpdump, &capture, &stage.namespace, Ipv4Addr::LOCALHOST);
            assert!(told.contains("0 packets dropped by kernel"), "{told}");
            guard.signal(Signal::TERM);
            assert!(guard.wait_exit().success(), "{}", guard.stderr());

            let live = json_lines(guard.stdout().as_bytes());
            let replayed = stage.run(&format!("replay {}", capture.display()));
            assert_same(&format!("events of {backend}"), &banners(&live), &banners(&replayed));
            let (guarded, replayed) = (matches(&live), matches(&replayed));
            assert_same(&format!("matches of {backend}"), &guarded, &replayed);
            let scanned = matches(&scanned);
            assert_eq!(from_servers(&scanned), from_servers(&replayed), "{backend}");
            for port in stage.ssh.iter().chain(&stage.http) {
                let of_port = |found: &&Match| found.0 == u64::from(*port);
                assert!(guarded.keys().any(|found| of_port(&found)), "nothing about port {port}");
            }
        }
    });
}
