//! Targets in permuted order to each thread, and what is known of those that are under way.
//!
//! A run's targets are numbered by *ordinals* in the order they are handed out: first those that an
//! earlier run left unfinished, then the positions of the permutation that nobody has had yet.
//! Threads take ordinals by the chunk from one counter and keep a bit for each that is unfinished,
//! so that a checkpoint is exact at any time and the cost a target is a few nanoseconds.

mod counts;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ahash::AHashMap;

use super::TargetSet;
use crate::scan::pacing::{Bucket, Rate};
use crate::scan::permutation::Permutation;
use crate::scan::{Next, Target, Targets};

#[cfg(test)]
pub use self::counts::Shortages;
pub use self::counts::{Counts, Finished};

/// The largest chunk: one bit a target in a word.
const CHUNK: u64 = u64::BITS as u64;

/// `I/N`: every Nth target, beginning with the Ith.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    count: u64,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { index: 1, count: 1 };

    /// The part of that number, counted from 0; none where there are not so many.
    pub fn numbered(number: u64, count: u64) -> Option<Self> {
        (number < count).then_some(Self { index: number + 1, count })
    }

    /// How many of `length` positions are this shard's.
    pub fn share(self, length: u64) -> u64 {
        length.saturating_sub(self.index - 1).div_ceil(self.count)
    }

    /// The position among all that one of this shard's stands for.
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
            .ok_or_else(|| "a shard is I/N with I from 1 to N, as in 2/8".to_owned())
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// Where a run stands: what a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The first position that was never handed out.
    pub cursor: u64,
    /// Positions before the cursor that are not over.
    pub unfinished: Vec<Range<u64>>,
    /// What came of those that are.
    pub counts: Counts,
}

/// Everything that the threads of a run share.
#[derive(Debug)]
pub struct Plan {
    set: TargetSet,
    permutation: Permutation,
    shard: Shard,
    /// Unfinished positions of an earlier run, and how many come before each range.
    backlog: Vec<(u64, Range<u64>)>,
    backlog_length: u64,
    /// The first position that no earlier run has handed out.
    first: u64,
    total: u64,
    earlier: Counts,
    chunk: u64,
    next: AtomicU64,
    closed: AtomicBool,
    trackers: Vec<Arc<Tracker>>,
}

/// What one thread has under way.
#[derive(Debug, Default)]
pub struct Tracker(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// A bit for each unfinished target, by chunk.
    chunks: AHashMap<u64, u64>,
    counts: Counts,
}

impl Plan {
    /// A plan for `threads` threads that goes on where `from` stands.
    pub fn new(set: TargetSet, seed: u64, shard: Shard, rate: Rate, threads: usize, from: Snapshot) -> Self {
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
        // Slow scans hand out single targets, so that the last chunk does not keep one thread busy
        // while the others have nothing to do.
        let chunk = match rate {
            Rate::Max => CHUNK,
            Rate::Limited(rate) => (u64::from(rate.get()) / threads.max(1) as u64 / 100).clamp(1, CHUNK),
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

    /// The targets.
    pub fn set(&self) -> &TargetSet {
        &self.set
    }

    /// How many targets this shard has, over all runs.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many targets are left for this run.
    pub fn remaining(&self) -> u64 {
        self.backlog_length + (self.total - self.first)
    }

    /// Hands out no more targets; what is under way comes to its end.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// The source of targets and the tracker of each thread; `rate` is held by all of them together.
    pub fn feeds(self: &Arc<Self>, rate: Rate) -> Vec<(Feed, Arc<Tracker>)> {
        let bucket = Bucket::new(rate, self.trackers.len());
        let feed = |tracker: &Arc<Tracker>| Feed {
            plan: Arc::clone(self),
            tracker: Arc::clone(tracker),
            bucket: bucket.clone(),
            ready: 0..0,
        };
        self.trackers.iter().map(|tracker| (feed(tracker), Arc::clone(tracker))).collect()
    }

    /// Tracked targets are over.
    pub fn finish(&self, tracker: &Tracker, finished: &[Finished]) {
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

    /// What came of the targets that are over, over all runs.
    pub fn counts(&self) -> Counts {
        let mut counts = self.earlier;
        self.trackers.iter().for_each(|tracker| counts.add(&tracker.lock().counts));
        counts
    }

    /// How many targets are handed out and not over.
    pub fn in_flight(&self) -> u64 {
        let bits = |tracker: &Arc<Tracker>| -> u64 {
            tracker.lock().chunks.values().map(|bits| u64::from(bits.count_ones())).sum()
        };
        self.trackers.iter().map(bits).sum()
    }

    /// Where the run stands, exactly.
    pub fn snapshot(&self) -> Snapshot {
        // With every tracker locked no chunk is between the counter and a tracker.
        let locked: Vec<MutexGuard<'_, Progress>> =
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
        Snapshot { cursor, unfinished: ranges(&positions), counts }
    }

    /// The position in the shard that `ordinal` stands for, none behind the last.
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

    /// Moves the next chunk into `tracker`; empty when there are no more.
    fn take_chunk(&self, tracker: &Tracker) -> Range<u64> {
        let mut progress = tracker.lock();
        let first = self.next.fetch_add(self.chunk, Relaxed);
        let length = self.remaining().saturating_sub(first).min(self.chunk);
        if length == 0 {
            // So that asking again and again at the end cannot run the counter over.
            self.next.fetch_sub(self.chunk, Relaxed);
            return 0..0;
        }
        progress.chunks.insert(first / self.chunk, u64::MAX >> (CHUNK - length));
        first..first + length
    }
}

impl Tracker {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // A thread that panicked ends the run; what it tracked is still true.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Neighbouring positions as ranges.
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

/// One thread's source of targets.
#[derive(Debug)]
pub struct Feed {
    plan: Arc<Plan>,
    tracker: Arc<Tracker>,
    bucket: Bucket,
    /// Ordinals that are this thread's but not yet handed out.
    ready: Range<u64>,
}

impl Targets for Feed {
    fn next(&mut self, now: Instant) -> Next {
        if self.plan.closed.load(Relaxed) {
            return Next::End;
        }
        if self.ready.is_empty() {
            self.ready = self.plan.take_chunk(&self.tracker);
        }
        if self.ready.is_empty() {
            return Next::End;
        }
        if let Err(wait) = self.bucket.take(now) {
            return Next::Wait(wait);
        }
        let target = self.plan.target(self.ready.start);
        self.ready.start += 1;
        target.map_or(Next::End, Next::Target)
    }

    fn asked_again(&mut self, times: u32) {
        self.bucket.charge(times);
    }
}

#[cfg(test)]
mod tests;
