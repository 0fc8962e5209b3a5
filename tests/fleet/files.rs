//! A fleet over an SQLite file: the workers of one machine.

use std::path::Path;
use std::process::Command;

use bannerwall_test_support::{PATIENT, Running, Signal, eventually, ssh_servers};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// An inventory in a folder of its own.
struct Inventory(tempfile::TempDir);

impl Inventory {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn fleet(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("fleet").args(words).arg("--database").arg(self.0.path().join("net.db"));
        command.current_dir("/");
        command
    }

    fn told(&self, words: &[&str]) -> String {
        let output = self.fleet(words).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn submit(&self, range: &str, port: &str, words: &[&str]) -> String {
        let patient: Vec<&str> = PATIENT.split(' ').collect();
        self.told(&[&["submit", "ssh", range, "-p", port][..], &patient, words].concat())
    }

    fn worker(&self, words: &[&str]) -> Running {
        Running::start(self.fleet(&[&["worker"], words].concat()))
    }

    fn status(&self, scan: &str) -> Value {
        serde_json::from_str(&self.told(&["status", scan, "--format", "json"])).expect("JSON")
    }

    fn ask<T: rusqlite::types::FromSql>(&self, query: &str) -> T {
        let file = rusqlite::Connection::open(self.0.path().join("net.db")).expect("an inventory");
        file.busy_timeout(std::time::Duration::from_secs(30)).expect("sets");
        file.query_row(query, [], |row| row.get(0)).expect(query)
    }

    fn change(&self, statement: &str) {
        let file = rusqlite::Connection::open(self.0.path().join("net.db")).expect("an inventory");
        file.busy_timeout(std::time::Duration::from_secs(30)).expect("sets");
        file.execute_batch(statement).expect(statement);
    }
}

fn ends_well(mut worker: Running) {
    let status = worker.wait_exit();
    assert_eq!(status.code(), Some(0), "{}", worker.stderr());
}

fn servers() -> String {
    ssh_servers(|number| format!("SSH-2.0-test_{number}\r\n").into_bytes()).to_string()
}

#[test]
fn in_a_file_each_target_is_found_once_though_a_worker_is_killed() {
    let inventory = Inventory::new();
    let limits = ["--rate", "300", "--shard-targets", "100", "--network-rate", "127.30.0.0/24=200"];
    let scan = inventory.submit("127.30.0.0/22", &servers(), &limits);
    assert_eq!(
        inventory
            .ask::<String>("SELECT count(*) || ' ' || sum(total) || ' ' || min(total) FROM fleet_shards"),
        "11 1024 93"
    );
    assert_eq!(
        inventory.ask::<String>("SELECT group_concat(number || ' ' || rate, ', ') FROM fleet_limits"),
        "0 300000, 1 200000"
    );
    let flags = ["--until-empty", "--lease", "2s"];
    let mut killed = inventory.worker(&flags);
    let held = "SELECT count(*) FROM fleet_shards WHERE state = 'leased'";
    let over = "SELECT sum(over) FROM fleet_shards";
    eventually("targets to be over", || (inventory.ask::<i64>(over) >= 100).then_some(()));
    eventually("it to hold something", || (inventory.ask::<i64>(held) > 0).then_some(()));
    killed.signal(Signal::KILL);
    killed.wait_exit();
    let others = [inventory.worker(&flags), inventory.worker(&flags)];
    others.into_iter().for_each(ends_well);

    let results = "SELECT count(*) || ' ' || count(DISTINCT address) FROM fleet_results";
    assert_eq!((inventory.ask::<i64>(over), inventory.ask::<String>(results)), (1_024, "1024 1024".into()));
    let seen = "SELECT count(*) || ' ' || min(seen) || ' ' || max(seen)
                FROM (SELECT sum(count) AS seen FROM sightings GROUP BY service) each_one";
    assert_eq!(inventory.ask::<String>(seen), "1024 1 1");
    let handed_on = "SELECT count(*) FROM fleet_shards WHERE leases > 1 AND error LIKE 'worker %'";
    assert!(inventory.ask::<i64>(handed_on) > 0, "what the killed one had was handed on");
    let status = inventory.status(&scan);
    assert_eq!(
        (&status["state"], &status["over"], &status["counts"]["open"]),
        (&"done".into(), &1_024.into(), &1_024.into())
    );
    assert_eq!(inventory.told(&["results", &scan]).lines().count(), 1_024);
    inventory.told(&["forget", &scan]);
    for table in ["fleet_scans", "fleet_shards", "fleet_limits", "fleet_shares", "fleet_results"] {
        assert_eq!(inventory.ask::<i64>(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
}

#[test]
fn in_a_file_what_is_due_begins_and_what_was_cancelled_ends() {
    let inventory = Inventory::new();
    let port = servers();
    let words = ["schedule", "0 3 * * *", "ssh", "127.30.8.1", "-p", &port];
    assert_eq!(inventory.told(&words), "1");
    inventory.change("UPDATE fleet_schedules SET due = unixepoch() * 1000 - 60000");
    let worker = inventory.worker(&["--lease", "2s"]);
    eventually("the scan to begin and to end", || {
        (inventory.ask::<i64>("SELECT count(*) FROM fleet_scans WHERE schedule = 1 AND state = 'done'") == 1)
            .then_some(())
    });
    inventory.change("UPDATE fleet_schedules SET due = unixepoch() * 1000 - 3600000");
    eventually("the missed run", || {
        (inventory.ask::<i64>("SELECT missed FROM fleet_schedules") == 1).then_some(())
    });
    assert!(inventory.told(&["schedules"]).contains("missed 1 times"));
    inventory.told(&["unschedule", "1"]);

    let slow = inventory.submit("127.30.9.0/24", &port, &["--rate", "1"]);
    let held = "SELECT count(*) FROM fleet_shards WHERE state = 'leased'";
    eventually("the worker to take it", || (inventory.ask::<i64>(held) > 0).then_some(()));
    inventory.told(&["cancel", &slow]);
    eventually("the worker to leave it", || (inventory.ask::<i64>(held) == 0).then_some(()));
    assert_eq!(inventory.status(&slow)["state"], "cancelled");
    worker.signal(Signal::TERM);
    ends_well(worker);
    assert_eq!(inventory.ask::<i64>("SELECT count(*) FROM fleet_workers"), 0);
}

#[test]
fn what_needs_a_server_is_refused_for_a_file() {
    let inventory = Inventory::new();
    inventory.submit("127.30.10.1", "9", &[]);
    let refused = |words: &[&str], said: &str| {
        let output = inventory.fleet(words).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(said), "{words:?}: {stderr}");
    };
    for words in [&["init"][..], &["merge"], &["doctor"], &["rules", "list"]] {
        refused(words, "needs a PostgreSQL server");
    }
    refused(&["forget", "--sensor", "east"], "there is no sensor east");
    assert!(!Path::new("net.db").exists());
}

#[test]
fn the_flags_of_a_job_ignore_the_environment() {
    let inventory = Inventory::new();
    let url = "postgresql://ann@192.0.2.1/net?sslmode=verify-full&sslrootcert=/no/such/file";
    let mut submit = inventory.fleet(&["submit", "connect", "127.30.11.1", "-p", "9"]);
    submit.env("BANNERWALL_INVENTORY", url).env("BANNERWALL_DATABASE", url);
    let output = submit.output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut worker = inventory.fleet(&["worker", "--until-empty"]);
    worker.env("BANNERWALL_INVENTORY", url).env("BANNERWALL_DATABASE", url);
    ends_well(Running::start(worker));
    let scan = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(inventory.status(&scan)["state"], "done");
}

#[test]
fn an_order_that_cannot_be_done_is_tried_at_growing_intervals() {
    let inventory = Inventory::new();
    inventory.told(&["submit", "connect", "127.30.9.1", "-p", "9", "--attempts", "100"]);
    inventory.change("UPDATE fleet_scans SET what = '{}'");
    let worker = inventory.worker(&["--lease", "2s"]);
    let attempts = || inventory.ask::<i64>("SELECT attempts FROM fleet_shards");
    eventually("the second attempt", || (attempts() >= 2).then_some(()));
    let begun = std::time::Instant::now();
    eventually("the fourth attempt", || (attempts() >= 4).then_some(()));
    // Pauses of 2 and 4 seconds lie between them.
    assert!(begun.elapsed().as_secs() >= 4, "{:?}: {}", begun.elapsed(), worker.stderr());
}
