//! Exchange with an HTTP/2 host: every request on its own stream, over one connection.

use std::collections::VecDeque;

use super::asker::Behind;
use super::plan::Planned;
use super::reader::Delivered;
use super::two::{Told, Two};
use super::{Host, Http, Talk};
use crate::banner::{Header, Headers, Response};
use crate::scan::Conversation;
use crate::scan::probe::{Closed, Scene, Step};

/// Version in the events of responses.
const VERSION: &[u8] = b"HTTP/2";

/// Number of successive connections to a host for its requests.
const TRIES: u8 = 3;

/// Fields of an HTTP/1 connection, RFC 9113 section 8.2.2, and the host's name.
const OF_CONNECTION: [&str; 6] =
    ["host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Remaining requests to a host.
#[derive(Debug, Default)]
pub(super) struct Left {
    unasked: VecDeque<u16>,
    /// Requests that the server refused on the current connection.
    refused: Vec<u16>,
    tries: u8,
    /// True if requests are in flight.
    is_asking: bool,
}

impl Left {
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

impl Http {
    /// Starts a connection.
    pub(super) fn open_two(&self, host: &mut Host, talk: &mut Talk, out: &mut Vec<u8>) {
        talk.two = Two::new().map(Box::new);
        if let Some(left) = &mut host.left {
            left.tries += 1;
        }
        self.ask_two(host, talk, out);
    }

    /// Sends as many requests as the server accepts.
    fn ask_two(&self, host: &mut Host, talk: &mut Talk, out: &mut Vec<u8>) {
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
        host: &mut Host,
        talk: &mut Talk,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step {
        let Some(two) = &mut talk.two else { return Step::Close };
        let (name, transactions) = (&host.name, &mut host.transactions);
        let mut refused = Vec::new();
        two.take(octets, self.body_limit, &mut |number, told| {
            refused.extend(matches!(told, Told::Refused).then_some(number));
            self.tell_two(number, &told, (name, transactions), scene);
        });
        host.left.iter_mut().for_each(|left| left.refused.append(&mut refused));
        self.ask_two(host, talk, out);
        let is_over = talk.two.as_ref().is_none_or(|two| two.is_over() || two.is_idle());
        if is_over { Step::Close } else { Step::More }
    }

    /// Handles the end of a connection: its unanswered requests are queued again.
    pub(super) fn closed_two(&self, host: &mut Host, talk: &mut Talk, how: Closed, scene: &mut Scene<'_>) {
        let Some(mut two) = talk.two.take() else { return };
        let (name, transactions) = (&host.name, &mut host.transactions);
        let unanswered = two.end(&mut |number, told| {
            self.tell_two(number, &told, (name, transactions), scene);
        });
        let Some(left) = &mut host.left else { return };
        left.is_asking = false;
        left.unasked.extend(unanswered);
        left.unasked.extend(left.refused.drain(..));
        if matches!(how, Closed::Silent | Closed::Expired) {
            left.tries = TRIES;
        }
        host.ended = Some(match how {
            Closed::Here | Closed::Finished => Conversation::Ended,
            Closed::Reset => Conversation::Reset,
            Closed::Silent | Closed::Expired => Conversation::TimedOut,
            Closed::Failed(error) | Closed::Broke(error) => Conversation::Failed(error),
        });
    }

    /// Reports a response in the form of HTTP/1.
    fn tell_two(
        &self,
        number: u16,
        told: &Told<'_>,
        (name, transactions): (&[u8], &mut u32),
        scene: &mut Scene<'_>,
    ) {
        let Told::Answered(head, body, body_length) = told else { return };
        let fields = head.headers.iter();
        let fields =
            fields.map(|(name, value)| Header { name: name.as_str().as_bytes(), value: value.as_bytes() });
        let line = format!("HTTP/2 {}", head.status.as_u16());
        let response = Response {
            line: line.as_bytes(),
            version: VERSION,
            status: head.status.as_u16(),
            reason: &[],
            headers: Headers::new(fields.collect()),
            body,
        };
        let delivered = Delivered {
            response,
            body_length: *body_length,
            anomalies: crate::banner::Anomalies::default(),
            hostile: None,
            behind: Behind::Another,
            unfinished: false,
        };
        self.deliver(number, name, transactions, &delivered, scene);
    }
}

/// Converts a request to HTTP/2, if that can express it.
fn request(planned: &Planned, host: &[u8]) -> Option<http::Request<()>> {
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
