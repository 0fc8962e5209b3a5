//! `inventory export` and `inventory import`: third-party formats.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::row_writer::{RowWriter, create};
use super::{InventoryLocationFlag, SERVICE, text};
use crate::cli::flags::{FormatName, output_file};
use crate::cli::{CliExitCode, CommandFailure};
use crate::diagnostics::log_line;
use crate::inventory::export::{ExportError, cyclonedx, nmap};
use crate::inventory::import::{FileImporter, ImportFormat, InventoryImportError};
use crate::inventory::{InventoryTime, ServiceFilter, query};
use crate::output::text::ColourMode;

/// Flags of `bannerwall inventory export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall inventory export --format csv --inventory net.db -o net.csv
  bannerwall inventory export --format cyclonedx \\
      --inventory net.db side:server '!state:gone' > software.cdx.json
  bannerwall inventory export --format nmap-xml --inventory net.db net:192.0.2.0/24 -o net.xml")]
pub(super) struct ExportArgs {
    /// Format: `csv` and `json` (one object a line) list services, `cyclonedx` (1.6, JSON) lists software
    /// with its services and findings, `nmap-xml` lists servers.
    #[arg(long, value_name = "FORMAT")]
    format: ExportName,
    #[command(flatten)]
    place: InventoryLocationFlag,
    /// Filter of services; see `bannerwall inventory list --help`.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExportName {
    Csv,
    Json,
    Cyclonedx,
    NmapXml,
}

/// Flags of `bannerwall inventory import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall inventory import scan.xml --inventory net.db              # nmap -sV -oX scan.xml …
  bannerwall inventory import /opt/zeek/logs/2026-11-21/*.log.gz --inventory net.db \\
      --sensor zeek
  bannerwall inventory import /var/log/suricata/eve.json --inventory net.db

Records of an earlier import are not counted again.")]
pub(super) struct InventoryImportArgs {
    /// Output of nmap (XML), Zeek (`known_services`, `software`, `ssh` and `http` logs as tables or JSON), or
    /// EVE JSON; plain or compressed with gzip; - is stdin.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format of the files [default: recognized from their first bytes].
    #[arg(long, value_name = "FORMAT")]
    from: Option<ImportName>,
    #[command(flatten)]
    place: InventoryLocationFlag,
    /// Sensor of these records in the inventory.
    #[arg(long, value_name = "NAME", default_value = "elsewhere")]
    sensor: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ImportName {
    NmapXml,
    Zeek,
    Eve,
}

impl ExportArgs {
    pub(super) fn ends(&self) -> (&InventoryLocationFlag, Option<&Path>) {
        (&self.place, self.output.as_deref())
    }
}

/// Runs `bannerwall inventory export`.
pub(super) fn export(arguments: &ExportArgs) -> Result<CliExitCode, CommandFailure> {
    let filter =
        ServiceFilter::parse(arguments.filters.iter().map(String::as_str)).map_err(CommandFailure::usage)?;
    let inventory = arguments.place.open()?;
    let output = arguments.output.as_deref();
    let format = match arguments.format {
        ExportName::Csv => FormatName::Csv,
        ExportName::Json => FormatName::Json,
        ExportName::Cyclonedx => {
            return document(output, |out| cyclonedx(&inventory, &filter, InventoryTime::now(), out));
        }
        ExportName::NmapXml => {
            return document(output, |out| nmap(&inventory, &filter, InventoryTime::now(), out));
        }
    };
    let mut rows = RowWriter::open(format, output, SERVICE)?;
    query::services(&inventory, &filter, |service| {
        rows.add(&service, || text::service(&service, ColourMode::Never))
    })?;
    rows.finish()
}

/// Writes a document; a closed pipe is not an error.
pub(super) fn document(
    output: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), ExportError>,
) -> Result<CliExitCode, CommandFailure> {
    let mut out = create(output)?;
    match write(&mut *out).and_then(|()| Ok(out.flush()?)) {
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(CliExitCode::Done),
        outcome => outcome.map(|()| CliExitCode::Done).map_err(CommandFailure::usage),
    }
}

/// Runs `bannerwall inventory import`.
pub(super) fn import(arguments: &InventoryImportArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let names: Vec<String> = arguments.files.iter().map(|file| file.display().to_string()).collect();
    let mut importer =
        FileImporter::open(&arguments.place.inventory, arguments.sensor.clone(), names.join(" "))?;
    let format = arguments.from.map(|name| match name {
        ImportName::NmapXml => ImportFormat::NmapXml,
        ImportName::Zeek => ImportFormat::Zeek,
        ImportName::Eve => ImportFormat::Eve,
    });
    let outcome = arguments.files.iter().try_for_each(|file| -> Result<(), InventoryImportError> {
        let imported = importer.read(file, format)?;
        if !quiet {
            let (rows, passed_over) = (imported.rows, imported.passed_over);
            log_line(format_args!("{}: rows {rows}, without usable data {passed_over}", file.display()));
        }
        Ok(())
    });
    let ended = importer.end();
    outcome.map_err(CommandFailure::usage)?;
    ended?;
    Ok(CliExitCode::Done)
}
