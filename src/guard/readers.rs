//! Those who read events: what they lose is shown, and at the end they are waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tally::signed;
use crate::diagnostics::tell;
use crate::inventory::{Finished, Inventory};
use crate::metrics::GuardMetrics;
use crate::output::Writer;

/// How long a reader of events may take to accept the last ones.
const WRITERS_END: Duration = Duration::from_secs(2);

/// What readers of events have taken and lost, as far as the metrics show it: those may go on from another process.
#[derive(Debug, Default)]
pub(super) struct ReadersShown([AtomicU64; 7]);

impl ReadersShown {
    /// Shows in the metrics what is new.
    pub(super) fn show(&self, metrics: &GuardMetrics, writers: &[Writer], inventory: Option<&Inventory>) {
        let lost = writers.iter().map(|writer| writer.handle().lost()).sum();
        let written = writers.iter().map(|writer| writer.handle().written()).sum();
        let unkept = inventory.map_or(0, Inventory::lost);
        let displaced = inventory.map_or(0, Inventory::displaced);
        let replaced = inventory.map_or(0, Inventory::replaced);
        let (dropped, set_aside) = inventory.map_or((0, 0), Inventory::dropped);
        if let Some((batches, octets)) = inventory.and_then(Inventory::waiting) {
            metrics.spill_batches.set(signed(batches));
            metrics.spill_bytes.set(signed(octets));
        }
        self.show_all(metrics, [lost, written, unkept, displaced, replaced, dropped, set_aside]);
    }

    /// Events that were lost and written, sightings that were lost and displaced; files of the inventory
    /// that were replaced; sightings that were dropped before they were
    /// sent, and batches that were set aside. All in all.
    fn show_all(&self, metrics: &GuardMetrics, counts: [u64; 7]) {
        let counters = [
            &metrics.events_dropped,
            &metrics.events_written,
            &metrics.inventory_lost,
            &metrics.inventory_displaced,
            &metrics.inventory_replaced,
            &metrics.spill_dropped,
            &metrics.spill_set_aside,
        ];
        for ((counter, now), shown) in counters.into_iter().zip(counts).zip(&self.0) {
            counter.inc_by(now.saturating_sub(shown.fetch_max(now, Ordering::Relaxed)));
        }
    }
}

/// Waits, not for long, until everybody has what there was to tell, and shows what became of it.
pub(super) fn finish_readers(
    writers: Vec<Writer>,
    inventory: Option<Inventory>,
    shown: &ReadersShown,
    metrics: &GuardMetrics,
) {
    shown.show(metrics, &writers, inventory.as_ref());
    let (mut lost_events, mut written, mut kept) = (0, 0, Finished::default());
    match inventory.map(|inventory| inventory.finish_within(WRITERS_END)) {
        Some(None) => tell("bannerwall: the inventory does not take what was seen last"),
        Some(Some(finished)) => {
            kept = finished;
            if kept.missing() > 0 {
                tell(format_args!("bannerwall: {} sightings are missing in the inventory", kept.missing()));
            }
        }
        None => {}
    }
    for writer in writers {
        let report = writer.finish_within(WRITERS_END);
        lost_events += report.overflowed + report.failed + report.stuck;
        written += report.written;
        if report.stuck > 0 {
            tell(format_args!("bannerwall: the last {} events are lost: nobody takes them", report.stuck));
        }
        let lost = report.overflowed + report.failed;
        if lost > 0 {
            tell(format_args!("bannerwall: {lost} events were lost, {} written", report.written));
        }
    }
    shown.show_all(metrics, [lost_events, written, kept.lost, 0, 0, kept.dropped, kept.set_aside]);
}
