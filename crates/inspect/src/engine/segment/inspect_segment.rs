//! A segment that is looked into: what it brings is read, unless it is refused as it comes.

use super::flow_segment::{FlowSegment, SegmentInspector, first_octet, refuse_packet};
use super::read_payload::{self, ArrivingSegment, StreamPair};
use crate::engine::banner_inspector::BannerInspector;
use crate::engine::body_offload;
use crate::engine::decision::{Decision, InspectionResult};
use crate::engine::flow_facts::FlowFacts;
use crate::engine::response_offload;
use crate::engine::tcp_flows::TcpFlows;
use crate::event::{EventSink, Side};
use crate::flow::{Anomaly, AnomalySet, EndStates, FlowId, FlowParts, KeyEnd, TrackedSegment, distance};
use crate::packet::Segment;

/// Maximum distance of an acknowledgement from condemned bytes for the same connection.
const CONDEMNED_NEAR: u32 = 1 << 16;

/// A segment with all that looking into it takes: the flows, and one judge.
pub(super) struct SegmentInspection<'e> {
    pub(super) flows: &'e mut TcpFlows,
    pub(super) judge: BannerInspector<'e>,
    pub(super) segment: &'e Segment<'e>,
    pub(super) id: FlowId,
    pub(super) from: KeyEnd,
    pub(super) origin: PriorState,
}

/// The state before a segment changed it.
pub(super) struct PriorState {
    /// The state of the ends, in case the segment does not arrive.
    pub(super) before: EndStates,
    /// The sequence number that its receiver expects.
    pub(super) receiver_expects: u32,
    /// True if it can be shown again with more of its bytes.
    pub(super) may_ask: bool,
}

impl<'e> SegmentInspection<'e> {
    /// A segment that changed nothing yet.
    pub(super) fn new(
        inspector: &'e mut SegmentInspector<'_>,
        seen: FlowSegment<'e>,
        sink: &'e mut dyn EventSink,
    ) -> Self {
        let before = *inspector.flows.table.get(seen.id).ends();
        let origin = PriorState { before, receiver_expects: seen.segment.sequence(), may_ask: false };
        Self::of(inspector, seen, origin, sink)
    }

    pub(super) fn of(
        inspector: &'e mut SegmentInspector<'_>,
        seen: FlowSegment<'e>,
        origin: PriorState,
        sink: &'e mut dyn EventSink,
    ) -> Self {
        let FlowSegment { segment, packet, id, from } = seen;
        let SegmentInspector { flows, context } = inspector;
        let flow = flows.table.get(id);
        let (facts, side) = (FlowFacts::from(flow), flow.side(from));
        let judge = context.session(sink).new_inspector(facts, Some(side), Some(segment), packet);
        Self { flows, judge, segment, id, from, origin }
    }

    /// A segment whose receiver will not accept it.
    pub(super) fn refuse(mut self, anomaly: Anomaly) -> InspectionResult {
        let flow = self.flows.table.get_mut(self.id);
        self.judge.report_anomalies(AnomalySet::of(anomaly), &mut flow.reported);
        let decision = refuse_packet(&mut self.judge);
        self.observe();
        decision.into()
    }

    /// Inspects a segment of an undecided flow.
    pub(super) fn inspect(mut self, tracked: &TrackedSegment) -> InspectionResult {
        let inspected = match self.apply_deferred_stop() {
            Some(inspected) => inspected,
            None if self.take_in(tracked) => self.ask_for_more(),
            None => self.conclude(),
        };
        self.observe();
        inspected
    }

    /// Ends what was read of the flow until now.
    pub(super) fn close(mut self) {
        self.end_conversation();
        self.observe();
    }

    /// Hands what judging led to to the record of the flow.
    fn observe(&mut self) {
        let notes = std::mem::take(&mut self.judge.outcome.notes);
        self.flows.observe(self.id, notes, self.judge.settings);
    }

    /// Handles a segment of a flow with condemned bytes: the engine drops these, and stops the flow as soon
    /// as it is confirmed.
    fn apply_deferred_stop(&mut self) -> Option<InspectionResult> {
        let segment = self.segment;
        let flow = self.flows.table.get(self.id);
        let condemned = flow.conversation.as_ref()?.condemned.as_ref()?;
        let from_there = flow.side(self.from) == condemned.side;
        let near = |sequence: u32| distance(sequence, condemned.sequence).unsigned_abs() < CONDEMNED_NEAR;
        let start = first_octet(segment);
        let end = start.wrapping_add(u32::try_from(segment.wire_payload_length()).unwrap_or(u32::MAX));
        if !from_there && !near(segment.acknowledgement()) {
            // The other end acknowledges numbers far away, so the condemned bytes were forged.
            self.end_conversation();
            return None;
        }
        // Bytes far away from the condemned ones belong to another connection, whose sender must not suffer
        // for them.
        if from_there && start != end && !near(start) {
            self.discard_read_bytes();
            return None;
        }
        if !from_there && flow.is_confirmed() {
            let stop = condemned.stop.clone();
            let mark = self.judge.shared.marks.of(flow.label);
            self.emit_withheld();
            return Some(self.stop(stop, mark));
        }
        let meets = from_there
            && distance(start, condemned.sequence.wrapping_add(condemned.count)) > 0
            && distance(condemned.sequence, end) > 0;
        meets.then(|| Decision::Drop.into())
    }

    /// Forgets what was read where all of it is condemned: the sender may be another one, whose bytes are
    /// read afresh.
    fn discard_read_bytes(&mut self) {
        let origin = self.origin.before.stream(self.from);
        if origin.is_open() {
            return;
        }
        let flow = self.flows.table.get_mut(self.id);
        let condemned = flow.conversation.as_mut().and_then(|conversation| conversation.condemned.take());
        self.end_conversation();
        let flow = self.flows.table.get_mut(self.id);
        let conversation = flow.conversation.get_or_insert_with(|| self.flows.spare.take());
        conversation.condemned = condemned;
    }

    /// Emits the alerts of a flow that is confirmed by now.
    fn emit_withheld(&mut self) {
        let flow = self.flows.table.get_mut(self.id);
        if let Some(conversation) = &mut flow.conversation {
            self.judge.emit_withheld(&mut conversation.withheld);
        }
    }

    /// Reads what the segment brings, if it is not refused; whether more of it is to be asked for.
    fn take_in(&mut self, tracked: &TrackedSegment) -> bool {
        let Self { flows, judge, segment, origin: PriorState { may_ask, .. }, .. } = self;
        let TcpFlows { table, spare, .. } = &mut **flows;
        let flow = table.get_mut(self.id);
        let side = flow.side(self.from);
        // An end that was never seen acknowledges nothing here.
        let given_up =
            flow.is_one_way() && judge.packet.now.since(flow.started()) > judge.settings.config.time_budget;
        let FlowParts { conversation, own, peer, reported } = flow.parts(self.from);
        let conversation = &mut **conversation.get_or_insert_with(|| spare.take());
        let from_start = own.is_from_start() || peer.is_from_start();
        conversation.admission.begin(&judge.settings.rules, || judge.flow.endpoints(), from_start);
        judge.asks = conversation.admission.policy_with_rules();
        conversation.mirror_midstream_roles(judge);
        let mut streams = StreamPair { own, peer };
        let arrival = ArrivingSegment { segment, side, tracked, may_ask: *may_ask };
        std::mem::swap(&mut judge.reports, &mut conversation.reports);
        // Bytes that the kernel let pass come before this segment's own, so they are skipped first.
        let caught_up = (!tracked.ignore || segment.flags().rst())
            && body_offload::catch_up(conversation, streams.server(side), segment, side, judge);
        response_offload::count(conversation, judge);
        let reached = streams.server(side).next();
        // The acknowledgement in this segment may have confirmed the flow.
        judge.emit_withheld(&mut conversation.withheld);
        // All anomalies are known before any byte is read, since a refused segment must leave no trace.
        let mut anomalies = tracked.anomalies;
        if arrival.brings_octets() {
            anomalies =
                anomalies.with(read_payload::assess(conversation, &streams, arrival, given_up, judge));
        }
        judge.report_anomalies(anomalies, reported);
        let refused = judge.outcome.refuse.is_some() && judge.enforces();
        let more = !refused && read_payload::take_in(conversation, &mut streams, arrival, reported, judge);
        let exchanged = !refused && conversation.correct_roles(streams.by_side(side), judge);
        let side = if exchanged { side.other() } else { side };
        // If the same segment comes again, the policy is asked then.
        if !refused && !more {
            conversation.review(judge);
        }
        judge.emit_withheld(&mut conversation.withheld);
        std::mem::swap(&mut judge.reports, &mut conversation.reports);
        conversation.take_stock(streams.by_side(side), judge.packet.now);
        conversation.account(&mut judge.shared.counters);
        if exchanged {
            let client = flow.end(Side::Server);
            flow.set_client(client);
            // A segment that is condemned does not count, but the roles stay.
            self.origin.before.set_client(client);
        }
        if refused {
            flow.restore(self.origin.before);
            if caught_up {
                // The skipped bytes have passed even if the segment that shows it is refused.
                let stream = flow.stream_mut(flow.end(Side::Server));
                stream.pass_over(reached, 0);
            }
        }
        more
    }

    /// Asks for the whole of a cut segment. What its first bytes led to is kept: they are read only once.
    fn ask_for_more(&mut self) -> InspectionResult {
        let flow = self.flows.table.get_mut(self.id);
        // The whole segment is judged when it comes again.
        self.judge.outcome.refuse = None;
        self.judge.shared.marks.add(&mut flow.label, self.judge.outcome.mark.take());
        let side = flow.side(self.from);
        if let Some(conversation) = &mut flow.conversation {
            conversation.asked.get_or_insert((side, self.segment.sequence(), self.origin.receiver_expects));
        }
        if let Some(stop) = self.judge.outcome.stop.take() {
            // Only in monitor mode: with enforcement the segment would have been stopped instead.
            self.judge.emit_drop(stop.reason, stop.rule, stop.reject);
        }
        Decision::More { octets: self.segment.wire_length() }.into()
    }
}
