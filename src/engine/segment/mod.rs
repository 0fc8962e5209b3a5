//! One TCP segment's way through the engine.

mod conclusion;

use super::conversation::Conversation;
use super::http::Unfinished;
use super::judge::{FlowFacts, Judge, Outcome, Stop, merge};
use super::told::Told;
use super::{Checksums, Decision, Engine, Inspected, OnFailure, PacketInput};
use crate::banner::{Recognition, recognise};
use crate::event::{DropReason, Endpoints, EventSink, Side};
use crate::flow::{
    Anomaly, AnomalySet, Class, End, Ends, Flow, FlowId, Key, Limits, Stream, Tracked, Tracking, Verdict,
    distance,
};
use crate::packet::Segment;
use crate::rules::Mark;

/// How far a segment of a flow that nobody has confirmed may lie from what was seen before, to be one of
/// the same connection.
const STRANGE: u32 = 1 << 20;

/// How far an acknowledgement may lie from octets that are condemned, to be about the same connection.
const CONDEMNED_NEAR: u32 = 1 << 16;

/// A segment with what was worked out about it.
#[derive(Clone, Copy)]
struct Seen<'s> {
    segment: &'s Segment<'s>,
    packet: &'s PacketInput<'s>,
    id: FlowId,
    from: End,
    /// What was known of the ends before, should the segment not get through.
    before: Ends,
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
        let verify = packet.checksums == Checksums::Verify;
        if verify && !segment.is_whole() && !segment.payload().is_empty() && self.may_ask_for_more(packet) {
            // What counts before its checksum was verified may be what the receiver throws away.
            return Decision::More { octets: segment.wire_length() }.into();
        }
        let wrong = verify && !segment.checksums_valid();
        let id = match found {
            Some(id) => id,
            None if segment.flags().rst() || wrong => {
                return self.inspect_stray(segment, packet, wrong, sink);
            }
            None => {
                match self.begin(key, guess_client(segment, from), first_class(segment), packet.now, sink) {
                    Ok(id) => id,
                    Err(_) => return self.refuse_flow(segment, packet, sink),
                }
            }
        };
        let seen = Seen { segment, packet, id, from, before: *self.flows.get(id).ends() };
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
        if flags.syn() && !flow.stream(from).began_with(segment.sequence()) {
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
        let Seen { segment, packet, id, from, .. } = seen;
        if self.flows.get(id).begins_anew(segment, from, self.tracking) {
            self.begin_anew(seen, sink);
        } else if self.is_strange(seen) {
            // The numbers of a flow that nobody has confirmed are somebody else's.
            self.end_conversation(seen, sink);
            self.flows.get_mut(id).begin_amid(guess_client(segment, from), packet.now);
        }
        self.flows.touch(id, packet.now);
        let tracking = self.tracking;
        let flow = self.flows.get_mut(id);
        let decided = flow.verdict != Verdict::Undecided;
        let seen = Seen { before: *flow.ends(), ..seen };
        let receiver_expects = receiver_expects(flow, segment, from);
        let tracked = flow.track(segment, from, tracking);
        if decided {
            // A SYN of a decided flow that may yet turn out to begin another one.
            let blocked = flow.verdict != Verdict::Passed && !segment.flags().syn();
            let unread = segment.flags().syn() && segment.wire_payload_length() > 0 && self.config.enforce;
            return match (blocked, unread) {
                (true, _) => Decision::Block.into(),
                (false, true) => self.refuse_segment(seen, Anomaly::DataInReopeningSyn, sink),
                (false, false) => Decision::Undecided.into(),
            };
        }
        let quiet = segment.wire_payload_length() == 0 || tracked.ignore;
        if quiet && tracked.anomalies.is_empty() && flow.conversation.is_none() {
            return self.inspect_quiet(seen);
        }
        if let Some(inspected) = self.meet_condemned(seen, receiver_expects, sink) {
            return inspected;
        }
        self.settle_client(seen);
        self.inspect_loud(seen, &tracked, receiver_expects, sink)
    }

    /// Whether a segment has nothing to do with what was seen of a flow that nobody has confirmed.
    fn is_strange(&self, seen: Seen<'_>) -> bool {
        let flow = self.flows.get(seen.id);
        let stream = flow.stream(seen.from);
        self.tracking == Tracking::Inline
            && flow.verdict == Verdict::Undecided
            && !seen.segment.flags().syn()
            && !flow.is_confirmed()
            && !stream.from_start()
            && stream.is_open()
            && distance(stream.next(), seen.segment.sequence()).unsigned_abs() > STRANGE
    }

    /// A segment without data of a flow without data: most of a handshake.
    fn inspect_quiet(&mut self, seen: Seen<'_>) -> Inspected {
        let Seen { packet, id, .. } = seen;
        if self.is_one_way(id, packet) {
            // Only one direction's acknowledgements come by here: there will never be data to read.
            return self.let_pass(id, packet);
        }
        self.classify(id, packet);
        Decision::Undecided.into()
    }

    /// Whether only one end's segments come by here, and have long enough.
    fn is_one_way(&self, id: FlowId, packet: &PacketInput<'_>) -> bool {
        let flow = self.flows.get(id);
        flow.is_one_way() && packet.now.since(flow.started()) > self.config.time_budget
    }

    /// Puts an undecided flow into the class where it stands; whether it is over.
    pub(super) fn classify(&mut self, id: FlowId, packet: &PacketInput<'_>) -> bool {
        let flow = self.flows.get(id);
        let over = self.is_over(flow);
        let class = if over {
            Class::Closed
        } else if flow.is_opening() {
            Class::Opening
        } else if self.tracking == Tracking::Inline && !flow.is_confirmed() {
            Class::Unconfirmed
        } else {
            Class::Undecided
        };
        self.flows.set_class(id, class, packet.now);
        over
    }

    /// Whether nothing more is to come. A reset that its receiver may have ignored, as there are a dozen
    /// reasons for, ends no banner half-way where that would let the rest of it pass.
    fn is_over(&self, flow: &Flow<Conversation>) -> bool {
        let amid = flow.conversation.as_ref().is_some_and(|it| it.amid_since().is_some());
        flow.is_closed() && (!self.config.enforce || !amid)
    }

    fn inspect_loud(
        &mut self,
        seen: Seen<'_>,
        tracked: &Tracked,
        receiver_expects: u32,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        let Seen { segment, id, from, .. } = seen;
        let mut conversation = match self.flows.get_mut(id).conversation.take() {
            Some(conversation) => conversation,
            None => self.spare.pop().unwrap_or_default(),
        };
        let flow = self.flows.get(id);
        let (side, mut reported) = (flow.side(from), flow.reported);
        let mut streams = Streams { own: *flow.stream(from), peer: *flow.stream(from.other()) };
        let reads = !segment.payload().is_empty() && !tracked.ignore;
        let assessed = if reads {
            conversation.assess(
                side,
                &streams.own,
                first_octet(segment),
                segment.payload(),
                Limits::default(),
            )
        } else {
            AnomalySet::default()
        };
        let may_ask = self.may_ask_for_more(seen.packet);
        let mut judge = self.judge_seen(seen, sink);
        judge.told = std::mem::take(&mut conversation.told);
        judge.note(tracked.anomalies.with(assessed), &mut reported);
        let mut more = false;
        let refused = judge.outcome.refuse.is_some() && judge.enforces();
        if !refused {
            if let Some(at) = tracked.refused {
                conversation.rewind(side.other(), &mut streams.peer, at);
            }
            if tracked.restarted {
                let at = streams.own.next();
                conversation.rewind(side, &mut streams.own, at);
            }
            if reads {
                read(&mut conversation, side, &mut streams, segment, &mut reported, &mut judge);
            }
            let stopped = judge.enforces() && judge.outcome.stop.is_some();
            if !segment.is_whole() && !tracked.ignore && !stopped {
                more = go_over_missing(&mut conversation, side, &mut streams, segment, may_ask, &mut judge);
            }
            end(&mut conversation, side, &streams, &mut reported, &mut judge);
        }
        let Judge { outcome, told, packet, .. } = judge;
        conversation.told = told;
        conversation.take_stock(streams.by_side(side), packet.now);
        let flow = self.flows.get_mut(id);
        if refused {
            flow.restore(seen.before);
        } else {
            *flow.stream_mut(from) = streams.own;
            *flow.stream_mut(from.other()) = streams.peer;
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

    /// What becomes of a segment where octets are condemned: they are dropped, and as soon as the flow is
    /// confirmed it is stopped.
    fn meet_condemned(
        &mut self,
        seen: Seen<'_>,
        receiver_expects: u32,
        sink: &mut dyn EventSink,
    ) -> Option<Inspected> {
        let flow = self.flows.get(seen.id);
        let condemned = flow.conversation.as_ref()?.condemned.as_ref()?;
        let from_there = flow.side(seen.from) == condemned.side;
        let near = |sequence: u32| distance(sequence, condemned.sequence).unsigned_abs() < CONDEMNED_NEAR;
        let start = first_octet(seen.segment);
        let end = start.wrapping_add(u32::try_from(seen.segment.wire_payload_length()).unwrap_or(u32::MAX));
        if from_there && start != end && !near(start) || !from_there && !near(seen.segment.acknowledgement())
        {
            // The connection's numbers are others: those octets were forged.
            self.end_conversation(seen, sink);
            return None;
        }
        if !from_there && flow.is_confirmed() {
            let stop = condemned.stop.clone();
            let mark = label_mark(&self.marks, flow.label);
            return Some(self.stop(seen, stop, receiver_expects, mark, sink));
        }
        let meets = from_there
            && distance(start, condemned.sequence.wrapping_add(condemned.count)) > 0
            && distance(condemned.sequence, end) > 0;
        meets.then(|| Decision::Drop.into())
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
            told: Told::default(),
            quotas: &mut self.quotas,
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

/// What the sender of a segment and its peer send.
struct Streams {
    own: Stream,
    peer: Stream,
}

impl Streams {
    /// The client's and the server's, `own` being that of `side`.
    const fn by_side(&self, side: Side) -> [&Stream; 2] {
        match side {
            Side::Client => [&self.own, &self.peer],
            Side::Server => [&self.peer, &self.own],
        }
    }
}

/// Where a flow stands that begins with this segment.
fn first_class(segment: &Segment<'_>) -> Class {
    if segment.flags().syn() { Class::Opening } else { Class::Unconfirmed }
}

/// Sequence number of a segment's first octet of data.
fn first_octet(segment: &Segment<'_>) -> u32 {
    segment.sequence().wrapping_add(u32::from(segment.flags().syn()))
}

/// Reads a segment's octets, as far as they are there.
fn read(
    conversation: &mut Conversation,
    side: Side,
    streams: &mut Streams,
    segment: &Segment<'_>,
    reported: &mut AnomalySet,
    judge: &mut Judge<'_>,
) {
    let (sequence, payload) = (first_octet(segment), segment.payload());
    if conversation.is_done(side) {
        streams.own.pass_over(sequence, payload.len());
        return;
    }
    let offer = conversation.take(side, &mut streams.own, sequence, payload, Limits::default(), judge);
    judge.counters.overlap_octets += u64::from(offer.overlap);
    judge.counters.out_of_order += u64::from(offer.ahead);
    judge.note(offer.anomalies, reported);
}

/// Goes over the octets that a cut segment lacks, or says that they have to be asked for.
fn go_over_missing(
    conversation: &mut Conversation,
    side: Side,
    streams: &mut Streams,
    segment: &Segment<'_>,
    may_ask: bool,
    judge: &mut Judge<'_>,
) -> bool {
    match missing(segment, &streams.own) {
        Missing::Behind(0) => false,
        Missing::Behind(count) if !may_ask || conversation.can_spare(side, count as u64) => {
            conversation.take_stock(streams.by_side(side), judge.packet.now);
            conversation.lose(side, &streams.own, count as u64, judge);
            streams.own.pass_over(streams.own.next(), count);
            false
        }
        Missing::Behind(_) | Missing::Ahead => may_ask,
    }
}

/// Draws the conclusions of what has ended.
fn end(
    conversation: &mut Conversation,
    side: Side,
    streams: &Streams,
    reported: &mut AnomalySet,
    judge: &mut Judge<'_>,
) {
    for (side, stream) in [(side, &streams.own), (side.other(), &streams.peer)] {
        if stream.is_complete() {
            conversation.end(
                side,
                Unfinished::Ended,
                stream.is_end_acknowledged() || !judge.enforces(),
                judge,
            );
        }
    }
    if conversation.is_mismatched() {
        let mut anomalies = AnomalySet::default();
        anomalies.insert(Anomaly::ProtocolMismatch);
        judge.note(anomalies, reported);
    }
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
