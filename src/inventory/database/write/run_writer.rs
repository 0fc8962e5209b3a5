//! Writes the sightings of one run.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ahash::AHashSet;

use super::batch_writer::CHANGE;
use super::prefetched_rows::PrefetchedRows;
use super::row_cache::RowCache;
use super::runs;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation, values};
use crate::event::Timestamp;
use crate::inventory::change::InventoryChange;
use crate::inventory::database::connection::{FileIdentity, InventoryDatabase, file_identity};
use crate::inventory::database::maintenance::prune_rows;
use crate::inventory::database::query::{changes_since, latest_number};
use crate::inventory::database::schema;
use crate::inventory::database::size_limit::FileSizeLimit;
use crate::inventory::error::StoreError;
use crate::inventory::inventory_time::{InventoryTime, millis};
use crate::inventory::store::{RunDescription, SightingRecord, SightingStore, WriteResult};

/// Writes the sightings of one run.
#[derive(Debug)]
pub(in crate::inventory) struct RunWriter {
    database: InventoryDatabase,
    run: i64,
    sensor: i64,
    /// True if changes are wanted.
    reports_changes: bool,
    /// Number of writes that may cause changes.
    batches: i64,
    /// A write whose answer was lost.
    unanswered: Option<UncertainWrite>,
    /// True if a lock of the connection shows others that the run is alive.
    is_held: bool,
    bound: Option<FileSizeLimit>,
    memory: RowCache,
    /// The start of the run, to repeat it in another file.
    origin: RunOrigin,
}

/// The start of a run, and the identity of its files.
#[derive(Debug, Clone)]
struct RunOrigin {
    run: RunDescription,
    max_size: Option<u64>,
    /// The log beside the file, while it is the one that was opened.
    log: Option<FileIdentity>,
}

/// A write that may or may not have been done.
#[derive(Debug)]
struct UncertainWrite {
    /// Length of the batch, and its last record; none if servers were marked as gone.
    batch: Option<(usize, SightingRecord)>,
    /// The changes that it causes.
    changes: Vec<InventoryChange>,
}

impl RunWriter {
    /// Opens or creates the inventory at a place, and starts a run.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn open(
        place: &DatabaseLocation,
        run: &RunDescription,
    ) -> Result<Self, StoreError> {
        Self::begin(InventoryDatabase::create(place)?, run)
    }

    /// Starts a run with an open connection to a server; creates the inventory there if it is missing.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn by(
        database: InventoryDatabase,
        run: &RunDescription,
    ) -> Result<Self, StoreError> {
        schema::migrate(&database.place, &database.link)?;
        Self::begin(database, run)
    }

    fn begin(database: InventoryDatabase, run: &RunDescription) -> Result<Self, StoreError> {
        // In one transaction, so that others do not mark the new run as killed.
        let begun = database.link.transaction().and_then(|step| {
            runs::mark_killed_runs(&database.place, &database.link)?;
            let begun = runs::begin(&step, run)?;
            step.commit().map(|()| begun)
        });
        let (sensor, run_id) = begun.map_err(|error| database.fault(error))?;
        Ok(Self {
            database,
            run: run_id,
            sensor,
            reports_changes: run.reports_changes,
            batches: 0,
            unanswered: None,
            is_held: true,
            bound: None,
            memory: RowCache { counts_once: run.once, ..RowCache::default() },
            origin: RunOrigin { run: run.clone(), max_size: None, log: None },
        })
    }

    /// Limits the size of the file in bytes. It does nothing for a server's database.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn bounded(mut self, octets: Option<u64>) -> Result<Self, StoreError> {
        if let (Some(octets), DatabaseConnection::Sqlite(file)) = (octets, &self.database.link) {
            let bound = FileSizeLimit::set(file, octets).map_err(|error| self.database.fault(error))?;
            self.bound = Some(bound);
        }
        self.origin.max_size = octets;
        Ok(self)
    }

    /// Returns the start of the first run of this inventory.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn begun(&self) -> Result<InventoryTime, StoreError> {
        let query = "SELECT coalesce(min(started), 0) FROM runs";
        let begun = self.database.link.sole(query, &[], |row| row.get(0));
        begun.map(InventoryTime::from_millis).map_err(|error| self.database.fault(error))
    }

    /// Returns every server that is present.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn known_servers(&self) -> Result<AHashSet<SocketAddr>, StoreError> {
        let query = "SELECT octets, port FROM services JOIN hosts ON hosts.id = host
                     WHERE side = 'server' AND state = 'open'";
        let servers = self
            .database
            .link
            .all(query, &[], |row| Ok(SocketAddr::from((row.get::<IpAddr>(0)?, row.get::<u16>(1)?))));
        servers.map(|servers| servers.into_iter().collect()).map_err(|error| self.database.fault(error))
    }

    fn try_write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, DatabaseError> {
        let Some(last) = batch.last() else { return Ok(WriteResult::default()) };
        // No other process writes before the transaction ends. This also holds for work left over from a
        // lost connection.
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
        let before = latest_number(&transaction)?;
        self.memory.write(&transaction, batch, self.sensor)?;
        let changes = if self.reports_changes { changes_since(&transaction, before)? } else { Vec::new() };
        count(&transaction, self.run, self.batches + 1)?;
        self.unanswered = Some(UncertainWrite { batch: Some((batch.len(), last.clone())), changes });
        transaction.commit()?;
        self.memory.ahead = PrefetchedRows::default();
        self.batches += 1;
        let changes = self.unanswered.take().map(|it| it.changes).unwrap_or_default();
        Ok(WriteResult { records: batch.len(), changes })
    }

    /// Writes a batch in one transaction with the work of `beside`; see
    /// [`TransactionalWriter::write`](super::TransactionalWriter::write).
    ///
    /// # Errors
    /// Nothing is known to be written.
    pub(super) fn write_beside(
        &mut self,
        batch: &[SightingRecord],
        beside: &mut dyn FnMut(&DatabaseConnection) -> Result<bool, DatabaseError>,
    ) -> Result<bool, StoreError> {
        self.memory.bound();
        let outcome = self.revive().and_then(|()| self.try_write_beside(batch, beside));
        if !matches!(outcome, Ok(true)) {
            // The cache may hold rows that were never written.
            self.memory.forget();
        }
        outcome.map_err(|error| self.database.fault(error))
    }

    fn try_write_beside(
        &mut self,
        batch: &[SightingRecord],
        beside: &mut dyn FnMut(&DatabaseConnection) -> Result<bool, DatabaseError>,
    ) -> Result<bool, DatabaseError> {
        // The caller's own rows need no turn: others may write the inventory meanwhile.
        let transaction = self.database.link.begin_concurrent()?;
        if !beside(&transaction)? {
            return Ok(false);
        }
        if !batch.is_empty() {
            transaction.wait_for_turn()?;
            self.memory.write(&transaction, batch, self.sensor)?;
        }
        transaction.commit()?;
        self.memory.ahead = PrefetchedRows::default();
        Ok(true)
    }

    /// Runs work, on a new connection if the old one is lost. A lost connection may show only in the
    /// first missing answer; then the work is repeated once.
    fn connected<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, DatabaseError>,
    ) -> Result<T, StoreError> {
        let outcome = self.revive().and_then(|()| match work(self) {
            Err(error) if self.is_cut_off(&error) => {
                // Sightings before this run stay valid.
                let counted = std::mem::take(&mut self.memory.counted);
                self.memory.forget();
                self.memory.counted = counted;
                self.revive()?;
                work(self)
            }
            outcome => outcome,
        });
        outcome.map_err(|error| self.database.fault(error))
    }

    /// True if the connection was cut. A server that did not answer was waited for long enough.
    fn is_cut_off(&self, error: &DatabaseError) -> bool {
        matches!(&self.database.link, DatabaseConnection::Postgres(session) if session.is_lost())
            && !matches!(error, DatabaseError::Silent)
    }

    /// Reconnects to a server that was away.
    fn revive(&mut self) -> Result<(), DatabaseError> {
        let DatabaseConnection::Postgres(session) = &mut self.database.link else { return Ok(()) };
        if session.revive()? {
            self.is_held = false;
        }
        if !self.is_held {
            self.is_held = runs::resume(&self.database.link, self.run)?;
        }
        Ok(())
    }
}

impl UncertainWrite {
    /// Returns the result for a batch, now that this write is known to be done.
    fn taken(&self, batch: &[SightingRecord]) -> WriteResult {
        let is_of = |count: usize, last: &SightingRecord| {
            count.checked_sub(1).and_then(|at| batch.get(at)) == Some(last)
        };
        // The caller may have dropped the records meanwhile.
        let written = self.batch.as_ref().filter(|(count, last)| is_of(*count, last));
        WriteResult { records: written.map_or(0, |(count, _)| *count), changes: self.changes.clone() }
    }
}

/// Returns true if the run's write with this number was done.
fn is_written(link: &DatabaseConnection, run: i64, number: i64) -> Result<bool, DatabaseError> {
    let written: Option<i64> =
        link.one("SELECT batches FROM runs WHERE id = ?1", values![run], |row| row.get(0))?;
    Ok(written == Some(number))
}

/// Records the number of a run's write.
fn count(link: &DatabaseConnection, run: i64, number: i64) -> Result<(), DatabaseError> {
    link.execute("UPDATE runs SET batches = ?2 WHERE id = ?1", values![run, number]).map(drop)
}

impl RunWriter {
    /// The next sightings are from another source than the earlier ones.
    pub(in crate::inventory) fn forget_counted(&mut self) {
        self.memory.counted.clear();
    }
}

impl SightingStore for RunWriter {
    fn write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, StoreError> {
        self.memory.bound();
        let outcome = self.connected(|writer| writer.try_write(batch));
        if outcome.is_err() {
            // The cache may hold rows that were never written, or that another process has removed.
            self.memory.forget();
        }
        outcome
    }

    fn reopen_if_replaced(&mut self) -> Result<bool, StoreError> {
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
        // SQLite would apply the old file's log to the new one.
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
        let pruned = self.connected(|writer| prune_rows(&writer.database.link, before.into()));
        self.memory.forget();
        pruned.map(drop)
    }

    fn mark_gone(&mut self, before: Timestamp) -> Result<Vec<InventoryChange>, StoreError> {
        self.connected(|writer| writer.give_up(before))
    }

    fn make_room(&mut self, coming: usize) -> Result<u64, StoreError> {
        let (Some(bound), DatabaseConnection::Sqlite(file)) = (self.bound, &self.database.link) else {
            return Ok(0);
        };
        let fitted = bound.is_near(file, coming).and_then(|is_near| {
            if !is_near {
                return Ok(0);
            }
            self.memory.forget();
            bound.fit(&self.database.link, file, coming)
        });
        fitted.map_err(|error| self.database.fault(error))
    }

    fn finish(&mut self, lost: u64) -> Result<(), StoreError> {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        let ended = "UPDATE runs SET ended = ?2, state = 'done', lost = ?3 WHERE id = ?1";
        let end = |writer: &mut Self| {
            writer.database.link.execute(ended, values![writer.run, InventoryTime::now().millis(), lost])
        };
        self.connected(end).map(drop)
    }
}

impl RunWriter {
    /// Marks servers as gone that were last seen before a time.
    fn give_up(&mut self, before: Timestamp) -> Result<Vec<InventoryChange>, DatabaseError> {
        let transaction = self.database.link.transaction()?;
        match &self.unanswered {
            // They may be marked already, without their changes being reported.
            Some(UncertainWrite { batch: None, changes }) => {
                let changes = is_written(&transaction, self.run, self.batches + 1)?.then(|| changes.clone());
                self.unanswered = None;
                if let Some(changes) = changes {
                    self.batches += 1;
                    return Ok(changes);
                }
            }
            // A batch comes first: it may hold sightings of some.
            Some(_) => return Ok(Vec::new()),
            None => {}
        }
        let latest = latest_number(&transaction)?;
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
            transaction.queue(
                CHANGE,
                values![
                    InventoryTime::now().millis(),
                    "service_gone",
                    service,
                    banner,
                    none,
                    none,
                    "unseen",
                    self.sensor
                ],
            )?;
        }
        let changes = self
            .reports_changes
            .then(|| changes_since(&transaction, latest))
            .transpose()?
            .unwrap_or_default();
        count(&transaction, self.run, self.batches + 1)?;
        self.memory.services.clear();
        self.unanswered = Some(UncertainWrite { batch: None, changes });
        transaction.commit()?;
        self.batches += 1;
        Ok(self.unanswered.take().map(|it| it.changes).unwrap_or_default())
    }
}
