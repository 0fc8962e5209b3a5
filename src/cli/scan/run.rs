//! One scan from its beginning to its summary.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use indicatif::ProgressBar;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::progress::{Aside, SkippedTargets, Summary, bar};
use super::resume::{Resume, arguments};
use super::watch::{Metrics, Watch};
use super::{Common, FormatName, ProgressName, Request};
use crate::cli::rule_paths::Use;
use crate::cli::{Exit, Failure, Global};
use crate::diagnostics::tell;
use crate::output::csv::Csv;
use crate::output::eve::{Eve, EveOptions};
use crate::output::grepable::Grepable;
use crate::output::table::Table;
use crate::output::text::Colour;
use crate::output::xml::{NmapXml, XmlRun};
use crate::output::{Continued, Destination, Format, Writer, WriterConfig};
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;
use crate::scan::pacing::Rate;
use crate::scan::report::{ScanReport, Selection};
use crate::scan::targets::{Builder, Plan, SetOptions, TargetSet};
use crate::scan::{Config, HttpOptions, ProbeOptions};

/// The largest scan whose text names every target; of a larger one it names what is open.
const LISTED_WHOLE: u64 = 256;

/// Most connections at once unless the user says otherwise.
const WINDOW: u64 = 65_536;

pub(super) fn run(request: &Request<'_>, global: &Global) -> Result<Exit, Failure> {
    let common = request.common;
    let set = targets(request, global.quiet)?;
    let (rules, fingerprints) = judges(request, global.quiet)?;
    let resume = Resume::open(request, &set)?;
    let (input, skipped, seed) = (set.input(), set.skipped(), resume.seed);
    let others = set.len();
    let threads = threads(common, set.len());
    let plan = Arc::new(Plan::new(set, seed, common.shard, common.rate, threads, resume.from.clone()));
    let stop = Arc::new(AtomicBool::new(false));
    let config = config(request, rules, fingerprints, &plan, Arc::clone(&stop))?;
    let bar = bar(
        plan.total(),
        common.progress == ProgressName::Auto && !global.quiet && std::io::stderr().is_terminal(),
    );
    let writer = writer(request, &plan, &resume, &bar)?;
    let selection = Arc::new(selection(request, &plan, global.verbose));
    let metrics = common.metrics.map(Metrics::start).transpose()?;
    if global.verbose > 0 {
        let remaining = plan.remaining();
        bar.suspend(|| {
            tell(format_args!(
                "seed {seed}, {remaining} targets, {threads} threads, {} at once",
                config.window
            ));
        });
    }
    let watch = Watch {
        plan: &plan,
        stop: &stop,
        resume: &resume,
        bar: &bar,
        metrics,
        writer: writer.handle(),
        over: AtomicBool::new(false),
        started: Instant::now(),
    };
    let parts = plan.feeds(common.rate).into_iter().map(|(feed, tracker)| {
        (feed, ScanReport::new(Arc::clone(&plan), tracker, writer.handle(), Arc::clone(&selection)))
    });
    let parts = parts.collect();
    let (outcome, interrupted) = std::thread::scope(|scope| {
        let watcher = std::thread::current();
        let (config, parts, over) = (&config, parts, &watch.over);
        let scan = scope.spawn(move || {
            let outcome = crate::scan::run(config, parts).map(drop);
            over.store(true, Ordering::Release);
            watcher.unpark();
            outcome
        });
        watch.until_over(scan)
    })?;
    watch.end(interrupted)?;
    let elapsed = watch.elapsed();
    bar.finish_and_clear();
    let report = writer.finish();
    outcome.map_err(Failure::unsupported)?;
    let skipped = SkippedTargets { set: skipped, other_shards: others - plan.total() };
    let summary = Summary { input, skipped, total: plan.total(), counts: plan.counts(), elapsed };
    if !global.quiet {
        tell(summary);
    }
    if let Some(error) = report.first_error {
        return Err(Failure::Usage(anyhow!("{} results could not be written: {error}", report.failed)));
    }
    Ok(if interrupted { Exit::Interrupted } else { Exit::Done })
}

/// Reads and looks up all targets, and says what of them is left out.
fn targets(request: &Request<'_>, quiet: bool) -> Result<TargetSet, Failure> {
    let common = request.common;
    let mut builder = Builder::default();
    common.targets.iter().try_for_each(|word| builder.target(word)).map_err(Failure::usage)?;
    common.exclude.iter().try_for_each(|word| builder.exclude(word)).map_err(Failure::usage)?;
    common.input.iter().try_for_each(|file| builder.target_file(file)).map_err(Failure::usage)?;
    common.exclude_file.iter().try_for_each(|file| builder.exclude_file(file)).map_err(Failure::usage)?;
    builder.resolve().map_err(Failure::usage)?;
    let unresolved = builder.unresolved().to_vec();
    for name in unresolved.iter().filter(|_| !quiet) {
        tell(format_args!("bannerwall: {name}"));
    }
    let ask_each_name = matches!(request.probe, ProbeOptions::Http(_));
    let options = SetOptions { include_reserved: common.include_reserved, ask_each_name };
    let set = builder.build(&request.ports, options).map_err(Failure::usage)?;
    for out in set.left_out().iter().filter(|_| !quiet) {
        tell(format_args!(
            "bannerwall: left out {} ({} addresses in {}); --include-reserved asks them too",
            out.what, out.addresses, out.range
        ));
    }
    if set.input() == 0 {
        return Err(Failure::Usage(anyhow!("no targets: name them, or a file of them with -i FILE")));
    }
    Ok(set)
}

/// Rules and fingerprints. A scan that was not told where rules are goes on without them.
fn judges(request: &Request<'_>, quiet: bool) -> Result<(RuleSet, Option<Arc<Fingerprints>>), Failure> {
    let common = request.common;
    let fingerprints = common.fingerprints.load()?;
    if matches!(request.probe, ProbeOptions::Connect) {
        return Ok((RuleSet::empty(), None));
    }
    if common.rules.rules.is_empty()
        && let Err(Failure::Usage(missing)) = common.rules.paths()
    {
        if !quiet {
            tell(format_args!("bannerwall: banners are shown but not judged: {missing}"));
        }
        return Ok((RuleSet::empty(), fingerprints));
    }
    Ok((common.rules.load(Use::Scan, quiet)?, fingerprints))
}

fn threads(common: &Common, targets: u64) -> usize {
    let chosen = match (common.threads, common.rate) {
        (Some(threads), _) => threads.into(),
        (None, Rate::Max) => std::thread::available_parallelism().map_or(1, usize::from),
        (None, Rate::Limited(_)) => 1,
    };
    chosen.min(usize::try_from(targets).unwrap_or(usize::MAX)).max(1)
}

/// The most connections that one target can have at once.
fn connections_each(probe: &ProbeOptions) -> u64 {
    match probe {
        ProbeOptions::Http(options) if options.pipeline => {
            let connections = options.host_connections.max(HttpOptions::FALLBACK_CONNECTIONS);
            u64::try_from(connections).unwrap_or(u64::MAX)
        }
        ProbeOptions::Http(options) => u64::try_from(options.host_connections).unwrap_or(u64::MAX),
        ProbeOptions::Connect | ProbeOptions::Ssh { .. } | ProbeOptions::Greeting { .. } => 1,
    }
}

fn config(
    request: &Request<'_>,
    rules: RuleSet,
    fingerprints: Option<Arc<Fingerprints>>,
    plan: &Plan,
    stop: Arc<AtomicBool>,
) -> Result<Config, Failure> {
    let common = request.common;
    let wanted = match (common.concurrency, common.rate) {
        (Some(concurrency), _) => concurrency.into(),
        (None, Rate::Max) => WINDOW,
        (None, Rate::Limited(rate)) => {
            let in_time = u128::from(rate.get()) * common.connect_timeout.as_millis() / 1000;
            u64::try_from(in_time).unwrap_or(WINDOW).clamp(64, WINDOW)
        }
    };
    let descriptors = descriptors().context("RLIMIT_NOFILE").map_err(Failure::Unsupported)?;
    // Each ring is a descriptor itself, outside of its table; others are for files and libraries.
    let most = descriptors.saturating_mul((descriptors / 4).max(1));
    let useful = plan.remaining().saturating_mul(connections_each(&request.probe));
    let window = usize::try_from(wanted.min(useful).max(1)).unwrap_or(usize::MAX).min(most);
    Ok(Config {
        probe: request.probe.clone(),
        window,
        descriptors_per_ring: descriptors,
        connect_timeout: common.connect_timeout,
        first_byte_timeout: common.read_timeout,
        total_timeout: common.total_timeout.max(common.connect_timeout),
        retries: common.retries,
        close: common.close.into(),
        rules: Arc::new(rules),
        fingerprints,
        disclosure: common.log_headers.disclosure(),
        stop,
        ..Config::default()
    })
}

/// Raises the limit of descriptors as far as it goes, and says how many a ring may hold.
fn descriptors() -> anyhow::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)).min(1 << 16))
}

fn selection(request: &Request<'_>, plan: &Plan, verbose: u8) -> Selection {
    let common = request.common;
    let text = common.format == FormatName::Text;
    let events = matches!(common.format, FormatName::Json | FormatName::Csv);
    Selection {
        open_only: common.open,
        hide_unanswered: text && verbose == 0 && plan.total() > LISTED_WHOLE,
        always_connect: !events,
        patterns: request.patterns.clone(),
    }
}

/// The writer of results. A resumed scan goes on with its file.
fn writer(
    request: &Request<'_>,
    plan: &Plan,
    resume: &Resume<'_>,
    bar: &ProgressBar,
) -> Result<Writer, Failure> {
    let common = request.common;
    let stdout = std::io::stdout();
    let colour = if common.output.is_none() { Colour::for_stream(&stdout) } else { Colour::Never };
    let (arguments, start) = (arguments().join(" "), SystemTime::now().into());
    let format: Box<dyn Format> = match common.format {
        FormatName::Text => Box::new(Table { colour }),
        FormatName::Json => {
            Box::new(Eve(EveOptions { strict: common.eve_strict, headers: common.log_headers.lists() }))
        }
        FormatName::Csv => Box::new(Csv),
        FormatName::Grepable => Box::new(Grepable::new(arguments, start)),
        FormatName::Xml => Box::new(NmapXml::new(XmlRun {
            arguments,
            start,
            services: request.ports.to_string(),
            service_count: plan.set().port_count(),
        })),
    };
    let (destination, goes_on) = match &common.output {
        Some(path) if resume.goes_on && path.exists() => {
            if common.format == FormatName::Xml {
                let path = path.display();
                return Err(Failure::Usage(anyhow!(
                    "-o {path}: an XML document cannot be continued: name a new file"
                )));
            }
            cut_torn_line(path).with_context(|| format!("-o {}", path.display())).map_err(Failure::Usage)?;
            (Destination::Log(path.clone()), true)
        }
        Some(path) => (Destination::File(path.clone()), false),
        None if !bar.is_hidden() && stdout.is_terminal() => {
            (Destination::Other(Box::new(Aside(bar.clone()))), false)
        }
        None => (Destination::Stdout, false),
    };
    let format: Box<dyn Format> = if goes_on { Box::new(Continued(format)) } else { format };
    let name =
        common.output.as_ref().map_or_else(|| "standard output".into(), |path| path.display().to_string());
    Writer::start(WriterConfig::BATCHES, destination, format)
        .with_context(|| format!("-o {name}"))
        .map_err(Failure::Usage)
}

/// A killed process may have left half a line: its target is not over and will be asked again.
fn cut_torn_line(path: &Path) -> std::io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    // A line is never nearly as long as what one flush writes.
    file.seek(SeekFrom::Start(length.saturating_sub(1 << 20)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let torn = tail.iter().rev().take_while(|octet| **octet != b'\n').count() as u64;
    if torn > 0 { file.set_len(length - torn) } else { Ok(()) }
}
