//! `bannerwall doctor`: flags in, findings and an exit code out.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};

use super::hook::{FamilyFlag, VariantFlag};
use super::{CliCommand, CliExitCode, CommandFailure, print, print_lines};
use crate::doctor::{self, CheckState, DoctorFinding, DoctorOptions, GuardReadError, GuardSettings};
use crate::hook::{IptablesScope, MarkField, ProgramRunner};
use crate::output::text::ColourMode;

/// Flags of `bannerwall doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo bannerwall doctor --mark 30 --queue 0
  sudo bannerwall doctor --format json | jq 'select(.state != \"ok\")'

Exit codes: 0 all checks passed; 1 there are faults; 3 there are none, but some checks could not
run because a privilege or a program is missing.")]
pub(super) struct DoctorArgs {
    /// Queue number to try; it must not be in use.
    #[arg(long, value_name = "N", default_value_t = 65_000)]
    queue: u16,
    /// Lowest of the two adjacent mark bits to check [default: those of the active hook, else 30].
    #[arg(long, value_name = "BIT",
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: Option<u8>,
    #[command(flatten)]
    variant: VariantFlag,
    #[command(flatten)]
    families: FamilyFlag,
    /// Output format: text for a person, or one JSON object a line (check, state, message).
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: DoctorFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DoctorFormat {
    /// Readable lines for a person.
    Text,
    /// One JSON object a line; `state` is ok, nothing, fault, denied or `not_checked`.
    Json,
}

/// Runs `bannerwall doctor`.
pub(super) fn run(arguments: &DoctorArgs) -> Result<CliExitCode, CommandFailure> {
    let findings = doctor::examine(&DoctorOptions {
        queue: arguments.queue,
        mark: arguments.mark.and_then(MarkField::new),
        scope: IptablesScope {
            variant: arguments.variant.variant(),
            families: arguments.families.families(),
            programs: ProgramRunner::Here,
        },
        read_guard: &read_guard,
    });
    show(&findings, arguments.format)
}

/// Prints findings, and returns the exit code of the worst.
pub(super) fn show(findings: &[DoctorFinding], format: DoctorFormat) -> Result<CliExitCode, CommandFailure> {
    let (mut text, colour) = (String::new(), ColourMode::for_stream(&std::io::stdout()));
    for finding in findings {
        // Writing to a String cannot fail.
        let _ = match format {
            DoctorFormat::Text => writeln!(text, "{}", line(finding, colour)),
            DoctorFormat::Json => writeln!(text, "{}", object(finding)),
        };
    }
    match format {
        DoctorFormat::Text => print_lines(&format!("{text}{}\n", count(findings)))?,
        DoctorFormat::Json => print(text.as_bytes())?,
    };
    Ok(exit(findings))
}

/// Returns the exit code: faults first, then checks that could not run.
fn exit(findings: &[DoctorFinding]) -> CliExitCode {
    if findings.iter().any(|finding| finding.state == CheckState::Fault) {
        CliExitCode::Findings
    } else if findings.iter().any(|finding| finding.state.is_open()) {
        CliExitCode::Unsupported
    } else {
        CliExitCode::Done
    }
}

fn line(finding: &DoctorFinding, colour: ColourMode) -> String {
    let (state, not_checked) = match finding.state {
        CheckState::Fine => ("ok", ""),
        CheckState::Nothing => ("-", ""),
        CheckState::Fault => ("FAULT", ""),
        CheckState::Denied => ("DENIED", ""),
        CheckState::NotChecked => ("?", "not checked: "),
    };
    let padded = format!("{state:5}");
    let state = match finding.state {
        CheckState::Nothing => padded,
        state => colour.judgement(state == CheckState::Fine, &padded),
    };
    format!("{state} {}: {not_checked}{}", finding.check, finding.message)
}

/// Returns the last line: the number of results by state.
fn count(findings: &[DoctorFinding]) -> String {
    let number = |state| findings.iter().filter(|finding| finding.state == state).count();
    let faults = number(CheckState::Fault);
    let kinds = [
        (number(CheckState::Fine), "ok"),
        (number(CheckState::Nothing), "nothing to check"),
        (faults, if faults == 1 { "fault" } else { "faults" }),
        (number(CheckState::Denied), "denied"),
        (number(CheckState::NotChecked), "not checked"),
    ];
    let counted = kinds.iter().filter(|(count, _)| *count > 0);
    counted.map(|(count, kind)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

fn object(finding: &DoctorFinding) -> serde_json::Value {
    serde_json::json!({
        "check": finding.check,
        "state": finding.state.name(),
        "message": finding.message,
    })
}

/// Returns the settings of a guard with this command line and working folder.
fn read_guard(arguments: Vec<OsString>, folder: &Path) -> Result<Option<GuardSettings>, GuardReadError> {
    let cli = super::parse(super::config::from_folder(arguments, folder)).map_err(|_| GuardReadError)?;
    Ok(match cli.command {
        CliCommand::Guard(guard) => Some(guard.settings()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(state: CheckState) -> DoctorFinding {
        DoctorFinding { check: "mark", state, message: "said".to_owned() }
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_finding() {
        let [fine, fault, denied, unseen] =
            [CheckState::Fine, CheckState::Fault, CheckState::Denied, CheckState::NotChecked].map(finding);
        assert_eq!(exit(std::slice::from_ref(&fine)), CliExitCode::Done);
        assert_eq!(
            line(&denied, ColourMode::Never),
            "DENIED mark: said",
            "no fault, of which the exit code tells otherwise"
        );
        assert_eq!(exit(&[fine.clone(), denied]), CliExitCode::Unsupported);
        assert_eq!(exit(&[fine, unseen.clone()]), CliExitCode::Unsupported);
        assert_eq!(exit(&[unseen.clone(), fault]), CliExitCode::Findings);
        assert_eq!(line(&unseen, ColourMode::Never), "?     mark: not checked: said");
    }

    #[test]
    fn a_guards_command_line_is_read_with_its_configuration() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        std::fs::write(folder.path().join("b.toml"), "[guard]\nmark = 4\non-failure = \"closed\"\n")
            .expect("it is ours");
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["bannerwall --config b.toml guard --queue 2:3", "x guard --queue=2:3 --config=b.toml"] {
            let settings = read_guard(words(line), folder.path()).expect("it is whole").expect("a guard's");
            assert_eq!(
                (settings.queues.to_string(), settings.mark.bit(), settings.open),
                ("2:3".to_owned(), 4, false)
            );
        }
        assert_eq!(read_guard(words("bannerwall hook status"), folder.path()), Ok(None));
        assert_eq!(
            read_guard(words("bannerwall guard --config no.toml"), folder.path()),
            Err(GuardReadError)
        );
    }
}
