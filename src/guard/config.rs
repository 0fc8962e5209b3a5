//! Configuration of a guard run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use super::source::QueueBackend;
use crate::bypass::BypassConfig;
use crate::engine::EngineConfig;
use crate::hook::{HookConfig, IpFamily, IptablesVariant, MarkField, QueueRange};
use crate::metrics::MetricsConfig;
use crate::output::{OutputDestination, OutputFormat};
use crate::privileges::UnprivilegedUser;
use crate::rules::RuleSelection;
use crate::terms::hash::Sha256Digest;

/// An event output: a destination and a format.
pub struct EventOutput {
    /// Destination of the events.
    pub destination: OutputDestination,
    /// Format of the events.
    pub format: Box<dyn OutputFormat>,
}

/// Path of the control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlace {
    /// Path of the socket.
    pub path: PathBuf,
    /// True if the user set the path: then the run fails if the socket cannot be made.
    pub asked: bool,
}

/// The file given with `--config`, as it was at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Sha256Digest,
}

impl ConfigFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The file is unreadable.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(path)?;
        Ok(Self { path: path.to_owned(), digest: Sha256Digest::of(&bytes) })
    }
}

/// Configuration of inline inspection, independent of the source of packets.
#[derive(Debug, Clone)]
pub struct InspectionConfig {
    /// Selection of the rules.
    pub rules: RuleSelection,
    /// Path of the fingerprint database.
    pub fingerprints: Option<PathBuf>,
    /// Settings of the engines, which divide the limits of flows and buffers among them.
    pub engine: EngineConfig,
    /// True if the process confines itself to the files and calls that it needs.
    pub is_confined: bool,
    /// Files that the guard writes.
    pub writes: Vec<PathBuf>,
}

/// Settings of a guard run.
#[derive(Debug, Clone)]
pub struct GuardConfig {
    /// Settings of rules, engine and outputs.
    pub inspection: InspectionConfig,
    /// The configuration file, if there is one.
    pub config_file: Option<ConfigFile>,
    /// The queues, each with one worker.
    pub queues: QueueRange,
    /// The library that talks to the kernel.
    pub backend: QueueBackend,
    /// Networks that are never banned.
    pub ban_exempt: Vec<IpNet>,
    /// The hook to set up for the run.
    pub hook: Option<HookConfig>,
    /// True if the guard restores that hook when another program changes or removes it.
    pub hook_repair: bool,
    /// True if that hook stays after the end of the run.
    pub hook_keep: bool,
    /// Address families that may have a hook.
    pub families: Vec<IpFamily>,
    /// The iptables variant that manages the hook.
    pub variant: IptablesVariant,
    /// True if the kernel passes or drops packets of decided flows without the guard.
    pub offload: bool,
    /// The interfaces between which packets of decided flows bypass netfilter.
    pub bypass: Option<BypassConfig>,
    /// Number of bytes of each packet that the kernel copies at first.
    pub copy_range: u32,
    /// Limit of the number of packets that wait in each queue.
    pub queue_length: u32,
    /// Limit of the time for which a packet may wait before it is judged; no limit if absent.
    pub max_wait: Option<Duration>,
    /// The two bits of the mark that bannerwall uses.
    pub mark: MarkField,
    /// The control socket, which `bannerwall reload` uses.
    pub control: Option<ControlPlace>,
    /// Path of the takeover socket. The guard takes over from a predecessor that listens there, then listens
    /// there for its successor.
    pub takeover: Option<PathBuf>,
    /// True if the service manager stores the sockets and the handover state over a restart.
    pub fd_store: bool,
    /// The metrics endpoint.
    pub metrics: Option<MetricsConfig>,
    /// The user that the guard switches to after the privileged part of the start.
    pub user: Option<UnprivilegedUser>,
}

impl GuardConfig {
    /// Returns the settings of the engines.
    pub const fn engine(&self) -> &EngineConfig {
        &self.inspection.engine
    }

    /// True if another process may take over the queues of this one.
    pub(super) const fn leaves_queues(&self) -> bool {
        self.takeover.is_some() || self.fd_store
    }
}
