//! The command line: text in, validated configuration out, one file a subcommand.
//!
//! Nothing below this room sees clap. Results go to stdout, diagnostics and progress to stderr.

mod advisories;
mod bans;
mod config;
mod control;
mod doctor;
mod exit;
mod explain;
mod extent;
mod flags;
mod fleet;
mod guard;
mod hook;
mod import;
mod inspection;
mod inventory;
mod man;
mod metrics;
mod page;
mod reload;
mod replay;
mod rule_paths;
mod rules;
mod rules_from;
mod scan;
mod serve;
mod status;
mod table;
mod trial;
mod tunnel;
mod why;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::thread::CapabilitySet;

pub use exit::{Exit, Failure};

use crate::confinement::Confinement;
use crate::hook::runner;
use crate::inventory::connections;
use crate::privileges::{self, FILES, NETWORK};

/// Find, watch and block vulnerable or forbidden SSH and HTTP software.
///
/// A rule about a banner is written once and used three ways: `guard` judges live packets of a
/// netfilter queue, `replay` reads capture files, `scan` asks the network.
#[derive(Debug, Parser)]
#[command(name = "bannerwall", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every subcommand takes.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// Read flags from a TOML file: a table a subcommand, keys named as the flags; flags given on
    /// the command line win.
    #[arg(long, global = true, value_name = "FILE", help_heading = "General")]
    config: Option<std::path::PathBuf>,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "General")]
    pub quiet: bool,
    /// Print more; twice for still more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "General")]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lead packets to the guard with iptables rules, and take those away again.
    Hook(hook::HookArgs),
    /// Check, list and try rule files.
    Rules(rules::RulesArgs),
    /// Judge the packets of netfilter queues by rules: watch, and with --enforce block.
    Guard(Box<guard::GuardArgs>),
    /// Have a running guard read its rules again; exit code 2 where they are refused.
    Reload(reload::ReloadArgs),
    /// Show the state of a running guard; exit code 1 with faults.
    Status(status::StatusArgs),
    /// Show what a running guard blocked for an address, by which rule, and how to let it pass.
    Why(why::WhyArgs),
    /// Show and change who is banned by a running guard.
    Bans(bans::BansArgs),
    /// Scan networks for SSH and HTTP servers and judge what they say by the rules.
    Scan(Box<scan::ScanArgs>),
    /// Have networks scanned by many workers, which find one truth in a PostgreSQL database.
    Fleet(Box<fleet::FleetArgs>),
    /// Read capture files and tell what the guard would have told.
    #[command(
        after_help = "Examples:\n  bannerwall replay capture.pcap\n  bannerwall replay --format json *.pcapng.gz > events.json\n  tcpdump -w - tcp | bannerwall replay -\n\nExit code 2 where a file is damaged or no capture; what could be read of it was."
    )]
    Replay(replay::ReplayArgs),
    /// Ask what is on the network: what guard, scan and replay have kept with --inventory.
    Inventory(inventory::InventoryArgs),
    /// Carry packets to a peer over UDP and back, by a tun device, many segments a call.
    Tunnel(Box<tunnel::TunnelArgs>),
    /// Tell what of this machine the guard and the scan can rely on; exit code 1 with faults.
    Doctor(doctor::DoctorArgs),
    /// Show the inventory to browsers, and as JSON to programs.
    Serve(serve::ServeArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  bannerwall completions bash > /etc/bash_completion.d/bannerwall")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page (roff), or write all of them.
    Man(man::ManArgs),
}

/// Runs the program with `arguments` (the program's name first).
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let outcome = match arguments.as_slice() {
        [_, only] if only == runner::SUBCOMMAND => run_programs(),
        [_, only] if only == crate::serve::runner::SUBCOMMAND => run_scans(),
        [_, only] if only == connections::SUBCOMMAND => run_connections(),
        _ => parse(arguments).and_then(|cli| run(&cli)),
    };
    match outcome {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    }
}

/// Runs iptables for a guard that may run nothing itself. Guards start this; it is nobody else's subcommand.
fn run_programs() -> Result<Exit, Failure> {
    privileges::leave_root_with_programs(NETWORK | FILES)?;
    Confinement::default().starting_programs().filter_or_tell();
    runner::serve()?;
    Ok(Exit::Done)
}

/// Starts scans for a page that may run nothing itself. Pages start this; it is nobody else's subcommand.
fn run_scans() -> Result<Exit, Failure> {
    // What a scan keeps for itself.
    privileges::leave_root_with_programs(FILES | CapabilitySet::IPC_LOCK)?;
    // Scans submit by rings.
    Confinement::default().starting_programs().submitting().filter_or_tell();
    crate::serve::runner::serve()?;
    Ok(Exit::Done)
}

/// Leaves root before a thread runs, once these files are made: they stay root's.
fn leave_root_owning<'a>(needed: CapabilitySet, files: impl Iterator<Item = &'a Path>) {
    if privileges::User::in_place_of_root().is_some() {
        for file in files.filter(|file| std::fs::symlink_metadata(file).is_err()) {
            // Whoever writes it says what is wrong with it.
            let _ = crate::output::create(file);
        }
    }
    privileges::leave_root_or_tell(needed);
}

/// Connects to a database for a guard. Guards start this; it is nobody else's subcommand.
fn run_connections() -> Result<Exit, Failure> {
    connections::serve()?;
    Ok(Exit::Done)
}

/// Returns the command line; the help of `guard` leaves out what few need.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("guard", |command| {
        command.mut_args(|flag| {
            let is_rare = flag.get_long().is_some_and(|name| guard::RARE_FLAGS.contains(&name));
            flag.hide(is_rare)
        })
    })
}

/// Reads the command line, filled up from `--config`.
fn parse(arguments: Vec<OsString>) -> Result<Cli, Failure> {
    let command = command();
    let arguments = config::fill(&command, scan::fill(&command, arguments)?)?;
    let matches = command.clone().try_get_matches_from(arguments)?;
    Ok(Cli::from_arg_matches(&matches)?)
}

fn run(cli: &Cli) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Guard(arguments) => guard::run(arguments, cli.global.config.as_deref()),
        Command::Reload(arguments) => reload::run(arguments, cli.global.quiet),
        Command::Status(arguments) => status::run(arguments),
        Command::Why(arguments) => why::run(arguments),
        Command::Bans(arguments) => bans::run(arguments, cli.global.quiet),
        Command::Inventory(arguments) => inventory::run(arguments, cli.global.quiet),
        Command::Tunnel(arguments) => tunnel::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Serve(arguments) => serve::run(arguments, cli.global.quiet),
        Command::Hook(arguments) => hook::run(arguments, cli.global.quiet),
        Command::Rules(arguments) => rules::run(arguments, cli.global.quiet, cli.global.verbose),
        Command::Scan(arguments) => scan::run(arguments, &cli.global),
        Command::Fleet(arguments) => fleet::run(arguments, &cli.global),
        Command::Replay(arguments) => replay::run(arguments, cli.global.quiet),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(), "bannerwall", &mut script);
            print(&script)
        }
        Command::Man(arguments) => man::run(arguments, command()),
    }
}

/// Whether `--learn` can write to `path` at the end of the run.
fn check_learn(path: &std::path::Path) -> Result<(), Failure> {
    let fault = |error| anyhow::anyhow!("--learn {}: {error}", path.display());
    crate::output::learn::check(path).map_err(fault).map_err(Failure::Usage)
}

/// Whether the inventory has taken everything; scan and replay are not over well where it has not.
fn check_kept(lost: u64) -> Result<(), Failure> {
    match lost {
        0 => Ok(()),
        lost => Err(Failure::Usage(anyhow::anyhow!("{lost} sightings are missing in the inventory"))),
    }
}

/// Writes a finished text to stdout; a reader that went away is not an error.
fn print(text: &[u8]) -> Result<Exit, Failure> {
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Exit::Done),
    }
}
