//! State of a server that is away: growing pauses between attempts, and one warning.

use std::time::Duration;

use crate::backoff::Backoff;

/// The longest pause, unless another is set.
const LONGEST: Duration = Duration::from_secs(2);

/// State of the connection to a server.
#[derive(Debug)]
pub struct OutageTracker {
    pauses: Backoff,
    is_reported: bool,
}

impl OutageTracker {
    /// Creates the state of a server that is reachable, with the first pause after a failure.
    pub const fn new(first: Duration) -> Self {
        Self { pauses: Backoff::new(first, LONGEST), is_reported: false }
    }

    /// Sets the longest pause.
    pub const fn up_to(self, longest: Duration) -> Self {
        Self { pauses: self.pauses.up_to(longest), ..self }
    }

    /// Records a failure. Calls `report` at the first one, and returns the pause before the next attempt.
    pub fn record_failure(&mut self, report: impl FnOnce()) -> Duration {
        if !std::mem::replace(&mut self.is_reported, true) {
            report();
        }
        self.pauses.next_delay()
    }

    /// Records a success; returns true if a failure had been reported.
    pub fn record_success(&mut self) -> bool {
        self.pauses.reset();
        std::mem::take(&mut self.is_reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
