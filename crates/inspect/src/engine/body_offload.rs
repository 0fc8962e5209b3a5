//! Bodies that need not be seen: a flow of which every request is read is released while a long response
//! passes.
//!
//! The kernel lets by then what the server sends, and what of the client has no bytes: its acknowledgements
//! (`src/hook`). Whatever else comes is queued: a FIN or a reset ends that by itself before, and the client's
//! next byte is sent around by the guard, which ends it, before it goes on. So no request is ever let by,
//! and nothing that answers one: there is none to answer.
//!
//! # When
//!
//! A body whose length its head gives exactly, with no two readings; at least 64 KiB of it are still to come,
//! and less than 1 GiB, so that sequence numbers stay unambiguous. Its request was seen whole, and no other
//! one: nothing of the client's is unread or out of order. Both directions were followed from their SYN on.
//! Rules have what they want of the body, no policy and no mark still needs the flow, and its packets may be
//! let by at all (offload).
//!
//! The release is decided by an acknowledgement of the client that covers the head and all that was judged of
//! the body: until then other bytes could take their place. A segment with bytes decides none.
//!
//! # Behind it
//!
//! The body's end is known by its sequence number. What the next segment that is queued says of the server's
//! bytes (its own number, or the client's acknowledgement) tells how many have gone by, and up to the body's
//! end they are gone over like bytes that a capture lacks: the transaction is told as if they had been read.
//! Up to there, numbers that were not seen are nothing odd. The first byte behind the body is the next
//! response's. What went by behind that end while the flow was released answers no request; it is told
//! (`http_unexpected_data`) and gone over.
//!
//! A request that was queued before the release was in force may pass when it is: [`Decision::Regain`] has it
//! sent around by the hook, which tells by a mark whether the release is in force, and once more where it is,
//! which takes that back. Rules that come into force meanwhile hold from the next request on.
//!
//! # What is queued all the same
//!
//! The request, and what the server sends before the acknowledgement of its head is back: as much as its
//! window allows in a round trip. Between two namespaces of one machine that may be a MiB at once; a body
//! that is much longer than the window goes by nearly whole. Where that is to be spared, too, responses go by
//! unread (`src/engine/response_offload.rs`).
//!
//! # Not for requests
//!
//! A client's body can't be released by a mark: the next request follows it in the same direction, and the
//! kernel would have to stop at a sequence number. What it can count are bytes of a connection
//! (`connbytes`), and those say nothing of their place: a client that sends the next request first, ahead of
//! its turn, and the rest of the body behind it, has sent as many (`tests/guard/bodies.rs` shows it).

use super::banner_inspector::BannerInspector;
use super::decision::Decision;
use super::undecided_flow::UndecidedFlow;
use crate::event::Side;
use crate::flow::{Anomaly, Flow, StreamState, distance};
use crate::packet::Segment;

/// Up to where the server has sent bytes, as far as a segment of one side tells.
fn shown_end(segment: &Segment<'_>, side: Side, stream: &StreamState) -> Option<u32> {
    let flags = segment.flags();
    match side {
        _ if flags.syn() => None,
        Side::Server => Some(segment.sequence()),
        Side::Client => flags.ack().then(|| stream.octets_to(segment.acknowledgement())),
    }
}

/// Takes note of what a segment says to have gone by, before it is compared with what was seen.
pub(super) fn observe_offloaded(flow: &mut Flow<UndecidedFlow>, segment: &Segment<'_>, side: Side) {
    let Some(release) = flow.conversation.as_ref().and_then(|it| it.body_offload) else { return };
    let stream = flow.stream_mut(flow.end(Side::Server));
    if let Some(at) = shown_end(segment, side, stream).filter(|at| release.covers(stream, *at)) {
        stream.skip_unseen(at);
    }
}

/// Goes over what has gone by, before a segment is read; whether anything has.
pub(super) fn catch_up(
    conversation: &mut UndecidedFlow,
    stream: &mut StreamState,
    segment: &Segment<'_>,
    side: Side,
    judge: &mut BannerInspector<'_>,
) -> bool {
    let Some(release) = conversation.body_offload else { return false };
    let before = stream.next();
    if let Some(at) = shown_end(segment, side, stream).filter(|at| release.covers(stream, *at)) {
        let end = if distance(release.until, at) > 0 { release.until } else { at };
        skip_offloaded(conversation, stream, end, judge);
        if distance(end, at) > 0 {
            judge.report_application_anomaly(Anomaly::UnexpectedData);
            skip_offloaded(conversation, stream, at, judge);
        }
    }
    if !release.stands && distance(release.until, stream.next()) >= 0 {
        conversation.body_offload = None;
    }
    stream.next() != before
}

fn skip_offloaded(
    conversation: &mut UndecidedFlow,
    stream: &mut StreamState,
    end: u32,
    judge: &mut BannerInspector<'_>,
) {
    let Ok(count @ 1..) = usize::try_from(distance(stream.next(), end)) else { return };
    judge.shared.counters.unseen_octets += count as u64;
    judge.outcome.notes.unseen += count as u64;
    conversation.skip_missing(Side::Server, stream, count, judge);
}

/// Decides whether a segment that passes releases the body, or ends its release.
pub(super) fn decide(
    flow: &mut Flow<UndecidedFlow>,
    segment: &Segment<'_>,
    side: Side,
    judge: &mut BannerInspector<'_>,
) -> Decision {
    if side == Side::Server {
        return Decision::Undecided;
    }
    // The client speaks again, so the kernel must not let anything pass from here on.
    if segment.wire_payload_length() > 0 {
        let release = flow.conversation.as_mut().and_then(|it| it.body_offload.as_mut());
        let stood = release.is_some_and(|release| std::mem::take(&mut release.stands));
        return if stood { Decision::Regain } else { Decision::Undecided };
    }
    let settings = judge.settings;
    // A rule's mark has to be set on each packet, so labelled flows stay in the queue.
    let may = settings.config.may_offload() && settings.dialogue.reads_on();
    if !may || flow.label != 0 || !segment.flags().is_plain() || flow.is_closed() {
        return Decision::Undecided;
    }
    let streams = [Side::Client, Side::Server].map(|side| *flow.stream(flow.end(side)));
    let Some(conversation) = &mut flow.conversation else { return Decision::Undecided };
    let Some(release) = conversation.releasable(&streams) else { return Decision::Undecided };
    if conversation.body_offload.is_some_and(|standing| release.repeats(&standing)) {
        return Decision::Undecided;
    }
    conversation.body_offload = Some(release);
    judge.shared.counters.released += 1;
    let server = flow.end(Side::Server);
    // The client's window updates pass unseen, so all of the body counts as allowed.
    flow.stream_mut(server).allow(release.until);
    Decision::Release
}

#[cfg(test)]
mod tests;
