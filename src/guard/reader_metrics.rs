//! Metrics and shutdown of outputs and event readers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::event_reader::{ReaderCounts, RunningReader};
use super::worker_counts::signed;
use crate::diagnostics::log_line;
use crate::metrics::GuardMetrics;
use crate::output::OutputWriter;

/// Limit of the time for which an output or reader may take the last events.
const WRITERS_END: Duration = Duration::from_secs(2);

/// The totals of outputs and readers that the metrics include so far. Metrics may continue from another
/// process, so only differences are added.
#[derive(Debug, Default)]
pub(super) struct ReadersShown([AtomicU64; 7]);

impl ReadersShown {
    /// Adds new counts to the metrics.
    pub(super) fn show(
        &self,
        metrics: &GuardMetrics,
        writers: &[OutputWriter],
        readers: &[Box<dyn RunningReader>],
    ) {
        let lost = writers.iter().map(|writer| writer.handle().lost()).sum();
        let written = writers.iter().map(|writer| writer.handle().written()).sum();
        let counts = readers.iter().map(|reader| reader.counts());
        let counts = counts.fold(ReaderCounts::default(), ReaderCounts::plus);
        if let Some((batches, octets)) = counts.waiting {
            metrics.spill_batches.set(signed(batches));
            metrics.spill_bytes.set(signed(octets));
        }
        self.show_all(metrics, lost, written, counts);
    }

    /// Updates the metrics: events that outputs lost and wrote, and the counts of readers.
    fn show_all(&self, metrics: &GuardMetrics, lost: u64, written: u64, counts: ReaderCounts) {
        let ReaderCounts { evicted, replaced, dropped, set_aside, .. } = counts;
        let counts = [lost, written, counts.lost, evicted, replaced, dropped, set_aside];
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

/// Waits for a limited time until all outputs and readers have taken all events, and publishes the final
/// totals.
pub(super) fn finish_readers(
    writers: Vec<OutputWriter>,
    readers: Vec<Box<dyn RunningReader>>,
    shown: &ReadersShown,
    metrics: &GuardMetrics,
) {
    // Published before the wait, which may take seconds.
    shown.show(metrics, &writers, &readers);
    let (mut lost_events, mut written) = (0, 0);
    // Readers finish before the writers, since they may write into the same outputs.
    let finished = readers.into_iter().map(|reader| reader.finish(WRITERS_END));
    let counts = finished.fold(ReaderCounts::default(), ReaderCounts::plus);
    for writer in writers {
        let report = writer.finish_within(WRITERS_END);
        lost_events += report.overflowed + report.failed + report.stuck;
        written += report.written;
        if report.stuck > 0 {
            log_line(format_args!(
                "bannerwall: events that the output did not accept in time, and that are lost: {}",
                report.stuck
            ));
        }
        let lost = report.overflowed + report.failed;
        if lost > 0 {
            log_line(format_args!("bannerwall: events lost: {lost}, written: {}", report.written));
        }
    }
    shown.show_all(metrics, lost_events, written, counts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::EventSender;
    use crate::metrics::MetricsRegistry;

    /// A reader with these losses, and one more at its end.
    struct LossyReader(u64);

    impl RunningReader for LossyReader {
        fn sender(&self) -> EventSender {
            Box::new(|_event| {})
        }

        fn counts(&self) -> ReaderCounts {
            ReaderCounts { lost: self.0, waiting: Some((1, 100)), ..ReaderCounts::default() }
        }

        fn finish(self: Box<Self>, _patience: Duration) -> ReaderCounts {
            ReaderCounts { lost: self.0 + 1, ..ReaderCounts::default() }
        }
    }

    #[test]
    fn metrics_show_the_sum_of_all_readers_once() {
        let metrics = GuardMetrics::new(&MetricsRegistry::new().unwrap()).unwrap();
        let shown = ReadersShown::default();
        let readers: Vec<Box<dyn RunningReader>> = vec![Box::new(LossyReader(2)), Box::new(LossyReader(3))];
        shown.show(&metrics, &[], &readers);
        shown.show(&metrics, &[], &readers);
        assert_eq!(metrics.inventory_lost.get(), 5);
        assert_eq!((metrics.spill_batches.get(), metrics.spill_bytes.get()), (2, 200));
        finish_readers(Vec::new(), readers, &shown, &metrics);
        assert_eq!(metrics.inventory_lost.get(), 7);
    }
}
