//! What a segment led to becomes a decision, and the flow's story ends or goes on.

use super::{Seen, Stop, first_octet};
use crate::engine::conversation::Condemned;
use crate::engine::judge::Outcome;
use crate::engine::{Decision, Engine, Inspected, OnFailure, PacketInput, Resets};
use crate::event::{DropReason, EventSink, Side};
use crate::flow::{Anomaly, AnomalySet, Class, FlowId, Tracking, Verdict};
use crate::rules::Mark;

impl Engine {
    /// Turns what a packet led to into a decision.
    pub(super) fn conclude(
        &mut self,
        seen: Seen<'_>,
        outcome: Outcome,
        receiver_expects: u32,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let Seen { packet, id, .. } = seen;
        let mark = self.remember_mark(id, outcome.mark);
        if let Some(stop) = outcome.stop {
            return self.stop(seen, stop, receiver_expects, mark, sink);
        }
        if let Some(reason) = outcome.refuse {
            self.judge_seen(seen, sink).tell_drop(reason, None, false);
            let decision = if self.config.enforce { Decision::Drop } else { Decision::Undecided };
            return Inspected { decision, mark };
        }
        let flow = self.flows.get(id);
        let Some(conversation) = &flow.conversation else {
            return Inspected { decision: Decision::Undecided, mark };
        };
        if conversation.is_decided() && self.is_received(id) {
            self.end_conversation(seen, sink);
            return Inspected { mark, ..self.let_pass(id, packet) };
        }
        let late = conversation.amid_since().is_some_and(|it| packet.now.since(it) > self.config.time_budget);
        if late || conversation.spent > self.config.stream_budget {
            return self.give_up(seen, receiver_expects, mark, sink);
        }
        if conversation.is_half_decided() && self.is_one_way(id, packet) {
            self.end_conversation(seen, sink);
            return Inspected { mark, ..self.let_pass(id, packet) };
        }
        if self.counters.buffered_now > self.config.buffer_limit && !self.relieve(id, packet.now, sink) {
            return self.run_short(seen, receiver_expects, mark, sink);
        }
        self.watch(id);
        // A reset may never have arrived: what it leaves is told once the flow is forgotten.
        if self.classify(id, packet) && !self.flows.get(id).is_reset() {
            self.tell_owed(seen, sink);
        }
        Inspected { decision: Decision::Undecided, mark }
    }

    /// Whether both receivers have what the decision rests on.
    fn is_received(&self, id: FlowId) -> bool {
        let flow = self.flows.get(id);
        let streams = [Side::Client, Side::Server].map(|side| flow.stream(flow.end(side)));
        let lossy = self.tracking == Tracking::Lossy;
        flow.conversation.as_ref().is_none_or(|conversation| conversation.is_received(streams, lossy))
    }

    /// The budget is spent without a decision.
    fn give_up(
        &mut self,
        seen: Seen<'_>,
        receiver_expects: u32,
        mark: Option<Mark>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        self.counters.budget_spent += 1;
        let mut anomalies = AnomalySet::default();
        anomalies.insert(Anomaly::BudgetSpent);
        let mut reported = self.flows.get(seen.id).reported;
        self.judge_seen(seen, sink).note(anomalies, &mut reported);
        self.flows.get_mut(seen.id).reported = reported;
        if self.config.on_anomaly.drops(Anomaly::BudgetSpent) {
            let reason = Anomaly::BudgetSpent.drop_reason();
            if self.config.enforce {
                let stop = Stop { reason, rule: None, reject: false };
                return self.stop(seen, stop, receiver_expects, mark, sink);
            }
            self.judge_seen(seen, sink).tell_drop(reason, None, false);
        }
        self.end_conversation(seen, sink);
        Inspected { mark, ..self.let_pass(seen.id, seen.packet) }
    }

    /// The buffers of all flows together are full, and this flow's are the largest.
    fn run_short(
        &mut self,
        seen: Seen<'_>,
        receiver_expects: u32,
        mark: Option<Mark>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        self.counters.no_room += 1;
        if self.config.on_failure == OnFailure::Closed {
            let stop = Stop { reason: DropReason::FlowMemcap, rule: None, reject: false };
            return self.stop(seen, stop, receiver_expects, mark, sink);
        }
        self.end_conversation(seen, sink);
        Inspected { mark, ..self.let_pass(seen.id, seen.packet) }
    }

    /// Drops the segment, and every later one with the same octets: a block on the word of a flow that
    /// nobody has confirmed could be anybody's, for a connection that is not his.
    fn condemn(
        &mut self,
        seen: Seen<'_>,
        stop: Stop,
        mark: Option<Mark>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let Seen { segment, packet, id, from, .. } = seen;
        self.judge_seen(seen, sink).tell_drop(stop.reason, stop.rule.clone(), false);
        let flow = self.flows.get_mut(id);
        flow.restore(seen.before);
        let side = flow.side(from);
        let count = u32::try_from(segment.wire_payload_length()).unwrap_or(u32::MAX);
        if let Some(conversation) = &mut flow.conversation {
            let condemned = Condemned { stop, side, sequence: first_octet(segment), count };
            conversation.condemned = Some(Box::new(condemned));
        }
        self.classify(id, packet);
        Inspected { decision: Decision::Drop, mark }
    }

    /// Stops a flow with this segment, or says that it would have been stopped.
    pub(super) fn stop(
        &mut self,
        seen: Seen<'_>,
        stop: Stop,
        receiver_expects: u32,
        mark: Option<Mark>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let Seen { segment, packet, id, from, .. } = seen;
        let enforce = self.config.enforce || stop.reason == DropReason::FlowMemcap;
        if enforce && self.tracking == Tracking::Inline && !self.flows.get(id).is_confirmed() {
            return self.condemn(seen, stop, mark, sink);
        }
        self.judge_seen(seen, sink).tell_drop(stop.reason, stop.rule, stop.reject);
        if !enforce {
            let decided = self.flows.get(id).conversation.as_ref().is_some_and(|it| it.is_decided());
            if decided {
                self.end_conversation(seen, sink);
                return Inspected { mark, ..self.let_pass(id, packet) };
            }
            self.classify(id, packet);
            return Inspected { decision: Decision::Undecided, mark };
        }
        self.end_conversation(seen, sink);
        self.counters.count_blocked(stop.reject);
        let flow = self.flows.get_mut(id);
        let peer = flow.stream(from.other());
        let sender_expects = peer.is_open().then(|| peer.next());
        flow.verdict = if stop.reject { Verdict::Rejected } else { Verdict::Blocked };
        self.flows.set_class(id, Class::Blocked, packet.now);
        let decision = if stop.reject {
            Decision::Reject(Resets::new(segment, receiver_expects, sender_expects))
        } else {
            Decision::Block
        };
        Inspected { decision, mark }
    }

    pub(super) fn let_pass(&mut self, id: FlowId, packet: &PacketInput<'_>) -> Inspected {
        let flow = self.flows.get_mut(id);
        flow.verdict = Verdict::Passed;
        let class = if flow.is_closed() { Class::Closed } else { Class::Passed };
        self.flows.set_class(id, class, packet.now);
        Decision::Pass.into()
    }

    /// Tells what the flow still owes and gives its buffers back.
    pub(super) fn end_conversation(&mut self, seen: Seen<'_>, sink: &mut dyn EventSink) {
        self.tell_owed(seen, sink);
        if let Some(conversation) = self.flows.get_mut(seen.id).conversation.take() {
            self.recycle(conversation);
        }
    }

    /// Tells what the flow still owes.
    fn tell_owed(&mut self, seen: Seen<'_>, sink: &mut dyn EventSink) {
        let Some(mut conversation) = self.flows.get_mut(seen.id).conversation.take() else { return };
        let mut judge = self.judge_seen(seen, sink);
        judge.told = std::mem::take(&mut conversation.told);
        conversation.close(&mut judge);
        conversation.told = judge.told;
        self.flows.get_mut(seen.id).conversation = Some(conversation);
    }
}
