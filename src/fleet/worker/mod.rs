//! A worker: takes shards, scans them with the ordinary engine, and writes the results.
//!
//! One thread leads: it reports to the server, takes shards in advance, and sets the rate of the scan. Other
//! threads probe ([`target_supply`]), and one writes ([`result_writer`]).

mod result_writer;
mod results;
mod scan_session;
mod target_supply;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::database::{FleetDatabase, HeartbeatReply};
use super::merge::BackgroundMerge;
use super::{FleetError, PAUSE, ScanOrder};
use crate::backoff::Backoff;
use crate::confinement::Confinement;
use crate::database::{DatabaseError, DatabaseLocation, OutageTracker};
use crate::diagnostics::log_line;
use crate::inventory::StoreError;
use crate::output::eve::EveOptions;
use crate::scan::session::ScanOptions;

/// Interval between queries for work if there was none.
const LOOKS: Duration = Duration::from_millis(500);

/// Time for which a scan is skipped if this worker can do nothing for it now.
const REST: Duration = Duration::from_secs(1);

/// Longest time for which a scan is skipped that this worker cannot do.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Number of failed scans whose back-off is remembered.
const FAILING: usize = 100;

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The database.
    pub place: DatabaseLocation,
    /// Name of the worker.
    pub name: String,
    /// Time without a report after which other workers take over its shards.
    pub lease: Duration,
    /// Limit of its targets per second.
    pub rate: Option<u32>,
    /// The condition under which the worker exits.
    pub until: ExitCondition,
    /// The scans that it takes; none for those without a pool.
    pub pool: Option<String>,
}

impl WorkerConfig {
    /// Returns the confinement of a worker: it scans, and uses the database.
    pub(crate) fn confinement(&self) -> Confinement {
        let confinement = Confinement::default().speaking().submitting();
        match self.place.file() {
            Some(file) => confinement.writing(file),
            None => confinement.finding_servers(),
        }
    }
}

/// The condition under which the worker exits by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCondition {
    /// Never.
    Told,
    /// One shard is done, or there is none.
    Once,
    /// No scan is left that is not over.
    Empty,
}

/// The task of an order: a scan, and the format of its events.
#[derive(Debug)]
pub struct ScanTask {
    /// Options of the scan, except the sequence of targets and the rate.
    pub options: ScanOptions,
    /// Format of the events.
    pub eve: EveOptions,
}

/// Translates an order with its rate into a task, or refuses it.
pub type OrderTranslator<'a> = dyn Fn(&ScanOrder, Option<u32>) -> Result<ScanTask, String> + 'a;

/// Number of requests to stop: one for a clean stop, two for an immediate one.
#[derive(Debug, Clone, Default)]
pub struct StopRequests(pub Arc<AtomicUsize>);

impl StopRequests {
    fn is_asked(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn is_urgent(&self) -> bool {
        self.0.load(Relaxed) > 1
    }
}

/// The work of a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerSummary {
    /// Number of targets.
    pub targets: usize,
    /// Number of finished shards.
    pub shards: usize,
}

/// Works until it is told to stop, or there is nothing more to do.
///
/// # Errors
///
/// The database cannot be used at the start, or this machine lacks something.
pub fn run(
    config: &WorkerConfig,
    read: &OrderTranslator<'_>,
    stop: &StopRequests,
) -> Result<WorkerSummary, FleetError> {
    let queue = FleetDatabase::open(&config.place)?;
    // A worker also merges batches of sensors, so that a fleet on a server needs no separate process. A page
    // merges by itself.
    let has_inbox = config.pool.is_none() && matches!(config.place, DatabaseLocation::Server(_));
    let merging = has_inbox.then(|| BackgroundMerge::start(&config.place, None));
    let _merging = merging.transpose().map_err(StoreError::Create)?;
    let id = queue.register(&config.name, config.lease)?;
    let mut worker = ScanWorker {
        config,
        stop,
        queue,
        id,
        beaten: None,
        next_try: Instant::now(),
        absence: OutageTracker::new(PAUSE),
        resting: Vec::new(),
        failing: Vec::new(),
        ended: WorkerSummary::default(),
    };
    let outcome = worker.work(read);
    let id = worker.id;
    // If the server cannot be told, the lease expires.
    let _ = worker.queue.reconnect().and_then(|()| worker.queue.unregister(id));
    outcome.map(|()| worker.ended)
}

/// The state of the leading thread.
struct ScanWorker<'a> {
    config: &'a WorkerConfig,
    stop: &'a StopRequests,
    queue: FleetDatabase,
    /// Number of the worker.
    id: i64,
    /// Time of the last report to the server.
    beaten: Option<Instant>,
    /// The server is not asked before this time.
    next_try: Instant,
    absence: OutageTracker,
    /// Scans that are skipped, and until when.
    resting: Vec<(i64, Instant)>,
    /// Scans that failed here, and their back-off.
    failing: Vec<(i64, Backoff)>,
    ended: WorkerSummary,
}

impl ScanWorker<'_> {
    fn work(&mut self, read: &OrderTranslator<'_>) -> Result<(), FleetError> {
        let config = self.config;
        let pool = config.pool.as_deref();
        while !self.stop.is_asked() {
            if self.is_due() {
                self.beat(None);
            }
            self.resting.retain(|(_, until)| Instant::now() < *until);
            let resting: Vec<i64> = self.resting.iter().map(|(scan, _)| *scan).collect();
            match self.query_server(|queue| queue.next_scan(pool, &resting)) {
                Some(Some(scan)) => {
                    self.work_on(scan, read)?;
                    // The scan has ended or has no shard left for this worker: one shard was wanted.
                    if self.config.until == ExitCondition::Once {
                        return Ok(());
                    }
                }
                Some(None) if self.is_enough() => return Ok(()),
                _ => std::thread::park_timeout(LOOKS),
            }
        }
        Ok(())
    }

    /// True if there is nothing more to do and the worker ends by itself then.
    fn is_enough(&mut self) -> bool {
        let config = self.config;
        match self.config.until {
            ExitCondition::Told => false,
            ExitCondition::Once => true,
            ExitCondition::Empty => {
                self.query_server(|queue| queue.has_open(config.pool.as_deref())) == Some(false)
            }
        }
    }

    /// Works on a scan as long as there are shards to take.
    fn work_on(&mut self, scan: i64, read: &OrderTranslator<'_>) -> Result<(), FleetError> {
        let before = self.ended;
        let outcome = scan_session::run(self, scan, read);
        let id = self.id;
        let error = match outcome {
            Ok(()) => None,
            Err(scan_session::ScanStopReason::Stopped) => None,
            Err(scan_session::ScanStopReason::Rest) => {
                self.rest(scan, REST);
                None
            }
            Err(scan_session::ScanStopReason::Scan(error)) => {
                log_line(format_args!("bannerwall: scan #{scan}: {error}"));
                let pause = self.pause_after_failure(scan);
                self.rest(scan, pause);
                Some(error)
            }
        };
        if error.is_none() && self.ended.targets > before.targets {
            self.failing.retain(|(failing, _)| *failing != scan);
        }
        // The shards return to the queue at once. Without this, other workers would wait for the lease
        // to expire.
        let returned = self.query_until_stopped(|queue| {
            let count = queue.give_back(id, scan, error.as_deref())?;
            queue.leave_scan(id, scan)?;
            queue.close(scan).map(|()| count)
        });
        if returned == Some(0) && before.targets == self.ended.targets && error.is_none() {
            // Other workers were quicker.
            self.rest(scan, REST);
        }
        Ok(())
    }

    fn rest(&mut self, scan: i64, pause: Duration) {
        self.resting.push((scan, Instant::now() + pause));
    }

    /// Returns the pause before this worker tries a failed scan again.
    fn pause_after_failure(&mut self, scan: i64) -> Duration {
        let known = self.failing.iter_mut().find(|(failing, _)| *failing == scan);
        if let Some((_, pauses)) = known {
            return pauses.next_delay();
        }
        // Scans of long ago are forgotten, so that the list stays short.
        if self.failing.len() >= FAILING {
            self.failing.remove(0);
        }
        let mut pauses = Backoff::new(REST, LONGEST_REST);
        let pause = pauses.next_delay();
        self.failing.push((scan, pauses));
        pause
    }

    /// True if a report to the server is due.
    fn is_due(&self) -> bool {
        self.beaten.is_none_or(|beaten| beaten.elapsed() >= self.rhythm())
    }

    /// Returns the interval between reports to the server.
    fn rhythm(&self) -> Duration {
        // Eight reports for each lease: some may fail before the server gives the shards to others.
        (self.config.lease / 8).clamp(Duration::from_millis(100), Duration::from_secs(2))
    }

    /// Reports to the server, and returns its answer.
    fn beat(&mut self, scan: Option<i64>) -> Option<HeartbeatReply> {
        let (config, id) = (self.config, self.id);
        let (pool, lease) = (config.pool.as_deref(), config.lease);
        let told = self.query_server(|queue| queue.beat(id, lease, scan))?;
        self.beaten = Some(Instant::now());
        match told {
            Some(beat) => {
                // Any worker may start due scans, by the server's clock: the workers' clocks may
                // differ.
                self.query_server(|queue| queue.begin_due(beat.now, pool));
                Some(beat)
            }
            None => {
                // The server has forgotten a worker that did not report for so long.
                let name = self.config.name.clone();
                self.id = self.query_server(|queue| queue.register(&name, lease))?;
                None
            }
        }
    }

    /// Asks the server; returns none if it is away, which is reported once.
    fn query_server<T>(
        &mut self,
        mut work: impl FnMut(&mut FleetDatabase) -> Result<T, DatabaseError>,
    ) -> Option<T> {
        // The scan goes on while the server is away, so no call may wait here.
        if Instant::now() < self.next_try {
            return None;
        }
        match self.queue.reconnect().and_then(|()| work(&mut self.queue)) {
            Ok(told) => {
                if self.absence.record_success() {
                    log_line("bannerwall: the database is back");
                }
                Some(told)
            }
            Err(error) => {
                let pause = self.absence.record_failure(|| {
                    log_line(format_args!("bannerwall: the database: {error}; retrying"));
                });
                self.next_try = Instant::now() + pause;
                None
            }
        }
    }

    /// Asks the server until it answers. After a request to stop, it tries no longer than a lease.
    fn query_until_stopped<T>(
        &mut self,
        mut work: impl FnMut(&mut FleetDatabase) -> Result<T, DatabaseError>,
    ) -> Option<T> {
        let begun = Instant::now();
        loop {
            if let Some(told) = self.query_server(&mut work) {
                return Some(told);
            }
            if self.stop.is_urgent() || (self.stop.is_asked() && begun.elapsed() > self.config.lease) {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
