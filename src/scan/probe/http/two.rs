//! HTTP/2, RFC 9113: the library's connection, led by hand between buffers.
//!
//! Nothing here waits: whoever has octets of the server brings them, and takes what is to be sent.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::response::Parts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::LONGEST_BODY;

/// How TLS names it.
pub(super) const NAME: &[u8] = b"h2";

/// Octets of a head that are taken, as RFC 9113 section 10.5.1 counts them: a few octets on the wire may
/// stand for many.
const HEAD_LIMIT: u32 = 64 << 10;

/// How often the connection and the answers on it are gone over for what came once: one lets go on the other.
const TURNS: usize = 4;

/// A connection.
pub(super) struct Two {
    pipe: Pipe,
    send: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    asked: Vec<Asked>,
    is_over: bool,
}

/// A request that was asked, and what there is of its answer.
struct Asked {
    number: u16,
    answer: Answer,
    kept: Vec<u8>,
    length: u64,
}

enum Answer {
    Awaited(ResponseFuture),
    Head(Box<Parts>, RecvStream),
}

/// What became of a request.
pub(super) enum Told<'a> {
    /// It was answered: the head, what was kept of the body, and its length.
    Answered(&'a Parts, &'a [u8], u64),
    /// The server would not answer it.
    Refused,
}

impl std::fmt::Debug for Two {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Two").field("asked", &self.asked.len()).finish_non_exhaustive()
    }
}

impl Two {
    /// Begins; none where the library would not.
    pub(super) fn new() -> Option<Self> {
        let pipe = Pipe::default();
        let mut builder = Builder::new();
        builder.enable_push(false).max_header_list_size(HEAD_LIMIT);
        let beginning = pin!(builder.handshake::<_, Bytes>(pipe.clone()));
        // It only writes, for which there is always room.
        let Poll::Ready(Ok((send, connection))) = beginning.poll(&mut context()) else { return None };
        Some(Self { pipe, send, connection, asked: Vec::new(), is_over: false })
    }

    /// Asks a request; false where the server takes no further one at once.
    pub(super) fn ask(&mut self, number: u16, request: http::Request<()>) -> bool {
        if !matches!(self.send.poll_ready(&mut context()), Poll::Ready(Ok(()))) {
            return false;
        }
        let Ok((response, _)) = self.send.send_request(request, true) else { return false };
        let answer = Answer::Awaited(response);
        self.asked.push(Asked { number, answer, kept: Vec::new(), length: 0 });
        true
    }

    /// Takes what came, tells what it answers, and keeps `limit` octets of each body.
    pub(super) fn take(&mut self, octets: &[u8], limit: usize, tell: &mut impl FnMut(u16, Told<'_>)) {
        self.pipe.0.borrow_mut().incoming.extend_from_slice(octets);
        for _ in 0..TURNS {
            self.turn();
            self.asked.retain_mut(|asked| match asked.advance(limit) {
                Poll::Pending => true,
                Poll::Ready(is_answered) => {
                    asked.tell(is_answered, tell);
                    false
                }
            });
        }
    }

    /// Tells what there is of answers that will not come to their end; gives the requests of which nothing
    /// came.
    pub(super) fn end(&mut self, tell: &mut impl FnMut(u16, Told<'_>)) -> Vec<u16> {
        let asked = std::mem::take(&mut self.asked);
        asked.iter().for_each(|asked| asked.tell(true, tell));
        let of_nothing = asked.iter().filter(|asked| matches!(asked.answer, Answer::Awaited(_)));
        of_nothing.map(|asked| asked.number).collect()
    }

    /// Appends what is to be sent.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.turn();
        out.append(&mut self.pipe.0.borrow_mut().outgoing);
    }

    /// The server has ended it, or what it says is no HTTP/2.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Nothing is awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    fn turn(&mut self) {
        self.is_over |= Pin::new(&mut self.connection).poll(&mut context()).is_ready();
    }
}

impl Asked {
    /// Reads on: whether it is over, and if so, whether it was answered.
    fn advance(&mut self, limit: usize) -> Poll<bool> {
        if let Answer::Awaited(response) = &mut self.answer {
            match Pin::new(response).poll(&mut context()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    self.answer = Answer::Head(Box::new(head), body);
                }
            }
        }
        let Answer::Head(_, body) = &mut self.answer else { return Poll::Pending };
        while self.length < LONGEST_BODY {
            match body.poll_data(&mut context()) {
                Poll::Pending => return Poll::Pending,
                // An answer that is cut off is one.
                Poll::Ready(None | Some(Err(_))) => break,
                Poll::Ready(Some(Ok(data))) => {
                    let room = limit.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(data.get(..room).unwrap_or(&data));
                    self.length = self.length.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
                    // It was taken: a failure is that of the stream, told next.
                    let _ = body.flow_control().release_capacity(data.len());
                }
            }
        }
        Poll::Ready(true)
    }

    fn tell(&self, is_answered: bool, tell: &mut impl FnMut(u16, Told<'_>)) {
        match &self.answer {
            Answer::Head(head, _) => tell(self.number, Told::Answered(head, &self.kept, self.length)),
            Answer::Awaited(_) if !is_answered => tell(self.number, Told::Refused),
            Answer::Awaited(_) => {}
        }
    }
}

/// Nobody is to be woken: whatever may go on is polled when something came.
fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Octets in both directions.
#[derive(Debug, Clone, Default)]
struct Pipe(Rc<RefCell<Octets>>);

#[derive(Debug, Default)]
struct Octets {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let incoming = &mut self.0.borrow_mut().incoming;
        if incoming.is_empty() {
            return Poll::Pending;
        }
        let count = incoming.len().min(buffer.remaining());
        buffer.put_slice(incoming.get(..count).unwrap_or_default());
        incoming.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().outgoing.extend_from_slice(octets);
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
