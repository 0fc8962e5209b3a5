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
use tokio::sync::oneshot;

use super::{Health, MetricsError, Registry};
use crate::privileges::give_up_all;

/// How long a stop waits for answers that are being written.
const GRACE: Duration = Duration::from_secs(1);

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
    /// Listens on `address` (port 0 picks one) and answers until dropped.
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
        Ok(Self { address: bound, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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
async fn serve(listener: tokio::net::TcpListener, router: Router, stopped: oneshot::Receiver<()>) {
    let (begin_stop, stop_begun) = oneshot::channel();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        let _ = stopped.await;
        let _ = begin_stop.send(());
    });
    let patience = async move {
        let _ = stop_begun.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        // Accepting does not fail for good; what fails is one connection.
        _ = server => {}
        () = patience => {}
    }
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
        let answer = get(endpoint.address(), "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nbannerwall_build_info{version="), "{answer}");
        assert!(get(endpoint.address(), "/other").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn ready_and_healthy_are_told_apart() {
        let (endpoint, health) = start();
        let status = |path| get(endpoint.address(), path).split(' ').nth(1).map(str::to_owned);
        assert_eq!((status("/healthz").as_deref(), status("/readyz").as_deref()), (Some("200"), Some("503")));
        health.set_ready(true);
        assert_eq!(status("/readyz").as_deref(), Some("200"));
        health.hinder("hook", Some("IPv6: no hook".to_owned()));
        let answer = get(endpoint.address(), "/readyz");
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
        let address = endpoint.address();
        let _idle = TcpStream::connect(address).expect("it listens");
        drop(endpoint);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn a_taken_address_is_an_error_that_names_the_flag() {
        let (endpoint, health) = start();
        let error =
            Endpoint::start(endpoint.address(), Registry::default(), health).expect_err("it is taken");
        assert!(error.to_string().contains("--metrics: cannot listen on 127.0.0.1:"), "{error}");
    }
}
