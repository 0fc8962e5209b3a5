//! The borders of a fleet: its roles do what is theirs in their own database, and stop nobody.

use std::process::Command;

use crate::by_hand::{BATCH, enter};
use crate::sensing::{by, init, merge, run, sensors, text, told};
use bannerwall_test_support::{Postgres, psql};

/// What a server says to statements that it refuses.
fn refused(url: &str, query: &str) -> String {
    let output = Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", query])
        .output()
        .expect("psql is installed");
    assert!(!output.status.success(), "{query}: {}", text(&output.stdout));
    text(&output.stderr)
}

/// The roles of a fleet of [`init`], and of one who publishes.
const ROLES: [&str; 6] = ["east", "west", "hand", "page", "boss", "editor"];

#[test]
fn roles_of_one_fleet_do_nothing_in_another_one() {
    let Some(server) = Postgres::start() else { return };
    let (ours, theirs) = (server.database(), server.database());
    init(&ours);
    told(&["fleet", "init", "--publisher", "editor", "--database", &ours]);
    let words = ["fleet", "init", "--sensor", "gw", "--worker", "farm", "--reader", "west"];
    told(&[&words[..], &["--database", &theirs]].concat());
    for role in ROLES.into_iter().filter(|role| *role != "west") {
        let said = refused(&by(&theirs, role), "SELECT 1");
        assert!(said.contains("permission denied for database"), "{role}: {said}");
    }
    // A sensor of one fleet may read another one, and is told of as each.
    assert_eq!(psql(&by(&theirs, "west"), "SELECT count(*) FROM services"), "0");
    assert!(refused(&by(&ours, "west"), "SELECT FROM bannerwall.services").contains("permission denied"));
    enter(&by(&ours, "west"), 1, BATCH);
    enter(&by(&theirs, "gw"), 1, BATCH);
    assert_eq!(merge(&ours, &[]).status.code(), Some(0));
    assert!(sensors(&ours).iter().all(|sensor| sensor["inbox"] == 0));
    assert_eq!(psql(&theirs, "SELECT sensor FROM fleet_inbox"), "gw");
    let output = run(&["fleet", "status", "--database", &by(&theirs, "hand")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("permission denied for database"), "{}", text(&output.stderr));
    // Their database may be renamed: who is a sensor is known by what it may do.
    psql(&ours, "ALTER DATABASE test1 RENAME TO renamed");
    let theirs = theirs.replace("test1", "renamed");
    let replay = ["replay", "/dev/null", "-q", "--inventory", &by(&theirs, "gw"), "--keep", "1d"];
    assert!(text(&run(&replay).stderr).contains("its role is a sensor's"));
}

#[test]
fn no_role_stops_those_that_write() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    told(&["fleet", "init", "--publisher", "editor", "--database", &url]);
    let turn = "LOCK TABLE bannerwall.sensors IN SHARE ROW EXCLUSIVE MODE";
    for role in ROLES {
        let role_url = by(&url, role);
        for (query, what) in [
            ("SELECT pg_advisory_lock(1652517238)", "for function pg_advisory_lock"),
            ("SELECT pg_try_advisory_lock_shared(1)", "for function pg_try_advisory_lock_shared"),
            ("SELECT lo_create(0)", "for function lo_create"),
            ("SELECT lo_from_bytea(0, 'a')", "for function lo_from_bytea"),
            ("CREATE TEMP TABLE a AS SELECT 1", "to create temporary tables"),
            ("CREATE TABLE bannerwall.a (b int)", "for schema bannerwall"),
            ("SET temp_file_limit = -1", "to set parameter"),
        ] {
            let said = refused(&role_url, query);
            assert!(said.contains(&format!("permission denied {what}")), "{role}: {query}: {said}");
        }
        if matches!(role, "hand" | "boss") {
            psql(&role_url, &format!("BEGIN; {turn}; COMMIT; SELECT pg_try_advisory_lock(1, 2)"));
        } else {
            assert!(refused(&role_url, &format!("BEGIN; {turn}")).contains("permission denied"), "{role}");
            assert!(refused(&role_url, "SELECT pg_try_advisory_lock(1, 2)").contains("permission denied"));
        }
        let limits = "SELECT current_setting('statement_timeout'), current_setting('temp_file_limit'),
            current_setting('idle_in_transaction_session_timeout'), rolconnlimit FROM pg_roles WHERE rolname = session_user";
        let expected = match role {
            "east" | "west" | "editor" => "75s|64MB|5min|16",
            _ => "75s|2GB|5min|100",
        };
        assert_eq!(psql(&role_url, limits), expected, "{role}");
    }
    // What their owner has said stays.
    psql(
        &url,
        "ALTER ROLE east CONNECTION LIMIT 5; ALTER ROLE east IN DATABASE test0 SET statement_timeout = '9s'",
    );
    init(&url);
    let own = "SELECT current_setting('statement_timeout'), rolconnlimit FROM pg_roles WHERE rolname = session_user";
    assert_eq!(psql(&by(&url, "east"), own), "9s|5");
}

#[test]
fn a_worker_orders_no_scan_and_says_nothing_in_the_name_of_a_sensor() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let (hand, boss) = (by(&url, "hand"), by(&url, "boss"));
    enter(&by(&url, "east"), 1, BATCH);
    let words = ["fleet", "schedule", "0 0 1 1 *", "connect", "192.0.2.1", "-p", "9", "--database", &boss];
    told(&words);
    for query in [
        "INSERT INTO bannerwall.fleet_scans (about, what, targets, shards, attempts) VALUES ('', '{}', 1, 1, 1)",
        "UPDATE bannerwall.fleet_scans SET what = '{}'",
        "DELETE FROM bannerwall.fleet_scans",
        "UPDATE bannerwall.fleet_schedules SET what = '{}'",
        "DELETE FROM bannerwall.fleet_schedules",
        "INSERT INTO bannerwall.schedules (about, rhythm, who, made, due) VALUES ('{}', 'every 6h', '', 0, 0)",
        "INSERT INTO bannerwall.orders (about, who, page, started) VALUES ('{}', '', '', 0)",
        "UPDATE bannerwall.fleet_inbox SET sensor = 'west'",
        "UPDATE bannerwall.fleet_inbox SET stream = 'x'",
        "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch) VALUES ('s', 1, 0, 0, 0, 1, '')",
        "UPDATE bannerwall.fleet_rules SET percent = 0",
    ] {
        let said = refused(&hand, query);
        assert!(said.contains("permission denied"), "{query}: {said}");
    }
    // What is not due nobody begins; what is, as its order says.
    assert_eq!(psql(&hand, "SELECT bannerwall.fleet_begin(1)"), "Null");
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now() - 1000");
    for role in ["east", "page"] {
        assert_eq!(psql(&by(&url, role), "SELECT bannerwall.fleet_begin(1)"), "Null", "{role}");
    }
    assert_eq!(psql(&hand, "SELECT bannerwall.fleet_begin(1)"), "1");
    assert_eq!(psql(&url, "SELECT who, targets FROM fleet_scans"), "boss|1");
}

#[test]
fn a_turn_of_who_merges_takes_no_more_than_its_share_of_octets() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    psql(
        &url,
        "CREATE TABLE bannerwall.turns (batches bigint);
         CREATE FUNCTION bannerwall.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           INSERT INTO bannerwall.turns VALUES (NEW.batches - OLD.batches); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER UPDATE ON bannerwall.fleet_sensors FOR EACH ROW EXECUTE FUNCTION bannerwall.note()",
    );
    let (head, line) = BATCH.split_once('\n').expect("two lines");
    // Of 1.2 MiB each, and some small ones.
    for number in 1..=9 {
        let lines = if number <= 4 { 1_258_000 / line.len() } else { 1 };
        let query = format!(
            "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch)
             VALUES ('s', {number}, 0, 0, 0, 1, $q${head}\n$q$ || repeat($q${line}$q$, {lines}))"
        );
        psql(&by(&url, "east"), &query);
    }
    assert_eq!(merge(&url, &[]).status.code(), Some(0));
    assert_eq!(psql(&url, "SELECT batches FROM turns"), "2\n2\n5");
}
