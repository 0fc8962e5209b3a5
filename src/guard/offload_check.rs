//! Check that the kernel stores the decisions about connections.
//!
//! The guard hands over a decision once per connection, and a few more times for packets that were already in
//! the queue. If packets of decided connections keep coming, another program clears our bits of the
//! connection mark, for example a `CONNMARK --save-mark` without a mask. The verdicts are still right, but
//! each of these packets goes through the queue, so the guard warns.

use crate::diagnostics::log_line;

/// Number of packets of already decided connections between two checks, below which no comparison is made.
const ENOUGH: u64 = 100;
/// Number of such packets per newly decided connection from which on the offload has failed.
const TOO_MANY: u64 = 10;

/// Compares the packets of already decided connections with the newly decided connections. Only packets that
/// were already in the queue should follow a decision.
#[derive(Debug)]
pub(super) struct OffloadCheck {
    queue: u16,
    /// Number of verdicts with a decision, and of those about already decided connections, at the last check.
    counted: (u64, u64),
    /// Number of connections decided between the last two checks. Their queued packets may arrive after the
    /// check.
    decided: u64,
    is_reported: bool,
}

impl OffloadCheck {
    pub(super) fn new(queue: u16) -> Self {
        Self { queue, counted: (0, 0), decided: 0, is_reported: false }
    }

    /// Compares the counts with those of the last check, and warns once.
    pub(super) fn check(&mut self, handed: u64, again: u64) {
        if self.is_lost(handed, again) && !self.is_reported {
            self.is_reported = true;
            log_line(format_args!(
                "bannerwall: queue {}: the kernel keeps queueing packets of decided connections: another \
                 rule clears their connection mark, so nothing is offloaded; `bannerwall doctor` names \
                 such rules",
                self.queue
            ));
        }
    }

    fn is_lost(&mut self, handed: u64, again: u64) -> bool {
        let verdicts = handed - self.counted.0;
        // Without offload, packets of decided connections arrive although no verdict has handed the decision
        // over.
        let again_now = (again - self.counted.1).min(verdicts);
        let decided = verdicts - again_now;
        let before = std::mem::replace(&mut self.decided, decided);
        self.counted = (handed, again);
        // Decisions of the last interval are included: their packets were in the queue when that check was
        // made.
        again_now >= ENOUGH && again_now / TOO_MANY >= (decided + before).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_behind_a_decision_are_no_sign_and_those_that_go_on_coming_are() {
        let mut handed = OffloadCheck::new(0);
        assert!(!handed.is_lost(99, 99), "a few packets that were queued before");
        assert!(
            !handed.is_lost(5_099, 3_099),
            "2,000 connections decided, with a packet and a half behind each"
        );
        assert!(!handed.is_lost(6_099, 4_099), "those that were queued at the last look");
        let ended = handed.is_lost(6_099, 4_099);
        assert!(!ended && handed.is_lost(6_299, 4_299), "nothing is decided, and 200 packets come");
    }

    #[test]
    fn connections_that_live_long_before_they_are_decided_are_no_sign() {
        let mut handed = OffloadCheck::new(0);
        // Kept-alive connections that were begun long ago are decided at one moment, each with a few packets
        // behind it.
        assert!(!handed.is_lost(4_000, 3_000));
    }

    #[test]
    fn without_offload_nothing_is_lost() {
        assert!(!OffloadCheck::new(0).is_lost(0, 100_000));
    }
}
