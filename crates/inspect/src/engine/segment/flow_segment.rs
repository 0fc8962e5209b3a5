//! A segment of a flow in the table, and what the engine concludes from it and its flow alone.

use crate::engine::banner_inspector::BannerInspector;
use crate::engine::context::{EngineContext, EngineSettings};
use crate::engine::decision::{Decision, PacketInput};
use crate::engine::tcp_flows::{TcpFlows, is_amid};
use crate::engine::undecided_flow::UndecidedFlow;
use crate::flow::{Flow, FlowClass, FlowId, KeyEnd, TrackingMode};
use crate::packet::Segment;

/// A segment of a flow in the table.
#[derive(Clone, Copy)]
pub(super) struct FlowSegment<'s> {
    pub(super) segment: &'s Segment<'s>,
    pub(super) packet: &'s PacketInput<'s>,
    pub(super) id: FlowId,
    pub(super) from: KeyEnd,
}

/// TCP's flows, and what inspecting their segments takes.
pub struct SegmentInspector<'e> {
    pub flows: &'e mut TcpFlows,
    pub context: &'e mut EngineContext,
}

/// Sequence number of a segment's first byte of data.
pub(super) fn first_octet(segment: &Segment<'_>) -> u32 {
    segment.sequence().wrapping_add(u32::from(segment.flags().syn()))
}

/// True if only one end of a flow is ever heard here. Under `--enforce` the other one has then answered no
/// probe, or no SYN.
pub(super) fn sees_only_one_end(flow: &Flow<UndecidedFlow>, settings: &EngineSettings) -> bool {
    let asks = settings.tracking == TrackingMode::Inline && settings.enforces(flow.key());
    if asks && !flow.is_from_start() { flow.is_proven_one_way() } else { flow.is_one_way() }
}

/// Returns the class of an undecided flow, and whether it is over.
pub(super) fn class_of(flow: &Flow<UndecidedFlow>, settings: &EngineSettings) -> (FlowClass, bool) {
    let inline = settings.tracking == TrackingMode::Inline;
    // There are a dozen reasons for which a reset or FIN may not be taken. Where that would let the rest of a
    // banner pass, the flow stays, or what is left of it is its verdict (`BlockedKeys`).
    let remembers = inline && flow.is_supported();
    let over =
        flow.is_over() || flow.is_closed() && (remembers || !is_amid(flow) || !settings.enforces(flow.key()));
    let class = if flow.is_opening() {
        FlowClass::Opening
    } else if over {
        FlowClass::Closed
    } else if inline && !flow.is_supported() {
        FlowClass::Unconfirmed
    } else {
        FlowClass::Undecided
    };
    (class, over)
}

/// Drops the packet where the anomaly policy says so.
pub(super) fn refuse_packet(judge: &mut BannerInspector<'_>) -> Decision {
    match judge.outcome.refuse {
        Some(reason) => {
            judge.emit_drop(reason, None, false);
            if judge.enforces() { Decision::Drop } else { Decision::Undecided }
        }
        None => Decision::Undecided,
    }
}

/// The sender is the client if it sends to the smaller port: the guess where no SYN was seen.
pub(super) fn guess_client(segment: &Segment<'_>, from: KeyEnd) -> KeyEnd {
    let flags = segment.flags();
    // A listener ignores a SYN with FIN or RST (net/ipv4/tcp_input.c: tcp_rcv_state_process).
    let opens = flags.syn() && !flags.fin() && !flags.rst();
    let to_server = if opens { !flags.ack() } else { segment.destination_port() <= segment.source_port() };
    if to_server { from } else { from.other() }
}
