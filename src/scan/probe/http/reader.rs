//! Tells the answers on one connection apart, octet for octet.
//!
//! A head is read when it is whole, a body by [`crate::banner::framing`]; what is kept of a body is
//! bounded, the rest is passed over. Where one answer ends the next begins: nothing is guessed.

use crate::banner::framing::{
    BodyBuffer, BodyReader, Framing, Hostile, is_interim, is_persistent, of_response,
};
use crate::banner::{Anomalies, Progress, Response, http};

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
    pub(super) hostile: Option<Hostile>,
}

/// How far the octets reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// They are used up.
    More,
    /// An answer was delivered.
    Answered {
        /// Whether another answer can follow on this connection.
        persistent: bool,
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
    /// `method` is that of the request which is to be answered next; a body beyond `body_cap`
    /// octets is cut, and the connection with it.
    pub(super) fn advance(
        &mut self,
        octets: &mut &[u8],
        method: Option<&[u8]>,
        body_cap: u64,
        deliver: impl FnOnce(Delivered<'_>),
    ) -> Advanced {
        match &mut self.state {
            State::Head => self.head(method, body_cap, deliver),
            State::Body { head, reader, framing } => {
                let body = &mut self.body;
                let read = reader.read(octets, |content| body.push(content));
                let cut = reader.content_length() > body_cap;
                let hostile = read.err();
                let done = match read {
                    Ok(advance) => {
                        *octets = octets.get(advance.consumed..).unwrap_or_default();
                        advance.done
                    }
                    Err(_) => true,
                };
                if !done && !cut {
                    return Advanced::More;
                }
                let (length, ends) = (reader.content_length(), *framing == Framing::UntilClose);
                let head = self.collected.get(..*head).unwrap_or_default();
                let answered = deliver_again(head, self.body.as_slice(), length, hostile, deliver);
                self.collected.clear();
                self.collected.extend_from_slice(octets);
                *octets = &[];
                self.start = 0;
                self.body.clear();
                self.state = State::Head;
                let persistent = answered && !ends && !cut && hostile.is_none();
                Advanced::Answered { persistent }
            }
        }
    }

    /// Reads heads at the start of what was collected: interim ones, then one with its body.
    fn head(
        &mut self,
        method: Option<&[u8]>,
        body_cap: u64,
        deliver: impl FnOnce(Delivered<'_>),
    ) -> Advanced {
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
            if hostile.is_none() && framed.framing != Framing::Tunnel {
                match reader.read(behind, |content| body.push(content)) {
                    Ok(advance) => (done, used) = (advance.done, advance.consumed),
                    Err(reason) => (done, hostile) = (true, Some(reason)),
                }
            }
            let cut = reader.content_length() > body_cap;
            done |= cut || framed.framing == Framing::Tunnel;
            if !done {
                let kept = self.start..self.start + length;
                self.collected.truncate(kept.end);
                self.collected.drain(..kept.start);
                self.start = 0;
                self.state = State::Body { head: length, reader, framing: framed.framing };
                return Advanced::More;
            }
            let persistent = is_persistent(read.message.version, &read.message.headers)
                && hostile.is_none()
                && !cut
                && matches!(framed.framing, Framing::Length(_) | Framing::Chunked);
            let mut response = read.message;
            response.body = self.body.as_slice();
            deliver(Delivered {
                response,
                body_length: reader.content_length(),
                anomalies: read.anomalies,
                hostile,
            });
            self.start += length + used;
            return Advanced::Answered { persistent };
        }
    }

    /// The connection has ended: delivers an answer that only its end completes, or, when `partial`
    /// is wanted, what there is of one. Tells whether something was delivered.
    pub(super) fn end(&mut self, partial: bool, deliver: impl FnOnce(Delivered<'_>)) -> bool {
        let State::Body { head, reader, .. } = &self.state else { return false };
        if !reader.is_whole_at_end() && !partial {
            return false;
        }
        let head = self.collected.get(..*head).unwrap_or_default();
        deliver_again(head, self.body.as_slice(), reader.content_length(), None, deliver);
        self.clear();
        true
    }
}

/// Delivers an answer whose head was read before; tells whether another one can follow it.
fn deliver_again(
    head: &[u8],
    body: &[u8],
    body_length: u64,
    hostile: Option<Hostile>,
    deliver: impl FnOnce(Delivered<'_>),
) -> bool {
    let Progress::Done { value, .. } = http::parse_response(head) else { return false };
    let mut response = value.message;
    let persistent = is_persistent(response.version, &response.headers);
    response.body = body;
    deliver(Delivered { response, body_length, anomalies: value.anomalies, hostile });
    persistent
}
