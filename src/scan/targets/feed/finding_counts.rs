//! Counters of findings: rules that matched servers.

use ahash::AHashSet;

use crate::event::{Event, EventKind, Severity};

/// Numbers of findings by severity. A rule counts once for each server that it matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct FindingCounts {
    /// Servers that a rule matched.
    pub servers: u64,
    critical: u64,
    high: u64,
    medium: u64,
    low: u64,
    info: u64,
}

impl FindingCounts {
    /// Counts the findings among the events of one server.
    pub fn of(events: &[Event]) -> Self {
        let (mut counts, mut rules) = (Self::default(), AHashSet::new());
        for event in events {
            if let EventKind::Alert(facts) = &event.kind
                && rules.insert(facts.rule.as_str())
            {
                counts.add_one(facts.severity);
            }
        }
        counts.servers = u64::from(!rules.is_empty());
        counts
    }

    /// Adds other counters.
    pub(super) fn add(&mut self, other: &Self) {
        self.servers += other.servers;
        self.critical += other.critical;
        self.high += other.high;
        self.medium += other.medium;
        self.low += other.low;
        self.info += other.info;
    }

    /// Returns the number of findings of each severity, the most severe first.
    pub fn by_severity(&self) -> [(Severity, u64); 5] {
        [
            (Severity::Critical, self.critical),
            (Severity::High, self.high),
            (Severity::Medium, self.medium),
            (Severity::Low, self.low),
            (Severity::Info, self.info),
        ]
    }

    /// Returns true if there is a finding of this severity or a more severe one.
    pub fn reach(&self, severity: Severity) -> bool {
        self.by_severity().iter().any(|(found, count)| *found >= severity && *count > 0)
    }

    fn add_one(&mut self, severity: Severity) {
        *match severity {
            Severity::Critical => &mut self.critical,
            Severity::High => &mut self.high,
            Severity::Medium => &mut self.medium,
            Severity::Low => &mut self.low,
            Severity::Info => &mut self.info,
        } += 1;
    }
}
