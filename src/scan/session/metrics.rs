//! Prometheus metrics of a scan.

use std::sync::Arc;

use crate::event::PortState;
use crate::metrics::{Endpoint, Health, MetricsConfig, MetricsError, Registry, ScanMetrics};
use crate::scan::targets::Counts;

/// Metrics of one scan and their endpoint, which closes on drop.
#[derive(Debug)]
pub(super) struct Metrics {
    families: ScanMetrics,
    _endpoint: Endpoint,
}

impl Metrics {
    /// Starts the endpoint.
    pub(super) fn start(config: &MetricsConfig) -> Result<Self, MetricsError> {
        let registry = Registry::new()?;
        let families = ScanMetrics::new(&registry)?;
        let health = Arc::new(Health::default());
        health.set_ready(true);
        let endpoint = Endpoint::start(config, registry, health)?;
        Ok(Self { families, _endpoint: endpoint })
    }

    pub(super) fn show(&self, counts: &Counts, in_flight: u64) {
        for (state, count) in [
            (PortState::Open, counts.open),
            (PortState::Closed, counts.refused),
            (PortState::Filtered, counts.timed_out + counts.unreachable),
            (PortState::Error, counts.local_error),
        ] {
            let counter = self.families.targets(state);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        self.families.inflight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
    }
}
