//! Batches into the tables, and what of them is a change.

mod pen;
mod rows;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

use ahash::{AHashMap, AHashSet};
use rusqlite::{Connection, TransactionBehavior, params};
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use super::read::{Change, Time, address_of, changes_since, latest_change};
use super::tend::prune;
use super::{Sqlite, millis, octets};
use crate::diagnostics::tell;
use crate::event::Timestamp;
use crate::inventory::sighting::{Asset, Banner};
use crate::inventory::store::{Record, Run, Store, StoreError};
use pen::Pen;

/// Hosts, services and banners whose rows are remembered; when there are more, they are looked up anew.
const REMEMBERED: usize = 1 << 18;

/// Writes what one run sees.
#[derive(Debug)]
pub(in crate::inventory) struct Writer {
    database: Sqlite,
    run: i64,
    sensor: i64,
    /// What was told of a time before is not counted again.
    once: bool,
    /// Whether changes are wanted.
    tells: bool,
    memory: Memory,
}

/// Rows that were met, so that they need not be looked up.
#[derive(Debug, Default)]
struct Memory {
    hosts: AHashMap<IpAddr, i64>,
    services: AHashMap<Asset, Known>,
    banners: AHashMap<(&'static str, &'static str, Banner), i64>,
    /// The times that rows told of before this run.
    told: AHashMap<Row, Option<(i64, i64)>>,
}

/// A row of a service.
#[derive(Debug, Clone, Copy)]
struct Known {
    id: i64,
    banner: i64,
    hassh: Option<i64>,
    last: i64,
    gone: bool,
    banners: i64,
}

/// A row that counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Row {
    Sighting { service: i64, banner: i64 },
    Finding { service: i64, banner: i64, rule: String },
    Contact { service: i64, client: i64 },
}

impl Writer {
    /// Opens or makes the inventory at `path`, and begins a run.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn open(path: &Path, run: &Run) -> Result<Self, StoreError> {
        let database = Sqlite::create(path)?;
        let begun =
            tell_of_killed(&database.connection, path).and_then(|()| begin(&database.connection, run));
        let (sensor, run_id) = begun.map_err(|error| database.fault(error))?;
        Ok(Self {
            database,
            run: run_id,
            sensor,
            once: run.once,
            tells: run.tells,
            memory: Memory::default(),
        })
    }

    /// When the first run began that wrote into this inventory.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn begun(&self) -> Result<Time, StoreError> {
        let query = "SELECT coalesce(min(started), 0) FROM runs";
        let begun = self.database.connection.query_row(query, [], |row| row.get(0));
        begun.map(Time::from_millis).map_err(|error| self.database.fault(error))
    }

    /// Every server that is known to be there.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn known_servers(&self) -> Result<AHashSet<SocketAddr>, StoreError> {
        let read = || {
            let mut statement = self.database.connection.prepare(
                "SELECT octets, port FROM services JOIN hosts ON hosts.id = host WHERE side = 'server' AND state = 'open'",
            )?;
            let rows = statement.query_map([], |row| Ok((address_of(row, 0)?, row.get::<_, u16>(1)?)))?;
            rows.map(|row| row.map(SocketAddr::from)).collect::<Result<_, _>>()
        };
        read().map_err(|error| self.database.fault(error))
    }

    fn try_write(&mut self, batch: &[Record]) -> rusqlite::Result<Vec<Change>> {
        let transaction =
            self.database.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Nobody else writes before the transaction ends.
        let before = self.tells.then(|| latest_change(&transaction)).transpose()?;
        let mut pen = Pen::new(&transaction, &mut self.memory, self.sensor, self.once);
        batch.iter().try_for_each(|record| pen.record(record))?;
        pen.settle()?;
        let changes = before.map(|before| changes_since(&transaction, before)).transpose()?;
        transaction.commit()?;
        Ok(changes.unwrap_or_default())
    }
}

impl Writer {
    /// What comes next is told of by another source than what came before.
    pub(in crate::inventory) fn forget_told(&mut self) {
        self.memory.told.clear();
    }
}

impl Store for Writer {
    fn write(&mut self, batch: &[Record]) -> Result<Vec<Change>, StoreError> {
        self.memory.bound();
        let outcome = self.try_write(batch);
        if outcome.is_err() {
            // It may hold rows that were never written, or that another process has taken away.
            self.memory = Memory::default();
        }
        outcome.map_err(|error| self.database.fault(error))
    }

    fn prune(&mut self, before: Timestamp) -> Result<(), StoreError> {
        let pruned = prune(&mut self.database.connection, before.into());
        self.memory = Memory::default();
        pruned.map(drop).map_err(|error| self.database.fault(error))
    }

    fn end(&mut self, lost: u64) -> Result<(), StoreError> {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        let ended = self.database.connection.execute(
            "UPDATE runs SET ended = ?2, state = 'done', lost = ?3 WHERE id = ?1",
            params![self.run, now(), lost],
        );
        ended.map(drop).map_err(|error| self.database.fault(error))
    }
}

impl Memory {
    fn bound(&mut self) {
        if self.hosts.len() > REMEMBERED || self.services.len() > REMEMBERED {
            self.hosts.clear();
            self.services.clear();
        }
        if self.banners.len() > REMEMBERED {
            self.banners.clear();
        }
        if self.told.len() > REMEMBERED {
            self.told.clear();
        }
    }
}

fn now() -> i64 {
    millis(Timestamp::from(SystemTime::now()))
}

/// Marks the runs that were never ended and whose process is gone.
fn tell_of_killed(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT runs.id, pid, source, name FROM runs JOIN sensors ON sensors.id = sensor WHERE state = 'running'",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i32>(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?))
    })?;
    for (run, pid, source, name) in rows.collect::<Result<Vec<_>, _>>()? {
        // Another user's process, and one outside of a sandbox that we are in, must not be sent signals.
        let is_there =
            Pid::from_raw(pid).is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)));
        if is_there && pid != getpid().as_raw_nonzero().get() {
            continue;
        }
        connection.execute("UPDATE runs SET state = 'killed' WHERE id = ?1", [run])?;
        tell(format_args!(
            "bannerwall: {}: a {source} of {name} did not end cleanly: what it saw in its last second, and counts of its last minute, may be missing",
            path.display()
        ));
    }
    Ok(())
}

/// Enters the sensor and the run; gives their rows.
fn begin(connection: &Connection, run: &Run) -> rusqlite::Result<(i64, i64)> {
    let source = run.source;
    connection.execute(
        "INSERT INTO sensors (source, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![source, run.sensor],
    )?;
    let sensor = connection.query_row(
        "SELECT id FROM sensors WHERE source = ?1 AND name = ?2",
        params![source, run.sensor],
        |row| row.get(0),
    )?;
    connection.execute(
        "INSERT INTO runs (sensor, about, pid, started) VALUES (?1, ?2, ?3, ?4)",
        params![sensor, run.about, getpid().as_raw_nonzero().get(), now()],
    )?;
    Ok((sensor, connection.last_insert_rowid()))
}
