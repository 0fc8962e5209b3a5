//! Segments of a direction whose SYN was not seen, before both ends agree where it stands.
//!
//! Their receiver may have no use for them: the sender can send what was acknowledged long ago. It answers by
//! an acknowledgement that looks as if it had taken them. So only what begins at its last acknowledgement
//! goes on. Everything else goes on as a probe without data, which the receiver answers, and the sender sends
//! its data again.

use super::flow_segment::{FlowSegment, SegmentInspector, guess_client};
use super::inspect_segment::SegmentInspection;
use crate::engine::decision::{Decision, InspectionResult};
use crate::event::EventSink;
use crate::flow::TrackingMode;
use crate::packet::{PacketPatch, ParsedPacket, parse, probe};

impl SegmentInspector<'_> {
    /// True if a segment must not go on as it is: it carries data or a FIN, and its receiver has not said
    /// that it awaits them.
    ///
    /// Where the receiver is never heard here, nobody can agree, and what is seen is judged.
    pub(super) fn is_disputed(&mut self, seen: FlowSegment<'_>, sink: &mut dyn EventSink) -> bool {
        let FlowSegment { segment, packet, id, from } = seen;
        let settings = &self.context.settings;
        let flow = self.flows.table.get_mut(id);
        let flags = segment.flags();
        let is_plain = flags.ack() && !flags.syn() && !flags.rst();
        if settings.tracking != TrackingMode::Inline || !settings.enforces(flow.key()) || !is_plain {
            return false;
        }
        let asks_whether_heard =
            flow.is_one_way() && packet.now.since(flow.started()) > settings.config.time_budget;
        let takes_space = segment.wire_payload_length() > 0 || flags.fin();
        // A handshake says by itself what may come before its answer.
        let is_awaited = flow.agrees_on(from, segment.sequence()) || flow.stream(from.other()).is_syn_sent();
        if is_awaited || flow.is_proven_one_way() || !takes_space && !asks_whether_heard {
            return false;
        }
        if flow.has_read_disputed(from) && !flow.is_one_way() {
            // The receiver is heard after all, or could not be waited for. Its acknowledgement shows where to
            // begin.
            SegmentInspection::new(self, seen, sink).close();
            self.flows.table.get_mut(id).begin_amid(guess_client(segment, from), packet.now);
        }
        true
    }

    /// Sends a probe on in place of a disputed segment, and takes only that into account.
    pub(super) fn ask_where_receiver_stands(
        &mut self,
        seen: FlowSegment<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        let flow = self.flows.table.get_mut(seen.id);
        let probe = probe(seen.segment, flow.probe_at(seen.segment.sequence()));
        flow.note_probe(seen.packet.now);
        self.context.shared.counters.probes += 1;
        let Some(probe) = probe else { return Decision::Drop.into() };
        if let Ok(ParsedPacket::Tcp(segment)) = parse(&probe, probe.len()) {
            self.follow(FlowSegment { segment: &segment, ..seen }, sink);
        }
        Decision::Patch(Box::new(PacketPatch::Replace(probe))).into()
    }
}
