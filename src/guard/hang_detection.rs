//! Detection of verdict loops that hang.
//!
//! The loops run in rounds. A round is complete when every loop has gone around since the last one. The loop
//! that completes a round feeds the watchdog of the service manager, so neither a stopped process nor a main
//! thread beside a hanging loop can feed it. Without a watchdog the main thread checks the rounds, and ends a
//! run whose loops hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::service_notifier::ServiceNotifier;

/// Interval between checks of the main thread.
const LOOK: Duration = Duration::from_secs(1);
/// Number of consecutive checks that find the same round, after which its missing loop hangs. Checks are
/// counted rather than timed, because a process that was stopped and continues has made one check.
const HUNG: u32 = 5;
/// Number of times the watchdog is fed within its interval.
const FEEDS: u32 = 4;

/// The state that all loops of a run share.
#[derive(Debug)]
pub(super) struct LoopRounds {
    completed: AtomicU64,
    missing: AtomicUsize,
    /// The last round that each loop took part in, counted from 1.
    taken: Box<[AtomicU64]>,
    feed: Option<WatchdogFeed>,
}

/// The watchdog, and the time when it was last fed.
#[derive(Debug)]
struct WatchdogFeed {
    notifier: Arc<ServiceNotifier>,
    every: Duration,
    start: Instant,
    /// Nanoseconds since the start. Only the loop that completes a round writes it.
    last: AtomicU64,
}

impl LoopRounds {
    /// Returns rounds of this many loops, which feed a watchdog within its interval.
    pub(super) fn new(loops: usize, watchdog: Option<(Arc<ServiceNotifier>, Duration)>) -> Arc<Self> {
        let feed = watchdog.map(|(notifier, interval)| WatchdogFeed {
            notifier,
            every: interval / FEEDS,
            start: Instant::now(),
            last: AtomicU64::new(0),
        });
        let taken = (0..loops).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { completed: AtomicU64::new(0), missing: AtomicUsize::new(loops), taken, feed })
    }

    fn complete(&self, now: Instant) {
        // Before the round is published: a loop that sees the new round at once subtracts from this number.
        self.missing.store(self.taken.len(), Ordering::Release);
        // From here on the other loops may take part in the next round.
        self.completed.fetch_add(1, Ordering::AcqRel);
        if let Some(feed) = &self.feed {
            let since = u64::try_from(now.duration_since(feed.start).as_nanos()).unwrap_or(u64::MAX);
            let before = feed.last.load(Ordering::Relaxed);
            if before == 0 || u128::from(since.saturating_sub(before)) >= feed.every.as_nanos() {
                feed.last.store(since, Ordering::Relaxed);
                feed.notifier.send("WATCHDOG=1");
            }
        }
    }

    /// Returns the first loop that has not taken part in the round.
    fn late(&self) -> Option<usize> {
        let completed = self.completed.load(Ordering::Acquire);
        self.taken.iter().position(|taken| taken.load(Ordering::Acquire) <= completed)
    }
}

/// The part of one loop.
#[derive(Debug)]
pub(super) struct LoopHeartbeat {
    rounds: Arc<LoopRounds>,
    index: usize,
}

impl LoopHeartbeat {
    pub(super) fn new(rounds: Arc<LoopRounds>, index: usize) -> Self {
        Self { rounds, index }
    }

    /// Records that the loop has gone around.
    pub(super) fn record_turn(&self, now: Instant) {
        let rounds = &self.rounds;
        let Some(taken) = rounds.taken.get(self.index) else { return };
        let round = rounds.completed.load(Ordering::Acquire) + 1;
        // A fast loop goes around many times a round. Only its first turn counts.
        if taken.swap(round, Ordering::AcqRel) == round {
            return;
        }
        if rounds.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            rounds.complete(now);
        }
    }
}

/// The main thread's check of the rounds.
#[derive(Debug)]
pub(super) struct HangDetector {
    rounds: Arc<LoopRounds>,
    looked: Instant,
    round: u64,
    same: u32,
}

impl HangDetector {
    pub(super) fn new(rounds: Arc<LoopRounds>, now: Instant) -> Self {
        Self { rounds, looked: now, round: 0, same: 0 }
    }

    /// Checks the rounds if it is time to. Returns the index of a loop that hangs.
    pub(super) fn check(&mut self, now: Instant) -> Option<usize> {
        // The main loop comes here after every message; a burst of messages must not count as checks.
        if now.duration_since(self.looked) < LOOK {
            return None;
        }
        self.looked = now;
        let round = self.rounds.completed.load(Ordering::Acquire);
        self.same = if round == self.round { self.same + 1 } else { 0 };
        self.round = round;
        if self.same >= HUNG { self.rounds.late() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn the_loop_that_is_missing_from_a_round_is_named_after_enough_looks_and_no_earlier() {
        let start = Instant::now();
        let rounds = LoopRounds::new(3, None);
        let pulses: Vec<LoopHeartbeat> =
            (0..3).map(|index| LoopHeartbeat::new(Arc::clone(&rounds), index)).collect();
        let mut observer = HangDetector::new(Arc::clone(&rounds), start);
        for second in 1..=20 {
            pulses.iter().for_each(|pulse| pulse.record_turn(start));
            assert_eq!(observer.check(start + Duration::from_secs(second)), None);
        }
        let looks: Vec<Option<usize>> = (21..30)
            .map(|second| {
                // Two of three, as often as they like.
                (0..7)
                    .for_each(|_| [0, 2].iter().for_each(|index: &usize| pulses[*index].record_turn(start)));
                observer.check(start + Duration::from_secs(second))
            })
            .collect();
        assert_eq!(looks.iter().position(Option::is_some), Some(4), "{looks:?}");
        assert_eq!(looks.last(), Some(&Some(1)));
        pulses[1].record_turn(start);
        assert_eq!(observer.check(start + Duration::from_secs(40)), None, "it goes on");
        let later = start + Duration::from_secs(4000);
        assert_eq!(observer.check(later), None, "a long sleep is one look");
        assert_eq!(observer.check(later), None, "and one look a second is enough");
    }

    #[test]
    fn the_watchdog_is_fed_by_whole_rounds_and_no_more_often_than_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let notifier = Arc::new(ServiceNotifier::to(path.as_os_str()).unwrap());
        let rounds = LoopRounds::new(2, Some((notifier, Duration::from_secs(4))));
        let (one, other) =
            (LoopHeartbeat::new(Arc::clone(&rounds), 0), LoopHeartbeat::new(Arc::clone(&rounds), 1));
        let start = Instant::now();
        let fed = || std::iter::from_fn(|| manager.recv(&mut [0; 16]).ok()).count();
        (0..100).for_each(|tenth| one.record_turn(start + Duration::from_millis(tenth * 100)));
        assert_eq!(fed(), 0, "the other loop hangs");
        for tenth in 100..200 {
            other.record_turn(start + Duration::from_millis(tenth * 100));
            one.record_turn(start + Duration::from_millis(tenth * 100));
        }
        let count = fed();
        assert!((9..=11).contains(&count), "{count} in ten seconds");
    }
}
