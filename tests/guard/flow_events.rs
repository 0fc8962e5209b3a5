//! Records of flows (`--flow-events`) against those who count the same packets: the kernel's tracking of
//! connections, and tshark.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::{
    Guard, Line, NO_SQLMAP, Nginx, Running, Signal, as_root, end_capture, eventually, json_lines,
};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Packets and octets to the server, then to the client.
type Counts = [u64; 4];

/// The counts of each flow by the client's port.
fn counted(events: &[Value]) -> BTreeMap<u64, Counts> {
    let flows = events.iter().filter(|event| event["event_type"] == "flow");
    let count = |event: &Value, name: &str| event["flow"][name].as_u64().expect("a number");
    let names = ["pkts_toserver", "bytes_toserver", "pkts_toclient", "bytes_toclient"];
    flows
        .map(|event| (event["src_port"].as_u64().expect("a port"), names.map(|name| count(event, name))))
        .collect()
}

/// The same as the kernel counts, in what `conntrack -L` prints.
fn tracked(list: &str) -> BTreeMap<u64, Counts> {
    let mut counts = BTreeMap::new();
    for line in list.lines() {
        let numbers = |name: &str| {
            let words = line.split_whitespace().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            words.filter_map(|number| number.parse().ok()).collect::<Vec<u64>>()
        };
        let (ports, packets, octets) = (numbers("sport"), numbers("packets"), numbers("bytes"));
        let [port, _] = ports[..] else { panic!("no ports: {line}") };
        let ([out, back], [sent, got]) = (&packets[..], &octets[..]) else { panic!("no counters: {line}") };
        counts.insert(port, [*out, *sent, *back, *got]);
    }
    counts
}

/// A server with a page of a mebibyte behind a router that counts.
fn stage() -> (Line, Nginx) {
    let line = Line::new();
    let nginx = Nginx::start(&line.server, 80, "");
    std::fs::write(nginx.root().join("page"), vec![b'x'; 1 << 20]).expect("the folder is ours");
    line.router.set("netfilter/nf_conntrack_acct", "1");
    (line, nginx)
}

fn ask(line: &Line, agent: &str, url: &str) -> bool {
    let mut command = line.client.command("curl");
    command.args(["--silent", "--globoff", "--max-time", "20", "--output", "/dev/null"]);
    command.args(["--user-agent", agent, url]).status().expect("curl starts").success()
}

fn stop(mut guard: Guard) -> Vec<Value> {
    guard.process.signal(Signal::TERM);
    assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
    guard.events()
}

const PAGES: [&str; 2] = ["http://198.51.100.2/page", "http://[2001:db8:2::2]/page"];

/// What the router has tracked once all of it is closed.
fn closed_connections(line: &Line) -> String {
    eventually("the connections to close", || {
        let both: String = ["ipv4", "ipv6"]
            .iter()
            .map(|family| line.router.run(&format!("conntrack -L -p tcp -f {family}")))
            .collect();
        (both.matches("TIME_WAIT").count() == PAGES.len()).then_some(both)
    })
}

#[test]
fn a_guard_that_sees_every_packet_counts_what_the_kernel_counts() {
    as_root(|| {
        let (line, _nginx) = stage();
        let flags = "--hook forward --enforce --flow-events --no-offload --http-inspect first";
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, flags);
        assert!(PAGES.iter().all(|url| ask(&line, "curl/8.0", url)));
        let tracked = tracked(&closed_connections(&line));
        let events = stop(guard);
        assert_eq!(counted(&events), tracked);
        for event in events.iter().filter(|event| event["event_type"] == "flow") {
            assert_eq!(event["flow"]["state"], "closed", "{event}");
            assert_eq!(event["flow"]["action"], "accept", "{event}");
            assert_eq!(event["bannerwall"]["flow"]["counted"], "whole", "{event}");
            assert_eq!(event["app_proto"], "http", "{event}");
            assert!(event["flow"]["bytes_toclient"].as_u64() > Some(1 << 20), "{event}");
            let times = ["start", "end"].map(|name| event["flow"][name].as_str().map(|time| &time[..4]));
            let year = event["timestamp"].as_str().map(|time| &time[..4]);
            assert_eq!(times, [year; 2], "times of the day: {event}");
        }
    });
}

#[test]
fn what_the_kernel_passes_on_and_what_is_blocked_is_counted_until_decided() {
    as_root(|| {
        let (line, _nginx) = stage();
        let flags = "--hook forward --enforce --flow-events --http-inspect first";
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, flags);
        assert!(ask(&line, "curl/8.0", PAGES[0]));
        assert!(!ask(&line, "sqlmap/1.7", PAGES[1]));
        let blocked = eventually("the record of the blocked flow", || {
            guard.events().into_iter().find(|event| event["event_type"] == "flow")
        });
        assert_eq!(blocked["bannerwall"]["flow"]["verdict"], "rejected", "{blocked}");
        assert_eq!(blocked["bannerwall"]["rule"], "no-sqlmap", "{blocked}");
        assert_eq!(blocked["flow"]["action"], "drop", "{blocked}");
        let events = stop(guard);
        let flows: Vec<_> = events.iter().filter(|event| event["event_type"] == "flow").collect();
        assert_eq!(flows.len(), 2, "{flows:?}");
        for event in &flows {
            assert_eq!(event["bannerwall"]["flow"]["counted"], "until decided", "{event}");
        }
        assert_eq!(flows[1]["flow"]["state"], "bypassed", "{:?}", flows[1]);
        assert!(flows[1]["flow"]["bytes_toclient"].as_u64() < Some(1 << 20), "{:?}", flows[1]);
    });
}

/// What tshark counts in a capture, by the client's port: the first of its two in each stream.
fn by_tshark(capture: &Path) -> BTreeMap<u64, Counts> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-Y", "tcp", "-T", "fields"]);
    for field in ["tcp.stream", "tcp.srcport", "ip.len", "ipv6.plen"] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut clients, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [stream, port, four, six] = fields[..] else { panic!("four fields: {line}") };
        let port: u64 = port.parse().expect("a port");
        let octets = match four.parse::<u64>() {
            Ok(length) => length,
            Err(_) => 40 + six.parse::<u64>().expect("an IPv6 packet"),
        };
        let client = *clients.entry(stream.to_owned()).or_insert(port);
        let count: &mut Counts = counts.entry(client).or_default();
        let at = if port == client { 0 } else { 2 };
        count[at] += 1;
        count[at + 1] += octets;
    }
    counts
}

fn replay(capture: &Path, flags: &[&str]) -> Vec<u8> {
    let mut command = Command::new(PROGRAM);
    command.args(["replay", "--flow-events", "--quiet"]).args(flags).arg(capture);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Real connections, as tcpdump records them on the router.
fn record(folder: &Path) -> (PathBuf, BTreeMap<u64, Counts>) {
    let (line, _nginx) = stage();
    let capture = folder.join("capture.pcap");
    // The kernel counts only where something tracks.
    line.router.run("iptables -w -A FORWARD -m conntrack --ctstate ESTABLISHED");
    line.router.run("ip6tables -w -A FORWARD -m conntrack --ctstate ESTABLISHED");
    let mut tcpdump = line.router.command("tcpdump");
    tcpdump
        .args(["-i", "left", "-U", "--immediate-mode", "-B", "65536", "-Z", "root", "-w"])
        .arg(&capture)
        .arg("tcp or udp port 9");
    let tcpdump = Running::start(tcpdump);
    tcpdump.wait_stderr("the capture", |text| text.contains("listening on left").then_some(()));
    assert!(PAGES.iter().all(|url| ask(&line, "curl/8.0", url)));
    let tracked = tracked(&closed_connections(&line));
    end_capture(tcpdump, &capture, &line.client, Ipv4Addr::new(192, 0, 2, 1));
    (capture, tracked)
}

#[test]
fn a_replay_counts_what_tshark_and_the_kernel_count() {
    as_root(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let (capture, tracked) = record(folder.path());
        let ours = counted(&json_lines(&replay(&capture, &["--format", "json"])));
        assert_eq!(ours, by_tshark(&capture));
        assert_eq!(ours, tracked);
        let text = String::from_utf8(replay(&capture, &["--format", "text"])).expect("text");
        let line = text.lines().find(|line| line.contains(" flow ")).expect("a record");
        assert!(line.contains("http closed, undecided") && line.contains("bytes to the client"), "{line}");
        let csv = String::from_utf8(replay(&capture, &["--format", "csv"])).expect("text");
        assert!(csv.lines().any(|line| line.contains(",flow,") && line.contains("counted=whole")), "{csv}");
    });
}

/// Captures of others, where `BANNERWALL_CORPUS` names them: every flow of one connection that begins with
/// its SYN and keeps its ports is counted as tshark counts it.
#[test]
fn flows_of_other_peoples_captures_are_counted_as_tshark_counts_them() {
    let Some(corpus) = std::env::var_os("BANNERWALL_CORPUS") else {
        eprintln!("skipped: BANNERWALL_CORPUS is not set");
        return;
    };
    let folder = Path::new(&corpus).join("pcap/ssh");
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus holds captures of SSH") {
        let capture = entry.expect("it can be read").path();
        let ours = counted(&json_lines(&replay(&capture, &["--format", "json"])));
        let theirs = by_tshark(&capture);
        assert_eq!(ours, theirs, "{}", capture.display());
        compared += ours.len();
    }
    assert!(compared > 0, "there was something to compare");
}
