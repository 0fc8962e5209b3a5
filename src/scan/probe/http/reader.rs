//! Tells the answers on one connection apart, octet for octet.
//!
//! A head is read when it is whole, a body by [`crate::banner::framing`]; what is kept of a body is
//! bounded, the rest is passed over. Where one answer ends the next begins: nothing is guessed.

use super::asker::Behind;
use crate::banner::framing::{BodyBuffer, BodyReader, Framing, is_interim, is_persistent, of_response};
use crate::banner::{Anomalies, Anomaly, Progress, Response, http};

/// Heads before this size are kept allocated for the next target.
const KEPT: usize = 4096;

/// Reads the answers of one connection.
#[derive(Debug)]
pub(super) struct Reader {
    /// Octets that are not used up: the beginning of a head, or the head whose body follows.
    collected: Vec<u8>,
    /// How much of `collected` is used up.
    start: usize,
    body: BodyBuffer,
    state: State,
}

#[derive(Debug)]
enum State {
    Head,
    /// The head lies at `collected[..head]`.
    Body {
        head: usize,
        reader: BodyReader,
        framing: Framing,
    },
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
        Self { collected: Vec::new(), start: 0, body: BodyBuffer::new(body_limit), state: State::Head }
    }

    /// Forgets the connection before.
    pub(super) fn clear(&mut self) {
        self.collected.clear();
        self.collected.shrink_to(KEPT);
        self.start = 0;
        self.body.clear();
        self.state = State::Head;
    }

    /// The octets of an answer that is not whole.
    pub(super) fn pending(&self) -> &[u8] {
        self.collected.get(self.start..).unwrap_or_default()
    }

    /// Octets of the body that is being read, kept or not; none between bodies.
    pub(super) fn body_octets(&self) -> Option<u64> {
        match &self.state {
            State::Head => None,
            State::Body { reader, .. } => Some(reader.content_length()),
        }
    }

    /// Takes octets that came; call [`Self::advance`] with what it leaves until that says `More`.
    pub(super) fn take(&mut self, octets: &mut &[u8]) {
        if matches!(self.state, State::Head) {
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
        match &mut self.state {
            State::Head => self.head(method, longest, deliver),
            State::Body { head, reader, framing } => {
                let body = &mut self.body;
                let (hostile, done) = match reader.read(octets, |content| body.push(content)) {
                    Ok(advance) => {
                        *octets = octets.get(advance.consumed..).unwrap_or_default();
                        (None, advance.done)
                    }
                    Err(reason) => (Some(reason), true),
                };
                let seen = Seen {
                    framing: *framing,
                    hostile,
                    too_long: is_too_long(*framing, reader, body, longest),
                };
                if !done && !seen.too_long {
                    return Advanced::More;
                }
                let length = seen.length(reader);
                let head = self.collected.get(..*head).unwrap_or_default();
                let behind = seen.deliver_again(head, body.as_slice(), length, deliver);
                self.collected.clear();
                self.collected.extend_from_slice(octets);
                *octets = &[];
                self.start = 0;
                self.body.clear();
                self.state = State::Head;
                Advanced::Answered { behind }
            }
        }
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
            let mut reader = BodyReader::new(framed.framing);
            let behind = rest.get(length..).unwrap_or_default();
            let body = &mut self.body;
            body.clear();
            let (mut hostile, mut done, mut used) = (framed.hostile, framed.hostile.is_some(), 0);
            if hostile.is_none() && !framed.framing.is_foreign() {
                match reader.read(behind, |content| body.push(content)) {
                    Ok(advance) => (done, used) = (advance.done, advance.consumed),
                    Err(reason) => (done, hostile) = (true, Some(reason)),
                }
            }
            let too_long = is_too_long(framed.framing, &reader, body, longest);
            if !done && !too_long && !framed.framing.is_foreign() {
                let kept = self.start..self.start + length;
                self.collected.truncate(kept.end);
                self.collected.drain(..kept.start);
                self.start = 0;
                self.state = State::Body { head: length, reader, framing: framed.framing };
                return Advanced::More;
            }
            let seen = Seen { framing: framed.framing, hostile, too_long };
            let behind = seen.behind(&read.message);
            let mut response = read.message;
            response.body = self.body.as_slice();
            let body_length = seen.length(&reader);
            let anomalies = read.anomalies;
            deliver(Delivered { response, body_length, anomalies, hostile, behind, unfinished: false });
            self.start += length + used;
            return Advanced::Answered { behind };
        }
    }

    /// No more octets will come: delivers the answer that this completes, or as much as `partial` asks for.
    /// Tells what the answer says of the server.
    pub(super) fn end(&mut self, partial: Partial, deliver: impl FnOnce(Delivered<'_>)) -> Option<Behind> {
        let State::Body { head, reader, framing } = &self.state else {
            return self.end_head(partial, deliver);
        };
        let whole = match partial {
            Partial::Head => reader.is_whole_at_end(),
            Partial::Unframed => matches!(framing, Framing::UntilClose),
            Partial::Any => true,
        };
        if !whole {
            return None;
        }
        let head = self.collected.get(..*head).unwrap_or_default();
        let seen = Seen { framing: *framing, hostile: None, too_long: false };
        let behind = seen.deliver_again(head, self.body.as_slice(), reader.content_length(), deliver);
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

/// Whether a body is beyond `longest` octets, or says that it will be and everything that is kept
/// of it is there.
fn is_too_long(framing: Framing, reader: &BodyReader, body: &BodyBuffer, longest: u64) -> bool {
    match framing {
        Framing::Length(length) if length > longest => body.is_full(),
        _ => reader.content_length() > longest,
    }
}

/// How the end of an answer was found.
#[derive(Debug, Clone, Copy)]
struct Seen {
    framing: Framing,
    hostile: Option<Anomaly>,
    too_long: bool,
}

impl Seen {
    /// The length of the body: what was announced of one that was not read to its end.
    fn length(self, reader: &BodyReader) -> u64 {
        match self.framing {
            Framing::Length(length) if self.too_long => length,
            _ => reader.content_length(),
        }
    }

    /// What can follow the answer.
    ///
    /// An error that closes its connection, and a body that goes on to the connection's end where
    /// the server did not say that it will close, are about one request and not about the server.
    fn behind(self, response: &Response<'_>) -> Behind {
        let persistent = is_persistent(response.version, &response.headers);
        let framed = matches!(self.framing, Framing::Length(_) | Framing::Chunked);
        let of_one = response.status >= 400 && response.version != b"HTTP/1.0";
        match persistent {
            _ if self.hostile.is_some() || self.too_long => Behind::Cut,
            true if framed => Behind::Another,
            false if !of_one => Behind::Nothing,
            _ => Behind::Cut,
        }
    }

    /// Delivers an answer whose head was read before.
    fn deliver_again(
        self,
        head: &[u8],
        body: &[u8],
        body_length: u64,
        deliver: impl FnOnce(Delivered<'_>),
    ) -> Behind {
        let Progress::Done { value, .. } = http::parse_response(head) else { return Behind::Cut };
        let mut response = value.message;
        let behind = self.behind(&response);
        response.body = body;
        let (anomalies, hostile) = (value.anomalies, self.hostile);
        deliver(Delivered { response, body_length, anomalies, hostile, behind, unfinished: false });
        behind
    }
}
