//! Reads a segment's bytes, and handles missing ones.

use super::flow_segment::first_octet;
use crate::engine::banner_inspector::BannerInspector;
use crate::engine::dialogue::UnfinishedReason;
use crate::engine::undecided_flow::UndecidedFlow;
use crate::event::Side;
use crate::flow::{
    Anomaly, AnomalySet, CollectorLimits, PIN_LIMIT, StreamState, TrackedSegment, TrackingMode, distance,
};
use crate::packet::Segment;

/// Number of flows that may each fill their share of the buffers with bytes that their receivers have not
/// acknowledged.
const PINNING_FLOWS: usize = 16;

/// The streams of a segment's sender and of its peer.
pub(super) struct StreamPair<'f> {
    pub(super) own: &'f mut StreamState,
    pub(super) peer: &'f mut StreamState,
}

impl StreamPair<'_> {
    /// The server's, `own` being that of `side`.
    pub(super) const fn server(&mut self, side: Side) -> &mut StreamState {
        match side {
            Side::Client => self.peer,
            Side::Server => self.own,
        }
    }

    /// The client's and the server's, `own` being that of `side`.
    pub(super) const fn by_side(&self, side: Side) -> [&StreamState; 2] {
        match side {
            Side::Client => [self.own, self.peer],
            Side::Server => [self.peer, self.own],
        }
    }
}

/// A segment that comes in.
#[derive(Clone, Copy)]
pub(super) struct ArrivingSegment<'s> {
    pub(super) segment: &'s Segment<'s>,
    /// The sender.
    pub(super) side: Side,
    pub(super) tracked: &'s TrackedSegment,
    /// True if it can be shown again with more of its bytes.
    pub(super) may_ask: bool,
}

impl ArrivingSegment<'_> {
    /// True if octets are read of it.
    pub(super) fn brings_octets(&self) -> bool {
        !self.segment.payload().is_empty() && !self.tracked.ignore
    }
}

/// Returns the anomaly of a segment's bytes, before anything changes. In a flow that is `given_up`, nothing
/// is ever acknowledged.
pub(super) fn assess(
    conversation: &UndecidedFlow,
    streams: &StreamPair<'_>,
    arrival: ArrivingSegment<'_>,
    given_up: bool,
    judge: &BannerInspector<'_>,
) -> AnomalySet {
    let ArrivingSegment { segment, side, .. } = arrival;
    let (sequence, payload) = (first_octet(segment), segment.payload());
    let mut anomalies = conversation.assess(side, streams.own, sequence, payload, CollectorLimits::default());
    let room = (judge.settings.config.buffer_limit / PINNING_FLOWS).clamp(PIN_LIMIT / 4, PIN_LIMIT);
    let full = !given_up && conversation.is_full(side, streams.own, sequence, room);
    anomalies.insert_if(full, Anomaly::ReorderLimit);
    anomalies
}

/// Reads what a segment brings and draws the conclusions; whether more of it is to be asked for.
pub(super) fn take_in(
    conversation: &mut UndecidedFlow,
    streams: &mut StreamPair<'_>,
    arrival: ArrivingSegment<'_>,
    reported: &mut AnomalySet,
    judge: &mut BannerInspector<'_>,
) -> bool {
    let ArrivingSegment { segment, side, tracked, .. } = arrival;
    // The server acknowledged its peer's SYN without the data in it, so the client sends that data again (RFC
    // 7413 section 3).
    if let Some(at) = tracked.refused {
        conversation.rewind(side.other(), streams.peer, at);
    }
    // What was read began at a number that the receiver did not accept.
    if tracked.restarted {
        let at = streams.own.next();
        conversation.rewind(side, streams.own, at);
    }
    if arrival.brings_octets() {
        if judge.settings.tracking == TrackingMode::Inline {
            conversation.start_earlier(side, streams.own, first_octet(segment), segment.payload().len());
        }
        read(conversation, side, streams, segment, reported, judge);
    }
    // A stopped segment goes nowhere, so no more of it is needed.
    let stopped = judge.enforces() && judge.outcome.stop.is_some();
    let cut = !segment.is_whole() && !tracked.ignore && !stopped;
    let more = cut && skip_missing(conversation, streams, arrival, judge);
    end(conversation, side, streams, reported, judge);
    conversation.admission.observe(&mut judge.outcome);
    more
}

/// Reads a segment's bytes, as far as they are there.
fn read(
    conversation: &mut UndecidedFlow,
    side: Side,
    streams: &mut StreamPair<'_>,
    segment: &Segment<'_>,
    reported: &mut AnomalySet,
    judge: &mut BannerInspector<'_>,
) {
    let (sequence, payload) = (first_octet(segment), segment.payload());
    // Positions are followed, though the bytes are not read: acknowledgements are compared with them.
    if conversation.is_done(side) && !conversation.admission.needs_bytes(side) {
        streams.own.pass_over(sequence, payload.len());
        return;
    }
    let offer =
        conversation.take_payload(side, streams.own, sequence, payload, CollectorLimits::default(), judge);
    judge.shared.counters.overlap_octets += u64::from(offer.overlap);
    judge.shared.counters.out_of_order += u64::from(offer.ahead);
    judge.report_anomalies(offer.anomalies, reported);
}

/// Goes over the bytes that a cut segment lacks, or says that they have to be asked for.
fn skip_missing(
    conversation: &mut UndecidedFlow,
    streams: &mut StreamPair<'_>,
    arrival: ArrivingSegment<'_>,
    judge: &mut BannerInspector<'_>,
) -> bool {
    let ArrivingSegment { segment, side, may_ask, .. } = arrival;
    // Even bytes that a dialogue could spare: the receiver may take these in place of those that were judged.
    if may_ask && replaces_unseen(segment, streams.own) {
        return true;
    }
    match missing(segment, streams.own) {
        MissingBytes::Behind(0) => false,
        // A body's bytes need not be copied to user space, if nothing is judged by them.
        MissingBytes::Behind(count) if !may_ask || conversation.may_lack(side, count as u64) => {
            conversation.take_stock(streams.by_side(side), judge.packet.now);
            conversation.skip_missing(side, streams.own, count, judge);
            false
        }
        MissingBytes::Ahead if !may_ask => {
            // The whole segment passes, so its bytes count as sent.
            let (_, end) = unseen(segment);
            streams.own.reach(end);
            false
        }
        MissingBytes::Behind(_) | MissingBytes::Ahead => true,
    }
}

/// True if bytes that were not captured stand where others were let through that the receiver has not
/// acknowledged: it may not have taken those.
fn replaces_unseen(segment: &Segment<'_>, stream: &StreamState) -> bool {
    let (captured, end) = unseen(segment);
    let known = if distance(end, stream.next()) > 0 { end } else { stream.next() };
    stream.is_open() && distance(captured, known) > 0 && !stream.is_acknowledged_to(known)
}

/// Draws the conclusions of what has ended.
fn end(
    conversation: &mut UndecidedFlow,
    side: Side,
    streams: &StreamPair<'_>,
    reported: &mut AnomalySet,
    judge: &mut BannerInspector<'_>,
) {
    // An acknowledgement in this segment may complete the other direction.
    for (side, stream) in [(side, &*streams.own), (side.other(), &*streams.peer)] {
        if stream.is_complete() {
            // A FIN that never arrives ends nothing: the sender could continue with other bytes in its place.
            let sure = stream.is_end_acknowledged() || !judge.enforces();
            conversation.end(side, UnfinishedReason::Ended, sure, judge);
        }
    }
    if conversation.is_mismatched() {
        judge.report_anomalies(AnomalySet::of(Anomaly::ProtocolMismatch), reported);
    }
}

/// The bytes that a cut segment lacks, after those that were read.
enum MissingBytes {
    /// This number, next in order.
    Behind(usize),
    /// It came before its turn.
    Ahead,
}

fn missing(segment: &Segment<'_>, stream: &StreamState) -> MissingBytes {
    let (captured, end) = unseen(segment);
    if !stream.is_open() || distance(captured, stream.next()) < 0 {
        return MissingBytes::Ahead;
    }
    MissingBytes::Behind(usize::try_from(distance(stream.next(), end)).unwrap_or(0))
}

/// Returns the start and the end of a segment's bytes that were not captured.
fn unseen(segment: &Segment<'_>) -> (u32, u32) {
    let behind = |count: usize| first_octet(segment).wrapping_add(u32::try_from(count).unwrap_or(u32::MAX));
    (behind(segment.payload().len()), behind(segment.wire_payload_length()))
}
