//! Scans that begin again and again. Whichever worker is there begins what is due, and each once.

use serde::Serialize;

use super::scans::{ScanEntry, of_pool};
use super::{FleetDatabase, file};
use crate::database::{DatabaseError, QueryRow, SqlParameter, values};
use crate::diagnostics::log_line;
use crate::fleet::{CronSchedule, FleetError, ScanSubmission};
use crate::inventory::InventoryTime;

/// Maximum delay of a scheduled scan, in milliseconds. Beyond it, the scan counts as missed.
const LATE: i64 = 5 * 60_000;

/// Time after which a schedule that is never due is checked again, in milliseconds.
const YEAR: i64 = 366 * 86_400_000;

/// Why nothing began.
const NOBODY: &str = "no worker was running";

/// Runs that are counted as missed at most, at once.
const COUNTED: u64 = 10_000;

/// A scan that begins again and again.
#[derive(Debug, Clone, Serialize)]
pub struct ScheduledScan {
    /// The schedule's number.
    pub schedule: i64,
    /// The times: `every 6h`, `daily 03:30 Europe/Berlin` or a crontab.
    pub cron: String,
    /// Description of the scan.
    pub about: String,
    /// The role that created it.
    pub who: String,
    /// Time at which it is due next.
    pub due: InventoryTime,
    /// Number of times that it was due and did not start.
    pub missed: i64,
    /// Time and reason of the last miss.
    pub missed_at: Option<InventoryTime>,
    /// Why.
    pub missed_why: Option<String>,
}

/// One that is due.
struct DueSchedule {
    id: i64,
    cron: String,
    due: InventoryTime,
    runs: bool,
}

impl FleetDatabase {
    /// Has a scan begin again and again; the schedule's number.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedule(&self, cron: &CronSchedule, submission: &ScanSubmission) -> Result<i64, FleetError> {
        let now = self.now()?;
        let due = cron.next(now).ok_or(FleetError::NeverDue)?;
        let what = submission.what();
        let ScanEntry { about, what, targets, shards, attempts } = submission.entry(&what);
        let (gap, longest) = cron.gaps(now).unwrap_or((YEAR, YEAR));
        let (pool, (column, place)) = (submission.pool.as_ref(), submission.who_column(11));
        let query = format!(
            "INSERT INTO fleet_schedules (about, what, targets, shards, attempts, cron, due, gap, longest,
               pool{column}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10{place}) RETURNING id"
        );
        let (cron, due) = (cron.text(), due.millis());
        let mut values =
            values![about, what, targets, shards, attempts, cron, due, gap, longest, pool].to_vec();
        values.extend(submission.who.as_ref().map(SqlParameter::from));
        let id = self.one(&query, &values, |row| row.get(0))?;
        Ok(id.unwrap_or_default())
    }

    /// Forgets a schedule, of a pool or of any; what it has begun goes on.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn unschedule(&self, id: i64, pool: Option<&str>) -> Result<(), FleetError> {
        let query = format!("DELETE FROM fleet_schedules WHERE id = ?1 AND {}", of_pool(2));
        let gone = self.beside.link().execute(&query, values![id, pool]);
        match gone.map_err(|error| self.fault(error))? {
            0 => Err(FleetError::NoSchedule(id)),
            _ => Ok(()),
        }
    }

    /// All schedules, of a pool or of all.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedules(&self, pool: Option<&str>) -> Result<Vec<ScheduledScan>, FleetError> {
        let query = format!(
            "SELECT id, cron, about, who, due, missed, missed_at, missed_why FROM fleet_schedules
             WHERE {} ORDER BY id",
            of_pool(1)
        );
        self.all(&query, values![pool], |row| {
            Ok(ScheduledScan {
                schedule: row.get(0)?,
                cron: row.get(1)?,
                about: row.get(2)?,
                who: row.get(3)?,
                due: InventoryTime::from_millis(row.get(4)?),
                missed: row.get(5)?,
                missed_at: row.get::<Option<i64>>(6)?.map(InventoryTime::from_millis),
                missed_why: row.get(7)?,
            })
        })
    }

    /// The time by the server's clock.
    fn now(&self) -> Result<InventoryTime, FleetError> {
        let now = self.one("SELECT fleet_now()", &[], |row| row.get(0))?;
        Ok(InventoryTime::from_millis(now.unwrap_or_default()))
    }

    /// Begins what is due by the server's clock, unless that is too late or still runs from before: that was
    /// missed then.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::fleet) fn begin_due(
        &self,
        now: InventoryTime,
        pool: Option<&str>,
    ) -> Result<(), DatabaseError> {
        let due = "SELECT id, cron, due, EXISTS (SELECT 1 FROM fleet_scans f WHERE f.schedule = s.id AND f.state = 'open')
             FROM fleet_schedules s WHERE due <= ?1 AND s.pool IS NOT DISTINCT FROM ?2 ORDER BY id LIMIT 1";
        let link = self.beside.link();
        let Some(DueSchedule { id, cron, due, runs }) =
            link.one(due, values![now.millis(), pool], DueSchedule::read)?
        else {
            return Ok(());
        };
        let cron = cron.parse::<CronSchedule>().ok();
        let (more, last) = cron.as_ref().map_or((0, due), |cron| cron.due(due, now, COUNTED));
        let next = cron.as_ref().and_then(|cron| cron.next(last));
        // What is never due again is kept for whoever looks.
        let next = next.map_or(now.millis() + YEAR, InventoryTime::millis);
        let is_late = now.millis() - last.millis() > LATE;
        let why = if runs { Some("the previous scan still runs") } else { is_late.then_some(NOBODY) };
        // The last of those that were due may begin still, where that was a moment ago.
        let (begins, missed) = (why.is_none(), more + u64::from(why.is_some()));
        let why = (missed > 0).then(|| why.unwrap_or(NOBODY));
        let times = i64::try_from(missed).unwrap_or(i64::MAX);
        let values =
            [id.into(), next.into(), i64::from(begins).into(), times.into(), SqlParameter::from(why)];
        let begun: Option<i64> = if link.is_file() {
            self.beside.in_transaction(|link| file::begin(link, &values))?
        } else {
            link.one("SELECT fleet_begin(?1, ?2, ?3 = 1, ?4, ?5)", &values, |row| row.get(0))?.flatten()
        };
        // None where another worker was quicker.
        let Some(scan) = begun else { return Ok(()) };
        if scan > 0 {
            log_line(format_args!("bannerwall: scan #{scan} starts, by schedule #{id}"));
        }
        if let Some(why) = why {
            log_line(format_args!("bannerwall: schedule #{id}: missed starts: {missed}: {why}"));
        }
        Ok(())
    }
}

impl DueSchedule {
    fn read(row: &QueryRow<'_>) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.get(0)?,
            cron: row.get(1)?,
            due: InventoryTime::from_millis(row.get(2)?),
            runs: row.get(3)?,
        })
    }
}
