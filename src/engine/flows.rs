//! Room for flows: when the table is full, what gives way, and what the forgotten still owe.

use super::conversation::Conversation;
use super::judge::FlowFacts;
use super::{Checksums, Engine, OnFailure, PacketInput, SPARE_CONVERSATIONS};
use crate::event::{DropReason, EventSink, Timestamp};
use crate::flow::{Anomaly, AnomalySet, Class, End, FlowId, FullTable, Key, Tracking, Verdict};

/// What gives way to a new flow, first to last. Flows that nobody waits for come first: a flow that
/// was let pass is only looked at once more when it goes on, and a SYN without an answer is picked up
/// with its first data. A blocked flow gives way last: what is left of its banner could come again.
const GIVES_WAY: [Class; 6] =
    [Class::Closed, Class::Unconfirmed, Class::Passed, Class::Opening, Class::Undecided, Class::Blocked];

/// What part of the table flows may take that nobody has answered or confirmed, in each class of them:
/// more of them displace each other, and nobody else.
const UNCONFIRMED_SHARE: usize = 8;

/// How many of the flows that were seen longest ago are compared for one that has to give way.
const COMPARED: usize = 64;

impl Engine {
    /// A new flow, if need be in the place of another.
    pub(super) fn begin(
        &mut self,
        key: Key,
        client: End,
        class: Class,
        now: Timestamp,
        sink: &mut dyn EventSink,
    ) -> Result<FlowId, FullTable> {
        if self.tracking == Tracking::Inline {
            self.keep_to_share(class, now, sink);
        }
        if self.flows.is_full() {
            self.make_room(now, sink);
        }
        let id = self.flows.insert(key, client, now)?;
        self.flows.set_class(id, class, now);
        self.counters.flows += 1;
        Ok(id)
    }

    /// Forgets the oldest flow of a class that any packet gets into, when it has all the room it may have.
    fn keep_to_share(&mut self, class: Class, now: Timestamp, sink: &mut dyn EventSink) {
        let share = (self.flows.limit() / UNCONFIRMED_SHARE).max(1);
        if self.flows.count(class) >= share
            && let Some(id) = self.flows.oldest(class)
        {
            *self.counters.evictions.of(class) += 1;
            self.forget(id, now, sink);
        }
    }

    fn make_room(&mut self, now: Timestamp, sink: &mut dyn EventSink) {
        for class in GIVES_WAY {
            // Where failing closed is asked for nothing gives way that stands within a banner.
            let candidate = match (class, self.config.on_failure) {
                (Class::Undecided, OnFailure::Closed) => {
                    self.flows.by_age(class).take(COMPARED).find(|id| !self.is_amid(*id))
                }
                _ => self.flows.oldest(class),
            };
            if let Some(id) = candidate {
                *self.counters.evictions.of(class) += 1;
                self.forget(id, now, sink);
                return;
            }
        }
    }

    fn is_amid(&self, id: FlowId) -> bool {
        self.flows.get(id).conversation.as_ref().is_some_and(|it| it.amid_since().is_some())
    }

    /// Brings the buffers of all flows together below their limit: flows that nobody has confirmed give
    /// theirs first, then whoever holds most of those that were silent for longest. False where that is
    /// `current`.
    pub(super) fn relieve(&mut self, current: FlowId, now: Timestamp, sink: &mut dyn EventSink) -> bool {
        while self.counters.buffered_now > self.config.buffer_limit {
            let strangers = self.flows.by_age(Class::Unconfirmed).take(COMPARED);
            let stranger = strangers.chain(self.flows.by_age(Class::Opening).take(COMPARED));
            let stranger = stranger.filter(|id| *id != current).find(|id| self.held(*id) > 0);
            if let Some(id) = stranger {
                self.counters.no_room += 1;
                self.forget(id, now, sink);
                continue;
            }
            let idle =
                self.flows.by_age(Class::Undecided).chain(self.flows.by_age(Class::Closed)).take(COMPARED);
            let Some(id) = idle.chain([current]).max_by_key(|id| self.held(*id)) else { return false };
            if id == current {
                return false;
            }
            self.counters.no_room += 1;
            if !self.is_amid(id) {
                // It is picked up again should it go on, and nothing is lost.
                self.forget(id, now, sink);
                continue;
            }
            let closed = self.config.on_failure == OnFailure::Closed;
            let verdict = if closed { Verdict::Blocked } else { Verdict::Passed };
            self.decide_silent(id, verdict, DropReason::FlowMemcap, now, sink);
        }
        true
    }

    /// Octets of buffers that a flow holds.
    fn held(&self, id: FlowId) -> usize {
        self.flows.get(id).conversation.as_ref().map_or(0, |conversation| conversation.accounted)
    }

    /// Decides a flow none of whose packets is at hand.
    fn decide_silent(
        &mut self,
        id: FlowId,
        verdict: Verdict,
        reason: DropReason,
        now: Timestamp,
        sink: &mut dyn EventSink,
    ) {
        let flow = self.flows.get_mut(id);
        let reset = flow.is_closed();
        let facts = FlowFacts { id: flow.id(), endpoints: flow.endpoints() };
        flow.verdict = verdict;
        let mut reported = flow.reported;
        let conversation = flow.conversation.take();
        let packet = nothing(now);
        let mut judge = self.judge(facts, None, None, &packet, sink);
        if reason != DropReason::FlowMemcap && !reset {
            let mut anomalies = AnomalySet::default();
            anomalies.insert(Anomaly::BudgetSpent);
            judge.note(anomalies, &mut reported);
        }
        if verdict == Verdict::Blocked && !reset {
            judge.tell_drop(reason, None, false);
        }
        self.flows.get_mut(id).reported = reported;
        if let Some(conversation) = conversation {
            self.close(conversation, facts, now, sink);
        }
        let class = if verdict == Verdict::Blocked { Class::Blocked } else { Class::Passed };
        self.flows.set_class(id, class, now);
    }

    /// Notes that a flow stands within a banner, so that [`Engine::end_the_late`] finds it.
    pub(super) fn watch(&mut self, id: FlowId) {
        if !self.config.enforce {
            return;
        }
        let flow = self.flows.get_mut(id);
        let started = flow.started();
        let Some(conversation) = &mut flow.conversation else { return };
        let Some(since) = conversation.amid_since().filter(|_| !conversation.watched) else { return };
        conversation.watched = true;
        self.watched.push_back((since.after(self.config.time_budget), id, started));
        if self.watched.len() > 2 * self.flows.limit() {
            let flows = &self.flows;
            self.watched.retain(|(_, id, started)| {
                let flow = flows.get(*id);
                flow.started() == *started && flow.conversation.is_some()
            });
        }
    }

    /// Ends flows whose banners were not whole in time, whether or not anything more of them comes.
    pub(super) fn end_the_late(&mut self, now: Timestamp, sink: &mut dyn EventSink) {
        while self.watched.front().is_some_and(|(due, ..)| *due < now)
            && let Some((_, id, started)) = self.watched.pop_front()
        {
            let flow = self.flows.get_mut(id);
            // Another flow may have taken its place.
            let same = flow.started() == started;
            let Some(conversation) = flow.conversation.as_mut().filter(|_| same) else { continue };
            conversation.watched = false;
            match conversation.amid_since() {
                Some(since) if now.since(since) > self.config.time_budget => {
                    self.counters.budget_spent += 1;
                    let drops = self.config.on_anomaly.drops(Anomaly::BudgetSpent);
                    let verdict = if drops { Verdict::Blocked } else { Verdict::Passed };
                    self.decide_silent(id, verdict, Anomaly::BudgetSpent.drop_reason(), now, sink);
                }
                _ => self.watch(id),
            }
        }
    }

    /// Forgets a flow and tells what it still owed.
    pub(super) fn forget(&mut self, id: FlowId, now: Timestamp, sink: &mut dyn EventSink) {
        let flow = self.flows.get(id);
        let facts =
            flow.conversation.is_some().then(|| FlowFacts { id: flow.id(), endpoints: flow.endpoints() });
        let conversation = self.flows.remove(id);
        if let (Some(conversation), Some(facts)) = (conversation, facts) {
            self.close(conversation, facts, now, sink);
        }
    }

    /// Ends a conversation: tells what it still owed and keeps its buffers for another.
    fn close(
        &mut self,
        mut conversation: Box<Conversation>,
        flow: FlowFacts,
        now: Timestamp,
        sink: &mut dyn EventSink,
    ) {
        let packet = nothing(now);
        let mut judge = self.judge(flow, None, None, &packet, sink);
        judge.told = std::mem::take(&mut conversation.told);
        conversation.close(&mut judge);
        self.recycle(conversation);
    }

    /// Keeps a conversation's buffers for another flow.
    pub(super) fn recycle(&mut self, mut conversation: Box<Conversation>) {
        self.counters.buffered_now -= conversation.accounted;
        if self.spare.len() < SPARE_CONVERSATIONS && conversation.recycle() {
            self.spare.push(conversation);
        }
    }

    /// Brings the present values among the counters up to date.
    pub(super) fn refresh(&mut self) {
        for class in Class::ALL {
            *self.counters.flows_now.of(class) = self.flows.count(class) as u64;
        }
    }
}

/// No packet: something happens because time goes by.
const fn nothing(now: Timestamp) -> PacketInput<'static> {
    PacketInput {
        now,
        ip: &[],
        wire_length: 0,
        checksums: Checksums::NotReady,
        interface: None,
        vlan: &[],
        packet_number: None,
    }
}
