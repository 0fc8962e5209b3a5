//! Statements for operators: they submit, cancel and retry scans, and read the results.

use std::ops::ControlFlow;
use std::time::Duration;

use super::FleetDatabase;
use crate::database::{QueryRow, SqlParameter, values};
use crate::fleet::{FleetError, ScanOrder};

/// A scan to submit.
#[derive(Debug, Clone)]
pub struct ScanSubmission {
    /// Description for a person.
    pub about: String,
    /// The order of the scan.
    pub order: ScanOrder,
    /// Number of targets.
    pub targets: u64,
    /// Number of shards.
    pub shards: u64,
    /// Number of failures after which a shard is parked.
    pub attempts: u64,
    /// Limit of targets a second, of all workers together.
    pub rate: Option<u32>,
    /// The workers that may scan it; none for those without a pool.
    pub pool: Option<String>,
    /// The person that requests it; the database's role if absent.
    pub who: Option<String>,
}

/// A scan as the tables store it.
pub(super) struct ScanEntry<'a> {
    pub(super) about: &'a str,
    pub(super) what: &'a str,
    pub(super) targets: i64,
    pub(super) shards: i64,
    pub(super) attempts: i64,
}

/// Returns the condition of rows of the pool in a parameter; of all rows if that is absent.
pub(super) fn of_pool(parameter: u8) -> String {
    format!("coalesce(pool, '') = coalesce(?{parameter}, pool, '')")
}

impl FleetDatabase {
    /// Submits a scan, which the server divides into shards. Returns its number.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn submit(&self, submission: &ScanSubmission) -> Result<i64, FleetError> {
        let what = submission.what();
        let ScanEntry { about, what, targets, shards, attempts } = submission.entry(&what);
        let pool = submission.pool.as_ref();
        let (column, place) = submission.who_column(7);
        let scan = format!(
            "INSERT INTO fleet_scans (about, what, targets, shards, attempts, pool{column})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6{place}) RETURNING id"
        );
        let mut values = values![about, what, targets, shards, attempts, pool].to_vec();
        values.extend(submission.who.as_ref().map(SqlParameter::from));
        let id = self.one(&scan, &values, |row| row.get(0))?;
        Ok(id.unwrap_or_default())
    }

    /// Cancels a scan: workers take no more shards of it, and stop working on it.
    ///
    /// # Errors
    /// No scan has that number, or it is over.
    pub fn cancel(&self, scan: i64) -> Result<(), FleetError> {
        let outcome = self.beside.in_transaction(|link| {
            let ended = "UPDATE fleet_scans SET state = 'cancelled', ended = fleet_now() WHERE id = ?1 AND state = 'open'";
            if link.execute(ended, values![scan])? == 0 {
                return Ok(false);
            }
            let shards = "UPDATE fleet_shards SET state = 'cancelled' WHERE scan = ?1 AND state IN ('ready', 'parked')";
            link.execute(shards, values![scan]).map(|_| true)
        });
        match outcome.map_err(|error| self.fault(error))? {
            true => Ok(()),
            false => Err(self.status(scan).map_or_else(|error| error, |_| FleetError::Over(scan, "is over"))),
        }
    }

    /// Releases parked shards for another attempt. Returns their number.
    ///
    /// # Errors
    /// There is no such scan, or it was cancelled.
    pub fn retry(&self, scan: i64) -> Result<usize, FleetError> {
        if self.status(scan)?.state == "cancelled" {
            return Err(FleetError::Over(scan, "was cancelled: submit it again"));
        }
        let again = self.beside.in_transaction(|link| {
            let shards =
                "UPDATE fleet_shards SET state = 'ready', attempts = 0 WHERE scan = ?1 AND state = 'parked'";
            let shards = link.execute(shards, values![scan])?;
            if shards > 0 {
                link.execute(
                    "UPDATE fleet_scans SET state = 'open', ended = NULL WHERE id = ?1",
                    values![scan],
                )?;
            }
            Ok(shards)
        });
        again.map_err(|error| self.fault(error))
    }

    /// Removes scans and their results from the tables. Their records in the inventory stay.
    ///
    /// # Errors
    /// There is no such scan, or it is not over.
    pub fn forget(&self, scans: &[i64]) -> Result<(), FleetError> {
        for scan in scans {
            if self.status(*scan)?.state == "open" {
                return Err(FleetError::Over(*scan, "is not over: cancel it first"));
            }
        }
        let query = "DELETE FROM fleet_scans WHERE id = ?1 AND state <> 'open'";
        let forgotten = self.beside.in_transaction(|link| {
            scans.iter().try_for_each(|scan| link.execute(query, values![*scan]).map(|_| ()))
        });
        forgotten.map_err(|error| self.fault(error))
    }

    /// Removes all scans that ended before this time by the server's clock. Returns their number.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn forget_older(&self, time: Duration) -> Result<usize, FleetError> {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let query = "DELETE FROM fleet_scans WHERE state <> 'open' AND ended <= fleet_now() - ?1";
        self.beside.link().execute(query, values![millis]).map_err(|error| self.fault(error))
    }

    /// Passes the results of a scan's targets, as events in JSON or as records, in the order of the scan.
    ///
    /// # Errors
    /// There is no such scan, or errors of `show`.
    pub fn results(
        &self,
        scan: i64,
        as_csv: bool,
        mut show: impl FnMut(&str) -> Result<(), FleetError>,
    ) -> Result<(), FleetError> {
        self.status(scan)?;
        let column = if as_csv { "csv" } else { "json" };
        let query = format!("SELECT {column} FROM fleet_results WHERE scan = ?1 ORDER BY shard, position");
        let show = |row: &QueryRow<'_>| show(&row.get::<String>(0)?).map(ControlFlow::Continue);
        self.beside.link().each(&query, values![scan], show)
    }
}

impl ScanSubmission {
    /// Returns the submission of a scan in one shard, which is tried once.
    pub fn new(about: String, order: ScanOrder, targets: u64, rate: Option<u32>) -> Self {
        Self { about, order, targets, shards: 1, attempts: 1, rate, pool: None, who: None }
    }

    /// Returns the column of the person and the place of its value, or nothing for the column's default.
    pub(super) fn who_column(&self, number: u8) -> (&'static str, String) {
        if self.who.is_some() { (", who", format!(", ?{number}")) } else { ("", String::new()) }
    }

    /// Returns the order as it is stored in the tables.
    pub(super) fn what(&self) -> String {
        serde_json::to_string(&StoredScanOrder { rate: self.rate, order: self.order.clone() })
            .unwrap_or_default()
    }

    pub(super) fn entry<'a>(&'a self, what: &'a str) -> ScanEntry<'a> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        ScanEntry {
            about: &self.about,
            what,
            targets: number(self.targets),
            shards: number(self.shards),
            attempts: number(self.attempts),
        }
    }
}

/// The order of a scan, and its rate.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct StoredScanOrder {
    pub(super) rate: Option<u32>,
    pub(super) order: ScanOrder,
}
