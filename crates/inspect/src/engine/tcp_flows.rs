//! Room for flows: when the table is full, what gives way, and what the forgotten still owe.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::time::Duration;

use super::blocked_keys::BlockedKeys;
use super::config::OnFailure;
use super::context::{EngineSettings, InspectionSession};
use super::counters::EngineCounters;
use super::decision::PacketInput;
use super::flow_accounts::{FlowAccounts, RecordContext, UnassignedSyns};
use super::flow_facts::FlowFacts;
use super::outcome::FlowNotes;
use super::undecided_flow::UndecidedFlow;
use crate::event::{DropReason, Event, EventKind, FlowContext, FlowEnd, FlowRecord, Timestamp};
use crate::flow::{
    Anomaly, AnomalySet, Flow, FlowClass, FlowDecision, FlowId, FlowKey, FlowTable, FullTable, KeyEnd,
    TrackingMode,
};

/// Classes in the order of their eviction for a new flow. Flows that no peer waits for come first: a passed
/// flow is only inspected again when it continues, and a SYN without an answer is picked up with its first
/// data. The verdict of a blocked flow needs no entry.
const GIVES_WAY: [FlowClass; 6] = [
    FlowClass::Closed,
    FlowClass::Unconfirmed,
    FlowClass::Passed,
    FlowClass::Opening,
    FlowClass::Blocked,
    FlowClass::Undecided,
];

/// The part of the table for unanswered and unconfirmed flows, for each of their classes. Beyond it they
/// evict only each other.
const UNCONFIRMED_SHARE: usize = 8;

/// Number of the oldest flows that are compared when one must be evicted.
const COMPARED: usize = 64;

/// Number of flows in the middle of a banner that are skipped at once when one must be evicted.
const PASSED_OVER: usize = 256;

/// Time in which flows may show that packets passed uninspected: their ends send lost data again within it
/// (RFC 6298 section 2.4 has a minute as the least upper bound of a retransmission timer).
pub(super) const MISSED_SHOWS: Duration = Duration::from_secs(120);

/// Conversations that are kept for the next flows instead of being freed.
const SPARE_CONVERSATIONS: usize = 256;

/// The flows, and who of them is looked at again though nothing comes.
#[derive(Debug)]
pub(super) struct TcpFlows {
    pub(super) table: FlowTable<UndecidedFlow>,
    /// Times at which flows in the middle of a banner are checked again, the soonest first, each with the
    /// flow's start.
    watched: VecDeque<(Timestamp, FlowId, Timestamp)>,
    pub(super) accounts: FlowAccounts,
    pub(super) silent: SilentFlows,
    blocked_keys: BlockedKeys,
    pub(super) spare: SpareConversations,
    /// Time at which packets passed uninspected, or were found to have passed.
    missed: Option<Timestamp>,
}

impl TcpFlows {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            table: FlowTable::new(limit),
            watched: VecDeque::new(),
            accounts: FlowAccounts::default(),
            silent: SilentFlows::default(),
            blocked_keys: BlockedKeys::new(limit),
            spare: SpareConversations::default(),
            missed: None,
        }
    }

    /// Takes note that packets have gone by lately that were not shown.
    pub(super) const fn note_missed(&mut self, now: Timestamp) {
        self.missed = Some(now);
    }

    /// True if packets of a flow may have gone by unseen.
    pub(super) fn may_have_missed(&self, id: FlowId, now: Timestamp) -> bool {
        let started = self.table.get(id).started();
        self.missed.is_some_and(|missed| started <= missed && now.since(missed) <= MISSED_SHOWS)
    }

    /// A new flow, if need be in the place of another.
    pub(super) fn begin(
        &mut self,
        (key, client): (FlowKey, KeyEnd),
        class: FlowClass,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) -> Result<FlowId, FullTable> {
        let id = self.place((key, client), class, now, session)?;
        session.shared.counters.flows += 1;
        self.watch_for_silence(id, now, session.settings);
        Ok(id)
    }

    /// Gives a place to a flow of which only the verdict was kept: it stays blocked until the answer to a SYN
    /// shows that its ports are those of another connection.
    pub(super) fn restore_blocked(
        &mut self,
        opener: (FlowKey, KeyEnd),
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) -> Option<FlowId> {
        let (key, _) = opener;
        if !self.blocked_keys.take(&key) {
            return None;
        }
        let Ok(id) = self.place(opener, FlowClass::Closed, now, session) else {
            // Without a place the key must stay known, or the flow would pass from now on.
            self.blocked_keys.insert(key);
            return None;
        };
        let flow = self.table.get_mut(id);
        flow.ruling = FlowDecision::Blocked;
        if session.settings.config.flow_events {
            self.accounts.set_reported(id, self.table.get(id));
        }
        Some(id)
    }

    fn place(
        &mut self,
        (key, client): (FlowKey, KeyEnd),
        class: FlowClass,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) -> Result<FlowId, FullTable> {
        // A capture has an end, and dropping flows of it early would only lose events.
        if session.settings.tracking == TrackingMode::Inline {
            self.limit_class(class, now, session);
        }
        if self.table.is_full() {
            self.make_room(now, session);
        }
        let id = self.table.insert(key, client, now)?;
        self.table.set_class(id, class, now);
        Ok(id)
    }

    /// Forgets the oldest flow of a class that any packet gets into, when it has all the room it may have.
    fn limit_class(&mut self, class: FlowClass, now: Timestamp, session: &mut InspectionSession<'_>) {
        let share = (self.table.limit() / UNCONFIRMED_SHARE).max(1);
        if self.table.count(class) >= share
            && let Some(id) = self.table.oldest(class)
        {
            *session.shared.counters.evictions.of(class) += 1;
            self.forget(id, FlowEnd::Forced, now, session);
        }
    }

    fn make_room(&mut self, now: Timestamp, session: &mut InspectionSession<'_>) {
        for class in GIVES_WAY {
            // Under `--on-failure closed` no flow is evicted in the middle of a banner.
            let candidate = match (class, session.settings.config.on_failure) {
                (FlowClass::Undecided, OnFailure::Closed) => self.oldest_idle(),
                _ => self.table.oldest(class),
            };
            // One place is enough: each new flow comes here.
            if let Some(id) = candidate {
                *session.shared.counters.evictions.of(class) += 1;
                self.forget(id, FlowEnd::Forced, now, session);
                return;
            }
        }
    }

    /// The undecided flow that was seen longest ago, of those that stand within no banner: nobody has said
    /// anything in most of them, such as the halves of handshakes that a flood leaves behind.
    ///
    /// Those that were passed over are not looked at again before all others: whoever keeps a few banners
    /// waiting, and lets nobody else's flows give way by that, would have a table that floods fill for as
    /// long as those may take.
    fn oldest_idle(&mut self) -> Option<FlowId> {
        for _ in 0..PASSED_OVER {
            let id = self.table.oldest(FlowClass::Undecided)?;
            if !self.is_amid(id) {
                return Some(id);
            }
            self.table.put_off(id);
        }
        None
    }

    fn is_amid(&self, id: FlowId) -> bool {
        is_amid(self.table.get(id))
    }

    /// Brings the buffers of all flows together below their limit: flows that are closed or that nobody has
    /// confirmed give theirs first, then whoever holds most of those that were silent for longest. False
    /// where that is `current`.
    pub(super) fn reclaim_buffers(
        &mut self,
        current: FlowId,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) -> bool {
        while session.shared.counters.buffered_now > session.settings.config.buffer_limit {
            // Limited, because this runs for a single packet: flows are compared only as long as that is
            // cheap.
            let closed = self.table.by_age(FlowClass::Closed).take(COMPARED);
            let strangers = closed.chain(self.table.by_age(FlowClass::Unconfirmed).take(COMPARED));
            let stranger = strangers.chain(self.table.by_age(FlowClass::Opening).take(COMPARED));
            let stranger = stranger.filter(|id| *id != current).find(|id| self.held(*id) > 0);
            if let Some(id) = stranger {
                session.shared.counters.no_room += 1;
                self.forget(id, FlowEnd::Forced, now, session);
                continue;
            }
            let idle = self.table.by_age(FlowClass::Undecided).take(COMPARED);
            let Some(id) = idle.chain([current]).max_by_key(|id| self.held(*id)) else { return false };
            if id == current {
                return false;
            }
            session.shared.counters.no_room += 1;
            // Its next segment picks it up again, and no banner is lost.
            if !self.is_amid(id) {
                // It is picked up again should it go on, and nothing is lost.
                self.forget(id, FlowEnd::Forced, now, session);
                continue;
            }
            let closed = session.settings.config.on_failure == OnFailure::Closed;
            let ruling = if closed { FlowDecision::Blocked } else { FlowDecision::Passed };
            self.decide_silent(id, ruling, DropReason::FlowMemcap, now, session);
        }
        true
    }

    /// Bytes of buffers that a flow holds.
    fn held(&self, id: FlowId) -> usize {
        self.table.get(id).conversation.as_ref().map_or(0, |conversation| conversation.accounted)
    }

    /// Decides a flow none of whose packets is at hand.
    fn decide_silent(
        &mut self,
        id: FlowId,
        ruling: FlowDecision,
        reason: DropReason,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) {
        let (mut ruling, mut reason) = (ruling, reason);
        let flow = self.table.get_mut(id);
        let reset = flow.is_closed();
        let packet = PacketInput::none(now);
        let mut judge = session.reborrow().new_inspector(FlowFacts::from(&*flow), None, None, &packet);
        if reason != DropReason::FlowMemcap && !reset {
            judge.report_anomalies(AnomalySet::of(Anomaly::BudgetSpent), &mut flow.reported);
        }
        // A flow that has not shown yet that its policy allows it must not pass for lack of time or memory.
        if ruling == FlowDecision::Passed
            && let Some(conversation) = &mut flow.conversation
            && conversation.admission.refuse(&mut judge)
            && judge.enforces()
            && judge.outcome.stop.is_some()
        {
            (ruling, reason) = (FlowDecision::Blocked, DropReason::Policy);
        }
        flow.ruling = ruling;
        if ruling == FlowDecision::Blocked && !reset {
            judge.emit_drop(reason, None, false);
            judge.shared.counters.count_blocked(false);
        }
        if let Some(mut conversation) = flow.conversation.take() {
            conversation.close(&mut judge);
            self.spare.recycle_buffers(conversation, &mut judge.shared.counters);
        }
        let notes = judge.outcome.notes;
        self.observe(id, notes, session.settings);
        let class = match ruling {
            _ if reset => FlowClass::Closed,
            FlowDecision::Blocked => FlowClass::Blocked,
            _ => FlowClass::Passed,
        };
        self.table.set_class(id, class, now);
    }

    /// Notes that a flow stands within a banner, so that [`TcpFlows::end_overdue_banners`] finds it.
    pub(super) fn watch_for_timeout(&mut self, id: FlowId, settings: &EngineSettings) {
        let flow = self.table.get_mut(id);
        if !settings.enforces(flow.key()) {
            return;
        }
        let started = flow.started();
        let Some(conversation) = &mut flow.conversation else { return };
        // One entry a flow: it looks again when it is due, and is renewed then.
        let Some(since) = conversation.unfinished_since().filter(|_| !conversation.watched) else { return };
        conversation.watched = true;
        self.watched.push_back((since.after(settings.config.time_budget), id, started));
        // Entries of flows that were decided stay until they are due. A flood of short flows would grow the
        // list.
        if self.watched.len() > 2 * self.table.limit() {
            let table = &self.table;
            self.watched.retain(|(_, id, started)| {
                let flow = table.get(*id);
                flow.started() == *started && flow.conversation.is_some()
            });
        }
    }

    /// Ends flows whose banners were not whole in time, whether or not anything more of them comes.
    pub(super) fn end_overdue_banners(&mut self, now: Timestamp, session: &mut InspectionSession<'_>) {
        while self.watched.front().is_some_and(|(due, ..)| *due < now)
            && let Some((_, id, started)) = self.watched.pop_front()
        {
            let flow = self.table.get_mut(id);
            // Another flow may have taken its place.
            let same = flow.started() == started;
            let Some(conversation) = flow.conversation.as_mut().filter(|_| same) else { continue };
            conversation.watched = false;
            let config = &session.settings.config;
            match conversation.unfinished_since() {
                Some(since) if now.since(since) > config.time_budget => {
                    session.shared.counters.budget_spent += 1;
                    let drops = config.on_anomaly.drops(Anomaly::BudgetSpent);
                    let ruling = if drops { FlowDecision::Blocked } else { FlowDecision::Passed };
                    self.decide_silent(id, ruling, Anomaly::BudgetSpent.drop_reason(), now, session);
                }
                _ => self.watch_for_timeout(id, session.settings),
            }
        }
    }

    /// Forgets a flow and tells what it still owed.
    pub(super) fn forget(
        &mut self,
        id: FlowId,
        end: FlowEnd,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) {
        let flow = self.table.get_mut(id);
        // Before the place is free: no packet of this flow may find it unknown.
        if stays_blocked(flow, session.settings) {
            self.blocked_keys.insert(*flow.key());
        }
        let facts = FlowFacts::from(&*flow);
        if let Some(mut conversation) = flow.conversation.take() {
            let packet = PacketInput::none(now);
            let mut judge = session.reborrow().new_inspector(facts, None, None, &packet);
            conversation.close(&mut judge);
            let notes = judge.outcome.notes;
            self.spare.recycle_buffers(conversation, &mut session.shared.counters);
            self.observe(id, notes, session.settings);
        }
        let terms = RecordContext { end, hands_over: session.settings.config.hands_over };
        let record = match session.settings.config.flow_events {
            true => self.accounts.close(id, self.table.get(id), terms),
            false => None,
        };
        self.table.remove(id);
        if let Some(record) = record {
            emit_record(facts, record, now, session);
        }
    }

    /// Adds what judging led to for the record of a flow, where records are kept.
    pub(super) fn observe(&mut self, id: FlowId, notes: FlowNotes, settings: &EngineSettings) {
        if settings.config.flow_events {
            self.accounts.observe(id, self.table.get(id), notes);
        }
    }

    /// Tells of a flow that was blocked, with all that came of it until then.
    pub(super) fn report_stopped(&mut self, id: FlowId, now: Timestamp, session: &mut InspectionSession<'_>) {
        let flow = self.table.get(id);
        if !self.accounts.is_told(id, flow) {
            let terms =
                RecordContext { end: FlowEnd::Stopped, hands_over: session.settings.config.hands_over };
            let record = self.accounts.record(id, flow, terms);
            emit_record(FlowFacts::from(flow), record, now, session);
        }
    }

    /// Tells of a flow whose ends begin another one with the same ports; what of it is that one's.
    pub(super) fn report_reused(
        &mut self,
        id: FlowId,
        now: Timestamp,
        session: &mut InspectionSession<'_>,
    ) -> Option<UnassignedSyns> {
        if !session.settings.config.flow_events {
            return None;
        }
        let flow = self.table.get(id);
        let terms = RecordContext { end: FlowEnd::Reused, hands_over: session.settings.config.hands_over };
        let (record, reopened) = self.accounts.reopen(id, flow, terms);
        if let Some(record) = record {
            emit_record(FlowFacts::from(flow), record, now, session);
        }
        Some(reopened)
    }

    /// Brings the present values among the counters up to date.
    pub(super) fn refresh(&self, counters: &mut EngineCounters) {
        for class in FlowClass::ALL {
            *counters.flows_now.of(class) = self.table.count(class) as u64;
        }
    }
}

/// Tells of a flow at its end.
pub(super) fn emit_record(
    facts: FlowFacts,
    record: FlowRecord,
    now: Timestamp,
    session: &mut InspectionSession<'_>,
) {
    let flow = FlowContext {
        id: facts.id(),
        transport: facts.transport(),
        endpoints: facts.endpoints(),
        from: None,
        interface: None,
        vlan: Vec::new(),
        packet_number: None,
        transaction: None,
        protocol: record.protocol,
        established: Some(facts.is_established()),
        midstream: facts.is_midstream(),
    };
    let (source, kind) = (session.settings.config.source, EventKind::Flow(Box::new(record)));
    session.sink.emit(Event { timestamp: now, source, flow: Some(flow), kind });
}

/// True if nothing more of a flow may pass once it is forgotten: it is blocked, or its end rests on the word
/// of one end.
fn stays_blocked(flow: &Flow<UndecidedFlow>, settings: &EngineSettings) -> bool {
    let open_yet = flow.is_closed() && !flow.is_over() && flow.is_supported();
    let enforces = settings.enforces(flow.key()) && settings.tracking == TrackingMode::Inline;
    flow.ruling.blocks() || enforces && flow.ruling == FlowDecision::Undecided && open_yet
}

/// True if a flow stands within a banner.
pub(super) fn is_amid(flow: &Flow<UndecidedFlow>) -> bool {
    flow.conversation.as_ref().is_some_and(|conversation| conversation.unfinished_since().is_some())
}

/// Conversations that have ended, with their buffers, for flows that begin.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "flows take and give the boxes themselves")]
pub(super) struct SpareConversations(Vec<Box<UndecidedFlow>>);

impl SpareConversations {
    /// One for a flow that begins to speak.
    pub(super) fn take(&mut self) -> Box<UndecidedFlow> {
        self.0.pop().unwrap_or_default()
    }

    /// Takes the buffers of a conversation that has ended, for another flow.
    pub(super) fn recycle_buffers(
        &mut self,
        mut conversation: Box<UndecidedFlow>,
        counters: &mut EngineCounters,
    ) {
        counters.buffered_now -= conversation.accounted;
        if self.0.len() < SPARE_CONVERSATIONS && conversation.recycle() {
            self.0.push(conversation);
        }
    }
}

/// Times at which flows under a policy with a time limit are checked again, the soonest first, each with the
/// flow's start.
#[derive(Debug, Default)]
pub(super) struct SilentFlows(pub(super) BinaryHeap<Reverse<(Timestamp, FlowId, Timestamp)>>);
