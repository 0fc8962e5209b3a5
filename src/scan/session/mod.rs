//! The life of one scan, for every caller: resolving targets, threads, results, checkpoints and metrics.
//!
//! It prints nothing itself: the [`ScanObserver`] reports, and decides when to stop.

mod config;
mod metrics;
mod options;
mod result_output;
mod resume;
pub(super) mod store;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use super::checkpoint::CheckpointError;
use super::pacing::ScanRate;
use super::report::{ResultSelection, ScanReport};
use super::targets::{
    SetOptions, SkippedReserved, SkippedTargets, TargetCounts, TargetError, TargetPlan, TargetSet,
    TargetSetBuilder,
};
use super::{ProbeOptions, ScanError, ScannerConfig};
use crate::metrics::MetricsError;
use crate::output::{self, ChannelHandle, OutputWriter};

pub use config::{config_of, threads as threads_for};
use metrics::ScanMetricsEndpoint;
pub use options::{CheckpointOptions, ScanOptions, TargetOptions};
pub use result_output::{ResultCopy, ResultOutput};
use resume::ResumeState;
pub use store::{ResultFeed, ResultStore, StoreFault};

/// Interval between two checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// Interval between two checks of the onlooker, the writer and metrics.
const TICK: Duration = Duration::from_millis(50);

/// Observer of a scan: receives reports and progress, and can stop it.
pub trait ScanObserver {
    /// Reports a name without some or all addresses, with the reason.
    fn unresolved(&mut self, name: &str);

    /// Reports reserved addresses that are not probed.
    fn left_out(&mut self, out: &SkippedReserved);

    /// Called once all names are resolved, before threads start. From here on the scan needs only the network
    /// and its own files.
    fn knows_targets(&mut self) {}

    /// Called many times a second with the results so far.
    fn poll_decision(&mut self, counts: &TargetCounts) -> ObserverDecision;

    /// Reports an error that does not stop the scan.
    fn report_error(&mut self, fault: &dyn Display);

    /// Called at an early end, with the file to resume from.
    fn kept(&mut self, file: &Path, interrupted: bool);
}

/// Decision of an observer about the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserverDecision {
    /// Continue.
    GoOn,
    /// Finish targets under way, and start no others.
    Finish,
    /// Abandon targets under way.
    GiveUp,
}

/// Error of starting or running a scan.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Invalid targets.
    #[error(transparent)]
    Targets(#[from] TargetError),
    /// No targets.
    #[error("no targets: pass them, or a file with -i FILE")]
    NoTargets,
    /// Error of the checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The limit of descriptors could not be raised.
    #[error("cannot raise the limit of open files (RLIMIT_NOFILE): {0}")]
    Descriptors(std::io::Error),
    /// The results cannot be written; the error names the file.
    #[error("cannot write results: {0}")]
    Results(std::io::Error),
    /// An XML document cannot be resumed.
    #[error("-o {0}: an XML document cannot be continued: pass a new file")]
    NotContinued(PathBuf),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The store of results failed.
    #[error("{0}")]
    Store(StoreFault),
    /// The scan failed.
    #[error(transparent)]
    Scan(#[from] ScanError),
}

impl SessionError {
    /// True if this machine lacks something, regardless of the options.
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Self::Descriptors(_) | Self::Scan(_))
    }
}

/// One scan, ready to run.
#[derive(Debug)]
pub struct ScanSession {
    plan: Arc<TargetPlan>,
    config: ScannerConfig,
    rate: ScanRate,
    threads: usize,
    selection: Arc<ResultSelection>,
    resume: ResumeState,
    writer: OutputWriter,
    store: Option<(Box<dyn ResultStore>, ResultFeed)>,
    metrics: Option<ScanMetricsEndpoint>,
}

/// Numbers of a scan's targets. The named targets (a name without an address counts once for each port, an
/// address with two names once) are the sum of finished, remaining and skipped ones.
#[derive(Debug, Clone, Copy)]
pub struct ScanTotals {
    /// Number of named targets.
    pub input: u128,
    /// Targets that are skipped.
    pub skipped: SkippedTargets,
    /// Targets of other shards.
    pub other_shards: u64,
    /// Targets of this scan.
    pub total: u64,
    /// Results, in this run and earlier ones.
    pub counts: TargetCounts,
    /// Running time, in this run and earlier ones.
    pub elapsed: Duration,
}

/// End of a scan.
#[derive(Debug)]
pub struct ScanResult {
    /// Numbers of targets.
    pub account: ScanTotals,
    /// True if the observer stopped it.
    pub interrupted: bool,
    /// Report of the writer.
    pub written: output::WriteReport,
    /// Number of results that the store lost.
    pub unkept: u64,
}

impl ScanSession {
    /// Resolves all targets, and prepares the scan. `store` keeps results, whether or not they are shown.
    ///
    /// # Errors
    ///
    /// See [`SessionError`]; no target was probed then.
    pub fn open(
        options: ScanOptions,
        results: ResultOutput,
        store: Option<Box<dyn ResultStore>>,
        onlooker: &mut impl ScanObserver,
    ) -> Result<Self, SessionError> {
        let set = targets(&options, onlooker)?;
        // The file is read before anything is opened for output: a checkpoint of another scan must not
        // cost the old results.
        let resume = ResumeState::open(options.keep.clone(), &set, options.seed, options.shard)?;
        let threads = config::threads(options.threads, options.rate, set.len());
        let (seed, from) = (resume.seed, resume.from.clone());
        let plan = Arc::new(TargetPlan::new(set, seed, options.shard, options.rate, threads, from));
        let config = config::config(&options, &plan)?;
        // The store may need files that the confinement forbids later.
        store.as_ref().map_or(Ok(()), |store| store.prepare()).map_err(SessionError::Store)?;
        onlooker.knows_targets();
        let mut selection = options.selection;
        // The number of targets is known only now.
        selection.hide_unanswered |= plan.total() > options.listed_whole;
        let writer = results.start(resume.goes_on)?;
        let start = |mut store: Box<dyn ResultStore>| {
            let feed = store.start(vec![writer.handle()]);
            feed.map(|feed| (store, feed))
        };
        let store = store.map(start).transpose().map_err(SessionError::Store)?;
        Ok(Self {
            config,
            rate: options.rate,
            threads,
            selection: Arc::new(selection),
            writer,
            store,
            metrics: options.metrics.as_ref().map(ScanMetricsEndpoint::start).transpose()?,
            resume,
            plan,
        })
    }

    /// Returns the targets and their progress.
    pub fn plan(&self) -> &TargetPlan {
        &self.plan
    }

    /// Returns the seed of the targets' order.
    pub fn seed(&self) -> u64 {
        self.resume.seed
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the limit of concurrent connections, over all threads.
    pub fn window(&self) -> usize {
        self.config.window
    }

    /// Probes all targets, or until the observer stops the scan.
    ///
    /// # Errors
    ///
    /// The ring, a thread or the last checkpoint failed; existing results are written all the same.
    pub fn run(self, onlooker: &mut impl ScanObserver) -> Result<ScanResult, SessionError> {
        let watch = ScanSupervisor {
            session: &self,
            writer: self.writer.handle(),
            over: AtomicBool::new(false),
            started: Instant::now(),
        };
        let parts = self.plan.feeds(self.rate).into_iter().map(|(feed, tracker)| {
            let (plan, selection) = (Arc::clone(&self.plan), Arc::clone(&self.selection));
            let store = self.store.as_ref().map(|(_, feed)| feed.clone());
            (feed, ScanReport::new(plan, tracker, self.writer.handle(), selection).stored_in(store))
        });
        let parts = parts.collect();
        let (outcome, interrupted) = std::thread::scope(|scope| {
            let watcher = std::thread::current();
            let (config, over) = (&self.config, &watch.over);
            let scan = scope.spawn(move || {
                let outcome = super::run(config, parts).map(drop);
                over.store(true, Release);
                watcher.unpark();
                outcome
            });
            watch.until_over(scan, onlooker)
        });
        // The last checkpoint is written while the writer still accepts data: it flushes the results
        // first.
        let kept = watch.keep(interrupted, onlooker);
        let account = watch.account();
        drop(watch);
        // The store emits its last events to the writer, so it finishes first.
        let unkept = self.store.map_or(0, |(store, _)| store.finish());
        let written = self.writer.finish();
        kept?;
        outcome?;
        Ok(ScanResult { account, interrupted, written, unkept })
    }
}

/// Resolves all targets, and reports skipped ones to the observer.
///
/// # Errors
///
/// A target is invalid, or there is none.
pub fn targets(options: &ScanOptions, onlooker: &mut impl ScanObserver) -> Result<TargetSet, SessionError> {
    let named = &options.targets;
    let mut builder = TargetSetBuilder::default();
    named.words.iter().try_for_each(|word| builder.target(word))?;
    named.exclude.iter().try_for_each(|word| builder.exclude(word))?;
    named.file.iter().try_for_each(|file| builder.target_file(file))?;
    named.exclude_file.iter().try_for_each(|file| builder.exclude_file(file))?;
    builder.resolve()?;
    builder.unresolved().iter().for_each(|name| onlooker.unresolved(name));
    let how = SetOptions {
        include_reserved: named.include_reserved,
        ask_each_name: asks_each_name(&options.probe),
    };
    let set = builder.build(&options.ports, how)?;
    set.left_out().iter().for_each(|out| onlooker.left_out(out));
    if set.input() == 0 { Err(SessionError::NoTargets) } else { Ok(set) }
}

/// True if an address is probed once for each of its names.
pub fn asks_each_name(probe: &ProbeOptions) -> bool {
    matches!(
        probe,
        ProbeOptions::Http(_) | ProbeOptions::Https(..) | ProbeOptions::Tls(_) | ProbeOptions::Any(..)
    )
}

/// Supervision of a scan while its threads run.
struct ScanSupervisor<'a> {
    session: &'a ScanSession,
    writer: ChannelHandle,
    /// Set at the end of the scan, before its thread wakes this one; that thread itself exits a little later.
    over: AtomicBool,
    started: Instant,
}

type Scan<'scope> = ScopedJoinHandle<'scope, Result<(), ScanError>>;

impl ScanSupervisor<'_> {
    fn elapsed(&self) -> Duration {
        self.session.resume.earlier + self.started.elapsed()
    }

    /// Returns the scan's result, and whether the observer stopped it.
    fn until_over(&self, scan: Scan<'_>, onlooker: &mut impl ScanObserver) -> (Result<(), ScanError>, bool) {
        let ScanSession { plan, config, metrics, .. } = self.session;
        let (mut saved, mut interrupted) = (Instant::now(), false);
        // `over` stays unset after a panic, so the thread's end is checked, too.
        while !self.over.load(Acquire) && !scan.is_finished() {
            // The scan's thread unparks this one at the end.
            std::thread::park_timeout(TICK);
            let counts = plan.counts();
            let wish = onlooker.poll_decision(&counts);
            // The writer is closed if the reader of the results went away.
            let unread = self.writer.is_closed();
            interrupted |= wish != ObserverDecision::GoOn;
            // No new target starts, but the running ones finish, so their results are not lost.
            if wish != ObserverDecision::GoOn || unread {
                plan.close();
            }
            if wish == ObserverDecision::GiveUp || unread {
                config.stop.store(true, Relaxed);
            }
            if saved.elapsed() >= CHECKPOINT_EVERY {
                if let Err(error) = self.save() {
                    onlooker.report_error(&error);
                }
                saved = Instant::now();
            }
            if let Some(metrics) = metrics {
                metrics.show(&counts, plan.in_flight());
            }
        }
        (scan.join().unwrap_or(Err(ScanError::Panicked)), interrupted)
    }

    fn save(&self) -> Result<(), CheckpointError> {
        self.session.resume.save(&self.session.plan, &self.writer, self.elapsed())
    }

    /// Writes the last checkpoint, or removes it if nothing is left to do.
    fn keep(&self, interrupted: bool, onlooker: &mut impl ScanObserver) -> Result<(), CheckpointError> {
        let ScanSession { plan, resume, .. } = self.session;
        let Some(path) = resume.path() else { return Ok(()) };
        if plan.counts().finished() < plan.total() {
            self.save()?;
            onlooker.kept(path, interrupted);
            return Ok(());
        }
        resume.remove()
    }

    fn account(&self) -> ScanTotals {
        let plan = &self.session.plan;
        let set = plan.set();
        ScanTotals {
            input: set.input(),
            skipped: set.skipped(),
            other_shards: set.len() - plan.total(),
            total: plan.total(),
            counts: plan.counts(),
            elapsed: self.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests;
