//! Which request goes out when, and on which connection: pipelining that finds out by itself what
//! a server is able to do.
//!
//! A pipeline starts at [`FIRST_DEPTH`] and becomes [`GROWTH`] deeper with each answer, so that a
//! server that answers in order is asked everything within two or three round trips. When a
//! connection ends before everything on it was answered, the unanswered requests are asked again,
//! those of idempotent methods only, and the pipeline becomes shorter; it grows again with the next
//! answers. (nmap's falls back to one and stays there.) What a server announces is believed at once:
//! one that closes behind its first answer is asked over a few parallel connections from then on, one
//! request each; one that closes behind its Nth is not sent more than N on a connection again.
//!
//! This module knows neither octets nor time: it is told what happened.

use std::collections::VecDeque;

use super::plan::Plan;

/// Requests sent on a first connection before anything is known of the server. Unable servers
/// answer the first and ignore the others, which costs nothing but their octets.
const FIRST_DEPTH: u16 = 8;
/// By how much each answer in order makes the pipeline deeper: ninefold a round trip.
const GROWTH: u16 = 8;
/// The deepest pipeline.
const LAST_DEPTH: u16 = 256;
/// Connections at once to a server that is not able to keep one open.
const PARALLEL: usize = 4;
/// Connections in a row that brought no answer before the host is given up.
const STRIKES: u8 = 4;
/// Connections in a row that ended at the same request before that is given up.
const ATTEMPTS: u8 = 3;
/// Connections in a row that answered only the first of several before pipelining is given up.
const SINGLES: u8 = 2;

/// How the server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Several requests on a connection.
    Persistent,
    /// One request a connection.
    OneEach,
}

/// The requests of one host.
#[derive(Debug)]
pub(super) struct Asker {
    total: u16,
    /// The first that was never sent.
    next: u16,
    /// Sent before, not answered, to be sent again, in order.
    again: VecDeque<u16>,
    answered: u16,
    failed: u16,
    manner: Manner,
    depth: u16,
    ceiling: u16,
    /// Answers that the server gives on a connection at most.
    per_connection: u16,
    connections: usize,
    pipeline: bool,
    /// Connections with unanswered requests.
    busy: usize,
    strikes: u8,
    singles: u8,
    /// The request at which the last connections ended, and how many did.
    stuck: Option<(u16, u8)>,
}

/// The requests on one connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Sent and not answered, in order.
    in_flight: VecDeque<u16>,
    asked: u16,
    answered: u16,
    /// No more can be sent.
    last: bool,
}

impl Line {
    /// The request that is answered next.
    pub(super) fn front(&self) -> Option<u16> {
        self.in_flight.front().copied()
    }

    /// Nothing is unanswered.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }
}

impl Default for Asker {
    fn default() -> Self {
        Self {
            total: 0,
            next: 0,
            again: VecDeque::new(),
            answered: 0,
            failed: 0,
            manner: Manner::Persistent,
            depth: FIRST_DEPTH,
            ceiling: LAST_DEPTH,
            per_connection: u16::MAX,
            connections: 1,
            pipeline: true,
            busy: 0,
            strikes: 0,
            singles: 0,
            stuck: None,
        }
    }
}

impl Asker {
    /// Starts anew for a host with `total` requests.
    pub(super) fn begin(&mut self, total: u16, pipeline: bool, connections: usize) {
        let mut again = std::mem::take(&mut self.again);
        again.clear();
        let manner = if pipeline { Manner::Persistent } else { Manner::OneEach };
        *self = Self { total, again, manner, pipeline, connections: connections.max(1), ..Self::default() };
    }

    /// Answers so far.
    pub(super) fn answered(&self) -> u16 {
        self.answered
    }

    /// Everything is answered or given up.
    pub(super) fn is_over(&self) -> bool {
        self.answered + self.failed >= self.total
    }

    /// Everything is answered.
    pub(super) fn is_complete(&self) -> bool {
        self.answered >= self.total
    }

    /// More than one request is asked.
    pub(super) fn is_plural(&self) -> bool {
        self.total > 1
    }

    /// How many connections there should be.
    pub(super) fn wanted(&self) -> usize {
        if self.is_over() {
            return 0;
        }
        (self.busy + self.unsent()).min(self.allowed())
    }

    fn allowed(&self) -> usize {
        match self.manner {
            Manner::OneEach if self.pipeline => self.connections.max(PARALLEL),
            _ => self.connections,
        }
    }

    /// Requests that are on no connection.
    fn unsent(&self) -> usize {
        self.again.len() + usize::from(self.total - self.next)
    }

    /// Puts requests on a connection, as many as it may have now, and hands each to `send`.
    pub(super) fn fill(&mut self, line: &mut Line, plan: &Plan, mut send: impl FnMut(u16)) {
        let idle = line.is_idle();
        while line.in_flight.len() < self.room(line) {
            let Some(number) = self.peek() else { break };
            // A request that must not be asked twice goes alone: nobody could tell otherwise
            // whether the server had seen it when the connection broke.
            let alone = |number| !plan.is_idempotent(number);
            let behind_one_alone = line.front().is_some_and(alone);
            if !line.is_idle() && (alone(number) || behind_one_alone) {
                break;
            }
            self.pop();
            line.in_flight.push_back(number);
            line.asked += 1;
            send(number);
        }
        if idle && !line.is_idle() {
            self.busy += 1;
        }
    }

    /// How many requests a connection may have in flight.
    fn room(&self, line: &Line) -> usize {
        if line.last {
            return 0;
        }
        let depth = match self.manner {
            Manner::OneEach if line.asked > 0 => return 0,
            Manner::OneEach => 1,
            Manner::Persistent => self.depth.min(self.ceiling),
        };
        let left = self.per_connection.saturating_sub(line.asked);
        let depth = usize::from(depth).min(line.in_flight.len() + usize::from(left));
        // The connections share evenly what is left.
        let share = (line.in_flight.len() + self.unsent()).div_ceil(self.allowed());
        depth.min(share.max(1))
    }

    fn peek(&self) -> Option<u16> {
        self.again.front().copied().or_else(|| (self.next < self.total).then_some(self.next))
    }

    fn pop(&mut self) {
        if self.again.pop_front().is_none() {
            self.next += 1;
        }
    }

    /// The front request of a connection was answered; `persistent` when another answer can follow.
    pub(super) fn answer(&mut self, line: &mut Line, persistent: bool) {
        if line.in_flight.pop_front().is_none() {
            return;
        }
        line.answered += 1;
        self.answered += 1;
        self.strikes = 0;
        self.stuck = None;
        self.depth = self.depth.saturating_add(GROWTH).min(self.ceiling);
        if line.is_idle() {
            self.busy = self.busy.saturating_sub(1);
        }
        if !persistent {
            line.last = true;
            match line.answered {
                1 => self.manner = Manner::OneEach,
                answers => self.per_connection = answers,
            }
        }
    }

    /// A connection has ended; what was unanswered on it will be asked again, or is given up.
    pub(super) fn end(&mut self, line: &mut Line, plan: &Plan) {
        let unanswered = std::mem::take(&mut line.in_flight);
        let Line { answered, last, .. } = std::mem::take(line);
        let Some(front) = unanswered.front().copied() else { return };
        self.busy = self.busy.saturating_sub(1);
        let pipelined = unanswered.len() > 1;
        if !last {
            self.back_off(answered, pipelined);
        }
        if answered == 0 {
            self.strikes += 1;
        }
        let times = match self.stuck {
            Some((request, times)) if request == front => times + 1,
            _ => 1,
        };
        // What ended behind an announced close says nothing about the request that was next.
        self.stuck = (!last).then_some((front, times));
        let hopeless = !last && times >= ATTEMPTS;
        for number in unanswered.into_iter().rev() {
            if !plan.is_idempotent(number) || (hopeless && number == front) {
                self.failed += 1;
            } else {
                self.again.push_front(number);
            }
        }
        // A host that never answered gets one more chance, and only if it may have been the
        // pipeline that it did not like.
        let never = self.answered == 0 && (!pipelined || self.strikes > 1);
        if self.strikes >= STRIKES || never {
            self.give_up();
        }
    }

    /// The server ended or stalled without saying so, behind `answered` answers.
    fn back_off(&mut self, answered: u16, pipelined: bool) {
        match answered {
            0 => self.depth = 1,
            1 if pipelined => {
                self.depth = 1;
                self.singles += 1;
                if self.singles >= SINGLES {
                    self.ceiling = 1;
                }
            }
            _ => self.depth = (self.depth / 2).max(1),
        }
        // Alone on its connection, and that ends behind each answer without a word.
        if self.ceiling == 1 && answered == 1 && !pipelined {
            self.manner = Manner::OneEach;
        }
    }

    /// A connection could not be made: what was meant for it is asked on others, and fewer of them.
    pub(super) fn put_back(&mut self, line: &mut Line) {
        for number in std::mem::take(line).in_flight.into_iter().rev() {
            self.again.push_front(number);
        }
        self.busy = self.busy.saturating_sub(1);
        self.connections = self.busy.max(1);
        self.strikes += 1;
        if self.strikes >= STRIKES && self.busy == 0 {
            self.give_up();
        }
    }

    /// Nothing more is asked.
    pub(super) fn give_up(&mut self) {
        self.failed = self.total - self.answered;
        self.next = self.total;
        self.again.clear();
    }
}
