//! `bannerwall rules import debian|osv|nvd|alpine|redhat`: turns advisories into rules.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};

use super::flags::{check_output, output_file};
use super::{CliExitCode, CommandFailure, print};
use crate::diagnostics::{log_line, several};
use crate::event::{AdvisoryVerdict, RuleAction, Severity};
use crate::files;
use crate::import::{
    self, AdvisoryImportError, ExploitedWeaknesses, ImportSelection, ImportedRules, OmittedWeaknesses,
    ProductMap,
};

/// Flags of `bannerwall rules import debian`.
#[derive(Debug, Args)]
pub(super) struct DebianFlags {
    /// JSON file of the tracker.
    #[arg(value_name = "FILE.json")]
    file: PathBuf,
    #[command(flatten)]
    wanted: WantedFlags,
}

/// Flags of `bannerwall rules import osv`.
#[derive(Debug, Args)]
pub(super) struct OsvFlags {
    /// Records, folders of them, and zip archives.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    wanted: WantedFlags,
}

/// Flags of the sources that come as files.
#[derive(Debug, Args)]
pub(super) struct FilesFlags {
    /// JSON files, plain or compressed with gzip.
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    wanted: WantedFlags,
}

/// Flags of every source of advisories.
#[derive(Debug, Args)]
struct WantedFlags {
    /// Only this source package; can be given several times [default: all packages with a known banner].
    #[arg(long, value_name = "PACKAGE")]
    product: Vec<String>,
    /// Only vulnerabilities named or published in this year or on this day, or later: 2020, 2020-05-01.
    #[arg(long, value_name = "DATE", value_parser = since)]
    since: Option<String>,
    /// Only vulnerabilities of at least this severity.
    #[arg(long, value_name = "SEVERITY", default_value = "low")]
    severity: SeverityName,
    /// CISA's list of known exploited vulnerabilities (JSON). Vulnerabilities in it get the severity critical
    /// and the tag `kev`.
    #[arg(long, value_name = "FILE")]
    kev: Option<PathBuf>,
    /// Action of the rules if a package is affected.
    #[arg(long, value_name = "ACTION", default_value = "alert")]
    action: ActionName,
    /// Block the verdict `unknown`, too: if the banner hides the package's version, or if banner and key
    /// exchange contradict each other.
    #[arg(long)]
    block_unknown: bool,
    /// Verdicts that raise an alert [default: affected; also unknown with --block-unknown, and for
    /// advisories that give no other verdict, such as those of upstream, Alpine and Red Hat].
    #[arg(long, value_name = "VERDICTS", value_delimiter = ',')]
    report: Option<Vec<VerdictName>>,
    /// Date of the data (2026-11-20) [default: the last change, from the records (OSV, NVD, Red Hat) or else
    /// from the files].
    #[arg(long, value_name = "DATE", value_parser = day)]
    date: Option<String>,
    /// Table of packages and their banners, in the form of rules/products.toml.
    #[arg(long, value_name = "FILE")]
    products: Option<PathBuf>,
    /// Write the rules to this file instead of to stdout.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SeverityName {
    Info,
    Low,
    Medium,
    High,
    Critical,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ActionName {
    Alert,
    Drop,
    Reject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerdictName {
    Affected,
    Fixed,
    Unknown,
}

/// Runs `bannerwall rules import debian`.
pub(super) fn debian(flags: &DebianFlags, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let (products, wanted) = flags.wanted.wanted(std::slice::from_ref(&flags.file))?;
    let imported = import::debian(&flags.file, &products, &wanted).map_err(CommandFailure::usage)?;
    flags.wanted.write(&imported, quiet)
}

/// Runs `bannerwall rules import osv`.
pub(super) fn osv(flags: &OsvFlags, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let (products, wanted) = flags.wanted.wanted(&flags.paths)?;
    let imported = import::osv(&flags.paths, &products, &wanted).map_err(CommandFailure::usage)?;
    flags.wanted.write(&imported, quiet)
}

/// Runs `bannerwall rules import` for files that `import` reads.
pub(super) fn files(
    flags: &FilesFlags,
    import: fn(&[PathBuf], &ProductMap, &ImportSelection) -> Result<ImportedRules, AdvisoryImportError>,
    quiet: bool,
) -> Result<CliExitCode, CommandFailure> {
    let (products, wanted) = flags.wanted.wanted(&flags.files)?;
    let imported = import(&flags.files, &products, &wanted).map_err(CommandFailure::usage)?;
    flags.wanted.write(&imported, quiet)
}

impl WantedFlags {
    fn wanted(&self, files: &[PathBuf]) -> Result<(ProductMap, ImportSelection), CommandFailure> {
        let read = [&self.products, &self.kev].into_iter().flatten().chain(files);
        check_output(self.output.as_deref(), read.map(PathBuf::as_path))?;
        let products = match &self.products {
            Some(path) => ProductMap::read(path),
            None => ProductMap::shipped(),
        };
        let products = products.map_err(CommandFailure::usage)?;
        if let Some(unknown) = self.product.iter().find(|name| !products.has(name)) {
            let known: Vec<&str> = products.packages().collect();
            let known = known.join(", ");
            let message =
                anyhow!("--product {unknown}: no known banner shows this package; known packages: {known}");
            return Err(CommandFailure::Usage(message));
        }
        self.refuse_idle()?;
        let exploited =
            self.kev.as_deref().map(ExploitedWeaknesses::read).transpose().map_err(CommandFailure::usage)?;
        let wanted = ImportSelection {
            packages: self.product.clone(),
            since: self.since.clone(),
            severity: self.severity.into(),
            exploited: exploited.unwrap_or_default(),
            action: self.action.into(),
            report: self
                .report
                .as_ref()
                .map(|report| report.iter().copied().map(AdvisoryVerdict::from).collect()),
            block_unknown: self.block_unknown,
            date: self.date.clone(),
            changed: files.iter().filter_map(|file| changed(file)).max().unwrap_or_default(),
        };
        Ok((products, wanted))
    }

    /// Refuses a choice that has no effect.
    fn refuse_idle(&self) -> Result<(), CommandFailure> {
        let why = match (self.block_unknown, self.action) {
            (true, ActionName::Alert) => "these rules block nothing; pass --action drop or --action reject",
            (true, _) if self.report.as_ref().is_some_and(|it| !it.contains(&VerdictName::Unknown)) => {
                "--report leaves out the verdict `unknown`; add it to --report"
            }
            _ => return Ok(()),
        };
        Err(CommandFailure::Usage(anyhow!("--block-unknown: {why}")))
    }

    /// Writes the rules, all or none of them.
    fn write(&self, imported: &ImportedRules, quiet: bool) -> Result<CliExitCode, CommandFailure> {
        let exit = match &self.output {
            None => print(imported.text.as_bytes())?,
            Some(path) => {
                // `replace` renames a finished file into place, so a guard never reads half of the rules.
                files::replace(path, imported.text.as_bytes())
                    .with_context(|| path.display().to_string())
                    .map_err(CommandFailure::Usage)?;
                CliExitCode::Done
            }
        };
        if !quiet {
            log_line(several(imported.rules, "rule"));
            if imported.left_out != OmittedWeaknesses::default() {
                log_line(format_args!("left out: {}", imported.left_out));
            }
        }
        Ok(exit)
    }
}

/// Day of the file's last change, in UTC.
fn changed(file: &Path) -> Option<String> {
    let changed = std::fs::metadata(file).ok()?.modified().ok()?;
    let changed = jiff::Timestamp::try_from(changed).ok()?;
    Some(changed.strftime("%Y-%m-%d").to_string())
}

fn day(text: &str) -> Result<String, String> {
    match text.parse::<jiff::civil::Date>() {
        Ok(date) => Ok(date.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn since(text: &str) -> Result<String, String> {
    let year = text.len() == 4 && text.bytes().all(|octet| octet.is_ascii_digit());
    if year {
        Ok(text.to_owned())
    } else {
        day(text).map_err(|error| format!("neither a year nor a day: {error}"))
    }
}

impl From<SeverityName> for Severity {
    fn from(name: SeverityName) -> Self {
        match name {
            SeverityName::Info => Self::Info,
            SeverityName::Low => Self::Low,
            SeverityName::Medium => Self::Medium,
            SeverityName::High => Self::High,
            SeverityName::Critical => Self::Critical,
        }
    }
}

impl From<ActionName> for RuleAction {
    fn from(name: ActionName) -> Self {
        match name {
            ActionName::Alert => Self::Alert,
            ActionName::Drop => Self::Drop,
            ActionName::Reject => Self::Reject,
        }
    }
}

impl From<VerdictName> for AdvisoryVerdict {
    fn from(name: VerdictName) -> Self {
        match name {
            VerdictName::Affected => Self::Affected,
            VerdictName::Fixed => Self::Fixed,
            VerdictName::Unknown => Self::Unknown,
        }
    }
}
