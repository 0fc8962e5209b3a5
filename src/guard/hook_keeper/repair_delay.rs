//! Growing pauses between repairs that do not last.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// Number of repairs in a row that are made at once: one cause may break something in several steps, as a
/// firewall's reload does.
const AT_ONCE: u32 = 4;
/// Time without a repair after which earlier repairs are forgotten.
const QUIET: Duration = Duration::from_secs(90);
/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(32);

/// Counts repairs and delays them if they do not last.
#[derive(Debug)]
pub(super) struct RepairDelay {
    backoff: Backoff,
    /// Number of repairs in a row.
    repairs: u32,
    /// Time of the last repair, and the pause after it.
    last: Option<(Instant, Duration)>,
}

impl RepairDelay {
    pub(super) const fn new() -> Self {
        Self { backoff: Backoff::new(FIRST, LONGEST), repairs: 0, last: None }
    }

    /// Returns the pause before the next repair; `None` if it may be made now.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        let (last, pause) = self.last?;
        if now.saturating_duration_since(last) >= QUIET {
            *self = Self::new();
            return None;
        }
        (last + pause).checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Records a repair.
    pub(super) fn record_repair(&mut self, now: Instant) {
        self.repairs = self.repairs.saturating_add(1);
        let pause = if self.repairs < AT_ONCE { Duration::ZERO } else { self.backoff.next_delay() };
        self.last = Some((now, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repairs_are_made_at_once_and_later_ones_ever_more_rarely() {
        let start = Instant::now();
        let mut now = start;
        let mut backoff = RepairDelay::new();
        let mut times = Vec::new();
        for _ in 0..12 {
            if let Some(wait) = backoff.wait(now) {
                now += wait;
            }
            assert_eq!(backoff.wait(now), None, "the wait is over");
            backoff.record_repair(now);
            times.push(now.duration_since(start).as_secs());
        }
        assert_eq!(times[..9], [0, 0, 0, 0, 1, 3, 7, 15, 31]);
        assert_eq!(times[9..], [63, 95, 127], "and no more rarely than that");
        let quiet = now + Duration::from_secs(600);
        assert_eq!(backoff.wait(quiet), None, "what was long ago is forgotten");
        backoff.record_repair(quiet);
        assert_eq!(backoff.wait(quiet), None);
    }
}
