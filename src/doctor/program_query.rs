//! Queries of other programs, which distinguish an empty result from a failure.

use std::io::ErrorKind;
use std::process::Command;

/// Reason of a failed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramQueryError {
    /// The program is missing.
    NoProgram {
        /// Program.
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
    },
    /// The program failed, mostly for lack of privilege.
    Failed {
        /// Program.
        program: &'static str,
        /// Output, in one line.
        message: String,
    },
}

impl std::fmt::Display for ProgramQueryError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoProgram { program, package } => {
                write!(formatter, "no `{program}` on PATH (Debian: apt install {package})")
            }
            Self::Failed { program, message } => write!(formatter, "`{program}` failed: {message}"),
        }
    }
}

/// Returns the output of a program.
///
/// # Errors
///
/// The program is missing, or fails.
pub(super) fn ask(
    program: &'static str,
    package: &'static str,
    words: &[&str],
) -> Result<String, ProgramQueryError> {
    let output = Command::new(program).args(words).output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => ProgramQueryError::NoProgram { program, package },
        _ => ProgramQueryError::Failed { program, message: error.to_string() },
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = if said.is_empty() { output.status.to_string() } else { said };
    Err(ProgramQueryError::Failed { program, message })
}

/// Returns the output of a program as JSON.
///
/// # Errors
///
/// As [`ask`], or the output is not JSON.
pub(super) fn ask_json(
    program: &'static str,
    package: &'static str,
    words: &[&str],
) -> Result<serde_json::Value, ProgramQueryError> {
    let text = ask(program, package, words)?;
    serde_json::from_str(&text)
        .map_err(|error| ProgramQueryError::Failed { program, message: error.to_string() })
}
