//! What came of each target, on its way to the database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::event::{Event, EventSink, PortState};
use crate::fleet::queue::Lease;
use crate::scan::report::{Collected, Selection, connect_event};
use crate::scan::targets::Finished;
use crate::scan::{Outcome, Report};

/// What the thread that writes is told.
#[derive(Debug)]
pub(super) enum Message {
    /// A shard that the worker has from now on.
    Taken(Box<Lease>, Arc<AtomicBool>),
    /// What came of targets.
    Answers(Vec<Answer>),
}

/// What came of a target.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) finished: Finished,
    pub(super) matched: bool,
    pub(super) state: PortState,
    /// What there is to tell; none where it did not accept and nobody wants to know.
    pub(super) told: Option<Box<Told>>,
}

/// What there is to tell of a target.
#[derive(Debug)]
pub(super) struct Told {
    /// That it was asked, and all that it said.
    pub(super) events: Vec<Event>,
    /// There is to be a result of it, not only an entry in the inventory.
    pub(super) is_shown: bool,
}

/// Answers that are handed over together.
const TOGETHER: usize = 256;

/// How long one is kept back for others at most.
const HELD: Duration = Duration::from_millis(20);

/// Says whether a server is known to be there.
pub(super) type Knows = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// One thread's answers.
pub(super) struct Reporter {
    collected: Collected,
    selection: Arc<Selection>,
    knows: Knows,
    waiting: Arc<AtomicUsize>,
    answers: Vec<Answer>,
    handed_over: Instant,
    sender: Sender<Message>,
}

impl Reporter {
    /// One that tells of what is selected, and to the inventory of servers that it `knows` when they are
    /// gone.
    pub(super) fn new(
        selection: Arc<Selection>,
        knows: Knows,
        waiting: Arc<AtomicUsize>,
        sender: Sender<Message>,
    ) -> Self {
        let (collected, answers, handed_over) = (Collected::default(), Vec::new(), Instant::now());
        Self { collected, selection, knows, waiting, answers, handed_over, sender }
    }

    fn told(&mut self, outcome: &Outcome<'_>, events: Vec<Event>, matched: bool) -> Option<Box<Told>> {
        let is_shown = self.selection.is_shown(outcome, matched);
        let concerns = match outcome.state {
            PortState::Open => true,
            PortState::Closed | PortState::Filtered => (self.knows)(outcome.target.address),
            PortState::Error => false,
        };
        if !is_shown && !concerns {
            return None;
        }
        let mut events = events;
        events.insert(0, connect_event(outcome));
        self.collected.sign(outcome, &mut events);
        Some(Box::new(Told { events, is_shown }))
    }

    fn hand_over(&mut self) {
        if !self.answers.is_empty() {
            // Nobody takes them where the worker has given up: they are asked again.
            let _ = self.sender.send(Message::Answers(std::mem::take(&mut self.answers)));
        }
    }
}

impl EventSink for Reporter {
    fn emit(&mut self, event: Event) {
        self.collected.emit(event);
    }
}

impl Report for Reporter {
    fn finished(&mut self, outcome: &Outcome<'_>) {
        let events = self.collected.take(outcome);
        let matched = self.selection.is_matched(outcome, &events);
        let told = self.told(outcome, events, matched);
        self.waiting.fetch_add(1, Relaxed);
        let finished = Finished::new(outcome, matched);
        self.answers.push(Answer { finished, matched, state: outcome.state, told });
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
