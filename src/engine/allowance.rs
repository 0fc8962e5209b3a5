//! What was told of one flow, so that nobody can make it fill a log.

use crate::terms::{Anomaly, AnomalySet, Severity};

/// Octets of alerts that any flow may cause, however little it said.
const FREE: u64 = 24 << 10;

/// What one alert comes to beside its banner, roughly.
const ALERT: u64 = 900;

/// What was told of a flow, and how much was read of it.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// The application layer's anomalies that were told.
    anomalies: AnomalySet,
    /// Rules that were told to have matched, by position.
    rules: Vec<usize>,
    /// Octets of both directions that were read.
    heard: u64,
    /// Octets of alerts.
    spent: u64,
}

impl Allowance {
    /// Takes octets that were read into account.
    pub(super) fn hear(&mut self, octets: usize) {
        self.heard = self.heard.saturating_add(octets as u64);
    }

    /// Whether an anomaly is to be told: only the first of its kind.
    pub(super) const fn admit_anomaly(&mut self, anomaly: Anomaly) -> bool {
        self.anomalies.insert(anomaly)
    }

    /// Whether an alert is to be told. The first of a rule that blocks or is grave always is, and others as
    /// long as the flow's alerts are not longer than an allowance and what the flow itself said.
    pub(super) fn admit_alert(&mut self, rule: usize, grave: bool, banner: usize) -> bool {
        let first = !self.rules.contains(&rule);
        if first {
            self.rules.push(rule);
        }
        let weight = ALERT + banner as u64;
        let room = self.spent + weight <= FREE + self.heard;
        let admitted = room || (first && grave);
        if admitted {
            self.spent += weight;
        }
        admitted
    }
}

/// Whether a match must not get lost among others.
pub(super) const fn is_grave(severity: Severity) -> bool {
    matches!(severity, Severity::High | Severity::Critical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_of_a_flow_grow_with_what_it_says_and_grave_ones_are_always_told() {
        let mut allowance = Allowance::default();
        let admitted = (0..1000).filter(|rule| allowance.admit_alert(*rule, false, 100)).count();
        assert_eq!(admitted, 24, "24 KiB of them");
        assert!(allowance.admit_alert(1000, true, 100));
        assert!(!allowance.admit_alert(1000, true, 100), "and once");
        allowance.hear(5000);
        let admitted = (0..1000).filter(|rule| allowance.admit_alert(*rule, false, 100)).count();
        assert_eq!(admitted, 4);
    }
}
