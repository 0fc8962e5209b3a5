//! The probe that asks HTTP requests: any number a host, each once, pipelined over one connection
//! that is kept, with every rule that needs an answer seeing it.
//!
//! | module | what it owns |
//! |---|---|
//! | `plan` | what is asked |
//! | `asker` | when, and on which connection |
//! | `reader` | where an answer ends |
//! | `streams` | all of that in HTTP/2, where the server chose it |
//! | `two` | the library's connection of HTTP/2 |

mod asker;
mod plan;
mod reader;
mod streams;
mod two;

use std::time::Duration;

use super::super::judge::{Answer, Judge};
use super::super::{Conversation, HttpOptions, Target};
use super::{Closed, Probe, Scene, Step};
use crate::terms::{Anomaly, Protocol, Timestamp};
use asker::{Asker, Behind, Ended, Line};
use plan::{Plan, write_host};
use reader::{Advanced, Delivered, Partial, Reader};
use streams::Left;
use two::Two;

/// The ports that a `Host` field leaves out, RFC 9110 section 4.2.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Octets of the first answer that are kept for the outcome.
const BANNER: usize = 1024;
/// Octets of one body that are read at most, to get at the next answer: to read on would take longer
/// than a new connection.
const LONGEST_BODY: u64 = 1024 * 1024;
/// A connection is stalled when an answer is awaited so many halves longer than any before...
const PATIENCE: u32 = 5;
/// ...but not before this: acknowledgements are delayed by 40 ms where a server waits for them.
const SHORTEST_STALL: Duration = Duration::from_millis(50);
/// ...nor before this where less than [`USUAL`] answers tell what is usual: that a server is quick with
/// its front page says little of the others.
const FIRST_STALL: Duration = Duration::from_millis(250);
const USUAL: u16 = 8;
/// A body that comes more slowly than so many octets a second, for as long as a target may be silent, is
/// not read to its end.
const SLOWEST_BODY: u64 = 1024;
/// A server that never let wait longer than this is not asked over several connections when it answers
/// but one request on each: they would gain nothing, and fill a small backlog.
const PROMPT: Duration = Duration::from_millis(5);
/// Time for which a connection without requests waits for some that another one could not get answered.
/// Not long: a server with one thread has no time for others until it is closed.
const IDLE: Duration = Duration::from_millis(100);

/// Asks requests and reads answers.
#[derive(Debug)]
pub(in super::super) struct Http {
    judge: Judge,
    plan: Plan,
    pipeline: bool,
    connections: usize,
    body_limit: usize,
    /// Time for which a target may be silent.
    silence: Duration,
}

/// One host.
#[derive(Debug, Default)]
pub(in super::super) struct Host {
    asker: Asker,
    /// The `Host` field's value.
    name: Vec<u8>,
    /// The beginning of the first answer.
    banner: Vec<u8>,
    transactions: u32,
    /// The longest silence that an answer ended.
    longest_gap: Duration,
    /// Stalls so far: each makes the next one be waited for twice as long.
    stalls: u32,
    ended: Option<Conversation>,
    /// It speaks HTTP/2: what is left to ask.
    left: Option<Left>,
}

/// One connection to it.
#[derive(Debug, Default)]
pub(in super::super) struct Talk {
    line: Line,
    reader: Option<Reader>,
    /// Time at which something came last, or was first sent.
    progress: Timestamp,
    /// The request whose answer's body is being read, and since when.
    body: Option<(u16, Timestamp)>,
    foreign: bool,
    /// It was not waited for as long as users want.
    hurried: bool,
    /// It speaks HTTP/2.
    two: Option<Box<Two>>,
}

impl Http {
    /// `silence` is how long a target may be silent.
    pub(in super::super) fn new(judge: Judge, options: &HttpOptions, silence: Duration) -> Self {
        let plan = Plan::new(&options.requests, &judge.rules().needs().requests, !options.pipeline);
        Self {
            plan,
            pipeline: options.pipeline,
            connections: options.host_connections,
            body_limit: options.body_limit,
            silence,
            judge,
        }
    }

    /// Puts requests on a connection.
    fn fill(&self, host: &mut Host, talk: &mut Talk, out: &mut Vec<u8>) {
        let (asker, name) = (&mut host.asker, &host.name);
        asker.fill(&mut talk.line, &self.plan, |number| {
            if let Some(request) = self.plan.get(number) {
                request.write(name, out);
            }
        });
    }

    /// Asks on, or ends a connection that is of no more use.
    fn go_on(&self, host: &mut Host, talk: &mut Talk, out: &mut Vec<u8>) -> Step {
        self.fill(host, talk, out);
        if talk.line.is_idle() && !host.asker.may_rest() { Step::Close } else { Step::More }
    }

    /// Reads every whole answer on a connection.
    fn read(&self, host: &mut Host, talk: &mut Talk, mut octets: &[u8], scene: &mut Scene<'_>) -> Step {
        let Some(reader) = &mut talk.reader else { return Step::Close };
        reader.take(&mut octets);
        loop {
            let Some(front) = talk.line.front() else {
                return self.unasked(reader.pending(), scene);
            };
            let method = self.plan.get(front).map(plan::Planned::method);
            let (excusable, contended) = (host.asker.is_excusable(front), talk.line.is_contended());
            let mut credit = Credit::Given;
            let advanced = reader.advance(&mut octets, method, LONGEST_BODY, |delivered| {
                credit = Credit::of(&delivered, excusable, contended);
                if credit == Credit::Given {
                    self.deliver(front, &host.name, &mut host.transactions, &delivered, scene);
                }
            });
            match advanced {
                Advanced::More => return Step::More,
                Advanced::Answered { .. } if credit == Credit::Excused => {
                    host.asker.excuse(&mut talk.line);
                    return Step::Close;
                }
                Advanced::Answered { behind } if credit == Credit::Doubted => {
                    host.asker.doubt(&mut talk.line, behind);
                    return Step::Close;
                }
                Advanced::Answered { behind } => {
                    host.asker.answer(&mut talk.line, behind);
                    if behind != Behind::Another {
                        return Step::Close;
                    }
                }
                Advanced::Foreign => {
                    talk.foreign = true;
                    return Step::Close;
                }
            }
        }
    }

    /// A connection is over: takes the answer that this, or its server's silence, completes.
    fn take_last(&self, host: &mut Host, talk: &mut Talk, how: Closed, scene: &mut Scene<'_>) {
        let partial = match how {
            Closed::Finished => Partial::Head,
            Closed::Silent if talk.hurried => return,
            Closed::Silent if self.is_dripping(talk, scene.now) => Partial::Any,
            // A body that has no end of its own, of a server that keeps the connection.
            Closed::Silent => Partial::Unframed,
            _ => return,
        };
        let (Some(number), Some(reader)) = (talk.line.front(), &mut talk.reader) else { return };
        let (excusable, contended) = (host.asker.is_excusable(number), talk.line.is_contended());
        let mut credit = Credit::Given;
        let behind = reader.end(partial, |delivered| {
            credit = Credit::of(&delivered, excusable, contended);
            if credit == Credit::Given {
                self.deliver(number, &host.name, &mut host.transactions, &delivered, scene);
            }
        });
        match (behind, credit) {
            (None, _) => {}
            (Some(behind), Credit::Given) => host.asker.answer(&mut talk.line, behind),
            (Some(_), Credit::Excused) => host.asker.excuse(&mut talk.line),
            (Some(behind), Credit::Doubted) => host.asker.doubt(&mut talk.line, behind),
        }
    }

    /// Notes which body is being read.
    fn note_body(talk: &mut Talk, now: Timestamp) {
        let reading = talk.reader.as_ref().and_then(Reader::body_octets).and(talk.line.front());
        talk.body = match (reading, talk.body) {
            (Some(number), Some((other, since))) if number == other => Some((number, since)),
            (reading, _) => reading.map(|number| (number, now)),
        };
    }

    /// True if a body comes too slowly to be read to its end.
    fn is_dripping(&self, talk: &Talk, now: Timestamp) -> bool {
        let octets = talk.reader.as_ref().and_then(Reader::body_octets);
        let (Some((_, since)), Some(octets)) = (talk.body, octets) else { return false };
        let lasted = now.since(since);
        lasted >= self.silence && octets < SLOWEST_BODY.saturating_mul(lasted.as_secs())
    }

    /// Octets came though nothing is unanswered, perhaps none.
    fn unasked(&self, octets: &[u8], scene: &mut Scene<'_>) -> Step {
        if octets.is_empty() {
            return Step::More;
        }
        // A server that closes an idle connection may say so before.
        let farewell = octets.starts_with(b"HTTP/1.1 408 ") || octets.starts_with(b"HTTP/1.0 408 ");
        if !farewell {
            self.judge.anomaly(Anomaly::UnsolicitedResponse, Protocol::Http, scene);
        }
        Step::Close
    }

    /// Reports one answer.
    fn deliver(
        &self,
        number: u16,
        name: &[u8],
        transactions: &mut u32,
        delivered: &Delivered<'_>,
        scene: &mut Scene<'_>,
    ) {
        let Some(planned) = self.plan.get(number) else { return };
        let answer = Answer {
            request: &planned.request(name),
            response: &delivered.response,
            body_length: delivered.body_length,
            transaction: *transactions,
        };
        *transactions += 1;
        self.judge.anomalies(delivered.anomalies.iter(), Protocol::Http, scene);
        if let Some(hostile) = delivered.hostile {
            self.judge.anomaly(hostile, Protocol::Http, scene);
        }
        self.judge.http(&answer, scene);
    }
}

/// Whose answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credit {
    /// The front request's.
    Given,
    /// Nobody's: the server had enough of waiting before it read the request.
    Excused,
    /// It may be that of any request on the connection.
    Doubted,
}

impl Credit {
    /// `contended` when requests behind the front one are unanswered, too.
    fn of(delivered: &Delivered<'_>, excusable: bool, contended: bool) -> Self {
        match delivered.response.status {
            408 if excusable => Self::Excused,
            _ if contended && delivered.unfinished => Self::Doubted,
            400.. if contended && delivered.behind != Behind::Another => Self::Doubted,
            _ => Self::Given,
        }
    }
}

impl Probe for Http {
    type Session = Host;
    type Connection = Talk;

    const TALKS: bool = true;

    fn sends_in_parts(&self) -> bool {
        self.pipeline && self.plan.len() > 1
    }

    fn begin(&mut self, host: &mut Host, target: &Target) {
        host.asker.begin(self.plan.len(), self.pipeline, self.connections);
        host.name.clear();
        write_host(target, HTTP, &mut host.name);
        host.banner.clear();
        host.transactions = 0;
        host.longest_gap = Duration::ZERO;
        host.stalls = 0;
        host.ended = None;
        host.left = None;
    }

    fn negotiated(&mut self, host: &mut Host, target: &Target, protocol: Option<&[u8]>) {
        host.name.clear();
        write_host(target, HTTPS, &mut host.name);
        host.left = (protocol == Some(two::NAME)).then(|| Left::new(self.plan.len()));
    }

    fn is_unanswered(&self, host: &Host) -> bool {
        host.transactions == 0
    }

    fn open(
        &mut self,
        host: &mut Host,
        talk: &mut Talk,
        _target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        if host.left.is_some() {
            return self.open_two(host, talk, out);
        }
        talk.two = None;
        talk.reader.get_or_insert_with(|| Reader::new(self.body_limit)).clear();
        talk.line = Line::default();
        talk.progress = now;
        talk.body = None;
        (talk.foreign, talk.hurried) = (false, false);
        self.fill(host, talk, out);
    }

    fn accepted(&mut self, host: &mut Host, talk: &mut Talk, now: Timestamp, _out: &mut Vec<u8>) -> bool {
        talk.progress = now;
        host.asker.is_plural()
    }

    fn receive(
        &mut self,
        host: &mut Host,
        talk: &mut Talk,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step {
        if host.left.is_some() {
            return self.receive_two(host, talk, octets, out, scene);
        }
        if !talk.line.is_idle() {
            host.longest_gap = host.longest_gap.max(scene.now.since(talk.progress));
            host.asker.is_prompt(host.longest_gap < PROMPT);
        }
        talk.progress = scene.now;
        if host.asker.answered() == 0 {
            let room = BANNER.saturating_sub(host.banner.len());
            host.banner.extend_from_slice(octets.get(..room).unwrap_or(octets));
        }
        if self.read(host, talk, octets, scene) == Step::Close {
            return Step::Close;
        }
        Self::note_body(talk, scene.now);
        self.go_on(host, talk, out)
    }

    fn rouse(&mut self, host: &mut Host, talk: &mut Talk, now: Timestamp, out: &mut Vec<u8>) -> Step {
        if !talk.line.is_idle() || host.left.is_some() {
            return Step::More;
        }
        let step = self.go_on(host, talk, out);
        if !talk.line.is_idle() {
            talk.progress = now;
        }
        step
    }

    fn watch(&mut self, host: &mut Host, talk: &mut Talk, now: Timestamp) -> Step {
        if host.left.is_some() {
            return Step::More;
        }
        let silence = now.since(talk.progress);
        let Some(front) = talk.line.front() else {
            return if silence < IDLE { Step::More } else { Step::Close };
        };
        if self.is_dripping(talk, now) {
            return Step::Close;
        }
        // What the server knows of, and what was silence once, is waited for as long as users want: it may
        // take its time.
        let answered = host.asker.answered();
        if answered == 0
            || !talk.line.is_behind_others()
            || host.asker.is_waited_for(front)
            || talk.body.is_some()
        {
            return Step::More;
        }
        let least = if answered < USUAL { FIRST_STALL } else { SHORTEST_STALL };
        let patience = (host.longest_gap * PATIENCE / 2).max(least) * (1 << host.stalls.min(6));
        if silence < patience {
            return Step::More;
        }
        host.stalls += 1;
        talk.hurried = true;
        Step::Close
    }

    fn closed(&mut self, host: &mut Host, talk: &mut Talk, how: Closed, scene: &mut Scene<'_>) {
        if host.left.is_some() {
            return self.closed_two(host, talk, how, scene);
        }
        self.take_last(host, talk, how, scene);
        let Some(front) = talk.line.front() else { return };
        host.ended = Some(match how {
            _ if talk.foreign => Conversation::Foreign,
            Closed::Here | Closed::Finished => Conversation::Ended,
            Closed::Reset => Conversation::Reset,
            Closed::Silent if host.banner.is_empty() => Conversation::Silent,
            Closed::Silent | Closed::Expired => Conversation::TimedOut,
            Closed::Failed(error) | Closed::Broke(error) => Conversation::Failed(error),
        });
        if matches!(how, Closed::Failed(_)) {
            return host.asker.put_back(&mut talk.line);
        }
        let first = host.asker.answered() == 0;
        let alone = !talk.line.is_shared();
        let ended = match how {
            Closed::Silent if talk.hurried => Ended::Hurried,
            Closed::Silent => Ended::Stalled,
            _ => Ended::Closed,
        };
        let given_up = host.asker.end(&mut talk.line, &self.plan, ended);
        let silent = how == Closed::Silent && alone;
        if how == Closed::Expired || (first && (talk.foreign || silent)) {
            host.asker.give_up();
        }
        // What there is of an answer is better than nothing, when nothing better will come.
        if let (Some(reader), true) = (&mut talk.reader, given_up || host.asker.is_over()) {
            reader.end(Partial::Any, |delivered| {
                self.deliver(front, &host.name, &mut host.transactions, &delivered, scene);
            });
        }
    }

    fn wanted(&self, host: &Host) -> usize {
        host.left.as_ref().map_or_else(|| host.asker.wanted(), Left::wanted)
    }

    fn result<'s>(&self, host: &'s Host) -> (Conversation, &'s [u8]) {
        let is_complete = host.left.as_ref().map_or_else(|| host.asker.is_complete(), Left::is_complete);
        let conversation = match host.ended {
            _ if is_complete => Conversation::Complete,
            ended => ended.unwrap_or(Conversation::Ended),
        };
        (conversation, &host.banner)
    }
}
