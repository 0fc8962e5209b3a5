//! Collects one direction's octets in order, the first ones winning.
//!
//! Only flows whose direction is still undecided have a [`Collector`]. It holds what its owner has
//! not read yet, a little of what it has read (so that other values for the same octets are
//! noticed), and a bounded amount of what came before its turn.

use super::stream::{Known, distance};
use super::{Anomaly, AnomalySet, Stream};

/// Read octets beyond this are forgotten.
const HISTORY: usize = 4096;

/// How far ahead data may lie as long as the receiver has not told its window: more than any
/// initial window.
const BLIND_WINDOW: i32 = 1 << 20;

/// Bounds of what is held before its turn, for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pieces.
    pub pieces: usize,
    /// Octets.
    pub octets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pieces: 64, octets: 64 << 10 }
    }
}

/// One direction's octets.
#[derive(Debug, Default)]
pub struct Collector {
    octets: Vec<u8>,
    /// How many of `octets` were read.
    read: usize,
    /// Ahead of their turn: in order, not overlapping.
    pending: Vec<Piece>,
    pending_octets: usize,
    /// What `pending` waits for, as long as it holds anything.
    awaited: u32,
}

#[derive(Debug)]
struct Piece {
    sequence: u32,
    octets: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(length(&self.octets))
    }
}

/// What came of one segment's payload.
#[derive(Debug, Default)]
pub struct Offer<'p> {
    /// The payload's octets that come next in order; the caller hands them to
    /// [`Collector::keep`] or [`Collector::skip`]. Empty when they had to go through the collector.
    pub fresh: &'p [u8],
    /// What was odd.
    pub anomalies: AnomalySet,
    /// Octets that were known already.
    pub overlap: u32,
    /// The payload came before its turn.
    pub ahead: bool,
    /// Octets that are missing for good before the next ones.
    pub gap: u32,
    /// What was not read yet before that gap.
    pub unread: Vec<u8>,
}

impl Collector {
    /// Octets in order that were not read yet.
    pub fn unread(&self) -> &[u8] {
        self.octets.get(self.read..).unwrap_or_default()
    }

    /// Octets of memory held.
    pub fn memory(&self) -> usize {
        self.octets.capacity() + self.pending_octets
    }

    /// Takes the payload at `sequence`, which must not be empty.
    pub fn offer<'p>(
        &mut self,
        stream: &mut Stream,
        sequence: u32,
        payload: &'p [u8],
        limits: Limits,
    ) -> Offer<'p> {
        let mut offer = Offer::default();
        if !stream.is_open() {
            stream.open(sequence);
        }
        let end = sequence.wrapping_add(length(payload));
        if self.is_beyond_window(stream, sequence) {
            offer.anomalies.insert(Anomaly::OutOfWindow);
            return offer;
        }
        stream.reach(end);
        self.close_gap(stream, sequence, &mut offer);
        let ahead = distance(stream.next, sequence);
        let known = payload.len().min(usize::try_from(ahead.saturating_neg()).unwrap_or(0));
        if known > 0 {
            offer.overlap = length(payload).min(ahead.unsigned_abs());
            let differs = self.differs_from_read(stream, sequence, payload);
            offer.anomalies.insert_if(differs, Anomaly::OverlapDifferentData);
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

    /// Whether there is no room to hold `count` more octets ahead of their turn.
    pub fn is_crowded(&self, count: usize, limits: Limits) -> bool {
        !self.pending.is_empty()
            && (self.pending.len() >= limits.pieces || self.pending_octets + count > limits.octets)
    }

    /// Goes on with what is held, without the octets before it, and forgets what was not read; gives how many are missing.
    pub fn give_up_gap(&mut self, stream: &mut Stream) -> Option<u32> {
        let resume = self.pending.first()?.sequence;
        let missing = resume.wrapping_sub(self.awaited);
        stream.next = resume;
        self.skip();
        self.promote(stream);
        Some(missing)
    }

    /// Stores octets that [`Collector::offer`] gave back as fresh.
    pub fn keep(&mut self, fresh: &[u8]) {
        self.octets.extend_from_slice(fresh);
    }

    /// Leaves out octets that [`Collector::offer`] gave back as fresh, with all history; only while
    /// nothing is unread.
    pub fn skip(&mut self) {
        self.octets.clear();
        self.read = 0;
    }

    /// Marks `count` unread octets as read.
    pub fn advance(&mut self, count: usize) {
        self.read = (self.read + count).min(self.octets.len());
        if self.read > HISTORY {
            self.octets.drain(..self.read);
            self.read = 0;
        }
    }

    /// Takes out what was not read yet: it will never be whole.
    pub fn take_unread(&mut self) -> Vec<u8> {
        let unread = self.unread().to_vec();
        self.skip();
        unread
    }

    /// Whether anything is held ahead of its turn.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Forgets everything and expects `sequence` next: what was sent before was not accepted.
    pub fn rewind(&mut self, stream: &mut Stream, sequence: u32) {
        self.forget();
        stream.next = sequence;
        stream.highest = sequence;
    }

    /// Forgets everything, keeping the memory for another direction.
    pub fn forget(&mut self) {
        self.skip();
        self.pending.clear();
        self.pending_octets = 0;
    }

    /// Whether data at `sequence` lies where the receiver can't accept it. Data that is next in order
    /// is never refused: what the receiver has no room for will be sent again.
    fn is_beyond_window(&self, stream: &Stream, sequence: u32) -> bool {
        if distance(stream.next, sequence) <= 0 {
            return false;
        }
        if stream.known.has(Known::ACKNOWLEDGED) {
            distance(stream.edge, sequence) > 0
        } else {
            distance(stream.next, sequence) > BLIND_WINDOW
        }
    }

    /// Goes on behind octets that the receiver has acknowledged and that never came by here.
    fn close_gap(&mut self, stream: &mut Stream, sequence: u32, offer: &mut Offer<'_>) {
        let resume = match self.pending.first() {
            Some(piece) if distance(piece.sequence, sequence) > 0 => piece.sequence,
            _ => sequence,
        };
        let missing = distance(stream.next, resume);
        let acknowledged = distance(resume, stream.acknowledged) >= 0;
        if missing <= 0 || !acknowledged || !stream.known.has(Known::ACKNOWLEDGED) {
            return;
        }
        offer.gap = missing.unsigned_abs();
        offer.anomalies.insert(Anomaly::Gap);
        stream.next = resume;
        offer.unread = self.take_unread();
        self.promote(stream);
    }

    /// Whether octets before `stream.next` differ from those that are remembered. Octets that the
    /// receiver has acknowledged can't be replaced any more, and keep-alive probes send garbage there.
    fn differs_from_read(&self, stream: &Stream, sequence: u32, payload: &[u8]) -> bool {
        let first = stream.next.wrapping_sub(length(&self.octets));
        let mut start = sequence;
        if distance(start, first) > 0 {
            start = first;
        }
        if stream.known.has(Known::ACKNOWLEDGED) {
            if distance(start, stream.acknowledged) > 0 {
                start = stream.acknowledged;
            }
        } else if payload.len() == 1 && sequence.wrapping_add(1) == stream.next {
            return false;
        }
        if distance(start, stream.next) <= 0 {
            return false;
        }
        let old = self.octets.get(start.wrapping_sub(first) as usize..).unwrap_or_default();
        let new = payload.get(start.wrapping_sub(sequence) as usize..).unwrap_or_default();
        old.iter().zip(new).any(|(old, new)| old != new)
    }

    /// Puts in what of `rest` is not held yet.
    fn hold(&mut self, stream: &Stream, start: u32, rest: &[u8], limits: Limits, offer: &mut Offer<'_>) {
        let base = stream.next;
        let offset = |sequence: u32| sequence.wrapping_sub(base) as usize;
        let end = offset(start) + rest.len();
        let mut at = offset(start);
        let mut index = self.pending.partition_point(|piece| offset(piece.end()) <= at);
        while at < end {
            let from_rest = at - offset(start);
            let (piece_start, piece_end) = match self.pending.get(index) {
                Some(piece) => (offset(piece.sequence).min(end), offset(piece.end()).min(end)),
                None => (end, end),
            };
            if at < piece_start {
                let octets = rest.get(from_rest..piece_start - offset(start)).unwrap_or_default();
                let next_in_order = at == 0;
                let full =
                    self.pending.len() >= limits.pieces || self.pending_octets + octets.len() > limits.octets;
                if full && !next_in_order {
                    offer.anomalies.insert(Anomaly::ReorderLimit);
                    return;
                }
                self.pending_octets += octets.len();
                let piece =
                    Piece { sequence: start.wrapping_add(truncate(from_rest)), octets: octets.to_vec() };
                self.pending.insert(index, piece);
                at = piece_start;
            } else {
                let new = rest.get(from_rest..piece_end - offset(start)).unwrap_or_default();
                let old =
                    self.pending.get(index).and_then(|piece| piece.octets.get(at - offset(piece.sequence)..));
                let old = old.unwrap_or_default();
                let differs = old.iter().zip(new).any(|(old, new)| old != new);
                offer.anomalies.insert_if(differs, Anomaly::OverlapDifferentData);
                offer.overlap += truncate(piece_end - at);
                at = piece_end;
            }
            index += 1;
        }
    }

    /// Moves held pieces whose turn has come to the octets in order.
    fn promote(&mut self, stream: &mut Stream) {
        let mut count = 0;
        for piece in &self.pending {
            if piece.sequence != stream.next {
                break;
            }
            self.octets.extend_from_slice(&piece.octets);
            self.pending_octets -= piece.octets.len();
            stream.next = piece.end();
            count += 1;
        }
        self.pending.drain(..count);
        self.awaited = stream.next;
    }
}

/// The length of octets that came in one packet or are bounded by [`Limits`].
fn length(octets: &[u8]) -> u32 {
    truncate(octets.len())
}

fn truncate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
