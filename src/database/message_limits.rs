//! Checks a server's messages before they are read. An answer larger than any expected one ends the
//! connection, so that a server cannot exhaust the client's memory. So does a request for the password in
//! clear text by a server whose identity is not verified.
//!
//! It reads the frames of PostgreSQL's protocol (a letter, then four bytes of length, big-endian, which
//! include themselves), below TLS only if there is none
//! (<https://www.postgresql.org/docs/current/protocol-message-formats.html>).

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{ANSWER, DatabaseError, ProtocolViolation};
use super::route::{ServerRoute, ServerSocket};
use super::tls::PostgresTls;

/// Bytes of a message at most that describes parameters or columns; statements are kept with what it says.
const DESCRIPTION: u32 = 16 << 10;

/// Bytes that a message takes beside its own, and that each column of a row does.
pub(super) const BESIDE: (u64, u64) = (256, 24);

/// The code of the message that wants the password as it is.
const CLEARTEXT: u32 = 3;

/// Received bytes of the current answer, and the violation that ended the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceiveState(Arc<(AtomicU64, OnceLock<ProtocolViolation>)>);

impl ReceiveState {
    /// Returns the violation if there was one, else the connection's error.
    pub(super) fn or(&self, error: impl Into<DatabaseError>) -> DatabaseError {
        self.0.1.get().map_or_else(|| error.into(), |violation| (*violation).into())
    }

    /// Starts to count the next answer.
    pub(super) fn restart(&self) {
        self.0.0.store(0, Relaxed);
    }

    fn add(&self, octets: u64) -> std::result::Result<(), ProtocolViolation> {
        let before = self.0.0.fetch_add(octets, Relaxed);
        if before.saturating_add(octets) > ANSWER { Err(ProtocolViolation::Answer) } else { Ok(()) }
    }
}

/// Position of a byte stream in a message.
#[derive(Debug, Default)]
struct MessagePosition {
    /// True if the next byte answers the request for TLS, which is no message.
    is_asked: bool,
    /// True if the password may be sent in clear text.
    takes_cleartext: bool,
    /// Number of bytes of the head that were read, its letter, and its length so far.
    head: u8,
    letter: u8,
    length: u32,
    /// Number of bytes to the end of the message, and the number of them to inspect.
    rest: u32,
    looked_at: u8,
    /// Value of these, big-endian.
    said: u32,
}

impl MessagePosition {
    /// Reads more bytes.
    fn read(
        &mut self,
        mut octets: &[u8],
        received: &ReceiveState,
    ) -> std::result::Result<(), ProtocolViolation> {
        while let Some((first, others)) = octets.split_first() {
            if self.rest > 0 && self.looked_at == 0 {
                let count = octets.len().min(self.rest as usize);
                octets = octets.split_at(count).1;
                self.rest -= u32::try_from(count).unwrap_or(self.rest);
                continue;
            }
            octets = others;
            if std::mem::take(&mut self.is_asked) {
                continue;
            }
            if self.rest > 0 {
                self.look(*first, received)?;
            } else {
                self.begin(*first, received)?;
            }
        }
        Ok(())
    }

    /// Reads a byte of a head.
    fn begin(&mut self, octet: u8, received: &ReceiveState) -> std::result::Result<(), ProtocolViolation> {
        if self.head == 0 {
            (self.letter, self.length) = (octet, 0);
        } else {
            self.length = self.length << 8 | u32::from(octet);
        }
        self.head = (self.head + 1) % 5;
        if self.head > 0 {
            return Ok(());
        }
        let most = if matches!(self.letter, b'T' | b't') { DESCRIPTION.into() } else { ANSWER };
        if u64::from(self.length) > most {
            return Err(ProtocolViolation::Message(self.length));
        }
        self.rest = self.length.saturating_sub(4);
        self.said = 0;
        self.looked_at = match self.letter {
            b'R' if self.rest >= 4 => 4,
            b'D' if self.rest >= 2 => 2,
            _ => 0,
        };
        received.add(u64::from(self.length) + BESIDE.0)
    }

    /// Reads a byte at the start of a body.
    fn look(&mut self, octet: u8, received: &ReceiveState) -> std::result::Result<(), ProtocolViolation> {
        self.said = self.said << 8 | u32::from(octet);
        self.rest -= 1;
        self.looked_at -= 1;
        match (self.looked_at, self.letter) {
            (0, b'R') if self.said == CLEARTEXT && !self.takes_cleartext => Err(ProtocolViolation::Cleartext),
            (0, b'D') => received.add(u64::from(self.said) * BESIDE.1),
            _ => Ok(()),
        }
    }
}

/// A stream whose messages are checked.
#[derive(Debug)]
pub(super) struct CheckedStream<S> {
    stream: S,
    frames: MessagePosition,
    received: ReceiveState,
}

impl CheckedStream<ServerSocket> {
    /// Checks the messages of a socket, unless TLS comes in between; also returns the counter.
    pub(super) fn new(stream: ServerSocket, route: &ServerRoute, config: &Config) -> (Self, ReceiveState) {
        let is_asked = config.get_ssl_mode() != SslMode::Disable
            && config.get_ssl_negotiation() == SslNegotiation::Postgres;
        let frames =
            MessagePosition { is_asked, takes_cleartext: route.is_local(), ..MessagePosition::default() };
        let received = ReceiveState::default();
        (Self { stream, frames, received: received.clone() }, received)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CheckedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        let Self { frames, received, .. } = &mut *self;
        if let Err(violation) = frames.read(read, received) {
            // The first violation ends the connection.
            let _ = received.0.1.set(violation);
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, violation)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CheckedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: TlsStream + Unpin> TlsStream for CheckedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// TLS whose inner stream is checked.
pub(super) struct CheckedTls<'a> {
    tls: &'a PostgresTls,
    route: &'a ServerRoute,
    received: ReceiveState,
}

impl<'a> CheckedTls<'a> {
    pub(super) fn new(tls: &'a PostgresTls, route: &'a ServerRoute, received: ReceiveState) -> Self {
        Self { tls, route, received }
    }
}

impl<'a> TlsConnect<CheckedStream<ServerSocket>> for CheckedTls<'a> {
    type Stream = CheckedStream<<MakeRustlsConnect as MakeTlsConnect<ServerSocket>>::Stream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream>> + Send + 'a>>;

    fn connect(self, raw: CheckedStream<ServerSocket>) -> Self::Future {
        Box::pin(async move {
            let mut connector = self.tls.connector.clone();
            let Ok(connect) =
                MakeTlsConnect::<ServerSocket>::make_tls_connect(&mut connector, self.route.hostname());
            let stream = connect.connect(raw.stream).await?;
            let takes_cleartext = self.tls.verifies || self.route.is_local();
            let frames = MessagePosition { takes_cleartext, ..MessagePosition::default() };
            Ok(CheckedStream { stream, frames, received: self.received })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;
    use crate::database::{DatabaseLocation, PostgresSession, values};

    fn message(letter: u8, length: u32, body: &[u8]) -> Vec<u8> {
        [&[letter][..], &length.to_be_bytes(), body].concat()
    }

    proptest! {
        #[test]
        fn a_message_that_is_too_large_is_found_wherever_octets_are_cut(
            lengths in proptest::collection::vec(0u32..40, 0..20), asked in any::<bool>(), cut in 1usize..12,
        ) {
            let mut octets = if asked { vec![b'N'] } else { Vec::new() };
            for length in lengths {
                octets.extend(message(b'D', length + 4, &vec![0; length as usize]));
            }
            octets.extend(message(b'T', DESCRIPTION, &[]));
            let read = |octets: &[u8]| {
                let mut frames = MessagePosition { is_asked: asked, ..MessagePosition::default() };
                let received = ReceiveState::default();
                octets.chunks(cut).try_for_each(|part| frames.read(part, &received))
            };
            prop_assert_eq!(read(&octets), Ok(()));
            let end = octets.len() - 4;
            octets.splice(end.., (DESCRIPTION + 1).to_be_bytes());
            prop_assert_eq!(read(&octets), Err(ProtocolViolation::Message(DESCRIPTION + 1)));
        }
    }

    /// A server that says this to whoever comes, one after the other, and then waits.
    fn liar(folder: &std::path::Path, answers: Vec<Vec<u8>>) -> DatabaseLocation {
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            for answer in answers {
                if !matches!(client.read(&mut [0; 8_192]), Ok(1..)) {
                    return;
                }
                // Who is lied to leaves.
                let _ = client.write_all(&answer);
            }
            // Until the other end is gone.
            let _ = client.read_to_end(&mut Vec::new());
        });
        DatabaseLocation::parse(format!("postgresql:///net?user=a&host={}", folder.display()).into()).unwrap()
    }

    fn opened(
        folder: &std::path::Path,
        answers: Vec<Vec<u8>>,
    ) -> std::result::Result<PostgresSession, DatabaseError> {
        let DatabaseLocation::Server(server) = liar(folder, answers) else { unreachable!() };
        PostgresSession::open(server.access())
    }

    /// What takes a client in, and what answers its settings.
    fn taken() -> Vec<Vec<u8>> {
        let set = [message(b'C', 8, b"SET\0"), message(b'Z', 5, b"I")].concat();
        vec![[message(b'R', 8, &[0; 4]), message(b'Z', 5, b"I")].concat(), set]
    }

    #[test]
    fn a_server_that_lies_about_a_length_is_left_and_named() {
        let huge = 1 << 30;
        for (before, at) in [(0, 'R'), (1, 'D')] {
            let folder = tempfile::tempdir().unwrap();
            let lie = message(at as u8, huge, &[0; 64]);
            let answers = taken().into_iter().take(before).chain([lie]).collect();
            let error = opened(folder.path(), answers).unwrap_err();
            let is_named = matches!(error, DatabaseError::Violation(ProtocolViolation::Message(length)) if length == huge);
            assert!(is_named && !error.is_unavailable(), "{error:?}");
            assert!(error.to_string().contains("1073741824 bytes"), "{error}");
        }
        // Amid a question.
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), [taken(), vec![message(b'T', huge, &[0; 64])]].concat()).unwrap();
        let error = session.execute("SELECT 1", values![]).unwrap_err();
        assert!(matches!(error, DatabaseError::Violation(_)) && session.is_lost(), "{error:?}");
    }

    #[test]
    fn an_answer_is_bounded_in_octets_rows_and_columns() {
        let column = [&[0; 7][..], &25_u32.to_be_bytes(), &[0xff; 6], &[0; 2]].concat();
        let described = |columns: u16| {
            let columns = [&columns.to_be_bytes()[..], &column.repeat(columns.into())].concat();
            let columns = message(b'T', 4 + u32::try_from(columns.len()).unwrap(), &columns);
            [message(b'1', 4, &[]), message(b't', 6, &[0; 2]), columns, message(b'Z', 5, b"I")].concat()
        };
        let row = |columns: u16, values: &[u8]| {
            message(
                b'D',
                6 + u32::try_from(values.len()).unwrap(),
                &[&columns.to_be_bytes()[..], values].concat(),
            )
        };
        let long = [&(2_u32 << 20).to_be_bytes()[..], &vec![0; 2 << 20]].concat();
        for (columns, row, count) in [
            (0, row(0, &[]), 200_000),
            (1, row(1, &long), 24),
            (400, row(400, &[0xff; 4 * 400]), 5_000),
            (0, message(b'S', 6, &[0; 2]), 200_000),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let rows = [message(b'2', 4, &[]), row.repeat(count)].concat();
            let session = opened(folder.path(), [taken(), vec![described(columns), rows]].concat()).unwrap();
            let error = session.execute("SELECT 1", values![]).unwrap_err();
            let is_named = matches!(error, DatabaseError::Violation(ProtocolViolation::Answer));
            assert!(is_named && session.is_lost(), "{count}: {error:?}");
        }
    }

    #[test]
    fn a_password_is_given_in_clear_text_only_where_nobody_stands_between() {
        let asks = message(b'R', 8, &CLEARTEXT.to_be_bytes());
        let sasl = message(b'R', 8, &10_u32.to_be_bytes());
        for (asked, takes_cleartext, expected) in
            [(&asks, false, Err(ProtocolViolation::Cleartext)), (&asks, true, Ok(())), (&sasl, false, Ok(()))]
        {
            let mut frames = MessagePosition { takes_cleartext, ..MessagePosition::default() };
            assert_eq!(frames.read(asked, &ReceiveState::default()), expected);
        }
    }
}
