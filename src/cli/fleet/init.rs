//! `bannerwall fleet init` and `fleet merge`: setup for sensors, and merging of their batches.

use anyhow::anyhow;
use clap::Args;
use crossbeam_channel::{Receiver, bounded};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::DatabaseFlag;
use crate::cli::flags::inventory_place;
use crate::cli::{CliExitCode, CommandFailure};
use crate::confinement::{Confinement, warn_unconfined};
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::fleet::{FleetDatabase, FleetRole, MergeConfig, MergeCounts, RoleGroup, check_name};
use crate::privileges::leave_root_or_warn;

/// Flags of `bannerwall fleet init`.
#[derive(Debug, Args)]
#[command(
    after_help = "The groups of database D are bannerwall_D_sensor (inserts batches, reads only published rules),
bannerwall_D_worker (scans, and merges batches), bannerwall_D_reader (the page, `inventory list`),
bannerwall_D_admin (submits scans) and bannerwall_D_publisher (only publishes rules). All other
roles lose the right to connect. A sensor has the name of its role. The roles have no passwords:
set them with \\password NAME in psql.

Examples:
  bannerwall fleet init --sensor gw-1 --sensor gw-2 --worker worker --reader page \\
      --database postgresql://postgres@db/net
  # one more sensor, later
  bannerwall fleet init --sensor gw-3 --database postgresql://postgres@db/net
  bannerwall fleet init --sensor gw-1 --dry-run | psql postgresql://postgres@db/net"
)]
pub(super) struct InitArgs {
    /// Database: `postgresql://user@host/database?sslmode=verify-full`, with the password in PGPASSWORD.
    #[arg(long, value_name = "URL", value_parser = inventory_place(), required_unless_present = "dry_run")]
    database: Option<DatabaseLocation>,
    /// Create a role for a sensor with this name; can be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    sensor: Vec<String>,
    /// Create a role for workers; can be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    worker: Vec<String>,
    /// Create a role for readers; can be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    reader: Vec<String>,
    /// Create a role for administrators, who submit scans; can be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    admin: Vec<String>,
    /// Create a role that publishes rules; can be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    publisher: Vec<String>,
    /// Print the SQL for an empty database, and connect to none.
    #[arg(long)]
    dry_run: bool,
}

/// Flags of `bannerwall fleet merge`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall fleet merge --database postgresql://worker@db/net
  bannerwall fleet merge --follow --database postgresql://worker@db/net   # if no worker runs
  bannerwall fleet merge --again --database postgresql://worker@db/net    # after an upgrade")]
pub(super) struct MergeArgs {
    #[command(flatten)]
    database: DatabaseFlag,
    /// Keep waiting for batches, and for a database that is away.
    #[arg(long)]
    follow: bool,
    /// Retry unreadable batches that were set aside.
    #[arg(long)]
    again: bool,
    /// Do not confine the process to the network, for debugging. A malicious batch that exploits a bug could
    /// then open every file and run every program.
    #[arg(long)]
    no_sandbox: bool,
}

fn name(text: &str) -> Result<String, &'static str> {
    check_name(text).map(|()| text.to_owned())
}

impl InitArgs {
    fn members(&self) -> Result<Vec<FleetRole>, CommandFailure> {
        let all = [
            (&self.sensor, RoleGroup::Sensor),
            (&self.worker, RoleGroup::Worker),
            (&self.reader, RoleGroup::Reader),
            (&self.admin, RoleGroup::Admin),
            (&self.publisher, RoleGroup::Publisher),
        ];
        let member = |group| move |name: &String| FleetRole { name: name.clone(), group };
        let members: Vec<FleetRole> =
            all.into_iter().flat_map(|(names, group)| names.iter().map(member(group))).collect();
        let others = |name: &str| members.iter().any(|it| it.name == name && it.group != RoleGroup::Sensor);
        match self.sensor.iter().find(|name| others(name)) {
            Some(name) => Err(CommandFailure::Usage(anyhow!(
                "--sensor {name}: a sensor needs its own role, without rights to read; choose another name"
            ))),
            None => Ok(members),
        }
    }
}

pub(super) fn run(arguments: &InitArgs) -> Result<CliExitCode, CommandFailure> {
    let members = arguments.members()?;
    let told = match &arguments.database {
        Some(place) if !arguments.dry_run => FleetDatabase::init(place, &members)?.join("\n") + "\n",
        _ => crate::fleet::script(&members),
    };
    crate::cli::print(told.as_bytes())
}

pub(super) fn merge(arguments: &MergeArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let config = MergeConfig {
        place: arguments.database.of_server()?.clone(),
        follows: arguments.follow,
        tries_again: arguments.again,
    };
    let signals = Signals::new([SIGINT, SIGTERM])?;
    if arguments.no_sandbox {
        warn_unconfined("a batch");
    } else {
        // Batches come from other machines: the confinement must hold before the first one is read.
        leave_root_or_warn(CapabilitySet::empty());
        Confinement::default().finding_servers().apply_or_warn(quiet);
    }
    let MergeCounts { batches, refused } = crate::fleet::merge(&config, &stop_channel(signals)?)?;
    if !quiet {
        let aside = if refused > 0 { format!(", {refused} set aside") } else { String::new() };
        let merged = if batches == 1 { "batch" } else { "batches" };
        log_line(format_args!("{batches} {merged} merged{aside}"));
    }
    Ok(CliExitCode::Done)
}

/// Returns a channel that closes at one of these signals. Its thread inherits the caller's confinement.
fn stop_channel(mut signals: Signals) -> Result<Receiver<()>, CommandFailure> {
    let (stop, stopped) = bounded(0);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().next();
        drop(stop);
    })?;
    Ok(stopped)
}
