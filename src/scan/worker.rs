//! One thread of a scan: its rings, its targets, its clock.
//!
//! `RLIMIT_NOFILE` bounds the table of direct sockets of each ring, so a thread has as many rings as its
//! share of the window needs. It uses a further ring only when those before it are full. With one ring,
//! submitting and waiting are one system call. With several rings, the thread waits for all of them in
//! `poll(2)`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use bannerwall_ring::Ring;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::concurrency::{ConcurrencyWindow, ReplyStatistics};
use super::probe::Probe;
use super::ring_worker::{LoopTime, RingWorker};
use super::{NextTarget, OutcomeSink, ScanError, ScannerConfig, TargetSource};
use crate::event::Timestamp;

/// Longest time between two checks of the stop flag.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Number of completions to wait for if many are in flight: a system call for each would cost more than
/// handling it.
const GATHERED: usize = 32;

/// One thread of a scan.
pub(super) struct ScanThread<'c, P: Probe, T> {
    config: &'c ScannerConfig,
    lanes: Vec<RingWorker<P>>,
    targets: T,
    /// Limit of concurrent targets, over all rings.
    open: ConcurrencyWindow,
    /// No new target before this time.
    pause_until: Instant,
    /// True once no targets are left.
    ended: bool,
    epoch: Instant,
    epoch_wall: Timestamp,
}

/// Reason why the thread stopped starting targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FillResult {
    /// The submission queue is full; there may be more targets.
    Batch,
    /// There is no target, or no free connection.
    All,
}

impl<'c, P: Probe, T: TargetSource> ScanThread<'c, P, T> {
    /// Returns the worker of one of `threads` threads, with its share of the window. It must run on the
    /// thread that creates it.
    pub(super) fn new(
        config: &'c ScannerConfig,
        (thread, threads): (usize, usize),
        probe: impl Fn() -> P,
        targets: T,
    ) -> Result<Self, ScanError> {
        let window = share(config.window, threads, thread).max(1);
        // A ring's table of registered files cannot be larger than RLIMIT_NOFILE, so a large window
        // needs several rings.
        let rings = window.div_ceil(config.descriptors_per_ring.max(1));
        let lanes = (0..rings)
            .map(|ring| RingWorker::new(config, share(window, rings, ring), probe()))
            .collect::<Result<Vec<_>, _>>()?;
        let epoch = Instant::now();
        Ok(Self {
            config,
            lanes,
            targets,
            open: ConcurrencyWindow::new(window, threads),
            pause_until: epoch,
            ended: false,
            epoch,
            epoch_wall: SystemTime::now().into(),
        })
    }

    /// Probes every target, and returns their source.
    pub(super) fn run(mut self, report: &mut impl OutcomeSink) -> Result<T, ScanError> {
        while !self.config.stop.load(Ordering::Relaxed) {
            let (instant, now) = self.clock();
            let filled = self.fill_all(instant, now)?;
            // The check comes after the fill, which alone learns that there are no more targets.
            if self.ended && self.lanes.iter().all(|lane| lane.under_way() == 0) {
                break;
            }
            match filled {
                FillResult::Batch => self.submit()?,
                FillResult::All => self.wait(instant, now)?,
            }
            let (instant, now) = self.clock();
            for lane in &mut self.lanes {
                // Completions come before timeouts: a reply that is already there must not count as expired.
                lane.complete(now, report)?;
                lane.expire(now)?;
                let again = lane.take_asked_again();
                if again > 0 {
                    self.targets.asked_again(again);
                }
            }
            self.adapt(now);
            report.turn(instant);
        }
        report.end();
        Ok(self.targets)
    }

    fn clock(&self) -> (Instant, LoopTime) {
        let instant = Instant::now();
        let passed = instant.duration_since(self.epoch);
        let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        (instant, LoopTime { nanos, wall: self.epoch_wall.after(passed) })
    }

    /// Starts targets on one ring after the other, until a submission queue is full or no target is
    /// available.
    fn fill_all(&mut self, instant: Instant, now: LoopTime) -> Result<FillResult, ScanError> {
        // During a shortage of this machine more targets would only fail, too.
        let mut room = match self.lanes.iter().any(RingWorker::is_short) {
            true => 0,
            false => self.open.limit().saturating_sub(self.under_way()),
        };
        for lane in 0..self.lanes.len() {
            if self.fill(lane, &mut room, instant, now)? == FillResult::Batch {
                return Ok(FillResult::Batch);
            }
        }
        Ok(FillResult::All)
    }

    /// Starts up to `room` targets on one ring.
    fn fill(
        &mut self,
        lane: usize,
        room: &mut usize,
        instant: Instant,
        now: LoopTime,
    ) -> Result<FillResult, ScanError> {
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(FillResult::All) };
        lane.resume(now)?;
        while *room > 0 && !self.ended && self.pause_until <= instant && lane.has_window_room() {
            if !lane.has_batch_room() {
                return Ok(FillResult::Batch);
            }
            match self.targets.next(instant) {
                NextTarget::Target(target) => {
                    lane.begin(target, now)?;
                    self.open.begin();
                    *room -= 1;
                }
                // The source need not be asked before this time: the rate allows no target until then.
                NextTarget::Wait(pause) => self.pause_until = instant + pause,
                NextTarget::End => self.ended = true,
            }
        }
        // Without new targets nothing reuses the sockets, so idle connections are closed here.
        if lane.has_window_room() && (self.ended || self.pause_until > instant) {
            lane.tidy()?;
        }
        Ok(FillResult::All)
    }

    fn under_way(&self) -> usize {
        self.lanes.iter().map(RingWorker::under_way).sum()
    }

    /// Adapts the window to the replies on all rings.
    fn adapt(&mut self, now: LoopTime) {
        if !self.open.is_due(now.nanos) {
            return;
        }
        let mut answers = ReplyStatistics::default();
        self.lanes.iter_mut().for_each(|lane| answers.join(lane.take_answers()));
        let reached = !self.ended && self.under_way() >= self.open.limit();
        self.open.adapt(answers, reached, now.nanos);
        let lossy = self.open.sees_loss(now.nanos);
        self.lanes.iter_mut().for_each(|lane| lane.doubt(lossy));
    }

    fn submit(&mut self) -> Result<(), ScanError> {
        let mut queued = self.lanes.iter_mut().filter_map(RingWorker::queued_ring);
        Ok(queued.try_for_each(Ring::submit)?)
    }

    /// Submits, then waits for a completion or a timeout.
    fn wait(&mut self, instant: Instant, now: LoopTime) -> Result<(), ScanError> {
        let timeout = self.patience(instant, now);
        if self.lanes.iter().filter(|lane| !lane.is_idle()).count() == 1 {
            // Waiting for several completions saves system calls at high rates. The timeout bounds the
            // delay at low ones.
            let want = (self.under_way() / 16).clamp(1, GATHERED);
            let timeout = if want > 1 { timeout.min(self.open.gathering()) } else { timeout };
            for lane in &mut self.lanes {
                match lane.is_idle() {
                    true => lane.queued_ring().map_or(Ok(()), Ring::submit)?,
                    false => lane.ring().submit_and_wait(want, timeout)?,
                }
            }
            return Ok(());
        }
        self.submit()?;
        let busy = self.lanes.iter().filter(|lane| !lane.is_idle());
        // io_uring_enter waits for one ring only. Several rings are watched by poll: a ring's
        // descriptor is readable if it has completions.
        let mut descriptors: Vec<PollFd<'_>> =
            busy.map(|lane| PollFd::new(lane.ring_ref(), PollFlags::IN)).collect();
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut descriptors, Some(&timeout)) {
            // A signal only ends the wait. The loop then checks the stop flag.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ScanError::Poll(error.into())),
        }
    }

    /// Returns the time until something is due.
    fn patience(&self, instant: Instant, now: LoopTime) -> Duration {
        let mut timeout = LONGEST_WAIT;
        let mut due = |deadline: u64| {
            timeout = timeout.min(Duration::from_nanos(deadline.saturating_sub(now.nanos)));
        };
        self.lanes.iter().filter_map(RingWorker::deadline).for_each(&mut due);
        if self.ended || !self.lanes.iter().any(RingWorker::has_window_room) {
            return timeout;
        }
        if self.under_way() < self.open.limit() {
            return timeout.min(self.pause_until.saturating_duration_since(instant));
        }
        // A full window can open at its next adaptation, even without a completion.
        due(self.open.due());
        timeout
    }
}

/// Returns the size of part number `part` if `whole` is split into `parts` even parts.
fn share(whole: usize, parts: usize, part: usize) -> usize {
    whole / parts + usize::from(part < whole % parts)
}
