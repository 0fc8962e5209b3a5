//! Sites of a fleet: guards as its sensors, and the page over all of them, which merges what they send.

use std::process::Command;

use crate::sensing::{PROGRAM, by, init, program, sensors, text, told};
use bannerwall_test_support::page::{curl, get_json};
use bannerwall_test_support::{
    Guard, Line, NO_SQLMAP, Nginx, Postgres, Running, Signal, Sshd, as_root, eventually, psql, ssh_servers,
};
use serde_json::Value;

/// How a sensor stands, as a reader is told.
fn sensor(url: &str, name: &str) -> Value {
    sensors(url).into_iter().find(|row| row["sensor"] == name).expect("it is listed")
}

/// A page by a role; its address ends with a slash.
fn page(url: &str, role: &str) -> (Running, String) {
    let process =
        Running::start(program(&["serve", "--listen", "127.0.0.1:0", "--inventory", &by(url, role)]));
    let address = process.wait_stderr("the address", |said| {
        said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
    });
    (process, address)
}

/// Services that the page knows, with a port.
fn services(page: &str, port: u16) -> Vec<Value> {
    // None while the database is away.
    let (status, all) = curl(&[&format!("{page}api/services")]);
    let all = if status == 200 { serde_json::from_str(&all).expect("JSON") } else { Value::Null };
    let all = all["services"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|service| service["port"] == port && service["side"] == "server").collect()
}

/// Whether all threads of this name are held to what is left to them.
fn are_held(process: &Running, name: &str) -> bool {
    let folder = format!("/proc/{}/task", process.id());
    let tasks = std::fs::read_dir(folder).expect("it runs").flatten().map(|task| task.path());
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let of_name: Vec<_> = tasks.filter(|task| read(task.join("comm")).trim() == name).collect();
    let is_held = |task: &std::path::PathBuf| {
        let status = read(task.join("status"));
        ["Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n"]
            .iter()
            .all(|held| status.contains(held))
    };
    !of_name.is_empty() && of_name.iter().all(is_held)
}

fn stop(mut process: Running) {
    process.signal(Signal::TERM);
    assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
}

#[test]
fn a_page_merges_what_sensors_send_where_it_may_and_says_how_they_stand() {
    let Some(mut server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let port = ssh_servers(|number| format!("SSH-2.0-sensed_{}\r\n", number % 256).into_bytes()).to_string();
    let scan = |range: &str| {
        let words = ["scan", "ssh", range, "-p", &port, "-q", "-o", "/dev/null", "--inventory"];
        told(&[&words[..], &[&by(&url, "east"), "--read-timeout", "9s"]].concat());
    };
    let found = |page: &str| services(page, port.parse().expect("a number")).len();

    // Who may only read says so, once, and how far behind the inventory is.
    let (reading, address) = page(&url, "page");
    reading.wait_stderr("it to be told", |said| said.contains("are not merged here").then_some(()));
    scan("127.43.0.0/29");
    let sensors = get_json(&format!("{address}api/sensors"));
    let (east, west) = (&sensors["sensors"][0], &sensors["sensors"][1]);
    assert!(east["inbox"].as_i64() > Some(0) && east["behind"].is_i64(), "{sensors}");
    assert!(east["alive"].is_string() && east["silent"].as_i64() < Some(600_000), "{sensors}");
    assert!(west["sensor"] == "west" && west["alive"].is_null() && west["behind"].is_null(), "{sensors}");
    let (_, shown) = curl(&[&address]);
    assert!(shown.contains("Batches that wait to be merged: "), "{shown}");
    assert!(shown.contains("<bdi>east</bdi>") && shown.contains("never"), "{shown}");
    assert_eq!(found(&address), 0);

    // Who may write merges, and goes on where the server was away.
    let (merging, at) = page(&url, "hand");
    eventually("it to be merged", || (found(&at) == 8).then_some(()));
    assert!(are_held(&merging, "fleet-merge"));
    let following = Running::start(program(&["fleet", "merge", "--follow", "--database", &by(&url, "hand")]));
    eventually("it to be held", || are_held(&following, "bannerwall").then_some(()));
    stop(following);
    server.stop();
    merging
        .wait_stderr("it to be told", |said| said.contains("cannot merge batches of sensors").then_some(()));
    server.go_on();
    merging.wait_stderr("it to go on", |said| said.contains("are merged again").then_some(()));
    scan("127.43.0.0/28");
    eventually("it to be merged", || (found(&at) == 16).then_some(()));
    eventually("the inbox to be empty", || (sensor(&url, "east")["inbox"] == 0).then_some(()));
    eventually("the page to say so", || curl(&[&address]).1.contains("All batches are merged").then_some(()));
    assert_eq!(reading.stderr().matches("are not merged here").count(), 1, "{}", reading.stderr());
    stop(reading);
    stop(merging);

    // A page over an inventory without a fleet, or over a file, tells of none.
    let alone = server.database();
    told(&["scan", "ssh", "127.43.1.1", "-p", &port, "-q", "-o", "/dev/null", "--inventory", &alone]);
    let (plain, address) = page(&alone, "postgres");
    assert_eq!(get_json(&format!("{address}api/sensors"))["sensors"].as_array().map(Vec::len), Some(0));
    assert!(!curl(&[&address]).1.contains("id=\"sensors\""));
    stop(plain);
}

#[test]
fn a_sensor_says_that_it_is_there_and_may_nothing_more_by_that() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    psql(&by(&url, "west"), "SELECT bannerwall.fleet_heard()");
    let west = sensor(&url, "west");
    assert!(west["alive"].is_string() && west["heard"].is_null() && west["batches"] == 0, "{west}");
    assert!(sensor(&url, "east")["alive"].is_null());
    for (role, query) in [
        ("page", "SELECT bannerwall.fleet_heard()"),
        ("west", "SELECT * FROM bannerwall.fleet_heartbeats"),
        ("west", "INSERT INTO bannerwall.fleet_heartbeats VALUES ('east', 1)"),
    ] {
        let output = Command::new("psql").args(["-XAtqd", &by(&url, role), "-c", query]).output();
        let said = text(&output.expect("psql is installed").stderr);
        assert!(said.contains("permission denied"), "{role}: {query}: {said}");
    }
    // A fleet of a version before takes batches, and is told of no heartbeats.
    psql(&url, "DROP FUNCTION fleet_heard()");
    let words = ["scan", "ssh", "127.43.2.0/24", "-p", "9", "--rate", "1", "-q", "-o", "/dev/null"];
    let mut process = Running::start(program(&[&words[..], &["--inventory", &by(&url, "east")]].concat()));
    process.wait_stderr("it to be told", |said| said.contains("`bannerwall fleet init`").then_some(()));
    process.signal(Signal::KILL);
    process.wait_exit();
}

#[test]
fn a_guard_that_sees_nothing_goes_on_saying_that_it_is_there() {
    as_root(|| {
        let Some(mut server) = Postgres::start() else { return };
        let (url, line) = (server.database(), Line::new());
        init(&url);
        let flags = format!("--hook forward --inventory {}", by(&url, "east"));
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        let alive = || {
            let said = psql(&url, "SELECT coalesce(max(at), 0) FROM fleet_heartbeats WHERE sensor = 'east'");
            said.parse::<u64>().expect("a number")
        };
        let first = eventually("it to be heard of", || Some(alive()).filter(|at| *at > 0));
        // A server that was away meanwhile stops none of them.
        server.stop();
        server.go_on();
        let second = eventually("it to be heard of again", || Some(alive()).filter(|at| *at > first));
        // By the server's clock, in milliseconds.
        assert!((59_000..90_000).contains(&(second - first)), "{first} and {second}");
        let east = sensor(&url, "east");
        assert!(east["batches"] == 0 && east["heard"].is_null() && east["inbox"] == 0, "{east}");
        stop(guard.process);
    });
}

#[test]
fn a_guard_is_a_sensor_whose_site_the_page_shows() {
    as_root(|| {
        let Some(mut server) = Postgres::start() else { return };
        let (url, line) = (server.database(), Line::new());
        init(&url);
        let (page, at) = page(&url, "hand");
        let _sshd = Sshd::start(&line.server, 2222);
        let _nginx = Nginx::start(&line.server, 8080, "");
        let flags = format!("--hook forward --enforce --inventory {}", by(&url, "east"));
        let start = || Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        let asks = |agent: &str| {
            let words = format!("curl -sS -m 20 -o /dev/null -A {agent} http://{}:8080/", Line::SERVER_V4);
            line.client.output(&words).status.success()
        };
        let counted = |port: u16| {
            let query = format!(
                "SELECT coalesce(sum(count), 0) FROM contacts JOIN services ON services.id = service WHERE port = {port}"
            );
            psql(&url, &query).parse::<u64>().expect("a number")
        };

        // It sees nothing, and is there.
        let guard = start();
        let quiet = eventually("it to be heard of", || {
            Some(sensor(&url, "east")).filter(|east| east["alive"].is_string())
        });
        assert!(quiet["batches"] == 0 && quiet["heard"].is_null(), "{quiet}");

        assert!(asks("curl/8.0") && !asks("sqlmap/1.7"));
        line.client.output(&format!(
            "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p 2222 {} true",
            Line::SERVER_V4
        ));
        for (port, says) in [(2222, "SSH-2.0-OpenSSH"), (8080, "nginx")] {
            let seen = eventually(&format!("port {port} to be shown"), || services(&at, port).pop());
            assert!(seen["banner"].as_str().is_some_and(|banner| banner.contains(says)), "{seen}");
            assert_eq!(seen["sensors"], serde_json::json!(["guard/east"]), "{seen}");
        }
        eventually("what was stopped to be shown", || curl(&[&at]).1.contains("no-sqlmap").then_some(()));

        // The database is away: packets are judged all the same, and what was seen is told later.
        server.stop();
        assert!(asks("curl/8.1") && !asks("sqlmap/1.7"));
        guard
            .process
            .wait_stderr("it to be told", |said| said.contains("cannot write the inventory").then_some(()));
        server.go_on();
        let said = "SELECT count(*) FROM banners WHERE text LIKE '%curl/8.1%'";
        eventually("it to be told", || (psql(&url, said) == "1").then_some(()));
        // What was seen again is told once a minute, and at the end.
        stop(guard.process);
        eventually("it to be counted", || (counted(8080) == 4).then_some(()));

        // The next guard is the same sensor.
        let guard = start();
        assert!(asks("curl/8.2"));
        stop(guard.process);
        eventually("all of it to be merged", || {
            (counted(8080) == 5 && sensor(&url, "east")["inbox"] == 0).then_some(())
        });
        let reader = by(&url, "page");
        let list = told(&["inventory", "list", "sensor:guard/east", "side:server", "--inventory", &reader]);
        assert!(list.contains(":8080") && list.contains(":2222") && list.lines().count() == 2, "{list}");
        let runs =
            psql(&url, "SELECT source, name, state, lost FROM runs JOIN sensors ON sensors.id = sensor");
        assert_eq!(runs, "guard|east|done|0\nguard|east|done|0");
        assert_eq!(sensor(&url, "east")["lost"], 0);
        stop(page);
    });
}
