//! Separates the responses on one connection, byte for byte.
//!
//! It parses a complete head, and reads the body with [`crate::banner::framing`]. The kept part of a body is
//! bounded, and the rest is skipped. The next response starts where the last one ends, without guesses.

use super::asker::Behind;
use crate::banner::framing::{Advance, BodyBuffer, Framing, Message, is_interim, is_persistent, of_response};
use crate::banner::http::{self, KeptHead};
use crate::banner::{Anomalies, Anomaly, Progress, Response};

/// Limit of a head's buffer, in bytes, to keep for the next target.
const KEPT: usize = 4096;

/// Reader of one connection's responses.
#[derive(Debug)]
pub(super) struct Reader {
    /// Unused bytes: the start of a head.
    collected: Vec<u8>,
    /// Number of used bytes in `collected`.
    start: usize,
    /// Buffer for a body, between messages.
    room: BodyBuffer,
    /// Response with a parsed head and an unfinished body, with the anomalies of its head.
    open: Option<Box<(Message, Anomalies)>>,
}

/// Complete response.
pub(super) struct Delivered<'a> {
    /// Head, with the kept part of the body.
    pub(super) response: Response<'a>,
    /// Length of the body in bytes, kept or not.
    pub(super) body_length: u64,
    /// Anomalies of the head.
    pub(super) anomalies: Anomalies,
    /// Reason why its end cannot be trusted.
    pub(super) hostile: Option<Anomaly>,
    /// Expected data after it on the connection.
    pub(super) behind: Behind,
    /// True if only the connection's end ended the head.
    pub(super) unfinished: bool,
}

/// Incomplete data to accept as a response at the end, besides a body that ends with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Partial {
    /// A partial head: the server has closed the connection.
    Head,
    /// A body that only the connection's end would end: the server keeps it open, but is silent.
    Unframed,
    /// Any body.
    Any,
}

/// Progress of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// All bytes are used; more are needed.
    More,
    /// A response was delivered.
    Answered {
        /// Expected data after it on the connection.
        behind: Behind,
    },
    /// The bytes are not a response, whatever follows.
    Foreign,
}

impl Reader {
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
    fn close(&mut self, message: Message) {
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
        deliver: impl FnOnce(Delivered<'_>),
    ) -> Advanced {
        let Some(mut open) = self.open.take() else { return self.head(method, longest, deliver) };
        let (message, anomalies) = &mut *open;
        let hostile = match message.read(octets) {
            Ok(Advance { consumed, odd, .. }) => {
                *octets = octets.get(consumed..).unwrap_or_default();
                odd
            }
            Err(reason) => Some(reason),
        };
        let seen = Seen { hostile, too_long: is_too_long(message, longest) };
        if !seen.is_over(message) {
            self.open = Some(open);
            return Advanced::More;
        }
        let length = seen.length(message);
        let behind = seen.deliver(message, *anomalies, length, deliver);
        self.close(open.0);
        self.collected.clear();
        self.collected.extend_from_slice(octets);
        *octets = &[];
        self.start = 0;
        Advanced::Answered { behind }
    }

    /// Reads heads at the start of the collected bytes: interim ones, then one with its body.
    fn head(&mut self, method: Option<&[u8]>, longest: u64, deliver: impl FnOnce(Delivered<'_>)) -> Advanced {
        loop {
            let rest = self.collected.get(self.start..).unwrap_or_default();
            let (read, length) = match http::parse_response(rest) {
                Progress::More => return Advanced::More,
                Progress::Never(_) => return Advanced::Foreign,
                Progress::Done { value, consumed } => (value, consumed),
            };
            if is_interim(read.message.status) {
                self.start += length;
                continue;
            }
            let framed = of_response(&read.message, method);
            let (head, behind) = rest.split_at_checked(length).unwrap_or_default();
            let mut message =
                Message::new(framed.framing, std::mem::replace(&mut self.room, BodyBuffer::new(0)));
            let (mut hostile, mut used) = (framed.hostile, 0);
            if hostile.is_none() && !framed.framing.is_foreign() {
                match message.read(behind) {
                    Ok(advance) => (used, hostile) = (advance.consumed, advance.odd),
                    Err(reason) => hostile = Some(reason),
                }
            }
            let seen = Seen { hostile, too_long: is_too_long(&message, longest) };
            if !seen.is_over(&message) && !framed.framing.is_foreign() {
                message.keep(KeptHead::of_response(head, &read.message));
                self.open = Some(Box::new((message, read.anomalies)));
                self.collected.clear();
                self.start = 0;
                return Advanced::More;
            }
            let behind = seen.behind(message.framing(), &read.message);
            let response = Response { body: message.body(), ..read.message };
            let (body_length, anomalies) = (seen.length(&message), read.anomalies);
            deliver(Delivered { response, body_length, anomalies, hostile, behind, unfinished: false });
            self.close(message);
            self.start += length + used;
            return Advanced::Answered { behind };
        }
    }

    /// Handles the end of the data: delivers the response that it completes, or the part that `partial`
    /// accepts. Returns the expectation about the server.
    pub(super) fn end(&mut self, partial: Partial, deliver: impl FnOnce(Delivered<'_>)) -> Option<Behind> {
        let Some(open) = &self.open else { return self.end_head(partial, deliver) };
        let (message, anomalies) = &**open;
        let whole = match partial {
            Partial::Head => message.is_whole_at_end(),
            Partial::Unframed => matches!(message.framing(), Framing::UntilClose),
            Partial::Any => true,
        };
        if !whole {
            return None;
        }
        let seen = Seen { hostile: None, too_long: false };
        let behind = seen.deliver(message, *anomalies, message.content_length(), deliver);
        self.clear();
        // Nothing can follow, even if the head announced a persistent connection.
        Some(if behind == Behind::Another { Behind::Cut } else { behind })
    }

    /// Delivers a head that only the connection's end ended, as clients accept it.
    fn end_head(&mut self, partial: Partial, deliver: impl FnOnce(Delivered<'_>)) -> Option<Behind> {
        if partial != Partial::Head {
            return None;
        }
        let read = http::parse_unfinished_response(self.pending(), true)?;
        let (response, anomalies) = (read.message, read.anomalies);
        if is_interim(response.status) {
            return None;
        }
        let behind = Behind::Cut;
        deliver(Delivered { response, body_length: 0, anomalies, hostile: None, behind, unfinished: true });
        self.clear();
        Some(behind)
    }
}

/// True if a body exceeds `longest` bytes, or announces that, and its kept part is complete.
fn is_too_long(message: &Message, longest: u64) -> bool {
    match message.framing() {
        Framing::Length(length) if length > longest => message.is_satisfied() && !message.is_done(),
        _ => message.content_length() > longest,
    }
}

/// End of a response.
#[derive(Debug, Clone, Copy)]
struct Seen {
    hostile: Option<Anomaly>,
    too_long: bool,
}

impl Seen {
    /// True if the reader stops here.
    const fn is_over(self, message: &Message) -> bool {
        self.hostile.is_some() || self.too_long || message.is_done()
    }

    /// Returns the length of the body: the announced one if it was not read to its end.
    fn length(self, message: &Message) -> u64 {
        if self.too_long { message.length() } else { message.content_length() }
    }

    /// Returns the expected data after the response.
    ///
    /// Two cases are about one request and not about the server: an error that closes its connection, and an
    /// unframed body without an announced close.
    fn behind(self, framing: Framing, response: &Response<'_>) -> Behind {
        let persistent = is_persistent(response.version, &response.headers);
        let framed = matches!(framing, Framing::Length(_) | Framing::Chunked);
        let of_one = response.status >= 400 && response.version != b"HTTP/1.0";
        match persistent {
            _ if self.hostile.is_some() || self.too_long => Behind::Cut,
            true if framed => Behind::Another,
            false if !of_one => Behind::Nothing,
            _ => Behind::Cut,
        }
    }

    /// Delivers a response whose head was parsed before.
    fn deliver(
        self,
        message: &Message,
        anomalies: Anomalies,
        body_length: u64,
        deliver: impl FnOnce(Delivered<'_>),
    ) -> Behind {
        let Some(head) = message.head().and_then(KeptHead::response) else { return Behind::Cut };
        let behind = self.behind(message.framing(), &head);
        let response = Response { body: message.body(), ..head };
        let hostile = self.hostile;
        deliver(Delivered { response, body_length, anomalies, hostile, behind, unfinished: false });
        behind
    }
}
