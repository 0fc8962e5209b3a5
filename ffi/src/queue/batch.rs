//! The packets of one receive call, and their verdicts in one send.

use std::os::fd::OwnedFd;

use super::netlink_message::{AnswerMessage, AnswerSubject, MalformedMessage, QueueMessage, messages};
use super::outgoing_messages::OutgoingMessages;
use super::packet::PendingVerdict;
use super::{MAXIMUM_COPY_RANGE, Packet, Queue, QueueCounters, is_shortage, send_with_retry};
use crate::error::{CallError, QueueError};

/// Packets of one receive call.
///
/// Packets without an answer get the failure verdict at the end of the batch. Then all verdicts are sent.
#[derive(Debug)]
#[must_use = "the packets of a batch wait for their verdicts"]
pub struct PacketBatch<'queue> {
    queue: &'queue mut Queue,
    slot: usize,
    offset: usize,
    count: usize,
    failed: Option<QueueError>,
    done: bool,
}

impl<'queue> PacketBatch<'queue> {
    /// Returns the content of the first `count` slots of the queue.
    pub(super) const fn new(queue: &'queue mut Queue, count: usize) -> Self {
        Self { queue, slot: 0, offset: 0, count, failed: None, done: false }
    }

    /// Returns the next packet that waits for a verdict.
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        let Queue { socket, slots, outgoing, counters, failure, last_packet, is_lost, .. } = &mut *self.queue;
        // Verdicts may carry whole packets, so the buffer can fill up within a batch.
        if !outgoing.has_room()
            && let Err(error) = flush(socket, outgoing, counters)
        {
            self.failed.get_or_insert(error.into());
        }
        while self.slot < self.count {
            let (datagram, cut) = slots.datagram(self.slot)?;
            let mut unread = messages(datagram.get(self.offset..).unwrap_or_default());
            let Some(message) = unread.next() else {
                self.slot += 1;
                self.offset = 0;
                continue;
            };
            // A datagram carries one packet, so most often this was all of it.
            (self.slot, self.offset) = match unread.remaining() {
                0 => (self.slot + 1, 0),
                rest => (self.slot, datagram.len() - rest),
            };
            match message {
                Ok(QueueMessage::Packet(message)) => {
                    counters.packets += 1;
                    // A packet that did not fit into its slot still waits in the queue and needs a verdict.
                    counters.malformed += u64::from(cut);
                    counters.missed += last_packet.map_or(0, |last| missed(last, message.id));
                    *last_packet = Some(message.id);
                    let pending = PendingVerdict::new(message.id, outgoing, counters, *failure);
                    return Some(Packet { message, pending });
                }
                Ok(QueueMessage::Answer(answer)) => {
                    // ENODEV: no such queue. EPERM: it belongs to another socket
                    // (net/netfilter/nfnetlink_queue.c: verdict_instance_lookup).
                    *is_lost |= matches!(answer.errno, libc::ENODEV | libc::EPERM);
                    note_answer(counters, answer);
                }
                Ok(QueueMessage::Other(_)) => {}
                Err(MalformedMessage { packet }) => {
                    counters.malformed += 1;
                    // Without a number no verdict can be given. With one, the failure verdict frees the
                    // packet.
                    let Some(id) = packet else {
                        outgoing.separate_verdicts();
                        continue;
                    };
                    counters.packets += 1;
                    drop(PendingVerdict::new(id, outgoing, counters, *failure));
                }
            }
        }
        None
    }

    /// Number of datagrams in the batch, packets and others.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if no datagram came.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ensures that the copy range is at least `octets` before this batch's verdicts take effect, so that
    /// a repeated packet comes back with more of its bytes.
    pub fn raise_copy_range(&mut self, octets: u32) {
        self.queue.wanted_copy_range = self.queue.wanted_copy_range.max(octets);
    }

    /// Answers the remaining packets and sends all verdicts.
    ///
    /// # Errors
    ///
    /// A send failed for a reason other than lack of memory; then its packets wait until the queue is
    /// unbound. They also wait (and are counted) if the kernel stays short of memory.
    pub fn finish(mut self) -> Result<(), QueueError> {
        self.complete()
    }

    fn complete(&mut self) -> Result<(), QueueError> {
        self.done = true;
        while let Some(packet) = self.next_packet() {
            drop(packet);
        }
        let wanted = std::mem::take(&mut self.queue.wanted_copy_range).min(MAXIMUM_COPY_RANGE);
        // This comes before the verdicts: a repeated packet is copied with the range of that moment.
        let raised = if wanted > self.queue.copy_range { self.queue.set_copy_range(wanted) } else { Ok(()) };
        let Queue { socket, outgoing, counters, .. } = &mut *self.queue;
        flush(socket, outgoing, counters)?;
        raised?;
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for PacketBatch<'_> {
    fn drop(&mut self) {
        if !self.done {
            // `drop` cannot return an error; `flush` has counted it.
            let _ = self.complete();
        }
    }
}

/// Sends all verdicts. They are removed even if that fails, and counted.
fn flush(
    socket: &OwnedFd,
    outgoing: &mut OutgoingMessages,
    counters: &mut QueueCounters,
) -> Result<(), CallError> {
    let messages = outgoing.octets();
    if messages.is_empty() {
        return Ok(());
    }
    // One send for all verdicts: the kernel handles them one by one within the call.
    let result = send_with_retry(socket, messages, counters);
    counters.sends += 1;
    if result.is_err() {
        counters.unsent += outgoing.verdicts();
    }
    outgoing.clear();
    result.or_else(|error| if is_shortage(&error) { Ok(()) } else { Err(error) })
}

/// Counts the kernel's answer to a message that requested no acknowledgement.
fn note_answer(counters: &mut QueueCounters, answer: AnswerMessage) {
    match (answer.about, answer.errno) {
        // A batch verdict finds nothing if no packet waits any more, which is no error.
        (_, 0) | (AnswerSubject::BatchVerdict, libc::ENOENT) => {}
        (AnswerSubject::Verdict, libc::ENOENT) => counters.late_verdicts += 1,
        _ => counters.refused += 1,
    }
}

/// Returns the number of packets between two identifications, which count up by one; zero if they go
/// backwards.
fn missed(last: u32, id: u32) -> u64 {
    let gap = id.wrapping_sub(last).wrapping_sub(1);
    if gap > u32::MAX / 2 { 0 } else { gap.into() }
}
