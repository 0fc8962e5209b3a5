//! Everything a scan can be told, once the command line has been read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::tls::TlsOptions;
use crate::banner::disclosure::Disclosure;
use crate::event::HeaderField;
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;
use crate::terms::Greeting;

/// How a scan connects, and what it asks.
#[derive(Debug, Clone)]
pub struct Config {
    /// What is asked of an open port.
    pub probe: ProbeOptions,
    /// What banners are judged by.
    pub rules: Arc<RuleSet>,
    /// What products are named by, where that is wanted.
    pub fingerprints: Option<Arc<Fingerprints>>,
    /// How much of messages events show.
    pub disclosure: Disclosure,
    /// Connections open at once, over all threads.
    pub window: usize,
    /// Descriptors that one ring may hold (`RLIMIT_NOFILE`): the window is spread over as many rings
    /// as that takes.
    pub descriptors_per_ring: usize,
    /// Time for which a target may take to accept.
    pub connect_timeout: Duration,
    /// Time for which an open target may be silent.
    pub first_byte_timeout: Duration,
    /// Time for which a target may take altogether.
    pub total_timeout: Duration,
    /// How connections are ended.
    pub close: Close,
    /// How often a target that did not answer in time is asked again; by default [`Self::RETRIES`] times
    /// while there are signs that connection requests get lost, and not at all where nobody is there.
    pub retries: Option<u32>,
    /// How often a target is tried again after a shortage of this machine.
    pub shortages: u32,
    /// Set from outside to give up what is in flight and return.
    pub stop: Arc<AtomicBool>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            probe: ProbeOptions::Connect,
            rules: Arc::default(),
            fingerprints: None,
            disclosure: Disclosure::default(),
            window: 1024,
            descriptors_per_ring: 1024,
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: ProbeOptions::Connect.patience().0,
            total_timeout: ProbeOptions::Connect.patience().1,
            close: Close::Reset,
            retries: None,
            shortages: 10,
            stop: Arc::default(),
        }
    }
}

impl Config {
    /// How often a target is asked again where its connection request may have been lost.
    pub const RETRIES: u32 = 3;
}

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Close {
    /// By a reset: the socket is used again at once, neither side keeps `TIME_WAIT`.
    #[default]
    Reset,
    /// By an orderly FIN, for targets that log resets; costs a new socket a target and leaves
    /// `TIME_WAIT` here.
    Finish,
}

/// What is asked of an open port.
#[derive(Debug, Clone)]
pub enum ProbeOptions {
    /// Nothing: the port is open or not.
    Connect,
    /// Its SSH identification.
    Ssh(SshOptions),
    /// What it says first, in a protocol of greetings.
    Greeting {
        /// The protocol that is expected; else the port and the words tell.
        expected: Option<Greeting>,
    },
    /// One or more HTTP requests.
    Http(HttpOptions),
    /// A handshake of TLS, and what it tells.
    Tls(TlsOptions),
    /// HTTP requests within TLS.
    Https(HttpOptions, TlsOptions),
}

impl ProbeOptions {
    /// The default of how long an open target may be silent, and how long it may take altogether.
    ///
    /// Mail and file servers may wait up to 6 s before they greet: for a resolver that does not answer, or to
    /// catch clients that speak first (Postfix's `postscreen_greet_wait`).
    pub const fn patience(&self) -> (Duration, Duration) {
        match self {
            Self::Greeting { .. } | Self::Tls(TlsOptions { starttls: Some(_), .. }) => {
                (Duration::from_secs(8), Duration::from_secs(30))
            }
            _ => (Duration::from_secs(2), Duration::from_secs(10)),
        }
    }
}

/// What the SSH probe reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshOptions {
    /// Octets of a server that are read at most before it is given up.
    pub byte_limit: usize,
    /// Read the KEXINIT, too, though no rule asks for it: its fingerprint is told.
    pub hassh: bool,
    /// Exchange keys as far as the server's reply, which shows its host key.
    pub host_key: bool,
}

/// What the HTTP probe asks and how.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The user's requests; those that the rules need are added.
    pub requests: Vec<HttpRequest>,
    /// Send further requests before answers came.
    pub pipeline: bool,
    /// Connections to a host at once, up to [`Self::MOST_CONNECTIONS`]; a server that is not able to
    /// take several requests on one is asked over up to [`Self::FALLBACK_CONNECTIONS`].
    pub host_connections: usize,
    /// Octets of a body kept for rules.
    pub body_limit: usize,
}

impl HttpOptions {
    /// The most connections to one host.
    pub const MOST_CONNECTIONS: usize = 8;
    /// Connections to a host that is not able to take several requests on one, unless the user allows
    /// more.
    pub const FALLBACK_CONNECTIONS: usize = 4;
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { requests: vec![HttpRequest::default()], pipeline: true, host_connections: 1, body_limit: 4096 }
    }
}

/// One HTTP request of every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`.
    pub method: String,
    /// Origin-form target, `/`.
    pub path: String,
    /// Fields beside `Host`, `User-Agent` and `Accept`, which they replace where named so.
    pub headers: Vec<HeaderField>,
}

impl Default for HttpRequest {
    fn default() -> Self {
        Self { method: "GET".to_owned(), path: "/".to_owned(), headers: Vec::new() }
    }
}
