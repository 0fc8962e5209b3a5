//! `inventory export` and `inventory import`: the formats of others.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::rows::{Rows, create};
use super::{SERVICE, Where, text};
use crate::cli::flags::{FormatName, output_file};
use crate::cli::{Exit, Failure};
use crate::diagnostics::tell;
use crate::inventory::export::{ExportError, cyclonedx, nmap};
use crate::inventory::import::{ImportError, ImportFormat, Importer};
use crate::inventory::{Filter, Time};

/// Flags of `bannerwall inventory export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall inventory export --format csv --inventory net.db -o net.csv
  bannerwall inventory export --format cyclonedx --inventory net.db side:server '!state:gone' > software.cdx.json
  bannerwall inventory export --format nmap-xml --inventory net.db net:192.0.2.0/24 -o net.xml")]
pub(super) struct ExportArgs {
    /// `csv` and `json` (an object a line) list services, `cyclonedx` (1.6, JSON) software with places and
    /// findings, `nmap-xml` servers.
    #[arg(long, value_name = "FORMAT")]
    format: ExportName,
    #[command(flatten)]
    place: Where,
    /// What a service must be; see `bannerwall inventory list --help`.
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
  bannerwall inventory import scan.xml --inventory net.db                        nmap -sV -oX scan.xml …
  bannerwall inventory import /opt/zeek/logs/2026-11-21/*.log.gz --inventory net.db --sensor zeek
  bannerwall inventory import /var/log/suricata/eve.json --inventory net.db

What was taken over before is not counted again.")]
pub(super) struct ImportArgs {
    /// nmap's XML, Zeek's `known_services`, `software`, `ssh` and `http` logs (tables or JSON), or EVE JSON;
    /// packed by gzip or not; - is stdin.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What the files hold [default: what they begin with].
    #[arg(long, value_name = "FORMAT")]
    from: Option<ImportName>,
    #[command(flatten)]
    place: Where,
    /// The name that the inventory has for where this was seen.
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
    pub(super) fn ends(&self) -> (&Where, Option<&Path>) {
        (&self.place, self.output.as_deref())
    }
}

/// Runs `bannerwall inventory export`.
pub(super) fn export(arguments: &ExportArgs) -> Result<Exit, Failure> {
    let filter = Filter::parse(arguments.filters.iter().map(String::as_str)).map_err(Failure::usage)?;
    let inventory = arguments.place.open()?;
    let format = match arguments.format {
        ExportName::Csv => FormatName::Csv,
        ExportName::Json => FormatName::Json,
        ExportName::Cyclonedx => {
            return document(arguments, |out| cyclonedx(&inventory, &filter, Time::now(), out));
        }
        ExportName::NmapXml => return document(arguments, |out| nmap(&inventory, &filter, Time::now(), out)),
    };
    let mut rows = Rows::open(format, arguments.output.as_deref(), SERVICE)?;
    inventory.services(&filter, |service| rows.add(&service, || text::service(&service)))?;
    rows.finish()
}

/// Writes a document; a reader that went away is not an error.
fn document(
    arguments: &ExportArgs,
    write: impl FnOnce(&mut dyn Write) -> Result<(), ExportError>,
) -> Result<Exit, Failure> {
    let mut out = create(arguments.output.as_deref())?;
    match write(&mut *out).and_then(|()| Ok(out.flush()?)) {
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        outcome => outcome.map(|()| Exit::Done).map_err(Failure::usage),
    }
}

/// Runs `bannerwall inventory import`.
pub(super) fn import(arguments: &ImportArgs, quiet: bool) -> Result<Exit, Failure> {
    let names: Vec<String> = arguments.files.iter().map(|file| file.display().to_string()).collect();
    let mut importer = Importer::open(&arguments.place.inventory, arguments.sensor.clone(), names.join(" "))?;
    let format = arguments.from.map(|name| match name {
        ImportName::NmapXml => ImportFormat::NmapXml,
        ImportName::Zeek => ImportFormat::Zeek,
        ImportName::Eve => ImportFormat::Eve,
    });
    let outcome = arguments.files.iter().try_for_each(|file| -> Result<(), ImportError> {
        let imported = importer.read(file, format)?;
        if !quiet {
            let (rows, passed_over) = (imported.rows, imported.passed_over);
            tell(format_args!(
                "{}: {rows} rows, {passed_over} of them say nothing that is kept",
                file.display()
            ));
        }
        Ok(())
    });
    let ended = importer.end();
    outcome.map_err(Failure::usage)?;
    ended?;
    Ok(Exit::Done)
}
