//! `bannerwall reload`: reloads the rules of a running guard, and reports the result.

use anyhow::anyhow;
use clap::Args;

use super::control::GuardSocketFlags;
use super::{CliExitCode, CommandFailure, print};
use crate::diagnostics::several;
use crate::guard::control::{ControlError, ControlRequest, RulesInForce};

/// Flags of `bannerwall reload`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall reload
  bannerwall reload --queue 4:7

Exit code 0 if the new rules are in force, 2 if they are refused (the old ones stay) or no guard
listens, 3 if this user may not use the guard's socket.")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    guard: GuardSocketFlags,
}

/// Runs `bannerwall reload`.
pub(super) fn run(arguments: &ReloadArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let in_force: RulesInForce =
        arguments.guard.ask(&ControlRequest::Reload).map_err(|error| match error {
            ControlError::Refused(why) => {
                CommandFailure::Usage(anyhow!("{why}\nnot reloaded: the old rules stay in force"))
            }
            error => error.into(),
        })?;
    match quiet {
        true => Ok(CliExitCode::Done),
        false => print(format!("reloaded: {} in force\n", several(in_force.rules, "rule")).as_bytes()),
    }
}
