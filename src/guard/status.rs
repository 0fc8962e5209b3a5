//! The state of a run, for `bannerwall status`.

use std::path::PathBuf;
use std::time::SystemTime;

use bannerwall_ffi::queue::KernelCounters;
use serde::{Deserialize, Serialize};

pub use super::reload_record::ReloadRecord;
use super::supervise::{GuardRun, RunStart};
use crate::engine::OnFailure;
use crate::event::{OverrideFacts, Timestamp};
use crate::metrics::QueueDrop;
use crate::rules::RuleFileDrift;

/// Seconds without a turn after which a worker's loop is late. A loop turns ten times a second.
const LATE: u64 = 3;

/// The state of a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub process: u32,
    /// Start of the process.
    pub started: Timestamp,
    /// True if the run continues that of another process.
    pub continues: bool,
    /// True if blocking rules block.
    pub enforcing: bool,
    /// `open` or `closed`.
    pub on_failure: String,
    /// The queues, each with its worker.
    pub queues: Vec<QueueStatus>,
    /// The rules in force.
    pub rules: RulesStatus,
    /// The file given with `--config`.
    pub configuration: Option<FileStatus>,
    /// Files that changed since the guard read them.
    pub drift: Vec<FileDrift>,
    /// The last reload; absent before the first one.
    pub last_reload: Option<ReloadRecord>,
    /// Overrides with an end, in the order of files and lines.
    pub overrides: Vec<OverrideFacts>,
    /// Lost packets and events.
    pub gaps: LossTotals,
    /// Descriptions of all faults; empty if there are none.
    pub faults: Vec<String>,
}

/// A queue and its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// The queue's number.
    pub queue: u16,
    /// Seconds since the worker's last turn; absent before the first one.
    pub last_turn: Option<u64>,
    /// The program that receives the packets of the queue.
    pub owner: QueueOwner,
    /// Netlink port id of the guard's own socket, if known.
    pub port_id: Option<u32>,
    /// Number of packets that wait for a verdict, if known.
    pub waiting: Option<u64>,
}

/// The program that receives the packets of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOwner {
    /// This guard.
    Guard,
    /// The program whose netlink socket has this port id.
    Other(u32),
    /// None.
    Nobody,
    /// Unknown, with the reason.
    Unknown(String),
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesStatus {
    /// Number of rules in force.
    pub in_force: usize,
    /// Number of rules that profiles and overrides disable.
    pub switched_off: usize,
    /// Number of policies.
    pub policies: usize,
    /// SHA-256 of all files that the rules were read from.
    pub sha256: String,
    /// Time when they came into force.
    pub loaded: Timestamp,
}

/// A file that was read at the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStatus {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// A file that changed since the guard read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDrift {
    /// Its path.
    pub path: PathBuf,
    /// `changed`, `added`, `removed`, or `unreadable: REASON`.
    pub change: String,
    /// True if a reload reads it again; otherwise a restart is needed.
    pub by_reload: bool,
}

/// Number of packets and events lost since the first of the runs that continue one another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossTotals {
    /// Number of packets that passed without inspection; absent if unknown.
    pub uninspected: Option<u64>,
    /// Number of packets dropped because the queue was full.
    pub queue_full: u64,
    /// Number of packets dropped because the socket of the queue was full.
    pub socket_overrun: u64,
    /// Number of packets dropped because no guard listened.
    pub no_listener: u64,
    /// Number of packets dropped because they had waited too long.
    pub overdue: u64,
    /// Number of packets that a killed guard had read but not answered.
    pub abandoned: u64,
    /// Number of lost events.
    pub events: u64,
}

impl GuardRun {
    /// Returns the state of the run.
    pub(super) fn status(&self) -> GuardStatus {
        let rules = self.host.rules.load();
        let queues: Vec<QueueStatus> =
            self.port_ids.iter().map(|(queue, port_id)| self.queue_status(*queue, *port_id)).collect();
        let drift = self.drift();
        let faults = self.faults(&queues, &drift);
        GuardStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            started: self.started,
            continues: matches!(self.beginning, RunStart::Succeeds(_)),
            enforcing: self.config.engine().enforce,
            on_failure: match self.config.engine().on_failure {
                OnFailure::Open => "open".to_owned(),
                OnFailure::Closed => "closed".to_owned(),
            },
            queues,
            rules: RulesStatus {
                in_force: rules.rules().len(),
                switched_off: rules.rules_off().len(),
                policies: rules.policies().len(),
                sha256: rules.digest().to_string(),
                loaded: self.loaded,
            },
            configuration: self
                .config
                .config_file
                .as_ref()
                .map(|file| FileStatus { path: file.path.clone(), sha256: file.digest.to_string() }),
            drift,
            last_reload: self.last_reload.clone(),
            overrides: rules
                .overrides()
                .iter()
                .filter(|one| one.until.is_some())
                .map(|one| (**one).clone())
                .collect(),
            gaps: self.gaps(),
            faults,
        }
    }

    fn queue_status(&self, queue: u16, port_id: Option<u32>) -> QueueStatus {
        let now = Timestamp::from(SystemTime::now()).as_nanos() / 1_000_000_000;
        let last = u64::try_from(self.host.metrics.last_turn(queue).get()).unwrap_or_default();
        let kernel = KernelCounters::of(queue);
        let owner = match (&kernel, port_id) {
            (Ok(Some(found)), Some(own)) if found.portid == own => QueueOwner::Guard,
            (Ok(Some(found)), Some(_)) => QueueOwner::Other(found.portid),
            (Ok(Some(_)), None) => QueueOwner::Unknown("this backend does not report its port id".to_owned()),
            (Ok(None), _) => QueueOwner::Nobody,
            (Err(error), _) => QueueOwner::Unknown(error.to_string()),
        };
        QueueStatus {
            queue,
            last_turn: (last > 0).then(|| now.saturating_sub(last)),
            owner,
            port_id,
            waiting: kernel.ok().flatten().map(|kernel| kernel.waiting),
        }
    }

    fn drift(&self) -> Vec<FileDrift> {
        let rules = self.host.rules.load().drift(&self.config.inspection.rules);
        let config = self.config.config_file.iter();
        let config =
            config.filter_map(|file| Some((file.path.clone(), RuleFileDrift::of(&file.path, file.digest)?)));
        let rules = rules.into_iter().map(|(path, drift)| (path, drift, true));
        let config = config.map(|(path, drift)| (path, drift, false));
        let all = rules.chain(config);
        all.map(|(path, drift, by_reload)| FileDrift { path, change: drift.to_string(), by_reload }).collect()
    }

    fn gaps(&self) -> LossTotals {
        let dropped = |reason| self.host.metrics.queue_dropped(reason).get();
        LossTotals {
            uninspected: self.host.metrics.uninspected_packets.get(),
            queue_full: dropped(QueueDrop::QueueFull),
            socket_overrun: dropped(QueueDrop::SocketOverrun),
            no_listener: dropped(QueueDrop::NoListener),
            overdue: dropped(QueueDrop::Overdue),
            abandoned: self.host.metrics.abandoned_packets.get(),
            events: self.host.metrics.events_dropped.get(),
        }
    }

    fn faults(&self, queues: &[QueueStatus], drift: &[FileDrift]) -> Vec<String> {
        let obstacles = self.health.obstacles().unwrap_or_default();
        let mut faults: Vec<String> = obstacles.lines().map(str::to_owned).collect();
        for QueueStatus { queue, last_turn, owner, .. } in queues {
            match last_turn {
                Some(seconds) if *seconds < LATE => {}
                Some(seconds) => {
                    faults.push(format!("queue {queue}: its worker has made no progress for {seconds} s"));
                }
                None => faults.push(format!("queue {queue}: its worker has not started yet")),
            }
            match owner {
                QueueOwner::Other(port_id) => faults.push(format!(
                    "queue {queue}: another program gets its packets (netlink port id {port_id})"
                )),
                QueueOwner::Nobody => faults.push(format!("queue {queue}: no program gets its packets")),
                QueueOwner::Guard | QueueOwner::Unknown(_) => {}
            }
        }
        for FileDrift { path, change, by_reload } in drift {
            let remedy = if *by_reload { "run `bannerwall reload`" } else { "restart the guard" };
            faults.push(format!("{} {change} since the guard read it ({remedy})", path.display()));
        }
        if let Some(ReloadRecord { error: Some(_), .. }) = &self.last_reload {
            faults.push("the last reload was refused: the rules before it are in force".to_owned());
        }
        faults
    }
}
