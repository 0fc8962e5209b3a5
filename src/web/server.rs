//! The sockets: connections bounded in number and time, in the clear or by TLS.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::seats::{Seat, Seats};

/// Time for which a stop waits for answers that are being written.
const GRACE: Duration = Duration::from_secs(1);

/// How long it is waited after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// How much a server bears.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at once, and those of one address.
    pub(crate) connections: (usize, usize),
    /// Time for which a client may take for its TLS handshake, and for the head of a request.
    pub(crate) head: Duration,
    /// Time for which a connection may take in all.
    pub(crate) whole: Duration,
    /// True if a connection is used for more than one request.
    pub(crate) keep_alive: bool,
    /// Threads for work that takes its time.
    pub(crate) threads: usize,
}

/// Whose request it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A running server; stops when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    by_tls: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens on an address.
///
/// # Errors
/// What the system says.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Server {
    /// Answers by `router` on a thread of that name, which calls `begin` first.
    ///
    /// # Errors
    /// The runtime or the thread cannot be had.
    pub(crate) fn start(
        name: &str,
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        limits: Limits,
        begin: impl FnOnce(&Runtime) + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(limits.threads)
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let by_tls = tls.is_some();
        let (stop, stopped) = oneshot::channel();
        let answerer = Answerer { tls: tls.map(TlsAcceptor::from), router, limits };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            begin(&runtime);
            runtime.block_on(serve(listener, Arc::new(answerer), stopped));
            // Work that nobody waits for any more is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, by_tls, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is, for a browser.
    pub(crate) fn url(&self) -> String {
        format!("http{}://{}/", if self.by_tls { "s" } else { "" }, self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The receiver is gone only where the server has ended by itself.
        let _ = self.stop.take().map(|stop| stop.send(()));
        // A panic of the server has been reported on stderr already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What all connections share.
struct Answerer {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
}

/// Answers until told to stop (or until whoever tells is gone), then finishes what it has begun.
async fn serve(
    listener: tokio::net::TcpListener,
    answerer: Arc<Answerer>,
    mut stopped: oneshot::Receiver<()>,
) {
    let (all, of_one) = answerer.limits.connections;
    let seats = Seats::new(all, of_one);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Who finds no seat is hung up on.
                    if let Some(seat) = seats.take(peer.ip()) {
                        connections.spawn(Arc::clone(&answerer).connection(stream, peer.ip(), seat));
                    }
                }
                // One connection failed, or no descriptor is left.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, rest).await;
}

impl Answerer {
    async fn connection(self: Arc<Self>, stream: tokio::net::TcpStream, peer: IpAddr, seat: Seat) {
        let router = self.router.clone().layer(Extension(Peer(peer)));
        match &self.tls {
            None => self.answer(stream, router).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = tokio::time::timeout(self.limits.head, tls.accept(stream)).await {
                    self.answer(stream, router).await;
                }
            }
        }
        drop(seat);
    }

    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .keep_alive(self.limits.keep_alive)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        // How it ended is the client's affair.
        let _ = tokio::time::timeout(self.limits.whole, connection).await;
    }
}
