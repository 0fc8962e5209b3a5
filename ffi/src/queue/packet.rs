//! One queued packet, which must be answered.

use super::netlink_message::PacketMessage;
use super::outgoing_messages::OutgoingMessages;
use super::{ConnectionMark, QueueCounters, Verdict};

/// A packet that waits for its verdict.
///
/// [`Packet::verdict`] consumes it. A packet that is dropped gets the queue's failure verdict. So it
/// never stays in the kernel on any path through a program, not even after a panic.
#[derive(Debug)]
#[must_use = "a packet without a verdict gets the failure verdict"]
pub struct Packet<'batch> {
    pub(super) message: PacketMessage<'batch>,
    pub(super) pending: PendingVerdict<'batch>,
}

impl<'batch> Packet<'batch> {
    /// The kernel's description of it.
    pub fn message(&self) -> &PacketMessage<'batch> {
        &self.message
    }

    /// The packet from its IP header on, cut at the copy range.
    ///
    /// The bytes are in the queue's receive buffer and live as long as the batch.
    pub fn payload(&self) -> &[u8] {
        self.message.payload
    }

    /// Answers it. `mark` replaces the packet's whole mark, `connection` bits of its connection's mark.
    /// Kernels ignore the latter if [`Queue::marks_connections`](super::Queue::marks_connections) is
    /// false.
    pub fn verdict(self, verdict: Verdict, mark: Option<u32>, connection: Option<ConnectionMark>) {
        let Self { mut pending, .. } = self;
        pending.answer(verdict, mark, connection);
    }

    /// Answers it with other bytes, from the IP header on, with complete checksums.
    ///
    /// It gets the failure verdict if the bytes are more than
    /// [`MAXIMUM_COPY_RANGE`](super::MAXIMUM_COPY_RANGE).
    pub fn replace(self, verdict: Verdict, mark: Option<u32>, octets: &[u8]) {
        let Self { mut pending, .. } = self;
        pending.answered = pending.outgoing.push_replacement(pending.id, verdict, mark, octets);
    }
}

/// The verdict that a packet still needs.
#[derive(Debug)]
pub(super) struct PendingVerdict<'batch> {
    id: u32,
    outgoing: &'batch mut OutgoingMessages,
    counters: &'batch mut QueueCounters,
    failure: Verdict,
    answered: bool,
}

impl<'batch> PendingVerdict<'batch> {
    pub(super) fn new(
        id: u32,
        outgoing: &'batch mut OutgoingMessages,
        counters: &'batch mut QueueCounters,
        failure: Verdict,
    ) -> Self {
        Self { id, outgoing, counters, failure, answered: false }
    }

    fn answer(&mut self, verdict: Verdict, mark: Option<u32>, connection: Option<ConnectionMark>) {
        // The batch reserved the space before it returned the packet.
        self.answered = self.outgoing.push_verdict(self.id, verdict, mark, connection);
        debug_assert!(self.answered, "a packet was handed out without room for its verdict");
    }
}

impl Drop for PendingVerdict<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.counters.unanswered += 1;
            self.answer(self.failure, None, None);
        }
    }
}
