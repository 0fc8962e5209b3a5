//! The time that packets waited in the kernel before a worker saw them, and its limit.
//!
//! The kernel has no age limit: after a pause a worker finds all packets that its queue holds. Packets that
//! waited longer than the limit get the verdict of `--on-failure` at once, so that new packets do not wait
//! behind old ones that their senders have long repeated. What came before the worker's first packet has
//! waited for a restart, in a queue that a predecessor left: it is judged at any age. The age comes from the
//! kernel's timestamps. Packets of this machine itself (OUTPUT) have none, and are judged at any age.

use std::time::{Duration, SystemTime};

use super::source::PacketVerdict;
use crate::diagnostics::log_line;
use crate::event::Timestamp;
use crate::metrics::{GuardMetrics, QueueDrop};

/// Checks the packets of one queue.
pub(super) struct PacketAgeLimit {
    queue: u16,
    limit: Option<Duration>,
    /// Time of the first packet that the worker took.
    first: Option<Timestamp>,
    /// Verdict on packets that waited too long.
    failure: PacketVerdict,
    metrics: GuardMetrics,
    /// Numbers of packets that are not published yet, and that are not reported yet.
    new: u64,
    untold: u64,
}

impl PacketAgeLimit {
    pub(super) fn new(
        queue: u16,
        limit: Option<Duration>,
        failure: PacketVerdict,
        metrics: GuardMetrics,
    ) -> Self {
        Self { queue, limit, first: None, failure, metrics, new: 0, untold: 0 }
    }

    /// True if a packet with this timestamp has waited too long. `now` is the time of day as the worker
    /// computes it.
    pub(super) fn is_over(&mut self, now: Timestamp, stamp: Option<Timestamp>) -> bool {
        self.exceeds(now, stamp, || SystemTime::now().into())
    }

    /// `wall` is called only if the limit seems exceeded: the computed time is up to one tick old, and the
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
        let is_of_this_run = stamp >= *self.first.get_or_insert(now);
        let is_late = |limit| waited > limit && wall().since(stamp) > limit;
        let is_over = is_of_this_run && self.limit.is_some_and(is_late);
        self.new += u64::from(is_over);
        is_over
    }

    /// Publishes the packets that waited too long since the last call, and reports them once no more follow.
    pub(super) fn publish(&mut self) {
        let new = std::mem::take(&mut self.new);
        self.untold += new;
        if new > 0 {
            match self.failure {
                PacketVerdict::Accept => self.metrics.uninspected_packets.inc_by(new),
                PacketVerdict::Drop | PacketVerdict::Repeat => {
                    self.metrics.queue_dropped(QueueDrop::Overdue).inc_by(new);
                }
            }
        } else if self.untold > 0 {
            let limit = self.limit.unwrap_or_default().as_secs_f64();
            let fate = if self.failure == PacketVerdict::Accept {
                "they passed uninspected"
            } else {
                "they were dropped"
            };
            log_line(format_args!(
                "bannerwall: queue {}: packets that waited longer than {limit} s: {}; {fate}",
                self.queue, self.untold
            ));
            self.untold = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsRegistry;

    const NOW: Timestamp = Timestamp::from_nanos(1_800_000_000_000_000_000);

    fn waiting(limit: Option<Duration>) -> PacketAgeLimit {
        let metrics = GuardMetrics::new(&MetricsRegistry::default()).unwrap();
        PacketAgeLimit::new(0, limit, PacketVerdict::Drop, metrics)
    }

    #[test]
    fn only_what_is_older_than_the_limit_is_over() {
        let mut limited = waiting(Some(Duration::from_secs(2)));
        assert!(!limited.exceeds(NOW, None, || NOW), "no stamp");
        assert!(!limited.exceeds(NOW, Some(NOW), || NOW));
        let wall = |waited: Duration| move || NOW.after(waited);
        for (milliseconds, over) in [(0, false), (2000, false), (2001, true), (3_600_000, true)] {
            let waited = Duration::from_millis(milliseconds);
            let is_over = limited.exceeds(NOW.after(waited), Some(NOW), wall(waited));
            assert_eq!(is_over, over, "{waited:?}");
        }
        assert!(!limited.exceeds(NOW, Some(NOW.after(Duration::from_secs(9))), || NOW), "from the future");
        let hour = Duration::from_secs(3600);
        assert!(!limited.exceeds(NOW.after(hour), Some(NOW), || NOW), "the clock was set back by an hour");
        assert!(!waiting(None).exceeds(NOW.after(hour), Some(NOW), wall(hour)), "no limit");
        limited.publish();
        assert_eq!(limited.metrics.queue_dropped(QueueDrop::Overdue).get(), 2);
        limited.publish();
        assert_eq!((limited.new, limited.untold), (0, 0));
    }
    #[test]
    fn what_waited_for_a_restart_is_judged_at_any_age() {
        let mut limited = waiting(Some(Duration::from_secs(2)));
        let start = NOW.after(Duration::from_secs(60));
        let wall = || NOW.after(Duration::from_secs(90));
        for waited in [60, 30, 10] {
            let stamp = NOW.after(Duration::from_secs(60 - waited));
            assert!(!limited.exceeds(start, Some(stamp), wall), "{waited}");
        }
        assert!(limited.exceeds(NOW.after(Duration::from_secs(90)), Some(start), wall));
    }
}
