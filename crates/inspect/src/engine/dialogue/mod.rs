//! What two ends say to each other: which protocol each direction is read as, and what one says of the
//! other.
//!
//! Each direction has a [`Reading`] of its own, since they may differ for as long as hypotheses stand: a
//! client asks by HTTP where a server identifies itself by SSH, and what is a response to one client are
//! lines before an identification to another. What both directions of a protocol know together (whose
//! identification was read, which request waits for its response) lies beside the readings, a field a
//! protocol. Nothing here knows of segments, collectors or budgets: a [`Turn`] is what one side has said
//! that is unread, and a [`Step`] what became of it.
//!
//! Two places decide for all protocols: [`Dialogue::foreign`] that what a side says is none of them, and
//! [`Dialogue::hand_over`] that one protocol leaves the connection to whatever follows.

mod finding;
mod foreign;
mod greeting;
mod hand_over;
mod http;
mod lines;
mod need;
mod opening;
mod search;
mod ssh;
mod tls;

pub(in crate::engine) use self::finding::{
    DialogueSettings, Finding, FindingSink, FoundBanner, KnownIdentification, Matched, ReadContext,
};
pub(in crate::engine) use self::http::Unfinished;

use self::foreign::Foreign;
use self::greeting::Greeting;
use self::hand_over::{Asked, Handover};
use self::http::Http;
use self::need::{Awaited, Need};
use self::opening::{First, Opening, Spoken};
use self::search::Search;
use self::ssh::Ssh;
use self::tls::Tls;
use super::release::Rest;
use crate::banner::recognise::{FirstWord, may_become_plain_request};
use crate::event::Side;
use crate::flow::Tracking;

/// What two ends say to each other.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    directions: [Direction; 2],
    opening: Opening,
    asked: Asked,
    ssh: Ssh,
    http: Http,
    tls: Tls,
    greeting: Greeting,
}

/// How far one direction was read, and as what.
#[derive(Debug, Default)]
struct Direction {
    reading: Reading,
    first: First,
    /// Records of TLS, as long as it may be that.
    hearing: tls::Hearing,
    /// What was found behind bytes that are not read.
    search: Search,
    /// Handshakes with SOCKS servers that were gone over.
    relays: u8,
    /// What was read ends within a line.
    amid_line: bool,
    /// The first word of what is unread, as far as it was looked at.
    word: FirstWord,
    /// What must come before the unread bytes are worth another look.
    awaited: Option<Awaited>,
}

/// What one direction is read as.
#[derive(Debug, Default)]
enum Reading {
    /// Not recognised yet.
    #[default]
    New,
    /// Bytes are missing: whatever comes next is looked at as if it were new.
    Resync,
    /// Lines that may precede an SSH identification, so many bytes behind the start of one.
    Lines(usize),
    /// SSH from its identification on.
    Ssh(ssh::Reading),
    /// Messages of HTTP.
    Http(http::Reading),
    /// Records of TLS, up to where they are encrypted.
    Tls,
    /// A dialogue in lines that the server opens with a greeting.
    Greeting(greeting::Reading),
    /// Nothing more is to be read: what was wanted of a protocol was seen.
    Done,
    /// Nothing more is to be read: it is no protocol that is read here.
    Foreign(#[expect(dead_code, reason = "whoever names or stops such flows asks why")] Foreign),
}

/// What one side says next.
#[derive(Clone, Copy)]
struct Turn<'t> {
    from: Side,
    /// All that was not read yet.
    input: &'t [u8],
    /// What the other side has said that is unread.
    peer: &'t [u8],
}

/// What one look at a [`Turn`] came to.
enum Step {
    /// So many bytes were read, and the rest is read as this.
    Used(usize, Reading),
    /// More bytes are needed.
    Wait(Need, Reading),
    /// So many bytes were read, and behind them another dialogue begins.
    HandsOver(usize, Handover),
}

impl Dialogue {
    /// Reads on through `input` as far as it goes: all that one side said and that was not read yet.
    pub(super) fn read(
        &mut self,
        from: Side,
        input: &[u8],
        peer: &[u8],
        context: &mut ReadContext<'_>,
    ) -> usize {
        let due = self.is_due(from, input);
        let used = if due { self.read_on(from, input, peer, context) } else { 0 };
        self.search(from, input, self.is_within_body(from), context);
        self.direction_mut(from).search.advance(used);
        used
    }

    fn read_on(&mut self, from: Side, input: &[u8], peer: &[u8], context: &mut ReadContext<'_>) -> usize {
        let mut at = 0;
        while !context.sink.is_stopped() {
            let rest = input.get(at..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let within_body = self.is_within_body(from);
            let Some(count) = self.step(Turn { from, input: rest, peer }, context) else { break };
            at += count;
            // Here, since the rest may be something else: a body behind a head.
            self.search(from, input.get(..at).unwrap_or_default(), within_body, context);
            // Not what packets held: what is told must not depend on how bytes were split.
            context.find(Finding::Bytes(count));
            if let Some(last) = at.checked_sub(1).and_then(|last| input.get(last)) {
                let direction = self.direction_mut(from);
                direction.amid_line = *last != b'\n';
                direction.word = FirstWord::default();
            }
        }
        at
    }

    /// True if `unread` has what was waited for.
    fn is_due(&mut self, from: Side, unread: &[u8]) -> bool {
        let direction = self.direction_mut(from);
        let due = direction.awaited.as_mut().is_none_or(|awaited| awaited.is_met(unread));
        if due {
            direction.awaited = None;
        }
        due
    }

    /// One look at what a side says; how many bytes were read, if it need not wait.
    fn step(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Option<usize> {
        let from = turn.from;
        let reading = std::mem::take(&mut self.direction_mut(from).reading);
        let step = match reading {
            Reading::New => self.recognise(turn, context),
            Reading::Resync => self.resume(turn, context),
            Reading::Lines(place) => self.read_lines(place, turn, context),
            Reading::Ssh(reading) => self.read_ssh(reading, turn, context),
            Reading::Http(reading) => self.read_http(reading, turn, context),
            Reading::Tls => self.read_tls(turn, context),
            Reading::Greeting(reading) => self.read_greeting(reading, turn, context),
            reading @ (Reading::Done | Reading::Foreign(_)) => Step::Used(turn.input.len(), reading),
        };
        let count = match step {
            Step::Wait(need, reading) => {
                let direction = self.direction_mut(from);
                direction.reading = reading;
                direction.awaited = Some(Awaited::new(turn.input.len(), need));
                return None;
            }
            Step::Used(count, reading) => {
                self.direction_mut(from).reading = reading;
                count
            }
            Step::HandsOver(count, handover) => {
                self.hand_over(from, handover);
                count
            }
        };
        self.settle(turn, context);
        Some(count)
    }

    /// Draws conclusions of one direction for the other, and tells what is complete.
    fn settle(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) {
        if self.ssh.knows(Side::Client) && self.ssh.knows(Side::Server) && self.is_decided() {
            self.ssh.tell(context);
        }
        if self.is_decided() {
            self.tls.tell(context);
        }
        let requested = if turn.from == Side::Client { &[] } else { turn.peer };
        self.settle_http(requested, context);
    }

    /// True if nothing more is to be read in either direction.
    pub(super) fn is_decided(&self) -> bool {
        self.is_done(Side::Client) && self.is_done(Side::Server)
    }

    /// True if nothing more is to be read of one side, nor searched.
    pub(super) fn is_done(&self, from: Side) -> bool {
        self.is_read_out(from) && !self.searches(from)
    }

    /// True if nothing more is to be read of one side; it may be searched.
    pub(super) const fn is_read_out(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, Reading::Done | Reading::Foreign(_))
    }

    /// True if the client's bytes are searched and the server's are let go.
    pub(super) fn only_searches(&self) -> bool {
        self.is_read_out(Side::Client) && self.searches(Side::Client) && self.is_done(Side::Server)
    }

    /// True if both sides speak what is no protocol that is read here, and did from their first byte on: a
    /// request that nobody answered is told yet.
    pub(super) const fn is_foreign(&self) -> bool {
        let [client, server] = &self.directions;
        !self.http.was_asked()
            && matches!((&client.reading, &server.reading), (Reading::Foreign(_), Reading::Foreign(_)))
    }

    /// True if one side speaks SSH and the other HTTP.
    pub(super) const fn is_mismatched(&self) -> bool {
        self.opening.mismatched
    }

    /// A capture begins with one side in the middle: of a body, or of the silence that keep-alive probes
    /// break.
    pub(super) fn begin_amid(&mut self, from: Side) {
        let reading = &mut self.direction_mut(from).reading;
        if matches!(reading, Reading::New) {
            *reading = Reading::Resync;
        }
    }

    /// Goes over `count` bytes of one side that are missing for good; `peer` is what the other one has said
    /// that is unread.
    pub(super) fn pass_over(&mut self, from: Side, count: u64, peer: &[u8], context: &mut ReadContext<'_>) {
        if from == Side::Server {
            self.greeting.end(context);
        }
        let direction = self.direction_mut(from);
        direction.awaited = None;
        direction.search.pass_over();
        let reading = std::mem::take(&mut direction.reading);
        let reading = match reading {
            Reading::Http(reading) => {
                self.pass_over_http(reading, count, Turn { from, input: &[], peer }, context)
            }
            Reading::Ssh(reading) => self.end_ssh(from, &reading, context).unwrap_or(Reading::Resync),
            Reading::Tls => self.leave_tls(from),
            Reading::Greeting(_) => self.leave_greeting(from),
            reading @ (Reading::Done | Reading::Foreign(_)) => reading,
            // The receiver has them, so that what began as no message goes on as none.
            Reading::Lines(_) if context.settings.tracking == Tracking::Inline => Reading::Lines(0),
            Reading::New | Reading::Resync | Reading::Lines(_) => Reading::Resync,
        };
        self.direction_mut(from).reading = reading;
    }

    /// Reads what there is of a message whose end will not come.
    pub(super) fn read_unfinished(
        &mut self,
        from: Side,
        unread: &[u8],
        why: Unfinished,
        context: &mut ReadContext<'_>,
    ) {
        let begins = match &self.direction(from).reading {
            Reading::New | Reading::Resync => true,
            Reading::Http(reading) => reading.is_before_end_of_head(),
            _ => false,
        };
        if begins && !unread.is_empty() {
            self.http.unfinished(from, unread, why, context);
        }
    }

    /// One side has said all, and that is certain.
    pub(super) fn end(&mut self, from: Side, context: &mut ReadContext<'_>) {
        if from == Side::Server {
            self.greeting.end(context);
        }
        let reading = std::mem::take(&mut self.direction_mut(from).reading);
        let reading = match reading {
            Reading::Http(reading) => Reading::Http(self.end_http(from, reading, context)),
            Reading::Ssh(reading) => self.end_ssh(from, &reading, context).unwrap_or(Reading::Ssh(reading)),
            Reading::Tls => self.leave_tls(from),
            reading => reading,
        };
        self.direction_mut(from).reading = reading;
    }

    /// Tells everything that was seen and not told yet.
    pub(super) fn tell_rest(&mut self, context: &mut ReadContext<'_>) {
        self.ssh.tell(context);
        self.tls.tell(context);
        self.http.tell_rest(context);
    }

    /// What one side said was not accepted: it begins afresh.
    pub(super) fn rewind(&mut self, from: Side) {
        *self.direction_mut(from) = Direction::default();
        self.http.forget();
        match from {
            Side::Client => self.tls = Tls::default(),
            Side::Server => self.greeting = Greeting::default(),
        }
    }

    /// True if one side has begun a banner and not ended it, `unread` being what waits. Lines that may come
    /// before an identification begin none as long as nobody speaks SSH (a person may be asked for a name),
    /// and neither do bytes that no honest client begins with.
    pub(super) fn is_amid(&self, from: Side, unread: &[u8]) -> bool {
        if self.is_perhaps_of_tunnel(from) {
            return false;
        }
        let amid_greeting = || from == Side::Server && self.greeting.is_amid();
        match &self.direction(from).reading {
            Reading::New if unread.is_empty() => false,
            Reading::New if from == Side::Server => true,
            Reading::New => may_become_plain_request(unread),
            Reading::Http(_) if self.http.is_doubtful() => false,
            Reading::Lines(_) => self.ssh.knows(from.other()) || amid_greeting(),
            Reading::Greeting(_) => amid_greeting(),
            Reading::Ssh(_) | Reading::Tls => !unread.is_empty(),
            Reading::Http(reading) => !reading.is_body() && !unread.is_empty(),
            Reading::Resync | Reading::Done | Reading::Foreign(_) => false,
        }
    }

    /// True if `count` bytes of one side may be missing without harm.
    pub(super) fn can_spare(&self, from: Side, count: u64) -> bool {
        match &self.direction(from).reading {
            Reading::Done | Reading::Foreign(_) => !self.searches(from),
            Reading::Http(reading) => reading.can_spare(count) && !self.searches(from),
            _ => false,
        }
    }

    /// What is left of the response that is being read, if nobody wants any of it and it answers the only
    /// request.
    pub(super) fn rest_of_response(&self) -> Option<Rest> {
        match (&self.direction(Side::Client).reading, &self.direction(Side::Server).reading) {
            (Reading::Http(client), Reading::Http(server)) if client.is_behind_message() => {
                self.http.rest(server).filter(|_| !self.may_speak_ssh(Side::Server))
            }
            _ => None,
        }
    }

    /// True if what one side says is kept by nobody once it was read.
    pub(super) const fn is_fleeting(&self, from: Side) -> bool {
        self.is_read_out(from)
            || matches!(&self.direction(from).reading, Reading::Http(reading) if reading.is_body())
    }

    /// True if what one side says is cheap to go over, and what decides comes behind it.
    pub(super) const fn is_cheap(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, Reading::Lines(_)) || self.is_fleeting(from)
    }

    /// True if what one side says is no banner by any rule of its protocol: only judged, never waited for.
    pub(super) const fn is_free(&self, from: Side) -> bool {
        self.is_read_out(from) || (self.is_reading_http(from) && self.http.is_doubtful())
    }

    const fn is_reading_http(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, Reading::Http(_))
    }

    /// True if one side began no banner and the other one has said nothing, or a word without an end: a log,
    /// a backup, a film. Nobody can tell where that ends, and what the other one may say next is awaited.
    pub(super) fn is_monologue(&self, from: Side) -> bool {
        let other = self.direction(from.other());
        self.direction(from).first.spoken == Spoken::Other
            && matches!(other.reading, Reading::New)
            && other.first.spoken == Spoken::Nothing
    }

    /// True if all that one side has sent could be read, and more like it may follow: the budget is for what
    /// can't.
    pub(super) const fn goes_on(&self, from: Side, unread: &[u8]) -> bool {
        match &self.direction(from).reading {
            Reading::Http(reading) => reading.goes_on(unread) || self.is_perhaps_of_tunnel(from),
            _ => false,
        }
    }

    /// Bytes of memory held, roughly.
    pub(super) fn memory(&self) -> usize {
        let reading = |direction: &Direction| {
            let read = match &direction.reading {
                Reading::Http(reading) => reading.memory(),
                Reading::Ssh(reading) => reading.memory(),
                _ => 0,
            };
            read + direction.hearing.memory() + direction.search.memory()
        };
        let [client, server] = &self.directions;
        reading(client) + reading(server) + self.http.memory() + self.greeting.memory()
    }

    /// Gives a direction another reading because of what the other one says.
    fn change(&mut self, from: Side, reading: Reading) {
        let direction = self.direction_mut(from);
        direction.reading = reading;
        direction.awaited = None;
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

#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod tests;
