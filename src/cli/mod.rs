//! The command line: turns text into validated configuration, one file for each subcommand.
//!
//! No module below this one uses clap. Results go to stdout, diagnostics and progress to stderr.

mod advisories;
mod bans;
mod config;
mod control;
mod doctor;
mod exit_code;
mod explain;
mod flags;
mod fleet;
mod flow_test;
mod guard;
mod help_groups;
mod hook;
mod import;
mod inspection;
mod inspection_extent;
mod inventory;
mod man;
mod metrics;
mod page;
mod reload;
mod replay;
mod result_table;
mod rule_flags;
mod rule_paths;
mod rules;
mod rules_from;
mod scan;
mod serve;
mod status;
mod terminal_lines;
mod tunnel;
mod why;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::thread::CapabilitySet;

pub use exit_code::{CliExitCode, CommandFailure};

use crate::confinement::Confinement;
use crate::database::helper_process;
use crate::hook::program_helper;
use crate::privileges::{self, FILES, NETWORK};

/// Find, watch and block vulnerable or forbidden software by its banners: SSH, HTTP, TLS and more.
///
/// You write a rule about a banner once and use it three ways: `guard` inspects live packets of a netfilter
/// queue, `replay` reads capture files, `scan` probes the network.
#[derive(Debug, Parser)]
#[command(name = "bannerwall", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    global: GlobalFlags,
    #[command(subcommand)]
    command: CliCommand,
}

/// Flags of every subcommand.
#[derive(Debug, Clone, clap::Args)]
pub struct GlobalFlags {
    /// Read flags from a TOML file.
    ///
    /// It has one table for each subcommand, and its keys are named as the flags. Flags of the command line
    /// win.
    #[arg(long, global = true, value_name = "FILE", help_heading = "General")]
    config: Option<std::path::PathBuf>,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "General")]
    pub quiet: bool,
    /// Print more; pass it twice for still more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "General")]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Put up iptables rules that lead packets to the guard, and take them down.
    Hook(hook::HookArgs),
    /// Check, list and test rule files.
    Rules(rules::RulesArgs),
    /// Inspect the packets of netfilter queues by rules: watch, and with --enforce block.
    Guard(Box<guard::GuardArgs>),
    /// Reload the rules of a running guard; exit code 2 if they are refused.
    Reload(reload::ReloadArgs),
    /// Show the state of a running guard; exit code 1 if there are faults.
    Status(status::StatusArgs),
    /// Show what a running guard blocked for an address, by which rule, and how to allow it.
    Why(why::WhyArgs),
    /// Show and change the bans of a running guard.
    Bans(bans::BansArgs),
    /// Scan networks for SSH, HTTP and other servers, and match their banners against the rules.
    Scan(Box<scan::ScanArgs>),
    /// Scan networks with many workers that share one database.
    Fleet(Box<fleet::FleetArgs>),
    /// Read capture files and report what the guard would have reported.
    #[command(
        after_help = "Examples:\n  bannerwall replay capture.pcap\n  bannerwall replay --format json *.pcapng.gz > events.json\n  tcpdump -w - tcp | bannerwall replay -\n\nExit code 2 if a file is damaged or not a capture; its readable part is processed."
    )]
    Replay(replay::ReplayArgs),
    /// Query what guard, scan and replay recorded with --inventory.
    Inventory(inventory::InventoryArgs),
    /// Carry packets to a peer over UDP and back, with a tun device and many segments a call.
    Tunnel(Box<tunnel::TunnelArgs>),
    /// Check this machine for the guard's and the scan's needs; exit code 1 if there are faults.
    Doctor(doctor::DoctorArgs),
    /// Show the inventory to browsers, and as JSON to programs.
    Serve(serve::ServeArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  bannerwall completions bash > /etc/bash_completion.d/bannerwall")]
    Completions {
        /// Shell of the script.
        shell: clap_complete::Shell,
    },
    /// Print a manual page (roff), or write all of them.
    Man(man::ManArgs),
}

/// Runs the program with `arguments` (the program's name first).
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> CliExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let outcome = match arguments.as_slice() {
        // The helper processes come before the parser: they are no commands for users, and must not
        // appear in `--help`.
        [_, only] if only == program_helper::SUBCOMMAND => run_programs(),
        [_, only] if only == crate::serve::scan_worker::SUBCOMMAND => run_scans(),
        [_, only] if only == helper_process::SUBCOMMAND => run_connections(),
        [_, only] if only == crate::inventory::NOTIFIER => run_notifier(),
        _ => parse(arguments).and_then(|cli| run(&cli)),
    };
    match outcome {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    }
}

/// Runs iptables for a guard that is not permitted to run programs. Only guards start this hidden subcommand.
fn run_programs() -> Result<CliExitCode, CommandFailure> {
    privileges::leave_root_with_programs(NETWORK | FILES)?;
    Confinement::default().starting_programs().filter_or_warn();
    program_helper::serve()?;
    Ok(CliExitCode::Done)
}

/// Takes the scans of a page from its queue. Only pages start this hidden subcommand.
fn run_scans() -> Result<CliExitCode, CommandFailure> {
    crate::serve::scan_worker::serve(scan::fleet_scan::task)?;
    Ok(CliExitCode::Done)
}

/// Leaves root before any thread starts. It creates these files first, so they stay root's.
fn leave_root_owning<'a>(needed: CapabilitySet, files: impl Iterator<Item = &'a Path>) {
    if privileges::UnprivilegedUser::in_place_of_root().is_some() {
        for file in files.filter(|file| std::fs::symlink_metadata(file).is_err()) {
            // The later writer reports an error of this file, with its flag.
            let _ = crate::output::create(file);
        }
    }
    privileges::leave_root_or_warn(needed);
}

/// Connects to a database for a guard. Only guards start this hidden subcommand.
fn run_connections() -> Result<CliExitCode, CommandFailure> {
    helper_process::serve()?;
    Ok(CliExitCode::Done)
}

/// Delivers notifications for a process that reads bytes from the network. Only such processes start it.
fn run_notifier() -> Result<CliExitCode, CommandFailure> {
    crate::inventory::serve_notifier()?;
    Ok(CliExitCode::Done)
}

/// Returns the command line, with its flags in groups.
pub(crate) fn command() -> clap::Command {
    help_groups::arrange(Cli::command())
}

/// Parses the command line, with defaults from `--config`.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, CommandFailure> {
    let command = command();
    // A checkpoint's command line may name a configuration file, so the checkpoint is read first. It may lack
    // the mode of a scan, too.
    let arguments = scan::fill(&command, scan::with_mode(arguments))?;
    let given = arguments.len();
    let arguments = config::fill(&command, scan::with_mode(arguments))?;
    let has_config = arguments.len() > given;
    let parsed = parse_flags(command, arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| match has_config && error.use_stderr() {
        true => CommandFailure::ClapWithConfig(error),
        false => CommandFailure::Clap(error),
    })
}

/// Parses the command line alone, without what files add to it.
pub(crate) fn parse_flags(
    command: clap::Command,
    arguments: Vec<OsString>,
) -> Result<clap::ArgMatches, clap::Error> {
    command.try_get_matches_from(scan::with_mode(arguments))
}

fn run(cli: &Cli) -> Result<CliExitCode, CommandFailure> {
    match &cli.command {
        CliCommand::Guard(arguments) => guard::run(arguments, cli.global.config.as_deref()),
        CliCommand::Reload(arguments) => reload::run(arguments, cli.global.quiet),
        CliCommand::Status(arguments) => status::run(arguments),
        CliCommand::Why(arguments) => why::run(arguments),
        CliCommand::Bans(arguments) => bans::run(arguments, cli.global.quiet),
        CliCommand::Inventory(arguments) => inventory::run(arguments, cli.global.quiet),
        CliCommand::Tunnel(arguments) => tunnel::run(arguments),
        CliCommand::Doctor(arguments) => doctor::run(arguments),
        CliCommand::Serve(arguments) => serve::run(arguments, cli.global.quiet),
        CliCommand::Hook(arguments) => hook::run(arguments, cli.global.quiet),
        CliCommand::Rules(arguments) => rules::run(arguments, cli.global.quiet, cli.global.verbose),
        CliCommand::Scan(arguments) => scan::run(arguments, &cli.global),
        CliCommand::Fleet(arguments) => fleet::run(arguments, &cli.global),
        CliCommand::Replay(arguments) => replay::run(arguments, cli.global.quiet),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(), "bannerwall", &mut script);
            print(&script)
        }
        CliCommand::Man(arguments) => man::run(arguments, command()),
    }
}

/// Checks that `--learn` can write to `path` at the end of the run.
fn check_learn(path: &std::path::Path) -> Result<(), CommandFailure> {
    let fault = |error| anyhow::anyhow!("--learn {}: {error}", path.display());
    crate::output::learned_policies::check(path).map_err(fault).map_err(CommandFailure::Usage)
}

/// Fails a scan or replay if the inventory lost sightings.
fn check_kept(lost: u64) -> Result<(), CommandFailure> {
    match lost {
        0 => Ok(()),
        lost => Err(CommandFailure::Usage(anyhow::anyhow!("the inventory lacks sightings: {lost}"))),
    }
}

/// Writes lines for a person to stdout, as wide as the terminal.
fn print_lines(text: &str) -> Result<CliExitCode, CommandFailure> {
    print(terminal_lines::fit(text).as_bytes())
}

/// Writes a finished text to stdout; a closed pipe is not an error.
fn print(text: &[u8]) -> Result<CliExitCode, CommandFailure> {
    match std::io::stdout().write_all(text) {
        // `| head` closes the pipe early, which is not an error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(CliExitCode::Done),
    }
}
