//! What one scan is told, whoever tells it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::banner::disclosure::Disclosure;
use crate::metrics::MetricsConfig;
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;
use crate::scan::pacing::Rate;
use crate::scan::report::Selection;
use crate::scan::targets::{Ports, Shard};
use crate::scan::{Close, Config, ProbeOptions};

/// What one scan is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whom it asks.
    pub targets: Named,
    /// At which ports.
    pub ports: Ports,
    /// What it asks of an open port.
    pub probe: ProbeOptions,
    /// What banners are judged by.
    pub rules: Arc<RuleSet>,
    /// What products are named by, where that is wanted.
    pub fingerprints: Option<Arc<Fingerprints>>,
    /// How much of messages events show.
    pub disclosure: Disclosure,
    /// Which results are written.
    pub selection: Selection,
    /// Of a scan of more targets only those that answer are written.
    pub listed_whole: u64,
    /// Targets a second.
    pub rate: Rate,
    /// Connections at once; by default what the rate and the connect timeout ask for.
    pub concurrency: Option<u32>,
    /// Time for which a target may take to accept.
    pub connect_timeout: Duration,
    /// Time for which an open target may be silent.
    pub read_timeout: Duration,
    /// Time for which a target may take altogether.
    pub total_timeout: Duration,
    /// See [`Config::retries`].
    pub retries: Option<u32>,
    /// How connections are ended.
    pub close: Close,
    /// Threads; by default one, and one a processor where the rate has no limit.
    pub threads: Option<u16>,
    /// The order of the targets; by default another one each time (0 for one part of several).
    pub seed: Option<u64>,
    /// Which part of the targets.
    pub shard: Shard,
    /// Where it is kept how far the scan is.
    pub keep: Option<Keep>,
    /// Where metrics are shown.
    pub metrics: Option<MetricsConfig>,
}

/// Targets as users name them.
#[derive(Debug, Clone, Default)]
pub struct Named {
    /// Addresses, networks, ranges and host names.
    pub words: Vec<String>,
    /// A file of such words, `-` for standard input.
    pub file: Option<String>,
    /// Addresses, networks and ranges that are left out.
    pub exclude: Vec<String>,
    /// A file of such.
    pub exclude_file: Option<String>,
    /// Multicast, broadcast and other addresses that no host answers at are asked, too.
    pub include_reserved: bool,
}

/// A file that keeps where a scan stands. A scan whose file exists goes on from there.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    /// The file.
    pub path: PathBuf,
    /// The command line that would go on, the program's name first.
    pub command: Vec<String>,
    /// Whatever decides which targets are asked and how they are judged, beside targets, ports, seed
    /// and part, by the names that users know it by: another scan's file is refused.
    pub decides: BTreeMap<String, String>,
}

impl Options {
    /// `targets` are asked what `probe` says at `ports`, at the default pace and judged by no rule.
    pub fn new(targets: Named, ports: Ports, probe: ProbeOptions) -> Self {
        let config = Config::default();
        let (read_timeout, total_timeout) = probe.patience();
        Self {
            targets,
            ports,
            probe,
            rules: config.rules,
            fingerprints: None,
            disclosure: config.disclosure,
            selection: Selection::default(),
            listed_whole: u64::MAX,
            rate: Rate::default(),
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
