//! Statements of workers: they report that they are alive, lease shards, write results, and return shards.

use std::time::Duration;

use super::scans::StoredScanOrder;
use super::{FleetDatabase, file, values};
use crate::database::{DatabaseConnection, DatabaseError, QueryRow, SqlParameter};
use crate::fleet::ScanOrder;
use crate::fleet::finished_targets::FinishedTargets;
use crate::inventory::InventoryTime;
use crate::scan::targets::TargetCounts;

/// Time after which silent workers are forgotten, in milliseconds.
const REMEMBERED: i64 = 3_600_000;

/// A shard that a worker holds.
#[derive(Debug, Clone)]
pub(in crate::fleet) struct ShardLease {
    pub(in crate::fleet) number: u64,
    /// Its targets.
    pub(in crate::fleet) total: u64,
    /// Fencing token: a writer must still have it.
    token: i64,
    /// Number of written batches.
    step: i64,
    pub(in crate::fleet) over: FinishedTargets,
    pub(in crate::fleet) counts: TargetCounts,
}

/// A scan's order, as a worker reads it.
#[derive(Debug)]
pub(in crate::fleet) struct ScanAssignment {
    pub(in crate::fleet) order: ScanOrder,
    /// Limit of targets a second, of all workers together.
    pub(in crate::fleet) rate: Option<u32>,
    /// Number of shards.
    pub(in crate::fleet) shards: u64,
    /// Description for a person.
    pub(in crate::fleet) about: String,
}

/// The server's answer to a worker of a scan.
#[derive(Debug, Clone, Copy)]
pub(in crate::fleet) struct HeartbeatReply {
    /// The time by its clock.
    pub(in crate::fleet) now: InventoryTime,
    /// True if the scan continues.
    pub(in crate::fleet) is_open: bool,
}

/// The worker's share of a limit in a thousand seconds, and the fair share.
#[derive(Debug, Clone, Copy)]
pub(in crate::fleet) struct GrantedRate {
    pub(in crate::fleet) granted: u64,
    pub(in crate::fleet) fair: u64,
}

/// The outcome of a worker's batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fleet) enum BatchWriteOutcome {
    /// It is written with the rest of the transaction.
    Now,
    /// It was written before: the answer was lost.
    Before,
    /// These shards are no longer the worker's.
    Lost(Vec<u64>),
}

/// A result as a row: its scan, shard, position, address, port, state, whether it matched, JSON and CSV.
pub(in crate::fleet) type ResultRow = [SqlParameter<'static>; 9];

impl FleetDatabase {
    /// Registers a worker for the length of a lease. Returns its number.
    pub(in crate::fleet) fn register(&self, name: &str, lease: Duration) -> Result<i64, DatabaseError> {
        let forget = "DELETE FROM fleet_workers WHERE expires < fleet_now() - ?1
             AND NOT EXISTS (SELECT 1 FROM fleet_shards WHERE worker = fleet_workers.id AND state = 'leased')";
        self.beside.link().execute(forget, values![REMEMBERED])?;
        let join =
            "INSERT INTO fleet_workers (name, seen, expires) VALUES (?1, fleet_now(), fleet_now() + ?2)
             RETURNING id";
        let id = self.beside.link().one(join, values![name, millis(lease)], |row| row.get(0))?;
        id.ok_or(DatabaseError::Column(0))
    }

    /// Renews a worker's lease, and releases the shards of workers whose lease is over. Returns none if the
    /// worker is no longer known.
    pub(in crate::fleet) fn beat(
        &self,
        worker: i64,
        lease: Duration,
        scan: Option<i64>,
    ) -> Result<Option<HeartbeatReply>, DatabaseError> {
        let (link, lease) = (self.beside.link(), millis(lease));
        let now = if link.is_file() {
            self.beside.in_transaction(|link| file::beat(link, worker, lease))?
        } else {
            link.one("SELECT fleet_beat(?1, ?2)", values![worker, lease], |row| row.get(0))?.flatten()
        };
        let Some(now) = now.map(InventoryTime::from_millis) else { return Ok(None) };
        let query = "SELECT count(*) FROM fleet_scans WHERE id = ?1 AND state = 'open'";
        let is_open = match scan {
            Some(scan) => link.sole(query, values![scan], |row| row.get::<i64>(0))? > 0,
            None => false,
        };
        Ok(Some(HeartbeatReply { now, is_open }))
    }

    /// Requests a share of a limit.
    pub(in crate::fleet) fn share(
        &self,
        (scan, number): (i64, i64),
        worker: i64,
        used: u64,
        lease: Duration,
    ) -> Result<GrantedRate, DatabaseError> {
        let used = i64::try_from(used).unwrap_or(i64::MAX);
        let values = values![scan, number, worker, used, millis(lease)];
        if self.beside.link().is_file() {
            let (granted, fair) = self.beside.in_transaction(|link| file::share(link, values))?;
            return Ok(GrantedRate { granted: unsigned(granted), fair: unsigned(fair) });
        }
        let query = "SELECT granted, fair FROM fleet_share(?1, ?2, ?3, ?4, ?5)";
        let read = |row: &QueryRow<'_>| {
            Ok(GrantedRate { granted: unsigned(row.get(0)?), fair: unsigned(row.get(1)?) })
        };
        self.beside.link().sole(query, values, read)
    }

    /// Returns the oldest scan with a free shard, except these.
    pub(in crate::fleet) fn next_scan(
        &self,
        pool: Option<&str>,
        but: &[i64],
    ) -> Result<Option<i64>, DatabaseError> {
        let query = "SELECT f.id FROM fleet_scans f WHERE f.state = 'open' AND f.pool IS NOT DISTINCT FROM ?2
               AND EXISTS (SELECT 1 FROM fleet_shards s WHERE s.scan = f.id AND s.state = 'ready')
             ORDER BY f.id LIMIT ?1";
        let most = i64::try_from(but.len()).unwrap_or(i64::MAX).saturating_add(1);
        let found = self.beside.link().all(query, values![most, pool], |row| row.get::<i64>(0))?;
        Ok(found.into_iter().find(|scan| !but.contains(scan)))
    }

    /// True if any scan of the pool is not over, whichever worker runs it.
    pub(in crate::fleet) fn has_open(&self, pool: Option<&str>) -> Result<bool, DatabaseError> {
        let query = "SELECT EXISTS (SELECT 1 FROM fleet_scans f
             WHERE state = 'open' AND f.pool IS NOT DISTINCT FROM ?1
               AND EXISTS (SELECT 1 FROM fleet_shards s WHERE s.scan = f.id AND s.state IN ('ready', 'leased')))";
        Ok(self.beside.link().one(query, values![pool], |row| row.get(0))?.unwrap_or_default())
    }

    /// Returns the order of a scan and its number of shards, or the reason why the order cannot be read.
    pub(in crate::fleet) fn order(&self, scan: i64) -> Result<Result<ScanAssignment, String>, DatabaseError> {
        let query = "SELECT what, shards, about FROM fleet_scans WHERE id = ?1";
        let found = self.beside.link().one(query, values![scan], |row| {
            Ok((row.get::<String>(0)?, unsigned(row.get(1)?), row.get::<String>(2)?))
        })?;
        let Some((what, shards, about)) = found else { return Ok(Err("it is gone".to_owned())) };
        let what =
            serde_json::from_str::<StoredScanOrder>(&what).map_err(|error| format!("its order: {error}"));
        Ok(what.map(|what| ScanAssignment { order: what.order, rate: what.rate, shards, about }))
    }

    /// Leases shards of a scan, up to a number.
    pub(in crate::fleet) fn take(
        &self,
        worker: i64,
        scan: i64,
        most: usize,
    ) -> Result<Vec<ShardLease>, DatabaseError> {
        let query = "UPDATE fleet_shards SET state = 'leased', worker = ?1, token = token + 1,
               leases = leases + 1, began = coalesce(began, fleet_now())
             WHERE scan = ?2 AND number IN (SELECT number FROM fleet_shards WHERE scan = ?2 AND state = 'ready'
               ORDER BY number LIMIT ?3 FOR UPDATE SKIP LOCKED)
             RETURNING number, total, token, step, over_to, over_bits, counts";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut leases = self.beside.link().all(query, values![worker, scan, most], ShardLease::read)?;
        leases.sort_unstable_by_key(|lease| lease.number);
        Ok(leases)
    }

    /// Marks a scan as done if no shard of it is leased or ready.
    pub(in crate::fleet) fn close(&self, scan: i64) -> Result<(), DatabaseError> {
        let query =
            "UPDATE fleet_scans SET state = 'done', ended = fleet_now() WHERE id = ?1 AND state = 'open'
               AND NOT EXISTS (SELECT 1 FROM fleet_shards WHERE scan = ?1 AND state IN ('ready', 'leased'))";
        self.beside.link().execute(query, values![scan]).map(drop)
    }

    /// Returns a worker's shards of a scan, so that others continue them. With `error` they have failed.
    pub(in crate::fleet) fn give_back(
        &self,
        worker: i64,
        scan: i64,
        error: Option<&str>,
    ) -> Result<usize, DatabaseError> {
        let query = "UPDATE fleet_shards AS s SET worker = NULL, token = s.token + 1,
               attempts = s.attempts + ?3, error = coalesce(?4, error),
               state = CASE WHEN f.state = 'cancelled' THEN 'cancelled'
                            WHEN s.attempts + ?3 >= f.attempts THEN 'parked' ELSE 'ready' END
             FROM fleet_scans f WHERE f.id = s.scan AND s.worker = ?1 AND s.scan = ?2 AND s.state = 'leased'";
        self.beside.link().execute(query, values![worker, scan, i64::from(error.is_some()), error])
    }

    /// Removes a worker, and frees its shares of limits.
    pub(in crate::fleet) fn unregister(&self, worker: i64) -> Result<(), DatabaseError> {
        self.beside.in_transaction(|link| {
            link.execute("DELETE FROM fleet_shares WHERE worker = ?1", values![worker])?;
            // If shards could not be returned, other workers take them once the lease is over.
            let gone = "DELETE FROM fleet_workers WHERE id = ?1
                 AND NOT EXISTS (SELECT 1 FROM fleet_shards WHERE worker = ?1 AND state = 'leased')";
            link.execute(gone, values![worker]).map(drop)
        })
    }

    /// Frees a worker's shares of a scan's limits.
    pub(in crate::fleet) fn leave_scan(&self, worker: i64, scan: i64) -> Result<(), DatabaseError> {
        let query = "DELETE FROM fleet_shares WHERE worker = ?1 AND scan = ?2";
        self.beside.link().execute(query, values![worker, scan]).map(drop)
    }
}

impl ShardLease {
    fn read(row: &QueryRow<'_>) -> Result<Self, DatabaseError> {
        let bits: Vec<u8> = row.get(5)?;
        Ok(Self {
            number: unsigned(row.get(0)?),
            total: unsigned(row.get(1)?),
            token: row.get(2)?,
            step: row.get(3)?,
            over: FinishedTargets::new(unsigned(row.get(4)?), &bits),
            counts: serde_json::from_str(&row.get::<String>(6)?).unwrap_or_default(),
        })
    }

    /// Records that the batch was written.
    pub(in crate::fleet) fn advance_step(&mut self) {
        self.step += 1;
    }

    pub(in crate::fleet) fn is_done(&self) -> bool {
        self.over.count() >= self.total
    }
}

/// Writes the progress of shards, as their leases say, and their results: of all of them, or of none.
pub(in crate::fleet) fn write(
    link: &DatabaseConnection,
    scan: i64,
    leases: &[&ShardLease],
    rows: &[ResultRow],
) -> Result<BatchWriteOutcome, DatabaseError> {
    let update =
        "UPDATE fleet_shards SET step = step + 1, over = ?5, over_to = ?6, over_bits = ?7, counts = ?8,
           attempts = 0, state = CASE WHEN ?5 >= total THEN 'done' ELSE state END,
           worker = CASE WHEN ?5 >= total THEN NULL ELSE worker END,
           ended = CASE WHEN ?5 >= total THEN fleet_now() END
         WHERE scan = ?1 AND number = ?2 AND token = ?3 AND step = ?4";
    let (mut lost, mut was_before) = (Vec::new(), false);
    for lease in leases {
        let (to, bits) = lease.over.parts();
        let counts = serde_json::to_string(&lease.counts).unwrap_or_default();
        let (number, over) = (signed(lease.number), signed(lease.over.count()));
        let values = values![scan, number, lease.token, lease.step, over, signed(to), bits, counts];
        if link.execute(update, values)? == 0 {
            was_before |= is_written(link, scan, lease)?;
            lost.push(lease.number);
        }
    }
    if was_before {
        return Ok(BatchWriteOutcome::Before);
    }
    if !lost.is_empty() {
        return Ok(BatchWriteOutcome::Lost(lost));
    }
    let insert = "INSERT INTO fleet_results (scan, shard, position, address, port, state, matched, json, csv)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7 = 1, ?8, ?9)";
    link.execute_for_rows(insert, rows)?;
    Ok(BatchWriteOutcome::Now)
}

/// True if the shard's batch was written before, and only its answer was lost.
fn is_written(link: &DatabaseConnection, scan: i64, lease: &ShardLease) -> Result<bool, DatabaseError> {
    let query =
        "SELECT count(*) FROM fleet_shards WHERE scan = ?1 AND number = ?2 AND token = ?3 AND step = ?4";
    let values = values![scan, signed(lease.number), lease.token, lease.step + 1];
    Ok(link.sole(query, values, |row| row.get::<i64>(0))? > 0)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
