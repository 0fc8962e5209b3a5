//! `bannerwall replay` as users run it: what it reads, what it says about damage, how it ends.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bannerwall_inspect::packet::TcpFlags;
use bannerwall_inspect::packet::testing::{SegmentBuilder, endpoint};
use bannerwall_test_support::{Banner, Namespace, Running, Signal, as_root, eventually, json_lines};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Octets before the packet of a record: 16 of the record's header.
const RECORD_HEADER: usize = 16;

/// A capture of raw IP packets, a millisecond apart.
fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101]);
    for (number, packet) in (0_u32..).zip(packets) {
        let length = u32::try_from(packet.len()).unwrap();
        file.extend(words(&[1_700_000_000, number * 1000, length, length]));
        file.extend(packet);
    }
    file
}

/// A request for `path` and what its server says, without the handshake.
fn transaction(port: u16, path: &str, answer: &[u8]) -> Vec<Vec<u8>> {
    let (client, server) = (endpoint(&format!("192.0.2.1:{port}")), endpoint("198.51.100.2:80"));
    let request = format!("GET {path} HTTP/1.1\r\nHost: example\r\n\r\n");
    let behind = 1 + u32::try_from(request.len()).unwrap();
    let push = TcpFlags::ACK | TcpFlags::PSH;
    vec![
        SegmentBuilder::new(client, server)
            .flags(push)
            .sequence(1)
            .acknowledgement(1)
            .payload(request.as_bytes())
            .build(),
        SegmentBuilder::new(server, client)
            .flags(push)
            .sequence(1)
            .acknowledgement(behind)
            .payload(answer)
            .build(),
    ]
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: test\r\nContent-Length: 0\r\n\r\n";

/// A folder for captures, and an empty rule file so that nothing but banners is told.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("none.toml"), "").unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, octets: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, octets).unwrap();
        path
    }

    fn command(&self, files: &[&Path], flags: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("replay").args(files).arg("--rules").arg(self.0.path().join("none.toml"));
        command.args(flags.split_whitespace());
        command
    }

    fn run(&self, files: &[&Path], flags: &str) -> Output {
        self.command(files, flags).output().unwrap()
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The targets of the transactions in JSON lines, in order.
fn urls(output: &Output) -> Vec<String> {
    let mut urls = Vec::new();
    for event in json_lines(&output.stdout) {
        if event["event_type"] == "http" {
            urls.push(event["http"]["url"].as_str().unwrap_or_default().to_owned());
        }
    }
    urls
}

fn gzip(octets: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(octets).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn damaged_files_give_what_can_be_read_then_an_error_and_exit_code_2() {
    let folder = Folder::new();
    let packets: Vec<_> = (0..3).flat_map(|n| transaction(40_000 + n, &format!("/{n}"), ANSWER)).collect();
    let whole = pcap(&packets);
    let mut damaged = whole.clone();
    let second = 24 + packets[..2].iter().map(|packet| RECORD_HEADER + packet.len()).sum::<usize>();
    damaged[second + 8..second + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let packed = gzip(&whole);
    let good = folder.file("good.pcap", &pcap(&transaction(50_000, "/good", ANSWER)));
    for (name, octets, expected, complaint) in [
        ("cut.pcap", &whole[..whole.len() - 9], &["/0", "/1", "/2"][..], "is truncated"),
        ("damaged.pcap", &damaged, &["/0"], "offset"),
        ("cut.gz", &packed[..packed.len() - 9], &["/0", "/1", "/2"], "offset"),
        ("empty.pcap", b"", &[], "not a pcap or pcapng file"),
        ("text.pcap", b"what is this, then, if it is no capture?", &[], "not a pcap or pcapng file"),
    ] {
        let file = folder.file(name, octets);
        let output = folder.run(&[&file, &good], "--format json");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        let first = stderr.lines().next().unwrap_or_default();
        assert!(first.contains(name) && first.contains(complaint), "{name}: {stderr}");
        let urls = urls(&output);
        assert_eq!(urls.last().map(String::as_str), Some("/good"), "{name}: the next file is read");
        assert_eq!(urls[..urls.len() - 1], *expected, "{name}: {stderr}");
    }
}

#[test]
fn every_way_to_hand_in_a_capture_gives_the_same_events() {
    let folder = Folder::new();
    let octets = pcap(&transaction(40_000, "/a", ANSWER));
    let plain = folder.file("plain.pcap", &octets);
    let packed = folder.file("packed", &gzip(&octets));
    let expected = folder.run(&[&plain], "--format json -q");
    assert_eq!((expected.status.code(), urls(&expected)), (Some(0), vec!["/a".to_owned()]));
    assert!(expected.stderr.is_empty(), "quiet: {}", text(&expected.stderr));
    assert_eq!(folder.run(&[&packed], "--format json -q").stdout, expected.stdout);
    let piped = folder
        .command(&[Path::new("-")], "--format json -q")
        .stdin(std::fs::File::open(&packed).unwrap())
        .output();
    assert_eq!(piped.unwrap().stdout, expected.stdout);
    let out = folder.0.path().join("out");
    let written = folder.run(&[&plain], &format!("--format json -o {}", out.display()));
    assert!(written.stdout.is_empty());
    assert_eq!(std::fs::read(out).unwrap(), expected.stdout);
    let table = text(&folder.run(&[&plain], "--format csv").stdout);
    assert_eq!(table.lines().count(), 2, "a header and a transaction: {table}");
}

#[test]
fn a_broken_pipe_ends_it_well_and_an_interrupt_with_130() {
    let folder = Folder::new();
    let packets: Vec<_> = (0..20_000).flat_map(|n| transaction(40_000 + n, "/a", ANSWER)).collect();
    let file = folder.file("large.pcap", &pcap(&packets));
    let mut child = folder.command(&[&file], "-q").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Standard input never ends: the interrupt comes while it reads.
    let mut command = folder.command(&[Path::new("-")], "-q");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&std::fs::read(&file).unwrap()).unwrap();
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    // It looks up between frames: some more of them must come.
    let more: Vec<u8> = pcap(&packets)[24..].to_vec();
    while stdin.write_all(&more).is_ok() {}
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A head that no rule is about and that servers read in different ways.
const CROOKED: &[u8] = b"HTTP/1.1 200 OK\r\nServer : test\r\nContent-Length: 0\r\n\r\n";

#[test]
fn the_policy_about_anomalies_is_taken_by_replay() {
    let folder = Folder::new();
    let file = folder.file("crooked.pcap", &pcap(&transaction(40_000, "/a", CROOKED)));
    for (flags, drops) in
        [("--enforce --on-anomaly alert", 0), ("--on-anomaly drop", 0), ("--enforce --on-anomaly drop", 1)]
    {
        let output = folder.run(&[&file], &format!("--format json {flags}"));
        let events = json_lines(&output.stdout);
        let of_kind = |kind: &str| events.iter().filter(|event| event["event_type"] == kind).count();
        assert_eq!((of_kind("anomaly"), of_kind("http")), (1, 1), "{flags}");
        assert_eq!(of_kind("drop"), drops, "{flags}");
    }
}

#[test]
fn the_policy_about_anomalies_is_taken_by_the_guard() {
    as_root(|| {
        for (policy, arrives) in [("alert", true), ("drop", false)] {
            let namespace = Namespace::new();
            let folder = Folder::new();
            let mut command = namespace.command(PROGRAM);
            command.args([
                "guard",
                "--hook",
                "input",
                "--enforce",
                "--on-anomaly",
                policy,
                "--format",
                "json",
                "--rules",
            ]);
            let mut guard = Running::start({
                command.arg(folder.file("none.toml", b""));
                command
            });
            guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
            let server = Banner::start(&namespace, ([127, 0, 0, 1], 0), CROOKED, 1000);
            let mut client: TcpStream = namespace.connect(server.address).expect("it listens");
            client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("it is connected");
            guard.wait_stdout("the anomaly", |text| text.contains("http_space_before_colon").then_some(()));
            if arrives {
                let mut received = vec![0; CROOKED.len()];
                std::io::Read::read_exact(&mut client, &mut received).expect("the head arrives");
            } else {
                guard.wait_stdout("the drop", |text| text.contains("\"event_type\":\"drop\"").then_some(()));
                client.set_nonblocking(true).expect("a socket");
                let mut received = [0; 1];
                assert!(std::io::Read::read(&mut client, &mut received).is_err(), "nothing arrives");
            }
            drop(client);
            guard.signal(Signal::TERM);
            eventually("its end", || guard.has_exited().then_some(()));
        }
    });
}

#[test]
fn a_replay_holds_itself_to_its_files_and_keeps_no_capability() {
    let folder = Folder::new();
    let mut command = Command::new(PROGRAM);
    command.args(["replay", "-", "--no-local", "--rules"]).arg(folder.0.path().join("none.toml"));
    command
        .args(["--output"])
        .arg(folder.0.path().join("out"))
        .args(["--learn"])
        .arg(folder.0.path().join("learned"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut replay = command.spawn().unwrap();
    let mut capture = replay.stdin.take().unwrap();
    capture.write_all(&pcap(&transaction(4000, "/", ANSWER))).unwrap();
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().to_owned()
    };
    // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH read captures of other users, CAP_FOWNER replaces the file of
    // `--learn` in a sticky folder; nothing else is left.
    let files = 0b1110_u64;
    eventually("every thread to be held", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", replay.id())).unwrap();
        let statuses: Vec<String> = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
            .collect();
        let held = |status: &String| {
            let capabilities = u64::from_str_radix(&field(status, "CapPrm:"), 16).unwrap_or(u64::MAX);
            (field(status, "Seccomp:"), field(status, "NoNewPrivs:")) == ("2".to_owned(), "1".to_owned())
                && capabilities & !files == 0
        };
        (statuses.len() > 1 && statuses.iter().all(held)).then_some(())
    });
    drop(capture);
    let output = replay.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(folder.0.path().join("out")).unwrap().contains("GET"));
    assert!(std::fs::read_to_string(folder.0.path().join("learned")).unwrap().contains("[[policy]]"));
    // A pipe without a path is no reason to be confined less.
    let piped = format!("{PROGRAM} replay --no-local --rules none.toml <(cat piped.pcap) -o /dev/stderr");
    std::fs::write(folder.0.path().join("piped.pcap"), pcap(&transaction(4000, "/piped", ANSWER))).unwrap();
    let output = Command::new("bash").args(["-c", &piped]).current_dir(folder.0.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("/piped") && !told.contains("confined"), "{told}");
    let output = Command::new(PROGRAM).args(["replay", "--no-sandbox", "/no/such/file"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("could open every file"), "{output:?}");
}
