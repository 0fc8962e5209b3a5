//! One TCP segment's way through the engine.

mod conclusion;

use super::conversation::Conversation;
use super::http::Unfinished;
use super::judge::{FlowFacts, Judge, Outcome, Stop, merge};
use super::{Checksums, Decision, Engine, Inspected, OnFailure, PacketInput};
use crate::banner::{Recognition, recognise};
use crate::event::{DropReason, Endpoints, EventSink, Side};
use crate::flow::{
    Anomaly, AnomalySet, Class, End, Flow, FlowId, Key, Limits, Stream, Tracked, Verdict, distance,
};
use crate::packet::Segment;
use crate::rules::Mark;

/// A segment with what was worked out about it.
#[derive(Clone, Copy)]
struct Seen<'s> {
    segment: &'s Segment<'s>,
    packet: &'s PacketInput<'s>,
    id: FlowId,
    from: End,
}

impl Engine {
    pub(super) fn inspect_segment(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let (key, from) = Key::of(segment);
        let found = self.flows.find(&key);
        if let Some(id) = found
            && let Some(inspected) = self.inspect_decided(id, segment, from, packet)
        {
            return inspected;
        }
        let wrong = packet.checksums == Checksums::Verify && !segment.checksums_valid();
        let id = match found {
            Some(id) => id,
            None if segment.flags().rst() || wrong => {
                return self.inspect_stray(segment, packet, wrong, sink);
            }
            None => match self.begin(key, guess_client(segment, from), packet.now, sink) {
                Ok(id) => id,
                Err(_) => return self.refuse_flow(segment, packet, sink),
            },
        };
        let seen = Seen { segment, packet, id, from };
        if wrong {
            return self.refuse_segment(seen, Anomaly::BadChecksum, sink);
        }
        self.inspect_undecided(seen, sink)
    }

    /// The whole story of a packet whose flow is decided; `None` where it may begin a new connection.
    fn inspect_decided(
        &mut self,
        id: FlowId,
        segment: &Segment<'_>,
        from: End,
        packet: &PacketInput<'_>,
    ) -> Option<Inspected> {
        let flow = self.flows.get_mut(id);
        let decision = match flow.verdict {
            Verdict::Undecided => return None,
            Verdict::Passed => Decision::Pass,
            Verdict::Blocked | Verdict::Rejected => Decision::Block,
        };
        let flags = segment.flags();
        if flags.syn() && !packet_is_repeated(flow.stream(from).next(), segment) {
            return None;
        }
        let mark = label_mark(&self.marks, flow.label);
        let passed = flow.verdict == Verdict::Passed;
        if passed && (flags.fin() || flags.rst()) {
            flow.note_end(segment, from);
            if flow.is_closed() {
                self.flows.set_class(id, Class::Closed, packet.now);
            }
        }
        self.flows.touch(id, packet.now);
        Some(Inspected { decision, mark })
    }

    /// A segment that belongs to no flow and begins none.
    fn inspect_stray(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        wrong: bool,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        if !wrong {
            return Decision::Undecided.into();
        }
        let mut judge = self.judge(facts_of_untracked(segment, packet), None, Some(segment), packet, sink);
        let mut anomalies = AnomalySet::default();
        anomalies.insert(Anomaly::BadChecksum);
        judge.note(anomalies, &mut AnomalySet::default());
        finish_refused(judge).into()
    }

    /// There is no room for the segment's flow.
    fn refuse_flow(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        self.counters.no_room += 1;
        if self.config.on_failure == OnFailure::Open {
            return Decision::Undecided.into();
        }
        let mut judge = self.judge(facts_of_untracked(segment, packet), None, Some(segment), packet, sink);
        judge.tell_drop(DropReason::FlowMemcap, None, false);
        Decision::Drop.into()
    }

    /// A segment of an undecided flow whose receiver will not accept it.
    fn refuse_segment(&mut self, seen: Seen<'_>, anomaly: Anomaly, sink: &mut dyn EventSink) -> Inspected {
        let mut anomalies = AnomalySet::default();
        anomalies.insert(anomaly);
        let mut reported = self.flows.get(seen.id).reported;
        let mut judge = self.judge_seen(seen, sink);
        judge.note(anomalies, &mut reported);
        let decision = finish_refused(judge);
        self.flows.get_mut(seen.id).reported = reported;
        decision.into()
    }

    fn inspect_undecided(&mut self, seen: Seen<'_>, sink: &mut dyn EventSink) -> Inspected {
        let Seen { segment, packet, id, from } = seen;
        if self.flows.get(id).begins_anew(segment, from, self.tracking) {
            self.begin_anew(seen, sink);
        }
        self.flows.touch(id, packet.now);
        let tracking = self.tracking;
        let flow = self.flows.get_mut(id);
        let decided = flow.verdict != Verdict::Undecided;
        let receiver_expects = receiver_expects(flow, segment, from);
        let tracked = flow.track(segment, from, tracking);
        if decided {
            // A SYN of a decided flow that may yet turn out to begin another one.
            let blocked = flow.verdict != Verdict::Passed && !segment.flags().syn();
            return if blocked { Decision::Block.into() } else { Decision::Undecided.into() };
        }
        let quiet = segment.wire_payload_length() == 0 || tracked.ignore;
        if quiet && tracked.anomalies.is_empty() && flow.conversation.is_none() {
            return self.inspect_quiet(seen);
        }
        self.inspect_loud(seen, &tracked, receiver_expects, sink)
    }

    /// A segment without data of a flow without data: most of a handshake.
    fn inspect_quiet(&mut self, seen: Seen<'_>) -> Inspected {
        let Seen { segment, packet, id, from } = seen;
        let flow = self.flows.get_mut(id);
        let class = if flow.is_closed() {
            Class::Closed
        } else if segment.flags().syn() && !flow.stream(from.other()).is_open() {
            Class::Opening
        } else {
            Class::Undecided
        };
        let blind = !flow.stream(from).from_start() && !flow.stream(from.other()).from_start();
        if blind && packet.now.since(flow.started()) > self.config.time_budget {
            // Only one direction's acknowledgements come by here: there will never be data to read.
            return self.let_pass(id, packet);
        }
        self.flows.set_class(id, class, packet.now);
        Decision::Undecided.into()
    }

    fn inspect_loud(
        &mut self,
        seen: Seen<'_>,
        tracked: &Tracked,
        receiver_expects: u32,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let Seen { segment, packet, id, from } = seen;
        self.settle_client(seen);
        let mut conversation = match self.flows.get_mut(id).conversation.take() {
            Some(conversation) => conversation,
            None => self.spare.pop().unwrap_or_default(),
        };
        let side = self.flows.get(id).side(from);
        let mut reported = self.flows.get(id).reported;
        let mut stream = *self.flows.get(id).stream(from);
        let mut refused = tracked.refused.map(|at| (at, *self.flows.get(id).stream(from.other())));
        let may_ask = self.may_ask_for_more(packet);
        let mut judge = self.judge_seen(seen, sink);
        judge.told = std::mem::take(&mut conversation.told);
        judge.note(tracked.anomalies, &mut reported);
        if let Some((at, peer)) = &mut refused {
            conversation.rewind(side.other(), peer, *at);
        }
        let mut more = false;
        let refused_already = judge.outcome.refuse.is_some() && judge.enforces();
        if !segment.payload().is_empty() && !tracked.ignore && !refused_already {
            let sequence = segment.sequence().wrapping_add(u32::from(segment.flags().syn()));
            if conversation.is_done(side) {
                stream.pass_over(sequence, segment.payload().len());
                conversation.spent += segment.payload().len() as u64;
            } else {
                let offer = conversation.take(
                    side,
                    &mut stream,
                    sequence,
                    segment.payload(),
                    Limits::default(),
                    &mut judge,
                );
                judge.counters.overlap_octets += u64::from(offer.overlap);
                judge.counters.out_of_order += u64::from(offer.ahead);
                judge.note(offer.anomalies, &mut reported);
            }
        }
        let stopped = judge.enforces() && (judge.outcome.stop.is_some() || judge.outcome.refuse.is_some());
        if !segment.is_whole() && !stopped && !tracked.ignore {
            match missing(segment, &stream) {
                Missing::Behind(0) => {}
                Missing::Behind(count) if !may_ask || conversation.can_spare(side, count as u64) => {
                    conversation.lose(side, count as u64, &mut judge);
                    stream.pass_over(stream.next(), count);
                }
                Missing::Behind(_) | Missing::Ahead => more = may_ask,
            }
        }
        if stream.is_complete() || stream.is_reset() {
            let why = if stream.is_reset() { Unfinished::Unseen } else { Unfinished::Ended };
            conversation.end(side, why, &mut judge);
        }
        if conversation.is_mismatched() {
            let mut anomalies = AnomalySet::default();
            anomalies.insert(Anomaly::ProtocolMismatch);
            judge.note(anomalies, &mut reported);
        }
        let Judge { outcome, told, .. } = judge;
        conversation.told = told;
        let flow = self.flows.get_mut(id);
        *flow.stream_mut(from) = stream;
        if let Some((_, peer)) = refused {
            *flow.stream_mut(from.other()) = peer;
        }
        flow.reported = reported;
        let memory = conversation.memory();
        self.counters.buffered_now = self.counters.buffered_now - conversation.accounted + memory;
        conversation.accounted = memory;
        flow.conversation = Some(conversation);
        if more {
            return self.ask_for_more(seen, outcome, receiver_expects, sink);
        }
        self.conclude(seen, outcome, receiver_expects, sink)
    }

    /// Asks for the whole of a cut segment. What its first octets led to is kept: they are read only once.
    fn ask_for_more(
        &mut self,
        seen: Seen<'_>,
        outcome: Outcome,
        receiver_expects: u32,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let Seen { segment, id, from, .. } = seen;
        self.remember_mark(id, outcome.mark);
        let flow = self.flows.get_mut(id);
        let side = flow.side(from);
        if let Some(conversation) = &mut flow.conversation {
            conversation.asked.get_or_insert((side, segment.sequence(), receiver_expects));
        }
        if let Some(stop) = outcome.stop {
            // Only talk: where it were more, nothing would be asked.
            self.judge_seen(seen, sink).tell_drop(stop.reason, stop.rule, stop.reject);
        }
        Decision::More { octets: segment.wire_length() }.into()
    }

    /// The ends begin a new connection with the same ports.
    fn begin_anew(&mut self, seen: Seen<'_>, sink: &mut dyn EventSink) {
        self.end_conversation(seen, sink);
        self.flows.get_mut(seen.id).begin_anew(seen.segment, seen.packet.now);
        self.flows.set_class(seen.id, Class::Opening, seen.packet.now);
        self.counters.flows += 1;
    }

    /// Settles who the client is before the first data is read.
    fn settle_client(&mut self, seen: Seen<'_>) {
        let flow = self.flows.get_mut(seen.id);
        if flow.client_known() || seen.segment.payload().is_empty() {
            return;
        }
        self.counters.midstream += 1;
        let payload = seen.segment.payload();
        let client = if recognise(Side::Server, payload) == Recognition::Http {
            seen.from.other()
        } else if recognise(Side::Client, payload) == Recognition::Http {
            seen.from
        } else {
            guess_client(seen.segment, seen.from)
        };
        flow.set_client(client);
    }

    fn remember_mark(&mut self, id: FlowId, asked: Option<Mark>) -> Option<Mark> {
        let flow = self.flows.get_mut(id);
        let before = label_mark(&self.marks, flow.label);
        let Some(asked) = asked else { return before };
        let mark = merge(before, asked);
        let index = match self.marks.iter().position(|known| *known == mark) {
            Some(index) => index,
            None => {
                self.marks.push(mark);
                self.marks.len() - 1
            }
        };
        flow.label = u16::try_from(index + 1).unwrap_or(0);
        Some(mark)
    }

    /// A judge of a segment of a flow that is in the table.
    fn judge_seen<'e>(&'e mut self, seen: Seen<'e>, sink: &'e mut dyn EventSink) -> Judge<'e> {
        let flow = self.flows.get(seen.id);
        let facts = FlowFacts { id: flow.id(), endpoints: flow.endpoints() };
        let from = flow.side(seen.from);
        self.judge(facts, Some(from), Some(seen.segment), seen.packet, sink)
    }

    /// A judge of what `segment` shows, or of what a flow owes where it ended without one.
    pub(super) fn judge<'e>(
        &'e mut self,
        flow: FlowFacts,
        from: Option<Side>,
        segment: Option<&'e Segment<'e>>,
        packet: &'e PacketInput<'e>,
        sink: &'e mut dyn EventSink,
    ) -> Judge<'e> {
        Judge {
            config: &self.config,
            rules: &self.rules,
            fingerprints: self.fingerprints.as_deref(),
            familiar: &mut self.familiar,
            thresholds: &mut self.thresholds,
            counters: &mut self.counters,
            sink,
            packet,
            segment,
            flow,
            from,
            told: Vec::new(),
            outcome: Outcome::default(),
        }
    }
}

/// The facts of a flow that is in no table, by the one segment of it that is known.
fn facts_of_untracked(segment: &Segment<'_>, packet: &PacketInput<'_>) -> FlowFacts {
    let (key, from) = Key::of(segment);
    let client = guess_client(segment, from);
    let endpoints = Endpoints { client: key.endpoint(client), server: key.endpoint(client.other()) };
    FlowFacts { id: key.flow_id(packet.now.as_nanos()), endpoints }
}

/// Sequence number that the segment's receiver expects: behind all that was let through to it, which
/// the first octets of a segment that was asked for again were not.
fn receiver_expects(flow: &mut Flow<Conversation>, segment: &Segment<'_>, from: End) -> u32 {
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

/// Which octets of a cut segment are missing, behind those that were read.
enum Missing {
    /// So many, next in order.
    Behind(usize),
    /// It came before its turn.
    Ahead,
}

fn missing(segment: &Segment<'_>, stream: &Stream) -> Missing {
    let start = segment.sequence().wrapping_add(u32::from(segment.flags().syn()));
    let behind = |count: usize| start.wrapping_add(u32::try_from(count).unwrap_or(u32::MAX));
    let captured = behind(segment.payload().len());
    if !stream.is_open() || distance(captured, stream.next()) < 0 {
        return Missing::Ahead;
    }
    let end = behind(segment.wire_payload_length());
    Missing::Behind(usize::try_from(distance(stream.next(), end)).unwrap_or(0))
}

/// Drops the packet where the anomaly policy says so.
fn finish_refused(mut judge: Judge<'_>) -> Decision {
    match judge.outcome.refuse {
        Some(reason) => {
            judge.tell_drop(reason, None, false);
            if judge.enforces() { Decision::Drop } else { Decision::Undecided }
        }
        None => Decision::Undecided,
    }
}

/// Whether a SYN is only the flow's own, sent again.
fn packet_is_repeated(next: u32, segment: &Segment<'_>) -> bool {
    let behind = next.wrapping_sub(segment.sequence()).wrapping_sub(1);
    behind == 0
}

/// The sender is the client if it sends to the smaller port: the guess where no SYN was seen.
fn guess_client(segment: &Segment<'_>, from: End) -> End {
    let flags = segment.flags();
    let to_server =
        if flags.syn() { !flags.ack() } else { segment.destination_port() <= segment.source_port() };
    if to_server { from } else { from.other() }
}

fn label_mark(marks: &[Mark], label: u16) -> Option<Mark> {
    usize::from(label).checked_sub(1).and_then(|index| marks.get(index)).copied()
}
