//! A guard goes on in another one's place under load, by a takeover and by a service manager's store of
//! descriptors: no connection notices, nothing forbidden passes, counters go on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bannerwall_test_support::{
    Guard, NO_SQLMAP, Namespace, Nginx, Running, Signal, as_root, eventually, forbids,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);
/// Far longer than any takeover; TCP sends again after 200 ms, 400 ms and so on.
const ANSWER: Duration = Duration::from_secs(30);
const FLAGS: &str = "--hook input --ports 8080 --enforce --on-failure closed --hook-keep --metrics 127.0.0.1:9464 \
                     --queue 0:1 --max-wait off";

fn request(agent: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUser-Agent: {agent}\r\n\r\n")
}

/// Where a client is: the kernel remembers what was blocked by addresses and ports for ten seconds, so that
/// who is allowed has an address of his own.
#[derive(Debug, Clone, Copy)]
struct Client([u8; 4]);

const ALLOWED: Client = Client([127, 0, 0, 2]);
const FORBIDDEN: Client = Client([127, 0, 0, 3]);

/// A connection of which a first part is sent.
struct Talk(TcpStream);

impl Talk {
    fn begin(network: &Namespace, from: Client, part: &str) -> std::io::Result<Self> {
        network.inside(|| Self::here(from, part))
    }

    /// From this thread's own network.
    fn here(from: Client, part: &str) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from.0, 0)).into())?;
        socket.connect(&SocketAddr::from(SERVER).into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(part.as_bytes())?;
        Ok(Self(stream))
    }

    /// Sends the rest; whether the page comes, or how the connection ended.
    fn end(mut self, rest: &str) -> std::io::Result<bool> {
        self.0.write_all(rest.as_bytes())?;
        let mut answer = Vec::new();
        let ended = self.0.read_to_end(&mut answer);
        let served = answer.starts_with(b"HTTP/1.1 200");
        if served { Ok(true) } else { ended.map(|_| false) }
    }
}

/// What became of connections that are made all the time.
#[derive(Debug, Default)]
struct Tally {
    served: AtomicU64,
    /// Milliseconds that one of them took at most.
    longest: AtomicU64,
    blocked: AtomicU64,
    failed: Mutex<Vec<String>>,
    passed: AtomicU64,
}

/// Runs `work` while connections are made, allowed and forbidden ones.
fn under_load<R>(network: &Namespace, work: impl FnOnce() -> R) -> (R, Tally) {
    let (over, tally) = (AtomicBool::new(false), Tally::default());
    let allowed = || {
        while !over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match Talk::here(ALLOWED, "").and_then(|talk| talk.end(&request("curl/8.0"))) {
                Ok(true) => {
                    tally.served.fetch_add(1, Ordering::Relaxed);
                    let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                    tally.longest.fetch_max(took, Ordering::Relaxed);
                }
                other => tally.failed.lock().unwrap().push(format!("{other:?}")),
            }
        }
    };
    let forbidden = || {
        while !over.load(Ordering::Relaxed) {
            let whole = request("sqlmap/1.7");
            let (first, rest) = whole.split_at(whole.len() - 9);
            let talk = Talk::here(FORBIDDEN, first);
            std::thread::sleep(Duration::from_millis(5));
            match talk.and_then(|talk| talk.end(rest)) {
                Ok(true) => _ = tally.passed.fetch_add(1, Ordering::Relaxed),
                _ => _ = tally.blocked.fetch_add(1, Ordering::Relaxed),
            }
        }
    };
    let done = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| network.inside(allowed));
            scope.spawn(|| network.inside(forbidden));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        done
    });
    (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), tally)
}

impl Tally {
    fn assert_uncut(&self) {
        let failed = self.failed.lock().unwrap();
        assert!(failed.is_empty(), "{} of {self:?}", failed.len());
        assert_eq!(self.passed.load(Ordering::Relaxed), 0, "{self:?}");
        assert!(self.served.load(Ordering::Relaxed) >= 100, "{self:?}");
        assert!(self.blocked.load(Ordering::Relaxed) >= 20, "{self:?}");
    }
}

/// All counters, by their series.
fn counters(network: &Namespace) -> BTreeMap<String, f64> {
    let text = eventually("metrics", || {
        let output = network.output("curl --silent --max-time 10 http://127.0.0.1:9464/metrics");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    });
    let lines = text.lines().filter(|line| line.starts_with("bannerwall_"));
    let series = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let counts = name.split('{').next()?;
        let counts = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| counts.ends_with(end));
        counts.then(|| Some((name.to_owned(), value.parse().ok()?)))?
    });
    series.collect()
}

/// No counter is smaller than it was, and none is missing.
fn assert_goes_on(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) {
    for (series, value) in before {
        // It is absent as long as the hook was not looked at.
        if series.starts_with("bannerwall_uninspected") && !after.contains_key(series) {
            continue;
        }
        let now = after.get(series).unwrap_or_else(|| panic!("{series} is gone"));
        assert!(now >= value, "{series}: {value}, then {now}");
    }
}

/// Whether a client of this name gets the page, each from an address of its own.
fn is_served(network: &Namespace, agent: &str) -> bool {
    let from = Client([127, 0, 1, agent.len().to_le_bytes()[0]]);
    Talk::begin(network, from, "").and_then(|talk| talk.end(&request(agent))).unwrap_or(false)
}

fn assert_ended_well(guard: &mut Guard) {
    assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
}

/// A network with a web server, and a place where guards take over from each other.
struct Stage {
    _nginx: Nginx,
    network: Namespace,
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let network = Namespace::new();
        let folder = TempDir::new().expect("a temporary folder");
        Self { _nginx: Nginx::start(&network, 8080, ""), network, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("next.sock")
    }

    fn flags(&self) -> String {
        format!("{FLAGS} --takeover {}", self.socket().display())
    }

    fn guard(&self, rules: &str) -> Guard {
        Guard::start(&self.network, PROGRAM, rules, &self.flags())
    }
}

#[test]
fn ten_takeovers_under_load_cut_nothing_and_let_nothing_by() {
    as_root(|| {
        let stage = Stage::new();
        let network = &stage.network;
        let mut guard = stage.guard(NO_SQLMAP);
        let start = Instant::now();
        let ((), tally) = under_load(network, || {
            for round in 0..10 {
                let sqlmap = request("sqlmap/1.7");
                let (first, rest) = sqlmap.split_at(sqlmap.len() - 9);
                let forbidden = Talk::begin(network, FORBIDDEN, first).expect("a connection");
                let allowed = Talk::begin(network, ALLOWED, "GET / HTTP/1.1\r\nHos").expect("a connection");
                let before = counters(network);
                let next = stage.guard(NO_SQLMAP);
                let mut old = std::mem::replace(&mut guard, next);
                assert_ended_well(&mut old);
                assert!(!forbidden.end(rest).unwrap_or(false), "{round}: half of it was sent before");
                let rest = "t: a\r\nConnection: close\r\nUser-Agent: curl/8.0\r\n\r\n";
                assert!(allowed.end(rest).expect("it is served"), "{round}");
                let after = counters(network);
                assert_goes_on(&before, &after);
                let taken = after["bannerwall_takeovers_total{result=\"success\"}"];
                assert!((taken - f64::from(round + 1)).abs() < 0.5, "{taken}");
            }
        });
        let took = start.elapsed();
        eprintln!("ten takeovers in {took:?}: {tally:?}");
        tally.assert_uncut();
        let uninspected = eventually("the accounts", || {
            counters(network).get("bannerwall_uninspected_packets_total").copied()
        });
        // Rule and queue are read one after the other: packets that a busy machine holds between the two,
        // once in a while, count as ones that went by, though under `closed` none can. Accounts that do not
        // go on count thousands.
        assert!(uninspected < 64.5, "{uninspected} packets of thousands went by");
        guard.process.signal(Signal::TERM);
        assert_ended_well(&mut guard);
        assert!(!stage.socket().exists());
        assert!(network.run("iptables-save -t mangle").contains("BANNERWALL"), "it is kept");
    });
}

#[test]
fn a_guard_that_is_not_fit_leaves_the_one_that_runs_as_it_is() {
    as_root(|| {
        let stage = Stage::new();
        let (network, socket) = (&stage.network, stage.socket());
        let mut guard = stage.guard(NO_SQLMAP);
        let mode = std::fs::metadata(&socket).expect("it listens").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let is_served = |agent: &str| is_served(network, agent);
        let bad = stage.folder.path().join("bad.toml");
        std::fs::write(&bad, "[[rule]]\nid = \"half").expect("the folder is ours");
        let good = stage.folder.path().join("good.toml");
        std::fs::write(&good, forbids("curl")).expect("the folder is ours");
        for (rules, queues, more, said) in [
            (&bad, "0:1", "", "bad.toml"),
            (&good, "0:1", "--mark 20", "other bits of the mark"),
            (&good, "0:2", "", "serves queue 0:1, not 0:2"),
            (&good, "0:1", "--events /nowhere/at/all", "/nowhere/at/all"),
            (&good, "0:1", "--backend nfq", "--backend nfq"),
        ] {
            let mut command = network.command(PROGRAM);
            command.arg("guard").arg("--rules").arg(rules);
            let own = stage.flags().replace("--queue 0:1", &format!("--queue {queues}"));
            command.args(own.split_whitespace()).args(more.split_whitespace());
            let mut other = Running::start(command);
            let code = other.wait_exit().code();
            assert_eq!(code, Some(2), "{more}: {}", other.stderr());
            assert!(other.stderr().contains(said), "{more}: {}", other.stderr());
            assert!(is_served("curl/8.0") && !is_served("sqlmap/1.7"), "{more}");
        }
        assert!(!guard.process.has_exited());
        // Somebody who says nothing keeps nobody out for ever, and is no reason to end.
        let silent = UnixStream::connect(&socket).expect("it listens");
        let next = stage.guard(&forbids("curl/8.0"));
        assert_ended_well(&mut guard);
        drop(silent);
        assert!(!is_served("curl/8.0") && is_served("sqlmap/1.7"), "the new rules are in force");
        assert!(next.process.stderr().contains("took over from"), "{}", next.process.stderr());
    });
}

#[test]
fn new_rules_stop_what_was_half_said_to_the_old_ones_and_tell_it() {
    as_root(|| {
        let stage = Stage::new();
        let network = &stage.network;
        let flags = format!("{} --no-offload --flow-events", stage.flags());
        let mut guard = Guard::start(network, PROGRAM, &forbids("other"), &flags);
        let mut half =
            Talk::begin(network, FORBIDDEN, "GET / HTTP/1.1\r\nUser-Agent: nosy\r\n").expect("a connection");
        let port = half.0.local_addr().expect("it is connected").port();
        let blocked = Talk::begin(network, FORBIDDEN, "").expect("a connection");
        let mut reader = blocked.0.try_clone().expect("a descriptor");
        assert!(!blocked.end(&request("other")).unwrap_or(false));
        let mut next = Guard::start(network, PROGRAM, &forbids("nosy"), &flags);
        assert_ended_well(&mut guard);
        // Nobody has to say more for it.
        let ended = half.0.read(&mut [0; 9]).expect_err("it is reset");
        assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset, "{ended}");
        assert!(!half.end("Host: a\r\nConnection: close\r\n\r\n").unwrap_or(false));
        assert!(reader.read(&mut [0; 9]).map_or(true, |octets| octets == 0), "it stays blocked");
        let is = |series: &str, count: f64| {
            counters(network).get(series).is_some_and(|it| (it - count).abs() < 0.5)
        };
        eventually("what the new rules stop is counted beside what the old ones did", || {
            let matches = is("bannerwall_rule_matches_total{action=\"reject\",rule=\"no-nosy\"}", 1.0);
            let blocked = is("bannerwall_flows_blocked_total{action=\"reject\"}", 2.0);
            (matches && blocked && is("bannerwall_resets_total{result=\"sent\"}", 4.0)).then_some(())
        });
        next.process.signal(Signal::TERM);
        assert_ended_well(&mut next);
        let told = |guard: &Guard, kind: &str, rule: &str| {
            let events = guard.events();
            events.iter().filter(|it| it["event_type"] == kind && it.to_string().contains(rule)).count()
        };
        assert_eq!((told(&guard, "alert", "no-other"), told(&next, "alert", "no-other")), (1, 0));
        assert_eq!((told(&guard, "alert", "no-nosy"), told(&next, "alert", "no-nosy")), (0, 1));
        assert_eq!((told(&guard, "drop", "no-nosy"), told(&next, "drop", "no-nosy")), (0, 1));
        let records = |guard: &Guard| {
            let events = guard.events();
            let mut records = events.iter().filter(|it| it["event_type"] == "flow" && it["src_port"] == port);
            (records.next().map(|it| it["bannerwall"]["flow"]["verdict"].clone()), records.count())
        };
        assert_eq!((records(&guard), records(&next)), ((None, 0), (Some("rejected".into()), 0)));
    });
}

#[test]
fn link_local_ends_of_what_new_rules_reject_are_reset_by_their_interface() {
    as_root(|| {
        let (client, server) = (Namespace::new(), Namespace::new());
        client.run(&format!("ip link add eth0 type veth peer name eth0 netns {}", server.id()));
        // Another network with link-local addresses: without the interface the way could be to that.
        server.run("ip link add other type veth peer name unused");
        for link in ["other", "unused"] {
            server.run(&format!("ip link set {link} up"));
        }
        server.run("ip address add fe80::3/64 dev other nodad");
        for (end, address) in [(&client, "fe80::1"), (&server, "fe80::2")] {
            end.run("ip link set eth0 up");
            end.run(&format!("ip address add {address}/64 dev eth0 nodad"));
        }
        let scope = |end: &Namespace| {
            let link = end.run("ip -json link show dev eth0");
            let link: serde_json::Value = serde_json::from_str(&link).expect("ip prints JSON");
            u32::try_from(link[0]["ifindex"].as_u64().expect("a number")).expect("small")
        };
        let at = |end: &Namespace, port| SocketAddrV6::new("fe80::2".parse().unwrap(), port, 0, scope(end));
        let folder = TempDir::new().expect("a temporary folder");
        let flags = format!(
            "--hook input,output --enforce --no-offload --hook-keep --takeover {}/next.sock",
            folder.path().display()
        );
        let mut guard = Guard::start(&server, PROGRAM, &forbids("other"), &flags);
        let listener = server.listen(at(&server, 0));
        let port = listener.local_addr().expect("it is bound").port();
        let mut asks = client.connect(at(&client, port)).expect("it passes");
        let (mut hears, _) = listener.accept().expect("it has connected");
        let half = b"GET / HTTP/1.1\r\nUser-Agent: nosy\r\n";
        asks.write_all(half).expect("it is connected");
        hears.read_exact(&mut [0; 34]).expect("it passes");
        let mut next = Guard::start(&server, PROGRAM, &forbids("nosy"), &flags);
        assert_ended_well(&mut guard);
        for (end, name) in [(&mut asks, "client"), (&mut hears, "server")] {
            end.set_read_timeout(Some(ANSWER)).expect("not zero");
            let error = end.read(&mut [0; 9]).expect_err("it is reset");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the {name}'s end");
        }
        next.process.signal(Signal::TERM);
        assert_ended_well(&mut next);
    });
}

/// A word as guards say it to each other: its length, and itself.
fn octets_of(word: &str) -> Vec<u8> {
    let length = u32::try_from(word.len()).expect("a short word").to_le_bytes();
    [&length, word.as_bytes()].concat()
}

/// Says a word to a guard that can be taken over from, and gives all that it says then, and its descriptors.
fn ask(stream: &mut UnixStream, word: &str) -> (String, Vec<OwnedFd>) {
    stream.write_all(&octets_of(word)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let (mut said, mut descriptors) = (String::new(), Vec::new());
    while !["offered", "refused", "done"].iter().any(|last| said.contains(last)) {
        let mut octets = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut octets)];
        let received = recvmsg(stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let length = received.expect("it answers").bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        if length == 0 {
            break;
        }
        said.push_str(&String::from_utf8_lossy(&octets[..length]));
    }
    (said, descriptors)
}

const GO: &str = r#"{"word":"go"}"#;
const ASK: &str = r#"{"word":"ask","version":"0","queues":"0:1","mark":3221225472,"network":null}"#;

#[test]
fn who_asks_and_goes_away_costs_nothing_before_he_says_go_and_ends_the_run_as_a_failure_then() {
    as_root(|| {
        let stage = Stage::new();
        let (network, socket) = (&stage.network, stage.socket());
        let mut guard = stage.guard(NO_SQLMAP);
        let is_served = |agent: &str| is_served(network, agent);
        let connect = || UnixStream::connect(&socket).expect("it listens");
        for nonsense in ["{}", GO, "nothing at all"] {
            let (said, descriptors) = ask(&mut connect(), nonsense);
            assert!(said.contains("refused") && descriptors.is_empty(), "{nonsense}: {said}");
        }
        let (said, descriptors) = ask(&mut connect(), ASK);
        assert!(said.contains("queue-0") && said.contains("queue-1") && said.contains("metrics"), "{said}");
        assert_eq!(descriptors.len(), 3);
        drop(descriptors);
        let failures = "bannerwall_takeovers_total{result=\"failure\"}";
        eventually("four failures", || (counters(network)[failures] > 3.5).then_some(()));
        assert!(is_served("curl/8.0") && !is_served("sqlmap/1.7"));

        let mut heir = connect();
        let (_, sockets) = ask(&mut heir, ASK);
        let (said, states) = ask(&mut heir, GO);
        assert_eq!((states.len(), said.matches("state-queue-").count()), (3, 2), "{said}");
        drop((heir, sockets, states));
        assert_ended_well(&mut guard);
        // It had all: what becomes of it is not the first one's affair any more, and the hook is closed.
        assert!(network.run("iptables-save -t mangle").contains("BANNERWALL"));

        let mut guard = stage.guard(NO_SQLMAP);
        let mut heir = connect();
        ask(&mut heir, ASK);
        heir.write_all(&octets_of(GO)).expect("it listens");
        drop(heir);
        assert_eq!(guard.process.wait_exit().code(), Some(2), "{}", guard.process.stderr());
        assert!(guard.process.stderr().contains("successor exited"), "{}", guard.process.stderr());
        assert!(network.run("iptables-save -t mangle").contains("BANNERWALL"), "closed, and it has failed");
    });
}

#[test]
fn a_guard_that_stops_lets_nobody_on_who_is_ready_too_late() {
    as_root(|| {
        let stage = Stage::new();
        let (network, socket) = (&stage.network, stage.socket());
        let mut guard = stage.guard(NO_SQLMAP);
        let mut heir = UnixStream::connect(&socket).expect("it listens");
        let (_, sockets) = ask(&mut heir, ASK);
        guard.process.signal(Signal::TERM);
        assert_ended_well(&mut guard);
        assert!(heir.write_all(&octets_of(GO)).is_err(), "nobody hears it any more");
        drop(sockets);
        // Nor is one let on that says so while the hook is taken down.
        let flags = stage.flags().replace(" --hook-keep", "").replace("closed", "open");
        let mut guard = Guard::start(network, PROGRAM, NO_SQLMAP, &flags);
        let mut heir = UnixStream::connect(&socket).expect("it listens");
        drop(ask(&mut heir, ASK));
        guard.process.signal(Signal::TERM);
        eventually("it stops", || (!socket.exists()).then_some(()));
        if heir.write_all(&octets_of(GO)).is_ok() {
            let mut said = Vec::new();
            // What it has not read is lost with it.
            let _ = heir.read_to_end(&mut said);
            assert!(!String::from_utf8_lossy(&said).contains("state"), "{said:?}");
        }
        assert_ended_well(&mut guard);
        assert!(!network.run("iptables-save -t mangle").contains("BANNERWALL"), "it is down");
    });
}

/// Gives a word with a descriptor, as a guard that is taken over from does.
fn give(stream: &UnixStream, word: &str, descriptor: &OwnedFd) {
    let octets = octets_of(word);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(stream, &[IoSlice::new(&octets)], &mut control, SendFlags::empty()).expect("it listens");
}

#[test]
fn who_could_not_be_heard_for_want_of_descriptors_is_heard_later() {
    as_root(|| {
        let stage = Stage::new();
        let mut guard = stage.guard(NO_SQLMAP);
        guard.process.limit_descriptors(3);
        let _unheard = UnixStream::connect(stage.socket()).expect("it listens");
        // It tries, and there is no descriptor.
        std::thread::sleep(Duration::from_millis(500));
        guard.process.limit_descriptors(1024);
        let next = stage.guard(NO_SQLMAP);
        assert_ended_well(&mut guard);
        assert!(next.process.stderr().contains("took over from"), "{}", next.process.stderr());
    });
}

#[test]
fn a_queue_that_was_given_back_meanwhile_is_not_taken_for_one_without_packets() {
    as_root(|| {
        let stage = Stage::new();
        let (network, folder) = (&stage.network, &stage.folder);
        let other = folder.path().join("other.sock");
        let mut first = stage.guard(NO_SQLMAP);
        let (_, sockets) = ask(&mut UnixStream::connect(stage.socket()).expect("it listens"), ASK);
        let listener = UnixListener::bind(&other).expect("the folder is ours");
        let mut command = network.command(PROGRAM);
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, NO_SQLMAP).expect("the folder is ours");
        command.arg("guard").arg("--rules").arg(&rules).args(FLAGS.split_whitespace());
        command.arg("--takeover").arg(&other);
        let mut second = Running::start(command);
        let (mut stream, _) = listener.accept().expect("it asks");
        for (queue, socket) in sockets.iter().take(2).enumerate() {
            let word = format!(r#"{{"word":"socket","name":"queue-{queue}","marks_connections":false}}"#);
            give(&stream, &word, socket);
        }
        stream.write_all(&octets_of(r#"{"word":"offered"}"#)).expect("it listens");
        let mut said = String::new();
        while !said.contains("go") {
            let mut octets = [0; 512];
            let length = stream.read(&mut octets).expect("it goes on");
            assert!(length > 0, "{}", second.stderr());
            said.push_str(&String::from_utf8_lossy(&octets[..length]));
        }
        // However long it says nothing, it may judge still.
        std::thread::sleep(Duration::from_secs(1));
        assert!(!second.stderr().contains("took over from"), "{}", second.stderr());
        // The one that was to be taken over from ends by itself instead, and says nothing.
        first.process.signal(Signal::TERM);
        assert_ended_well(&mut first);
        drop((stream, listener, sockets));
        second.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        assert!(second.stderr().contains("queue 1 is bound again"), "{}", second.stderr());
        assert!(is_served(network, "curl/8.0") && !is_served(network, "sqlmap/1.7"));
        second.signal(Signal::TERM);
        assert_eq!(second.wait_exit().code(), Some(0), "{}", second.stderr());
    });
}

#[test]
fn a_guard_of_another_user_is_taken_over_from_and_strangers_are_not_heard() {
    as_root(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").expect("this kernel has user namespaces");
        if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
            return eprintln!("skipped: there are no other users in a user namespace");
        }
        let network = Namespace::new();
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
        let socket = folder.path().join("next.sock");
        let flags = format!("--queue 0:1 --takeover {}", socket.display());
        let mut root = Guard::start(&network, PROGRAM, NO_SQLMAP, &flags);
        let mut command = network.command("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=-all,+net_admin"]);
        command.args(["--ambient-caps=-all,+net_admin", PROGRAM, "guard", "--rules"]);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")).args(flags.split_whitespace());
        let mut stranger = Running::start(command);
        assert_ne!(stranger.wait_exit().code(), Some(0), "{}", stranger.stderr());
        // Root may have the sockets, and without this right not answer one packet.
        let mut command = network.command("setpriv");
        command.args(["--bounding-set=-net_admin", PROGRAM, "guard", "--rules"]);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")).args(flags.split_whitespace());
        let mut powerless = Running::start(command);
        assert_eq!(powerless.wait_exit().code(), Some(3), "{}", powerless.stderr());
        assert!(!root.process.has_exited());
        for _ in 0..2 {
            let next = Guard::start(&network, PROGRAM, NO_SQLMAP, &format!("{flags} --user nobody"));
            assert_ended_well(&mut std::mem::replace(&mut root, next));
        }
        assert!(!root.process.stderr().contains("runs without an endpoint"), "{}", root.process.stderr());
    });
}

/// A service manager that keeps descriptors.
struct Manager {
    folder: TempDir,
    kept: Arc<Mutex<Vec<(String, OwnedFd)>>>,
    told: Arc<Mutex<String>>,
    /// Whether it takes its time to let go of something.
    is_slow: Arc<AtomicBool>,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("the folder is ours");
        let manager = Self { folder, kept: Arc::default(), told: Arc::default(), is_slow: Arc::default() };
        let (kept, told) = (Arc::clone(&manager.kept), Arc::clone(&manager.told));
        let is_slow = Arc::clone(&manager.is_slow);
        std::thread::spawn(move || {
            loop {
                hear(&socket, &kept, &told, is_slow.load(Ordering::Relaxed));
            }
        });
        manager
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.kept.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Puts octets in the place of what is kept under a name.
    fn spoil(&self, name: &str, octets: &[u8]) {
        let file = memfd_create(name, MemfdFlags::ALLOW_SEALING).expect("there is memory");
        let mut file = File::from(file);
        file.write_all(octets).expect("there is memory");
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
            .expect("it may be sealed");
        let mut kept = self.kept.lock().unwrap();
        let (_, there) = kept.iter_mut().find(|(kept, _)| kept == name).expect("it is kept");
        *there = file.into();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a guard with what is kept, and waits until it judges.
    fn start(&self, network: &Namespace, rules: &Path) -> Running {
        self.judging(network, rules, &format!("--fd-store {FLAGS}"))
    }

    fn judging(&self, network: &Namespace, rules: &Path, flags: &str) -> Running {
        let guard = self.spawn(network, rules, flags);
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        guard
    }

    /// Starts a guard with what is kept, from descriptor 3 on, as systemd does.
    fn spawn(&self, network: &Namespace, rules: &Path, flags: &str) -> Running {
        let kept = self.kept.lock().unwrap();
        // Above those that the shell's own numbers take.
        let passed: Vec<OwnedFd> = kept
            .iter()
            .map(|(_, descriptor)| fcntl_dupfd_cloexec(descriptor, 200).expect("there is room"))
            .collect();
        passed.iter().for_each(|it| fcntl_setfd(it, FdFlags::empty()).expect("it is open"));
        let moves = passed.iter().enumerate().map(|(at, it)| {
            let (number, to) = (it.as_raw_fd(), at + 3);
            format!("exec {to}<&{number} {number}<&-\n")
        });
        let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        let script = format!(
            "{}export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={} NOTIFY_SOCKET={}\n\
             exec {PROGRAM} guard --rules {} --format json {flags}\n",
            moves.collect::<String>(),
            kept.len(),
            names.join(":"),
            self.path("notify").display(),
            rules.display(),
        );
        let mut command: Command = network.command("bash");
        command.arg("-c").arg(script);
        let guard = Running::start(command);
        drop((kept, passed));
        guard
    }
}

/// Takes one message of a service.
fn hear(socket: &UnixDatagram, kept: &Mutex<Vec<(String, OwnedFd)>>, told: &Mutex<String>, is_slow: bool) {
    let mut octets = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut octets)];
    let received = recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
    let length = received.expect("a message").bytes;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let text = String::from_utf8_lossy(&octets[..length]).into_owned();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let name = value("FDNAME=").to_owned();
    let mut kept = kept.lock().unwrap();
    if value("FDSTOREREMOVE=") == "1" {
        if is_slow {
            std::thread::sleep(Duration::from_millis(200));
        }
        kept.retain(|(there, _)| *there != name);
    } else if value("FDSTORE=") == "1" {
        // The same file is kept once (systemd compares them by device and inode).
        let identity = |it: &OwnedFd| rustix::fs::fstat(it).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        for descriptor in descriptors.drain(..) {
            if !kept.iter().any(|(_, there)| identity(there) == identity(&descriptor)) {
                kept.push((name.clone(), descriptor));
            }
        }
    }
    // What is left is a barrier's, and closed now.
    drop(descriptors);
    told.lock().unwrap().push_str(&text);
}

#[test]
fn restarts_by_a_store_of_descriptors_cut_nothing_and_let_nothing_by() {
    as_root(|| {
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");
        let manager = Manager::new();
        let rules = manager.path("rules.toml");
        std::fs::write(&rules, NO_SQLMAP).expect("the folder is ours");
        let mut guard = manager.start(&network, &rules);
        assert_eq!(manager.names(), ["metrics", "queue-0", "queue-1"]);
        let ((), tally) = under_load(&network, || {
            for round in 0..4 {
                let sqlmap = request("sqlmap/1.7");
                let (first, rest) = sqlmap.split_at(sqlmap.len() - 9);
                let forbidden = Talk::begin(&network, FORBIDDEN, first).expect("a connection");
                // The old one has seen it.
                std::thread::sleep(Duration::from_millis(200));
                let before = counters(&network);
                guard.signal(Signal::TERM);
                assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
                assert_eq!(
                    manager.names(),
                    ["metrics", "queue-0", "queue-1", "state-queue-0", "state-queue-1", "state-run"]
                );
                guard = manager.start(&network, &rules);
                assert!(guard.stderr().contains("continues the last run"), "{}", guard.stderr());
                assert!(!forbidden.end(rest).unwrap_or(false), "{round}: half of it was sent before");
                assert_goes_on(&before, &counters(&network));
                assert_eq!(manager.names(), ["metrics", "queue-0", "queue-1"], "states are used once");
            }
        });
        eprintln!("four restarts: {tally:?}");
        tally.assert_uncut();
        // One that is killed leaves its queues, and packets wait.
        let ((), tally) = under_load(&network, || {
            guard.signal(Signal::KILL);
            guard.wait_exit();
            guard = manager.start(&network, &rules);
            let told = "continues the queues of a run that did not stop cleanly";
            assert!(guard.stderr().contains(told), "{}", guard.stderr());
        });
        assert!(tally.failed.lock().unwrap().is_empty(), "{tally:?}");
        assert!(manager.told.lock().unwrap().contains("STOPPING=1"));
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        // States that are none: what fits is used.
        manager.spoil("state-queue-0", b"bwstate\x63");
        manager.spoil("state-queue-1", b"");
        let mut guard = manager.start(&network, &rules);
        for said in ["state-queue-0 of the previous guard: its format is version 99", "state-queue-1"] {
            assert!(guard.stderr().contains(said), "{}", guard.stderr());
        }
        assert!(guard.stderr().contains("queue 0: no state was handed over"), "{}", guard.stderr());
        let is_served = |agent: &str| is_served(&network, agent);
        assert!(is_served("curl/8.0") && !is_served("sqlmap/1.7"));
        assert!(counters(&network)["bannerwall_takeovers_total{result=\"success\"}"] > 1.5, "counters go on");
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        // Who is started beside the unit is not let on: its end would be the service's.
        let next = manager.path("next.sock");
        let flags = format!("--fd-store {FLAGS} --takeover {}", next.display());
        let mut guard = manager.judging(&network, &rules, &flags);
        let (said, sockets) = ask(&mut UnixStream::connect(&next).expect("it listens"), ASK);
        assert!(said.contains("a service manager runs this guard") && sockets.is_empty(), "{said}");
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        // A socket that is none, as one would be whose queue was given back. Programs that other tests start
        // have copies of it for a moment.
        manager.spoil("queue-0", b"");
        eventually("the queue to be given back", || (!network.queues().contains(&0)).then_some(()));
        let mut guard = manager.start(&network, &rules);
        assert!(guard.stderr().contains("queue 0 is bound again"), "{}", guard.stderr());
        assert_eq!(manager.names(), ["metrics", "queue-0", "queue-1"]);
        assert!(is_served("curl/8.0") && !is_served("sqlmap/1.7"));
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
    });
}

/// Has datagrams go through the hook without a pause, as many as it takes for a guard to have some in hand at
/// any time.
fn under_datagrams<R>(network: &Namespace, work: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            network.inside(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
                while !over.load(Ordering::Relaxed) {
                    let _full = socket.send_to(&[0; 64], SocketAddr::from(([127, 0, 0, 1], 8443)));
                }
            });
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn what_a_killed_guard_has_read_gets_the_verdict_of_its_mode_from_the_next_one() {
    as_root(|| {
        for (mode, fate) in [("closed", "were dropped"), ("open", "passed")] {
            let network = Namespace::new();
            let manager = Manager::new();
            let rules = manager.path("rules.toml");
            std::fs::write(&rules, NO_SQLMAP).expect("the folder is ours");
            let flags = FLAGS.replace("closed", mode).replace("--queue 0:1", "--queue 0");
            let flags = format!("--fd-store {flags} --hook-udp 8443 --no-offload");
            let mut guard = manager.judging(&network, &rules, &flags);
            // Between two batches a guard has nothing in hand.
            let mut rounds = 0..50;
            let told = loop {
                assert!(rounds.next().is_some(), "no guard was killed amid a batch");
                under_datagrams(&network, || {
                    eventually("packets wait", || (network.waiting_packets() > 100).then_some(()));
                    guard.signal(Signal::KILL);
                    guard.wait_exit();
                });
                guard = manager.judging(&network, &rules, &flags);
                eventually("every packet has a verdict", || (network.waiting_packets() == 0).then_some(()));
                let said = guard.stderr();
                if let Some(line) = said.lines().find(|line| line.contains("had read but not answered")) {
                    break line.to_owned();
                }
            };
            let count = told.split_whitespace().find_map(|word| word.parse::<f64>().ok());
            let count = count.unwrap_or_else(|| panic!("{told}"));
            assert!((0.5..64.5).contains(&count) && told.contains(fate), "{mode}: {told}");
            let abandoned = counters(&network)["bannerwall_abandoned_packets_total"];
            assert!((abandoned - count).abs() < 0.5, "{abandoned}: {told}");
            guard.signal(Signal::TERM);
            assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        }
    });
}

#[test]
fn what_is_kept_is_given_back_where_no_guard_comes_of_a_start_or_it_is_not_asked_for() {
    as_root(|| {
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");
        let manager = Manager::new();
        let rules = manager.path("rules.toml");
        let write = |text: &str| std::fs::write(&rules, text).expect("the folder is ours");
        let is_served = |agent: &str| is_served(&network, agent);
        let stop = |mut guard: Running| {
            guard.signal(Signal::TERM);
            assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
            assert_eq!(manager.names().len(), 6, "{:?}", manager.names());
        };
        for (mode, kept) in [("closed", 6), ("open", 0)] {
            let flags = format!("--fd-store {}", FLAGS.replace("closed", mode));
            write(NO_SQLMAP);
            stop(manager.judging(&network, &rules, &flags));
            write("[[rule]]\nid = \"half");
            let mut bad = manager.spawn(&network, &rules, &flags);
            assert_eq!(bad.wait_exit().code(), Some(2), "{}", bad.stderr());
            assert_eq!(manager.names().len(), kept, "{mode}: {:?}", manager.names());
            if mode == "open" {
                assert!(is_served("curl/8.0") && is_served("sqlmap/1.7"), "the hook is open");
            }
            write(NO_SQLMAP);
            let guard = manager.judging(&network, &rules, &flags);
            assert_eq!(guard.stderr().contains("continues the last run"), kept > 0, "{}", guard.stderr());
            assert!(is_served("curl/8.0") && !is_served("sqlmap/1.7"));
            stop(guard);
        }
        // Options that nobody understands tell nothing of a mode, and the hook decides.
        let mut bad = manager.spawn(&network, &rules, &format!("--fd-store {FLAGS} --backend nfq"));
        assert_eq!(bad.wait_exit().code(), Some(2), "{}", bad.stderr());
        let names = manager.names();
        assert!(names.is_empty(), "{names:?}: {}", bad.stderr());
        // A guard that does not ask for it begins anew.
        stop(manager.start(&network, &rules));
        let mut guard = manager.judging(&network, &rules, FLAGS);
        assert!(manager.names().is_empty(), "{:?}", manager.names());
        assert!(is_served("curl/8.0") && !is_served("sqlmap/1.7"), "{}", guard.stderr());
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
    });
}

/// Begins so many connections of which nobody need hear.
fn knock(network: &Namespace, times: usize) -> Vec<Socket> {
    let knock = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        socket.bind(&SocketAddr::from((ALLOWED.0, 0)).into()).expect("an address");
        // It is under way.
        let _ = socket.connect(&SocketAddr::from(SERVER).into());
        socket
    };
    network.inside(|| (0..times).map(knock).collect())
}

#[test]
fn what_goes_by_between_two_guards_is_counted_whether_the_second_one_goes_on_or_begins() {
    as_root(|| {
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");
        let manager = Manager::new();
        let rules = manager.path("rules.toml");
        std::fs::write(&rules, NO_SQLMAP).expect("the folder is ours");
        let flags = format!("--fd-store --queue-length 4 {}", FLAGS.replace("closed", "open"));
        let uninspected = || {
            eventually("the accounts", || {
                counters(&network).get("bannerwall_uninspected_packets_total").copied()
            })
        };
        let stop = |guard: &mut Running| {
            guard.signal(Signal::TERM);
            assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        };
        let mut guard = manager.judging(&network, &rules, &flags);
        assert!(is_served(&network, "curl/8.0"));
        let before = uninspected();
        stop(&mut guard);
        // Eight wait in the two queues, the others go by.
        let knocked = knock(&network, 40);
        let mut guard = manager.judging(&network, &rules, &flags);
        let after = eventually("what went by", || Some(uninspected()).filter(|now| now - before > 20.5));
        drop(knocked);
        // A stop after which the manager gives the queues back: the hook lets everything by.
        stop(&mut guard);
        manager.kept.lock().unwrap().clear();
        assert!(is_served(&network, "sqlmap/1.7"));
        let mut guard = manager.judging(&network, &rules, &flags);
        assert!(!guard.stderr().contains("did not stop cleanly"), "{}", guard.stderr());
        guard.wait_stderr("what went by", |text| {
            text.contains("packets that passed uninspected between").then_some(())
        });
        assert!(uninspected() > 2.5, "the counters of that one are gone: {after} before");
        stop(&mut guard);
    });
}

#[test]
fn queues_of_a_run_that_fails_are_given_back_before_its_end_and_nobody_meets_what_is_not_closed_yet() {
    as_root(|| {
        let network = Namespace::new();
        let manager = Manager::new();
        let rules = manager.path("rules.toml");
        std::fs::write(&rules, NO_SQLMAP).expect("the folder is ours");
        let open = format!("--fd-store {}", FLAGS.replace("closed", "open"));
        let mut guard = manager.judging(&network, &rules, &open);
        // Other queues, and the metrics at the same place; then these at another one of the same port. Nobody
        // is told when the manager has let go, unless he asks.
        manager.is_slow.store(true, Ordering::Relaxed);
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        let others = open.replace("--queue 0:1", "--queue 2:3");
        let mut guard = manager.judging(&network, &rules, &others);
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        let everywhere = others.replace("127.0.0.1:9464", "0.0.0.0:9464");
        let mut guard = manager.judging(&network, &rules, &everywhere);
        assert!(!guard.stderr().contains("runs without an endpoint"), "{}", guard.stderr());
        assert!(!counters(&network).is_empty());
        manager.told.lock().unwrap().clear();
        let children = format!("/proc/{0}/task/{0}/children", guard.id());
        let children = std::fs::read_to_string(children).expect("it lives");
        let runner: i32 = children.trim().parse().expect("it runs iptables");
        let runner = Pid::from_raw(runner).expect("a process");
        kill_process(runner, Signal::KILL).expect("it lives");
        assert_eq!(guard.wait_exit().code(), Some(2), "{}", guard.stderr());
        let told = manager.told.lock().unwrap().clone();
        let at = |word: &str| told.find(word).unwrap_or_else(|| panic!("{word}: {told}"));
        assert!(at("FDNAME=queue-2") < at("STOPPING=1") && at("FDNAME=queue-3") < at("STOPPING=1"), "{told}");
        assert!(manager.names().is_empty(), "{:?}", manager.names());
    });
}
