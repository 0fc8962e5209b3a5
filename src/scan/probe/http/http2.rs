//! HTTP/2, RFC 9113: the library's connection, driven synchronously between buffers.
//!
//! Nothing here blocks: the caller passes received bytes, and takes the bytes to send.

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

/// ALPN name.
pub(super) const NAME: &[u8] = b"h2";

/// Limit of a head's size, as RFC 9113 section 10.5.1 counts it: a few bytes on the wire may stand for many.
const HEAD_LIMIT: u32 = 64 << 10;

/// Number of passes over the connection and its responses after each receive: progress of one enables the
/// other.
const TURNS: usize = 4;

/// HTTP/2 connection.
pub(super) struct Http2Connection {
    pipe: MemoryPipe,
    send: SendRequest<Bytes>,
    connection: Connection<MemoryPipe, Bytes>,
    asked: Vec<Http2Request>,
    is_over: bool,
}

/// Request in flight, with the received part of its response.
struct Http2Request {
    number: u16,
    answer: Http2Response,
    kept: Vec<u8>,
    length: u64,
}

enum Http2Response {
    Awaited(ResponseFuture),
    Head(Box<Parts>, RecvStream),
}

/// Result of a request.
pub(super) enum Http2Result<'a> {
    /// Response: the head, the kept part of the body, and its length.
    Answered(&'a Parts, &'a [u8], u64),
    /// The server refused the request.
    Refused,
}

impl std::fmt::Debug for Http2Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Http2Connection").field("asked", &self.asked.len()).finish_non_exhaustive()
    }
}

impl Http2Connection {
    /// Starts a connection; none if the library fails.
    pub(super) fn new() -> Option<Self> {
        let pipe = MemoryPipe::default();
        let mut builder = Builder::new();
        // Pushed responses would cost the server and the scan data that no request asked for.
        builder.enable_push(false).max_header_list_size(HEAD_LIMIT);
        let beginning = pin!(builder.handshake::<_, Bytes>(pipe.clone()));
        // The handshake only writes, and the pipe always has room.
        let Poll::Ready(Ok((send, connection))) = beginning.poll(&mut context()) else { return None };
        Some(Self { pipe, send, connection, asked: Vec::new(), is_over: false })
    }

    /// Sends a request; returns false if the server accepts no further stream now.
    pub(super) fn ask(&mut self, number: u16, request: http::Request<()>) -> bool {
        if !matches!(self.send.poll_ready(&mut context()), Poll::Ready(Ok(()))) {
            return false;
        }
        let Ok((response, _)) = self.send.send_request(request, true) else { return false };
        let answer = Http2Response::Awaited(response);
        self.asked.push(Http2Request { number, answer, kept: Vec::new(), length: 0 });
        true
    }

    /// Handles received bytes, reports responses, and keeps `limit` bytes of each body.
    pub(super) fn take(&mut self, octets: &[u8], limit: usize, tell: &mut impl FnMut(u16, Http2Result<'_>)) {
        self.pipe.0.borrow_mut().incoming.extend_from_slice(octets);
        // The library works in steps: data that is released by one response can complete another.
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

    /// Reports incomplete responses, and returns the requests without any response.
    pub(super) fn end(&mut self, tell: &mut impl FnMut(u16, Http2Result<'_>)) -> Vec<u16> {
        let asked = std::mem::take(&mut self.asked);
        asked.iter().for_each(|asked| asked.tell(true, tell));
        // A response whose head has come counts, even if its body is cut short.
        let of_nothing = asked.iter().filter(|asked| matches!(asked.answer, Http2Response::Awaited(_)));
        of_nothing.map(|asked| asked.number).collect()
    }

    /// Appends the bytes to send.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.turn();
        out.append(&mut self.pipe.0.borrow_mut().outgoing);
    }

    /// True if the server ended the connection, or its data is not HTTP/2.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// True if no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    fn turn(&mut self) {
        self.is_over |= Pin::new(&mut self.connection).poll(&mut context()).is_ready();
    }
}

impl Http2Request {
    /// Reads on; once the response is over, returns whether there was one.
    fn advance(&mut self, limit: usize) -> Poll<bool> {
        if let Http2Response::Awaited(response) = &mut self.answer {
            match Pin::new(response).poll(&mut context()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    self.answer = Http2Response::Head(Box::new(head), body);
                }
            }
        }
        let Http2Response::Head(_, body) = &mut self.answer else { return Poll::Pending };
        while self.length < LONGEST_BODY {
            match body.poll_data(&mut context()) {
                Poll::Pending => return Poll::Pending,
                // A truncated response counts as one.
                Poll::Ready(None | Some(Err(_))) => break,
                Poll::Ready(Some(Ok(data))) => {
                    let room = limit.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(data.get(..room).unwrap_or(&data));
                    self.length = self.length.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
                    // An error here belongs to the stream, which reports it next.
                    let _ = body.flow_control().release_capacity(data.len());
                }
            }
        }
        Poll::Ready(true)
    }

    fn tell(&self, is_answered: bool, tell: &mut impl FnMut(u16, Http2Result<'_>)) {
        match &self.answer {
            Http2Response::Head(head, _) => {
                tell(self.number, Http2Result::Answered(head, &self.kept, self.length));
            }
            Http2Response::Awaited(_) if !is_answered => tell(self.number, Http2Result::Refused),
            Http2Response::Awaited(_) => {}
        }
    }
}

/// No task needs a wake-up: the caller polls everything after each receive.
fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Buffers of both directions.
#[derive(Debug, Clone, Default)]
struct MemoryPipe(Rc<RefCell<PipeBuffers>>);

#[derive(Debug, Default)]
struct PipeBuffers {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl AsyncRead for MemoryPipe {
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

impl AsyncWrite for MemoryPipe {
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
