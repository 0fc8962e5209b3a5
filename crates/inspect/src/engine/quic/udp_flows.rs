//! The table of UDP flows: which flows are evicted for others, and which expire.

use super::association::QuicAssociation;
use super::flow_datagram::FlowDatagram;
use crate::engine::banner_inspector::BannerInspector;
use crate::engine::config::{EngineConfig, OnFailure};
use crate::engine::context::{EngineContext, InspectionSession, SharedState};
use crate::engine::counters::EngineCounters;
use crate::engine::decision::{Decision, InspectionResult, PacketInput};
use crate::engine::flow_facts::FlowFacts;
use crate::event::{DropReason, FlowEnd, Side, Timestamp};
use crate::flow::{Anomaly, AnomalySet, Flow, FlowClass, FlowDecision, FlowId, FlowKey, FlowTable};

/// TCP's flows have this many times the room of UDP's.
const SHARE: usize = 4;

/// Number of the oldest flows among which one with buffers is searched.
const COMPARED: usize = 64;

/// Classes in the order of their eviction for a new flow: first unanswered flows, then flows that are
/// inspected again if they continue, at last incomplete hellos and blocked flows.
const EVICTION_ORDER: [FlowClass; 4] =
    [FlowClass::Unconfirmed, FlowClass::Passed, FlowClass::Undecided, FlowClass::Blocked];

/// Classes that are evicted under `closed`: a flow in the middle of a hello is not.
const EVICTION_ORDER_CLOSED: [FlowClass; 1] = [FlowClass::Passed];

/// The classes of UDP flows.
const CLASSES: [FlowClass; 4] = EVICTION_ORDER;

/// Largest number of flows of a class that one tick removes.
const TICK_LIMIT: usize = 1 << 14;

/// The UDP flows.
#[derive(Debug)]
pub struct QuicFlows {
    pub(super) table: FlowTable<QuicAssociation>,
    pub(super) octet_limit: usize,
    /// Bytes that the flows hold.
    pub(super) held: usize,
    /// Buffer for decrypting packets.
    pub(super) room: Vec<u8>,
}

impl QuicFlows {
    /// Creates an empty table with a share of the limits for TCP's flows.
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            table: FlowTable::new((config.flow_limit / SHARE).max(1)),
            octet_limit: config.buffer_limit / SHARE,
            held: 0,
            room: Vec::new(),
        }
    }

    /// The flows.
    pub const fn table(&self) -> &FlowTable<QuicAssociation> {
        &self.table
    }

    /// The flows.
    pub const fn table_mut(&mut self) -> &mut FlowTable<QuicAssociation> {
        &mut self.table
    }

    pub(super) fn get(&self, id: FlowId) -> &Flow<QuicAssociation> {
        self.table.get(id)
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> &mut Flow<QuicAssociation> {
        self.table.get_mut(id)
    }

    pub(super) fn find(&self, key: &FlowKey) -> Option<FlowId> {
        self.table.find(key)
    }

    /// Adds a flow, and evicts another one if the table is full. Returns none if there is no room.
    pub(super) fn begin(
        &mut self,
        seen: FlowDatagram<'_>,
        session: &mut InspectionSession<'_>,
    ) -> Option<FlowId> {
        let now = seen.packet.now;
        if self.table.is_full() {
            let oldest = evictable_classes(session).iter().find_map(|class| self.table.oldest(*class))?;
            self.evict(oldest, now, session);
        }
        let id = self.table.insert(seen.key, seen.from, now).ok()?;
        session.shared.counters.udp_flows += 1;
        Some(id)
    }

    /// Evicts flows until their buffers are below the limit. Returns false if that is impossible.
    pub(super) fn has_octets(&mut self, now: Timestamp, session: &mut InspectionSession<'_>) -> bool {
        while self.held > self.octet_limit {
            let table = &self.table;
            // This excludes the current flow, whose association is taken out of the table.
            let holds = |id: &FlowId| table.get(*id).conversation.is_some();
            // Bounded for each class, because this runs for a packet.
            let mut oldest = evictable_classes(session)
                .iter()
                .filter_map(|class| table.by_age(*class).take(COMPARED).find(holds));
            let Some(oldest) = oldest.next() else { return false };
            self.evict(oldest, now, session);
        }
        true
    }

    fn evict(&mut self, id: FlowId, now: Timestamp, session: &mut InspectionSession<'_>) {
        *session.shared.counters.udp_evictions.of(self.get(id).class()) += 1;
        self.forget(id, FlowEnd::Forced, now, session);
    }

    /// Answers a datagram of a flow for which there is no room.
    pub(super) fn refuse_flow(
        facts: FlowFacts,
        seen: FlowDatagram<'_>,
        session: &mut InspectionSession<'_>,
    ) -> InspectionResult {
        session.shared.counters.no_room += 1;
        if session.settings.config.on_failure == OnFailure::Open {
            return Decision::Undecided.into();
        }
        new_inspector(session.reborrow(), facts, seen).emit_drop(DropReason::FlowMemcap, None, false);
        Decision::Drop.into()
    }

    /// Puts the association back into its flow.
    pub(super) fn put_back(
        &mut self,
        id: FlowId,
        mut association: Box<QuicAssociation>,
        shared: &mut SharedState,
    ) {
        let memory = association.memory();
        self.held = self.held - association.accounted + memory;
        association.accounted = memory;
        self.get_mut(id).conversation = Some(association);
        shared.counters.udp_buffered_now = self.held;
    }

    /// Removes flows that have been silent for too long, and those with hellos that stayed incomplete.
    pub fn tick(&mut self, now: Timestamp, session: &mut InspectionSession<'_>) {
        let config = &session.settings.config;
        for class in CLASSES {
            let timeout = QuicAssociation::timeout(class, &config.timeouts, config.time_budget);
            for _ in 0..TICK_LIMIT {
                let Some(id) = self.table.expired(class, timeout, now) else { break };
                if class != FlowClass::Undecided || !self.block_unfinished(id, now, session) {
                    self.forget(id, FlowEnd::Timeout, now, session);
                }
            }
        }
        self.refresh(&mut session.shared.counters);
    }

    /// Blocks a flow whose hello was not complete in time, if the configuration says so.
    fn block_unfinished(&mut self, id: FlowId, now: Timestamp, session: &mut InspectionSession<'_>) -> bool {
        let amid = self.get(id).conversation.as_ref().is_some_and(|association| association.is_amid());
        if !amid {
            // Its incomplete hello is blocked, and its server no longer waits for the rest.
            return false;
        }
        session.shared.counters.budget_spent += 1;
        let packet = PacketInput::none(now);
        let facts = self.facts_of(id);
        let mut judge = session.reborrow().new_inspector(facts, None, None, &packet);
        judge.report_anomalies(AnomalySet::of(Anomaly::BudgetSpent), &mut self.get_mut(id).reported);
        if !judge.enforces() || !judge.settings.config.on_anomaly.drops(Anomaly::BudgetSpent) {
            return false;
        }
        judge.emit_drop(Anomaly::BudgetSpent.drop_reason(), None, false);
        judge.shared.counters.count_blocked(false);
        self.get_mut(id).ruling = FlowDecision::Blocked;
        if let Some(mut association) = self.get_mut(id).conversation.take() {
            association.forget_hellos();
            association.notes.add(judge.outcome.notes);
            self.put_back(id, association, judge.shared);
        }
        self.set_class(id, FlowClass::Blocked, &packet);
        true
    }

    /// Removes every flow.
    pub fn finish(&mut self, now: Timestamp, session: &mut InspectionSession<'_>) {
        for class in CLASSES {
            while let Some(id) = self.table.oldest(class) {
                self.forget(id, FlowEnd::Shutdown, now, session);
            }
        }
        self.refresh(&mut session.shared.counters);
    }

    fn forget(&mut self, id: FlowId, end: FlowEnd, now: Timestamp, session: &mut InspectionSession<'_>) {
        let facts = self.facts_of(id);
        if session.settings.config.flow_events {
            self.emit_record(id, facts, end, now, session);
        }
        if let Some(association) = self.table.remove(id) {
            self.held -= association.accounted;
        }
    }

    pub(super) fn facts_of(&self, id: FlowId) -> FlowFacts {
        let flow = self.get(id);
        let client = flow.end(Side::Client);
        let client = flow.conversation.as_ref().map_or(client, |association| association.client(client));
        FlowFacts::of_datagrams(*flow.key(), flow.started(), client)
    }

    fn refresh(&self, counters: &mut EngineCounters) {
        for class in FlowClass::ALL {
            *counters.udp_flows_now.of(class) = self.table.count(class) as u64;
        }
        counters.udp_buffered_now = self.held;
    }

    /// Counts a datagram of a flow.
    pub(super) fn count(&mut self, id: FlowId, seen: FlowDatagram<'_>, context: &mut EngineContext) {
        context.shared.counters.datagrams += 1;
        if let Some(association) = &mut self.get_mut(id).conversation {
            association.volume(seen.from).add(seen.datagram.wire_length() as u64);
            association.last = seen.packet.now;
        }
    }

    pub(super) fn touch(&mut self, id: FlowId, packet: &PacketInput<'_>) -> &mut Flow<QuicAssociation> {
        self.table.touch(id, packet.now)
    }

    pub(super) fn set_class(&mut self, id: FlowId, class: FlowClass, packet: &PacketInput<'_>) {
        self.table.set_class(id, class, packet.now);
    }
}

/// Returns an inspector of a datagram's banners.
pub(super) fn new_inspector<'e>(
    session: InspectionSession<'e>,
    facts: FlowFacts,
    seen: FlowDatagram<'e>,
) -> BannerInspector<'e> {
    let endpoint = seen.key.endpoint(seen.from);
    let side = if facts.endpoints().client == endpoint { Side::Client } else { Side::Server };
    let mut judge = session.new_inspector(facts, Some(side), None, seen.packet);
    judge.datagram = Some(seen.datagram);
    judge
}

/// Returns the classes that may be evicted for a new flow.
const fn evictable_classes(session: &InspectionSession<'_>) -> &'static [FlowClass] {
    match session.settings.config.on_failure {
        OnFailure::Open => &EVICTION_ORDER,
        OnFailure::Closed => &EVICTION_ORDER_CLOSED,
    }
}
