//! What of this machine the guard and the scan can rely on, and whether a hook that is up does its work.
//!
//! One check a file. A check looks, never changes anything that stays, and where it cannot look it says
//! so and why: what was not seen is never called well.

mod bans;
mod bridges;
mod bypass;
mod capabilities;
mod confinement;
mod conntrack;
mod flowtables;
mod guards;
mod hook;
mod io_uring;
mod iptables;
mod kernel;
mod look;
mod marks;
mod nft;
mod open_files;
mod queue;
mod receive_buffer;
mod scene;

pub use guards::{GuardSettings, ReadGuard, Unreadable};

use crate::hook::{MarkField, Scope};
use scene::Scene;

/// What to look at.
pub struct Question<'a> {
    /// A queue that nobody uses, to be bound for a moment.
    pub queue: u16,
    /// The mark bits that are to be ours; those of the hook that is up where absent.
    pub mark: Option<MarkField>,
    /// Which iptables and address families are meant.
    pub scope: Scope,
    /// Reads a running guard's command line.
    pub read_guard: ReadGuard<'a>,
}

/// What one look at one thing came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which check.
    pub check: &'static str,
    /// How it stands.
    pub state: State,
    /// What was seen, what it means and how to mend it.
    pub message: String,
}

/// How it stands with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It was looked at, and all is well.
    Fine,
    /// Something to mend.
    Fault,
    /// This very process lacks a privilege; the machine may be sound.
    Denied,
    /// It could not be looked at.
    NotChecked,
}

impl State {
    /// The name that programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Fault => "fault",
            Self::Denied => "denied",
            Self::NotChecked => "not_checked",
        }
    }
}

/// Runs every check.
pub fn examine(question: &Question<'_>) -> Vec<Finding> {
    let scene = Scene::read(&question.scope);
    let mark = question.mark.unwrap_or_else(|| scene.mark());
    let checks = [
        ("capabilities", capabilities::check()),
        ("netfilter queue", queue::check(question.queue)),
        ("iptables", iptables::check(&scene)),
        ("hook", hook::check(&scene)),
        ("guards", guards::check(&scene, question.read_guard)),
        ("mark", marks::check(&scene, mark)),
        ("conntrack", conntrack::check(&scene)),
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

/// What a check has to say: faults and blind spots, and what it saw where there are neither.
#[derive(Debug, Default)]
struct Report {
    fine: String,
    spots: Vec<(State, String)>,
}

impl Report {
    /// Nothing wrong so far; `seen` is told when it stays so.
    fn fine(seen: impl Into<String>) -> Self {
        Self { fine: seen.into(), spots: Vec::new() }
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
        Self { spots: vec![(State::Denied, what.into())], ..Self::default() }
    }

    fn add_fault(&mut self, what: impl Into<String>) {
        self.spots.push((State::Fault, what.into()));
    }

    /// Adds that something could not be looked at, once for each reason.
    fn add_blind(&mut self, why: impl Into<String>) {
        let spot = (State::NotChecked, why.into());
        if !self.spots.contains(&spot) {
            self.spots.push(spot);
        }
    }

    fn findings(self, check: &'static str) -> Vec<Finding> {
        if self.spots.is_empty() {
            return vec![Finding { check, state: State::Fine, message: self.fine }];
        }
        self.spots.into_iter().map(|(state, message)| Finding { check, state, message }).collect()
    }
}
