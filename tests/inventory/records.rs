//! `--inventory` on guard, scan and replay, over real servers, and what `sqlite3` and `bannerwall inventory`
//! read of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use bannerwall_test_support::{
    Dropbear, Guard, Line, Namespace, Nginx, PATIENT, Running, Signal, Sshd, as_root, end_capture,
    eventually, json_lines, ssh_servers,
};
use serde_json::Value;

use super::open_to_all;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Alerts about nginx, stops Dropbear.
const RULES: &str = r#"
[[rule]]
id = "nginx-seen"
title = "An nginx"
protocol = "http"
from = "server"
match."header.server" = '^nginx'
action = "alert"
severity = "medium"

[[rule]]
id = "no-dropbear"
title = "A Dropbear"
protocol = "ssh"
from = "server"
match.software = '^dropbear'
action = "drop"
severity = "high"
"#;

/// An inventory in a folder of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("inventory.db")
    }

    /// `bannerwall WORDS --inventory FILE`.
    fn command(&self, namespace: &Namespace, words: &str) -> Command {
        let mut command = namespace.command(PROGRAM);
        command.args(words.split_whitespace()).arg("--inventory").arg(self.file());
        command
    }

    fn scan(&self, namespace: &Namespace, words: &str) -> Output {
        let mut command = self.command(namespace, &format!("scan {words} {PATIENT}"));
        command.arg("--rules").arg(self.path("rules.toml"));
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// What `inventory list` says, as JSON.
    fn list(&self, filters: &[&str]) -> Vec<Value> {
        json_lines(&self.ask(&["list", "--format", "json"], filters))
    }

    /// What `bannerwall inventory` says.
    fn ask(&self, words: &[&str], more: &[&str]) -> Vec<u8> {
        let mut command = Command::new(PROGRAM);
        command.arg("inventory").args(words).arg("--inventory").arg(self.file()).args(more);
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

/// What the `sqlite3` shell says.
fn sqlite(file: &Path, query: &str) -> String {
    let output = Command::new("sqlite3")
        .args(["-cmd", ".timeout 20000"])
        .arg(file)
        .arg(query)
        .output()
        .expect("sqlite3 is installed");
    assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[test]
fn scans_say_what_is_there_what_has_changed_and_what_is_gone() {
    as_root(|| {
        let (place, namespace) = (Place::new(), Namespace::new());
        let sshd = Sshd::start(&namespace, 2222);
        let dropbear = Dropbear::start(&namespace, 2223);
        let _nginx = Nginx::start(&namespace, 8080, "");
        // What is not shown is kept all the same.
        place.scan(&namespace, "ssh 127.0.0.1 -p 2222-2224 --match nothing --hassh --sensor edge");
        place.scan(&namespace, "http 127.0.0.1 -p 8080 --sensor edge");
        let list = place.list(&[]);
        let said: Vec<(u64, &str)> =
            list.iter().map(|it| (it["port"].as_u64().unwrap(), it["product"].as_str().unwrap())).collect();
        assert_eq!(said, [(2222, "OpenSSH"), (2223, "dropbear"), (8080, "nginx")]);
        assert!(list.iter().all(|it| it["sensors"] == serde_json::json!(["scan/edge"])), "{list:?}");
        assert_eq!(list[0]["hassh"].as_str().map(str::len), Some(32));
        assert_eq!(list[1]["findings"][0]["rule"], "no-dropbear");
        assert_eq!(list[2]["findings"][0]["severity"], "medium");
        let csv = String::from_utf8(place.ask(&["list", "--format", "csv", "finding:high"], &[])).unwrap();
        let mut lines = csv.lines();
        assert!(lines.next().unwrap().starts_with("address,port,transport,protocol"));
        assert!(lines.next().unwrap().contains("dropbear") && lines.next().is_none(), "{csv}");
        let people = "SELECT port || ' ' || product FROM service_list WHERE state = 'open' ORDER BY port";
        assert_eq!(sqlite(&place.file(), people), "2222 OpenSSH\n2223 dropbear\n8080 nginx");

        drop((sshd, dropbear));
        let _other = Dropbear::start(&namespace, 2222);
        place.scan(&namespace, "ssh 127.0.0.1 -p 2222-2224 --open --sensor edge");
        assert_eq!(place.list(&["state:gone"])[0]["port"], 2223);
        assert_eq!(place.list(&["product:dropbear", "!state:gone"])[0]["port"], 2222);
        let changes = "SELECT port || ' ' || kind || coalesce(' ' || rule, '') FROM changes JOIN services
                       ON services.id = service WHERE kind NOT LIKE 'new_%' ORDER BY port, changes.id";
        assert_eq!(
            sqlite(&place.file(), changes),
            "2222 banner_changed\n2222 finding_new no-dropbear\n2223 finding_new no-dropbear\n\
             2223 service_gone\n8080 finding_new nginx-seen"
        );
    });
}

#[test]
fn a_guard_keeps_who_came_to_whom_and_what_it_stopped() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let _dropbear = Dropbear::start(&line.server, 2223);
        let _nginx = Nginx::start(&line.server, 8080, "");
        let flags =
            format!("--hook forward --enforce --sensor router --inventory {}", place.file().display());
        let mut guard = Guard::start(&line.router, PROGRAM, RULES, &flags);
        let server = Ipv4Addr::new(198, 51, 100, 2);
        for _ in 0..3 {
            let mut stream = line.client.connect((server, 8080)).expect("it passes");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: probe/1.5\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("it passes");
            let mut page = Vec::new();
            stream.read_to_end(&mut page).expect("it passes");
            assert!(page.ends_with(b"hello world"));
        }
        let mut stream = line.client.connect((server, 2223)).expect("the handshake passes");
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("sets");
        assert!(stream.read(&mut [0; 64]).is_err(), "it is stopped");
        // While the guard runs.
        eventually("both to be kept", || {
            let ports: Vec<Value> = place
                .list(&["side:server", "finding:medium"])
                .into_iter()
                .chain(place.list(&["finding:high"]))
                .collect();
            (ports.len() == 2).then_some(())
        });
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let stopped = place.list(&["port:2223"]);
        assert!(stopped[0]["findings"][0]["blocked"].as_u64() >= Some(1), "{stopped:?}");
        assert_eq!(stopped[0]["sensors"][0], "guard/router");
        let nginx = place.list(&["port:8080"]);
        assert_eq!(
            (&nginx[0]["findings"][0]["count"], &nginx[0]["findings"][0]["blocked"]),
            (&3.into(), &0.into())
        );
        let client = place.list(&["side:client", "protocol:http"]);
        assert_eq!(
            (client[0]["product"].as_str(), client[0]["version"].as_str()),
            (Some("probe"), Some("1.5"))
        );
        let met = "SELECT count FROM contacts JOIN services ON services.id = service WHERE port = 8080";
        assert_eq!(sqlite(&place.file(), met), "3");
        assert_eq!(sqlite(&place.file(), "SELECT state, lost FROM runs"), "done|0");
        assert!(!guard.process.stderr().contains("inventory"), "{}", guard.process.stderr());
    });
}

/// SSH servers on every loopback address, each of another version; their port.
fn servers() -> u16 {
    ssh_servers(|number| format!("SSH-2.0-test_{}.{}\r\n", number / 256, number % 256).into_bytes())
}

#[test]
fn a_scan_that_is_killed_leaves_a_whole_inventory_and_the_next_one_tells() {
    let place = Place::new();
    let port = servers();
    let scan = |range: &str, rate: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["scan", "ssh", range, "-p", &port.to_string(), "--rate", rate, "--seed", "1", "-q"]);
        command.args(PATIENT.split(' '));
        command.arg("--rules").arg(place.path("rules.toml")).arg("--inventory").arg(place.file());
        command
    };
    assert_eq!(scan("127.3.255.255", "max").output().expect("it runs").status.code(), Some(0));
    let count = |query: &str| -> u64 { sqlite(&place.file(), query).parse().expect("a number") };
    let kept = || count("SELECT count(*) FROM services");
    let rounds: u64 = match std::env::var("BANNERWALL_KILLS") {
        Ok(rounds) => rounds.parse().expect("BANNERWALL_KILLS is a number"),
        Err(_) => 10,
    };
    for round in 0..rounds {
        let mut command = scan("127.3.0.0/16", "4000");
        command.arg("-o").arg(place.path("killed.txt"));
        let mut process = Running::start(command);
        let (runs, before) = (|| count("SELECT count(*) FROM runs"), kept());
        eventually("the run to begin", || (runs() > round + 1).then_some(()));
        if round == 0 {
            eventually("something to be kept", || (kept() > before).then_some(()));
        }
        // Any moment of its writing.
        std::thread::sleep(Duration::from_micros(round * 7_919_017 % 400_000));
        process.signal(Signal::KILL);
        process.wait_exit();
        assert_eq!(sqlite(&place.file(), "PRAGMA integrity_check"), "ok");
        assert_eq!(sqlite(&place.file(), "PRAGMA foreign_key_check"), "");
        let half = "SELECT count(*) FROM services WHERE id NOT IN (SELECT service FROM sightings)
                    OR id NOT IN (SELECT service FROM changes WHERE kind = 'new_service')";
        assert_eq!(sqlite(&place.file(), half), "0", "what is kept of a service is kept whole");
    }
    let output = scan("127.3.0.0/24", "max").output().expect("it runs");
    assert_eq!(output.status.code(), Some(0));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("did not stop cleanly"), "{told}");
    let runs = "SELECT state, count(*) FROM runs GROUP BY state ORDER BY state";
    assert_eq!(sqlite(&place.file(), runs), format!("done|2\nkilled|{rounds}"));
    assert_eq!(place.list(&["net:127.3.0.0/24"]).len(), 256);
}

#[test]
fn a_capture_read_twice_leaves_what_one_reading_leaves() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let _sshd = Sshd::start(&line.server, 2222);
        let capture = place.path("capture.pcap");
        let notified = open_to_all(place.0.path()).join("notified");
        let mut command = line.server.command("tcpdump");
        command.args(["-i", "eth0", "-U", "-w"]).arg(&capture).arg("tcp or udp port 9");
        let tcpdump = Running::start(command);
        tcpdump.wait_stderr("tcpdump to listen", |text| text.contains("listening").then_some(()));
        for _ in 0..3 {
            let server = Ipv4Addr::new(198, 51, 100, 2);
            let mut stream = line.client.connect((server, 2222)).expect("it is there");
            stream.write_all(b"SSH-2.0-probe_1.5\r\n").expect("it takes it");
            assert!(stream.read(&mut [0; 64]).expect("it answers") > 0);
        }
        end_capture(tcpdump, &capture, &line.client, Ipv4Addr::new(198, 51, 100, 2));
        let replay = || {
            let mut command = Command::new(PROGRAM);
            command.arg("replay").arg(&capture).arg("--rules").arg(place.path("rules.toml"));
            command.args(["--sensor", "lab", "--inventory"]).arg(place.file());
            command.arg("--notify-command").arg(format!("cat >> {}", notified.display()));
            let output = command.output().expect("it runs");
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            let dump = sqlite(&place.file(), ".dump");
            dump.lines()
                .filter(|line| !line.starts_with("INSERT INTO runs"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let once = replay();
        assert_eq!(replay(), once);
        assert_eq!(sqlite(&place.file(), "SELECT max(count) FROM sightings"), "3");
        let notified = std::fs::read_to_string(&notified).expect("the program was run");
        assert_eq!(notified.matches("\"kind\":\"new_service\"").count(), 1, "{notified}");
        assert_eq!(place.list(&["sensor:replay/lab", "side:server"])[0]["product"], "OpenSSH");
        assert_eq!(place.list(&["side:client"])[0]["version"], "1.5");
    });
}

#[test]
fn what_cannot_be_used_is_refused_with_its_name() {
    let place = Place::new();
    let run = |words: &[&str]| {
        let output = Command::new(PROGRAM).args(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let file = place.file().display().to_string();
    let missing = run(&["inventory", "list", "--inventory", &file]);
    assert!(missing.contains(&file) && missing.contains("no such inventory"), "{missing}");
    sqlite(&place.file(), "PRAGMA application_id = 1651992950; PRAGMA user_version = 99; CREATE TABLE a (b)");
    for words in [["inventory", "list", "-q"], ["replay", "/dev/null", "-q"], ["scan", "ssh", "127.0.0.1"]] {
        let mut words = words.to_vec();
        words.extend(["--inventory", &file]);
        let newer = run(&words);
        assert!(newer.contains(&file) && newer.contains("version 99"), "{newer}");
    }
    let wrong = run(&["inventory", "list", "--inventory", &file, "colour:red"]);
    assert!(wrong.contains("colour:red") && wrong.contains("fields are"), "{wrong}");
}

#[test]
fn what_a_rule_would_cut_off_is_told_before_it_is_enforced() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let _dropbear = Dropbear::start(&line.server, 2223);
        let _sshd = Sshd::start(&line.server, 2222);
        let watch = RULES.replace("\"drop\"", "\"alert\"");
        let flags = format!("--hook forward --sensor router --inventory {}", place.file().display());
        let mut guard = Guard::start(&line.router, PROGRAM, &watch, &flags);
        for port in [2222, 2223, 2223] {
            let mut stream = line.client.connect((Ipv4Addr::new(198, 51, 100, 2), port)).expect("it passes");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
            stream.write_all(b"SSH-2.0-probe_1.5\r\n").expect("it passes");
            assert!(stream.read(&mut [0; 64]).expect("a monitor stops nothing") > 0);
        }
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let rules = place.path("rules.toml").display().to_string();
        let all =
            json_lines(&place.ask(&["impact", "--no-local", "--rules", &rules, "--format", "json"], &[]));
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((&all[0]["rule"], &all[0]["port"]), (&"no-dropbear".into(), &2223.into()));
        assert_eq!(
            (&all[0]["peers"], &all[0]["connections"]),
            (&serde_json::json!(["192.0.2.2"]), &2.into())
        );
        let text = String::from_utf8(place.ask(&["impact", "--no-local", "--rules", &rules], &["port:2222"]))
            .expect("text");
        assert_eq!(text, "");
        let text =
            String::from_utf8(place.ask(&["impact", "--no-local", "--rules", &rules], &[])).expect("text");
        assert!(text.contains("rule no-dropbear would drop it: connections 2, clients 1"), "{text}");

        // And so it is.
        let guard = Guard::start(&line.router, PROGRAM, RULES, "--hook forward --enforce");
        let mut heard = Vec::new();
        for port in [2222, 2223] {
            let mut stream =
                line.client.connect((Ipv4Addr::new(198, 51, 100, 2), port)).expect("handshakes pass");
            // sshd may need its time; for what is blocked any time is too long.
            let patience = Duration::from_secs(if port == 2222 { 20 } else { 2 });
            stream.set_read_timeout(Some(patience)).expect("sets");
            heard.push(stream.read(&mut [0; 64]).is_ok_and(|length| length > 0));
        }
        assert_eq!(heard, [true, false]);
        drop(guard);
    });
}

#[test]
fn what_changed_is_told_by_date_and_by_run() {
    as_root(|| {
        let (place, namespace) = (Place::new(), Namespace::new());
        let sshd = Sshd::start(&namespace, 2222);
        place.scan(&namespace, "ssh 127.0.0.1 -p 2222 --sensor edge");
        drop(sshd);
        let _dropbear = Dropbear::start(&namespace, 2222);
        place.scan(&namespace, "ssh 127.0.0.1 -p 2222 --sensor edge");
        place.scan(&namespace, "ssh 127.0.0.1 -p 2222 --sensor edge");
        let text = |words: &[&str]| String::from_utf8(place.ask(words, &[])).expect("text");
        let kinds = |words: &[&str]| -> Vec<String> {
            let changes = json_lines(&place.ask(words, &["--format", "json"]));
            changes.iter().map(|change| change["kind"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let all = ["new_host", "new_service", "banner_changed", "finding_new"];
        assert_eq!(kinds(&["changes", "--since", "1h"]), all);
        assert_eq!(kinds(&["diff", "#1", "#2"]), ["banner_changed", "finding_new"]);
        assert_eq!(kinds(&["diff", "#2", "#3"]), Vec::<String>::new());
        assert_eq!(kinds(&["changes", "--until", "2026-01-01"]), Vec::<String>::new());
        let changed = text(&["diff", "#1", "#2"]);
        assert!(
            changed.contains("SSH-2.0-OpenSSH_") && changed.contains(" -> SSH-2.0-dropbear"),
            "{changed}"
        );
        assert_eq!(text(&["runs"]).lines().count(), 3);
        assert_eq!(
            text(&["top", "product", "side:server"]).split_whitespace().collect::<Vec<_>>(),
            ["1", "dropbear"]
        );
        let host = text(&["show", "127.0.0.1"]);
        assert!(
            host.contains("banners") && host.contains("finding new") && host.contains("no-dropbear"),
            "{host}"
        );
        assert!(text(&["check"]).contains("intact"));
        assert!(text(&["prune", "--keep", "1d"]).contains("hosts 0"));
        std::thread::sleep(Duration::from_millis(5));
        assert!(text(&["prune", "--keep", "1ms"]).contains("hosts 1"));
        assert_eq!(place.list(&[]).len(), 0);
    });
}

#[test]
fn hostile_banners_are_text_wherever_they_are_shown() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let hostile =
                "SSH-2.0-=cmd|' /C calc'!A0_\x1b[2J\u{202e}<img onerror=alert(1)>\"';DROP TABLE hosts;--\r\n";
            let _ = connection.write_all(hostile.as_bytes());
        }
    });
    let mut command = Command::new(PROGRAM);
    command.args(["scan", "ssh", "127.0.0.1", "-q", "-p", &port.to_string(), "-o", "/dev/null"]);
    command.arg("--rules").arg(place.path("rules.toml")).arg("--inventory").arg(place.file());
    assert_eq!(command.output().expect("it runs").status.code(), Some(0));
    for words in [
        vec!["list"],
        vec!["list", "--format", "csv"],
        vec!["show", "127.0.0.1"],
        vec!["changes"],
        vec!["top", "banner"],
    ] {
        let said = String::from_utf8(place.ask(&words, &[])).expect("text");
        assert!(said.contains("DROP TABLE"), "{words:?}: {said}");
        assert!(!said.contains(['\x1b', '\u{202e}']), "{words:?}: {said}");
    }
    assert_eq!(sqlite(&place.file(), "SELECT count(*) FROM hosts"), "1");
}

#[test]
fn a_guard_goes_on_while_its_inventory_takes_nothing_and_tells_it_later() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let _sshd = Sshd::start(&line.server, 2222);
        let flags = format!("--hook forward --enforce --inventory {}", place.file().display());
        let mut guard = Guard::start(&line.router, PROGRAM, RULES, &flags);
        let lock = rusqlite::Connection::open(place.file()).expect("it is there");
        lock.busy_timeout(Duration::from_secs(20)).expect("sets");
        lock.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes for long");
        let talk = || {
            let mut stream = line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2222)).expect("it passes");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
            stream.write_all(b"SSH-2.0-probe_1.5\r\n").expect("it passes");
            assert!(stream.read(&mut [0; 64]).expect("it passes") > 0);
        };
        talk();
        guard.process.wait_stderr("the guard to tell", |text| {
            text.contains("cannot write the inventory").then_some(())
        });
        talk();
        assert_eq!(place.list(&[]).len(), 0, "who only looks is not kept out");
        lock.execute_batch("ROLLBACK").expect("it was begun");
        guard.process.wait_stderr("the guard to write again", |text| {
            text.contains("written again; sightings lost meanwhile: 0").then_some(())
        });
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let met = "SELECT count FROM contacts JOIN services ON services.id = service WHERE port = 2222";
        assert_eq!(sqlite(&place.file(), met), "2");
    });
}

/// Deletes an inventory with its log, the file alone, and replaces it.
const TAKEN_AWAY: [&str; 3] =
    ["rm DB DB-wal DB-shm", "rm DB", "cp old.db new.db && chmod 666 new.db && mv new.db DB"];

#[test]
fn a_confined_guard_writes_its_inventory_again_if_the_file_is_deleted_or_replaced() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let _sshd = Sshd::start(&line.server, 2222);
        let folder = place.path("kept");
        let shell = |words: &str| {
            let words = words.replace("DB", "kept/inventory.db");
            let output = Command::new("sh")
                .args(["-c", &words])
                .current_dir(place.0.path())
                .output()
                .expect("sh starts");
            assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        };
        // Another user than root is confined, too, and needs its rights over the folder.
        shell("chmod 755 . && mkdir --mode 777 kept");
        let file = folder.join("inventory.db");
        let output = place.scan(&line.server, "ssh 127.0.0.1 --ports 1");
        assert!(output.status.success());
        std::fs::rename(place.file(), place.path("old.db")).expect("a scan has made it");
        let metrics = "127.0.0.1:9464";
        let flags = format!(
            "--hook forward --hook-keep --user nobody --metrics {metrics} --inventory {}",
            file.display()
        );
        let mut guard = Guard::start(&line.router, PROGRAM, RULES, &flags);
        let count = "SELECT coalesce(sum(count), 0) FROM contacts JOIN services ON services.id = service WHERE port = 2222";
        let talk = || {
            let mut stream = line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2222)).expect("it passes");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
            stream.write_all(b"SSH-2.0-probe_1.5\r\n").expect("it passes");
            assert!(stream.read(&mut [0; 64]).expect("it passes") > 0);
        };
        let is_kept =
            || eventually("the connection to be kept", || (sqlite(&file, count) == "1").then_some(()));
        talk();
        is_kept();
        for (number, taken_away) in TAKEN_AWAY.iter().enumerate() {
            // Also while nothing new comes.
            shell(taken_away);
            let before = format!("bannerwall_inventory_replaced_total {number}\n");
            eventually("the loss to be counted", || {
                let shown = line.router.run(&format!("curl -sS http://{metrics}/metrics"));
                (!shown.contains(&before)).then_some(())
            });
            talk();
            is_kept();
        }
        // The kernel confines the guard to the folder that was there.
        shell("rm -r kept && mkdir --mode 777 kept");
        guard.process.wait_stderr("the guard to tell", |text| {
            let told = text.lines().find(|line| line.contains("cannot write the inventory"))?;
            assert!(told.contains(&file.display().to_string()) && told.contains("restart"), "{told}");
            Some(())
        });
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let told = guard.process.stderr();
        assert_eq!(told.matches("the inventory's file was deleted or replaced").count(), 3, "{told}");
        assert_eq!(told.matches("cannot write").count(), 1, "{told}");
    });
}
