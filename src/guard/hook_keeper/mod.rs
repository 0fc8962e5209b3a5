//! The thread that manages the hook: sets it up, checks it, restores it, takes it down, and keeps the
//! accounts of the packets that it led to the guard.
//!
//! Only this thread runs iptables, so that neither packets nor signals wait for another program or its lock.
//! It has its own descriptor table, so that it can run programs when the rest of the process has no free
//! descriptor. If another process runs the programs, this thread holds the pipes to it.

mod keeper_message;
mod repair_delay;
mod report;
mod rule_change_watcher;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bannerwall_ffi::descriptors;
use bannerwall_ffi::queue::KernelCounters;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use self::keeper_message::{HookKeeperMessage, OwnQueue};
use self::repair_delay::RepairDelay;
pub(super) use self::report::HookReporter;
use self::rule_change_watcher::RuleChangeWatcher;
use super::GuardError;
use super::account_file::RunEnd;
use super::config::GuardConfig;
use super::uninspected::{AccountState, UninspectedCount, WorkerTotals};
use crate::bypass::{Bypass, BypassError, third_party_config};
use crate::diagnostics::log_line;
use crate::hook::{
    self, FamilyHookState, HookCheckResult, HookConfig, HookError, HookMonitor, HookUpResult, InstalledHook,
    IpFamily, IptablesScope, ProgramRunner,
};

/// Interval between checks of the rules if the kernel notifies of changes: a precaution.
const PRECAUTION: Duration = Duration::from_secs(5);
/// Interval between checks if there are no notifications: the legacy interface.
const UNTOLD: Duration = Duration::from_secs(1);
/// Interval between writes of the accounts and checks of the owner of the queues.
const RECORD: Duration = Duration::from_secs(1);
/// Time after a notification in which further changes are awaited: a reload of the rules causes many.
const SETTLE: Duration = Duration::from_millis(50);
/// Minimum time between two checks, however many changes there are.
const REST: Duration = Duration::from_millis(250);
/// Limit of the time to take the hook down: iptables waits up to five seconds for its lock, per address
/// family.
const PATIENCE: Duration = Duration::from_secs(12);

/// Number of consecutive checks that may fail before the bypass ends.
const PATIENT_LOOKS: u8 = 2;

/// Limit of the time for the last check, while packets wait for another process.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Returns the counters of all workers.
pub(super) type Seeing = Box<dyn Fn() -> WorkerTotals + Send>;

/// The handle of the thread. When it is dropped, the thread ends and leaves the hook as it is.
pub(super) struct HookKeeper {
    orders: Option<Sender<HookKeeperMessage>>,
    thread: Option<JoinHandle<()>>,
    bell: Option<RuleChangeWatcher>,
}

impl HookKeeper {
    /// Starts the thread. It checks a third-party hook at once, and the guard's own once it is up.
    pub(super) fn start(
        config: &GuardConfig,
        programs: ProgramRunner,
        bypass: Option<Arc<Bypass>>,
        reporter: HookReporter,
        loss: UninspectedCount,
        seeing: Seeing,
        queues: Vec<OwnQueue>,
    ) -> io::Result<Self> {
        let (sender, orders) = unbounded();
        // Without notifications (no CAP_NET_ADMIN, no nf_tables) there is still the check each second.
        let bell = RuleChangeWatcher::spawn(sender.clone()).ok();
        let scope = IptablesScope { variant: config.variant, families: config.families.clone(), programs };
        let keeping = HookKeeperState {
            bypass,
            unseen: 0,
            lookout: HookMonitor::new(scope.clone(), config.queues, config.hook.clone()),
            scope,
            hook: config.hook.clone(),
            repairs: config.hook.is_some() && config.hook_repair,
            is_told: bell.is_some(),
            // With a hook of this run, checks start once it is up.
            due: config.hook.is_none().then(Instant::now),
            looked: Instant::now(),
            repair_delay: RepairDelay::new(),
            reporter,
            loss,
            seeing,
            queues,
            recorded: Instant::now(),
            is_down: false,
            is_owed: false,
        };
        let run = move || keeping.run(&orders);
        let thread = std::thread::Builder::new().name("hook".to_owned()).spawn(run)?;
        Ok(Self { orders: Some(sender), thread: Some(thread), bell })
    }

    /// Sets the hook up. If that fails and `insists` is true, the thread retries later.
    ///
    /// # Errors
    ///
    /// As [`hook::up`], or another guard uses the hook.
    pub(super) fn set_up(&self, insists: bool) -> Result<(), GuardError> {
        let (sender, answer) = bounded(1);
        self.order(HookKeeperMessage::Raise(sender, insists));
        // The thread ends early only by a panic, which is already on stderr.
        answer.recv().unwrap_or(Err(GuardError::Hook(HookError::Unanswered)))
    }

    /// Starts to take the hook down. The receiver gets the result within [`PATIENCE`].
    pub(super) fn take_down(&self) -> Receiver<Result<(), HookError>> {
        let (sender, answer) = bounded(1);
        self.order(HookKeeperMessage::TakeDown(sender));
        answer
    }

    /// Closes the accounts after the queues were released, and ends the thread.
    pub(super) fn close(self, end: RunEnd) {
        self.order(HookKeeperMessage::Close(end));
    }

    /// Stops all checks, and returns the accounts for a successor; none if the thread hangs.
    pub(super) fn hand_over(&self) -> Option<AccountState> {
        let (sender, answer) = bounded(1);
        self.order(HookKeeperMessage::HandOver(sender));
        answer.recv_timeout(PATIENCE).ok()
    }

    /// Like [`HookKeeper::hand_over`], for a process that may never start, once no process reads packets any
    /// more. Packets wait during the call.
    pub(super) fn leave(&self) -> Option<AccountState> {
        let (sender, answer) = bounded(1);
        self.order(HookKeeperMessage::Leave(sender));
        answer.recv_timeout(LAST_LOOK).ok()
    }

    /// Returns the limit of the time for [`HookKeeper::take_down`].
    pub(super) const fn patience() -> Duration {
        PATIENCE
    }

    fn order(&self, order: HookKeeperMessage) {
        if let Some(orders) = &self.orders {
            // The thread of a keeper that has panicked drops the sender of the answer with the order.
            let _ = orders.send(order);
        }
    }
}

impl Drop for HookKeeper {
    fn drop(&mut self) {
        // The watcher holds a sender, too. Only without both does the thread's loop end.
        self.bell = None;
        self.orders = None;
        let Some(thread) = self.thread.take() else { return };
        // A thread that hangs in iptables ends with the process.
        let deadline = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // The panic is already on stderr.
            let _ = thread.join();
        }
    }
}

/// The state that the thread owns.
struct HookKeeperState {
    scope: IptablesScope,
    hook: Option<HookConfig>,
    lookout: HookMonitor,
    /// True if the thread restores the guard's own hook.
    repairs: bool,
    /// True if the kernel notifies of changes.
    is_told: bool,
    /// Time of the next check.
    due: Option<Instant>,
    looked: Instant,
    repair_delay: RepairDelay,
    reporter: HookReporter,
    loss: UninspectedCount,
    seeing: Seeing,
    queues: Vec<OwnQueue>,
    /// Time of the last write of the accounts.
    recorded: Instant,
    /// The bypass; absent if it is off.
    bypass: Option<Arc<Bypass>>,
    /// Number of consecutive checks that could not list the third-party rules which the bypass would skip.
    unseen: u8,
    /// True if an order took the hook down.
    is_down: bool,
    /// True if the hook could not be set up and must be.
    is_owed: bool,
}

impl HookKeeperState {
    fn run(mut self, orders: &Receiver<HookKeeperMessage>) {
        if let ProgramRunner::Here = self.scope.programs
            && let Err(error) = descriptors::keep_own()
        {
            log_line(format_args!(
                "bannerwall: iptables cannot be run when no descriptors are left: {error}"
            ));
        }
        loop {
            // Between two checks the thread wakes to write the accounts.
            let order = match self.due {
                Some(due) => orders.recv_deadline(due.min(self.recorded + RECORD)),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(HookKeeperMessage::Raise(answer, insists)) => {
                    let raised = self.raise();
                    if raised.is_err() && insists {
                        self.is_owed = true;
                        self.due = Some(Instant::now() + REST);
                    }
                    // The main thread waits for the answer.
                    let _ = answer.send(raised);
                }
                Ok(HookKeeperMessage::Changed) => {
                    // One change of rules causes many notifications. So the check waits until they have
                    // settled, and keeps a distance from the last one.
                    let soon = (Instant::now() + SETTLE).max(self.looked + REST);
                    self.due = self.due.map(|due| due.min(soon));
                }
                // After a timeout the receiver is gone.
                Ok(HookKeeperMessage::TakeDown(answer)) => drop(answer.send(self.take_down())),
                Ok(HookKeeperMessage::Close(end)) => return self.close(end),
                // After a timeout the receiver is gone.
                Ok(HookKeeperMessage::HandOver(answer)) => {
                    // The hook belongs to the successor from here on.
                    self.due = None;
                    drop(answer.send(self.loss.hand_over()));
                }
                // After a timeout the receiver is gone.
                Ok(HookKeeperMessage::Leave(answer)) => {
                    self.due = None;
                    drop(answer.send(self.loss.leave(&self.lookout.check(), &self.seeing)));
                }
                Err(RecvTimeoutError::Timeout) if self.due.is_none_or(|due| Instant::now() < due) => {
                    self.recorded = Instant::now();
                    self.loss.record(&self.seeing);
                    self.reporter.publish_queue_owner(&self.queues);
                }
                Err(RecvTimeoutError::Timeout) if self.is_owed => self.retry_set_up(),
                Err(RecvTimeoutError::Timeout) => self.check(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn raise(&mut self) -> Result<(), GuardError> {
        if let Some(hook) = &self.hook {
            // Before any change, which would take the hook away from another running guard.
            check_other_guards(hook, &self.scope)?;
            hook::up(hook, self.scope.clone())?;
        }
        self.check();
        Ok(())
    }

    /// Sets up the hook that could not be set up at first, even if a hook removed later is not restored.
    fn retry_set_up(&mut self) {
        match self.raise() {
            Ok(()) => self.is_owed = false,
            Err(error) => {
                self.reporter.report_failure(&error);
                self.check();
                self.due = self.due.map(|due| due.min(Instant::now() + UNTOLD));
            }
        }
    }

    fn take_down(&mut self) -> Result<(), HookError> {
        self.due = None;
        self.is_owed = false;
        // The counters of the rules disappear with the hook.
        let look = self.lookout.check();
        self.loss.update(&look, &self.seeing);
        hook::down(self.scope.clone())?;
        self.is_down = true;
        Ok(())
    }

    fn close(mut self, end: RunEnd) {
        // A hook that was taken down has no counters, and its last ones are accounted for.
        let look = if self.is_down { HookCheckResult::default() } else { self.lookout.check() };
        self.loss.close(&look, &self.seeing, end);
    }

    /// Checks the hook once, restores it if needed, and reports changes.
    fn check(&mut self) {
        let mut look = self.lookout.check();
        self.looked = Instant::now();
        self.recorded = self.looked;
        self.loss.update(&look, &self.seeing);
        self.reporter.publish_queue_owner(&self.queues);
        self.reporter.report_changes(&look);
        let mut next = if look.has_legacy || !self.is_told { UNTOLD } else { PRECAUTION };
        // A hook that leads to a queue with a listener was made on purpose. Two guards would replace each
        // other's hook for ever.
        if !look.is_sound() && look.unknown.is_none() && self.repairs && !led_to_a_listener(&look) {
            match self.repair_delay.wait(self.looked) {
                None => {
                    look = self.restore(look);
                    next = REST;
                }
                Some(wait) => {
                    self.reporter.report_backoff(wait);
                    next = wait;
                }
            }
        }
        self.reporter.publish_state(&look);
        if look.families.is_empty() && look.unknown.is_none() {
            self.reporter.publish_missing_hook(&self.scope.families, (self.seeing)().received > 0);
        }
        self.watch_bypass();
        self.due = Some(self.looked + next);
    }

    /// Ends the bypass if it would skip rules that other programs have set up since the start.
    fn watch_bypass(&mut self) {
        let Some(bypass) = &self.bypass else { return };
        let why = match third_party_config::find_third_party(&self.scope.programs, bypass.interfaces()) {
            Ok(found) if found.is_empty() => {
                self.unseen = 0;
                return;
            }
            Ok(found) => BypassError::Neighbours(found),
            // Rules that change during the read are unreadable, but need not contain anything new.
            Err(_) if self.unseen < PATIENT_LOOKS => {
                self.unseen += 1;
                return;
            }
            Err(why) => BypassError::Blind(why),
        };
        bypass.detach();
        self.bypass = None;
        self.reporter.bypass_ended(&why);
    }

    fn restore(&mut self, look: HookCheckResult) -> HookCheckResult {
        // Counted before its result is known, so that failing attempts slow down, too.
        self.repair_delay.record_repair(self.looked);
        match self.lookout.restore() {
            Ok(HookUpResult::Unchanged) => self.lookout.check(),
            Ok(HookUpResult::Replaced | HookUpResult::Created) => {
                self.reporter.restored();
                self.lookout.check()
            }
            Err(error) => {
                self.reporter.report_failure(&error);
                look
            }
        }
    }
}

/// True if an address family leads to a queue that another program serves: such a change is intended.
fn led_to_a_listener(look: &HookCheckResult) -> bool {
    let mut queues = look.families.iter().filter_map(|(_, standing)| match standing {
        FamilyHookState::LedAway(queues) => Some(queues.numbers()),
        _ => None,
    });
    queues.any(|mut numbers| numbers.any(may_be_served))
}

/// True if a process listens on a queue, or if that is unknown.
fn may_be_served(queue: u16) -> bool {
    !matches!(KernelCounters::of(queue), Ok(None))
}

/// Checks that the hook does not lead to the queues of a live guard, which would lose its packets if the hook
/// were changed.
fn check_other_guards(hook: &HookConfig, scope: &IptablesScope) -> Result<(), GuardError> {
    let mut found: Vec<IpFamily> = Vec::new();
    for place in hook::status(scope.clone())? {
        let InstalledHook::Complete(there, _) = place.installed else { continue };
        let mut others = there.queues.numbers().filter(|queue| !hook.queues.numbers().contains(queue));
        if let Some(queue) = others.find(|queue| may_be_served(*queue)) {
            return Err(match KernelCounters::of(queue) {
                Ok(_) => GuardError::HookInUse(queue),
                Err(why) => GuardError::HookPerhapsInUse(queue, why),
            });
        }
        found.push(place.family);
    }
    if !found.is_empty() {
        let families: Vec<String> = found.iter().map(ToString::to_string).collect();
        log_line(format_args!(
            "bannerwall: a hook was up already ({}): this guard uses it",
            families.join(", ")
        ));
    }
    Ok(())
}
