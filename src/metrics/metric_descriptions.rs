//! Descriptions of a registry's families, including those without a series, for the reference of the metrics.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::MetricsRegistry;

/// A family.
#[derive(Debug)]
pub(crate) struct DescribedFamily {
    /// Its name.
    pub(crate) name: String,
    /// `counter`, `gauge`, or `histogram`.
    pub(crate) kind: &'static str,
    /// Its labels, each with the values that are there from the start.
    pub(crate) labels: Vec<(String, Vec<String>)>,
    /// Its help.
    pub(crate) help: String,
}

/// The descriptions so far.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricDescriptions(Arc<Mutex<Vec<(Desc, MetricType)>>>);

impl MetricDescriptions {
    pub(super) fn add(&self, collector: &impl Collector) {
        // A counter whose value is unknown has no family yet.
        let kind = collector.collect().first().map_or(MetricType::COUNTER, MetricFamily::get_field_type);
        let families = collector.desc().into_iter().map(|description| (description.clone(), kind));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(families);
    }
}

impl MetricsRegistry {
    /// Returns all families. Versions are left out of the values of labels.
    pub(crate) fn described(&self) -> Vec<DescribedFamily> {
        let shown = self.families.gather();
        let values = |name: &str, label: &str| {
            let series =
                shown.iter().filter(|family| family.name() == name).flat_map(MetricFamily::get_metric);
            let pairs = series.flat_map(Metric::get_label).filter(|pair| pair.name() == label);
            let values: BTreeSet<String> = pairs.map(|pair| pair.value().to_owned()).collect();
            values.into_iter().filter(|_| label != "version").collect()
        };
        let descriptions = self.described.0.lock().unwrap_or_else(PoisonError::into_inner);
        let family = |(description, kind): &(Desc, MetricType)| DescribedFamily {
            name: description.fq_name.clone(),
            kind: match kind {
                MetricType::GAUGE => "gauge",
                MetricType::HISTOGRAM => "histogram",
                _ => "counter",
            },
            labels: description
                .variable_labels
                .iter()
                .map(|label| (label.clone(), values(&description.fq_name, label)))
                .collect(),
            help: description.help.clone(),
        };
        descriptions.iter().map(family).collect()
    }
}
