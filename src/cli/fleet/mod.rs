//! `bannerwall fleet`: orders to many workers, and what became of them.

mod doctor;
mod init;
mod results;
mod rules;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::interrupt_flag;
use super::flags::{duration, inventory_place, output_file};
use super::inventory::rows::{Output, Rows};
use super::scan::ordered::{Given, task};
use super::{Exit, Failure, Global};
use crate::confinement::{Confinement, tell_unheld};
use crate::diagnostics::tell;
use crate::fleet::{
    Cron, Ended, FleetError, LARGEST_SHARD, NetworkRate, Queue, SHARD, SHARDS, ScanEnd, Stop, Submission,
    Until, WaitConfig, Waited, WorkerConfig,
};
use crate::inventory::{Place, parse_age};
use crate::privileges::leave_root_or_tell;

/// Flags of `bannerwall fleet`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  export PGPASSWORD=…
  bannerwall fleet submit ssh 192.0.2.0/24 198.51.100.0/24 --rate 5000 --database postgresql://ann@db/net
  bannerwall fleet worker --database postgresql://worker@db/net       on as many machines as there are
  bannerwall fleet status 1 --database postgresql://ann@db/net
  bannerwall fleet wait 1 --database postgresql://ann@db/net
  bannerwall fleet init --sensor gw-1 --sensor gw-2 --worker worker --reader page --database postgresql://postgres@db/net
  sudo bannerwall guard --hook forward --inventory postgresql://gw-1@db/net
  bannerwall fleet results 1 --format csv --database postgresql://ann@db/net > results.csv
  bannerwall inventory list --inventory postgresql://ann@db/net")]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Make what a fleet needs: tables, groups of roles, and the roles that are named. What is there stays.
    Init(init::InitArgs),
    /// Compare what each role of a fleet may do with what it is to.
    Doctor(doctor::FleetDoctorArgs),
    /// Publish rules for the guards of all sites, signed, and show who has which.
    Rules(Box<rules::RulesArgs>),
    /// Enter what sensors have sent into the inventory, as workers do beside their scans.
    Merge(init::MergeArgs),
    /// Have a scan made by the workers: what `scan` takes, cut into shards; prints its number.
    Submit(SubmitArgs),
    /// Take shards, scan them, and write what they say into the database.
    Worker(WorkerArgs),
    /// Show how scans stand, and sensors.
    #[command(
        after_help = "Example:\n  bannerwall fleet status 1 --format json --database postgresql://ann@db/net"
    )]
    Status {
        /// A scan's number; all of them where there is none.
        #[arg(value_name = "SCAN")]
        scan: Option<i64>,
        #[command(flatten)]
        database: Database,
        #[command(flatten)]
        output: Output,
    },
    /// Wait until scans are over. Ends with 1 where one was cancelled, has shards that failed, or is not over
    /// in time.
    #[command(
        after_help = "Ends with 130 at SIGINT and SIGTERM; the scans go on. A database that goes away meanwhile is waited for.

Example:\n  bannerwall fleet wait 1 --timeout 2h --database postgresql://ann@db/net && bannerwall fleet results 1 --database …"
    )]
    Wait {
        /// The scans' numbers.
        #[arg(value_name = "SCAN", required = true)]
        scans: Vec<i64>,
        #[command(flatten)]
        database: Database,
        /// Longest time to wait.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        timeout: Option<Duration>,
    },
    /// Show what came of a scan's targets, whoever has asked them.
    #[command(
        after_help = "Example:\n  bannerwall fleet results 1 --format csv --database postgresql://ann@db/net"
    )]
    Results {
        /// The scan's number.
        #[arg(value_name = "SCAN")]
        scan: i64,
        #[command(flatten)]
        database: Database,
        /// How results are written; `json` is JSON lines in EVE names.
        #[arg(long, value_name = "FORMAT", default_value = "json")]
        format: ResultFormat,
        /// Write results to this file.
        #[arg(short, long, value_name = "FILE", value_parser = output_file)]
        output: Option<PathBuf>,
    },
    /// End a scan: nothing more of it is asked. What was found stays.
    #[command(after_help = "Example:\n  bannerwall fleet cancel 1 --database postgresql://ann@db/net")]
    Cancel {
        /// The scan's number.
        #[arg(value_name = "SCAN")]
        scan: i64,
        #[command(flatten)]
        database: Database,
    },
    /// Have shards taken again that have failed too often.
    #[command(after_help = "Example:\n  bannerwall fleet retry 1 --database postgresql://ann@db/net")]
    Retry {
        /// The scan's number.
        #[arg(value_name = "SCAN")]
        scan: i64,
        #[command(flatten)]
        database: Database,
    },
    /// Forget scans that are over, with what came of them, or sensors that are gone; the inventory keeps what
    /// it has.
    #[command(after_help = "Examples:
  bannerwall fleet forget 1 2 --database postgresql://ann@db/net
  bannerwall fleet forget --older-than 90d --database postgresql://ann@db/net
  bannerwall fleet forget --sensor gw-3 --database postgresql://ann@db/net")]
    Forget {
        /// The scans' numbers.
        #[arg(value_name = "SCAN", required_unless_present_any = ["older_than", "sensor"])]
        scans: Vec<i64>,
        /// A sensor of which nothing waits to be merged, with what was set aside of it; may be given several
        /// times.
        #[arg(long, value_name = "NAME", conflicts_with_all = ["scans", "older_than"])]
        sensor: Vec<String>,
        /// All that have been over for so long.
        #[arg(long, value_name = "TIME", value_parser = parse_age, conflicts_with = "scans")]
        older_than: Option<Duration>,
        #[command(flatten)]
        database: Database,
    },
    /// Have a scan begin again and again; prints the schedule's number.
    Schedule(ScheduleArgs),
    /// List what begins again and again, and what of it was missed.
    #[command(after_help = "Example:\n  bannerwall fleet schedules --database postgresql://ann@db/net")]
    Schedules {
        #[command(flatten)]
        database: Database,
        #[command(flatten)]
        output: Output,
    },
    /// Forget a schedule; what it has begun goes on.
    #[command(after_help = "Example:\n  bannerwall fleet unschedule 1 --database postgresql://ann@db/net")]
    Unschedule {
        /// The schedule's number.
        #[arg(value_name = "SCHEDULE")]
        schedule: i64,
        #[command(flatten)]
        database: Database,
    },
}

/// `--database URL`.
#[derive(Debug, Args)]
struct Database {
    /// The database: `postgresql://user@host/database?sslmode=verify-full`; the password may stand in
    /// PGPASSWORD.
    #[arg(long = "database", value_name = "URL", value_parser = inventory_place())]
    place: Place,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall fleet submit connect 192.0.2.0/24 -p 22,80 --database postgresql://ann@db/net
  bannerwall fleet submit ssh -i networks.txt --exclude 192.0.2.0/28 --rate 20000 --network-rate 198.51.100.0/24=100 \\
      --not-at '* 8-17 * * 1-5 Europe/Berlin' --database postgresql://ann@db/net")]
struct SubmitArgs {
    #[command(flatten)]
    how: How,
    /// Wait until the scan is over, as `fleet wait` does.
    #[arg(long, global = true, help_heading = "Fleet")]
    wait: bool,
    #[command(subcommand)]
    scan: Given,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  bannerwall fleet schedule '30 3 * * 1-5 Europe/Berlin' ssh 192.0.2.0/24 --database postgresql://ann@db/net")]
struct ScheduleArgs {
    /// When: minute, hour, day, month, day of the week and time zone (UTC where there is none), as in
    /// crontabs.
    #[arg(value_name = "CRONTAB")]
    cron: Cron,
    #[command(flatten)]
    how: How,
    #[command(subcommand)]
    scan: Given,
}

/// How an order is carried out, beside what `scan` takes.
#[derive(Debug, Args)]
struct How {
    /// The database: `postgresql://user@host/database?sslmode=verify-full`; the password may stand in
    /// PGPASSWORD.
    #[arg(long, global = true, value_name = "URL", value_parser = inventory_place(), help_heading = "Fleet")]
    database: Option<Place>,
    /// Targets of a shard: what a worker takes at once.
    #[arg(long, global = true, value_name = "N", default_value_t = SHARD, help_heading = "Fleet",
          value_parser = clap::value_parser!(u64).range(1..=LARGEST_SHARD))]
    shard_targets: u64,
    /// How often a shard may fail, without coming forward, before it is parked with its error.
    #[arg(long, global = true, value_name = "N", default_value_t = 3, help_heading = "Fleet",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    attempts: u64,
    /// Targets a second in a network, all workers together; may be given several times. (--rate is of all
    /// targets.)
    #[arg(long, global = true, value_name = "CIDR=N", help_heading = "Fleet")]
    network_rate: Vec<NetworkRate>,
    /// Ask nothing in the minutes that a crontab with a time zone names; may be given several times.
    #[arg(long, global = true, value_name = "CRONTAB", help_heading = "Fleet")]
    not_at: Vec<Cron>,
    /// Keep a result of targets, too, that do not accept; else they are only counted.
    #[arg(long, global = true, help_heading = "Fleet")]
    every: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM ends a worker in order: what is under way is waited for, written, and the rest given back.

Examples:
  bannerwall fleet worker --database postgresql://worker@db/net
  bannerwall fleet worker --until-empty --rate 2000 --name east-1 --database postgresql://worker@db/net"
)]
struct WorkerArgs {
    #[command(flatten)]
    database: Database,
    /// The name that others know it by, and that the inventory has for it as a sensor [default: the host's
    /// name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Targets a second that this worker asks at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// How long it may not be heard of before others take over what it has.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    lease: Duration,
    /// End when one shard is done.
    #[arg(long, conflicts_with = "until_empty")]
    once: bool,
    /// End when every scan is over.
    #[arg(long)]
    until_empty: bool,
    /// Do not confine the worker to the network, for debugging: what an answer leads astray may then open
    /// every file and run every program.
    #[arg(long)]
    no_sandbox: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ResultFormat {
    Json,
    Csv,
}

/// A lease: long enough to be renewed in time.
fn lease(text: &str) -> anyhow::Result<Duration> {
    const BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
    let lease = duration(text)?;
    anyhow::ensure!(BOUNDS.0 <= lease && lease <= BOUNDS.1, "from 1s to 1h");
    Ok(lease)
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        Self::usage(error)
    }
}

/// Runs `bannerwall fleet`.
pub(super) fn run(arguments: &FleetArgs, global: &Global) -> Result<Exit, Failure> {
    match &arguments.command {
        FleetCommand::Init(arguments) => init::run(arguments),
        FleetCommand::Doctor(arguments) => doctor::run(arguments),
        FleetCommand::Rules(arguments) => rules::run(arguments, global.quiet),
        FleetCommand::Merge(arguments) => init::merge(arguments, global.quiet),
        FleetCommand::Submit(arguments) => submit(arguments, global),
        FleetCommand::Schedule(arguments) => schedule(arguments, global),
        FleetCommand::Worker(arguments) => worker(arguments, global.quiet),
        FleetCommand::Status { scan, database, output } => status(*scan, database, output),
        FleetCommand::Wait { scans, database, timeout } => {
            let config =
                WaitConfig { place: database.place.clone(), scans: scans.clone(), patience: *timeout };
            wait(&config, global.quiet)
        }
        FleetCommand::Results { scan, database, format, output } => {
            results::show(*scan, database, *format, output.as_deref())
        }
        FleetCommand::Cancel { scan, database } => {
            database.open()?.cancel(*scan)?;
            Ok(Exit::Done)
        }
        FleetCommand::Retry { scan, database } => {
            let shards = database.open()?.retry(*scan)?;
            super::print(format!("{shards} shards are taken again\n").as_bytes())
        }
        FleetCommand::Forget { scans, sensor, older_than, database } => {
            let queue = database.open()?;
            if !sensor.is_empty() {
                let aside = queue.forget_sensors(sensor)?;
                return super::print(text::forgotten(sensor, &aside).as_bytes());
            }
            let count = match older_than {
                Some(time) => queue.forget_older(*time)?,
                None => queue.forget(scans).map(|()| scans.len())?,
            };
            super::print(format!("{count} scans are forgotten\n").as_bytes())
        }
        FleetCommand::Schedules { database, output } => schedules(database, output),
        FleetCommand::Unschedule { schedule, database } => {
            database.open()?.unschedule(*schedule)?;
            Ok(Exit::Done)
        }
    }
}

impl Database {
    fn open(&self) -> Result<Queue, Failure> {
        Ok(Queue::open(&self.place)?)
    }
}

impl How {
    /// Validates an order, and comes to the database then.
    fn submission(&self, scan: &Given, global: &Global) -> Result<(Queue, Submission), Failure> {
        let Some(place) = &self.database else {
            return Err(Failure::Usage(anyhow!("--database URL is missing: where workers find the scan")));
        };
        let (mut order, targets, rate) = scan.order(global)?;
        order.every = self.every;
        order.limits.clone_from(&self.network_rate);
        order.not_at = self.not_at.iter().map(|cron| cron.text().to_owned()).collect();
        let shards = targets.div_ceil(self.shard_targets);
        if shards > SHARDS {
            return Err(Failure::Usage(anyhow!(
                "{targets} targets would be {shards} shards, and more than {SHARDS} are none that a database is asked \
                 for: give a larger --shard-targets, or fewer targets"
            )));
        }
        let submission =
            Submission { about: scan.about(), order, targets, shards, attempts: self.attempts, rate };
        Ok((Queue::make(place)?, submission))
    }
}

fn submit(arguments: &SubmitArgs, global: &Global) -> Result<Exit, Failure> {
    let (queue, submission) = arguments.how.submission(&arguments.scan, global)?;
    let scan = queue.submit(&submission)?;
    if !global.quiet {
        tell(format_args!("scan #{scan}: {} targets in {} shards", submission.targets, submission.shards));
    }
    let printed = super::print(format!("{scan}\n").as_bytes())?;
    match &arguments.how.database {
        Some(place) if arguments.wait => {
            drop(queue);
            wait(&WaitConfig { place: place.clone(), scans: vec![scan], patience: None }, global.quiet)
        }
        _ => Ok(printed),
    }
}

fn wait(config: &WaitConfig, quiet: bool) -> Result<Exit, Failure> {
    let stop = interrupt_flag()?;
    let mut exit = Exit::Done;
    let waited = crate::fleet::wait(config, &stop, |scan, end| {
        if end != ScanEnd::Done {
            exit = Exit::Findings;
        }
        if !quiet {
            tell(text::end(scan, end));
        }
    })?;
    match waited {
        Waited::Over => Ok(exit),
        Waited::Late(scan) => {
            tell(format_args!("bannerwall: scan #{scan} is not over in time, and goes on"));
            Ok(Exit::Findings)
        }
        Waited::Stopped(scan) => {
            tell(format_args!("bannerwall: scan #{scan} goes on"));
            Ok(Exit::Interrupted)
        }
    }
}

fn schedule(arguments: &ScheduleArgs, global: &Global) -> Result<Exit, Failure> {
    let (queue, submission) = arguments.how.submission(&arguments.scan, global)?;
    let schedule = queue.schedule(&arguments.cron, &submission)?;
    super::print(format!("{schedule}\n").as_bytes())
}

fn worker(arguments: &WorkerArgs, quiet: bool) -> Result<Exit, Failure> {
    let own_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let config = WorkerConfig {
        place: arguments.database.place.clone(),
        name: arguments.name.clone().unwrap_or_else(own_name),
        lease: arguments.lease,
        rate: arguments.rate,
        until: match (arguments.once, arguments.until_empty) {
            (true, _) => Until::Once,
            (false, true) => Until::Empty,
            (false, false) => Until::Told,
        },
    };
    if arguments.no_sandbox {
        tell_unheld("an answer");
    } else {
        // Buffers that the ring locks in memory.
        leave_root_or_tell(CapabilitySet::IPC_LOCK);
        Confinement::default().submitting().finding_servers().apply_or_tell(quiet);
    }
    let stop = Stop(Arc::new(AtomicUsize::new(0)));
    count_signals(Arc::clone(&stop.0))?;
    let Ended { targets, shards } = crate::fleet::run(&config, &task, &stop)?;
    if !quiet {
        tell(format_args!("{targets} targets, {shards} shards to their end"));
    }
    Ok(Exit::Done)
}

/// Counts SIGINT and SIGTERM, on a thread of its own.
fn count_signals(counter: Arc<AtomicUsize>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if counter.fetch_add(1, Relaxed) == 0 {
                tell("bannerwall: giving the shards back; interrupt again to give up what is under way");
            }
        }
    })?;
    Ok(())
}

fn status(scan: Option<i64>, database: &Database, output: &Output) -> Result<Exit, Failure> {
    let queue = database.open()?;
    let mut rows = Rows::start(output, text::SCAN)?;
    match scan {
        Some(scan) => {
            let status = queue.described(scan)?;
            rows.add(&status, || text::status(&status))?;
        }
        None => {
            for scan in queue.scans()? {
                rows.add(&scan, || text::scan(&scan))?;
            }
            // Columns are those of scans.
            let sensors = if output.has_columns() { Vec::new() } else { queue.sensors()? };
            for sensor in sensors {
                rows.add(&sensor, || text::sensor(&sensor))?;
            }
        }
    }
    rows.finish()
}

fn schedules(database: &Database, output: &Output) -> Result<Exit, Failure> {
    let mut rows = Rows::start(output, text::SCHEDULE)?;
    for planned in database.open()?.schedules()? {
        rows.add(&planned, || text::planned(&planned))?;
    }
    rows.finish()
}
