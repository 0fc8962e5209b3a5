//! Counters that tell the truth: over reloads, between runs, and where nothing can be known.

use std::io::Read as _;
use std::path::PathBuf;

use bannerwall_test_support::{Banner, Namespace, Running, Signal, as_root, eventually};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const METRICS: &str = "127.0.0.1:9464";
const RULE: &str = r#"
[[rule]]
id = "old-ssh"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^OldSSH_'
action = "reject"
severity = "high"
"#;

/// A guard on the loopback of a namespace.
struct Guard<'a> {
    namespace: &'a Namespace,
    folder: &'a TempDir,
    process: Running,
}

impl<'a> Guard<'a> {
    fn start(namespace: &'a Namespace, folder: &'a TempDir, flags: &str) -> Self {
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, RULE).expect("the folder is ours");
        let mut command = namespace.command(PROGRAM);
        command.env("RUNTIME_DIRECTORY", folder.path().join("run"));
        command.args(["guard", "--format", "json", "--metrics", METRICS, "--rules"]).arg(&rules);
        command.args(flags.split_whitespace());
        let process = Running::start(command);
        process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        Self { namespace, folder, process }
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    /// A connection to a server that says `banner`.
    fn connection(&self, banner: &[u8]) {
        connection(self.namespace, banner);
    }

    fn metrics(&self) -> String {
        self.namespace.run(&format!("curl -sS http://{METRICS}/metrics"))
    }

    /// The value of a series; none where it is not shown.
    fn value(&self, series: &str) -> Option<f64> {
        value(&self.metrics(), series)
    }

    fn wait_value(&self, series: &str, expected: f64) {
        eventually(&format!("{series} {expected}"), || (self.value(series) == Some(expected)).then_some(()));
    }

    /// Reads the rules again and waits until that is done for the `count`th time.
    fn reload(&self, count: f64) {
        self.process.signal(Signal::HUP);
        self.wait_value("bannerwall_reloads_total{result=\"success\"}", count);
    }

    fn stop(mut self) -> String {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.wait_exit().code(), Some(0), "{}", self.process.stderr());
        self.process.stderr()
    }
}

/// The value of a series in what was scraped.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().expect("a number"))
}

fn connection(namespace: &Namespace, banner: &[u8]) {
    let server = Banner::start(namespace, ([127, 0, 0, 1], 0), banner, 100);
    // The server's end comes behind ours. A reset is as good an end as any here, however early it comes.
    let _ = namespace.connect(server.address).map(|mut stream| stream.read_exact(&mut vec![0; banner.len()]));
    let _ = server.finish();
}

const MATCHES: &str = "bannerwall_rule_matches_total{action=\"reject\",rule=\"old-ssh\"}";

#[test]
fn no_counter_doubles_or_goes_back_at_a_reload() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), TempDir::new().expect("a temporary folder"));
        let guard = Guard::start(&namespace, &folder, "--hook input --enforce");
        for _ in 0..3 {
            guard.connection(b"SSH-2.0-OldSSH_1.0\r\n");
        }
        guard.wait_value(MATCHES, 3.0);
        guard.wait_value("bannerwall_flows_blocked_total{action=\"reject\"}", 3.0);
        assert_eq!(guard.value("bannerwall_enforcing"), Some(1.0));
        let counters = |text: &str| -> Vec<(String, f64)> {
            let series = text.lines().filter(|line| line.contains("_total") && !line.starts_with('#'));
            let pairs = series.filter_map(|line| line.rsplit_once(' '));
            pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
        };
        let before = counters(&guard.metrics());
        for count in 1..=4_u8 {
            // Another rule comes and goes in front, so that indexes move.
            let other = RULE.replace("old-ssh", "other").replace("OldSSH", "Other");
            let rules = if count % 2 == 1 { format!("{other}{RULE}") } else { RULE.to_owned() };
            std::fs::write(guard.rules(), rules).expect("the folder is ours");
            guard.reload(f64::from(count));
        }
        // A worker takes new rules on its next tick: after one more match it has.
        guard.connection(b"SSH-2.0-OldSSH_1.0\r\n");
        guard.wait_value(MATCHES, 4.0);
        let after = counters(&guard.metrics());
        for (name, value) in &before {
            let now = after.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
            assert!(now >= Some(*value), "{name}: {value}, then {now:?}");
        }
        std::fs::write(guard.rules(), "[[rule").expect("the folder is ours");
        guard.process.signal(Signal::HUP);
        guard.wait_value("bannerwall_last_reload_successful", 0.0);
        assert!(guard.value("bannerwall_last_reload_success_timestamp_seconds") > Some(1.0e9));
        assert!(guard.value("process_resident_memory_bytes") > Some(1.0e6));
        guard.stop();
    });
}

#[test]
fn every_anomaly_has_a_series_of_http_too() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), TempDir::new().expect("a temporary folder"));
        let guard = Guard::start(&namespace, &folder, "--hook input");
        let answer = b"HTTP/1.1 200 OK\r\nServer : a\r\nContent-Length: 0\r\n\r\n";
        guard.connection(answer);
        guard.wait_value("bannerwall_anomalies_total{anomaly=\"http_space_before_colon\"}", 1.0);
        guard.stop();
    });
}

#[test]
fn what_cannot_be_known_is_absent_and_said() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), TempDir::new().expect("a temporary folder"));
        let lost = "bannerwall_uninspected_packets_total";
        let guard = Guard::start(&namespace, &folder, "");
        assert_eq!(guard.value(lost), None);
        assert!(guard.stop().contains("no hook leads packets to queue 0"));
        namespace.run(&format!("{PROGRAM} hook up --chains input --queue 0:3"));
        let guard = Guard::start(&namespace, &folder, "");
        assert_eq!(guard.value(lost), None);
        assert!(guard.stop().contains("leads to queue 0:3, and this guard serves queue 0"));
        let guard = Guard::start(&namespace, &folder, "--queue 0:3 --on-failure closed --mark 20");
        assert_eq!(guard.value(lost), Some(0.0));
        let said = guard.stop();
        assert!(said.contains("has --on-failure open") && said.contains("the same --mark"), "{said}");
        namespace.run(&format!("{PROGRAM} hook down"));
    });
}

#[test]
fn packets_between_two_runs_are_counted() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), TempDir::new().expect("a temporary folder"));
        let lost = "bannerwall_uninspected_packets_total";
        namespace.run(&format!("{PROGRAM} hook up --chains input"));
        let guard = Guard::start(&namespace, &folder, "");
        guard.connection(b"SSH-2.0-OpenSSH_9.8\r\n");
        assert_eq!(guard.value(lost), Some(0.0));
        guard.stop();
        connection(&namespace, b"SSH-2.0-OpenSSH_9.8\r\n");
        let guard = Guard::start(&namespace, &folder, "");
        let missed = guard.value(lost).expect("it is known");
        assert!((5.0..30.0).contains(&missed), "a connection's packets: {missed}");
        let line = format!("packets that passed uninspected between the last run and this one: {missed}");
        assert!(guard.process.stderr().contains(&line));
        guard.stop();
        // Nothing came since.
        let guard = Guard::start(&namespace, &folder, "");
        assert_eq!(guard.value(lost), Some(missed));
        assert_eq!(guard.value("bannerwall_failed_runs_total"), Some(0.0));
        guard.stop();
        namespace.run(&format!("{PROGRAM} hook down"));
    });
}

#[test]
fn packets_that_pass_around_kills_are_counted_over_all_of_them() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), TempDir::new().expect("a temporary folder"));
        let lost = "bannerwall_uninspected_packets_total";
        namespace.run(&format!("{PROGRAM} hook up --chains input"));
        let mut unseen = 0.0;
        for kills in 0..4_u8 {
            let guard = Guard::start(&namespace, &folder, "");
            let counted = guard.value(lost).expect("it is known");
            assert!(counted >= unseen, "{counted} of {unseen}: {}", guard.process.stderr());
            assert_eq!(guard.value("bannerwall_failed_runs_total"), Some(f64::from(kills)));
            guard.process.signal(Signal::KILL);
            drop(guard);
            for _ in 0..5 {
                connection(&namespace, b"SSH-2.0-OpenSSH_9.8\r\n");
            }
            // A connection's packets, of which five are the least.
            unseen = counted + 25.0;
        }
        namespace.run(&format!("{PROGRAM} hook down"));
    });
}

#[test]
fn a_guard_that_hung_shows_how_long_packets_waited() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), TempDir::new().expect("a temporary folder"));
        let guard = Guard::start(&namespace, &folder, "--hook input");
        // Each scrape goes through the guard and counts, too: both figures come from one.
        let waited_long = || {
            let metrics = guard.metrics();
            let all = value(&metrics, "bannerwall_queue_wait_seconds_count")?;
            let short = value(&metrics, "bannerwall_queue_wait_seconds_bucket{le=\"1\"}")?;
            (all - short >= 1.0).then_some(())
        };
        guard.process.signal(Signal::STOP);
        std::thread::scope(|scope| {
            let hung = scope.spawn(|| connection(&namespace, b"SSH-2.0-OpenSSH_9.8\r\n"));
            eventually("a packet that waits", || (namespace.waiting_packets() > 0).then_some(()));
            std::thread::sleep(std::time::Duration::from_millis(1100));
            guard.process.signal(Signal::CONT);
            hung.join().expect("it ends");
        });
        eventually("a long wait", waited_long);
        assert!(guard.value("bannerwall_worker_last_turn_timestamp_seconds{queue=\"0\"}") > Some(1.0e9));
        guard.stop();
    });
}
