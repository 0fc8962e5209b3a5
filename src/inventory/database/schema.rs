//! The tables, and how those of an older program become today's.

use super::link::{Link, Transaction, dialect_of_server};
use super::{Database, DatabaseError, File, StoreError, values};

/// What tells an inventory from other SQLite databases: `bwiv`, its `application_id`.
const APPLICATION: i64 = 0x6277_6976;

/// One step a version: the first makes version 1 of nothing.
const STEPS: [&str; 8] = [
    include_str!("schema-1.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
    include_str!("schema-5.sql"),
    include_str!("schema-6.sql"),
    include_str!("schema-7.sql"),
    include_str!("schema-8.sql"),
];

/// What version 4 is on a server.
const UNTIED: (i64, &str) = (4, include_str!("schema-4-server.sql"));

/// The version from which on rules are summed up.
const SUMMED_UP: i64 = 3;

/// Fills the empty table of rules.
pub(super) const SUM_UP: &str = include_str!("rules.sql");

/// How a file is written.
const SETTINGS: &str =
    "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
    PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;";

/// Functions that SQLite has and PostgreSQL has not, beside the tables.
const FUNCTIONS: &str = "
CREATE SCHEMA IF NOT EXISTS bannerwall;
CREATE OR REPLACE FUNCTION bannerwall.min(bigint, bigint) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT least($1, $2)';
CREATE OR REPLACE FUNCTION bannerwall.max(bigint, bigint) RETURNS bigint
  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT greatest($1, $2)';
CREATE OR REPLACE FUNCTION bannerwall.instr(text, text) RETURNS integer
  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT strpos($1, $2)';
CREATE OR REPLACE FUNCTION bannerwall.datetime(bigint, text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  AS $$SELECT to_char(to_timestamp($1) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')$$;
CREATE TABLE bannerwall.schema_version (version bigint NOT NULL);
INSERT INTO bannerwall.schema_version VALUES (0)";

/// What makes the tables in an empty database of a server.
pub fn schema_of_server() -> String {
    let steps = STEPS.iter().map(|text| dialect_of_server(text));
    let steps: String = steps.map(|text| format!("{text}\n")).collect();
    let (newest, (_, untied)) = (newest(), UNTIED);
    // What sums up findings has none to sum up.
    format!(
        "{FUNCTIONS};\nSET search_path = bannerwall;\n{steps}{untied}\nUPDATE schema_version SET version = {newest};\n"
    )
}

/// The version that this program writes.
pub(super) fn newest() -> i64 {
    STEPS.len() as i64
}

/// The version of an inventory.
///
/// # Errors
/// It is none, or one of a newer program.
pub(super) fn check(database: &Database) -> Result<i64, StoreError> {
    match (version(database)?, &database.link) {
        (0, Link::Sqlite(_)) => Err(StoreError::Foreign(database.place.clone())),
        (0, Link::Postgres(_)) => Err(StoreError::Missing(database.place.clone())),
        (found, _) => Ok(found),
    }
}

/// Brings an inventory, or an empty database, to the newest version.
///
/// # Errors
/// It is none, a newer one, or cannot be written; it is then as it was.
pub(super) fn migrate(database: &mut Database) -> Result<(), StoreError> {
    let found = version(database)?;
    if let Link::Sqlite(file) = &database.link {
        file.batch(SETTINGS).map_err(|error| database.fault(error))?;
    }
    if found == newest() {
        return Ok(());
    }
    let link = &database.link;
    let step = if found == 0 { link.transaction_to_make() } else { link.transaction() };
    let step = step.map_err(|error| database.fault(error))?;
    // Another process may have been quicker, and it may have been a newer program's.
    let found = version(database)?;
    climb(&step, found).and_then(|()| step.commit()).map_err(|error| database.fault(error))
}

/// Takes the steps behind a version.
fn climb(step: &Transaction<'_>, found: i64) -> Result<(), DatabaseError> {
    if found == newest() {
        return Ok(());
    }
    if let (0, Link::Postgres(_)) = (found, &**step) {
        step.batch(FUNCTIONS)?;
    }
    for text in STEPS.iter().skip(usize::try_from(found).unwrap_or_default()) {
        step.script(text)?;
    }
    if let (true, Link::Postgres(_)) = (found < UNTIED.0, &**step) {
        step.batch(UNTIED.1)?;
    }
    if found < SUMMED_UP {
        step.execute(SUM_UP, &[])?;
    }
    match &**step {
        Link::Sqlite(file) => {
            file.set_pragma("application_id", APPLICATION)?;
            file.set_pragma("user_version", newest())
        }
        Link::Postgres(_) => {
            step.execute("UPDATE schema_version SET version = ?1", values![newest()]).map(drop)
        }
    }
}

/// The version of an inventory, 0 of an empty database.
fn version(database: &Database) -> Result<i64, StoreError> {
    let found = match &database.link {
        Link::Sqlite(file) => version_of_file(file),
        Link::Postgres(_) => version_of_server(&database.link),
    };
    let Some(found) = found.map_err(|error| database.fault(error))? else {
        return Err(StoreError::Foreign(database.place.clone()));
    };
    if found > newest() {
        return Err(StoreError::Newer { place: database.place.clone(), found, known: newest() });
    }
    Ok(found)
}

fn version_of_file(file: &File) -> Result<Option<i64>, DatabaseError> {
    let (application, version) = (file.pragma("application_id")?, file.pragma("user_version")?);
    if application == APPLICATION {
        return Ok(Some(version));
    }
    let tables = file.count("SELECT count(*) FROM sqlite_schema")?;
    Ok(((application, version, tables) == (0, 0, 0)).then_some(0))
}

fn version_of_server(link: &Link) -> Result<Option<i64>, DatabaseError> {
    let count = |query: &str| link.sole(query, &[], |row| row.get::<i64>(0));
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('bannerwall')";
    if count(tables)? == 0 {
        return Ok(Some(0));
    }
    if count(&format!("{tables} AND relname = 'schema_version'"))? == 0 {
        return Ok(None);
    }
    count("SELECT max(version) FROM bannerwall.schema_version").map(Some)
}
