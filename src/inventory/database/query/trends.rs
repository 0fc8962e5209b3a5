//! Findings over time: the open ones of each severity, day by day, and the new ones of each rule.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::rules::{RuleSummary, all_rules};
use super::services::{SEVERITIES, rank};
use crate::database::{DatabaseConnection, DatabaseError, values};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::inventory_time::InventoryTime;

/// Number of days of a trend.
const DAYS: usize = 30;

/// Length of a day, in milliseconds.
const DAY: i64 = 24 * 3_600_000;

/// Largest number of changes that are counted; in a busier month, the earlier ones are not.
const COUNTED: i64 = 100_000;

/// Findings of all severities.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FindingTrends {
    /// All severities, the most severe first.
    pub severities: Vec<SeverityTrend>,
    /// Rules with new findings, the most severe first.
    pub new: Vec<NewFindings>,
    /// True if a rule with new findings is left out.
    pub more: bool,
}

/// Findings of one severity. A service with findings of two rules has two.
#[derive(Debug, Clone, Serialize)]
pub struct SeverityTrend {
    /// The severity.
    pub severity: &'static str,
    /// Number of open findings.
    pub open: i64,
    /// Number of findings that opened lately.
    pub new: i64,
    /// Number of findings that closed lately.
    pub gone: i64,
    /// Number of open findings at the end of each of the last days, at most 30, the latest last.
    pub days: Vec<i64>,
}

/// New findings of one rule.
#[derive(Debug, Clone, Serialize)]
pub struct NewFindings {
    /// The rule.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// Number of new findings.
    pub count: i64,
    /// Address and port of the latest of them; the port is 0 for a client.
    pub address: String,
    /// See `address`.
    pub port: u16,
    /// Time of the latest of them.
    pub at: InventoryTime,
}

impl NewFindings {
    /// Returns `192.0.2.1:22`; for a client, the address.
    pub fn place(&self) -> String {
        crate::terms::place(&self.address, self.port)
    }
}

/// Changes of one rule's findings on one day.
struct RuleDay {
    rule: String,
    is_new: bool,
    /// The day, 0 for the first of the trend.
    day: usize,
    count: i64,
    /// Number of the latest change.
    latest: i64,
}

/// Changes of findings over the last days.
struct RecentDays {
    rows: Vec<RuleDay>,
    /// The first day that is known as a whole.
    first: usize,
}

/// Returns the findings at `now`, over the last 30 days, and at most `most` rules with new findings of
/// the last `recent` days.
///
/// # Errors
/// The database returns an error.
pub fn finding_trends(
    database: &InventoryDatabase,
    now: InventoryTime,
    recent: usize,
    most: usize,
) -> Result<FindingTrends, StoreError> {
    database.read(read_trends(&database.link, now, recent, most))
}

/// Returns the number of open findings of a rule at the end of each of the last days, at most 30, given
/// the current number.
///
/// # Errors
/// The database returns an error.
pub fn rule_trend(
    database: &InventoryDatabase,
    rule: &str,
    open: i64,
    now: InventoryTime,
) -> Result<Vec<i64>, StoreError> {
    let recent = database.read(recent_days(&database.link, now, Some(rule)))?;
    Ok(open_by_day(open, recent.rows.iter(), recent.first))
}

fn read_trends(
    link: &DatabaseConnection,
    now: InventoryTime,
    recent: usize,
    most: usize,
) -> Result<FindingTrends, DatabaseError> {
    let rules = all_rules(link)?;
    let days = recent_days(link, now, None)?;
    let late = DAYS.saturating_sub(recent);
    let severity_of: HashMap<&str, &str> =
        rules.iter().map(|rule| (rule.rule.as_str(), rule.severity.as_str())).collect();
    let severities = SEVERITIES.iter().rev().map(|severity| {
        let open = rules.iter().filter(|rule| rule.severity == *severity).map(|rule| rule.services).sum();
        let own = || days.rows.iter().filter(|it| severity_of.get(it.rule.as_str()) == Some(severity));
        let lately =
            |is_new| own().filter(|it| it.is_new == is_new && it.day >= late).map(|it| it.count).sum();
        let (new, gone) = (lately(true), lately(false));
        SeverityTrend { severity, open, new, gone, days: open_by_day(open, own(), days.first) }
    });
    let severities = severities.collect();
    let (new, more) = new_findings(link, &rules, &days, late, most)?;
    Ok(FindingTrends { severities, new, more })
}

/// Returns the rules with findings since the day `late`; true if some are left out.
fn new_findings(
    link: &DatabaseConnection,
    rules: &[RuleSummary],
    days: &RecentDays,
    late: usize,
    most: usize,
) -> Result<(Vec<NewFindings>, bool), DatabaseError> {
    let mut new: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for row in days.rows.iter().filter(|it| it.is_new && it.day >= late) {
        let (count, latest) = new.entry(&row.rule).or_default();
        (*count, *latest) = (*count + row.count, (*latest).max(row.latest));
    }
    let mut known: Vec<(&RuleSummary, (i64, i64))> =
        rules.iter().filter_map(|rule| Some((rule, *new.get(rule.rule.as_str())?))).collect();
    known.sort_by_key(|(rule, (count, _))| std::cmp::Reverse((rank(&rule.severity), *count)));
    let more = known.len() > most;
    let mut found = Vec::new();
    for (rule, (count, latest)) in known.into_iter().take(most) {
        let query = "SELECT h.address, s.port, c.at FROM changes c JOIN services s ON s.id = c.service
             JOIN hosts h ON h.id = s.host WHERE c.id = ?1";
        let place = link.one(query, values![latest], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let Some((address, port, at)) = place else { continue };
        let RuleSummary { rule, title, severity, .. } = rule.clone();
        found.push(NewFindings { rule, title, severity, count, address, port, at });
    }
    Ok((found, more))
}

/// Returns the changes of all findings, or of those of one rule, over the last days.
fn recent_days(
    link: &DatabaseConnection,
    now: InventoryTime,
    rule: Option<&str>,
) -> Result<RecentDays, DatabaseError> {
    let since = now.before(Duration::from_millis((DAY * DAYS as i64).unsigned_abs())).millis();
    let recent = "SELECT id, rule, kind, at FROM changes WHERE at > ?1 AND rule IS NOT NULL
         ORDER BY at DESC LIMIT ?3";
    let query = format!(
        "SELECT rule, kind, (at - ?1 - 1) / ?2, count(*), max(id) FROM ({recent}) late
         WHERE ?4 = '' OR rule = ?4 GROUP BY 1, 2, 3"
    );
    let values = values![since, DAY, COUNTED, rule.unwrap_or_default()];
    let rows = link.all(&query, values, |row| {
        let (kind, day): (String, i64) = (row.get(1)?, row.get(2)?);
        // A clock that runs ahead counts as now.
        let day = usize::try_from(day).unwrap_or_default().min(DAYS - 1);
        let (rule, is_new) = (row.get(0)?, kind == "finding_new");
        Ok(RuleDay { rule, is_new, day, count: row.get(3)?, latest: row.get(4)? })
    })?;
    // In a busy month, the day of the earliest change that counts is incomplete.
    let query =
        "SELECT at FROM changes WHERE at > ?1 AND rule IS NOT NULL ORDER BY at DESC LIMIT 1 OFFSET ?2";
    let earliest = link.one(query, values![since, COUNTED - 1], |row| row.get::<i64>(0))?;
    let day = earliest.map(|at| usize::try_from((at - since - 1) / DAY).unwrap_or_default());
    Ok(RecentDays { rows, first: day.map_or(0, |day| day + 1) })
}

/// Returns the number of open findings at the end of each day from `first` on: the current number, less
/// those that opened later, and with those that closed later.
fn open_by_day<'a>(open: i64, changed: impl Iterator<Item = &'a RuleDay>, first: usize) -> Vec<i64> {
    let mut net = [0_i64; DAYS];
    for change in changed {
        if let Some(sum) = net.get_mut(change.day) {
            *sum += if change.is_new { change.count } else { -change.count };
        }
    }
    let mut days = Vec::new();
    let mut count = open;
    for (day, change) in net.into_iter().enumerate().rev() {
        if day < first {
            break;
        }
        days.push(count.max(0));
        count -= change;
    }
    days.reverse();
    days
}
