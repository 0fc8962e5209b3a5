//! The one loss that the kernel counts nowhere: packets that reached the hook's queue rule and went by
//! without inspection, because the queue or its socket was full under fail-open, or because nobody
//! listened between two runs.
//!
//! It is what the rules have counted, less what was received, what still waits and what was dropped.
//! The rules are read first and the rest afterwards, and each packet in hand counts as received before
//! the kernel takes it off the queue, so that packets that arrive meanwhile can make the number too small
//! for a moment, never too large. Where the rules can't be read, or lead elsewhere, the number is not
//! known, and then it is not shown. Reading them is the keeper's affair, who looks at the hook anyway.

use bannerwall_ffi::queue::KernelCounters;

use serde::{Deserialize, Serialize};

use super::config::GuardConfig;
use super::ledger::{Ledger, Previous};
use super::tally::Tally;
use crate::diagnostics::tell;
use crate::engine::OnFailure;
use crate::hook::{Family, HookConfig, Look, MarkField, Queues};
use crate::metrics::{GuardMetrics, Knowable, QueueDrop};

/// Compares the hook's counters with the guard's.
pub(super) struct Loss {
    queues: Queues,
    mark: MarkField,
    on_failure: OnFailure,
    metrics: GuardMetrics,
    uninspected: Knowable,
    account: AccountState,
    ledger: Ledger,
    /// Whether the hook was looked at before: the accounts of the last run are asked for once.
    is_open: bool,
    /// Why the number is not known, as it was told last.
    told: Option<Unknown>,
    /// Whether the hook led here at the last look; nothing before the first one.
    was_here: Option<bool>,
}

/// Why the hook's counters can't be compared with ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unknown {
    #[error("no hook leads packets to queue {0}; `bannerwall hook up` makes one")]
    NoHook(Queues),
    #[error("the hook that is up leads to queue {0}, and this guard serves queue {1}")]
    Elsewhere(Queues, Queues),
    #[error("{0}")]
    Unreadable(String),
    #[error(
        "this user may not read /proc/net/netfilter/nfnetlink_queue, nor can what the kernel drops be; \
         `chgrp` the file to a group of the user's before the guard starts"
    )]
    NoCounters,
}

/// What the guard's workers have seen, all together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) received: u64,
    pub(super) waiting: u64,
    pub(super) dropped: u64,
    /// Whether the kernel's counters could not be read: what waits and was dropped is not known.
    pub(super) is_blind: bool,
}

impl Seen {
    /// Adds one worker. The kernel is asked first: a packet that is received meanwhile is then accounted
    /// for twice, never not at all.
    pub(super) fn add(&mut self, queue: u16, tally: &Tally) {
        match KernelCounters::of(queue) {
            Ok(Some(kernel)) => {
                self.waiting += kernel.waiting;
                self.dropped += kernel.dropped_queue_full + kernel.dropped_socket_full;
            }
            Ok(None) => {
                // The queue was given back, and the kernel's counters went with it.
                let last = tally.latest().statistics;
                self.dropped += last.dropped_queue_full + last.dropped_socket_full;
            }
            Err(_) => self.is_blind = true,
        }
        self.received += tally.received();
    }
}

impl Loss {
    /// Accounts that go on where those of the last run were closed, if the same hook is still there.
    pub(super) fn new(config: &GuardConfig, metrics: &GuardMetrics) -> Self {
        Self {
            queues: config.queues,
            mark: config.mark,
            on_failure: config.on_failure,
            metrics: metrics.clone(),
            uninspected: metrics.uninspected_packets.clone(),
            account: AccountState::default(),
            ledger: Ledger::of(config.queues, config.user.as_ref()),
            is_open: false,
            told: None,
            was_here: None,
        }
    }

    /// Goes on with the accounts of the process that this one has taken over from; new ones where that had none.
    pub(super) fn going_on(mut self, account: Option<AccountState>) -> Self {
        self.is_open = true;
        self.account = account.unwrap_or_default();
        self.ledger.write(Previous::Open);
        self
    }

    /// The accounts, for the process that goes on; they stay open.
    pub(super) fn hand_over(&self) -> AccountState {
        self.account.clone()
    }

    /// The accounts, for a process that may never go on: they are closed besides, so that the next run begins where this
    /// one ends in any case. Nothing may be received any more.
    pub(super) fn leave(&mut self, look: &Look, seen: impl FnOnce() -> Seen) -> AccountState {
        self.close(look, seen);
        self.account.clone()
    }

    /// Brings the metric up to date with a look at the hook; `seen` is asked afterwards.
    pub(super) fn update(&mut self, look: &Look, seen: impl FnOnce() -> Seen) {
        let measured = self.measured(look, seen);
        self.uninspected.set_known(measured.is_ok());
        match &measured {
            Ok(_) => self.told = None,
            Err(unknown) if self.told.as_ref() != Some(unknown) => {
                tell(format_args!("bannerwall: packets that go by uninspected can't be counted: {unknown}"));
                self.told = Some(unknown.clone());
            }
            Err(_) => {}
        }
        let is_first = !std::mem::replace(&mut self.is_open, true);
        match measured {
            Ok((reached, seen)) if is_first => self.open(reached, seen),
            Ok((reached, seen)) => self.count(reached, seen),
            // The next run may be able to count, and must not take what this one inspects for lost.
            Err(Unknown::NoCounters) if is_first => self.ledger.write(Previous::Open),
            Err(_) => {}
        }
    }

    /// Closes the accounts, once the queues were given back: the next run begins where this one ends. A
    /// hook that was taken down at the end is no news.
    pub(super) fn close(&mut self, look: &Look, seen: impl FnOnce() -> Seen) {
        match self.measured(look, seen) {
            Ok((reached, seen)) => {
                self.count(reached, seen);
                self.ledger.write(Previous::Closed(reached));
            }
            Err(_) => self.ledger.remove(),
        }
    }

    /// Begins the accounts: what reached the hook since the last run closed its own belongs to nobody.
    fn open(&mut self, reached: u64, seen: Seen) {
        match self.ledger.read() {
            Some(Previous::Closed(last)) if last <= reached => {
                self.account.go_on_from(last);
                let missed = self.account.lost(reached, seen);
                self.count_gap(missed);
            }
            Some(Previous::Open) => {
                tell("bannerwall: the last run did not end cleanly: what went by since is not known");
                self.count(reached, seen);
            }
            _ => self.count(reached, seen),
        }
        self.ledger.write(Previous::Open);
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

    /// What the rules have counted, and what the guard accounts for, read after it.
    fn measured(&mut self, look: &Look, seen: impl FnOnce() -> Seen) -> Result<(u64, Seen), Unknown> {
        let reached = self.reached(look)?;
        let seen = seen();
        if seen.is_blind { Err(Unknown::NoCounters) } else { Ok((reached, seen)) }
    }

    /// What the rules that lead here have counted.
    fn reached(&mut self, look: &Look) -> Result<u64, Unknown> {
        let here = || look.hooks.iter().filter(|(_, hook, _)| hook.queues == self.queues);
        let reached = match (&look.unknown, here().next(), look.hooks.first()) {
            (Some(why), _, _) => Err(Unknown::Unreadable(why.clone())),
            (None, Some(_), _) => Ok(here().map(|(_, _, counters)| counters.queued).sum()),
            (None, None, Some((_, other, _))) => Err(Unknown::Elsewhere(other.queues, self.queues)),
            (None, None, None) => Err(Unknown::NoHook(self.queues)),
        };
        let was_here = self.was_here.replace(reached.is_ok());
        if was_here != Some(reached.is_ok()) {
            // What there was to compare with is gone, and the next hook counts from zero. What another process has left
            // goes with the hook that the first look finds.
            if was_here.is_some() || reached.is_err() {
                self.account.rebase();
            }
            for (family, hook, _) in look.hooks.iter().filter(|(_, hook, _)| hook.queues == self.queues) {
                self.tell_disagreement(*family, hook);
            }
        }
        reached
    }

    /// Tells where the hook was made with other options than this guard has.
    fn tell_disagreement(&self, family: Family, hook: &HookConfig) {
        if hook.mark != self.mark {
            tell(format_args!(
                "bannerwall: the hook ({family}) uses other bits of the mark than this guard: make both with the same --mark"
            ));
        }
        if hook.bypass != (self.on_failure == OnFailure::Open) {
            let mode = if hook.bypass { "open" } else { "closed" };
            tell(format_args!(
                "bannerwall: the hook ({family}) was made with --on-failure {mode}, this guard is not"
            ));
        }
    }
}

/// The arithmetic, which another process can go on with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccountState {
    /// Rule counters and the guard's own when both were first read together.
    base: Option<(u64, u64)>,
    /// The rules' counter when last read: a smaller one is a new hook's.
    last: u64,
    /// What has been reported since.
    reported: u64,
}

impl AccountState {
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
    use crate::hook::Counters;
    use crate::metrics::Registry;

    const fn seen(received: u64, waiting: u64, dropped: u64) -> Seen {
        Seen { received, waiting, dropped, is_blind: false }
    }

    /// Accounts of queue 0, with a ledger of their own.
    fn loss(folder: &tempfile::TempDir) -> Loss {
        let metrics = GuardMetrics::new(&Registry::new().unwrap()).unwrap();
        Loss {
            queues: "0".parse().unwrap(),
            mark: HookConfig::default().mark,
            on_failure: OnFailure::Open,
            uninspected: metrics.uninspected_packets.clone(),
            metrics,
            account: AccountState::default(),
            ledger: Ledger::at(folder.path().join("accounts")),
            is_open: false,
            told: None,
            was_here: None,
        }
    }

    /// A hook that has led so many packets to queue 0.
    fn led(queued: u64) -> Look {
        let hook = HookConfig { queues: "0".parse().unwrap(), ..HookConfig::default() };
        Look {
            hooks: vec![(Family::V4, hook, Counters { queued, ..Counters::default() })],
            ..Look::default()
        }
    }

    #[test]
    fn what_went_by_while_one_process_followed_another_is_counted_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = loss(&folder);
        first.update(&led(1000), || seen(50, 0, 0));
        first.update(&led(1020), || seen(60, 0, 0));
        assert_eq!(first.uninspected.get(), Some(10));
        for account in [first.hand_over(), first.leave(&led(1020), || seen(60, 0, 0))] {
            let mut next = loss(&folder).going_on(Some(account));
            assert_eq!(next.ledger.read(), Some(Previous::Open));
            next.update(&led(5020), || seen(1060, 0, 0));
            assert_eq!(next.uninspected.get(), Some(3000), "those before are counted already");
            // Another hook counts from zero.
            next.update(&Look::default(), || seen(1060, 0, 0));
            next.update(&led(9000), || seen(1060, 0, 0));
            assert_eq!(next.uninspected.get(), Some(3000));
        }
        // A hook that is gone meanwhile.
        let mut next = loss(&folder).going_on(Some(first.hand_over()));
        next.update(&Look::default(), || seen(60, 0, 0));
        next.update(&led(9000), || seen(60, 0, 0));
        assert_eq!(next.uninspected.get(), Some(0));
    }

    #[test]
    fn accounts_that_nobody_goes_on_with_are_closed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = loss(&folder);
        first.update(&led(1000), || seen(50, 0, 0));
        first.leave(&led(1010), || seen(60, 0, 0));
        assert_eq!(first.ledger.read(), Some(Previous::Closed(1010)));
        let mut later = loss(&folder);
        later.update(&led(1110), || seen(1, 0, 0));
        assert_eq!(later.uninspected.get(), Some(99));
    }

    #[test]
    fn what_reached_the_hook_between_two_runs_is_lost() {
        let mut account = AccountState::default();
        account.go_on_from(1000);
        assert_eq!(account.lost(1030, seen(5, 2, 0)), 23);
        assert_eq!(account.lost(1040, seen(17, 0, 0)), 0, "the rest was seen");
    }

    #[test]
    fn only_what_nobody_accounts_for_is_lost_and_each_packet_once() {
        let mut account = AccountState::default();
        assert_eq!(account.lost(1000, seen(50, 0, 0)), 0, "what was before is not ours");
        assert_eq!(account.lost(1010, seen(60, 0, 0)), 0);
        assert_eq!(account.lost(1030, seen(65, 10, 5)), 0, "waiting and dropped are accounted for");
        assert_eq!(account.lost(1040, seen(75, 0, 5)), 10);
        assert_eq!(account.lost(1040, seen(75, 0, 5)), 0);
        assert_eq!(account.lost(1050, seen(80, 0, 5)), 5);
    }

    #[test]
    fn late_readings_and_new_hooks_never_count_too_much() {
        let mut account = AccountState::default();
        account.lost(0, seen(0, 0, 0));
        assert_eq!(account.lost(10, seen(30, 0, 0)), 0, "received after the rules were read");
        assert_eq!(account.lost(40, seen(30, 0, 0)), 10);
        assert_eq!(account.lost(3, seen(33, 0, 0)), 0, "a new hook");
        assert_eq!(account.lost(5, seen(35, 0, 0)), 0);
        assert_eq!(account.lost(8, seen(35, 0, 0)), 3);
    }
}
