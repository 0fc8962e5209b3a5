//! Hands targets to threads in permuted order, and tracks unfinished ones.
//!
//! The targets of a run are numbered by *ordinals* in the order of their start. First come those that an
//! earlier run left unfinished, then the new positions of the permutation. Threads take ordinals in chunks
//! from one counter, and keep a bit for each unfinished one. So a checkpoint is exact at any time, and a
//! target costs a few nanoseconds.

mod counts;
mod finding_counts;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ahash::AHashMap;

use super::TargetSet;
use crate::scan::pacing::{ScanRate, TokenBucket};
use crate::scan::permutation::Permutation;
use crate::scan::{NextTarget, Target, TargetSource};

#[cfg(test)]
pub use self::counts::ShortageCounts;
pub use self::counts::{FinishedTarget, TargetCounts};

/// Largest chunk: one bit for each target in a word.
const CHUNK: u64 = u64::BITS as u64;

/// `I/N`: every Nth target, starting with the Ith.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    count: u64,
}

impl Shard {
    /// All targets.
    pub const WHOLE: Self = Self { index: 1, count: 1 };

    /// Returns the shard with a number, counted from 0; none if the number is too large.
    pub fn numbered(number: u64, count: u64) -> Option<Self> {
        (number < count).then_some(Self { index: number + 1, count })
    }

    /// Returns the number of this shard's positions among `length`.
    pub fn share(self, length: u64) -> u64 {
        length.saturating_sub(self.index - 1).div_ceil(self.count)
    }

    /// Converts a position of this shard to one among all.
    pub fn position(self, own: u64) -> u64 {
        own * self.count + (self.index - 1)
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(index, count)| Some(Self { index: index.parse().ok()?, count: count.parse().ok()? }));
        numbers
            .filter(|shard| 1 <= shard.index && shard.index <= shard.count)
            .ok_or_else(|| "must be I/N with I from 1 to N, as in 2/8".to_owned())
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// Progress of a run, the content of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedSnapshot {
    /// First position that was not started yet.
    pub cursor: u64,
    /// Unfinished positions before the cursor.
    pub unfinished: Vec<Range<u64>>,
    /// Results of the finished ones.
    pub counts: TargetCounts,
}

/// State shared by the threads of a run.
#[derive(Debug)]
pub struct TargetPlan {
    set: TargetSet,
    permutation: Permutation,
    shard: Shard,
    /// Unfinished positions of an earlier run, with the number before each range.
    backlog: Vec<(u64, Range<u64>)>,
    backlog_length: u64,
    /// First position that no earlier run has started.
    first: u64,
    total: u64,
    earlier: TargetCounts,
    chunk: u64,
    next: AtomicU64,
    closed: AtomicBool,
    trackers: Vec<Arc<TargetTracker>>,
}

/// Unfinished targets of one thread.
#[derive(Debug, Default)]
pub struct TargetTracker(Mutex<FeedProgress>);

#[derive(Debug, Default)]
struct FeedProgress {
    /// One bit for each unfinished target, by chunk.
    chunks: AHashMap<u64, u64>,
    counts: TargetCounts,
}

impl TargetPlan {
    /// Returns a plan for `threads` threads that continues at `from`.
    pub fn new(
        set: TargetSet,
        seed: u64,
        shard: Shard,
        rate: ScanRate,
        threads: usize,
        from: FeedSnapshot,
    ) -> Self {
        let permutation = Permutation::new(set.len(), seed);
        let total = shard.share(set.len());
        let mut backlog_length = 0;
        let backlog = from
            .unfinished
            .into_iter()
            .map(|range| {
                let before = backlog_length;
                backlog_length += range.end.saturating_sub(range.start);
                (before, range)
            })
            .collect();
        // Slow scans hand out single targets: a last large chunk would keep one thread busy alone.
        let chunk = match rate {
            ScanRate::Max => CHUNK,
            ScanRate::Limited(rate) => (u64::from(rate.get()) / threads.max(1) as u64 / 100).clamp(1, CHUNK),
        };
        Self {
            set,
            permutation,
            shard,
            backlog,
            backlog_length,
            first: from.cursor.min(total),
            total,
            earlier: from.counts,
            chunk,
            next: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            trackers: (0..threads).map(|_| Arc::default()).collect(),
        }
    }

    /// Returns the targets.
    pub fn set(&self) -> &TargetSet {
        &self.set
    }

    /// Returns the number of this shard's targets, over all runs.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of targets left for this run.
    pub fn remaining(&self) -> u64 {
        self.backlog_length + (self.total - self.first)
    }

    /// Starts no more targets; those under way are finished.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Returns the source of targets and the tracker of each thread, which share the `rate`.
    pub fn feeds(self: &Arc<Self>, rate: ScanRate) -> Vec<(TargetFeed, Arc<TargetTracker>)> {
        let bucket = TokenBucket::new(rate, self.trackers.len());
        let feed = |tracker: &Arc<TargetTracker>| TargetFeed {
            plan: Arc::clone(self),
            tracker: Arc::clone(tracker),
            bucket: bucket.clone(),
            ready: 0..0,
        };
        self.trackers.iter().map(|tracker| (feed(tracker), Arc::clone(tracker))).collect()
    }

    /// Marks targets as finished.
    pub fn finish(&self, tracker: &TargetTracker, finished: &[FinishedTarget]) {
        let mut progress = tracker.lock();
        for finished in finished {
            let (chunk, bit) = (finished.index / self.chunk, finished.index % self.chunk);
            progress.counts.count(finished);
            if let Some(bits) = progress.chunks.get_mut(&chunk) {
                *bits &= !(1 << bit);
                if *bits == 0 {
                    progress.chunks.remove(&chunk);
                }
            }
        }
    }

    /// Returns the results of finished targets, over all runs.
    pub fn counts(&self) -> TargetCounts {
        let mut counts = self.earlier;
        self.trackers.iter().for_each(|tracker| counts.add(&tracker.lock().counts));
        counts
    }

    /// Returns the number of started and unfinished targets.
    pub fn in_flight(&self) -> u64 {
        let bits = |tracker: &Arc<TargetTracker>| -> u64 {
            tracker.lock().chunks.values().map(|bits| u64::from(bits.count_ones())).sum()
        };
        self.trackers.iter().map(bits).sum()
    }

    /// Returns the exact progress.
    pub fn snapshot(&self) -> FeedSnapshot {
        // While every tracker is locked, no chunk is between the counter and a tracker.
        let locked: Vec<MutexGuard<'_, FeedProgress>> =
            self.trackers.iter().map(|tracker| tracker.lock()).collect();
        let next = self.next.load(Relaxed).min(self.remaining());
        let mut ordinals: Vec<u64> = Vec::new();
        let mut counts = self.earlier;
        for progress in &locked {
            counts.add(&progress.counts);
            for (chunk, bits) in &progress.chunks {
                let set = (0..self.chunk).filter(|bit| bits & (1 << bit) != 0);
                ordinals.extend(set.map(|bit| chunk * self.chunk + bit));
            }
        }
        drop(locked);
        ordinals.extend(next..self.backlog_length);
        let mut positions: Vec<u64> = ordinals.into_iter().filter_map(|at| self.position(at)).collect();
        positions.sort_unstable();
        let cursor = self.first + next.saturating_sub(self.backlog_length);
        FeedSnapshot { cursor, unfinished: ranges(&positions), counts }
    }

    /// Converts `ordinal` to a position in the shard; none after the last.
    fn position(&self, ordinal: u64) -> Option<u64> {
        if let Some(fresh) = ordinal.checked_sub(self.backlog_length) {
            return self.first.checked_add(fresh).filter(|position| *position < self.total);
        }
        let range = self.backlog.partition_point(|(before, _)| *before <= ordinal).checked_sub(1)?;
        let (before, range) = self.backlog.get(range)?;
        Some(range.start + (ordinal - before))
    }

    fn target(&self, ordinal: u64) -> Option<Target> {
        let position = self.shard.position(self.position(ordinal)?);
        let (address, host) = self.set.at(self.permutation.at(position))?;
        Some(Target { address, index: ordinal, host })
    }

    /// Moves the next chunk into `tracker`; empty if there are no more.
    fn take_chunk(&self, tracker: &TargetTracker) -> Range<u64> {
        let mut progress = tracker.lock();
        let first = self.next.fetch_add(self.chunk, Relaxed);
        let length = self.remaining().saturating_sub(first).min(self.chunk);
        if length == 0 {
            // Without this, repeated calls at the end would overflow the counter.
            self.next.fetch_sub(self.chunk, Relaxed);
            return 0..0;
        }
        progress.chunks.insert(first / self.chunk, u64::MAX >> (CHUNK - length));
        first..first + length
    }
}

impl TargetTracker {
    fn lock(&self) -> MutexGuard<'_, FeedProgress> {
        // A panic stops the run, but the tracked bits stay valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Groups adjacent positions into ranges.
fn ranges(sorted: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for position in sorted {
        match ranges.last_mut() {
            Some(range) if range.end == *position => range.end += 1,
            _ => ranges.push(*position..position + 1),
        }
    }
    ranges
}

/// Source of targets for one thread.
#[derive(Debug)]
pub struct TargetFeed {
    plan: Arc<TargetPlan>,
    tracker: Arc<TargetTracker>,
    bucket: TokenBucket,
    /// Ordinals of this thread that are not started yet.
    ready: Range<u64>,
}

impl TargetSource for TargetFeed {
    fn next(&mut self, now: Instant) -> NextTarget {
        if self.plan.closed.load(Relaxed) {
            return NextTarget::End;
        }
        if self.ready.is_empty() {
            self.ready = self.plan.take_chunk(&self.tracker);
        }
        if self.ready.is_empty() {
            return NextTarget::End;
        }
        if let Err(wait) = self.bucket.take(now) {
            return NextTarget::Wait(wait);
        }
        let target = self.plan.target(self.ready.start);
        self.ready.start += 1;
        target.map_or(NextTarget::End, NextTarget::Target)
    }

    fn asked_again(&mut self, times: u32) {
        self.bucket.charge(times);
    }
}

#[cfg(test)]
mod tests;
