//! A counter that is absent, instead of 0, while its value is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::core::{Collector, Desc};
use prometheus::{IntCounter, proto};

use super::handover_counters::HandoverMetric;
use super::{MetricsError, MetricsRegistry, full_name, options};

/// A counter that is shown only once its value is known; clones share it.
#[derive(Debug, Clone)]
pub struct OptionalCounter {
    counter: IntCounter,
    known: Arc<AtomicBool>,
}

impl OptionalCounter {
    pub(super) fn new(registry: &MetricsRegistry, name: &str, help: &str) -> Result<Self, MetricsError> {
        let counter = IntCounter::with_opts(options(name, help))?;
        let knowable = Self { counter, known: Arc::default() };
        registry.register(&knowable)?;
        registry.carried.add(HandoverMetric::One(full_name(name), knowable.counter.clone()));
        Ok(knowable)
    }

    /// Sets whether the value is known. If not, the series is absent.
    pub fn set_known(&self, known: bool) {
        self.known.store(known, Ordering::Relaxed);
    }

    /// Adds to the count.
    pub fn inc_by(&self, count: u64) {
        self.counter.inc_by(count);
    }

    /// The count, whether it is shown or not.
    pub fn count(&self) -> u64 {
        self.counter.get()
    }

    /// The count, if it is known.
    pub fn get(&self) -> Option<u64> {
        self.known.load(Ordering::Relaxed).then(|| self.counter.get())
    }
}

impl Collector for OptionalCounter {
    fn desc(&self) -> Vec<&Desc> {
        self.counter.desc()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        self.get().map_or_else(Vec::new, |_| self.counter.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_absent() {
        let registry = MetricsRegistry::default();
        let lost = OptionalCounter::new(&registry, "lost_total", "Lost").expect("the first one");
        lost.inc_by(3);
        let shown = || registry.render().expect("it can be shown");
        assert!(!shown().contains("bannerwall_lost_total"), "{}", shown());
        lost.set_known(true);
        assert!(shown().contains("\nbannerwall_lost_total 3\n"), "{}", shown());
        lost.set_known(false);
        assert!(!shown().contains("bannerwall_lost_total"), "{}", shown());
    }
}
