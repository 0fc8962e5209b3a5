//! Exit codes of the program, and errors that carry them.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::diagnostics::log_line;

/// Exit codes that users and scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CliExitCode {
    /// 0: done.
    Done,
    /// 1: done, with findings, if the command is a check or has `--fail-on`; or a wait failed or timed out.
    Findings,
    /// 2: wrong usage, or invalid or unreadable input.
    Usage,
    /// 3: this machine lacks a capability or a kernel feature.
    Unsupported,
    /// 4: `hook status`: there is no hook.
    HookDown,
    /// 5: `hook status`: the hook leads to a queue without a guard.
    LedNowhere,
    /// 130: interrupted, after a clean stop.
    Interrupted,
}

impl CliExitCode {
    /// Returns the number for the shell.
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

impl From<CliExitCode> for ExitCode {
    fn from(exit: CliExitCode) -> Self {
        Self::from(exit.code())
    }
}

/// Returns a flag that SIGINT and SIGTERM set. A second signal exits at once, since the program may wait
/// forever for standard input or a server.
pub(super) fn interrupt_flag() -> Result<Arc<AtomicBool>, CommandFailure> {
    let flag = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        let interrupted = i32::from(CliExitCode::Interrupted.code());
        // The conditional shutdown is registered first: it must see the flag of an earlier signal, not of
        // this one.
        signal_hook::flag::register_conditional_shutdown(signal, interrupted, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Failure of a command, with its exit code.
#[derive(Debug)]
pub enum CommandFailure {
    /// Clap's own message: bad usage, or `--help` and `--version`, which are not failures.
    Clap(clap::Error),
    /// The input is invalid.
    Usage(anyhow::Error),
    /// This machine lacks a permission or a feature.
    Unsupported(anyhow::Error),
}

impl CommandFailure {
    /// Wraps an error of the input: exit code 2.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Wraps a missing permission or kernel feature: exit code 3.
    pub fn unsupported(error: impl Into<anyhow::Error>) -> Self {
        Self::Unsupported(error.into())
    }

    /// Prints the message to the right stream, and returns the exit code.
    pub(super) fn report(&self) -> CliExitCode {
        let (error, exit) = match self {
            Self::Clap(error) => {
                // If stdout or stderr is closed, no reader is left for the message.
                let _ = error.print();
                return if error.use_stderr() { CliExitCode::Usage } else { CliExitCode::Done };
            }
            Self::Usage(error) => (error, CliExitCode::Usage),
            Self::Unsupported(error) => (error, CliExitCode::Unsupported),
        };
        log_line(format_args!("bannerwall: {}", error_chain_once(error)));
        exit
    }
}

/// Returns an error with its causes, without repetitions: most errors print their cause themselves.
fn error_chain_once(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        // Many errors include their cause in their own text, and would say it twice.
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

impl From<clap::Error> for CommandFailure {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

impl From<std::io::Error> for CommandFailure {
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
        assert_eq!(error_chain_once(&error), "cannot listen: address in use");
        assert_eq!(
            error_chain_once(&anyhow::Error::from(busy()).context("no luck")),
            "no luck: address in use"
        );
    }
}
