//! What was told of one flow, so that nobody can make it fill a log.

use crate::terms::{Anomaly, AnomalySet, Severity};

/// Octets of alerts that any flow may cause, however little it said.
const FREE: u64 = 8 << 10;

/// Rules that are named where no alert is told of them.
const NAMED: usize = 64;

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
    /// Rules of which no alert was told, by their names, and how many more.
    cut: Vec<String>,
    unnamed: usize,
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

    /// Whether an alert is to be told: as long as the flow's alerts are not longer than an allowance and what
    /// the flow itself said. The first of a rule that blocks or is grave has half of that to itself.
    pub(super) fn admit_alert(&mut self, rule: usize, grave: bool, banner: usize) -> bool {
        let first = !self.rules.contains(&rule);
        if first {
            self.rules.push(rule);
        }
        let weight = ALERT + banner as u64;
        let room = FREE + self.heard;
        let room = if first && grave { room } else { room / 2 };
        let admitted = self.spent + weight <= room;
        if admitted {
            self.spent += weight;
        }
        admitted
    }

    /// Remembers a rule of which no alert is told.
    pub(super) fn cut_alert(&mut self, rule: &str) {
        if self.cut.iter().any(|cut| cut == rule) {
            return;
        }
        if self.cut.len() < NAMED { self.cut.push(rule.to_owned()) } else { self.unnamed += 1 }
    }

    /// The rules of which no alert was told since this was last asked, in words.
    pub(super) fn take_cut(&mut self) -> Option<String> {
        let names = std::mem::take(&mut self.cut).join(", ");
        match (names.is_empty(), std::mem::take(&mut self.unnamed)) {
            (true, _) => None,
            (false, 0) => Some(names),
            (false, more) => Some(format!("{names} and {more} more")),
        }
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
    fn alerts_of_a_flow_grow_with_what_it_says_and_half_are_kept_for_grave_ones() {
        let mut allowance = Allowance::default();
        let admitted = (0..1000).filter(|rule| allowance.admit_alert(*rule, false, 100)).count();
        assert_eq!(admitted, 4, "4 KiB of them");
        let admitted = (1000..2000).filter(|rule| allowance.admit_alert(*rule, true, 100)).count();
        assert_eq!(admitted, 4, "and 4 KiB of grave ones");
        allowance.hear(9_000);
        assert!(!allowance.admit_alert(1000, true, 100), "the first of a rule");
        assert!(allowance.admit_alert(2000, true, 100));
        let admitted = (0..1000).filter(|rule| allowance.admit_alert(*rule, false, 100)).count();
        assert_eq!(admitted, 0, "the other half is for grave ones");
    }

    #[test]
    fn rules_without_an_alert_are_named_once() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.take_cut(), None);
        ["b", "a", "b"].iter().for_each(|rule| allowance.cut_alert(rule));
        assert_eq!(allowance.take_cut().as_deref(), Some("b, a"));
        assert_eq!(allowance.take_cut(), None);
        (0..70).for_each(|rule| allowance.cut_alert(&rule.to_string()));
        assert!(allowance.take_cut().is_some_and(|text| text.ends_with("63 and 6 more")));
    }
}
