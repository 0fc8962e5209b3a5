//! Options of one scan, for every caller.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::banner::disclosure::DisclosureLimits;
use crate::metrics::MetricsConfig;
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;
use crate::scan::pacing::ScanRate;
use crate::scan::report::ResultSelection;
use crate::scan::targets::{PortSet, Shard};
use crate::scan::{CloseMethod, ProbeOptions, ScannerConfig};

/// Options of one scan.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Targets.
    pub targets: TargetOptions,
    /// Ports.
    pub ports: PortSet,
    /// Probe for an open port.
    pub probe: ProbeOptions,
    /// Rules to match banners against.
    pub rules: Arc<RuleSet>,
    /// Fingerprints to identify products, if any.
    pub fingerprints: Option<Arc<FingerprintSet>>,
    /// Disclosure of secrets in events.
    pub disclosure: DisclosureLimits,
    /// Selection of results.
    pub selection: ResultSelection,
    /// Limit of targets up to which silent ones are shown, too.
    pub listed_whole: u64,
    /// Rate of targets a second.
    pub rate: ScanRate,
    /// Concurrent connections; by default derived from the rate and the connect timeout.
    pub concurrency: Option<u32>,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Timeout of a silent open target.
    pub read_timeout: Duration,
    /// Timeout of a target in total.
    pub total_timeout: Duration,
    /// See [`ScannerConfig::retries`].
    pub retries: Option<u32>,
    /// End of connections.
    pub close: CloseMethod,
    /// Threads; by default one, or one for each processor without a rate limit.
    pub threads: Option<u16>,
    /// Seed of the targets' order; by default a new one each time (0 for one shard of several).
    pub seed: Option<u64>,
    /// Shard of the targets.
    pub shard: Shard,
    /// Checkpoint file, if any.
    pub keep: Option<CheckpointOptions>,
    /// Endpoint of metrics, if any.
    pub metrics: Option<MetricsConfig>,
}

/// Targets in the user's notation.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// Addresses, networks, ranges and host names.
    pub words: Vec<String>,
    /// File of such targets, `-` for standard input.
    pub file: Option<String>,
    /// Addresses, networks and ranges to exclude.
    pub exclude: Vec<String>,
    /// File of exclusions.
    pub exclude_file: Option<String>,
    /// True to probe multicast, broadcast and other addresses that cannot be hosts.
    pub include_reserved: bool,
}

/// Checkpoint of a scan. A scan with an existing file resumes from it.
#[derive(Debug, Clone, Default)]
pub struct CheckpointOptions {
    /// Path of the file.
    pub path: PathBuf,
    /// Command line to resume the scan, the program's name first.
    pub command: Vec<String>,
    /// Options that affect targets and results, besides targets, ports, seed and shard, by the names of their
    /// flags. A file with other values is refused.
    pub decides: BTreeMap<String, String>,
}

impl ScanOptions {
    /// Returns options for `targets` with `probe` at `ports`, at the default rate and without rules.
    pub fn new(targets: TargetOptions, ports: PortSet, probe: ProbeOptions) -> Self {
        let config = ScannerConfig::default();
        let (read_timeout, total_timeout) = probe.patience();
        Self {
            targets,
            ports,
            probe,
            rules: config.rules,
            fingerprints: None,
            disclosure: config.disclosure,
            selection: ResultSelection::default(),
            listed_whole: u64::MAX,
            rate: ScanRate::default(),
            concurrency: None,
            connect_timeout: config.connect_timeout,
            read_timeout,
            total_timeout,
            retries: config.retries,
            close: config.close,
            threads: None,
            seed: None,
            shard: Shard::WHOLE,
            keep: None,
            metrics: None,
        }
    }
}
