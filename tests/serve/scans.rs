//! Scans that are submitted on the page of `bannerwall serve`: who may have what scanned, what the queue says of
//! it, and what becomes of it where a page, or its worker, is killed. Over a file, and over a database of a
//! PostgreSQL server.

use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use bannerwall_test_support::page::{curl, get_json, status};
use bannerwall_test_support::{PATIENT, Postgres, Running, Signal, eventually, psql, ssh_servers};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULES: &str = r#"
[[rule]]
id = "any-ssh"
title = "An SSH server"
protocol = "ssh"
from = "server"
match.software = '.'
action = "alert"
severity = "high"
"#;

/// An inventory, and rules beside it.
struct Place {
    folder: tempfile::TempDir,
    /// The database of a server that it is in; a file of the folder where there is none.
    url: Option<String>,
}

/// Runs a test over a file, and over a server's database.
fn on_both(test: impl Fn(&Place)) {
    test(&Place::new(None));
    if let Some(server) = Postgres::shared() {
        test(&Place::new(Some(server.database())));
    }
}

impl Place {
    fn new(url: Option<String>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        Self { folder, url }
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    fn inventory(&self) -> PathBuf {
        self.url.as_ref().map_or_else(|| self.folder.path().join("net.db"), PathBuf::from)
    }

    fn scan(&self, words: &str) {
        let mut command = Command::new(PROGRAM);
        command.arg("scan").args(words.split_whitespace()).args(["--rate", "max", "-q", "--sensor", "edge"]);
        command.args(PATIENT.split(' '));
        command.arg("--rules").arg(self.rules()).arg("--inventory").arg(self.inventory());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A page; its address ends with a slash.
    fn site(&self, flags: &[&str]) -> (Running, String) {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg("--inventory").arg(self.inventory()).args(flags);
        command.current_dir(self.folder.path());
        let process = Running::start(command);
        let url = process.wait_stderr("the address", |said| {
            said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
        });
        (process, url)
    }

    /// Writes into the queue by hand.
    fn change(&self, statement: &str) {
        match &self.url {
            Some(url) => drop(psql(url, statement)),
            None => {
                let file = rusqlite::Connection::open(self.inventory()).expect("an inventory");
                file.busy_timeout(std::time::Duration::from_secs(30)).expect("sets");
                file.execute_batch(statement).expect("a statement");
            }
        }
    }
}

/// Sends JSON to the API; status and answer.
fn post(url: &str, value: &Value) -> (u16, Value) {
    let (status, body) = curl(&["-d", &value.to_string(), url]);
    (status, serde_json::from_str(&body).unwrap_or_default())
}

/// How the scan of this number stands, once it is as it is waited for.
fn scan_is(url: &str, number: i64, state: &str) -> Value {
    eventually(&format!("scan {number} to be {state}"), || {
        let all = get_json(&format!("{url}api/scans"));
        let scans = all["scans"].as_array().cloned().unwrap_or_default();
        scans.into_iter().find(|it| it["scan"] == number && it["state"] == state)
    })
}

#[test]
fn scans_are_started_and_ended_from_the_page() {
    on_both(starts_and_ends);
}

fn starts_and_ends(place: &Place) {
    let port = ssh_servers(|number| format!("SSH-2.0-OpenSSH_9.{}\r\n", number % 10).into_bytes());
    place.scan(&format!("ssh 127.7.1.1 -p {port}"));
    // Who did not ask for it gets none.
    let (process, url) = place.site(&["--listen", "127.0.0.1:0"]);
    let order = |targets: &str, rate: u32| json!({ "mode": "ssh", "targets": targets, "ports": port.to_string(), "rate": rate });
    assert_eq!(post(&format!("{url}api/scans"), &order("127.7.0.1", 9)).0, 404);
    assert!(curl(&[&format!("{url}scans")]).1.contains("--scan-allow"));
    drop(process);

    let rules = place.rules();
    let flags =
        ["--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24", "--scan-rate", "5000", "--scan-rules"];
    let (mut process, url) = place.site(&[&flags[..], &[rules.to_str().expect("UTF-8")]].concat());
    let api = format!("{url}api/scans");
    for (wrong, why) in [
        (order("127.7.1.0/24", 9), "not within"),
        (order("127.7.0.0/16", 9), "not within"),
        (order("localhost", 9), "a name can resolve to any address"),
        (order("--input=/etc/passwd", 9), "targets: --input"),
        (order("127.7.0.1", 0), "rate: must be from 1 to 5000"),
        (order("127.7.0.1", 5_001), "rate: must be from 1 to 5000"),
        (json!({ "mode": "ssh", "targets": "127.7.0.1", "port": "22" }), "unknown field `port`"),
        (json!({ "mode": "ssh", "targets": "127.7.0.1", "ports": "22 -oX" }), "ports:"),
        (json!({ "mode": "sh", "targets": "127.7.0.1" }), "unknown variant"),
        (json!({ "mode": "ssh", "targets": "127.7.0.1", "when": "hourly" }), "when:"),
    ] {
        let (status, answer) = post(&api, &wrong);
        let told = answer["error"].as_str().unwrap_or_default();
        assert_eq!((status, told.contains(why)), (400, true), "{wrong}: {told}");
    }
    assert_eq!(status(&["-d", "{}", "-H", "Origin: https://foreign.example", &api]), 403);
    let form = |targets: &str| format!("mode=ssh&targets={targets}&ports={port}&rate=1000");
    let (refused, page) = curl(&["-d", &form("198.51.100.1"), &format!("{url}scans")]);
    assert_eq!(
        (refused, page.contains("not within"), page.contains("value=\"198.51.100.1\"")),
        (400, true, true)
    );
    let (refused, page) = curl(&["-d", &format!("{}&port=22", form("127.7.0.1")), &format!("{url}scans")]);
    assert_eq!((refused, page.contains("unknown field `port`")), (400, true), "{page}");
    let (refused, answer) = curl(&[&format!("{url}api/services?port=22")]);
    assert_eq!((refused, answer.contains("port: may be q, after, limit")), (400, true), "{answer}");
    let all = get_json(&api);
    assert_eq!((&all["scans"], &all["rate"], &all["fault"]), (&json!([]), &json!(5_000), &Value::Null));

    // One that ends by itself, one that runs, and one that waits for that.
    assert_eq!(status(&["-d", &form("127.7.0.0/28"), &format!("{url}scans")]), 303);
    let done = scan_is(&url, 1, "done");
    assert_eq!((&done["over"], &done["targets"], &done["error"]), (&json!(16), &json!(16), &Value::Null));
    assert!(done["about"].as_str().is_some_and(|about| about.starts_with("ssh 127.7.0.0")), "{done}");
    assert!(done["who"].as_str().is_some_and(|who| who.ends_with("at 127.0.0.1")), "{done}");
    assert_eq!(
        get_json(&format!("{url}api/services?q=net:127.7.0.0/28+finding:any-ssh"))["services"]
            .as_array()
            .map(Vec::len),
        Some(16)
    );
    for (number, state) in [(2, "running"), (3, "waiting")] {
        assert_eq!(post(&api, &order("127.7.0.0/24", 1)).1["scan"], number);
        scan_is(&url, number, state);
    }
    eventually("progress", || {
        let scan = scan_is(&url, 2, "running");
        (scan["targets"] == 256 && scan["over"].as_u64() >= Some(1)).then_some(())
    });
    // A page that loads itself anew has no form to fill, and the other way round.
    for (path, is_watched) in [("scans?watch=1", true), ("scans", false)] {
        let page = curl(&[&format!("{url}{path}")]).1;
        assert!(page.contains("<progress"), "{page}");
        let has = ["http-equiv=\"refresh\"", "name=\"targets\""].map(|text| page.contains(text));
        assert_eq!(has, [is_watched, !is_watched], "{page}");
    }
    assert_eq!(status(&["-d", "", &format!("{url}scans/2/cancel")]), 303);
    scan_is(&url, 2, "cancelled");
    assert_eq!(status(&["-d", "", &format!("{url}scans/2/cancel")]), 400);
    assert_eq!(status(&["-d", "", &format!("{url}scans/99/cancel")]), 404);
    let told = process.stderr();
    assert!(
        told.contains("submitted scan #1: ssh 127.7.0.0") && told.contains("cancelled scan #2"),
        "{told}"
    );

    // With the page its worker ends, and the next one goes on.
    eventually("progress", || (scan_is(&url, 3, "running")["over"].as_u64() >= Some(1)).then_some(()));
    process.signal(Signal::INT);
    assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
    let (_process, url) = place.site(&flags[..4]);
    let over = scan_is(&url, 3, "running")["over"].as_u64();
    assert!(over >= Some(1) && over < Some(256), "{over:?}");
    assert_eq!(status(&["-X", "DELETE", &format!("{url}api/scans/3")]), 200);
    scan_is(&url, 3, "cancelled");
}

#[test]
fn a_page_whose_scans_could_not_read_their_rules_does_not_start() {
    let place = Place::new(None);
    let port = ssh_servers(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    place.scan(&format!("ssh 127.7.1.1 -p {port}"));
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24"]);
    command.arg("--inventory").arg(place.inventory()).args(["--scan-rules", "/nowhere.toml"]);
    let mut process = Running::start(command);
    assert_eq!(process.wait_exit().code(), Some(2));
    assert!(process.stderr().contains("/nowhere.toml"), "{}", process.stderr());
}

#[test]
fn schedules_outlive_the_page_and_what_was_missed_is_told() {
    on_both(keeps_schedules);
}

fn keeps_schedules(place: &Place) {
    let port = ssh_servers(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    place.scan(&format!("ssh 127.7.1.1 -p {port}"));
    let flags = ["--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24"];
    let (process, url) = place.site(&flags);
    let wanted =
        json!({ "mode": "ssh", "targets": "127.7.0.1", "ports": port.to_string(), "when": "every 6h" });
    assert_eq!(post(&format!("{url}api/scans"), &wanted).1["schedule"], 1);
    let form = format!("mode=connect&targets=127.7.0.2&ports={port}&rate=10&when=daily+03:30");
    assert_eq!(status(&["-d", &form, &format!("{url}scans")]), 303);
    drop(process);

    // One was due a moment ago, the other one three times while there was no page.
    let (due, missed) = (now() - 60_000, now() - 50 * 3_600_000);
    place.change(&format!("UPDATE fleet_schedules SET due = {due} WHERE id = 1"));
    place.change(&format!("UPDATE fleet_schedules SET due = {missed} WHERE id = 2"));
    let (process, url) = place.site(&flags);
    let done = scan_is(&url, 1, "done");
    assert_eq!(done["schedule"], 1);
    process
        .wait_stderr("what was missed", |told| told.contains("schedule #2: missed starts: 3").then_some(()));
    let all = get_json(&format!("{url}api/scans"));
    assert_eq!(all["scans"].as_array().map(Vec::len), Some(1), "nothing is made up for");
    assert_eq!((&all["schedules"][0]["missed"], &all["schedules"][1]["missed"]), (&json!(0), &json!(3)));
    let page = curl(&[&format!("{url}scans")]).1;
    assert!(page.contains("every 6h") && page.contains("daily 03:30"), "{page}");
    assert_eq!(status(&["-d", "", &format!("{url}schedules/2/delete")]), 303);
    assert_eq!(status(&["-X", "DELETE", &format!("{url}api/schedules/2")]), 404);
    assert_eq!(get_json(&format!("{url}api/scans"))["schedules"].as_array().map(Vec::len), Some(1));
}

/// Milliseconds since the epoch.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_millis()
}

#[test]
fn what_a_killed_page_ran_goes_on_with_the_next_one_and_other_pages_see_none_of_it() {
    on_both(|place| {
        let port = ssh_servers(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
        place.scan(&format!("ssh 127.7.1.1 -p {port}"));
        let site = |own: &str| place.site(&["--listen", own, "--scan-allow", "127.7.0.0/24"]);
        let order = |rate: u32| json!({ "mode": "ssh", "targets": "127.7.0.0/24", "ports": port.to_string(), "rate": rate });
        let (mut killed, url) = site("127.0.0.1:0");
        assert_eq!(post(&format!("{url}api/scans"), &order(50)).1["scan"], 1);
        let (_other, other) = site("127.0.0.2:0");
        assert_eq!(post(&format!("{other}api/scans"), &order(1)).1["scan"], 2);
        // Each page has a queue of its own.
        scan_is(&other, 2, "running");
        assert_eq!(get_json(&format!("{other}api/scans"))["scans"].as_array().map(Vec::len), Some(1));
        assert_eq!(status(&["-X", "DELETE", &format!("{other}api/scans/1")]), 404);
        eventually("progress", || (scan_is(&url, 1, "running")["over"].as_u64() >= Some(20)).then_some(()));
        killed.signal(Signal::KILL);
        killed.wait_exit();

        let (_next, next) = site("127.0.0.1:0");
        let done = scan_is(&next, 1, "done");
        assert_eq!(done["over"], 256);
        scan_is(&other, 2, "running");
    });
}

/// The processes that one has started.
fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn a_page_without_its_worker_says_so_and_shows_all_else() {
    let place = Place::new(None);
    let port = ssh_servers(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    place.scan(&format!("ssh 127.7.1.1 -p {port}"));
    let (process, url) = place.site(&["--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24"]);
    let slow = json!({ "mode": "ssh", "targets": "127.7.0.0/24", "ports": port.to_string(), "rate": 1 });
    assert_eq!(post(&format!("{url}api/scans"), &slow).1["scan"], 1);
    let [runner] = children(process.id())[..] else { panic!("one process takes the scans") };
    let name = std::fs::read_to_string(format!("/proc/{runner}/comm")).expect("it runs");
    assert_eq!(name.trim(), "bannerwall-scn");
    eventually("progress", || (scan_is(&url, 1, "running")["over"].as_u64() >= Some(1)).then_some(()));
    assert!(kill(runner));
    eventually("the page to know", || {
        get_json(&format!("{url}api/scans"))["fault"].is_string().then_some(())
    });
    let fault = get_json(&format!("{url}api/scans"))["fault"].as_str().map(str::to_owned);
    assert!(fault.is_some_and(|fault| fault.contains("restart `bannerwall serve`")));
    let quick = json!({ "mode": "ssh", "targets": "127.7.0.1", "ports": port.to_string() });
    assert_ne!(post(&format!("{url}api/scans"), &quick).0, 200);
    assert!(curl(&[&format!("{url}scans")]).1.contains("Cannot start scans"));
    assert_eq!(status(&[&url]), 200, "all else is shown");
}

/// Ends a process at once.
fn kill(process: u32) -> bool {
    let status = Command::new("kill").args(["-KILL", &process.to_string()]).status().expect("it runs");
    status.success()
}

#[test]
fn a_job_that_was_written_by_hand_is_judged_by_what_takes_it() {
    on_both(|place| {
        let port = ssh_servers(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
        place.scan(&format!("ssh 127.7.1.1 -p {port}"));
        let flags = ["--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24", "--scan-rate", "50"];
        let (_process, url) = place.site(&flags);
        let api = format!("{url}api/scans");
        let fine = json!({ "mode": "ssh", "targets": "127.7.0.7", "ports": port.to_string(), "rate": 9 });
        assert_eq!(post(&api, &fine).1["scan"], 1);
        scan_is(&url, 1, "done");
        // The same again, each with another change.
        let changes = [
            ("\"127.7.0.7\"", "\"127.7.2.1\"", "not within"),
            ("\"rate\":9", "\"rate\":51", "limit of --scan-rate"),
            ("\"rate\":9", "\"rate\":null", "limit of --scan-rate"),
            ("--ports=", "--retries=", "no flag of a page"),
            ("--ports=", "--output=", "no flag of a page"),
            ("\"named\":[]", "\"named\":[[\"127.7.2.1\",\"a\"]]", "no names"),
        ];
        for (before, after, _) in changes {
            place.change(&format!(
                "INSERT INTO fleet_scans (about, what, targets, shards, attempts, pool)
                 SELECT 'by hand', replace(what, '{before}', '{after}'), 1, 1, 1, pool FROM fleet_scans WHERE id = 1"
            ));
        }
        for ((_, _, why), number) in changes.iter().zip(2..) {
            let failed = scan_is(&url, number, "failed");
            let told = failed["error"].as_str().unwrap_or_default();
            assert!(told.contains(why) && failed["over"] == 0, "{failed}");
        }
        let seen = get_json(&format!("{url}api/hosts"));
        let seen: Vec<_> =
            seen["hosts"].as_array().expect("hosts").iter().map(|host| &host["address"]).collect();
        assert_eq!(seen, ["127.7.0.7", "127.7.1.1"]);
    });
}

#[test]
fn the_last_scans_of_a_page_stay() {
    on_both(|place| {
        let port = ssh_servers(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
        place.scan(&format!("ssh 127.7.1.1 -p {port}"));
        let (_process, url) = place.site(&["--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24"]);
        let order = json!({ "mode": "ssh", "targets": "127.7.0.7", "ports": port.to_string(), "rate": 9 });
        assert_eq!(post(&format!("{url}api/scans"), &order).1["scan"], 1);
        scan_is(&url, 1, "done");
        for _ in 0..100 {
            place.change(
                "INSERT INTO fleet_scans (about, what, targets, shards, attempts, pool, state)
                 SELECT about, what, targets, shards, attempts, pool, 'done' FROM fleet_scans
                 WHERE id = (SELECT max(id) FROM fleet_scans)",
            );
        }
        let scans = get_json(&format!("{url}api/scans"));
        let numbers: Vec<_> =
            scans["scans"].as_array().expect("scans").iter().map(|scan| &scan["scan"]).collect();
        assert_eq!((numbers.len(), numbers[0], numbers[99]), (100, &json!(101), &json!(2)));
    });
}
