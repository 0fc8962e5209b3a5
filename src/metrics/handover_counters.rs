//! Counters that survive a takeover: the successor adds the predecessor's values to its own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec};
use serde::{Deserialize, Serialize};

use super::{LatencyHistogram, MetricsRegistry};
use crate::diagnostics::log_line;

/// Largest number of series that are transferred; a rule has a few.
const SERIES: usize = 1 << 16;

/// Values of the counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterSnapshot {
    series: Vec<CounterValue>,
    spreads: Vec<HistogramValue>,
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CounterValue {
    name: String,
    labels: Vec<(String, String)>,
    value: u64,
}

/// A histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HistogramValue {
    name: String,
    buckets: Vec<u64>,
    nanos: u64,
}

/// A counter or histogram, by the family's name.
#[derive(Debug, Clone)]
pub(super) enum HandoverMetric {
    One(String, IntCounter),
    Many(String, IntCounterVec),
    Spread(LatencyHistogram),
}

/// All counters of a registry.
#[derive(Debug, Clone, Default)]
pub(super) struct HandoverCounters(Arc<Mutex<Vec<HandoverMetric>>>);

impl HandoverCounters {
    pub(super) fn add(&self, counting: HandoverMetric) {
        self.lock().push(counting);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HandoverMetric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CounterSnapshot {
    /// Drops series of rules if there are too many, with a warning.
    fn cut_to(&mut self, limit: usize) {
        let mut surplus = self.series.len().saturating_sub(limit);
        if surplus == 0 {
            return;
        }
        log_line(format_args!("bannerwall: more than {limit} counters: counts of further rules are lost"));
        self.series.retain(|series| {
            let goes = surplus > 0 && series.id().is_some();
            surplus -= usize::from(goes);
            !goes
        });
    }
}

impl CounterValue {
    /// Returns the rule or policy that it counts for.
    fn id(&self) -> Option<&str> {
        let ids = self.labels.iter().filter(|(label, _)| matches!(&**label, "rule" | "policy"));
        ids.map(|(_, id)| &**id).next()
    }
}

impl MetricsRegistry {
    /// Returns the values of all counters.
    pub fn counts(&self) -> CounterSnapshot {
        let mut counts = CounterSnapshot::default();
        for counting in self.carried.lock().iter() {
            match counting {
                HandoverMetric::One(name, counter) => counts.series.push(CounterValue {
                    name: name.clone(),
                    labels: Vec::new(),
                    value: counter.get(),
                }),
                HandoverMetric::Many(name, family) => counts.series.extend(members(name, family)),
                HandoverMetric::Spread(latency) => {
                    let (buckets, nanos) = latency.counts();
                    counts.spreads.push(HistogramValue { name: latency.name().to_owned(), buckets, nanos });
                }
            }
        }
        // Most rules never match, and some no longer exist.
        counts.series.retain(|series| series.value > 0 || series.id().is_none());
        counts.cut_to(SERIES);
        counts
    }

    /// Adds the predecessor's values. Values that are not counted here are dropped, and so are those of
    /// rules or policies that are not in `ids`.
    pub fn add_snapshot(&self, counts: &CounterSnapshot, ids: &HashSet<&str>) {
        let carried = self.carried.lock();
        let in_force = counts.series.iter().filter(|series| series.id().is_none_or(|id| ids.contains(id)));
        for series in in_force {
            for counting in carried.iter() {
                match counting {
                    HandoverMetric::One(name, counter)
                        if *name == series.name && series.labels.is_empty() =>
                    {
                        counter.inc_by(series.value);
                    }
                    HandoverMetric::Many(name, family) if *name == series.name => {
                        let labels: HashMap<&str, &str> = series
                            .labels
                            .iter()
                            .map(|(name, value)| (name.as_str(), value.as_str()))
                            .collect();
                        // Another version may have other labels.
                        let Ok(counter) = family.get_metric_with(&labels) else { continue };
                        counter.inc_by(series.value);
                    }
                    _ => {}
                }
            }
        }
        for counting in carried.iter() {
            let HandoverMetric::Spread(latency) = counting else { continue };
            if let Some(spread) = counts.spreads.iter().find(|spread| spread.name == latency.name()) {
                latency.add(&spread.buckets, spread.nanos);
            }
        }
    }
}

fn members(name: &str, family: &IntCounterVec) -> Vec<CounterValue> {
    let families = family.collect();
    let metrics = families.iter().flat_map(MetricFamily::get_metric);
    let series = metrics.map(|metric| {
        let labels = metric.get_label().iter();
        let labels: Vec<(String, String)> =
            labels.map(|pair| (pair.name().to_owned(), pair.value().to_owned())).collect();
        let by_name: HashMap<&str, &str> =
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        // The counter's own integer, because the displayed value is floating-point.
        let value = family.get_metric_with(&by_name).map_or(0, |counter| counter.get());
        CounterValue { name: name.to_owned(), labels, value }
    });
    series.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::RuleAction;
    use crate::metrics::{GuardMetrics, QueueDrop, ReloadResult, TakeoverResult, VerdictLabel};

    fn guard() -> (MetricsRegistry, GuardMetrics) {
        let registry = MetricsRegistry::new().expect("families agree");
        let metrics = GuardMetrics::new(&registry).expect("no family twice");
        (registry, metrics)
    }

    #[test]
    fn counters_go_on_in_another_process() {
        let (registry, metrics) = guard();
        metrics.bytes.inc_by(1 << 60);
        metrics.packets(3, VerdictLabel::Drop).inc_by(7);
        metrics.rule_matches("a\"rule", RuleAction::Reject).inc();
        metrics.rule_matches("a rule of before", RuleAction::Reject).inc();
        metrics.rule_matches("never matched", RuleAction::Alert).inc_by(0);
        metrics.verdict_latency.observe(Duration::from_micros(7), 5);
        metrics.uninspected_packets.inc_by(2);
        metrics.rules.set(9);
        let text = serde_json::to_string(&registry.counts()).expect("plain data");
        let counts: CounterSnapshot = serde_json::from_str(&text).expect("as it was written");
        let (next, its) = guard();
        its.bytes.inc_by(5);
        its.uninspected_packets.set_known(true);
        next.add_snapshot(&counts, &HashSet::from(["a\"rule", "never matched"]));
        assert_eq!(its.bytes.get(), (1 << 60) + 5);
        assert_eq!(its.packets(3, VerdictLabel::Drop).get(), 7);
        assert_eq!(its.rule_matches("a\"rule", RuleAction::Reject).get(), 1);
        assert_eq!(its.uninspected_packets.get(), Some(2));
        assert_eq!(its.rules.get(), 0, "what is no counter is not taken along");
        assert_eq!(its.reloads(ReloadResult::Success).get(), 0);
        let shown = next.render().expect("it can be shown");
        assert!(!shown.contains("a rule of before") && !shown.contains("never matched"), "{shown}");
        assert!(shown.contains("bannerwall_verdict_latency_seconds_bucket{le=\"0.00001\"} 5\n"), "{shown}");
    }

    #[test]
    fn where_there_are_too_many_counters_those_of_rules_go_and_no_others() {
        let (registry, metrics) = guard();
        metrics.bytes.inc();
        metrics.takeovers(TakeoverResult::Success).inc();
        for rule in ["one", "two", "three"] {
            metrics.rule_matches(rule, RuleAction::Alert).inc();
        }
        let mut counts = registry.counts();
        let all = counts.series.len();
        for (limit, left) in [(all, 3), (all - 2, 1), (0, 0)] {
            counts.cut_to(limit);
            let rules = counts.series.iter().filter(|series| series.id().is_some()).count();
            assert_eq!((counts.series.len(), rules), (all - 3 + left, left), "{counts:?}");
        }
    }

    #[test]
    fn what_another_version_counts_differently_is_left_out() {
        let (registry, metrics) = guard();
        let odd = r#"{"series":[{"name":"bannerwall_bytes_total","labels":[["a","b"]],"value":1},
            {"name":"bannerwall_queue_dropped_total","labels":[],"value":1},{"name":"nobody","labels":[],"value":1}],
            "spreads":[{"name":"bannerwall_verdict_latency_seconds","buckets":[1],"nanos":18446744073709551615}]}"#;
        registry.add_snapshot(&serde_json::from_str(odd).expect("counts"), &HashSet::new());
        assert_eq!(metrics.bytes.get(), 0);
        let drops = [QueueDrop::QueueFull, QueueDrop::NoListener];
        assert!(drops.iter().all(|reason| metrics.queue_dropped(*reason).get() == 0));
        assert!(registry.render().expect("it can be shown").contains("verdict_latency_seconds_count 0\n"));
    }
}
