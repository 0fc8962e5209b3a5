//! What a server sends, message by message: one that is larger than any that is asked for ends the connection before it is
//! read, so that who speaks in a server's place cannot fill the memory of who asks.
//!
//! Looks at what PostgreSQL's protocol frames (a letter, then four octets of length, big-endian, which count themselves), below TLS
//! only where there is none (<https://www.postgresql.org/docs/current/protocol-message-formats.html>).

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::DatabaseError;
use super::route::Socket;
use super::tls::Tls;

/// Octets of a message at most. A row of published rules has 32 MiB, one of what sensors send 4 MiB; a line of a result
/// is far below.
pub(super) const MOST: u32 = 64 << 20;

/// The length of a message that was too large; 0 where there was none.
#[derive(Debug, Clone, Default)]
pub(super) struct Excess(Arc<AtomicU32>);

impl Excess {
    /// An error of a connection: that a message was too large is why, where one was.
    pub(super) fn or(&self, error: impl Into<DatabaseError>) -> DatabaseError {
        match self.0.load(Relaxed) {
            0 => error.into(),
            length => DatabaseError::Excess(length),
        }
    }
}

/// Where in a message a stream of octets stands.
#[derive(Debug, Default)]
struct Frames {
    /// The octet that answers the question for TLS is to come, which is no message.
    is_asked: bool,
    /// Octets of the head that were read, and its length so far.
    head: u8,
    length: u32,
    /// Octets to the end of the message.
    rest: u32,
}

impl Frames {
    /// Reads on.
    ///
    /// # Errors
    /// The length of a message that is too large.
    fn read(&mut self, mut octets: &[u8]) -> std::result::Result<(), u32> {
        while let Some((first, others)) = octets.split_first() {
            if self.rest > 0 {
                let count = octets.len().min(self.rest as usize);
                octets = octets.split_at(count).1;
                self.rest -= u32::try_from(count).unwrap_or(self.rest);
                continue;
            }
            octets = others;
            if std::mem::take(&mut self.is_asked) {
                continue;
            }
            self.length = self.length << 8 | u32::from(*first);
            self.head = (self.head + 1) % 5;
            // The letter has been pushed out by the four octets behind it.
            if self.head == 0 {
                if self.length > MOST {
                    return Err(self.length);
                }
                self.rest = self.length.saturating_sub(4);
            }
        }
        Ok(())
    }
}

/// A stream of messages.
#[derive(Debug)]
pub(super) struct Messages<S> {
    stream: S,
    frames: Frames,
    excess: Excess,
}

impl Messages<Socket> {
    /// What comes by a socket, unless TLS comes in between; and whether any of it was too large.
    pub(super) fn new(stream: Socket, config: &Config) -> (Self, Excess) {
        let is_asked = config.get_ssl_mode() != SslMode::Disable
            && config.get_ssl_negotiation() == SslNegotiation::Postgres;
        let (frames, excess) = (Frames { is_asked, ..Frames::default() }, Excess::default());
        (Self { stream, frames, excess: excess.clone() }, excess)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Messages<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Err(length) = self.frames.read(read) {
            self.excess.0.store(length, Relaxed);
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, "a message that is too large")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Messages<S> {
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

impl<S: TlsStream + Unpin> TlsStream for Messages<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// TLS in whose stream messages are looked at.
pub(super) struct Guarded<'a> {
    tls: &'a Tls,
    /// The name that the server's certificate is to have.
    hostname: &'a str,
    excess: Excess,
}

impl<'a> Guarded<'a> {
    pub(super) fn new(tls: &'a Tls, hostname: &'a str, excess: Excess) -> Self {
        Self { tls, hostname, excess }
    }
}

impl<'a> TlsConnect<Messages<Socket>> for Guarded<'a> {
    type Stream = Messages<<Tls as MakeTlsConnect<Socket>>::Stream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream>> + Send + 'a>>;

    fn connect(self, raw: Messages<Socket>) -> Self::Future {
        Box::pin(async move {
            if self.hostname.is_empty() {
                return Err(Error::new(ErrorKind::InvalidInput, "TLS goes to a host with a name"));
            }
            let mut tls = self.tls.clone();
            let Ok(connect) = MakeTlsConnect::<Socket>::make_tls_connect(&mut tls, self.hostname);
            let stream = connect.connect(raw.stream).await?;
            Ok(Messages { stream, frames: Frames::default(), excess: self.excess })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::super::super::Place;
    use super::super::Session;
    use super::*;
    use crate::inventory::database::link::values;

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
                octets.extend(message(b'D', length + 4, &vec![0xff; length as usize]));
            }
            octets.extend(message(b'D', MOST, &[]));
            let read = |octets: &[u8]| {
                let mut frames = Frames { is_asked: asked, ..Frames::default() };
                octets.chunks(cut).try_for_each(|part| frames.read(part))
            };
            prop_assert_eq!(read(&octets), Ok(()));
            let end = octets.len() - 4;
            octets.splice(end.., (MOST + 1).to_be_bytes());
            prop_assert_eq!(read(&octets), Err(MOST + 1));
        }
    }

    /// A server that says this to whoever comes, one after the other, and then waits.
    fn liar(folder: &std::path::Path, answers: Vec<Vec<u8>>) -> Place {
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            for answer in answers {
                if !matches!(client.read(&mut [0; 8_192]), Ok(1..)) {
                    return;
                }
                client.write_all(&answer).unwrap();
            }
            // Until the other end is gone.
            let _ = client.read_to_end(&mut Vec::new());
        });
        Place::parse(format!("postgresql:///net?user=a&host={}", folder.display()).into()).unwrap()
    }

    #[test]
    fn a_server_that_lies_about_a_length_is_left_and_named() {
        let taken = || [message(b'R', 8, &[0; 4]), message(b'Z', 5, b"I")].concat();
        let huge = 1 << 30;
        for (before, at) in [(vec![b"N".to_vec()], 'R'), (vec![b"N".to_vec(), taken()], 'D')] {
            let folder = tempfile::tempdir().unwrap();
            let lie = message(at as u8, huge, &[0; 64]);
            let Place::Server(server) = liar(folder.path(), [before, vec![lie]].concat()) else {
                unreachable!()
            };
            let error = Session::open(&server.config, &server.tls).unwrap_err();
            assert!(matches!(error, DatabaseError::Excess(length) if length == huge), "{error:?}");
            assert!(!error.is_of_absence() && error.to_string().contains("1073741824 octets"), "{error}");
        }
        // Amid a question.
        let folder = tempfile::tempdir().unwrap();
        let set = || [message(b'C', 8, b"SET\0"), message(b'Z', 5, b"I")].concat();
        let answers = vec![b"N".to_vec(), taken(), set(), message(b'T', huge, &[0; 64])];
        let Place::Server(server) = liar(folder.path(), answers) else { unreachable!() };
        let session = Session::open(&server.config, &server.tls).unwrap();
        let error = session.all("SELECT 1", values![]).unwrap_err();
        assert!(matches!(error, DatabaseError::Excess(_)) && session.is_lost(), "{error:?}");
    }
}
