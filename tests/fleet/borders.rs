//! The borders of a fleet: its roles do what is theirs in their own database, and stop nobody.

use std::process::Command;

use crate::by_hand::{BATCH, enter};
use crate::sensing::{by, init, merge, run, sensors, text, told};
use bannerwall_test_support::{Postgres, Running, eventually, psql};

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
        "INSERT INTO bannerwall.fleet_schedules (about, what, targets, shards, attempts, cron, due) VALUES ('', '{}', 1, 1, 1, '', 0)",
        "UPDATE bannerwall.fleet_inbox SET sensor = 'west'",
        "UPDATE bannerwall.fleet_inbox SET stream = 'x'",
        "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch) VALUES ('s', 1, 0, 0, 0, 1, '')",
        "UPDATE bannerwall.fleet_rules SET percent = 0",
    ] {
        let said = refused(&hand, query);
        assert!(said.contains("permission denied"), "{query}: {said}");
    }
    assert_eq!(psql(&url, "SELECT count(*) FROM fleet_scans"), "0");
}

#[test]
fn a_worker_begins_no_schedule_early_and_opens_no_scan_again() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let (hand, boss) = (by(&url, "hand"), by(&url, "boss"));
    let words = [
        "fleet",
        "schedule",
        "0 3 * * 1",
        "connect",
        "192.0.2.1",
        "-p",
        "9",
        "--network-rate",
        "192.0.2.0/24=7",
    ];
    told(&[&words[..], &["--rate", "9", "--database", &boss]].concat());
    let begin = "SELECT bannerwall.fleet_begin(1, 0, true, 0, NULL)";
    assert_eq!(psql(&hand, begin), "Null", "it is not due");
    assert!(refused(&hand, "UPDATE bannerwall.fleet_schedules SET due = 0").contains("permission denied"));
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now() - 1000");
    for role in ["east", "page"] {
        assert!(refused(&by(&url, role), begin).contains("permission denied for function"), "{role}");
    }
    assert_eq!(psql(&hand, begin), "1");
    assert_eq!(psql(&url, "SELECT who, targets FROM fleet_scans"), "boss|1");
    assert_eq!(
        psql(&url, "SELECT number, network, rate FROM fleet_limits"),
        "0|Null|9000\n1|192.0.2.0/24|7000"
    );
    assert_eq!(psql(&url, "SELECT number, total FROM fleet_shards"), "0|1");
    // Whatever a worker says, it is due again no earlier than a week after it was.
    assert_eq!(psql(&hand, begin), "Null");
    let days = "SELECT round((due - fleet_now()) / 86400000.0) FROM fleet_schedules";
    assert_eq!(psql(&url, days), "7");
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now() - 1000");
    assert_eq!(psql(&hand, begin), "0", "the previous scan still runs");

    for query in [
        "UPDATE bannerwall.fleet_scans SET state = 'done'",
        "UPDATE bannerwall.fleet_scans SET state = 'cancelled'",
        "UPDATE bannerwall.fleet_scans SET ended = 1",
        "INSERT INTO bannerwall.fleet_shards (scan, number, total) VALUES (1, 1, 1)",
        "UPDATE bannerwall.fleet_limits SET rate = 1000000",
        "UPDATE bannerwall.fleet_results SET json = ''",
    ] {
        let said = refused(&hand, query);
        assert!(said.contains("permission denied"), "{query}: {said}");
    }
    own_shards_only(&url, &hand);
    psql(&hand, "UPDATE bannerwall.fleet_scans SET state = 'done', ended = 1");
    let said = refused(&hand, "UPDATE bannerwall.fleet_scans SET state = 'open', ended = NULL");
    assert!(said.contains("permission denied: a worker only ends scans"), "{said}");
    psql(&boss, "UPDATE bannerwall.fleet_scans SET state = 'open', ended = NULL");
}

/// The role writes the shards that its own workers hold, and no others.
fn own_shards_only(url: &str, hand: &str) {
    let join = |role: &str| {
        let query = "INSERT INTO bannerwall.fleet_workers (name, seen, expires)
             VALUES ('w', fleet_now(), fleet_now() + 600000) RETURNING id";
        psql(role, query).lines().next().expect("a number").to_owned()
    };
    let (own, foreign) = (join(hand), join(url));
    let take =
        |worker: &str| format!("UPDATE bannerwall.fleet_shards SET state = 'leased', worker = {worker}");
    for query in [
        "UPDATE bannerwall.fleet_shards SET state = 'done'",
        "UPDATE bannerwall.fleet_shards SET over = total",
        &format!("{}, over = total", take(&own)),
        &take(&foreign),
        &format!("UPDATE bannerwall.fleet_workers SET expires = 0 WHERE id = {foreign}"),
        "INSERT INTO bannerwall.fleet_workers (name, seen, expires, who) VALUES ('w', 0, 0, 'boss')",
    ] {
        let said = refused(hand, query);
        assert!(said.contains("permission denied"), "{query}: {said}");
    }
    psql(hand, &format!("DELETE FROM bannerwall.fleet_workers WHERE id = {foreign}"));
    let others = format!("SELECT count(*), count(fleet_beat(id, 1)) FROM fleet_workers WHERE id = {foreign}");
    assert_eq!(psql(hand, &others), "1|0");
    psql(url, &take(&foreign));
    for change in ["state = 'ready', worker = NULL", "state = 'done', over = total", "counts = '{}'"] {
        let said = refused(hand, &format!("UPDATE bannerwall.fleet_shards SET {change}"));
        assert!(said.contains("a worker only writes shards that it holds"), "{change}: {said}");
    }
    psql(url, "UPDATE fleet_shards SET state = 'ready', worker = NULL");
    psql(hand, &take(&own));
    let early = refused(hand, "UPDATE bannerwall.fleet_shards SET state = 'done'");
    assert!(early.contains("a worker only writes shards that it holds"), "{early}");
    psql(hand, "UPDATE bannerwall.fleet_shards SET state = 'done', over = total, worker = NULL");
}

#[test]
fn a_worker_takes_and_returns_shares_of_the_rate_for_itself_alone() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    told(&["fleet", "init", "--worker", "other", "--database", &url]);
    let (hand, other, boss) = (by(&url, "hand"), by(&url, "other"), by(&url, "boss"));
    told(&["fleet", "submit", "connect", "192.0.2.1", "-p", "9", "--rate", "9", "--database", &boss]);
    let join = |role: &str| {
        let query = "INSERT INTO bannerwall.fleet_workers (name, seen, expires)
             VALUES ('w', fleet_now(), fleet_now() + 600000) RETURNING id";
        psql(role, query).lines().next().expect("a number").to_owned()
    };
    let (own, foreign) = (join(&hand), join(&other));
    let share = |role: &str, worker: &str, used: u32, lease: u64| {
        let query =
            format!("SELECT granted, fair FROM bannerwall.fleet_share(1, 0, {worker}, {used}, {lease})");
        psql(role, &query)
    };
    assert_eq!(share(&other, &foreign, 0, 60_000), "9000|9000");
    let rates = "SELECT rate FROM fleet_shares ORDER BY worker";
    for role in [&hand, &boss] {
        assert_eq!(share(role, &foreign, 1_000, 60_000), "0|0", "another role's worker");
        assert_eq!(share(role, "999", 1_000, 60_000), "0|0", "no worker");
        psql(role, "DELETE FROM bannerwall.fleet_shares");
        assert_eq!(psql(&url, rates), "9000");
    }
    assert_eq!(share(&hand, &own, 0, 9_000_000_000), "0|4500", "the other uses all");
    assert_eq!(share(&other, &foreign, 4_500, 60_000), "4500|4500");
    assert_eq!(share(&hand, &own, 0, 9_000_000_000), "4500|4500");
    psql(&other, "DELETE FROM bannerwall.fleet_shares");
    assert_eq!(share(&hand, &own, 4_500, 9_000_000_000), "9000|9000");
    assert_eq!(share(&other, &foreign, 0, 60_000), "0|4500");
    psql(&hand, "DELETE FROM bannerwall.fleet_shares");
    // A worker may not claim to use what it was never granted.
    let second = join(&hand);
    assert_eq!(share(&hand, &second, 9_000, 9_000_000_000), "4500|4500");
    assert_eq!(
        psql(&hand, "SELECT min(fleet_beat(id, 9000000000)) > 0 FROM fleet_workers WHERE who = 'hand'"),
        "t"
    );
    let far = "SELECT count(*) FROM (SELECT expires FROM fleet_shares UNION ALL SELECT expires FROM fleet_workers) leases
         WHERE expires > fleet_now() + 3600000";
    assert_eq!(psql(&url, far), "0", "no lease is longer than an hour");
    let said = refused(
        &hand,
        "INSERT INTO bannerwall.fleet_workers (name, seen, expires) VALUES ('w', 0, 9000000000000)",
    );
    assert!(said.contains("violates row-level security"), "{said}");
}

#[test]
fn a_worker_neither_postpones_nor_skips_a_schedule() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let (hand, boss) = (by(&url, "hand"), by(&url, "boss"));
    told(&["fleet", "schedule", "0 3 * * *", "connect", "192.0.2.1", "-p", "9", "--database", &boss]);
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now() - 1000");
    let far = "SELECT bannerwall.fleet_begin(1, 9000000000000000, false, 1, 'never mind')";
    assert_eq!(psql(&hand, far), "1", "the run is on time, so that it begins");
    let hours = "SELECT round((due - fleet_now()) / 3600000.0) FROM fleet_schedules";
    assert_eq!(psql(&url, hours), "24");
    psql(&url, "UPDATE fleet_schedules SET due = fleet_now() - 1000");
    assert_eq!(psql(&hand, far), "0", "the previous scan still runs");
}

#[test]
fn of_each_publisher_the_newest_versions_stay() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    told(&["fleet", "init", "--publisher", "editor", "--publisher", "junk", "--database", &url]);
    let enter = |role: &str, from: u32, to: u32| {
        let columns = "(serial, pack, signature, percent, rules, note)";
        let query = format!(
            "INSERT INTO bannerwall.fleet_rules {columns} SELECT n, 'x', 's', 100, 1, '' FROM generate_series({from}, {to}) n"
        );
        psql(&by(&url, role), &query);
    };
    enter("editor", 1, 2);
    enter("junk", 1, 1000);
    enter("junk", 1, 5);
    let kept = "SELECT who, count(*), min(serial), max(serial) FROM fleet_rules GROUP BY who ORDER BY who";
    assert_eq!(psql(&url, kept), "editor|2|1|2\njunk|32|969|1000");
}

#[test]
fn who_keeps_others_waiting_for_too_long_is_sent_away() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let unblock = "SELECT fleet_unblock()";
    let hold = |role: &str| {
        let lock =
            "SET statement_timeout = 0; BEGIN; LOCK TABLE bannerwall.services IN ACCESS EXCLUSIVE MODE";
        let mut command = Command::new("psql");
        command.args(["-Xq", "-d", &by(&url, role), "-c", lock, "-c", "SELECT pg_sleep(600)"]);
        let process = Running::start(command);
        eventually("it to have the lock", || {
            let query = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
                AND relation = 'services'::regclass";
            (psql(&url, query) == "1").then_some(())
        });
        process
    };
    let mut holder = hold("hand");
    assert_eq!(psql(&url, unblock), "", "nobody waits");
    let mut reader = Command::new("psql");
    reader.args(["-Xq", "-d", &by(&url, "page"), "-c", "SELECT count(*) FROM bannerwall.services"]);
    let mut reader = Running::start(reader);
    eventually("another one to wait", || {
        (psql(&url, "SELECT count(*) FROM pg_locks WHERE NOT granted") == "1").then_some(())
    });
    assert_eq!(psql(&url, unblock), "", "for no longer than it takes");
    // As if time had gone by.
    let soon = "DO $$ BEGIN EXECUTE replace(pg_get_functiondef('bannerwall.fleet_unblock()'::regprocedure), '5 min', '0 s'); END $$";
    psql(&url, soon);
    enter(&by(&url, "east"), 1, BATCH);
    let merged = merge(&url, &[]);
    assert!(text(&merged.stderr).contains("ended a session of role hand"), "{}", text(&merged.stderr));
    assert!(!holder.wait_exit().success());
    assert!(reader.wait_exit().success());
}

#[test]
fn a_sensor_whose_clock_is_in_2554_masks_nothing() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let batch = |said: &str, last: u128| {
        BATCH.replace("SSH-2.0-hand_1", said).replace("1700000000000000000", &last.to_string())
    };
    enter(&by(&url, "east"), 1, &batch("SSH-2.0-late", u128::from(u64::MAX)));
    // Its clock is in what it says of the batch as well; and it came two minutes ago.
    psql(&url, "UPDATE fleet_inbox SET sent_at = 18446744073709, received_at = received_at - 120000");
    let merged = merge(&url, &[]);
    assert!(text(&merged.stderr).contains("correct the sensor's clock"), "{}", text(&merged.stderr));
    let now: u128 = psql(&url, "SELECT fleet_now()").parse().expect("a number");
    enter(&by(&url, "west"), 1, &batch("SSH-2.0-true", now * 1_000_000));
    assert_eq!(merge(&url, &[]).status.code(), Some(0));
    let known = "SELECT text FROM services JOIN banners ON banners.id = banner";
    assert_eq!(psql(&url, known), "SSH-2.0-true");
    assert_eq!(psql(&url, "SELECT kind FROM changes ORDER BY id DESC LIMIT 1"), "banner_changed");
    for (table, column) in
        [("services", "last_seen"), ("hosts", "first_seen"), ("sightings", "last_seen"), ("changes", "at")]
    {
        let late = format!(
            "SELECT count(*) FROM {table} WHERE {column} > fleet_now() OR {column} < fleet_now() - 600000"
        );
        assert_eq!(psql(&url, &late), "0", "{table}");
    }
    let skews = sensors(&url);
    assert!(skews[0]["skew"].as_i64() > Some(16_000_000_000_000), "{skews:?}");
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
