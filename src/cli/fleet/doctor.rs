//! `bannerwall fleet doctor`: what the roles of a fleet may do, against what they are to.

use clap::Args;

use super::Database;
use crate::cli::doctor::{DoctorFormat, show};
use crate::cli::{Exit, Failure};
use crate::doctor::{Finding, State};

/// Whose borders are looked at.
#[derive(Debug, Args)]
#[command(
    after_help = "Run it as who has run `fleet init`, or as a superuser. It changes nothing: what it makes to compare with is rolled back.

Example:
  bannerwall fleet doctor --database postgresql://postgres@db/net

Exit codes: 0 all was looked at and is well; 1 something is to be done; 3 something could not be looked at."
)]
pub(super) struct FleetDoctorArgs {
    #[command(flatten)]
    database: Database,
    /// How findings look: lines for a person, or one JSON object a line (check, state, message).
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: DoctorFormat,
}

pub(super) fn run(arguments: &FleetDoctorArgs) -> Result<Exit, Failure> {
    let mut findings = Vec::new();
    for check in arguments.database.open()?.check_borders()? {
        let finding = |state, message| Finding { check: check.name, state, message };
        match check.found {
            Ok(found) if found.is_empty() => findings.push(finding(State::Fine, check.sound.to_owned())),
            Ok(found) => findings.extend(found.into_iter().map(|message| finding(State::Fault, message))),
            Err(why) => findings.push(finding(State::NotChecked, why)),
        }
    }
    show(&findings, arguments.format)
}
