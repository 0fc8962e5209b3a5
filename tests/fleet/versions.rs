//! A fleet whose tables are of another version than the program: who brings them up to date, what the roles
//! may then, and what those do meanwhile who merge.

use std::process::Command;

use crate::by_hand::{BATCH, enter};
use crate::sensing::{by, init, merge, program, run, sensors, text, told};
use bannerwall_test_support::{Postgres, Running, eventually, psql};

/// Makes of the tables those of version 4, with the rights that `fleet init` gave then.
const BACK: &str = "DROP TABLE bannerwall.fleet_heartbeats; DROP FUNCTION bannerwall.fleet_heard();
    UPDATE bannerwall.fleet_version SET version = 4";

/// Takes the fleet's tables out of a database.
const NO_FLEET: &str = "DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'fleet%' LOOP
    EXECUTE format('DROP TABLE IF EXISTS bannerwall.%I CASCADE', name);
  END LOOP;
  FOR name IN SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE 'fleet%' LOOP
    EXECUTE 'DROP FUNCTION ' || name;
  END LOOP;
  DROP SEQUENCE IF EXISTS bannerwall.fleet_token;
END $$";

#[test]
fn tables_of_a_version_before_are_brought_up_to_date_with_what_they_hold() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    told(&["fleet", "init", "--reader", "page", "--database", &url]);
    psql(&url, NO_FLEET);
    psql(&url, include_str!("../../src/fleet/fleet-1.sql"));
    psql(
        &url,
        "INSERT INTO fleet_scans (about, what, targets, shards, attempts, state, ended)
         SELECT 'old ' || i, '{}', 1, 1, 3, 'done', 1 FROM generate_series(1, 3) i;
         INSERT INTO fleet_results (scan, shard, position, address, port, state, matched, json, csv)
         SELECT i, 0, 0, '192.0.2.1', 22, 'open', false, '{\"scan\":' || i || '}', '' FROM generate_series(1, 2) i;
         GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO bannerwall_test0_reader",
    );
    let refused = run(&["fleet", "status", "--database", &by(&url, "page")]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("cannot be brought to version 8"), "{said}");
    told(&["fleet", "status", "--database", &url]);
    assert_eq!(psql(&url, "SELECT max(version) FROM fleet_version"), "8");
    for (scan, results) in [("1", "{\"scan\":1}"), ("2", "{\"scan\":2}"), ("3", "")] {
        assert_eq!(told(&["fleet", "results", scan, "--database", &url]).trim(), results);
    }
    // One of those that lie in one table, and one that has its own.
    told(&["fleet", "forget", "1", "3", "--database", &url]);
    assert_eq!(psql(&url, "SELECT scan FROM fleet_results"), "2");
    assert_eq!(psql(&url, "SELECT count(*) FROM pg_tables WHERE tablename = 'fleet_results_3'"), "0");
}

#[test]
fn who_brings_tables_up_to_date_lets_the_groups_do_what_is_new() {
    let Some(server) = Postgres::start() else { return };
    let (url, alone) = (server.database(), server.database());
    init(&url);
    psql(&url, BACK);
    // A group that `fleet init` of then did not make.
    psql(&url, "DROP OWNED BY bannerwall_test0_publisher; DROP ROLE bannerwall_test0_publisher");
    enter(&by(&url, "east"), 1, BATCH);
    told(&["fleet", "status", "--database", &url]);
    let stands = sensors(&url);
    assert!(stands.len() == 2 && stands[0]["inbox"] == 1, "{stands:?}");
    psql(&by(&url, "west"), "SELECT bannerwall.fleet_heard()");
    let merged = merge(&url, &[]);
    assert_eq!(merged.status.code(), Some(0), "{}", text(&merged.stderr));
    let stands = sensors(&url);
    assert!(stands[0]["batches"] == 1 && stands[1]["alive"].is_string(), "{stands:?}");
    assert_eq!(psql(&url, "SELECT count(*) FROM pg_roles WHERE rolname = 'bannerwall_test0_publisher'"), "0");
    init(&url);

    // Groups are a database's: a fleet without any makes none by a step.
    told(&["fleet", "submit", "connect", "192.0.2.1", "-p", "9", "--database", &alone]);
    psql(&alone, BACK);
    told(&["fleet", "status", "--database", &alone]);
    let output = run(&["fleet", "status", "--database", &by(&alone, "page")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("permission denied"), "{}", text(&output.stderr));
}

#[test]
fn who_merges_waits_for_tables_and_rights_and_says_when_it_goes_on() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let page = |role: &str, said: &str| {
        let words = ["serve", "--listen", "127.0.0.1:0", "--inventory", &by(&url, role)];
        let process = Running::start(program(&words));
        process.wait_stderr("it to be told", |text| text.contains(said).then_some(()));
        process
    };
    psql(&url, "UPDATE fleet_version SET version = 99");
    let newer = page("hand", "use a newer one");
    psql(&url, BACK);
    let older = page("hand", "cannot be brought to version");
    enter(&by(&url, "east"), 1, BATCH);
    init(&url);
    let reader = page("page", "are not merged here");
    psql(&url, "GRANT bannerwall_test0_worker TO page");
    for (process, said) in
        [(&newer, "use a newer one"), (&older, "cannot be brought"), (&reader, "are not merged here")]
    {
        process.wait_stderr("it to go on", |text| text.contains("are merged again").then_some(()));
        assert_eq!(process.stderr().matches(said).count(), 1, "{}", process.stderr());
    }
    eventually("it to be merged", || (sensors(&url)[0]["batches"] == 1).then_some(()));
}

#[test]
fn no_function_of_the_fleet_does_more_than_who_calls_it_may() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    told(&["fleet", "init", "--publisher", "editor", "--database", &url]);
    // What runs as its owner makes a trigger of whoever may name it, and make a table.
    psql(&url, "GRANT TEMPORARY ON DATABASE test0 TO PUBLIC");
    let bait = "CREATE TEMP TABLE bait (id text);
        CREATE TRIGGER bait AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_make_results();
        INSERT INTO bait VALUES ('7); CREATE ROLE mighty SUPERUSER; --')";
    let drops = "CREATE TEMP TABLE bait (id text);
        CREATE TRIGGER bait AFTER DELETE ON bait FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_drop_results();
        INSERT INTO bait VALUES ('1'); DELETE FROM bait";
    for role in ["west", "hand", "page", "boss", "editor"] {
        for query in [bait, drops] {
            let output = Command::new("psql").args(["-XAtqd", &by(&url, role), "-c", query]).output();
            let said = text(&output.expect("psql is installed").stderr);
            assert!(said.contains("permission denied for function"), "{role}: {query}: {said}");
        }
        let owners = psql(
            &by(&url, role),
            "SELECT proname FROM pg_proc WHERE pronamespace = 'bannerwall'::regnamespace AND prosecdef
               AND has_function_privilege(oid, 'EXECUTE') ORDER BY 1",
        );
        let expected = match role {
            "west" => "fleet_heard",
            "hand" | "boss" => "fleet_beat\nfleet_begin\nfleet_share\nfleet_unblock",
            _ => "",
        };
        assert_eq!(owners, expected, "{role}");
    }
    assert_eq!(psql(&url, "SELECT count(*) FROM pg_roles WHERE rolname = 'mighty'"), "0");
    // Who gives orders makes and drops tables of results all the same.
    let boss = by(&url, "boss");
    told(&["fleet", "submit", "connect", "192.0.2.1", "-p", "9", "--database", &boss]);
    told(&["fleet", "cancel", "1", "--database", &boss]);
    assert_eq!(psql(&url, "SELECT to_regclass('bannerwall.fleet_results_1') IS NULL"), "f");
    told(&["fleet", "forget", "1", "--database", &boss]);
    assert_eq!(psql(&url, "SELECT to_regclass('bannerwall.fleet_results_1') IS NULL"), "t");
}
