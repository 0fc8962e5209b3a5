//! The iptables programs, and who runs them: this process, or one beside it that still may.

use std::fmt;
use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bans::BanCall;
use super::plan::{self, TABLE};
use super::runner::Runner;
use super::{Family, Variant};

/// Where the kernel names the legacy tables that were ever made; without one nobody is to make them by
/// asking.
const LEGACY_TABLES: [(Family, &str); 2] =
    [(Family::V4, "/proc/net/ip_tables_names"), (Family::V6, "/proc/net/ip6_tables_names")];

/// Seconds that a change waits for other iptables programs (legacy; `nf_tables` needs no lock).
const LOCK_WAIT: &str = "5";

/// Who runs the programs.
#[derive(Debug, Clone, Default)]
pub enum Programs {
    /// This process.
    #[default]
    Here,
    /// A process of its own, for one that may run nothing.
    Beside(Arc<Runner>),
}

impl Programs {
    /// True if nobody runs them any more.
    pub(crate) fn are_gone(&self) -> bool {
        match self {
            Self::Here => false,
            Self::Beside(runner) => runner.is_gone(),
        }
    }

    /// Looks at the machine.
    ///
    /// # Errors
    /// Nobody could.
    pub(crate) fn look(&self, question: Question) -> io::Result<Ended> {
        match self {
            Self::Here => question.ask(),
            Self::Beside(runner) => runner.ask(question),
        }
    }

    pub(super) fn ban(&self, call: &BanCall) -> io::Result<Ended> {
        match self {
            Self::Here => call.run(),
            Self::Beside(runner) => runner.ban(call),
        }
    }

    pub(super) fn call(&self, call: &Call) -> io::Result<Ended> {
        match self {
            Self::Here => call.run(),
            Self::Beside(runner) => runner.call(call),
        }
    }
}

/// What of the machine can be asked for, besides: each changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// All rules of `nf_tables`, as JSON.
    Nft,
    /// All rules of the legacy iptables.
    Legacy(Family),
    /// The rules of routing, as JSON.
    Routing(Family),
    /// The policies of xfrm.
    Policies,
    /// Interfaces, as JSON.
    Links,
    /// Queueing disciplines, as JSON.
    Disciplines,
    /// Addresses of this machine, as JSON.
    Addresses,
    /// Default routes, as JSON.
    DefaultRoutes(Family),
}

impl Question {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Nft => &["nft", "-j", "list", "ruleset"],
            Self::Legacy(Family::V4) => &["iptables-legacy-save"],
            Self::Legacy(Family::V6) => &["ip6tables-legacy-save"],
            Self::Routing(Family::V4) => &["ip", "-j", "-4", "rule"],
            Self::Routing(Family::V6) => &["ip", "-j", "-6", "rule"],
            Self::Policies => &["ip", "xfrm", "policy", "list", "nosock"],
            Self::Links => &["ip", "-j", "-d", "link"],
            Self::Disciplines => &["tc", "-j", "qdisc", "show"],
            Self::Addresses => &["ip", "-j", "addr", "show"],
            Self::DefaultRoutes(Family::V4) => &["ip", "-j", "-4", "route", "show", "default"],
            Self::DefaultRoutes(Family::V6) => &["ip", "-j", "-6", "route", "show", "default"],
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The program can't be run.
    pub(super) fn ask(self) -> io::Result<Ended> {
        let none = || Ended { code: Some(0), stdout: String::new(), stderr: String::new() };
        match self {
            Self::Legacy(family) if !has_legacy_tables(family)? => return Ok(none()),
            Self::Routing(Family::V6) | Self::DefaultRoutes(Family::V6) if !Family::V6.is_enabled() => {
                return Ok(none());
            }
            _ => {}
        }
        let (program, arguments) = self.words().split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
        Ok(Ended::of(&output))
    }
}

/// Whether there may be rules of the legacy interface.
fn has_legacy_tables(family: Family) -> io::Result<bool> {
    let named =
        LEGACY_TABLES.iter().find(|(of, _)| *of == family).map(|(_, path)| std::fs::read_to_string(path));
    match named {
        None => Ok(false),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Some(names) => Ok(!names?.trim().is_empty()),
    }
}

impl fmt::Display for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words().join(" "))
    }
}

/// Which of the programs of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Program {
    /// The one that tells its version, `iptables`.
    Version,
    /// `iptables-save`.
    Save,
    /// `iptables-restore`.
    Restore,
}

/// One run of a program: nothing else can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) family: Family,
    pub(super) variant: Variant,
    pub(super) program: Program,
    /// What `iptables-restore` is to do, as lines of its input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<String>,
}

/// How a program ended, and what it said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Its exit status; none where a signal ended it.
    pub(crate) code: Option<i32>,
    /// What it said on stdout.
    pub(crate) stdout: String,
    /// What it said on stderr.
    pub(crate) stderr: String,
}

impl Ended {
    pub(super) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Call {
    /// The program's name.
    pub(super) fn name(&self) -> String {
        let rules = self.family.program(self.variant);
        match self.program {
            Program::Version => rules.to_owned(),
            Program::Save => format!("{rules}-save"),
            Program::Restore => format!("{rules}-restore"),
        }
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.program {
            Program::Version => &["--version"],
            Program::Save => &["-c", "-t", TABLE],
            Program::Restore => &["-w", LOCK_WAIT, "--noflush"],
        }
    }

    /// The whole command, for messages.
    pub(super) fn command(&self) -> String {
        format!("{} {}", self.name(), self.arguments().join(" "))
    }

    /// True if it changes nothing but our chains and the jumps to them.
    pub(super) fn is_ours(&self) -> bool {
        self.changes.iter().all(|change| plan::is_our_change(change))
    }

    /// Runs the program, and waits for its end.
    ///
    /// # Errors
    /// It can't be run.
    pub(super) fn run(&self) -> io::Result<Ended> {
        let input = match self.program {
            Program::Restore => format!("*{TABLE}\n{}\nCOMMIT\n", self.changes.join("\n")),
            Program::Version | Program::Save => String::new(),
        };
        run_with_input(Command::new(self.name()).args(self.arguments()), input.as_bytes())
    }
}

/// Runs a program over this input, and waits until it ends.
///
/// # Errors
/// It cannot be run.
pub(super) fn run_with_input(command: &mut Command, input: &[u8]) -> io::Result<Ended> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // A program that ends before it has read all says why by itself.
        let _ = pipe.write_all(input);
    }
    Ok(Ended::of(&child.wait_with_output()?))
}
