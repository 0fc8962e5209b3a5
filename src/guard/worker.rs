//! The loop of one queue, which turns the engine's decisions about packets into verdicts.
//!
//! Everything here belongs to one thread. It shares only atomics and channels with others.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use bannerwall_ffi::queue::KernelCounters;
use crossbeam_channel::Sender;

use super::GuardMessage;
use super::bans::BanHandle;
use super::bridge::BridgeTracker;
use super::hang_detection::LoopHeartbeat;
use super::inspection::InspectionPipeline;
use super::interface_names::InterfaceNameCache;
use super::offload_check::OffloadCheck;
use super::own_listeners::OwnListeners;
use super::packet_age::PacketAgeLimit;
use super::recent_packets::RecentPackets;
use super::resets::{ResetInjector, ResetPaths};
use super::source::{
    MAXIMUM_COPY_RANGE, PacketAnswer, PacketSource, PacketVerdict, QueueStatistics, QueuedPacket, SourceError,
};
use super::takeover::{QueueState, QueueStateNumbers, sealed, state_name};
use super::verdict_translator::VerdictTranslator;
use crate::bypass::BypassFlows;
use crate::diagnostics::log_line;
use crate::engine::{ChecksumState, Decision, InspectionResult, PacketInput, ResetPair};
use crate::event::{EventSink as _, Timestamp};
use crate::inspector::{RejectedFlow, TakenOverFlows};
use crate::packet::{self, ParsedPacket, Segment};

/// Interval at which the kernel's counters are read.
const STATISTICS: Duration = Duration::from_secs(1);
/// Time without requests for more bytes after which the copy range shrinks again.
const QUIET: Duration = Duration::from_secs(30);
/// `NF_INET_FORWARD`.
const FORWARD: u8 = 2;
/// Limit of the time to answer the remaining packets at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// The state that a worker shares with the main thread.
#[derive(Debug, Clone)]
pub(super) struct WorkerContext {
    /// The queue.
    pub(super) number: u16,
    /// Set once, when the run ends.
    pub(super) stop: Arc<AtomicBool>,
    /// Set before `stop` if another process takes over.
    pub(super) leaves: Arc<AtomicBool>,
    /// The main thread, which receives the worker's state at a handover.
    pub(super) messages: Sender<GuardMessage>,
}

/// One queue with its own engine.
pub(super) struct QueueWorker {
    pub(super) source: Box<dyn PacketSource>,
    pub(super) judge: PacketHandler,
    pub(super) shared: WorkerContext,
    /// The copy range to return to.
    pub(super) copy_range: u32,
    /// Age of the packets.
    pub(super) waiting: PacketAgeLimit,
    /// Check that the kernel stores decisions.
    pub(super) handed: OffloadCheck,
    /// Shows that the loop goes around.
    pub(super) pulse: LoopHeartbeat,
    /// The state of the process that had this queue.
    pub(super) inherited: Option<Box<QueueState>>,
    /// True if that process may have released the queue: it left no state.
    pub(super) is_doubtful: bool,
}

/// Everything that is needed to judge a packet.
pub(super) struct PacketHandler {
    pub(super) inspection: InspectionPipeline,
    pub(super) policy: VerdictTranslator,
    /// Absent in monitor mode, which rejects nothing.
    pub(super) injector: Option<Arc<ResetInjector>>,
    /// Resets that wait until the verdicts of the batch are sent.
    pub(super) resets: Vec<PendingResets>,
    /// Sent resets, to recognise them if third-party rules cleared their mark.
    pub(super) own: RecentPackets,
    /// The guard's own listeners, whose connections are not inspected.
    pub(super) listeners: OwnListeners,
    pub(super) interfaces: InterfaceNameCache,
    /// Time of the last request for more bytes of a packet.
    pub(super) grown: Option<Timestamp>,
    /// Flows that bypass netfilter.
    pub(super) bypass: Option<BypassFlows>,
    /// Receiver of requests for bans.
    pub(super) bans: BanHandle,
}

/// Resets with the paths to their receivers.
#[derive(Debug)]
pub(super) struct PendingResets {
    resets: ResetPair,
    ways: ResetPaths,
    /// The events that wait for the outcome of the resets.
    events: Range<usize>,
}

impl PacketHandler {
    fn judge(&mut self, now: Timestamp, queued: &QueuedPacket<'_>) -> PacketAnswer {
        // Before any answer: a SYN that opens the addresses and ports again must not meet the old
        // connection's entry.
        self.end_bypass(queued);
        let answer = match self.policy.answer_marked_packet(queued) {
            Some(answer) => answer,
            // After the marks, which are cheaper: a packet of ours is only recognised by its bytes if
            // third-party rules cleared its mark.
            None if self.own.has_sent(queued.payload) => PacketAnswer::new(PacketVerdict::Accept),
            None if self.listeners.serve(queued) => self.policy.answer(queued, &Decision::Pass, None),
            None => self.inspect(now, queued),
        };
        self.inspection.answers.count(answer.verdict);
        answer
    }

    /// Returns the answer to a packet that has waited too long to be judged.
    fn answer_overdue(&mut self, now: Timestamp, queued: &QueuedPacket<'_>) -> PacketAnswer {
        self.end_bypass(queued);
        let answer = self.policy.answer_marked_packet(queued).unwrap_or_else(|| {
            let answer = self.policy.failure_answer(queued);
            if answer.verdict == PacketVerdict::Accept {
                let packet = input(&mut self.interfaces, now, queued);
                let InspectionPipeline { inspector, sink, .. } = &mut self.inspection;
                // Its bytes count as missing from here on, so that a later copy of them is old and raises no
                // alert about what has passed.
                inspector.follow_uninspected(&packet, sink);
            }
            answer
        });
        self.inspection.answers.count(answer.verdict);
        answer
    }

    /// Takes a flow back from the bypass when it begins or ends, so that a new connection with the same
    /// addresses is inspected.
    fn end_bypass(&mut self, queued: &QueuedPacket<'_>) {
        let Some(entries) = &mut self.bypass else { return };
        if let Some(segment) = segment(queued) {
            entries.remove_on_change(&segment);
        }
    }

    /// Puts a flow into the bypass if nothing of it is left to inspect; otherwise takes it back.
    fn bypass(&mut self, queued: &QueuedPacket<'_>, inspected: &InspectionResult) {
        let Some(entries) = &mut self.bypass else { return };
        let Some(segment) = segment(queued) else { return };
        match inspected.decision {
            // Netfilter sets the marks of rules, so a marked flow must go through it.
            Decision::Pass if inspected.mark.is_none() && queued.hook == FORWARD => {
                entries.insert(&segment, queued.input_interface, queued.output_interface);
            }
            _ => entries.remove(&segment),
        }
    }

    fn inspect(&mut self, now: Timestamp, queued: &QueuedPacket<'_>) -> PacketAnswer {
        let packet = input(&mut self.interfaces, now, queued);
        if let Some(bridge) = self.injector.as_ref().and_then(|injector| injector.bridge()) {
            bridge.learn_address(queued);
        }
        // An event says what became of the resets, so events wait until they are sent.
        let held = self.injector.as_ref().map(|_| self.inspection.sink.hold());
        let inspected = self.inspection.inspect(&packet);
        if let Some(ban) = self.inspection.inspector.take_ban() {
            self.bans.request(ban);
        }
        let answer = self.policy.answer(queued, &inspected.decision, inspected.mark);
        self.bypass(queued, &inspected);
        match inspected.decision {
            Decision::Reject(resets) => {
                let events = self.inspection.sink.held_since(held.unwrap_or_default());
                self.resets.push(PendingResets { resets: *resets, ways: ResetPaths::of(queued), events });
            }
            Decision::More { .. } => self.grown = Some(now),
            _ => {}
        }
        if held.is_some() && self.resets.is_empty() {
            self.inspection.sink.release();
        }
        answer
    }

    /// Sends the resets of a batch after its verdicts. A reset that overtakes segments of the same batch is
    /// out of sequence, and its receiver would not accept it (RFC 5961 section 3.2).
    ///
    /// The events of the batch are emitted afterwards, when the outcomes of the resets are known.
    fn send_resets(&mut self, now: Instant) {
        // Taken out of `self` because `reset` needs all of it. Putting it back keeps the allocation.
        let mut pending = std::mem::take(&mut self.resets);
        for PendingResets { resets, ways, events } in pending.drain(..) {
            self.reset(now, resets, ways, events);
        }
        self.resets = pending;
        self.inspection.sink.release();
    }

    /// Sends a pair of resets, if it may be sent, and says in `events` what became of it.
    fn reset(&mut self, now: Instant, resets: ResetPair, ways: ResetPaths, events: Range<usize>) {
        // Monitor mode has no injector, and no rejection.
        let Some(injector) = &self.injector else { return };
        let admitted = self.inspection.allowance.admit(now);
        let resets = admitted.then(|| injector.address(resets, ways, now)).flatten();
        let outcomes = match resets {
            Some(resets) => {
                self.own.record_reset(&resets.to_receiver);
                self.own.record_reset(&resets.to_sender);
                injector.send(&resets, ways)
            }
            // Over the limit, or an end that cannot be addressed. The drop alone then blocks the flow.
            None => injector.count_suppressed(),
        };
        self.inspection.sink.complete(events, &outcomes);
    }

    /// Resets flows that another process let through but that the rules in force reject, and emits their
    /// events.
    fn reject_taken(&mut self, rejections: Vec<RejectedFlow>) {
        for RejectedFlow { resets, interface, events } in rejections {
            let start = self.inspection.sink.hold();
            events.into_iter().for_each(|event| self.inspection.sink.emit(event));
            let events = self.inspection.sink.held_since(start);
            // The state names interfaces, since an index changes if the interface is recreated.
            let index = interface.map_or(0, |name| self.interfaces.index(&name));
            let ways = self.injector.as_ref().map(|injector| injector.paths_by(index, &resets));
            if let Some(ways) = ways {
                self.reset(Instant::now(), resets, ways, events);
            }
        }
        self.inspection.sink.release();
    }
}

/// Converts a queued packet for the engine.
fn input<'p>(
    interfaces: &'p mut InterfaceNameCache,
    now: Timestamp,
    queued: &QueuedPacket<'p>,
) -> PacketInput<'p> {
    PacketInput {
        now,
        ip: queued.payload,
        wire_length: queued.wire_length,
        checksums: if queued.checksum_ready { ChecksumState::Verify } else { ChecksumState::NotReady },
        interface: interfaces.name(queued.interface()),
        vlan: &[],
        packet_number: None,
    }
}

/// Parses a queued packet as a TCP segment.
fn segment<'a>(queued: &QueuedPacket<'a>) -> Option<Segment<'a>> {
    match packet::parse(queued.payload, queued.wire_length) {
        Ok(ParsedPacket::Tcp(segment)) => Some(segment),
        _ => None,
    }
}

impl QueueWorker {
    /// Judges packets until told to stop, then the remaining ones, and releases the queue.
    pub(super) fn run(mut self) -> Result<(), SourceError> {
        let mut read = Instant::now();
        // In this thread, and before the first packet is read: the flows' state must be complete when their
        // next packets come.
        if let Some(state) = self.inherited.take() {
            self.resume_queue(&state, self.judge.inspection.now())?;
        }
        // Publishes the start as the last turn: otherwise a loop that hangs within its first second would
        // show a turn in 1970.
        self.publish(self.judge.inspection.now());
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = self.turn()?;
            // Clocks, counters and metrics wait for a tick, so that a loaded loop does not pay for them with
            // every batch.
            if self.judge.inspection.inspector.is_due(self.judge.inspection.clock.monotonic_at(now)) {
                self.pulse.record_turn(now);
                self.judge.inspection.set_clock(now);
                if now.duration_since(read) >= STATISTICS {
                    read = now;
                    self.judge.inspection.publisher.publish_statistics(self.source.statistics());
                    self.check_queue()?;
                    self.handed.check(
                        self.judge.policy.handed,
                        self.judge.inspection.inspector.counters().decided_again,
                    );
                    self.judge.interfaces.forget();
                }
                if let Some(bridge) = self.judge.injector.as_ref().and_then(|injector| injector.bridge()) {
                    bridge.tick(now);
                }
                self.tick(self.judge.inspection.clock.monotonic_at(now))?;
            }
        }
        // Pairs with the store of `stop`: `leaves` was set before it.
        fence(Ordering::Acquire);
        // At a handover nothing is drained: what is still queued belongs to the successor.
        if self.shared.leaves.load(Ordering::Relaxed) { self.hand_over() } else { self.finish() }
    }

    /// Handles one batch. Returns the time of its end.
    fn turn(&mut self) -> Result<Instant, SourceError> {
        let Self { source, judge, waiting, .. } = self;
        let mut begun = None;
        let clock = judge.inspection.clock;
        let received = source.next_batch(&mut |queued| {
            judge.inspection.tally.receive();
            // One reading for the whole batch, at its first packet. The wait for that packet is no part of
            // the batch's time.
            let (_, now, day) = *begun.get_or_insert_with(|| {
                let instant = Instant::now();
                let now = clock.monotonic_at(instant);
                (instant, now, clock.wall_offset().wall_clock(now))
            });
            if waiting.is_over(day, queued.timestamp) {
                return judge.answer_overdue(now, queued);
            }
            judge.judge(now, queued)
        });
        let ended = Instant::now();
        // Also after an error: the events of the batch wait for it.
        judge.send_resets(ended);
        let received = received?;
        if let Some((begun, ..)) = begun {
            self.judge.inspection.publisher.batch(received, Some(ended.duration_since(begun)));
        }
        Ok(ended)
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), SourceError> {
        let Self { judge, .. } = self;
        // Packets that passed unseen leave gaps in flows. The engine accepts such gaps for a while; otherwise
        // it would refuse later segments of these flows for ever.
        if judge.inspection.publisher.has_missed() {
            judge.inspection.inspector.record_missed(now);
        }
        judge.inspection.tick(now);
        // A large copy range costs the kernel a copy of every whole packet, so it shrinks once nothing needs
        // it.
        if judge.grown.is_some_and(|grown| now.since(grown) > QUIET) {
            judge.grown = None;
            judge.policy.copy_range = self.copy_range;
            self.source.set_copy_range(self.copy_range)?;
        }
        self.waiting.publish();
        Ok(())
    }

    fn publish(&mut self, now: Timestamp) {
        self.waiting.publish();
        self.judge.inspection.publish(now);
    }

    /// Continues with the queue of another process.
    fn resume_queue(&mut self, state: &QueueState, now: Timestamp) -> Result<(), SourceError> {
        self.is_doubtful = state.known.copy_range.is_none();
        self.check_queue()?;
        // Only a killed process leaves packets unanswered; one that handed over has answered all that it
        // read.
        if self.is_doubtful {
            self.answer_read()?;
        }
        let copied = state.known.copy_range.unwrap_or(MAXIMUM_COPY_RANGE).min(MAXIMUM_COPY_RANGE);
        let Self { source, judge, .. } = self;
        source.resume(copied)?;
        judge.policy.copy_range = source.copy_range();
        judge.grown = (source.copy_range() > self.copy_range).then_some(now);
        let TakenOverFlows { news, rejections } = {
            let InspectionPipeline { inspector, sink, .. } = &mut judge.inspection;
            inspector.take_over(&state.flows, now, sink)
        };
        if let Some(bridge) = judge.injector.as_ref().and_then(|injector| injector.bridge()) {
            bridge.restore(&state.known.bridge_hosts);
        }
        // The rules may have changed between the two processes.
        judge.reject_taken(rejections);
        let statistics = match state.known.dropped {
            Some([queue, socket, unread]) => QueueStatistics {
                dropped_queue_full: queue,
                dropped_socket_full: socket,
                socket_drops: unread,
                ..QueueStatistics::default()
            },
            // Counts from before this process are not its own to report.
            None => source.statistics(),
        };
        let InspectionPipeline { publisher, inspector, .. } = &mut judge.inspection;
        publisher.go_on_from(statistics, inspector.counters(), &news);
        Ok(())
    }

    /// Answers the packets that a process had read when it was killed. Otherwise the kernel would hold them
    /// for ever, as part of the queue's limit.
    fn answer_read(&mut self) -> Result<(), SourceError> {
        let count = self.source.answer_read()?;
        let fate = if self.judge.policy.failure == PacketVerdict::Accept { "passed" } else { "were dropped" };
        match count {
            Some(0) => {}
            Some(count) => {
                self.judge.inspection.publisher.count_abandoned(count);
                log_line(format_args!(
                    "bannerwall: queue {}: packets that the previous guard had read but not answered \
                     {fate}: {count}",
                    self.shared.number
                ));
            }
            None => log_line(format_args!(
                "bannerwall: queue {}: packets that the previous guard had read but not answered {fate}; \
                 their number is unknown",
                self.shared.number
            )),
        }
        Ok(())
    }

    /// Binds the queue again if no packets would ever arrive on it.
    fn check_queue(&mut self) -> Result<(), SourceError> {
        let number = self.shared.number;
        let is_lost = || self.source.is_lost() || matches!(KernelCounters::of(number), Ok(None));
        if self.is_doubtful && is_lost() {
            log_line(format_args!(
                "bannerwall: queue {number} is bound again: the process that had it has released it"
            ));
            self.source.bind_again()?;
        }
        Ok(())
    }

    /// Leaves the queue bound for another process, and hands over the state of its flows. All packets that
    /// were received are answered.
    fn hand_over(mut self) -> Result<(), SourceError> {
        let now = self.judge.inspection.now();
        // Without this, the packets of a slow start pass or are dropped uninspected. The handover goes on.
        let _ = self.source.await_successor();
        // This process publishes the counts up to here, and its successor only what comes after.
        let statistics = self.source.statistics();
        self.judge.inspection.publisher.publish_statistics(statistics);
        self.publish(now);
        let bridge = self.judge.injector.as_ref().and_then(|injector| injector.bridge());
        let known = QueueStateNumbers {
            copy_range: Some(self.source.copy_range()),
            marks_connections: self.source.marks_connections(),
            received: self.judge.inspection.tally.received(),
            dropped: Some([
                statistics.dropped_queue_full,
                statistics.dropped_socket_full,
                statistics.socket_drops,
            ]),
            bridge_hosts: bridge.map(BridgeTracker::known_hosts).unwrap_or_default(),
            ..QueueStateNumbers::default()
        };
        let state = QueueState { known, flows: self.judge.inspection.inspector.hand_over(now) };
        let number = self.shared.number;
        let left = state.octets().and_then(|octets| sealed(&state_name(number), &octets));
        // The main thread is gone only after a forced stop.
        let _ = self.shared.messages.send(GuardMessage::Left(number, left));
        Ok(())
    }

    fn finish(mut self) -> Result<(), SourceError> {
        let Self { source, judge, .. } = &mut self;
        let received = source.drain(DRAIN, &mut |queued| {
            judge.inspection.tally.receive();
            judge.judge(judge.inspection.now(), queued)
        });
        // Before an error is returned: it also emits the events that wait for the resets.
        judge.send_resets(Instant::now());
        let received = received?;
        judge.inspection.finish();
        self.judge.inspection.publisher.batch(received, None);
        self.judge.inspection.publisher.publish_statistics(self.source.statistics());
        self.publish(self.judge.inspection.now());
        self.source.close()
    }
}
