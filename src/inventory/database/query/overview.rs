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

/// Numbers of hosts and services.
#[derive(Debug, Clone, Copy, Default)]
pub struct InventoryTotals {
    /// Number of hosts.
    pub hosts: i64,
    /// Number of servers that are present.
    pub servers: i64,
    /// Number of servers that are gone.
    pub gone: i64,
    /// Number of clients.
    pub clients: i64,
}

/// Changes since a time.
#[derive(Debug, Clone, Default)]
pub struct RecentChanges {
    /// Numbers of changes by kind, the most frequent first.
    pub kinds: Vec<(String, i64)>,
    /// Numbers of changes of each of the first 24 hours, the latest last.
    pub hours: Vec<i64>,
    /// True if there were more changes than are counted.
    pub more: bool,
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

/// Returns the numbers of hosts and services.
///
/// # Errors
/// The database returns an error.
pub fn totals(database: &InventoryDatabase) -> Result<InventoryTotals, StoreError> {
    database.read(count_services(&database.link))
}

/// Returns the changes after `since`.
///
/// # Errors
/// The database returns an error.
pub fn recent_changes(
    database: &InventoryDatabase,
    since: InventoryTime,
) -> Result<RecentChanges, StoreError> {
    database.read(count_changes(&database.link, since.millis()))
}

/// Returns the rules that blocked connections, the latest first; limited to a few.
///
/// # Errors
/// The database returns an error.
pub fn blocking_rules(database: &InventoryDatabase) -> Result<Vec<BlockingRule>, StoreError> {
    database.read(read_blocking_rules(&database.link))
}

fn sum_up(link: &DatabaseConnection, now: InventoryTime) -> Result<InventoryOverview, DatabaseError> {
    let InventoryTotals { hosts, servers, gone, clients } = count_services(link)?;
    let since = now.before(Duration::from_secs(24 * 3_600)).millis();
    let RecentChanges { kinds: changes, hours, more } = count_changes(link, since)?;
    let mut severities = Vec::new();
    for severity in SEVERITIES.iter().rev() {
        let query = "SELECT count(DISTINCT service) FROM findings WHERE state = 'open' AND severity = ?1";
        let count: i64 = link.sole(query, values![*severity], |row| row.get(0))?;
        severities.extend((count > 0).then(|| ((*severity).to_owned(), count)));
    }
    let stopped = read_blocking_rules(link)?;
    Ok(InventoryOverview { hosts, servers, gone, clients, severities, changes, hours, more, stopped })
}

fn count_services(link: &DatabaseConnection) -> Result<InventoryTotals, DatabaseError> {
    let count = |query: &str| link.sole(query, &[], |row| row.get::<i64>(0));
    // Most services are servers that are present. So the others are counted by their index and
    // subtracted.
    let all = count("SELECT count(*) FROM services")?;
    let hosts = count("SELECT count(*) FROM hosts")?;
    let clients = count("SELECT count(*) FROM services WHERE side = 'client'")?;
    let gone = count("SELECT count(*) FROM services WHERE side = 'server' AND state = 'gone'")?;
    Ok(InventoryTotals { hosts, servers: all - clients - gone, gone, clients })
}

fn read_blocking_rules(link: &DatabaseConnection) -> Result<Vec<BlockingRule>, DatabaseError> {
    let stopped = "SELECT rule, title, severity, blocked, services + gone, last_seen
         FROM rules WHERE blocked > 0 ORDER BY last_seen DESC LIMIT ?1";
    link.all(stopped, values![STOPPED], |row| {
        Ok(BlockingRule {
            rule: row.get(0)?,
            title: row.get(1)?,
            severity: row.get(2)?,
            blocked: row.get(3)?,
            services: row.get(4)?,
            last_seen: row.get(5)?,
        })
    })
}

/// Counts the changes after `since`, by kind and by hour.
fn count_changes(link: &DatabaseConnection, since: i64) -> Result<RecentChanges, DatabaseError> {
    let query = "SELECT kind, (at - ?1 - 1) / ?2, count(*)
         FROM (SELECT kind, at FROM changes WHERE at > ?1 ORDER BY at DESC LIMIT ?3) late GROUP BY 1, 2";
    let rows = link.all(query, values![since, HOUR, COUNTED], |row| {
        Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?))
    })?;
    let (mut kinds, mut counted) = (BTreeMap::<String, i64>::new(), 0);
    let mut hours = vec![0; HOURS];
    for (kind, hour, count) in rows {
        *kinds.entry(kind).or_default() += count;
        counted += count;
        if let Some(sum) = usize::try_from(hour).ok().and_then(|hour| hours.get_mut(hour)) {
            *sum += count;
        }
    }
    let mut kinds: Vec<(String, i64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(RecentChanges { kinds, hours, more: counted >= COUNTED })
}
