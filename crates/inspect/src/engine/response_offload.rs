//! Responses that need not be seen: where only requests are to be judged, what the server sends goes by in
//! the kernel from the second transaction on, and every byte of the client is read.
//!
//! # When
//!
//! `--http-inspect requests`: the first response was judged as far as rules want it, it answered every
//! request that was seen until then, and the client has acknowledged it. Both directions were followed from
//! their SYN on, no policy and no mark needs the flow, and its packets may be let by (offload). Then the
//! server's direction is decided (`Dialogue::leave`).
//!
//! A segment without bytes of the client's sets it, or one with bytes of the server's: none with a request
//! in it passes by a mark that others have restored.
//!
//! # What stands
//!
//! The kernel leaves it as it is where the client sends bytes, and queues those ([`Decision::Keep`]).
//! Whatever else comes (SYN, FIN, RST, urgent data) ends it before that is queued. Taking it back is a
//! packet's going around ([`Decision::Regain`]): by its second visit nothing goes by unseen.
//!
//! What the server has sent is known by what the client says of it, modulo 2³²: a response may be longer than
//! that. Nothing is read there, so a lie about it hides nothing. What the server has *received* is not known,
//! and what it has not may be replaced by its sender: bytes that were let through stay comparable. So once
//! [`UNKNOWN`] of them wait, the release is taken back, and set again by the server's next segment, which
//! acknowledges them.
//!
//! # What follows a request
//!
//! The client's bytes are framed by themselves (Content-Length, chunks), also behind `Expect`. `CONNECT` and
//! `Upgrade` in a later request change nothing: whether the server agrees is not seen, and if it does not,
//! requests follow. So what follows is read as requests for as long as the connection lasts, and what is none
//! is left out, however long that is. Rules about what such a tunnel holds miss it: where one would block,
//! every response is read ([`HttpInspect::Auto`](super::HttpInspect)).
//!
//! A connection whose responses go by stays so when rules are exchanged, as a decided one stays decided.

use super::banner_inspector::BannerInspector;
use super::decision::Decision;
use super::offload_state::ResponseOffload;
use super::undecided_flow::UndecidedFlow;
use crate::event::Side;
use crate::flow::{Flow, distance};
use crate::packet::Segment;

/// Maximum of the client's bytes that may wait for an acknowledgement outside of inspection.
const UNKNOWN: u32 = 16 << 10;

/// Maximum distance of the client's bytes from the last ones for a segment of the same connection.
const NEAR: u32 = 1 << 20;

/// Takes note of what a segment says to have gone by, before it is compared with what was seen.
pub(super) fn observe_offloaded(flow: &mut Flow<UndecidedFlow>, segment: &Segment<'_>, side: Side) {
    let flags = segment.flags();
    if flow.conversation.as_ref().is_none_or(|it| it.response_offload.is_none())
        || flags.syn()
        || !flags.ack()
    {
        return;
    }
    let (client, server) = (flow.end(Side::Client), flow.end(Side::Server));
    let next = flow.stream(client).next();
    let of_client = match side {
        Side::Client => segment.sequence(),
        Side::Server => segment.acknowledgement(),
    };
    // An attacker who cannot see the connection cannot guess a number that is near.
    if distance(next, of_client).unsigned_abs() > NEAR {
        return;
    }
    if side == Side::Client && of_client == next {
        // Bytes in order are within the window, whose updates pass unseen.
        flow.stream_mut(client).allow(next);
    }
    let stream = flow.stream_mut(server);
    let count = match side {
        Side::Client => stream.jump_to(stream.octets_to(segment.acknowledgement()), true),
        Side::Server => stream.jump_to(segment.sequence(), false),
    };
    if let Some(standing) = flow.conversation.as_mut().and_then(|it| it.response_offload.as_mut()) {
        standing.unseen += u64::from(count);
    }
}

/// Counts what has gone by.
pub(super) fn count(conversation: &mut UndecidedFlow, judge: &mut BannerInspector<'_>) {
    let Some(standing) = &mut conversation.response_offload else { return };
    let unseen = std::mem::take(&mut standing.unseen);
    judge.shared.counters.unseen_octets += unseen;
    judge.outcome.notes.unseen += unseen;
}

/// Returns the effect of a segment that passes on a flow with offloaded responses, or `None` if they must be
/// inspected.
pub(super) fn decide(
    flow: &mut Flow<UndecidedFlow>,
    segment: &Segment<'_>,
    side: Side,
    judge: &mut BannerInspector<'_>,
) -> Option<Decision> {
    let settings = judge.settings;
    let streams = [Side::Client, Side::Server].map(|side| *flow.stream(flow.end(side)));
    let may = settings.config.may_offload() && flow.label == 0 && !flow.is_closed();
    let conversation = flow.conversation.as_mut()?;
    if !conversation.only_reads_client() {
        // The server's bytes have to be read again, as the answer to a hello that was found.
        let stands = conversation.response_offload.as_mut().map(|it| std::mem::take(&mut it.stands));
        let asks = side == Side::Client && segment.wire_payload_length() > 0;
        return stands.filter(|stands| *stands && asks).map(|_| Decision::Regain);
    }
    let [client, _] = &streams;
    let known = |limit: u32| client.is_acknowledged_to(client.next().wrapping_sub(limit));
    let octets = segment.wire_payload_length() > 0;
    // The hook takes the offload back for these flags before it queues the packet.
    if !segment.flags().is_plain() {
        if let Some(standing) = &mut conversation.response_offload {
            standing.stands = false;
        }
        return Some(Decision::Undecided);
    }
    if side == Side::Client && octets {
        // Bytes missing before this segment may have passed uninspected. The server's acknowledgement shows
        // it, if that is seen.
        let is_ahead = conversation.holds_ahead();
        let Some(standing) = conversation.response_offload.as_mut().filter(|it| it.stands) else {
            return Some(Decision::Undecided);
        };
        // The server's acknowledgements pass unseen, so the number of bytes without one has to stay small.
        if may && !is_ahead && known(UNKNOWN) {
            return Some(Decision::Keep);
        }
        standing.stands = false;
        return Some(Decision::Regain);
    }
    // A client's segment without bytes, or a server's with bytes: no request may be in the packet that sets
    // the mark.
    let carries = octets == (side == Side::Server);
    if !may || !carries || !known(UNKNOWN / 2) || !conversation.can_offload_response(&streams) {
        return Some(Decision::Undecided);
    }
    let standing = conversation.response_offload.get_or_insert(ResponseOffload { stands: false, unseen: 0 });
    // A segment that comes in spite of the offload was queued before, or another segment ended the offload.
    // So it is set again.
    judge.shared.counters.released += u64::from(!std::mem::replace(&mut standing.stands, true));
    Some(Decision::Stand)
}

#[cfg(test)]
mod tests;
