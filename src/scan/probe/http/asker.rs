//! Which request goes out when, and on which connection: pipelining that finds out by itself what
//! a server is able to do.
//!
//! A pipeline starts at [`FIRST_DEPTH`] and becomes deeper with each answer, so that a server that
//! answers in order is asked everything within two or three round trips. When a connection ends
//! before everything on it was answered, the unanswered requests are asked again, those of
//! idempotent methods only, through a pipeline of half the depth; it grows again with the next
//! answers, if more slowly each time. (nmap's falls back to one and stays there.)
//!
//! Behind requests that were sent together nothing is sent on their connection before all of them
//! are answered, unless the server has answered as many before: of one that drops what is too much
//! for it, the answer to a later request would else be taken for that to one that was dropped. Each
//! back-off asks for new proof.
//!
//! What a server announces is believed at once: one that closes behind its first answer is asked
//! over a few connections from then on, one request each; one that closes behind its Nth is not sent
//! more than N on a connection again. What it only does counts too, but it may have been an
//! accident: after some answers pipelining is tried once more. Every belief that an answer disproves
//! is given up.
//!
//! This module knows neither octets nor time: it is told what happened.

use std::collections::VecDeque;

use super::plan::Plan;
use crate::scan::HttpOptions;

/// Requests sent on a first connection before anything is known of the server: as many as small
/// answers to them fit into the server's first flight (RFC 6928), and as nmap begins with. Unable
/// servers answer the first and ignore the others, which costs nothing but their octets.
const FIRST_DEPTH: u32 = 40;
/// By how much each answer in order makes the pipeline deeper, at first: ninefold a round trip.
const GROWTH: u32 = 8;
/// Each back-off divides the growth by two to the power of this: to twofold a round trip, and less.
const SLOWDOWN: u32 = 3;
/// The deepest pipeline.
const LAST_DEPTH: u32 = 512;
/// Depth and growth are counted in parts of a request.
const PARTS: u32 = 64;
/// Connections in a row that brought no answer before the host is given up, for each that there
/// may be at once.
const STRIKES: usize = 4;
/// Connections that ended at the same request before that is given up; for the last of them it
/// had a connection of its own.
const ATTEMPTS: u8 = 3;
/// Answers in another manner before pipelining is tried again on a server that seemed unable.
const TRIAL: u16 = 16;
/// How often a server must have seemed unable to be taken for it.
const CONVICTION: u8 = 2;

/// How the server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Several requests on a connection, without waiting.
    Pipelined,
    /// Several requests on a connection, each when the one before is answered.
    InTurn,
    /// One request a connection.
    OneEach,
}

/// What follows an answer on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// Perhaps another one.
    Another,
    /// Nothing, as behind any answer of this server: it says so.
    Nothing,
    /// Nothing, because of this very answer: an error, an endless body, framing that is not trusted.
    Cut,
}

/// How a connection ended on which requests were unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The server closed it, or it was closed for what the server sent.
    Closed,
    /// The server was silent.
    Stalled,
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
    /// In [`PARTS`] of a request.
    depth: u32,
    back_offs: u32,
    /// So many requests that were sent together it has answered.
    proven: usize,
    /// Answers that the server gives on a connection at most.
    per_connection: u16,
    /// Connections at once that the user allows.
    connections: usize,
    /// Connections at once that the server was seen to refuse more than.
    accepted: usize,
    /// It answers so soon that several connections could only stand in each other's way.
    prompt: bool,
    pipeline: bool,
    /// Connections with unanswered requests.
    busy: usize,
    /// Of a connection's so manieth batch, what each one's share of it is; that of the first is told by what
    /// is unanswered.
    share: (u16, usize),
    /// Connections in a row without an answer.
    strikes: u8,
    /// How often the server was seen to be unable, without saying so.
    unable: u8,
    /// Answers before pipelining is tried again; none when it is not.
    trial: Option<u16>,
    /// First answers in a row that were cut.
    cuts: u8,
    /// Behind how many answers the last connection ended without a word.
    lapse: Option<u16>,
    /// Requests at which connections ended, and how many did.
    troubles: Vec<(u16, u8)>,
}

/// The requests on one connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Sent and not answered, in order.
    in_flight: VecDeque<u16>,
    asked: u16,
    answered: u16,
    /// Those that were sent together when nothing was unanswered; 0 until then.
    together: usize,
    /// How often requests were sent when nothing was unanswered.
    batches: u16,
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

    /// Several requests are or were on it.
    pub(super) fn is_shared(&self) -> bool {
        self.asked > 1
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
            manner: Manner::Pipelined,
            depth: FIRST_DEPTH * PARTS,
            back_offs: 0,
            proven: 0,
            per_connection: u16::MAX,
            connections: 1,
            accepted: usize::MAX,
            prompt: false,
            pipeline: true,
            busy: 0,
            share: (0, usize::MAX),
            strikes: 0,
            unable: 0,
            trial: None,
            cuts: 0,
            lapse: None,
            troubles: Vec::new(),
        }
    }
}

impl Asker {
    /// Starts anew for a host with `total` requests.
    pub(super) fn begin(&mut self, total: u16, pipeline: bool, connections: usize) {
        let (mut again, mut troubles) = (std::mem::take(&mut self.again), std::mem::take(&mut self.troubles));
        again.clear();
        troubles.clear();
        let manner = if pipeline { Manner::Pipelined } else { Manner::OneEach };
        let connections = connections.max(1);
        *self = Self { total, again, troubles, manner, pipeline, connections, ..Self::default() };
    }

    /// Whether all of the server's answers came so soon that there was hardly anything to wait for.
    pub(super) fn is_prompt(&mut self, prompt: bool) {
        self.prompt = prompt;
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

    /// There is nothing to ask now, but there may be again.
    pub(super) fn may_rest(&self) -> bool {
        !self.is_over() && self.unsent() == 0
    }

    /// How many connections there should be.
    pub(super) fn wanted(&self) -> usize {
        if self.is_over() {
            return 0;
        }
        (self.busy + self.unsent()).min(self.allowed())
    }

    fn allowed(&self) -> usize {
        let allowed = match self.manner {
            Manner::OneEach | Manner::InTurn if self.pipeline && !self.prompt => {
                self.connections.max(HttpOptions::FALLBACK_CONNECTIONS)
            }
            _ => self.connections,
        };
        allowed.min(self.accepted)
    }

    /// Requests that are on no connection.
    fn unsent(&self) -> usize {
        self.again.len() + usize::from(self.total - self.next)
    }

    /// Connections that ended at a request.
    pub(super) fn troubles(&self, number: u16) -> u8 {
        let found = self.troubles.iter().find(|(other, _)| *other == number);
        found.map_or(0, |(_, times)| *times)
    }

    fn trouble(&mut self, number: u16) -> u8 {
        match self.troubles.iter_mut().find(|(other, _)| *other == number) {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                self.troubles.push((number, 1));
                1
            }
        }
    }

    /// Puts requests on a connection, as many as it may have now, and hands each to `send`.
    pub(super) fn fill(&mut self, line: &mut Line, plan: &Plan, mut send: impl FnMut(u16)) {
        let idle = line.is_idle();
        if idle {
            line.together = 0;
            if line.batches > self.share.0 {
                self.share = (line.batches, self.unsent().div_ceil(self.allowed()));
            }
        }
        while line.in_flight.len() < self.room(line) {
            let Some(number) = self.peek() else { break };
            if !self.may_join(line, number, plan) {
                break;
            }
            self.pop();
            line.in_flight.push_back(number);
            line.asked += 1;
            send(number);
        }
        if idle && !line.is_idle() {
            line.together = line.in_flight.len();
            line.batches = line.batches.saturating_add(1);
            self.busy += 1;
        }
    }

    /// Whether a request may be sent behind what is on a connection.
    ///
    /// One that must not be asked twice goes alone: nobody could tell otherwise whether the server
    /// had seen it when the connection broke. One that may be what breaks connections gets its own.
    fn may_join(&self, line: &Line, number: u16, plan: &Plan) -> bool {
        let suspect = |number| self.troubles(number) + 1 >= ATTEMPTS;
        let alone = |number| !plan.is_idempotent(number) || suspect(number);
        match line.front() {
            Some(front) => !alone(number) && !alone(front),
            None => line.asked == 0 || !suspect(number),
        }
    }

    /// How many requests a connection may have in flight.
    fn room(&self, line: &Line) -> usize {
        if line.last {
            return 0;
        }
        let depth = match self.manner {
            Manner::OneEach if line.asked > 0 => return 0,
            Manner::OneEach | Manner::InTurn => 1,
            Manner::Pipelined => usize::try_from(self.depth / PARTS).unwrap_or(usize::MAX),
        };
        let depth = match line.together {
            0 => depth,
            together if together > self.proven => return 0,
            _ => depth.min(self.proven),
        };
        let left = self.per_connection.saturating_sub(line.asked);
        let depth = depth.min(line.in_flight.len() + usize::from(left));
        // The connections share evenly what is left. One whose answers are all there shares with the others
        // what is on none: what they have in flight is about to be answered, too.
        let share = match self.share {
            (batch @ 1.., share) if batch == line.batches && line.together == 0 => share,
            _ => usize::from(self.total.saturating_sub(self.answered + self.failed)).div_ceil(self.allowed()),
        };
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

    /// The front request of a connection was answered.
    pub(super) fn answer(&mut self, line: &mut Line, behind: Behind) {
        if line.in_flight.pop_front().is_none() {
            return;
        }
        line.answered += 1;
        self.answered += 1;
        self.strikes = 0;
        if line.is_idle() {
            self.busy = self.busy.saturating_sub(1);
            self.proven = self.proven.max(line.together);
        }
        self.deepen();
        match (behind, line.answered) {
            (Behind::Another, answers) => {
                self.cuts = 0;
                // It said that it closes here, and now it does not.
                if answers >= self.per_connection && self.lapse != Some(answers) {
                    self.per_connection = u16::MAX;
                }
                // Likewise.
                if self.manner == Manner::OneEach && self.unable == 0 && self.pipeline {
                    self.manner = Manner::Pipelined;
                }
                return;
            }
            (Behind::Nothing, 1) => self.manner = Manner::OneEach,
            (Behind::Nothing, answers) => self.per_connection = answers,
            (Behind::Cut, 1) => {
                self.cuts += 1;
                if self.cuts > 1 {
                    self.manner = Manner::OneEach;
                }
            }
            (Behind::Cut, _) => self.halve(line.asked),
        }
        line.last = true;
    }

    /// An answer came in order.
    fn deepen(&mut self) {
        let growth = (GROWTH * PARTS).checked_shr(SLOWDOWN * self.back_offs).unwrap_or(0);
        self.depth = (self.depth + growth).min(LAST_DEPTH * PARTS);
        match &mut self.trial {
            Some(0) => {
                self.trial = None;
                self.manner = Manner::Pipelined;
                self.depth = 2 * PARTS;
            }
            Some(left) => *left -= 1,
            None => {}
        }
    }

    fn halve(&mut self, asked: u16) {
        self.depth = (self.depth.min(u32::from(asked) * PARTS) / 2).max(PARTS);
    }

    /// The server had enough of waiting (408) before it read the front request of a connection,
    /// which so is still unanswered; the connection is at its end.
    pub(super) fn excuse(&mut self, line: &mut Line) {
        if let Some(front) = line.front() {
            self.trouble(front);
        }
        line.last = true;
    }

    /// A connection has ended; what was unanswered on it will be asked again, or is given up.
    pub(super) fn end(&mut self, line: &mut Line, plan: &Plan, how: Ended) {
        let Line { in_flight: unanswered, asked, answered, last, .. } = std::mem::take(line);
        let Some(front) = unanswered.front().copied() else { return };
        self.busy = self.busy.saturating_sub(1);
        if answered == 0 {
            self.strikes = self.strikes.saturating_add(1);
        }
        // What ended behind an announced close says nothing about the request that was next.
        let mut times = 0;
        if !last {
            self.back_off(asked, answered, how);
            times = self.trouble(front);
        }
        for number in unanswered.into_iter().rev() {
            let hopeless = number == front && times >= ATTEMPTS;
            if !plan.is_idempotent(number) || hopeless {
                self.failed += 1;
            } else if number == front && times > 0 {
                // It may be what the server stumbles over: the others are asked first.
                self.again.push_back(number);
            } else {
                self.again.push_front(number);
            }
        }
        // A host that never answered gets one more chance, and only if it may have been the
        // pipeline that it did not like.
        let never = self.answered == 0 && (asked == 1 || self.strikes > 1);
        if usize::from(self.strikes) >= STRIKES * self.allowed() || never {
            self.give_up();
        }
    }

    /// The server ended or stalled without a word, behind `answered` answers to `asked` requests.
    fn back_off(&mut self, asked: u16, answered: u16, how: Ended) {
        self.proven = 0;
        match (self.manner, answered, how) {
            (Manner::Pipelined, 0, _) if asked > 1 => {
                self.back_offs += 1;
                self.depth = PARTS;
            }
            // One request, no answer: that says nothing about more of them.
            (_, 0, _) => {}
            (Manner::Pipelined, 1, Ended::Stalled) => self.suspect(Manner::InTurn),
            (_, 1, _) => self.suspect(Manner::OneEach),
            (_, _, Ended::Closed) if self.lapse == Some(answered) => self.per_connection = answered,
            _ => {
                self.lapse = (how == Ended::Closed).then_some(answered);
                self.back_offs += 1;
                self.halve(asked);
            }
        }
    }

    /// The server seems not to be able to do more than `manner`.
    fn suspect(&mut self, manner: Manner) {
        self.unable += 1;
        self.back_offs += 1;
        self.manner = manner;
        self.trial = (self.unable < CONVICTION).then_some(TRIAL);
    }

    /// A connection could not be made: what was meant for it is asked on others, and fewer of them.
    pub(super) fn put_back(&mut self, line: &mut Line) {
        for number in std::mem::take(line).in_flight.into_iter().rev() {
            self.again.push_front(number);
        }
        self.busy = self.busy.saturating_sub(1);
        self.accepted = self.busy.max(1);
        self.strikes = self.strikes.saturating_add(1);
        if usize::from(self.strikes) >= STRIKES && self.busy == 0 {
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

#[cfg(test)]
mod tests;
