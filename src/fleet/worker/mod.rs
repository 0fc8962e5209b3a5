//! A worker: takes shards, scans them with the ordinary engine, and has what comes of it written.
//!
//! One thread leads: it is heard of by the server, takes shards ahead of time, and says how fast the scan may
//! be. Others ask ([`supply`]), and one writes ([`scribe`]).

mod report;
mod scribe;
mod session;
mod supply;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::merge::Background;
use super::queue::{Beat, Queue};
use super::{FleetError, Order, PAUSE};
use crate::diagnostics::tell;
use crate::inventory::{Absence, DatabaseError, Place, StoreError};
use crate::output::eve::EveOptions;
use crate::scan::session::Options;

/// Interval at which it is looked for something to take, where there was nothing.
const LOOKS: Duration = Duration::from_millis(500);

/// Time for which a scan is left alone of which this worker cannot do anything now.
const REST: Duration = Duration::from_secs(1);

/// What a worker is told.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The database.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// How long it may not be heard of before others take over.
    pub lease: Duration,
    /// Targets a second that it asks at most.
    pub rate: Option<u32>,
    /// When it ends.
    pub until: Until,
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Never.
    Told,
    /// When one shard is done, or there is none.
    Once,
    /// When no scan is left that is not over.
    Empty,
}

/// What an order asks for: a scan, and how its events are spelled.
#[derive(Debug)]
pub struct Task {
    /// What is asked, without the targets' order and pace.
    pub options: Options,
    /// How events are spelled.
    pub eve: EveOptions,
}

/// Reads an order.
pub type Reader<'a> = dyn Fn(&Order) -> Result<Task, String> + 'a;

/// How often a worker was told to end: once in order, twice at once.
#[derive(Debug, Clone, Default)]
pub struct Stop(pub Arc<AtomicUsize>);

impl Stop {
    fn is_asked(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn is_urgent(&self) -> bool {
        self.0.load(Relaxed) > 1
    }
}

/// What a worker has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended {
    /// Targets.
    pub targets: usize,
    /// Shards, to their end.
    pub shards: usize,
}

/// Works until it is told to end, or there is nothing more to do.
///
/// # Errors
/// The database cannot be used when it begins, or this machine lacks something.
pub fn run(config: &WorkerConfig, read: &Reader<'_>, stop: &Stop) -> Result<Ended, FleetError> {
    let queue = Queue::open(&config.place)?;
    let _merging = Background::start(&config.place, None).map_err(StoreError::Create)?;
    let id = queue.join(&config.name, config.lease)?;
    let mut worker = Worker {
        config,
        stop,
        queue,
        id,
        beaten: None,
        next_try: Instant::now(),
        absence: Absence::new(PAUSE),
        resting: Vec::new(),
        ended: Ended::default(),
    };
    let outcome = worker.work(read);
    let id = worker.id;
    // Where the server cannot be told it comes to know by itself.
    let _ = worker.queue.revive().and_then(|()| worker.queue.leave(id));
    outcome.map(|()| worker.ended)
}

/// What leads.
struct Worker<'a> {
    config: &'a WorkerConfig,
    stop: &'a Stop,
    queue: Queue,
    /// Its number.
    id: i64,
    /// Time at which the server heard of it last.
    beaten: Option<Instant>,
    /// The server is left alone up to this time.
    next_try: Instant,
    absence: Absence,
    /// Scans that are left alone, up to when.
    resting: Vec<(i64, Instant)>,
    ended: Ended,
}

impl Worker<'_> {
    fn work(&mut self, read: &Reader<'_>) -> Result<(), FleetError> {
        while !self.stop.is_asked() {
            if self.is_due() {
                self.beat(None);
            }
            self.resting.retain(|(_, until)| Instant::now() < *until);
            let resting: Vec<i64> = self.resting.iter().map(|(scan, _)| *scan).collect();
            match self.ask(|queue| queue.next_scan(&resting)) {
                Some(Some(scan)) => {
                    self.work_on(scan, read)?;
                    if self.config.until == Until::Once {
                        return Ok(());
                    }
                }
                Some(None) if self.is_enough() => return Ok(()),
                _ => std::thread::park_timeout(LOOKS),
            }
        }
        Ok(())
    }

    /// True if there is nothing more to do, where a worker ends by itself then.
    fn is_enough(&mut self) -> bool {
        match self.config.until {
            Until::Told => false,
            Until::Once => true,
            Until::Empty => self.ask(|queue| queue.has_open()) == Some(false),
        }
    }

    /// Works on a scan as long as there is something of it to take.
    fn work_on(&mut self, scan: i64, read: &Reader<'_>) -> Result<(), FleetError> {
        let before = self.ended;
        let outcome = session::run(self, scan, read);
        let id = self.id;
        let error = match outcome {
            Ok(()) => None,
            Err(session::Fault::Stopped) => None,
            Err(session::Fault::Rest) => {
                self.rest(scan);
                None
            }
            Err(session::Fault::Scan(error)) => {
                tell(format_args!("bannerwall: scan #{scan}: {error}"));
                self.rest(scan);
                Some(error)
            }
        };
        let returned = self.ask_until_told(|queue| {
            let count = queue.give_back(id, scan, error.as_deref())?;
            queue.turn_away(id, scan)?;
            queue.close(scan).map(|()| count)
        });
        if returned == Some(0) && before.targets == self.ended.targets && error.is_none() {
            // Others were quicker.
            self.rest(scan);
        }
        Ok(())
    }

    fn rest(&mut self, scan: i64) {
        self.resting.push((scan, Instant::now() + REST));
    }

    /// True if the server is to hear of it.
    fn is_due(&self) -> bool {
        self.beaten.is_none_or(|beaten| beaten.elapsed() >= self.rhythm())
    }

    /// Interval at which the server hears of it.
    fn rhythm(&self) -> Duration {
        (self.config.lease / 8).clamp(Duration::from_millis(100), Duration::from_secs(2))
    }

    /// Tells the server that it is there; what that says.
    fn beat(&mut self, scan: Option<i64>) -> Option<Beat> {
        let (id, lease) = (self.id, self.config.lease);
        let told = self.ask(|queue| queue.beat(id, lease, scan))?;
        self.beaten = Some(Instant::now());
        match told {
            Some(beat) => {
                self.ask(|queue| queue.begin_due(beat.now));
                Some(beat)
            }
            None => {
                // It was not heard of for so long that nobody remembers it.
                let name = self.config.name.clone();
                self.id = self.ask(|queue| queue.join(&name, lease))?;
                None
            }
        }
    }

    /// Asks the server; none where it is away, which is told once.
    fn ask<T>(&mut self, mut work: impl FnMut(&mut Queue) -> Result<T, DatabaseError>) -> Option<T> {
        if Instant::now() < self.next_try {
            return None;
        }
        match self.queue.revive().and_then(|()| work(&mut self.queue)) {
            Ok(told) => {
                if self.absence.is_over() {
                    tell("bannerwall: the database is there again");
                }
                Some(told)
            }
            Err(error) => {
                let pause = self.absence.goes_on(|| {
                    tell(format_args!("bannerwall: the database: {error}; it is asked again and again"));
                });
                self.next_try = Instant::now() + pause;
                None
            }
        }
    }

    /// The same until there is an answer; for no longer than a lease where it is told to end.
    fn ask_until_told<T>(
        &mut self,
        mut work: impl FnMut(&mut Queue) -> Result<T, DatabaseError>,
    ) -> Option<T> {
        let begun = Instant::now();
        loop {
            if let Some(told) = self.ask(&mut work) {
                return Some(told);
            }
            if self.stop.is_urgent() || (self.stop.is_asked() && begun.elapsed() > self.config.lease) {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
