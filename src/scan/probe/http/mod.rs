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

mod http2;
mod http2_host;
mod request_plan;
mod request_scheduler;
mod response_reader;

use std::time::Duration;

use super::super::response_matcher::{RequestAndResponse, ResponseMatcher};
use super::super::{ExchangeOutcome, HttpOptions, Target};
use super::{CloseReason, Probe, ProbeContext, ProbeStep};
use crate::terms::{Anomaly, Protocol, Timestamp};
use http2::Http2Connection;
use http2_host::RemainingRequests;
use request_plan::{RequestPlan, write_host};
use request_scheduler::{AfterResponse, ConnectionRequests, PrematureEnd, RequestScheduler};
use response_reader::{AcceptedPartial, CompleteResponse, ReaderProgress, ResponseReader};

/// Default ports, which a `HttpHost` field leaves out, RFC 9110 section 4.2.
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
pub(in super::super) struct HttpProbe {
    judge: ResponseMatcher,
    plan: RequestPlan,
    pipeline: bool,
    connections: usize,
    body_limit: usize,
    /// Timeout of a silent target.
    silence: Duration,
}

/// State of one host.
#[derive(Debug, Default)]
pub(in super::super) struct HttpHost {
    asker: RequestScheduler,
    /// Value of the `HttpHost` field.
    name: Vec<u8>,
    /// First bytes of the first response.
    banner: Vec<u8>,
    transactions: u32,
    /// Longest wait that a response ended.
    longest_gap: Duration,
    /// Number of stalls; each doubles the patience for the next one.
    stalls: u32,
    ended: Option<ExchangeOutcome>,
    /// Remaining requests, if the host speaks HTTP/2.
    left: Option<RemainingRequests>,
}

/// State of one connection.
#[derive(Debug, Default)]
pub(in super::super) struct HttpConnection {
    line: ConnectionRequests,
    reader: Option<ResponseReader>,
    /// Time of the last received bytes, or of the first request.
    progress: Timestamp,
    /// Request whose response's body is being read, with its start.
    body: Option<(u16, Timestamp)>,
    foreign: bool,
    /// True if the connection was closed before the user's timeout.
    hurried: bool,
    /// HTTP/2 connection, if the host speaks it.
    two: Option<Box<Http2Connection>>,
}

impl HttpProbe {
    /// Returns the probe; `silence` is the timeout of a silent target.
    pub(in super::super) fn new(judge: ResponseMatcher, options: &HttpOptions, silence: Duration) -> Self {
        let plan = RequestPlan::new(&options.requests, &judge.rules().needs().requests, !options.pipeline);
        Self {
            plan,
            pipeline: options.pipeline,
            connections: options.host_connections,
            body_limit: options.body_limit,
            silence,
            judge,
        }
    }

    /// Writes the first request, as a question to a server that may not speak HTTP.
    pub(in super::super) fn write_first(&self, host: &HttpHost, out: &mut Vec<u8>) {
        if let Some(request) = self.plan.get(0) {
            request.write(&host.name, out);
        }
    }

    /// Puts requests on a connection.
    fn fill(&self, host: &mut HttpHost, talk: &mut HttpConnection, out: &mut Vec<u8>) {
        let (asker, name) = (&mut host.asker, &host.name);
        asker.fill(&mut talk.line, &self.plan, |number| {
            if let Some(request) = self.plan.get(number) {
                request.write(name, out);
            }
        });
    }

    /// Sends more requests, or closes a useless connection.
    fn go_on(&self, host: &mut HttpHost, talk: &mut HttpConnection, out: &mut Vec<u8>) -> ProbeStep {
        self.fill(host, talk, out);
        if talk.line.is_idle() && !host.asker.may_rest() { ProbeStep::Close } else { ProbeStep::More }
    }

    /// Reads every complete response on a connection.
    fn read(
        &self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        mut octets: &[u8],
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let Some(reader) = &mut talk.reader else { return ProbeStep::Close };
        reader.take(&mut octets);
        loop {
            let Some(front) = talk.line.front() else {
                return self.unasked(reader.pending(), scene);
            };
            let method = self.plan.get(front).map(request_plan::PlannedRequest::method);
            let (excusable, contended) = (host.asker.is_excusable(front), talk.line.is_contended());
            let mut credit = ResponseCredit::Given;
            let advanced = reader.advance(&mut octets, method, LONGEST_BODY, |delivered| {
                credit = ResponseCredit::of(&delivered, excusable, contended);
                if credit == ResponseCredit::Given {
                    self.deliver(front, &host.name, &mut host.transactions, &delivered, scene);
                }
            });
            match advanced {
                ReaderProgress::More => return ProbeStep::More,
                ReaderProgress::Answered { .. } if credit == ResponseCredit::Excused => {
                    host.asker.excuse(&mut talk.line);
                    return ProbeStep::Close;
                }
                ReaderProgress::Answered { behind } if credit == ResponseCredit::Doubted => {
                    host.asker.doubt(&mut talk.line, behind);
                    return ProbeStep::Close;
                }
                ReaderProgress::Answered { behind } => {
                    host.asker.answer(&mut talk.line, behind);
                    if behind != AfterResponse::Another {
                        return ProbeStep::Close;
                    }
                }
                ReaderProgress::Foreign => {
                    talk.foreign = true;
                    return ProbeStep::Close;
                }
            }
        }
    }

    /// Handles the end of a connection: takes the response that it, or the server's silence, completes.
    fn take_last(
        &self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) {
        let partial = match how {
            CloseReason::Finished => AcceptedPartial::Head,
            CloseReason::Silent if talk.hurried => return,
            CloseReason::Silent if self.is_dripping(talk, scene.now) => AcceptedPartial::Any,
            // An unframed body has no end of its own if the server keeps the connection open.
            CloseReason::Silent => AcceptedPartial::Unframed,
            _ => return,
        };
        let (Some(number), Some(reader)) = (talk.line.front(), &mut talk.reader) else { return };
        let (excusable, contended) = (host.asker.is_excusable(number), talk.line.is_contended());
        let mut credit = ResponseCredit::Given;
        let behind = reader.end(partial, |delivered| {
            credit = ResponseCredit::of(&delivered, excusable, contended);
            if credit == ResponseCredit::Given {
                self.deliver(number, &host.name, &mut host.transactions, &delivered, scene);
            }
        });
        match (behind, credit) {
            (None, _) => {}
            (Some(behind), ResponseCredit::Given) => host.asker.answer(&mut talk.line, behind),
            (Some(_), ResponseCredit::Excused) => host.asker.excuse(&mut talk.line),
            (Some(behind), ResponseCredit::Doubted) => host.asker.doubt(&mut talk.line, behind),
        }
    }

    /// Records the request whose body is being read.
    fn note_body(talk: &mut HttpConnection, now: Timestamp) {
        let reading = talk.reader.as_ref().and_then(ResponseReader::body_octets).and(talk.line.front());
        talk.body = match (reading, talk.body) {
            (Some(number), Some((other, since))) if number == other => Some((number, since)),
            (reading, _) => reading.map(|number| (number, now)),
        };
    }

    /// True if a body is too slow to be read to its end.
    fn is_dripping(&self, talk: &HttpConnection, now: Timestamp) -> bool {
        let octets = talk.reader.as_ref().and_then(ResponseReader::body_octets);
        let (Some((_, since)), Some(octets)) = (talk.body, octets) else { return false };
        let lasted = now.since(since);
        lasted >= self.silence && octets < SLOWEST_BODY.saturating_mul(lasted.as_secs())
    }

    /// Handles bytes, perhaps none, while no request is unanswered.
    fn unasked(&self, octets: &[u8], scene: &mut ProbeContext<'_>) -> ProbeStep {
        if octets.is_empty() {
            return ProbeStep::More;
        }
        // A server may send 408 before it closes an idle connection.
        let farewell = octets.starts_with(b"HTTP/1.1 408 ") || octets.starts_with(b"HTTP/1.0 408 ");
        if !farewell {
            self.judge.anomaly(Anomaly::UnsolicitedResponse, Protocol::Http, scene);
        }
        ProbeStep::Close
    }

    /// Reports one response.
    fn deliver(
        &self,
        number: u16,
        name: &[u8],
        transactions: &mut u32,
        delivered: &CompleteResponse<'_>,
        scene: &mut ProbeContext<'_>,
    ) {
        let Some(planned) = self.plan.get(number) else { return };
        let answer = RequestAndResponse {
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
enum ResponseCredit {
    /// The front request.
    Given,
    /// No request: the server stopped waiting before it read the request.
    Excused,
    /// Possibly any request on the connection.
    Doubted,
}

impl ResponseCredit {
    /// Assigns a response; `contended` means that requests behind the front one are unanswered, too.
    fn of(delivered: &CompleteResponse<'_>, excusable: bool, contended: bool) -> Self {
        match delivered.response.status {
            408 if excusable => Self::Excused,
            _ if contended && delivered.unfinished => Self::Doubted,
            400.. if contended && delivered.behind != AfterResponse::Another => Self::Doubted,
            _ => Self::Given,
        }
    }
}

impl Probe for HttpProbe {
    type Session = HttpHost;
    type Connection = HttpConnection;

    const TALKS: bool = true;

    fn sends_in_parts(&self) -> bool {
        self.pipeline && self.plan.len() > 1
    }

    fn begin(&mut self, host: &mut HttpHost, target: &Target) {
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

    fn negotiated(&mut self, host: &mut HttpHost, target: &Target, protocol: Option<&[u8]>) {
        host.name.clear();
        write_host(target, HTTPS, &mut host.name);
        host.left = (protocol == Some(http2::NAME)).then(|| RemainingRequests::new(self.plan.len()));
    }

    fn is_unanswered(&self, host: &HttpHost) -> bool {
        host.transactions == 0
    }

    fn open(
        &mut self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        _target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        if host.left.is_some() {
            return self.open_two(host, talk, out);
        }
        talk.two = None;
        talk.reader.get_or_insert_with(|| ResponseReader::new(self.body_limit)).clear();
        talk.line = ConnectionRequests::default();
        talk.progress = now;
        talk.body = None;
        (talk.foreign, talk.hurried) = (false, false);
        self.fill(host, talk, out);
    }

    fn accepted(
        &mut self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        now: Timestamp,
        _out: &mut Vec<u8>,
    ) -> bool {
        talk.progress = now;
        host.asker.is_plural()
    }

    fn receive(
        &mut self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
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
        if self.read(host, talk, octets, scene) == ProbeStep::Close {
            return ProbeStep::Close;
        }
        Self::note_body(talk, scene.now);
        self.go_on(host, talk, out)
    }

    fn on_sibling_closed(
        &mut self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> ProbeStep {
        if !talk.line.is_idle() || host.left.is_some() {
            return ProbeStep::More;
        }
        let step = self.go_on(host, talk, out);
        if !talk.line.is_idle() {
            talk.progress = now;
        }
        step
    }

    fn watch(&mut self, host: &mut HttpHost, talk: &mut HttpConnection, now: Timestamp) -> ProbeStep {
        if host.left.is_some() {
            return ProbeStep::More;
        }
        let silence = now.since(talk.progress);
        let Some(front) = talk.line.front() else {
            return if silence < IDLE { ProbeStep::More } else { ProbeStep::Close };
        };
        if self.is_dripping(talk, now) {
            return ProbeStep::Close;
        }
        // A sole request, and one that stalled before, get the user's full timeout: the server may be slow.
        let answered = host.asker.answered();
        if answered == 0
            || !talk.line.is_behind_others()
            || host.asker.is_waited_for(front)
            || talk.body.is_some()
        {
            return ProbeStep::More;
        }
        let least = if answered < USUAL { FIRST_STALL } else { SHORTEST_STALL };
        let patience = (host.longest_gap * PATIENCE / 2).max(least) * (1 << host.stalls.min(6));
        if silence < patience {
            return ProbeStep::More;
        }
        host.stalls += 1;
        talk.hurried = true;
        ProbeStep::Close
    }

    fn closed(
        &mut self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) {
        if host.left.is_some() {
            return self.closed_two(host, talk, how, scene);
        }
        self.take_last(host, talk, how, scene);
        let Some(front) = talk.line.front() else { return };
        host.ended = Some(match how {
            _ if talk.foreign => ExchangeOutcome::Foreign,
            CloseReason::Here | CloseReason::Finished => ExchangeOutcome::Ended,
            CloseReason::Reset => ExchangeOutcome::Reset,
            CloseReason::Silent if host.banner.is_empty() => ExchangeOutcome::Silent,
            CloseReason::Silent | CloseReason::Expired => ExchangeOutcome::TimedOut,
            CloseReason::Failed(error) | CloseReason::Broke(error) => ExchangeOutcome::Failed(error),
        });
        if matches!(how, CloseReason::Failed(_)) {
            return host.asker.put_back(&mut talk.line);
        }
        let first = host.asker.answered() == 0;
        let alone = !talk.line.is_shared();
        let ended = match how {
            CloseReason::Silent if talk.hurried => PrematureEnd::Hurried,
            CloseReason::Silent => PrematureEnd::Stalled,
            _ => PrematureEnd::Closed,
        };
        let given_up = host.asker.end(&mut talk.line, &self.plan, ended);
        let silent = how == CloseReason::Silent && alone;
        if how == CloseReason::Expired || (first && (talk.foreign || silent)) {
            host.asker.give_up();
        }
        // A partial response is better than none, if no retry will follow.
        if let (Some(reader), true) = (&mut talk.reader, given_up || host.asker.is_over()) {
            reader.end(AcceptedPartial::Any, |delivered| {
                self.deliver(front, &host.name, &mut host.transactions, &delivered, scene);
            });
        }
    }

    fn wanted(&self, host: &HttpHost) -> usize {
        host.left.as_ref().map_or_else(|| host.asker.wanted(), RemainingRequests::wanted)
    }

    fn result<'s>(&self, host: &'s HttpHost) -> (ExchangeOutcome, &'s [u8]) {
        let is_complete =
            host.left.as_ref().map_or_else(|| host.asker.is_complete(), RemainingRequests::is_complete);
        let conversation = match host.ended {
            _ if is_complete => ExchangeOutcome::Complete,
            ended => ended.unwrap_or(ExchangeOutcome::Ended),
        };
        (conversation, &host.banner)
    }
}
