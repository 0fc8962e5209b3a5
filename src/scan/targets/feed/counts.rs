//! What came of targets, counted.

use crate::event::PortState;
use crate::scan::{Conversation, Outcome, Reason};

/// What came of the targets that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Accepted the connection.
    pub open: u64,
    /// Refused it.
    pub refused: u64,
    /// Didn't answer in time.
    pub timed_out: u64,
    /// Were said to be unreachable.
    pub unreachable: u64,
    /// Could not be asked for a shortage of this machine.
    pub local_error: u64,
    /// What that was.
    #[serde(default)]
    pub shortages: Shortages,
    /// Open ones that matched a rule or `--match`.
    pub matched: u64,
    /// Open ones that said nothing.
    pub silent: u64,
    /// Open ones that ended or reset the talk before they had said enough.
    pub broken_off: u64,
    /// Open ones that didn't say enough in time or within the octet limit.
    pub unfinished: u64,
    /// Open ones that spoke another protocol.
    pub foreign: u64,
    /// Open ones that would not speak TLS, or not with us.
    #[serde(default)]
    pub tls_refused: u64,
}

impl Counts {
    /// How many targets are over.
    pub fn finished(&self) -> u64 {
        self.open + self.refused + self.timed_out + self.unreachable + self.local_error
    }

    /// Adds those of others.
    pub fn add(&mut self, other: &Self) {
        self.shortages.add(&other.shortages);
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

    /// Counts one that is over.
    pub fn count(&mut self, finished: &Finished) {
        match finished.state {
            PortState::Open => self.open += 1,
            PortState::Closed => self.refused += 1,
            PortState::Filtered if finished.reason == Reason::NoResponse => self.timed_out += 1,
            PortState::Filtered => self.unreachable += 1,
            PortState::Error => {
                self.local_error += 1;
                self.shortages.count(finished.reason);
            }
        }
        self.matched += u64::from(finished.matched);
        match finished.conversation {
            Conversation::None | Conversation::Complete => {}
            Conversation::Silent => self.silent += 1,
            Conversation::Ended | Conversation::Reset | Conversation::Failed(_) => self.broken_off += 1,
            Conversation::TimedOut | Conversation::TooLong => self.unfinished += 1,
            Conversation::Foreign => self.foreign += 1,
            Conversation::Refused => self.tls_refused += 1,
        }
    }
}

/// What this machine was short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Shortages {
    /// No local port was free (`EADDRNOTAVAIL`, `EADDRINUSE`).
    pub ports: u64,
    /// No descriptor was free (`EMFILE`, `ENFILE`).
    pub descriptors: u64,
    /// No memory was free (`ENOBUFS`, `ENOMEM`, `EAGAIN`).
    pub memory: u64,
    /// There is no way there (`ENETUNREACH`, `ENETDOWN`, `EAFNOSUPPORT`).
    pub routes: u64,
    /// It is forbidden here (`EPERM`, `EACCES`).
    pub permissions: u64,
    /// Anything else.
    pub others: u64,
}

impl Shortages {
    /// Each kind's name and number.
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

    fn count(&mut self, reason: Reason) {
        let kind = match reason {
            Reason::Errno(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => &mut self.ports,
            Reason::Errno(libc::EMFILE | libc::ENFILE) => &mut self.descriptors,
            Reason::Errno(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => &mut self.memory,
            Reason::Errno(libc::ENETUNREACH | libc::ENETDOWN | libc::EAFNOSUPPORT) => &mut self.routes,
            Reason::Errno(libc::EPERM | libc::EACCES) => &mut self.permissions,
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

/// What is counted of a target that is over.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// Which.
    pub index: u64,
    state: PortState,
    reason: Reason,
    conversation: Conversation,
    matched: bool,
}

impl Finished {
    /// What came of a target, and whether a rule or `--match` matched it.
    pub fn new(outcome: &Outcome<'_>, matched: bool) -> Self {
        let Outcome { target, state, reason, conversation, .. } = *outcome;
        Self { index: target.index, state, reason, conversation, matched }
    }
}
