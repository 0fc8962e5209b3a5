//! The scan's metric families.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::{MetricsError, MetricsRegistry};
use crate::event::PortState;

/// The scan's families; clones share them.
#[derive(Debug, Clone)]
pub struct ScanMetrics {
    targets: IntCounterVec,
    /// Number of open connections.
    pub inflight: IntGauge,
}

impl ScanMetrics {
    /// Registers the families, every state at zero.
    ///
    /// # Errors
    /// Returns an error if the registry has them already.
    pub fn new(registry: &MetricsRegistry) -> Result<Self, MetricsError> {
        let metrics = Self {
            targets: registry.counters("scan_targets_total", "Finished targets, by state", &["state"])?,
            inflight: registry.gauge("scan_inflight", "Open connections")?,
        };
        for state in [PortState::Open, PortState::Closed, PortState::Filtered, PortState::Error] {
            metrics.targets(state);
        }
        Ok(metrics)
    }

    /// Number of targets in `state`; keep the handle if you count often.
    pub fn targets(&self, state: PortState) -> IntCounter {
        self.targets.with_label_values(&[state.name()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_there_from_the_start() {
        let registry = MetricsRegistry::default();
        let metrics = ScanMetrics::new(&registry).expect("no family twice");
        metrics.targets(PortState::Open).inc_by(3);
        metrics.inflight.set(2);
        let text = registry.render().expect("they can be shown");
        for line in [
            "bannerwall_scan_inflight 2",
            "bannerwall_scan_targets_total{state=\"closed\"} 0",
            "bannerwall_scan_targets_total{state=\"open\"} 3",
        ] {
            assert!(text.lines().any(|there| there == line), "{text}");
        }
    }
}
