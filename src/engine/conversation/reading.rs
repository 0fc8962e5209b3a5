//! Reading on through one direction's octets: what each state of it makes of them.

use super::opening::Spoken;
use super::{Awaited, Conversation, Need, State, Step};
use crate::banner::framing::Framing;
use crate::banner::http::{HEAD_LIMIT, count_steps};
use crate::banner::recognise::FIRST_LINE_LIMIT;
use crate::banner::{Anomaly, Beginning, Reason, Recognition, beginning, recognise, ssh as identification};
use crate::engine::HttpInspect;
use crate::engine::greeting::Hearing;
use crate::engine::http::{self, Head, Late, Message};
use crate::engine::judge::Judge;
use crate::engine::ssh;
use crate::event::Side;

impl Conversation {
    /// Reads on through `input` as far as it goes: all that was not read yet.
    pub(super) fn read(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> usize {
        if !self.direction_mut(from).is_due(input) {
            return 0;
        }
        let mut at = 0;
        while judge.outcome.stop.is_none() || !judge.enforces() {
            let rest = input.get(at..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            match self.step(from, rest, judge) {
                Step::Used(count) => {
                    at += count;
                    // Not what packets held: what is told must not depend on how octets were split.
                    judge.allowance.hear(count);
                    if let Some(last) = at.checked_sub(1).and_then(|last| input.get(last)) {
                        self.direction_mut(from).line_start = *last == b'\n';
                    }
                }
                Step::Wait(need) => {
                    self.direction_mut(from).awaited = Some(Awaited { seen: rest.len(), need });
                    break;
                }
            }
        }
        at
    }

    fn step(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> Step {
        let state = std::mem::take(&mut self.direction_mut(from).state);
        let (state, step) = match state {
            State::New => self.recognise(from, input, judge),
            State::Resync => self.resume(from, input, judge),
            State::Preamble(place) => self.read_preamble(from, place, input, judge),
            State::Ssh => {
                let reached = self.ssh.identify(from, input, judge);
                after_ssh(reached, State::Ssh, input)
            }
            State::Kex(line, before) => {
                let reached = self.ssh.exchange(from, &line, before, input, judge);
                match reached {
                    ssh::Reached::Skipped(count) => (State::Kex(line, before + count), Step::Used(count)),
                    reached => after_ssh(reached, State::Kex(line, before), input),
                }
            }
            State::Greeting => {
                self.hearing.hear(input, judge);
                (self.strange(from), Step::Used(input.len()))
            }
            State::Head(head) => self.read_head(from, head, input, judge),
            State::Late(first) => self.read_late(from, first, input, judge),
            State::Next => self.behind_message_of(from, input, judge),
            State::Body(message) => self.read_body(from, message, input, judge),
            State::Done { foreign } => (State::Done { foreign }, Step::Used(input.len())),
        };
        self.direction_mut(from).state = state;
        if matches!(step, Step::Used(_)) {
            self.settle(judge);
        }
        step
    }

    /// Looks for the message behind another.
    fn behind_message_of(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        let line_start = self.direction(from).line_start;
        if self.may_speak_ssh(from) && line_start && identification_line(input, true) == Some(0) {
            if input.starts_with(identification::PREFIX) {
                return (State::Preamble(0), Step::Used(0));
            }
            return (State::Next, Step::Wait(Need::octets(input.len() + 1)));
        }
        find_message(from, input, State::Next, judge)
    }

    /// Looks for a message where octets are missing before: one that begins with this segment is read,
    /// anything else is left out.
    fn resume(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        let first = judge.law.config.http_inspect == HttpInspect::First;
        if first || matches!(recognise(from, input), Recognition::Ssh | Recognition::Relayed) {
            return self.recognise(from, input, judge);
        }
        find_message(from, input, State::Resync, judge)
    }

    fn read_head(
        &mut self,
        from: Side,
        mut head: Head,
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> (State, Step) {
        let may_speak_ssh = self.may_speak_ssh(from);
        let reached = match from {
            Side::Client => self.http.request(&mut head, input, judge),
            Side::Server => self.http.response(&mut head, input, may_speak_ssh, judge),
        };
        match reached {
            http::Reached::More => {
                let need = Need::line(head.limit());
                (State::Head(head), Step::Wait(need))
            }
            http::Reached::Interim(count) => (State::Head(Head::default()), Step::Used(count)),
            http::Reached::Never(reason) => behind_foreign(reason, input, judge),
            http::Reached::Stopped => (State::Done { foreign: false }, Step::Used(input.len())),
            http::Reached::Ssh(count) => (State::Preamble(0), Step::Used(count)),
            http::Reached::Part(count) => {
                let line = memchr::memchr(b'\n', input).map_or(count, |end| (end + 1).min(count));
                let first = input.get(..line).unwrap_or_default().to_vec();
                (State::Late(first), Step::Used(count))
            }
            http::Reached::Head(count, message) => {
                (self.behind_message(from, Box::new(message), judge), Step::Used(count))
            }
        }
    }

    /// Reads lines behind a head that is kept no further.
    fn read_late(
        &mut self,
        from: Side,
        first: Vec<u8>,
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> (State, Step) {
        count_steps(input.len().min(HEAD_LIMIT));
        let line = match memchr::memchr(b'\n', input.get(..HEAD_LIMIT).unwrap_or(input)) {
            Some(end) => input.get(..=end).unwrap_or_default(),
            None if input.len() >= HEAD_LIMIT => input,
            None => return (State::Late(first), Step::Wait(Need::line(HEAD_LIMIT))),
        };
        let all = judge.law.config.http_inspect == HttpInspect::All;
        match self.http.late_line(from, &first, line, judge) {
            Late::Message if all => (State::Next, Step::Used(0)),
            Late::Field | Late::Message => (State::Late(first), Step::Used(line.len())),
            Late::End => {
                if from == Side::Server {
                    self.http.finish_part(judge);
                }
                (self.behind_transaction(from, judge), Step::Used(line.len()))
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
        let mut input = input;
        if self.may_speak_ssh(from)
            && let Some(at) = identification_line(input, self.direction(from).line_start)
        {
            let (body, line) = input.split_at(at);
            if body.is_empty() && !line.starts_with(identification::PREFIX) {
                return (State::Body(message), Step::Wait(Need::octets(line.len() + 1)));
            }
            if body.is_empty() {
                self.http.finish(from, *message, judge);
                return (State::Preamble(0), Step::Used(0));
            }
            input = body;
        }
        match message.read(input) {
            Ok(count) => (self.behind_message(from, message, judge), Step::Used(count)),
            Err(hostile) => {
                self.http.finish(from, *message, judge);
                judge.note_application(hostile);
                (self.behind_transaction(from, judge), Step::Used(0))
            }
        }
    }

    /// Where a direction stands once so much of a message was read.
    pub(super) fn behind_message(
        &mut self,
        from: Side,
        mut message: Box<Message>,
        judge: &mut Judge<'_>,
    ) -> State {
        if message.framing().is_foreign() {
            let relayed = message.framing() == Framing::Tunnel;
            self.http.finish(from, *message, judge);
            // What a proxy relays is looked at like a connection of its own.
            let state = || if relayed { State::New } else { State::Done { foreign: false } };
            self.hearing = Hearing::default();
            // Its client may have begun before the proxy agreed.
            if !(relayed && std::mem::take(&mut self.tunnel_asked)) {
                self.change(from.other(), state());
                self.direction_mut(from.other()).spoken = Spoken::Nothing;
            }
            self.direction_mut(from).spoken = Spoken::Nothing;
            return state();
        }
        if message.is_done() {
            self.http.finish(from, *message, judge);
            return self.behind_transaction(from, judge);
        }
        if message.is_satisfied() {
            self.http.judge_body(from, &mut message, judge);
            if judge.law.config.http_inspect == HttpInspect::First {
                self.http.finish(from, *message, judge);
                return self.behind_transaction(from, judge);
            }
        }
        State::Body(message)
    }

    fn behind_transaction(&mut self, from: Side, judge: &Judge<'_>) -> State {
        let all = judge.law.config.http_inspect == HttpInspect::All;
        if from == Side::Client {
            if self.http.asks_tunnel() {
                self.tunnel_asked = true;
                self.direction_mut(from).spoken = Spoken::Nothing;
                return State::New;
            }
            return if all { State::Next } else { State::Done { foreign: false } };
        }
        let refused = std::mem::take(&mut self.tunnel_asked);
        if refused && matches!(self.direction(Side::Client).state, State::New) {
            self.direction_mut(Side::Client).spoken = Spoken::Http;
            self.change(Side::Client, State::Next);
        }
        if all {
            return State::Next;
        }
        self.end_request();
        if self.may_speak_ssh(from) {
            // Nobody has asked yet: to a client of SSH these were lines before an identification.
            return State::Preamble(usize::from(!self.direction(from).line_start));
        }
        State::Done { foreign: false }
    }

    /// The response is whole: so is the request, unless a part of it is still to come. Whoever answers
    /// before that may not be the server.
    fn end_request(&mut self) {
        let client = self.direction(Side::Client);
        let whole = match client.state {
            State::Next | State::Late(_) => client.collector.unread().is_empty(),
            State::Resync | State::Body(_) => true,
            _ => false,
        };
        if whole {
            self.change(Side::Client, State::Done { foreign: false });
        }
    }

    /// Draws conclusions of one direction for the other, and tells what is complete.
    pub(super) fn settle(&mut self, judge: &mut Judge<'_>) {
        if self.ssh.knows(Side::Client) && self.ssh.knows(Side::Server) && self.is_decided() {
            self.ssh.tell(judge);
        }
        if self.is_done(Side::Server) && judge.law.config.http_inspect == HttpInspect::First {
            let client = self.direction(Side::Client);
            if matches!(client.state, State::Late(_)) && client.collector.unread().is_empty() {
                self.change(Side::Client, State::Done { foreign: false });
            }
        }
    }
}

/// Where a line begins in `input` that is an identification, as far as it goes.
fn identification_line(input: &[u8], line_start: bool) -> Option<usize> {
    let begins = |at: &usize| {
        let rest = input.get(*at..).unwrap_or_default();
        !rest.is_empty()
            && (rest.starts_with(identification::PREFIX) || identification::PREFIX.starts_with(rest))
    };
    let starts = memchr::memchr_iter(b'\n', input).map(|end| end + 1);
    line_start.then_some(0).into_iter().chain(starts).find(begins)
}

/// So few octets are looked at as they come; a line is waited for behind them.
const FEW: usize = 16;

/// Looks for the next message; `state` says whether octets are missing before.
fn find_message(from: Side, input: &[u8], state: State, judge: &mut Judge<'_>) -> (State, Step) {
    let contiguous = matches!(state, State::Next);
    match beginning(from, input, contiguous) {
        Beginning::Message => (State::Head(Head::default()), Step::Used(0)),
        Beginning::More => {
            let few = input.len() < FEW;
            let need = if few { Need::octets(input.len() + 1) } else { Need::line(FIRST_LINE_LIMIT) };
            (state, Step::Wait(need))
        }
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
    if reason == Reason::NotAResponse {
        let odd = Anomaly::StatusInvalid;
        judge.note_application(odd);
    }
    if judge.law.config.http_inspect == HttpInspect::First || reason == Reason::Http2Preface {
        return (State::Done { foreign: true }, Step::Used(0));
    }
    note_unexpected(judge);
    let line = memchr::memchr(b'\n', input).map_or(input.len(), |end| end + 1);
    (State::Next, Step::Used(line))
}

fn note_unexpected(judge: &mut Judge<'_>) {
    judge.note_application(Anomaly::UnexpectedData);
}

fn after_ssh(reached: ssh::Reached, same: State, input: &[u8]) -> (State, Step) {
    match reached {
        ssh::Reached::Line(octets) => (same, Step::Wait(Need::line(octets))),
        ssh::Reached::Octets(octets) => (same, Step::Wait(Need::octets(octets))),
        ssh::Reached::Identified(count, Some(line)) => (State::Kex(line, 0), Step::Used(count)),
        ssh::Reached::Identified(count, None)
        | ssh::Reached::Skipped(count)
        | ssh::Reached::Finished(count) => (State::Done { foreign: false }, Step::Used(count)),
        ssh::Reached::Never => (State::Done { foreign: true }, Step::Used(input.len())),
    }
}
