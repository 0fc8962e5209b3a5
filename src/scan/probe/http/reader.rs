//! Tells the answers on one connection apart, octet for octet.
//!
//! A head is read when it is whole, a body by [`crate::banner::framing`]; what is kept of a body is
//! bounded, the rest is passed over. Where one answer ends the next begins: nothing is guessed.

use super::asker::Behind;
use crate::banner::framing::{Advance, BodyBuffer, Framing, Message, is_interim, is_persistent, of_response};
use crate::banner::http::{self, KeptHead};
use crate::banner::{Anomalies, Anomaly, Progress, Response};

/// Heads before this size are kept allocated for the next target.
const KEPT: usize = 4096;

/// Reads the answers of one connection.
#[derive(Debug)]
pub(super) struct Reader {
    /// Octets that are not used up: the beginning of a head.
    collected: Vec<u8>,
    /// How much of `collected` is used up.
    start: usize,
    /// The room for a body, between messages.
    room: BodyBuffer,
    /// The answer whose head was read and whose body was not, with what was odd about its head.
    open: Option<Box<(Message, Anomalies)>>,
}

/// A whole answer.
pub(super) struct Delivered<'a> {
    /// Its head, with what was kept of its body.
    pub(super) response: Response<'a>,
    /// Octets of its body, kept or not.
    pub(super) body_length: u64,
    /// What was odd about its head.
    pub(super) anomalies: Anomalies,
    /// Why its end cannot be trusted.
    pub(super) hostile: Option<Anomaly>,
    /// What can follow on its connection.
    pub(super) behind: Behind,
    /// Its head has no end but the connection's.
    pub(super) unfinished: bool,
}

/// What is taken for an answer when no more octets will come, beside a body that ends with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Partial {
    /// What there is of a head: the server has closed.
    Head,
    /// A body that has no other end than the connection's: the server keeps that, but is silent.
    Unframed,
    /// Any body.
    Any,
}

/// How far the octets reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// They are used up.
    More,
    /// An answer was delivered.
    Answered {
        /// What can follow on this connection.
        behind: Behind,
    },
    /// This is no answer, whatever follows.
    Foreign,
}

impl Reader {
    pub(super) fn new(body_limit: usize) -> Self {
        Self { collected: Vec::new(), start: 0, room: BodyBuffer::new(body_limit), open: None }
    }

    /// Forgets the connection before.
    pub(super) fn clear(&mut self) {
        self.collected.clear();
        self.collected.shrink_to(KEPT);
        self.start = 0;
        if let Some(open) = self.open.take() {
            self.close(open.0);
        }
    }

    /// Takes the room of a message back for the next one.
    fn close(&mut self, message: Message) {
        self.room = message.into_body();
        self.room.clear();
    }

    /// The octets of an answer that is not whole.
    pub(super) fn pending(&self) -> &[u8] {
        self.collected.get(self.start..).unwrap_or_default()
    }

    /// Octets of the body that is being read, kept or not; none between bodies.
    pub(super) fn body_octets(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.0.content_length())
    }

    /// Takes octets that came; call [`Self::advance`] with what it leaves until that says `More`.
    pub(super) fn take(&mut self, octets: &mut &[u8]) {
        if self.open.is_none() {
            self.collected.drain(..self.start.min(self.collected.len()));
            self.start = 0;
            self.collected.extend_from_slice(octets);
            *octets = &[];
        }
    }

    /// Reads on, to the end of the next answer at most, which is handed to `deliver`.
    ///
    /// `method` is that of the request which is to be answered next. A body beyond `longest` octets
    /// is not read to its end.
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

    /// Reads heads at the start of what was collected: interim ones, then one with its body.
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

    /// No more octets will come: delivers the answer that this completes, or as much as `partial` asks for.
    /// Tells what the answer says of the server.
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
        // Nothing follows, whatever the head promised.
        Some(if behind == Behind::Another { Behind::Cut } else { behind })
    }

    /// Delivers a head that only the connection's end ends, as clients take it.
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

/// True if a body is beyond `longest` octets, or says that it will be and everything that is kept
/// of it is there.
fn is_too_long(message: &Message, longest: u64) -> bool {
    match message.framing() {
        Framing::Length(length) if length > longest => message.is_satisfied() && !message.is_done(),
        _ => message.content_length() > longest,
    }
}

/// How the end of an answer was found.
#[derive(Debug, Clone, Copy)]
struct Seen {
    hostile: Option<Anomaly>,
    too_long: bool,
}

impl Seen {
    /// True if no more of the answer is read.
    const fn is_over(self, message: &Message) -> bool {
        self.hostile.is_some() || self.too_long || message.is_done()
    }

    /// The length of the body: what was announced of one that was not read to its end.
    fn length(self, message: &Message) -> u64 {
        if self.too_long { message.length() } else { message.content_length() }
    }

    /// What can follow the answer.
    ///
    /// An error that closes its connection, and a body that goes on to the connection's end where
    /// the server did not say that it will close, are about one request and not about the server.
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

    /// Delivers an answer whose head was read before.
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
