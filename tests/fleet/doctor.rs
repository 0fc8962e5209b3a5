//! `fleet doctor` against a server: silent about what `fleet init` makes, and about each fault what it is.

use crate::sensing::{by, init, run, text, told};
use bannerwall_test_support::{Postgres, psql};

/// A fault, and what is said of it.
const FAULTS: [(&str, &str); 22] = [
    ("GRANT SELECT ON bannerwall.services TO east", "east may SELECT table bannerwall.services"),
    (
        "GRANT UPDATE (pack) ON bannerwall.fleet_rules TO west",
        "west may UPDATE column pack of table bannerwall.fleet_rules",
    ),
    (
        "GRANT INSERT ON bannerwall.fleet_scans TO bannerwall_test0_worker",
        "may INSERT table bannerwall.fleet_scans",
    ),
    (
        "REVOKE EXECUTE ON FUNCTION bannerwall.fleet_heard() FROM bannerwall_test0_sensor",
        "group sensor lacks: may EXECUTE function bannerwall.fleet_heard()",
    ),
    (
        "CREATE TABLE public.secrets (a int); GRANT SELECT ON public.secrets TO page",
        "page may SELECT table public.secrets",
    ),
    (
        "CREATE TABLE public.open (a int); GRANT SELECT ON public.open TO PUBLIC",
        "may SELECT table public.open",
    ),
    ("GRANT CONNECT ON DATABASE test0 TO PUBLIC", "PUBLIC may CONNECT database test0"),
    ("GRANT EXECUTE ON FUNCTION pg_advisory_lock(bigint) TO PUBLIC", "pg_catalog.pg_advisory_lock(bigint)"),
    ("ALTER TABLE bannerwall.fleet_inbox DISABLE ROW LEVEL SECURITY", "row security of fleet_inbox"),
    (
        "DROP POLICY own ON bannerwall.fleet_rules_taken",
        "policy own of fleet_rules_taken, for * t to group sensor",
    ),
    (
        "CREATE POLICY all_rows ON bannerwall.fleet_rules_taken USING (true)",
        "policy all_rows of fleet_rules_taken",
    ),
    ("ALTER TABLE bannerwall.fleet_scans DISABLE TRIGGER fleet_scan_ends", "fleet_scan_ends BEFORE UPDATE"),
    (
        "ALTER FUNCTION bannerwall.fleet_now() SECURITY DEFINER",
        "function bannerwall.fleet_now(), by the rights of its owner",
    ),
    (
        "CREATE OR REPLACE FUNCTION bannerwall.fleet_share(of_scan bigint, of_number bigint, me bigint, used bigint,
           lease bigint, OUT granted bigint, OUT fair bigint) LANGUAGE sql AS 'SELECT used, used'",
        "bannerwall.fleet_share(of_scan bigint, of_number bigint, me bigint",
    ),
    ("DROP POLICY leaving ON bannerwall.fleet_shares", "policy leaving of fleet_shares"),
    ("ALTER ROLE hand SUPERUSER", "hand is a superuser"),
    ("ALTER ROLE boss CREATEROLE", "boss has the attribute CREATEROLE"),
    ("ALTER ROLE editor CONNECTION LIMIT -1", "editor has no CONNECTION LIMIT"),
    ("ALTER ROLE second IN DATABASE test0 SET statement_timeout = 0", "second has no statement_timeout"),
    ("GRANT pg_read_server_files TO third", "third is a member of pg_read_server_files"),
    ("GRANT bannerwall_test0_reader TO fourth", "fourth is a sensor and something else"),
    ("ALTER ROLE fifth NOINHERIT", "fifth lacks: may SELECT column"),
];

fn doctor(url: &str) -> (Option<i32>, String) {
    let output = run(&["fleet", "doctor", "--database", url]);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn the_doctor_is_silent_of_what_init_makes_and_names_each_fault() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let mut words = vec!["fleet", "init", "--publisher", "editor", "--sensor", "fourth", "--database", &url];
    words.extend(["second", "third", "fifth"].iter().flat_map(|name| ["--reader", *name]));
    told(&words);
    // A scan has a table of its own, on which no role has been granted anything yet.
    told(&["fleet", "submit", "connect", "192.0.2.1", "-p", "9", "--database", &by(&url, "boss")]);
    let before = psql(&url, "SELECT count(*) FROM pg_class; SELECT count(*) FROM pg_roles");
    let (code, said) = doctor(&url);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().count() == 6 && said.lines().take(5).all(|line| line.starts_with("ok")), "{said}");
    assert_eq!(psql(&url, "SELECT count(*) FROM pg_class; SELECT count(*) FROM pg_roles"), before);
    init(&url);
    assert_eq!(doctor(&url).0, Some(0), "rights to the scan's table are those to all results");

    for (fault, _) in FAULTS {
        psql(&url, fault);
    }
    let (code, said) = doctor(&url);
    assert_eq!(code, Some(1), "{said}");
    for (fault, expected) in FAULTS {
        assert!(said.contains(expected), "{fault}: {said}");
    }
    let is_expected =
        |line: &str| line.starts_with("FAULT") || line.contains("sessions") || line == "1 ok, 15 faults";
    assert!(said.lines().all(is_expected), "{said}");
    let json = run(&["fleet", "doctor", "--format", "json", "--database", &url]);
    let first: serde_json::Value =
        serde_json::from_slice(json.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default())
            .expect("an object a line");
    assert_eq!((&first["check"], &first["state"]), (&"groups".into(), &"fault".into()));
}

#[test]
fn what_the_doctor_cannot_look_at_is_not_called_well() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    let (code, said) = doctor(&by(&url, "page"));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("groups: not checked: this role does not own the tables"), "{said}");
}
