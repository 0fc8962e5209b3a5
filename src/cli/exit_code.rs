//! Exit codes of the program, and errors that carry them.

use std::io::Write as _;
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
    /// Clap's message about flags, some of which come from the file of `--config`.
    ClapWithConfig(clap::Error),
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
                let _ = print_clap(error);
                return if error.use_stderr() { CliExitCode::Usage } else { CliExitCode::Done };
            }
            Self::ClapWithConfig(error) => {
                let _ = print_clap(error);
                log_line("The file of --config sets some of these flags; its keys have their names.");
                return CliExitCode::Usage;
            }
            Self::Usage(error) => (error, CliExitCode::Usage),
            Self::Unsupported(error) => (error, CliExitCode::Unsupported),
        };
        log_line(format_args!("bannerwall: {}", with_advice(&error_chain_once(error))));
        exit
    }
}

/// Prints clap's message. Its words about numbers are those of Rust's parser, which name no number.
fn print_clap(error: &clap::Error) -> std::io::Result<()> {
    let text = error.render().to_string();
    match text.contains(NO_DIGIT) {
        true => {
            writeln!(std::io::stderr(), "{}", text.replace(NO_DIGIT, "must be a whole number").trim_end())
        }
        false => error.print(),
    }
}

/// Message of Rust's parser of numbers.
const NO_DIGIT: &str = "invalid digit found in string";

/// Advice for errors of the system, by their text.
const ADVICE: [(&str, &str); 15] = [
    ("No such file or directory", "check the path; bannerwall creates no folders"),
    ("Permission denied", "run it as root, or give this user the right"),
    ("Operation not permitted", "run it as root"),
    ("Is a directory", "pass a file"),
    ("Not a directory", "a part of the path is a file"),
    ("File exists", "choose another name, or remove it first"),
    ("Address already in use", "choose another port, or stop the program that has it"),
    ("Cannot assign requested address", "choose an address of this machine"),
    ("Connection refused", "check that the server runs and listens there"),
    ("Network is unreachable", "check the address and the routes of this machine"),
    ("No route to host", "check the address and the routes of this machine"),
    ("unable to open database file", "check the path, and that this user may read and write it"),
    ("file is not a database", "pass an inventory that guard, scan or replay wrote"),
    ("disk I/O error", "pass a file, and check its disk"),
    ("No space left on device", "free space, or choose another folder"),
];

/// Removes numbers of system errors from a message. The advice for the last one follows.
pub(super) fn with_advice(message: &str) -> String {
    let mut text = message.to_owned();
    while let Some((before, behind)) = text.split_once(" (os error ") {
        let after = behind.trim_start_matches(|letter: char| letter.is_ascii_digit()).strip_prefix(')');
        text = format!("{before}{}", after.unwrap_or_default());
    }
    // Details may follow, but no advice of the message's own.
    let is_last = |at: usize| !text.get(at..).unwrap_or_default().contains('(');
    match ADVICE.iter().find(|(error, _)| text.rfind(error).is_some_and(is_last)) {
        Some((_, advice)) => format!("{text} ({advice})"),
        None => text,
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
    fn errors_of_the_system_come_with_advice_and_without_their_number() {
        let error = std::io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(
            with_advice(&format!("x.toml: {error}")),
            "x.toml: No such file or directory (check the path; bannerwall creates no folders)"
        );
        assert_eq!(
            with_advice(&format!("x: {error} (start it)")),
            "x: No such file or directory (start it)",
            "advice of its own is better"
        );
        assert_eq!(with_advice("wrong"), "wrong");
    }

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
