//! What a run of the guard is told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use super::source::Backend;
use crate::bypass::BypassConfig;
use crate::engine::EngineConfig;
use crate::hook::{Family, HookConfig, MarkField, Queues, Variant};
use crate::metrics::MetricsConfig;
use crate::output::{Destination, Format};
use crate::privileges::User;
use crate::rules::Selection;
use crate::terms::hash::Digest;

/// One place that events go to.
pub struct Output {
    /// Where.
    pub destination: Destination,
    /// Spelled how.
    pub format: Box<dyn Format>,
}

/// Where the control socket is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlace {
    /// The socket.
    pub path: PathBuf,
    /// True if somebody asked for it: then the run needs it.
    pub asked: bool,
}

/// The file of `--config`, as it was at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Digest,
}

impl ConfigFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(path)?;
        Ok(Self { path: path.to_owned(), digest: Digest::of(&bytes) })
    }
}

/// Configuration of inline inspection, whatever its packets come from.
#[derive(Debug, Clone)]
pub struct InspectionConfig {
    /// Where rules come from.
    pub rules: Selection,
    /// A fingerprint database.
    pub fingerprints: Option<PathBuf>,
    /// Settings of the engines, which share the limits of flows and buffers.
    pub engine: EngineConfig,
    /// True if the process confines itself to the files and calls that it needs.
    pub is_confined: bool,
    /// The files that are written.
    pub writes: Vec<PathBuf>,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct GuardConfig {
    /// Rules, engine and outputs.
    pub inspection: InspectionConfig,
    /// The file that flags were read from, if any.
    pub config_file: Option<ConfigFile>,
    /// The queues, one worker each.
    pub queues: Queues,
    /// Which library talks to the kernel.
    pub backend: Backend,
    /// Networks that are never banned.
    pub ban_exempt: Vec<IpNet>,
    /// The hook to put up for the run.
    pub hook: Option<HookConfig>,
    /// True if that hook is put back where something changes it or takes it away.
    pub hook_repair: bool,
    /// True if that hook stays at the end of the run.
    pub hook_keep: bool,
    /// Address families that may have a hook.
    pub families: Vec<Family>,
    /// Which iptables holds the hook.
    pub variant: Variant,
    /// Let the kernel pass or drop decided flows by itself.
    pub offload: bool,
    /// Between which interfaces decided flows go by below netfilter.
    pub bypass: Option<BypassConfig>,
    /// Octets of each packet to copy at first.
    pub copy_range: u32,
    /// Packets that may wait in each queue.
    pub queue_length: u32,
    /// Time for which a packet may have waited there to be judged; any time where absent.
    pub max_wait: Option<Duration>,
    /// Our two bits of the mark.
    pub mark: MarkField,
    /// Where `bannerwall reload` finds the run.
    pub control: Option<ControlPlace>,
    /// Where a guard is taken over from, if one listens there, and the next one is listened for.
    pub takeover: Option<PathBuf>,
    /// True if the service manager keeps sockets, and what is known, over a restart.
    pub fd_store: bool,
    /// Where to show metrics.
    pub metrics: Option<MetricsConfig>,
    /// Who the guard goes on as once it has what only root gets.
    pub user: Option<User>,
}

impl GuardConfig {
    /// The settings of the engines.
    pub const fn engine(&self) -> &EngineConfig {
        &self.inspection.engine
    }

    /// True if another process may go on with the queues of this one.
    pub(super) const fn leaves_queues(&self) -> bool {
        self.takeover.is_some() || self.fd_store
    }
}
