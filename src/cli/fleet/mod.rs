//! `bannerwall fleet`: scans by many workers, and their results.

mod doctor;
mod init;
mod results;
mod rules;
mod text;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};

use super::exit_code::interrupt_flag;
use super::flags::{duration, inventory_place, number, output_file};
use super::inventory::row_writer::{RowOutputFlags, RowWriter};
use super::scan::fleet_scan::FleetScanSpec;
use super::{CliExitCode, CommandFailure, GlobalFlags};
use crate::database::DatabaseLocation;
use crate::diagnostics::{log_line, several};
use crate::fleet::{
    CronSchedule, FleetDatabase, FleetError, LARGEST_SHARD, NetworkRate, SHARD, SHARDS, ScanEnd,
    ScanSubmission, WaitConfig, WaitOutcome,
};
use crate::inventory::parse_age;

/// Flags of `bannerwall fleet`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:
  bannerwall fleet submit ssh 192.0.2.0/24 --database postgresql://ann@db/net
  bannerwall fleet worker --database postgresql://worker@db/net    # on every machine that scans
  bannerwall fleet wait 1 --database postgresql://ann@db/net
More examples: bannerwall fleet --help",
    after_long_help = "Examples:
  export PGPASSWORD=…
  bannerwall fleet submit ssh 192.0.2.0/24 198.51.100.0/24 --rate 5000 \\
      --database postgresql://ann@db/net
  bannerwall fleet worker --database postgresql://worker@db/net    # on every machine that scans
  bannerwall fleet status 1 --database postgresql://ann@db/net
  bannerwall fleet wait 1 --database postgresql://ann@db/net
  bannerwall fleet init --sensor gw-1 --sensor gw-2 --worker worker --reader page \\
      --database postgresql://postgres@db/net
  sudo bannerwall guard --hook forward --inventory postgresql://gw-1@db/net
  bannerwall fleet results 1 --format csv --database postgresql://ann@db/net > results.csv
  bannerwall inventory list --inventory postgresql://ann@db/net"
)]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Create the tables, groups and named roles of a fleet. Existing ones stay.
    Init(init::InitArgs),
    /// Compare the rights of each role in a fleet with the intended ones.
    Doctor(doctor::FleetDoctorArgs),
    /// Publish signed rules for the guards of all sites, and show the version of each guard.
    Rules(Box<rules::FleetRulesArgs>),
    /// Merge the batches of sensors into the inventory, as workers do besides their scans.
    Merge(init::MergeArgs),
    /// Submit a scan to the workers, and print its number.
    ///
    /// It takes the flags of `scan`, and is split into shards.
    Submit(SubmitArgs),
    /// Scan shards, and write their results into the database.
    Worker(worker::WorkerArgs),
    /// Show the state of scans and sensors.
    #[command(
        after_help = "Example:\n  bannerwall fleet status 1 --format json --database postgresql://ann@db/net"
    )]
    Status {
        /// Number of the scan [default: all scans].
        #[arg(value_name = "SCAN", value_parser = number)]
        scan: Option<i64>,
        #[command(flatten)]
        database: DatabaseFlag,
        #[command(flatten)]
        output: RowOutputFlags,
    },
    /// Wait for the end of scans. Exit code 1 if one was cancelled, has failed shards, or is not done in
    /// time.
    #[command(
        after_help = "Exit code 130 after SIGINT and SIGTERM; the scans continue. If the database is away, the
command waits for it.

Example:
  bannerwall fleet wait 1 --timeout 2h --database postgresql://ann@db/net \\
      && bannerwall fleet results 1 \\
      --database postgresql://ann@db/net"
    )]
    Wait {
        /// Numbers of the scans.
        #[arg(value_name = "SCAN", value_parser = number, required = true)]
        scans: Vec<i64>,
        #[command(flatten)]
        database: DatabaseFlag,
        /// Longest time to wait.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        timeout: Option<Duration>,
    },
    /// Show the results of a scan's targets from all workers.
    #[command(
        after_help = "Example:\n  bannerwall fleet results 1 --format csv --database postgresql://ann@db/net"
    )]
    Results {
        /// Number of the scan.
        #[arg(value_name = "SCAN", value_parser = number)]
        scan: i64,
        #[command(flatten)]
        database: DatabaseFlag,
        /// Output format; `json` is JSON lines with EVE's names.
        #[arg(long, value_name = "FORMAT", default_value = "json")]
        format: ResultFormat,
        /// Write results to this file.
        #[arg(short, long, value_name = "FILE", value_parser = output_file)]
        output: Option<PathBuf>,
    },
    /// Cancel a scan: workers probe no more of its targets. Its results stay.
    #[command(after_help = "Example:\n  bannerwall fleet cancel 1 --database postgresql://ann@db/net")]
    Cancel {
        /// Number of the scan.
        #[arg(value_name = "SCAN", value_parser = number)]
        scan: i64,
        #[command(flatten)]
        database: DatabaseFlag,
    },
    /// Retry shards that failed too often.
    #[command(after_help = "Example:\n  bannerwall fleet retry 1 --database postgresql://ann@db/net")]
    Retry {
        /// Number of the scan.
        #[arg(value_name = "SCAN", value_parser = number)]
        scan: i64,
        #[command(flatten)]
        database: DatabaseFlag,
    },
    /// Delete finished scans with their results, or sensors. The inventory keeps their records.
    #[command(after_help = "Examples:
  bannerwall fleet forget 1 2 --database postgresql://ann@db/net
  bannerwall fleet forget --older-than 90d --database postgresql://ann@db/net
  bannerwall fleet forget --sensor gw-3 --database postgresql://ann@db/net")]
    Forget {
        /// Numbers of the scans.
        #[arg(value_name = "SCAN", value_parser = number, required_unless_present_any = ["older_than", "sensor"])]
        scans: Vec<i64>,
        /// Sensor without waiting batches, to delete with the batches that were set aside; can be given
        /// several times.
        #[arg(long, value_name = "NAME", conflicts_with_all = ["scans", "older_than"])]
        sensor: Vec<String>,
        /// Delete all scans that ended this long ago.
        #[arg(long, value_name = "TIME", value_parser = parse_age, conflicts_with = "scans")]
        older_than: Option<Duration>,
        #[command(flatten)]
        database: DatabaseFlag,
    },
    /// Start a scan on a schedule; prints the schedule's number.
    Schedule(ScheduleArgs),
    /// List schedules, and their missed starts.
    #[command(after_help = "Example:\n  bannerwall fleet schedules --database postgresql://ann@db/net")]
    Schedules {
        #[command(flatten)]
        database: DatabaseFlag,
        #[command(flatten)]
        output: RowOutputFlags,
    },
    /// Delete a schedule; scans that it started continue.
    #[command(after_help = "Example:\n  bannerwall fleet unschedule 1 --database postgresql://ann@db/net")]
    Unschedule {
        /// Number of the schedule.
        #[arg(value_name = "SCHEDULE", value_parser = number)]
        schedule: i64,
        #[command(flatten)]
        database: DatabaseFlag,
    },
}

/// `--database URL`.
#[derive(Debug, Args)]
struct DatabaseFlag {
    /// Database of the fleet: an SQLite file, or a URL
    /// (`postgresql://user@host/database?sslmode=verify-full`) with the password in PGPASSWORD. You can also
    /// name it in the environment variable `BANNERWALL_DATABASE`.
    #[arg(long = "database", value_name = "FILE|URL", env = "BANNERWALL_DATABASE", hide_env = true,
          value_parser = inventory_place())]
    place: DatabaseLocation,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall fleet submit connect 192.0.2.0/24 -p 22,80 --database postgresql://ann@db/net
  bannerwall fleet submit ssh -i networks.txt --network-rate 198.51.100.0/24=100 \\
      --not-at '* 8-17 * * 1-5 Europe/Berlin' --database postgresql://ann@db/net")]
struct SubmitArgs {
    #[command(flatten)]
    how: FleetScanFlags,
    /// Wait for the end of the scan, as `fleet wait` does.
    #[arg(long, global = true, help_heading = "Fleet")]
    wait: bool,
    #[command(subcommand)]
    scan: FleetScanSpec,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  bannerwall fleet schedule '30 3 * * 1-5 Europe/Berlin' ssh 192.0.2.0/24 \\
      --database postgresql://ann@db/net")]
struct ScheduleArgs {
    /// `every 6h`, `daily 03:30`, or a crontab: minute, hour, day, month, day of the week and time zone
    /// [default: UTC].
    #[arg(value_name = "CRONTAB")]
    cron: CronSchedule,
    #[command(flatten)]
    how: FleetScanFlags,
    #[command(subcommand)]
    scan: FleetScanSpec,
}

/// Flags of a fleet's scan, in addition to those of `scan`.
#[derive(Debug, Args)]
struct FleetScanFlags {
    /// Database of the fleet: an SQLite file, or a URL
    /// (`postgresql://user@host/database?sslmode=verify-full`) with the password in PGPASSWORD.
    #[arg(long, global = true, value_name = "FILE|URL", value_parser = inventory_place(), help_heading = "Fleet")]
    database: Option<DatabaseLocation>,
    /// Targets in a shard, the unit of work of a worker.
    #[arg(long, global = true, value_name = "N", default_value_t = SHARD, help_heading = "Fleet",
          value_parser = clap::value_parser!(u64).range(1..=LARGEST_SHARD))]
    shard_targets: u64,
    /// Failures of a shard in a row before it is parked.
    #[arg(long, global = true, value_name = "N", default_value_t = 3, help_heading = "Fleet",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    attempts: u64,
    /// Rate limit of a network in targets a second, over all workers; can be given several times. (--rate
    /// limits the whole scan.)
    #[arg(long, global = true, value_name = "CIDR=N", help_heading = "Fleet")]
    network_rate: Vec<NetworkRate>,
    /// Send no probes in the minutes of this crontab with a time zone; can be given several times.
    #[arg(long, global = true, value_name = "CRONTAB", help_heading = "Fleet")]
    not_at: Vec<CronSchedule>,
    /// Also keep results of targets that do not accept; by default they are only counted.
    #[arg(long, global = true, help_heading = "Fleet")]
    every: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ResultFormat {
    Json,
    Csv,
}

impl From<FleetError> for CommandFailure {
    fn from(error: FleetError) -> Self {
        Self::usage(error)
    }
}

/// Runs `bannerwall fleet`.
pub(super) fn run(arguments: &FleetArgs, global: &GlobalFlags) -> Result<CliExitCode, CommandFailure> {
    match &arguments.command {
        FleetCommand::Init(arguments) => init::run(arguments),
        FleetCommand::Doctor(arguments) => doctor::run(arguments),
        FleetCommand::Rules(arguments) => rules::run(arguments, global.quiet),
        FleetCommand::Merge(arguments) => init::merge(arguments, global.quiet),
        FleetCommand::Submit(arguments) => submit(arguments, global),
        FleetCommand::Schedule(arguments) => schedule(arguments, global),
        FleetCommand::Worker(arguments) => worker::run(arguments, global.quiet),
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
            Ok(CliExitCode::Done)
        }
        FleetCommand::Retry { scan, database } => {
            let shards = database.open()?.retry(*scan)?;
            super::print(format!("{} to retry\n", several(shards, "shard")).as_bytes())
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
            super::print(format!("{} deleted\n", several(count, "scan")).as_bytes())
        }
        FleetCommand::Schedules { database, output } => schedules(database, output),
        FleetCommand::Unschedule { schedule, database } => {
            database.open()?.unschedule(*schedule, None)?;
            Ok(CliExitCode::Done)
        }
    }
}

impl DatabaseFlag {
    /// Returns the place, if it is on a server: a confined process could not tell a file from a missing one.
    fn of_server(&self) -> Result<&DatabaseLocation, CommandFailure> {
        match self.place {
            DatabaseLocation::Server(_) => Ok(&self.place),
            DatabaseLocation::File(_) => Err(FleetError::NoServer(self.place.clone()).into()),
        }
    }

    fn open(&self) -> Result<FleetDatabase, CommandFailure> {
        Ok(FleetDatabase::open(&self.place)?)
    }

    /// Opens a fleet on a server.
    fn open_server(&self) -> Result<FleetDatabase, CommandFailure> {
        Ok(FleetDatabase::open(self.of_server()?)?)
    }
}

impl FleetScanFlags {
    /// Validates an order, and only then connects to the database.
    fn submission(
        &self,
        scan: &FleetScanSpec,
        global: &GlobalFlags,
    ) -> Result<(FleetDatabase, ScanSubmission), CommandFailure> {
        let Some(place) = &self.database else {
            return Err(CommandFailure::Usage(anyhow!(
                "--database is missing: workers read the scan from it"
            )));
        };
        let (mut order, targets, rate) = scan.order(global)?;
        order.every = self.every;
        order.limits.clone_from(&self.network_rate);
        order.not_at = self.not_at.iter().map(|cron| cron.text().to_owned()).collect();
        let shards = targets.div_ceil(self.shard_targets);
        if shards > SHARDS {
            return Err(CommandFailure::Usage(anyhow!(
                "{targets} targets would make {shards} shards, more than the limit of {SHARDS}: \
                 pass a larger --shard-targets, or fewer targets"
            )));
        }
        let submission = ScanSubmission {
            shards,
            attempts: self.attempts,
            ..ScanSubmission::new(scan.about(), order, targets, rate)
        };
        Ok((FleetDatabase::make(place)?, submission))
    }
}

fn submit(arguments: &SubmitArgs, global: &GlobalFlags) -> Result<CliExitCode, CommandFailure> {
    let (queue, submission) = arguments.how.submission(&arguments.scan, global)?;
    let scan = queue.submit(&submission)?;
    if !global.quiet {
        log_line(format_args!("scan #{scan}: targets {}, shards {}", submission.targets, submission.shards));
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

fn wait(config: &WaitConfig, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let stop = interrupt_flag()?;
    let mut exit = CliExitCode::Done;
    let waited = crate::fleet::wait(config, &stop, |scan, end| {
        if end != ScanEnd::Done {
            exit = CliExitCode::Findings;
        }
        if !quiet {
            log_line(text::end(scan, end));
        }
    })?;
    match waited {
        WaitOutcome::Over => Ok(exit),
        WaitOutcome::Late(scan) => {
            log_line(format_args!("bannerwall: scan #{scan} is not done in time, and continues"));
            Ok(CliExitCode::Findings)
        }
        WaitOutcome::Stopped(scan) => {
            log_line(format_args!("bannerwall: scan #{scan} continues"));
            Ok(CliExitCode::Interrupted)
        }
    }
}

fn schedule(arguments: &ScheduleArgs, global: &GlobalFlags) -> Result<CliExitCode, CommandFailure> {
    let (queue, submission) = arguments.how.submission(&arguments.scan, global)?;
    let schedule = queue.schedule(&arguments.cron, &submission)?;
    super::print(format!("{schedule}\n").as_bytes())
}

fn status(
    scan: Option<i64>,
    database: &DatabaseFlag,
    output: &RowOutputFlags,
) -> Result<CliExitCode, CommandFailure> {
    let queue = database.open()?;
    let mut rows = RowWriter::start(output, text::SCAN)?;
    match scan {
        Some(scan) => {
            let status = queue.described(scan)?;
            rows.add(&status, || text::status(&status))?;
        }
        None => {
            for scan in queue.scans(None)? {
                rows.add(&scan, || text::scan(&scan))?;
            }
            // CSV has the columns of scans, which do not fit sensors.
            let sensors = if output.has_columns() { Vec::new() } else { queue.sensors()? };
            for sensor in sensors {
                rows.add(&sensor, || text::sensor(&sensor))?;
            }
        }
    }
    rows.finish()
}

fn schedules(database: &DatabaseFlag, output: &RowOutputFlags) -> Result<CliExitCode, CommandFailure> {
    let mut rows = RowWriter::start(output, text::SCHEDULE)?;
    for planned in database.open()?.schedules(None)? {
        rows.add(&planned, || text::planned(&planned))?;
    }
    rows.finish()
}
