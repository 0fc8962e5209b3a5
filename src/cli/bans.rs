//! `bannerwall bans`: shows and changes the bans of a running guard.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::control::GuardSocketFlags;
use super::result_table::{ResultTable, TableOutputFlags};
use super::{CliExitCode, CommandFailure};
use crate::diagnostics::log_line;
use crate::guard::control::ControlRequest;
use crate::guard::{BanCommand, BanInfo, BanList};
use crate::output::EscapedText;

/// Flags of `bannerwall bans`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall bans list
  bannerwall bans add 192.0.2.7 --for 1h
  bannerwall bans remove 192.0.2.7

Exit codes: 0 done; 2 refused, or no guard listens; 3 this user may not use the guard's socket.")]
pub(super) struct BansArgs {
    #[command(subcommand)]
    command: BansCommand,
}

#[derive(Debug, Subcommand)]
enum BansCommand {
    /// Show banned addresses, the remaining time and the rule.
    #[command(after_help = "Examples:\n  bannerwall bans list\n  bannerwall bans list --format json")]
    List {
        #[command(flatten)]
        output: TableOutputFlags,
        #[command(flatten)]
        guard: GuardSocketFlags,
    },
    /// Ban an address.
    #[command(after_help = "Example:\n  bannerwall bans add 2001:db8::7 --for 30m")]
    Add {
        /// The address.
        #[arg(value_parser = super::flags::address)]
        address: IpAddr,
        /// Duration of the ban, up to 365 days, in whole seconds.
        #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = super::flags::duration)]
        time: Duration,
        #[command(flatten)]
        guard: GuardSocketFlags,
    },
    /// End the ban of an address.
    #[command(after_help = "Example:\n  bannerwall bans remove 192.0.2.7")]
    Remove {
        /// The address.
        #[arg(value_parser = super::flags::address)]
        address: IpAddr,
        #[command(flatten)]
        guard: GuardSocketFlags,
    },
}

/// Runs `bannerwall bans`.
pub(super) fn run(arguments: &BansArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    match &arguments.command {
        BansCommand::List { output, guard } => list(&ask(guard, BanCommand::List)?, output, quiet),
        BansCommand::Add { address, time, guard } => {
            ask(guard, BanCommand::Add { address: *address, seconds: time.as_secs() })?;
            say(quiet, &format!("{address} is banned for {}", format_duration(time.as_secs())))
        }
        BansCommand::Remove { address, guard } => {
            ask(guard, BanCommand::Remove { address: *address })?;
            say(quiet, &format!("{address} is no longer banned"))
        }
    }
}

fn ask(guard: &GuardSocketFlags, order: BanCommand) -> Result<BanList, CommandFailure> {
    Ok(guard.ask(&ControlRequest::Bans { order })?)
}

fn list(list: &BanList, output: &TableOutputFlags, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let mut table = ResultTable::new(&["address", "seconds", "rule", "banner"]);
    for BanInfo { address, seconds, rule, banner } in &list.bans {
        let left = format_duration(*seconds);
        let by = match rule {
            Some(rule) => format!("{rule}  {}", EscapedText(banner)),
            None => "manual".to_owned(),
        };
        let object = json!({"address": address, "seconds": seconds, "rule": rule, "banner": banner});
        table.add(object, format!("{address}  {left}  {by}"));
    }
    if !quiet && list.bans.len() < list.total {
        table.say(format!("{} more are not shown", list.total - list.bans.len()));
    }
    table.write(output)?;
    Ok(CliExitCode::Done)
}

fn say(quiet: bool, message: &str) -> Result<CliExitCode, CommandFailure> {
    if !quiet {
        log_line(message);
    }
    Ok(CliExitCode::Done)
}

/// Formats seconds as `9m 58s`.
fn format_duration(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    format!("{:#}", jiff::SignedDuration::from_secs(seconds))
}
