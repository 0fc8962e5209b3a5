//! A fleet over PostgreSQL: workers that are killed, stopped and told to end, a database that goes away, and
//! each target found once all the same.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{IpAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bannerwall_test_support::{Postgres, Running, Signal, eventually, json_lines, psql, ssh_servers};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Patience with servers that get no processor for a while.
const PATIENT: [&str; 4] = ["--read-timeout", "9s", "--total-timeout", "30s"];

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn fleet(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    // Where no rules are.
    command.arg("fleet").args(words).args(["--database", url]).current_dir("/");
    command
}

fn run(url: &str, words: &[&str]) -> Output {
    fleet(url, words).output().expect("it runs")
}

/// What it prints, where that is well.
fn told(url: &str, words: &[&str]) -> String {
    let output = run(url, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout).trim_end().to_owned()
}

/// SSH servers on every loopback address, each of another version; their port.
fn servers() -> String {
    ssh_servers(|number| format!("SSH-2.0-test_{number}\r\n").into_bytes()).to_string()
}

/// Has a range of them scanned; the scan's number.
fn submit(url: &str, range: &str, port: &str, words: &[&str]) -> String {
    told(url, &[&["submit", "ssh", range, "-p", port][..], &PATIENT, words].concat())
}

fn worker(url: &str, words: &[&str]) -> Running {
    Running::start(fleet(url, &[&["worker"], words].concat()))
}

fn ends_well(mut worker: Running) {
    let status = worker.wait_exit();
    assert_eq!(status.code(), Some(0), "{}", worker.stderr());
}

/// How many targets of all scans are over.
fn over(url: &str) -> u64 {
    psql(url, "SELECT coalesce(sum(over), 0) FROM fleet_shards").parse().expect("a number")
}

fn wait_over(url: &str, count: u64) {
    eventually("targets to be over", || (over(url) >= count).then_some(()));
}

/// Each of so many targets is over and told of once: in the results, and in the inventory.
fn assert_each_once(url: &str, count: u64) {
    assert_eq!(over(url), count);
    let results = "SELECT count(*), count(DISTINCT address), count(DISTINCT json::json ->> 'flow_id') FROM fleet_results";
    assert_eq!(psql(url, results), format!("{count}|{count}|{count}"));
    let counted = "SELECT sum((counts::json ->> 'open')::int) FROM fleet_shards";
    assert_eq!(psql(url, counted), count.to_string());
    let seen = "SELECT count(*), min(seen), max(seen)
                FROM (SELECT sum(count) AS seen FROM sightings GROUP BY service) each_one";
    assert_eq!(psql(url, seen), format!("{count}|1|1"));
}

#[test]
fn each_target_is_found_once_though_a_worker_is_killed_and_the_database_restarts() {
    let Some(mut server) = Postgres::start() else { return };
    let url = server.database();
    let scan = submit(&url, "127.20.0.0/20", &servers(), &["--rate", "1000", "--shard-targets", "200"]);
    assert_eq!(psql(&url, "SELECT count(*), sum(total), min(total) FROM fleet_shards"), "21|4096|195");
    let mut workers: Vec<_> = (0..4).map(|_| worker(&url, &["--until-empty", "--lease", "2s"])).collect();
    wait_over(&url, 800);
    let mut killed = workers.remove(0);
    eventually("it to hold something", || {
        let held = "SELECT count(DISTINCT worker) FROM fleet_shards WHERE state = 'leased'";
        (psql(&url, held) == "4").then_some(())
    });
    killed.signal(Signal::KILL);
    killed.wait_exit();
    wait_over(&url, 1600);
    server.stop();
    server.go_on();
    workers.into_iter().for_each(ends_well);
    assert_each_once(&url, 4096);
    assert_eq!(psql(&url, "SELECT state FROM fleet_scans"), "done");
    let handed_on = "SELECT count(*) > 0 FROM fleet_shards WHERE leases > 1 AND error LIKE 'worker %'";
    assert_eq!(psql(&url, handed_on), "t", "what the killed one had was handed on");
    let status = json_lines(&run(&url, &["status", &scan, "--format", "json"]).stdout);
    assert_eq!((&status[0]["over"], &status[0]["counts"]["open"]), (&4096.into(), &4096.into()));
}

#[test]
fn who_was_stopped_and_wakes_later_writes_nothing_more() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    submit(&url, "127.21.0.0/24", &servers(), &["--rate", "50"]);
    let slow = worker(&url, &["--until-empty", "--lease", "1s"]);
    wait_over(&url, 20);
    slow.signal(Signal::STOP);
    let before = over(&url);
    assert!(before < 200, "{before} of 256");
    let other = worker(&url, &["--until-empty", "--lease", "1s"]);
    eventually("the other one to take over", || {
        (psql(&url, "SELECT max(leases) FROM fleet_shards") == "2").then_some(())
    });
    slow.signal(Signal::CONT);
    slow.wait_stderr("it to see that it was handed on", |text| {
        text.contains("now belongs to another worker").then_some(())
    });
    ends_well(other);
    ends_well(slow);
    assert_each_once(&url, 256);
}

#[test]
fn who_is_told_to_end_gives_back_what_it_has() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    submit(&url, "127.22.0.0/23", &servers(), &["--rate", "100", "--shard-targets", "128"]);
    let first = worker(&url, &[]);
    wait_over(&url, 30);
    first.signal(Signal::TERM);
    ends_well(first);
    let over = over(&url);
    assert!((30..500).contains(&over), "{over} of 512");
    let states =
        "SELECT count(*) FROM fleet_shards WHERE state = 'leased' OR worker IS NOT NULL OR error IS NOT NULL";
    assert_eq!(psql(&url, states), "0");
    assert_eq!(psql(&url, "SELECT count(*) FROM fleet_workers"), "0");
    assert_eq!(psql(&url, "SELECT count(*) FROM fleet_shares"), "0");
    psql(&url, "UPDATE fleet_limits SET rate = 1000000");
    ends_well(worker(&url, &["--until-empty"]));
    assert_each_once(&url, 512);
}

#[test]
fn a_worker_holds_all_its_threads_to_the_network() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    submit(&url, "127.30.0.0/24", &servers(), &["--rate", "50"]);
    let busy = worker(&url, &["--until-empty"]);
    wait_over(&url, 10);
    let is_held = |status: &String| status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1");
    let tasks: Vec<String> = std::fs::read_dir(format!("/proc/{}/task", busy.id()))
        .expect("it runs")
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .collect();
    assert!(tasks.len() > 2 && tasks.iter().all(is_held), "{tasks:?}");
    psql(&url, "UPDATE fleet_limits SET rate = 1000000");
    ends_well(busy);
    assert_each_once(&url, 256);
    let loud = Running::start(fleet(&url, &["worker", "--until-empty", "--no-sandbox"]));
    loud.wait_stderr("it to say so", |text| text.contains("could open every file").then_some(()));
    ends_well(loud);
}

#[test]
fn what_is_cancelled_is_asked_no_more() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    let scan = submit(&url, "127.23.0.0/20", &servers(), &["--rate", "50", "--shard-targets", "100"]);
    let busy = worker(&url, &["--until-empty", "--lease", "2s"]);
    wait_over(&url, 20);
    told(&url, &["cancel", &scan]);
    ends_well(busy);
    let over = over(&url);
    assert!(over < 1000, "{over} of 4096");
    assert_eq!(psql(&url, "SELECT state FROM fleet_scans"), "cancelled");
    assert_eq!(psql(&url, "SELECT DISTINCT state FROM fleet_shards WHERE over < total"), "cancelled");
    assert_eq!(told(&url, &["results", &scan]).lines().count() as u64, over, "what was found stays");
    for (word, said) in [("cancel", "is over"), ("retry", "was cancelled")] {
        let output = run(&url, &[word, &scan]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

#[test]
fn what_fails_again_and_again_is_parked_and_can_be_retried() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    let scan = submit(&url, "127.24.0.0/30", &servers(), &["--attempts", "2"]);
    let whole = psql(&url, "SELECT what FROM fleet_scans");
    // Whoever can write the table has no worker read a file.
    for (old, new, said) in [
        (r#""flags":["#, r#""flags":["--input=/etc/passwd","#, "input"),
        (r#""flags":["#, r#""flags":["-o/tmp/x","#, "is not available for"),
        (r#""fingerprint":""#, r#""fingerprint":"0"#, "another version of bannerwall created it"),
        (
            r#""rules":[]"#,
            r#""rules":[{"path":"x.toml","text":"lists.a = '/etc/passwd'","kind":"rules"}]"#,
            "cannot read /etc/passwd: it was not given",
        ),
        (r#""rules":[]"#, r#""rules":[{"path":"x.toml","text":"?","kind":"rules"}]"#, "x.toml:1"),
        (r#""mode""#, r#""made""#, "its order"),
    ] {
        let changed = whole.replacen(old, new, 1);
        assert_ne!(changed, whole, "{old}");
        psql(&url, &format!("UPDATE fleet_scans SET what = $q${changed}$q$"));
        ends_well(worker(&url, &["--until-empty"]));
        let status = told(&url, &["status", &scan]);
        assert!(status.contains("1 parked") && status.contains("failed 2 times"), "{status}");
        assert!(status.contains(said), "{said}: {status}");
        assert_eq!(told(&url, &["retry", &scan]), "1 shard to retry");
    }
    psql(&url, &format!("UPDATE fleet_scans SET what = $q${whole}$q$"));
    ends_well(worker(&url, &["--until-empty"]));
    assert_each_once(&url, 4);
    assert_eq!(told(&url, &["retry", &scan]), "0 shards to retry");
    assert_eq!(psql(&url, "SELECT state FROM fleet_scans"), "done");
}

#[test]
fn who_waits_for_a_scan_is_told_how_it_has_ended_though_the_database_restarts() {
    let Some(mut server) = Postgres::start() else { return };
    let url = server.database();
    let port = servers();
    let wait = |words: &[&str]| Running::start(fleet(&url, &[&["wait"], words].concat()));
    let ends = |mut process: Running, code: i32, said: &str| {
        let status = process.wait_exit();
        let stderr = process.stderr();
        assert_eq!((status.code(), stderr.contains(said)), (Some(code), true), "{said}: {stderr}");
    };
    let done = submit(&url, "127.26.0.0/30", &port, &[]);
    let fails = submit(&url, "127.26.1.0/30", &port, &["--attempts", "1"]);
    psql(&url, &format!("UPDATE fleet_scans SET what = '{{}}' WHERE id = {fails}"));
    ends(
        wait(&[&done, "--timeout", "300ms"]),
        1,
        &format!("scan #{done} is not done in time, and continues"),
    );
    ends(wait(&["77"]), 2, "there is no scan #77");
    // What a connection asked last; other programs are connected, too.
    let asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bannerwall' \
                 AND query LIKE '%fleet_scans f WHERE id = %'";
    let are_waiting = |count: &str| {
        eventually("those that wait to be so many", || (psql(&url, asked) == count).then_some(()));
    };
    are_waiting("0");
    let leaves = wait(&[&done]);
    are_waiting("1");
    leaves.signal(Signal::INT);
    ends(leaves, 130, &format!("scan #{done} continues"));
    assert_eq!(psql(&url, &format!("SELECT state FROM fleet_scans WHERE id = {done}")), "open");
    are_waiting("0");
    let (all, both) = (wait(&[&done]), wait(&[&done, &fails]));
    are_waiting("2");
    server.stop();
    for waits in [&all, &both] {
        waits.wait_stderr("it to tell", |said| said.contains("retrying").then_some(()));
    }
    server.go_on();
    ends_well(worker(&url, &["--until-empty"]));
    ends(all, 0, &format!("scan #{done} is done"));
    ends(both, 1, &format!("scan #{fails}: shards that failed too often: 1"));
    // What is over is told at once; and of one that is cancelled, too.
    assert_eq!(run(&url, &["wait", &done, "-q"]).status.code(), Some(0));
    let words = ["submit", "ssh", "127.26.2.0/30", "-p", &port, "--wait"];
    let submits = Running::start(fleet(&url, &words));
    let scan = eventually("it to be entered", || {
        Some(psql(&url, "SELECT id FROM fleet_scans WHERE state = 'open'")).filter(|id| !id.is_empty())
    });
    told(&url, &["cancel", &scan]);
    let printed = scan.clone() + "\n";
    let stdout = eventually("its number", || Some(submits.stdout()).filter(|out| *out == printed));
    ends(submits, 1, &format!("scan #{scan} was cancelled"));
    assert_eq!(stdout, printed);
}

/// Who was connected to, and when.
type Accepted = Arc<Mutex<Vec<(Instant, IpAddr)>>>;

/// SSH servers that note it; their port.
fn counting_servers() -> (String, Accepted) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let accepted = Accepted::default();
    let noted = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let Ok(own) = connection.local_addr() else { continue };
            noted.lock().expect("nobody panics").push((Instant::now(), own.ip()));
            let _ = connection.write_all(b"SSH-2.0-test_1\r\n");
        }
    });
    (port, accepted)
}

/// How many there are within a window of that length, at most.
fn densest(times: &[Instant], window: Duration) -> usize {
    let within = |from: &Instant| times.iter().filter(|at| *at >= from && **at < *from + window).count();
    times.iter().map(within).max().unwrap_or_default()
}

#[test]
fn the_rate_holds_over_all_workers_and_for_a_network() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    let (port, accepted) = counting_servers();
    let limits = ["--rate", "100", "--shard-targets", "64", "--network-rate", "127.25.2.0/25=10"];
    submit(&url, "127.25.0.0-127.25.2.63", &port, &limits);
    let begun = Instant::now();
    let mut workers = Vec::new();
    for count in [0, 100, 200, 300] {
        wait_over(&url, count);
        workers.push(worker(&url, &["--until-empty", "--lease", "4s"]));
    }
    wait_over(&url, 400);
    let gone = workers.remove(0);
    gone.signal(Signal::TERM);
    ends_well(gone);
    workers.into_iter().for_each(ends_well);
    assert_each_once(&url, 576);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5), "{took:?}");
    let accepted = accepted.lock().expect("nobody panics").clone();
    let all: Vec<Instant> = accepted.iter().map(|(at, _)| *at).collect();
    // Servers that get no processor for a while take what waits all at once.
    let most = densest(&all, Duration::from_secs(3));
    assert!(most <= 400, "{most} in three seconds instead of 300");
    let slow: Vec<Instant> = accepted
        .iter()
        .filter(|(_, address)| matches!(address, IpAddr::V4(it) if it.octets()[2] == 2))
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(slow.len(), 64);
    let most = densest(&slow, Duration::from_secs(3));
    assert!(most <= 45, "{most} in three seconds instead of 30");
}

#[test]
fn results_are_those_of_a_plain_scan() {
    let Some(server) = Postgres::shared() else { return };
    let (url, port) = (server.database(), servers());
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.toml");
    let rule = "[[rule]]\nid = \"T-1\"\ntitle = \"even more\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                match.software = '^test_1[0-9]$'\naction = \"drop\"\n";
    std::fs::write(&rules, rule).expect("written");
    let rules = rules.display().to_string();
    let flags = ["--rules", &rules, "--no-local", "--rate", "max"];
    let plain = Command::new(PROGRAM)
        .args(["scan", "ssh", "127.26.0.0/26", "-p", &port, "--format", "json", "-q"])
        .args(PATIENT)
        .args(flags)
        .output()
        .expect("it runs");
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
    let scan = submit(&url, "127.26.0.0/26", &port, &[&flags[..], &["--shard-targets", "10"]].concat());
    // Rules travel with the order.
    std::fs::remove_file(&rules).expect("removed");
    ends_well(worker(&url, &["--until-empty"]));
    let facts = |lines: &str| -> BTreeSet<String> {
        let of_line = |line: &serde_json::Value| {
            let (kind, to) = (&line["event_type"], &line["dest_ip"]);
            format!(
                "{kind} {to} {} {}",
                line["ssh"]["server"]["software_version"], line["alert"]["signature"]
            )
        };
        json_lines(lines.as_bytes()).iter().map(of_line).collect()
    };
    let merged = facts(&text(&run(&url, &["results", &scan]).stdout));
    assert_eq!(merged, facts(&text(&plain.stdout)));
    assert_eq!(merged.iter().filter(|line| line.contains("alert")).count(), 10);
    let csv = told(&url, &["results", &scan, "--format", "csv"]);
    assert_eq!(csv.lines().count(), 1 + 64 + 10, "{csv}");
    assert!(csv.starts_with("timestamp,source,event_type,"), "{csv}");
    assert_eq!(psql(&url, "SELECT count(*) FROM findings WHERE rule = 'T-1'"), "10");
    // Who does not accept is counted, and told of where that is wanted.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound").port();
    let closed = closed.to_string();
    for (every, told_of) in [(&["--every"][..], 8), (&[][..], 0)] {
        let words = [&["submit", "connect", "127.26.1.0/29", "-p", &closed], every].concat();
        let scan = told(&url, &words);
        ends_well(worker(&url, &["--once"]));
        let status = told(&url, &["status", &scan]);
        assert!(status.contains("done") && status.contains("refused 8"), "{status}");
        assert_eq!(told(&url, &["results", &scan]).lines().count(), told_of, "{every:?}");
    }
}

#[test]
fn what_is_forgotten_is_gone_with_its_results_and_the_inventory_stays() {
    let Some(server) = Postgres::start() else { return };
    let (url, port) = (server.database(), servers());
    let scans =
        ["127.31.0.0/30", "127.31.1.0/30", "127.31.2.0/30"].map(|range| submit(&url, range, &port, &[]));
    let open = run(&url, &["forget", &scans[0]]);
    assert_eq!(open.status.code(), Some(2));
    assert!(text(&open.stderr).contains("is not over: cancel it first"), "{}", text(&open.stderr));
    ends_well(worker(&url, &["--until-empty"]));
    assert_eq!(over(&url), 12);
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'fleet_results_%'";
    assert_eq!(psql(&url, tables), "3", "one a scan");

    assert_eq!(told(&url, &["forget", "--older-than", "1d"]), "0 scans deleted");
    psql(&url, &format!("UPDATE fleet_scans SET ended = ended - 90000000 WHERE id = {}", scans[1]));
    // Whoever may forget them need not own the tables.
    psql(&url, "CREATE ROLE keeper LOGIN; GRANT USAGE ON SCHEMA bannerwall TO keeper;
                GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO keeper; GRANT DELETE ON fleet_scans TO keeper");
    let keeper = url.replace("user=postgres", "user=keeper");
    assert_eq!(told(&keeper, &["forget", "--older-than", "1d"]), "1 scan deleted");
    assert_eq!(told(&keeper, &["forget", &scans[0]]), "1 scan deleted");
    assert_eq!(run(&url, &["forget", &scans[0]]).status.code(), Some(2), "there is none any more");
    assert_eq!(psql(&url, tables), "1");
    assert_eq!(told(&url, &["results", &scans[2]]).lines().count(), 4);
    assert_eq!(psql(&url, "SELECT count(*) FROM services"), "12", "the inventory keeps what it has");
    assert_eq!(psql(&url, "SELECT count(DISTINCT scan) FROM fleet_shards"), "1");
    for words in
        [&["forget"][..], &["forget", "1", "--older-than", "1d"], &["forget", "--older-than", "long"]]
    {
        assert_eq!(run(&url, words).status.code(), Some(2), "{words:?}");
    }
    // The next one has its own again.
    submit(&url, "127.31.3.0/30", &port, &[]);
    ends_well(worker(&url, &["--until-empty"]));
    assert_eq!(psql(&url, "SELECT count(*) FROM fleet_results"), "8");
}

#[test]
fn what_is_due_begins_once_and_what_was_missed_is_told() {
    let Some(server) = Postgres::shared() else { return };
    let (url, port) = (server.database(), servers());
    let words = ["schedule", "0 * * * * Europe/Berlin", "ssh", "127.27.0.0/28", "-p", &port];
    let schedule = told(&url, &[&words[..], &PATIENT].concat());
    ends_well(worker(&url, &["--until-empty"]));
    assert_eq!(psql(&url, "SELECT count(*) FROM fleet_scans"), "0", "not before it is due");
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now() - 1000");
    let workers = [(); 3].map(|()| worker(&url, &["--until-empty"]));
    workers.into_iter().for_each(ends_well);
    ends_well(worker(&url, &["--until-empty"]));
    assert_each_once(&url, 16);
    assert_eq!(psql(&url, "SELECT schedule, state FROM fleet_scans"), format!("{schedule}|done"));
    assert_eq!(psql(&url, "SELECT due > fleet_now(), missed FROM fleet_schedules"), "t|0");
    // Nobody was there for three hours and twenty minutes.
    psql(&url, "UPDATE fleet_schedules SET due = (fleet_now() / 3600000 - 3) * 3600000");
    let late: i64 = psql(&url, "SELECT fleet_now() % 3600000").parse().expect("a number");
    let told_of = worker(&url, &["--until-empty"]);
    told_of.wait_stderr("it to be told", |text| text.contains("missed starts").then_some(()));
    ends_well(told_of);
    let missed = if late > 5 * 60_000 { 4 } else { 3 };
    assert_eq!(psql(&url, "SELECT missed FROM fleet_schedules"), missed.to_string());
    let list = told(&url, &["schedules"]);
    assert!(list.contains("no worker was running") && list.contains("127.27.0.0/28"), "{list}");
    told(&url, &["unschedule", &schedule]);
    assert_eq!(run(&url, &["unschedule", &schedule]).status.code(), Some(2));
}

#[test]
fn nothing_is_asked_in_excluded_minutes() {
    let Some(server) = Postgres::shared() else { return };
    let (url, port) = (server.database(), servers());
    let scan = submit(&url, "127.28.0.0/30", &port, &["--not-at", "* * * * *"]);
    let idle = worker(&url, &["--lease", "1s"]);
    eventually("it to be heard of again and again", || {
        (psql(&url, "SELECT count(*) FROM fleet_workers WHERE seen > since + 3000") == "1").then_some(())
    });
    assert_eq!(over(&url), 0);
    psql(&url, r#"UPDATE fleet_scans SET what = replace(what, '"* * * * *"', '"* * 30 2 *"')"#);
    wait_over(&url, 4);
    told(&url, &["status", &scan]);
    idle.signal(Signal::TERM);
    ends_well(idle);
    assert_each_once(&url, 4);
}

#[test]
fn workers_and_readers_need_no_more_than_is_documented() {
    let Some(server) = Postgres::start() else { return };
    let (url, port) = (server.database(), servers());
    let scan = submit(&url, "127.29.0.0/28", &port, &["--network-rate", "127.29.0.0/30=100"]);
    told(&url, &["schedule", "0 0 * * *", "connect", "127.29.1.0", "-p", &port]);
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now()");
    let page = include_str!("../../docs/src/reference/database-roles.md");
    psql(&url, "CREATE ROLE writers LOGIN; CREATE ROLE readers LOGIN");
    let grants: Vec<&str> =
        page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(grants.len(), 2, "for an inventory, and for a fleet");
    for grants in grants {
        psql(&url, grants);
    }
    let [writers, readers] =
        ["writers", "readers"].map(|role| url.replace("user=postgres", &format!("user={role}")));
    ends_well(worker(&writers, &["--until-empty"]));
    let status = told(&readers, &["status"]);
    assert_eq!(status.lines().filter(|line| line.contains("done")).count(), 2, "{status}");
    assert_eq!(told(&readers, &["results", &scan]).lines().count(), 16);
    for words in [&["cancel", &scan][..], &["worker", "--until-empty"]] {
        let output = run(&readers, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains("permission denied"), "{}", text(&output.stderr));
    }
}

#[test]
fn bad_input_is_refused_where_it_is_given() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    let refused = |words: &[&str], said: &str| {
        let output = Command::new(PROGRAM).arg("fleet").args(words).output().expect("it runs");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
        assert!(!stderr.contains("s3cret"), "{stderr}");
    };
    refused(&["status", "--database", &url], "there is no fleet yet");
    refused(&["worker", "--database", &url], "there is no fleet yet");
    refused(&["submit", "ssh", "192.0.2.1"], "--database is missing");
    refused(&["status", "--database", "/nowhere/net.db"], "no such inventory");
    refused(&["status", "--database", "postgresql://ann:s3cret@127.0.0.1:1/net"], "ann@127.0.0.1:1/net");
    let submit = |words: &[&str], said: &str| {
        refused(&[&["submit"], words, &["--database", &url]].concat(), said);
    };
    submit(&["ssh"], "no targets");
    submit(&["ssh", "192.0.2.0/33"], "192.0.2.0/33");
    submit(&["ssh", "192.0.2.1", "--exclude", "192.0.2.1"], "no targets are left");
    submit(&["ssh", "192.0.2.1", "--match", "("], "--match");
    submit(&["ssh", "192.0.2.1", "--rules", "/nowhere"], "/nowhere");
    submit(&["ssh", "192.0.2.1", "--rate", "0"], "--rate");
    submit(&["ssh", "192.0.2.1", "--shard-targets", "0"], "--shard-targets");
    submit(&["ssh", "192.0.2.1", "--network-rate", "192.0.2.0/24"], "--network-rate");
    submit(&["ssh", "192.0.2.1", "--not-at", "noon"], "--not-at");
    submit(&["ssh", "0.0.0.0/0", "--shard-targets", "100"], "pass a larger --shard-targets");
    for flag in ["--resume=x", "--shard=1/2", "--output=x", "--inventory=x", "--threads=2", "--format=json"] {
        submit(&["ssh", "192.0.2.1", flag], "is not available for a fleet's scan");
    }
    refused(&["schedule", "noon", "ssh", "192.0.2.1", "--database", &url], "minute, hour");
    assert_eq!(psql(&url, "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'fleet%'"), "0");
    assert_eq!(told(&url, &["submit", "connect", "192.0.2.1", "-p", "22"]), "1");
    for word in ["status", "results", "cancel", "retry"] {
        refused(&[word, "77", "--database", &url], "there is no scan #77");
    }
    refused(&["worker", "--lease", "1ms", "--database", &url], "from 1s to 1h");
    psql(&url, "UPDATE fleet_version SET version = 9");
    refused(&["status", "--database", &url], "version 9");
}
