//! The counters of an engine: plain numbers that its owner reads at any time.

use std::collections::BTreeMap;

use super::decision::Decision;
use crate::event::{Protocol, Side};
use crate::flow::{Anomaly, FlowClass};

/// Counts since the engine's start, and a few present values.
#[derive(Debug, Clone, Default)]
pub struct EngineCounters {
    /// Packets inspected; one that was shown again after [`Decision::More`] counts once.
    pub packets: u64,
    /// Bytes of those packets on the wire.
    pub octets: u64,
    /// Packets that carried neither TCP nor anything of a UDP flow.
    pub not_tcp: u64,
    /// Datagrams of UDP flows.
    pub datagrams: u64,
    /// UDP flows begun: pairs of ports between which somebody began a QUIC connection.
    pub udp_flows: u64,
    /// UDP flows remembered now.
    pub udp_flows_now: FlowCounts,
    /// Bytes that UDP flows hold in buffers now.
    pub udp_buffered_now: usize,
    /// UDP flows forgotten before their time for want of room, by their state.
    pub udp_evictions: FlowCounts,
    /// Packets whose headers could not be read.
    pub malformed: u64,
    /// IP fragments.
    pub fragments: u64,
    /// Packets put together from fragments.
    pub reassembled: u64,
    /// Decisions given.
    pub decisions: DecisionCounts,
    /// Packets of TCP flows that were decided by an earlier packet.
    pub decided_again: u64,
    /// Flows begun.
    pub flows: u64,
    /// Flows begun without a SYN.
    pub midstream: u64,
    /// Segments of flows begun without a SYN that went on as probes without their data.
    pub probes: u64,
    /// Flows forgotten before their time because the table was full, by their state.
    pub evictions: FlowCounts,
    /// Packets that found no room in the table or buffers.
    pub no_room: u64,
    /// Flows that ran out of their octet or time budget.
    pub budget_spent: u64,
    /// Bytes received more than once.
    pub overlap_octets: u64,
    /// Segments that came before their turn.
    pub out_of_order: u64,
    /// Bodies that were released, each as often as it was.
    pub released: u64,
    /// Bytes of bodies that went by without being seen.
    pub unseen_octets: u64,
    /// Bytes of lines before SSH identifications.
    pub preamble_octets: u64,
    /// Alerts that were not told: their flow had told too many.
    pub alerts_suppressed: u64,
    /// Events that were not told because anybody can cause any number of them.
    pub events_suppressed: u64,
    /// Flows that were stopped, and only that.
    pub flows_dropped: u64,
    /// Flows that were stopped and whose ends were sent resets.
    pub flows_rejected: u64,
    /// Matches that a rule's threshold kept silent.
    pub suppressed: u64,
    /// Flows that were not what a policy allows, by the policy's id.
    pub refusals: BTreeMap<String, u64>,
    /// Matches by the rule's index in the rule set in force.
    pub matches: Vec<u64>,
    /// Flows remembered now.
    pub flows_now: FlowCounts,
    /// Bytes in buffers now.
    pub buffered_now: usize,
    pub(super) banners: [[u64; 2]; Protocol::COUNT],
    pub(super) anomalies: ByAnomaly,
}

/// A count for each anomaly.
#[derive(Debug, Clone)]
pub(super) struct ByAnomaly([u64; Anomaly::COUNT]);

impl Default for ByAnomaly {
    fn default() -> Self {
        Self([0; Anomaly::COUNT])
    }
}

/// Number of decisions, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// [`Decision::Undecided`].
    pub undecided: u64,
    /// [`Decision::Pass`].
    pub pass: u64,
    /// [`Decision::More`].
    pub more: u64,
    /// [`Decision::Drop`].
    pub drop: u64,
    /// [`Decision::Block`].
    pub block: u64,
    /// [`Decision::Reject`].
    pub reject: u64,
}

/// Flows by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Only a SYN was seen.
    pub opening: u64,
    /// Begun in their middle, and confirmed by nobody.
    pub unconfirmed: u64,
    /// Open, and not yet decided.
    pub undecided: u64,
    /// Let pass.
    pub passed: u64,
    /// Blocked.
    pub blocked: u64,
    /// Closed or reset.
    pub closed: u64,
}

impl FlowCounts {
    pub(super) const fn of(&mut self, class: FlowClass) -> &mut u64 {
        match class {
            FlowClass::Opening => &mut self.opening,
            FlowClass::Unconfirmed => &mut self.unconfirmed,
            FlowClass::Undecided => &mut self.undecided,
            FlowClass::Passed => &mut self.passed,
            FlowClass::Blocked => &mut self.blocked,
            FlowClass::Closed => &mut self.closed,
        }
    }
}

impl EngineCounters {
    /// Banners read (identifications, heads of messages, greetings), by protocol and sender.
    pub fn banners(&self, protocol: Protocol, from: Side) -> u64 {
        let [client, server] = self.banners[protocol.index()];
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }

    /// Returns the number of times that an anomaly was seen. There are fewer events about it: one for each
    /// flow.
    pub fn anomalies(&self, anomaly: Anomaly) -> u64 {
        self.anomalies.0.get(anomaly as usize).copied().unwrap_or_default()
    }

    pub(super) fn count_refusal(&mut self, policy: &str) {
        match self.refusals.get_mut(policy) {
            Some(count) => *count += 1,
            None => _ = self.refusals.insert(policy.to_owned(), 1),
        }
    }

    pub(super) fn count_blocked(&mut self, rejected: bool) {
        *(if rejected { &mut self.flows_rejected } else { &mut self.flows_dropped }) += 1;
    }

    pub(super) fn count_banner(&mut self, protocol: Protocol, from: Side) {
        let row = &mut self.banners[protocol.index()];
        row[usize::from(from == Side::Server)] += 1;
    }

    pub(super) fn count_anomaly(&mut self, anomaly: Anomaly) {
        self.anomalies.0[anomaly as usize] += 1;
    }

    pub(super) fn count_decision(&mut self, decision: &Decision) {
        let counts = &mut self.decisions;
        let counter = match decision {
            Decision::Undecided
            | Decision::Release
            | Decision::Stand
            | Decision::Keep
            | Decision::Regain
            | Decision::Patch(_) => &mut counts.undecided,
            Decision::Pass => &mut counts.pass,
            Decision::More { .. } => &mut counts.more,
            Decision::Drop => &mut counts.drop,
            Decision::Block => &mut counts.block,
            Decision::Reject(_) => &mut counts.reject,
        };
        *counter += 1;
    }
}
