//! `bannerwall replay`: runs capture files through the engine.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::exit_code::{interrupt_flag, with_advice};
use super::flags::{
    EnforceOnlyFlag, FingerprintsFlag, FormatName, HttpExtent, InventoryFlags, LogHeadersFlag, OnAnomalyFlag,
    check_output, output_file, severity, with_ending,
};
use super::leave_root_owning;
use super::rule_paths::{RulePurpose, RulesFlag};
use super::{CliExitCode, CommandFailure};
use crate::confinement::{Confinement, warn_unconfined};
use crate::diagnostics::{log_line, several};
use crate::engine::{ChecksumState, EngineConfig};
use crate::event::{Event, EventSink, EventSource};
use crate::files::ReplacementFile;
use crate::inventory::{Inventory, InventorySender, RecordConfig};
use crate::output::eve::EveOptions;
use crate::output::learned_policies::PolicyLearner;
use crate::output::{
    self, AlertTotals, ChannelHandle, OutputCopy, OutputDestination, OutputWriter, WriterConfig,
};
use crate::privileges::{FILES, REPLACE_FILES};
use crate::replay::input::CaptureInput;
use crate::replay::{CaptureReplay, ReplayConfig, ReplayObserver, ReplaySession};
use crate::rules::{RuleSelection, RuleSet};
use crate::terms::Severity;

/// Bytes of a response's body to read for its title, even if no rule needs them.
const TITLE_OCTETS: usize = 4 << 10;

/// Smallest file with a progress bar, in bytes; smaller ones finish too early for it.
const PROGRESS_FROM: u64 = 64 << 20;

/// Flags of `bannerwall replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Captures: pcap or pcapng, also compressed with gzip; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    rules: RulesFlag,
    #[command(flatten)]
    fingerprints: FingerprintsFlag,
    /// Report as an enforcing guard: everything after a match in its flow is blocked.
    #[arg(long)]
    enforce: bool,
    #[command(flatten)]
    enforce_only: EnforceOnlyFlag,
    #[command(flatten)]
    on_anomaly: OnAnomalyFlag,
    /// Inspected part of an HTTP connection: its first transaction, every request, or all.
    #[arg(long, value_name = "EXTENT", default_value = "all")]
    http_inspect: HttpExtent,
    /// Segments with a wrong checksum: verify ignores them, ignore accepts them. Captures of a host's own
    /// traffic need ignore.
    #[arg(long, value_name = "CHECKSUMS", default_value = "ignore")]
    checksums: ChecksumFlag,
    /// Read the files as parts of one capture, in this order.
    #[arg(long)]
    join: bool,
    /// Format of events.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: FormatName,
    /// Leave out fields of JSON events that are not part of EVE.
    #[arg(long)]
    eve_strict: bool,
    #[command(flatten)]
    log_headers: LogHeadersFlag,
    /// Emit an event at the end of each flow: packets and bytes in each direction, protocol, verdict, times.
    #[arg(long)]
    flow_events: bool,
    /// Exit with code 1 if a finding has this severity or a higher one.
    #[arg(long, value_name = "SEVERITY", value_parser = severity())]
    fail_on: Option<Severity>,
    /// Write events to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
    /// Also write the same events in every format: to BASE.txt, BASE.jsonl and BASE.csv.
    #[arg(long, value_name = "BASE", value_parser = output_file)]
    output_all: Option<PathBuf>,
    #[command(flatten)]
    inventory: InventoryFlags,
    /// At the end, write policies to FILE that allow just the observed traffic (ports, networks, protocols
    /// and products), for your review.
    #[arg(long, value_name = "FILE")]
    learn: Option<PathBuf>,
    /// Do not confine the program to the files that it needs, for debugging. A malicious capture that
    /// exploits a bug could then open every file and run every program.
    #[arg(long)]
    no_sandbox: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChecksumFlag {
    /// Ignore segments with a wrong checksum.
    Verify,
    /// Accept every segment.
    Ignore,
}

/// Runs `bannerwall replay`.
pub(super) fn run(arguments: &ReplayArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    if let Some(file) = &arguments.learn {
        super::check_learn(file)?;
    }
    for output in arguments.outputs().chain(arguments.learn.clone()) {
        // The output is opened with truncation, which would destroy a capture of the same name.
        check_output(Some(&output), arguments.files.iter().map(PathBuf::as_path))?;
    }
    let rules = arguments.load_rules(quiet)?;
    let fingerprints = arguments.fingerprints.load()?;
    let kept = arguments.inventory()?;
    let learnt = arguments.policy_file()?;
    arguments.leave_root();
    // The confinement forbids new connections, so the connection to the server must exist first. It does not
    // reconnect later.
    let early =
        arguments.inventory.is_of_server().then(|| arguments.start_writing(kept.as_ref())).transpose()?;
    arguments.confine(quiet);
    let interrupted = interrupt_flag()?;
    let started = Instant::now();
    let (files, join) = (arguments.files.clone(), arguments.join);
    let mut session = ReplaySession::new(arguments.config(), rules, fingerprints, files, join);
    let (writer, inventory) = early.map_or_else(|| arguments.start_writing(kept.as_ref()), Ok)?;
    let mut sink = ReplaySinks {
        events: writer.handle(),
        learner: arguments.learn.is_some().then(PolicyLearner::default),
        inventory: inventory.as_ref().map(Inventory::observer),
        totals: AlertTotals::default(),
    };
    let mut terminal = ReplayTerminal {
        quiet,
        on_screen: arguments.output.is_none() && std::io::stdout().is_terminal(),
        interrupted: &interrupted,
        events: writer.handle(),
        file: None,
        failed: false,
    };
    let outcome = session.run(&mut sink, &mut terminal);
    let failed = terminal.failed;
    let (learner, totals) = (sink.learner.take(), std::mem::take(&mut sink.totals));
    // The writer ends when the last handle is gone, and these hold two.
    drop((sink, terminal));
    // The observer's last changes are events, too: the inventory has to finish before the writer.
    let unkept = inventory.map_or(0, Inventory::finish);
    let report = writer.finish();
    if let (Some(learner), Some(file)) = (learner, learnt) {
        learner.put(file).map_err(|error| arguments.learn_error(&error))?;
    }
    if !quiet {
        log_line(summary(session.replay(), &totals, started));
    }
    // A replay also breaks off when its reader is gone (`| head`), which is a normal end.
    if outcome.is_break() && interrupted.load(Relaxed) {
        return Ok(CliExitCode::Interrupted);
    }
    super::check_kept(unkept)?;
    arguments.exit_code(failed, &totals, &report)
}

impl ReplayArgs {
    /// Returns the exit code of a replay that was not interrupted; `failed` if a file could not be read.
    fn exit_code(
        &self,
        failed: bool,
        totals: &AlertTotals,
        report: &output::WriteReport,
    ) -> Result<CliExitCode, CommandFailure> {
        if let Some(error) = &report.first_error {
            let lost = report.failed;
            return Err(CommandFailure::usage(anyhow!("{lost} events could not be written: {error}")));
        }
        Ok(match (failed, self.fail_on.is_some_and(|severity| totals.reach(severity))) {
            (true, _) => CliExitCode::Usage,
            (false, true) => CliExitCode::Findings,
            (false, false) => CliExitCode::Done,
        })
    }

    /// Loads the rules. Without `--rules` and without installed rules a replay only reports banners.
    fn load_rules(&self, quiet: bool) -> Result<Arc<RuleSet>, CommandFailure> {
        let missing = self.rules.missing()?;
        if let (Some(why), false) = (&missing, quiet) {
            log_line(format_args!("bannerwall: banners are reported but not matched: {why}"));
        }
        let selection = match missing {
            Some(_) => RuleSelection::default(),
            None => self.rules.selection(RulePurpose::Guard)?,
        };
        let selection = RuleSelection { learns: self.learn.is_some(), ..selection };
        super::rule_paths::load(&selection, quiet).map(Arc::new)
    }

    fn config(&self) -> ReplayConfig {
        ReplayConfig {
            engine: EngineConfig {
                enforce: self.enforce,
                enforce_only: self.enforce_only.only(),
                on_anomaly: self.on_anomaly.policy(self.enforce),
                disclosure: self.log_headers.disclosure(),
                http_inspect: self.http_inspect.into(),
                body_limit: TITLE_OCTETS,
                // A replay has the time for details that a guard collects only for rules that need
                // them.
                collect_kex: true,
                flow_events: self.flow_events,
                ..EngineConfig::default()
            },
            checksums: match self.checksums {
                ChecksumFlag::Verify => ChecksumState::Verify,
                ChecksumFlag::Ignore => ChecksumState::NotReady,
            },
        }
    }

    /// Starts the writer of events, and the inventory if there is one.
    fn start_writing(
        &self,
        kept: Option<&RecordConfig>,
    ) -> Result<(OutputWriter, Option<Inventory>), CommandFailure> {
        let first = (self.destination(), self.format_for(self.format, &self.destination()));
        let copies = self.copies().map(|(path, format)| OutputCopy {
            format: self.format_for(format, &OutputDestination::File(path.clone())),
            path,
            continues: false,
        });
        let writer = OutputWriter::start_with_copies(WriterConfig::WAITING, first, copies.collect())
            .context("cannot write events")
            .map_err(CommandFailure::Usage)?;
        let started = kept.map(|kept| kept.start(EventSource::Replay, vec![writer.handle()])).transpose();
        let inventory = started.map_err(|error| CommandFailure::Usage(anyhow!("--inventory {error}")))?;
        Ok((writer, inventory))
    }

    /// Returns the inventory, if there is one, with what it needs once the program is confined.
    fn inventory(&self) -> Result<Option<RecordConfig>, CommandFailure> {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let config = self.inventory.config(names.join(" "));
        let prepared = config.as_ref().map_or(Ok(()), |config| config.prepare(None));
        prepared.map_err(|error| CommandFailure::Usage(anyhow!("--inventory {error}")))?;
        Ok(config)
    }

    /// The file that policies are written to at the end. They may be in force later, so that it stays root's.
    fn policy_file(&self) -> Result<Option<ReplacementFile>, CommandFailure> {
        let Some(path) = &self.learn else { return Ok(None) };
        ReplacementFile::open(path).map(Some).map_err(|error| self.learn_error(&error))
    }

    fn learn_error(&self, error: &std::io::Error) -> CommandFailure {
        let path = self.learn.as_deref().unwrap_or(Path::new(""));
        CommandFailure::Usage(anyhow!("--learn {}: {error}", path.display()))
    }

    /// Leaves root before any thread starts. Root may read captures of other users, such as tcpdump's.
    fn leave_root(&self) {
        if self.no_sandbox {
            return;
        }
        let needed = if self.learn.is_some() { FILES | REPLACE_FILES } else { FILES };
        let outputs: Vec<PathBuf> = self.outputs().collect();
        leave_root_owning(needed, outputs.iter().map(PathBuf::as_path).chain(self.inventory.path()));
    }

    /// Confines the program to what it needs, before it reads data from the network.
    fn confine(&self, quiet: bool) {
        if self.no_sandbox {
            warn_unconfined("a capture");
            return;
        }
        let mut confinement = Confinement::default();
        for file in self.files.iter().filter(|file| *file != Path::new("-")) {
            confinement = confinement.reading(file);
        }
        for file in self.outputs().chain(self.learn.clone()).chain(self.inventory.writes()) {
            confinement = confinement.writing(&file);
        }
        confinement.apply_or_warn(quiet);
    }

    fn destination(&self) -> OutputDestination {
        self.output.clone().map_or(OutputDestination::Stdout, OutputDestination::File)
    }

    fn format_for(&self, name: FormatName, destination: &OutputDestination) -> Box<dyn output::OutputFormat> {
        let options = EveOptions { strict: self.eve_strict, headers: self.log_headers.lists() };
        name.events(options, destination)
    }

    /// Returns the files of `--output-all` with their formats.
    fn copies(&self) -> impl Iterator<Item = (PathBuf, FormatName)> {
        const ENDINGS: [(&str, FormatName); 3] =
            [("txt", FormatName::Text), ("jsonl", FormatName::Json), ("csv", FormatName::Csv)];
        let named = |base: &PathBuf| ENDINGS.map(|(ending, format)| (with_ending(base, ending), format));
        self.output_all.as_ref().map(named).into_iter().flatten()
    }

    /// Returns the files of all events.
    fn outputs(&self) -> impl Iterator<Item = PathBuf> {
        self.output.clone().into_iter().chain(self.copies().map(|(path, _)| path))
    }
}

/// Receivers of events: the writer, and the learner and the inventory if there are any.
struct ReplaySinks {
    events: ChannelHandle,
    learner: Option<PolicyLearner>,
    inventory: Option<InventorySender>,
    totals: AlertTotals,
}

impl EventSink for ReplaySinks {
    fn emit(&mut self, event: Event) {
        if let Some(learner) = &mut self.learner {
            learner.take(&event);
        }
        if let Some(inventory) = &mut self.inventory {
            inventory.show(&event);
        }
        self.totals.record(&event);
        self.events.emit(event);
    }
}

/// Progress and errors on the terminal.
struct ReplayTerminal<'a> {
    quiet: bool,
    /// True if events go to the same screen.
    on_screen: bool,
    interrupted: &'a AtomicBool,
    events: ChannelHandle,
    /// Progress bar of the current file, and the position in it.
    file: Option<(ProgressBar, Arc<AtomicU64>)>,
    failed: bool,
}

impl ReplayObserver for ReplayTerminal<'_> {
    fn opened(&mut self, input: &CaptureInput) {
        self.file = Some((self.progress_bar(input), input.position()));
    }

    fn should_continue(&mut self) -> ControlFlow<()> {
        if let Some((bar, position)) = &self.file {
            bar.set_position(position.load(Relaxed));
        }
        if self.interrupted.load(Relaxed) || self.events.is_closed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn closed(&mut self) {
        if let Some((bar, _)) = self.file.take() {
            bar.finish_and_clear();
        }
    }

    fn report_error(&mut self, file: &Path, fault: &dyn std::fmt::Display) {
        self.failed = true;
        let name = if file == Path::new("-") { "standard input".into() } else { file.to_string_lossy() };
        log_line(with_advice(&format!("bannerwall: {name}: {fault}")));
    }
}

impl ReplayTerminal<'_> {
    /// Returns a bar on stderr, hidden if events go to the same screen.
    fn progress_bar(&self, input: &CaptureInput) -> ProgressBar {
        match input.length() {
            Some(length) if !self.quiet && !self.on_screen && length >= PROGRESS_FROM => {
                let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
                let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
                bar.with_style(
                    ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
                )
            }
            _ => ProgressBar::hidden(),
        }
    }
}

/// Returns the last line of a replay.
fn summary(replay: &CaptureReplay, alerts: &AlertTotals, started: Instant) -> String {
    let totals = replay.totals();
    let counters = replay.counters();
    let elapsed = started.elapsed().as_secs_f64();
    let parts = [
        several(totals.files, "file"),
        several(totals.frames, "packet"),
        several(totals.octets, "byte"),
        several(counters.flows + counters.udp_flows, "connection"),
        alerts.to_string(),
    ];
    format!("{}, {elapsed:.2} s", parts.join(", "))
}
