//! TCP's handshake, acknowledgements and ends. An inspector must follow them to know which segments a
//! receiver accepts.

use super::stream::{StreamFlags, StreamState, distance};
use super::{Anomaly, AnomalySet, Flow, FlowDecision, KeyEnd, OpeningSyn};
use crate::event::Timestamp;
use crate::packet::Segment;

/// Allowed decrease of a data segment's hop limit: more than paths of equal cost differ by.
const HOP_LIMIT_TOLERANCE: u8 = 5;

/// The shift assumed for windows if the handshake was not seen: the largest possible.
const UNKNOWN_SCALE: u32 = 14;

/// Number of bytes of one direction that may have passed unseen: some seconds of a fast link.
const MISSED: i32 = 1 << 30;

/// Largest length of data in a SYN: its acknowledgement is at most this far away.
const SYN_DATA_LIMIT: i32 = 1 << 16;

/// The kind of source of a flow's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackingMode {
    /// Every packet passes here.
    Inline,
    /// Packets may be missing, as in captures.
    Lossy,
}

/// The meaning of a segment's header for its flow.
#[derive(Debug, Default)]
pub struct TrackedSegment {
    /// The anomalies of the header.
    pub anomalies: AnomalySet,
    /// True if the receiver ignores the segment's data, so the engine must, too.
    pub ignore: bool,
    /// Data in the other end's SYN was not accepted; the first byte that replaces it has this sequence
    /// number.
    pub refused: Option<u32>,
    /// True if the sender starts with another sequence number than before, which its receiver never
    /// accepted.
    pub restarted: bool,
}

impl TrackedSegment {
    fn ignored(anomaly: Anomaly) -> Self {
        let mut tracked = Self { ignore: true, ..Self::default() };
        tracked.anomalies.insert(anomaly);
        tracked
    }
}

impl<C> Flow<C> {
    /// True if the segment proves that the ends have opened a new connection with the same ports.
    ///
    /// A SYN alone proves nothing: its receiver may answer with a challenge (RFC 5961 section 4), and if
    /// one forged SYN could reset the state, that would be an evasion. The answer to the SYN proves it.
    pub fn starts_new_connection(&self, segment: &Segment<'_>, from: KeyEnd, tracking: TrackingMode) -> bool {
        let Some(syn) = self.ends.reopening else {
            return false;
        };
        let flags = segment.flags();
        let first = syn.initial.wrapping_add(1);
        // A capture may lack the answer. There, the opener's first segment after its SYN is the proof.
        if from == syn.from {
            return tracking == TrackingMode::Lossy && !flags.syn() && segment.sequence() == first;
        }
        let beyond = distance(first, segment.acknowledgement());
        let stream = self.stream(from);
        if stream.began_with(segment.sequence()) && !stream.known.has(StreamFlags::SYN_ACK) {
            // Both ends have sent a SYN, and this one continues with its own.
            return false;
        }
        flags.syn() && flags.ack() && !flags.fin() && !flags.rst() && (0..SYN_DATA_LIMIT).contains(&beyond)
    }

    /// True if an end sends the first byte after another SYN, its earlier connection is over, and the
    /// other end was never seen: its answers take another path.
    ///
    /// Only the opener's packets show it, so the caller asks this only if no banner would be lost.
    pub fn starts_one_way_connection(&self, segment: &Segment<'_>, from: KeyEnd) -> bool {
        let Some(syn) = self.ends.reopening else {
            return false;
        };
        let over = self.stream(from).is_reset() || self.stream(from).is_complete();
        let heard = self.stream(from.other()).known.has(StreamFlags::HEARD);
        let first = segment.sequence() == syn.initial.wrapping_add(1);
        from == syn.from && over && !heard && first && !segment.flags().syn()
    }

    /// Restarts the flow with the SYN that [`Flow::starts_new_connection`] or
    /// [`Flow::starts_one_way_connection`] found confirmed by this segment.
    pub fn restart_connection(&mut self, segment: &Segment<'_>, now: Timestamp) {
        let Some(syn) = self.ends.reopening else {
            return;
        };
        self.restart(syn.from, now);
        self.ends.client_known = true;
        let stream = self.stream_mut(syn.from);
        stream.synchronise(&syn);
        if segment.flags().syn() {
            // The SYN's own data was not followed, but its acknowledged part was sent.
            stream.reach(segment.acknowledgement());
        }
    }

    /// True if the connection is finished: reset, or both ends have sent a FIN.
    pub fn is_closed(&self) -> bool {
        let [low, high] = &self.ends.streams;
        low.is_reset() || high.is_reset() || (low.is_complete() && high.is_complete())
    }

    /// True once the receiver of each direction has confirmed its end: by its own reset, or by
    /// acknowledging the sender's FIN. A peer's reset or FIN alone proves nothing: it may never arrive or
    /// be accepted.
    pub fn is_over(&self) -> bool {
        let [low, high] = &self.ends.streams;
        let has_ended = |stream: &StreamState| stream.is_reset() || stream.has_end();
        let is_taken =
            |stream: &StreamState, peer: &StreamState| peer.is_reset() || stream.is_end_acknowledged();
        has_ended(low) && has_ended(high) && is_taken(low, high) && is_taken(high, low)
    }

    /// True if an end was reset; its receiver may not have accepted or seen that.
    pub fn is_reset(&self) -> bool {
        let [low, high] = &self.ends.streams;
        low.is_reset() || high.is_reset()
    }

    /// Processes FIN and RST of a decided flow, whose bytes are not followed.
    pub fn note_end(&mut self, segment: &Segment<'_>, from: KeyEnd) {
        let flags = segment.flags();
        let stream = self.stream_mut(from);
        if flags.rst() {
            stream.known.set(StreamFlags::RESET);
        }
        if flags.fin() {
            // The bytes of a decided flow are not followed, so its FIN counts as in order.
            stream.end = stream.next;
            stream.known.set(StreamFlags::END);
            stream.known.set(StreamFlags::NEXT);
        }
    }

    /// Processes a segment's header; the caller then reads its data.
    pub fn track(&mut self, segment: &Segment<'_>, from: KeyEnd, tracking: TrackingMode) -> TrackedSegment {
        let flags = segment.flags();
        self.stream_mut(from).known.set(StreamFlags::HEARD);
        // RFC 9293 gives these combinations no meaning, and receivers differ.
        if flags.syn() && (flags.rst() || flags.fin()) {
            return TrackedSegment::ignored(Anomaly::ContradictoryFlags);
        }
        if flags.rst() {
            return self.track_reset(segment, from);
        }
        if flags.syn() {
            let mut tracked = if flags.ack() {
                self.track_syn_ack(segment, from, tracking)
            } else {
                self.track_syn(segment, from, tracking)
            };
            tracked.anomalies.insert_if(flags.urg(), Anomaly::UrgentData);
            return tracked;
        }
        self.track_rest(segment, from, tracking)
    }

    /// Accepts a segment's numbers about bytes that were not seen: its peer has sent what it
    /// acknowledges, and its own bytes before were allowed. For flows of which packets may have passed
    /// unseen, before [`Flow::track`].
    pub fn catch_up(&mut self, segment: &Segment<'_>, from: KeyEnd) {
        let flags = segment.flags();
        if flags.syn() || flags.rst() || !flags.ack() {
            return;
        }
        let is_near = |stream: &StreamState, at: u32| (1..MISSED).contains(&distance(stream.next, at));
        let stream = self.stream_mut(from);
        // Only forward, and not far: an old or forged number must not move the state.
        if is_near(stream, segment.sequence()) {
            stream.allow(segment.sequence());
        }
        let peer = self.stream_mut(from.other());
        let acknowledged = peer.octets_to(segment.acknowledgement());
        if is_near(peer, acknowledged) {
            peer.skip_unseen(acknowledged);
        }
    }

    fn track_reset(&mut self, segment: &Segment<'_>, from: KeyEnd) -> TrackedSegment {
        let stream = self.stream(from);
        let sequence = segment.sequence();
        // The receiver accepts only the number that it expects (RFC 5961 section 3.2). Segments may be
        // lost after this point, so each of these may be that number.
        let accepted = if stream.is_open() {
            sequence == stream.next
                || sequence == stream.highest
                || (stream.known.has(StreamFlags::ACKNOWLEDGED) && sequence == stream.acknowledged)
        } else {
            let peer = self.stream(from.other());
            let flags = segment.flags();
            // In SYN-SENT a reset is accepted if it acknowledges the SYN (RFC 9293 section 3.10.7.3).
            !peer.is_open() || (flags.ack() && segment.acknowledgement() == peer.highest)
        };
        if !accepted {
            return TrackedSegment::ignored(Anomaly::ResetWrongSequence);
        }
        self.stream_mut(from).known.set(StreamFlags::RESET);
        TrackedSegment { ignore: true, ..TrackedSegment::default() }
    }

    fn track_syn(&mut self, segment: &Segment<'_>, from: KeyEnd, tracking: TrackingMode) -> TrackedSegment {
        let syn = OpeningSyn::of(segment, from);
        let peer = *self.stream(from.other());
        let closed = self.is_closed();
        let decided = self.ruling != FlowDecision::Undecided;
        let opening = !peer.is_open();
        let answered = peer.known.has(StreamFlags::SYN_ACK);
        // The flow passes because it has no answers: this SYN may get one all the same.
        let unanswered = decided && self.is_one_way();
        // If all packets pass here, the other end's own SYN shows whether this one opens a connection.
        let is_told = tracking == TrackingMode::Lossy || peer.is_from_start();
        let stream = self.stream_mut(from);
        if stream.is_open() || decided {
            if stream.began_with(syn.initial) && !unanswered {
                if stream.known.has(StreamFlags::SYN_ACK) && !peer.is_from_start() {
                    // It sent a SYN-ACK although no SYN was seen: the end that sends the SYN is the
                    // client.
                    stream.known.clear(StreamFlags::SYN_ACK);
                    self.ends.client = from;
                    self.ends.client_known = is_told;
                }
                return TrackedSegment::default();
            }
            // A capture may hold the answer to a SYN before the SYN.
            if answered && !decided && stream.next == syn.initial.wrapping_add(1) && !stream.is_from_start() {
                stream.synchronise(&syn);
                return TrackedSegment::default();
            }
            self.ends.reopening = Some(syn);
            let mut tracked = TrackedSegment { ignore: true, ..TrackedSegment::default() };
            tracked.anomalies.insert_if(!closed && !opening, Anomaly::SynInConnection);
            return tracked;
        }
        stream.synchronise(&syn);
        let mut tracked = TrackedSegment::default();
        tracked.anomalies.insert_if(segment.joins_multipath(), Anomaly::MptcpJoin);
        if opening {
            self.ends.client = from;
        }
        self.ends.client_known |= is_told;
        if !opening {
            tracked.anomalies.insert_if(peer.is_from_start(), Anomaly::SplitHandshake);
        }
        tracked
    }

    fn track_syn_ack(
        &mut self,
        segment: &Segment<'_>,
        from: KeyEnd,
        tracking: TrackingMode,
    ) -> TrackedSegment {
        let initial = segment.sequence();
        let acknowledgement = segment.acknowledgement();
        let peer = *self.stream(from.other());
        let first = peer.initial.wrapping_add(1);
        // In SYN-SENT an answer that acknowledges unsent data is refused (RFC 9293 section 3.10.7.3).
        let sent = distance(first, acknowledgement) >= 0 && distance(acknowledgement, peer.highest) >= 0;
        if peer.is_from_start() && tracking == TrackingMode::Inline && !sent {
            return TrackedSegment::ignored(Anomaly::AckOfUnsentData);
        }
        let mut tracked = TrackedSegment::default();
        let stream = self.stream_mut(from);
        // If only the other end's packets have shown it, its own count more.
        if stream.is_open() && stream.known.has(StreamFlags::SEEN) {
            if stream.began_with(initial) {
                if !peer.is_open() {
                    // It answers an evicted SYN, or pretends to: its peer's own SYN-ACK decides.
                    self.ends.client = from.other();
                }
                return TrackedSegment::default();
            }
            if tracking == TrackingMode::Lossy || !peer.is_syn_sent() {
                return TrackedSegment::ignored(Anomaly::SynInConnection);
            }
            // The earlier answer never arrived, or was sent so that it would not: this one may arrive.
            stream.forget();
            stream.known.set(StreamFlags::RESTARTED);
            tracked.restarted = true;
            tracked.anomalies.insert(Anomaly::SynInConnection);
        } else if tracking == TrackingMode::Inline {
            // The other end acknowledged data of another connection.
            stream.forget();
        }
        let answers = !stream.is_from_start();
        stream.synchronise(&OpeningSyn::of(segment, from));
        stream.known.set(StreamFlags::SYN_ACK);
        if answers {
            self.ends.client = from.other();
            self.ends.client_known = true;
        }
        if !peer.is_open() {
            // The SYN was not seen, but its answer shows where the client's bytes begin.
            self.stream_mut(from.other()).open(acknowledgement);
        }
        // Only the SYN is acknowledged, not the data in it (RFC 7413 section 3).
        let refused =
            peer.is_from_start() && acknowledgement == first && distance(acknowledgement, peer.highest) > 0;
        if refused {
            tracked.anomalies.insert(Anomaly::FastOpenRefused);
            tracked.refused = Some(acknowledgement);
        }
        self.note_acknowledgement(segment, from, tracking);
        tracked
    }

    fn track_rest(&mut self, segment: &Segment<'_>, from: KeyEnd, tracking: TrackingMode) -> TrackedSegment {
        let flags = segment.flags();
        let payload = segment.wire_payload_length();
        if !flags.ack() {
            if payload > 0 || flags.fin() {
                return TrackedSegment::ignored(Anomaly::DataWithoutAck);
            }
            return TrackedSegment::default();
        }
        let peer = self.stream(from.other());
        let stream = self.stream(from);
        if tracking == TrackingMode::Inline && (payload > 0 || flags.fin()) {
            // In SYN-SENT only a SYN or a reset is processed (RFC 9293 section 3.10.7.3).
            let early = !stream.is_open() || stream.known.has(StreamFlags::RESTARTED);
            if early && peer.is_syn_sent() {
                return TrackedSegment::ignored(Anomaly::DataBeforeHandshake);
            }
            // If nothing was sent, a keep-alive probe has the number of the SYN.
            if stream.is_before_start(segment.sequence().wrapping_add(1)) {
                return TrackedSegment::ignored(Anomaly::OutOfWindow);
            }
        }
        // The receiver answers such a segment and drops it (RFC 9293 section 3.10.7.4). If the SYN was not
        // seen, bytes before may be unknown, so nothing is refused.
        let unsent = peer.is_open() && distance(peer.highest, segment.acknowledgement()) > 0;
        if unsent && peer.is_from_start() && tracking == TrackingMode::Inline {
            return TrackedSegment::ignored(Anomaly::AckOfUnsentData);
        }
        let mut tracked = TrackedSegment::default();
        if !peer.is_before_start(segment.acknowledgement()) {
            self.stream_mut(from).known.set(StreamFlags::ANSWERS);
        }
        let peer = self.stream(from.other());
        tracked.anomalies.insert_if(flags.urg(), Anomaly::UrgentData);
        if payload > 0 || flags.fin() {
            // A receiver without the key drops it (net/ipv4/tcp.c: tcp_inbound_md5_hash), and would not take
            // what the engine reads.
            let stream = self.stream(from);
            let unsigned = stream.is_from_start() && !stream.known.has(StreamFlags::SIGNED);
            tracked.anomalies.insert_if(unsigned && segment.is_signed(), Anomaly::UnexpectedSignature);
            let old = acknowledges_too_little(peer, segment.acknowledgement());
            tracked.anomalies.insert_if(old, Anomaly::OldAcknowledgement);
        }
        // Behind the checks above, which compare with the acknowledgements so far.
        self.note_acknowledgement(segment, from, tracking);
        if payload > 0 {
            self.track_data(segment, from, &mut tracked);
        }
        if flags.fin() && self.is_blind(segment, from) {
            return TrackedSegment::ignored(Anomaly::OutOfWindow);
        }
        if flags.fin() && segment.is_whole() && !self.is_old(segment, from) {
            self.track_fin(segment, from);
        }
        tracked
    }

    fn track_fin(&mut self, segment: &Segment<'_>, from: KeyEnd) {
        let end = segment.sequence().wrapping_add(segment.sequence_length());
        let stream = self.stream_mut(from);
        if !stream.is_open() {
            stream.open(segment.sequence());
        }
        stream.reach(end);
        stream.end = end.wrapping_sub(1);
        stream.known.set(StreamFlags::END);
    }

    fn track_data(&mut self, segment: &Segment<'_>, from: KeyEnd, tracked: &mut TrackedSegment) {
        let hop_limit = segment.hop_limit();
        let stream = self.stream_mut(from);
        let anomalies = &mut tracked.anomalies;
        // A segment that expires on the path could show the engine data that the receiver never gets.
        let expires = hop_limit.saturating_add(HOP_LIMIT_TOLERANCE) < stream.hop_limit;
        anomalies.insert_if(expires, Anomaly::HopLimitDrop);
        stream.hop_limit = stream.hop_limit.max(hop_limit);
        let sequence = segment.sequence();
        let length = u32::try_from(segment.wire_payload_length()).unwrap_or(u32::MAX);
        let end = sequence.wrapping_add(length);
        let behind_fin = stream.known.has(StreamFlags::END) && distance(stream.end, end) > 0;
        anomalies.insert_if(behind_fin, Anomaly::DataAfterFin);
        let new = !stream.is_open() || distance(stream.next, end) > 0;
        anomalies.insert_if(new && stream.known.has(StreamFlags::RESET), Anomaly::DataAfterReset);
    }

    /// True if a FIN is outside of its receiver's window: a guess of an attacker who cannot see the
    /// connection.
    fn is_blind(&self, segment: &Segment<'_>, from: KeyEnd) -> bool {
        let stream = self.stream(from);
        stream.is_acknowledged() && distance(stream.edge, segment.sequence()) > 0
    }

    /// True if everything in a segment was acknowledged: its receiver answers and drops it.
    fn is_old(&self, segment: &Segment<'_>, from: KeyEnd) -> bool {
        let end = segment.sequence().wrapping_add(segment.sequence_length());
        let stream = self.stream(from);
        stream.is_acknowledged() && distance(end, stream.acknowledged) > 0
    }

    /// Records the segment's acknowledgement and window.
    fn note_acknowledgement(&mut self, segment: &Segment<'_>, from: KeyEnd, tracking: TrackingMode) {
        let peer = *self.stream(from.other());
        let sender = self.stream(from);
        // A SYN's window is never scaled; later ones only if both sides offer it (RFC 7323 section 2.2).
        // If a SYN was missed, the largest shift avoids refusing valid data.
        let shift = if segment.flags().syn() {
            0
        } else if !sender.is_from_start() || !peer.is_from_start() {
            UNKNOWN_SCALE
        } else if sender.known.has(StreamFlags::SCALE) && peer.known.has(StreamFlags::SCALE) {
            u32::from(sender.scale)
        } else {
            0
        };
        let acknowledgement = segment.acknowledgement();
        let window = u32::from(segment.window()) << shift;
        let stream = self.stream_mut(from.other());
        let edge = acknowledgement.wrapping_add(window);
        if stream.is_open() {
            stream.acknowledge(acknowledgement, edge);
        } else if tracking == TrackingMode::Inline {
            stream.await_at(acknowledgement, edge);
        }
    }
}

/// True if an acknowledgement is so old that its receiver ignores the segment (RFC 5961 section 5.2):
/// before the connection, or more than a window before the last one.
fn acknowledges_too_little(stream: &StreamState, acknowledgement: u32) -> bool {
    let window = distance(stream.acknowledged, stream.edge).max(i32::from(u16::MAX));
    stream.is_before_start(acknowledgement)
        || (stream.is_open()
            && stream.is_acknowledged()
            && distance(acknowledgement, stream.acknowledged) > window)
}
