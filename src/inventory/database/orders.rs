//! Scans that were started from the page, and those that are to be.

use serde::Serialize;

use super::link::{Link, Row};
use super::{Database, DatabaseError, Time, values};
use crate::inventory::store::StoreError;

/// Orders that are kept.
const KEPT: i64 = 1_000;

/// A scan that was started from the page.
#[derive(Debug, Clone, Serialize)]
pub struct PastOrder {
    /// Its number.
    pub id: i64,
    /// The schedule that it is of.
    pub schedule: Option<i64>,
    /// What is scanned, as JSON.
    #[serde(skip)]
    pub about: String,
    /// Who has started it.
    pub who: String,
    /// Machine and address of the page that it was started by.
    pub page: String,
    /// When.
    pub started: Time,
    /// When it ended; none where it runs.
    pub ended: Option<Time>,
    /// Its exit status.
    pub code: Option<i32>,
    /// What it said last.
    pub said: String,
}

/// A scan that is started again and again.
#[derive(Debug, Clone, Serialize)]
pub struct Schedule {
    /// Its number.
    pub id: i64,
    /// What is scanned, as JSON.
    #[serde(skip)]
    pub about: String,
    /// How often: `every 6h`, `daily 03:30`.
    pub rhythm: String,
    /// Who has made it.
    pub who: String,
    /// When it is due next.
    pub due: Time,
    /// How often it was due and not started.
    pub missed: i64,
    /// When that was noticed last.
    pub missed_at: Option<Time>,
}

impl Database {
    /// Notes that a scan is started; its number.
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

    /// Takes what was due as dealt with and notes that it is started, both or neither; its number, none where
    /// another page was quicker.
    ///
    /// # Errors
    /// What the database says.
    pub fn begin_due(&self, schedule: &Schedule, next: Time, page: &str) -> Result<Option<i64>, StoreError> {
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

    /// Tells that the page of a scan is there still. Of one that was only slow it is no longer said that it
    /// is not.
    ///
    /// # Errors
    /// What the database says.
    pub fn beat(&self, id: i64) -> Result<(), StoreError> {
        let query = "UPDATE orders SET beat = beat + 1, ended = NULL, said = '' WHERE id = ?1";
        self.change(query, values![id]).map(drop)
    }

    /// The numbers of scans that have not ended, and how often it was told of each that its page is there.
    ///
    /// # Errors
    /// What the database says.
    pub fn beats(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        let query = "SELECT id, beat FROM orders WHERE ended IS NULL";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        self.link.all(query, &[], read).map_err(|error| self.fault(error))
    }

    /// Notes of a scan that its page is gone, unless that has told of it meanwhile; whether it was noted.
    ///
    /// # Errors
    /// What the database says.
    pub fn end_silent(&self, (id, beat): (i64, i64)) -> Result<bool, StoreError> {
        let query = "UPDATE orders SET ended = ?3, said = 'its page is not heard of any more'
             WHERE id = ?1 AND beat = ?2 AND ended IS NULL";
        self.change(query, values![id, beat, Time::now().millis()]).map(|count| count > 0)
    }

    /// Notes how a scan ended.
    ///
    /// # Errors
    /// What the database says.
    pub fn end_order(&self, id: i64, code: Option<i32>, said: &str) -> Result<(), StoreError> {
        let query = "UPDATE orders SET ended = ?2, code = ?3, said = ?4 WHERE id = ?1";
        self.change(query, values![id, Time::now().millis(), code, said]).map(drop)
    }

    /// Notes that those of a page that had begun before, and did not end, did not outlive it.
    ///
    /// # Errors
    /// What the database says.
    pub fn end_orders_of(&self, page: &str, before: Time) -> Result<usize, StoreError> {
        let query = "UPDATE orders SET ended = ?2, said = 'the page has ended meanwhile'
             WHERE page = ?1 AND ended IS NULL AND started < ?3";
        self.change(query, values![page, Time::now().millis(), before.millis()])
    }

    /// The page that runs a scan; none where it does not run.
    ///
    /// # Errors
    /// What the database says.
    pub fn runs_at(&self, id: i64) -> Result<Option<String>, StoreError> {
        let query = "SELECT page FROM orders WHERE id = ?1 AND ended IS NULL";
        self.link.one(query, values![id], |row| row.get(0)).map_err(|error| self.fault(error))
    }

    /// Whether a scan of a schedule has not ended.
    ///
    /// # Errors
    /// What the database says.
    pub fn is_running(&self, schedule: i64) -> Result<bool, StoreError> {
        let query = "SELECT count(*) FROM orders WHERE schedule = ?1 AND ended IS NULL";
        let count = self.link.sole(query, values![schedule], |row| row.get::<i64>(0));
        Ok(count.map_err(|error| self.fault(error))? > 0)
    }

    /// The last scans that were started: those that run, then the others, the newest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn orders(&self, most: i64) -> Result<Vec<PastOrder>, StoreError> {
        let query = "SELECT id, schedule, about, who, page, started, ended, code, said FROM orders
             ORDER BY CASE WHEN ended IS NULL THEN 0 ELSE 1 END, id DESC LIMIT ?1";
        let read = |row: &Row<'_>| {
            Ok(PastOrder {
                id: row.get(0)?,
                schedule: row.get(1)?,
                about: row.get(2)?,
                who: row.get(3)?,
                page: row.get(4)?,
                started: Time::from_millis(row.get(5)?),
                ended: row.get::<Option<i64>>(6)?.map(Time::from_millis),
                code: row.get(7)?,
                said: row.get(8)?,
            })
        };
        self.link.all(query, values![most], read).map_err(|error| self.fault(error))
    }

    /// Has a scan started again and again; its number, which none has had whose scans are still told of.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedule(&self, about: &str, rhythm: &str, who: &str, due: Time) -> Result<i64, StoreError> {
        let known = "SELECT max(coalesce(max(id), 0), coalesce((SELECT max(schedule) FROM orders), 0)) + 1
             FROM schedules";
        let query =
            "INSERT INTO schedules (id, about, rhythm, who, made, due) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let enter = || {
            let step = self.link.transaction()?;
            let id = step.sole(known, &[], |row| row.get::<i64>(0))?;
            step.execute(query, values![id, about, rhythm, who, Time::now().millis(), due.millis()])?;
            step.commit().map(|()| id)
        };
        enter().map_err(|error| self.fault(error))
    }

    /// Forgets a schedule; whether there was one.
    ///
    /// # Errors
    /// What the database says.
    pub fn unschedule(&self, id: i64) -> Result<bool, StoreError> {
        self.change("DELETE FROM schedules WHERE id = ?1", values![id]).map(|count| count > 0)
    }

    /// All schedules.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        let query = "SELECT id, about, rhythm, who, due, missed, missed_at FROM schedules ORDER BY id";
        let read = |row: &Row<'_>| {
            Ok(Schedule {
                id: row.get(0)?,
                about: row.get(1)?,
                rhythm: row.get(2)?,
                who: row.get(3)?,
                due: Time::from_millis(row.get(4)?),
                missed: row.get(5)?,
                missed_at: row.get::<Option<i64>>(6)?.map(Time::from_millis),
            })
        };
        self.link.all(query, &[], read).map_err(|error| self.fault(error))
    }

    /// Takes what was due as dealt with, so that nobody else does: whether it was still to be, or another
    /// page was quicker.
    ///
    /// # Errors
    /// What the database says.
    pub fn take_due(&self, schedule: &Schedule, next: Time, missed: u64) -> Result<bool, StoreError> {
        take(&self.link, schedule, next, missed).map_err(|error| self.fault(error))
    }

    fn change(&self, query: &str, values: &[super::link::Value<'_>]) -> Result<usize, StoreError> {
        self.link.execute(query, values).map_err(|error: DatabaseError| self.fault(error))
    }
}

/// Enters an order, and takes out the oldest.
fn enter(
    link: &Link,
    schedule: Option<i64>,
    about: &str,
    (who, page): (&str, &str),
) -> Result<i64, DatabaseError> {
    let id = link.sole(
        "INSERT INTO orders (schedule, about, who, page, started) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
        values![schedule, about, who, page, Time::now().millis()],
        |row| row.get::<i64>(0),
    )?;
    link.execute("DELETE FROM orders WHERE id <= ?1 AND ended IS NOT NULL", values![id - KEPT])?;
    Ok(id)
}

/// See [`Database::take_due`].
fn take(link: &Link, schedule: &Schedule, next: Time, missed: u64) -> Result<bool, DatabaseError> {
    let missed = i64::try_from(missed).unwrap_or(i64::MAX);
    let noticed = (missed > 0).then(|| Time::now().millis());
    let query = "UPDATE schedules SET due = ?3, missed = missed + ?4, missed_at = coalesce(?5, missed_at)
         WHERE id = ?1 AND due = ?2";
    let values = values![schedule.id, schedule.due.millis(), next.millis(), missed, noticed];
    link.execute(query, values).map(|count| count > 0)
}
