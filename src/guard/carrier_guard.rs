//! A guard for a caller that forwards packets itself, as the tunnel does. It inspects each packet and returns
//! a verdict. It has no queue, no hook and no mark.

use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::GuardError;
use super::config::{EventOutput, InspectionConfig};
use super::drop_privileges;
use super::event_reader::{self, EventReader};
use super::inspection::{InspectionPipeline, InspectionRuntime, RulesAndFingerprints};
use super::resets::ResetOutcomes;
use super::source::PacketVerdict;
use crate::engine::{ChecksumState, Decision, OnFailure, PacketInput, ResetPair};
use crate::metrics::{GuardMetrics, MetricsRegistry};
use crate::packet::PacketPatch;
use crate::rules::RuleSelection;

/// Queue number in the metrics of carried packets.
const NO_QUEUE: u16 = 0;

/// A packet that the caller forwards.
#[derive(Debug, Clone, Copy)]
pub struct CarriedPacket<'a> {
    /// The packet from its IP header on, in parts. The first part holds all headers, or the whole packet.
    pub parts: &'a [IoSlice<'a>],
    /// State of its checksums.
    pub checksums: ChecksumState,
    /// The interface on which it arrived or leaves.
    pub interface: &'a str,
}

/// The verdict about a carried packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarriedVerdict {
    /// Forward the packet.
    Pass,
    /// Forward the packet with these bytes replaced.
    Patch(PacketPatch),
    /// Drop the packet.
    Stop,
}

/// A running guard that inspects carried packets.
pub struct CarrierGuard {
    host: InspectionRuntime,
    selection: RuleSelection,
    inspector: Arc<CarrierInspector>,
}

impl CarrierGuard {
    /// Prepares the readers while the process still has all its privileges.
    ///
    /// # Errors
    ///
    /// A reader cannot be prepared.
    pub fn prepare(readers: &[Box<dyn EventReader>]) -> Result<(), GuardError> {
        event_reader::prepare(readers, None).map_err(GuardError::Attached)
    }

    /// Loads the rules, confines the calling thread and the threads that it starts, and opens the event
    /// outputs. The readers must be [prepared](Self::prepare).
    ///
    /// # Errors
    ///
    /// One of these steps fails.
    pub fn start(
        config: InspectionConfig,
        outputs: Vec<EventOutput>,
        readers: Vec<Box<dyn EventReader>>,
        registry: &MetricsRegistry,
    ) -> Result<Self, GuardError> {
        // Rules are read first: the confinement permits the files that they name.
        let loaded = RulesAndFingerprints::read(&config, &readers)?;
        if config.is_confined {
            let attached = event_reader::confinement(&readers).speaking();
            drop_privileges::confine_files(&config, &loaded.rules, attached).apply_or_warn(false);
        }
        let metrics = GuardMetrics::new(registry)?;
        metrics.enforcing.set(i64::from(config.engine.enforce));
        let mut host = InspectionRuntime::start(loaded, metrics, outputs, readers, false)?;
        host.readers
            .iter_mut()
            .try_for_each(|reader| reader.open().map(drop))
            .map_err(GuardError::Attached)?;
        let failure = match config.engine.on_failure {
            OnFailure::Open => CarriedVerdict::Pass,
            OnFailure::Closed => CarriedVerdict::Stop,
        };
        // The list of blocked flows is gone then. Only without `--enforce` was none of them blocked.
        let after_finish = if config.engine.enforce { CarriedVerdict::Stop } else { failure.clone() };
        let inspection = host.inspection(config.engine, NO_QUEUE, host.sinks());
        let carried = CarrierInspectorState {
            inspection,
            whole: Vec::new(),
            failure,
            after_finish,
            is_finished: false,
        };
        let inspector = CarrierInspector { carried: Mutex::new(carried), metrics: host.metrics.clone() };
        Ok(Self { host, selection: config.rules, inspector: Arc::new(inspector) })
    }

    /// Returns the inspector that judges packets.
    pub fn inspector(&self) -> Arc<CarrierInspector> {
        Arc::clone(&self.inspector)
    }

    /// Returns the number of rules in force.
    pub fn rule_count(&self) -> usize {
        self.host.rule_count()
    }

    /// Expires idle flows, picks up new rules and publishes the metrics. Call it several times a second.
    pub fn tick(&self) {
        self.inspector.lock().tick();
        self.host.show_readers();
    }

    /// Reads the rules again and reopens the event files.
    pub fn reload(&self) {
        self.host.reopen();
        // The sender of the signal reads the outcome on stderr.
        let _ = self.host.replace_rules(&self.selection);
    }

    /// Reports the last events of all flows, and waits for a limited time until all outputs and readers have
    /// taken all events.
    pub fn finish(mut self) {
        self.tick();
        self.inspector.lock().finish();
        self.host.finish();
    }
}

/// Inspects carried packets. Threads share it.
pub struct CarrierInspector {
    carried: Mutex<CarrierInspectorState>,
    metrics: GuardMetrics,
}

/// The state behind the lock of a [`CarrierInspector`].
struct CarrierInspectorState {
    inspection: InspectionPipeline,
    /// Buffer for a packet whose first part was too short.
    whole: Vec<u8>,
    /// The verdict on packets that cannot be inspected.
    failure: CarriedVerdict,
    /// The verdict on packets that arrive once the guard has finished.
    after_finish: CarriedVerdict,
    is_finished: bool,
}

impl CarrierInspector {
    /// Inspects a packet. If both ends of its connection are to be reset, `send` sends the resets.
    pub fn judge(
        &self,
        packet: CarriedPacket<'_>,
        send: impl FnOnce(&ResetPair) -> ResetOutcomes,
    ) -> CarriedVerdict {
        let mut carried = self.lock();
        carried.inspection.tally.receive();
        let (verdict, outcomes) = carried.judge(packet, send);
        let is_stopped = verdict == CarriedVerdict::Stop;
        carried.inspection.answers.count(if is_stopped {
            PacketVerdict::Drop
        } else {
            PacketVerdict::Accept
        });
        if let Some(outcomes) = outcomes {
            outcomes.count(&self.metrics);
        }
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, CarrierInspectorState> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CarrierInspector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CarrierInspector").finish_non_exhaustive()
    }
}

impl CarrierInspectorState {
    fn judge(
        &mut self,
        packet: CarriedPacket<'_>,
        send: impl FnOnce(&ResetPair) -> ResetOutcomes,
    ) -> (CarriedVerdict, Option<ResetOutcomes>) {
        if self.is_finished {
            return (self.after_finish.clone(), None);
        }
        let Some(first) = packet.parts.first() else {
            return (CarriedVerdict::Stop, None);
        };
        let inspection = &mut self.inspection;
        let instant = Instant::now();
        let input = PacketInput {
            now: inspection.clock.monotonic_at(instant),
            ip: first,
            wire_length: packet.parts.iter().map(|part| part.len()).sum(),
            checksums: packet.checksums,
            interface: Some(packet.interface),
            vlan: &[],
            packet_number: None,
        };
        // The events name the outcome of the resets, which are sent only after the decision.
        let held = inspection.sink.hold();
        let mut decision = inspection.inspect(&input).decision;
        // The headers are mostly enough. Only if the engine asks, the parts are copied into one buffer.
        if matches!(decision, Decision::More { .. }) {
            self.whole.clear();
            packet.parts.iter().for_each(|part| self.whole.extend_from_slice(part));
            decision = inspection.inspect(&PacketInput { ip: &self.whole, ..input }).decision;
        }
        let mut outcomes = None;
        let verdict = match decision {
            Decision::Undecided
            | Decision::Release
            | Decision::Stand
            | Decision::Keep
            | Decision::Regain
            | Decision::Pass => CarriedVerdict::Pass,
            Decision::Patch(patch) => CarriedVerdict::Patch(*patch),
            // The engine had the whole packet and still asks, so that it cannot judge.
            Decision::More { .. } => self.failure.clone(),
            Decision::Drop | Decision::Block => CarriedVerdict::Stop,
            Decision::Reject(resets) => {
                let sent =
                    if inspection.allowance.admit(instant) { send(&resets) } else { ResetOutcomes::LIMITED };
                let events = inspection.sink.held_since(held);
                inspection.sink.complete(events, &sent);
                outcomes = Some(sent);
                CarriedVerdict::Stop
            }
        };
        inspection.sink.release();
        (verdict, outcomes)
    }

    fn tick(&mut self) {
        let inspection = &mut self.inspection;
        let instant = Instant::now();
        inspection.set_clock(instant);
        let now = inspection.clock.monotonic_at(instant);
        if inspection.inspector.is_due(now) {
            inspection.tick(now);
        }
    }

    fn finish(&mut self) {
        self.inspection.finish();
        self.is_finished = true;
    }
}
