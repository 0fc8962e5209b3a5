//! Count of the packets that passed without inspection, which the kernel does not count: because the queue or
//! its socket was full under fail-open, because nobody listened between two runs, or because rules before the
//! jump of the hook accepted them.
//!
//! The count is the rules' counters, minus the packets that were received, that still wait or that were
//! dropped. The rules are read first and the rest afterwards, and a packet counts as received before the
//! kernel takes it off the queue. So packets that arrive during the reads can make the count too small for a
//! moment, but never too large. If the rules cannot be read, or lead to another queue, the count is unknown
//! and is not shown. The keeper of the hook reads the rules, since it checks the hook anyway.
//!
//! The ledger holds the accounts of the last second. After a kill the next run continues from them. Packets
//! that the killed run inspected in its last second then count as passed, unless its queues live on and keep
//! their packet numbers.

use bannerwall_ffi::queue::KernelCounters;

use serde::{Deserialize, Serialize};

use super::account_file::{AccountFile, AccountRecord, RunEnd};
use super::config::GuardConfig;
use super::worker_counts::SharedWorkerCounts;
use crate::diagnostics::log_line;
use crate::engine::OnFailure;
use crate::hook::{HookCheckResult, HookConfig, HookCounters, IpFamily, MarkField, QueueRange};
use crate::metrics::{GuardMetrics, OptionalCounter, QueueDrop};

/// Compares the counters of the hook with those of the guard.
pub(super) struct UninspectedCount {
    queues: QueueRange,
    mark: MarkField,
    on_failure: OnFailure,
    metrics: GuardMetrics,
    uninspected: OptionalCounter,
    account: AccountState,
    ledger: AccountFile,
    /// The accounts of the last run, until the first successful read of the hook.
    previous: Option<AccountRecord>,
    /// True if this run took over the queues of the last one, whose accounts then end there.
    has_queues_of_previous: bool,
    /// The last reported reason why the count is unknown.
    told: Option<CountUnknownReason>,
    /// True if the hook led to these queues at the last read; absent before the first read.
    was_here: Option<bool>,
}

/// The reason why the counters of the hook cannot be compared with those of the guard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum CountUnknownReason {
    #[error("no hook leads packets to queue {0}; run `bannerwall hook up`")]
    NoHook(QueueRange),
    #[error("the hook that is up leads to queue {0}, and this guard serves queue {1}")]
    Elsewhere(QueueRange, QueueRange),
    #[error("{0}")]
    Unreadable(String),
    #[error(
        "this user cannot read /proc/net/netfilter/nfnetlink_queue, which counts the kernel's drops; \
         `chgrp` the file to a group of this user before the guard starts"
    )]
    NoCounters,
}

/// Sum of the counters of all workers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WorkerTotals {
    pub(super) received: u64,
    pub(super) waiting: u64,
    pub(super) dropped: u64,
    /// Sum of the kernel's sequence numbers of the last packet in each queue.
    pub(super) enqueued: u32,
    /// True if the kernel's counters were unreadable: then the waiting and dropped packets are unknown.
    pub(super) is_blind: bool,
}

impl WorkerTotals {
    /// Adds the counters of one worker. The kernel is read first: a packet that is received between the reads
    /// then counts twice, but is never missed.
    pub(super) fn add(&mut self, queue: u16, tally: &SharedWorkerCounts) {
        // A failed read makes the whole sum unknown. A sum without one queue would report its packets as
        // lost.
        match KernelCounters::of(queue) {
            Ok(Some(kernel)) => {
                self.waiting += kernel.waiting;
                self.enqueued = self.enqueued.wrapping_add(kernel.last_packet);
                self.dropped += kernel.dropped_queue_full + kernel.dropped_socket_full;
            }
            Ok(None) => {
                // The queue was released, and the kernel's counters with it.
                let last = tally.latest().statistics;
                self.dropped += last.dropped_queue_full + last.dropped_socket_full;
            }
            Err(_) => self.is_blind = true,
        }
        self.received += tally.received();
    }
}

impl UninspectedCount {
    /// Returns accounts that continue those of the last run.
    pub(super) fn new(config: &GuardConfig, metrics: &GuardMetrics) -> Self {
        let ledger = AccountFile::of(config.queues, config.user.as_ref());
        Self::with(config.queues, config.mark, config.engine().on_failure, metrics, ledger)
    }

    fn with(
        queues: QueueRange,
        mark: MarkField,
        on_failure: OnFailure,
        metrics: &GuardMetrics,
        ledger: AccountFile,
    ) -> Self {
        Self {
            queues,
            mark,
            on_failure,
            metrics: metrics.clone(),
            uninspected: metrics.uninspected_packets.clone(),
            account: AccountState::default(),
            previous: ledger.read(),
            ledger,
            has_queues_of_previous: false,
            told: None,
            was_here: None,
        }
    }

    /// Continues with the queues of another process: with its accounts, or with the ledger if it handed none
    /// over.
    pub(super) fn resume(mut self, account: Option<AccountState>) -> Self {
        self.has_queues_of_previous = true;
        if let Some(account) = account {
            self.account = account;
            self.previous = None;
        }
        self
    }

    /// Adds the counts of earlier runs, unless another process has handed its counters over.
    pub(super) fn start(&mut self) {
        let Some(previous) = &mut self.previous else { return };
        if previous.end != RunEnd::Stopped {
            previous.failed_runs += 1;
        }
        if previous.end == RunEnd::Open {
            log_line("bannerwall: the last run did not stop cleanly: its counts may be a second old");
        }
        self.uninspected.inc_by(previous.uninspected);
        self.metrics.queue_dropped(QueueDrop::NoListener).inc_by(previous.dropped);
        self.metrics.failed_runs.inc_by(previous.failed_runs);
    }

    /// Returns the accounts for a successor. They stay open.
    pub(super) fn hand_over(&self) -> AccountState {
        self.account.clone()
    }

    /// Returns the accounts for a successor that may never start. They are also closed, so that the next run
    /// starts from the end of this one in any case. Nothing may be received any more.
    pub(super) fn leave(&mut self, look: &HookCheckResult, seen: impl Fn() -> WorkerTotals) -> AccountState {
        self.close(look, seen, RunEnd::Stopped);
        self.account.clone()
    }

    /// Updates the metric after a read of the hook. `seen` is called afterwards.
    pub(super) fn update(&mut self, look: &HookCheckResult, seen: impl Fn() -> WorkerTotals) {
        let measured = self.measured(look, &seen);
        self.uninspected.set_known(measured.is_ok());
        match &measured {
            Ok(_) => self.told = None,
            Err(unknown) if self.told.as_ref() != Some(unknown) => {
                log_line(format_args!("bannerwall: cannot count uninspected packets: {unknown}"));
                self.told = Some(unknown.clone());
            }
            Err(_) => {}
        }
        if let Ok((reached, seen)) = measured {
            self.settle(reached, seen);
            let skipped =
                self.account.skipped(self.hooks_here(look).map(|(_, _, counters)| counters.skipped).sum());
            self.uninspected.inc_by(skipped);
        }
        self.record(seen);
    }

    /// Writes the accounts without a read of the hook.
    pub(super) fn record(&self, seen: impl Fn() -> WorkerTotals) {
        self.write(RunEnd::Open, self.account.settled(seen()), seen());
    }

    /// Closes the accounts after the queues were released: the next run starts from the end of this one. A
    /// hook that was taken down at the end is not reported.
    pub(super) fn close(&mut self, look: &HookCheckResult, seen: impl Fn() -> WorkerTotals, end: RunEnd) {
        // Without a known count, `settled` stays unknown and the next run starts a new comparison.
        let settled = self.measured(look, &seen).ok().map(|(reached, seen)| {
            self.settle(reached, seen);
            reached
        });
        self.write(end, settled, seen());
    }

    fn write(&self, end: RunEnd, settled: Option<u64>, seen: WorkerTotals) {
        self.ledger.write(&AccountRecord {
            end,
            settled,
            waiting: seen.waiting,
            enqueued: seen.enqueued,
            uninspected: self.uninspected.count(),
            dropped: self.metrics.queue_dropped(QueueDrop::NoListener).get(),
            failed_runs: self.metrics.failed_runs.get(),
        });
    }

    /// Counts newly lost packets; at first those that reached the hook since the accounts of the last run.
    fn settle(&mut self, reached: u64, seen: WorkerTotals) {
        let previous = self.previous.take();
        // That run's settled packets are among those that the rules have counted. If they are more, the hook
        // was made again since.
        let previous = previous.filter(|previous| previous.settled.is_some_and(|settled| settled <= reached));
        let Some((previous, settled)) = previous.and_then(|previous| Some((previous, previous.settled?)))
        else {
            let lost = self.account.lost(reached, seen);
            self.uninspected.inc_by(lost);
            return;
        };
        // The kernel's packet numbers are 32 bits wide and wrap around.
        let enqueued = seen.enqueued.wrapping_sub(previous.enqueued);
        // A queue that is bound again numbers its packets from 0.
        let missed = if self.has_queues_of_previous && enqueued <= u32::MAX / 2 {
            // The first call only sets the basis of later differences.
            self.account.lost(reached, seen);
            reached.saturating_sub(settled + previous.waiting + u64::from(enqueued))
        } else {
            self.account.go_on_from(settled);
            self.account.lost(reached, seen)
        };
        self.count_gap(missed);
    }

    /// Counts the packets that reached the hook between two runs. They passed, or were dropped under
    /// `closed`.
    fn count_gap(&self, missed: u64) {
        if missed == 0 {
            return;
        }
        let fate = match self.on_failure {
            OnFailure::Open => {
                self.uninspected.inc_by(missed);
                "passed uninspected"
            }
            OnFailure::Closed => {
                self.metrics.queue_dropped(QueueDrop::NoListener).inc_by(missed);
                "were dropped"
            }
        };
        log_line(format_args!("bannerwall: packets that {fate} between the last run and this one: {missed}"));
    }

    /// Returns the rules' count, and the guard's counters, read after it.
    fn measured(
        &mut self,
        look: &HookCheckResult,
        seen: impl Fn() -> WorkerTotals,
    ) -> Result<(u64, WorkerTotals), CountUnknownReason> {
        let reached = self.reached(look)?;
        let seen = seen();
        if seen.is_blind { Err(CountUnknownReason::NoCounters) } else { Ok((reached, seen)) }
    }

    /// Returns the hooks that lead to these queues.
    fn hooks_here<'a>(
        &self,
        look: &'a HookCheckResult,
    ) -> impl Iterator<Item = &'a (IpFamily, HookConfig, HookCounters)> {
        let queues = self.queues;
        look.hooks.iter().filter(move |(_, hook, _)| hook.queues == queues)
    }

    /// Returns the count of the rules that lead to these queues.
    fn reached(&mut self, look: &HookCheckResult) -> Result<u64, CountUnknownReason> {
        let reached = match (&look.unknown, self.hooks_here(look).next(), look.hooks.first()) {
            (Some(why), _, _) => Err(CountUnknownReason::Unreadable(why.clone())),
            (None, Some(_), _) => Ok(self.hooks_here(look).map(|(_, _, counters)| counters.queued).sum()),
            (None, None, Some((_, other, _))) => {
                Err(CountUnknownReason::Elsewhere(other.queues, self.queues))
            }
            (None, None, None) => Err(CountUnknownReason::NoHook(self.queues)),
        };
        let was_here = self.was_here.replace(reached.is_ok());
        if was_here != Some(reached.is_ok()) {
            // The basis of the comparison is gone, and the next hook counts from zero. Accounts of another
            // process belong to the hook that the first read finds.
            if was_here.is_some() || reached.is_err() {
                self.account.rebase();
            }
            for (family, hook, _) in self.hooks_here(look) {
                self.warn_option_mismatch(*family, hook);
            }
        }
        reached
    }

    /// Warns if the hook was made with other options than this guard has.
    fn warn_option_mismatch(&self, family: IpFamily, hook: &HookConfig) {
        if hook.mark != self.mark {
            log_line(format_args!(
                "bannerwall: the hook ({family}) uses other bits of the mark than this guard: pass the \
                 same --mark to both"
            ));
        }
        if hook.bypass != (self.on_failure == OnFailure::Open) {
            let mode = if hook.bypass { "open" } else { "closed" };
            log_line(format_args!(
                "bannerwall: the hook ({family}) has --on-failure {mode}, but this guard does not: pass \
                 the same to both"
            ));
        }
    }
}

/// The state of the count, which a successor can continue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccountState {
    /// The rules' counter and the guard's counter, at the first time that both were read.
    base: Option<(u64, u64)>,
    /// The rules' counter at the last read. A smaller one belongs to a new hook.
    last: u64,
    /// Number of lost packets reported since then.
    reported: u64,
    /// Number of packets that rules before the jump had accepted at the last read.
    #[serde(default)]
    skipped: Option<u64>,
}

impl AccountState {
    fn rebase(&mut self) {
        *self = Self::default();
    }

    /// Starts from the rules' counter at the end of the last run.
    fn go_on_from(&mut self, reached: u64) {
        *self = Self { base: Some((reached, 0)), last: reached, ..Self::default() };
    }

    /// Returns how many of the packets that the rules counted are accounted for, without those that wait.
    fn settled(&self, seen: WorkerTotals) -> Option<u64> {
        let (first_reached, first_accounted) = self.base?;
        let accounted = (seen.received + seen.dropped).saturating_sub(first_accounted);
        Some(first_reached + accounted + self.reported).filter(|_| !seen.is_blind)
    }

    /// Returns the number of packets that rules before the jump accepted since the last read. A counter that
    /// decreased was reset.
    fn skipped(&mut self, now: u64) -> u64 {
        // The first read has nothing to compare with: packets before it were not this run's to count.
        let last = self.skipped.replace(now).unwrap_or(now);
        if now < last { now } else { now - last }
    }

    /// Returns the number of newly lost packets.
    fn lost(&mut self, reached: u64, seen: WorkerTotals) -> u64 {
        if reached < self.last {
            // The hook was made again, and its counters restarted.
            self.rebase();
            return 0;
        }
        self.last = reached;
        let accounted = seen.received + seen.dropped;
        // Rules and queues are read one after the other, so only differences to a common start are compared.
        let (first_reached, first_accounted) = *self.base.get_or_insert((reached, accounted + seen.waiting));
        let accounted = (accounted + seen.waiting).saturating_sub(first_accounted);
        let lost = (reached - first_reached).saturating_sub(accounted);
        // A packet that the reads have seen at different moments can make the loss shrink again. A counter
        // must not, so only what exceeds the reported number is added.
        let new = lost.saturating_sub(self.reported);
        self.reported += new;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsRegistry;

    const fn seen(received: u64, waiting: u64, dropped: u64) -> WorkerTotals {
        WorkerTotals { received, waiting, dropped, enqueued: 0, is_blind: false }
    }

    /// Accounts of queue 0, with a ledger of their own.
    fn loss(folder: &tempfile::TempDir) -> UninspectedCount {
        let metrics = GuardMetrics::new(&MetricsRegistry::new().unwrap()).unwrap();
        let ledger = AccountFile::at(folder.path().join("accounts"));
        UninspectedCount::with(
            "0".parse().unwrap(),
            HookConfig::default().mark,
            OnFailure::Open,
            &metrics,
            ledger,
        )
    }

    /// A hook that has led so many packets to queue 0.
    fn led(queued: u64) -> HookCheckResult {
        let hook = HookConfig { queues: "0".parse().unwrap(), ..HookConfig::default() };
        HookCheckResult {
            hooks: vec![(IpFamily::V4, hook, HookCounters { queued, ..HookCounters::default() })],
            ..HookCheckResult::default()
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
            let mut next = loss(&folder).resume(Some(account));
            next.start();
            next.update(&led(5020), || seen(1060, 0, 0));
            assert_eq!(next.ledger.read().map(|entry| entry.end), Some(RunEnd::Open));
            assert_eq!(next.uninspected.get(), Some(3000), "those before are counted already");
            // Another hook counts from zero.
            next.update(&HookCheckResult::default(), || seen(1060, 0, 0));
            next.update(&led(9000), || seen(1060, 0, 0));
            assert_eq!(next.uninspected.get(), Some(3000));
        }
        // A hook that is gone meanwhile.
        let mut next = loss(&folder).resume(Some(first.hand_over()));
        next.update(&HookCheckResult::default(), || seen(60, 0, 0));
        next.update(&led(9000), || seen(60, 0, 0));
        assert_eq!(next.uninspected.get(), Some(0));
    }

    #[test]
    fn accounts_that_nobody_goes_on_with_are_closed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = loss(&folder);
        first.update(&led(1000), || seen(50, 0, 0));
        first.leave(&led(1010), || seen(60, 0, 0));
        let entry = first.ledger.read().unwrap();
        assert_eq!((entry.end, entry.settled), (RunEnd::Stopped, Some(1010)));
        let mut later = loss(&folder);
        later.start();
        later.update(&led(1110), || seen(1, 0, 0));
        assert_eq!((later.uninspected.get(), later.metrics.failed_runs.get()), (Some(99), 0));
    }

    #[test]
    fn a_killed_run_is_counted_from_its_last_second_on_and_so_is_what_each_killed_run_missed() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = loss(&folder);
        first.start();
        first.update(&led(1000), || seen(50, 0, 0));
        // A second later, without a look at the hook.
        first.record(|| seen(250, 7, 0));
        let mut next = loss(&folder);
        next.start();
        next.update(&led(1700), || seen(20, 0, 0));
        assert_eq!(next.uninspected.get(), Some(480), "500 came since, of which 20 were seen");
        next.record(|| seen(30, 0, 0));
        let mut last = loss(&folder);
        last.start();
        last.update(&led(1720), || seen(0, 0, 0));
        assert_eq!((last.uninspected.get(), last.metrics.failed_runs.get()), (Some(490), 2));
        last.close(&led(1720), || seen(0, 0, 0), RunEnd::Failed);
        let mut after = loss(&folder);
        after.start();
        after.update(&led(1720), || seen(0, 0, 0));
        assert_eq!((after.uninspected.get(), after.metrics.failed_runs.get()), (Some(490), 3));
    }

    #[test]
    fn queues_that_outlive_a_killed_run_tell_how_much_it_has_inspected() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = loss(&folder);
        first.update(&led(1000), || WorkerTotals { enqueued: u32::MAX, ..seen(50, 0, 0) });
        first.record(|| WorkerTotals { enqueued: 99, ..seen(140, 10, 0) });
        // Killed when 50 more were inspected; 60 have waited since, and 5 did not fit.
        let mut next = loss(&folder).resume(None);
        next.start();
        next.update(&led(1215), || WorkerTotals { enqueued: 209, ..seen(40, 20, 0) });
        assert_eq!(next.uninspected.get(), Some(5));
        next.update(&led(1235), || WorkerTotals { enqueued: 229, ..seen(80, 0, 0) });
        assert_eq!(next.uninspected.get(), Some(5));
    }

    #[test]
    fn packets_that_rules_before_the_jump_let_pass_are_uninspected() {
        let folder = tempfile::tempdir().unwrap();
        let mut loss = loss(&folder);
        let look = |skipped| {
            let mut look = led(1000);
            look.hooks.iter_mut().for_each(|(_, _, counters)| counters.skipped = skipped);
            look
        };
        for (skipped, uninspected) in [(100, 0), (130, 30), (0, 30), (4, 34)] {
            loss.update(&look(skipped), || seen(0, 0, 0));
            assert_eq!(loss.uninspected.get(), Some(uninspected));
        }
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
