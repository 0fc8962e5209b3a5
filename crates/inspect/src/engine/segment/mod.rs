//! One TCP segment's way through the engine: whose flow it is of, and how far it has to go.
//!
//! Most segments end early: those of a decided flow, and those of a flow in which nobody has said
//! anything. The others are a [`SegmentInspection`].

mod decide_flow;
mod flow_segment;
mod inspect_segment;
mod probe_receiver;
mod read_payload;

pub(super) use self::flow_segment::SegmentInspector;
use self::flow_segment::{FlowSegment, class_of, guess_client, refuse_packet, sees_only_one_end};
use self::inspect_segment::{PriorState, SegmentInspection};
use super::body_offload;
use super::config::OnFailure;
use super::context::SharedState;
use super::decision::{ChecksumState, Decision, InspectionResult, PacketInput, ResetPair};
use super::flow_facts::FlowFacts;
use super::response_offload;
use super::silent_flows::is_under_policy;
use super::tcp_flows::{TcpFlows, is_amid};
use super::undecided_flow::UndecidedFlow;
use crate::banner::{ProtocolRecognition, recognise};
use crate::event::{DropReason, EventSink, Side};
use crate::flow::{
    Anomaly, AnomalySet, Flow, FlowClass, FlowDecision, FlowId, FlowKey, KeyEnd, NEARBY, TrackingMode,
    distance,
};
use crate::packet::Segment;

impl SegmentInspector<'_> {
    pub(super) fn inspect(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        if !self.context.settings.config.flow_events {
            return self.inspect_counted(segment, packet, sink);
        }
        let inspected = self.inspect_counted(segment, packet, sink);
        if !matches!(inspected.decision, Decision::More { .. }) {
            self.account(segment, packet, sink);
        }
        inspected
    }

    /// Counts a segment for the record of its flow.
    fn account(&mut self, segment: &Segment<'_>, packet: &PacketInput<'_>, sink: &mut dyn EventSink) {
        let (key, from) = FlowKey::of(segment);
        let Some(id) = self.flows.table.find(&key) else { return };
        let TcpFlows { table, accounts, .. } = &mut *self.flows;
        let flow = table.get(id);
        accounts.count((id, flow), from, segment, packet);
        let blocked = flow.ruling.blocks();
        if blocked && self.context.settings.tracking == TrackingMode::Inline {
            self.flows.report_stopped(id, packet.now, &mut self.context.session(sink));
        }
    }

    fn inspect_counted(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        let (key, from) = FlowKey::of(segment);
        let found =
            self.flows.table.find(&key).or_else(|| self.restore_blocked(key, segment, from, packet, sink));
        if let Some(id) = found {
            let seen = FlowSegment { segment, packet, id, from };
            if self.is_due_to_reject(seen) {
                return self.reject_refused(seen, sink);
            }
            if let Some(inspected) = self.inspect_decided(seen) {
                return inspected;
            }
        }
        let verify = packet.checksums == ChecksumState::Verify;
        let needs_patch = self.needs_patch(segment);
        let needs_all = verify && !segment.payload().is_empty() || needs_patch;
        if needs_all && !segment.is_whole() && self.context.may_ask_for_more(packet) {
            // Only a whole segment has a checksum that can be verified. Unverified bytes may be some that the
            // receiver discards.
            return Decision::More { octets: segment.wire_length() }.into();
        }
        let wrong = verify && !segment.checksums_valid();
        let id = match found {
            Some(id) => id,
            // These start no connection, so they get no place in the table.
            None if segment.flags().rst() || wrong => {
                return self.inspect_stray(segment, packet, wrong, sink);
            }
            None => {
                let opener = (key, guess_client(segment, from));
                let mut session = self.context.session(sink);
                match self.flows.begin(opener, first_class(segment), packet.now, &mut session) {
                    Ok(id) => id,
                    Err(_) => return self.refuse_flow(segment, packet, sink),
                }
            }
        };
        let seen = FlowSegment { segment, packet, id, from };
        if wrong {
            return SegmentInspection::new(self, seen, sink).refuse(Anomaly::BadChecksum);
        }
        let inspected = self.inspect_undecided(seen, sink);
        if needs_patch { patched(inspected, segment, packet) } else { inspected }
    }

    /// The flow of a segment, if it has lost its place and its verdict was kept. A reset needs none: it
    /// passes.
    fn restore_blocked(
        &mut self,
        key: FlowKey,
        segment: &Segment<'_>,
        from: KeyEnd,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> Option<FlowId> {
        if segment.flags().rst() {
            return None;
        }
        self.flows.restore_blocked(
            (key, guess_client(segment, from)),
            packet.now,
            &mut self.context.session(sink),
        )
    }

    /// True if a segment of an undecided flow may be read otherwise by its receiver than by the engine.
    fn needs_patch(&self, segment: &Segment<'_>) -> bool {
        let settings = &self.context.settings;
        segment.is_ambiguous()
            && settings.tracking == TrackingMode::Inline
            && settings.enforces(&FlowKey::of(segment).0)
    }

    /// True if a segment is the first of a flow that was refused when nobody said anything.
    fn is_due_to_reject(&self, seen: FlowSegment<'_>) -> bool {
        let flags = seen.segment.flags();
        self.flows.table.get(seen.id).ruling == FlowDecision::Refused && !flags.syn() && !flags.rst()
    }

    /// Resets both ends of such a flow, by the numbers of the segment.
    fn reject_refused(&mut self, seen: FlowSegment<'_>, sink: &mut dyn EventSink) -> InspectionResult {
        let FlowSegment { segment, packet, id, from } = seen;
        let flow = self.flows.table.touch(id, packet.now);
        let receiver_expects = receiver_expects(flow, segment, from);
        let peer = flow.stream(from.other());
        let sender_expects = peer.is_open().then(|| peer.next());
        flow.ruling = FlowDecision::Rejected;
        let (facts, side) = (FlowFacts::from(&*flow), flow.side(from));
        let mut judge = self.context.session(sink).new_inspector(facts, Some(side), Some(segment), packet);
        let policy = judge.settings.rules.policy(&judge.flow.endpoints());
        judge.emit_drop(DropReason::Policy, policy.map(|policy| policy.id().to_owned()), true);
        judge.shared.counters.count_blocked(true);
        let (notes, settings) = (judge.outcome.notes, judge.settings);
        self.flows.observe(id, notes, settings);
        Decision::Reject(Box::new(ResetPair::new(segment, receiver_expects, sender_expects))).into()
    }

    /// The whole story of a packet whose flow is decided; `None` where it may begin a new connection.
    fn inspect_decided(&mut self, seen: FlowSegment<'_>) -> Option<InspectionResult> {
        let FlowSegment { segment, packet, id, from } = seen;
        let flow = self.flows.table.get_mut(id);
        let decision = match flow.ruling {
            FlowDecision::Undecided => return None,
            FlowDecision::Passed => Decision::Pass,
            FlowDecision::Blocked | FlowDecision::Refused | FlowDecision::Rejected
                if passes_although_blocked(flow, segment, from) =>
            {
                Decision::Undecided
            }
            FlowDecision::Blocked | FlowDecision::Refused | FlowDecision::Rejected => Decision::Block,
        };
        let flags = segment.flags();
        // A SYN with the known number is a copy of the one that opened the connection.
        let begins = !flow.stream(from).began_with(segment.sequence()) || flow.is_one_way();
        if flags.syn() && begins {
            return None;
        }
        let mark = self.context.shared.marks.of(flow.label);
        let ends = if flow.ruling == FlowDecision::Passed {
            flags.fin() || flags.rst()
        } else {
            is_mere_reset(segment)
        };
        if ends {
            flow.note_end(segment, from);
            if flow.is_closed() {
                self.flows.table.set_class(id, FlowClass::Closed, packet.now);
            }
        }
        self.flows.table.touch(id, packet.now);
        self.context.shared.counters.decided_again += 1;
        Some(InspectionResult { decision, mark })
    }

    /// A segment that belongs to no flow and begins none.
    fn inspect_stray(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        wrong: bool,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        if !wrong {
            return Decision::Undecided.into();
        }
        let facts = facts_of_untracked(segment, packet);
        let mut judge = self.context.session(sink).new_inspector(facts, None, Some(segment), packet);
        judge.report_anomalies(AnomalySet::of(Anomaly::BadChecksum), &mut AnomalySet::default());
        refuse_packet(&mut judge).into()
    }

    /// There is no room for the segment's flow.
    fn refuse_flow(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        self.context.shared.counters.no_room += 1;
        let facts = facts_of_untracked(segment, packet);
        let settings = &self.context.settings;
        let policy = settings.rules.policy(&facts.endpoints()).filter(|policy| !policy.allows_any());
        let refused =
            settings.enforces(facts.key()) && policy.is_some_and(|policy| policy.otherwise().blocks());
        if settings.config.on_failure == OnFailure::Open && !refused {
            return Decision::Undecided.into();
        }
        let mut judge = self.context.session(sink).new_inspector(facts, None, Some(segment), packet);
        judge.emit_drop(DropReason::FlowMemcap, None, false);
        Decision::Drop.into()
    }

    fn inspect_undecided(&mut self, seen: FlowSegment<'_>, sink: &mut dyn EventSink) -> InspectionResult {
        let FlowSegment { segment, packet, id, from } = seen;
        let tracking = self.context.settings.tracking;
        let flow = self.flows.table.get(id);
        let unheard = !is_amid(flow) && flow.starts_one_way_connection(segment, from);
        if unheard || flow.starts_new_connection(segment, from, tracking) {
            self.restart_flow(seen, sink);
        } else if is_unrelated(flow, segment, from, tracking) {
            // No end has confirmed what was seen of this flow, so it belonged to another connection or was
            // forged.
            SegmentInspection::new(self, seen, sink).close();
            self.flows.report_reused(id, packet.now, &mut self.context.session(sink));
            self.flows.table.get_mut(id).begin_amid(guess_client(segment, from), packet.now);
        }
        if self.flows.table.get(id).ruling == FlowDecision::Undecided && self.is_disputed(seen, sink) {
            return self.ask_where_receiver_stands(seen, sink);
        }
        self.follow(seen, sink)
    }

    /// Takes a segment into account that belongs to what was seen of its flow.
    fn follow(&mut self, seen: FlowSegment<'_>, sink: &mut dyn EventSink) -> InspectionResult {
        let FlowSegment { segment, packet, id, from } = seen;
        let tracking = self.context.settings.tracking;
        // Before `track`, which refuses numbers far beyond what was seen.
        let missed = self.flows.may_have_missed(id, packet.now);
        let flow = self.flows.table.touch(id, packet.now);
        let decided = flow.ruling != FlowDecision::Undecided;
        if missed && !decided {
            flow.catch_up(segment, from);
        }
        body_offload::observe_offloaded(flow, segment, flow.side(from));
        response_offload::observe_offloaded(flow, segment, flow.side(from));
        // Kept, so that a refused segment can be undone.
        let before = *flow.ends();
        let receiver_expects = receiver_expects(flow, segment, from);
        let tracked = flow.track(segment, from, tracking);
        if decided {
            return self.inspect_reopening(seen, sink);
        }
        let quiet = segment.wire_payload_length() == 0 || tracked.ignore;
        if quiet && tracked.anomalies.is_empty() && flow.conversation.is_none() {
            return self.inspect_without_data(id, packet);
        }
        if !tracked.ignore && settle_client(flow, segment, from, &mut self.context.shared) {
            // What was read so far was taken for the other side's words.
            SegmentInspection::new(self, seen, sink).close();
        }
        let may_ask = self.context.may_ask_for_more(packet);
        let origin = PriorState { before, receiver_expects, may_ask };
        SegmentInspection::of(self, seen, origin, sink).inspect(&tracked)
    }

    /// A SYN of a decided flow that may yet turn out to begin another one.
    fn inspect_reopening(&mut self, seen: FlowSegment<'_>, sink: &mut dyn EventSink) -> InspectionResult {
        let syn = seen.segment.flags().syn();
        if self.flows.table.get(seen.id).ruling != FlowDecision::Passed && !syn {
            return Decision::Block.into();
        }
        if syn
            && seen.segment.wire_payload_length() > 0
            && self.context.settings.enforces(&FlowKey::of(seen.segment).0)
        {
            return SegmentInspection::new(self, seen, sink).refuse(Anomaly::DataInReopeningSyn);
        }
        Decision::Undecided.into()
    }

    /// A segment without data of a flow without data: most of a handshake.
    fn inspect_without_data(&mut self, id: FlowId, packet: &PacketInput<'_>) -> InspectionResult {
        let settings = &self.context.settings;
        let flow = self.flows.table.get_mut(id);
        let late = packet.now.since(flow.started()) > settings.config.time_budget;
        if sees_only_one_end(flow, settings) && late && !is_under_policy(flow, &settings.rules) {
            // Only acknowledgements of one direction pass here, so there will never be data to read.
            flow.ruling = FlowDecision::Passed;
            let class = if flow.is_closed() { FlowClass::Closed } else { FlowClass::Passed };
            self.flows.table.set_class(id, class, packet.now);
            return Decision::Pass.into();
        }
        let (class, _) = class_of(flow, settings);
        if class != flow.class() {
            self.flows.table.set_class(id, class, packet.now);
        }
        Decision::Undecided.into()
    }

    /// The ends begin a new connection with the same ports.
    fn restart_flow(&mut self, seen: FlowSegment<'_>, sink: &mut dyn EventSink) {
        SegmentInspection::new(self, seen, sink).close();
        let reopened = self.flows.report_reused(seen.id, seen.packet.now, &mut self.context.session(sink));
        self.flows.table.get_mut(seen.id).restart_connection(seen.segment, seen.packet.now);
        if let Some(reopened) = reopened {
            self.flows.accounts.start_next_flow(seen.id, self.flows.table.get(seen.id), reopened);
        }
        self.flows.table.set_class(seen.id, FlowClass::Opening, seen.packet.now);
        self.flows.watch_for_silence(seen.id, seen.packet.now, &self.context.settings);
        self.context.shared.counters.flows += 1;
    }
}

/// True if a segment has nothing to do with what was seen of a flow that nobody has confirmed.
fn is_unrelated(
    flow: &Flow<UndecidedFlow>,
    segment: &Segment<'_>,
    from: KeyEnd,
    tracking: TrackingMode,
) -> bool {
    let stream = flow.stream(from);
    tracking == TrackingMode::Inline
        && !stream.is_from_start()
        && stream.is_open()
        && flow.ruling == FlowDecision::Undecided
        && !segment.flags().syn()
        && !flow.is_supported()
        && !is_amid(flow)
        && flow.conversation.as_ref().is_none_or(|conversation| conversation.condemned.is_none())
        && distance(stream.next(), segment.sequence()).unsigned_abs() > NEARBY
}

/// Settles who the client is before data is read; true if it was taken for the server. Data in a SYN tells
/// nothing for good.
fn settle_client(
    flow: &mut Flow<UndecidedFlow>,
    segment: &Segment<'_>,
    from: KeyEnd,
    shared: &mut SharedState,
) -> bool {
    if flow.client_known() || segment.payload().is_empty() || segment.flags().syn() {
        return false;
    }
    shared.counters.midstream += 1;
    let was = flow.end(Side::Client);
    let client = match shown_side(segment.payload()) {
        Some(Side::Client) => from,
        Some(Side::Server) => from.other(),
        None => guess_client(segment, from),
    };
    flow.set_client(client);
    was != client
}

/// Returns the side that begins with these bytes, if they show it.
fn shown_side(payload: &[u8]) -> Option<Side> {
    let is_http = |side| recognise(side, payload) == ProtocolRecognition::Http;
    match payload {
        // RFC 8446 sections 4 and 5.1: a record of the handshake, and the type of its first message.
        [0x16, 3, _, _, _, 1, ..] => Some(Side::Client),
        [0x16, 3, _, _, _, 2, ..] => Some(Side::Server),
        _ if is_http(Side::Server) => Some(Side::Server),
        _ => is_http(Side::Client).then_some(Side::Client),
    }
}

/// The facts of a flow that is in no table, by the one segment of it that is known.
fn facts_of_untracked(segment: &Segment<'_>, packet: &PacketInput<'_>) -> FlowFacts {
    let (key, from) = FlowKey::of(segment);
    FlowFacts::new(key, packet.now, guess_client(segment, from))
}

/// Patches a segment that passes so that it has only one meaning, or drops it where that can't be done.
fn patched(inspected: InspectionResult, segment: &Segment<'_>, packet: &PacketInput<'_>) -> InspectionResult {
    if !matches!(inspected.decision, Decision::Undecided | Decision::Pass) {
        return inspected;
    }
    let patch = segment.unambiguous(packet.ip, packet.checksums == ChecksumState::Verify);
    let decision = patch.map_or(Decision::Drop, |patch| Decision::Patch(Box::new(patch)));
    InspectionResult { decision, ..inspected }
}

/// True for segments of a blocked flow that pass all the same: a reset, by which the other end learns that
/// this one has given up, and the answer to a SYN for ports in use (RFC 5961 section 4), which that end
/// resets.
fn passes_although_blocked(flow: &Flow<UndecidedFlow>, segment: &Segment<'_>, from: KeyEnd) -> bool {
    let answers = flow.reopening().is_some_and(|syn| syn.from != from);
    is_mere_reset(segment) || answers && segment.flags().is_plain() && segment.wire_payload_length() == 0
}

/// True if a segment says nothing but that its connection is over.
fn is_mere_reset(segment: &Segment<'_>) -> bool {
    let flags = segment.flags();
    flags.rst() && !flags.syn() && !flags.fin() && segment.wire_payload_length() == 0
}

/// Returns the class of a flow that starts with this segment.
fn first_class(segment: &Segment<'_>) -> FlowClass {
    if segment.flags().syn() { FlowClass::Opening } else { FlowClass::Unconfirmed }
}

/// Sequence number that the segment's receiver expects: behind all that was let through to it, which
/// the first bytes of a segment that was asked for again were not.
fn receiver_expects(flow: &mut Flow<UndecidedFlow>, segment: &Segment<'_>, from: KeyEnd) -> u32 {
    let side = flow.side(from);
    if let Some(conversation) = &mut flow.conversation
        && let Some((_, _, expected)) = conversation
            .asked
            .take_if(|(asked, sequence, _)| *asked == side && *sequence == segment.sequence())
    {
        return expected;
    }
    let stream = flow.stream(from);
    if stream.is_open() { stream.next() } else { segment.sequence() }
}
