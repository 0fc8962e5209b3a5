//! Rate limit for targets: a token bucket with `now` as an argument.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Limit of a bucket's lag that it catches up. Time lost beyond that (a stopped process, a full window)
/// causes no burst.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Shortest wait: at high rates several targets start together, instead of one wake-up each.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Longest wait, so that a slow scan notices a stop.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Picoseconds in a second: fine enough that a rate of a million is exact to a millionth.
const PICOSECONDS: u128 = 1_000_000_000_000;

/// Interval if the rate is 0: a year.
const NEVER: u128 = PICOSECONDS * 366 * 86_400;

/// Rate of targets a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanRate {
    /// Limit.
    Limited(NonZeroU32),
    /// No limit.
    Max,
}

/// Token bucket with a fixed rate.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    schedule: Option<TokenSchedule>,
}

#[derive(Debug, Clone)]
struct TokenSchedule {
    /// Picoseconds from one token to the next.
    interval: u128,
    start: Option<Instant>,
    /// Time of the next token, in picoseconds since the start.
    due: u128,
}

impl Default for ScanRate {
    /// Ten thousand, which is harmless for usual networks.
    fn default() -> Self {
        Self::Limited(const { NonZeroU32::new(10_000).unwrap() })
    }
}

impl std::str::FromStr for ScanRate {
    type Err = String;

    /// Parses a number or `max`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            number => number
                .replace('_', "")
                .parse()
                .map(Self::Limited)
                .map_err(|_| "must be a whole number of targets a second from 1, or `max`".to_owned()),
        }
    }
}

impl std::fmt::Display for ScanRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limited(rate) => rate.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl TokenBucket {
    /// Returns a bucket for one of `shares` threads that share the `rate`.
    pub fn new(rate: ScanRate, shares: usize) -> Self {
        let schedule = match rate {
            ScanRate::Max => None,
            ScanRate::Limited(rate) => Some(TokenSchedule {
                interval: PICOSECONDS * shares as u128 / u128::from(rate.get()),
                start: None,
                due: 0,
            }),
        };
        Self { schedule }
    }

    /// Changes the rate: tokens in a thousand seconds, 0 for none.
    pub fn adjust(&mut self, per_thousand: u64, now: Instant) {
        let interval = match per_thousand {
            0 => NEVER,
            rate => PICOSECONDS * 1000 / u128::from(rate),
        };
        let schedule = self.schedule.get_or_insert(TokenSchedule { interval: 0, start: None, due: 0 });
        if schedule.interval == interval {
            return;
        }
        let start = *schedule.start.get_or_insert(now);
        let elapsed = now.saturating_duration_since(start).as_nanos() * 1000;
        // After a slower rate its whole interval is waited for, so frequent changes give no extra tokens.
        let ahead = match schedule.interval > interval {
            true => schedule.due.saturating_sub(elapsed).min(interval),
            false => interval,
        };
        (schedule.due, schedule.interval) = (elapsed + ahead, interval);
    }

    /// Takes a token.
    ///
    /// # Errors
    ///
    /// Returns the time to wait before the next call.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        match &mut self.schedule {
            None => Ok(()),
            Some(schedule) => schedule.take(now),
        }
    }

    /// Charges extra tokens, which delays the next ones.
    pub fn charge(&mut self, permissions: u32) {
        if let Some(schedule) = &mut self.schedule {
            schedule.due = schedule.due.saturating_add(schedule.interval * u128::from(permissions));
        }
    }
}

impl TokenSchedule {
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let start = *self.start.get_or_insert(now);
        let elapsed = now.saturating_duration_since(start).as_nanos() * 1000;
        if elapsed < self.due {
            let wait = u64::try_from((self.due - elapsed) / 1000).unwrap_or(u64::MAX);
            return Err(Duration::from_nanos(wait).clamp(SHORTEST_WAIT, LONGEST_WAIT));
        }
        // A thread that was late may catch up for a moment only. Otherwise a pause would end in a
        // burst.
        let oldest = elapsed.saturating_sub(CATCH_UP.as_nanos() * 1000);
        self.due = self.due.max(oldest) + self.interval;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: u32, shares: usize) -> TokenBucket {
        TokenBucket::new(ScanRate::Limited(NonZeroU32::new(rate).unwrap()), shares)
    }

    /// Permissions within `length`, when the caller obeys every wait but wakes `late` each time.
    fn permissions(bucket: &mut TokenBucket, length: Duration, late: Duration) -> u64 {
        let start = Instant::now();
        let (mut now, mut taken) = (start, 0);
        while now.duration_since(start) < length {
            match bucket.take(now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait + late,
            }
        }
        taken
    }

    #[test]
    fn the_rate_holds_within_two_percent_on_a_simulated_clock() {
        for rate in [7, 100, 10_000, 33_333, 1_000_000] {
            for late in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(7)] {
                let seconds = 20;
                let taken = permissions(&mut bucket(rate, 1), Duration::from_secs(seconds), late);
                let wanted = u64::from(rate) * seconds;
                let error = taken.abs_diff(wanted);
                assert!(error * 50 <= wanted, "{taken} instead of {wanted} at {rate}/s, {late:?} late");
            }
        }
    }

    #[test]
    fn threads_share_the_rate() {
        let mut buckets = vec![bucket(1000, 3); 3];
        let second = Duration::from_secs(10);
        let taken: u64 = buckets.iter_mut().map(|bucket| permissions(bucket, second, Duration::ZERO)).sum();
        assert!((9_900..=10_100).contains(&taken), "{taken}");
    }

    #[test]
    fn a_stall_is_not_followed_by_a_flood() {
        let mut bucket = bucket(1000, 1);
        let start = Instant::now();
        assert_eq!(bucket.take(start), Ok(()));
        let later = start + Duration::from_secs(60);
        let burst = (0..1_000_000).take_while(|_| bucket.take(later).is_ok()).count();
        assert!(burst <= 52, "{burst} at once after a minute's stall");
    }

    #[test]
    fn another_rate_holds_from_where_it_is_told() {
        let (mut bucket, start) = (bucket(1000, 1), Instant::now());
        let mut now = start;
        let mut taken_by = |bucket: &mut TokenBucket, end: u64| {
            let mut taken = 0_u64;
            while now < start + Duration::from_secs(end) {
                match bucket.take(now) {
                    Ok(()) => taken += 1,
                    Err(wait) => now += wait,
                }
            }
            taken
        };
        let at = |second: u64| start + Duration::from_secs(second);
        assert!((1_990..=2_010).contains(&taken_by(&mut bucket, 2)));
        bucket.adjust(0, at(2));
        assert_eq!(taken_by(&mut bucket, 4), 0);
        bucket.adjust(100_000, at(4));
        assert!((198..=202).contains(&taken_by(&mut bucket, 6)), "a hundred a second");
        bucket.adjust(2_500, at(6));
        assert!((24..=27).contains(&taken_by(&mut bucket, 16)), "five in two seconds");
    }

    #[test]
    fn what_was_not_asked_for_counts_all_the_same() {
        let mut bucket = bucket(1000, 1);
        let start = Instant::now();
        let (mut now, mut taken) = (start, 0);
        while now.duration_since(start) < Duration::from_secs(10) {
            match bucket.take(now) {
                Ok(()) => {
                    bucket.charge(1);
                    taken += 1;
                }
                Err(wait) => now += wait,
            }
        }
        assert!((4_950..=5_050).contains(&taken), "{taken}");
    }

    #[test]
    fn no_burst_at_the_start_and_no_limit_without_a_rate() {
        let now = Instant::now();
        let mut bucket = bucket(10, 1);
        assert_eq!(bucket.take(now), Ok(()));
        assert_eq!(bucket.take(now), Err(LONGEST_WAIT));
        assert_eq!("max".parse(), Ok(ScanRate::Max));
        assert_eq!("2_500".parse(), Ok(ScanRate::Limited(NonZeroU32::new(2500).unwrap())));
        assert!(["0", "-1", "1.5", "", "fast"].iter().all(|word| word.parse::<ScanRate>().is_err()));
        let mut free = TokenBucket::new(ScanRate::Max, 1);
        assert!((0..1000).all(|_| free.take(now).is_ok()));
    }
}
