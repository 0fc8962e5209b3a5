//! Checks of this machine for the guard and the scan, and of the hook.
//!
//! Each check has its own file. A check inspects and changes nothing permanently. If it cannot inspect
//! something, it reports that with the reason, and never `ok`.

mod bans;
mod bridges;
mod bypass;
mod capabilities;
mod confinement;
mod conntrack;
mod early_demux;
mod flowtables;
mod guards;
mod hook;
mod io_uring;
mod iptables;
mod kernel;
mod leftovers;
mod machine_state;
mod marks;
mod nft;
mod open_files;
mod program_query;
mod queue;
mod receive_buffer;

pub use guards::{GuardReadError, GuardSettings, ReadGuard};

use crate::hook::{IptablesScope, MarkField};
use machine_state::MachineState;

/// Options of the checks.
pub struct DoctorOptions<'a> {
    /// Unused queue, to bind briefly.
    pub queue: u16,
    /// Expected mark bits; by default those of the active hook.
    pub mark: Option<MarkField>,
    /// Implementation of iptables and address families.
    pub scope: IptablesScope,
    /// Parser of a running guard's command line.
    pub read_guard: ReadGuard<'a>,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorFinding {
    /// Name of the check.
    pub check: &'static str,
    /// State.
    pub state: CheckState,
    /// Observation, its meaning and the fix.
    pub message: String,
}

/// State of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Inspected and in order.
    Fine,
    /// Inspected, and there is nothing that could be in order: no hook, no guard.
    Nothing,
    /// Needs a fix.
    Fault,
    /// This process lacks a privilege; the machine may be in order.
    Denied,
    /// Could not be inspected.
    NotChecked,
}

impl CheckState {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Nothing => "nothing",
            Self::Fault => "fault",
            Self::Denied => "denied",
            Self::NotChecked => "not_checked",
        }
    }

    /// Returns true if the check did not run.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Denied | Self::NotChecked)
    }
}

/// Runs every check.
pub fn examine(question: &DoctorOptions<'_>) -> Vec<DoctorFinding> {
    let scene = MachineState::read(&question.scope);
    let mark = question.mark.unwrap_or_else(|| scene.mark());
    let checks = [
        ("capabilities", capabilities::check()),
        ("netfilter queue", queue::check(question.queue)),
        ("iptables", iptables::check(&scene)),
        ("hook", hook::check(&scene)),
        ("guards", guards::check(&scene, question.read_guard)),
        ("leftovers", leftovers::check()),
        ("mark", marks::check(&scene, mark)),
        ("conntrack", conntrack::check(&scene)),
        ("early demux", early_demux::check(&scene)),
        ("flowtables", flowtables::check(&scene)),
        ("bridges", bridges::check(&scene)),
        ("bypass", bypass::check()),
        ("bans", bans::check()),
        ("open files", open_files::check()),
        ("receive buffer", receive_buffer::check()),
        ("io_uring", io_uring::check()),
        ("confinement", confinement::check()),
        ("kernel", kernel::check()),
    ];
    checks.into_iter().flat_map(|(name, report)| report.findings(name)).collect()
}

/// Result of a check: faults and failed queries, or the observation if there are neither.
#[derive(Debug, Default)]
struct CheckReport {
    fine: String,
    /// True if there was nothing to check.
    is_void: bool,
    spots: Vec<(CheckState, String)>,
}

impl CheckReport {
    /// Returns a report without faults so far; `seen` is its message if none are added.
    fn fine(seen: impl Into<String>) -> Self {
        Self { fine: seen.into(), ..Self::default() }
    }

    /// Returns a report of a check that found nothing to check.
    fn nothing(seen: impl Into<String>) -> Self {
        Self { is_void: true, ..Self::fine(seen) }
    }

    fn fault(what: impl Into<String>) -> Self {
        let mut report = Self::default();
        report.add_fault(what);
        report
    }

    fn blind(why: impl Into<String>) -> Self {
        let mut report = Self::default();
        report.add_blind(why);
        report
    }

    fn denied(what: impl Into<String>) -> Self {
        Self { spots: vec![(CheckState::Denied, what.into())], ..Self::default() }
    }

    fn add_fault(&mut self, what: impl Into<String>) {
        self.spots.push((CheckState::Fault, what.into()));
    }

    /// Adds a failed query, once for each reason.
    fn add_blind(&mut self, why: impl Into<String>) {
        let spot = (CheckState::NotChecked, why.into());
        // Several parts of a check may need the same program, whose absence is said once.
        if !self.spots.contains(&spot) {
            self.spots.push(spot);
        }
    }

    fn findings(self, check: &'static str) -> Vec<DoctorFinding> {
        if self.spots.is_empty() {
            let state = if self.is_void { CheckState::Nothing } else { CheckState::Fine };
            return vec![DoctorFinding { check, state, message: self.fine }];
        }
        self.spots.into_iter().map(|(state, message)| DoctorFinding { check, state, message }).collect()
    }
}
