//! Overview of the inventory in a few numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::services::SEVERITIES;
use crate::database::{DatabaseConnection, DatabaseError, values};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::inventory_time::InventoryTime;

/// Numbers of the inventory, and recent changes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct InventoryOverview {
    /// Number of hosts.
    pub hosts: i64,
    /// Number of servers that are present.
    pub servers: i64,
    /// Number of servers that are gone.
    pub gone: i64,
    /// Number of clients.
    pub clients: i64,
    /// Numbers of services and clients with open findings of each severity, the most severe first.
    pub severities: Vec<(String, i64)>,
    /// Numbers of changes of the last 24 hours, by kind, the most frequent first.
    pub changes: Vec<(String, i64)>,
    /// Numbers of changes of each of the last 24 hours, the latest last.
    pub hours: Vec<i64>,
    /// True if there were more changes than are counted.
    pub more: bool,
    /// Rules that blocked connections, the latest first.
    pub stopped: Vec<BlockingRule>,
}

/// A rule that has blocked connections.
#[derive(Debug, Clone, Serialize)]
pub struct BlockingRule {
    /// Its id.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// Number of blocked connections.
    pub blocked: i64,
    /// Number of services and clients with findings of it, open or gone.
    pub services: i64,
    /// Time of its last match.
    pub last_seen: InventoryTime,
}

/// Largest number of rules in the list.
const STOPPED: i64 = 10;

/// Largest number of changes that are counted; on a busier day, the earlier ones are not.
const COUNTED: i64 = 100_000;

const HOURS: usize = 24;
const HOUR: i64 = 3_600_000;

/// Returns the overview at `now`.
///
/// # Errors
/// The database returns an error.
pub fn overview(database: &InventoryDatabase, now: InventoryTime) -> Result<InventoryOverview, StoreError> {
    database.read(sum_up(&database.link, now))
}

fn sum_up(link: &DatabaseConnection, now: InventoryTime) -> Result<InventoryOverview, DatabaseError> {
    let count = |query: &str| link.sole(query, &[], |row| row.get::<i64>(0));
    // Most services are servers that are present. So the others are counted by their index and
    // subtracted.
    let all = count("SELECT count(*) FROM services")?;
    let mut overview = InventoryOverview {
        hosts: count("SELECT count(*) FROM hosts")?,
        clients: count("SELECT count(*) FROM services WHERE side = 'client'")?,
        gone: count("SELECT count(*) FROM services WHERE side = 'server' AND state = 'gone'")?,
        ..InventoryOverview::default()
    };
    overview.servers = all - overview.clients - overview.gone;
    for severity in SEVERITIES.iter().rev() {
        let query = "SELECT count(DISTINCT service) FROM findings WHERE state = 'open' AND severity = ?1";
        let count: i64 = link.sole(query, values![*severity], |row| row.get(0))?;
        overview.severities.extend((count > 0).then(|| ((*severity).to_owned(), count)));
    }
    count_changes(link, now.before(Duration::from_secs(24 * 3_600)).millis(), &mut overview)?;
    let stopped = "SELECT rule, title, severity, blocked, services + gone, last_seen
         FROM rules WHERE blocked > 0 ORDER BY last_seen DESC LIMIT ?1";
    overview.stopped = link.all(stopped, values![STOPPED], |row| {
        Ok(BlockingRule {
            rule: row.get(0)?,
            title: row.get(1)?,
            severity: row.get(2)?,
            blocked: row.get(3)?,
            services: row.get(4)?,
            last_seen: row.get(5)?,
        })
    })?;
    Ok(overview)
}

/// Counts the changes after `since`, by kind and by hour.
fn count_changes(
    link: &DatabaseConnection,
    since: i64,
    overview: &mut InventoryOverview,
) -> Result<(), DatabaseError> {
    let query = "SELECT kind, (at - ?1 - 1) / ?2, count(*)
         FROM (SELECT kind, at FROM changes WHERE at > ?1 ORDER BY at DESC LIMIT ?3) late GROUP BY 1, 2";
    let rows = link.all(query, values![since, HOUR, COUNTED], |row| {
        Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?))
    })?;
    let (mut kinds, mut counted) = (BTreeMap::<String, i64>::new(), 0);
    overview.hours = vec![0; HOURS];
    for (kind, hour, count) in rows {
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
