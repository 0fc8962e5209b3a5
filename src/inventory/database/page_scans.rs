//! Scans that were started from the page, and their schedules.

use serde::Serialize;

use super::{InventoryDatabase, InventoryTime};
use crate::database::{DatabaseConnection, QueryRow, SqlParameter};
use crate::database::{DatabaseError, values};
use crate::inventory::store::StoreError;

/// Number of scans that are kept.
const KEPT: i64 = 1_000;

/// A scan that was started from the page.
#[derive(Debug, Clone, Serialize)]
pub struct PastPageScan {
    /// Its number.
    pub id: i64,
    /// The schedule that started it, if one did.
    pub schedule: Option<i64>,
    /// The scan's settings as JSON.
    #[serde(skip)]
    pub about: String,
    /// The user who started it.
    pub who: String,
    /// Machine and address of the page that runs it.
    pub page: String,
    /// Time of the start.
    pub started: InventoryTime,
    /// Time of the end; none while it runs.
    pub ended: Option<InventoryTime>,
    /// Its exit status.
    pub code: Option<i32>,
    /// Its last message.
    pub said: String,
}

/// A scan that is repeated.
#[derive(Debug, Clone, Serialize)]
pub struct ScanSchedule {
    /// Its number.
    pub id: i64,
    /// The scan's settings as JSON.
    #[serde(skip)]
    pub about: String,
    /// The interval: `every 6h`, `daily 03:30`.
    pub rhythm: String,
    /// The user who created it.
    pub who: String,
    /// Time of the next start.
    pub due: InventoryTime,
    /// Number of missed starts.
    pub missed: i64,
    /// Time of the last missed start.
    pub missed_at: Option<InventoryTime>,
}

impl InventoryDatabase {
    /// Records the start of a scan; returns its number.
    ///
    /// # Errors
    /// What the database says.
    pub fn begin_order(&self, about: &str, (who, page): (&str, &str)) -> Result<i64, StoreError> {
        let begin = || {
            let step = self.link.transaction()?;
            let id = enter(&step, None, about, (who, page))?;
            step.commit().map(|()| id)
        };
        begin().map_err(|error| self.fault(error))
    }

    /// Records the start of a due scan and its next time in one transaction. Returns its number; none if
    /// another page was faster.
    ///
    /// # Errors
    /// What the database says.
    pub fn begin_due(
        &self,
        schedule: &ScanSchedule,
        next: InventoryTime,
        page: &str,
    ) -> Result<Option<i64>, StoreError> {
        let begin = || {
            let step = self.link.transaction()?;
            if !take(&step, schedule, next, 0)? {
                return Ok(None);
            }
            let id = enter(&step, Some(schedule.id), &schedule.about, (&schedule.who, page))?;
            step.commit().map(|()| Some(id))
        };
        begin().map_err(|error| self.fault(error))
    }

    /// Records a heartbeat of a scan's page. If the page was only slow, this also revokes its recorded
    /// end.
    ///
    /// # Errors
    /// What the database says.
    pub fn beat(&self, id: i64) -> Result<(), StoreError> {
        let query = "UPDATE orders SET beat = beat + 1, ended = NULL, said = '' WHERE id = ?1";
        self.change(query, values![id]).map(drop)
    }

    /// Returns the numbers of running scans, with the number of heartbeats of each.
    ///
    /// # Errors
    /// What the database says.
    pub fn beats(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        let query = "SELECT id, beat FROM orders WHERE ended IS NULL";
        let read = |row: &QueryRow<'_>| Ok((row.get(0)?, row.get(1)?));
        self.link.all(query, &[], read).map_err(|error| self.fault(error))
    }

    /// Records that a scan's page is gone, unless it has sent a heartbeat meanwhile; returns true if
    /// recorded.
    ///
    /// # Errors
    /// What the database says.
    pub fn end_if_silent(&self, (id, beat): (i64, i64)) -> Result<bool, StoreError> {
        // The number of the heartbeat is compared, not a time: the clocks of two machines may differ.
        let query = "UPDATE orders SET ended = ?3, said = 'its page sends no heartbeats'
             WHERE id = ?1 AND beat = ?2 AND ended IS NULL";
        self.change(query, values![id, beat, InventoryTime::now().millis()]).map(|count| count > 0)
    }

    /// Records the end of a scan.
    ///
    /// # Errors
    /// What the database says.
    pub fn end_order(&self, id: i64, code: Option<i32>, said: &str) -> Result<(), StoreError> {
        let query = "UPDATE orders SET ended = ?2, code = ?3, said = ?4 WHERE id = ?1";
        self.change(query, values![id, InventoryTime::now().millis(), code, said]).map(drop)
    }

    /// Records the end of a page's scans that started before this time and that it did not survive.
    ///
    /// # Errors
    /// What the database says.
    pub fn end_orders_of(&self, page: &str, before: InventoryTime) -> Result<usize, StoreError> {
        let query = "UPDATE orders SET ended = ?2, said = 'the page stopped'
             WHERE page = ?1 AND ended IS NULL AND started < ?3";
        self.change(query, values![page, InventoryTime::now().millis(), before.millis()])
    }

    /// Returns the page that runs a scan; none if it does not run.
    ///
    /// # Errors
    /// What the database says.
    pub fn runs_at(&self, id: i64) -> Result<Option<String>, StoreError> {
        let query = "SELECT page FROM orders WHERE id = ?1 AND ended IS NULL";
        self.link.one(query, values![id], |row| row.get(0)).map_err(|error| self.fault(error))
    }

    /// Returns true if a scan of a schedule is running.
    ///
    /// # Errors
    /// What the database says.
    pub fn is_running(&self, schedule: i64) -> Result<bool, StoreError> {
        let query = "SELECT count(*) FROM orders WHERE schedule = ?1 AND ended IS NULL";
        let count = self.link.sole(query, values![schedule], |row| row.get::<i64>(0));
        Ok(count.map_err(|error| self.fault(error))? > 0)
    }

    /// Returns the last scans: running ones first, then the others, newest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn orders(&self, most: i64) -> Result<Vec<PastPageScan>, StoreError> {
        let query = "SELECT id, schedule, about, who, page, started, ended, code, said FROM orders
             ORDER BY CASE WHEN ended IS NULL THEN 0 ELSE 1 END, id DESC LIMIT ?1";
        let read = |row: &QueryRow<'_>| {
            Ok(PastPageScan {
                id: row.get(0)?,
                schedule: row.get(1)?,
                about: row.get(2)?,
                who: row.get(3)?,
                page: row.get(4)?,
                started: InventoryTime::from_millis(row.get(5)?),
                ended: row.get::<Option<i64>>(6)?.map(InventoryTime::from_millis),
                code: row.get(7)?,
                said: row.get(8)?,
            })
        };
        self.link.all(query, values![most], read).map_err(|error| self.fault(error))
    }

    /// Adds a schedule; returns its number, which no listed scan has used.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedule(
        &self,
        about: &str,
        rhythm: &str,
        who: &str,
        due: InventoryTime,
    ) -> Result<i64, StoreError> {
        // A number is never used again, even after the schedule is deleted, because its past scans
        // refer to it.
        let known = "SELECT max(coalesce(max(id), 0), coalesce((SELECT max(schedule) FROM orders), 0)) + 1
             FROM schedules";
        let query =
            "INSERT INTO schedules (id, about, rhythm, who, made, due) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let enter = || {
            let step = self.link.transaction()?;
            let id = step.sole(known, &[], |row| row.get::<i64>(0))?;
            step.execute(
                query,
                values![id, about, rhythm, who, InventoryTime::now().millis(), due.millis()],
            )?;
            step.commit().map(|()| id)
        };
        enter().map_err(|error| self.fault(error))
    }

    /// Removes a schedule; returns true if it existed.
    ///
    /// # Errors
    /// What the database says.
    pub fn unschedule(&self, id: i64) -> Result<bool, StoreError> {
        self.change("DELETE FROM schedules WHERE id = ?1", values![id]).map(|count| count > 0)
    }

    /// Returns all schedules.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedules(&self) -> Result<Vec<ScanSchedule>, StoreError> {
        let query = "SELECT id, about, rhythm, who, due, missed, missed_at FROM schedules ORDER BY id";
        let read = |row: &QueryRow<'_>| {
            Ok(ScanSchedule {
                id: row.get(0)?,
                about: row.get(1)?,
                rhythm: row.get(2)?,
                who: row.get(3)?,
                due: InventoryTime::from_millis(row.get(4)?),
                missed: row.get(5)?,
                missed_at: row.get::<Option<i64>>(6)?.map(InventoryTime::from_millis),
            })
        };
        self.link.all(query, &[], read).map_err(|error| self.fault(error))
    }

    /// Claims a due start; returns false if another page was faster.
    ///
    /// # Errors
    /// What the database says.
    pub fn claim_due(
        &self,
        schedule: &ScanSchedule,
        next: InventoryTime,
        missed: u64,
    ) -> Result<bool, StoreError> {
        take(&self.link, schedule, next, missed).map_err(|error| self.fault(error))
    }

    fn change(&self, query: &str, values: &[SqlParameter<'_>]) -> Result<usize, StoreError> {
        self.link.execute(query, values).map_err(|error: DatabaseError| self.fault(error))
    }
}

/// Inserts a scan, and removes the oldest.
fn enter(
    link: &DatabaseConnection,
    schedule: Option<i64>,
    about: &str,
    (who, page): (&str, &str),
) -> Result<i64, DatabaseError> {
    let id = link.sole(
        "INSERT INTO orders (schedule, about, who, page, started) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
        values![schedule, about, who, page, InventoryTime::now().millis()],
        |row| row.get::<i64>(0),
    )?;
    // A running scan stays, however old it is: its page still updates the row.
    link.execute("DELETE FROM orders WHERE id <= ?1 AND ended IS NOT NULL", values![id - KEPT])?;
    Ok(id)
}

/// See [`InventoryDatabase::claim_due`].
fn take(
    link: &DatabaseConnection,
    schedule: &ScanSchedule,
    next: InventoryTime,
    missed: u64,
) -> Result<bool, DatabaseError> {
    let missed = i64::try_from(missed).unwrap_or(i64::MAX);
    let noticed = (missed > 0).then(|| InventoryTime::now().millis());
    // The old due time in the condition decides a race: of several pages, the one whose UPDATE finds it starts
    // the scan.
    let query = "UPDATE schedules SET due = ?3, missed = missed + ?4, missed_at = coalesce(?5, missed_at)
         WHERE id = ?1 AND due = ?2";
    let values = values![schedule.id, schedule.due.millis(), next.millis(), missed, noticed];
    link.execute(query, values).map(|count| count > 0)
}
