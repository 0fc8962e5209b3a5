//! `bannerwall serve`: shows the inventory in a browser.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use ipnet::IpNet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::flags::{INVENTORY_FILE, inventory_place, listen_address};
use super::metrics::read_web_config;
use super::page::rule_catalog;
use super::rule_paths::{RulePurpose, RulesFlag};
use super::scan::fleet_scan::preparer;
use super::{CliExitCode, CommandFailure};
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::serve::{ScanConfig, ScanPermissions, ServeConfig};

/// Flags of `bannerwall serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall serve --inventory net.db                         # then open http://127.0.0.1:8642/
  bannerwall serve --inventory net.db --listen 192.0.2.1:8642 --web-config web.yml
  # start scans of it from the page
  bannerwall serve --inventory net.db --scan-allow 192.0.2.0/24
  # all sites of a fleet; merges batches of sensors if its role permits
  bannerwall serve --inventory postgresql://worker@db/net
  curl http://127.0.0.1:8642/api/services?q=product:openssh

Filters of pages and of `q` are those of `bannerwall inventory list`. /api/openapi.json describes
the API.")]
pub(super) struct ServeArgs {
    /// Inventory that guard, scan and replay write with --inventory. You can also name it in the environment
    /// variable `BANNERWALL_INVENTORY`.
    #[arg(long, value_name = "FILE|URL", env = "BANNERWALL_INVENTORY", hide_env = true,
          default_value = INVENTORY_FILE, value_parser = inventory_place())]
    inventory: DatabaseLocation,
    /// Address to listen on; a port alone is one of 127.0.0.1. Any other address needs a login and TLS.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8642", value_parser = listen_address)]
    listen: SocketAddr,
    /// Require the token in FILE (as a password, or `Authorization: Bearer`).
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    token_file: Option<PathBuf>,
    /// TLS and users, from a web configuration file of Prometheus' exporters (`tls_server_config`,
    /// `basic_auth_users`). The file is read at the start.
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    web_config: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesFlag,
    /// Allow scans of this network from the page, once or on a schedule; can be given several times.
    #[arg(long, value_name = "CIDR", help_heading = "Scans", value_parser = super::flags::network)]
    scan_allow: Vec<IpNet>,
    /// Rate limit of such a scan, in targets a second.
    #[arg(long, value_name = "N", requires = "scan_allow", default_value_t = 10_000, help_heading = "Scans",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    scan_rate: u32,
    /// Rules for such scans: a file or a folder; can be given several times.
    #[arg(long, value_name = "PATH", requires = "scan_allow", help_heading = "Scans")]
    scan_rules: Vec<PathBuf>,
}

/// Runs `bannerwall serve` until it is interrupted.
pub(super) fn run(arguments: &ServeArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let scans = match arguments.scan_allow.is_empty() {
        true => None,
        false => Some(ScanConfig {
            bounds: ScanPermissions { allowed: arguments.scan_allow.clone(), rate: arguments.scan_rate },
            prepare: preparer(&arguments.scan_rules)?,
        }),
    };
    let config = ServeConfig {
        inventory: arguments.inventory.clone(),
        listen: arguments.listen,
        token_file: arguments.token_file.clone(),
        web: read_web_config("--web-config", arguments.web_config.as_deref())?,
        rules: Arc::new(rule_catalog(&arguments.rules, RulePurpose::Rules)?),
        scans,
        merges: true,
        flags: ("--listen", "--"),
    };
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).context("cannot register signals").map_err(CommandFailure::Usage)?;
    let server = config.start_confined().map_err(CommandFailure::usage)?;
    if !quiet {
        log_line(format_args!("bannerwall: the page is at {}", server.url()));
    }
    signals.forever().next();
    drop(server);
    Ok(CliExitCode::Done)
}
