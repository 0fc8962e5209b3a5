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
//! Who is slow is not unable. A wait that was cut short ([`Ended::Hurried`]) counts neither against the
//! request nor against the host, and that request is waited for in full the next time. A path at which
//! the server closes is that path's affair: what was never asked comes before it is tried again, and
//! only a host that answers nothing is given up as a whole.
//!
//! An error that ends a connection on which other requests are unanswered may be any one's: some
//! servers read all that came together, and answer it once. It is credited to nobody, and the request
//! that it seemed to answer is asked again with nothing behind it ([`Asker::doubt`]).
//!
//! What a server announces is believed at once: one that closes behind its first answer is asked
//! over a few connections from then on, one request each; one that closes behind its Nth is not sent
//! more than N on a connection again. What it only does counts too, but it may have been an
//! accident: after some answers pipelining is tried once more. Every belief that an answer disproves
//! is given up.
//!
//! This module knows neither octets nor time: it is told what happened.

mod ending;
mod line;
mod record;

use std::collections::VecDeque;

use super::plan::Plan;
use crate::scan::HttpOptions;
pub(super) use line::{Behind, Ended, Line};
use record::Records;

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
/// Connections that ended at the same request before that is given up; for the last of them it
/// had a connection of its own.
const ATTEMPTS: u8 = 3;

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
    /// Number of the last batch that any connection was given, and how many requests of it each may have. The
    /// first batch, number 0, is shared by what is unanswered.
    share: (u16, usize),
    /// Connections in a row without an answer, and those of them that were asked a single request.
    strikes: u8,
    lone_strikes: usize,
    /// How often the server was seen to be unable, without saying so.
    unable: u8,
    /// Answers before pipelining is tried again; none when it is not.
    trial: Option<u16>,
    /// First answers in a row that were cut.
    cuts: u8,
    /// Behind how many answers the last connection ended without a word.
    lapse: Option<u16>,
    /// Errors in a row that may have been any one's.
    doubts: u8,
    /// So many stalls may come of requests that were not waited for: the server is still at them.
    pardons: u8,
    records: Records,
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
            lone_strikes: 0,
            unable: 0,
            trial: None,
            cuts: 0,
            lapse: None,
            doubts: 0,
            pardons: 0,
            records: Records::default(),
        }
    }
}

impl Asker {
    /// Starts anew for a host with `total` requests.
    pub(super) fn begin(&mut self, total: u16, pipeline: bool, connections: usize) {
        let (mut again, mut records) = (std::mem::take(&mut self.again), std::mem::take(&mut self.records));
        again.clear();
        records.clear();
        let manner = if pipeline { Manner::Pipelined } else { Manner::OneEach };
        let connections = connections.max(1);
        *self = Self { total, again, records, manner, pipeline, connections, ..Self::default() };
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

    /// True if an error may still be taken for no answer to a request.
    pub(super) fn is_excusable(&self, number: u16) -> bool {
        self.records.get(number).troubles == 0
    }

    /// True if a request is waited for as long as users want: it was not answered once.
    pub(super) fn is_waited_for(&self, number: u16) -> bool {
        self.records.get(number).is_marked()
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
            let Some((number, again)) = self.peek() else { break };
            if !self.may_join(line, number, plan) {
                break;
            }
            self.pop(again);
            line.in_flight.push_back(number);
            line.asked += 1;
            send(number);
        }
        if idle && !line.is_idle() {
            (line.together, line.leading) = (line.in_flight.len(), true);
            line.batches = line.batches.saturating_add(1);
            self.busy += 1;
        }
    }

    /// True if a request may be sent behind what is on a connection.
    ///
    /// One that must not be asked twice goes alone: nobody could tell otherwise whether the server
    /// had seen it when the connection broke. One that may be what breaks connections gets its own.
    fn may_join(&self, line: &Line, number: u16, plan: &Plan) -> bool {
        let suspect = |number| self.records.get(number).troubles + 1 >= ATTEMPTS;
        let doubted = |number| self.records.get(number).doubted;
        let alone = |number| !plan.is_idempotent(number) || suspect(number) || doubted(number);
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
            // Behind more than it has proved to answer nothing is sent: should it drop one of those, the
            // answer to what came later would be taken for the dropped one's.
            together if together > self.proven => return 0,
            _ => depth.min(self.proven),
        };
        // It closes behind so many: what is sent beyond that would only have to be asked again.
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

    /// The request that is asked next, and whether it was asked before: those that went down with
    /// another one first, then what was never asked, then those at which something happened.
    fn peek(&self) -> Option<(u16, bool)> {
        let again = self.again.front().map(|number| (*number, true));
        let never = (self.next < self.total).then_some((self.next, false));
        match again {
            Some((number, _)) if self.records.get(number).is_marked() => never.or(again),
            _ => again.or(never),
        }
    }

    fn pop(&mut self, again: bool) {
        match again {
            true => drop(self.again.pop_front()),
            false => self.next += 1,
        }
    }

    /// The front request of a connection was answered.
    pub(super) fn answer(&mut self, line: &mut Line, behind: Behind) {
        if line.in_flight.pop_front().is_none() {
            return;
        }
        line.answered += 1;
        line.leading = false;
        self.answered += 1;
        self.strikes = 0;
        if line.is_idle() {
            self.busy = self.busy.saturating_sub(1);
            self.proven = self.proven.max(line.together);
        }
        self.deepen();
        match (behind, line.answered) {
            (Behind::Another, answers) => {
                (self.cuts, self.doubts) = (0, 0);
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
}

#[cfg(test)]
mod tests;
