//! What two ends say to each other while a flow is undecided: which protocol each direction speaks,
//! and how far its banners were read.

mod opening;
mod reading;

use crate::banner::http::count_steps;
use crate::banner::recognise::may_become_request;
use crate::event::{Side, Source, Timestamp};
use crate::flow::{Anomaly, AnomalySet, Collector, Limits, Offer, Stream, distance};

use self::opening::Spoken;
use super::allowance::Allowance;
use super::greeting::Hearing;
use super::http::{Head, Http, Message, Unfinished};
use super::judge::{Judge, Stop};
use super::ssh::Ssh;
use super::{Counters, HttpInspect};

/// A body's octets, and those of lines before an identification, count so much less against the budget than
/// others: they are cheap to go over, and what decides comes behind them.
const BODY_DISCOUNT: u64 = 16;

/// Buffers beyond this are given back instead of being kept for the next conversation.
const SPARE_MEMORY: usize = 16 << 10;

/// Everything that is known of an undecided flow beside its table entry.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    directions: [Direction; 2],
    ssh: Ssh,
    http: Http,
    /// What the server's first octets are in a protocol of greetings.
    hearing: Hearing,
    /// Its turn to be looked at for a banner that takes too long is noted.
    pub(super) watched: bool,
    /// Octets that are to be stopped in a flow that nobody has confirmed.
    pub(super) condemned: Option<Box<Condemned>>,
    /// Octets that were inspected, weighed.
    pub(super) spent: u64,
    /// Octets of lines before an SSH identification that were gone over.
    preamble: usize,
    preamble_lines: usize,
    /// Some of these lines were the client's.
    client_lines: bool,
    /// One side spoke SSH and the other HTTP.
    mismatched: bool,
    /// The client asked a proxy for a tunnel that was not granted yet, and may use it already.
    tunnel_asked: bool,
    /// What was told of it.
    pub(super) allowance: Allowance,
    /// Octets of memory that were accounted for.
    pub(super) accounted: usize,
    /// A segment that was asked for again: who sends it, where it begins, and what its receiver
    /// expected when it came first.
    pub(super) asked: Option<(Side, u32, u32)>,
}

/// Octets of a flow that nobody has confirmed: they are dropped whenever they come, and once the flow is
/// confirmed it is stopped.
#[derive(Debug)]
pub(super) struct Condemned {
    pub(super) stop: Stop,
    /// Who sent them.
    pub(super) side: Side,
    /// Sequence number of the first.
    pub(super) sequence: u32,
    /// How many.
    pub(super) count: u32,
}

#[derive(Debug)]
struct Direction {
    collector: Collector,
    state: State,
    /// Handshakes with SOCKS servers that were gone over.
    relays: u8,
    /// The head that is unread was told as one whose end never comes, though more may come yet.
    told_unfinished: bool,
    /// Nothing more is to be read, and that rests on the octets before this sequence number.
    settled: Option<u32>,
    /// Since when it stands within a banner.
    amid: Option<Timestamp>,
    /// What it turned out to say first.
    spoken: Spoken,
    /// Octets of empty lines before that, and whether white space stood in them.
    leading: usize,
    spaced: bool,
    /// What was read ends with a line, or nothing was read.
    line_start: bool,
    /// What must come before the unread octets are worth another look.
    awaited: Option<Awaited>,
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            collector: Collector::default(),
            state: State::default(),
            relays: 0,
            told_unfinished: false,
            settled: None,
            amid: None,
            spoken: Spoken::default(),
            leading: 0,
            spaced: false,
            line_start: true,
            awaited: None,
        }
    }
}

/// What a direction waits for, so that octets are gone over once however they come.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    /// Unread octets that were gone over.
    seen: usize,
    need: Need,
}

/// What makes unread octets worth another look.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// So many in all.
    octets: usize,
    /// A line end among the new ones.
    line: bool,
}

impl Need {
    /// So many octets in all.
    const fn octets(octets: usize) -> Self {
        Self { octets, line: false }
    }

    /// A line end, or so many octets in all.
    const fn line(octets: usize) -> Self {
        Self { octets, line: true }
    }
}

impl Direction {
    /// Whether `unread` has what was waited for.
    fn is_due(&mut self, unread: &[u8]) -> bool {
        let Some(awaited) = &mut self.awaited else { return true };
        let new = unread.get(awaited.seen..).unwrap_or_default();
        if new.is_empty() {
            return false;
        }
        count_steps(new.len());
        let due = unread.len() >= awaited.need.octets
            || (awaited.need.line && memchr::memchr(b'\n', new).is_some());
        awaited.seen = unread.len();
        if due {
            self.awaited = None;
        }
        due
    }
}

/// How far one direction was read.
#[derive(Debug, Default)]
enum State {
    /// Not recognised yet.
    #[default]
    New,
    /// Lines that may precede an SSH identification, so many octets behind the start of one.
    Preamble(usize),
    /// SSH, before the end of the identification.
    Ssh,
    /// SSH, behind this identification line and so many octets of packets.
    Kex(Vec<u8>, usize),
    /// A greeting: its client speaks neither SSH nor HTTP.
    Greeting,
    /// HTTP, within a head.
    Head(Head),
    /// HTTP, behind a head with this first line behind which others may read more fields.
    Late(Vec<u8>),
    /// HTTP, behind a message: another may follow.
    Next,
    /// HTTP, within a body.
    Body(Box<Message>),
    /// Octets are missing: whatever comes next is looked at as if it were new.
    Resync,
    /// Nothing more is to be read. `foreign` tells a protocol that is neither SSH nor HTTP.
    Done { foreign: bool },
}

/// What one step of reading did.
enum Step {
    /// So many octets were read.
    Used(usize),
    /// More octets are needed.
    Wait(Need),
}

impl Conversation {
    /// What is odd about a payload of one side that is not taken yet: nothing changes.
    pub(super) fn assess(
        &self,
        from: Side,
        stream: &Stream,
        sequence: u32,
        payload: &[u8],
        limits: Limits,
    ) -> AnomalySet {
        let collector = &self.direction(from).collector;
        let mut anomalies = collector.assess(stream, sequence, payload, limits);
        let fresh = stream.is_open() && distance(stream.next(), sequence) >= 0;
        let full = fresh && !self.is_done(from) && collector.is_full_of_pins(stream);
        anomalies.insert_if(full, Anomaly::ReorderLimit);
        anomalies
    }

    /// Takes the payload at `sequence` of one side into account.
    pub(super) fn take<'p>(
        &mut self,
        from: Side,
        stream: &mut Stream,
        sequence: u32,
        payload: &'p [u8],
        limits: Limits,
        judge: &mut Judge<'_>,
    ) -> Offer<'p> {
        let lossy = judge.law.config.source != Source::Guard;
        let crowded = self.direction(from).collector.is_crowded(payload.len(), limits);
        if lossy && crowded {
            self.give_up_missing(from, stream, judge);
        }
        let mut collector = std::mem::take(&mut self.direction_mut(from).collector);
        let unread = collector.unread().len();
        let mut offer = collector.take(stream, sequence, payload, limits);
        if !offer.fresh.is_empty() {
            self.direction_mut(from).told_unfinished = false;
        }
        offer.anomalies.insert_if(lossy && crowded, Anomaly::Gap);
        if offer.gap > 0 {
            self.read_unfinished(from, &offer.unread, Unfinished::Unseen, judge);
            self.pass_over(from, u64::from(offer.gap), judge);
        } else if lossy && !stream.from_start() && matches!(self.direction(from).state, State::New) {
            // The capture began in the middle: of a body, or of the silence that keep-alive probes break.
            self.direction_mut(from).state = State::Resync;
        }
        self.read_news(from, stream, (&mut collector, unread), &offer, judge);
        self.direction_mut(from).collector = collector;
        let news = offer.fresh.len() + usize::from(offer.ahead);
        // What came before is cheap to go over, but it is not for nothing.
        self.spent += self.price(from, news + offer.overlap as usize);
        if judge.law.config.http_inspect == HttpInspect::All && self.goes_on(from) && news > 0 {
            self.spent = 0;
        }
        offer
    }

    /// Reads on where octets were added in order; of what was held before, `unread` were not read.
    fn read_news(
        &mut self,
        from: Side,
        stream: &Stream,
        (collector, unread): (&mut Collector, usize),
        offer: &Offer<'_>,
        judge: &mut Judge<'_>,
    ) {
        let fresh = offer.fresh;
        if fresh.is_empty() && collector.unread().len() == unread && offer.gap == 0 {
            return;
        }
        if !collector.unread().is_empty() {
            collector.keep(fresh);
            let used = self.read(from, collector.unread(), judge);
            collector.advance(stream, used);
            return;
        }
        let meaningless = self.can_spare(from, fresh.len() as u64);
        let used = self.read(from, fresh, judge);
        if meaningless && used == fresh.len() && self.reads_body(from) {
            collector.freeze(stream, stream.next().wrapping_sub(u32::try_from(used).unwrap_or(u32::MAX)));
        } else {
            collector.keep(fresh);
            collector.advance(stream, used);
        }
    }

    /// Notes where each direction stands behind a segment: which octets a decision rests on, and since
    /// when a banner is unfinished.
    pub(super) fn take_stock(&mut self, streams: [&Stream; 2], now: Timestamp) {
        for (from, stream) in [Side::Client, Side::Server].into_iter().zip(streams) {
            let done = self.is_done(from);
            let amid = self.is_unfinished(from);
            let direction = self.direction_mut(from);
            if done && stream.is_open() {
                if direction.settled.is_none() {
                    direction.collector.settle(stream);
                    direction.settled = Some(stream.next());
                } else {
                    direction.collector.release(stream);
                }
            } else if !done {
                direction.settled = None;
            }
            if amid {
                direction.amid.get_or_insert(now);
            } else {
                direction.amid = None;
            }
        }
    }

    /// Whether the receivers have what the decision to let the flow pass rests on. Until then other octets
    /// could take the place of those that were read.
    ///
    /// A capture may lack one direction's acknowledgements altogether.
    pub(super) fn is_received(&self, streams: [&Stream; 2], lossy: bool) -> bool {
        self.directions.iter().zip(streams).all(|(direction, stream)| {
            let received = |at: u32| stream.is_acknowledged_to(at) || (lossy && !stream.is_acknowledged());
            direction.settled.is_none_or(received)
        })
    }

    /// Since when a banner is unfinished.
    pub(super) fn amid_since(&self) -> Option<Timestamp> {
        self.directions.iter().filter_map(|direction| direction.amid).min()
    }

    /// Whether nothing more is to be read in either direction.
    pub(super) fn is_decided(&self) -> bool {
        self.directions.iter().all(|direction| matches!(direction.state, State::Done { .. }))
    }

    /// Whether nothing more is to be read of one side at least.
    pub(super) fn is_half_decided(&self) -> bool {
        self.is_done(Side::Client) || self.is_done(Side::Server)
    }

    /// Whether nothing more is to be read of one side.
    pub(super) fn is_done(&self, from: Side) -> bool {
        matches!(self.direction(from).state, State::Done { .. })
    }

    /// Whether `count` octets of one side may be missing without harm.
    pub(super) fn can_spare(&self, from: Side, count: u64) -> bool {
        match &self.direction(from).state {
            State::Done { .. } => true,
            State::Body(message) => message.is_satisfied() && message.skippable() >= count,
            _ => false,
        }
    }

    /// Goes over `count` octets that are missing for good, then on as well as can be.
    pub(super) fn lose(&mut self, from: Side, stream: &Stream, count: u64, judge: &mut Judge<'_>) {
        let collector = &mut self.direction_mut(from).collector;
        let unread = collector.unread().to_vec();
        collector.freeze(stream, stream.next());
        self.read_unfinished(from, &unread, Unfinished::Unseen, judge);
        self.pass_over(from, count, judge);
    }

    /// Reads what there is of a head whose end will not come.
    fn read_unfinished(&mut self, from: Side, unread: &[u8], why: Unfinished, judge: &mut Judge<'_>) {
        let begins =
            matches!(self.direction(from).state, State::New | State::Head(_) | State::Next | State::Resync);
        if begins && !unread.is_empty() {
            self.http.unfinished(from, unread, why, judge);
        }
    }

    /// Reads an unfinished head where its direction ends; it stays, should more come all the same.
    fn end_unfinished(&mut self, from: Side, why: Unfinished, judge: &mut Judge<'_>) {
        let direction = self.direction_mut(from);
        if std::mem::replace(&mut direction.told_unfinished, true) {
            return;
        }
        let collector = std::mem::take(&mut direction.collector);
        self.read_unfinished(from, collector.unread(), why, judge);
        self.direction_mut(from).collector = collector;
    }

    fn pass_over(&mut self, from: Side, count: u64, judge: &mut Judge<'_>) {
        if from == Side::Server {
            self.hearing.end(judge);
        }
        self.direction_mut(from).awaited = None;
        let state = std::mem::take(&mut self.direction_mut(from).state);
        self.direction_mut(from).state = match state {
            State::Done { foreign } => State::Done { foreign },
            State::Body(mut message) if message.skippable() >= count => {
                message.skip(count);
                self.behind_message(from, message, judge)
            }
            State::Body(message) => {
                self.http.finish(from, *message, judge);
                State::Resync
            }
            State::Kex(line, _) => {
                self.ssh.give_up_kex(from, &line, judge);
                State::Done { foreign: false }
            }
            State::Greeting => State::Done { foreign: true },
            _ => State::Resync,
        };
    }

    /// Reads on behind octets that a capture lacks.
    fn give_up_missing(&mut self, from: Side, stream: &mut Stream, judge: &mut Judge<'_>) {
        let mut collector = std::mem::take(&mut self.direction_mut(from).collector);
        while collector.is_waiting() {
            let unread = collector.take_unread();
            self.read_unfinished(from, &unread, Unfinished::Unseen, judge);
            let missing = collector.give_up_gap(stream).unwrap_or_default();
            self.pass_over(from, u64::from(missing), judge);
            let used = self.read(from, collector.unread(), judge);
            collector.advance(stream, used);
        }
        self.direction_mut(from).collector = collector;
    }

    /// What one side said in its SYN was not accepted: it begins afresh.
    pub(super) fn rewind(&mut self, from: Side, stream: &mut Stream, sequence: u32) {
        let direction = self.direction_mut(from);
        direction.collector.rewind(stream, sequence);
        let collector = std::mem::take(&mut direction.collector);
        *direction = Direction { collector, ..Direction::default() };
        self.http.forget();
        if from == Side::Server {
            self.hearing = Hearing::default();
        }
    }

    /// One side has said all: a body that ends with the connection is whole, and a head has no end. Where
    /// that is not `sure`, as its receiver has not acknowledged it, reading goes on should more come.
    pub(super) fn end(&mut self, from: Side, why: Unfinished, sure: bool, judge: &mut Judge<'_>) {
        self.end_unfinished(from, why, judge);
        if !sure {
            return;
        }
        if from == Side::Server {
            self.hearing.end(judge);
        }
        let state = std::mem::take(&mut self.direction_mut(from).state);
        self.direction_mut(from).state = match state {
            State::Body(message) => {
                self.http.finish(from, *message, judge);
                State::Next
            }
            State::Late(_) if from == Side::Server => {
                self.http.finish_part(judge);
                State::Next
            }
            State::Kex(line, _) => {
                self.ssh.give_up_kex(from, &line, judge);
                State::Done { foreign: false }
            }
            state => state,
        };
    }

    /// Tells everything that was seen and not told yet: nothing more will be read, or it may never come.
    pub(super) fn close(&mut self, judge: &mut Judge<'_>) {
        std::mem::swap(&mut self.allowance, &mut judge.allowance);
        for from in [Side::Client, Side::Server] {
            if judge.law.config.source != Source::Guard {
                // Nothing comes any more that would need to know where the direction stands.
                self.give_up_missing(from, &mut Stream::default(), judge);
            }
            self.end(from, Unfinished::Unseen, true, judge);
        }
        self.ssh.tell(judge);
        self.http.tell_rest(judge);
        std::mem::swap(&mut self.allowance, &mut judge.allowance);
    }

    /// Whether one side has begun a banner and not ended it. Lines that may come before an identification
    /// begin none as long as nobody speaks SSH (a person may be asked for a name), and neither do octets that
    /// no honest client begins with.
    fn is_unfinished(&self, from: Side) -> bool {
        let direction = self.direction(from);
        let unread = direction.collector.unread();
        match direction.state {
            State::Preamble(_) if self.ssh.knows(from.other()) => true,
            State::Preamble(_) | State::Greeting => from == Side::Server && self.hearing.is_amid(),
            State::New => !unread.is_empty() && (from == Side::Server || may_become_request(unread)),
            State::Ssh | State::Kex(..) | State::Head(_) | State::Late(_) | State::Next => !unread.is_empty(),
            _ => false,
        }
    }

    /// Whether one side speaks SSH and the other HTTP.
    pub(super) fn is_mismatched(&self) -> bool {
        self.mismatched
    }

    /// Brings the octets of memory that it is accounted for up to date.
    pub(super) fn account(&mut self, counters: &mut Counters) {
        let memory = self.memory();
        counters.buffered_now = counters.buffered_now - self.accounted + memory;
        self.accounted = memory;
    }

    /// Octets of memory held, roughly.
    fn memory(&self) -> usize {
        let directions: usize = self
            .directions
            .iter()
            .map(|direction| {
                direction.collector.memory()
                    + match &direction.state {
                        State::Body(message) => message.memory(),
                        State::Kex(line, _) | State::Late(line) => line.capacity(),
                        State::Head(head) => head.memory(),
                        _ => 0,
                    }
            })
            .sum();
        size_of::<Self>() + directions + self.http.memory() + self.hearing.memory()
    }

    /// Forgets everything but buffers of a usual size, for another flow; false when it is not worth it.
    pub(super) fn recycle(&mut self) -> bool {
        let mut fresh = Self::default();
        for (new, old) in fresh.directions.iter_mut().zip(&mut self.directions) {
            old.collector.forget();
            new.collector = std::mem::take(&mut old.collector);
        }
        *self = fresh;
        self.memory() <= SPARE_MEMORY
    }

    fn price(&self, from: Side, count: usize) -> u64 {
        let count = count as u64;
        let cheap = matches!(self.direction(from).state, State::Body(_) | State::Preamble(_));
        if cheap { count / BODY_DISCOUNT } else { count }
    }

    fn reads_body(&self, from: Side) -> bool {
        matches!(self.direction(from).state, State::Body(_))
    }

    /// Gives a direction another state because of what the other one says.
    fn change(&mut self, from: Side, state: State) {
        let direction = self.direction_mut(from);
        direction.state = state;
        direction.awaited = None;
    }

    /// Whether all that one side has sent was HTTP that could be read: the budget is for what can't.
    fn goes_on(&self, from: Side) -> bool {
        let direction = self.direction(from);
        match direction.state {
            State::Body(_) => true,
            State::Head(_) | State::Next => direction.collector.unread().is_empty(),
            _ => false,
        }
    }

    const fn direction(&self, from: Side) -> &Direction {
        let [client, server] = &self.directions;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }

    const fn direction_mut(&mut self, from: Side) -> &mut Direction {
        let [client, server] = &mut self.directions;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }
}
