//! Prometheus metrics of a scan.

use std::sync::Arc;

use crate::event::PortState;
use crate::metrics::{
    MetricsConfig, MetricsEndpoint, MetricsError, MetricsRegistry, ProgramHealth, ScanMetrics,
};
use crate::scan::targets::TargetCounts;

/// Metrics of one scan and their endpoint, which closes on drop.
#[derive(Debug)]
pub(super) struct ScanMetricsEndpoint {
    families: ScanMetrics,
    _endpoint: MetricsEndpoint,
}

impl ScanMetricsEndpoint {
    /// Starts the endpoint.
    pub(super) fn start(config: &MetricsConfig) -> Result<Self, MetricsError> {
        let registry = MetricsRegistry::new()?;
        let families = ScanMetrics::new(&registry)?;
        let health = Arc::new(ProgramHealth::default());
        health.set_ready(true);
        let endpoint = MetricsEndpoint::start(config, registry, health)?;
        Ok(Self { families, _endpoint: endpoint })
    }

    pub(super) fn show(&self, counts: &TargetCounts, in_flight: u64) {
        for (state, count) in [
            (PortState::Open, counts.open),
            (PortState::Closed, counts.refused),
            (PortState::Filtered, counts.timed_out + counts.unreachable),
            (PortState::Error, counts.local_error),
        ] {
            let counter = self.families.targets(state);
            // The scan counts by itself, and a Prometheus counter has no way to be set.
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        self.families.inflight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
    }
}
