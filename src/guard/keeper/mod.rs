//! The thread that keeps the hook: puts it up, looks after it, puts it back, takes it down, and keeps the
//! accounts of what it has led to the guard.
//!
//! It alone runs iptables, so that neither packets nor signals ever wait for another program or its lock,
//! and it has a descriptor table of its own, so that it can run programs when the rest of the process has
//! no descriptor left; where another process runs them, it has the pipes to that one.

mod bell;
mod report;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bannerwall_ffi::descriptors;
use bannerwall_ffi::queue::KernelCounters;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use self::bell::Bell;
pub(super) use self::report::Reporter;
use super::GuardError;
use super::config::GuardConfig;
use super::ledger::RunEnd;
use super::loss::{AccountState, Loss, Seen};
use crate::bypass::{Bypass, BypassError, neighbours};
use crate::diagnostics::tell;
use crate::hook::{
    self, Family, HookConfig, HookError, Installed, Look, Lookout, Programs, Scope, Standing, Up,
};
use crate::terms::Backoff;

/// Interval at which the rules are looked at where the kernel tells of changes: a precaution.
const PRECAUTION: Duration = Duration::from_secs(5);
/// Interval at which they are looked at where nobody tells: the legacy interface.
const UNTOLD: Duration = Duration::from_secs(1);
/// Interval at which accounts are written, and the owner of the queues is looked at.
const RECORD: Duration = Duration::from_secs(1);
/// Time for which a change may take to be whole: a reload is many.
const SETTLE: Duration = Duration::from_millis(50);
/// The time between two looks at least, however much is changed.
const REST: Duration = Duration::from_millis(250);
/// Time for which taking the hook down may take: iptables waits five seconds for its lock, a family each.
const PATIENCE: Duration = Duration::from_secs(12);

/// Looks in a row that may fail before the bypass is ended for it.
const PATIENT_LOOKS: u8 = 2;

/// Time for which a last look may take while packets wait for another process.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What the main thread wants, and what the kernel tells.
enum Order {
    /// Put the hook up, and look after it from then on.
    ///
    /// Looks after it even where it is not up, if so told.
    Raise(Sender<Result<(), GuardError>>, bool),
    /// Rules have changed.
    Changed,
    /// Take the hook down.
    TakeDown(Sender<Result<(), HookError>>),
    /// Close the accounts of a run that ends so, and end.
    Close(RunEnd),
    /// Leave hook and accounts to the process that goes on.
    HandOver(Sender<AccountState>),
    /// Leave them to one that may never come: nobody reads any more.
    Leave(Sender<AccountState>),
}

/// What tells the keeper how much the workers have seen.
pub(super) type Seeing = Box<dyn Fn() -> Seen + Send>;

/// A queue of this guard, and the netlink address of the socket that has bound it, if that is known.
pub(super) type OwnQueue = (u16, Option<u32>);

/// The thread; it ends with this value and leaves the hook as it is.
pub(super) struct Keeper {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    bell: Option<Bell>,
}

impl Keeper {
    /// Starts the thread; it looks after a hook of others at once, and after one of ours when it is up.
    pub(super) fn start(
        config: &GuardConfig,
        programs: Programs,
        bypass: Option<Arc<Bypass>>,
        reporter: Reporter,
        loss: Loss,
        seeing: Seeing,
        queues: Vec<OwnQueue>,
    ) -> io::Result<Self> {
        let (sender, orders) = unbounded();
        // Without it (no CAP_NET_ADMIN, no nf_tables) there is still the look each second.
        let bell = Bell::hang(sender.clone()).ok();
        let scope = Scope { variant: config.variant, families: config.families.clone(), programs };
        let keeping = Keeping {
            bypass,
            unseen: 0,
            lookout: Lookout::new(scope.clone(), config.queues, config.hook.clone()),
            scope,
            hook: config.hook.clone(),
            repairs: config.hook.is_some() && config.hook_repair,
            is_told: bell.is_some(),
            due: config.hook.is_none().then(Instant::now),
            looked: Instant::now(),
            backoff: Backoff::default(),
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

    /// Puts the hook up; one that can't be is tried again later if `insists`.
    ///
    /// # Errors
    /// As [`hook::up`], and where another living guard has the hook.
    pub(super) fn raise(&self, insists: bool) -> Result<(), GuardError> {
        let (sender, answer) = bounded(1);
        self.order(Order::Raise(sender, insists));
        // It ends only by a panic, which has been told.
        answer.recv().unwrap_or(Err(GuardError::Hook(HookError::Unanswered)))
    }

    /// Has the hook taken down; the receiver is given how that ended, within [`PATIENCE`].
    pub(super) fn take_down(&self) -> Receiver<Result<(), HookError>> {
        let (sender, answer) = bounded(1);
        self.order(Order::TakeDown(sender));
        answer
    }

    /// Closes the accounts, once the queues were given back, and ends.
    pub(super) fn close(self, end: RunEnd) {
        self.order(Order::Close(end));
    }

    /// Looks after nothing any more; the accounts as they are, for whoever goes on. None where the thread
    /// hangs.
    pub(super) fn hand_over(&self) -> Option<AccountState> {
        let (sender, answer) = bounded(1);
        self.order(Order::HandOver(sender));
        answer.recv_timeout(PATIENCE).ok()
    }

    /// As [`Keeper::hand_over`], once nobody reads any more, to a process that may never come. Packets wait
    /// meanwhile.
    pub(super) fn leave(&self) -> Option<AccountState> {
        let (sender, answer) = bounded(1);
        self.order(Order::Leave(sender));
        answer.recv_timeout(LAST_LOOK).ok()
    }

    /// Time for which [`Keeper::take_down`] may take.
    pub(super) const fn patience() -> Duration {
        PATIENCE
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A keeper that has panicked drops the answer's sender with the order.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.bell = None;
        self.orders = None;
        let Some(thread) = self.thread.take() else { return };
        // One that hangs in iptables is left to the end of the process.
        let deadline = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // A panic has been told on stderr.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct Keeping {
    scope: Scope,
    hook: Option<HookConfig>,
    lookout: Lookout,
    /// True if what we made is put back.
    repairs: bool,
    /// True if the kernel tells of changes.
    is_told: bool,
    /// When to look next.
    due: Option<Instant>,
    looked: Instant,
    backoff: Backoff,
    reporter: Reporter,
    loss: Loss,
    seeing: Seeing,
    queues: Vec<OwnQueue>,
    /// Time at which the accounts were written last.
    recorded: Instant,
    /// What forwards below netfilter; none where it is off.
    bypass: Option<Arc<Bypass>>,
    /// Looks in a row that did not show what the bypass would skip.
    unseen: u8,
    /// True if the hook was taken down by order.
    is_down: bool,
    /// True if it could not be put up and has to be.
    is_owed: bool,
}

impl Keeping {
    fn run(mut self, orders: &Receiver<Order>) {
        if let Programs::Here = self.scope.programs
            && let Err(error) = descriptors::keep_own()
        {
            tell(format_args!("bannerwall: iptables cannot be run when no descriptors are left: {error}"));
        }
        loop {
            let order = match self.due {
                Some(due) => orders.recv_deadline(due.min(self.recorded + RECORD)),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Raise(answer, insists)) => {
                    let raised = self.raise();
                    if raised.is_err() && insists {
                        self.is_owed = true;
                        self.due = Some(Instant::now() + REST);
                    }
                    // The main thread waits for it.
                    let _ = answer.send(raised);
                }
                Ok(Order::Changed) => {
                    let soon = (Instant::now() + SETTLE).max(self.looked + REST);
                    self.due = self.due.map(|due| due.min(soon));
                }
                // Nobody waits any more where that took too long.
                Ok(Order::TakeDown(answer)) => drop(answer.send(self.take_down())),
                Ok(Order::Close(end)) => return self.close(end),
                // Nobody waits any more where that took too long.
                Ok(Order::HandOver(answer)) => {
                    self.due = None;
                    drop(answer.send(self.loss.hand_over()));
                }
                // Nobody waits any more where that took too long.
                Ok(Order::Leave(answer)) => {
                    self.due = None;
                    drop(answer.send(self.loss.leave(&self.lookout.look(), &self.seeing)));
                }
                Err(RecvTimeoutError::Timeout) if self.due.is_none_or(|due| Instant::now() < due) => {
                    self.recorded = Instant::now();
                    self.loss.record(&self.seeing);
                    self.reporter.owns(&self.queues);
                }
                Err(RecvTimeoutError::Timeout) if self.is_owed => self.raise_at_last(),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn raise(&mut self) -> Result<(), GuardError> {
        if let Some(hook) = &self.hook {
            leave_others_hook(hook, &self.scope)?;
            hook::up(hook, self.scope.clone())?;
        }
        self.look();
        Ok(())
    }

    /// Puts up what could not be put up at first, whether what is lost later is put back or not.
    fn raise_at_last(&mut self) {
        match self.raise() {
            Ok(()) => self.is_owed = false,
            Err(error) => {
                self.reporter.cannot(&error);
                self.look();
                self.due = self.due.map(|due| due.min(Instant::now() + UNTOLD));
            }
        }
    }

    fn take_down(&mut self) -> Result<(), HookError> {
        self.due = None;
        self.is_owed = false;
        // What the rules have counted goes with them.
        let look = self.lookout.look();
        self.loss.update(&look, &self.seeing);
        hook::down(self.scope.clone())?;
        self.is_down = true;
        Ok(())
    }

    fn close(mut self, end: RunEnd) {
        let look = if self.is_down { Look::default() } else { self.lookout.look() };
        self.loss.close(&look, &self.seeing, end);
    }

    /// Looks once, puts back what is to be put back, and tells what is new.
    fn look(&mut self) {
        let mut look = self.lookout.look();
        self.looked = Instant::now();
        self.recorded = self.looked;
        self.loss.update(&look, &self.seeing);
        self.reporter.owns(&self.queues);
        self.reporter.found(&look);
        let mut next = if look.has_legacy || !self.is_told { UNTOLD } else { PRECAUTION };
        if !look.is_sound() && look.unknown.is_none() && self.repairs && !led_to_a_listener(&look) {
            match self.backoff.wait(self.looked) {
                None => {
                    look = self.mend(look);
                    next = REST;
                }
                Some(wait) => {
                    self.reporter.waits(wait);
                    next = wait;
                }
            }
        }
        self.reporter.stands(&look);
        if look.families.is_empty() && look.unknown.is_none() {
            self.reporter.has_no_hook(&self.scope.families, (self.seeing)().received > 0);
        }
        self.watch_bypass();
        self.due = Some(self.looked + next);
    }

    /// Ends the bypass where it would skip what others have set up meanwhile.
    fn watch_bypass(&mut self) {
        let Some(bypass) = &self.bypass else { return };
        let why = match neighbours::look(&self.scope.programs, bypass.interfaces()) {
            Ok(found) if found.is_empty() => {
                self.unseen = 0;
                return;
            }
            Ok(found) => BypassError::Neighbours(found),
            // Rules that change while they are read are not read; nothing new need be among them.
            Err(_) if self.unseen < PATIENT_LOOKS => {
                self.unseen += 1;
                return;
            }
            Err(why) => BypassError::Blind(why),
        };
        bypass.end();
        self.bypass = None;
        self.reporter.bypass_ended(&why);
    }

    fn mend(&mut self, look: Look) -> Look {
        self.backoff.tried(self.looked);
        match self.lookout.mend() {
            Ok(Up::Unchanged) => self.lookout.look(),
            Ok(Up::Replaced | Up::Created) => {
                self.reporter.restored();
                self.lookout.look()
            }
            Err(error) => {
                self.reporter.cannot(&error);
                look
            }
        }
    }
}

/// True if a family is led to a queue that another program serves: whoever did that meant it.
fn led_to_a_listener(look: &Look) -> bool {
    let mut queues = look.families.iter().filter_map(|(_, standing)| match standing {
        Standing::LedAway(queues) => Some(queues.numbers()),
        _ => None,
    });
    queues.any(|mut numbers| numbers.any(may_be_served))
}

/// True if somebody listens on a queue, as far as it can be known: who may not read it takes it for served.
fn may_be_served(queue: u16) -> bool {
    !matches!(KernelCounters::of(queue), Ok(None))
}

/// A hook that leads to queues of a guard that lives is not ours to change: that guard would see
/// nothing any more.
fn leave_others_hook(hook: &HookConfig, scope: &Scope) -> Result<(), GuardError> {
    let mut found: Vec<Family> = Vec::new();
    for place in hook::status(scope.clone())? {
        let Installed::Complete(there, _) = place.installed else { continue };
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
        tell(format_args!(
            "bannerwall: a hook was up already ({}): this run takes it over",
            families.join(", ")
        ));
    }
    Ok(())
}
