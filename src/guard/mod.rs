//! The verdict loop: packets from a netfilter queue, judged inline.
//!
//! One thread a queue, each with its own [`source`] and engine and no lock on the packet path; the main
//! thread waits for signals, reloads rules and keeps accounts. Nothing here parses a packet or knows
//! what a rule says.
//!
//! The order of a run matters. The queues are bound before the hook leads packets to them, and the hook
//! is taken down before they are given back, so that no packet is led to a queue without a listener.
mod bans;
mod blocks;
mod bridge;
mod carrier;
mod clock;
mod config;
pub mod control;
mod front;
mod handed;
mod hold;
mod host;
mod interfaces;
mod keeper;
mod ledger;
mod loss;
mod notify;
mod own_listeners;
mod policy;
mod private_socket;
mod pulse;
mod queue;
mod reader;
mod readers;
mod recent;
mod requests;
mod resets;
mod rule_source;
mod signals;
mod sinks;
pub mod source;
mod start;
mod stats;
mod status;
mod succession;
mod supervise;
mod takeover;
mod tally;
mod waiting;
mod worker;

pub use bans::{BanCommand, BanInfo, BanList};
pub use carrier::{CarriedPacket, CarriedVerdict, CarrierGuard, CarrierInspector};
pub use config::{ConfigFile, ControlPlace, GuardConfig, InspectionConfig, Output};
pub use reader::{AttachedError, EventReader, EventSender, ReaderCounts, ReaderStart, RunningReader};
pub use requests::{ExplainedBlock, WhyReport};
pub use resets::Outcomes;
pub use rule_source::{Enforce, PollCounts, RuleSource};
pub use status::{Gaps, GuardStatus, QueueOwner, QueueStatus};

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
use crate::rules::{LoadError, Selection};
use source::SourceError;

/// Why a run could not start, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The rules are bad.
    #[error(transparent)]
    Rules(#[from] LoadError),
    /// The fingerprint database is bad.
    #[error(transparent)]
    Fingerprints(#[from] FingerprintError),
    /// A queue could not be bound, read or answered.
    #[error("queue {queue}: {source}")]
    Source {
        /// Its number.
        queue: u16,
        /// Why.
        source: SourceError,
    },
    /// The hook could not be put up or taken down.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The hook that is up leads to a queue that somebody else listens on.
    #[error(
        "--hook: the hook that is up leads to queue {0}, which another guard serves; let both guards run without --hook, under one `bannerwall hook up --queue A:B`"
    )]
    HookInUse(u16),
    /// The hook that is there leads to queues that a guard may serve, and who does cannot be read.
    #[error(
        "--hook: the hook that is up leads to queue {0}, and whether a guard serves it can't be known: {1}; \
         `bannerwall hook down` by root if none does, or `chgrp` that file to a group of this user's"
    )]
    HookPerhapsInUse(u16, #[source] CallError),
    /// The metrics could not be shown.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The destination of events cannot be opened.
    #[error("cannot write events: {0}")]
    Output(io::Error),
    /// A reader of events cannot start, or a source of rules has none.
    #[error("{0}")]
    Attached(AttachedError),
    /// Raw sockets for resets cannot be opened.
    #[error("resets need CAP_NET_RAW and CAP_NET_ADMIN: {0}")]
    Resets(io::Error),
    /// The control socket that was asked for cannot be made.
    #[error("--control {}: {source}", path.display())]
    Control {
        /// Where.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The guard before can't be taken over from, or the next one not be listened for.
    #[error("--takeover {}: {why}", path.display())]
    Takeover {
        /// Where it was to be.
        path: std::path::PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// The guard that was to go on in this one's place is gone.
    #[error("--takeover: the guard that was to go on went away when this one had stopped: {0}")]
    HeirGone(io::Error),
    /// The user that was asked for.
    #[error("--user: cannot go on as another user, which takes CAP_SETUID and CAP_SETGID: {0}")]
    User(io::Error),
    /// A file that is to be written is out of that user's reach.
    #[error("--user: cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process that runs iptables is gone.
    #[error(
        "the process that runs iptables (bannerwall-run) has ended: the hook cannot be looked after any more"
    )]
    RunnerGone,
    /// Decided flows can't go by below netfilter.
    #[error(transparent)]
    Bypass(#[from] BypassError),
    /// A thread or the signal handlers could not be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// A worker ended by a panic, whose message stands above on stderr.
    #[error("the worker of queue {0} has failed")]
    Worker(u16),
    /// A worker does not go around its loop any more, and packets wait for it.
    #[error("the worker of queue {0} hangs: packets that wait for it are dropped")]
    Hung(u16),
    /// A second signal came before the clean stop was done.
    #[error("stopped by force; packets in hand were dropped")]
    Forced,
}

impl GuardError {
    /// True if a permission or a feature of this machine is missing, rather than good input.
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

/// What the main thread is told.
enum Message {
    /// End the run (SIGINT, SIGTERM).
    Stop,
    /// Open the files of events anew and read the rules again (SIGHUP).
    Reload,
    /// Read the rules again (SIGUSR2).
    ReloadRules,
    /// Carry out a request of the control socket.
    Request(control::Request, Sender<Result<Value, String>>),
    /// Put a version of the rules in force that was published, and tell how that went.
    TakeRules(Box<Selection>, Sender<Result<RulesInForce, String>>),
    /// Open the files of events anew and emit a stats event (SIGUSR1).
    Reopen,
    /// A guard is ready to go on in this one's place.
    HandOver(takeover::Heir),
    /// What the worker of a queue knew at its end, sealed, for whoever goes on.
    Left(u16, io::Result<std::os::fd::OwnedFd>),
    /// A worker has ended: by itself, by an error, or by a panic (`None`).
    Ended(u16, Option<Result<(), SourceError>>),
}

/// Reads what a run would read before it binds a queue: rules and fingerprints, warnings told, and what its
/// readers of events are configured with.
///
/// # Errors
/// Where a run would be refused for them.
pub fn check(
    config: &GuardConfig,
    readers: &[Box<dyn EventReader>],
    mut source: Option<Box<dyn RuleSource>>,
) -> Result<(), GuardError> {
    let config = rule_source::with_first_rules(config, &mut source)?;
    host::Loaded::read(&config.inspection, readers).map(drop)
}

/// Guards until a signal ends the run; prints `ready` with the queues on stderr once packets are judged.
///
/// # Errors
/// Where something that the run needs is missing or fails. Whatever the end, a hook that this run put up
/// is taken down again.
pub fn run(
    config: &GuardConfig,
    outputs: Vec<Output>,
    readers: Vec<Box<dyn EventReader>>,
    source: Option<Box<dyn RuleSource>>,
) -> Result<(), GuardError> {
    let left = start::Left::take(config);
    let (store, names) = (left.store.clone(), left.kept.names());
    let ended = hold::begin(config, &readers, source.as_deref())
        .and_then(|()| start::start(config, outputs, readers, source, left))
        .and_then(|(run, queues)| run.guard(queues));
    // The hook is kept, and lets packets pass only where nobody has the queues. A closed one may as well wait
    // for the next.
    if let (Err(_), Some(store), OnFailure::Open) = (&ended, &store, config.engine().on_failure) {
        store.abandon(config, &names);
    }
    ended
}

/// Gives back what a service manager has kept of a guard before, where no run comes of this process: the hook
/// decides then what becomes of packets.
pub fn give_back_kept() {
    start::give_back();
}
