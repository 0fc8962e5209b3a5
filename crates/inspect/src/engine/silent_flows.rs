//! Flows in which neither side says anything: what their policies say becomes of them, in time.

use std::cmp::Reverse;
use std::sync::Arc;

use super::admission::silence;
use super::context::{EngineSettings, InspectionSession};
use super::decision::PacketInput;
use super::flow_facts::FlowFacts;
use super::tcp_flows::TcpFlows;
use super::undecided_flow::UndecidedFlow;
use crate::event::Timestamp;
use crate::flow::{Flow, FlowClass, FlowDecision, FlowId};
use crate::rules::RuleSet;

/// True if only what a policy allows may pass in a flow.
pub(super) fn is_under_policy(flow: &Flow<UndecidedFlow>, rules: &RuleSet) -> bool {
    !rules.policies().is_empty()
        && rules.policy(&FlowFacts::from(flow).endpoints()).is_some_and(|policy| !policy.allows_any())
}

impl TcpFlows {
    /// Notes that a flow has begun, so that it is found should it stay silent.
    pub(super) fn watch_for_silence(&mut self, id: FlowId, now: Timestamp, settings: &EngineSettings) {
        if !settings.rules.has_impatient_policies() {
            return;
        }
        let flow = self.table.get(id);
        let Some(policy) = settings.rules.policy(&FlowFacts::from(flow).endpoints()) else { return };
        let Some(patience) = policy.silent_after().filter(|_| !policy.allows_any()) else { return };
        self.silent.0.push(Reverse((now.after(patience), id, flow.started())));
        if self.silent.0.len() > 2 * self.table.limit() {
            // Most of these flows are gone: their SYNs were never answered.
            let table = &self.table;
            self.silent.0.retain(|Reverse((_, id, started))| {
                let flow = table.get(*id);
                flow.started() == *started && flow.ruling == FlowDecision::Undecided
            });
        }
    }

    /// Ends flows that are open and have been silent for longer than their policy waits.
    pub(super) fn end_silent_flows(&mut self, now: Timestamp, session: &mut InspectionSession<'_>) {
        while self.silent.0.peek().is_some_and(|Reverse((due, ..))| *due <= now)
            && let Some(Reverse((_, id, started))) = self.silent.0.pop()
        {
            let flow = self.table.get(id);
            let silent = flow.conversation.as_ref().is_none_or(|it| it.admission.is_silent());
            // A half-open connection is the opener's matter: silence counts once both ends could speak.
            let open = flow.ruling == FlowDecision::Undecided && !flow.is_opening() && !flow.is_closed();
            // The entry is not removed with its flow, so the id may belong to a newer one by now.
            if flow.started() == started && silent && open {
                self.end_silent(id, now, session);
            }
        }
    }

    fn end_silent(&mut self, id: FlowId, now: Timestamp, session: &mut InspectionSession<'_>) {
        let flow = self.table.get_mut(id);
        let rules = Arc::clone(&session.settings.rules);
        let facts = FlowFacts::from(&*flow);
        let Some(policy) = rules.policy(&facts.endpoints()) else { return };
        let packet = PacketInput::none(now);
        let mut judge = session.reborrow().new_inspector(facts, None, None, &packet);
        judge.refuse(policy, silence());
        let Some(stop) = judge.outcome.stop.take().filter(|_| judge.enforces()) else { return };
        // A rejected flow is reported with its next packet, whose numbers the resets need.
        if !stop.reject {
            judge.emit_drop(stop.reason, stop.rule, false);
            judge.shared.counters.count_blocked(false);
        }
        if let Some(conversation) = flow.conversation.take() {
            self.spare.recycle_buffers(conversation, &mut judge.shared.counters);
        }
        flow.ruling = if stop.reject { FlowDecision::Refused } else { FlowDecision::Blocked };
        let notes = judge.outcome.notes;
        self.observe(id, notes, session.settings);
        self.table.set_class(id, FlowClass::Blocked, now);
    }
}
