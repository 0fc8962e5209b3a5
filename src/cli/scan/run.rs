//! Runs one scan for the command line: options, the terminal, the summary and the exit code.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::anyhow;

use super::progress::{Aside, Summary};
use super::resume::{arguments, keep};
use super::terminal::Terminal;
use super::{Request, ScanFormat};
use crate::cli::flags::check_output;
use crate::cli::rule_paths::Use;
use crate::cli::{Exit, Failure, Global};
use crate::diagnostics::tell;
use crate::output::csv::Csv;
use crate::output::eve::{Eve, EveOptions};
use crate::output::grepable::Grepable;
use crate::output::table::Table;
use crate::output::text::Colour;
use crate::output::xml::{NmapXml, XmlRun};
use crate::output::{Destination, Format};
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;
use crate::scan::report::Selection;
use crate::scan::session::{Ending, Named, Options, Results, Session, SessionError};
use crate::scan::{ProbeOptions, SshOptions};

/// Limit of targets for a full text listing; a larger scan lists only open targets.
const LISTED_WHOLE: u64 = 256;

pub(super) fn run(request: &Request<'_>, global: &Global) -> Result<Exit, Failure> {
    crate::serve::runner::end_with_parent().map_err(Failure::usage)?;
    let common = request.common;
    let lists = [&common.input, &common.exclude_file].into_iter().flatten().map(Path::new);
    check_output(common.output.as_deref(), lists.chain(common.resume.as_deref()))?;
    let options = options(request, global)?;
    let mut terminal = Terminal::new(request, global);
    let store = common.inventory.config(arguments().join(" ")).map(crate::run::result_store);
    let session = Session::open(options, results(request, &terminal), store, &mut terminal)?;
    terminal.begin(&session)?;
    let ended = session.run(&mut terminal);
    terminal.bar.finish_and_clear();
    let Ending { account, interrupted, written, unkept } = ended?;
    if !global.quiet {
        tell(Summary(&account));
    }
    if let Some(error) = written.first_error {
        return Err(Failure::Usage(anyhow!("{} results could not be written: {error}", written.failed)));
    }
    crate::cli::check_kept(unkept)?;
    if account.input > 0 && account.skipped.unresolved == account.input {
        return Err(Failure::Usage(anyhow!(
            "the names of all targets have no address: no target was probed"
        )));
    }
    Ok(if interrupted { Exit::Interrupted } else { Exit::Done })
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        if error.is_of_machine() { Self::unsupported(error) } else { Self::usage(error) }
    }
}

fn options(request: &Request<'_>, global: &Global) -> Result<Options, Failure> {
    options_judged_by(judges(request, global.quiet)?, request, global)
}

/// Returns the options with loaded rules and fingerprints.
pub(super) fn options_judged_by(
    (rules, fingerprints): (RuleSet, Option<Arc<Fingerprints>>),
    request: &Request<'_>,
    global: &Global,
) -> Result<Options, Failure> {
    let common = request.common;
    let targets = Named {
        words: common.targets.clone(),
        file: common.input.clone(),
        exclude: common.exclude.clone(),
        exclude_file: common.exclude_file.clone(),
        include_reserved: common.include_reserved,
    };
    let (read_timeout, total_timeout) = request.probe.patience();
    let whole = common.format != ScanFormat::Text || global.verbose > 0;
    Ok(Options {
        rules: Arc::new(rules),
        fingerprints,
        disclosure: common.log_headers.disclosure(),
        selection: Selection {
            open_only: common.open,
            hide_unanswered: false,
            always_connect: !matches!(common.format, ScanFormat::Json | ScanFormat::Csv),
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
        ..Options::new(targets, request.ports.clone(), request.probe.clone())
    })
}

/// Loads rules and fingerprints. If no flag names rules and none are installed, the scan runs without them.
fn judges(request: &Request<'_>, quiet: bool) -> Result<(RuleSet, Option<Arc<Fingerprints>>), Failure> {
    let common = request.common;
    let fingerprints = common.fingerprints.load()?;
    if matches!(request.probe, ProbeOptions::Connect) {
        return Ok((RuleSet::empty(), None));
    }
    if let Some(why) = common.rules.missing()? {
        if !quiet {
            tell(format_args!("bannerwall: banners are reported but not matched: {why}"));
        }
        return Ok((RuleSet::empty(), fingerprints));
    }
    Ok((common.rules.load(Use::Scan, quiet)?, fingerprints))
}

/// Returns the format and destination of results.
fn results(request: &Request<'_>, terminal: &Terminal) -> Results {
    let common = request.common;
    let stdout = std::io::stdout();
    let destination = match &common.output {
        Some(path) => Destination::File(path.clone()),
        None if !terminal.bar.is_hidden() && stdout.is_terminal() => {
            Destination::Other(Box::new(Aside(terminal.bar.clone())))
        }
        None => Destination::Stdout,
    };
    let is_document = common.format == ScanFormat::Xml;
    Results { format: format(request), destination, is_document }
}

fn format(request: &Request<'_>) -> Box<dyn Format> {
    let common = request.common;
    let (arguments, start) = (arguments().join(" "), SystemTime::now().into());
    match common.format {
        ScanFormat::Text => Box::new(Table {
            colour: match common.output {
                Some(_) => Colour::Never,
                None => Colour::for_stream(&std::io::stdout()),
            },
            hassh: matches!(request.probe, ProbeOptions::Ssh(SshOptions { hassh: true, .. })),
        }),
        ScanFormat::Json => {
            Box::new(Eve(EveOptions { strict: common.eve_strict, headers: common.log_headers.lists() }))
        }
        ScanFormat::Csv => Box::new(Csv),
        ScanFormat::Grepable => Box::new(Grepable::new(arguments, start)),
        ScanFormat::Xml => Box::new(NmapXml::new(XmlRun {
            arguments,
            start,
            services: request.ports.to_string(),
            service_count: request.ports.count(),
        })),
    }
}
