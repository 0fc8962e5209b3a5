//! Findings of rules over all services.

use serde::Serialize;

use super::condition::{condition, resolve_versions};
use super::services::rank;
use crate::database::{DatabaseConnection, DatabaseError, QueryRow, values};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;

/// The findings of a rule in the whole inventory.
#[derive(Debug, Clone, Serialize)]
pub struct RuleSummary {
    /// Its id.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// Number of services and clients with an open finding.
    pub services: i64,
    /// Number of those whose finding is gone.
    pub gone: i64,
    /// Number of matches.
    pub count: i64,
    /// Number of blocked connections.
    pub blocked: i64,
    /// Time of the first match.
    pub first_seen: InventoryTime,
    /// Time of the last match.
    pub last_seen: InventoryTime,
}

/// The stored sums.
const RULES: &str =
    "SELECT rule, title, severity, services, gone, count, blocked, first_seen, last_seen FROM rules";

/// Returns the rules' findings about the services that a filter selects, the most severe first.
///
/// # Errors
/// The database returns an error.
pub fn rules(database: &InventoryDatabase, filter: &ServiceFilter) -> Result<Vec<RuleSummary>, StoreError> {
    let mut rules = database.read(if filter.is_empty() {
        all_rules(&database.link)
    } else {
        rules_of(&database.link, filter)
    })?;
    rules.sort_by_key(|rule| {
        let weight = (rule.services > 0, rank(&rule.severity), rule.services);
        (std::cmp::Reverse(weight), rule.rule.clone())
    });
    Ok(rules)
}

/// Returns the findings of one rule about all services, if there are any.
///
/// # Errors
/// The database returns an error.
pub fn rule(database: &InventoryDatabase, id: &str) -> Result<Option<RuleSummary>, StoreError> {
    database.read(database.link.one(&format!("{RULES} WHERE rule = ?1"), values![id], summary))
}

/// Returns them for all services, from stored sums: counting a million findings takes long.
pub(super) fn all_rules(link: &DatabaseConnection) -> Result<Vec<RuleSummary>, DatabaseError> {
    link.all(RULES, &[], summary)
}

fn rules_of(link: &DatabaseConnection, filter: &ServiceFilter) -> Result<Vec<RuleSummary>, DatabaseError> {
    let (condition, values) = condition(&resolve_versions(link, filter)?, InventoryTime::now());
    let query = format!(
        "SELECT f.rule, max(f.title), max(f.severity), count(DISTINCT CASE WHEN f.state = 'open' THEN f.service END),
           count(DISTINCT f.service) - count(DISTINCT CASE WHEN f.state = 'open' THEN f.service END),
           CAST(sum(f.count) AS INTEGER), CAST(sum(f.blocked) AS INTEGER), min(f.first_seen), max(f.last_seen)
         FROM findings f JOIN services s ON s.id = f.service JOIN hosts h ON h.id = s.host
         JOIN banners b ON b.id = s.banner WHERE {condition} GROUP BY f.rule"
    );
    link.all(&query, &values, summary)
}

fn summary(row: &QueryRow<'_>) -> Result<RuleSummary, DatabaseError> {
    Ok(RuleSummary {
        rule: row.get(0)?,
        title: row.get(1)?,
        severity: row.get(2)?,
        services: row.get(3)?,
        gone: row.get(4)?,
        count: row.get(5)?,
        blocked: row.get(6)?,
        first_seen: row.get(7)?,
        last_seen: row.get(8)?,
    })
}
