//! HTTP server for `/metrics`, `/healthz` and `/readyz`, on its own thread.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{MetricsError, MetricsRegistry, ProgramHealth};
use crate::diagnostics::log_line;
use crate::privileges::give_up_all;
use crate::web::{LoginLayer, WebConfig, WebServer, WebServerLimits, bind, names_this_machine};

/// Few connections at once, and a quarter of them for one address, so that three networks can't block all
/// others. Scrapes are seconds apart, so no connection needs to be kept alive.
const LIMITS: WebServerLimits = WebServerLimits {
    connections: (32, 8),
    head: Duration::from_secs(5),
    whole: Duration::from_secs(15),
    keep_alive: false,
    threads: 2,
};

/// Address of the metrics, and who may read them.
#[derive(Debug, Clone)]
pub struct MetricsConfig {
    /// The address to listen on. With port 0 the system picks a port, which is printed on stderr.
    pub address: SocketAddr,
    /// TLS and users; without it, everybody who reaches the address can read them.
    pub web: Option<WebConfig>,
}

/// The running HTTP server; stops when dropped.
#[derive(Debug)]
pub struct MetricsEndpoint {
    server: WebServer,
    listener: TcpListener,
}

#[derive(Clone)]
struct EndpointState {
    registry: MetricsRegistry,
    health: Arc<ProgramHealth>,
}

impl MetricsEndpoint {
    /// Listens and answers until it is dropped.
    ///
    /// # Errors
    /// Returns an error if it cannot listen on the address; the message names the flag.
    pub fn start(
        config: &MetricsConfig,
        registry: MetricsRegistry,
        health: Arc<ProgramHealth>,
    ) -> Result<Self, MetricsError> {
        let address = config.address;
        let listener = bind(address).map_err(|source| MetricsError::Listen { address, source })?;
        let endpoint = Self::resume(config, listener, registry, health)?;
        if endpoint.server.address() != address {
            log_line(format_args!("bannerwall: metrics are at {}metrics", endpoint.server.url()));
        }
        Ok(endpoint)
    }

    /// Starts to answer on an existing listener.
    ///
    /// # Errors
    /// Returns an error if the server can't be started.
    pub fn resume(
        config: &MetricsConfig,
        listener: TcpListener,
        registry: MetricsRegistry,
        health: Arc<ProgramHealth>,
    ) -> Result<Self, MetricsError> {
        listener.set_nonblocking(true).map_err(MetricsError::Start)?;
        // A successor gets this descriptor at a takeover, so that no request is refused in between.
        let own = listener.try_clone().map_err(MetricsError::Start)?;
        let (tls, users) = config.web.as_ref().map_or((None, None), WebConfig::parts);
        let mut router = router(EndpointState { registry, health });
        if let Some(users) = users {
            router = router.layer(from_fn_with_state(Arc::new(LoginLayer::new(users)), LoginLayer::check));
        }
        let address = listener.local_addr().map_err(MetricsError::Start)?.ip();
        // DNS rebinding: a web page could otherwise read the metrics by a name that resolves to this
        // address.
        if address.to_canonical().is_loopback() {
            router = router.layer(from_fn_with_state(address, check_host));
        }
        // The threads read requests of others, and need no capability.
        let begin = |_: &_| give_up_all("metrics");
        let server = WebServer::start("metrics", listener, tls, router, LIMITS, begin);
        Ok(Self { server: server.map_err(MetricsError::Start)?, listener: own })
    }

    /// The address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the listener, for a successor.
    pub fn listener(&self) -> Option<TcpListener> {
        self.listener.try_clone().ok()
    }
}

fn router(shown: EndpointState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shown)
}

/// Refuses requests that name another host. A request without a `Host` field comes from no browser.
async fn check_host(State(own): State<IpAddr>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !headers.contains_key(header::HOST) || names_this_machine(headers, own) {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "metrics are on localhost: use the host name localhost\n")
        .into_response()
}

async fn metrics(State(shown): State<EndpointState>) -> Response {
    match shown.registry.render() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn healthz(State(shown): State<EndpointState>) -> (StatusCode, &'static str) {
    if shown.health.has_failed() {
        (StatusCode::SERVICE_UNAVAILABLE, "failed\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn readyz(State(shown): State<EndpointState>) -> (StatusCode, String) {
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

    const fn at(address: SocketAddr) -> MetricsConfig {
        MetricsConfig { address, web: None }
    }

    fn start() -> (MetricsEndpoint, Arc<ProgramHealth>) {
        let health = Arc::new(ProgramHealth::default());
        let registry = MetricsRegistry::new().expect("families agree");
        let config = at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        (MetricsEndpoint::start(&config, registry, Arc::clone(&health)).expect("a free port"), health)
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    }

    #[test]
    fn metrics_are_shown_in_the_text_format() {
        let (endpoint, _) = start();
        let answer = get(endpoint.server.address(), "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nbannerwall_build_info{version="), "{answer}");
        assert!(get(endpoint.server.address(), "/other").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        let (endpoint, _) = start();
        let mut stream = TcpStream::connect(endpoint.server.address()).expect("it listens");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: rebind.example\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    }

    #[test]
    fn ready_and_healthy_are_told_apart() {
        let (endpoint, health) = start();
        let status = |path| get(endpoint.server.address(), path).split(' ').nth(1).map(str::to_owned);
        assert_eq!((status("/healthz").as_deref(), status("/readyz").as_deref()), (Some("200"), Some("503")));
        health.set_ready(true);
        assert_eq!(status("/readyz").as_deref(), Some("200"));
        health.set_obstacle("hook", Some("IPv6: no hook".to_owned()));
        let answer = get(endpoint.server.address(), "/readyz");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("not ready\nhook: IPv6: no hook\n"), "{answer}");
        assert_eq!(status("/healthz").as_deref(), Some("200"));
        health.set_obstacle("hook", None);
        assert_eq!(status("/readyz").as_deref(), Some("200"));
        health.set_failed();
        assert_eq!((status("/healthz").as_deref(), status("/readyz").as_deref()), (Some("503"), Some("503")));
    }

    #[test]
    fn a_stop_frees_the_address_even_with_a_connection_open() {
        let (endpoint, _) = start();
        let address = endpoint.server.address();
        let _idle = TcpStream::connect(address).expect("it listens");
        drop(endpoint);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn connections_are_few_and_half_requests_do_not_keep_others_out_for_ever() {
        let (endpoint, _) = start();
        let address = endpoint.server.address();
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
        other.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
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
        let error =
            MetricsEndpoint::start(&at(endpoint.server.address()), MetricsRegistry::default(), health)
                .expect_err("it is taken");
        assert!(error.to_string().contains("--metrics: cannot listen on 127.0.0.1:"), "{error}");
    }
}
