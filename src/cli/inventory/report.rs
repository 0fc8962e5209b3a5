//! `inventory report`: a report of the findings, as one HTML file.

use std::path::{Path, PathBuf};

use clap::Args;

use super::InventoryLocationFlag;
use super::import_export::document;
use crate::cli::flags::output_file;
use crate::cli::page::rule_catalog;
use crate::cli::rule_paths::{RulePurpose, RulesFlag};
use crate::cli::{CliExitCode, CommandFailure};
use crate::inventory::InventoryTime;
use crate::serve::{ReportConfig, write_report};

/// Flags of `bannerwall inventory report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall inventory report --inventory net.db -o report.html
  bannerwall inventory report --inventory net.db --days 30 -o report.html
  chromium --headless --no-pdf-header-footer --print-to-pdf=report.pdf report.html")]
pub(super) struct ReportArgs {
    #[command(flatten)]
    place: InventoryLocationFlag,
    /// Number of days whose changes are reported.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=30))]
    days: u8,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesFlag,
}

impl ReportArgs {
    /// Returns the inventory and the output file.
    pub(super) fn ends(&self) -> (&InventoryLocationFlag, Option<&Path>) {
        (&self.place, self.output.as_deref())
    }
}

/// Runs `bannerwall inventory report`.
pub(super) fn report(arguments: &ReportArgs) -> Result<CliExitCode, CommandFailure> {
    let inventory = arguments.place.open()?;
    let catalog = rule_catalog(&arguments.rules, RulePurpose::Rules)?;
    let config = ReportConfig { now: InventoryTime::now(), days: arguments.days.into() };
    document(arguments.output.as_deref(), |out| write_report(&inventory, &catalog, config, out))
}
