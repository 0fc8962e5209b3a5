//! The inventory in a few numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::{Sqlite, Time, rank};
use crate::inventory::store::StoreError;

/// How much there is, and what is new.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Overview {
    /// Hosts.
    pub hosts: i64,
    /// Servers that are there.
    pub servers: i64,
    /// Servers that were there.
    pub gone: i64,
    /// What hosts are as clients.
    pub clients: i64,
    /// Findings by severity: services and clients, the gravest first.
    pub severities: Vec<(String, i64)>,
    /// Changes of the last 24 hours, by kind, the most frequent first.
    pub changes: Vec<(String, i64)>,
    /// Changes of each of the last 24 hours, the latest last.
    pub hours: Vec<i64>,
    /// Whether there were more changes than are counted.
    pub more: bool,
    /// What was stopped, the latest first.
    pub stopped: Vec<Stopped>,
}

/// A rule that has stopped connections.
#[derive(Debug, Clone, Serialize)]
pub struct Stopped {
    /// Its id.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// How often.
    pub blocked: i64,
    /// At how many services, or of how many clients.
    pub services: i64,
    /// When it was last told.
    pub last_seen: Time,
}

/// Rules that have stopped something, at most.
const STOPPED: i64 = 10;

/// Changes that are counted: what came before them in a day as busy as that is not.
const COUNTED: i64 = 100_000;

const HOURS: usize = 24;
const HOUR: i64 = 3_600_000;

impl Sqlite {
    /// How much there is at `now`.
    ///
    /// # Errors
    /// What the database says.
    pub fn overview(&self, now: Time) -> Result<Overview, StoreError> {
        self.sum_up(now).map_err(|error| self.fault(error))
    }

    fn sum_up(&self, now: Time) -> rusqlite::Result<Overview> {
        let connection = &self.connection;
        let mut overview = Overview {
            hosts: connection.query_row("SELECT count(*) FROM hosts", [], |row| row.get(0))?,
            ..Overview::default()
        };
        let mut statement =
            connection.prepare_cached("SELECT side, state, count(*) FROM services GROUP BY 1, 2")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (side, state, count): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            *match (side.as_str(), state.as_str()) {
                ("client", _) => &mut overview.clients,
                (_, "gone") => &mut overview.gone,
                _ => &mut overview.servers,
            } += count;
        }
        let mut statement = connection.prepare_cached(
            "SELECT severity, count(*) FROM (SELECT DISTINCT severity, service FROM findings WHERE state = 'open') GROUP BY 1",
        )?;
        let severities = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        overview.severities = severities.collect::<Result<_, _>>()?;
        overview.severities.sort_by_key(|(severity, _)| std::cmp::Reverse(rank(severity)));
        self.count_changes(now.before(Duration::from_secs(24 * 3_600)).millis(), &mut overview)?;
        let mut statement = connection.prepare_cached(
            "SELECT rule, title, severity, sum(blocked), count(DISTINCT service), max(last_seen)
             FROM findings WHERE blocked > 0 GROUP BY rule ORDER BY 6 DESC LIMIT ?1",
        )?;
        let stopped = statement.query_map([STOPPED], |row| {
            Ok(Stopped {
                rule: row.get(0)?,
                title: row.get(1)?,
                severity: row.get(2)?,
                blocked: row.get(3)?,
                services: row.get(4)?,
                last_seen: Time(row.get(5)?),
            })
        })?;
        overview.stopped = stopped.collect::<Result<_, _>>()?;
        Ok(overview)
    }

    /// Changes after `since`, by kind and by hour.
    fn count_changes(&self, since: i64, overview: &mut Overview) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(
            "SELECT kind, (at - ?1 - 1) / ?2, count(*)
             FROM (SELECT kind, at FROM changes WHERE at > ?1 ORDER BY at DESC LIMIT ?3) GROUP BY 1, 2",
        )?;
        let mut rows = statement.query([since, HOUR, COUNTED])?;
        let (mut kinds, mut counted) = (BTreeMap::<String, i64>::new(), 0);
        overview.hours = vec![0; HOURS];
        while let Some(row) = rows.next()? {
            let (kind, hour, count): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            *kinds.entry(kind).or_default() += count;
            counted += count;
            if let Some(sum) = usize::try_from(hour).ok().and_then(|hour| overview.hours.get_mut(hour)) {
                *sum += count;
            }
        }
        overview.changes = kinds.into_iter().collect();
        overview.changes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        overview.more = counted >= COUNTED;
        Ok(())
    }
}
