//! Turns the outcome of a segment into a decision, and ends or continues the flow.

use super::flow_segment::{class_of, first_octet, refuse_packet, sees_only_one_end};
use super::inspect_segment::SegmentInspection;
use crate::engine::body_offload;
use crate::engine::config::OnFailure;
use crate::engine::decision::{Decision, InspectionResult, ResetPair};
use crate::engine::outcome::{DeferredStop, FlowStop, PacketOutcome};
use crate::engine::response_offload;
use crate::event::{DropReason, Side};
use crate::flow::{Anomaly, AnomalySet, FlowClass, FlowDecision, TrackingMode};
use crate::rules::PacketMark;

impl SegmentInspection<'_> {
    /// Turns what a packet led to into a decision.
    pub(super) fn conclude(&mut self) -> InspectionResult {
        let PacketOutcome { stop, mark, .. } = &mut self.judge.outcome;
        let (stop, mark) = (stop.take(), mark.take());
        let (settings, packet) = (self.judge.settings, self.judge.packet);
        let flow = self.flows.table.get_mut(self.id);
        let mark = self.judge.shared.marks.add(&mut flow.label, mark);
        if let Some(stop) = stop {
            return self.stop(stop, mark);
        }
        // A refusal is about this packet alone. It comes behind a stop, which is about the flow.
        if self.judge.outcome.refuse.is_some() {
            return InspectionResult { decision: refuse_packet(&mut self.judge), mark };
        }
        let Some(conversation) = &flow.conversation else {
            return InspectionResult { decision: Decision::Undecided, mark };
        };
        let received = || {
            // True if both receivers have what the decision rests on.
            let streams = [Side::Client, Side::Server].map(|side| flow.stream(flow.end(side)));
            conversation.is_received(streams, settings.tracking == TrackingMode::Lossy)
        };
        // Not before both receivers have acknowledged what was read. Until then the sender could replace it
        // by other bytes.
        let may_pass = conversation.admission.may_pass();
        if conversation.is_decided() && may_pass && received() {
            return self.let_pass(mark);
        }
        // Budgets come behind the decision: a banner that is whole by now is judged, however long it took.
        let late = |since| packet.now.since(since) > settings.config.time_budget;
        let spent = conversation.spent > settings.config.stream_budget;
        if spent || conversation.unfinished_since().is_some_and(late) {
            return self.give_up(mark);
        }
        let no_more = || conversation.is_half_decided() || conversation.is_monologue(flow.side(self.from));
        // The acknowledgements of an end that is never seen here will not come, so after the time budget the
        // flow passes without them.
        if may_pass && sees_only_one_end(flow, settings) && late(flow.started()) && no_more() {
            return self.let_pass(mark);
        }
        // Behind the decision, too: a flow that is decided by this segment gives its buffers back anyway.
        if self.judge.shared.counters.buffered_now > settings.config.buffer_limit
            && !self.flows.reclaim_buffers(self.id, packet.now, &mut self.judge.session())
        {
            return self.exceed_memory(mark);
        }
        InspectionResult { decision: self.leave_undecided(), mark }
    }

    /// Continues the flow; the kernel may pass a part of it.
    fn leave_undecided(&mut self) -> Decision {
        // A reset may never arrive. The flow's last events then wait until it is forgotten.
        let reset = self.classify();
        self.flows.watch_for_timeout(self.id, self.judge.settings);
        if reset == Some(false) {
            self.emit_pending_events();
        }
        // A response is asked about first, since its offload covers bodies.
        let flow = self.flows.table.get_mut(self.id);
        let side = flow.side(self.from);
        let stands = response_offload::decide(flow, self.segment, side, &mut self.judge);
        stands.unwrap_or_else(|| body_offload::decide(flow, self.segment, side, &mut self.judge))
    }

    /// Puts the flow into the class where it stands; where it is over, whether by a reset.
    fn classify(&mut self) -> Option<bool> {
        let flow = self.flows.table.get(self.id);
        let (class, over) = class_of(flow, self.judge.settings);
        let reset = over.then(|| flow.is_reset());
        if class != flow.class() {
            self.flows.table.set_class(self.id, class, self.judge.packet.now);
        }
        reset
    }

    /// The budget is spent without a decision.
    fn give_up(&mut self, mark: Option<PacketMark>) -> InspectionResult {
        self.judge.shared.counters.budget_spent += 1;
        let flow = self.flows.table.get_mut(self.id);
        self.judge.report_anomalies(AnomalySet::of(Anomaly::BudgetSpent), &mut flow.reported);
        if self.judge.settings.config.on_anomaly.drops(Anomaly::BudgetSpent) {
            let reason = Anomaly::BudgetSpent.drop_reason();
            if self.judge.enforces() {
                return self.stop(FlowStop::because(reason), mark);
            }
            self.judge.emit_drop(reason, None, false);
        }
        self.pass_or_refuse(mark)
    }

    /// The buffers of all flows together are full, and this flow's are the largest.
    fn exceed_memory(&mut self, mark: Option<PacketMark>) -> InspectionResult {
        self.judge.shared.counters.no_room += 1;
        if self.judge.settings.config.on_failure == OnFailure::Closed {
            return self.stop(FlowStop::because(DropReason::FlowMemcap), mark);
        }
        self.pass_or_refuse(mark)
    }

    /// Decides about a flow that can no longer be inspected: it passes, unless its policy has not admitted it
    /// yet.
    fn pass_or_refuse(&mut self, mark: Option<PacketMark>) -> InspectionResult {
        if let Some(conversation) = &mut self.flows.table.get_mut(self.id).conversation {
            conversation.admission.refuse(&mut self.judge);
        }
        match self.judge.outcome.stop.take() {
            Some(stop) if self.judge.enforces() => self.stop(stop, mark),
            _ => self.let_pass(mark),
        }
    }

    /// Drops the segment, and every later one with the same bytes: a block on the word of a flow that
    /// nobody has confirmed could be anybody's, for a connection that is not his.
    fn condemn(&mut self, stop: FlowStop, mark: Option<PacketMark>) -> InspectionResult {
        self.judge.emit_drop(stop.reason, stop.rule.clone(), false);
        let segment = self.segment;
        let flow = self.flows.table.get_mut(self.id);
        // The segment never arrives, so its numbers do not count.
        flow.restore(self.origin.before);
        let side = flow.side(self.from);
        let count = u32::try_from(segment.wire_payload_length()).unwrap_or(u32::MAX);
        if let Some(conversation) = &mut flow.conversation {
            let condemned = DeferredStop { stop, side, sequence: first_octet(segment), count };
            conversation.condemned = Some(Box::new(condemned));
        }
        self.classify();
        InspectionResult { decision: Decision::Drop, mark }
    }

    /// Stops a flow with this segment, or says that it would have been stopped.
    pub(super) fn stop(&mut self, stop: FlowStop, mark: Option<PacketMark>) -> InspectionResult {
        let settings = self.judge.settings;
        // `--on-failure closed` holds in monitor mode, too: it is about packets that cannot be inspected, not
        // about rules.
        let enforce = self.judge.enforces() || stop.reason == DropReason::FlowMemcap;
        let flow = self.flows.table.get(self.id);
        if enforce && settings.tracking == TrackingMode::Inline && !flow.is_confirmed() {
            return self.condemn(stop, mark);
        }
        let decided = flow.conversation.as_ref().is_some_and(|it| it.is_decided());
        // Also without enforcement: the event then says that the flow would have been stopped.
        self.judge.emit_drop(stop.reason, stop.rule, stop.reject);
        if !enforce {
            if decided {
                return self.let_pass(mark);
            }
            self.classify();
            return InspectionResult { decision: Decision::Undecided, mark };
        }
        self.end_conversation();
        self.judge.shared.counters.count_blocked(stop.reject);
        // Only an established connection shows who its client is. Otherwise a forged address could be banned.
        self.judge.shared.ban = stop.ban.filter(|_| self.flows.table.get(self.id).is_established());
        let flow = self.flows.table.get_mut(self.id);
        // The resets are accepted only with exactly the expected numbers (RFC 5961 section 3.2).
        let peer = flow.stream(self.from.other());
        let sender_expects = peer.is_open().then(|| peer.next());
        flow.ruling = if stop.reject { FlowDecision::Rejected } else { FlowDecision::Blocked };
        self.flows.table.set_class(self.id, FlowClass::Blocked, self.judge.packet.now);
        let decision = if stop.reject {
            let resets = ResetPair::new(self.segment, self.origin.receiver_expects, sender_expects);
            Decision::Reject(Box::new(resets))
        } else {
            Decision::Block
        };
        InspectionResult { decision, mark }
    }

    /// Nothing more of the flow is looked into.
    fn let_pass(&mut self, mark: Option<PacketMark>) -> InspectionResult {
        self.end_conversation();
        let flow = self.flows.table.get_mut(self.id);
        flow.ruling = FlowDecision::Passed;
        let class = if flow.is_closed() { FlowClass::Closed } else { FlowClass::Passed };
        self.flows.table.set_class(self.id, class, self.judge.packet.now);
        InspectionResult { decision: Decision::Pass, mark }
    }

    /// Tells what the flow still owes and gives its buffers back.
    pub(super) fn end_conversation(&mut self) {
        if let Some(mut conversation) = self.flows.table.get_mut(self.id).conversation.take() {
            conversation.close(&mut self.judge);
            self.flows.spare.recycle_buffers(conversation, &mut self.judge.shared.counters);
        }
    }

    /// Tells what the flow still owes.
    fn emit_pending_events(&mut self) {
        if let Some(conversation) = &mut self.flows.table.get_mut(self.id).conversation {
            conversation.close(&mut self.judge);
        }
    }
}
