//! Sensors of a fleet: roles that enter what they see and read nothing, batches that count once whoever is
//! killed, and what cannot be read set aside.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::by_hand::{BATCH, enter};
use crate::sensing::{KNOWN, by, capture, init, merge, program, replay, run, sensors, text, told};
use bannerwall_test_support::{Postgres, Running, Signal, eventually, psql, ssh_servers};

/// What a server says to a statement that it refuses.
fn refused(url: &str, query: &str) -> String {
    let output = Command::new("psql").args(["-XAtqd", url, "-c", query]).output().expect("psql is installed");
    assert!(!output.status.success() && output.stdout.is_empty(), "{query}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn servers() -> String {
    ssh_servers(|number| format!("SSH-2.0-test_{}\r\n", number % 256).into_bytes()).to_string()
}

fn scan(url: &str, range: &str, port: &str, words: &[&str]) -> Command {
    let mut command = program(&["scan", "ssh", range, "-p", port, "-q", "-o", "/dev/null"]);
    command.args(["--read-timeout", "9s", "--total-timeout", "30s", "--inventory", url]).args(words);
    command
}

#[test]
fn sensors_enter_what_they_see_and_read_nothing() {
    let Some(server) = Postgres::start() else { return };
    let (url, direct) = (server.database(), server.database());
    let first = init(&url);
    for role in [
        "_test0_sensor: created",
        "east: created, member of bannerwall_test0_sensor",
        "hand: created",
        "page: created",
    ] {
        assert!(first.contains(role) && first.contains("\\password"), "{first}");
    }
    let again = init(&url);
    assert!(again.contains("east: existed") && !again.contains("created"), "{again}");
    let (east, west) = (by(&url, "east"), by(&url, "west"));

    // A replay and a scan, of two sites.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("capture.pcap");
    std::fs::write(&file, capture(100)).expect("written");
    for place in [&west, &direct] {
        let output = replay(place, &file, &[]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let scanned = scan(&east, "127.40.0.0/26", &servers(), &[]).output().expect("it runs");
    assert_eq!(scanned.status.code(), Some(0), "{}", text(&scanned.stderr));
    assert_eq!(psql(&url, "SELECT count(*) FROM services"), "0", "nobody has merged yet");
    let waiting = sensors(&url);
    assert!(waiting.iter().all(|sensor| sensor["inbox"].as_i64() > Some(0)), "{waiting:?}");
    let merged = merge(&url, &[]);
    assert_eq!(merged.status.code(), Some(0), "{}", text(&merged.stderr));
    let seen = "SELECT count(*) FROM services WHERE side = 'server'";
    assert_eq!(psql(&url, seen), "164");
    // The same as if it had written itself.
    let ours = psql(&url, &KNOWN.replace("WHERE", "WHERE address LIKE '198.%' AND"));
    assert_eq!(ours, psql(&direct, &KNOWN.replace("WHERE", "WHERE address LIKE '198.%' AND")));
    assert!(ours.contains("SSH-2.0-sensed_99|2"), "{ours}");
    let runs = "SELECT source, name, state FROM runs JOIN sensors ON sensors.id = sensor ORDER BY 1";
    assert_eq!(psql(&url, runs), "replay|west|done\nscan|east|done");
    let list =
        told(&["inventory", "list", "sensor:replay/west", "side:server", "--inventory", &by(&url, "page")]);
    assert_eq!(list.lines().count(), 100, "{list}");
    // A capture that is read once more counts no more.
    assert!(replay(&west, &file, &[]).status().expect("it runs").success());
    assert_eq!(merge(&url, &[]).status.code(), Some(0));
    assert_eq!(psql(&url, &KNOWN.replace("WHERE", "WHERE address LIKE '198.%' AND")), ours);
    let stands = sensors(&url);
    assert!(
        stands.iter().all(|sensor| sensor["inbox"] == 0 && sensor["batches"].as_i64() > Some(0)),
        "{stands:?}"
    );

    // Neither reads anything, its own batches least of all.
    assert!(replay(&east, &file, &[]).status().expect("it runs").success());
    let tables = psql(
        &url,
        "SELECT tablename FROM pg_tables WHERE schemaname = 'bannerwall' UNION SELECT viewname FROM pg_views WHERE schemaname = 'bannerwall'",
    );
    assert!(tables.lines().count() > 20, "{tables}");
    // But for what is published for it, and its own row of what it has of that.
    for table in tables.lines().filter(|table| !table.starts_with("fleet_rules")) {
        let said = refused(&west, &format!("SELECT * FROM bannerwall.{table}"));
        assert!(said.contains("permission denied"), "{table}: {said}");
    }
    for (query, said) in [
        (
            "INSERT INTO bannerwall.fleet_inbox (sensor, stream, number, sent_at, waiting, lost, version, batch) VALUES ('east', 's', 1, 0, 0, 0, 1, '')",
            "permission denied",
        ),
        (
            "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch) VALUES ('s', 1, 0, 0, 0, 1, '') RETURNING id",
            "permission denied",
        ),
        (
            "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch) VALUES ('s', 1, 0, 0, 0, 1, repeat('x', 5000000))",
            "violates check",
        ),
        ("DELETE FROM bannerwall.fleet_inbox", "permission denied"),
        ("UPDATE bannerwall.fleet_inbox SET version = 2", "permission denied"),
        (
            "INSERT INTO bannerwall.hosts (octets, address, first_seen) VALUES ('a', 'b', 1)",
            "permission denied",
        ),
    ] {
        let told = refused(&west, query);
        assert!(told.contains(said), "{query}: {told}");
    }
    // Whatever is granted to it by mistake: what it enters is its own.
    psql(&url, "GRANT INSERT ON bannerwall.fleet_inbox TO west");
    let query = "INSERT INTO bannerwall.fleet_inbox (sensor, stream, number, sent_at, waiting, lost, version, batch) VALUES ('east', 's', 1, 0, 0, 0, 1, '')";
    assert!(refused(&west, query).contains("row-level security"));
    let output = run(&["inventory", "list", "--inventory", &west]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("permission denied"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_read_is_set_aside_and_stops_nobody() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let east = by(&url, "east");
    let enter = |number: u32, version: u32, batch: &str| {
        let query = format!(
            "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch)
             VALUES ('s', {number}, bannerwall.fleet_now() + 3600000, 7, {number}, {version}, $q${batch}$q$)
             ON CONFLICT DO NOTHING"
        );
        psql(&east, &query);
    };
    enter(1, 1, "no batch");
    enter(2, 9, BATCH);
    // A number that no table takes.
    enter(3, 1, &BATCH.replace("203.0.113.9", "203.0.113.8"));
    enter(3, 1, "sent once more");
    let merged = merge(&url, &[]);
    let said = text(&merged.stderr);
    assert_eq!(merged.status.code(), Some(0), "{said}");
    assert!(said.contains("batch 1 is set aside: line 1") && said.contains("format is version 9"), "{said}");
    assert!(said.contains("1 batch merged, 2 set aside"), "{said}");
    // What was merged is not merged again.
    enter(3, 1, BATCH);
    assert_eq!(merge(&url, &[]).status.code(), Some(0));
    assert_eq!(
        psql(
            &url,
            "SELECT address, sum(count) FROM sightings JOIN services ON services.id = service JOIN hosts ON hosts.id = host GROUP BY 1"
        ),
        "203.0.113.8|5"
    );
    let stands = &sensors(&url)[0];
    assert_eq!(
        (&stands["sensor"], &stands["refused"], &stands["batches"]),
        (&"east".into(), &2.into(), &1.into())
    );
    assert_eq!(
        (&stands["lost"], &stands["waiting"], &stands["sightings"]),
        (&3.into(), &7.into(), &5.into())
    );
    let skew = stands["skew"].as_i64().expect("a number");
    assert!((3_590_000..=3_600_000).contains(&skew), "{skew}");
    let page = by(&url, "page");
    let status = told(&["fleet", "status", "--database", &page]);
    assert!(status.contains("sensor east") && status.contains("2 set aside"), "{status}");
    assert!(
        status.contains("s ahead") && status.contains("sensor west  last sign of life never"),
        "{status}"
    );
    // A newer program reads it.
    psql(&url, "UPDATE fleet_inbox SET version = 1 WHERE version = 9");
    assert!(text(&merge(&url, &["--again"]).stderr).contains("1 batch merged, 1 set aside"));
    assert_eq!(psql(&url, "SELECT count(*) FROM services WHERE side = 'server'"), "2");
    // Who may not merge is told so.
    let output = run(&["fleet", "merge", "--database", &page]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_record_that_cannot_be_read_stops_no_other_one() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    // As a sensor that is newer than who merges, amid what both know.
    let (head, line) = BATCH.split_once('\n').expect("two lines");
    let newer = line.replace("203.0.113.9", "203.0.113.8").replace("\"ssh\"", "\"newer\"");
    let other = line.replace("203.0.113.9", "203.0.113.7");
    let query = format!(
        "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch)
         VALUES ('s', 1, 0, 0, 0, 1, $q${head}\n{line}{newer}{other}$q$)"
    );
    psql(&by(&url, "east"), &query);
    let merged = merge(&url, &[]);
    let said = text(&merged.stderr);
    assert!(said.contains("records of batch 1 that are set aside: 1: line 3: unknown protocol"), "{said}");
    assert!(said.contains("1 batch merged, 1 set aside"), "{said}");
    let services = "SELECT address, sum(count) FROM sightings JOIN services ON services.id = service
         JOIN hosts ON hosts.id = host GROUP BY 1 ORDER BY 1";
    assert_eq!(psql(&url, services), "203.0.113.7|5\n203.0.113.9|5");
    assert_eq!(psql(&url, "SELECT batch FROM fleet_inbox"), format!("{head}\n{newer}").trim_end());
    // The same program cannot read it either, however often; a newer one can, once.
    for _ in 0..2 {
        let said = text(&merge(&url, &["--again"]).stderr);
        assert!(said.contains("0 batches merged, 1 set aside"), "{said}");
    }
    psql(&url, "UPDATE fleet_inbox SET batch = replace(batch, 'newer', 'ssh')");
    for _ in 0..2 {
        assert_eq!(merge(&url, &["--again"]).status.code(), Some(0));
    }
    assert_eq!(psql(&url, services), "203.0.113.7|5\n203.0.113.8|5\n203.0.113.9|5");
    let east = sensors(&url).into_iter().find(|row| row["sensor"] == "east").expect("it is there");
    assert_eq!((&east["sightings"], &east["refused"], &east["inbox"]), (&15.into(), &0.into(), &0.into()));
}

#[test]
fn each_batch_counts_once_whoever_is_killed() {
    let Some(mut server) = Postgres::start() else { return };
    let (url, port) = (server.database(), servers());
    init(&url);
    let slow = |sensor, range| Running::start(scan(&by(&url, sensor), range, &port, &["--rate", "200"]));
    let (mut east, mut west) = (slow("east", "127.41.0.0/22"), slow("west", "127.41.0.0/22"));
    let follow = || Running::start(program(&["fleet", "merge", "--follow", "--database", &by(&url, "hand")]));
    let merged = || psql(&url, "SELECT sum(batches) FROM fleet_sensors").parse::<u64>().unwrap_or_default();
    // Two at once, of which one is killed again and again.
    let steady = follow();
    for _ in 0..5 {
        let mut killed = follow();
        let before = merged();
        // A slow machine may have merged all before the last kill.
        eventually("more to be merged", || (merged() > before + 2 || east.has_exited()).then_some(()));
        killed.signal(Signal::KILL);
        killed.wait_exit();
    }
    west.signal(Signal::KILL);
    west.wait_exit();
    assert_eq!(east.wait_exit().code(), Some(0), "{}", east.stderr());
    server.stop();
    server.go_on();
    steady.wait_stderr("the server to be there again", |text| text.contains("merged again").then_some(()));
    eventually("the inbox to be empty", || {
        (psql(&url, "SELECT count(*) FROM fleet_inbox") == "0").then_some(())
    });
    let counted =
        "SELECT name, count(*), min(count), max(count) FROM sightings JOIN sensors ON sensors.id = sensor
                   WHERE name = 'east' GROUP BY 1";
    assert_eq!(psql(&url, counted), "east|1024|1|1");
    let all = "SELECT sum(count) FROM sightings JOIN sensors ON sensors.id = sensor WHERE name =";
    for sensor in ["east", "west"] {
        let told = psql(&url, &format!("SELECT sightings FROM fleet_sensors WHERE sensor = '{sensor}'"));
        assert_eq!(psql(&url, &format!("{all} '{sensor}'")), told, "{sensor}");
    }
    // A worker merges beside its scans.
    assert!(scan(&by(&url, "west"), "127.42.0.0/28", &port, &[]).status().expect("it runs").success());
    drop(steady);
    let mut worker = Running::start(program(&["fleet", "worker", "--database", &by(&url, "hand")]));
    eventually("the inbox to be empty", || {
        (psql(&url, "SELECT count(*) FROM fleet_inbox") == "0").then_some(())
    });
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_exit().code(), Some(0), "{}", worker.stderr());
}

#[test]
fn bad_input_is_refused_where_it_is_given() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    let refused = |words: &[&str], said: &str| {
        let output = run(words);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{words:?}: {stderr}");
    };
    refused(&["fleet", "init"], "--database");
    refused(&["fleet", "init", "--sensor", "pg_x", "--dry-run"], "pg_ is the prefix");
    refused(&["fleet", "init", "--sensor", "a", "--reader", "a", "--dry-run"], "needs its own role");
    refused(
        &["fleet", "init", "--sensor", "postgres", "--database", &url],
        "is a superuser or passes row security",
    );
    refused(&["fleet", "merge", "--database", &server.database()], "there is no fleet yet");
    // What is printed does the same.
    let words = ["fleet", "init", "--sensor", "east", "--sensor", "we\"st's", "--reader", "page"];
    let script = told(&[&words[..], &["--dry-run"]].concat());
    psql(&url, &script);
    let made = told(&[&words[..], &["--database", &url]].concat());
    assert!(made.contains("role we\"st's: existed, member of bannerwall_test0_sensor"), "{made}");
    refused(&["fleet", "init", "--sensor", "page", "--database", &url], "member of bannerwall_test0_reader");
    let east = by(&url, "east");
    let replay = ["replay", "/dev/null", "-q", "--inventory", &east];
    for (flags, said) in [
        (&["--sensor", "west"][..], "its role is that of sensor east, and --sensor says west"),
        (&["--keep", "1d"], "its role is a sensor's"),
        (&["--gone-after", "1d"], "its role is a sensor's"),
        (&["--change-events"], "its role is a sensor's"),
    ] {
        refused(&[&replay[..], flags].concat(), said);
    }
}

#[test]
fn who_merges_ends_when_told_to_and_not_while_something_waits() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let follow = || Running::start(program(&["fleet", "merge", "--follow", "--database", &by(&url, "hand")]));
    let following = [Signal::TERM, Signal::INT].map(|signal| (signal, follow()));
    // By now they look every four seconds.
    std::thread::sleep(Duration::from_secs(5));
    for (signal, mut process) in following {
        process.signal(signal);
        assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
    }

    // Another one has the sensor in hand.
    enter(&by(&url, "east"), 1, BATCH);
    let mut holder = Command::new("psql")
        .args(["-XAtqd", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql is installed");
    let mut input = holder.stdin.take().expect("it is piped");
    input
        .write_all(b"BEGIN; SELECT sensor FROM bannerwall.fleet_sensors WHERE sensor = 'east' FOR UPDATE;\n")
        .expect("it is read");
    let mut held = String::new();
    BufReader::new(holder.stdout.take().expect("it is piped")).read_line(&mut held).expect("it answers");
    assert_eq!(held, "east\n");
    let mut once = Running::start(program(&["fleet", "merge", "--database", &by(&url, "hand")]));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!once.has_exited(), "{}", once.stderr());
    drop(input);
    holder.wait().expect("it ends");
    assert_eq!(once.wait_exit().code(), Some(0), "{}", once.stderr());
    assert_eq!(psql(&url, "SELECT count(*) FROM fleet_inbox"), "0");
}

#[test]
fn a_batch_that_a_constraint_refuses_holds_up_nobody() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    psql(&url, "ALTER TABLE bannerwall.services ADD CONSTRAINT odd CHECK (port <> 2222)");
    let (east, west) = (by(&url, "east"), by(&url, "west"));
    enter(&east, 1, &BATCH.replace("203.0.113.9", "203.0.113.7"));
    enter(&east, 2, &BATCH.replace("\"port\":22", "\"port\":2222"));
    enter(&east, 3, &BATCH.replace("203.0.113.9", "203.0.113.8"));
    enter(&west, 1, BATCH);
    let merged = merge(&url, &[]);
    let said = text(&merged.stderr);
    assert_eq!(merged.status.code(), Some(0), "{said}");
    assert!(
        said.contains("violates check constraint") && said.contains("3 batches merged, 1 set aside"),
        "{said}"
    );
    assert_eq!(psql(&url, "SELECT sensor, number FROM fleet_inbox"), "east|2");
    psql(&url, "ALTER TABLE bannerwall.services DROP CONSTRAINT odd");
    let said = text(&merge(&url, &["--again"]).stderr);
    assert!(said.contains("1 batch merged\n"), "{said}");
}

#[test]
fn a_sensor_that_is_gone_is_forgotten_unless_something_of_it_waits() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let (west, boss) = (by(&url, "west"), by(&url, "boss"));
    let forget =
        |role: &str, name: &str| run(&["fleet", "forget", "--sensor", name, "--database", &by(&url, role)]);
    let refused = |role: &str, name: &str, said: &str| {
        let output = forget(role, name);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{stderr}");
    };
    let speaks = || {
        psql(
            &west,
            "SELECT bannerwall.fleet_heard(); INSERT INTO bannerwall.fleet_rules_taken (serial) VALUES (1)",
        )
    };
    speaks();
    enter(&west, 1, BATCH);
    enter(&west, 2, "no batch");
    refused("boss", "west", "sensor west has unmerged batches: 2");
    assert_eq!(merge(&url, &[]).status.code(), Some(0));
    refused("hand", "west", "permission denied");
    refused("page", "west", "permission denied");
    refused("boss", "north", "there is no sensor north");
    let told_of = told(&["fleet", "forget", "--sensor", "west", "--database", &boss]);
    assert_eq!(told_of, "sensor west is deleted, with batches that were set aside: 1\n");
    assert!(sensors(&url).iter().all(|sensor| sensor["sensor"] == "east"), "{:?}", sensors(&url));
    let rules = told(&["fleet", "rules", "status", "--database", &boss]);
    assert!(rules.contains("east") && !rules.contains("west"), "{rules}");
    for table in ["inbox", "sensors", "streams", "heartbeats", "rules_taken"] {
        let left = psql(&url, &format!("SELECT count(*) FROM fleet_{table} WHERE sensor = 'west'"));
        assert_eq!(left, "0", "{table}");
    }
    refused("boss", "west", "there is no sensor west");
    // The inventory has what it said, and it is known again once it says something.
    assert_eq!(psql(&url, "SELECT count(*) FROM services WHERE side = 'server'"), "1");
    speaks();
    assert!(sensors(&url).iter().any(|sensor| sensor["sensor"] == "west"));
    // One that was never heard of, and several at once.
    let both = told(&["fleet", "forget", "--sensor", "east", "--sensor", "west", "--database", &boss]);
    assert_eq!(both, "sensor east is deleted\nsensor west is deleted\n");
    assert!(sensors(&url).is_empty());
}
