//! The programs that may run, and their output.

use std::fmt;
use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use super::rule_text::{self, TABLE};
use super::{IpFamily, IptablesVariant};

/// Files with the kernel's existing legacy tables; without one, a query would create them.
const LEGACY_TABLES: [(IpFamily, &str); 2] =
    [(IpFamily::V4, "/proc/net/ip_tables_names"), (IpFamily::V6, "/proc/net/ip6_tables_names")];

/// Seconds that a change waits for other iptables programs (legacy; `nf_tables` needs no lock).
const LOCK_WAIT: &str = "5";

/// Read-only queries of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MachineQuery {
    /// All rules of `nf_tables`, as JSON.
    Nft,
    /// All rules of the legacy iptables.
    Legacy(IpFamily),
    /// Routing rules, as JSON.
    Routing(IpFamily),
    /// Policies of xfrm.
    Policies,
    /// Interfaces, as JSON.
    Links,
    /// Queueing disciplines, as JSON.
    Disciplines,
    /// Addresses of this machine, as JSON.
    Addresses,
    /// Default routes, as JSON.
    DefaultRoutes(IpFamily),
}

impl MachineQuery {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Nft => &["nft", "-j", "list", "ruleset"],
            Self::Legacy(IpFamily::V4) => &["iptables-legacy-save"],
            Self::Legacy(IpFamily::V6) => &["ip6tables-legacy-save"],
            Self::Routing(IpFamily::V4) => &["ip", "-j", "-4", "rule"],
            Self::Routing(IpFamily::V6) => &["ip", "-j", "-6", "rule"],
            Self::Policies => &["ip", "xfrm", "policy", "list", "nosock"],
            Self::Links => &["ip", "-j", "-d", "link"],
            Self::Disciplines => &["tc", "-j", "qdisc", "show"],
            Self::Addresses => &["ip", "-j", "addr", "show"],
            Self::DefaultRoutes(IpFamily::V4) => &["ip", "-j", "-4", "route", "show", "default"],
            Self::DefaultRoutes(IpFamily::V6) => &["ip", "-j", "-6", "route", "show", "default"],
        }
    }

    /// Runs the query, and waits for its result.
    ///
    /// # Errors
    ///
    /// The program cannot be run.
    pub(super) fn ask(self) -> io::Result<ProgramOutput> {
        let none = || ProgramOutput { code: Some(0), stdout: String::new(), stderr: String::new() };
        match self {
            Self::Legacy(family) if !has_legacy_tables(family)? => return Ok(none()),
            Self::Routing(IpFamily::V6) | Self::DefaultRoutes(IpFamily::V6) if !IpFamily::V6.is_enabled() => {
                return Ok(none());
            }
            _ => {}
        }
        let (program, arguments) = self.words().split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
        Ok(ProgramOutput::of(&output))
    }
}

/// Returns true if the legacy interface may have rules.
fn has_legacy_tables(family: IpFamily) -> io::Result<bool> {
    let named =
        LEGACY_TABLES.iter().find(|(of, _)| *of == family).map(|(_, path)| std::fs::read_to_string(path));
    match named {
        None => Ok(false),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Some(names) => Ok(!names?.trim().is_empty()),
    }
}

impl fmt::Display for MachineQuery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words().join(" "))
    }
}

/// Program of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum IptablesProgram {
    /// `iptables`, to print its version.
    Version,
    /// `iptables-save`.
    Save,
    /// `iptables-restore`.
    Restore,
}

/// One run of a program, and the only permitted kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IptablesCall {
    pub(super) family: IpFamily,
    pub(super) variant: IptablesVariant,
    pub(super) program: IptablesProgram,
    /// Input lines of `iptables-restore`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<String>,
}

/// Exit status and output of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramOutput {
    /// Exit status; none after a signal.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl ProgramOutput {
    pub(super) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl IptablesCall {
    /// Returns the program's name.
    pub(super) fn name(&self) -> String {
        let rules = self.family.program(self.variant);
        match self.program {
            IptablesProgram::Version => rules.to_owned(),
            IptablesProgram::Save => format!("{rules}-save"),
            IptablesProgram::Restore => format!("{rules}-restore"),
        }
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.program {
            IptablesProgram::Version => &["--version"],
            IptablesProgram::Save => &["-c", "-t", TABLE],
            IptablesProgram::Restore => &["-w", LOCK_WAIT, "--noflush"],
        }
    }

    /// Returns the whole command, for messages.
    pub(super) fn command(&self) -> String {
        format!("{} {}", self.name(), self.arguments().join(" "))
    }

    /// True if it changes only the hook's chains and the jumps to them.
    pub(super) fn is_ours(&self) -> bool {
        self.changes.iter().all(|change| rule_text::is_our_change(change))
    }

    /// Runs the program, and waits for its exit.
    ///
    /// # Errors
    ///
    /// The program cannot be run.
    pub(super) fn run(&self) -> io::Result<ProgramOutput> {
        let input = match self.program {
            IptablesProgram::Restore => format!("*{TABLE}\n{}\nCOMMIT\n", self.changes.join("\n")),
            IptablesProgram::Version | IptablesProgram::Save => String::new(),
        };
        run_with_input(Command::new(self.name()).args(self.arguments()), input.as_bytes())
    }
}

/// Runs a program with this input, and waits for its exit.
///
/// # Errors
///
/// The program cannot be run.
pub(super) fn run_with_input(command: &mut Command, input: &[u8]) -> io::Result<ProgramOutput> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // A program that exits before it has read all input prints its own error.
        // Dropping the pipe afterwards is what ends the program's input.
        let _ = pipe.write_all(input);
    }
    Ok(ProgramOutput::of(&child.wait_with_output()?))
}
