//! `bannerwall fleet doctor`: compares the rights of a fleet's roles with the intended ones.

use clap::Args;

use super::DatabaseFlag;
use crate::cli::doctor::{DoctorFormat, show};
use crate::cli::{CliExitCode, CommandFailure};
use crate::doctor::{CheckState, DoctorFinding};

/// Flags of `bannerwall fleet doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Run it as the role that ran `fleet init`, or as a superuser. It changes nothing: it rolls back the
objects that it creates to compare.

Example:
  bannerwall fleet doctor --database postgresql://postgres@db/net

Exit codes: 0 all checks passed; 1 there are faults; 3 some checks could not run."
)]
pub(super) struct FleetDoctorArgs {
    #[command(flatten)]
    database: DatabaseFlag,
    /// Output format: text for a person, or one JSON object a line (check, state, message).
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: DoctorFormat,
}

pub(super) fn run(arguments: &FleetDoctorArgs) -> Result<CliExitCode, CommandFailure> {
    let mut findings = Vec::new();
    for check in arguments.database.open_server()?.check_borders()? {
        let finding = |state, message| DoctorFinding { check: check.name, state, message };
        match check.found {
            Ok(found) if found.is_empty() => findings.push(finding(CheckState::Fine, check.sound.to_owned())),
            Ok(found) => {
                findings.extend(found.into_iter().map(|message| finding(CheckState::Fault, message)));
            }
            Err(why) => findings.push(finding(CheckState::NotChecked, why)),
        }
    }
    show(&findings, arguments.format)
}
