//! Batches into the tables, and what of them is a change.

mod ahead;
mod beside;
mod findings;
mod merge;
mod pen;
mod rows;
mod runs;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::SystemTime;

use ahash::{AHashMap, AHashSet};

use super::link::{self, Link, Numbered, Value};
use super::read::{Change, Time, address_of, changes_since, latest_change};
use super::schema;
use super::size::Bound;
use super::tend::prune;
use super::{Database, DatabaseError, FileIdentity, Place, file_identity, millis, octets, values};
use crate::event::Timestamp;
use crate::inventory::sighting::{Asset, Banner};
use crate::inventory::store::{Record, Run, Store, StoreError, Taken};
use ahead::Ahead;
pub use beside::{Findings, Keeper};
pub use merge::{Merger, Sent};
use pen::{CHANGE, Pen};

/// Hosts, services and banners whose rows are remembered; when there are more, they are looked up anew.
const REMEMBERED: usize = 1 << 18;

/// Writes what one run sees.
#[derive(Debug)]
pub(in crate::inventory) struct Writer {
    database: Database,
    run: i64,
    sensor: i64,
    /// True if changes are wanted.
    tells: bool,
    /// How often anything was written that makes changes.
    batches: i64,
    /// What may have been written: its answer was lost.
    unanswered: Option<Unanswered>,
    /// True if others see by a lock of the connection that the run goes on.
    is_held: bool,
    bound: Option<Bound>,
    memory: Memory,
    /// What to begin again with in another file.
    origin: Origin,
}

/// How a run was begun, and in which files.
#[derive(Debug, Clone)]
struct Origin {
    run: Run,
    max_size: Option<u64>,
    /// The log beside the file, while that is the one that was opened.
    log: Option<FileIdentity>,
}

/// What of which nobody knows whether it was written.
#[derive(Debug)]
struct Unanswered {
    /// How long the batch is, and its last record; none where servers became known as gone.
    batch: Option<(usize, Record)>,
    /// What becomes different by it.
    changes: Vec<Change>,
}

/// Rows that were met, so that they need not be looked up.
#[derive(Debug, Default)]
struct Memory {
    hosts: AHashMap<IpAddr, KnownHost>,
    services: AHashMap<Asset, Known>,
    banners: AHashMap<(&'static str, &'static str, Banner), i64>,
    /// What was looked up, while nobody else writes.
    ahead: Ahead,
    /// What was told of a time before is not counted again.
    counts_once: bool,
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
    host_key: Option<i64>,
    last: i64,
    gone: bool,
    banners: i64,
    /// Its banner is empty.
    says_nothing: bool,
}

/// A row of a host.
#[derive(Debug, Clone, Copy)]
struct KnownHost {
    id: i64,
    first: i64,
}

/// A row that counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Row {
    Sighting { service: i64, banner: i64 },
    Finding { service: i64, banner: i64, rule: String },
    Contact { service: i64, client: i64 },
    Peer { service: i64, banner: i64, peer: SocketAddr, rule: String },
    Unanswered { server: SocketAddr, protocol: &'static str, client: IpAddr },
}

impl Row {
    /// The row of the service that it belongs to.
    const fn service(&self) -> Option<i64> {
        match self {
            Self::Sighting { service, .. }
            | Self::Finding { service, .. }
            | Self::Contact { service, .. }
            | Self::Peer { service, .. } => Some(*service),
            Self::Unanswered { .. } => None,
        }
    }
}

impl Writer {
    /// Opens or makes the inventory at a place, and begins a run.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn open(place: &Place, run: &Run) -> Result<Self, StoreError> {
        Self::begin(Database::create(place)?, run)
    }

    /// The same by a way to a server that is open; makes the inventory there where there is none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn by(mut database: Database, run: &Run) -> Result<Self, StoreError> {
        schema::migrate(&mut database)?;
        Self::begin(database, run)
    }

    fn begin(database: Database, run: &Run) -> Result<Self, StoreError> {
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
            tells: run.tells,
            batches: 0,
            unanswered: None,
            is_held: true,
            bound: None,
            memory: Memory { counts_once: run.once, ..Memory::default() },
            origin: Origin { run: run.clone(), max_size: None, log: None },
        })
    }

    /// The same, which keeps the file below so many bytes. A server's database has none.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn bounded(mut self, octets: Option<u64>) -> Result<Self, StoreError> {
        if let (Some(octets), Link::Sqlite(file)) = (octets, &self.database.link) {
            let bound = Bound::set(file, octets).map_err(|error| self.database.fault(error))?;
            self.bound = Some(bound);
        }
        self.origin.max_size = octets;
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
        if let Some(unanswered) = &self.unanswered {
            let is_written = is_written(&transaction, self.run, self.batches + 1)?;
            let taken = is_written.then(|| unanswered.taken(batch));
            self.unanswered = None;
            if let Some(taken) = taken {
                self.batches += 1;
                return Ok(taken);
            }
        }
        let before = latest_change(&transaction)?;
        self.memory.write(&transaction, batch, self.sensor)?;
        let changes = if self.tells { changes_since(&transaction, before)? } else { Vec::new() };
        count(&transaction, self.run, self.batches + 1)?;
        self.unanswered = Some(Unanswered { batch: Some((batch.len(), last.clone())), changes });
        transaction.commit()?;
        self.memory.ahead = Ahead::default();
        self.batches += 1;
        let changes = self.unanswered.take().map(|it| it.changes).unwrap_or_default();
        Ok(Taken { records: batch.len(), changes })
    }

    /// Does some work, on a new connection where there is none any more. That one has gone may be known by
    /// the first answer alone that does not come: then once more.
    fn connected<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, DatabaseError>,
    ) -> Result<T, StoreError> {
        let outcome = self.revive().and_then(|()| match work(self) {
            Err(error) if self.is_cut_off(&error) => {
                // What was told before this run stays so.
                let told = std::mem::take(&mut self.memory.told);
                self.memory.forget();
                self.memory.told = told;
                self.revive()?;
                work(self)
            }
            outcome => outcome,
        });
        outcome.map_err(|error| self.database.fault(error))
    }

    /// True if the connection was ended. A server that does not answer was waited for long enough.
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

impl Known {
    /// Reads the first columns of a row.
    fn read(row: &link::Row<'_>) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.get(0)?,
            banner: row.get(1)?,
            hassh: row.get(2)?,
            certificate: row.get(3)?,
            host_key: row.get(4)?,
            last: row.get(5)?,
            gone: row.get(6)?,
            banners: row.get(7)?,
            says_nothing: row.get(8)?,
        })
    }
}

impl Unanswered {
    /// What is taken of a batch, now that it is known that this was written.
    fn taken(&self, batch: &[Record]) -> Taken {
        let is_of =
            |count: usize, last: &Record| count.checked_sub(1).and_then(|at| batch.get(at)) == Some(last);
        // Who has told it may have given it up.
        let written = self.batch.as_ref().filter(|(count, last)| is_of(*count, last));
        Taken { records: written.map_or(0, |(count, _)| *count), changes: self.changes.clone() }
    }
}

/// Whether it was written what a run would count as this.
fn is_written(link: &Link, run: i64, number: i64) -> Result<bool, DatabaseError> {
    let written: Option<i64> =
        link.one("SELECT batches FROM runs WHERE id = ?1", values![run], |row| row.get(0))?;
    Ok(written == Some(number))
}

/// Counts what a run writes.
fn count(link: &Link, run: i64, number: i64) -> Result<(), DatabaseError> {
    link.execute("UPDATE runs SET batches = ?2 WHERE id = ?1", values![run, number]).map(drop)
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
            self.memory.forget();
        }
        outcome
    }

    fn renew(&mut self) -> Result<bool, StoreError> {
        let Some(path) = self.database.place.file() else { return Ok(false) };
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let log = beside("-wal");
        if self.database.is_current() {
            self.origin.log = file_identity(&log);
            return Ok(false);
        }
        // SQLite would read the old file's log into the new one.
        if self.origin.log.is_some() && file_identity(&log) == self.origin.log {
            for old in [log, beside("-shm")] {
                std::fs::remove_file(&old).map_err(|error| StoreError::File { path: old, error })?;
            }
        }
        let renewed = Self::open(&self.database.place, &self.origin.run);
        let renewed = renewed.map_err(|error| StoreError::Renew(Box::new(error)))?;
        *self = renewed.bounded(self.origin.max_size)?;
        Ok(true)
    }

    fn prune(&mut self, before: Timestamp) -> Result<(), StoreError> {
        let pruned = self.connected(|writer| prune(&writer.database.link, before.into()));
        self.memory.forget();
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
            self.memory.forget();
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
        match &self.unanswered {
            // They may be known as gone already, and nobody was told.
            Some(Unanswered { batch: None, changes }) => {
                let changes = is_written(&transaction, self.run, self.batches + 1)?.then(|| changes.clone());
                self.unanswered = None;
                if let Some(changes) = changes {
                    self.batches += 1;
                    return Ok(changes);
                }
            }
            // A batch comes first: it may say of some that they were seen.
            Some(_) => return Ok(Vec::new()),
            None => {}
        }
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
            let none = None::<i64>;
            transaction.put(
                CHANGE,
                values![now(), "service_gone", service, banner, none, none, "unseen", self.sensor],
            )?;
        }
        let changes =
            self.tells.then(|| changes_since(&transaction, latest)).transpose()?.unwrap_or_default();
        count(&transaction, self.run, self.batches + 1)?;
        self.memory.services.clear();
        self.unanswered = Some(Unanswered { batch: None, changes });
        transaction.commit()?;
        self.batches += 1;
        Ok(self.unanswered.take().map(|it| it.changes).unwrap_or_default())
    }
}

impl Memory {
    /// Writes a batch by an open transaction, within which nobody else writes.
    fn write(&mut self, link: &Link, batch: &[Record], sensor: i64) -> Result<(), DatabaseError> {
        if let Link::Postgres(_) = link {
            link.look_up_by_keys()?;
            self.look_up(link, batch, sensor)?;
        }
        let mut pen = Pen::new(link, self, sensor);
        batch.iter().try_for_each(|record| pen.record(record))?;
        pen.settle()
    }

    fn forget(&mut self) {
        *self = Self { counts_once: self.counts_once, ..Self::default() };
    }

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
