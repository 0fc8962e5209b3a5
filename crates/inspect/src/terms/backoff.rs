//! Exponential back-off for repairs that do not last.

use std::time::{Duration, Instant};

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
#[derive(Debug, Default)]
pub struct Backoff {
    /// Number of repairs in a row, and the time of the last one.
    repairs: Option<(u32, Instant)>,
}

impl Backoff {
    /// Returns the pause before the next repair; `None` if it may be made now.
    pub fn wait(&mut self, now: Instant) -> Option<Duration> {
        let (count, last) = self.repairs?;
        if now.saturating_duration_since(last) >= QUIET {
            self.repairs = None;
            return None;
        }
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(count.checked_sub(AT_ONCE)?)).min(LONGEST);
        (last + wait).checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Records a repair.
    pub fn tried(&mut self, now: Instant) {
        let count = self.repairs.map_or(0, |(count, _)| count);
        self.repairs = Some((count.saturating_add(1), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repairs_are_made_at_once_and_later_ones_ever_more_rarely() {
        let start = Instant::now();
        let mut now = start;
        let mut backoff = Backoff::default();
        let mut times = Vec::new();
        for _ in 0..12 {
            if let Some(wait) = backoff.wait(now) {
                now += wait;
            }
            assert_eq!(backoff.wait(now), None, "the wait is over");
            backoff.tried(now);
            times.push(now.duration_since(start).as_secs());
        }
        assert_eq!(times[..9], [0, 0, 0, 0, 1, 3, 7, 15, 31]);
        assert_eq!(times[9..], [63, 95, 127], "and no more rarely than that");
        let quiet = now + Duration::from_secs(600);
        assert_eq!(backoff.wait(quiet), None, "what was long ago is forgotten");
        backoff.tried(quiet);
        assert_eq!(backoff.wait(quiet), None);
    }
}
