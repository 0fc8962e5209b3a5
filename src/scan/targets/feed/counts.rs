//! Counters of finished targets.

use super::finding_counts::FindingCounts;
use crate::event::{Event, PortState};
use crate::scan::{ExchangeOutcome, PortStateReason, TargetOutcome};

/// Numbers of finished targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct TargetCounts {
    /// Accepted the connection.
    pub open: u64,
    /// Refused the connection.
    pub refused: u64,
    /// Did not answer in time.
    pub timed_out: u64,
    /// Were reported as unreachable.
    pub unreachable: u64,
    /// Failed because of a shortage of this machine.
    pub local_error: u64,
    /// Kinds of those shortages.
    #[serde(default)]
    pub shortages: ShortageCounts,
    /// Open targets that matched a rule or `--match`.
    pub matched: u64,
    /// Open targets that were silent.
    pub silent: u64,
    /// Open targets that ended or reset the exchange too early.
    pub broken_off: u64,
    /// Open targets that did not complete the exchange in time or within the byte limit.
    pub unfinished: u64,
    /// Open targets that spoke another protocol.
    pub foreign: u64,
    /// Open targets that refused TLS or the handshake.
    #[serde(default)]
    pub tls_refused: u64,
    /// Findings on open targets.
    #[serde(default)]
    pub findings: FindingCounts,
}

impl TargetCounts {
    /// Returns the number of finished targets.
    pub fn finished(&self) -> u64 {
        self.open + self.refused + self.timed_out + self.unreachable + self.local_error
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        self.shortages.add(&other.shortages);
        self.findings.add(&other.findings);
        self.open += other.open;
        self.refused += other.refused;
        self.timed_out += other.timed_out;
        self.unreachable += other.unreachable;
        self.local_error += other.local_error;
        self.matched += other.matched;
        self.silent += other.silent;
        self.broken_off += other.broken_off;
        self.unfinished += other.unfinished;
        self.foreign += other.foreign;
        self.tls_refused += other.tls_refused;
    }

    /// Counts a finished target.
    pub fn count(&mut self, finished: &FinishedTarget) {
        match finished.state {
            PortState::Open => self.open += 1,
            PortState::Closed => self.refused += 1,
            PortState::Filtered if finished.reason == PortStateReason::NoResponse => self.timed_out += 1,
            PortState::Filtered => self.unreachable += 1,
            PortState::Error => {
                self.local_error += 1;
                self.shortages.count(finished.reason);
            }
        }
        self.matched += u64::from(finished.matched);
        self.findings.add(&finished.findings);
        match finished.conversation {
            ExchangeOutcome::None | ExchangeOutcome::Complete => {}
            ExchangeOutcome::Silent => self.silent += 1,
            ExchangeOutcome::Ended | ExchangeOutcome::Reset | ExchangeOutcome::Failed(_) => {
                self.broken_off += 1;
            }
            ExchangeOutcome::TimedOut | ExchangeOutcome::TooLong => self.unfinished += 1,
            ExchangeOutcome::Foreign => self.foreign += 1,
            ExchangeOutcome::Refused => self.tls_refused += 1,
        }
    }
}

/// Kinds of shortages of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ShortageCounts {
    /// No free local port (`EADDRNOTAVAIL`, `EADDRINUSE`).
    pub ports: u64,
    /// No free descriptor (`EMFILE`, `ENFILE`).
    pub descriptors: u64,
    /// No free memory (`ENOBUFS`, `ENOMEM`, `EAGAIN`).
    pub memory: u64,
    /// No route (`ENETUNREACH`, `ENETDOWN`, `EAFNOSUPPORT`).
    pub routes: u64,
    /// Forbidden on this machine (`EPERM`, `EACCES`).
    pub permissions: u64,
    /// Any other error.
    pub others: u64,
}

impl ShortageCounts {
    /// Returns the name and number of each kind.
    pub fn kinds(&self) -> [(&'static str, u64); 6] {
        [
            ("no free port", self.ports),
            ("no free descriptor", self.descriptors),
            ("no memory", self.memory),
            ("no route", self.routes),
            ("not permitted", self.permissions),
            ("other", self.others),
        ]
    }

    fn count(&mut self, reason: PortStateReason) {
        let kind = match reason {
            PortStateReason::Errno(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => &mut self.ports,
            PortStateReason::Errno(libc::EMFILE | libc::ENFILE) => &mut self.descriptors,
            PortStateReason::Errno(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => &mut self.memory,
            PortStateReason::Errno(libc::ENETUNREACH | libc::ENETDOWN | libc::EAFNOSUPPORT) => {
                &mut self.routes
            }
            PortStateReason::Errno(libc::EPERM | libc::EACCES) => &mut self.permissions,
            _ => &mut self.others,
        };
        *kind += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ports += other.ports;
        self.descriptors += other.descriptors;
        self.memory += other.memory;
        self.routes += other.routes;
        self.permissions += other.permissions;
        self.others += other.others;
    }
}

/// Counted facts of a finished target.
#[derive(Debug, Clone, Copy)]
pub struct FinishedTarget {
    /// Number of the target.
    pub index: u64,
    state: PortState,
    reason: PortStateReason,
    conversation: ExchangeOutcome,
    matched: bool,
    findings: FindingCounts,
}

impl FinishedTarget {
    /// Returns the facts of a target; `matched` is true if a rule or `--match` matched it.
    pub fn new(outcome: &TargetOutcome<'_>, matched: bool) -> Self {
        let TargetOutcome { target, state, reason, conversation, .. } = *outcome;
        let findings = FindingCounts::default();
        Self { index: target.index, state, reason, conversation, matched, findings }
    }

    /// Adds the findings among the target's events.
    pub fn with_findings(self, events: &[Event]) -> Self {
        Self { findings: FindingCounts::of(events), ..self }
    }
}
