//! The results of targets, on their way to the database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::event::{Event, EventSink, PortState};
use crate::fleet::database::ShardLease;
use crate::scan::report::{CollectedEvents, ResultSelection, connect_event};
use crate::scan::targets::FinishedTarget;
use crate::scan::{OutcomeSink, TargetOutcome};

/// Messages to the writing thread.
#[derive(Debug)]
pub(super) enum WriterMessage {
    /// A shard that the worker has from now on.
    Taken(Box<ShardLease>, Arc<AtomicBool>),
    /// Results of targets.
    Answers(Vec<TargetResult>),
}

/// The result of a target.
#[derive(Debug)]
pub(super) struct TargetResult {
    pub(super) finished: FinishedTarget,
    pub(super) matched: bool,
    pub(super) state: PortState,
    /// Events to report; none if the target did not accept and no output needs it.
    pub(super) told: Option<Box<TargetEvents>>,
}

/// The events of a target.
#[derive(Debug)]
pub(super) struct TargetEvents {
    /// The connection, and everything that the target sent.
    pub(super) events: Vec<Event>,
    /// True if it gets a result of its own rather than only an entry in the inventory.
    pub(super) is_shown: bool,
}

/// Number of answers that are handed over together.
const TOGETHER: usize = 256;

/// Limit of the time for which an answer waits for others.
const HELD: Duration = Duration::from_millis(20);

/// True if a server is already known.
pub(super) type IsKnownServer = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// Answers of one thread.
pub(super) struct ResultReporter {
    collected: CollectedEvents,
    selection: Arc<ResultSelection>,
    knows: IsKnownServer,
    waiting: Arc<AtomicUsize>,
    answers: Vec<TargetResult>,
    handed_over: Instant,
    sender: Sender<WriterMessage>,
}

impl ResultReporter {
    /// Returns a reporter of the selected targets, and of servers that `knows` for the inventory when they
    /// are gone.
    pub(super) fn new(
        selection: Arc<ResultSelection>,
        knows: IsKnownServer,
        waiting: Arc<AtomicUsize>,
        sender: Sender<WriterMessage>,
    ) -> Self {
        let (collected, answers, handed_over) = (CollectedEvents::default(), Vec::new(), Instant::now());
        Self { collected, selection, knows, waiting, answers, handed_over, sender }
    }

    fn told(
        &mut self,
        outcome: &TargetOutcome<'_>,
        events: Vec<Event>,
        matched: bool,
    ) -> Option<Box<TargetEvents>> {
        let is_shown = self.selection.is_shown(outcome, matched);
        let concerns = match outcome.state {
            PortState::Open => true,
            // A port without an answer matters only if a service is known there: then the service is
            // gone.
            PortState::Closed | PortState::Filtered => (self.knows)(outcome.target.address),
            // A fault of this machine says nothing about the target.
            PortState::Error => false,
        };
        if !is_shown && !concerns {
            return None;
        }
        let mut events = events;
        events.insert(0, connect_event(outcome));
        self.collected.sign(outcome, &mut events);
        Some(Box::new(TargetEvents { events, is_shown }))
    }

    fn hand_over(&mut self) {
        if !self.answers.is_empty() {
            // If the worker has given up, the receiver is gone: the targets are probed again.
            let _ = self.sender.send(WriterMessage::Answers(std::mem::take(&mut self.answers)));
        }
    }
}

impl EventSink for ResultReporter {
    fn emit(&mut self, event: Event) {
        self.collected.emit(event);
    }
}

impl OutcomeSink for ResultReporter {
    fn finished(&mut self, outcome: &TargetOutcome<'_>) {
        let events = self.collected.take(outcome);
        let matched = self.selection.is_matched(outcome, &events);
        let finished = FinishedTarget::new(outcome, matched).with_findings(&events);
        let told = self.told(outcome, events, matched);
        // Counted before the result is sent, so that the supply never sees fewer unwritten results than
        // there are.
        self.waiting.fetch_add(1, Relaxed);
        self.answers.push(TargetResult { finished, matched, state: outcome.state, told });
        if self.answers.len() >= TOGETHER {
            self.hand_over();
        }
    }

    fn turn(&mut self, now: Instant) {
        if self.answers.is_empty() {
            self.handed_over = now;
        } else if now.duration_since(self.handed_over) >= HELD {
            self.handed_over = now;
            self.hand_over();
        }
    }

    fn end(&mut self) {
        self.hand_over();
    }
}
