//! The metrics, by the registries of each part of the program.

use prometheus::core::Collector as _;
use prometheus::process_collector::ProcessCollector;

use super::{code, keep, prose, table};
use crate::metrics::{GuardMetrics, MetricsError, MetricsRegistry, ScanMetrics, TunnelMetrics};

/// Returns the families that `make` registers, by name.
fn families<T>(make: impl FnOnce(&MetricsRegistry) -> Result<T, MetricsError>) -> String {
    let registry = MetricsRegistry::default();
    let _metrics = make(&registry).expect("no family twice");
    let mut families = registry.described();
    families.sort_by(|one, other| one.name.cmp(&other.name));
    let rows = families.into_iter().map(|family| {
        let labels = family.labels.iter().map(|(label, values)| {
            let values = values.iter().map(|value| code(value)).collect::<Vec<_>>().join(", ");
            if values.is_empty() { code(label) } else { format!("{}: {values}", code(label)) }
        });
        let labels = labels.collect::<Vec<_>>().join("; ");
        [code(&family.name), family.kind.to_owned(), labels, prose(&family.help)]
    });
    table(["Metric", "Type", "Labels", "Meaning"], rows)
}

#[test]
fn the_metrics_are_as_their_page_says() {
    let process = ProcessCollector::for_self();
    let mut process: Vec<[String; 2]> =
        process.desc().iter().map(|family| [code(&family.fq_name), prose(&family.help)]).collect();
    process.sort();
    keep(
        "metrics.md",
        &[
            ("process", table(["Metric", "Meaning"], process)),
            ("program", families(MetricsRegistry::describe_program)),
            ("guard", families(GuardMetrics::new)),
            ("scan", families(ScanMetrics::new)),
            ("tunnel", families(TunnelMetrics::new)),
        ],
    );
}
