//! Runs one scan for the command line: options, the terminal, the summary and the exit code.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::anyhow;

use super::progress::{ProgressStdout, ScanFindingsLine, ScanSummaryLine};
use super::resume::{arguments, keep};
use super::terminal::ScanTerminal;
use super::{ModeFlagValues, ScanFormat};
use crate::cli::flags::check_output;
use crate::cli::rule_paths::RulePurpose;
use crate::cli::{CliExitCode, CommandFailure, GlobalFlags};
use crate::diagnostics::log_line;
use crate::output::csv::CsvFormat;
use crate::output::eve::{EveFormat, EveOptions};
use crate::output::grepable::GrepableFormat;
use crate::output::table::TableFormat;
use crate::output::text::ColourMode;
use crate::output::xml::{NmapXml, XmlRun};
use crate::output::{OutputDestination, OutputFormat, WithoutBareConnects};
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;
use crate::scan::report::ResultSelection;
use crate::scan::session::{
    ResultCopy, ResultOutput, ScanOptions, ScanResult, ScanSession, SessionError, TargetOptions,
};
use crate::scan::{ProbeOptions, SshOptions};

/// Limit of targets for a full text listing; a larger scan lists only open targets.
const LISTED_WHOLE: u64 = 256;

pub(super) fn run(request: &ModeFlagValues<'_>, global: &GlobalFlags) -> Result<CliExitCode, CommandFailure> {
    let common = request.common;
    let lists = [&common.input, &common.exclude_file].into_iter().flatten().map(Path::new);
    let inputs: Vec<&Path> = lists.chain(common.resume.as_deref()).collect();
    for output in common.outputs() {
        check_output(Some(&output), inputs.iter().copied())?;
    }
    let options = options(request, global)?;
    let judges = !options.rules.rules().is_empty();
    let mut terminal = ScanTerminal::new(request, global);
    let store = common.inventory.config(arguments().join(" ")).map(crate::attachments::result_store);
    let session = ScanSession::open(options, results(request, global, &terminal), store, &mut terminal)?;
    terminal.begin(&session)?;
    let ended = session.run(&mut terminal);
    // The bar is removed before an error is printed: both go to the terminal.
    terminal.bar.finish_and_clear();
    let ScanResult { account, interrupted, written, unkept } = ended?;
    if !global.quiet {
        if judges {
            log_line(ScanFindingsLine(&account.counts));
        }
        log_line(ScanSummaryLine { account: &account, matches: !request.patterns.is_empty() });
    }
    if let Some(error) = written.first_error {
        return Err(CommandFailure::Usage(anyhow!(
            "{} results could not be written: {error}",
            written.failed
        )));
    }
    crate::cli::check_kept(unkept)?;
    if account.input > 0 && account.skipped.unresolved == account.input {
        return Err(CommandFailure::Usage(anyhow!(
            "the names of all targets have no address: no target was probed"
        )));
    }
    let fails = common.fail_on.is_some_and(|severity| account.counts.findings.reach(severity));
    Ok(match (interrupted, fails) {
        (true, _) => CliExitCode::Interrupted,
        (false, true) => CliExitCode::Findings,
        (false, false) => CliExitCode::Done,
    })
}

impl From<SessionError> for CommandFailure {
    fn from(error: SessionError) -> Self {
        if error.is_of_machine() { Self::unsupported(error) } else { Self::usage(error) }
    }
}

fn options(request: &ModeFlagValues<'_>, global: &GlobalFlags) -> Result<ScanOptions, CommandFailure> {
    options_judged_by(load_rules(request, global.quiet)?, request, global)
}

/// Returns the options with loaded rules and fingerprints.
pub(super) fn options_judged_by(
    (rules, fingerprints): (RuleSet, Option<Arc<FingerprintSet>>),
    request: &ModeFlagValues<'_>,
    global: &GlobalFlags,
) -> Result<ScanOptions, CommandFailure> {
    let common = request.common;
    let targets = TargetOptions {
        words: common.targets.clone(),
        file: common.input.clone(),
        exclude: common.exclude.clone(),
        exclude_file: common.exclude_file.clone(),
        include_reserved: common.include_reserved,
    };
    let (read_timeout, total_timeout) = request.probe.patience();
    let whole = common.format != ScanFormat::Text || global.verbose > 0;
    Ok(ScanOptions {
        rules: Arc::new(rules),
        fingerprints,
        disclosure: common.log_headers.disclosure(),
        selection: ResultSelection {
            open_only: common.open,
            hide_unanswered: false,
            always_connect: common.output_all.is_some() || common.format.needs_connects(),
            patterns: request.patterns.clone(),
        },
        listed_whole: if whole { u64::MAX } else { LISTED_WHOLE },
        rate: common.rate,
        concurrency: common.concurrency,
        connect_timeout: common.connect_timeout,
        read_timeout: common.read_timeout.unwrap_or(read_timeout),
        total_timeout: common.total_timeout.unwrap_or(total_timeout),
        retries: common.retries,
        close: common.close.into(),
        threads: common.threads,
        seed: common.seed,
        shard: common.shard,
        keep: keep(request),
        metrics: common.metrics.config()?,
        ..ScanOptions::new(targets, request.ports.clone(), request.probe.clone())
    })
}

/// Loads rules and fingerprints. If no flag names rules and none are installed, the scan runs without them.
fn load_rules(
    request: &ModeFlagValues<'_>,
    quiet: bool,
) -> Result<(RuleSet, Option<Arc<FingerprintSet>>), CommandFailure> {
    let common = request.common;
    let fingerprints = common.fingerprints.load()?;
    // A connect scan reads no banner, so missing rules are no reason for a warning.
    if matches!(request.probe, ProbeOptions::Connect) {
        return Ok((RuleSet::empty(), None));
    }
    if let Some(why) = common.rules.missing()? {
        if !quiet {
            log_line(format_args!("bannerwall: banners are reported but not matched: {why}"));
        }
        return Ok((RuleSet::empty(), fingerprints));
    }
    Ok((common.rules.load(RulePurpose::Scan, quiet)?, fingerprints))
}

/// Returns the format and destination of results.
fn results(request: &ModeFlagValues<'_>, global: &GlobalFlags, terminal: &ScanTerminal) -> ResultOutput {
    let common = request.common;
    let stdout = std::io::stdout();
    let destination = match &common.output {
        Some(path) => OutputDestination::File(path.clone()),
        None if !terminal.bar.is_hidden() && stdout.is_terminal() => {
            // Lines on stdout and the bar on stderr share the terminal, so the bar is hidden while a
            // line is written.
            OutputDestination::Other(Box::new(ProgressStdout(terminal.bar.clone())))
        }
        None => OutputDestination::Stdout,
    };
    let is_document = common.format == ScanFormat::Xml;
    let colour = ColourMode::for_results(common.output.as_deref());
    let copies = common.copies().map(|(path, name)| ResultCopy {
        path,
        format: format(name, request, global, ColourMode::Never),
        is_document: name == ScanFormat::Xml,
    });
    ResultOutput {
        format: format(common.format, request, global, colour),
        destination,
        is_document,
        copies: copies.collect(),
    }
}

fn format(
    name: ScanFormat,
    request: &ModeFlagValues<'_>,
    global: &GlobalFlags,
    colour: ColourMode,
) -> Box<dyn OutputFormat> {
    let common = request.common;
    let (arguments, start) = (arguments().join(" "), SystemTime::now().into());
    match name {
        ScanFormat::Text => Box::new(TableFormat {
            colour,
            requests: global.verbose > 0,
            hassh: matches!(request.probe, ProbeOptions::Ssh(SshOptions { hassh: true, .. })),
        }),
        ScanFormat::Json => {
            let options = EveOptions { strict: common.eve_strict, headers: common.log_headers.lists() };
            Box::new(WithoutBareConnects(EveFormat(options)))
        }
        ScanFormat::Csv => Box::new(WithoutBareConnects(CsvFormat)),
        ScanFormat::Grepable => Box::new(GrepableFormat::new(arguments, start)),
        ScanFormat::Xml => Box::new(NmapXml::new(XmlRun {
            arguments,
            start,
            services: request.ports.to_string(),
            service_count: request.ports.count(),
        })),
    }
}
