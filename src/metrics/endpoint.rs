//! `/metrics`, `/healthz` and `/readyz` over HTTP, on a thread of their own.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Health, MetricsError, Registry};
use crate::diagnostics::tell;
use crate::privileges::give_up_all;
use crate::seats::{Seat, Seats};

/// How long a stop waits for answers that are being written.
const GRACE: Duration = Duration::from_secs(1);

/// How long a client may take to send its request.
const HEAD: Duration = Duration::from_secs(5);

/// How long a connection may take in all.
const WHOLE: Duration = Duration::from_secs(15);

/// Connections at once.
const CONNECTIONS: usize = 16;

/// Connections of one address at once, so that none can keep all others out.
const CONNECTIONS_OF_ONE: usize = 8;

/// How long it is waited after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// The running HTTP server; stops when dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shown {
    registry: Registry,
    health: Arc<Health>,
}

impl Endpoint {
    /// Listens on `address` and answers until dropped. Port 0 picks one, which is told on stderr.
    ///
    /// # Errors
    /// Where the address cannot be listened on; the message names the flag.
    pub fn start(address: SocketAddr, registry: Registry, health: Arc<Health>) -> Result<Self, MetricsError> {
        let refused = |source| MetricsError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(MetricsError::Start)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(MetricsError::Start)?
        };
        let (stop, stopped) = oneshot::channel();
        let router = router(Shown { registry, health });
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                give_up_all("metrics");
                runtime.block_on(serve(listener, router, stopped));
            })
            .map_err(MetricsError::Start)?;
        let endpoint = Self { address: bound, stop: Some(stop), thread: Some(thread) };
        if address.port() == 0 {
            tell(format_args!("bannerwall: metrics are at http://{}/metrics", endpoint.address));
        }
        Ok(endpoint)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // The receiver is gone only where the server has ended by itself.
        let _ = self.stop.take().map(|stop| stop.send(()));
        // A panic of the server has been reported on stderr already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn router(shown: Shown) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shown)
}

/// Answers until told to stop (or until whoever tells is gone), then finishes what it has begun.
async fn serve(listener: tokio::net::TcpListener, router: Router, mut stopped: oneshot::Receiver<()>) {
    let seats = Seats::new(CONNECTIONS, CONNECTIONS_OF_ONE);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Who finds no seat is hung up on.
                    if let Some(seat) = seats.take(peer.ip()) {
                        connections.spawn(answer(stream, router.clone(), seat));
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

/// Answers one request of a connection. Scrapes are seconds apart: nobody needs it kept alive.
async fn answer(stream: tokio::net::TcpStream, router: Router, seat: Seat) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // How it ended is the client's affair.
    let _ = tokio::time::timeout(WHOLE, connection).await;
    drop(seat);
}

async fn metrics(State(shown): State<Shown>) -> Response {
    match shown.registry.render() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn healthz(State(shown): State<Shown>) -> (StatusCode, &'static str) {
    if shown.health.has_failed() {
        (StatusCode::SERVICE_UNAVAILABLE, "failed\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn readyz(State(shown): State<Shown>) -> (StatusCode, String) {
    match shown.health.obstacles() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(obstacles) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{obstacles}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    fn start() -> (Endpoint, Arc<Health>) {
        let health = Arc::new(Health::default());
        let registry = Registry::new().expect("families agree");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        (Endpoint::start(address, registry, Arc::clone(&health)).expect("a free port"), health)
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    }

    #[test]
    fn metrics_are_shown_in_the_text_format() {
        let (endpoint, _) = start();
        let answer = get(endpoint.address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nbannerwall_build_info{version="), "{answer}");
        assert!(get(endpoint.address, "/other").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn ready_and_healthy_are_told_apart() {
        let (endpoint, health) = start();
        let status = |path| get(endpoint.address, path).split(' ').nth(1).map(str::to_owned);
        assert_eq!((status("/healthz").as_deref(), status("/readyz").as_deref()), (Some("200"), Some("503")));
        health.set_ready(true);
        assert_eq!(status("/readyz").as_deref(), Some("200"));
        health.hinder("hook", Some("IPv6: no hook".to_owned()));
        let answer = get(endpoint.address, "/readyz");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("not ready\nhook: IPv6: no hook\n"), "{answer}");
        assert_eq!(status("/healthz").as_deref(), Some("200"));
        health.hinder("hook", None);
        assert_eq!(status("/readyz").as_deref(), Some("200"));
        health.set_failed();
        assert_eq!((status("/healthz").as_deref(), status("/readyz").as_deref()), (Some("503"), Some("503")));
    }

    #[test]
    fn a_stop_frees_the_address_even_with_a_connection_open() {
        let (endpoint, _) = start();
        let address = endpoint.address;
        let _idle = TcpStream::connect(address).expect("it listens");
        drop(endpoint);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn connections_are_few_and_half_requests_do_not_keep_others_out_for_ever() {
        let (endpoint, _) = start();
        let address = endpoint.address;
        let mut half: Vec<TcpStream> = (0..40)
            .map(|_| {
                let mut stream = TcpStream::connect(address).expect("it listens");
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
                // Refused ones may be closed already.
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n");
                stream
            })
            .collect();
        // Another address of this machine is answered meanwhile.
        let other =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        other.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).expect("an address of our own");
        other.connect(&address.into()).expect("it listens");
        let mut other = TcpStream::from(other);
        other.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        other.read_to_string(&mut answer).expect("it answers and closes");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Every half request ends by itself, by a timeout or a reset.
        for stream in &mut half {
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            let timed_out = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!timed_out, "it is still open");
        }
        assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_taken_address_is_an_error_that_names_the_flag() {
        let (endpoint, health) = start();
        let error = Endpoint::start(endpoint.address, Registry::default(), health).expect_err("it is taken");
        assert!(error.to_string().contains("--metrics: cannot listen on 127.0.0.1:"), "{error}");
    }
}
