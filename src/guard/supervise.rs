//! The work of the main thread: signals, reloads, accounts, and the end of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bannerwall_ffi::socket_timestamps::PacketStamps;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::account_file::RunEnd;
use super::bans::BanKeeper;
use super::block_log::BlockLog;
use super::config::GuardConfig;
use super::control::RulesInForce;
use super::endpoints::{GuardEndpoints, PendingEndpoints};
use super::event_distributor::EventDistributor;
use super::hang_detection::{HangDetector, LoopRounds};
use super::hook_keeper::{HookKeeper, HookReporter};
use super::inspection::InspectionRuntime;
use super::ready_worker::ReadyWorker;
use super::reload_record::ReloadRecord;
use super::service_notifier::ServiceNotifier;
use super::signals::SignalListener;
use super::successor::Successor;
use super::takeover::{DescriptorStore, Predecessor};
use super::uninspected::{AccountState, UninspectedCount, WorkerTotals};
use super::worker_counts::SharedWorkerCounts;
use super::worker_thread::{MOMENT, WorkerThread, failure};
use super::{GuardError, GuardMessage};
use crate::bypass::Bypass;
use crate::diagnostics::{log_line, several};
use crate::engine::OnFailure;
use crate::event::{self, Event, EventKind, StatsFacts, Timestamp};
use crate::hook::{HookError, ProgramRunner};
use crate::metrics::{MetricsRegistry, ProgramHealth};
use crate::rules::RuleSelection;

/// Interval between updates of the accounts.
const ACCOUNTS: Duration = Duration::from_secs(1);
/// Limit of the time for which the other workers may answer their packets if one worker hangs.
const OTHERS_END: Duration = Duration::from_secs(1);

/// A run: the state that all workers share, and the workers.
pub(super) struct GuardRun {
    pub(super) config: GuardConfig,
    /// The process that runs iptables.
    pub(super) programs: ProgramRunner,
    /// The bypass of decided flows.
    pub(super) bypass: Option<Arc<Bypass>>,
    pub(super) stop: Arc<AtomicBool>,
    /// True if another process takes over after this one stops.
    pub(super) leaves: Arc<AtomicBool>,
    pub(super) host: InspectionRuntime,
    pub(super) registry: MetricsRegistry,
    pub(super) health: Arc<ProgramHealth>,
    pub(super) messages: Receiver<GuardMessage>,
    pub(super) sender: Sender<GuardMessage>,
    pub(super) workers: Vec<WorkerThread>,
    /// The thread that manages bans.
    pub(super) bans: Option<BanKeeper>,
    /// The rounds that detect hung workers.
    pub(super) rounds: Arc<LoopRounds>,
    /// The service manager that started this process and expects notifications.
    pub(super) manager: Option<Arc<ServiceNotifier>>,
    /// The state of the predecessor, until the workers start.
    pub(super) predecessor: Option<Predecessor>,
    /// Everything that is needed to open the front after the predecessor has exited.
    pub(super) facade: Option<PendingEndpoints>,
    pub(super) front: GuardEndpoints,
    pub(super) beginning: RunStart,
    /// The store in which the next process finds the state of this one.
    pub(super) store: Option<DescriptorStore>,
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
    pub(super) _listener: SignalListener,
    /// While it lives, the kernel timestamps packets, which measures how long they wait in the queue.
    pub(super) _stamps: Option<PacketStamps>,
}

/// The way a run begins.
pub(super) enum RunStart {
    /// Without a predecessor.
    Fresh,
    /// In place of another process, with its accounts if it handed them over.
    Succeeds(Option<AccountState>),
}

/// The way a run ends.
enum ShutdownMode {
    /// The hook is taken down, and the queues are released.
    Stop,
    /// The hook and the queues stay for the successor.
    Leave(Successor),
}

impl GuardRun {
    /// Runs the workers until a signal or a failure ends the run.
    pub(super) fn guard(mut self, queues: Vec<ReadyWorker>) -> Result<(), GuardError> {
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
            bypass.detach();
            self.count_bypassed();
        }
        let ended = match (&served, &keeper) {
            (Ok(ShutdownMode::Leave(successor)), Some(keeper)) => self.hand_over(keeper, successor, started),
            (served, _) => {
                // A successor must not start to read a queue that is released.
                self.front.close_successor_listener();
                self.end_workers(matches!(served, Err(GuardError::Hung(_))))
            }
        };
        if ended.is_err() {
            self.release_stored_queues();
        }
        if matches!(ended, Err(GuardError::Forced)) {
            // Whatever has not ended ends with the process.
            return ended;
        }
        if let (Some(keeper), Ok(ShutdownMode::Stop) | Err(_)) = (keeper, &served) {
            keeper.close(if served.is_ok() && ended.is_ok() { RunEnd::Stopped } else { RunEnd::Failed });
        }
        self.stop_bans();
        self.emit_stats(started);
        self.log_summary();
        self.finish_workers();
        self.finish_readers();
        served.and(ended)
    }

    /// Makes the service manager drop the stored queues if the run fails under `open`: packets pass if no
    /// process has bound the queues, so the rest of the shutdown may take its time.
    fn release_stored_queues(&self) {
        if let (Some(store), OnFailure::Open) = (&self.store, self.config.engine().on_failure) {
            store.remove_all_unawaited(&self.config, &[]);
        }
    }

    /// Returns the event sinks of one thread.
    pub(super) fn sinks(&self) -> EventDistributor {
        self.host.sinks().with_block_log(Arc::clone(&self.blocks))
    }

    fn keeper(&self) -> Result<HookKeeper, GuardError> {
        let config = &self.config;
        let reporter = HookReporter::new(self.host.metrics.clone(), Arc::clone(&self.health), self.sinks());
        let mut loss = UninspectedCount::new(config, &self.host.metrics);
        if let RunStart::Succeeds(account) = &self.beginning {
            loss = loss.resume(account.clone());
        }
        loss.start();
        let queues = self.workers.iter().map(|worker| (worker.number, worker.address)).collect();
        let tallies: Vec<(u16, Arc<SharedWorkerCounts>)> =
            self.workers.iter().map(|worker| (worker.number, Arc::clone(&worker.tally))).collect();
        let seeing = move || {
            let mut seen = WorkerTotals::default();
            tallies.iter().for_each(|(queue, tally)| seen.add(*queue, tally));
            seen
        };
        let bypass = self.bypass.clone();
        Ok(HookKeeper::start(
            config,
            self.programs.clone(),
            bypass,
            reporter,
            loss,
            Box::new(seeing),
            queues,
        )?)
    }

    /// Serves from the setup of the hook until its removal.
    fn serve(&mut self, keeper: &HookKeeper, started: Instant) -> Result<ShutdownMode, GuardError> {
        self.raise(keeper)?;
        self.health.set_ready(true);
        let ready = self.ready_line();
        log_line(&ready);
        // A manager that started another process learns which process is its guard now.
        let own = match self.beginning {
            RunStart::Succeeds(_) => format!("\nMAINPID={}", std::process::id()),
            RunStart::Fresh => String::new(),
        };
        self.notify(&format!("READY=1\nSTATUS={ready}{own}"));
        let watched = self.watch(started);
        self.health.set_ready(false);
        if watched.is_err() {
            self.release_stored_queues();
        }
        if !matches!(watched, Ok(ShutdownMode::Leave(Successor::Guard(_)))) {
            self.front.close_successor_listener();
        }
        match watched {
            Ok(ShutdownMode::Leave(Successor::Guard(_))) => watched,
            Ok(ShutdownMode::Leave(Successor::Stored(_))) => {
                self.notify("STOPPING=1");
                watched
            }
            Ok(ShutdownMode::Stop) | Err(_) => {
                self.notify("STOPPING=1");
                let lowered = self.take_hook_down(keeper, watched.is_err());
                watched.and_then(|end| lowered.map(|()| end))
            }
        }
    }

    /// Sets up the hook. If the predecessor has exited already, the run must continue: then the existing hook
    /// serves.
    fn raise(&self, keeper: &HookKeeper) -> Result<(), GuardError> {
        if let RunStart::Fresh = self.beginning {
            return keeper.set_up(false);
        }
        if let Err(error) = keeper.set_up(true) {
            log_line(format_args!("bannerwall: cannot set up the hook: {error}; the guard tries again"));
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
    pub(super) fn take_hook_down(&self, keeper: &HookKeeper, has_failed: bool) -> Result<(), GuardError> {
        let config = &self.config;
        if config.hook.is_none() {
            return Ok(());
        }
        if config.hook_keep || (has_failed && config.engine().on_failure == OnFailure::Closed) {
            log_line(match config.engine().on_failure {
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
        let deadline = Instant::now() + HookKeeper::patience();
        loop {
            match answer.recv_timeout(MOMENT) {
                Ok(lowered) => return lowered.map_err(GuardError::from),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => return Err(HookError::Unanswered.into()),
            }
            // Only a second signal ends the wait for iptables. The end of a worker is visible from its
            // thread.
            if let Ok(GuardMessage::Stop) = self.messages.try_recv() {
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

    pub(super) fn spawn_all(&mut self, queues: Vec<ReadyWorker>) -> Result<(), GuardError> {
        queues.into_iter().try_for_each(|queue| self.start_worker(queue))
    }

    pub(super) fn start_worker(&mut self, queue: ReadyWorker) -> Result<(), GuardError> {
        self.workers.push(WorkerThread::spawn(queue, self.sender.clone())?);
        Ok(())
    }

    /// Returns the line that reports that packets are judged now.
    fn ready_line(&self) -> String {
        let config = &self.config;
        let queues: Vec<String> = config.queues.numbers().map(|queue| queue.to_string()).collect();
        format!(
            "ready: queue {} by {}, {}, {}, on failure {}",
            queues.join(","),
            config.backend.what(),
            several(self.host.rule_count(), "rule"),
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
    fn watch(&mut self, started: Instant) -> Result<ShutdownMode, GuardError> {
        let mut observer = HangDetector::new(Arc::clone(&self.rounds), Instant::now());
        loop {
            match self.messages.recv_timeout(ACCOUNTS) {
                Ok(GuardMessage::Stop) => {
                    let stored = self.store.clone().map(Successor::Stored);
                    return Ok(stored.map_or(ShutdownMode::Stop, ShutdownMode::Leave));
                }
                Ok(GuardMessage::HandOver(successor)) => {
                    return Ok(ShutdownMode::Leave(Successor::Guard(successor)));
                }
                Ok(GuardMessage::Reload) => {
                    self.host.reopen();
                    // The outcome is on stderr already.
                    drop(self.reload());
                }
                // The outcome is on stderr already.
                Ok(GuardMessage::ReloadRules) => drop(self.reload()),
                Ok(GuardMessage::Request(request, client)) => self.answer(&request, client),
                Ok(GuardMessage::TakeRules(selection, asker)) => {
                    let _ = asker.send(self.take_rules(*selection));
                }
                Ok(GuardMessage::Reopen) => {
                    self.host.reopen();
                    self.emit_stats(started);
                }
                Ok(GuardMessage::Ended(queue, outcome)) => {
                    self.health.set_failed();
                    return Err(failure(queue, outcome).unwrap_or(GuardError::Worker(queue)));
                }
                Ok(GuardMessage::Left(..)) | Err(_) => {}
            }
            if let Some(hung) = observer.check(Instant::now()).and_then(|index| self.workers.get(index)) {
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
        if let Some(news) = self.bypass.as_ref().map(|bypass| bypass.take_totals()) {
            self.host.metrics.note_bypassed(news.flows, news.packets, news.octets);
        }
    }

    /// Puts a published version of the rules in force. An invalid one changes nothing.
    fn take_rules(&mut self, selection: RuleSelection) -> Result<RulesInForce, String> {
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

    fn exchange(&mut self, selection: &RuleSelection) -> Result<RulesInForce, String> {
        let at = SystemTime::now().into();
        let answer = self.host.replace_rules(selection);
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
                Ok(GuardMessage::Stop) => return Err(GuardError::Forced),
                Ok(GuardMessage::Ended(queue, ended)) => {
                    outcome = outcome.and(failure(queue, ended).map_or(Ok(()), Err));
                }
                Ok(_) | Err(_) => {}
            }
        }
        outcome
    }

    pub(super) fn count_lost_events(&self) {
        self.host.show_readers();
        self.health.set_obstacle("events", self.host.obstacles());
    }

    pub(super) fn emit_stats(&self, started: Instant) {
        self.count_lost_events();
        let latest = self.workers.iter().map(|worker| worker.tally.latest());
        let mut counters = super::stats_event::counters(latest);
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
            source: event::EventSource::Guard,
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
