//! Totals of the alerts of a run, for its last line.

use std::collections::BTreeMap;
use std::fmt;

use crate::diagnostics::several;
use crate::event::{AlertFacts, Event, EventKind, Severity};

/// Limit of rules by name.
const RULES: usize = 1024;

/// Limit of rules in the text.
const SHOWN: usize = 8;

/// Numbers of alerts, and of blocks by rule: `3 alerts, 2 blocked: no-dropbear 2`.
#[derive(Debug, Default)]
pub struct AlertTotals {
    alerts: u64,
    blocked: u64,
    by_rule: BTreeMap<String, u64>,
    worst: Option<Severity>,
}

impl AlertTotals {
    /// Counts an event, if it is an alert.
    pub fn record(&mut self, event: &Event) {
        let EventKind::Alert(facts) = &event.kind else { return };
        let AlertFacts { rule, blocked, severity, .. } = facts.as_ref();
        self.alerts += 1;
        self.worst = self.worst.max(Some(*severity));
        if !blocked {
            return;
        }
        self.blocked += 1;
        if let Some(count) = self.by_rule.get_mut(rule) {
            *count += 1;
        } else if self.by_rule.len() < RULES {
            self.by_rule.insert(rule.clone(), 1);
        }
    }

    /// Returns true if there was an alert of this severity or a more severe one.
    pub fn reach(&self, severity: Severity) -> bool {
        self.worst.is_some_and(|worst| worst >= severity)
    }
}

impl fmt::Display for AlertTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} blocked", several(self.alerts, "alert"), self.blocked)?;
        let mut rules: Vec<_> = self.by_rule.iter().collect();
        rules.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (number, (rule, count)) in rules.iter().take(SHOWN).enumerate() {
            write!(f, "{} {rule} {count}", if number == 0 { ":" } else { "," })?;
        }
        match rules.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, ", and {more} more rules"),
        }
    }
}
