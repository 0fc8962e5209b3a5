//! `bannerwall rules import`: turns databases of other projects into our formats.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::advisories::{self, DebianFlags, FilesFlags, OsvFlags};
use super::flags::{check_output, output_file};
use super::{CliExitCode, CommandFailure, print};
use crate::diagnostics::log_line;
use crate::import::{self, recog};
use crate::rules::fingerprint::{FingerprintFile, FingerprintSet, subjects};

/// Flags of `bannerwall rules import`.
#[derive(Debug, Args)]
pub(super) struct RulesImportArgs {
    #[command(subcommand)]
    from: ImportSource,
}

#[derive(Debug, Subcommand)]
enum ImportSource {
    /// Turn Recog's XML databases into one fingerprint file (TOML) for --fingerprints.
    ///
    /// The import tests every example against the result. It leaves out patterns that need more than linear
    /// time, and lists them on stderr.
    #[command(
        after_help = "Examples:\n  bannerwall rules import recog ssh_banners.xml http_servers.xml -o fingerprints.toml\n  bannerwall replay capture.pcap --fingerprints fingerprints.toml"
    )]
    Recog(RecogFlags),
    /// Turn data of Debian's security tracker into rules. They report whether the package in a banner is
    /// affected, fixed or unknown.
    ///
    /// Pass the file from <https://security-tracker.debian.org/tracker/data/json>, or from another tracker
    /// with the same format, plain or compressed with gzip. The import downloads nothing.
    #[command(after_help = "Examples:
  bannerwall rules import debian tracker.json -o debian.toml
  bannerwall rules import debian tracker.json --product openssh --since 2020 \\
      --severity medium --kev known_exploited_vulnerabilities.json -o debian.toml
  bannerwall rules test debian.toml --banner 'SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2'")]
    Debian(DebianFlags),
    /// Turn OSV records into such rules: for Debian's and Ubuntu's packages, and for upstream packages
    /// (`PyPI`, Maven and so on) that a banner names.
    ///
    /// Pass files of one record, folders of them, and zip archives. The import downloads nothing. Ubuntu's
    /// records list every affected version. Pass all records of a package: a release in none of them is then
    /// known to be unaffected.
    #[command(after_help = "Examples:
  bannerwall rules import osv UBUNTU-CVE-2024-6387.json -o ubuntu.toml
  bannerwall rules import osv ubuntu-security-notices/osv/cve --product openssh \\
      --since 2020 -o ubuntu.toml
  bannerwall rules import osv PyPI.zip --product PyPI:werkzeug -o pypi.toml")]
    Osv(OsvFlags),
    /// Turn the National Vulnerability Database's CVE records (API version 2.0) into rules about upstream's
    /// versions. Versions outside of the ranges are fixed, versions inside are unknown.
    #[command(
        after_help = "Example:\n  bannerwall rules import nvd nvdcve-2.0-2024.json.gz --product openssh -o nvd.toml"
    )]
    Nvd(FilesFlags),
    /// Turn Alpine's secdb, one file for each branch, into rules that name the fixed package. No Alpine
    /// banner shows the package's version, so these rules never report `affected`.
    #[command(after_help = "Example:\n  bannerwall rules import alpine v3.20/main.json -o alpine.toml")]
    Alpine(FilesFlags),
    /// Turn Red Hat's statements (CSAF VEX, one file for each vulnerability) into rules that name the fixed
    /// package. No Red Hat banner shows the package's version, so these rules never report `affected`.
    #[command(after_help = "Example:\n  bannerwall rules import redhat cve-2024-6387.json -o redhat.toml")]
    Redhat(FilesFlags),
}

#[derive(Debug, Args)]
struct RecogFlags {
    /// Recog databases, from the folder xml of github.com/rapid7/recog.
    #[arg(required = true, value_name = "FILE.xml")]
    files: Vec<PathBuf>,
    /// Write the fingerprint file here instead of to stdout.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
}

pub(super) fn run(arguments: &RulesImportArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    match &arguments.from {
        ImportSource::Recog(flags) => import_recog(flags, quiet),
        ImportSource::Debian(flags) => advisories::debian(flags, quiet),
        ImportSource::Osv(flags) => advisories::osv(flags, quiet),
        ImportSource::Nvd(flags) => advisories::files(flags, import::nvd, quiet),
        ImportSource::Alpine(flags) => advisories::files(flags, import::alpine, quiet),
        ImportSource::Redhat(flags) => advisories::files(flags, import::redhat, quiet),
    }
}

fn import_recog(flags: &RecogFlags, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    check_output(flags.output.as_deref(), flags.files.iter().map(PathBuf::as_path))?;
    let mut document = FingerprintFile::default();
    for path in &flags.files {
        let imported = recog::import(path).map_err(CommandFailure::usage)?;
        for remark in &imported.remarks {
            log_line(format_args!("{}:{remark}", path.display()));
        }
        let subject = imported.database.matches.as_str();
        if !subjects().any(|known| known == subject) && !quiet {
            log_line(format_args!(
                "{}: bannerwall does not read {subject}: these fingerprints never match",
                path.display()
            ));
        }
        let alone = FingerprintFile { database: vec![imported.database] };
        let fingerprints =
            FingerprintSet::compile(&path.display().to_string(), &alone).map_err(CommandFailure::usage)?;
        let (examples, mismatches) =
            alone.database.first().map_or((0, Vec::new()), |database| recog::verify(database, &fingerprints));
        for mismatch in &mismatches {
            log_line(format_args!("{}: {mismatch}", path.display()));
        }
        if !quiet {
            let given = examples - mismatches.len();
            log_line(format_args!(
                "{}: {} fingerprints; {given} of {examples} examples give their fields",
                path.display(),
                fingerprints.len()
            ));
        }
        document.database.extend(alone.database);
    }
    let text = written(&document).map_err(CommandFailure::usage)?;
    match &flags.output {
        None => print(text.as_bytes()),
        Some(path) => {
            std::fs::write(path, text)
                .with_context(|| path.display().to_string())
                .map_err(CommandFailure::Usage)?;
            Ok(CliExitCode::Done)
        }
    }
}

/// Returns the file's text, with the notice that Recog's license requires.
fn written(document: &FingerprintFile) -> Result<String, toml::ser::Error> {
    let notice = "# Converted by `bannerwall rules import recog` from Recog, https://github.com/rapid7/recog,\n\
                  # Copyright Rapid7, Inc., under the BSD 2-Clause License.\n\n";
    Ok(notice.to_owned() + &toml::to_string_pretty(document)?)
}
