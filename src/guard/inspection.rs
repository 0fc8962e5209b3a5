//! Inline inspection without the source of packets: rules in force, outputs, event readers and metrics. The
//! workers of all queues share one host, and so do the two directions of a tunnel.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;

use super::GuardError;
use super::clock::MonotonicClock;
use super::config::{EventOutput, InspectionConfig};
use super::control::RulesInForce;
use super::event_distributor::EventDistributor;
use super::event_reader::{EventReader, ReaderStart, RunningReader};
use super::reader_metrics::{ReadersShown, finish_readers};
use super::resets::ResetRateLimit;
use super::worker_counts::{MetricsPublisher, SharedWorkerCounts, VerdictCounts};
use crate::diagnostics::{log_line, several};
use crate::engine::{EngineConfig, InspectionResult, PacketInput};
use crate::event::Timestamp;
use crate::inspector::InlineInspector;
use crate::metrics::{GuardMetrics, ReloadResult};
use crate::output::{OutputWriter, WriterConfig};
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{RuleSelection, RuleSet};

/// Interval between checks for expired flows, reloads and metrics.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Rules and fingerprints, read from their files.
pub(super) struct RulesAndFingerprints {
    pub(super) rules: RuleSet,
    fingerprints: Option<Arc<FingerprintSet>>,
}

impl RulesAndFingerprints {
    /// Reads the rules and fingerprints, and checks the settings of all readers before any of them creates a
    /// file.
    pub(super) fn read(
        config: &InspectionConfig,
        readers: &[Box<dyn EventReader>],
    ) -> Result<Self, GuardError> {
        let rules = load_rules(&config.rules)?;
        let fingerprints =
            config.fingerprints.as_deref().map(FingerprintSet::load).transpose()?.map(Arc::new);
        readers.iter().try_for_each(|reader| reader.check()).map_err(GuardError::Attached)?;
        Ok(Self { rules, fingerprints })
    }
}

/// Rules in force, outputs, readers and metrics of one process.
pub(super) struct InspectionRuntime {
    pub(super) rules: Arc<ArcSwap<RuleSet>>,
    fingerprints: Option<Arc<FingerprintSet>>,
    pub(super) metrics: GuardMetrics,
    pub(super) writers: Vec<OutputWriter>,
    pub(super) readers: Vec<Box<dyn RunningReader>>,
    /// The totals of writers and readers that the metrics last included.
    shown: ReadersShown,
}

impl InspectionRuntime {
    /// Opens the outputs and starts the readers. `succeeds` is true if this process takes over from another
    /// one that is about to exit.
    pub(super) fn start(
        RulesAndFingerprints { rules, fingerprints }: RulesAndFingerprints,
        metrics: GuardMetrics,
        outputs: Vec<EventOutput>,
        readers: Vec<Box<dyn EventReader>>,
        succeeds: bool,
    ) -> Result<Self, GuardError> {
        if rules.rules().is_empty() && rules.policies().is_empty() {
            log_line("bannerwall: no rule is in force: the guard neither alerts nor blocks");
        }
        let write = |output: EventOutput| {
            OutputWriter::start(WriterConfig::COUNTING, output.destination, output.format)
        };
        let writers: Vec<OutputWriter> =
            outputs.into_iter().map(write).collect::<Result<_, _>>().map_err(GuardError::Output)?;
        let start = |reader: Box<dyn EventReader>| {
            let outputs = writers.iter().map(OutputWriter::handle).collect();
            reader.start(ReaderStart { outputs, succeeds })
        };
        let readers =
            readers.into_iter().map(start).collect::<Result<_, _>>().map_err(GuardError::Attached)?;
        metrics.rules.set(i64::try_from(rules.rules().len()).unwrap_or(i64::MAX));
        metrics.note_rules(ReloadResult::Success);
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        Ok(Self { rules, fingerprints, metrics, writers, readers, shown: ReadersShown::default() })
    }

    /// Returns the number of rules in force.
    pub(super) fn rule_count(&self) -> usize {
        self.rules.load().rules().len()
    }

    /// Returns the event sinks of one thread, which lead to all outputs and readers.
    pub(super) fn sinks(&self) -> EventDistributor {
        let writers = self.writers.iter().map(OutputWriter::handle).collect();
        EventDistributor::new(writers, self.readers.iter().map(|reader| reader.sender()).collect())
    }

    /// Returns an engine with its own flows. Its packets are counted under this queue.
    pub(super) fn inspection(
        &self,
        engine: EngineConfig,
        queue: u16,
        sink: EventDistributor,
    ) -> InspectionPipeline {
        InspectionPipeline {
            inspector: InlineInspector::new(engine, Arc::clone(&self.rules), self.fingerprints.clone(), TICK),
            sink,
            clock: MonotonicClock::start(Instant::now(), time_of_day()),
            allowance: ResetRateLimit::default(),
            publisher: MetricsPublisher::new(self.metrics.clone(), queue, &self.rules.load()),
            tally: Arc::new(SharedWorkerCounts::default()),
            answers: VerdictCounts::default(),
        }
    }

    /// Puts new rules in force, and returns once every worker uses them. Invalid rules change nothing. An
    /// empty set is invalid if rules are in force.
    pub(super) fn replace_rules(&self, selection: &RuleSelection) -> Result<RulesInForce, String> {
        // A file that was truncated or an empty folder must not silently end all blocking.
        let selection = RuleSelection { complete: self.rule_count() > 0, ..selection.clone() };
        let (result, answer) = match load_rules(&selection) {
            Ok(rules) => {
                let count = rules.rules().len();
                self.metrics.rules.set(i64::try_from(count).unwrap_or(i64::MAX));
                let old = self.rules.swap(Arc::new(rules));
                until_released(&old);
                log_line(format_args!("bannerwall: reloaded: {} in force", several(count, "rule")));
                (ReloadResult::Success, Ok(RulesInForce { rules: count }))
            }
            Err(error) => {
                log_line(format_args!("{error}\nbannerwall: not reloaded: the old rules stay in force"));
                (ReloadResult::Failure, Err(error.to_string()))
            }
        };
        self.metrics.reloads(result).inc();
        self.metrics.note_rules(result);
        answer
    }

    /// Reopens the event files, which another program may have moved away.
    pub(super) fn reopen(&self) {
        self.writers.iter().for_each(|writer| writer.handle().reopen());
    }

    /// Publishes in the metrics how many events the writers and readers took and lost.
    pub(super) fn show_readers(&self) {
        self.shown.show(&self.metrics, &self.writers, &self.readers);
    }

    /// Returns the obstacles to the work of readers.
    pub(super) fn obstacles(&self) -> Option<String> {
        let obstacles: Vec<_> = self.readers.iter().filter_map(|reader| reader.obstacle()).collect();
        (!obstacles.is_empty()).then(|| obstacles.join("; "))
    }

    /// Waits, not for long, until all outputs and readers have taken all events.
    pub(super) fn finish(&mut self) {
        let (writers, readers) = (std::mem::take(&mut self.writers), std::mem::take(&mut self.readers));
        finish_readers(writers, readers, &self.shown, &self.metrics);
    }
}

/// An engine with its clock, its event sinks and its counts.
pub(super) struct InspectionPipeline {
    pub(super) inspector: InlineInspector,
    pub(super) sink: EventDistributor,
    pub(super) clock: MonotonicClock,
    /// Limit of the resets that may still be sent.
    pub(super) allowance: ResetRateLimit,
    pub(super) publisher: MetricsPublisher,
    pub(super) tally: Arc<SharedWorkerCounts>,
    pub(super) answers: VerdictCounts,
}

impl InspectionPipeline {
    /// Returns the monotonic time, by which flows age.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.monotonic_at(Instant::now())
    }

    /// Inspects a packet.
    pub(super) fn inspect(&mut self, packet: &PacketInput<'_>) -> InspectionResult {
        self.inspector.inspect(packet, &mut self.sink)
    }

    /// Reads the wall clock.
    pub(super) fn set_clock(&mut self, instant: Instant) {
        // The wall clock may step (NTP, suspend). Flows age by the monotonic clock, and only events use the
        // wall clock.
        self.clock.set(instant, time_of_day());
        self.sink.set_step(self.clock.wall_offset());
    }

    /// Expires idle flows, publishes the counts and picks up new rules.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.inspector.tick(now, &mut self.sink);
        self.publish(now);
        // After the publication: counts so far belong to the old rules' ids.
        if let Some(rules) = self.inspector.apply_new_rules() {
            self.publisher.set_rules(&rules, self.inspector.counters());
        }
    }

    /// Publishes the counts in the metrics.
    pub(super) fn publish(&mut self, now: Timestamp) {
        let day = self.sink.step().wall_clock(now);
        self.publisher.publish(&self.tally, self.inspector.counters(), self.answers, day);
    }

    /// Reports the last events of all flows.
    pub(super) fn finish(&mut self) {
        self.inspector.finish(self.now(), &mut self.sink);
    }
}

/// Waits until no inspection uses these rules. A worker that does not answer limits the wait: the watchdog
/// ends it.
fn until_released(old: &Arc<RuleSet>) {
    let deadline = Instant::now() + 10 * TICK;
    // Workers look for new rules at every tick, and wait for packets no longer than that.
    while Arc::strong_count(old) > 1 && Instant::now() < deadline {
        thread::sleep(TICK / 20);
    }
}

/// Reads the rules and prints their warnings on stderr.
fn load_rules(selection: &RuleSelection) -> Result<RuleSet, GuardError> {
    let loaded = RuleSet::load(selection)?;
    for warning in &loaded.warnings {
        log_line(warning);
    }
    Ok(loaded.rules)
}

/// Returns the time of day.
fn time_of_day() -> Timestamp {
    SystemTime::now().into()
}
