//! Waiting times of packets: in the kernel's queue (`bannerwall_queue_wait_seconds`), then in this
//! process (`bannerwall_verdict_latency_seconds`).
//!
//! All verdicts of a batch are sent together, so all its packets have waited equally long in this
//! process: one clock reading and one addition for any number of packets. The time before comes from the
//! kernel's time stamps. These exist only on hooks up to FORWARD, and only while some process requests
//! stamps of received packets (tcpdump does, and so does a guard with `--metrics`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricType};

use super::handover_counters::HandoverMetric;
use super::{MetricsError, MetricsRegistry};

/// Upper bounds of the buckets in nanoseconds; a last one without a bound follows.
const BOUNDS: [u64; 15] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// A histogram that takes a whole batch at once; clones share it.
#[derive(Debug, Clone)]
pub struct LatencyHistogram {
    name: &'static str,
    help: &'static str,
    description: Desc,
    counts: Arc<LatencyCounts>,
}

#[derive(Debug, Default)]
struct LatencyCounts {
    /// Number of packets by bucket, not cumulative.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// Sum of the waiting times in nanoseconds.
    nanos: AtomicU64,
}

impl LatencyHistogram {
    /// Creates the histogram of the time from arrival in this process to the verdict.
    pub(super) fn verdict(registry: &MetricsRegistry) -> Result<Self, MetricsError> {
        let help = "Time from a packet's arrival in this process to its verdict's departure, in seconds";
        Self::new(registry, "bannerwall_verdict_latency_seconds", help)
    }

    /// Creates the histogram of the time from receipt by the kernel to arrival in this process.
    pub(super) fn queue_wait(registry: &MetricsRegistry) -> Result<Self, MetricsError> {
        let help = "Time from a packet's receipt by the kernel to its arrival in this process, in seconds, if the kernel stamps packets";
        Self::new(registry, "bannerwall_queue_wait_seconds", help)
    }

    fn new(registry: &MetricsRegistry, name: &'static str, help: &'static str) -> Result<Self, MetricsError> {
        let description = Desc::new(name.to_owned(), help.to_owned(), Vec::new(), HashMap::new())?;
        let latency = Self { name, help, description, counts: Arc::default() };
        registry.register(&latency)?;
        registry.carried.add(HandoverMetric::Spread(latency.clone()));
        Ok(latency)
    }

    /// The family's name.
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of packets by bucket, and the sum of the waiting times in nanoseconds.
    pub(super) fn counts(&self) -> (Vec<u64>, u64) {
        let buckets = self.counts.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (buckets, self.counts.nanos.load(Ordering::Relaxed))
    }

    /// Adds the counts of another process, if it has the same buckets.
    pub(super) fn add(&self, buckets: &[u64], nanos: u64) {
        if buckets.len() != self.counts.buckets.len() {
            return;
        }
        for (count, more) in self.counts.buckets.iter().zip(buckets) {
            count.fetch_add(*more, Ordering::Relaxed);
        }
        self.counts.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts `packets` that waited `latency` each.
    pub fn observe(&self, latency: Duration, packets: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanos);
        if let Some(count) = self.counts.buckets.get(bucket) {
            count.fetch_add(packets, Ordering::Relaxed);
        }
        self.counts.nanos.fetch_add(nanos.saturating_mul(packets), Ordering::Relaxed);
    }

    fn histogram(&self) -> proto::Histogram {
        let mut cumulative = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        let counts = self.counts.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        for (count, bound) in counts.zip(bounds) {
            cumulative += count;
            let Some(bound) = bound else { continue };
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(seconds(bound));
            bucket.set_cumulative_count(cumulative);
            buckets.push(bucket);
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(cumulative);
        histogram.set_sample_sum(seconds(self.counts.nanos.load(Ordering::Relaxed)));
        histogram
    }
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

impl Collector for LatencyHistogram {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut metric = proto::Metric::default();
        metric.set_histogram(self.histogram());
        let mut family = proto::MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(latency: &LatencyHistogram, registry: &MetricsRegistry) -> Vec<String> {
        assert_eq!(latency.desc().len(), 1);
        let text = registry.render().expect("a histogram can be shown");
        text.lines().filter(|line| line.starts_with(latency.name)).map(str::to_owned).collect()
    }

    #[test]
    fn buckets_are_cumulative_and_a_bound_belongs_to_its_own() {
        let registry = MetricsRegistry::default();
        let latency = LatencyHistogram::verdict(&registry).expect("the first one");
        latency.observe(Duration::from_nanos(10_000), 3);
        latency.observe(Duration::from_nanos(10_001), 4);
        latency.clone().observe(Duration::from_secs(2), 1);
        let lines = lines(&latency, &registry);
        let has = |line: &str| lines.iter().any(|there| there == line);
        assert!(has("bannerwall_verdict_latency_seconds_bucket{le=\"0.000005\"} 0"), "{lines:#?}");
        assert!(has("bannerwall_verdict_latency_seconds_bucket{le=\"0.00001\"} 3"), "{lines:#?}");
        assert!(has("bannerwall_verdict_latency_seconds_bucket{le=\"0.000025\"} 7"), "{lines:#?}");
        assert!(has("bannerwall_verdict_latency_seconds_bucket{le=\"1\"} 7"), "{lines:#?}");
        assert!(has("bannerwall_verdict_latency_seconds_bucket{le=\"+Inf\"} 8"), "{lines:#?}");
        assert!(has("bannerwall_verdict_latency_seconds_count 8"), "{lines:#?}");
        assert!(has("bannerwall_verdict_latency_seconds_sum 2.000070004"), "{lines:#?}");
    }
}
