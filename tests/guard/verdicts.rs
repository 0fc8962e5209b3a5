//! `bannerwall guard` at its job: real servers and clients, over both backends, routed and on loopback,
//! IPv4 and IPv6.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bannerwall_test_support::{
    Banner, Dropbear, Line, NO_SQLMAP, Namespace, Nginx, Running, Signal, Sshd, as_root, eventually,
    json_lines, send_in_chunks,
};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const BACKENDS: [&str; 2] = ["libnetfilter_queue", "nfq"];
const SERVERS: [&str; 2] = [Line::SERVER_V4, Line::SERVER_V6];
const LOOPBACKS: [&str; 2] = ["127.0.0.1", "::1"];

/// How long a connection may go on that is to end at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a forbidden server says.
const FORBIDDEN: &[u8] = b"SSH-2.0-OldSSH_1.0\r\n";

/// Does something about `OldSSH`, rejects dropbear.
const RULES: &str = r#"
[[rule]]
id = "old-ssh"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^OldSSH_'
action = "ACTION"
severity = "high"
examples = ["SSH-2.0-OldSSH_1.0"]
counterexamples = ["SSH-2.0-OpenSSH_9.8"]

[[rule]]
id = "no-dropbear"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^dropbear'
action = "reject"
severity = "high"
examples = ["SSH-2.0-dropbear_2022.83"]
counterexamples = ["SSH-2.0-OpenSSH_9.8"]
"#;

/// Those rules with an action for `OldSSH`, and HTTP clients that call themselves sqlmap rejected.
fn rules_that(action: &str) -> String {
    RULES.replace("ACTION", action) + NO_SQLMAP
}

/// A guard that runs inside of a namespace.
struct Guard<'a> {
    namespace: &'a Namespace,
    folder: TempDir,
    process: Running,
}

impl<'a> Guard<'a> {
    fn start(namespace: &'a Namespace, action: &str, flags: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, rules_that(action)).expect("the folder is ours");
        let mut command = namespace.command(PROGRAM);
        command.arg("guard").arg("--rules").arg(&rules).args(["--format", "json"]);
        let process = Running::start({
            command.args(flags.split_whitespace());
            command
        });
        let guard = Self { namespace, folder, process };
        guard.process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        guard
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    /// Waits for an event that holds all of `parts`.
    fn wait_event(&self, parts: &[&str]) {
        self.process.wait_stdout(&parts.join(" with "), |text| {
            text.lines().any(|line| parts.iter().all(|part| line.contains(part))).then_some(())
        });
    }

    /// The hook's counters and rules as text.
    fn hook_status(&self) -> String {
        let output = self.namespace.output(&format!("{PROGRAM} hook status"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends it by `signal` and looks that nothing is left of it. Returns its summary.
    fn stop(mut self, signal: Signal) -> String {
        self.process.signal(signal);
        let status = self.process.wait_exit();
        assert_eq!(status.code(), Some(0), "{}", self.process.stderr());
        assert_eq!(self.namespace.waiting_packets(), 0);
        assert_eq!(self.hook_status().matches("no hook").count(), 2, "{}", self.hook_status());
        json_lines(self.process.stdout().as_bytes());
        let is_summary = |line: &&str| line.contains("uninspected packets");
        self.process.wait_stderr("its summary", |text| text.lines().find(is_summary).map(str::to_owned))
    }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port)
}

/// What arrives on a connection until its end, and the error that ended it: a reset may come as early as
/// `connect` is about to return. An end that never comes is an error too.
fn read_all(stream: std::io::Result<TcpStream>) -> (Vec<u8>, Option<ErrorKind>) {
    let mut received = Vec::new();
    let result = stream.and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read_to_end(&mut received)
    });
    (received, result.err().map(|error| error.kind()))
}

#[test]
fn a_rejected_banner_resets_both_ends_and_never_arrives_whole() {
    as_root(|| {
        for backend in BACKENDS {
            let line = Line::new();
            let flags = format!("--hook forward --enforce --backend {backend}");
            let guard = Guard::start(&line.router, "reject", &flags);
            for (address, chunk) in SERVERS.into_iter().flat_map(|address| [(address, 100), (address, 1)]) {
                let server = Banner::start(&line.server, at(address, 0), FORBIDDEN, chunk);
                let client = line.client.connect(server.address);
                let (received, error) = read_all(client);
                assert_eq!(error, Some(ErrorKind::ConnectionReset), "client of {address}, {backend}");
                assert!(received.len() < FORBIDDEN.len(), "{received:?}");
                let error = server.finish().expect_err("the server is reset too");
                assert!(
                    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
                    "{error}"
                );
            }
            guard.stop(Signal::TERM);
        }
    });
}

/// Has the end of a forbidden banner wait in the queue, one octet a segment, so that it becomes one
/// batch, and tells how the client's connection ends; `None` if the server's kernel put octets together,
/// as it does where this process is not given the processor for a while.
fn reset_behind_a_batch(line: &Line, guard: &Guard, address: &str) -> Option<Option<ErrorKind>> {
    let listener = line.server.listen(at(address, 0));
    let mut client = line.client.connect(listener.local_addr().expect("it is bound"));
    let (mut server, _) = listener.accept().expect("the client has connected");
    let (first, rest) = FORBIDDEN.split_at(FORBIDDEN.len() - 8);
    server.write_all(first).expect("the guard lets it pass");
    let mut begun = vec![0; first.len()];
    client.as_mut().expect("connected").read_exact(&mut begun).expect("the guard let it pass");
    guard.process.signal(Signal::STOP);
    send_in_chunks(&mut server, rest, 1).expect("the server is not reset yet");
    let deadline = Instant::now() + Duration::from_secs(1);
    let mut is_batch = false;
    while !is_batch && Instant::now() < deadline {
        is_batch = guard.namespace.waiting_packets() >= 8;
    }
    guard.process.signal(Signal::CONT);
    let (_, error) = read_all(client);
    is_batch.then_some(error)
}

#[test]
fn a_reset_does_not_overtake_what_its_batch_lets_pass() {
    as_root(|| {
        let line = Line::new();
        let guard = Guard::start(&line.router, "reject", "--hook forward --enforce");
        for address in SERVERS {
            let error = eventually("a batch of eight", || reset_behind_a_batch(&line, &guard, address));
            assert_eq!(error, Some(ErrorKind::ConnectionReset), "client of {address}");
        }
        guard.stop(Signal::TERM);
    });
}

#[test]
fn a_rejected_banner_resets_both_ends_on_loopback_too() {
    as_root(|| {
        for backend in BACKENDS {
            let namespace = Namespace::new();
            let flags = format!("--hook input,output,forward --enforce --backend {backend}");
            let guard = Guard::start(&namespace, "reject", &flags);
            for address in LOOPBACKS {
                let server = Banner::start(&namespace, at(address, 0), FORBIDDEN, 100);
                let client = namespace.connect(server.address);
                assert_eq!(read_all(client), (Vec::new(), Some(ErrorKind::ConnectionReset)), "{address}");
                assert_eq!(
                    server.finish().expect_err("reset").kind(),
                    ErrorKind::ConnectionReset,
                    "{address}"
                );
            }
            guard.stop(Signal::INT);
        }
    });
}

#[test]
fn many_connections_are_reset_where_the_kernel_tracks_none() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = Guard::start(&namespace, "reject", "--hook input --enforce --no-offload");
        let server = namespace.listen(at("127.0.0.1", 0));
        let address = server.local_addr().expect("it is bound");
        let talks: Vec<_> = (0..60)
            .map(|_| {
                let client = namespace.connect(address).expect("it listens");
                (client, server.accept().expect("the client has connected").0)
            })
            .collect();
        for (_, accepted) in &talks {
            (&*accepted).write_all(FORBIDDEN).expect("the guard reads it");
        }
        for (client, _) in talks {
            assert_eq!(read_all(Ok(client)), (Vec::new(), Some(ErrorKind::ConnectionReset)));
        }
        guard.stop(Signal::TERM);
    });
}

#[test]
fn a_dropped_banner_never_arrives_and_other_connections_live_on() {
    as_root(|| {
        for backend in BACKENDS {
            let line = Line::new();
            let flags = format!("--hook forward --enforce --backend {backend}");
            let guard = Guard::start(&line.router, "drop", &flags);
            let other = Banner::start(&line.server, at(Line::SERVER_V4, 0), b"SSH-2.0-OpenSSH_9.8\r\n", 1);
            let mut kept = line.client.connect(other.address).expect("it listens");
            for address in SERVERS {
                let server = Banner::start(&line.server, at(address, 0), FORBIDDEN, 1);
                let mut client = line.client.connect(server.address).expect("it listens");
                guard.wait_event(&["\"event_type\":\"drop\"", address]);
                client.set_nonblocking(true).expect("a socket");
                let mut received = vec![0; 100];
                let count = client.read(&mut received).unwrap_or(0);
                assert!(count < FORBIDDEN.len(), "{count} octets of the banner arrived");
            }
            send_in_chunks(&mut kept, b"SSH-2.0-test\r\n", 1).expect("it lives on");
            let mut banner = [0; 21];
            kept.read_exact(&mut banner).expect("the whole banner arrives");
            assert_eq!(&banner, b"SSH-2.0-OpenSSH_9.8\r\n");
            drop(kept);
            other.finish().expect("the other connection ends well");
            let summary = guard.stop(Signal::TERM);
            assert!(summary.contains("3 connections, 2 alerts, 2 blocked: "), "{summary}");
        }
    });
}

#[test]
fn real_clients_and_servers_are_judged_by_what_they_say() {
    as_root(|| {
        for backend in BACKENDS {
            let line = Line::new();
            let sshd = Sshd::start(&line.server, 22);
            let _dropbear = Dropbear::start(&line.server, 2222);
            let _nginx = Nginx::start(&line.server, 80, "");
            let flags = format!("--hook forward --enforce --backend {backend}");
            let guard = Guard::start(&line.router, "drop", &flags);
            let client = |words: &str| line.client.output(words);
            for address in SERVERS {
                let url = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
                let key = sshd.user_key();
                let ssh = format!(
                    "ssh -F none -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
                     -o UserKnownHostsFile=/dev/null root@{address} echo logged in",
                    key.display()
                );
                assert_eq!(client(&ssh).stdout, b"logged in\n", "{address}, {backend}");
                let keys = client(&format!("ssh-keyscan -T 60 -t ed25519 {address}"));
                assert!(keys.stdout.starts_with(address.as_bytes()), "{address}, {backend}");
                let dropbear = client(&format!("ssh-keyscan -p 2222 -t ed25519 {address}"));
                assert!(dropbear.stdout.is_empty(), "{address}, {backend}");
                assert_eq!(client(&format!("curl -gsS http://{url}/")).stdout, b"hello world");
                let forbidden = client(&format!("curl -gsS -A sqlmap/1.7 http://{url}/"));
                assert_eq!(forbidden.status.code(), Some(56), "curl sees a reset: {forbidden:?}");
            }
            guard.wait_event(&["\"alert\"", "no-dropbear", "\"blocked\""]);
            guard.wait_event(&["\"alert\"", "no-sqlmap", "\"blocked\""]);
            guard.stop(Signal::TERM);
        }
    });
}

#[test]
fn a_second_request_is_no_way_around_a_rule_about_requests() {
    as_root(|| {
        let namespace = Namespace::new();
        let _nginx = Nginx::start(&namespace, 80, "");
        let url = "http://127.0.0.1/";
        // Both over one connection, as curl tells behind them.
        let twice = format!(
            "curl -sS -w %{{num_connects}} {url} -A kind --next -sS -w %{{num_connects}} -A sqlmap/1.7 {url}"
        );
        for (flags, code, said) in [
            ("--hook input --enforce", Some(56), "hello world1"),
            ("--hook input --enforce --http-inspect first", Some(0), "hello world1hello world0"),
            ("--hook input", Some(0), "hello world1hello world0"),
        ] {
            let guard = Guard::start(&namespace, "drop", flags);
            let output = namespace.output(&twice);
            let heard = String::from_utf8_lossy(&output.stdout);
            assert!(heard.starts_with(said), "{flags}: {heard}");
            assert_eq!(output.status.code(), code, "{flags}: {heard}");
            guard.stop(Signal::TERM);
        }
    });
}

#[test]
fn monitoring_reports_and_blocks_nothing() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = Guard::start(&namespace, "reject", "--hook input,output");
        let server = Banner::start(&namespace, at("127.0.0.1", 0), FORBIDDEN, 1);
        let mut client = namespace.connect(server.address).expect("it listens");
        let mut banner = [0; FORBIDDEN.len()];
        client.read_exact(&mut banner).expect("the banner arrives");
        assert_eq!(banner, FORBIDDEN);
        drop(client);
        server.finish().expect("nobody was reset");
        guard.wait_event(&["\"alert\"", "old-ssh", "\"allowed\""]);
        guard.stop(Signal::TERM);
    });
}

#[test]
fn after_a_kill_open_lets_new_connections_pass_and_closed_does_not() {
    as_root(|| {
        for (mode, passes) in [("open", true), ("closed", false)] {
            let namespace = Namespace::new();
            let flags = format!("--hook input,output --enforce --on-failure {mode}");
            let mut guard = Guard::start(&namespace, "drop", &flags);
            let listener = namespace.listen(at("127.0.0.1", 0));
            let address = listener.local_addr().expect("it is bound");
            guard.process.signal(Signal::KILL);
            guard.process.wait_exit();
            if passes {
                namespace.connect(address).expect("new connections pass");
            } else {
                let timeout = std::time::Duration::from_secs(2);
                let refused = namespace.inside(|| TcpStream::connect_timeout(&address, timeout));
                assert_eq!(refused.expect_err("dropped").kind(), ErrorKind::TimedOut);
            }
            assert_eq!(namespace.waiting_packets(), 0);
            namespace.run(&format!("{PROGRAM} hook down"));
            namespace.connect(address).expect("without the hook all is as before");
        }
    });
}

#[test]
fn a_reload_takes_good_rules_and_refuses_bad_ones() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard =
            Guard::start(&namespace, "reject", "--hook input,output --enforce --metrics 127.0.0.1:9464");
        let is_reset = |banner: &[u8]| {
            let server = Banner::start(&namespace, at("127.0.0.1", 0), banner, 100);
            let read = |mut client: TcpStream| client.read(&mut [0]);
            namespace.connect(server.address).and_then(read).is_err()
        };
        assert!(is_reset(FORBIDDEN));
        std::fs::write(guard.rules(), "[[rule]]\nid = 7\n").expect("the folder is ours");
        guard.process.signal(Signal::HUP);
        guard.process.wait_stderr("the refusal", |text| text.contains("old rules stay").then_some(()));
        assert!(is_reset(FORBIDDEN), "the old rules are in force");
        let new = rules_that("reject").replace("OldSSH", "NewSSH");
        std::fs::write(guard.rules(), new).expect("the folder is ours");
        guard.process.signal(Signal::HUP);
        guard.process.wait_stderr("the reload", |text| text.contains("reloaded: 3 rules").then_some(()));
        eventually("the new rules in force", || is_reset(b"SSH-2.0-NewSSH_1.0\r\n").then_some(()));
        assert!(!is_reset(FORBIDDEN), "the old rules are gone");
        eventually("both reloads to be counted", || {
            let metrics = namespace.run("curl -sS http://127.0.0.1:9464/metrics");
            let is_counted = |result: &str| {
                metrics.contains(&format!("bannerwall_reloads_total{{result=\"{result}\"}} 1\n"))
            };
            ["success", "failure"].into_iter().all(is_counted).then_some(())
        });
        guard.stop(Signal::TERM);
    });
}

#[test]
fn metrics_pass_prometheus_own_check_and_count_what_happened() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = Guard::start(&namespace, "reject", "--hook input --enforce --metrics 127.0.0.1:9464");
        let server = Banner::start(&namespace, at("127.0.0.1", 0), FORBIDDEN, 100);
        let client = namespace.connect(server.address);
        assert_eq!(read_all(client).1, Some(ErrorKind::ConnectionReset));
        let scrape = || namespace.run("curl -sS http://127.0.0.1:9464/metrics");
        let text = eventually("the match, its resets and no gaps in the metrics", || {
            let lines = [
                "bannerwall_rule_matches_total{action=\"reject\",rule=\"old-ssh\"} 1\n",
                "bannerwall_resets_total{result=\"sent\"} 2\n",
                "bannerwall_uninspected_packets_total 0\n",
            ];
            Some(scrape()).filter(|text| lines.iter().all(|line| text.contains(line)))
        });
        let file = guard.folder.path().join("metrics");
        std::fs::write(&file, &text).expect("the folder is ours");
        if std::path::Path::new("/usr/bin/promtool").exists() {
            let check = format!("/usr/bin/promtool check metrics < {}", file.display());
            let output = namespace.command("sh").args(["-c", &check]).output().expect("sh starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        guard.stop(Signal::TERM);
    });
}

#[test]
fn a_decided_flow_is_left_to_the_kernel_unless_told_otherwise() {
    as_root(|| {
        let passed_by_kernel = |flags: &str| {
            let namespace = Namespace::new();
            let guard = Guard::start(&namespace, "drop", &format!("--hook input {flags}"));
            let banner = b"SSH-2.0-OpenSSH_9.8\r\n";
            let server = Banner::start(&namespace, at("127.0.0.1", 0), banner, 100);
            let mut client = namespace.connect(server.address).expect("it listens");
            client.write_all(b"SSH-2.0-client\r\n").expect("it is connected");
            guard.wait_event(&["\"event_type\":\"ssh\"", "SSH-2.0-client"]);
            for _ in 0..20 {
                client.write_all(&[0; 100]).expect("it is connected");
            }
            drop(client);
            // Unread data makes the end a reset; what was sent is what matters here.
            let _ = server.finish();
            let status = guard.hook_status();
            guard.stop(Signal::TERM);
            !status.lines().next().unwrap_or_default().contains("passed by mark 0,")
        };
        assert!(passed_by_kernel(""));
        assert!(!passed_by_kernel("--no-offload"));
    });
}

/// The CPUs that each worker may run on, in the order of queues.
fn cpus_of_workers(guard: &Guard) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", guard.process.id())).expect("it runs");
    let mut workers: Vec<(String, String)> = tasks
        .filter_map(|task| {
            let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let value =
                |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
            Some((value("Name:")?, value("Cpus_allowed_list:")?))
        })
        .filter(|(name, _)| name.starts_with("queue-"))
        .collect();
    workers.sort();
    workers.into_iter().map(|(_, cpus)| cpus).collect()
}

#[test]
fn several_queues_share_the_connections_and_each_judges_its_own() {
    as_root(|| {
        for backend in BACKENDS {
            let namespace = Namespace::new();
            let flags =
                format!("--queue 5:6 --hook input --enforce --backend {backend} --metrics 127.0.0.1:9464");
            let guard = Guard::start(&namespace, "reject", &flags);
            let hosts = 32;
            for host in 1..=hosts {
                let server = Banner::start(&namespace, at(&format!("127.0.0.{host}"), 0), FORBIDDEN, 1);
                let (received, error) = read_all(namespace.connect(server.address));
                assert_eq!(error, Some(ErrorKind::ConnectionReset), "host {host}, {backend}");
                assert!(received.len() < FORBIDDEN.len(), "{received:?}");
            }
            let scrape = || namespace.run("curl -sS http://127.0.0.1:9464/metrics");
            let metrics = eventually("all matches in the metrics", || {
                let line =
                    format!("bannerwall_rule_matches_total{{action=\"reject\",rule=\"old-ssh\"}} {hosts}\n");
                Some(scrape()).filter(|text| text.contains(&line))
            });
            // The kernel spreads pairs of addresses: that all 32 fell to one queue is one case of 2^31.
            for queue in [5, 6] {
                let none = format!("bannerwall_packets_total{{queue=\"{queue}\",verdict=\"accept\"}} 0\n");
                let some = format!("bannerwall_packets_total{{queue=\"{queue}\",verdict=\"accept\"}} ");
                assert!(metrics.contains(&some) && !metrics.contains(&none), "{backend}: {metrics}");
            }
            assert!(metrics.contains("bannerwall_uninspected_packets_total 0\n"), "{metrics}");
            let cpus = cpus_of_workers(&guard);
            let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
            assert_eq!(cpus.len(), 2);
            assert!(cpus.iter().all(|list| list.parse::<u32>().is_ok()), "one CPU each: {cpus:?}");
            assert_eq!(cpus[0] != cpus[1], several, "{cpus:?}");
            guard.stop(Signal::TERM);
        }
    });
}

#[test]
fn without_privilege_the_exit_code_is_3_and_the_message_names_the_capability() {
    as_root(|| {
        let namespace = Namespace::new();
        let folder = TempDir::new().expect("a temporary folder");
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, rules_that("drop")).expect("the folder is ours");
        let output = namespace
            .command_without_net_admin(PROGRAM)
            .args(["guard", "--rules"])
            .arg(&rules)
            .output()
            .expect("setpriv starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("CAP_NET_ADMIN"), "{stderr}");
    });
}

#[test]
fn a_guard_whose_messages_nobody_reads_any_more_goes_on() {
    as_root(|| {
        let namespace = Namespace::new();
        let folder = TempDir::new().expect("a temporary folder");
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, rules_that("drop")).expect("the folder is ours");
        let mut command = namespace.command(PROGRAM);
        command.args(["guard", "--hook", "input", "--format", "json", "--rules"]).arg(&rules);
        let mut guard =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut messages = BufReader::new(guard.stderr.take().expect("piped")).lines();
        assert!(messages.any(|line| line.is_ok_and(|line| line.contains("ready: queue"))));
        drop(messages);
        let signal = |guard: &Child, signal| {
            kill_process(Pid::from_child(guard), signal).expect("it runs");
        };
        // It has something to say of each of these.
        signal(&guard, Signal::HUP);
        std::fs::write(&rules, "[[rule").expect("the folder is ours");
        signal(&guard, Signal::HUP);
        signal(&guard, Signal::USR1);
        let mut events = BufReader::new(guard.stdout.take().expect("piped")).lines();
        assert!(events.any(|line| line.is_ok_and(|line| line.contains("\"stats\""))), "it goes on");
        signal(&guard, Signal::TERM);
        assert_eq!(guard.wait().expect("it ends").code(), Some(0));
    });
}

#[test]
fn a_hook_that_leads_to_another_running_guard_is_left_alone() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = Guard::start(&namespace, "drop", "--hook input --queue 3");
        let before = guard.hook_status();
        let mut command = namespace.command(PROGRAM);
        command.args(["guard", "--hook", "input,output", "--queue", "4", "--rules"]).arg(guard.rules());
        let mut second = Running::start(command);
        assert_eq!(second.wait_exit().code(), Some(2), "{}", second.stderr());
        assert!(second.stderr().contains("leads to queue 3"), "{}", second.stderr());
        assert_eq!(guard.hook_status(), before);
        guard.stop(Signal::TERM);
    });
}

/// A field of each thread's status, by the thread's name.
fn thread_fields(process: u32, field: &str) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let value =
            |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        Some((value("Name:")?, value(field)?))
    };
    tasks.filter_map(read).collect()
}

#[test]
fn each_thread_keeps_the_capabilities_that_it_needs_and_no_more() {
    const NETWORK: u64 = 1 << 12 | 1 << 13;
    const FILES: u64 = 1 << 1 | 1 << 2;
    as_root(|| {
        for backend in BACKENDS {
            let namespace = Namespace::new();
            let flags = format!("--hook input --metrics 127.0.0.1:9464 --backend {backend}");
            let guard = Guard::start(&namespace, "drop", &flags);
            let id = guard.process.id();
            for (thread, text) in thread_fields(id, "CapEff:").into_iter().chain(thread_fields(id, "CapPrm:"))
            {
                let held = u64::from_str_radix(&text, 16).expect("a set");
                let wanted = match thread.as_str() {
                    "metrics" | "signals" => 0,
                    "writer" => FILES,
                    name if name.starts_with("queue-") => NETWORK,
                    _ => NETWORK | FILES,
                };
                assert_eq!(held & !wanted, 0, "{thread}: {text}");
            }
            let threads = thread_fields(id, "NoNewPrivs:");
            assert!(threads.len() >= 4 && threads.iter().all(|(_, value)| value == "1"), "{threads:?}");
            guard.stop(Signal::TERM);
        }
    });
}

/// Whether programs that the process starts inherit a descriptor.
fn is_inherited(process: u32, descriptor: &str) -> bool {
    /// `O_CLOEXEC` as `/proc` shows it.
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let info = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).expect("it is open");
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("every kernel shows them");
    u32::from_str_radix(flags.trim(), 8).expect("octal digits") & CLOSED_ON_EXEC == 0
}

#[test]
fn programs_that_the_guard_starts_do_not_inherit_its_queues() {
    /// `NETLINK_NETFILTER`.
    const NETFILTER: &str = "12";
    as_root(|| {
        for backend in BACKENDS {
            let namespace = Namespace::new();
            let guard = Guard::start(&namespace, "drop", &format!("--hook input --backend {backend}"));
            let id = guard.process.id();
            let table = std::fs::read_to_string(format!("/proc/{id}/net/netlink")).expect("it runs");
            let sockets: Vec<String> = table
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>())
                .filter(|fields| fields.get(1) == Some(&NETFILTER))
                .filter_map(|fields| Some(format!("socket:[{}]", fields.last()?)))
                .collect();
            let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).expect("it runs");
            let queues: Vec<String> = descriptors
                .filter_map(std::io::Result::ok)
                .filter(|entry| {
                    std::fs::read_link(entry.path())
                        .is_ok_and(|target| sockets.iter().any(|socket| target == Path::new(socket)))
                })
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect();
            assert!(!queues.is_empty(), "{table}");
            assert!(!queues.iter().any(|queue| is_inherited(id, queue)), "{backend}: {queues:?}");
            guard.stop(Signal::TERM);
        }
    });
}
