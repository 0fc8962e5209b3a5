//! An undecided flow beside its table entry: both directions' bytes in order, what was inspected of them
//! and what waits, and the [`Dialogue`] that they are.
//!
//! No protocol's name stands here.

use super::admission::FlowAdmission;
use super::banner_inspector::{BannerInspector, WithheldAlert};
use super::counters::EngineCounters;
use super::dialogue::{Dialogue, UnfinishedReason};
use super::mirrored_roles::MirroredRoles;
use super::offload_state::{BodyOffload, ResponseOffload};
use super::outcome::DeferredStop;
use super::report_limit::ReportLimit;
use crate::event::{Side, Timestamp};
use crate::flow::{
    Anomaly, AnomalySet, CollectorLimits, OfferedPayload, StreamCollector, StreamState, TrackingMode,
    distance,
};

/// A body's bytes, and those of lines before an identification, count so much less against the budget than
/// others: they are cheap to go over, and what decides comes behind them.
const CHEAP_DISCOUNT: u64 = 16;

/// Buffers beyond this are given back instead of being kept for the next conversation.
const SPARE_MEMORY: usize = 16 << 10;

/// Everything that is known of an undecided flow beside its table entry.
#[derive(Debug, Default)]
pub(super) struct UndecidedFlow {
    /// The input of the client and of the server.
    pub(super) inlets: [DirectionInput; 2],
    pub(super) dialogue: Dialogue,
    /// The same in other roles, as long as those are a guess.
    pub(super) mirror: Option<Box<MirroredRoles>>,
    /// The admission of the flow by its policy.
    pub(super) admission: FlowAdmission,
    /// Its turn to be looked at for a banner that takes too long is noted.
    pub(super) watched: bool,
    /// Bytes that are to be stopped in a flow that nobody has confirmed.
    pub(super) condemned: Option<Box<DeferredStop>>,
    /// Bytes that were inspected, weighed.
    pub(super) spent: u64,
    /// The limit of its reports.
    pub(super) reports: ReportLimit,
    /// Alerts that are told once the flow is confirmed.
    pub(super) withheld: Vec<WithheldAlert>,
    /// Bytes of memory that were accounted for.
    pub(super) accounted: usize,
    /// A segment that was asked for again: who sends it, where it begins, and what its receiver
    /// expected when it came first.
    pub(super) asked: Option<(Side, u32, u32)>,
    /// A body of the server's that goes by unseen, or did.
    pub(super) body_offload: Option<BodyOffload>,
    /// The server's whole direction goes by unseen, or did.
    pub(super) response_offload: Option<ResponseOffload>,
}

/// The input of one side.
#[derive(Debug, Default)]
pub(super) struct DirectionInput {
    /// The bytes in order.
    pub(super) collector: StreamCollector,
    /// The message that is unread was read as one whose end never comes, though more may come yet.
    pub(super) cut_short: bool,
    /// Nothing more is to be read, and that rests on the bytes before this sequence number.
    pub(super) settled: Option<u32>,
    /// Time since which it is in the middle of a banner.
    pub(super) amid: Option<Timestamp>,
}

impl UndecidedFlow {
    /// Returns the anomaly of a side's payload before it is read; nothing changes.
    pub(super) fn assess(
        &self,
        from: Side,
        stream: &StreamState,
        sequence: u32,
        payload: &[u8],
        limits: CollectorLimits,
    ) -> AnomalySet {
        let collector = &self.inlet(from).collector;
        collector.assess(stream, sequence, payload, limits)
    }

    /// True if there is no `room` to remember bytes of one side at `sequence`, as too many were not
    /// acknowledged.
    pub(super) fn is_full(&self, from: Side, stream: &StreamState, sequence: u32, room: usize) -> bool {
        let fresh = stream.is_open() && distance(stream.next(), sequence) >= 0;
        fresh && !self.is_done(from) && self.inlet(from).collector.is_full_of_pins(stream, room)
    }

    /// Takes the payload at `sequence` of one side into account.
    pub(super) fn take_payload<'p>(
        &mut self,
        from: Side,
        stream: &mut StreamState,
        sequence: u32,
        payload: &'p [u8],
        limits: CollectorLimits,
        judge: &mut BannerInspector<'_>,
    ) -> OfferedPayload<'p> {
        let lossy = judge.settings.tracking == TrackingMode::Lossy;
        // In a capture a gap may never be filled, so the bytes behind it cannot wait for ever.
        let crowded = self.inlet(from).collector.is_crowded(payload.len(), limits);
        if lossy && crowded {
            self.give_up_missing(from, stream, judge);
        }
        let inlet = self.inlet_mut(from);
        let unread = inlet.collector.unread().len();
        let mut offer = inlet.collector.take(stream, sequence, payload, limits);
        if !offer.fresh.is_empty() {
            inlet.cut_short = false;
        }
        offer.anomalies.insert_if(lossy && crowded, Anomaly::Gap);
        if offer.gap > 0 {
            if lossy {
                self.admission.skip_missing();
            }
            self.dialogue.read_unfinished(
                from,
                &offer.unread,
                UnfinishedReason::Unseen,
                &mut judge.reading(),
            );
            if lossy || stream.is_from_start() {
                self.pass_over(from, u64::from(offer.gap), judge);
            } else {
                // What was read may have been a decoy that its receiver ignored.
                self.rewind_dialogue(from);
                self.dialogue.begin_amid(from);
            }
        } else if lossy && !stream.is_from_start() {
            self.dialogue.begin_amid(from);
        }
        self.read_new_bytes(from, stream, unread, &offer, judge);
        let news = offer.fresh.len() + usize::from(offer.ahead);
        // Copies count as well: otherwise a sender could repeat bytes for ever at no price.
        self.spent += self.price(from, news + offer.overlap as usize);
        // The budget is for one message. A connection of many requests would otherwise use it up.
        if judge.settings.dialogue.reads_on()
            && news > 0
            && self.dialogue.is_readable_stream(from, self.inlet(from).collector.unread())
        {
            self.spent = 0;
        }
        offer
    }

    /// Reads on where bytes were added in order; of what was held before, `unread` were not read.
    fn read_new_bytes(
        &mut self,
        from: Side,
        stream: &StreamState,
        unread: usize,
        offer: &OfferedPayload<'_>,
        judge: &mut BannerInspector<'_>,
    ) {
        let fresh = offer.fresh;
        let meaningless =
            self.dialogue.can_spare(from, fresh.len() as u64) || self.dialogue.is_read_out(from);
        self.feed_bytes(from, unread, fresh, judge);
        let (dialogue, own, peer) = self.parts(from);
        if fresh.is_empty() && own.collector.unread().len() == unread && offer.gap == 0 {
            return;
        }
        let collector = &mut own.collector;
        if !collector.unread().is_empty() {
            collector.keep(fresh);
            let used = dialogue.read(from, collector.unread(), peer, &mut judge.reading());
            collector.advance(stream, used);
            return;
        }
        let used = dialogue.read(from, fresh, peer, &mut judge.reading());
        // Nothing will look at these bytes again. Only a copy is kept until they are acknowledged, to
        // recognise replacements.
        if meaningless && used == fresh.len() && dialogue.is_fleeting(from) {
            collector.freeze(stream, stream.next().wrapping_sub(u32::try_from(used).unwrap_or(u32::MAX)));
        } else {
            collector.keep(fresh);
            collector.advance(stream, used);
        }
    }

    /// Shows the bytes of one side that came in order to whoever asks what the flow is: those that the
    /// collector holds behind `unread` ones, and `fresh` ones.
    fn feed_bytes(&mut self, from: Side, unread: usize, fresh: &[u8], judge: &mut BannerInspector<'_>) {
        let [client, server] = &self.inlets;
        let inlet = if from == Side::Client { client } else { server };
        let held = inlet.collector.unread().get(unread..).unwrap_or_default();
        for octets in [held, fresh] {
            self.admission.take_bytes(from, octets);
            if let Some(mirror) = &mut self.mirror {
                mirror.take_bytes(from, octets, judge);
            }
        }
    }

    /// Draws the conclusions of a segment for whether the flow may be what it is.
    pub(super) fn review(&mut self, judge: &mut BannerInspector<'_>) {
        let decided = [Side::Client, Side::Server].iter().all(|side| self.dialogue.is_read_out(*side));
        self.admission.review(decided, self.dialogue.is_foreign(), judge);
    }

    /// Notes where each direction stands behind a segment: which bytes a decision rests on, and since
    /// when a banner is unfinished.
    pub(super) fn take_stock(&mut self, streams: [&StreamState; 2], now: Timestamp) {
        self.mirror.take_if(|_| self.dialogue.shows_roles());
        let sides = [Side::Client, Side::Server].map(|side| (side, self.is_done(side)));
        for (((from, done), inlet), stream) in sides.into_iter().zip(&mut self.inlets).zip(streams) {
            if done && stream.is_open() {
                // Set once: bytes behind this point are not read, so the decision does not rest on them.
                if inlet.settled.is_none() {
                    inlet.collector.settle(stream);
                    inlet.settled = Some(stream.next());
                } else {
                    inlet.collector.release(stream);
                }
            } else if !done {
                inlet.settled = None;
                inlet.collector.release(stream);
            }
            if self.dialogue.is_amid(from, inlet.collector.unread()) {
                inlet.amid.get_or_insert(now);
            } else {
                inlet.amid = None;
            }
        }
    }

    /// True if the receivers have what the decision to let the flow pass rests on. Until then other bytes
    /// could take the place of those that were read.
    ///
    /// A capture may lack one direction's acknowledgements altogether.
    pub(super) fn is_received(&self, streams: [&StreamState; 2], lossy: bool) -> bool {
        self.inlets.iter().zip(streams).all(|(inlet, stream)| {
            let received = |at: u32| stream.is_acknowledged_to(at) || (lossy && !stream.is_acknowledged());
            inlet.settled.is_none_or(received)
        })
    }

    /// Returns the time since which a banner is incomplete.
    pub(super) fn unfinished_since(&self) -> Option<Timestamp> {
        self.inlets.iter().filter_map(|inlet| inlet.amid).min()
    }

    /// True if nothing more is to be read in either direction.
    pub(super) fn is_decided(&self) -> bool {
        self.is_done(Side::Client) && self.is_done(Side::Server)
    }

    /// True if nothing more is to be read of one side at least.
    pub(super) const fn is_half_decided(&self) -> bool {
        self.dialogue.is_read_out(Side::Client) || self.dialogue.is_read_out(Side::Server)
    }

    /// True if nothing more is to be read of one side.
    pub(super) fn is_done(&self, from: Side) -> bool {
        self.dialogue.is_done(from) && self.mirror.as_ref().is_none_or(|mirror| mirror.is_done(from))
    }

    /// The body that could be released now: `streams` are the client's and the server's.
    pub(super) fn releasable(&self, streams: &[StreamState; 2]) -> Option<BodyOffload> {
        let settled =
            |inlet: &DirectionInput| inlet.collector.unread().is_empty() && !inlet.collector.is_waiting();
        let [_, server] = streams;
        let followed = streams.iter().all(|stream| stream.is_from_start() && !stream.has_end());
        let free = self.admission.may_pass() && self.condemned.is_none() && self.asked.is_none();
        if !followed || !free || !self.inlets.iter().all(settled) {
            return None;
        }
        BodyOffload::of(self.dialogue.rest_of_response()?, server)
    }

    /// True if the server's direction is decided, and the client's is read on.
    pub(super) fn only_reads_client(&self) -> bool {
        self.dialogue.only_reads_requests() || self.dialogue.only_searches()
    }

    /// True if bytes of the client's are held that came before their turn.
    pub(super) fn holds_ahead(&self) -> bool {
        let [client, _] = &self.inlets;
        client.collector.is_waiting()
    }

    /// True if what the server sends may go by from now on: `streams` are the client's and the server's.
    pub(super) fn can_offload_response(&self, streams: &[StreamState; 2]) -> bool {
        let [_, server] = streams;
        let followed = streams.iter().all(|stream| stream.is_from_start() && !stream.has_end());
        let free = self.admission.may_pass() && self.condemned.is_none() && self.asked.is_none();
        let [client, judged] = &self.inlets;
        let unread = client.collector.unread();
        let searched = self.dialogue.only_searches();
        let said = unread.is_empty() || searched || self.dialogue.is_perhaps_of_tunnel(Side::Client);
        let idle = said && !client.collector.is_waiting();
        // After an earlier offload, the sequence numbers may have wrapped around.
        let fixed =
            self.response_offload.is_some() || judged.settled.is_some_and(|at| server.is_acknowledged_to(at));
        let between = self.dialogue.is_between_requests() || searched;
        followed && free && idle && fixed && between
    }

    /// True if the two sides speak protocols that do not go together.
    pub(super) const fn is_mismatched(&self) -> bool {
        self.dialogue.is_mismatched()
    }

    /// True if `count` bytes of one side may be missing without harm.
    pub(super) fn may_lack(&self, from: Side, count: u64) -> bool {
        self.dialogue.can_spare(from, count)
            && self.mirror.as_ref().is_none_or(|mirror| mirror.can_spare(from, count))
    }

    /// Goes over `count` bytes that come next and are missing for good, then on as well as can be.
    pub(super) fn skip_missing(
        &mut self,
        from: Side,
        stream: &mut StreamState,
        count: usize,
        judge: &mut BannerInspector<'_>,
    ) {
        let collector = &mut self.inlet_mut(from).collector;
        let unread = collector.unread().to_vec();
        collector.freeze(stream, stream.next());
        self.dialogue.read_unfinished(from, &unread, UnfinishedReason::Unseen, &mut judge.reading());
        self.pass_over(from, count as u64, judge);
        stream.pass_over(stream.next(), count);
        self.inlet_mut(from).collector.promote(stream);
        self.feed_bytes(from, 0, &[], judge);
        let (dialogue, own, peer) = self.parts(from);
        let used = dialogue.read(from, own.collector.unread(), peer, &mut judge.reading());
        own.collector.advance(stream, used);
    }

    fn pass_over(&mut self, from: Side, count: u64, judge: &mut BannerInspector<'_>) {
        let (dialogue, _, peer) = self.parts(from);
        dialogue.pass_over(from, count, peer, &mut judge.reading());
        self.mirror.iter_mut().for_each(|mirror| mirror.pass_over(from, count, judge));
    }

    fn rewind_dialogue(&mut self, from: Side) {
        self.dialogue.rewind(from);
        self.mirror.iter_mut().for_each(|mirror| mirror.rewind(from));
    }

    /// Reads on behind bytes that a capture lacks.
    fn give_up_missing(&mut self, from: Side, stream: &mut StreamState, judge: &mut BannerInspector<'_>) {
        if self.inlet(from).collector.is_waiting() {
            self.admission.skip_missing();
        }
        let (dialogue, own, peer) = self.parts(from);
        let collector = &mut own.collector;
        while collector.is_waiting() {
            let unread = collector.take_unread();
            dialogue.read_unfinished(from, &unread, UnfinishedReason::Unseen, &mut judge.reading());
            let missing = collector.give_up_gap(stream).unwrap_or_default();
            dialogue.pass_over(from, u64::from(missing), peer, &mut judge.reading());
            let used = dialogue.read(from, collector.unread(), peer, &mut judge.reading());
            collector.advance(stream, used);
        }
    }

    /// Begins a direction earlier whose SYN was not seen, where bytes come that its receiver may not have:
    /// those behind them are held until their turn.
    pub(super) fn start_earlier(
        &mut self,
        from: Side,
        stream: &mut StreamState,
        sequence: u32,
        count: usize,
    ) {
        let Some(at) = stream.begins_before(sequence, count) else { return };
        let inlet = self.inlet_mut(from);
        inlet.collector.step_back(stream, at);
        *inlet =
            DirectionInput { collector: std::mem::take(&mut inlet.collector), ..DirectionInput::default() };
        self.rewind_dialogue(from);
        self.admission.rewind(from);
    }

    /// Starts a side again whose data in the SYN was not accepted.
    pub(super) fn rewind(&mut self, from: Side, stream: &mut StreamState, sequence: u32) {
        let inlet = self.inlet_mut(from);
        inlet.collector.rewind(stream, sequence);
        *inlet =
            DirectionInput { collector: std::mem::take(&mut inlet.collector), ..DirectionInput::default() };
        self.rewind_dialogue(from);
        self.admission.rewind(from);
    }

    /// One side has said all: a body that ends with the connection is whole, and a head has no end. Where
    /// that is not `sure`, as its receiver has not acknowledged it, reading goes on should more come.
    pub(super) fn end(
        &mut self,
        from: Side,
        why: UnfinishedReason,
        sure: bool,
        judge: &mut BannerInspector<'_>,
    ) {
        let (dialogue, own, _) = self.parts(from);
        // A FIN can come several times; its conclusions are drawn once.
        if !std::mem::replace(&mut own.cut_short, true) {
            dialogue.read_unfinished(from, own.collector.unread(), why, &mut judge.reading());
            self.mirror.iter_mut().for_each(|mirror| mirror.read_unfinished(from, why, judge));
        }
        if sure {
            self.dialogue.end(from, &mut judge.reading());
            self.mirror.iter_mut().for_each(|mirror| mirror.end(from, judge));
        }
    }

    /// Tells everything that was seen and not told yet: nothing more will be read, or it may never come.
    pub(super) fn close(&mut self, judge: &mut BannerInspector<'_>) {
        std::mem::swap(&mut self.reports, &mut judge.reports);
        judge.withheld.append(&mut self.withheld);
        for from in [Side::Client, Side::Server] {
            if judge.settings.tracking == TrackingMode::Lossy {
                // No more bytes come, so the position of the direction does not matter.
                self.give_up_missing(from, &mut StreamState::default(), judge);
            }
            self.end(from, UnfinishedReason::Unseen, true, judge);
        }
        self.dialogue.emit_rest(&mut judge.reading());
        self.admission.conclude(judge);
        judge.emit_suppressed_rules();
        // The flow was never confirmed, so these alerts may be about forged packets. They must not reach
        // another flow.
        judge.withheld.clear();
        std::mem::swap(&mut self.reports, &mut judge.reports);
    }

    /// Brings the bytes of memory that it is accounted for up to date.
    pub(super) fn account(&mut self, counters: &mut EngineCounters) {
        let memory = self.memory();
        counters.buffered_now = counters.buffered_now - self.accounted + memory;
        self.accounted = memory;
    }

    /// Bytes of memory held, roughly.
    fn memory(&self) -> usize {
        let inlets: usize = self.inlets.iter().map(|inlet| inlet.collector.memory()).sum();
        let mirror = self.mirror.as_ref().map_or(0, |mirror| mirror.memory());
        size_of::<Self>() + inlets + mirror + self.dialogue.memory() + self.admission.memory()
    }

    /// Forgets everything but buffers of a usual size, for another flow; false when it is not worth it.
    pub(super) fn recycle(&mut self) -> bool {
        let mut fresh = Self { admission: self.admission.recycle(), ..Self::default() };
        for (new, old) in fresh.inlets.iter_mut().zip(&mut self.inlets) {
            old.collector.forget();
            new.collector = std::mem::take(&mut old.collector);
        }
        *self = fresh;
        self.memory() <= SPARE_MEMORY
    }

    /// True if one side alone goes on, and it began no banner.
    pub(super) fn is_monologue(&self, from: Side) -> bool {
        self.dialogue.is_monologue(from)
    }

    fn price(&self, from: Side, count: usize) -> u64 {
        let count = count as u64;
        if self.is_monologue(from) || self.dialogue.is_free(from) {
            0
        } else if self.dialogue.is_cheap(from) {
            count / CHEAP_DISCOUNT
        } else {
            count
        }
    }

    /// The dialogue, what comes in from one side, and what the other one has said that is unread.
    fn parts(&mut self, from: Side) -> (&mut Dialogue, &mut DirectionInput, &[u8]) {
        let [client, server] = &mut self.inlets;
        let (own, peer) = match from {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        (&mut self.dialogue, own, peer.collector.unread())
    }

    const fn inlet(&self, from: Side) -> &DirectionInput {
        let [client, server] = &self.inlets;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }

    const fn inlet_mut(&mut self, from: Side) -> &mut DirectionInput {
        let [client, server] = &mut self.inlets;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }
}
