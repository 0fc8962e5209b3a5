//! What goes on beside a scan's threads: signals, progress, metrics, checkpoints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::ProgressBar;

use super::resume::Resume;
use crate::cli::Failure;
use crate::diagnostics::tell;
use crate::event::PortState;
use crate::metrics::{Endpoint, Health, Registry, ScanMetrics};
use crate::output::Handle;
use crate::scan::ScanError;
use crate::scan::targets::{Counts, Plan};

/// How often the file of `--resume` is replaced.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// How often signals, progress and metrics are looked after.
const TICK: Duration = Duration::from_millis(50);

/// What looks after a scan while its threads run.
pub(super) struct Watch<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stop: &'a AtomicBool,
    pub(super) resume: &'a Resume<'a>,
    pub(super) bar: &'a ProgressBar,
    pub(super) metrics: Option<Metrics>,
    pub(super) writer: Handle,
    /// Set when the scan is over, before its thread wakes this one: that thread itself ends a moment later.
    pub(super) over: AtomicBool,
    pub(super) started: Instant,
}

type Scan<'scope> = ScopedJoinHandle<'scope, Result<(), ScanError>>;

impl Watch<'_> {
    pub(super) fn elapsed(&self) -> Duration {
        self.resume.earlier + self.started.elapsed()
    }

    /// Returns what the scan said, and whether it was interrupted.
    pub(super) fn until_over(&self, scan: Scan<'_>) -> Result<(Result<(), ScanError>, bool), Failure> {
        let signals = Arc::new(AtomicUsize::new(0));
        count_signals(Arc::clone(&signals))?;
        let (mut saved, mut seen) = (Instant::now(), 0);
        // A scan that panicked does not say that it is over.
        while !self.over.load(Acquire) && !scan.is_finished() {
            // Woken early when the scan is over.
            std::thread::park_timeout(TICK);
            let now_seen = signals.load(Relaxed);
            if now_seen > seen {
                seen = now_seen;
                self.interrupt(seen);
            }
            if self.writer.is_closed() {
                // Nobody reads the results any more.
                self.plan.close();
                self.stop.store(true, Relaxed);
            }
            if saved.elapsed() >= CHECKPOINT_EVERY {
                self.save();
                saved = Instant::now();
            }
            self.show();
        }
        let outcome = scan.join().unwrap_or(Err(ScanError::Panicked));
        Ok((outcome, seen > 0))
    }

    /// The first signal ends the handing out of targets, the second gives up those under way.
    fn interrupt(&self, seen: usize) {
        self.plan.close();
        if seen > 1 {
            self.stop.store(true, Relaxed);
            return;
        }
        self.bar.suspend(|| {
            tell("bannerwall: finishing what is under way; interrupt again to give it up");
        });
    }

    fn save(&self) {
        if let Err(error) = self.resume.save(self.plan, &self.writer, self.elapsed()) {
            self.bar.suspend(|| tell(format_args!("bannerwall: {error}")));
        }
    }

    fn show(&self) {
        let counts = self.plan.counts();
        self.bar.set_position(counts.finished());
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("open {}  matched {}", counts.open, counts.matched));
        }
        if let Some(metrics) = &self.metrics {
            metrics.show(&counts, self.plan.in_flight());
        }
    }

    /// Writes the last checkpoint, or takes it away where nothing is left to do.
    pub(super) fn end(&self, interrupted: bool) -> Result<(), Failure> {
        let Some(path) = self.resume.path else { return Ok(()) };
        if self.plan.counts().finished() < self.plan.total() {
            self.resume.save(self.plan, &self.writer, self.elapsed()).map_err(Failure::usage)?;
            let how = if interrupted { "interrupted" } else { "stopped" };
            tell(format_args!(
                "bannerwall: {how}; the same command, or only its `--resume {}`, goes on",
                path.display()
            ));
        } else if path.exists() {
            std::fs::remove_file(path).with_context(|| path.display().to_string()).map_err(Failure::Usage)?;
        }
        Ok(())
    }
}

/// Counts SIGINT and SIGTERM, on a thread of its own.
fn count_signals(counter: Arc<AtomicUsize>) -> Result<(), Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            counter.fetch_add(1, Relaxed);
        }
    })?;
    Ok(())
}

/// `--metrics`.
pub(super) struct Metrics {
    families: ScanMetrics,
    _endpoint: Endpoint,
}

impl Metrics {
    /// Shows metrics at `address`.
    pub(super) fn start(address: SocketAddr) -> Result<Self, Failure> {
        let registry = Registry::new().map_err(Failure::usage)?;
        let families = ScanMetrics::new(&registry).map_err(Failure::usage)?;
        let health = Arc::new(Health::default());
        health.set_ready(true);
        let endpoint = Endpoint::start(address, registry, health).map_err(Failure::usage)?;
        Ok(Self { families, _endpoint: endpoint })
    }

    fn show(&self, counts: &Counts, in_flight: u64) {
        for (state, count) in [
            (PortState::Open, counts.open),
            (PortState::Closed, counts.refused),
            (PortState::Filtered, counts.timed_out + counts.unreachable),
            (PortState::Error, counts.local_error),
        ] {
            let counter = self.families.targets(state);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        self.families.inflight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
    }
}
