//! The life of one scan: targets looked up, threads, results, checkpoints and metrics, whoever looks on.
//!
//! It says nothing to anybody itself: the [`Onlooker`] shows and tells, and decides when to end.

mod config;
mod metrics;
mod options;
mod results;
mod resume;
mod store;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use super::checkpoint::CheckpointError;
use super::pacing::Rate;
use super::report::{ScanReport, Selection};
use super::targets::{Builder, Counts, LeftOut, Plan, SetOptions, Skipped, TargetError, TargetSet};
use super::{Config, ProbeOptions, ScanError};
use crate::metrics::MetricsError;
use crate::output::{self, Handle, Writer};

pub use config::{config_of, threads as threads_for};
use metrics::Metrics;
pub use options::{Keep, Named, Options};
pub use results::Results;
use resume::Resume;
pub use store::{ResultFeed, ResultStore, StoreFault};

/// Interval at which the file of a [`Keep`] is replaced.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// Interval at which the onlooker, the writer and metrics are looked after.
const TICK: Duration = Duration::from_millis(50);

/// Whoever started a scan: hears what is left out, shows how far it is, and may end it.
pub trait Onlooker {
    /// A name was not found, or not all of it: what it is and why.
    fn unresolved(&mut self, name: &str);

    /// Reserved addresses were named and are not asked.
    fn left_out(&mut self, out: &LeftOut);

    /// Every name was looked up: from here on the scan needs the network and its own files alone. Threads are
    /// yet to come.
    fn knows_targets(&mut self) {}

    /// Asked many times a second, with what came of the targets so far.
    fn look_up(&mut self, counts: &Counts) -> Wish;

    /// Something went wrong that does not end the scan.
    fn blame(&mut self, fault: &dyn Display);

    /// The scan ends before all targets are over; the file says where to go on.
    fn kept(&mut self, file: &Path, interrupted: bool);
}

/// How an onlooker wants a scan to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To its end.
    GoOn,
    /// With what is under way, and no further target.
    Finish,
    /// No more: what is under way is given up.
    GiveUp,
}

/// Why a scan could not begin, or not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// What was named is no target.
    #[error(transparent)]
    Targets(#[from] TargetError),
    /// Nothing was named.
    #[error("no targets: name them, or a file of them with -i FILE")]
    NoTargets,
    /// The file that keeps where the scan stands.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The limit of descriptors could not be raised.
    #[error("RLIMIT_NOFILE: {0}")]
    Descriptors(std::io::Error),
    /// Results cannot be written where they are to go.
    #[error("-o {name}: {error}")]
    Results {
        /// The file, or what stands for it.
        name: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A document with one end was to be continued.
    #[error("-o {0}: an XML document cannot be continued: name a new file")]
    NotContinued(PathBuf),
    /// Metrics cannot be shown.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// What is found cannot be kept.
    #[error("{0}")]
    Store(StoreFault),
    /// The scan itself.
    #[error(transparent)]
    Scan(#[from] ScanError),
}

impl SessionError {
    /// True if this machine lacks something, whatever was asked.
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Self::Descriptors(_) | Self::Scan(_))
    }
}

/// One scan, ready to run.
#[derive(Debug)]
pub struct Session {
    plan: Arc<Plan>,
    config: Config,
    rate: Rate,
    threads: usize,
    selection: Arc<Selection>,
    resume: Resume,
    writer: Writer,
    store: Option<(Box<dyn ResultStore>, ResultFeed)>,
    metrics: Option<Metrics>,
}

/// Where all targets of a scan went. Those that were named (a name without an address counts once a port,
/// an address named twice once) are those that are over, those that are left and those that were skipped.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// Targets that were named.
    pub input: u128,
    /// Of those, what is not to be asked.
    pub skipped: Skipped,
    /// Left to the other parts of a sharded scan.
    pub other_shards: u64,
    /// What this scan is to ask.
    pub total: u64,
    /// What came of it, in this run and those before it.
    pub counts: Counts,
    /// Time for which that took, in this run and those before it.
    pub elapsed: Duration,
}

/// How a scan ended.
#[derive(Debug)]
pub struct Ending {
    /// Where the targets went.
    pub account: Account,
    /// The onlooker ended it.
    pub interrupted: bool,
    /// What became of the results.
    pub written: output::Report,
    /// Findings that could not be kept.
    pub unkept: u64,
}

impl Session {
    /// Reads and looks up all targets, and makes ready what they need.
    ///
    /// # Errors
    /// See [`SessionError`]; nothing was asked then.
    pub fn open(
        options: Options,
        mut results: Results,
        onlooker: &mut impl Onlooker,
    ) -> Result<Self, SessionError> {
        let set = targets(&options, onlooker)?;
        let resume = Resume::open(options.keep.clone(), &set, options.seed, options.shard)?;
        let threads = config::threads(options.threads, options.rate, set.len());
        let (seed, from) = (resume.seed, resume.from.clone());
        let plan = Arc::new(Plan::new(set, seed, options.shard, options.rate, threads, from));
        let config = config::config(&options, &plan)?;
        // Before the process is held to what is there.
        let store = results.store.take();
        store.as_ref().map_or(Ok(()), |store| store.prepare()).map_err(SessionError::Store)?;
        onlooker.knows_targets();
        let mut selection = options.selection;
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
            metrics: options.metrics.as_ref().map(Metrics::start).transpose()?,
            resume,
            plan,
        })
    }

    /// What is asked, and how far that is.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The seed of the targets' order.
    pub fn seed(&self) -> u64 {
        self.resume.seed
    }

    /// Threads that ask.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Connections at once, over all threads.
    pub fn window(&self) -> usize {
        self.config.window
    }

    /// Asks all targets, or as many as the onlooker wishes.
    ///
    /// # Errors
    /// The ring, a thread or the last checkpoint: results that there were are written all the same.
    pub fn run(self, onlooker: &mut impl Onlooker) -> Result<Ending, SessionError> {
        let watch = Watch {
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
        let kept = watch.keep(interrupted, onlooker);
        let account = watch.account();
        drop(watch);
        // What changed is told last.
        let unkept = self.store.map_or(0, |(store, _)| store.finish());
        let written = self.writer.finish();
        kept?;
        outcome?;
        Ok(Ending { account, interrupted, written, unkept })
    }
}

/// Reads and looks up all targets, and has the onlooker told what of them is left out.
///
/// # Errors
/// A word is none, or there is none.
pub fn targets(options: &Options, onlooker: &mut impl Onlooker) -> Result<TargetSet, SessionError> {
    let named = &options.targets;
    let mut builder = Builder::default();
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

/// True if an address is asked once for each of its names.
pub fn asks_each_name(probe: &ProbeOptions) -> bool {
    matches!(probe, ProbeOptions::Http(_) | ProbeOptions::Https(..) | ProbeOptions::Tls(_))
}

/// What looks after a scan while its threads run.
struct Watch<'a> {
    session: &'a Session,
    writer: Handle,
    /// Set when the scan is over, before its thread wakes this one: that thread itself ends a moment later.
    over: AtomicBool,
    started: Instant,
}

type Scan<'scope> = ScopedJoinHandle<'scope, Result<(), ScanError>>;

impl Watch<'_> {
    fn elapsed(&self) -> Duration {
        self.session.resume.earlier + self.started.elapsed()
    }

    /// Returns what the scan said, and whether the onlooker ended it.
    fn until_over(&self, scan: Scan<'_>, onlooker: &mut impl Onlooker) -> (Result<(), ScanError>, bool) {
        let Session { plan, config, metrics, .. } = self.session;
        let (mut saved, mut interrupted) = (Instant::now(), false);
        // A scan that panicked does not say that it is over.
        while !self.over.load(Acquire) && !scan.is_finished() {
            // Woken early when the scan is over.
            std::thread::park_timeout(TICK);
            let counts = plan.counts();
            let wish = onlooker.look_up(&counts);
            // Closed where nobody reads the results any more.
            let unread = self.writer.is_closed();
            interrupted |= wish != Wish::GoOn;
            if wish != Wish::GoOn || unread {
                plan.close();
            }
            if wish == Wish::GiveUp || unread {
                config.stop.store(true, Relaxed);
            }
            if saved.elapsed() >= CHECKPOINT_EVERY {
                if let Err(error) = self.save() {
                    onlooker.blame(&error);
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

    /// Writes the last checkpoint, or takes it away where nothing is left to do.
    fn keep(&self, interrupted: bool, onlooker: &mut impl Onlooker) -> Result<(), CheckpointError> {
        let Session { plan, resume, .. } = self.session;
        let Some(path) = resume.path() else { return Ok(()) };
        if plan.counts().finished() < plan.total() {
            self.save()?;
            onlooker.kept(path, interrupted);
            return Ok(());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(CheckpointError::File { path: path.to_owned(), error })
            }
            _ => Ok(()),
        }
    }

    fn account(&self) -> Account {
        let plan = &self.session.plan;
        let set = plan.set();
        Account {
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
