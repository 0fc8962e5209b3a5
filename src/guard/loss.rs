//! The one loss that the kernel counts nowhere: packets that reached the hook's queue rule and went by
//! without inspection, because the queue or its socket was full under fail-open, or because nobody
//! listened between two runs.
//!
//! It is what the rules have counted, less what was received, what still waits and what was dropped.
//! The rules are read first and the rest afterwards, and each packet in hand counts as received before
//! the kernel takes it off the queue, so that packets that arrive meanwhile can make the number too small
//! for a moment, never too large. Where the rules can't be read, or lead elsewhere, the number is not
//! known, and then it is not shown.

use bannerwall_ffi::queue::KernelCounters;

use super::ledger::{Ledger, Previous};
use super::tally::Tally;
use crate::diagnostics::tell;
use crate::engine::OnFailure;
use crate::hook::{self, HookError, Installed, MarkField, Queues, Variant, Watch};
use crate::metrics::{GuardMetrics, Knowable, QueueDrop};

/// Compares the hook's counters with the guard's.
pub(super) struct Loss {
    hook: Sought,
    on_failure: OnFailure,
    metrics: GuardMetrics,
    uninspected: Knowable,
    watch: Option<Watch>,
    account: Account,
    ledger: Ledger,
    /// Why the number is not known, as it was told last.
    told: Option<String>,
}

/// The hook that leads packets here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought {
    pub(super) variant: Variant,
    pub(super) queues: Queues,
    pub(super) mark: MarkField,
}

/// Why the hook's counters can't be compared with ours.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error("no hook leads packets to queue {0}; `bannerwall hook up` makes one")]
    NoHook(Queues),
    #[error("the hook that is up leads to queue {0}, and this guard serves queue {1}")]
    Elsewhere(Queues, Queues),
    #[error(transparent)]
    Unreadable(#[from] HookError),
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
    pub(super) fn add(&mut self, queue: u16, tally: &Tally) {
        if let Ok(Some(kernel)) = KernelCounters::of(queue) {
            self.waiting += kernel.waiting;
            self.dropped += kernel.dropped_queue_full + kernel.dropped_socket_full;
        } else {
            // The queue was given back, and the kernel's counters went with it.
            let last = tally.latest().statistics;
            self.dropped += last.dropped_queue_full + last.dropped_socket_full;
        }
        self.received += tally.received();
    }
}

impl Loss {
    /// Accounts that go on where those of the last run were closed, if the same hook is still there.
    pub(super) fn new(hook: Sought, on_failure: OnFailure, metrics: &GuardMetrics) -> Self {
        Self {
            hook,
            on_failure,
            metrics: metrics.clone(),
            uninspected: metrics.uninspected_packets.clone(),
            watch: None,
            account: Account::default(),
            ledger: Ledger::of(hook.queues),
            told: None,
        }
    }

    /// Begins the accounts: what reached the hook since the last run closed its own belongs to nobody.
    pub(super) fn open(&mut self, seen: impl FnOnce() -> Seen) {
        let previous = self.ledger.read();
        let Some(reached) = self.reached() else { return };
        match previous {
            Some(Previous::Closed(last)) if last <= reached => {
                self.account.go_on_from(last);
                let missed = self.account.lost(reached, seen());
                self.count_gap(missed);
            }
            Some(Previous::Open) => {
                tell("bannerwall: the last run did not end cleanly: what went by since is not known");
                self.count(reached, seen());
            }
            _ => self.count(reached, seen()),
        }
        self.ledger.write(Previous::Open);
    }

    /// Reads the rules' counters and brings the metric up to date; `seen` is asked afterwards.
    pub(super) fn update(&mut self, seen: impl FnOnce() -> Seen) {
        if let Some(reached) = self.reached() {
            self.count(reached, seen());
        }
    }

    /// Closes the accounts, once the queues were given back: the next run begins where this one ends.
    pub(super) fn close(&mut self, seen: impl FnOnce() -> Seen) {
        // A hook that was taken down at the end is no news.
        let reached = self.look().ok();
        match reached {
            Some(reached) => {
                self.count(reached, seen());
                self.ledger.write(Previous::Closed(reached));
            }
            None => self.ledger.remove(),
        }
    }

    fn count(&mut self, reached: u64, seen: Seen) {
        let lost = self.account.lost(reached, seen);
        self.uninspected.inc_by(lost);
    }

    /// Counts what reached the hook while nobody listened: it went by, or was dropped under `closed`.
    fn count_gap(&self, missed: u64) {
        if missed == 0 {
            return;
        }
        let fate = match self.on_failure {
            OnFailure::Open => {
                self.uninspected.inc_by(missed);
                "went by uninspected"
            }
            OnFailure::Closed => {
                self.metrics.queue_dropped(QueueDrop::NoListener).inc_by(missed);
                "were dropped"
            }
        };
        tell(format_args!("bannerwall: {missed} packets {fate} between the last run and this one"));
    }

    /// What the rules have counted; none where that is not known, which is told once.
    fn reached(&mut self) -> Option<u64> {
        let reached = self.look();
        self.uninspected.set_known(reached.is_ok());
        match reached {
            Ok(reached) => {
                self.told = None;
                Some(reached)
            }
            Err(unknown) => {
                let why = unknown.to_string();
                if self.told.as_ref() != Some(&why) {
                    tell(format_args!("bannerwall: packets that go by uninspected can't be counted: {why}"));
                    self.told = Some(why);
                }
                None
            }
        }
    }

    fn look(&mut self) -> Result<u64, Unknown> {
        let reached = self.read();
        if reached.is_err() {
            // There is nothing to compare with, and the next hook will count from zero.
            self.watch = None;
            self.account.rebase();
        }
        reached
    }

    fn read(&mut self) -> Result<u64, Unknown> {
        if self.watch.is_none() {
            let watch = Watch::find(self.hook.variant, self.hook.queues)?;
            if watch.is_empty() {
                return Err(self.hook.elsewhere()?);
            }
            self.hook.tell_disagreement(self.on_failure)?;
            self.watch = Some(watch);
            self.account.rebase();
        }
        let Some(watch) = &self.watch else { return Err(Unknown::NoHook(self.hook.queues)) };
        Ok(watch.counters()?.queued)
    }
}

impl Sought {
    /// Why no hook leads here: there is none, or it leads elsewhere.
    fn elsewhere(&self) -> Result<Unknown, HookError> {
        let places = hook::status(self.variant)?;
        let other = places.iter().find_map(|place| match &place.installed {
            Installed::Complete(there, _) => Some(there.queues),
            _ => None,
        });
        Ok(other.map_or(Unknown::NoHook(self.queues), |other| Unknown::Elsewhere(other, self.queues)))
    }

    /// Tells where the hook was made with other options than this guard has.
    fn tell_disagreement(&self, on_failure: OnFailure) -> Result<(), HookError> {
        for place in hook::status(self.variant)? {
            let Installed::Complete(there, _) = &place.installed else { continue };
            if there.queues != self.queues {
                continue;
            }
            if there.mark != self.mark {
                tell(format_args!(
                    "bannerwall: the hook ({}) uses other bits of the mark than this guard: make both with the same --mark",
                    place.family
                ));
            }
            if there.bypass != (on_failure == OnFailure::Open) {
                tell(format_args!(
                    "bannerwall: the hook ({}) was made with --on-failure {}, this guard is not",
                    place.family,
                    if there.bypass { "open" } else { "closed" }
                ));
            }
        }
        Ok(())
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

    /// Begins with the rules' counter as the last run left it, and with nothing seen since.
    fn go_on_from(&mut self, reached: u64) {
        *self = Self { base: Some((reached, 0)), last: reached, reported: 0 };
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
    fn what_reached_the_hook_between_two_runs_is_lost() {
        let mut account = Account::default();
        account.go_on_from(1000);
        assert_eq!(account.lost(1030, seen(5, 2, 0)), 23);
        assert_eq!(account.lost(1040, seen(17, 0, 0)), 0, "the rest was seen");
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
