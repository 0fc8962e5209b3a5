//! HTTP as one of the things that both sides may speak: where one message ends and what follows it.

use super::Reading;
use super::frame::note_hostile;
use super::head::Head;
use super::late::{Late, LateHead};
use super::transactions::Reached;
use crate::banner::framing::{Advance, Framing, Message};
use crate::banner::http::{HEAD_LIMIT, count_steps};
use crate::banner::recognise::FIRST_LINE_LIMIT;
use crate::banner::{Beginning, Reason, beginning, ssh as identification};
use crate::engine::config::HttpInspect;
use crate::engine::dialogue::finding::ReadContext;
use crate::engine::dialogue::need::{FEW, Need};
use crate::engine::dialogue::ssh::identification_line;
use crate::engine::dialogue::state::{self, Dialogue, Spoken};
use crate::engine::dialogue::step::{Asked, Handover, Turn, UnreadReason};
use crate::event::Side;
use crate::terms::Anomaly;

type Step = crate::engine::dialogue::step::Step<state::Reading>;

/// What follows a message.
enum Behind {
    /// The direction is read on as this.
    Reads(state::Reading),
    /// Another dialogue.
    HandsOver(Handover),
}

impl Behind {
    const DONE: Self = Self::Reads(state::Reading::Done);

    const fn http(reading: Reading) -> Self {
        Self::Reads(state::Reading::Http(reading))
    }

    fn after(self, count: usize) -> Step {
        match self {
            Self::Reads(reading) => Step::Used(count, reading),
            Self::HandsOver(handover) => Step::HandsOver(count, handover),
        }
    }
}

fn used(count: usize, reading: Reading) -> Step {
    Step::Used(count, state::Reading::Http(reading))
}

fn wait(need: Need, reading: Reading) -> Step {
    Step::Wait(need, state::Reading::Http(reading))
}

impl Dialogue {
    /// Reads on in messages.
    pub fn read_http(&mut self, reading: Reading, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        match reading {
            Reading::Head(head) => self.read_head(head, turn, context),
            Reading::Late(late) => self.read_late(late, turn, context),
            Reading::Next => self.read_next(turn, context),
            Reading::Body(message) => self.read_body(message, turn, context),
        }
    }

    /// Looks for the message behind another.
    fn read_next(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        let Turn { from, input, .. } = turn;
        let amid_line = self.direction(from).amid_line;
        if self.may_speak_ssh(from) && !amid_line && identification_line(input, false) == Some(0) {
            if input.starts_with(identification::PREFIX) {
                return Step::Used(0, state::Reading::Lines(0));
            }
            return wait(Need::another(input), Reading::Next);
        }
        self.find_message(turn, state::Reading::Http(Reading::Next), context)
    }

    fn read_head(&mut self, mut head: Head, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        let Turn { from, input, .. } = turn;
        let may_speak_ssh = self.may_speak_ssh(from);
        let reached = match from {
            Side::Client => self.http.request(&mut head, input, context),
            Side::Server => self.http.response(&mut head, input, may_speak_ssh, context),
        };
        match reached {
            Reached::More => wait(Need::line(head.limit()), Reading::Head(head)),
            Reached::Interim(count) => used(count, Reading::default()),
            Reached::Never(reason) => self.behind_foreign(reason, turn, context),
            Reached::Stopped => Step::Used(input.len(), state::Reading::Done),
            Reached::Ssh(count) => Step::Used(count, state::Reading::Lines(0)),
            Reached::Part(count, late) => used(count, Reading::Late(late)),
            Reached::Head(count, message) => self.behind_part(turn, Box::new(message), context).after(count),
        }
    }

    /// What looked like the head of a message and is none: its line is left out where more is to be read.
    fn behind_foreign(&mut self, reason: Reason, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        if reason == Reason::NotAResponse {
            context.note(Anomaly::StatusInvalid);
        }
        let other = reason == Reason::Http2Preface && !self.has_left();
        if !context.settings.reads_on() || other {
            return Step::Used(0, self.foreign(turn.from, UnreadReason::NotHttp(reason)));
        }
        self.note_unexpected(turn.from, context);
        let line = memchr::memchr(b'\n', turn.input).map_or(turn.input.len(), |end| end + 1);
        used(line, Reading::Next)
    }

    /// Reads lines behind a head that is kept no further.
    fn read_late(&mut self, mut late: Box<LateHead>, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        let Turn { from, input, .. } = turn;
        count_steps(input.len().min(HEAD_LIMIT));
        let line = match memchr::memchr(b'\n', input.get(..HEAD_LIMIT).unwrap_or(input)) {
            Some(end) => input.get(..=end).unwrap_or_default(),
            None if input.len() >= HEAD_LIMIT => input,
            None => return wait(Need::line(HEAD_LIMIT), Reading::Late(late)),
        };
        let all = context.settings.reads_on();
        match self.http.late_line(from, &mut late, line, context) {
            Late::Message if all => used(0, Reading::Next),
            Late::Field | Late::Message => used(line.len(), Reading::Late(late)),
            Late::End => {
                let message = self.http.late_end(from, *late, context);
                self.behind_part(turn, Box::new(message), context).after(line.len())
            }
        }
    }

    fn read_body(
        &mut self,
        mut message: Box<Message>,
        turn: Turn<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        let Turn { from, mut input, .. } = turn;
        if self.may_speak_ssh(from)
            && let Some(at) = identification_line(input, self.direction(from).amid_line)
        {
            let (body, line) = input.split_at(at);
            if body.is_empty() && !line.starts_with(identification::PREFIX) {
                return wait(Need::another(line), Reading::Body(message));
            }
            if body.is_empty() {
                self.http.finish(from, *message, context);
                return Step::Used(0, state::Reading::Lines(0));
            }
            input = body;
        }
        match message.read(input) {
            Ok(Advance { consumed, odd, .. }) => {
                note_hostile(odd, from, context);
                self.behind_part(turn, message, context).after(consumed)
            }
            Err(hostile) => {
                self.http.finish(from, *message, context);
                note_hostile(Some(hostile), from, context);
                self.behind_message(from, turn.peer, context).after(0)
            }
        }
    }

    /// Where a direction stands once so much of a message was read.
    fn behind_part(
        &mut self,
        turn: Turn<'_>,
        mut message: Box<Message>,
        context: &mut ReadContext<'_>,
    ) -> Behind {
        let from = turn.from;
        if from == Side::Client {
            self.http.note_body(!message.is_done());
        }
        let framing = message.framing();
        if framing.is_foreign() {
            self.http.finish(from, *message, context);
            if framing == Framing::Tunnel {
                return Behind::HandsOver(Handover::Granted);
            }
            self.change(from.other(), state::Reading::Done);
            return Behind::DONE;
        }
        if message.is_done() {
            self.http.finish(from, *message, context);
            return self.behind_message(from, turn.peer, context);
        }
        if message.is_satisfied() {
            self.http.judge_body(from, &mut message, context);
            if !context.settings.reads_on() || (from == Side::Server && self.may_leave(context)) {
                self.http.finish(from, *message, context);
                return self.behind_message(from, turn.peer, context);
            }
        }
        Behind::http(Reading::Body(message))
    }

    /// Where a direction stands behind a message; `peer` is what the other one has said that is unread.
    fn behind_message(&mut self, from: Side, peer: &[u8], context: &ReadContext<'_>) -> Behind {
        let all = context.settings.reads_on();
        if from == Side::Client {
            if self.http.asks_tunnel() && !self.has_left() {
                return Behind::HandsOver(Handover::Asked(Asked::Tunnel));
            }
            return if all { Behind::http(Reading::Next) } else { Behind::DONE };
        }
        self.refuse(Asked::Tunnel, Spoken::Http, state::Reading::Http(Reading::Next));
        if self.may_leave(context) {
            self.http.leave();
            return Behind::DONE;
        }
        if all {
            return Behind::http(Reading::Next);
        }
        self.end_request(peer);
        if self.may_speak_ssh(from) {
            // Nobody has asked yet: to a client of SSH these were lines before an identification.
            return Behind::Reads(state::Reading::Lines(usize::from(self.direction(from).amid_line)));
        }
        Behind::DONE
    }

    /// True if the response that is read is the last one that has to be: it answers all that was asked, and
    /// the client goes on in requests.
    fn may_leave(&self, context: &ReadContext<'_>) -> bool {
        let asks = matches!(
            self.direction(Side::Client).reading,
            state::Reading::Http(Reading::Next | Reading::Head(_) | Reading::Body(_))
        );
        context.settings.http_inspect == HttpInspect::Requests
            && asks
            && self.asked == Asked::Nothing
            && self.http.has_answered()
            && !self.may_speak_ssh(Side::Server)
    }

    /// The response is whole: so is the request, unless a part of it is still to come. Whoever answers
    /// before that may not be the server.
    fn end_request(&mut self, unread: &[u8]) {
        let whole = match &self.direction(Side::Client).reading {
            state::Reading::Http(Reading::Next | Reading::Late(_)) => unread.is_empty(),
            state::Reading::Http(Reading::Body(_)) | state::Reading::Resync => true,
            _ => false,
        };
        if whole {
            self.change(Side::Client, state::Reading::Done);
        }
    }

    /// Ends a request without an end once the server has said all that is wanted; `unread` is what the client
    /// has said of it.
    pub fn settle_http(&mut self, unread: &[u8], context: &ReadContext<'_>) {
        if self.is_done(Side::Server)
            && !context.settings.reads_on()
            && matches!(self.direction(Side::Client).reading, state::Reading::Http(Reading::Late(_)))
            && unread.is_empty()
        {
            self.change(Side::Client, state::Reading::Done);
        }
    }

    /// Where a direction stands behind `count` bytes that are missing.
    pub fn pass_over_http(
        &mut self,
        reading: Reading,
        count: u64,
        turn: Turn<'_>,
        context: &mut ReadContext<'_>,
    ) -> state::Reading {
        let from = turn.from;
        let Reading::Body(mut message) = reading else { return state::Reading::Resync };
        if message.skippable() < count {
            self.http.finish(from, *message, context);
            return state::Reading::Resync;
        }
        message.skip(count);
        match self.behind_part(turn, message, context) {
            Behind::Reads(reading) => reading,
            Behind::HandsOver(handover) => {
                self.hand_over(from, handover);
                state::Reading::New
            }
        }
    }

    /// Looks for the next message; `reading` says whether bytes are missing before.
    pub fn find_message(
        &self,
        turn: Turn<'_>,
        reading: state::Reading,
        context: &mut ReadContext<'_>,
    ) -> Step {
        let Turn { from, input, .. } = turn;
        let contiguous = matches!(reading, state::Reading::Http(_));
        match beginning(from, input, contiguous) {
            Beginning::Message => used(0, Reading::default()),
            Beginning::More => {
                let few = input.len() < FEW;
                let need = if few { Need::another(input) } else { Need::line(FIRST_LINE_LIMIT) };
                Step::Wait(need, reading)
            }
            Beginning::Other(count) => {
                let left_out = input.get(..count).unwrap_or(input);
                if contiguous && !left_out.trim_ascii().is_empty() {
                    self.note_unexpected(from, context);
                }
                Step::Used(count, reading)
            }
        }
    }

    /// Notes bytes between messages. Where a tunnel or a film may be they are nothing odd, unless it is to
    /// be stopped for them.
    fn note_unexpected(&self, from: Side, context: &mut ReadContext<'_>) {
        let odd = Anomaly::UnexpectedData;
        if !self.is_perhaps_of_tunnel(from) || context.settings.stops_unexpected {
            context.note(odd);
        }
    }

    /// Where a direction stands whose sender has said all: a body that ends with the connection is whole.
    pub fn end_http(&mut self, from: Side, reading: Reading, context: &mut ReadContext<'_>) -> Reading {
        match reading {
            Reading::Body(message) => {
                self.http.finish(from, *message, context);
                Reading::Next
            }
            Reading::Late(late) => {
                self.http.finish(from, late.into_message(), context);
                Reading::Next
            }
            reading => reading,
        }
    }
}
