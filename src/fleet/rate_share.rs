//! The rate that a worker may use now: its share of the limit of all workers.
//!
//! The database grants a share for the time of a lease. The worker counts that time from before its request,
//! so a share expires here before it expires there, whatever the clocks say. A worker with more than a fair
//! share first uses less and then reports it. Only reported capacity is granted to others, so the sum never
//! exceeds the limit, even while workers come and go.

use std::time::{Duration, Instant};

use super::database::GrantedRate;

/// A worker's share of one limit, in targets per thousand seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateShare {
    /// Number of the limit in the scan.
    pub(super) number: i64,
    rate: u64,
    fair: u64,
    until: Option<Instant>,
}

impl RateShare {
    pub(super) fn new(number: i64) -> Self {
        Self { number, rate: 0, fair: 0, until: None }
    }

    /// Returns the rate that may be used now.
    pub(super) fn rate(&self, now: Instant) -> u64 {
        if self.until.is_some_and(|until| now < until) { self.rate } else { 0 }
    }

    /// Returns the time when the share expires.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Lowers the rate to the fair share, and returns the rate in use, to be reported to the database.
    pub(super) fn lower(&mut self, now: Instant) -> u64 {
        self.rate = self.rate(now).min(self.fair);
        self.rate
    }

    /// Stores the share that the database granted for a request at `asked`.
    pub(super) fn take(&mut self, share: GrantedRate, asked: Instant, lease: Duration) {
        (self.rate, self.fair, self.until) = (share.granted, share.fair, Some(asked + lease));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    /// What the database does.
    fn share(shares: &[(u64, Instant)], me: usize, used: u64, total: u64, now: Instant) -> GrantedRate {
        let there: Vec<u64> = shares
            .iter()
            .enumerate()
            .filter(|(number, (_, until))| *number != me && now < *until)
            .map(|(_, (rate, _))| *rate)
            .collect();
        let fair = total / (there.len() as u64 + 1);
        GrantedRate { granted: (total - there.iter().sum::<u64>()).min(used.max(fair)), fair }
    }

    #[test]
    fn workers_that_come_and_go_never_use_more_than_there_is_and_soon_all_of_it() {
        let (total, start) = (10_000, Instant::now());
        let mut workers: Vec<Option<RateShare>> = vec![None; 5];
        let mut shares = vec![(0, start); 5];
        for second in 0..200_u64 {
            let now = start + Duration::from_secs(second);
            for me in 0..workers.len() {
                // One more each 20 seconds, until the first dies, and then the second.
                let begins = me as u64 * 20;
                let dies = if me < 2 { 110 + me as u64 * 30 } else { 1_000 };
                if second == begins {
                    workers[me] = Some(RateShare::new(0));
                }
                let Some(allowance) = workers[me].as_mut().filter(|_| second < dies) else { continue };
                let used = allowance.lower(now);
                let told = share(&shares, me, used, total, now);
                shares[me] = (told.granted, now + LEASE);
                allowance.take(told, now, LEASE);
                let sum: u64 = workers.iter().flatten().map(|it| it.rate(now)).sum();
                assert!(sum <= total, "{sum} at second {second}");
            }
            let alive = workers.iter().flatten().filter(|it| it.rate(now) > 0).count() as u64;
            let sum: u64 = workers.iter().flatten().map(|it| it.rate(now)).sum();
            if second % 20 == 19 && second < 100 {
                assert_eq!((sum, alive), (total / alive * alive, second / 20 + 1), "at second {second}");
            }
        }
    }
}
