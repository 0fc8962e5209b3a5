//! The scan: probes the network, and matches the replies with the guard's matcher.
//!
//! Each thread has one [`TargetSource`] and [`OutcomeSink`] pair. Threads share only the stop flag. This
//! module does not depend on the command line. Only [`session`] uses output and metrics: its results go
//! through the writer's handle. It never imports the guard's side (packets, flows, the engine).
//!
//! # Design decisions
//!
//! Every choice was measured in C first and again here, side by side. `bench/scan` repeats the comparison
//! with other scanners. Medians of three to five runs (SSH: commit 9257e20, others: 391f861; Linux 6.18, two
//! AMD EPYC processors of a virtual machine), 65,536 loopback targets, each run in its own network namespace.
//! C is a bare program of the same design that neither permutes, matches, reports nor writes:
//!
//! | scan | C | ours |
//! |---|---|---|
//! | closed, one thread: processor time a target | 7.9 µs | 7.9 µs |
//! | closed, two threads: time | 0.26 s; the article's design 0.92 s | 0.33 s |
//! | silent, 1 s timeout: time | 1.38 s, four threads | 1.60 s, one thread; 1.40 s, two |
//! | SSH, a shipped rule matches each: processor time a target | 17.5 µs | 21.6 µs |
//! | the same behind a line of 20 ms | 11.2 µs | 13.9 µs |
//! | HTTP, nginx: time | 1.57 s | 1.87 s |
//!
//! A thousand rules cost 0.6 % more than one. Resident memory was 30 MiB at most (65,536 connections open).
//!
//! - **Direct sockets are reused.** `connect(AF_UNSPEC)` is hard-linked to the next `connect`, with one
//!   submission for both. Creating and closing a socket for each target costs half as much again (6.0 to 6.3
//!   against 4.0 µs in C). A refused socket needs no disconnect.
//! - **Timeouts are lists**, since each kind has one length. Starting and stopping one is a few stores. Only
//!   an expired timeout costs a cancellation (12.3 µs for a silent target in C, 17.3 with the kernel's linked
//!   timeouts).
//! - **Rings share nothing.** `RLIMIT_NOFILE` bounds the table of direct sockets of each ring, so a thread
//!   has as many rings as its window needs. It fills one ring before it uses the next: with four rings in
//!   turn a closed port cost 16 % more than C.
//! - **The submission queue is small** (256 entries) for any window, with `COOP_TASKRUN` and without
//!   `SQPOLL`.
//! - **The window opens with the replies** (`window`): 65,536 concurrent connections to one server overran
//!   its queue and lost 3 % of its banners, while a hundred keep it busy. Without replies the window doubles
//!   every 10 ms. If most targets replied so far, sudden silence may come from an overrun server, so the
//!   window waits for late replies first. (A million ports of one server: a window that opened at once lost 2
//!   to 25 % of them, this one none.)
//! - **Known banners are cached.** Most servers send one of a few lines (`banner::KnownLines`). Evaluating
//!   rules and building the same events again cost 2.5 to 3 µs a banner.
//! - **Results go to the writer in batches.** Waking its thread for each banner cost about 7 of 38 µs on that
//!   day's machine.
//!
//! | module | what it owns |
//! |---|---|
//! | [`target`] | the next target, and its time |
//! | [`outcome`] | the result of one target, and its receiver |
//! | [`config`] | settings of a scan |
//! | [`targets`] | the user's targets, in permuted order, each exactly once |
//! | [`report`] | the selection of results, with a target's events together |
//! | [`session`] | the life of a scan, for every caller |
//! | [`checkpoint`] | progress of a scan, in a file |
//! | [`tls`] | the TLS offer, and the check of certificates |
//! | [`permutation`], [`pacing`] | the order and the rate, without memory and without a clock |

pub mod checkpoint;
pub mod config;
pub mod outcome;
pub mod pacing;
pub mod permutation;
pub mod report;
pub mod session;
pub mod target;
pub mod targets;
pub mod tls;

pub use config::{CloseMethod, HttpOptions, HttpRequest, ProbeOptions, ScannerConfig, SshOptions};
pub use outcome::{ExchangeOutcome, OutcomeSink, PortStateReason, TargetOutcome};
pub use target::{NextTarget, Target, TargetSource};

mod concurrency;
mod connection_table;
mod local_address;
mod probe;
mod response_matcher;
mod ring_worker;
mod worker;

use std::sync::Arc;

use bannerwall_ring::RingError;

use response_matcher::ResponseMatcher;
use worker::ScanThread;

/// Error that stops a scan.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The completion ring failed.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Waiting for several rings failed.
    #[error("cannot wait for the rings: poll: {0}")]
    Poll(std::io::Error),
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A thread panicked; the others stopped in order.
    #[error("a scan thread panicked")]
    Panicked,
}

/// Runs a scan with one thread for each pair of `parts`, which share the window. Returns when every target is
/// accounted for, or soon after [`ScannerConfig::stop`] was set.
///
/// # Errors
///
/// A ring cannot be created (see [`RingError`]), or the kernel returns errors that no target causes. The
/// other threads then stop.
pub fn run<T, R>(config: &ScannerConfig, parts: Vec<(T, R)>) -> Result<Vec<(T, R)>, ScanError>
where
    T: TargetSource + Send,
    R: OutcomeSink + Send,
{
    let judge =
        ResponseMatcher::new(Arc::clone(&config.rules), config.fingerprints.clone(), config.disclosure);
    match &config.probe {
        ProbeOptions::Connect => run_probe(config, parts, || probe::ConnectProbe),
        ProbeOptions::Ssh(options) => {
            run_probe(config, parts, || probe::SshProbe::new(judge.clone(), *options))
        }
        ProbeOptions::Greeting { expected } => {
            run_probe(config, parts, || probe::GreetingProbe::new(judge.clone(), *expected))
        }
        ProbeOptions::Http(options) => run_probe(config, parts, || http(config, options, &judge)),
        ProbeOptions::Tls(tls) => {
            let offer = tls::client_config()?;
            let secure = || probe::TlsProbe::new(probe::ConnectProbe, judge.clone(), Arc::clone(&offer), tls);
            run_probe(config, parts, secure)
        }
        ProbeOptions::Https(options, tls) => {
            let offer = tls::client_config()?;
            let within = || http(config, options, &judge);
            run_probe(config, parts, || {
                probe::TlsProbe::new(within(), judge.clone(), Arc::clone(&offer), tls)
            })
        }
        ProbeOptions::Any(ssh, options, tls) => {
            let offer = tls::client_config()?;
            run_probe(config, parts, || {
                let ssh = probe::SshProbe::new(judge.clone(), *ssh);
                let any = probe::AnyProbe::new(judge.clone(), ssh, http(config, options, &judge));
                probe::TlsProbe::new(any, judge.clone(), Arc::clone(&offer), tls)
            })
        }
    }
}

fn http(config: &ScannerConfig, options: &HttpOptions, judge: &ResponseMatcher) -> probe::HttpProbe {
    probe::HttpProbe::new(judge.clone(), options, config.first_byte_timeout)
}

fn run_probe<P, T, R>(
    config: &ScannerConfig,
    parts: Vec<(T, R)>,
    probe: impl Fn() -> P + Sync,
) -> Result<Vec<(T, R)>, ScanError>
where
    P: probe::Probe,
    T: TargetSource + Send,
    R: OutcomeSink + Send,
{
    let threads = parts.len().max(1);
    let probe = &probe;
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(threads);
        for (thread, (targets, mut report)) in parts.into_iter().enumerate() {
            let body = move || {
                let outcome = ScanThread::new(config, (thread, threads), probe, targets)
                    .and_then(|worker| worker.run(&mut report))
                    .map(|targets| (targets, report));
                // The other threads must not continue a scan that will be reported as failed.
                if outcome.is_err() {
                    config.stop.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                outcome
            };
            let builder = std::thread::Builder::new().name(format!("scan-{thread}"));
            running.push(builder.spawn_scoped(scope, body).map_err(ScanError::Thread)?);
        }
        running.into_iter().map(|thread| thread.join().map_err(|_panic| ScanError::Panicked)?).collect()
    })
}

#[cfg(test)]
mod tests;
