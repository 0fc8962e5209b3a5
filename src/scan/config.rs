//! Settings of a scan, independent of the command line.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::tls::TlsOptions;
use crate::banner::disclosure::DisclosureLimits;
use crate::event::HeaderField;
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;
use crate::terms::GreetingProtocol;

/// Settings of connections, probes and rules.
#[derive(Debug, Clone)]
pub struct ScannerConfig {
    /// Probe for an open port.
    pub probe: ProbeOptions,
    /// Rules to match banners against.
    pub rules: Arc<RuleSet>,
    /// Fingerprints to identify products, if any.
    pub fingerprints: Option<Arc<FingerprintSet>>,
    /// Disclosure of secrets in events.
    pub disclosure: DisclosureLimits,
    /// Concurrent connections, over all threads.
    pub window: usize,
    /// Limit of descriptors in one ring (`RLIMIT_NOFILE`). The window is spread over as many rings as needed.
    pub descriptors_per_ring: usize,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Timeout of a silent open target.
    pub first_byte_timeout: Duration,
    /// Timeout of a target in total.
    pub total_timeout: Duration,
    /// End of connections.
    pub close: CloseMethod,
    /// Retries of a target that does not answer in time. By default [`Self::RETRIES`] while connection
    /// requests seem to get lost, and otherwise none.
    pub retries: Option<u32>,
    /// Attempts at a target after shortages of this machine.
    pub shortages: u32,
    /// Set by the caller to abandon targets under way and return.
    pub stop: Arc<AtomicBool>,
}

impl Default for ScannerConfig {
    fn default() -> Self {
        Self {
            probe: ProbeOptions::Connect,
            rules: Arc::default(),
            fingerprints: None,
            disclosure: DisclosureLimits::default(),
            window: 1024,
            descriptors_per_ring: 1024,
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: ProbeOptions::Connect.patience().0,
            total_timeout: ProbeOptions::Connect.patience().1,
            close: CloseMethod::Reset,
            retries: None,
            shortages: 10,
            stop: Arc::default(),
        }
    }
}

impl ScannerConfig {
    /// Default of retries while connection requests seem to get lost.
    pub const RETRIES: u32 = 3;
}

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CloseMethod {
    /// Reset: the socket is reused at once, and neither side keeps `TIME_WAIT`.
    #[default]
    Reset,
    /// Orderly FIN, for targets that log resets. It costs a new socket for each target and leaves `TIME_WAIT`
    /// here.
    Finish,
}

/// Probe for an open port.
#[derive(Debug, Clone)]
pub enum ProbeOptions {
    /// No data: the port is open or not.
    Connect,
    /// SSH identification.
    Ssh(SshOptions),
    /// Greeting of a server that sends first.
    Greeting {
        /// Expected protocol; without it the port and the greeting decide.
        expected: Option<GreetingProtocol>,
    },
    /// One or more HTTP requests.
    Http(HttpOptions),
    /// TLS handshake.
    Tls(TlsOptions),
    /// HTTP requests within TLS.
    Https(HttpOptions, TlsOptions),
    /// Any protocol: it is recognized, and gets its own probe, within TLS, too.
    Any(SshOptions, HttpOptions, TlsOptions),
}

impl ProbeOptions {
    /// Returns the default timeouts: of a silent target, and in total.
    ///
    /// Mail and file servers may wait up to 6 s before they greet. They wait for a slow resolver, or for
    /// clients that send too early (Postfix's `postscreen_greet_wait`).
    pub const fn patience(&self) -> (Duration, Duration) {
        match self {
            Self::Greeting { .. } | Self::Any(..) | Self::Tls(TlsOptions { starttls: Some(_), .. }) => {
                (Duration::from_secs(8), Duration::from_secs(30))
            }
            _ => (Duration::from_secs(2), Duration::from_secs(10)),
        }
    }
}

/// Options of the SSH probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshOptions {
    /// Limit of bytes to read from a server.
    pub byte_limit: usize,
    /// Read the KEXINIT for its fingerprint, even if no rule needs it.
    pub hassh: bool,
    /// Exchange keys up to the server's reply, which contains its host key.
    pub host_key: bool,
}

/// Options of the HTTP probe.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Requests of the user; the rules add theirs.
    pub requests: Vec<HttpRequest>,
    /// Send further requests before the first response.
    pub pipeline: bool,
    /// Connections to a host, up to [`Self::MOST_CONNECTIONS`]. A server that does not accept several
    /// requests on one connection gets up to [`Self::FALLBACK_CONNECTIONS`].
    pub host_connections: usize,
    /// Bytes of a body to keep for rules.
    pub body_limit: usize,
}

impl HttpOptions {
    /// Limit of connections to one host.
    pub const MOST_CONNECTIONS: usize = 8;
    /// Limit of connections to a host without pipelining, unless the user allows more.
    pub const FALLBACK_CONNECTIONS: usize = 4;
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { requests: vec![HttpRequest::default()], pipeline: true, host_connections: 1, body_limit: 4096 }
    }
}

/// HTTP request to every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method, `GET`.
    pub method: String,
    /// Request target in origin form, `/`.
    pub path: String,
    /// Additional fields. They replace `Host`, `User-Agent` and `Accept` with the same name.
    pub headers: Vec<HeaderField>,
}

impl Default for HttpRequest {
    fn default() -> Self {
        Self { method: "GET".to_owned(), path: "/".to_owned(), headers: Vec::new() }
    }
}
