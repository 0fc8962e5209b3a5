//! Room for flows: when the table is full, what gives way, and what the forgotten still owe.

use super::conversation::Conversation;
use super::judge::FlowFacts;
use super::{Checksums, Engine, OnFailure, PacketInput, SPARE_CONVERSATIONS};
use crate::event::{EventSink, Timestamp};
use crate::flow::{Class, End, FlowId, FullTable, Key};

/// What gives way to a new flow, first to last. Flows that nobody waits for come first: a flow that
/// was let pass is only looked at once more when it goes on, and a SYN without an answer is picked up
/// with its first data.
const GIVES_WAY: [Class; 5] =
    [Class::Closed, Class::Passed, Class::Opening, Class::Undecided, Class::Blocked];

/// How many of those may give way where failing closed is asked for: nothing that is being inspected
/// or was blocked.
const GIVES_WAY_CLOSED: usize = 3;

impl Engine {
    /// A new flow, if need be in the place of another.
    pub(super) fn begin(
        &mut self,
        key: Key,
        client: End,
        now: Timestamp,
        sink: &mut dyn EventSink,
    ) -> Result<FlowId, FullTable> {
        if self.flows.is_full() {
            self.make_room(now, sink);
        }
        let id = self.flows.insert(key, client, now)?;
        self.counters.flows += 1;
        Ok(id)
    }

    fn make_room(&mut self, now: Timestamp, sink: &mut dyn EventSink) {
        let classes = match self.config.on_failure {
            OnFailure::Open => GIVES_WAY.len(),
            OnFailure::Closed => GIVES_WAY_CLOSED,
        };
        for class in GIVES_WAY.into_iter().take(classes) {
            if let Some(id) = self.flows.oldest(class) {
                *self.counters.evictions.of(class) += 1;
                self.forget(id, now, sink);
                return;
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
        let packet = PacketInput {
            now,
            ip: &[],
            wire_length: 0,
            checksums: Checksums::NotReady,
            interface: None,
            vlan: &[],
            packet_number: None,
        };
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
