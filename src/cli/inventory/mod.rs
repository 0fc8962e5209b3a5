//! `bannerwall inventory`: questions to what guard, scan and replay have kept.

mod rows;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::rows::{Output, Rows};
use super::{Exit, Failure};
use crate::inventory::{Filter, Found, Service, Sqlite, StoreError};
use crate::output::Escaped;

/// Flags of `bannerwall inventory`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall scan ssh 192.0.2.0/24 --inventory net.db
  bannerwall inventory list --inventory net.db product:openssh version:<9.6
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
sensor banner. All must hold; ! before one turns it around; a word without a colon is looked for in banners.

Examples:
  bannerwall inventory list --inventory net.db product:openssh 'version:<9.6' net:198.51.100.0/24
  bannerwall inventory list --inventory net.db side:server 'seen:>7d' --format csv -o old.csv
  bannerwall inventory list --inventory net.db finding:critical '!state:gone'"
    )]
    List {
        #[command(flatten)]
        place: Place,
        /// What a service must be.
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
}

/// `--inventory FILE`.
#[derive(Debug, Args)]
struct Place {
    /// The inventory.
    #[arg(long, value_name = "FILE")]
    inventory: PathBuf,
}

impl Place {
    fn open(&self) -> Result<Sqlite, Failure> {
        Sqlite::open(&self.inventory).map_err(Failure::usage)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::usage(error)
    }
}

/// Runs `bannerwall inventory`.
pub(super) fn run(arguments: &InventoryArgs) -> Result<Exit, Failure> {
    match &arguments.command {
        InventoryCommand::List { place, filters, output } => list(place, filters, output),
    }
}

/// The columns of a listed service.
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
    "first_seen",
    "last_seen",
    "sensors",
    "findings",
];

fn list(place: &Place, filters: &[String], output: &Output) -> Result<Exit, Failure> {
    let filter = Filter::parse(filters.iter().map(String::as_str)).map_err(Failure::usage)?;
    let inventory = place.open()?;
    let mut rows = Rows::start(output, SERVICE)?;
    inventory.services(&filter, |service| rows.add(&service, || line(&service)))?;
    rows.finish()
}

/// A service on one line, and what rules tell of it below.
fn line(service: &Service) -> String {
    let place = place(service);
    let mut text = format!("{place:<21}  {:<8}  {}", service.protocol, Escaped(&service.banner));
    if let Some(product) = &service.product {
        let version = service.version.iter().map(|version| format!(" {}", Escaped(version)));
        text.push_str(&format!("  ({}{})", Escaped(product), version.collect::<String>()));
    }
    let gone = if service.state == "open" { "" } else { ", gone" };
    text.push_str(&format!("  seen {}{gone}", service.last_seen));
    service.findings.iter().for_each(|found| text.push_str(&format!("\n{:21}  {}", "", told(found))));
    text
}

/// `192.0.2.1:22`, `[2001:db8::1]:22`; of a client the address.
fn place(service: &Service) -> String {
    match (service.port, service.address.contains(':')) {
        (0, _) => service.address.clone(),
        (port, true) => format!("[{}]:{port}", service.address),
        (port, false) => format!("{}:{port}", service.address),
    }
}

fn told(found: &Found) -> String {
    let blocked =
        if found.blocked > 0 { format!(", blocked {} times", found.blocked) } else { String::new() };
    let verdict = found.verdict.as_ref().map_or_else(String::new, |verdict| format!(" ({verdict})"));
    format!("{:<8}  {}: {}{verdict}{blocked}", found.severity, Escaped(&found.rule), Escaped(&found.title))
}
