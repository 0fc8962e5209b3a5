//! Runs: starts, ends, and detection of killed ones.
//!
//! The writers of a file are processes of this machine. Those of a server may be anywhere, so each holds
//! an advisory lock with the number of its run while it is connected.

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation, values};
use crate::diagnostics::log_line;
use crate::inventory::inventory_time::InventoryTime;
use crate::inventory::store::RunDescription;

/// The first key of the advisory locks of runs: `bwiv`.
const RUNNING: i64 = 0x6277_6976;

/// A run that has not ended.
struct OpenRun {
    run: i64,
    pid: i32,
    source: String,
    name: String,
}

/// Marks unfinished runs whose process is gone as killed.
pub(super) fn mark_killed_runs(
    place: &DatabaseLocation,
    link: &DatabaseConnection,
) -> Result<(), DatabaseError> {
    let open = "SELECT runs.id, pid, source, name FROM runs JOIN sensors ON sensors.id = sensor WHERE state = 'running'";
    let open = link.all(open, &[], |row| {
        Ok(OpenRun { run: row.get(0)?, pid: row.get(1)?, source: row.get(2)?, name: row.get(3)? })
    })?;
    for OpenRun { run, pid, source, name } in open {
        if is_there(link, run, pid)? {
            continue;
        }
        // It may have ended just now.
        let killed = "UPDATE runs SET state = 'killed' WHERE id = ?1 AND state = 'running'";
        if link.execute(killed, values![run])? == 0 {
            continue;
        }
        log_line(format_args!(
            "bannerwall: {place}: a {source} of {name} did not stop cleanly: sightings of its last second, and \
             counts of its last minute, may be missing"
        ));
    }
    Ok(())
}

fn is_there(link: &DatabaseConnection, run: i64, pid: i32) -> Result<bool, DatabaseError> {
    match link {
        // A process of another user, or outside of our sandbox, must not be sent signals.
        DatabaseConnection::Sqlite(_) => Ok(pid != getpid().as_raw_nonzero().get()
            && Pid::from_raw(pid).is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)))),
        DatabaseConnection::Postgres(_) => {
            let keys = values![RUNNING, run];
            let is_free = "SELECT pg_try_advisory_xact_lock(?1::int4, ?2::int4)";
            link.sole(is_free, keys, |row| row.get::<bool>(0)).map(|is_free| !is_free)
        }
    }
}

/// Inserts the sensor and the run; returns their rows.
pub(super) fn begin(link: &DatabaseConnection, run: &RunDescription) -> Result<(i64, i64), DatabaseError> {
    let sensor = values![run.source, &run.sensor];
    link.execute("INSERT INTO sensors (source, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING", sensor)?;
    let sensor: i64 =
        link.sole("SELECT id FROM sensors WHERE source = ?1 AND name = ?2", sensor, |row| row.get(0))?;
    let begin = "INSERT INTO runs (sensor, about, pid, started) VALUES (?1, ?2, ?3, ?4) RETURNING id";
    let pid = getpid().as_raw_nonzero().get();
    let id =
        link.sole(begin, values![sensor, &run.about, pid, InventoryTime::now().millis()], |row| row.get(0))?;
    hold(link, id)?;
    Ok((sensor, id))
}

/// Resumes a run after a lost connection, even if others marked it as killed. Returns true if others can
/// see again that it is alive.
pub(super) fn resume(link: &DatabaseConnection, run: i64) -> Result<bool, DatabaseError> {
    // In one transaction, so that no process looks for killed runs meanwhile.
    let step = link.transaction()?;
    let is_held = hold(&step, run)?;
    step.execute("UPDATE runs SET state = 'running' WHERE id = ?1", values![run])?;
    step.commit().map(|()| is_held)
}

/// Takes the lock of a run, unless a connection that was just lost still holds it.
fn hold(link: &DatabaseConnection, run: i64) -> Result<bool, DatabaseError> {
    match link {
        DatabaseConnection::Sqlite(_) => Ok(true),
        DatabaseConnection::Postgres(_) => {
            let hold = "SELECT pg_try_advisory_lock(?1::int4, ?2::int4)";
            link.sole(hold, values![RUNNING, run], |row| row.get(0))
        }
    }
}
