//! Reading on through one direction's octets: what each state of it makes of them.

use super::{Conversation, State, Step};
use crate::banner::framing::Framing;
use crate::banner::{
    self, Beginning, Progress, Reason, Recognition, beginning, recognise, socks, ssh as identification,
};
use crate::engine::HttpInspect;
use crate::engine::http::{self, Message};
use crate::engine::judge::Judge;
use crate::engine::ssh;
use crate::event::Side;

impl Conversation {
    /// Reads on through `input` as far as it goes.
    pub(super) fn read(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> usize {
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
            && self.http.late_field(input.get(..count).unwrap_or(input), &judge.config.disclosure)
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
                // An answer before the request was read is nobody's: the request is still to come.
                if matches!(self.direction(Side::Client).state, State::Body(_) | State::Next | State::Resync)
                {
                    self.direction_mut(Side::Client).state = State::Done { foreign: false };
                }
                State::Done { foreign: false }
            }
        }
    }

    /// Draws conclusions of one direction for the other, and tells what is complete.
    pub(super) fn settle(&mut self, judge: &mut Judge<'_>) {
        if self.ssh.knows(Side::Client) && self.ssh.knows(Side::Server) && self.is_decided() {
            self.ssh.tell(judge);
        }
        if matches!(self.direction(Side::Server).state, State::Preamble)
            && self.speaks_other_than_ssh(Side::Client)
        {
            self.direction_mut(Side::Server).state = State::Done { foreign: true };
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
