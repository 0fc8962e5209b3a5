//! Metrics for operators: the Prometheus registry, its metric families, and the HTTP endpoint.
//!
//! All metric names are defined here, with the prefix `bannerwall_`. Guard and scan use the families that
//! they need; this module knows no packets and no targets. Nothing is looked up by label on a hot path:
//! callers hold handles.

mod endpoint;
mod guard;
mod handover_counters;
mod health;
mod latency;
#[cfg(test)]
mod metric_descriptions;
mod optional_counter;
mod scan;
mod tunnel;

pub use endpoint::{MetricsConfig, MetricsEndpoint};
pub use guard::{GuardMetrics, QueueDrop, ReloadResult, ResetResult, TakeoverResult, VerdictLabel};
pub use handover_counters::CounterSnapshot;
pub use health::ProgramHealth;
pub use latency::LatencyHistogram;
pub use optional_counter::OptionalCounter;
pub use scan::ScanMetrics;
pub use tunnel::{TunnelDirection, TunnelDrop, TunnelMetrics};

use std::net::SocketAddr;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, TextEncoder};

use handover_counters::{HandoverCounters, HandoverMetric};

/// Error of setting up metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// A family that contradicts another, or a label that its family does not have.
    #[error("metric registry: {0}")]
    Registry(#[from] prometheus::Error),
    /// It cannot listen on the address.
    #[error("--metrics: cannot listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The server's thread cannot be started.
    #[error("--metrics: cannot start the HTTP server: {0}")]
    Start(std::io::Error),
}

/// The metric families of this process.
#[derive(Debug, Clone, Default)]
pub struct MetricsRegistry {
    families: prometheus::Registry,
    carried: HandoverCounters,
    #[cfg(test)]
    described: metric_descriptions::MetricDescriptions,
}

impl MetricsRegistry {
    /// Creates a registry with the program's version and its start time.
    ///
    /// # Errors
    /// Never in practice: only for contradictory families.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Self::default();
        registry.describe_program()?;
        registry.families.register(Box::new(ProcessCollector::for_self()))?;
        Ok(registry)
    }

    /// Registers the families that name the program and its start.
    pub(crate) fn describe_program(&self) -> Result<(), MetricsError> {
        let build =
            self.gauges("build_info", "Always 1; the label is the version that runs", &["version"])?;
        build.get_metric_with_label_values(&[env!("CARGO_PKG_VERSION")])?.set(1);
        let started = self.gauge("start_time_seconds", "Start of the process, Unix time in seconds")?;
        started.set(unix_seconds());
        Ok(())
    }

    /// All families in Prometheus' text format, version 0.0.4.
    ///
    /// # Errors
    /// Returns an error if a family breaks the format's rules.
    pub fn render(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.families.gather())?)
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: &C) -> Result<(), MetricsError> {
        #[cfg(test)]
        self.described.add(collector);
        Ok(self.families.register(Box::new(collector.clone()))?)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        let counter = IntCounter::with_opts(options(name, help))?;
        self.register(&counter)?;
        self.carried.add(HandoverMetric::One(full_name(name), counter.clone()));
        Ok(counter)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        let counters = IntCounterVec::new(options(name, help), labels)?;
        self.register(&counters)?;
        self.carried.add(HandoverMetric::Many(full_name(name), counters.clone()));
        Ok(counters)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        let gauge = IntGauge::with_opts(options(name, help))?;
        self.register(&gauge)?;
        Ok(gauge)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        let gauges = IntGaugeVec::new(options(name, help), labels)?;
        self.register(&gauges)?;
        Ok(gauges)
    }
}

/// Returns the current Unix time in seconds.
fn unix_seconds() -> i64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since_epoch.map_or(0, |time| time.as_secs())).unwrap_or(i64::MAX)
}

/// Returns the full name of a family.
fn full_name(name: &str) -> String {
    format!("bannerwall_{name}")
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("bannerwall")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_shows_what_runs() {
        let text = MetricsRegistry::new().expect("families agree").render().expect("they can be shown");
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("bannerwall_build_info{{version=\"{version}\"}} 1\n")), "{text}");
        assert!(text.contains("# TYPE bannerwall_start_time_seconds gauge\n"), "{text}");
    }

    #[test]
    fn a_registry_shows_what_the_process_uses() {
        let text = MetricsRegistry::new().expect("families agree").render().expect("they can be shown");
        for name in
            ["cpu_seconds_total", "open_fds", "max_fds", "resident_memory_bytes", "start_time_seconds"]
        {
            assert!(text.lines().any(|line| line.starts_with(&format!("process_{name} "))), "{name}: {text}");
        }
    }

    #[test]
    fn all_can_share_a_registry() {
        let registry = MetricsRegistry::new().expect("families agree");
        GuardMetrics::new(&registry).expect("no family twice");
        ScanMetrics::new(&registry).expect("no family twice");
        TunnelMetrics::new(&registry).expect("no family twice");
        assert!(GuardMetrics::new(&registry).is_err(), "the same family twice is refused");
    }
}
