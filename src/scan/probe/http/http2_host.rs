//! Exchange with an HTTP/2 host: every request on its own stream, over one connection.

use std::collections::VecDeque;

use super::http2::{Http2Connection, Http2Result};
use super::request_plan::PlannedRequest;
use super::request_scheduler::AfterResponse;
use super::response_reader::CompleteResponse;
use super::{HttpConnection, HttpHost, HttpProbe};
use crate::banner::{HttpHeader, HttpHeaders, ResponseHead};
use crate::scan::ExchangeOutcome;
use crate::scan::probe::{CloseReason, ProbeContext, ProbeStep};

/// Version in the events of responses.
const VERSION: &[u8] = b"HTTP/2";

/// Number of successive connections to a host for its requests.
const TRIES: u8 = 3;

/// Fields of an HTTP/1 connection, RFC 9113 section 8.2.2, and the host's name.
const OF_CONNECTION: [&str; 6] =
    ["host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Remaining requests to a host.
#[derive(Debug, Default)]
pub(super) struct RemainingRequests {
    unasked: VecDeque<u16>,
    /// Requests that the server refused on the current connection.
    refused: Vec<u16>,
    tries: u8,
    /// True if requests are in flight.
    is_asking: bool,
}

impl RemainingRequests {
    pub(super) fn new(requests: u16) -> Self {
        Self { unasked: (0..requests).collect(), refused: Vec::new(), tries: 0, is_asking: false }
    }

    /// Returns the number of needed connections.
    pub(super) fn wanted(&self) -> usize {
        usize::from(self.is_asking || (!self.unasked.is_empty() && self.tries < TRIES))
    }

    /// True if no requests are left.
    pub(super) fn is_complete(&self) -> bool {
        self.unasked.is_empty() && self.refused.is_empty() && !self.is_asking
    }
}

impl HttpProbe {
    /// Starts a connection.
    pub(super) fn open_two(&self, host: &mut HttpHost, talk: &mut HttpConnection, out: &mut Vec<u8>) {
        talk.two = Http2Connection::new().map(Box::new);
        if let Some(left) = &mut host.left {
            left.tries += 1;
        }
        self.ask_two(host, talk, out);
    }

    /// Sends as many requests as the server accepts.
    fn ask_two(&self, host: &mut HttpHost, talk: &mut HttpConnection, out: &mut Vec<u8>) {
        let (Some(left), Some(two)) = (&mut host.left, &mut talk.two) else { return };
        while let Some(number) = left.unasked.front().copied() {
            // A request that HTTP/2 cannot express is skipped.
            let request = self.plan.get(number).and_then(|planned| request(planned, &host.name));
            if request.is_some_and(|request| !two.ask(number, request)) {
                break;
            }
            left.unasked.pop_front();
        }
        left.is_asking = !two.is_idle();
        two.flush(out);
    }

    /// Handles received bytes.
    pub(super) fn receive_two(
        &self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let Some(two) = &mut talk.two else { return ProbeStep::Close };
        let (name, transactions) = (&host.name, &mut host.transactions);
        let mut refused = Vec::new();
        two.take(octets, self.body_limit, &mut |number, told| {
            refused.extend(matches!(told, Http2Result::Refused).then_some(number));
            self.tell_two(number, &told, (name, transactions), scene);
        });
        host.left.iter_mut().for_each(|left| left.refused.append(&mut refused));
        self.ask_two(host, talk, out);
        let is_over = talk.two.as_ref().is_none_or(|two| two.is_over() || two.is_idle());
        if is_over { ProbeStep::Close } else { ProbeStep::More }
    }

    /// Handles the end of a connection: its unanswered requests are queued again.
    pub(super) fn closed_two(
        &self,
        host: &mut HttpHost,
        talk: &mut HttpConnection,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) {
        let Some(mut two) = talk.two.take() else { return };
        let (name, transactions) = (&host.name, &mut host.transactions);
        let unanswered = two.end(&mut |number, told| {
            self.tell_two(number, &told, (name, transactions), scene);
        });
        let Some(left) = &mut host.left else { return };
        left.is_asking = false;
        left.unasked.extend(unanswered);
        left.unasked.extend(left.refused.drain(..));
        if matches!(how, CloseReason::Silent | CloseReason::Expired) {
            left.tries = TRIES;
        }
        host.ended = Some(match how {
            CloseReason::Here | CloseReason::Finished => ExchangeOutcome::Ended,
            CloseReason::Reset => ExchangeOutcome::Reset,
            CloseReason::Silent | CloseReason::Expired => ExchangeOutcome::TimedOut,
            CloseReason::Failed(error) | CloseReason::Broke(error) => ExchangeOutcome::Failed(error),
        });
    }

    /// Reports a response in the form of HTTP/1.
    fn tell_two(
        &self,
        number: u16,
        told: &Http2Result<'_>,
        (name, transactions): (&[u8], &mut u32),
        scene: &mut ProbeContext<'_>,
    ) {
        let Http2Result::Answered(head, body, body_length) = told else { return };
        let fields = head.headers.iter();
        let fields = fields
            .map(|(name, value)| HttpHeader { name: name.as_str().as_bytes(), value: value.as_bytes() });
        let line = format!("HTTP/2 {}", head.status.as_u16());
        let response = ResponseHead {
            line: line.as_bytes(),
            version: VERSION,
            status: head.status.as_u16(),
            reason: &[],
            headers: HttpHeaders::new(fields.collect()),
            body,
        };
        let delivered = CompleteResponse {
            response,
            body_length: *body_length,
            anomalies: crate::banner::Anomalies::default(),
            hostile: None,
            behind: AfterResponse::Another,
            unfinished: false,
        };
        self.deliver(number, name, transactions, &delivered, scene);
    }
}

/// Converts a request to HTTP/2, if that can express it.
fn request(planned: &PlannedRequest, host: &[u8]) -> Option<http::Request<()>> {
    let named = planned.fields().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    let host = named.and_then(|(_, value)| value).unwrap_or(host);
    let authority = http::uri::Authority::try_from(host).ok()?;
    let path = http::uri::PathAndQuery::try_from(planned.path()).ok()?;
    let uri = http::Uri::builder().scheme("https").authority(authority).path_and_query(path).build().ok()?;
    let mut request = http::Request::new(());
    *request.method_mut() = http::Method::from_bytes(planned.method()).ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_2;
    for (name, value) in planned.fields() {
        let name = http::HeaderName::from_bytes(name).ok()?;
        if let Some(value) = value.filter(|_| !OF_CONNECTION.contains(&name.as_str())) {
            request.headers_mut().append(name, http::HeaderValue::from_bytes(value).ok()?);
        }
    }
    Some(request)
}
