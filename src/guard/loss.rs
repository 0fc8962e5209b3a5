//! The one loss that the kernel counts nowhere: packets that reached the hook's queue rule and went by
//! without inspection, because the queue or its socket was full under fail-open.
//!
//! It is what the rules have counted, less what was received, what still waits and what was dropped.
//! The rules are read first and the rest afterwards, so that packets that arrive meanwhile can make the
//! number too small for a moment, never too large.

use bannerwall_ffi::queue::KernelCounters;
use prometheus::IntCounter;

use crate::hook::{HookError, Queues, Variant, Watch};

/// Compares the hook's counters with the guard's.
pub(super) struct Loss {
    variant: Variant,
    queues: Queues,
    uninspected: IntCounter,
    watch: Option<Watch>,
    account: Account,
}

/// What the guard's workers have seen, all together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) received: u64,
    pub(super) waiting: u64,
    pub(super) dropped: u64,
}

impl Seen {
    /// Adds one worker. The kernel is asked first: a packet that is received meanwhile is then accounted
    /// for twice, never not at all.
    pub(super) fn add(&mut self, queue: u16, received: impl FnOnce() -> u64) {
        if let Ok(Some(kernel)) = KernelCounters::of(queue) {
            self.waiting += kernel.waiting;
            self.dropped += kernel.dropped_queue_full + kernel.dropped_socket_full;
        }
        self.received += received();
    }
}

impl Loss {
    pub(super) fn new(variant: Variant, queues: Queues, uninspected: IntCounter) -> Self {
        Self { variant, queues, uninspected, watch: None, account: Account::default() }
    }

    /// Reads the rules' counters and brings the metric up to date; `seen` is asked afterwards.
    pub(super) fn update(&mut self, seen: impl FnOnce() -> Seen) {
        let Ok(Some(reached)) = self.reached() else {
            // No hook of ours leads here, or it is being changed: there is nothing to compare with,
            // and the next one will count from zero.
            self.watch = None;
            self.account.rebase();
            return;
        };
        let lost = self.account.lost(reached, seen());
        self.uninspected.inc_by(lost);
    }

    fn reached(&mut self) -> Result<Option<u64>, HookError> {
        if self.watch.is_none() {
            self.watch = Some(Watch::find(self.variant, self.queues)?);
            self.account.rebase();
        }
        match &self.watch {
            Some(watch) if !watch.is_empty() => watch.counters().map(|counters| Some(counters.queued)),
            _ => Ok(None),
        }
    }
}

/// The arithmetic.
#[derive(Debug, Default)]
struct Account {
    /// Rule counters and the guard's own when both were first read together.
    base: Option<(u64, u64)>,
    /// The rules' counter when last read: a smaller one is a new hook's.
    last: u64,
    /// What has been reported since.
    reported: u64,
}

impl Account {
    fn rebase(&mut self) {
        *self = Self::default();
    }

    /// Packets newly known to be lost.
    fn lost(&mut self, reached: u64, seen: Seen) -> u64 {
        if reached < self.last {
            // The hook was made anew; its counters start again.
            self.rebase();
            return 0;
        }
        self.last = reached;
        let accounted = seen.received + seen.dropped;
        let (first_reached, first_accounted) = *self.base.get_or_insert((reached, accounted));
        let accounted = (accounted + seen.waiting).saturating_sub(first_accounted);
        let lost = (reached - first_reached).saturating_sub(accounted);
        let new = lost.saturating_sub(self.reported);
        self.reported += new;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(received: u64, waiting: u64, dropped: u64) -> Seen {
        Seen { received, waiting, dropped }
    }

    #[test]
    fn only_what_nobody_accounts_for_is_lost_and_each_packet_once() {
        let mut account = Account::default();
        assert_eq!(account.lost(1000, seen(50, 0, 0)), 0, "what was before is not ours");
        assert_eq!(account.lost(1010, seen(60, 0, 0)), 0);
        assert_eq!(account.lost(1030, seen(65, 10, 5)), 0, "waiting and dropped are accounted for");
        assert_eq!(account.lost(1040, seen(75, 0, 5)), 10);
        assert_eq!(account.lost(1040, seen(75, 0, 5)), 0);
        assert_eq!(account.lost(1050, seen(80, 0, 5)), 5);
    }

    #[test]
    fn late_readings_and_new_hooks_never_count_too_much() {
        let mut account = Account::default();
        account.lost(0, seen(0, 0, 0));
        assert_eq!(account.lost(10, seen(30, 0, 0)), 0, "received after the rules were read");
        assert_eq!(account.lost(40, seen(30, 0, 0)), 10);
        assert_eq!(account.lost(3, seen(33, 0, 0)), 0, "a new hook");
        assert_eq!(account.lost(5, seen(35, 0, 0)), 0);
        assert_eq!(account.lost(8, seen(35, 0, 0)), 3);
    }
}
