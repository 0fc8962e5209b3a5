//! `bannerwall reload`: has a running guard read its rules again, and tells how that went.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::{Exit, Failure, print};
use crate::guard::control;
use crate::hook::Queues;

/// Flags of `bannerwall reload`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall reload
  bannerwall reload --queue 4:7

Exit code 0 where the new rules are in force, 2 where they are refused (the old ones stay) or no guard
listens, 3 where this user may not ask it.")]
pub(super) struct ReloadArgs {
    /// The queues of the guard, as it was told.
    #[arg(long, value_name = "N|A:B", default_value = "0")]
    queue: Queues,
    /// The guard's control socket, where it was told one.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs `bannerwall reload`.
pub(super) fn run(arguments: &ReloadArgs, quiet: bool) -> Result<Exit, Failure> {
    let sockets = sockets(arguments.control.as_ref(), arguments.queue);
    let answer = control::reload(&sockets).map_err(|error| match error.is_unsupported() {
        true => Failure::unsupported(error),
        false => Failure::usage(error),
    })?;
    if let Some(error) = answer.error {
        return Err(Failure::Usage(anyhow!("{error}\nnot reloaded: the old rules stay in force")));
    }
    match quiet {
        true => Ok(Exit::Done),
        false => print(format!("reloaded: {} rules are in force\n", answer.rules).as_bytes()),
    }
}

/// Where the guard of these queues may listen.
fn sockets(named: Option<&PathBuf>, queues: Queues) -> Vec<PathBuf> {
    let first = queues.numbers().next().unwrap_or_default();
    named.map_or_else(|| control::places(first), |path| vec![path.clone()])
}
