//! The limit of one flow's reports, so that no peer can make it fill a log.

use crate::terms::{Anomaly, AnomalySet, Severity};

/// Bytes of alerts that any flow may cause, however little it said: a dozen rules, where the oldest software
/// of the tests matches eight.
const FREE: u64 = 12 << 10;

/// Bytes of them that only rules that block or are grave may cause.
const RESERVED: u64 = 3 << 10;

/// Rules that are named where no alert is told of them.
const NAMED: usize = 64;

/// Approximate size of an alert without its banner.
const ALERT: u64 = 900;

/// The limit of one flow's reports. It is boxed because it moves between the flow and the inspector of each
/// segment.
#[derive(Debug, Default)]
pub(super) struct ReportLimit(Option<Box<FlowReports>>);

/// The reports about a flow, and the bytes that were read of it.
#[derive(Debug, Default)]
struct FlowReports {
    /// The application layer's anomalies that were told.
    anomalies: AnomalySet,
    /// Rules that were told to have matched, by position.
    rules: Vec<usize>,
    /// Bytes of both directions that were read.
    read: u64,
    /// Bytes of alerts.
    spent: u64,
    /// Rules of which no alert was told, by their names, and how many more.
    cut: Vec<String>,
    unnamed: usize,
}

impl ReportLimit {
    /// Takes bytes that were read into account.
    pub(super) fn add_read(&mut self, octets: usize) {
        let reports = self.reports();
        reports.read = reports.read.saturating_add(octets as u64);
    }

    /// True if an anomaly is to be told: only the first of its kind.
    pub(super) fn admit_anomaly(&mut self, anomaly: Anomaly) -> bool {
        self.reports().anomalies.insert(anomaly)
    }

    /// True if an alert is to be told: as long as the flow's alerts are not longer than a base and what
    /// the flow itself said. Only the first of a rule that blocks or is grave may take what is reserved, and
    /// what a rule repeats no more than half.
    pub(super) fn admit_alert(&mut self, rule: usize, grave: bool, banner: usize) -> bool {
        let reports = self.reports();
        let first = !reports.rules.contains(&rule);
        // Noted even if no alert is admitted: a repetition must not take the part that is reserved for new
        // rules.
        if first {
            reports.rules.push(rule);
        }
        let weight = ALERT + banner as u64;
        let room = FREE + reports.read;
        let room = match (first, grave) {
            (true, true) => room,
            (true, false) => room - RESERVED,
            (false, _) => room / 2,
        };
        let admitted = reports.spent + weight <= room;
        if admitted {
            reports.spent += weight;
        }
        admitted
    }

    /// Remembers a rule of which no alert is told.
    pub(super) fn cut_alert(&mut self, rule: &str) {
        let FlowReports { cut, unnamed, .. } = self.reports();
        if cut.iter().any(|cut| cut == rule) {
            return;
        }
        if cut.len() < NAMED { cut.push(rule.to_owned()) } else { *unnamed += 1 }
    }

    /// The rules of which no alert was told since this was last asked, in words.
    pub(super) fn take_cut(&mut self) -> Option<String> {
        let reports = self.0.as_mut()?;
        let names = std::mem::take(&mut reports.cut).join(", ");
        match (names.is_empty(), std::mem::take(&mut reports.unnamed)) {
            (true, _) => None,
            (false, 0) => Some(names),
            (false, more) => Some(format!("{names} and {more} more")),
        }
    }

    fn reports(&mut self) -> &mut FlowReports {
        self.0.get_or_insert_default()
    }
}

/// True if a match must not get lost among others.
pub(super) const fn is_grave(severity: Severity) -> bool {
    matches!(severity, Severity::High | Severity::Critical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_of_a_flow_grow_with_what_it_says_and_some_are_kept_for_grave_ones() {
        let mut reports = ReportLimit::default();
        let mut admitted = |rules: std::ops::Range<usize>, grave, read| {
            reports.add_read(read);
            rules.filter(|rule| reports.admit_alert(*rule, grave, 100)).count()
        };
        assert_eq!(admitted(0..1000, false, 0), 9, "9 KiB of them");
        assert_eq!(admitted(1000..2000, true, 0), 3, "and 3 KiB of grave ones");
        assert_eq!(admitted(1000..1001, true, 9_000), 0, "half is for the first of each rule");
        assert_eq!(admitted(2000..2001, true, 0), 1, "the first of a rule");
        assert_eq!(admitted(0..1, false, 9_000), 1, "a rule's second");
    }

    #[test]
    fn rules_without_an_alert_are_named_once() {
        let mut reports = ReportLimit::default();
        assert_eq!(reports.take_cut(), None);
        ["b", "a", "b"].iter().for_each(|rule| reports.cut_alert(rule));
        assert_eq!(reports.take_cut().as_deref(), Some("b, a"));
        assert_eq!(reports.take_cut(), None);
        (0..70).for_each(|rule| reports.cut_alert(&rule.to_string()));
        assert!(reports.take_cut().is_some_and(|text| text.ends_with("63 and 6 more")));
    }
}
