//! Batches into the tables, and what of them is a change.

mod absent;
mod findings;
mod pen;
mod rows;
mod runs;

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use ahash::{AHashMap, AHashSet};

use super::link::{Link, Value};
use super::read::{Change, Time, address_of, changes_since, latest_change};
use super::size::Bound;
use super::tend::prune;
use super::{Database, DatabaseError, Place, millis, octets, values};
use crate::event::Timestamp;
use crate::inventory::sighting::{Asset, Banner};
use crate::inventory::store::{Record, Run, Store, StoreError, Taken};
use absent::Absent;
use pen::Pen;

/// Hosts, services and banners whose rows are remembered; when there are more, they are looked up anew.
const REMEMBERED: usize = 1 << 18;

/// Writes what one run sees.
#[derive(Debug)]
pub(in crate::inventory) struct Writer {
    database: Database,
    run: i64,
    sensor: i64,
    /// What was told of a time before is not counted again.
    once: bool,
    /// Whether changes are wanted.
    tells: bool,
    /// Batches that were written.
    batches: i64,
    /// The batch that may have been written: its answer was lost.
    unanswered: Option<Unanswered>,
    /// Whether others see by a lock of the connection that the run goes on.
    is_held: bool,
    bound: Option<Bound>,
    memory: Memory,
}

/// A batch of which nobody knows whether it was written.
#[derive(Debug)]
struct Unanswered {
    count: usize,
    last: Record,
    /// What becomes different by it.
    changes: Vec<Change>,
}

/// Rows that were met, so that they need not be looked up.
#[derive(Debug, Default)]
struct Memory {
    hosts: AHashMap<IpAddr, i64>,
    services: AHashMap<Asset, Known>,
    banners: AHashMap<(&'static str, &'static str, Banner), i64>,
    /// What is known not to be there, while nobody else writes.
    absent: Absent,
    /// The times that rows told of before this run.
    told: AHashMap<Row, Option<(i64, i64)>>,
}

/// A row of a service.
#[derive(Debug, Clone, Copy)]
struct Known {
    id: i64,
    banner: i64,
    hassh: Option<i64>,
    certificate: Option<i64>,
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
    /// Opens or makes the inventory at a place, and begins a run.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn open(place: &Place, run: &Run) -> Result<Self, StoreError> {
        let database = Database::create(place)?;
        // As one step: others must not take for killed what has just begun.
        let begun = database.link.transaction().and_then(|step| {
            runs::tell_of_killed(&database)?;
            let begun = runs::begin(&step, run)?;
            step.commit().map(|()| begun)
        });
        let (sensor, run_id) = begun.map_err(|error| database.fault(error))?;
        Ok(Self {
            database,
            run: run_id,
            sensor,
            once: run.once,
            tells: run.tells,
            batches: 0,
            unanswered: None,
            is_held: true,
            bound: None,
            memory: Memory::default(),
        })
    }

    /// The same, which keeps the file below so many octets. A server's database has none.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn bounded(mut self, octets: Option<u64>) -> Result<Self, StoreError> {
        if let (Some(octets), Link::Sqlite(file)) = (octets, &self.database.link) {
            let bound = Bound::set(file, octets).map_err(|error| self.database.fault(error))?;
            self.bound = Some(bound);
        }
        Ok(self)
    }

    /// When the first run began that wrote into this inventory.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn begun(&self) -> Result<Time, StoreError> {
        let query = "SELECT coalesce(min(started), 0) FROM runs";
        let begun = self.database.link.sole(query, &[], |row| row.get(0));
        begun.map(Time::from_millis).map_err(|error| self.database.fault(error))
    }

    /// Every server that is known to be there.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn known_servers(&self) -> Result<AHashSet<SocketAddr>, StoreError> {
        let query = "SELECT octets, port FROM services JOIN hosts ON hosts.id = host
                     WHERE side = 'server' AND state = 'open'";
        let servers = self
            .database
            .link
            .all(query, &[], |row| Ok(SocketAddr::from((address_of(row, 0)?, row.get::<u16>(1)?))));
        servers.map(|servers| servers.into_iter().collect()).map_err(|error| self.database.fault(error))
    }

    fn try_write(&mut self, batch: &[Record]) -> Result<Taken, DatabaseError> {
        let Some(last) = batch.last() else { return Ok(Taken::default()) };
        // Nobody else writes before the transaction ends, nor does what became of a connection that was lost.
        let transaction = self.database.link.transaction()?;
        if self.unanswered.is_some() {
            let written = "SELECT batches FROM runs WHERE id = ?1";
            let written: Option<i64> = transaction.one(written, values![self.run], |row| row.get(0))?;
            let unanswered = self.unanswered.take();
            if written == Some(self.batches + 1) {
                self.batches += 1;
                return Ok(unanswered.map(|it| it.taken(batch)).unwrap_or_default());
            }
        }
        let before = latest_change(&transaction)?;
        if let Link::Postgres(_) = &*transaction {
            self.memory.look_up(&transaction, batch)?;
        }
        let mut pen = Pen::new(&transaction, &mut self.memory, self.sensor, self.once);
        batch.iter().try_for_each(|record| pen.record(record))?;
        pen.settle()?;
        let changes = if self.tells { changes_since(&transaction, before)? } else { Vec::new() };
        let next = self.batches + 1;
        transaction.execute("UPDATE runs SET batches = ?2 WHERE id = ?1", values![self.run, next])?;
        let pending = Unanswered { count: batch.len(), last: last.clone(), changes };
        let pending = self.unanswered.insert(pending);
        transaction.commit()?;
        let taken = Taken { records: batch.len(), changes: std::mem::take(&mut pending.changes) };
        self.memory.absent = Absent::default();
        (self.unanswered, self.batches) = (None, next);
        Ok(taken)
    }

    /// Does some work, on a new connection where there is none any more. That one has gone may be known by the first
    /// answer alone that does not come: then once more.
    fn connected<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, DatabaseError>,
    ) -> Result<T, StoreError> {
        let outcome = self.revive().and_then(|()| match work(self) {
            Err(error) if self.is_cut_off(&error) => {
                // What was told before this run stays so.
                let told = std::mem::take(&mut self.memory.told);
                self.memory = Memory { told, ..Memory::default() };
                self.revive()?;
                work(self)
            }
            outcome => outcome,
        });
        outcome.map_err(|error| self.database.fault(error))
    }

    /// Whether the connection was ended. A server that does not answer was waited for long enough.
    fn is_cut_off(&self, error: &DatabaseError) -> bool {
        matches!(&self.database.link, Link::Postgres(session) if session.is_lost())
            && !matches!(error, DatabaseError::Silent)
    }

    /// Comes back to a server that was away.
    fn revive(&mut self) -> Result<(), DatabaseError> {
        let Link::Postgres(session) = &mut self.database.link else { return Ok(()) };
        if session.revive()? {
            self.is_held = false;
        }
        if !self.is_held {
            self.is_held = runs::go_on(&self.database.link, self.run)?;
        }
        Ok(())
    }
}

impl Unanswered {
    /// What is taken of a batch, now that it is known that this one was written.
    fn taken(self, batch: &[Record]) -> Taken {
        let last = self.count.checked_sub(1).and_then(|at| batch.get(at));
        // Who has told it may have given it up.
        let records = if last == Some(&self.last) { self.count } else { 0 };
        Taken { records, changes: self.changes }
    }
}

impl Writer {
    /// What comes next is told of by another source than what came before.
    pub(in crate::inventory) fn forget_told(&mut self) {
        self.memory.told.clear();
    }
}

impl Store for Writer {
    fn write(&mut self, batch: &[Record]) -> Result<Taken, StoreError> {
        self.memory.bound();
        let outcome = self.connected(|writer| writer.try_write(batch));
        if outcome.is_err() {
            // It may hold rows that were never written, or that another process has taken away.
            self.memory = Memory::default();
        }
        outcome
    }

    fn prune(&mut self, before: Timestamp) -> Result<(), StoreError> {
        let pruned = self.connected(|writer| prune(&writer.database.link, before.into()));
        self.memory = Memory::default();
        pruned.map(drop)
    }

    fn unseen(&mut self, before: Timestamp) -> Result<Vec<Change>, StoreError> {
        self.connected(|writer| writer.give_up(before))
    }

    fn fit(&mut self, coming: usize) -> Result<u64, StoreError> {
        let (Some(bound), Link::Sqlite(file)) = (self.bound, &self.database.link) else { return Ok(0) };
        let fitted = bound.is_near(file, coming).and_then(|is_near| {
            if !is_near {
                return Ok(0);
            }
            self.memory = Memory::default();
            bound.fit(&self.database.link, file, coming)
        });
        fitted.map_err(|error| self.database.fault(error))
    }

    fn end(&mut self, lost: u64) -> Result<(), StoreError> {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        let ended = "UPDATE runs SET ended = ?2, state = 'done', lost = ?3 WHERE id = ?1";
        let end = |writer: &mut Self| writer.database.link.execute(ended, values![writer.run, now(), lost]);
        self.connected(end).map(drop)
    }
}

impl Writer {
    /// Knows servers as gone that were last seen before a time.
    fn give_up(&mut self, before: Timestamp) -> Result<Vec<Change>, DatabaseError> {
        let transaction = self.database.link.transaction()?;
        let latest = latest_change(&transaction)?;
        let gone = transaction.all(
            "UPDATE services SET state = 'gone' WHERE side = 'server' AND state = 'open' AND last_seen < ?1
             RETURNING id, banner",
            values![millis(before)],
            |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)),
        )?;
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        for (service, banner) in gone {
            transaction.put(
                "INSERT INTO changes (at, kind, service, old, why, sensor)
                 VALUES (?1, 'service_gone', ?2, ?3, 'unseen', ?4)",
                values![now(), service, banner, self.sensor],
            )?;
        }
        let changes = self.tells.then(|| changes_since(&transaction, latest)).transpose()?;
        transaction.commit()?;
        self.memory.services.clear();
        Ok(changes.unwrap_or_default())
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
