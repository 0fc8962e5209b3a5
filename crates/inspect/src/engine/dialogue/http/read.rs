//! HTTP as one of the things that both sides may speak: where one message ends and what follows it.

use super::HttpReading;
use super::late_fields::LateLine;
use super::late_head::LateHead;
use super::message_end::note_hostile;
use super::partial_head::PartialHead;
use super::transactions::HttpProgress;
use crate::banner::framing::{BodyAdvance, BodyFraming, FramedMessage};
use crate::banner::http::{HEAD_LIMIT, count_steps};
use crate::banner::recognise::FIRST_LINE_LIMIT;
use crate::banner::{MessageStart, ParseRejection, beginning, ssh as identification};
use crate::engine::config::HttpInspect;
use crate::engine::dialogue::awaited_input::{FEW, InputNeed};
use crate::engine::dialogue::finding::ReadContext;
use crate::engine::dialogue::read_step::{DialogueInput, ProtocolSwitch, RequestedUpgrade, UnreadReason};
use crate::engine::dialogue::ssh::identification_line;
use crate::engine::dialogue::state::{self, Dialogue, FirstProtocol};
use crate::event::Side;
use crate::terms::Anomaly;

type Step = crate::engine::dialogue::read_step::ReadStep<state::DirectionReading>;

/// The data after a message.
enum AfterMessage {
    /// The direction is read on as this.
    Reads(state::DirectionReading),
    /// Another dialogue.
    HandsOver(ProtocolSwitch),
}

impl AfterMessage {
    const DONE: Self = Self::Reads(state::DirectionReading::Done);

    const fn http(reading: HttpReading) -> Self {
        Self::Reads(state::DirectionReading::Http(reading))
    }

    fn after(self, count: usize) -> Step {
        match self {
            Self::Reads(reading) => Step::Used(count, reading),
            Self::HandsOver(handover) => Step::HandsOver(count, handover),
        }
    }
}

fn used(count: usize, reading: HttpReading) -> Step {
    Step::Used(count, state::DirectionReading::Http(reading))
}

fn wait(need: InputNeed, reading: HttpReading) -> Step {
    Step::Wait(need, state::DirectionReading::Http(reading))
}

impl Dialogue {
    /// Reads on in messages.
    pub fn read_http(
        &mut self,
        reading: HttpReading,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        match reading {
            HttpReading::Head(head) => self.read_head(head, turn, context),
            HttpReading::Late(late) => self.read_late(late, turn, context),
            HttpReading::Next => self.read_next(turn, context),
            HttpReading::Body(message) => self.read_body(message, turn, context),
        }
    }

    /// Looks for the message behind another.
    fn read_next(&mut self, turn: DialogueInput<'_>, context: &mut ReadContext<'_>) -> Step {
        let DialogueInput { from, input, .. } = turn;
        let amid_line = self.direction(from).amid_line;
        if self.may_speak_ssh(from) && !amid_line && identification_line(input, false) == Some(0) {
            if input.starts_with(identification::PREFIX) {
                return Step::Used(0, state::DirectionReading::Lines(0));
            }
            return wait(InputNeed::another(input), HttpReading::Next);
        }
        self.find_message(turn, state::DirectionReading::Http(HttpReading::Next), context)
    }

    fn read_head(
        &mut self,
        mut head: PartialHead,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        let DialogueInput { from, input, .. } = turn;
        let may_speak_ssh = self.may_speak_ssh(from);
        let reached = match from {
            Side::Client => self.http.request(&mut head, input, context),
            Side::Server => self.http.response(&mut head, input, may_speak_ssh, context),
        };
        match reached {
            HttpProgress::More => wait(InputNeed::line(head.limit()), HttpReading::Head(head)),
            HttpProgress::Interim(count) => used(count, HttpReading::default()),
            HttpProgress::Never(reason) => self.behind_foreign(reason, turn, context),
            HttpProgress::Stopped => Step::Used(input.len(), state::DirectionReading::Done),
            HttpProgress::Ssh(count) => Step::Used(count, state::DirectionReading::Lines(0)),
            HttpProgress::Part(count, late) => used(count, HttpReading::Late(late)),
            HttpProgress::Head(count, message) => {
                self.behind_part(turn, Box::new(message), context).after(count)
            }
        }
    }

    /// Continues after bytes that looked like a message's head and are none. It skips their line if more is
    /// to be read.
    fn behind_foreign(
        &mut self,
        reason: ParseRejection,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        if reason == ParseRejection::NotAResponse {
            context.note(Anomaly::StatusInvalid);
        }
        let other = reason == ParseRejection::Http2Preface && !self.only_reads_requests();
        if !context.settings.reads_on() || other {
            return Step::Used(0, self.foreign(turn.from, UnreadReason::NotHttp(reason)));
        }
        self.note_unexpected(turn.from, context);
        let line = memchr::memchr(b'\n', turn.input).map_or(turn.input.len(), |end| end + 1);
        used(line, HttpReading::Next)
    }

    /// Reads lines behind a head that is kept no further.
    fn read_late(
        &mut self,
        mut late: Box<LateHead>,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        let DialogueInput { from, input, .. } = turn;
        count_steps(input.len().min(HEAD_LIMIT));
        let line = match memchr::memchr(b'\n', input.get(..HEAD_LIMIT).unwrap_or(input)) {
            Some(end) => input.get(..=end).unwrap_or_default(),
            None if input.len() >= HEAD_LIMIT => input,
            None => return wait(InputNeed::line(HEAD_LIMIT), HttpReading::Late(late)),
        };
        let all = context.settings.reads_on();
        match self.http.late_line(from, &mut late, line, context) {
            LateLine::Message if all => used(0, HttpReading::Next),
            LateLine::Field | LateLine::Message => used(line.len(), HttpReading::Late(late)),
            LateLine::End => {
                let message = self.http.late_end(from, *late, context);
                self.behind_part(turn, Box::new(message), context).after(line.len())
            }
        }
    }

    fn read_body(
        &mut self,
        mut message: Box<FramedMessage>,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        let DialogueInput { from, mut input, .. } = turn;
        if self.may_speak_ssh(from)
            && let Some(at) = identification_line(input, self.direction(from).amid_line)
        {
            let (body, line) = input.split_at(at);
            if body.is_empty() && !line.starts_with(identification::PREFIX) {
                return wait(InputNeed::another(line), HttpReading::Body(message));
            }
            if body.is_empty() {
                self.http.finish(from, *message, context);
                return Step::Used(0, state::DirectionReading::Lines(0));
            }
            input = body;
        }
        match message.read(input) {
            Ok(BodyAdvance { consumed, odd, .. }) => {
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

    /// Returns the reading after this part of a message.
    fn behind_part(
        &mut self,
        turn: DialogueInput<'_>,
        mut message: Box<FramedMessage>,
        context: &mut ReadContext<'_>,
    ) -> AfterMessage {
        let from = turn.from;
        match from {
            Side::Client => self.http.note_body(!message.is_done()),
            Side::Server if message.framing().is_foreign() => {}
            Side::Server if self.http.has_answered_all() => {
                self.refuse(
                    RequestedUpgrade::Tunnel,
                    FirstProtocol::Http,
                    state::DirectionReading::Http(HttpReading::Next),
                );
            }
            Side::Server => {}
        }
        let framing = message.framing();
        if framing.is_foreign() {
            self.http.finish(from, *message, context);
            if framing == BodyFraming::Tunnel || !self.http.speaks_websocket() {
                return AfterMessage::HandsOver(ProtocolSwitch::Granted);
            }
            self.change(from.other(), state::DirectionReading::Done);
            return AfterMessage::DONE;
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
        AfterMessage::http(HttpReading::Body(message))
    }

    /// Returns the reading after a message; `peer` holds the unread bytes of the other direction.
    fn behind_message(&mut self, from: Side, peer: &[u8], context: &ReadContext<'_>) -> AfterMessage {
        let all = context.settings.reads_on();
        if from == Side::Client {
            if self.http.asks_tunnel() && !self.only_reads_requests() {
                return AfterMessage::HandsOver(ProtocolSwitch::Asked(RequestedUpgrade::Tunnel));
            }
            return if all { AfterMessage::http(HttpReading::Next) } else { AfterMessage::DONE };
        }
        if self.may_leave(context) {
            self.http.leave();
            return AfterMessage::DONE;
        }
        if all {
            return AfterMessage::http(HttpReading::Next);
        }
        self.end_request(peer);
        if self.may_speak_ssh(from) {
            // Nobody has asked yet: to a client of SSH these were lines before an identification.
            return AfterMessage::Reads(state::DirectionReading::Lines(usize::from(
                self.direction(from).amid_line,
            )));
        }
        AfterMessage::DONE
    }

    /// True if the response that is read is the last one that has to be: it answers all that was asked, and
    /// the client goes on in requests.
    fn may_leave(&self, context: &ReadContext<'_>) -> bool {
        let asks = matches!(
            self.direction(Side::Client).reading,
            state::DirectionReading::Http(HttpReading::Next | HttpReading::Head(_) | HttpReading::Body(_))
        );
        context.settings.http_inspect == HttpInspect::Requests
            && asks
            && self.asked == RequestedUpgrade::Nothing
            && self.http.has_answered()
            && !self.may_speak_ssh(Side::Server)
    }

    /// The response is whole: so is the request, unless a part of it is still to come. Whoever answers
    /// before that may not be the server.
    fn end_request(&mut self, unread: &[u8]) {
        let whole = match &self.direction(Side::Client).reading {
            state::DirectionReading::Http(HttpReading::Next | HttpReading::Late(_)) => unread.is_empty(),
            state::DirectionReading::Http(HttpReading::Body(_)) | state::DirectionReading::Resync => true,
            _ => false,
        };
        if whole {
            self.change(Side::Client, state::DirectionReading::Done);
        }
    }

    /// Ends a request without an end once the server has said all that is wanted; `unread` is what the client
    /// has said of it.
    pub fn settle_http(&mut self, unread: &[u8], context: &ReadContext<'_>) {
        if self.is_done(Side::Server)
            && !context.settings.reads_on()
            && matches!(
                self.direction(Side::Client).reading,
                state::DirectionReading::Http(HttpReading::Late(_))
            )
            && unread.is_empty()
        {
            self.change(Side::Client, state::DirectionReading::Done);
        }
    }

    /// Returns the reading after `count` missing bytes.
    pub fn pass_over_http(
        &mut self,
        reading: HttpReading,
        count: u64,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> state::DirectionReading {
        let from = turn.from;
        let HttpReading::Body(mut message) = reading else { return state::DirectionReading::Resync };
        if message.skippable() < count {
            self.http.finish(from, *message, context);
            return state::DirectionReading::Resync;
        }
        message.skip(count);
        match self.behind_part(turn, message, context) {
            AfterMessage::Reads(reading) => reading,
            AfterMessage::HandsOver(handover) => {
                self.hand_over(from, handover);
                state::DirectionReading::New
            }
        }
    }

    /// Looks for the next message; `reading` says whether bytes are missing before.
    pub fn find_message(
        &self,
        turn: DialogueInput<'_>,
        reading: state::DirectionReading,
        context: &mut ReadContext<'_>,
    ) -> Step {
        let DialogueInput { from, input, .. } = turn;
        let contiguous = matches!(reading, state::DirectionReading::Http(_));
        match beginning(from, input, contiguous) {
            MessageStart::Message => used(0, HttpReading::default()),
            MessageStart::More => {
                let few = input.len() < FEW;
                let need = if few { InputNeed::another(input) } else { InputNeed::line(FIRST_LINE_LIMIT) };
                Step::Wait(need, reading)
            }
            MessageStart::Other(count) => {
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

    /// Returns the reading of a direction after its end: a body that ends with the connection is complete.
    pub fn end_http(
        &mut self,
        from: Side,
        reading: HttpReading,
        context: &mut ReadContext<'_>,
    ) -> HttpReading {
        match reading {
            HttpReading::Body(message) => {
                self.http.finish(from, *message, context);
                HttpReading::Next
            }
            HttpReading::Late(late) => {
                self.http.finish(from, late.into_message(), context);
                HttpReading::Next
            }
            reading => reading,
        }
    }
}
