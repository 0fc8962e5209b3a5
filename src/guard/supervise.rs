//! The work of the main thread: signals, reloads, accounts, and the end of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bannerwall_ffi::stamps::PacketStamps;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::bans::BanKeeper;
use super::blocks::BlockLog;
use super::config::GuardConfig;
use super::control::RulesInForce;
use super::front::{Facade, Front};
use super::host::Host;
use super::keeper::{Keeper, Reporter};
use super::ledger::RunEnd;
use super::loss::{AccountState, Loss, Seen};
use super::notify::Notifier;
use super::pulse::{Observer, Rounds};
use super::queue::Queue;
use super::signals::Listener;
use super::sinks::Sinks;
use super::source::SourceError;
use super::status::ReloadRecord;
use super::succession::Successor;
use super::takeover::{Estate, Store};
use super::tally::Tally;
use super::{GuardError, Message};
use crate::bypass::Bypass;
use crate::diagnostics::tell;
use crate::engine::OnFailure;
use crate::event::{self, Event, EventKind, StatsFacts, Timestamp};
use crate::hook::{HookError, Programs};
use crate::metrics::{Health, Registry};
use crate::rules::Selection;

/// Interval between updates of the accounts.
const ACCOUNTS: Duration = Duration::from_secs(1);
/// Interval between checks for the end of a thread or process.
pub(super) const MOMENT: Duration = Duration::from_millis(2);
/// Limit of the time for which the other workers may answer their packets if one worker hangs.
const OTHERS_END: Duration = Duration::from_secs(1);

/// A run: the state that all workers share, and the workers.
pub(super) struct Run {
    pub(super) config: GuardConfig,
    /// The process that runs iptables.
    pub(super) programs: Programs,
    /// The bypass of decided flows.
    pub(super) bypass: Option<Arc<Bypass>>,
    pub(super) stop: Arc<AtomicBool>,
    /// True if another process takes over after this one stops.
    pub(super) leaves: Arc<AtomicBool>,
    pub(super) host: Host,
    pub(super) registry: Registry,
    pub(super) health: Arc<Health>,
    pub(super) messages: Receiver<Message>,
    pub(super) sender: Sender<Message>,
    pub(super) workers: Vec<Running>,
    /// The thread that manages bans.
    pub(super) bans: Option<BanKeeper>,
    /// The rounds that detect hung workers.
    pub(super) rounds: Arc<Rounds>,
    /// The service manager that started this process and expects notifications.
    pub(super) manager: Option<Arc<Notifier>>,
    /// The state of the predecessor, until the workers start.
    pub(super) predecessor: Option<Estate>,
    /// Everything that is needed to open the front after the predecessor has exited.
    pub(super) facade: Option<Facade>,
    pub(super) front: Front,
    pub(super) beginning: Beginning,
    /// The store in which the next process finds the state of this one.
    pub(super) store: Option<Store>,
    /// Start of the process.
    pub(super) started: Timestamp,
    /// Time when the rules came into force.
    pub(super) loaded: Timestamp,
    pub(super) last_reload: Option<ReloadRecord>,
    /// The queues, with the netlink port ids of their sockets.
    pub(super) port_ids: Vec<(u16, Option<u32>)>,
    /// The last blocked connections.
    pub(super) blocks: Arc<BlockLog>,
    /// Triggers an immediate poll for published rules.
    pub(super) publisher: Option<Sender<()>>,
    pub(super) _listener: Listener,
    /// While it lives, the kernel timestamps packets, which measures how long they wait in the queue.
    pub(super) _stamps: Option<PacketStamps>,
}

/// The way a run begins.
pub(super) enum Beginning {
    /// Without a predecessor.
    Fresh,
    /// In place of another process, with its accounts if it handed them over.
    Succeeds(Option<AccountState>),
}

/// A worker with its thread.
pub(super) struct Running {
    pub(super) number: u16,
    /// Netlink address of the socket that has bound the queue.
    address: Option<u32>,
    tally: Arc<Tally>,
    pub(super) thread: JoinHandle<()>,
}

/// The way a run ends.
enum End {
    /// The hook is taken down, and the queues are released.
    Stop,
    /// The hook and the queues stay for the successor.
    Leave(Successor),
}

/// Reports to the main thread how a worker ended, even after a panic.
struct Farewell {
    number: u16,
    outcome: Option<Result<(), SourceError>>,
    sender: Sender<Message>,
}

impl Farewell {
    /// Does the work of a worker, and reports how it ended.
    fn behind(number: u16, sender: Sender<Message>, work: impl FnOnce() -> Result<(), SourceError>) {
        let mut farewell = Self { number, outcome: None, sender };
        farewell.outcome = Some(work());
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        // The main thread is gone only after a forced stop.
        let _ = self.sender.send(Message::Ended(self.number, self.outcome.take()));
    }
}

impl Run {
    /// Runs the workers until a signal or a failure ends the run.
    pub(super) fn guard(mut self, queues: Vec<Queue>) -> Result<(), GuardError> {
        let started = Instant::now();
        let keeper = self.begin(queues).and_then(|()| self.keeper());
        let (keeper, served) = match keeper {
            Ok(keeper) => {
                let served = self.serve(&keeper, started);
                (Some(keeper), served)
            }
            Err(error) => (None, Err(error)),
        };
        // No flows are taken back from the bypass from here on.
        if let Some(bypass) = &self.bypass {
            bypass.end();
            self.count_bypassed();
        }
        let ended = match (&served, &keeper) {
            (Ok(End::Leave(successor)), Some(keeper)) => self.hand_over(keeper, successor, started),
            (served, _) => {
                // A successor must not start to read a queue that is released.
                self.front.close_to_heirs();
                self.end_workers(matches!(served, Err(GuardError::Hung(_))))
            }
        };
        if ended.is_err() {
            self.let_pass();
        }
        if matches!(ended, Err(GuardError::Forced)) {
            // Whatever has not ended ends with the process.
            return ended;
        }
        if let (Some(keeper), Ok(End::Stop) | Err(_)) = (keeper, &served) {
            keeper.close(if served.is_ok() && ended.is_ok() { RunEnd::Stopped } else { RunEnd::Failed });
        }
        self.stop_bans();
        self.emit_stats(started);
        self.finish_workers();
        self.finish_readers();
        served.and(ended)
    }

    /// Makes the service manager drop the stored queues if the run fails under `open`: packets pass if no
    /// process has bound the queues, so the rest of the shutdown may take its time.
    fn let_pass(&self) {
        if let (Some(store), OnFailure::Open) = (&self.store, self.config.engine().on_failure) {
            store.let_go(&self.config, &[]);
        }
    }

    /// Returns the event sinks of one thread.
    pub(super) fn sinks(&self) -> Sinks {
        self.host.sinks().remembering(Arc::clone(&self.blocks))
    }

    fn keeper(&self) -> Result<Keeper, GuardError> {
        let config = &self.config;
        let reporter = Reporter::new(self.host.metrics.clone(), Arc::clone(&self.health), self.sinks());
        let mut loss = Loss::new(config, &self.host.metrics);
        if let Beginning::Succeeds(account) = &self.beginning {
            loss = loss.going_on(account.clone());
        }
        loss.start();
        let queues = self.workers.iter().map(|worker| (worker.number, worker.address)).collect();
        let tallies: Vec<(u16, Arc<Tally>)> =
            self.workers.iter().map(|worker| (worker.number, Arc::clone(&worker.tally))).collect();
        let seeing = move || {
            let mut seen = Seen::default();
            tallies.iter().for_each(|(queue, tally)| seen.add(*queue, tally));
            seen
        };
        let bypass = self.bypass.clone();
        Ok(Keeper::start(config, self.programs.clone(), bypass, reporter, loss, Box::new(seeing), queues)?)
    }

    /// Serves from the setup of the hook until its removal.
    fn serve(&mut self, keeper: &Keeper, started: Instant) -> Result<End, GuardError> {
        self.raise(keeper)?;
        self.health.set_ready(true);
        let ready = self.ready_line();
        tell(&ready);
        // A manager that started another process learns which process is its guard now.
        let own = match self.beginning {
            Beginning::Succeeds(_) => format!("\nMAINPID={}", std::process::id()),
            Beginning::Fresh => String::new(),
        };
        self.notify(&format!("READY=1\nSTATUS={ready}{own}"));
        let watched = self.watch(started);
        self.health.set_ready(false);
        if watched.is_err() {
            self.let_pass();
        }
        if !matches!(watched, Ok(End::Leave(Successor::Guard(_)))) {
            self.front.close_to_heirs();
        }
        match watched {
            Ok(End::Leave(Successor::Guard(_))) => watched,
            Ok(End::Leave(Successor::Stored(_))) => {
                self.notify("STOPPING=1");
                watched
            }
            Ok(End::Stop) | Err(_) => {
                self.notify("STOPPING=1");
                let lowered = self.lower_hook(keeper, watched.is_err());
                watched.and_then(|end| lowered.map(|()| end))
            }
        }
    }

    /// Sets up the hook. If the predecessor has exited already, the run must continue: then the existing hook
    /// serves.
    fn raise(&self, keeper: &Keeper) -> Result<(), GuardError> {
        if let Beginning::Fresh = self.beginning {
            return keeper.raise(false);
        }
        if let Err(error) = keeper.raise(true) {
            tell(format_args!("bannerwall: the hook is not put up, and tried again: {error}"));
        }
        Ok(())
    }

    /// Notifies the service manager, if there is one.
    fn notify(&self, assignments: &str) {
        if let Some(manager) = &self.manager {
            manager.send(assignments);
        }
    }

    /// Takes the hook down, unless it must stay: because the user asked for it, or because packets must not
    /// pass after a failure.
    pub(super) fn lower_hook(&self, keeper: &Keeper, has_failed: bool) -> Result<(), GuardError> {
        let config = &self.config;
        if config.hook.is_none() {
            return Ok(());
        }
        if config.hook_keep || (has_failed && config.engine().on_failure == OnFailure::Closed) {
            tell(match config.engine().on_failure {
                OnFailure::Closed => {
                    "bannerwall: the hook stays up: packets are dropped until a guard runs or `bannerwall hook down`"
                }
                OnFailure::Open => "bannerwall: the hook stays up: packets pass until a guard runs",
            });
            return Ok(());
        }
        // The table of bans is removed with the hook, so the ban thread must not restore it.
        self.stop_bans();
        let answer = keeper.take_down();
        let deadline = Instant::now() + Keeper::patience();
        loop {
            match answer.recv_timeout(MOMENT) {
                Ok(lowered) => return lowered.map_err(GuardError::from),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => return Err(HookError::Unanswered.into()),
            }
            // Only a second signal ends the wait for iptables. The end of a worker is visible from its
            // thread.
            if let Ok(Message::Stop) = self.messages.try_recv() {
                return Err(GuardError::Forced);
            }
        }
    }

    /// Ends the thread that manages bans. The kernel's set stays.
    pub(super) fn stop_bans(&self) {
        if let Some(bans) = &self.bans {
            bans.stop();
        }
    }

    pub(super) fn spawn_all(&mut self, queues: Vec<Queue>) -> Result<(), GuardError> {
        queues.into_iter().try_for_each(|queue| self.start_worker(queue))
    }

    pub(super) fn start_worker(&mut self, queue: Queue) -> Result<(), GuardError> {
        let running = self.spawn(queue)?;
        self.workers.push(running);
        Ok(())
    }

    fn spawn(&self, queue: Queue) -> Result<Running, GuardError> {
        let number = queue.number;
        let tally = Arc::clone(&queue.worker.judge.inspection.tally);
        let address = queue.worker.source.address();
        let sender = self.sender.clone();
        let thread = std::thread::Builder::new().name(format!("queue-{number}")).spawn(move || {
            Farewell::behind(number, sender, || queue.run());
        })?;
        Ok(Running { number, address, tally, thread })
    }

    /// Returns the line that reports that packets are judged now.
    fn ready_line(&self) -> String {
        let config = &self.config;
        let queues: Vec<String> = config.queues.numbers().map(|queue| queue.to_string()).collect();
        format!(
            "ready: queue {} by {}, {} rules, {}, on failure {}",
            queues.join(","),
            config.backend.what(),
            self.host.rule_count(),
            match config.engine().enforce {
                true => format!("enforcing{}", config.engine().enforce_only),
                false => "monitoring only".to_owned(),
            },
            match config.engine().on_failure {
                OnFailure::Open => "open",
                OnFailure::Closed => "closed",
            }
        )
    }

    /// Serves messages until the run must end.
    fn watch(&mut self, started: Instant) -> Result<End, GuardError> {
        let mut observer = Observer::new(Arc::clone(&self.rounds), Instant::now());
        loop {
            match self.messages.recv_timeout(ACCOUNTS) {
                Ok(Message::Stop) => {
                    let stored = self.store.clone().map(Successor::Stored);
                    return Ok(stored.map_or(End::Stop, End::Leave));
                }
                Ok(Message::HandOver(heir)) => return Ok(End::Leave(Successor::Guard(heir))),
                Ok(Message::Reload) => {
                    self.host.reopen();
                    // The outcome is on stderr already.
                    drop(self.reload());
                }
                // The outcome is on stderr already.
                Ok(Message::ReloadRules) => drop(self.reload()),
                Ok(Message::Request(request, client)) => self.answer(&request, client),
                Ok(Message::TakeRules(selection, asker)) => {
                    let _ = asker.send(self.take_rules(*selection));
                }
                Ok(Message::Reopen) => {
                    self.host.reopen();
                    self.emit_stats(started);
                }
                Ok(Message::Ended(queue, outcome)) => {
                    self.health.set_failed();
                    return Err(failure(queue, outcome).unwrap_or(GuardError::Worker(queue)));
                }
                Ok(Message::Left(..)) | Err(_) => {}
            }
            if let Some(hung) = observer.look(Instant::now()).and_then(|index| self.workers.get(index)) {
                self.health.set_failed();
                return Err(GuardError::Hung(hung.number));
            }
            if self.programs.are_gone() {
                self.health.set_failed();
                return Err(GuardError::RunnerGone);
            }
            self.count_lost_events();
            self.count_bypassed();
        }
    }

    /// Publishes the counts of the bypass.
    fn count_bypassed(&self) {
        if let Some(news) = self.bypass.as_ref().map(|bypass| bypass.news()) {
            self.host.metrics.note_bypassed(news.flows, news.packets, news.octets);
        }
    }

    /// Puts a published version of the rules in force. An invalid one changes nothing.
    fn take_rules(&mut self, selection: Selection) -> Result<RulesInForce, String> {
        let answer = self.exchange(&selection);
        if answer.is_ok() {
            self.config.inspection.rules = selection;
        }
        answer
    }

    /// Puts new rules in force. Invalid rules change nothing. An empty set is invalid if rules are in force.
    /// With a rule source, the known version is loaded again and a poll for newer ones is triggered.
    pub(super) fn reload(&mut self) -> Result<RulesInForce, String> {
        if let Some(publisher) = &self.publisher {
            // If the channel is full, a poll is pending already.
            let _ = publisher.try_send(());
        }
        self.exchange(&self.config.inspection.rules.clone())
    }

    fn exchange(&mut self, selection: &Selection) -> Result<RulesInForce, String> {
        let at = SystemTime::now().into();
        let answer = self.host.exchange(selection);
        if answer.is_ok() {
            self.loaded = at;
        }
        self.last_reload = Some(ReloadRecord { at, error: answer.as_ref().err().cloned() });
        answer
    }

    /// Waits until the workers have answered the packets that they have read. A second signal ends the wait,
    /// and a worker that hangs limits it.
    fn end_workers(&mut self, one_hangs: bool) -> Result<(), GuardError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut outcome = Ok(());
        let deadline = Instant::now() + OTHERS_END;
        let is_over = || one_hangs && Instant::now() >= deadline;
        // A worker reports its end shortly before its thread ends, and sends nothing more.
        while self.workers.iter().any(|worker| !worker.thread.is_finished()) && !is_over() {
            match self.messages.recv_timeout(MOMENT) {
                Ok(Message::Stop) => return Err(GuardError::Forced),
                Ok(Message::Ended(queue, ended)) => {
                    outcome = outcome.and(failure(queue, ended).map_or(Ok(()), Err));
                }
                Ok(_) | Err(_) => {}
            }
        }
        outcome
    }

    pub(super) fn count_lost_events(&self) {
        self.host.show_readers();
        self.health.hinder("events", self.host.obstacles());
    }

    pub(super) fn emit_stats(&self, started: Instant) {
        self.count_lost_events();
        let latest = self.workers.iter().map(|worker| worker.tally.latest());
        let mut counters = super::stats::counters(latest);
        if let Some(uninspected) = self.host.metrics.uninspected_packets.get() {
            counters.push(("capture.uninspected", uninspected));
        }
        counters.push(("events.dropped", self.host.metrics.events_dropped.get()));
        if self.publisher.is_some() {
            let version = u64::try_from(self.host.metrics.rules_version.get()).unwrap_or_default();
            counters.push(("rules.version", version));
            counters.push(("rules.refused", self.host.metrics.rules_refused.get()));
        }
        let event = Event {
            timestamp: SystemTime::now().into(),
            source: event::Source::Guard,
            flow: None,
            kind: EventKind::Stats(Box::new(StatsFacts { uptime: started.elapsed(), counters })),
        };
        let event = Arc::new(event);
        self.host.writers.iter().for_each(|writer| writer.handle().share(&event));
    }

    fn finish_workers(&mut self) {
        // A worker that hangs ends with the process.
        for worker in self.workers.drain(..).filter(|worker| worker.thread.is_finished()) {
            // Its message has told how it ended.
            let _ = worker.thread.join();
        }
    }

    /// Waits for a limited time until all outputs and readers have taken all events, and publishes the final
    /// totals.
    pub(super) fn finish_readers(&mut self) {
        self.host.finish();
    }
}

/// Returns the error that ended a worker, if any. `None` in place of an outcome is a panic.
pub(super) fn failure(queue: u16, outcome: Option<Result<(), SourceError>>) -> Option<GuardError> {
    match outcome {
        None => Some(GuardError::Worker(queue)),
        Some(Err(source)) => Some(GuardError::Source { queue, source }),
        Some(Ok(())) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_panics_has_failed_as_one_that_tells_why() {
        let ended = |work: fn() -> Result<(), SourceError>| {
            let (sender, receiver) = crossbeam_channel::bounded(1);
            let worker = std::thread::spawn(move || Farewell::behind(7, sender, work));
            let Ok(Message::Ended(7, outcome)) = receiver.recv() else { panic!("a farewell") };
            (failure(7, outcome).map(|error| error.to_string()), worker.join().is_err())
        };
        let failed = Some("the worker of queue 7 has failed".to_owned());
        assert_eq!(ended(|| panic!("as a test wants it")), (failed, true));
        assert_eq!(ended(|| Ok(())), (None, false));
    }
}
