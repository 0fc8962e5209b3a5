//! Handover between processes: how a run starts with the state of its predecessor, and how it leaves its own
//! state.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::endpoints::GuardEndpoints;
use super::hook_keeper::HookKeeper;
use super::ready_worker::ReadyWorker;
use super::successor::Successor;
use super::supervise::{GuardRun, RunStart};
use super::takeover::{
    HandoverState, Predecessor, PredecessorMessage, SharedRunState, run_name, sealed, state_name,
};
use super::worker_thread::{MOMENT, failure};
use super::{GuardError, GuardMessage};
use crate::diagnostics::log_line;
use crate::rules::Rule;

/// Limit of the time for which loops may take to answer the packets that they have read.
const LOOPS_END: Duration = Duration::from_secs(5);

impl GuardRun {
    /// Starts the workers, with the state of the process that had these queues.
    pub(super) fn begin(&mut self, queues: Vec<ReadyWorker>) -> Result<(), GuardError> {
        let Some(predecessor) = self.predecessor.take() else { return self.spawn_all(queues) };
        let of_a_guard = predecessor.is_of_a_guard();
        let state = self.take_over(predecessor, queues)?;
        // Round observers identify workers by their index.
        self.workers.sort_by_key(|worker| worker.number);
        let has_state = state.is_some();
        let state = state.unwrap_or_default();
        let rules = self.host.rules.load();
        let ids = rules.rules().iter().map(Rule::id).chain(rules.policies().iter().map(|policy| policy.id()));
        self.registry.add_snapshot(&state.counts, &ids.collect());
        drop(rules);
        self.blocks.restore(state.blocks);
        self.beginning = RunStart::Succeeds(state.account);
        self.host.metrics.note_takeover();
        if let Some(bans) = &self.bans {
            bans.adopt();
        }
        log_line(match (of_a_guard, has_state) {
            (true, _) => "bannerwall: took over from the running guard",
            (false, true) => "bannerwall: continues the last run",
            (false, false) => {
                "bannerwall: continues the queues of a run that did not stop cleanly: its flows are picked \
                 up mid-stream"
            }
        });
        // The predecessor has exited, so errors from here on do not stop the run: packets are judged without
        // these endpoints.
        if let Some(facade) = self.facade.take() {
            let (front, failed) = GuardEndpoints::open(&self.config, facade, &mut self.host.readers);
            failed.iter().for_each(|error| {
                log_line(format_args!("bannerwall: runs without an endpoint after the takeover: {error}"));
            });
            self.front = front;
        }
        Ok(())
    }

    /// Stops the other process, and starts each worker once its counterpart has stopped.
    fn take_over(
        &mut self,
        mut predecessor: Predecessor,
        mut waiting: Vec<ReadyWorker>,
    ) -> Result<Option<SharedRunState>, GuardError> {
        // From this request on the predecessor stops, so the rules are loaded and the queues adopted by now.
        if let Err(why) = predecessor.request_stop() {
            let path = self.config.takeover.clone().unwrap_or_default();
            return Err(GuardError::Takeover { path, why });
        }
        let (mut run, mut is_whole) = (None::<SharedRunState>, true);
        loop {
            let handed = match predecessor.next() {
                PredecessorMessage::Legacy(state) => state,
                PredecessorMessage::Nothing => {
                    // The main loop does not run yet, but a worker that was started already may fail, and the
                    // user may stop the run.
                    self.check_messages()?;
                    continue;
                }
                PredecessorMessage::Last => break,
                PredecessorMessage::Refused(why) => {
                    let path = self.config.takeover.clone().unwrap_or_default();
                    return Err(GuardError::Takeover { path, why });
                }
            };
            match handed {
                HandoverState::Queue(number, state) => {
                    // The state of a queue that this run does not have.
                    let Some(at) = waiting.iter().position(|queue| queue.number == number) else { continue };
                    let mut queue = waiting.swap_remove(at);
                    is_whole &= queue.is_adopted;
                    if queue.is_adopted {
                        // Another thread keeps the accounts, and may read them at once.
                        queue.worker.judge.inspection.tally.go_on_from(state.known.received);
                        queue.worker.inherited = Some(state);
                    }
                    // At once, without waiting for the other queues: this one's packets wait since its worker
                    // has stopped.
                    self.start_worker(queue)?;
                }
                HandoverState::Run(state) => run = Some(*state),
            }
        }
        // These workers exited without a state, or crashed.
        for mut queue in waiting {
            is_whole = false;
            if queue.is_adopted {
                log_line(format_args!(
                    "bannerwall: queue {}: no state was handed over: its flows are picked up mid-stream, \
                     and uninspected packets are counted from now on",
                    queue.number
                ));
                queue.worker.inherited = Some(Box::default());
            }
            self.start_worker(queue)?;
        }
        if let (Some(run), false) = (&mut run, is_whole) {
            // These loops have not seen all packets that the hook counted.
            run.account = None;
        }
        Ok(run)
    }

    /// Returns an error if the run must end before it has all queues.
    fn check_messages(&self) -> Result<(), GuardError> {
        let mut later = Vec::new();
        // Only errors are handled here. The rest waits for the main loop, in its order.
        while let Ok(message) = self.messages.try_recv() {
            match message {
                GuardMessage::Stop => return Err(GuardError::Forced),
                GuardMessage::Ended(queue, outcome) => {
                    return Err(failure(queue, outcome).unwrap_or(GuardError::Worker(queue)));
                }
                other => later.push(other),
            }
        }
        // This thread owns the receiver, so the send cannot fail.
        later.into_iter().for_each(|message| drop(self.sender.send(message)));
        Ok(())
    }

    /// Stops, and hands the state over to `successor`.
    pub(super) fn hand_over(
        &mut self,
        keeper: &HookKeeper,
        successor: &Successor,
        started: Instant,
    ) -> Result<(), GuardError> {
        successor.mark_served();
        // Taken before the successor's loops start: packets that they receive are in no account here.
        let mut account = match successor {
            Successor::Guard(_) => keeper.hand_over(),
            Successor::Stored(_) => None,
        };
        // `leaves` before `stop`, whose release store publishes both: a worker must not see `stop` alone and
        // drain the queue.
        self.leaves.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Release);
        let deadline = Instant::now() + LOOPS_END;
        while Instant::now() < deadline {
            match self.messages.recv_timeout(MOMENT) {
                Ok(GuardMessage::Left(queue, left)) => {
                    lost(
                        &state_name(queue),
                        left.and_then(|left| successor.send_state(state_name(queue), &left)),
                    );
                }
                Ok(GuardMessage::Stop) => return Err(GuardError::Forced),
                Ok(GuardMessage::Ended(queue, outcome)) => {
                    if let Some(failed) = failure(queue, outcome) {
                        log_line(format_args!("bannerwall: {failed}; the next guard does not get its flows"));
                    }
                }
                Ok(_) => {}
                // A worker sends its state before its thread ends.
                Err(_) if self.workers.iter().all(|worker| worker.thread.is_finished()) => break,
                Err(_) => {}
            }
        }
        if let Some(hung) = self.workers.iter().find(|worker| !worker.thread.is_finished()) {
            // The hung worker may read once more, so the queue is free only when this process has exited.
            successor.hold_until_exit();
            return Err(GuardError::Hung(hung.number));
        }
        if let Successor::Stored(_) = successor {
            // No process reads packets before the next guard starts, if it ever does.
            account = keeper.leave();
        }
        // The states of all queues are sent, so a running successor answers packets already, and what follows
        // may take its time.
        self.stop_bans();
        // The successor opens the same addresses once the last message has reached it.
        self.front = GuardEndpoints::default();
        self.host.readers.iter_mut().for_each(|reader| reader.close());
        self.emit_stats(started);
        // The outcome of the last events counts too.
        self.finish_readers();
        let state = SharedRunState { counts: self.registry.counts(), account, blocks: self.blocks.all() };
        let state = state.octets().and_then(|octets| sealed(&run_name(), &octets));
        lost(&run_name(), state.and_then(|state| successor.send_state(run_name(), &state)));
        let gone = successor.finish().map_err(GuardError::SuccessorGone);
        // No process answers packets any more, so `--on-failure` decides whether the hook may stay.
        if gone.is_err() {
            self.take_hook_down(keeper, true)?;
        }
        gone
    }
}

/// Reports state that could not be handed over. The successor continues without it.
fn lost(name: &str, given: io::Result<()>) {
    if let Err(error) = given {
        log_line(format_args!("bannerwall: cannot hand {name} over to the next guard: {error}"));
    }
}
