//! How long packets waited in the kernel before a worker saw them, and which of them waited too long.
//!
//! The kernel knows no age limit: a worker that goes on after a pause finds all that its queue holds. What
//! waited longer than the limit gets the verdict of `--on-failure` at once, so that what is new does not
//! wait behind what its sender has long sent again. The kernel's stamps tell; packets of this machine's
//! own (OUTPUT) have none, and are judged whatever their age.

use std::time::{Duration, SystemTime};

use super::source::Verdict;
use crate::diagnostics::tell;
use crate::event::Timestamp;
use crate::metrics::{GuardMetrics, QueueDrop};

/// Looks at the packets of one queue.
pub(super) struct Waiting {
    queue: u16,
    limit: Option<Duration>,
    /// What those that waited too long get.
    failure: Verdict,
    metrics: GuardMetrics,
    /// Those that were not published yet, and those that were not told yet.
    new: u64,
    untold: u64,
}

impl Waiting {
    pub(super) fn new(queue: u16, limit: Option<Duration>, failure: Verdict, metrics: GuardMetrics) -> Self {
        Self { queue, limit, failure, metrics, new: 0, untold: 0 }
    }

    /// True if a packet with this stamp has waited too long; `now` is the time of day as the worker
    /// reckons it.
    pub(super) fn is_over(&mut self, now: Timestamp, stamp: Option<Timestamp>) -> bool {
        self.exceeds(now, stamp, || SystemTime::now().into())
    }

    /// `wall` is asked where the reckoning says that the limit is exceeded: it is up to a tick old, and the
    /// clock may have been set back since.
    fn exceeds(
        &mut self,
        now: Timestamp,
        stamp: Option<Timestamp>,
        wall: impl FnOnce() -> Timestamp,
    ) -> bool {
        let Some(stamp) = stamp else { return false };
        let waited = now.since(stamp);
        self.metrics.queue_wait.observe(waited, 1);
        let is_over = self.limit.is_some_and(|limit| waited > limit && wall().since(stamp) > limit);
        self.new += u64::from(is_over);
        is_over
    }

    /// Publishes what waited too long since the last call, and tells of it when there is no more of it.
    pub(super) fn publish(&mut self) {
        let new = std::mem::take(&mut self.new);
        self.untold += new;
        if new > 0 {
            match self.failure {
                Verdict::Accept => self.metrics.uninspected_packets.inc_by(new),
                Verdict::Drop | Verdict::Repeat => self.metrics.queue_dropped(QueueDrop::Overdue).inc_by(new),
            }
        } else if self.untold > 0 {
            let limit = self.limit.unwrap_or_default().as_secs_f64();
            let fate =
                if self.failure == Verdict::Accept { "they passed uninspected" } else { "they were dropped" };
            tell(format_args!(
                "bannerwall: queue {}: {} packets had waited longer than {limit} s: {fate}",
                self.queue, self.untold
            ));
            self.untold = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Registry;

    const NOW: Timestamp = Timestamp::from_nanos(1_800_000_000_000_000_000);

    fn waiting(limit: Option<Duration>) -> Waiting {
        let metrics = GuardMetrics::new(&Registry::default()).unwrap();
        Waiting::new(0, limit, Verdict::Drop, metrics)
    }

    #[test]
    fn only_what_is_older_than_the_limit_is_over() {
        let mut limited = waiting(Some(Duration::from_secs(2)));
        let wall = |waited: Duration| move || NOW.after(waited);
        for (milliseconds, over) in [(0, false), (2000, false), (2001, true), (3_600_000, true)] {
            let waited = Duration::from_millis(milliseconds);
            let is_over = limited.exceeds(NOW.after(waited), Some(NOW), wall(waited));
            assert_eq!(is_over, over, "{waited:?}");
        }
        assert!(!limited.exceeds(NOW, None, || NOW), "no stamp");
        assert!(!limited.exceeds(NOW, Some(NOW.after(Duration::from_secs(9))), || NOW), "from the future");
        let hour = Duration::from_secs(3600);
        assert!(!limited.exceeds(NOW.after(hour), Some(NOW), || NOW), "the clock was set back by an hour");
        assert!(!waiting(None).exceeds(NOW.after(hour), Some(NOW), wall(hour)), "no limit");
        limited.publish();
        assert_eq!(limited.metrics.queue_dropped(QueueDrop::Overdue).get(), 2);
        limited.publish();
        assert_eq!((limited.new, limited.untold), (0, 0));
    }
}
