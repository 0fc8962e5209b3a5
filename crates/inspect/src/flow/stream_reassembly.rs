//! Collects the bytes of one direction in order; of conflicting bytes, the first win.
//!
//! Only undecided directions have a [`StreamCollector`]. It holds three things: bytes that its owner has not
//! read yet; bytes that passed and are not acknowledged yet, to detect other values for them; and a
//! bounded amount of bytes ahead of a gap.

use super::stream::{StreamFlags, distance};
use super::{Anomaly, AnomalySet, StreamState};

/// Number of acknowledged bytes that are kept.
const HISTORY: usize = 4096;

/// Capacity above which a buffer is freed once it is no longer needed.
const SPARE: usize = 256 << 10;

/// Number of bytes that passed without an acknowledgement and are kept: as many as Linux has in flight by
/// default (`tcp_wmem`).
pub const PIN_LIMIT: usize = 4 << 20;

/// Distance that data may be ahead while the receiver's window is unknown: more than any initial window.
const BLIND_WINDOW: i32 = 1 << 20;

/// Bounds of the bytes ahead of a gap, for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectorLimits {
    /// Pieces.
    pub pieces: usize,
    /// Bytes.
    pub octets: usize,
}

impl Default for CollectorLimits {
    fn default() -> Self {
        Self { pieces: 64, octets: 64 << 10 }
    }
}

/// The bytes of one direction.
#[derive(Debug, Default)]
pub struct StreamCollector {
    octets: Vec<u8>,
    /// Number of `octets` that were read.
    read: usize,
    /// Bytes ahead of a gap: in order, without overlaps.
    pending: Vec<StreamPiece>,
    pending_octets: usize,
    /// The sequence number that `pending` waits for, while it holds anything.
    awaited: u32,
    /// Bytes before `octets` that passed and are not acknowledged, oldest first.
    pins: Vec<StreamPiece>,
    pinned_octets: usize,
}

#[derive(Debug)]
struct StreamPiece {
    sequence: u32,
    octets: Vec<u8>,
}

impl StreamPiece {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(length(&self.octets))
    }
}

/// Result of offering one segment's payload.
#[derive(Debug, Default)]
pub struct OfferedPayload<'p> {
    /// The payload's bytes that are next in order; the caller passes them to [`StreamCollector::keep`] or
    /// [`StreamCollector::skip`]. Empty if they had to go through the collector.
    pub fresh: &'p [u8],
    /// The anomalies of the payload.
    pub anomalies: AnomalySet,
    /// Number of bytes that were already known.
    pub overlap: u32,
    /// True if the payload is ahead of a gap.
    pub ahead: bool,
    /// Number of bytes before the next ones that are lost for good.
    pub gap: u32,
    /// The unread bytes before that gap.
    pub unread: Vec<u8>,
}

impl StreamCollector {
    /// Bytes in order that were not read yet.
    pub fn unread(&self) -> &[u8] {
        self.octets.get(self.read..).unwrap_or_default()
    }

    /// Number of bytes of memory held.
    pub fn memory(&self) -> usize {
        self.octets.capacity() + self.pending_octets + self.pinned_octets
    }

    /// Returns the anomalies of a payload at `sequence` without taking it.
    pub fn assess(
        &self,
        stream: &StreamState,
        sequence: u32,
        payload: &[u8],
        limits: CollectorLimits,
    ) -> AnomalySet {
        let mut anomalies = AnomalySet::default();
        if !stream.is_open() || payload.is_empty() {
            return anomalies;
        }
        if self.is_beyond_window(stream, sequence) {
            anomalies.insert(Anomaly::OutOfWindow);
            return anomalies;
        }
        if sequence == stream.next && self.pending.is_empty() {
            return anomalies;
        }
        anomalies.insert_if(self.contradicts(stream, sequence, payload), Anomaly::OverlapDifferentData);
        let crowded = self.is_too_much(stream, sequence, payload, limits);
        anomalies.insert_if(crowded, Anomaly::ReorderLimit);
        anomalies
    }

    /// Takes the payload at `sequence`, which must not be empty, and reports its anomalies.
    pub fn offer<'p>(
        &mut self,
        stream: &mut StreamState,
        sequence: u32,
        payload: &'p [u8],
        limits: CollectorLimits,
    ) -> OfferedPayload<'p> {
        let anomalies = self.assess(stream, sequence, payload, limits);
        let mut offer = self.take(stream, sequence, payload, limits);
        anomalies.iter().for_each(|anomaly| _ = offer.anomalies.insert(anomaly));
        offer
    }

    /// Takes the payload at `sequence`, which must not be empty; [`StreamCollector::assess`] reports its
    /// anomalies. Of bytes that are already known, the first ones stay.
    pub fn take<'p>(
        &mut self,
        stream: &mut StreamState,
        sequence: u32,
        payload: &'p [u8],
        limits: CollectorLimits,
    ) -> OfferedPayload<'p> {
        let mut offer = OfferedPayload::default();
        if !stream.is_open() {
            stream.open(sequence);
        }
        let end = sequence.wrapping_add(length(payload));
        if self.is_beyond_window(stream, sequence) {
            return offer;
        }
        stream.reach(end);
        self.close_gap(stream, sequence, &mut offer);
        let ahead = distance(stream.next, sequence);
        let known = payload.len().min(usize::try_from(ahead.saturating_neg()).unwrap_or(0));
        if known > 0 {
            offer.overlap = length(payload).min(ahead.unsigned_abs());
        }
        let Some(rest) = payload.get(known..).filter(|rest| !rest.is_empty()) else {
            return offer;
        };
        offer.ahead = ahead > 0;
        if ahead <= 0 && self.pending.is_empty() {
            stream.next = end;
            offer.fresh = rest;
            return offer;
        }
        let start = sequence.wrapping_add(length(payload.get(..known).unwrap_or_default()));
        self.hold(stream, start, rest, limits, &mut offer);
        self.promote(stream);
        offer
    }

    /// True if there is no space for `count` more bytes ahead of a gap.
    pub fn is_crowded(&self, count: usize, limits: CollectorLimits) -> bool {
        !self.pending.is_empty()
            && (self.pending.len() >= limits.pieces || self.pending_octets + count > limits.octets)
    }

    /// Skips the gap and continues with the bytes after it. Drops unread bytes, and returns the number of
    /// missing ones.
    pub fn give_up_gap(&mut self, stream: &mut StreamState) -> Option<u32> {
        let resume = self.pending.first()?.sequence;
        let missing = resume.wrapping_sub(self.awaited);
        stream.next = resume;
        self.skip();
        self.promote(stream);
        Some(missing)
    }

    /// Stores bytes that [`StreamCollector::offer`] returned as fresh.
    pub fn keep(&mut self, fresh: &[u8]) {
        append(&mut self.octets, fresh);
    }

    /// Skips bytes that [`StreamCollector::offer`] returned as fresh, and drops all history. Allowed only if
    /// nothing is unread.
    pub fn skip(&mut self) {
        self.octets.clear();
        self.octets.shrink_to(SPARE);
        self.read = 0;
    }

    /// Marks `count` unread bytes as read, and drops those that the receiver has acknowledged.
    pub fn advance(&mut self, stream: &StreamState, count: usize) {
        self.read = (self.read + count).min(self.octets.len());
        if self.read > HISTORY {
            let pinned = self.octets.len().saturating_sub(self.unpinned(stream, stream.next));
            let free = self.read.min(self.octets.len() - pinned.min(PIN_LIMIT));
            // Removing a few bytes is not worth it: all bytes after them have to move.
            if free > self.octets.len() / 2 {
                self.octets.drain(..free);
                self.read -= free;
                if self.octets.capacity() > SPARE {
                    self.octets.shrink_to(2 * self.octets.len());
                }
            }
        }
    }

    /// Returns the number of `octets`, which end before `end`, that no other bytes can replace any more.
    fn unpinned(&self, stream: &StreamState, end: u32) -> usize {
        if stream.is_acknowledged() {
            let first = end.wrapping_sub(length(&self.octets));
            usize::try_from(distance(first, stream.acknowledged)).unwrap_or(0).min(self.octets.len())
        } else {
            0
        }
    }

    /// Drops the bytes in order, which end before `end`: they will not be read. Of these, the bytes
    /// without an acknowledgement stay protected against replacement.
    pub fn freeze(&mut self, stream: &StreamState, end: u32) {
        self.release(stream);
        let unpinned = self.unpinned(stream, end);
        if let Some(pinned) = self.octets.get(unpinned..).filter(|pinned| !pinned.is_empty()) {
            self.pinned_octets += pinned.len();
            let sequence = end.wrapping_sub(length(pinned));
            self.pins.push(StreamPiece { sequence, octets: pinned.to_vec() });
        }
        while self.pinned_octets > PIN_LIMIT && !self.pins.is_empty() {
            self.pinned_octets -= self.pins.remove(0).octets.len();
        }
        self.skip();
    }

    /// Does the same as [`StreamCollector::freeze`] for all bytes in order, and drops the bytes ahead of a
    /// gap.
    pub fn settle(&mut self, stream: &StreamState) {
        self.freeze(stream, stream.next);
        self.pending.clear();
        self.pending_octets = 0;
    }

    /// Drops the pins that the receiver has acknowledged.
    pub fn release(&mut self, stream: &StreamState) {
        if self.pins.is_empty() || !stream.known.has(StreamFlags::ACKNOWLEDGED) {
            return;
        }
        self.pins.retain(|pin| distance(stream.acknowledged, pin.end()) > 0);
        self.pinned_octets = self.pins.iter().map(|pin| pin.octets.len()).sum();
    }

    /// Makes these bytes, the last ones in order, unread again: they are to be read in another way.
    pub fn read_again(&mut self, stream: &StreamState, unread: Vec<u8>) {
        if unread.len() <= self.octets.len() {
            self.read = self.octets.len() - unread.len();
            return;
        }
        let start = stream.next.wrapping_sub(length(&unread));
        for pin in &mut self.pins {
            let beyond = usize::try_from(distance(start, pin.end())).unwrap_or(0);
            pin.octets.truncate(pin.octets.len().saturating_sub(beyond));
        }
        self.pins.retain(|pin| !pin.octets.is_empty());
        self.pinned_octets = self.pins.iter().map(|pin| pin.octets.len()).sum();
        (self.octets, self.read) = (unread, 0);
    }

    /// True if more than `room` bytes without an acknowledgement are held. If neither a SYN nor an
    /// acknowledgement was seen, none may ever come: then the oldest are dropped.
    pub fn is_full_of_pins(&self, stream: &StreamState, room: usize) -> bool {
        if !stream.is_acknowledged() && !stream.is_from_start() {
            return false;
        }
        let read = self.octets.len().saturating_sub(self.unpinned(stream, stream.next));
        self.pinned_octets + read > room
    }

    /// Takes the unread bytes, which will never be complete.
    pub fn take_unread(&mut self) -> Vec<u8> {
        let unread = self.unread().to_vec();
        self.skip();
        unread
    }

    /// True if bytes ahead of a gap are held.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Drops everything and expects `sequence` next: earlier bytes were not accepted.
    pub fn rewind(&mut self, stream: &mut StreamState, sequence: u32) {
        self.forget();
        stream.next = sequence;
        stream.highest = sequence;
    }

    /// Expects `sequence` next, which is before all collected bytes. These are held until the gap is
    /// filled.
    pub fn step_back(&mut self, stream: &mut StreamState, sequence: u32) {
        let start = stream.next.wrapping_sub(length(&self.octets));
        let mut held = std::mem::take(&mut self.pins);
        if !self.octets.is_empty() {
            held.push(StreamPiece { sequence: start, octets: std::mem::take(&mut self.octets) });
        }
        held.append(&mut self.pending);
        self.pending = held;
        self.pending_octets = self.pending.iter().map(|piece| piece.octets.len()).sum();
        (self.pinned_octets, self.read) = (0, 0);
        stream.begin_earlier(sequence);
        self.awaited = sequence;
    }

    /// Drops everything, but keeps the memory for another direction.
    pub fn forget(&mut self) {
        self.skip();
        self.pins.clear();
        self.pinned_octets = 0;
        self.pending.clear();
        self.pending_octets = 0;
    }

    /// True if data at `sequence` is outside of the receiver's window. Data that is next in order is
    /// never refused: if the receiver has no space for it, it will be sent again.
    fn is_beyond_window(&self, stream: &StreamState, sequence: u32) -> bool {
        if distance(stream.next, sequence) <= 0 {
            return false;
        }
        if stream.known.has(StreamFlags::ACKNOWLEDGED) {
            distance(stream.edge, sequence) > 0
        } else {
            distance(stream.next, sequence) > BLIND_WINDOW
        }
    }

    /// Skips bytes that the receiver has acknowledged and that never passed here.
    fn close_gap(&mut self, stream: &mut StreamState, sequence: u32, offer: &mut OfferedPayload<'_>) {
        let Some(resume) = acknowledged_gap(stream, stream.next, &self.pending, sequence) else { return };
        offer.gap = distance(stream.next, resume).unsigned_abs();
        offer.anomalies.insert(Anomaly::Gap);
        stream.next = resume;
        offer.unread = self.take_unread();
        self.promote(stream);
    }

    /// True if bytes differ from those that passed at the same position. Bytes that the receiver has
    /// acknowledged are not compared: nothing can replace them, and keep-alive probes send garbage there.
    fn contradicts(&self, stream: &StreamState, sequence: u32, payload: &[u8]) -> bool {
        if !stream.known.has(StreamFlags::ACKNOWLEDGED)
            && !stream.is_from_start()
            && payload.len() == 1
            && sequence.wrapping_add(1) == stream.next
        {
            return false;
        }
        let acknowledged = stream.known.has(StreamFlags::ACKNOWLEDGED).then_some(stream.acknowledged);
        let first = stream.next.wrapping_sub(length(&self.octets));
        let pieces =
            self.pins.iter().chain(&self.pending).map(|piece| (piece.sequence, piece.octets.as_slice()));
        pieces
            .chain([(first, self.octets.as_slice())])
            .any(|(start, octets)| differs((start, octets), (sequence, payload), acknowledged))
    }

    /// True if there is no space for a payload ahead of a gap. Data that fills the gap is always taken,
    /// however much waits after it: refusing it would keep all of that for ever.
    fn is_too_much(
        &self,
        stream: &StreamState,
        sequence: u32,
        payload: &[u8],
        limits: CollectorLimits,
    ) -> bool {
        let (mut next, mut pending) = (stream.next, self.pending.as_slice());
        while let Some(resume) = acknowledged_gap(stream, next, pending, sequence) {
            (next, pending) = promoted(resume, pending);
        }
        if distance(next, sequence) <= 0 {
            return false;
        }
        let octets: usize = pending.iter().map(|piece| piece.octets.len()).sum();
        if pending.len() < limits.pieces && octets + payload.len() <= limits.octets {
            return false;
        }
        let offset = |sequence: u32| sequence.wrapping_sub(next);
        let (start, end) = (offset(sequence), offset(sequence.wrapping_add(length(payload))));
        !pending.iter().any(|piece| offset(piece.sequence) <= start && end <= offset(piece.end()))
    }

    /// Adds the part of `rest` that is not held yet.
    fn hold(
        &mut self,
        stream: &StreamState,
        start: u32,
        rest: &[u8],
        limits: CollectorLimits,
        offer: &mut OfferedPayload<'_>,
    ) {
        // Sequence numbers wrap around, so distances from the awaited byte are compared.
        let base = stream.next;
        let offset = |sequence: u32| sequence.wrapping_sub(base) as usize;
        let end = offset(start) + rest.len();
        let mut at = offset(start);
        // All of a payload or nothing: a part that passed and is not held would never be read.
        let room = !self.is_too_much(stream, start, rest, limits);
        let mut index = self.pending.partition_point(|piece| offset(piece.end()) <= at);
        while at < end {
            let from_rest = at - offset(start);
            let (piece_start, piece_end) = match self.pending.get(index) {
                Some(piece) => (offset(piece.sequence).min(end), offset(piece.end()).min(end)),
                None => (end, end),
            };
            if at < piece_start {
                let octets = rest.get(from_rest..piece_start - offset(start)).unwrap_or_default();
                if !room {
                    return;
                }
                self.pending_octets += octets.len();
                let piece = StreamPiece {
                    sequence: start.wrapping_add(truncate(from_rest)),
                    octets: octets.to_vec(),
                };
                self.pending.insert(index, piece);
                at = piece_start;
            } else {
                // It is held already. The first bytes count: the anomaly check compared receivers with
                // them.
                offer.overlap += truncate(piece_end - at);
                at = piece_end;
            }
            index += 1;
        }
    }

    /// Moves held pieces after a filled gap to the bytes in order, without bytes that were skipped.
    pub fn promote(&mut self, stream: &mut StreamState) {
        let mut count = 0;
        for piece in &self.pending {
            let ahead = distance(stream.next, piece.sequence);
            if ahead > 0 {
                break;
            }
            if let Some(rest) = piece.octets.get(ahead.unsigned_abs() as usize..) {
                append(&mut self.octets, rest);
                stream.next = piece.end();
            }
            self.pending_octets -= piece.octets.len();
            count += 1;
        }
        self.pending.drain(..count);
        self.awaited = stream.next;
    }
}

/// Appends `more`. The buffer does not double its capacity: it may be megabytes.
fn append(octets: &mut Vec<u8>, more: &[u8]) {
    if octets.len() + more.len() > SPARE.max(octets.capacity()) {
        octets.reserve_exact(more.len().max(octets.len() / 4));
    }
    octets.extend_from_slice(more);
}

/// Returns the end of bytes from `next` on that the receiver has acknowledged and that never passed here.
/// They end before those at `sequence` and those held.
fn acknowledged_gap(stream: &StreamState, next: u32, pending: &[StreamPiece], sequence: u32) -> Option<u32> {
    let resume = match pending.first() {
        Some(piece) if distance(piece.sequence, sequence) > 0 => piece.sequence,
        _ => sequence,
    };
    let acknowledged =
        stream.known.has(StreamFlags::ACKNOWLEDGED) && distance(resume, stream.acknowledged) >= 0;
    (acknowledged && distance(next, resume) > 0).then_some(resume)
}

/// Returns the next expected number and the rest of `pending`, once bytes up to `next` are known.
fn promoted(mut next: u32, mut pending: &[StreamPiece]) -> (u32, &[StreamPiece]) {
    while let Some((piece, rest)) = pending.split_first().filter(|(it, _)| distance(next, it.sequence) <= 0) {
        next = if distance(next, piece.end()) > 0 { piece.end() } else { next };
        pending = rest;
    }
    (next, pending)
}

/// True if two runs of bytes differ where they overlap, after the `acknowledged` ones.
fn differs(old: (u32, &[u8]), new: (u32, &[u8]), acknowledged: Option<u32>) -> bool {
    let later = |a: u32, b: u32| if distance(a, b) > 0 { b } else { a };
    let mut start = later(old.0, new.0);
    if let Some(acknowledged) = acknowledged {
        start = later(start, acknowledged);
    }
    let behind = |(sequence, octets): (u32, &'_ [u8])| -> usize {
        usize::try_from(distance(sequence, start)).unwrap_or(0).min(octets.len())
    };
    let (old, new) = (&old.1.get(behind(old)..), &new.1.get(behind(new)..));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    old.iter().zip(new).any(|(old, new)| old != new)
}

/// Returns the length of bytes from one packet or within [`CollectorLimits`].
fn length(octets: &[u8]) -> u32 {
    truncate(octets.len())
}

fn truncate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
