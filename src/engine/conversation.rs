//! What two ends say to each other while a flow is undecided: which protocol each direction speaks,
//! and how far its banners were read.

use crate::banner::framing::Framing;
use crate::banner::{
    self, Beginning, Progress, Reason, Recognition, beginning, recognise, socks, ssh as identification,
};
use crate::event::{Side, Source, Timestamp};
use crate::flow::{Anomaly, Collector, Limits, Offer, Stream};

use super::HttpInspect;
use super::http::{self, Http, Message, Unfinished};
use super::judge::Judge;
use super::ssh::{self, Ssh};

/// A body's octets count so much less against the budget than others: they are cheap to go over, and
/// what decides comes behind them.
const BODY_DISCOUNT: u64 = 16;

/// Buffers beyond this are given back instead of being kept for the next conversation.
const SPARE_MEMORY: usize = 16 << 10;

/// Everything that is known of an undecided flow beside its table entry.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    directions: [Direction; 2],
    ssh: Ssh,
    http: Http,
    /// When the first data was seen.
    pub(super) began: Option<Timestamp>,
    /// Octets that were inspected, weighed.
    pub(super) spent: u64,
    /// Octets of lines before an SSH identification that were gone over.
    preamble: usize,
    /// Names of the application layer's anomalies that were told.
    pub(super) told: Vec<&'static str>,
    /// Octets of memory that were accounted for.
    pub(super) accounted: usize,
    /// A segment that was asked for again: who sends it, where it begins, and what its receiver
    /// expected when it came first.
    pub(super) asked: Option<(Side, u32, u32)>,
}

#[derive(Debug, Default)]
struct Direction {
    collector: Collector,
    state: State,
    /// Handshakes with SOCKS servers that were gone over.
    relays: u8,
    /// The head that is unread was told as one whose end never comes, though more may come yet.
    told_unfinished: bool,
}

/// How far one direction was read.
#[derive(Debug, Default)]
enum State {
    /// Not recognised yet.
    #[default]
    New,
    /// Lines of text from a server that may precede its SSH identification.
    Preamble,
    /// SSH, before the end of the identification.
    Ssh,
    /// SSH, behind this identification line.
    Kex(Vec<u8>),
    /// HTTP, where a head begins.
    Head,
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
    Wait,
}

impl Conversation {
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
        self.began.get_or_insert(judge.packet.now);
        let lossy = judge.config.source != Source::Guard;
        let crowded = self.direction(from).collector.is_crowded(payload.len(), limits);
        if lossy && crowded {
            self.give_up_missing(from, stream, judge);
        }
        let direction = self.direction_mut(from);
        direction.told_unfinished = false;
        let mut collector = std::mem::take(&mut direction.collector);
        let mut offer = collector.offer(stream, sequence, payload, limits);
        offer.anomalies.insert_if(lossy && crowded, Anomaly::Gap);
        if offer.gap > 0 {
            self.read_unfinished(from, &offer.unread, Unfinished::Unseen, judge);
            self.pass_over(from, u64::from(offer.gap), judge);
        } else if lossy && !stream.from_start() && matches!(self.direction(from).state, State::New) {
            // The capture began in the middle: of a body, or of the silence that keep-alive probes break.
            self.direction_mut(from).state = State::Resync;
        }
        if collector.unread().is_empty() {
            let used = self.read(from, offer.fresh, judge);
            if used == offer.fresh.len() && self.reads_body(from) {
                collector.skip();
            } else {
                collector.keep(offer.fresh);
                collector.advance(used);
            }
        } else {
            collector.keep(offer.fresh);
            let used = self.read(from, collector.unread(), judge);
            collector.advance(used);
        }
        self.direction_mut(from).collector = collector;
        self.spent += self.price(from, offer.fresh.len() + usize::from(offer.ahead));
        if judge.config.http_inspect == HttpInspect::All && self.goes_on(from) {
            self.spent = 0;
            self.began = None;
        }
        offer
    }

    /// Reads on through `input` as far as it goes.
    fn read(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> usize {
        let mut at = 0;
        while judge.outcome.stop.is_none() || !judge.enforces() {
            let rest = input.get(at..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            match self.step(from, rest, judge) {
                Step::Used(count) => at += count,
                Step::Wait => break,
            }
        }
        at
    }

    fn step(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> Step {
        let state = std::mem::take(&mut self.direction_mut(from).state);
        let (state, step) = match state {
            State::New => self.recognise(from, input),
            State::Resync => self.resume(from, input, judge),
            State::Preamble => self.read_preamble(from, input, judge),
            State::Ssh => {
                let reached = self.ssh.identify(from, input, judge);
                after_ssh(reached, State::Ssh, input)
            }
            State::Kex(line) => {
                let reached = self.ssh.exchange(from, &line, input, judge);
                after_ssh(reached, State::Kex(line), input)
            }
            State::Head => self.read_head(from, input, judge),
            State::Next => self.behind_request(from, input, judge),
            State::Body(message) => self.read_body(from, message, input, judge),
            State::Done { foreign } => (State::Done { foreign }, Step::Used(input.len())),
        };
        self.direction_mut(from).state = state;
        if matches!(step, Step::Used(_)) {
            self.settle(judge);
        }
        step
    }

    fn recognise(&mut self, from: Side, input: &[u8]) -> (State, Step) {
        if let Some(relayed) = self.read_relay(from, input) {
            return relayed;
        }
        match recognise(from, input) {
            Recognition::Ssh => (State::Ssh, Step::Used(0)),
            Recognition::Http => (State::Head, Step::Used(0)),
            Recognition::PerhapsSsh if self.speaks_other_than_ssh(from.other()) => first_answer(from, input),
            Recognition::PerhapsSsh => (State::Preamble, Step::Used(0)),
            Recognition::Unknown | Recognition::Relayed => (State::Done { foreign: true }, Step::Used(0)),
            Recognition::More => (State::New, Step::Wait),
        }
    }

    /// Looks for the message behind another.
    fn behind_request(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        if from == Side::Client
            && let Beginning::Other(count) = beginning(from, input, true)
            && self.http.late_field(input.get(..count).unwrap_or(input))
        {
            return (State::Next, Step::Used(count));
        }
        find_message(from, input, State::Next, judge)
    }

    /// Whether the client speaks to a SOCKS server that has not granted its request yet.
    fn awaits_relay(&self) -> bool {
        let client = self.direction(Side::Client);
        let asks = || match (&client.state, client.collector.unread()) {
            (State::New, unread @ [_, ..]) => socks::handshake(Side::Client, unread) == Progress::More,
            _ => false,
        };
        client.relays > self.direction(Side::Server).relays || asks()
    }

    /// Goes over a handshake with a SOCKS server: what follows is relayed, and looked at afresh.
    fn read_relay(&mut self, from: Side, input: &[u8]) -> Option<(State, Step)> {
        if from == Side::Server && !self.awaits_relay() {
            return None;
        }
        match socks::handshake(from, input) {
            Progress::More => Some((State::New, Step::Wait)),
            Progress::Never(_) => None,
            Progress::Done { consumed, .. } => {
                let direction = self.direction_mut(from);
                direction.relays = direction.relays.saturating_add(1);
                Some((State::New, Step::Used(consumed)))
            }
        }
    }

    /// Looks for a message where octets are missing before: one that begins with this segment is read,
    /// anything else is left out.
    fn resume(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        let first = judge.config.http_inspect == HttpInspect::First;
        if first || matches!(recognise(from, input), Recognition::Ssh | Recognition::Relayed) {
            return self.recognise(from, input);
        }
        find_message(from, input, State::Resync, judge)
    }

    /// Reads lines that may precede a server's identification, as long as the client may speak SSH.
    fn read_preamble(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        if let Progress::Done { .. } = identification::identify(from, input) {
            return (State::Ssh, Step::Used(0));
        }
        if self.speaks_other_than_ssh(from.other()) {
            return (State::Done { foreign: true }, Step::Used(0));
        }
        match identification::identify(from, input) {
            Progress::Never(_) => (State::Done { foreign: true }, Step::Used(0)),
            _ => match identification::settled(input) {
                0 => (State::Preamble, Step::Wait),
                settled => {
                    judge.counters.preamble_octets += settled as u64;
                    self.preamble += settled;
                    if self.preamble > identification::PREAMBLE_LIMIT {
                        let odd = banner::Anomaly::SshLongPreamble;
                        judge.note_application(odd.name(), odd.detail());
                    }
                    (State::Preamble, Step::Used(settled))
                }
            },
        }
    }

    fn read_head(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        let reached = match from {
            Side::Client => self.http.request(input, judge),
            Side::Server => self.http.response(input, judge),
        };
        match reached {
            http::Reached::More => (State::Head, Step::Wait),
            http::Reached::Interim(count) => (State::Head, Step::Used(count)),
            http::Reached::Never(reason) => behind_foreign(reason, input, judge),
            http::Reached::Head(count, message) => {
                (self.behind_message(from, Box::new(message), judge), Step::Used(count))
            }
        }
    }

    fn read_body(
        &mut self,
        from: Side,
        mut message: Box<Message>,
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> (State, Step) {
        match message.read(input) {
            Ok(count) => (self.behind_message(from, message, judge), Step::Used(count)),
            Err(hostile) => {
                self.http.finish(from, *message, judge);
                judge.note_application(hostile.name(), hostile.detail());
                (self.behind_transaction(from, judge), Step::Used(0))
            }
        }
    }

    /// Where a direction stands once so much of a message was read.
    fn behind_message(&mut self, from: Side, mut message: Box<Message>, judge: &mut Judge<'_>) -> State {
        if message.framing().is_foreign() {
            let relayed = message.framing() == Framing::Tunnel;
            self.http.finish(from, *message, judge);
            // What a proxy relays is looked at like a connection of its own.
            let state = || if relayed { State::New } else { State::Done { foreign: false } };
            self.direction_mut(from.other()).state = state();
            return state();
        }
        if message.is_done() {
            self.http.finish(from, *message, judge);
            return self.behind_transaction(from, judge);
        }
        if message.is_satisfied() {
            self.http.judge_body(from, &mut message, judge);
            if judge.config.http_inspect == HttpInspect::First {
                self.http.finish(from, *message, judge);
                return self.behind_transaction(from, judge);
            }
        }
        State::Body(message)
    }

    fn behind_transaction(&mut self, from: Side, judge: &Judge<'_>) -> State {
        match (judge.config.http_inspect, from) {
            (HttpInspect::All, _) => State::Next,
            (HttpInspect::First, Side::Client) => State::Done { foreign: false },
            (HttpInspect::First, Side::Server) => {
                self.direction_mut(Side::Client).state = State::Done { foreign: false };
                State::Done { foreign: false }
            }
        }
    }

    /// Draws conclusions of one direction for the other, and tells what is complete.
    fn settle(&mut self, judge: &mut Judge<'_>) {
        if self.ssh.knows(Side::Client) && self.ssh.knows(Side::Server) && self.is_decided() {
            self.ssh.tell_at_last(judge);
        }
        if matches!(self.direction(Side::Server).state, State::Preamble)
            && self.speaks_other_than_ssh(Side::Client)
        {
            self.direction_mut(Side::Server).state = State::Done { foreign: true };
        }
    }

    /// Whether nothing more is to be read in either direction.
    pub(super) fn is_decided(&self) -> bool {
        self.directions.iter().all(|direction| matches!(direction.state, State::Done { .. }))
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
    pub(super) fn lose(&mut self, from: Side, count: u64, judge: &mut Judge<'_>) {
        let unread = self.direction_mut(from).collector.take_unread();
        self.read_unfinished(from, &unread, Unfinished::Unseen, judge);
        self.pass_over(from, count, judge);
    }

    /// Reads what there is of a head whose end will not come.
    fn read_unfinished(&mut self, from: Side, unread: &[u8], why: Unfinished, judge: &mut Judge<'_>) {
        let begins =
            matches!(self.direction(from).state, State::New | State::Head | State::Next | State::Resync);
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
            State::Kex(line) => {
                self.ssh.give_up_kex(from, &line, judge);
                State::Done { foreign: false }
            }
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
            collector.advance(used);
        }
        self.direction_mut(from).collector = collector;
    }

    /// What one side said in its SYN was not accepted: it begins afresh.
    pub(super) fn rewind(&mut self, from: Side, stream: &mut Stream, sequence: u32) {
        let direction = self.direction_mut(from);
        direction.collector.rewind(stream, sequence);
        direction.state = State::New;
        self.http.forget();
    }

    /// One side has said all: a body that ends with the connection is whole, and a head has no end.
    pub(super) fn end(&mut self, from: Side, why: Unfinished, judge: &mut Judge<'_>) {
        self.end_unfinished(from, why, judge);
        let state = std::mem::take(&mut self.direction_mut(from).state);
        self.direction_mut(from).state = match state {
            State::Body(message) => {
                self.http.finish(from, *message, judge);
                State::Next
            }
            State::Kex(line) => {
                self.ssh.give_up_kex(from, &line, judge);
                State::Done { foreign: false }
            }
            state => state,
        };
    }

    /// Tells everything that was seen and not told yet: nothing more will be read, or it may never come.
    pub(super) fn close(&mut self, judge: &mut Judge<'_>) {
        for from in [Side::Client, Side::Server] {
            if judge.config.source != Source::Guard {
                // Nothing comes any more that would need to know where the direction stands.
                self.give_up_missing(from, &mut Stream::default(), judge);
            }
            self.end(from, Unfinished::Unseen, judge);
        }
        self.ssh.tell(judge);
        self.http.tell_rest(judge);
    }

    /// Whether something was begun and is not whole: a budget that runs out here leaves a banner unread,
    /// elsewhere only a side that is silent.
    pub(super) fn is_amid(&self) -> bool {
        self.directions.iter().any(|direction| match direction.state {
            State::Preamble => true,
            State::Ssh | State::Kex(_) | State::Head | State::Next => {
                !direction.collector.unread().is_empty()
            }
            _ => false,
        })
    }

    /// Whether one side speaks SSH and the other HTTP.
    pub(super) fn is_mismatched(&self) -> bool {
        let http =
            |direction: &Direction| matches!(direction.state, State::Head | State::Next | State::Body(_));
        let ssh = self.ssh.knows(Side::Client) || self.ssh.knows(Side::Server);
        ssh && self.directions.iter().any(http)
    }

    /// Octets of memory held, roughly.
    pub(super) fn memory(&self) -> usize {
        let directions: usize = self
            .directions
            .iter()
            .map(|direction| {
                direction.collector.memory()
                    + match &direction.state {
                        State::Body(message) => message.memory(),
                        State::Kex(line) => line.capacity(),
                        _ => 0,
                    }
            })
            .sum();
        size_of::<Self>() + directions + self.http.memory()
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
        if self.reads_body(from) { count / BODY_DISCOUNT } else { count }
    }

    fn reads_body(&self, from: Side) -> bool {
        matches!(self.direction(from).state, State::Body(_))
    }

    fn speaks_other_than_ssh(&self, from: Side) -> bool {
        match &self.direction(from).state {
            State::Head | State::Next | State::Body(_) | State::Done { foreign: true } => true,
            State::Done { foreign: false } => !self.ssh.knows(from),
            _ => false,
        }
    }

    /// Whether all that one side has sent was HTTP that could be read: the budget is for what can't.
    fn goes_on(&self, from: Side) -> bool {
        let direction = self.direction(from);
        match direction.state {
            State::Body(_) => true,
            State::Head | State::Next => direction.collector.unread().is_empty(),
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

/// What a server says first to a client that speaks HTTP: empty lines may stand before its answer.
fn first_answer(from: Side, input: &[u8]) -> (State, Step) {
    match beginning(from, input, true) {
        Beginning::Message => (State::Head, Step::Used(0)),
        Beginning::More => (State::New, Step::Wait),
        Beginning::Other(count) if input.get(..count).unwrap_or(input).trim_ascii().is_empty() => {
            (State::New, Step::Used(count))
        }
        Beginning::Other(_) => (State::Done { foreign: true }, Step::Used(0)),
    }
}

/// Looks for the next message; `state` says whether octets are missing before.
fn find_message(from: Side, input: &[u8], state: State, judge: &mut Judge<'_>) -> (State, Step) {
    let contiguous = matches!(state, State::Next);
    match beginning(from, input, contiguous) {
        Beginning::Message => (State::Head, Step::Used(0)),
        Beginning::More => (state, Step::Wait),
        Beginning::Other(count) => {
            let left_out = input.get(..count).unwrap_or(input);
            if contiguous && !left_out.trim_ascii().is_empty() {
                note_unexpected(judge);
            }
            (state, Step::Used(count))
        }
    }
}

/// What looked like the head of a message and is none: its line is left out where more is to be read.
fn behind_foreign(reason: Reason, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
    if judge.config.http_inspect == HttpInspect::First || reason == Reason::Http2Preface {
        return (State::Done { foreign: true }, Step::Used(0));
    }
    note_unexpected(judge);
    let line = memchr::memchr(b'\n', input).map_or(input.len(), |end| end + 1);
    (State::Next, Step::Used(line))
}

fn note_unexpected(judge: &mut Judge<'_>) {
    judge.note_application("http_unexpected_data", "octets between messages that belong to none");
}

fn after_ssh(reached: ssh::Reached, same: State, input: &[u8]) -> (State, Step) {
    match reached {
        ssh::Reached::More => (same, Step::Wait),
        ssh::Reached::Identified(count, Some(line)) => (State::Kex(line), Step::Used(count)),
        ssh::Reached::Identified(count, None) | ssh::Reached::Finished(count) => {
            (State::Done { foreign: false }, Step::Used(count))
        }
        ssh::Reached::Never => (State::Done { foreign: true }, Step::Used(input.len())),
    }
}
