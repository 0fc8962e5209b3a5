//! Repeated scans. Any worker starts those that are due, each once.

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

/// Reason of a missed start.
const NOBODY: &str = "no worker was running";

/// Limit of missed runs that are counted at once.
const COUNTED: u64 = 10_000;

/// A repeated scan.
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
    /// The reason.
    pub missed_why: Option<String>,
}

/// A schedule that is due.
struct DueSchedule {
    id: i64,
    cron: String,
    due: InventoryTime,
    runs: bool,
}

impl FleetDatabase {
    /// Repeats a scan. Returns the schedule's number.
    ///
    /// # Errors
    /// The database returns an error.
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

    /// Removes a schedule, of a pool or of any. Scans that it has started continue.
    ///
    /// # Errors
    /// No schedule has that number.
    pub fn unschedule(&self, id: i64, pool: Option<&str>) -> Result<(), FleetError> {
        let query = format!("DELETE FROM fleet_schedules WHERE id = ?1 AND {}", of_pool(2));
        let gone = self.beside.link().execute(&query, values![id, pool]);
        match gone.map_err(|error| self.fault(error))? {
            0 => Err(FleetError::NoSchedule(id)),
            _ => Ok(()),
        }
    }

    /// Returns all schedules, of a pool or of all.
    ///
    /// # Errors
    /// The database returns an error.
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

    /// Returns the time by the server's clock.
    fn now(&self) -> Result<InventoryTime, FleetError> {
        let now = self.one("SELECT fleet_now()", &[], |row| row.get(0))?;
        Ok(InventoryTime::from_millis(now.unwrap_or_default()))
    }

    /// Starts the scan that is due by the server's clock. It counts as missed if it is too late, or if the
    /// previous one still runs.
    ///
    /// # Errors
    /// The database returns an error.
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
        // A schedule that is never due again stays in the list.
        let next = next.map_or(now.millis() + YEAR, InventoryTime::millis);
        let is_late = now.millis() - last.millis() > LATE;
        let why = if runs { Some("the previous scan still runs") } else { is_late.then_some(NOBODY) };
        // The last of the due starts may still begin if it was a moment ago.
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
        // None if another worker was faster.
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
