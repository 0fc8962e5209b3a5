//! State of a server that is away: growing pauses between attempts, and one warning.

use std::time::Duration;

/// The longest pause, unless another is set.
const LONGEST: Duration = Duration::from_secs(2);

/// Exponential back-off between attempts that fail.
#[derive(Debug)]
pub struct RetryBackoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl RetryBackoff {
    /// Creates a back-off with its first and its longest pause.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Returns the next pause.
    pub fn next_delay(&mut self) -> Duration {
        let longer = (self.next * 2).min(self.longest);
        std::mem::replace(&mut self.next, longer)
    }

    /// True if the last attempt failed.
    pub fn is_waiting(&self) -> bool {
        self.next != self.first
    }

    /// Resets the back-off after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// State of the connection to a server.
#[derive(Debug)]
pub struct OutageTracker {
    pauses: RetryBackoff,
    is_told: bool,
}

impl OutageTracker {
    /// Creates the state of a server that is reachable, with the first pause after a failure.
    pub const fn new(first: Duration) -> Self {
        Self { pauses: RetryBackoff::new(first, LONGEST), is_told: false }
    }

    /// Sets the longest pause.
    pub const fn up_to(self, longest: Duration) -> Self {
        Self { pauses: RetryBackoff { longest, ..self.pauses }, ..self }
    }

    /// Records a failure. Calls `tell` at the first one, and returns the pause before the next attempt.
    pub fn record_failure(&mut self, tell: impl FnOnce()) -> Duration {
        if !std::mem::replace(&mut self.is_told, true) {
            tell();
        }
        self.pauses.next_delay()
    }

    /// Records a success; returns true if a failure had been reported.
    pub fn record_success(&mut self) -> bool {
        self.pauses.reset();
        std::mem::take(&mut self.is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_in_vain_is_asked_ever_more_rarely() {
        let mut rest = RetryBackoff::new(Duration::from_millis(250), Duration::from_secs(5));
        let mut pauses = || [(); 7].map(|()| rest.next_delay().as_millis());
        assert_eq!(pauses(), [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert!(rest.is_waiting());
        rest.reset();
        assert!(!rest.is_waiting());
        assert_eq!(rest.next_delay().as_millis(), 250);
    }

    #[test]
    fn it_is_told_once_and_asked_ever_more_rarely() {
        let mut absence = OutageTracker::new(Duration::from_millis(500));
        assert!(!absence.record_success());
        for _ in 0..2 {
            let mut told = 0;
            let pauses = [(); 4].map(|()| absence.record_failure(|| told += 1).as_millis());
            assert_eq!((pauses, told), ([500, 1000, 2000, 2000], 1));
            assert!(absence.record_success() && !absence.record_success());
        }
    }
}
