//! `bannerwall inventory`: queries the records of guard, scan and replay.

mod import_export;
mod report;
pub(super) mod row_writer;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use self::row_writer::{RowOutputFlags, RowWriter};
use super::flags::{INVENTORY_FILE, check_output, inventory_place};
use super::rule_paths::{RulePurpose, RulesFlag};
use super::{CliExitCode, CommandFailure};
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::inventory::{
    InventoryDatabase, InventoryTime, ServiceFilter, StoreError, TimeReference, impact, maintenance,
    parse_age, query,
};
use crate::output::EscapedText;
use crate::rules::Rule;

/// Flags of `bannerwall inventory`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall scan ssh 192.0.2.0/24 --inventory net.db
  bannerwall inventory list --inventory net.db product:openssh 'version:<9.6'
  bannerwall inventory changes --inventory net.db --since 24h
  sqlite3 net.db 'SELECT product, count(*) FROM service_list GROUP BY product'")]
pub(super) struct InventoryArgs {
    #[command(subcommand)]
    command: InventoryCommand,
}

#[derive(Debug, Subcommand)]
enum InventoryCommand {
    /// List services and clients, by address and port.
    #[command(
        after_help = "Filters: product vendor version cpe os patch protocol side state net port seen first finding
sensor banner. A service must match all; ! negates a filter; a word without a colon is searched in
banners.

Examples:
  bannerwall inventory list --inventory net.db product:openssh 'version:<9.6' \\
      net:198.51.100.0/24
  bannerwall inventory list --inventory net.db side:server 'seen:>7d' --format csv -o old.csv
  bannerwall inventory list --inventory net.db finding:critical '!state:gone'"
    )]
    List(ServiceQueryArgs),
    /// Show the record of a host: present and past banners, its clients, the services that it visited, and
    /// changes.
    #[command(after_help = "Example:\n  bannerwall inventory show 198.51.100.7 --inventory net.db")]
    Show {
        /// Address of the host.
        #[arg(value_name = "HOST", value_parser = crate::cli::flags::address)]
        host: IpAddr,
        #[command(flatten)]
        place: InventoryLocationFlag,
        #[command(flatten)]
        output: RowOutputFlags,
    },
    /// Count the values of a field, the most frequent first.
    #[command(
        after_help = "Examples:\n  bannerwall inventory top product --inventory net.db\n  bannerwall inventory top finding --inventory net.db net:198.51.100.0/24"
    )]
    Top {
        /// Field to count.
        #[arg(value_name = "FIELD", value_parser = PossibleValuesParser::new(query::fields()))]
        field: String,
        /// Number of values to show.
        #[arg(short, long, value_name = "N", default_value_t = 15)]
        number: usize,
        #[command(flatten)]
        filtered: ServiceQueryArgs,
    },
    /// Show changes in order of time.
    #[command(after_help = "Examples:
  bannerwall inventory changes --inventory net.db --since 24h
  bannerwall inventory changes --inventory net.db --since 2026-11-20 \\
      --until 2026-11-21 side:server")]
    Changes {
        /// Start: an age (24h, 7d), a date (2026-11-20, 2026-11-20T08:30, UTC) or the end of a run (#3).
        #[arg(long, value_name = "TIME", default_value = "24h")]
        since: TimeReference,
        /// End, in the same forms.
        #[arg(long, value_name = "TIME", default_value = "0s")]
        until: TimeReference,
        #[command(flatten)]
        filtered: ServiceQueryArgs,
    },
    /// Show the differences between two times or runs, by address and port. Changes that cancel out are left
    /// out.
    #[command(after_help = "Examples:
  bannerwall inventory diff 2026-11-01 2026-11-08 --inventory net.db
  # runs, as `inventory runs` numbers them
  bannerwall inventory diff '#3' '#5' --inventory net.db")]
    Diff {
        /// Start: an age, a date, or the end of a run (#3).
        #[arg(value_name = "FROM")]
        from: TimeReference,
        /// End, in the same forms.
        #[arg(value_name = "TO")]
        to: TimeReference,
        #[command(flatten)]
        filtered: ServiceQueryArgs,
    },
    /// Show what rules and policies would block: services and clients of the inventory, the number of
    /// connections, and the last one.
    ///
    /// The inventory keeps names of software (SSH identifications, `Server` and `User-Agent` fields,
    /// greetings), and rules are matched against those. For a rule that needs more, the command counts its
    /// past findings.
    #[command(after_help = "Examples:
  bannerwall inventory impact --rules mine.toml --inventory net.db
  bannerwall inventory impact --local exceptions.toml --inventory net.db \\
      --format json net:198.51.100.0/24")]
    Impact {
        #[command(flatten)]
        rules: RulesFlag,
        #[command(flatten)]
        filtered: ServiceQueryArgs,
    },
    /// Write services in third-party formats.
    Export(import_export::ExportArgs),
    /// Write a report of the findings for a manager: one HTML file, which prints well.
    Report(report::ReportArgs),
    /// Import results of nmap, Zeek or Suricata.
    Import(import_export::InventoryImportArgs),
    /// List the runs of guard, scan and replay that wrote into the inventory.
    #[command(after_help = "Example:\n  bannerwall inventory runs --inventory net.db")]
    Runs {
        #[command(flatten)]
        place: InventoryLocationFlag,
        #[command(flatten)]
        output: RowOutputFlags,
    },
    /// Delete records that were not seen for long, and free their space.
    #[command(after_help = "Example:\n  bannerwall inventory prune --inventory net.db --keep 90d")]
    Prune {
        #[command(flatten)]
        place: InventoryLocationFlag,
        /// Age at which records that were not seen again are deleted.
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        keep: Duration,
    },
    /// Check the file's integrity; exit code 1 if it is damaged.
    #[command(after_help = "Example:\n  bannerwall inventory check --inventory net.db")]
    Check {
        #[command(flatten)]
        place: InventoryLocationFlag,
    },
}

/// `--inventory FILE|URL`.
#[derive(Debug, Args)]
struct InventoryLocationFlag {
    /// Inventory: a file, or a database (`postgresql://user@host/database`). You can also name it in the
    /// environment variable `BANNERWALL_INVENTORY`.
    #[arg(long, value_name = "FILE|URL", env = "BANNERWALL_INVENTORY", hide_env = true,
          default_value = INVENTORY_FILE, value_parser = inventory_place())]
    inventory: DatabaseLocation,
}

/// Selected services of an inventory, and the output.
#[derive(Debug, Args)]
struct ServiceQueryArgs {
    #[command(flatten)]
    place: InventoryLocationFlag,
    /// Filter of services; see `bannerwall inventory list --help`.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    #[command(flatten)]
    output: RowOutputFlags,
}

impl InventoryCommand {
    /// Returns the inventory and the output file, if there is one.
    fn ends(&self) -> Option<(&InventoryLocationFlag, &Path)> {
        let (place, output) = match self {
            Self::List(filtered)
            | Self::Top { filtered, .. }
            | Self::Changes { filtered, .. }
            | Self::Diff { filtered, .. }
            | Self::Impact { filtered, .. } => (&filtered.place, filtered.output.path()),
            Self::Show { place, output, .. } | Self::Runs { place, output } => (place, output.path()),
            Self::Export(arguments) => arguments.ends(),
            Self::Report(arguments) => arguments.ends(),
            Self::Import(_) | Self::Prune { .. } | Self::Check { .. } => return None,
        };
        output.map(|output| (place, output))
    }
}

impl InventoryLocationFlag {
    fn open(&self) -> Result<InventoryDatabase, CommandFailure> {
        Ok(InventoryDatabase::open(&self.inventory)?)
    }
}

impl ServiceQueryArgs {
    fn filter(&self) -> Result<ServiceFilter, CommandFailure> {
        ServiceFilter::parse(self.filters.iter().map(String::as_str)).map_err(CommandFailure::usage)
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> Self {
        Self::usage(error)
    }
}

/// Runs `bannerwall inventory`.
pub(super) fn run(arguments: &InventoryArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    if let Some((place, output)) = arguments.command.ends() {
        check_output(Some(output), place.inventory.file())?;
    }
    match &arguments.command {
        InventoryCommand::List(filtered) => list(filtered),
        InventoryCommand::Show { host, place, output } => show(*host, place, output),
        InventoryCommand::Top { field, number, filtered } => top(field, *number, filtered),
        InventoryCommand::Changes { since, until, filtered } => changes((*since, *until), filtered),
        InventoryCommand::Diff { from, to, filtered } => diff((*from, *to), filtered),
        InventoryCommand::Impact { rules, filtered } => show_impact(rules, filtered, quiet),
        InventoryCommand::Export(arguments) => import_export::export(arguments),
        InventoryCommand::Report(arguments) => report::report(arguments),
        InventoryCommand::Import(arguments) => import_export::import(arguments, quiet),
        InventoryCommand::Runs { place, output } => runs(place, output),
        InventoryCommand::Prune { place, keep } => prune(place, *keep, quiet),
        InventoryCommand::Check { place } => check(place, quiet),
    }
}

/// Columns of a listed service.
const SERVICE: &[&str] = &[
    "address",
    "port",
    "transport",
    "protocol",
    "side",
    "state",
    "banner",
    "vendor",
    "product",
    "version",
    "patch",
    "cpe",
    "os",
    "hassh",
    "certificate",
    "host_key",
    "first_seen",
    "last_seen",
    "sensors",
    "findings",
];

/// Columns of a change.
const CHANGE: &[&str] = &["at", "kind", "address", "port", "protocol", "old", "new", "rule", "why", "sensor"];

/// Columns of a service or client that would be blocked.
const IMPACT: &[&str] = &[
    "rule",
    "kind",
    "action",
    "address",
    "port",
    "protocol",
    "side",
    "banner",
    "evidence",
    "peers",
    "connections",
    "last_seen",
    "sensors",
];

fn list(filtered: &ServiceQueryArgs) -> Result<CliExitCode, CommandFailure> {
    let (filter, inventory) = (filtered.filter()?, filtered.place.open()?);
    let mut rows = RowWriter::start(&filtered.output, SERVICE)?;
    let colour = filtered.output.colour();
    query::services(&inventory, &filter, |service| rows.add(&service, || text::service(&service, colour)))?;
    rows.finish()
}

fn show(
    host: IpAddr,
    place: &InventoryLocationFlag,
    output: &RowOutputFlags,
) -> Result<CliExitCode, CommandFailure> {
    let Some(record) = query::host(&place.open()?, host)? else {
        return Err(CommandFailure::Usage(anyhow!(
            "{host} was never seen; `bannerwall inventory list` shows what was"
        )));
    };
    // CSV has one row for each service.
    let mut rows = RowWriter::start(output, SERVICE)?;
    if output.has_columns() {
        record.services.iter().try_for_each(|history| rows.add(&history.service, String::new))?;
    } else {
        rows.add(&record, || text::host(&record, output.colour()))?;
    }
    rows.finish()
}

fn top(field: &str, number: usize, filtered: &ServiceQueryArgs) -> Result<CliExitCode, CommandFailure> {
    let (filter, inventory) = (filtered.filter()?, filtered.place.open()?);
    let mut rows = RowWriter::start(&filtered.output, &["value", "services"])?;
    for count in query::top(&inventory, field, &filter, number)? {
        let value = if count.value.is_empty() { "(unknown)" } else { &count.value };
        rows.add(&count, || format!("{:>9}  {}", count.services, EscapedText(value)))?;
    }
    rows.finish()
}

fn changes(
    (since, until): (TimeReference, TimeReference),
    filtered: &ServiceQueryArgs,
) -> Result<CliExitCode, CommandFailure> {
    let (filter, inventory) = (filtered.filter()?, filtered.place.open()?);
    let times = (query::time_of(&inventory, since)?, query::time_of(&inventory, until)?);
    let mut rows = RowWriter::start(&filtered.output, CHANGE)?;
    query::changes(&inventory, times, &filter, |change| rows.add(&change, || text::change(&change)))?;
    rows.finish()
}

fn diff(
    (from, to): (TimeReference, TimeReference),
    filtered: &ServiceQueryArgs,
) -> Result<CliExitCode, CommandFailure> {
    let (filter, inventory) = (filtered.filter()?, filtered.place.open()?);
    let times = (query::time_of(&inventory, from)?, query::time_of(&inventory, to)?);
    if times.0 > times.1 {
        return Err(CommandFailure::Usage(anyhow!(
            "{} is later than {}: the earlier time comes first",
            times.0,
            times.1
        )));
    }
    let mut rows = RowWriter::start(&filtered.output, CHANGE)?;
    for change in query::difference(&inventory, times, &filter)? {
        rows.add(&change, || text::change(&change))?;
    }
    rows.finish()
}

fn show_impact(
    rules: &RulesFlag,
    filtered: &ServiceQueryArgs,
    quiet: bool,
) -> Result<CliExitCode, CommandFailure> {
    let filter = filtered.filter()?;
    let rules = rules.load(RulePurpose::Guard, quiet)?;
    let inventory = filtered.place.open()?;
    let mut rows = RowWriter::start(&filtered.output, IMPACT)?;
    let mut sums: BTreeMap<String, _> = BTreeMap::new();
    let mut is_seen_twice = false;
    impact(&inventory, &rules, &filter, |impact| {
        is_seen_twice |= impact.sensors.iter().filter(|it| !it.starts_with("scan/")).count() > 1;
        let sum: &mut (BTreeSet<_>, i64) =
            sums.entry(format!("{} {}", impact.kind, impact.rule)).or_default();
        sum.0.insert((impact.address.clone(), impact.port, impact.protocol.clone()));
        sum.1 += impact.connections;
        rows.add(&impact, || text::impact(&impact))
    })?;
    let exit = rows.finish()?;
    if !quiet {
        for (rule, (assets, connections)) in sums {
            let assets = assets.len();
            log_line(format_args!("{rule}: services and clients {assets}, connections {connections}"));
        }
        if is_seen_twice {
            log_line("bannerwall: a connection that several sensors saw is counted once for each sensor");
        }
        let unforeseen: Vec<&str> = rules.unforeseen().map(Rule::id).collect();
        if !unforeseen.is_empty() {
            let ids = unforeseen.join(", ");
            log_line(format_args!(
                "bannerwall: these rules need more than names, so only their past findings are counted: {ids}"
            ));
        }
    }
    Ok(exit)
}

fn runs(place: &InventoryLocationFlag, output: &RowOutputFlags) -> Result<CliExitCode, CommandFailure> {
    let mut rows =
        RowWriter::start(output, &["run", "sensor", "about", "started", "ended", "state", "lost"])?;
    for run in query::runs(&place.open()?)? {
        rows.add(&run, || text::run(&run))?;
    }
    rows.finish()
}

fn prune(place: &InventoryLocationFlag, keep: Duration, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let before = InventoryTime::from(SystemTime::now()).before(keep);
    let pruned = maintenance::prune(&InventoryDatabase::open_to_write(&place.inventory)?, before)?;
    if quiet {
        return Ok(CliExitCode::Done);
    }
    let text = format!(
        "deleted: hosts {}, services and clients {}, sightings {}, changes {}\n",
        pruned.hosts, pruned.services, pruned.sightings, pruned.changes
    );
    super::print(text.as_bytes())
}

fn check(place: &InventoryLocationFlag, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let faults = maintenance::faults(&place.open()?)?;
    if faults.is_empty() {
        return if quiet { Ok(CliExitCode::Done) } else { super::print(b"the inventory is intact\n") };
    }
    let text: String = faults.iter().map(|fault| format!("{}\n", EscapedText(fault))).collect();
    super::print(text.as_bytes()).map(|_| CliExitCode::Findings)
}
