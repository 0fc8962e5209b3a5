//! `bannerwall fleet init` and `fleet merge`: what sensors need.

use anyhow::anyhow;
use clap::Args;
use crossbeam_channel::{Receiver, bounded};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Database;
use crate::cli::flags::inventory_place;
use crate::cli::{Exit, Failure};
use crate::confinement::{Confinement, tell_unheld};
use crate::diagnostics::tell;
use crate::fleet::{Group, Member, MergeConfig, Merged, Queue, check_name};
use crate::inventory::Place;
use crate::privileges::leave_root_or_tell;

/// What is to be there.
#[derive(Debug, Args)]
#[command(
    after_help = "The groups of database D are bannerwall_D_sensor (enters what it sees, reads nothing but rules), bannerwall_D_worker
(scans, and enters what sensors send), bannerwall_D_reader (the page, `inventory list`), bannerwall_D_admin (gives
orders) and bannerwall_D_publisher (publishes rules, and does nothing else). No other role can connect any more. A sensor has the name of its role. Roles are made without passwords: in psql, \\password NAME gives one.

Examples:
  bannerwall fleet init --sensor gw-1 --sensor gw-2 --worker worker --reader page --database postgresql://postgres@db/net
  bannerwall fleet init --sensor gw-3 --database postgresql://postgres@db/net       one more, later
  bannerwall fleet init --sensor gw-1 --dry-run | psql postgresql://postgres@db/net"
)]
pub(super) struct InitArgs {
    /// The database: `postgresql://user@host/database?sslmode=verify-full`; the password may stand in
    /// PGPASSWORD.
    #[arg(long, value_name = "URL", value_parser = inventory_place(), required_unless_present = "dry_run")]
    database: Option<Place>,
    /// A role for a sensor of this name; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    sensor: Vec<String>,
    /// A role for workers; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    worker: Vec<String>,
    /// A role for those who read; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    reader: Vec<String>,
    /// A role for those who give orders; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    admin: Vec<String>,
    /// A role for those who publish rules; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = name)]
    publisher: Vec<String>,
    /// Print the SQL that does so in an empty database, and ask none.
    #[arg(long)]
    dry_run: bool,
}

/// Whose inbox is emptied, and for how long.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall fleet merge --database postgresql://worker@db/net
  bannerwall fleet merge --follow --database postgresql://worker@db/net       where no worker runs
  bannerwall fleet merge --again --database postgresql://worker@db/net        once a newer version is installed")]
pub(super) struct MergeArgs {
    #[command(flatten)]
    database: Database,
    /// Go on when there is nothing more, and while the database is away.
    #[arg(long)]
    follow: bool,
    /// Try once more what was set aside, since it could not be read.
    #[arg(long)]
    again: bool,
    /// Do not confine the process to the network, for debugging: what a batch leads astray may then open
    /// every file and run every program.
    #[arg(long)]
    no_sandbox: bool,
}

fn name(text: &str) -> Result<String, &'static str> {
    check_name(text).map(|()| text.to_owned())
}

impl InitArgs {
    fn members(&self) -> Result<Vec<Member>, Failure> {
        let all = [
            (&self.sensor, Group::Sensor),
            (&self.worker, Group::Worker),
            (&self.reader, Group::Reader),
            (&self.admin, Group::Admin),
            (&self.publisher, Group::Publisher),
        ];
        let member = |group| move |name: &String| Member { name: name.clone(), group };
        let members: Vec<Member> =
            all.into_iter().flat_map(|(names, group)| names.iter().map(member(group))).collect();
        let others = |name: &str| members.iter().any(|it| it.name == name && it.group != Group::Sensor);
        match self.sensor.iter().find(|name| others(name)) {
            Some(name) => Err(Failure::Usage(anyhow!(
                "--sensor {name}: a sensor is to have a role of its own, which reads nothing"
            ))),
            None => Ok(members),
        }
    }
}

pub(super) fn run(arguments: &InitArgs) -> Result<Exit, Failure> {
    let members = arguments.members()?;
    let told = match &arguments.database {
        Some(place) if !arguments.dry_run => Queue::init(place, &members)?.join("\n") + "\n",
        _ => crate::fleet::script(&members),
    };
    crate::cli::print(told.as_bytes())
}

pub(super) fn merge(arguments: &MergeArgs, quiet: bool) -> Result<Exit, Failure> {
    let config = MergeConfig {
        place: arguments.database.place.clone(),
        follows: arguments.follow,
        tries_again: arguments.again,
    };
    let signals = Signals::new([SIGINT, SIGTERM])?;
    if arguments.no_sandbox {
        tell_unheld("a batch");
    } else {
        leave_root_or_tell(CapabilitySet::empty());
        Confinement::default().finding_servers().apply_or_tell(quiet);
    }
    let Merged { batches, refused } = crate::fleet::merge(&config, &until_told(signals)?)?;
    if !quiet {
        let aside = if refused > 0 { format!(", {refused} set aside") } else { String::new() };
        tell(format_args!("{batches} batches{aside}"));
    }
    Ok(Exit::Done)
}

/// Returns a channel that closes when one of these signals comes. Its thread is confined if the caller is.
fn until_told(mut signals: Signals) -> Result<Receiver<()>, Failure> {
    let (stop, stopped) = bounded(0);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().next();
        drop(stop);
    })?;
    Ok(stopped)
}
