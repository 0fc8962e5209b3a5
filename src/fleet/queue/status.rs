//! How scans stand.

use serde::Serialize;

use super::Queue;
use crate::fleet::FleetError;
use crate::inventory::{DatabaseError, Row, Time, values};
use crate::scan::targets::Counts;

/// Scans that are listed.
const LISTED: i64 = 100;

/// How a scan stands.
#[derive(Debug, Clone, Serialize)]
pub struct ScanState {
    /// Its number.
    pub scan: i64,
    /// `open`, `done`, `cancelled`.
    pub state: String,
    /// What is scanned.
    pub about: String,
    /// Who has ordered it.
    pub who: String,
    /// When.
    pub made: Time,
    /// When it ended.
    pub ended: Option<Time>,
    /// All of its targets.
    pub targets: i64,
    /// Those that are over.
    pub over: i64,
    /// Its shards.
    pub shards: i64,
    /// Those that nobody has.
    pub ready: i64,
    /// Those that somebody has.
    pub leased: i64,
    /// Those that are over.
    pub done: i64,
    /// Those that have failed too often.
    pub parked: i64,
}

/// How a scan has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEnd {
    /// Each of its targets is over.
    Done,
    /// So many of its shards have failed too often, and the others are over.
    Failed(i64),
    /// It was cancelled.
    Cancelled,
}

/// The same in more words.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// How it stands.
    #[serde(flatten)]
    pub scan: ScanState,
    /// What came of the targets that are over.
    pub counts: Counts,
    /// Why shards are parked or were handed on.
    pub errors: Vec<ShardError>,
    /// Who works on it.
    pub workers: Vec<WorkerState>,
}

/// Why a shard failed last.
#[derive(Debug, Clone, Serialize)]
pub struct ShardError {
    /// Its number.
    pub shard: i64,
    /// `parked`, or how it stands since.
    pub state: String,
    /// How often it failed since it came forward.
    pub attempts: i64,
    /// Why.
    pub error: String,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerState {
    /// Its name.
    pub name: String,
    /// When it was heard of last.
    pub seen: Time,
    /// The shards that it has.
    pub shards: i64,
    /// Targets a second that it may ask, where the scan has a limit.
    pub rate: Option<i64>,
}

const SCANS: &str =
    "SELECT id, f.state, about, who, made, f.ended, targets, coalesce(sum(over), 0)::bigint, f.shards,
    count(*) FILTER (WHERE s.state = 'ready'), count(*) FILTER (WHERE s.state = 'leased'),
    count(*) FILTER (WHERE s.state = 'done'), count(*) FILTER (WHERE s.state = 'parked')
  FROM fleet_scans f LEFT JOIN fleet_shards s ON s.scan = f.id";

impl Queue {
    /// The last scans, the newest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn scans(&self) -> Result<Vec<ScanState>, FleetError> {
        let query = format!(
            "{SCANS} WHERE f.id IN (SELECT id FROM fleet_scans ORDER BY state = 'open' DESC, id DESC LIMIT ?1)
             GROUP BY f.id ORDER BY f.id DESC"
        );
        self.all(&query, values![LISTED], state)
    }

    /// How a scan stands.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn status(&self, scan: i64) -> Result<ScanState, FleetError> {
        let query = format!("{SCANS} WHERE f.id = ?1 GROUP BY f.id");
        self.one(&query, values![scan], state)?.ok_or(FleetError::NoScan(scan))
    }

    /// How a scan has ended; none where it has not.
    ///
    /// # Errors
    /// There is none of that number.
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

    /// The same in more words.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn described(&self, scan: i64) -> Result<Status, FleetError> {
        let state = self.status(scan)?;
        let mut counts = Counts::default();
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
            let seen = Time::from_millis(row.get(1)?);
            Ok(WorkerState { name: row.get(0)?, seen, shards: row.get(2)?, rate: row.get(3)? })
        })?;
        Ok(Status { scan: state, counts, errors, workers })
    }
}

fn state(row: &Row<'_>) -> Result<ScanState, DatabaseError> {
    Ok(ScanState {
        scan: row.get(0)?,
        state: row.get(1)?,
        about: row.get(2)?,
        who: row.get(3)?,
        made: Time::from_millis(row.get(4)?),
        ended: row.get::<Option<i64>>(5)?.map(Time::from_millis),
        targets: row.get(6)?,
        over: row.get(7)?,
        shards: row.get(8)?,
        ready: row.get(9)?,
        leased: row.get(10)?,
        done: row.get(11)?,
        parked: row.get(12)?,
    })
}
