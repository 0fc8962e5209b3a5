//! Separates the responses on one connection, byte for byte.
//!
//! It parses a complete head, and reads the body with [`crate::banner::framing`]. The kept part of a body is
//! bounded, and the rest is skipped. The next response starts where the last one ends, without guesses.

use super::request_scheduler::AfterResponse;
use crate::banner::framing::{
    BodyAdvance, BodyBuffer, BodyFraming, FramedMessage, is_interim, is_persistent, of_response,
};
use crate::banner::http::{self, KeptHead};
use crate::banner::{Anomalies, Anomaly, ParseProgress, ResponseHead};

/// Limit of a head's buffer, in bytes, to keep for the next target.
const KEPT: usize = 4096;

/// Reader of one connection's responses.
#[derive(Debug)]
pub(super) struct ResponseReader {
    /// Unused bytes: the start of a head.
    collected: Vec<u8>,
    /// Number of used bytes in `collected`.
    start: usize,
    /// Buffer for a body, between messages.
    room: BodyBuffer,
    /// Response with a parsed head and an unfinished body, with the anomalies of its head.
    open: Option<Box<(FramedMessage, Anomalies)>>,
}

/// Complete response.
pub(super) struct CompleteResponse<'a> {
    /// Head, with the kept part of the body.
    pub(super) response: ResponseHead<'a>,
    /// Length of the body in bytes, kept or not.
    pub(super) body_length: u64,
    /// Anomalies of the head.
    pub(super) anomalies: Anomalies,
    /// Reason why its end cannot be trusted.
    pub(super) hostile: Option<Anomaly>,
    /// Expected data after it on the connection.
    pub(super) behind: AfterResponse,
    /// True if only the connection's end ended the head.
    pub(super) unfinished: bool,
}

/// Incomplete data to accept as a response at the end, besides a body that ends with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptedPartial {
    /// A partial head: the server has closed the connection.
    Head,
    /// A body that only the connection's end would end: the server keeps it open, but is silent.
    Unframed,
    /// Any body.
    Any,
}

/// Progress of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaderProgress {
    /// All bytes are used; more are needed.
    More,
    /// A response was delivered.
    Answered {
        /// Expected data after it on the connection.
        behind: AfterResponse,
    },
    /// The bytes are not a response, whatever follows.
    Foreign,
}

impl ResponseReader {
    pub(super) fn new(body_limit: usize) -> Self {
        Self { collected: Vec::new(), start: 0, room: BodyBuffer::new(body_limit), open: None }
    }

    /// Clears the state of the last connection.
    pub(super) fn clear(&mut self) {
        self.collected.clear();
        self.collected.shrink_to(KEPT);
        self.start = 0;
        if let Some(open) = self.open.take() {
            self.close(open.0);
        }
    }

    /// Takes the body's buffer back for the next message.
    fn close(&mut self, message: FramedMessage) {
        self.room = message.into_body();
        self.room.clear();
    }

    /// Returns the bytes of an incomplete response.
    pub(super) fn pending(&self) -> &[u8] {
        self.collected.get(self.start..).unwrap_or_default()
    }

    /// Returns the number of body bytes read so far, kept or not; none between bodies.
    pub(super) fn body_octets(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.0.content_length())
    }

    /// Takes received bytes; then call [`Self::advance`] with the rest until it returns `More`.
    pub(super) fn take(&mut self, octets: &mut &[u8]) {
        if self.open.is_none() {
            self.collected.drain(..self.start.min(self.collected.len()));
            self.start = 0;
            self.collected.extend_from_slice(octets);
            *octets = &[];
        }
    }

    /// Reads up to the end of the next response, which goes to `deliver`.
    ///
    /// `method` is that of the request to be answered next. A body beyond `longest` bytes is not read to its
    /// end.
    pub(super) fn advance(
        &mut self,
        octets: &mut &[u8],
        method: Option<&[u8]>,
        longest: u64,
        deliver: impl FnOnce(CompleteResponse<'_>),
    ) -> ReaderProgress {
        let Some(mut open) = self.open.take() else { return self.head(method, longest, deliver) };
        let (message, anomalies) = &mut *open;
        let hostile = match message.read(octets) {
            Ok(BodyAdvance { consumed, odd, .. }) => {
                *octets = octets.get(consumed..).unwrap_or_default();
                odd
            }
            Err(reason) => Some(reason),
        };
        let seen = ResponseEnd { hostile, too_long: is_too_long(message, longest) };
        if !seen.is_over(message) {
            self.open = Some(open);
            return ReaderProgress::More;
        }
        let length = seen.length(message);
        let behind = seen.deliver(message, *anomalies, length, deliver);
        self.close(open.0);
        self.collected.clear();
        self.collected.extend_from_slice(octets);
        *octets = &[];
        self.start = 0;
        ReaderProgress::Answered { behind }
    }

    /// Reads heads at the start of the collected bytes: interim ones, then one with its body.
    fn head(
        &mut self,
        method: Option<&[u8]>,
        longest: u64,
        deliver: impl FnOnce(CompleteResponse<'_>),
    ) -> ReaderProgress {
        loop {
            let rest = self.collected.get(self.start..).unwrap_or_default();
            let (read, length) = match http::parse_response(rest) {
                ParseProgress::More => return ReaderProgress::More,
                ParseProgress::Never(_) => return ReaderProgress::Foreign,
                ParseProgress::Done { value, consumed } => (value, consumed),
            };
            if is_interim(read.message.status) {
                self.start += length;
                continue;
            }
            let framed = of_response(&read.message, method);
            let (head, behind) = rest.split_at_checked(length).unwrap_or_default();
            let mut message =
                FramedMessage::new(framed.framing, std::mem::replace(&mut self.room, BodyBuffer::new(0)));
            let (mut hostile, mut used) = (framed.hostile, 0);
            if hostile.is_none() && !framed.framing.is_foreign() {
                match message.read(behind) {
                    Ok(advance) => (used, hostile) = (advance.consumed, advance.odd),
                    Err(reason) => hostile = Some(reason),
                }
            }
            let seen = ResponseEnd { hostile, too_long: is_too_long(&message, longest) };
            if !seen.is_over(&message) && !framed.framing.is_foreign() {
                message.keep(KeptHead::of_response(head, &read.message));
                self.open = Some(Box::new((message, read.anomalies)));
                self.collected.clear();
                self.start = 0;
                return ReaderProgress::More;
            }
            let behind = seen.behind(message.framing(), &read.message);
            let response = ResponseHead { body: message.body(), ..read.message };
            let (body_length, anomalies) = (seen.length(&message), read.anomalies);
            deliver(CompleteResponse {
                response,
                body_length,
                anomalies,
                hostile,
                behind,
                unfinished: false,
            });
            self.close(message);
            self.start += length + used;
            return ReaderProgress::Answered { behind };
        }
    }

    /// Handles the end of the data: delivers the response that it completes, or the part that `partial`
    /// accepts. Returns the expectation about the server.
    pub(super) fn end(
        &mut self,
        partial: AcceptedPartial,
        deliver: impl FnOnce(CompleteResponse<'_>),
    ) -> Option<AfterResponse> {
        let Some(open) = &self.open else { return self.end_head(partial, deliver) };
        let (message, anomalies) = &**open;
        let whole = match partial {
            AcceptedPartial::Head => message.is_whole_at_end(),
            AcceptedPartial::Unframed => matches!(message.framing(), BodyFraming::UntilClose),
            AcceptedPartial::Any => true,
        };
        if !whole {
            return None;
        }
        let seen = ResponseEnd { hostile: None, too_long: false };
        let behind = seen.deliver(message, *anomalies, message.content_length(), deliver);
        self.clear();
        // Nothing can follow, even if the head announced a persistent connection.
        Some(if behind == AfterResponse::Another { AfterResponse::Cut } else { behind })
    }

    /// Delivers a head that only the connection's end ended, as clients accept it.
    fn end_head(
        &mut self,
        partial: AcceptedPartial,
        deliver: impl FnOnce(CompleteResponse<'_>),
    ) -> Option<AfterResponse> {
        if partial != AcceptedPartial::Head {
            return None;
        }
        let read = http::parse_unfinished_response(self.pending(), true)?;
        let (response, anomalies) = (read.message, read.anomalies);
        if is_interim(response.status) {
            return None;
        }
        let behind = AfterResponse::Cut;
        deliver(CompleteResponse {
            response,
            body_length: 0,
            anomalies,
            hostile: None,
            behind,
            unfinished: true,
        });
        self.clear();
        Some(behind)
    }
}

/// True if a body exceeds `longest` bytes, or announces that, and its kept part is complete.
fn is_too_long(message: &FramedMessage, longest: u64) -> bool {
    match message.framing() {
        BodyFraming::Length(length) if length > longest => message.is_satisfied() && !message.is_done(),
        _ => message.content_length() > longest,
    }
}

/// End of a response.
#[derive(Debug, Clone, Copy)]
struct ResponseEnd {
    hostile: Option<Anomaly>,
    too_long: bool,
}

impl ResponseEnd {
    /// True if the reader stops here.
    const fn is_over(self, message: &FramedMessage) -> bool {
        self.hostile.is_some() || self.too_long || message.is_done()
    }

    /// Returns the length of the body: the announced one if it was not read to its end.
    fn length(self, message: &FramedMessage) -> u64 {
        if self.too_long { message.length() } else { message.content_length() }
    }

    /// Returns the expected data after the response.
    ///
    /// Two cases are about one request and not about the server: an error that closes its connection, and an
    /// unframed body without an announced close.
    fn behind(self, framing: BodyFraming, response: &ResponseHead<'_>) -> AfterResponse {
        let persistent = is_persistent(response.version, &response.headers);
        let framed = matches!(framing, BodyFraming::Length(_) | BodyFraming::Chunked);
        let of_one = response.status >= 400 && response.version != b"HTTP/1.0";
        match persistent {
            _ if self.hostile.is_some() || self.too_long => AfterResponse::Cut,
            true if framed => AfterResponse::Another,
            false if !of_one => AfterResponse::Nothing,
            _ => AfterResponse::Cut,
        }
    }

    /// Delivers a response whose head was parsed before.
    fn deliver(
        self,
        message: &FramedMessage,
        anomalies: Anomalies,
        body_length: u64,
        deliver: impl FnOnce(CompleteResponse<'_>),
    ) -> AfterResponse {
        let Some(head) = message.head().and_then(KeptHead::response) else { return AfterResponse::Cut };
        let behind = self.behind(message.framing(), &head);
        let response = ResponseHead { body: message.body(), ..head };
        let hostile = self.hostile;
        deliver(CompleteResponse { response, body_length, anomalies, hostile, behind, unfinished: false });
        behind
    }
}
