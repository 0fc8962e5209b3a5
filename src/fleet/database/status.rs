//! States of scans.

use serde::Serialize;

use super::FleetDatabase;
use super::scans::of_pool;
use crate::database::{DatabaseError, QueryRow, values};
use crate::fleet::FleetError;
use crate::inventory::InventoryTime;
use crate::scan::targets::TargetCounts;

/// Limit of listed scans.
const LISTED: i64 = 100;

/// State of a scan.
#[derive(Debug, Clone, Serialize)]
pub struct ScanState {
    /// Its number.
    pub scan: i64,
    /// `open`, `done`, `cancelled`.
    pub state: String,
    /// Description of the scan.
    pub about: String,
    /// The role that ordered it.
    pub who: String,
    /// Time of the order.
    pub made: InventoryTime,
    /// Time of its end.
    pub ended: Option<InventoryTime>,
    /// Number of its targets.
    pub targets: i64,
    /// Number of finished targets.
    pub over: i64,
    /// Number of its shards.
    pub shards: i64,
    /// Number of shards that wait for a worker.
    pub ready: i64,
    /// Number of shards that a worker holds.
    pub leased: i64,
    /// Number of finished shards.
    pub done: i64,
    /// Number of shards that failed too often.
    pub parked: i64,
    /// Number of the schedule that began it.
    pub schedule: Option<i64>,
    /// The error of a shard that failed too often.
    pub error: Option<String>,
}

/// The way a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEnd {
    /// All targets are finished.
    Done,
    /// This many shards failed too often; the others are finished.
    Failed(i64),
    /// It was cancelled.
    Cancelled,
}

/// State of a scan with details.
#[derive(Debug, Clone, Serialize)]
pub struct ScanStatus {
    /// The state of the scan.
    #[serde(flatten)]
    pub scan: ScanState,
    /// The results of finished targets.
    pub counts: TargetCounts,
    /// Reasons why shards are parked or were reassigned.
    pub errors: Vec<ShardError>,
    /// Workers of the scan.
    pub workers: Vec<WorkerState>,
}

/// The last failure of a shard.
#[derive(Debug, Clone, Serialize)]
pub struct ShardError {
    /// Its number.
    pub shard: i64,
    /// `parked`, or its state since then.
    pub state: String,
    /// Number of failures since its last progress.
    pub attempts: i64,
    /// The error.
    pub error: String,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerState {
    /// Its name.
    pub name: String,
    /// Time of its last sign of life.
    pub seen: InventoryTime,
    /// Number of shards that it holds.
    pub shards: i64,
    /// Its limit of targets per second, if the scan has a limit.
    pub rate: Option<i64>,
}

const SCANS: &str =
    "SELECT id, f.state, about, who, made, f.ended, targets, CAST(coalesce(sum(over), 0) AS INTEGER), f.shards,
    count(*) FILTER (WHERE s.state = 'ready'), count(*) FILTER (WHERE s.state = 'leased'),
    count(*) FILTER (WHERE s.state = 'done'), count(*) FILTER (WHERE s.state = 'parked'),
    f.schedule, max(s.error) FILTER (WHERE s.state = 'parked')
  FROM fleet_scans f LEFT JOIN fleet_shards s ON s.scan = f.id";

impl FleetDatabase {
    /// Returns the last scans, the newest first, of a pool or of all.
    ///
    /// # Errors
    ///
    /// The database returns an error.
    pub fn scans(&self, pool: Option<&str>) -> Result<Vec<ScanState>, FleetError> {
        let of_pool = of_pool(2);
        let query = format!(
            "{SCANS} WHERE f.id IN (SELECT id FROM fleet_scans WHERE {of_pool}
               ORDER BY state = 'open' DESC, id DESC LIMIT ?1)
             GROUP BY f.id ORDER BY f.id DESC"
        );
        self.all(&query, values![LISTED, pool], state)
    }

    /// Returns the number of scans of a pool that have not ended.
    ///
    /// # Errors
    ///
    /// The database returns an error.
    pub fn count_open(&self, pool: &str) -> Result<i64, FleetError> {
        let query = "SELECT count(*) FROM fleet_scans WHERE state = 'open' AND pool = ?1";
        Ok(self.one(query, values![pool], |row| row.get(0))?.unwrap_or_default())
    }

    /// True if a scan is of a pool.
    ///
    /// # Errors
    ///
    /// The database returns an error.
    pub fn is_of_pool(&self, scan: i64, pool: &str) -> Result<bool, FleetError> {
        let query = "SELECT count(*) FROM fleet_scans WHERE id = ?1 AND pool = ?2";
        Ok(self.one(query, values![scan, pool], |row| row.get::<i64>(0))? > Some(0))
    }

    /// Returns the state of a scan.
    ///
    /// # Errors
    ///
    /// The scan does not exist.
    pub fn status(&self, scan: i64) -> Result<ScanState, FleetError> {
        let query = format!("{SCANS} WHERE f.id = ?1 GROUP BY f.id");
        self.one(&query, values![scan], state)?.ok_or(FleetError::NoScan(scan))
    }

    /// Returns how a scan ended; none if it has not ended.
    ///
    /// # Errors
    ///
    /// The scan does not exist.
    pub(in crate::fleet) fn end(&self, scan: i64) -> Result<Option<ScanEnd>, FleetError> {
        let query = "SELECT state, CASE WHEN state = 'open' THEN 0 ELSE (SELECT count(*) FROM fleet_shards s
               WHERE s.scan = f.id AND s.state = 'parked') END FROM fleet_scans f WHERE id = ?1";
        let end = self.one(query, values![scan], |row| {
            Ok(match (row.get::<String>(0)?.as_str(), row.get(1)?) {
                ("open", _) => None,
                ("cancelled", _) => Some(ScanEnd::Cancelled),
                (_, 0) => Some(ScanEnd::Done),
                (_, parked) => Some(ScanEnd::Failed(parked)),
            })
        })?;
        end.ok_or(FleetError::NoScan(scan))
    }

    /// Returns the state of a scan with details.
    ///
    /// # Errors
    ///
    /// The scan does not exist.
    pub fn described(&self, scan: i64) -> Result<ScanStatus, FleetError> {
        let state = self.status(scan)?;
        let mut counts = TargetCounts::default();
        let texts = self.all("SELECT counts FROM fleet_shards WHERE scan = ?1", values![scan], |row| {
            row.get::<String>(0)
        })?;
        for text in texts {
            counts.add(&serde_json::from_str(&text).unwrap_or_default());
        }
        let errors = "SELECT number, state, attempts, error FROM fleet_shards
             WHERE scan = ?1 AND error IS NOT NULL AND state <> 'done' ORDER BY state = 'parked' DESC, number LIMIT ?2";
        let errors = self.all(errors, values![scan, LISTED], |row| {
            Ok(ShardError {
                shard: row.get(0)?,
                state: row.get(1)?,
                attempts: row.get(2)?,
                error: row.get(3)?,
            })
        })?;
        let workers = "SELECT w.name, w.seen, count(s.number), (SELECT rate / 1000 FROM fleet_shares h
               WHERE h.scan = ?1 AND h.number = 0 AND h.worker = w.id AND h.expires > fleet_now())
             FROM fleet_workers w JOIN fleet_shards s ON s.worker = w.id AND s.state = 'leased' AND s.scan = ?1
             GROUP BY w.id ORDER BY w.name, w.id";
        let workers = self.all(workers, values![scan], |row| {
            let seen = InventoryTime::from_millis(row.get(1)?);
            Ok(WorkerState { name: row.get(0)?, seen, shards: row.get(2)?, rate: row.get(3)? })
        })?;
        Ok(ScanStatus { scan: state, counts, errors, workers })
    }
}

fn state(row: &QueryRow<'_>) -> Result<ScanState, DatabaseError> {
    Ok(ScanState {
        scan: row.get(0)?,
        state: row.get(1)?,
        about: row.get(2)?,
        who: row.get(3)?,
        made: InventoryTime::from_millis(row.get(4)?),
        ended: row.get::<Option<i64>>(5)?.map(InventoryTime::from_millis),
        targets: row.get(6)?,
        over: row.get(7)?,
        shards: row.get(8)?,
        ready: row.get(9)?,
        leased: row.get(10)?,
        done: row.get(11)?,
        parked: row.get(12)?,
        schedule: row.get(13)?,
        error: row.get(14)?,
    })
}
