//! HTTP server: connections with limits of number and time, unencrypted or over TLS.

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

use super::connection_limit::{ConnectionLimit, ConnectionPermit};

/// Time for which a stop waits for responses being sent.
const GRACE: Duration = Duration::from_secs(1);

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebServerLimits {
    /// Concurrent connections, in total and of one address.
    pub(crate) connections: (usize, usize),
    /// Timeout of a client's TLS handshake, and of a request's head.
    pub(crate) head: Duration,
    /// Timeout of a connection in total.
    pub(crate) whole: Duration,
    /// True to allow several requests on a connection.
    pub(crate) keep_alive: bool,
    /// Number of threads for blocking work.
    pub(crate) threads: usize,
}

/// Address of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// Running server; stops when dropped.
#[derive(Debug)]
pub(crate) struct WebServer {
    address: SocketAddr,
    by_tls: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens on an address.
///
/// # Errors
///
/// Error of the system.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl WebServer {
    /// Serves `router` on a thread with this name, which calls `begin` first.
    ///
    /// # Errors
    ///
    /// The runtime or the thread cannot be created.
    pub(crate) fn start(
        name: &str,
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        limits: WebServerLimits,
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
        let answerer = ConnectionHandler { tls: tls.map(TlsAcceptor::from), router, limits };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            begin(&runtime);
            runtime.block_on(serve(listener, Arc::new(answerer), stopped));
            // Blocking work without a waiting request must not delay the stop.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, by_tls, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the listening address.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL.
    pub(crate) fn url(&self) -> String {
        format!("http{}://{}/", if self.by_tls { "s" } else { "" }, self.address)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // The receiver is gone only if the server has stopped by itself.
        let _ = self.stop.take().map(|stop| stop.send(()));
        // A panic of the server is already on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// State shared by all connections.
struct ConnectionHandler {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: WebServerLimits,
}

/// Accepts connections until the stop (or until its sender is dropped), then finishes open ones.
async fn serve(
    listener: tokio::net::TcpListener,
    answerer: Arc<ConnectionHandler>,
    mut stopped: oneshot::Receiver<()>,
) {
    let (all, of_one) = answerer.limits.connections;
    let seats = ConnectionLimit::new(all, of_one);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Without a free slot the connection is closed.
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

impl ConnectionHandler {
    async fn connection(
        self: Arc<Self>,
        stream: tokio::net::TcpStream,
        peer: IpAddr,
        seat: ConnectionPermit,
    ) {
        let router = self.router.clone().layer(Extension(PeerAddress(peer)));
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
        // The end of a connection, even a timeout, concerns only the client.
        let _ = tokio::time::timeout(self.limits.whole, connection).await;
    }
}
