//! Runs the iptables programs, in this process or in a helper process that still has the rights.

use std::io;
use std::sync::Arc;

use super::ban_call::BanCall;
use super::program_calls::{IptablesCall, MachineQuery, ProgramOutput};
use super::program_helper::ProgramHelper;

/// Runner of the programs.
#[derive(Debug, Clone, Default)]
pub enum ProgramRunner {
    /// This process.
    #[default]
    Here,
    /// A separate process, for one that is not permitted to run programs.
    Beside(Arc<ProgramHelper>),
}

impl ProgramRunner {
    /// True if the separate process has exited.
    pub(crate) fn are_gone(&self) -> bool {
        match self {
            Self::Here => false,
            Self::Beside(runner) => runner.is_gone(),
        }
    }

    /// Queries the machine.
    ///
    /// # Errors
    ///
    /// The program cannot be run.
    pub(crate) fn look(&self, question: MachineQuery) -> io::Result<ProgramOutput> {
        match self {
            Self::Here => question.ask(),
            Self::Beside(runner) => runner.ask(question),
        }
    }

    pub(super) fn ban(&self, call: &BanCall) -> io::Result<ProgramOutput> {
        match self {
            Self::Here => call.run(),
            Self::Beside(runner) => runner.ban(call),
        }
    }

    pub(super) fn call(&self, call: &IptablesCall) -> io::Result<ProgramOutput> {
        match self {
            Self::Here => call.run(),
            Self::Beside(runner) => runner.call(call),
        }
    }
}
