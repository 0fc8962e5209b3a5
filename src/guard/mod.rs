//! The verdict loop: inline inspection of packets from netfilter queues.
//!
//! Each queue has one thread with its own [`source`] and engine, and no lock on the packet path. The main
//! thread waits for signals, reloads rules and keeps accounts. Nothing here parses a packet or interprets a
//! rule.
//!
//! The order of a run matters. The queues are bound before the hook leads packets to them, and the hook is
//! taken down before they are released, so that no packet goes to a queue without a listener.
mod account_file;
mod bans;
mod block_log;
mod bridge;
mod carrier_guard;
mod clock;
mod config;
pub mod control;
mod control_requests;
mod drop_privileges;
mod endpoints;
mod event_distributor;
mod event_reader;
mod forward_request;
mod handover;
mod hang_detection;
mod hook_keeper;
mod inspection;
mod interface_names;
pub mod leftovers;
mod offload_check;
mod own_listeners;
mod packet_age;
mod private_socket;
mod reader_metrics;
mod ready_worker;
mod recent_packets;
mod reload_record;
mod resets;
mod rule_source;
mod run_summary;
mod service_notifier;
mod signals;
pub mod source;
mod start;
mod stats_event;
mod status;
mod successor;
mod supervise;
mod takeover;
mod uninspected;
mod verdict_translator;
mod worker;
mod worker_counts;
mod worker_thread;

pub use bans::{BanCommand, BanInfo, BanList};
pub use carrier_guard::{CarriedPacket, CarriedVerdict, CarrierGuard, CarrierInspector};
pub use config::{ConfigFile, ControlPlace, EventOutput, GuardConfig, InspectionConfig};
pub use control_requests::{ExplainedBlock, WhyReport};
pub use event_reader::{AttachedError, EventReader, EventSender, ReaderCounts, ReaderStart, RunningReader};
pub use resets::ResetOutcomes;
pub use rule_source::{Enforce, PollCounts, RuleSource};
pub use status::{GuardStatus, LossTotals, QueueOwner, QueueStatus};

use std::io;

use bannerwall_ffi::error::CallError;
use crossbeam_channel::Sender;
use serde_json::Value;

use self::control::RulesInForce;
use crate::bypass::BypassError;
use crate::engine::OnFailure;
use crate::hook::HookError;
use crate::metrics::MetricsError;
use crate::rules::fingerprint::FingerprintError;
use crate::rules::{LoadError, RuleSelection};
use source::SourceError;

/// Error of a guard run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The rules are invalid.
    #[error(transparent)]
    Rules(#[from] LoadError),
    /// The fingerprint database is invalid.
    #[error(transparent)]
    Fingerprints(#[from] FingerprintError),
    /// The guard cannot bind, read or answer a queue.
    #[error("queue {queue}: {source}")]
    Source {
        /// Number of the queue.
        queue: u16,
        /// The error.
        source: SourceError,
    },
    /// The hook cannot be set up or taken down.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The hook leads to a queue that another process serves.
    #[error(
        "--hook: the hook that is up leads to queue {0}, which another guard serves; let both guards run without --hook, under one `bannerwall hook up --queue A:B`"
    )]
    HookInUse(u16),
    /// The hook leads to queues that a guard may serve, and the list of listeners is unreadable.
    #[error(
        "--hook: the hook that is up leads to queue {0}, and the guard cannot check if another guard \
         serves it: {1}; run `bannerwall hook down` as root if none does, or `chgrp` that file to a group \
         of this user"
    )]
    HookPerhapsInUse(u16, #[source] CallError),
    /// The metrics endpoint cannot start.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The destination of events cannot be opened.
    #[error("cannot write events: {0}")]
    Output(io::Error),
    /// An event reader or a rule source cannot start.
    #[error("{0}")]
    Attached(AttachedError),
    /// Raw sockets for resets cannot be opened.
    #[error("resets need CAP_NET_RAW and CAP_NET_ADMIN: {0}")]
    Resets(io::Error),
    /// The control socket that the user set cannot be made.
    #[error("--control {}: {source}", path.display())]
    Control {
        /// Path of the socket.
        path: std::path::PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The guard cannot take over from its predecessor, or cannot listen for a successor.
    #[error("--takeover {}: {why}", path.display())]
    Takeover {
        /// Path of the takeover socket.
        path: std::path::PathBuf,
        /// The error.
        why: String,
    },
    /// The guard that was to go on in this one's place is gone.
    #[error("--takeover: the successor exited after this guard had stopped: {0}")]
    SuccessorGone(io::Error),
    /// The user that was asked for.
    #[error("--user: cannot become another user, which needs CAP_SETUID and CAP_SETGID: {0}")]
    User(io::Error),
    /// The guard's user may not write a file.
    #[error("--user: cannot write {}: {source}", path.display())]
    Unwritable {
        /// Path of the file.
        path: std::path::PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The process that runs iptables has exited.
    #[error(
        "the process that runs iptables (bannerwall-run) has exited: the guard can no longer check and \
         restore the hook"
    )]
    RunnerGone,
    /// The bypass of decided flows cannot start.
    #[error(transparent)]
    Bypass(#[from] BypassError),
    /// A thread or the signal handlers cannot be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// A worker panicked. The panic message is above on stderr.
    #[error("the worker of queue {0} has failed")]
    Worker(u16),
    /// A worker does not go around its loop any more, and packets wait for it.
    #[error("the worker of queue {0} hangs: the packets in its queue are dropped")]
    Hung(u16),
    /// A second signal came before the clean stop was done.
    #[error("stopped by force; packets without a verdict were dropped")]
    Forced,
}

impl GuardError {
    /// True if the error is a missing permission or kernel feature rather than invalid input.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Source { source, .. } => source.is_unsupported(),
            Self::Hook(error) => error.is_unsupported(),
            Self::Bypass(error) => error.is_unsupported(),
            Self::Resets(_) | Self::User(_) => true,
            _ => false,
        }
    }
}

/// Messages to the main thread.
enum GuardMessage {
    /// End the run (SIGINT, SIGTERM).
    Stop,
    /// Reopen the event files and read the rules again (SIGHUP).
    Reload,
    /// Read the rules again (SIGUSR2).
    ReloadRules,
    /// Carry out a request of the control socket.
    Request(control::ControlRequest, Sender<Result<Value, String>>),
    /// Put a published version of the rules in force, and return the result.
    TakeRules(Box<RuleSelection>, Sender<Result<RulesInForce, String>>),
    /// Reopen the event files and emit a stats event (SIGUSR1).
    Reopen,
    /// A successor is ready to take over.
    HandOver(takeover::ConnectedSuccessor),
    /// The sealed state of a queue's worker at its end, for a successor.
    Left(u16, io::Result<std::os::fd::OwnedFd>),
    /// A worker has ended: normally, by an error, or by a panic (`None`).
    Ended(u16, Option<Result<(), SourceError>>),
}

/// Reads what a run reads before it binds a queue: rules and fingerprints, with their warnings, and the
/// settings of event readers.
///
/// # Errors
///
/// A run would fail with the same error.
pub fn check(
    config: &GuardConfig,
    readers: &[Box<dyn EventReader>],
    mut source: Option<Box<dyn RuleSource>>,
) -> Result<(), GuardError> {
    let config = rule_source::with_first_rules(config, &mut source)?;
    inspection::RulesAndFingerprints::read(&config.inspection, readers).map(drop)
}

/// Inspects packets until a signal ends the run. It prints `ready` with the queues on stderr once it judges
/// packets.
///
/// # Errors
///
/// Something that the run needs is missing or fails. In any case, a hook that this run set up is taken down
/// again.
pub fn run(
    config: &GuardConfig,
    outputs: Vec<EventOutput>,
    readers: Vec<Box<dyn EventReader>>,
    source: Option<Box<dyn RuleSource>>,
) -> Result<(), GuardError> {
    let left = start::ManagerContext::take(config);
    let (store, names) = (left.store.clone(), left.kept.names());
    let ended = drop_privileges::keep_start_privileges(config, &readers, source.as_deref())
        .and_then(|()| start::start(config, outputs, readers, source, left))
        .and_then(|(run, queues)| run.guard(queues));
    // The hook stays, and accepts packets only if nobody has bound the queues. Under `closed` the queues may
    // as well wait for the next run.
    if let (Err(_), Some(store), OnFailure::Open) = (&ended, &store, config.engine().on_failure) {
        store.remove_all(config, &names);
    }
    ended
}

/// Closes the sockets that a service manager stored of an earlier guard, if this process does not run a
/// guard. From then on the hook decides about packets.
pub fn close_stored_sockets() {
    start::close_stored();
}
