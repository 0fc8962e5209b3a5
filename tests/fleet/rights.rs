//! What each role may do with each table and function, tried against a list: a table that is new needs a line
//! there.

use std::collections::BTreeMap;
use std::process::Command;

use crate::sensing::{by, init, text, told};
use bannerwall_test_support::Postgres;

/// Of each table and function what each role may do, and with which columns where not with all.
const REVIEWED: &str = include_str!("rights.txt");

/// Tries everything, as a role: a line each, of what is not refused for lack of a right. Nothing of it stays.
const TRIES: &str = r"
DO $try$
DECLARE
  try record;
  refused boolean;
BEGIN
  FOR try IN
    WITH tables AS (SELECT oid, relname, relkind, 'bannerwall.' || quote_ident(relname) AS name FROM pg_class
      WHERE relnamespace = 'bannerwall'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition),
    columns AS (SELECT t.*, attname, quote_ident(attname) AS col, format_type(atttypid, NULL) AS type FROM tables t
      JOIN pg_attribute ON attrelid = t.oid AND attnum > 0 AND NOT attisdropped WHERE relkind <> 'v')
    SELECT relname AS object, 'SELECT' AS may, '*' AS part, format('SELECT FROM %s LIMIT 0', name) AS query FROM tables
    UNION ALL SELECT relname, 'INSERT', attname, format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT NULL::%s WHERE false',
      name, col, type) FROM columns
    UNION ALL SELECT relname, 'UPDATE', attname, format('UPDATE %s SET %s = DEFAULT WHERE false', name, col) FROM columns
    UNION ALL SELECT relname, 'DELETE', '*', format('DELETE FROM %s WHERE false', name) FROM tables WHERE relkind <> 'v'
    UNION ALL SELECT relname, 'TRUNCATE', '*', 'TRUNCATE ' || name FROM tables WHERE relkind <> 'v'
    UNION ALL SELECT relname, 'TRIGGER', '*', format('CREATE TRIGGER a AFTER INSERT ON %s EXECUTE FUNCTION
      bannerwall.fleet_rules_numbered()', name) FROM tables WHERE relkind <> 'v'
    UNION ALL SELECT relname, 'REFERENCES', attname, format('DO $$ BEGIN IF NOT has_column_privilege(%L, %L, ''REFERENCES'') THEN
      RAISE insufficient_privilege; END IF; END $$', name, attname) FROM columns
    UNION ALL SELECT proname || '()', 'EXECUTE', '*', format('SELECT bannerwall.%I(%s)', proname, (SELECT
      coalesce(string_agg('NULL::' || format_type(type, NULL), ', '), '') FROM unnest(proargtypes) type))
      FROM pg_proc WHERE pronamespace = 'bannerwall'::regnamespace
  LOOP
    BEGIN
      refused := false;
      EXECUTE try.query;
      RAISE EXCEPTION 'taken back' USING ERRCODE = 'P9999';
    EXCEPTION WHEN insufficient_privilege THEN
      refused := true;
    WHEN OTHERS THEN
      NULL;
    END;
    RAISE INFO '%', concat_ws('|', try.object, try.may, try.part, refused);
  END LOOP;
END $try$";

/// What a role may do, by object: rights, each with its columns where it has not all of them.
fn rights(url: &str) -> BTreeMap<String, String> {
    let output =
        Command::new("psql").args(["-Xq", "-d", url, "-c", TRIES]).output().expect("psql is installed");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut tried: BTreeMap<(String, usize, String), (Vec<String>, bool)> = BTreeMap::new();
    for line in said.lines().filter_map(|line| line.strip_prefix("INFO:  ")) {
        let [object, may, part, refused] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let order = ["SELECT", "INSERT", "UPDATE", "DELETE"].iter().position(|it| *it == may).unwrap_or(4);
        let (parts, is_whole) = tried.entry((object.into(), order, may.into())).or_insert((Vec::new(), true));
        if refused == "f" { parts.push(part.into()) } else { *is_whole = false }
    }
    let mut rights: BTreeMap<String, String> = BTreeMap::new();
    for ((object, _, may), (parts, is_whole)) in tried {
        let line = rights.entry(object).or_default();
        if !parts.is_empty() {
            let of = if is_whole { String::new() } else { format!(" ({})", parts.join(" ")) };
            *line += &format!(" {may}{of}");
        }
    }
    rights
}

#[test]
fn each_role_may_do_what_is_reviewed_and_nothing_else() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database();
    init(&url);
    told(&["fleet", "init", "--publisher", "editor", "--database", &url]);
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for (role, group) in [
        ("east", "sensor"),
        ("hand", "worker"),
        ("page", "reader"),
        ("boss", "admin"),
        ("editor", "publisher"),
    ] {
        for (object, rights) in rights(&by(&url, role)) {
            lines.entry(object).or_default().push_str(&format!("  {group}:{rights}\n"));
        }
    }
    let found: String = lines.iter().map(|(object, rights)| format!("{object}\n{rights}")).collect();
    assert!(found == REVIEWED, "{found}");
}
