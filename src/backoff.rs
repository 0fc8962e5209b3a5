//! Exponential back-off: pauses that double up to a limit.

use std::time::Duration;

/// Exponential back-off between attempts that fail.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Number of pauses since the last success.
    pauses: u32,
}

impl Backoff {
    /// Creates a back-off with its first and its longest pause.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pauses: 0 }
    }

    /// Returns the same back-off with another longest pause.
    pub const fn up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Returns the pause after this number of earlier pauses, for a caller that counts them itself.
    pub fn delay(&self, pauses: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(pauses)).min(self.longest)
    }

    /// Returns the next pause.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.delay(self.pauses);
        self.pauses = self.pauses.saturating_add(1);
        delay
    }

    /// True if the last attempt failed.
    pub const fn is_waiting(&self) -> bool {
        self.pauses > 0
    }

    /// Resets the back-off after a success.
    pub const fn reset(&mut self) {
        self.pauses = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_until_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(5));
        let mut pauses = || [(); 7].map(|()| backoff.next_delay().as_millis());
        assert_eq!(pauses(), [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert!(backoff.is_waiting());
        backoff.reset();
        assert!(!backoff.is_waiting());
        assert_eq!(backoff.next_delay().as_millis(), 250);
    }
}
