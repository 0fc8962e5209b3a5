//! The sockets: connections bounded in number and time, in the clear or by TLS.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ServeError;
use super::access::Peer;
use super::reader::AT_ONCE;
use crate::confinement::Confinement;
use crate::privileges::{FILES, keep_or_tell};
use crate::seats::{Seat, Seats};

/// How long a stop waits for answers that are being written.
const GRACE: Duration = Duration::from_secs(1);

/// How long a client may take for its TLS handshake, and for the head of a request.
const HEAD: Duration = Duration::from_secs(15);

/// How long a connection may take in all; live pages ask anew.
const WHOLE: Duration = Duration::from_secs(3_600);

/// Connections at once, and those of one address.
const CONNECTIONS: (usize, usize) = (128, 32);

/// How long it is waited after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Threads for questions to the inventory and for passwords.
const THREADS: usize = AT_ONCE + 4;

/// The running server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    by_tls: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Certificates and key, from files in PEM.
///
/// # Errors
/// A file cannot be read or used; the message names the flag.
pub(super) fn tls(flags: &str, certificates: &Path, key: &Path) -> Result<TlsAcceptor, ServeError> {
    let fault = |name: &str, path: &Path, why: String| {
        let flag = format!("{flags}{name}");
        ServeError::Tls { flag, path: path.to_owned(), why }
    };
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fault("tls-cert", certificates, error.to_string()))?;
    if chain.is_empty() {
        return Err(fault("tls-cert", certificates, "no certificate stands in it".to_owned()));
    }
    let own = PrivateKeyDer::from_pem_file(key).map_err(|error| fault("tls-key", key, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, own));
    let mut config = config.map_err(|error| fault("tls-cert", certificates, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Server {
    pub(super) fn start(
        (flag, address): (&'static str, SocketAddr),
        tls: Option<TlsAcceptor>,
        router: Router,
        confinement: Confinement,
    ) -> Result<Self, ServeError> {
        let refused = |error| ServeError::Listen { flag, address, error };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(THREADS)
            .build()
            .map_err(ServeError::Start)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?
        };
        let by_tls = tls.is_some();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("serve".to_owned())
            .spawn(move || {
                // The inventory may be another user's.
                keep_or_tell("serve", FILES);
                // What of it the kernel has: whoever runs us need not hear of it each time.
                confinement.apply_or_tell(true);
                runtime.block_on(serve(listener, tls, router, stopped));
                // A question that is still worked on is not waited for.
                runtime.shutdown_background();
            })
            .map_err(ServeError::Start)?;
        Ok(Self { address: bound, by_tls, stop: Some(stop), thread: Some(thread) })
    }

    /// Where the page is.
    pub fn url(&self) -> String {
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

/// Answers until told to stop (or until whoever tells is gone), then finishes what it has begun.
async fn serve(
    listener: tokio::net::TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    mut stopped: oneshot::Receiver<()>,
) {
    let seats = Seats::new(CONNECTIONS.0, CONNECTIONS.1);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Who finds no seat is hung up on.
                    if let Some(seat) = seats.take(peer.ip()) {
                        let router = router.clone().layer(Extension(Peer(peer.ip())));
                        connections.spawn(connection(stream, tls.clone(), router, seat));
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

async fn connection(stream: tokio::net::TcpStream, tls: Option<TlsAcceptor>, router: Router, seat: Seat) {
    match tls {
        None => answer(stream, router).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HEAD, tls.accept(stream)).await {
                answer(stream, router).await;
            }
        }
    }
    drop(seat);
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // How it ended is the client's affair.
    let _ = tokio::time::timeout(WHOLE, connection).await;
}
