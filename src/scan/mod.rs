//! The scan: asks the network and judges what comes back with the guard's own matcher.
//!
//! One thread a [`Targets`] and [`Report`] pair, nothing shared between threads but the stop flag.
//! This room knows nothing of the command line, and only a [`session`] of output and metrics (its results go
//! through the writer's handle); it never imports the guard's side (packets, flows, the engine).
//!
//! # Why it is built as it is
//!
//! Every choice was measured in C first and again here, side by side; `bench/scan` repeats the comparison
//! with other scanners. Medians of three to five (SSH: commit 9257e20, others: 391f861; Linux 6.18, two AMD
//! EPYC processors of a virtual machine), 65,536 loopback targets, each run in a network namespace of its
//! own; C is a bare program of the same design that neither permutes, judges, reports nor writes:
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
//! - **A pool of direct sockets used again.** `connect(AF_UNSPEC)` hard-linked to the next `connect`, one
//!   submission for both. Making and closing a socket for each target costs half as much again (6.0 to 6.3
//!   against 4.0 µs in C). What was refused needs no disconnect at all.
//! - **Timeouts are a list**, since each kind has one length: starting and stopping one is a few stores,
//!   and only what really expires costs a cancellation (12.3 µs a silent target in C, 17.3 with the
//!   kernel's linked timeouts).
//! - **Rings share nothing.** A ring's table of direct sockets is bounded by `RLIMIT_NOFILE`, each ring by
//!   itself, so that a thread takes as many as its window needs; but it fills one before it uses the next
//!   (with four rings in turn a closed port cost 16 % more than C).
//! - **A small submission queue** (256 entries) whatever the window, `COOP_TASKRUN`, no `SQPOLL`.
//! - **The window opens as answers allow** (`window`): 65,536 connections at once to one server
//!   overran its queue and lost 3 % of its banners, while a hundred are enough to keep it busy. Where
//!   nobody answers it doubles every 10 ms; where most have answered, sudden silence may be an overrun
//!   server's, and is believed only when nothing came late. (A million ports of one server: a window that
//!   opened at once lost 2 to 25 % of them, this one none.)
//! - **What came before is judged once.** Most servers say one of a few lines (`banner::KnownLines`):
//!   evaluating rules and building the same events anew cost 2.5 to 3 µs a banner.
//! - **Results go to the writer by the batch.** Waking its thread for each banner cost about 7 of 38 µs on
//!   the machine of the day.
//!
//! | module | what it owns |
//! |---|---|
//! | [`target`] | what is asked next, and when |
//! | [`outcome`] | what came of one target, and the sink that takes it |
//! | [`config`] | everything a scan can be told |
//! | [`targets`] | what users name, in permuted order, each exactly once |
//! | [`report`] | which results are written, a target's events together |
//! | [`session`] | the life of a scan, whoever starts it |
//! | [`checkpoint`] | where a scan stands, in a file |
//! | [`tls`] | what is offered to servers of TLS, and what their certificates are worth |
//! | [`permutation`], [`pacing`] | that order and its pace, without memory and without a clock |

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

pub use config::{Close, Config, HttpOptions, HttpRequest, ProbeOptions, SshOptions};
pub use outcome::{Conversation, Outcome, Reason, Report};
pub use target::{Next, Target, Targets};

mod here;
mod judge;
mod lane;
mod probe;
mod table;
mod window;
mod worker;

use std::sync::Arc;

use bannerwall_ring::RingError;

use judge::Judge;
use worker::Worker;

/// Why a scan could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The completion ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Waiting for several rings.
    #[error("poll: {0}")]
    Poll(std::io::Error),
    /// TLS cannot be spoken.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A thread could not be started.
    #[error("starting a thread: {0}")]
    Thread(std::io::Error),
    /// A thread panicked; the others ended in order.
    #[error("a scan thread panicked")]
    Panicked,
}

/// Runs a scan: one thread a pair of `parts`, each with its share of the window. Returns when every
/// target is accounted for, or soon after [`Config::stop`] was set.
///
/// # Errors
///
/// When a ring cannot be had (see [`RingError`]), or when the kernel gives errors that no target
/// causes; the other threads are stopped then.
pub fn run<T, R>(config: &Config, parts: Vec<(T, R)>) -> Result<Vec<(T, R)>, ScanError>
where
    T: Targets + Send,
    R: Report + Send,
{
    let judge = Judge::new(Arc::clone(&config.rules), config.fingerprints.clone(), config.disclosure);
    match &config.probe {
        ProbeOptions::Connect => run_probe(config, parts, || probe::Connect),
        ProbeOptions::Ssh(options) => run_probe(config, parts, || probe::Ssh::new(judge.clone(), *options)),
        ProbeOptions::Greeting { expected } => {
            run_probe(config, parts, || probe::Greetings::new(judge.clone(), *expected))
        }
        ProbeOptions::Http(options) => run_probe(config, parts, || http(config, options, &judge)),
        ProbeOptions::Tls(tls) => {
            let offer = tls::client_config()?;
            let secure = || probe::Secure::new(probe::Connect, judge.clone(), Arc::clone(&offer), tls);
            run_probe(config, parts, secure)
        }
        ProbeOptions::Https(options, tls) => {
            let offer = tls::client_config()?;
            let within = || http(config, options, &judge);
            run_probe(config, parts, || probe::Secure::new(within(), judge.clone(), Arc::clone(&offer), tls))
        }
    }
}

fn http(config: &Config, options: &HttpOptions, judge: &Judge) -> probe::Http {
    probe::Http::new(judge.clone(), options, config.first_byte_timeout)
}

fn run_probe<P, T, R>(
    config: &Config,
    parts: Vec<(T, R)>,
    probe: impl Fn() -> P + Sync,
) -> Result<Vec<(T, R)>, ScanError>
where
    P: probe::Probe,
    T: Targets + Send,
    R: Report + Send,
{
    let threads = parts.len().max(1);
    let probe = &probe;
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(threads);
        for (thread, (targets, mut report)) in parts.into_iter().enumerate() {
            let body = move || {
                let outcome = Worker::new(config, (thread, threads), probe, targets)
                    .and_then(|worker| worker.run(&mut report))
                    .map(|targets| (targets, report));
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
