//! Chooses the connection and the time of each request: pipelining that adapts to the server's abilities.
//!
//! A pipeline starts at [`FIRST_DEPTH`] and becomes deeper with each response. A server that answers in order
//! gets all requests within two or three round trips. If a connection ends early, its unanswered requests are
//! sent again, but only those of idempotent methods, with half the depth. The depth grows again with the next
//! responses, more slowly each time. (nmap falls back to one and stays there.)
//!
//! After a batch of requests nothing is sent on its connection until all of them are answered, unless the
//! server has answered as many before. A server may drop requests that exceed its limit. The response to a
//! later request would then be taken for that of a dropped one. Each back-off requires new proof.
//!
//! A slow server is not a limited one. A wait that was cut short ([`PrematureEnd::Hurried`]) counts neither
//! against the request nor against the host, and the next wait for that request is full. If the server closes
//! at one path, the path may be the cause: new requests come before its retry. Only a host that answers
//! nothing is given up as a whole.
//!
//! An error that ends a connection with other unanswered requests may belong to any of them: some servers
//! read a whole batch and answer it once. The error is assigned to no request. The request that it seemed to
//! answer is sent again with nothing behind it ([`RequestScheduler::doubt`]).
//!
//! Announcements of a server count at once. If it closes after its first response, each later connection gets
//! one request. If it closes after its Nth, no connection gets more than N again. Unannounced behaviour
//! counts, too, but may have been an accident: pipelining is tried again after some responses. A response
//! that disproves an assumption ends it.
//!
//! This module has neither bytes nor a clock: the caller reports what happened.

mod connection_requests;
mod failed_requests;
mod retries;

use std::collections::VecDeque;

use super::request_plan::RequestPlan;
use crate::scan::HttpOptions;
pub(super) use connection_requests::{AfterResponse, ConnectionRequests, PrematureEnd};
use failed_requests::FailedRequests;

/// Requests on a first connection to an unknown server. That many small responses fit into the server's first
/// flight (RFC 6928), and nmap starts with the same number. Limited servers answer the first and ignore the
/// others, which costs only their bytes.
const FIRST_DEPTH: u32 = 40;
/// Growth of the pipeline with each response in order, at first: ninefold in a round trip.
const GROWTH: u32 = 8;
/// Each back-off divides the growth by two to the power of this: to twofold in a round trip, and less.
const SLOWDOWN: u32 = 3;
/// Limit of the pipeline's depth.
const LAST_DEPTH: u32 = 512;
/// Depth and growth are counted in fractions of a request.
const PARTS: u32 = 64;
/// Number of connections that ended at the same request before it is given up; for the last it was alone.
const ATTEMPTS: u8 = 3;

/// Manner of sending requests to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestMode {
    /// Several requests on a connection, without waiting.
    Pipelined,
    /// Several requests on a connection, each after the previous response.
    InTurn,
    /// One request on each connection.
    OneEach,
}

/// Requests to one host.
#[derive(Debug)]
pub(super) struct RequestScheduler {
    total: u16,
    /// First request that was never sent.
    next: u16,
    /// Requests to send again, in order.
    again: VecDeque<u16>,
    answered: u16,
    failed: u16,
    manner: RequestMode,
    /// Depth of the pipeline, in [`PARTS`] of a request.
    depth: u32,
    back_offs: u32,
    /// Largest batch that the server has answered completely.
    proven: usize,
    /// Limit of responses on one connection.
    per_connection: u16,
    /// Limit of connections from the user.
    connections: usize,
    /// Limit of connections that the server accepts, as far as known.
    accepted: usize,
    /// True if the server is so fast that several connections would not help.
    prompt: bool,
    pipeline: bool,
    /// Number of connections with unanswered requests.
    busy: usize,
    /// Number of the latest batch on any connection, and its requests for each connection. Batch 0, the
    /// first, is divided by the unanswered requests instead.
    share: (u16, usize),
    /// Connections in a row without a response, and how many of them had a single request.
    strikes: u8,
    lone_strikes: usize,
    /// Number of unannounced limits seen.
    unable: u8,
    /// Remaining responses until pipelining is tried again, if it is.
    trial: Option<u16>,
    /// Number of first responses in a row that ended their connection.
    cuts: u8,
    /// Number of responses before the last unannounced end.
    lapse: Option<u16>,
    /// Number of ambiguous errors in a row.
    doubts: u8,
    /// Number of stalls to forgive: the server may still work on requests that were cut short.
    pardons: u8,
    records: FailedRequests,
}

impl Default for RequestScheduler {
    fn default() -> Self {
        Self {
            total: 0,
            next: 0,
            again: VecDeque::new(),
            answered: 0,
            failed: 0,
            manner: RequestMode::Pipelined,
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
            records: FailedRequests::default(),
        }
    }
}

impl RequestScheduler {
    /// Resets the state for a host with `total` requests.
    pub(super) fn begin(&mut self, total: u16, pipeline: bool, connections: usize) {
        let (mut again, mut records) = (std::mem::take(&mut self.again), std::mem::take(&mut self.records));
        again.clear();
        records.clear();
        let manner = if pipeline { RequestMode::Pipelined } else { RequestMode::OneEach };
        let connections = connections.max(1);
        *self = Self { total, again, records, manner, pipeline, connections, ..Self::default() };
    }

    /// Sets whether all responses were so fast that more connections would not help.
    pub(super) fn is_prompt(&mut self, prompt: bool) {
        self.prompt = prompt;
    }

    /// Returns the number of responses.
    pub(super) fn answered(&self) -> u16 {
        self.answered
    }

    /// True if every request is answered or given up.
    pub(super) fn is_over(&self) -> bool {
        self.answered + self.failed >= self.total
    }

    /// True if every request is answered.
    pub(super) fn is_complete(&self) -> bool {
        self.answered >= self.total
    }

    /// True if there is more than one request.
    pub(super) fn is_plural(&self) -> bool {
        self.total > 1
    }

    /// True if there is nothing to send now, but perhaps later.
    pub(super) fn may_rest(&self) -> bool {
        !self.is_over() && self.unsent() == 0
    }

    /// Returns the number of needed connections.
    pub(super) fn wanted(&self) -> usize {
        if self.is_over() {
            return 0;
        }
        (self.busy + self.unsent()).min(self.allowed())
    }

    fn allowed(&self) -> usize {
        let allowed = match self.manner {
            RequestMode::OneEach | RequestMode::InTurn if self.pipeline && !self.prompt => {
                self.connections.max(HttpOptions::FALLBACK_CONNECTIONS)
            }
            _ => self.connections,
        };
        allowed.min(self.accepted)
    }

    /// Returns the number of requests on no connection.
    fn unsent(&self) -> usize {
        self.again.len() + usize::from(self.total - self.next)
    }

    /// True if an error may still be treated as a missing response to a request.
    pub(super) fn is_excusable(&self, number: u16) -> bool {
        self.records.get(number).troubles == 0
    }

    /// True if a request gets the user's full timeout, because a wait for it failed before.
    pub(super) fn is_waited_for(&self, number: u16) -> bool {
        self.records.get(number).is_marked()
    }

    /// Puts as many requests on a connection as it may have now, and passes each to `send`.
    pub(super) fn fill(
        &mut self,
        line: &mut ConnectionRequests,
        plan: &RequestPlan,
        mut send: impl FnMut(u16),
    ) {
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

    /// True if a request may be sent behind those on a connection.
    ///
    /// A request that must not be repeated is sent alone. Otherwise nobody could know whether the server had
    /// read it when the connection broke. A request that may break connections gets its own connection.
    fn may_join(&self, line: &ConnectionRequests, number: u16, plan: &RequestPlan) -> bool {
        let suspect = |number| self.records.get(number).troubles + 1 >= ATTEMPTS;
        let doubted = |number| self.records.get(number).doubted;
        let alone = |number| !plan.is_idempotent(number) || suspect(number) || doubted(number);
        match line.front() {
            Some(front) => !alone(number) && !alone(front),
            None => line.asked == 0 || !suspect(number),
        }
    }

    /// Returns the limit of requests in flight on a connection.
    fn room(&self, line: &ConnectionRequests) -> usize {
        if line.last {
            return 0;
        }
        let depth = match self.manner {
            RequestMode::OneEach if line.asked > 0 => return 0,
            RequestMode::OneEach | RequestMode::InTurn => 1,
            RequestMode::Pipelined => usize::try_from(self.depth / PARTS).unwrap_or(usize::MAX),
        };
        let depth = match line.together {
            0 => depth,
            // A batch larger than the proven one gets nothing behind it. If the server dropped a request of
            // it, a later response would be assigned to the dropped request.
            together if together > self.proven => return 0,
            _ => depth.min(self.proven),
        };
        // The server closes after this many: requests beyond would only have to be sent again.
        let left = self.per_connection.saturating_sub(line.asked);
        let depth = depth.min(line.in_flight.len() + usize::from(left));
        // The connections share the remaining requests evenly. A connection whose batch is answered shares
        // the unsent requests with the others, whose batches are about to be answered, too.
        let share = match self.share {
            (batch @ 1.., share) if batch == line.batches && line.together == 0 => share,
            _ => usize::from(self.total.saturating_sub(self.answered + self.failed)).div_ceil(self.allowed()),
        };
        depth.min(share.max(1))
    }

    /// Returns the next request, and whether it is a retry. Retries after another request's failure come
    /// first, then new requests, then requests with failures of their own.
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

    /// Handles the response to the front request of a connection.
    pub(super) fn answer(&mut self, line: &mut ConnectionRequests, behind: AfterResponse) {
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
            (AfterResponse::Another, answers) => {
                (self.cuts, self.doubts) = (0, 0);
                // The announced limit was wrong, so it is lifted.
                if answers >= self.per_connection && self.lapse != Some(answers) {
                    self.per_connection = u16::MAX;
                }
                // The same for an announced close after each response.
                if self.manner == RequestMode::OneEach && self.unable == 0 && self.pipeline {
                    self.manner = RequestMode::Pipelined;
                }
                return;
            }
            (AfterResponse::Nothing, 1) => self.manner = RequestMode::OneEach,
            (AfterResponse::Nothing, answers) => self.per_connection = answers,
            (AfterResponse::Cut, 1) => {
                self.cuts += 1;
                if self.cuts > 1 {
                    self.manner = RequestMode::OneEach;
                }
            }
            (AfterResponse::Cut, _) => self.halve(line.asked),
        }
        line.last = true;
    }

    /// Deepens the pipeline after a response in order.
    fn deepen(&mut self) {
        let growth = (GROWTH * PARTS).checked_shr(SLOWDOWN * self.back_offs).unwrap_or(0);
        self.depth = (self.depth + growth).min(LAST_DEPTH * PARTS);
        match &mut self.trial {
            Some(0) => {
                self.trial = None;
                self.manner = RequestMode::Pipelined;
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
