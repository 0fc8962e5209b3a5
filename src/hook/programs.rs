//! The iptables programs, and who runs them: this process, or one beside it that still may.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::plan::{self, TABLE};
use super::runner::Runner;
use super::{Family, Variant};

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
    /// Whether nobody runs them any more.
    pub(crate) fn are_gone(&self) -> bool {
        match self {
            Self::Here => false,
            Self::Beside(runner) => runner.is_gone(),
        }
    }

    pub(super) fn call(&self, call: &Call) -> io::Result<Ended> {
        match self {
            Self::Here => call.run(),
            Self::Beside(runner) => runner.call(call),
        }
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
pub(super) struct Ended {
    /// Its exit status; none where a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
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

    /// Whether it changes nothing but our chains and the jumps to them.
    pub(super) fn is_ours(&self) -> bool {
        self.changes.iter().all(|change| plan::is_our_change(change))
    }

    /// Runs the program, and waits for its end.
    ///
    /// # Errors
    /// It can't be run.
    pub(super) fn run(&self) -> io::Result<Ended> {
        let mut child = Command::new(self.name())
            .args(self.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut pipe) = child.stdin.take()
            && self.program == Program::Restore
        {
            let input = format!("*{TABLE}\n{}\nCOMMIT\n", self.changes.join("\n"));
            // A program that ends before it has read all says why by itself.
            let _ = pipe.write_all(input.as_bytes());
        }
        let output = child.wait_with_output()?;
        Ok(Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
