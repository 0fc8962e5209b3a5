//! A sensor with a folder for what it sends: the server goes away before, amid and behind its run, the sensor
//! is killed, the folder is full or damaged; what it saw is merged once, in order, or told as lost.

use crate::sensing;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sensing::{KNOWN, by, capture, capture_of, init, merge, replay, run, sensors, text};
use bannerwall_test_support::{
    Guard, Line, NO_SQLMAP, Postgres, Running, Signal, Sshd, as_root, eventually, psql,
};
use tempfile::TempDir;

/// A sensor of a fleet with a folder, and its server.
struct Site {
    server: Postgres,
    url: String,
    folder: TempDir,
}

impl Site {
    /// One whose folder knows it already, unless there is no PostgreSQL.
    fn new() -> Option<Self> {
        let server = Postgres::start()?;
        let url = server.database();
        init(&url);
        let site = Self { server, url, folder: tempfile::tempdir().expect("a folder") };
        site.sends(&site.file("first.pcap", &capture(0)));
        assert_eq!(site.left(), ["lock", "sensor"]);
        Some(site)
    }

    fn east(&self) -> String {
        by(&self.url, "east")
    }

    fn spill(&self) -> PathBuf {
        self.folder.path().join("spill")
    }

    fn file(&self, name: &str, octets: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, octets).expect("written");
        path
    }

    /// A replay of the sensor's with the folder.
    fn replay(&self, capture: &Path, words: &[&str]) -> std::process::Command {
        let folder = self.spill();
        let folder = folder.to_str().expect("UTF-8");
        replay(&self.east(), capture, &[&["--spill", folder], words].concat())
    }

    /// One that ends well; what it said.
    fn sends(&self, capture: &Path) -> String {
        let output = self.replay(capture, &[]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    }

    /// One that reads what the test writes.
    fn follows(&self, name: &str) -> (Running, File) {
        let pipe = self.folder.path().join(name);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
        let process = Running::start(self.replay(&pipe, &[]));
        (process, File::options().write(true).open(pipe).expect("it reads"))
    }

    /// The names of the folder's files.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.spill()).expect("it is there").flatten();
        let mut names: Vec<String> = entries.map(|it| it.file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    fn batches(&self) -> Vec<String> {
        let mut names = self.left();
        names.retain(|name| name.ends_with(".batch"));
        names
    }

    /// Everything that is in the inbox, merged; what is known then of servers behind these addresses.
    fn known(&self) -> String {
        let merged = merge(&self.url, &[]);
        assert_eq!(merged.status.code(), Some(0), "{}", text(&merged.stderr));
        psql(&self.url, KNOWN)
    }

    /// The same by a run that writes the inventory of another database itself.
    fn direct(&self, captures: &[&Path]) -> String {
        let direct = self.server.database();
        for capture in captures {
            let output = replay(&direct, capture, &[]).output().expect("it runs");
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
        psql(&direct, KNOWN)
    }

    /// A number of how the sensor stands.
    fn stands(&self, name: &str) -> i64 {
        let east = sensors(&self.url).into_iter().find(|row| row["sensor"] == "east").expect("it is there");
        east[name].as_i64().expect("a number")
    }
}

/// A capture in three parts, each more than what is read of a pipe at once.
fn parts() -> [Vec<u8>; 3] {
    [capture(900), capture_of(900..1800)[24..].to_vec(), capture_of(1800..2700)[24..].to_vec()]
}

#[test]
fn a_server_that_goes_away_amid_a_run_gets_everything_once_it_is_back() {
    let Some(mut site) = Site::new() else { return };
    let [first, second, third] = parts();
    let file = site.file("whole.pcap", &[&first[..], &second, &third].concat());
    let (mut sensor, mut pipe) = site.follows("pipe");
    // What is seen of a part is told when the next one comes.
    pipe.write_all(&[first, second].concat()).expect("it reads");
    let entered = "SELECT count(*) FROM fleet_inbox WHERE batch LIKE '%sensed_2%'";
    eventually("the first batches", || (psql(&site.url, entered) != "0").then_some(()));
    eventually("the folder to be empty", || site.batches().is_empty().then_some(()));
    site.server.stop();
    pipe.write_all(&third).expect("it reads");
    sensor.wait_stderr("the sensor to tell", |said| said.contains("they wait in").then_some(()));
    assert!(!site.batches().is_empty());
    site.server.go_on();
    sensor.wait_stderr("all to be sent", |said| {
        said.contains("all waiting batches are sent; sightings dropped meanwhile: 0").then_some(())
    });
    drop(pipe);
    assert_eq!(sensor.wait_exit().code(), Some(0), "{}", sensor.stderr());
    assert_eq!(site.known(), site.direct(&[&file]));
    assert_eq!((site.stands("lost"), site.stands("waiting"), site.left().len()), (0, 0, 2));
    // In order, each number once, and the run is over.
    assert_eq!(psql(&site.url, "SELECT state, lost FROM runs ORDER BY id DESC LIMIT 1"), "done|0");
}

#[test]
fn a_start_and_an_end_without_the_server_lose_nothing() {
    let Some(mut site) = Site::new() else { return };
    let whole = site.file("whole.pcap", &capture(100));
    site.server.stop();
    let said = site.sends(&whole);
    assert!(
        said.contains("batches of sensor east wait in") && said.contains("the next run sends them"),
        "{said}"
    );
    let waits = site.batches().len();
    assert!(waits > 0);
    // Another one goes behind it.
    let none = site.file("none.pcap", &capture(0));
    site.sends(&none);
    assert_eq!(site.batches().len(), waits);
    // Nobody knows whose a folder is that was never used.
    let new = site.folder.path().join("new");
    let output = replay(&site.east(), &whole, &["--spill", new.to_str().expect("UTF-8")]).output();
    let output = output.expect("it runs");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the sensor's name is unknown"), "{said}");
    site.server.go_on();
    let said = site.sends(&none);
    assert!(said.contains("they are sent first"), "{said}");
    assert_eq!(site.known(), site.direct(&[&whole]));
    // The first one, which had nothing to tell, these two, and the last.
    assert_eq!(psql(&site.url, "SELECT state, count(*) FROM runs GROUP BY 1"), "done|4");
    assert_eq!(site.left(), ["lock", "sensor"]);
}

#[test]
fn who_is_killed_without_its_server_is_gone_on_for_and_what_is_damaged_is_set_aside() {
    let Some(mut site) = Site::new() else { return };
    let (mut sensor, mut pipe) = site.follows("pipe");
    site.server.stop();
    // What is seen of a part is told when the next one comes.
    let [first, second, third] = parts();
    pipe.write_all(&first).expect("it reads");
    for (part, batches) in [second, third].iter().zip(0..) {
        pipe.write_all(part).expect("it reads");
        eventually("a batch more", || (site.batches().len() > batches).then_some(()));
    }
    sensor.signal(Signal::KILL);
    sensor.wait_exit();
    drop(pipe);
    let left = site.batches();
    assert!(left.len() >= 2, "{left:?}");
    // One of them is cut, as by a power cut.
    let cut = site.spill().join(&left[0]);
    let octets = std::fs::read(&cut).expect("it is there");
    std::fs::write(&cut, &octets[..octets.len() / 2]).expect("written");
    let files = left[1..].iter().map(|name| std::fs::read_to_string(site.spill().join(name)));
    let whole: String = files.map(|file| file.expect("it is there")).collect();
    site.server.go_on();
    let next = site.file("next.pcap", &capture_of(2700..2710));
    let said = site.sends(&next);
    assert!(said.contains(&format!("{} is set aside (.damaged)", left[0])), "{said}");
    assert_eq!(site.left(), [left[0].clone() + ".damaged", "lock".into(), "sensor".into()]);
    let known = site.known();
    // Whatever stands in the others, and what the next run has seen.
    let mut told: Vec<&str> = whole.split('"').filter(|word| word.starts_with("SSH-2.0-sensed_")).collect();
    told.extend(["SSH-2.0-sensed_2700", "SSH-2.0-sensed_2709"]);
    assert!(told.len() > 100, "{told:?}");
    for banner in told {
        assert!(known.contains(&format!("{banner}|")), "{banner}: {known}");
    }
    assert_eq!(psql(&site.url, "SELECT count(*) FROM runs WHERE state = 'done'"), "3", "the killed one, too");
    let status = sensing::told(&["fleet", "status", "--database", &by(&site.url, "page")]);
    assert!(!status.contains("set aside"), "that is of the server's: {status}");
}

#[test]
fn a_full_folder_drops_the_oldest_and_the_server_is_told_how_many() {
    let Some(mut site) = Site::new() else { return };
    let whole = site.file("whole.pcap", &capture(12_000));
    // What there is to tell, by the other sensor.
    let output = replay(&by(&site.url, "west"), &whole, &[]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    site.server.stop();
    let output = site.replay(&whole, &["--spill-size", "4MiB"]).output().expect("it runs");
    let said = text(&output.stderr);
    assert!(said.contains("is full") && said.contains("lacks sightings: "), "{said}");
    assert_eq!(output.status.code(), Some(2), "as where an inventory does not take what was seen");
    let files = std::fs::read_dir(site.spill()).expect("it is there").flatten();
    let octets: u64 = files.map(|file| file.metadata().expect("it is there").len()).sum();
    assert!((3 << 20..=(4 << 20) + 8_192).contains(&octets), "{octets}");
    site.server.go_on();
    site.sends(&site.file("none.pcap", &capture(0)));
    site.known();
    let all = sensors(&site.url).into_iter().find(|row| row["sensor"] == "west").expect("it is there");
    let (sightings, lost) = (site.stands("sightings"), site.stands("lost"));
    assert!(lost > 0 && sightings > 0, "{sightings} and {lost}");
    assert_eq!(Some(sightings + lost), all["sightings"].as_i64());
    assert!(said.contains(&format!("lacks sightings: {lost}")), "{lost}: {said}");
    assert_eq!(psql(&site.url, "SELECT max(lost) FROM runs"), lost.to_string());
}

#[test]
fn of_what_the_server_refuses_only_the_records_at_fault_are_set_aside_and_counted() {
    let Some(site) = Site::new() else { return };
    // As of a database in whose encoding not every text can be written.
    psql(
        &site.url,
        "ALTER TABLE fleet_inbox ADD CONSTRAINT odd CHECK (1 / (CASE WHEN batch LIKE '%sensed_7\"%' THEN 0 ELSE 1 END) = 1)",
    );
    let whole = site.file("whole.pcap", &capture(30));
    let said = site.sends(&whole);
    assert!(said.contains("records that the server refuses are set aside (.refused)"), "{said}");
    let direct = site.direct(&[&whole]);
    let others: Vec<&str> = direct.lines().filter(|line| !line.contains("sensed_7|")).collect();
    assert_eq!((site.known(), others.len() + 1), (others.join("\n"), direct.lines().count()));
    assert_eq!(site.stands("lost"), 4, "it was seen twice, and twice by a peer");
    let refused: String = site
        .left()
        .iter()
        .filter(|name| name.ends_with(".refused"))
        .map(|name| std::fs::read_to_string(site.spill().join(name)).expect("it is there"))
        .collect();
    assert!(refused.contains("sensed_7") && !refused.contains("sensed_8"), "{refused}");
    assert_eq!(psql(&site.url, "SELECT DISTINCT state FROM runs"), "done");
}

#[test]
fn a_batch_that_the_server_refuses_as_such_is_set_aside_whole() {
    let Some(site) = Site::new() else { return };
    psql(&site.url, "ALTER TABLE fleet_inbox ADD CONSTRAINT odd CHECK (number <> 1) NOT VALID");
    let said = site.sends(&site.file("one.pcap", &capture(1)));
    assert!(said.contains("-000000000001.batch is set aside (.refused)"), "{said}");
    psql(&site.url, "ALTER TABLE fleet_inbox DROP CONSTRAINT odd");
    site.sends(&site.file("none.pcap", &capture(0)));
    assert_eq!((site.known(), site.stands("lost")), (String::new(), 10));
    assert!(site.left()[0].ends_with(".refused"), "{:?}", site.left());
}

#[test]
fn a_server_that_takes_nobody_is_told_from_one_that_is_away() {
    let Some((mut server, authority)) = Postgres::with_tls() else { return };
    let url = server.database();
    init(&url);
    psql(&url, "ALTER ROLE east PASSWORD 'right'");
    let rules = psql(&url, "SHOW hba_file");
    std::fs::write(rules, "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
        .expect("it is ours");
    server.stop();
    server.go_on();
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("none.pcap"), capture(0)).expect("written");
    std::fs::write(file("one.pcap"), capture(1)).expect("written");
    let roots = format!("&sslrootcert={}", authority.display());
    let by_tls = server.by_tls(&url);
    let place = by_tls.replace("postgres@", "east:right@") + &roots;
    let sensor = |place: &str, capture: &Path| {
        replay(place, capture, &["--spill", file("spill").to_str().expect("UTF-8")])
    };
    let first = sensor(&place, &file("none.pcap")).output().expect("it runs");
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    // The folder knows the server. It is there, and what it says is no absence.
    let refused = |place: &str, said: &str| {
        let output = sensor(place, &file("one.pcap")).output().expect("it runs");
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{place}: {stderr}");
    };
    refused(&place.replace("right", "wrong"), "password authentication failed");
    refused(&place.replace(&roots, "").replace("=require", "=verify-full"), "certificate");
    // Nor is it while a sensor runs: a password that was changed, and one that speaks no TLS any more.
    let pipe = file("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let mut process = Running::start(sensor(&place, &pipe));
    let mut writes = File::options().write(true).open(pipe).expect("it reads");
    let parts = parts();
    writes.write_all(&parts[0]).expect("it reads");
    psql(&url, "ALTER ROLE east PASSWORD 'other'");
    server.stop();
    server.go_on();
    writes.write_all(&parts[1]).expect("it reads");
    process.wait_stderr("the sensor to tell", |said| {
        let told = said.lines().find(|line| line.contains("the server is up but refuses batches"))?;
        told.contains("password authentication failed").then_some(())
    });
    psql(&url, "ALTER ROLE east PASSWORD 'right'");
    let is_sent = |times| {
        move |said: &str| (said.matches("all waiting batches are sent").count() == times).then_some(())
    };
    process.wait_stderr("all to be sent", is_sent(1));
    server.stop();
    let port = place.split_once("localhost:").and_then(|(_, rest)| rest.split('/').next()).expect("a port");
    let other = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).expect("it is free");
    let answers = std::thread::spawn(move || {
        let (mut client, _) = other.accept().expect("it comes");
        client.read_exact(&mut [0; 8]).expect("it asks");
        client.write_all(b"N").expect("it reads");
        let _ = client.read(&mut [0; 8]);
    });
    writes.write_all(&parts[2]).expect("it reads");
    process.wait_stderr("the sensor to tell", |said| {
        said.contains("the server is up but refuses batches: postgresql://east@localhost").then_some(())?;
        said.contains("does not support TLS").then_some(())
    });
    answers.join().expect("it has answered");
    server.go_on();
    process.wait_stderr("all to be sent", is_sent(2));
    drop(writes);
    assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
    let said = process.stderr();
    assert_eq!(said.matches("the server is up but refuses batches").count(), 2, "once each: {said}");
    assert_eq!(merge(&url, &[]).status.code(), Some(0));
    let east = sensors(&url).into_iter().find(|row| row["sensor"] == "east").expect("it is there");
    assert_eq!((&east["lost"], &east["waiting"]), (&0.into(), &0.into()));
    assert_eq!(psql(&url, "SELECT count(*) FROM services WHERE side = 'server'"), "2700");
}

#[test]
fn a_folder_of_another_ones_and_an_inventory_that_is_no_sensors_are_refused() {
    let Some(mut site) = Site::new() else { return };
    let folder = site.spill();
    let refused = |url: &str, words: &[&str], said: &str| {
        let all = [&["replay", "/dev/null", "-q", "--inventory", url], words].concat();
        let output = run(&all);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{all:?}: {stderr}");
    };
    let spill = ["--spill", folder.to_str().expect("UTF-8")];
    let (east, west) = (site.east(), by(&site.url, "west"));
    refused(&west, &spill, "it is sensor east's for postgresql://east@");
    let other = by(&site.server.database(), "east");
    refused(&other, &spill, "it is sensor east's for postgresql://east@");
    let file = site.folder.path().join("net.db");
    refused(file.to_str().expect("UTF-8"), &spill, "it is for sensors of a fleet");
    assert!(!file.exists());
    let own = site.folder.path().join("own");
    let own = ["--spill", own.to_str().expect("UTF-8")];
    refused(&site.url, &own, "its role is no sensor's");
    refused(&east, &[&spill[..], &["--sensor", "west"]].concat(), "--sensor says west");
    refused(&east, &[&spill[..], &["--keep", "1d"]].concat(), "its role is a sensor's");
    refused(&east, &[&spill[..], &["--spill-size", "1MiB"]].concat(), "at least 4MiB");
    refused(&east, &["--spill-size", "8MiB"], "--spill <FOLDER>");
    refused(&east, &["--spill", "/dev/null"], "/dev/null");
    std::fs::create_dir(site.folder.path().join("open")).expect("made");
    let open = site.folder.path().join("open");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    refused(&east, &["--spill", open.to_str().expect("UTF-8")], "others may write to it");
    // One process has it.
    let (sensor, pipe) = site.follows("pipe");
    eventually("the folder to be used", || (site.left().len() > 2).then_some(()));
    refused(&east, &spill, &format!("another bannerwall (process {}) uses it", sensor.id()));
    drop((sensor, pipe));
    // And as long as the server is away as well.
    site.server.stop();
    refused(
        &east,
        &[&spill[..], &["--sensor", "west"]].concat(),
        "it is sensor east's, and --sensor says west",
    );
    refused(&west, &spill, "it is sensor east's for postgresql://east@");
    std::fs::write(folder.join("sensor"), "x").expect("written");
    refused(&east, &spill, "is damaged");
}

/// A guard between two ends that talk SSH.
struct Gateway {
    line: Line,
    _sshd: Sshd,
}

impl Gateway {
    fn new() -> Self {
        let line = Line::new();
        let sshd = Sshd::start(&line.server, 2222);
        Self { line, _sshd: sshd }
    }

    fn guard(&self, site: &Site, words: &str) -> Guard {
        let flags = format!(
            "--hook forward --hook-keep --enforce --inventory {} --spill {} {words}",
            site.east(),
            site.spill().display()
        );
        Guard::start(&self.line.router, sensing::PROGRAM, NO_SQLMAP, &flags)
    }

    fn talk(&self, client: &str) {
        let mut stream = self.line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2222)).expect("it passes");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("sets");
        stream.write_all(format!("SSH-2.0-{client}\r\n").as_bytes()).expect("it passes");
        assert!(stream.read(&mut [0; 64]).expect("it passes") > 0);
    }

    fn metric(&self, name: &str) -> u64 {
        eventually("metrics", || {
            let output = self.line.router.output("curl -sS --max-time 10 http://127.0.0.1:9464/metrics");
            let text = text(&output.stdout);
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("bannerwall_{name} ")));
            line.and_then(|value| value.parse().ok())
        })
    }
}

#[test]
fn a_confined_guard_of_another_user_keeps_what_it_sees_and_leaves_it_to_the_next_one() {
    as_root(|| {
        let Some(mut site) = Site::new() else { return };
        let gateway = Gateway::new();
        let shows = "--metrics 127.0.0.1:9464";
        // Another user's sockets and folders may be in it; root has made its own.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(site.folder.path(), open).expect("ours");
        site.server.stop();
        let mut guard = gateway.guard(&site, &format!("{shows} --user nobody"));
        gateway.talk("one_1");
        eventually("a batch to wait", || (gateway.metric("spill_batches") > 0).then_some(()));
        assert!(gateway.metric("spill_bytes") >= 4096 && !site.batches().is_empty());
        assert_eq!((gateway.metric("spill_dropped_total"), gateway.metric("inventory_lost_total")), (0, 0));
        guard.process.signal(Signal::KILL);
        guard.process.wait_exit();

        let socket = site.folder.path().join("next.sock");
        let takes_over = format!("--user nobody --takeover {}", socket.display());
        let first = gateway.guard(&site, &takes_over);
        gateway.talk("two_2");
        // Without a word about it a second one is refused.
        let output = site.replay(Path::new("/dev/null"), &[]).output().expect("it runs");
        assert!(text(&output.stderr).contains("another bannerwall"), "{}", text(&output.stderr));
        let mut second = gateway.guard(&site, &takes_over);
        let mut first = first;
        assert_eq!(first.process.wait_exit().code(), Some(0), "{}", first.process.stderr());
        gateway.talk("three_3");
        site.server.go_on();
        second.process.wait_stderr("all to be sent", |said| {
            said.contains("all waiting batches are sent").then_some(())
        });
        second.process.signal(Signal::INT);
        assert_eq!(second.process.wait_exit().code(), Some(0), "{}", second.process.stderr());
        // What a guard could not send in its last second goes with the next run.
        let none = site.file("none.pcap", &capture(0));
        std::fs::remove_file(&socket).ok();
        site.sends(&none);
        let known = site.known();
        for client in ["one_1", "two_2", "three_3"] {
            assert!(known.contains(&format!("SSH-2.0-{client}|1")), "{client}: {known}");
        }
        assert_eq!(
            psql(
                &site.url,
                "SELECT count(*) FROM runs JOIN sensors ON sensors.id = sensor WHERE source = 'guard'"
            ),
            "3"
        );
        assert_eq!(site.stands("lost"), 0);
    });
}

/// A program as another one, whose folder is a file system of its own that is full up to what the folder
/// holds.
fn on_a_full_disk(site: &Site, size: &str) -> PathBuf {
    let (folder, kept) =
        (site.spill().display().to_string(), site.folder.path().join("kept").display().to_string());
    let inside = format!(
        "cp {folder}/sensor {kept} && mount -t tmpfs -o size={size},mode=700 tmpfs {folder} && cp {kept} {folder}/sensor && \
         ! cat /dev/zero > {folder}/filler 2> /dev/null && exec {} \"$@\"",
        sensing::PROGRAM
    );
    let script = site
        .file("program", format!("#!/bin/sh\nexec unshare --mount sh -c '{inside}' sh \"$@\"\n").as_bytes());
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    script
}

/// The folder as a process sees it.
fn inside(process: &Running, site: &Site) -> PathBuf {
    let folder = site.spill();
    Path::new(&format!("/proc/{}/root", process.id())).join(folder.strip_prefix("/").expect("from the root"))
}

#[test]
fn a_disk_that_is_full_costs_memory_up_to_a_bound_and_then_what_is_counted() {
    as_root(|| {
        let Some(mut site) = Site::new() else { return };
        let pipe = site.folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
        let mut command = std::process::Command::new(on_a_full_disk(&site, "64k"));
        command.args(site.replay(&pipe, &[]).get_args()).current_dir("/");
        let mut sensor = Running::start(command);
        let mut writes = File::options().write(true).open(&pipe).expect("it reads");
        eventually("it to have its disk", || inside(&sensor, &site).join("lock").exists().then_some(()));
        site.server.stop();
        let [first, second, _] = parts();
        writes.write_all(&[first, second].concat()).expect("it reads");
        sensor.wait_stderr("it to tell", |said| {
            said.contains("No space left on device (os error 28): batches stay in memory").then_some(())
        });
        assert!(!sensor.stderr().contains("cannot write"), "there is memory: {}", sensor.stderr());
        // More than 8 MiB of batches and 16,000 sightings behind them.
        writes.write_all(&capture_of(3_000..60_000)[24..]).expect("it reads");
        sensor.wait_stderr("it to tell", |said| said.contains("cannot write the inventory").then_some(()));
        std::fs::remove_file(inside(&sensor, &site).join("filler")).expect("it is there");
        writes.write_all(&capture_of(60_000..60_500)[24..]).expect("it reads");
        site.server.go_on();
        sensor.wait_stderr("all to be sent", |said| {
            said.contains("all waiting batches are sent").then_some(())
        });
        // What is seen of a part is told when the next one comes, or the end.
        drop(writes);
        assert_eq!(sensor.wait_exit().code(), Some(2), "as where an inventory does not take what was seen");
        let said = sensor.stderr();
        let mut lost = said.lines().filter_map(|line| line.split_once("; sightings lost meanwhile: "));
        let lost: i64 = lost.next().expect("that is told").1.parse().expect("a number");
        assert!(lost > 0 && said.contains("the inventory is written again"), "{said}");
        site.known();
        assert_eq!(site.stands("lost"), lost, "{said}");
        let whole = [
            capture(1_800),
            capture_of(3_000..60_000)[24..].to_vec(),
            capture_of(60_000..60_500)[24..].to_vec(),
        ];
        let output = replay(&by(&site.url, "west"), &site.file("whole.pcap", &whole.concat()), &[]).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        site.known();
        let all = sensors(&site.url).into_iter().find(|row| row["sensor"] == "west").expect("it is there");
        // In order: what came out of it would be dropped as known.
        assert_eq!(Some(site.stands("sightings") + lost), all["sightings"].as_i64());
    });
}

#[test]
fn a_guard_lets_packets_pass_while_its_disk_is_full_and_tells_of_them_later() {
    as_root(|| {
        let Some(mut site) = Site::new() else { return };
        let gateway = Gateway::new();
        let program = on_a_full_disk(&site, "64k");
        let flags = format!(
            "--hook forward --enforce --inventory {} --spill {} --metrics 127.0.0.1:9464",
            site.east(),
            site.spill().display()
        );
        let program = program.to_str().expect("UTF-8");
        let mut guard = Guard::start(&gateway.line.router, program, NO_SQLMAP, &flags);
        site.server.stop();
        for client in ["one_1", "two_2", "three_3"] {
            gateway.talk(client);
            std::thread::sleep(Duration::from_millis(300));
        }
        guard.process.wait_stderr("it to tell", |said| said.contains("stay in memory").then_some(()));
        eventually("batches to wait", || (gateway.metric("spill_batches") > 0).then_some(()));
        assert_eq!(
            ["spill_bytes", "spill_dropped_total", "inventory_lost_total"].map(|it| gateway.metric(it)),
            [0; 3]
        );
        site.server.go_on();
        guard.process.wait_stderr("all to be sent", |said| {
            said.contains("all waiting batches are sent").then_some(())
        });
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let known = site.known();
        for client in ["one_1", "two_2", "three_3"] {
            assert!(known.contains(&format!("SSH-2.0-{client}|1")), "{client}: {known}");
        }
        assert_eq!(site.stands("lost"), 0);
    });
}
