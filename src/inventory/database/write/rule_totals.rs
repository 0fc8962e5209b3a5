//! Numbers of a rule's findings.

use crate::database::{DatabaseConnection, DatabaseError, values};

/// Numbers that a batch adds to the sum of a rule.
#[derive(Debug, Default)]
pub(super) struct RuleTotals {
    pub(super) title: String,
    pub(super) severity: &'static str,
    /// Number of services with an open finding, and of those whose finding is gone.
    pub(super) services: i64,
    pub(super) gone: i64,
    pub(super) count: i64,
    pub(super) blocked: i64,
    /// Time of the first and last match, if there was one.
    pub(super) times: Option<(i64, i64)>,
}

impl RuleTotals {
    /// Adds these numbers to the sums of a rule.
    pub(super) fn write(&self, link: &DatabaseConnection, rule: &str) -> Result<(), DatabaseError> {
        let Some((first, last)) = self.times else {
            let query = "UPDATE rules SET services = services + ?2, gone = gone + ?3 WHERE rule = ?1";
            return link.queue(query, values![rule, self.services, self.gone]);
        };
        link.queue(
            "INSERT INTO rules (rule, title, severity, services, gone, count, blocked, first_seen, last_seen)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (rule) DO UPDATE SET title = excluded.title, severity = excluded.severity,
               services = rules.services + excluded.services, gone = rules.gone + excluded.gone,
               count = rules.count + excluded.count, blocked = rules.blocked + excluded.blocked,
               first_seen = min(rules.first_seen, excluded.first_seen),
               last_seen = max(rules.last_seen, excluded.last_seen)",
            values![
                rule,
                &self.title,
                self.severity,
                self.services,
                self.gone,
                self.count,
                self.blocked,
                first,
                last
            ],
        )
    }
}
