//! Connections that end with unanswered requests: retries, suspicions, and the decision to give up on a host.

use super::super::request_plan::RequestPlan;
use super::{
    ATTEMPTS, AfterResponse, ConnectionRequests, PARTS, PrematureEnd, RequestMode, RequestScheduler,
};

/// Number of single-request connections without a response after which a host that never answered is given
/// up.
const STRIKES: usize = 3;
/// Number of connections in a row without a response after which any host is given up, once all its requests
/// were tried.
const LAST_STRIKES: u8 = 16;
/// Number of failed connects in a row after which a host is given up.
const FAILURES: u8 = 4;
/// Number of times that a server must seem limited before the asker believes it for good.
const CONVICTION: u8 = 2;
/// Number of ambiguous errors after which requests are no longer pipelined.
const DOUBTS: u8 = 3;
/// Number of responses after which pipelining is tried again on a server that seemed limited.
const TRIAL: u16 = 16;

impl RequestScheduler {
    /// Handles a 408 that a server sent before it read the front request of a connection. The request is
    /// still unanswered, and the connection is at its end.
    pub(in super::super) fn excuse(&mut self, line: &mut ConnectionRequests) {
        if let Some(front) = line.front() {
            self.records.change(front, |record| record.troubles += 1);
        }
        line.last = true;
    }

    /// Handles an error that ended a connection with several unanswered requests: it may belong to any of
    /// them.
    pub(in super::super) fn doubt(&mut self, line: &mut ConnectionRequests, behind: AfterResponse) {
        let Some(front) = line.front() else { return };
        self.records.change(front, |record| record.doubted = true);
        self.doubts = self.doubts.saturating_add(1);
        self.proven = 0;
        match behind {
            AfterResponse::Nothing => self.manner = RequestMode::OneEach,
            _ if self.doubts > DOUBTS => self.suspect(RequestMode::OneEach),
            _ => {
                self.back_offs += 1;
                self.halve(line.asked);
            }
        }
        (line.last, line.doubted) = (true, true);
    }

    /// Handles the end of a connection: its unanswered requests are retried or given up. Returns true if its
    /// front request is given up.
    pub(in super::super) fn end(
        &mut self,
        line: &mut ConnectionRequests,
        plan: &RequestPlan,
        how: PrematureEnd,
    ) -> bool {
        let ConnectionRequests { in_flight: unanswered, asked, answered, last, doubted, .. } =
            std::mem::take(line);
        let Some(front) = unanswered.front().copied() else { return false };
        self.busy = self.busy.saturating_sub(1);
        // A request is cut short only once.
        let how = match how {
            PrematureEnd::Hurried if self.records.get(front).hurried => PrematureEnd::Stalled,
            how => how,
        };
        let pardoned = how == PrematureEnd::Stalled && self.pardons > 0;
        self.pardons -= u8::from(pardoned);
        if answered == 0 && how != PrematureEnd::Hurried && !pardoned && !doubted {
            self.strikes = self.strikes.saturating_add(1);
            self.lone_strikes += usize::from(asked == 1);
        }
        // After an announced close the unanswered request is not to blame.
        let mut record = self.records.get(front);
        if !last {
            self.back_off(asked, answered, how);
            record = self.records.change(front, |record| match how {
                PrematureEnd::Closed | PrematureEnd::Stalled if !pardoned => record.troubles += 1,
                _ => record.hurried = true,
            });
        }
        let hopeless = !last && record.troubles >= ATTEMPTS;
        for number in unanswered.into_iter().rev() {
            if !plan.is_idempotent(number) || (number == front && hopeless) {
                self.failed += 1;
            } else if number == front && !last {
                // The request may be the cause of the failure: the others come first.
                self.again.push_back(number);
            } else {
                self.again.push_front(number);
            }
        }
        if self.is_hopeless(asked, how) {
            self.give_up();
        }
        hopeless || !plan.is_idempotent(front)
    }

    /// True if the whole host is given up after a connection with `asked` requests.
    ///
    /// A host that never answered gets another chance only if the pipeline may be the cause. If it closes
    /// connections, which is cheap, it also gets one if the path may be the cause.
    fn is_hopeless(&self, asked: u16, how: PrematureEnd) -> bool {
        if self.answered == 0 {
            let alone = asked == 1 && (self.total == 1 || how == PrematureEnd::Stalled);
            return alone || self.lone_strikes >= STRIKES || self.strikes >= LAST_STRIKES;
        }
        let tried =
            self.next >= self.total && self.again.iter().all(|number| self.records.get(*number).is_marked());
        tried && self.strikes >= LAST_STRIKES
    }

    /// Adapts to an unannounced end or stall after `answered` responses to `asked` requests.
    fn back_off(&mut self, asked: u16, answered: u16, how: PrematureEnd) {
        self.proven = 0;
        if how == PrematureEnd::Hurried {
            self.pardons = self.pardons.saturating_add(1);
        }
        match (self.manner, answered, how) {
            (RequestMode::Pipelined, 0, _) if asked > 1 => {
                self.back_offs += 1;
                self.depth = PARTS;
            }
            // One request without a response says nothing about pipelining.
            (_, 0, _) => {}
            (RequestMode::Pipelined, 1, PrematureEnd::Stalled | PrematureEnd::Hurried) => {
                self.suspect(RequestMode::InTurn);
            }
            (_, 1, _) => self.suspect(RequestMode::OneEach),
            (_, _, PrematureEnd::Closed) if self.lapse == Some(answered) => self.per_connection = answered,
            _ => {
                self.lapse = (how == PrematureEnd::Closed).then_some(answered);
                self.back_offs += 1;
                self.halve(asked);
            }
        }
    }

    /// Limits the server to `manner`, since it seems unable to do more.
    fn suspect(&mut self, manner: RequestMode) {
        self.unable += 1;
        self.back_offs += 1;
        self.manner = manner;
        self.trial = (self.unable < CONVICTION).then_some(TRIAL);
    }

    /// Handles a failed connect: its requests go to fewer other connections.
    pub(in super::super) fn put_back(&mut self, line: &mut ConnectionRequests) {
        for number in std::mem::take(line).in_flight.into_iter().rev() {
            self.again.push_front(number);
        }
        self.busy = self.busy.saturating_sub(1);
        self.accepted = self.busy.max(1);
        self.strikes = self.strikes.saturating_add(1);
        if self.strikes >= FAILURES && self.busy == 0 {
            self.give_up();
        }
    }

    /// Gives up all remaining requests.
    pub(in super::super) fn give_up(&mut self) {
        self.failed = self.total - self.answered;
        self.next = self.total;
        self.again.clear();
    }
}
