//! Probe for HTTP: sends any number of requests to a host, each once, pipelined over one persistent
//! connection. Every rule that needs a response sees it.
//!
//! | module | what it owns |
//! |---|---|
//! | `plan` | the requests |
//! | `asker` | the connection and the time of each request |
//! | `reader` | the end of a response |
//! | `streams` | the same for HTTP/2, if the server chose it |
//! | `two` | the library's HTTP/2 connection |

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

/// Default ports, which a `Host` field leaves out, RFC 9110 section 4.2.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Bytes of the first response to keep for the outcome.
const BANNER: usize = 1024;
/// Limit of one body, in bytes, to get at the next response: reading more would take longer than a new
/// connection.
const LONGEST_BODY: u64 = 1024 * 1024;
/// A connection is stalled after this many halves of the longest wait so far...
const PATIENCE: u32 = 5;
/// ...but not before this time: servers that wait for acknowledgements get them 40 ms late...
const SHORTEST_STALL: Duration = Duration::from_millis(50);
/// ...nor before this time while there are fewer than [`USUAL`] responses: a fast front page says little
/// about other pages.
const FIRST_STALL: Duration = Duration::from_millis(250);
const USUAL: u16 = 8;
/// Slowest body, in bytes a second over the silence timeout, that is read to its end.
const SLOWEST_BODY: u64 = 1024;
/// Longest wait of a server that gets only one connection if it answers one request on each. More connections
/// would gain nothing, and fill a small backlog.
const PROMPT: Duration = Duration::from_millis(5);
/// Time for which an idle connection waits for requests of a failed sibling. It is short: a server with one
/// thread cannot serve others until the connection closes.
const IDLE: Duration = Duration::from_millis(100);

/// Sends requests and reads responses.
#[derive(Debug)]
pub(in super::super) struct Http {
    judge: Judge,
    plan: Plan,
    pipeline: bool,
    connections: usize,
    body_limit: usize,
    /// Timeout of a silent target.
    silence: Duration,
}

/// State of one host.
#[derive(Debug, Default)]
pub(in super::super) struct Host {
    asker: Asker,
    /// Value of the `Host` field.
    name: Vec<u8>,
    /// First bytes of the first response.
    banner: Vec<u8>,
    transactions: u32,
    /// Longest wait that a response ended.
    longest_gap: Duration,
    /// Number of stalls; each doubles the patience for the next one.
    stalls: u32,
    ended: Option<Conversation>,
    /// Remaining requests, if the host speaks HTTP/2.
    left: Option<Left>,
}

/// State of one connection.
#[derive(Debug, Default)]
pub(in super::super) struct Talk {
    line: Line,
    reader: Option<Reader>,
    /// Time of the last received bytes, or of the first request.
    progress: Timestamp,
    /// Request whose response's body is being read, with its start.
    body: Option<(u16, Timestamp)>,
    foreign: bool,
    /// True if the connection was closed before the user's timeout.
    hurried: bool,
    /// HTTP/2 connection, if the host speaks it.
    two: Option<Box<Two>>,
}

impl Http {
    /// Returns the probe; `silence` is the timeout of a silent target.
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

    /// Sends more requests, or closes a useless connection.
    fn go_on(&self, host: &mut Host, talk: &mut Talk, out: &mut Vec<u8>) -> Step {
        self.fill(host, talk, out);
        if talk.line.is_idle() && !host.asker.may_rest() { Step::Close } else { Step::More }
    }

    /// Reads every complete response on a connection.
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

    /// Handles the end of a connection: takes the response that it, or the server's silence, completes.
    fn take_last(&self, host: &mut Host, talk: &mut Talk, how: Closed, scene: &mut Scene<'_>) {
        let partial = match how {
            Closed::Finished => Partial::Head,
            Closed::Silent if talk.hurried => return,
            Closed::Silent if self.is_dripping(talk, scene.now) => Partial::Any,
            // An unframed body has no end of its own if the server keeps the connection open.
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

    /// Records the request whose body is being read.
    fn note_body(talk: &mut Talk, now: Timestamp) {
        let reading = talk.reader.as_ref().and_then(Reader::body_octets).and(talk.line.front());
        talk.body = match (reading, talk.body) {
            (Some(number), Some((other, since))) if number == other => Some((number, since)),
            (reading, _) => reading.map(|number| (number, now)),
        };
    }

    /// True if a body is too slow to be read to its end.
    fn is_dripping(&self, talk: &Talk, now: Timestamp) -> bool {
        let octets = talk.reader.as_ref().and_then(Reader::body_octets);
        let (Some((_, since)), Some(octets)) = (talk.body, octets) else { return false };
        let lasted = now.since(since);
        lasted >= self.silence && octets < SLOWEST_BODY.saturating_mul(lasted.as_secs())
    }

    /// Handles bytes, perhaps none, while no request is unanswered.
    fn unasked(&self, octets: &[u8], scene: &mut Scene<'_>) -> Step {
        if octets.is_empty() {
            return Step::More;
        }
        // A server may send 408 before it closes an idle connection.
        let farewell = octets.starts_with(b"HTTP/1.1 408 ") || octets.starts_with(b"HTTP/1.0 408 ");
        if !farewell {
            self.judge.anomaly(Anomaly::UnsolicitedResponse, Protocol::Http, scene);
        }
        Step::Close
    }

    /// Reports one response.
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

/// Assignment of a response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credit {
    /// The front request.
    Given,
    /// No request: the server stopped waiting before it read the request.
    Excused,
    /// Possibly any request on the connection.
    Doubted,
}

impl Credit {
    /// Assigns a response; `contended` means that requests behind the front one are unanswered, too.
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
        // A sole request, and one that stalled before, get the user's full timeout: the server may be slow.
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
        // A partial response is better than none, if no retry will follow.
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
