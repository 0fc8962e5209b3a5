//! One thread of a scan: its rings, its targets, its clock.
//!
//! A thread has as many rings as its share of the window needs, since a ring's table of direct
//! sockets is bounded by `RLIMIT_NOFILE`, each ring by itself. With one ring, submitting and waiting
//! are one system call; with several the thread waits for all of them in `poll(2)`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lane::{Lane, Now};
use super::probe::Probe;
use super::{Config, Next, Report, ScanError, Targets};
use crate::event::Timestamp;

/// The loop looks at the stop flag at least this often.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// One thread's part of a scan.
pub(super) struct Worker<'c, P: Probe, T> {
    config: &'c Config,
    lanes: Vec<Lane<P>>,
    targets: T,
    /// No target before this time.
    pause_until: Instant,
    /// No target ever more.
    ended: bool,
    epoch: Instant,
    epoch_wall: Timestamp,
}

/// Why taking up targets stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// The submission is full; there may be more targets.
    Batch,
    /// There is no target or no connection for one.
    All,
}

impl<'c, P: Probe, T: Targets> Worker<'c, P, T> {
    /// A worker with `window` connections. It must run on the thread that makes it.
    pub(super) fn new(
        config: &'c Config,
        window: usize,
        probe: impl Fn() -> P,
        targets: T,
    ) -> Result<Self, ScanError> {
        let window = window.max(1);
        let rings = window.div_ceil(config.descriptors_per_ring.max(1));
        let lanes = (0..rings)
            .map(|ring| Lane::new(config, share(window, rings, ring), probe()))
            .collect::<Result<Vec<_>, _>>()?;
        let epoch = Instant::now();
        Ok(Self { config, lanes, targets, pause_until: epoch, ended: false, epoch, epoch_wall: wall_clock() })
    }

    /// Asks every target and returns the source of them.
    pub(super) fn run(mut self, report: &mut impl Report) -> Result<T, ScanError> {
        while !self.config.stop.load(Ordering::Relaxed) {
            let (instant, now) = self.clock();
            let mut filled = Filled::All;
            for lane in 0..self.lanes.len() {
                if self.fill(lane, instant, now)? == Filled::Batch {
                    filled = Filled::Batch;
                }
            }
            if self.ended && self.lanes.iter().all(Lane::is_idle) {
                break;
            }
            match filled {
                Filled::Batch => self.submit()?,
                Filled::All => self.wait(instant, now)?,
            }
            let (_, now) = self.clock();
            for lane in &mut self.lanes {
                lane.complete(now, report)?;
                lane.expire(now)?;
            }
        }
        Ok(self.targets)
    }

    fn clock(&self) -> (Instant, Now) {
        let instant = Instant::now();
        let passed = instant.duration_since(self.epoch);
        let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        (instant, Now { nanos, wall: self.epoch_wall.after(passed) })
    }

    /// Takes up targets on one lane until the submission is full or there is none to take.
    fn fill(&mut self, lane: usize, instant: Instant, now: Now) -> Result<Filled, ScanError> {
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(Filled::All) };
        lane.resume(now)?;
        while !self.ended && self.pause_until <= instant && lane.has_window_room() {
            if !lane.has_batch_room() {
                return Ok(Filled::Batch);
            }
            match self.targets.next(instant) {
                Next::Target(target) => lane.begin(target, now)?,
                Next::Wait(pause) => self.pause_until = instant + pause,
                Next::End => self.ended = true,
            }
        }
        if lane.has_window_room() {
            lane.tidy()?;
        }
        Ok(Filled::All)
    }

    fn submit(&mut self) -> Result<(), ScanError> {
        for lane in &mut self.lanes {
            lane.ring().submit()?;
        }
        Ok(())
    }

    /// Submits, then waits until something came or something is due.
    fn wait(&mut self, instant: Instant, now: Now) -> Result<(), ScanError> {
        let mut timeout = LONGEST_WAIT;
        if let Some(deadline) = self.lanes.iter().filter_map(Lane::deadline).min() {
            timeout = timeout.min(Duration::from_nanos(deadline.saturating_sub(now.nanos)));
        }
        if !self.ended && self.lanes.iter().any(Lane::has_window_room) {
            timeout = timeout.min(self.pause_until.saturating_duration_since(instant));
        }
        if let [lane] = self.lanes.as_mut_slice() {
            return Ok(lane.ring().submit_and_wait(1, timeout)?);
        }
        self.submit()?;
        let mut descriptors: Vec<PollFd<'_>> =
            self.lanes.iter().map(|lane| PollFd::new(lane.ring_ref(), PollFlags::IN)).collect();
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ScanError::Poll(error.into())),
        }
    }
}

/// The `part`-th of `parts` even parts of `whole`.
pub(super) fn share(whole: usize, parts: usize, part: usize) -> usize {
    whole / parts + usize::from(part < whole % parts)
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
