//! How the program ends: one enum of exit codes, and errors that carry theirs.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::diagnostics::tell;

/// The exit codes that users and scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: done, with findings, where the command is a check; what was waited for did not go well, or is not
    /// over.
    Findings,
    /// 2: wrong usage, or input that is bad or cannot be read.
    Usage,
    /// 3: this machine lacks a capability or a kernel feature.
    Unsupported,
    /// 4: `hook status`: there is no hook.
    HookDown,
    /// 5: `hook status`: the hook leads to a queue that no guard reads.
    LedNowhere,
    /// 130: interrupted, after a clean stop.
    Interrupted,
}

impl Exit {
    /// The number for the shell.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Findings => 1,
            Self::Usage => 2,
            Self::Unsupported => 3,
            Self::HookDown => 4,
            Self::LedNowhere => 5,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A flag that SIGINT and SIGTERM raise. A second one ends the program at once: what it waits for, standard
/// input or a server, may be silent for ever.
pub(super) fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        let interrupted = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, interrupted, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Why a command could not do its work, and the exit code that says so.
#[derive(Debug)]
pub enum Failure {
    /// Clap's own message: bad usage, or `--help` and `--version`, which are not failures.
    Clap(clap::Error),
    /// The input is at fault.
    Usage(anyhow::Error),
    /// This machine lacks a permission or a feature.
    Unsupported(anyhow::Error),
}

impl Failure {
    /// The input is at fault: exit code 2.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// A permission or a kernel feature is missing: exit code 3.
    pub fn unsupported(error: impl Into<anyhow::Error>) -> Self {
        Self::Unsupported(error.into())
    }

    /// Prints the message where it belongs and says how to end.
    pub(super) fn report(&self) -> Exit {
        let (error, exit) = match self {
            Self::Clap(error) => {
                // A closed stdout or stderr leaves nobody to tell.
                let _ = error.print();
                return if error.use_stderr() { Exit::Usage } else { Exit::Done };
            }
            Self::Usage(error) => (error, Exit::Usage),
            Self::Unsupported(error) => (error, Exit::Unsupported),
        };
        tell(format_args!("bannerwall: {}", told_once(error)));
        exit
    }
}

/// An error with its causes; most errors tell their cause themselves, which is then left out.
fn told_once(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Usage(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_its_error_tells_already_is_not_told_again() {
        let busy = || std::io::Error::other("address in use");
        let error = anyhow::Error::from(busy()).context("cannot listen: address in use");
        assert_eq!(told_once(&error), "cannot listen: address in use");
        assert_eq!(told_once(&anyhow::Error::from(busy()).context("no luck")), "no luck: address in use");
    }
}
