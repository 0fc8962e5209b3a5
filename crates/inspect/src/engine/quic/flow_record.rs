//! The record of a UDP flow at its end.

use super::udp_flows::QuicFlows;
use crate::engine::context::InspectionSession;
use crate::engine::flow_facts::FlowFacts;
use crate::engine::tcp_flows::emit_record;
use crate::event::{FlowEnd, FlowRecord, FlowState, FlowVerdict, Timestamp};
use crate::flow::{FlowDecision, FlowId, KeyEnd};

impl QuicFlows {
    /// Tells of a flow that is about to be forgotten.
    pub(super) fn emit_record(
        &mut self,
        id: FlowId,
        facts: FlowFacts,
        end: FlowEnd,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) {
        let flow = self.get(id);
        let Some(association) = &flow.conversation else { return };
        let config = &session.settings.config;
        let handed_over = config.hands_over && flow.ruling == FlowDecision::Passed && flow.label == 0;
        let [low, high] = association.volumes;
        let (to_server, to_client) = match association.client(KeyEnd::Low) {
            KeyEnd::Low => (low, high),
            KeyEnd::High => (high, low),
        };
        let (reason, rule) = match &association.notes.dropped {
            Some((reason, rule)) => (Some(*reason), rule.clone()),
            None => (None, None),
        };
        let record = FlowRecord {
            start: flow.started(),
            last: association.last,
            to_server,
            to_client,
            flags_to_server: 0,
            flags_to_client: 0,
            state: match (handed_over, association.is_answered()) {
                (true, _) => FlowState::Bypassed,
                (false, true) => FlowState::Established,
                (false, false) => FlowState::New,
            },
            end,
            verdict: match flow.ruling {
                FlowDecision::Passed => FlowVerdict::Passed,
                FlowDecision::Undecided if reason.is_none() => FlowVerdict::Undecided,
                _ => FlowVerdict::Blocked,
            },
            reason,
            rule,
            protocol: association.notes.protocol,
            alerted: association.notes.alerted,
            whole: !handed_over,
            unseen: 0,
        };
        emit_record(facts, record, now, session);
    }
}
