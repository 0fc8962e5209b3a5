//! How connections end before everything on them was answered: what is asked again, what is held against
//! whom, and when a host is given up.

use super::super::plan::Plan;
use super::{ATTEMPTS, Asker, Behind, Ended, Line, Manner, PARTS};

/// Connections of a single request each that brought no answer before a host that never gave one is given up.
const STRIKES: usize = 3;
/// Connections in a row that brought no answer before the host is given up in any case, where all of its
/// requests were tried.
const LAST_STRIKES: u8 = 16;
/// Connections in a row that could not be made before the host is given up.
const FAILURES: u8 = 4;
/// How often a server must have seemed unable to be taken for it.
const CONVICTION: u8 = 2;
/// Errors that may have been any request's before requests are no longer sent together.
const DOUBTS: u8 = 3;
/// Answers in another manner before pipelining is tried again on a server that seemed unable.
const TRIAL: u16 = 16;

impl Asker {
    /// The server had enough of waiting (408) before it read the front request of a connection,
    /// which so is still unanswered; the connection is at its end.
    pub(in super::super) fn excuse(&mut self, line: &mut Line) {
        if let Some(front) = line.front() {
            self.records.change(front, |record| record.troubles += 1);
        }
        line.last = true;
    }

    /// An error ended a connection on which several requests are unanswered: it may be any one's.
    pub(in super::super) fn doubt(&mut self, line: &mut Line, behind: Behind) {
        let Some(front) = line.front() else { return };
        self.records.change(front, |record| record.doubted = true);
        self.doubts = self.doubts.saturating_add(1);
        self.proven = 0;
        match behind {
            Behind::Nothing => self.manner = Manner::OneEach,
            _ if self.doubts > DOUBTS => self.suspect(Manner::OneEach),
            _ => {
                self.back_offs += 1;
                self.halve(line.asked);
            }
        }
        (line.last, line.doubted) = (true, true);
    }

    /// A connection has ended; what was unanswered on it will be asked again, or is given up. Tells
    /// whether its front request is.
    pub(in super::super) fn end(&mut self, line: &mut Line, plan: &Plan, how: Ended) -> bool {
        let Line { in_flight: unanswered, asked, answered, last, doubted, .. } = std::mem::take(line);
        let Some(front) = unanswered.front().copied() else { return false };
        self.busy = self.busy.saturating_sub(1);
        // Nobody is hurried twice.
        let how = match how {
            Ended::Hurried if self.records.get(front).hurried => Ended::Stalled,
            how => how,
        };
        let pardoned = how == Ended::Stalled && self.pardons > 0;
        self.pardons -= u8::from(pardoned);
        if answered == 0 && how != Ended::Hurried && !pardoned && !doubted {
            self.strikes = self.strikes.saturating_add(1);
            self.lone_strikes += usize::from(asked == 1);
        }
        // What ended behind an announced close says nothing about the request that was next.
        let mut record = self.records.get(front);
        if !last {
            self.back_off(asked, answered, how);
            record = self.records.change(front, |record| match how {
                Ended::Closed | Ended::Stalled if !pardoned => record.troubles += 1,
                _ => record.hurried = true,
            });
        }
        let hopeless = !last && record.troubles >= ATTEMPTS;
        for number in unanswered.into_iter().rev() {
            if !plan.is_idempotent(number) || (number == front && hopeless) {
                self.failed += 1;
            } else if number == front && !last {
                // It may be what the server stumbles over: the others are asked first.
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

    /// True if the whole host is given up behind a connection that was asked `asked` requests.
    ///
    /// One that never answered gets another chance only if it may have been the pipeline that it did
    /// not like, and, where it closes (which costs little), if it may have been the path.
    fn is_hopeless(&self, asked: u16, how: Ended) -> bool {
        if self.answered == 0 {
            let alone = asked == 1 && (self.total == 1 || how == Ended::Stalled);
            return alone || self.lone_strikes >= STRIKES || self.strikes >= LAST_STRIKES;
        }
        let tried =
            self.next >= self.total && self.again.iter().all(|number| self.records.get(*number).is_marked());
        tried && self.strikes >= LAST_STRIKES
    }

    /// The server ended or stalled without a word, behind `answered` answers to `asked` requests.
    fn back_off(&mut self, asked: u16, answered: u16, how: Ended) {
        self.proven = 0;
        if how == Ended::Hurried {
            self.pardons = self.pardons.saturating_add(1);
        }
        match (self.manner, answered, how) {
            (Manner::Pipelined, 0, _) if asked > 1 => {
                self.back_offs += 1;
                self.depth = PARTS;
            }
            // One request, no answer: that says nothing about more of them.
            (_, 0, _) => {}
            (Manner::Pipelined, 1, Ended::Stalled | Ended::Hurried) => self.suspect(Manner::InTurn),
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
    pub(in super::super) fn put_back(&mut self, line: &mut Line) {
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

    /// Nothing more is asked.
    pub(in super::super) fn give_up(&mut self) {
        self.failed = self.total - self.answered;
        self.next = self.total;
        self.again.clear();
    }
}
