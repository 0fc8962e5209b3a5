//! Scans that begin again and again. Whichever worker is there begins what is due, and each once.

use serde::Serialize;

use super::Queue;
use super::orders::{Entry, enter};
use crate::diagnostics::tell;
use crate::fleet::{Cron, FleetError, Submission};
use crate::inventory::{DatabaseError, Row, Time, Value, values};

/// How much later than it was due a scan may begin, in milliseconds: what is due longer was missed.
const LATE: i64 = 5 * 60_000;

/// Why nothing began.
const NOBODY: &str = "no worker was there";

/// Runs that are counted as missed at most, at once.
const COUNTED: u64 = 10_000;

/// A scan that begins again and again.
#[derive(Debug, Clone, Serialize)]
pub struct Planned {
    /// The schedule's number.
    pub schedule: i64,
    /// When: a crontab.
    pub cron: String,
    /// What is scanned.
    pub about: String,
    /// Who has made it.
    pub who: String,
    /// When it is due next.
    pub due: Time,
    /// How often it was due and did not begin.
    pub missed: i64,
    /// When that was noticed last, and why.
    pub missed_at: Option<Time>,
    /// Why.
    pub missed_why: Option<String>,
}

/// One that is due.
struct Due {
    id: i64,
    cron: String,
    due: Time,
    about: String,
    what: String,
    targets: i64,
    shards: i64,
    attempts: i64,
    runs: bool,
}

impl Queue {
    /// Has a scan begin again and again; the schedule's number.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedule(&self, cron: &Cron, submission: &Submission) -> Result<i64, FleetError> {
        let now = self.now()?;
        let due = cron.next(now).ok_or(FleetError::NeverDue)?;
        let what = submission.what();
        let Entry { about, what, targets, shards, attempts } = submission.entry(&what);
        let query = "INSERT INTO fleet_schedules (about, what, targets, shards, attempts, cron, due)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id";
        let values = values![about, what, targets, shards, attempts, cron.text(), due.millis()];
        let id = self.one(query, values, |row| row.get(0))?;
        Ok(id.unwrap_or_default())
    }

    /// Forgets a schedule; what it has begun goes on.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn unschedule(&self, id: i64) -> Result<(), FleetError> {
        let gone = self.beside.desk().execute("DELETE FROM fleet_schedules WHERE id = ?1", values![id]);
        match gone.map_err(|error| self.fault(error))? {
            0 => Err(FleetError::NoSchedule(id)),
            _ => Ok(()),
        }
    }

    /// All schedules.
    ///
    /// # Errors
    /// What the database says.
    pub fn schedules(&self) -> Result<Vec<Planned>, FleetError> {
        let query = "SELECT id, cron, about, who, due, missed, missed_at, missed_why FROM fleet_schedules ORDER BY id";
        self.all(query, &[], |row| {
            Ok(Planned {
                schedule: row.get(0)?,
                cron: row.get(1)?,
                about: row.get(2)?,
                who: row.get(3)?,
                due: Time::from_millis(row.get(4)?),
                missed: row.get(5)?,
                missed_at: row.get::<Option<i64>>(6)?.map(Time::from_millis),
                missed_why: row.get(7)?,
            })
        })
    }

    /// The time by the server's clock.
    fn now(&self) -> Result<Time, FleetError> {
        let now = self.one("SELECT fleet_now()", &[], |row| row.get(0))?;
        Ok(Time::from_millis(now.unwrap_or_default()))
    }

    /// Begins what is due by the server's clock, unless that is too late or still runs from before: that was missed then.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::fleet) fn begin_due(&self, now: Time) -> Result<(), DatabaseError> {
        self.beside.together(|desk| {
            let due = "SELECT id, cron, due, about, what, targets, shards, attempts,
                   EXISTS (SELECT FROM fleet_scans f WHERE f.schedule = s.id AND f.state = 'open')
                 FROM fleet_schedules s WHERE due <= ?1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
            let Some(due) = desk.one(due, values![now.millis()], Due::read)? else { return Ok(()) };
            let cron = due.cron.parse::<Cron>().ok();
            let next = cron.as_ref().and_then(|cron| cron.next(now));
            // What is never due again is kept for whoever looks, and looked at once a year.
            let next = next.map_or(now.millis() + 366 * 86_400_000, Time::millis);
            let (more, last) = cron.map_or((0, due.due), |cron| cron.due(due.due, now, COUNTED));
            let is_late = now.millis() - last.millis() > LATE;
            let why =
                if due.runs { Some("the scan before still runs") } else { is_late.then_some(NOBODY) };
            // The last of those that were due may begin still, where that was a moment ago.
            let missed = more + u64::from(why.is_some());
            if why.is_none() {
                let Due { about, what, targets, shards, attempts, .. } = &due;
                let (targets, shards, attempts) = (*targets, *shards, *attempts);
                let scan = enter(desk, &Entry { about, what, targets, shards, attempts }, Some(due.id))?;
                tell(format_args!("bannerwall: scan #{scan} begins, as schedule #{} says", due.id));
            }
            let why = (missed > 0).then(|| why.unwrap_or(NOBODY));
            if let Some(why) = why {
                tell(format_args!("bannerwall: schedule #{} was due and missed, {missed} times: {why}", due.id));
            }
            let noticed = why.map(|_| now.millis());
            let update = "UPDATE fleet_schedules SET due = ?2, missed = missed + ?3, missed_at = coalesce(?4, missed_at),
                 missed_why = coalesce(?5, missed_why) WHERE id = ?1";
            let missed = i64::try_from(missed).unwrap_or(i64::MAX);
            let values = [due.id.into(), next.into(), missed.into(), Value::from(noticed), Value::from(why)];
            desk.execute(update, &values).map(drop)
        })
    }
}

impl Due {
    fn read(row: &Row<'_>) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.get(0)?,
            cron: row.get(1)?,
            due: Time::from_millis(row.get(2)?),
            about: row.get(3)?,
            what: row.get(4)?,
            targets: row.get(5)?,
            shards: row.get(6)?,
            attempts: row.get(7)?,
            runs: row.get(8)?,
        })
    }
}
