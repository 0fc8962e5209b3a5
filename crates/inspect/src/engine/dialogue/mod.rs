//! The dialogue of two ends: the protocol of each direction, and the conclusions from one direction for the
//! other.
//!
//! Each direction has a [`DirectionReading`] of its own, since they may differ for as long as hypotheses
//! stand: a client asks by HTTP where a server identifies itself by SSH, and what is a response to one client
//! are lines before an identification to another. What both directions of a protocol know together (whose
//! identification was read, which request waits for its response) lies beside the readings, a field a
//! protocol. Nothing here knows of segments, collectors or budgets: a [`DialogueInput`] is what one side has
//! said that is unread, and a [`ReadStep`] what became of it.
//!
//! Two places decide for all protocols: [`Dialogue::foreign`] that what a side says is none of them, and
//! [`Dialogue::hand_over`] that one protocol leaves the connection to whatever follows.

mod awaited_input;
mod detect_protocol;
mod finding;
mod greeting;
mod http;
mod lines_before_ssh;
mod read_step;
mod search_banners;
mod search_state;
mod ssh;
mod state;
mod switch_protocol;
mod tls;

pub use self::finding::{
    DialogueFinding, DialogueSettings, FindingSink, FoundBanner, KnownIdentification, MatchedRules,
    ReadContext,
};
pub use self::http::{ResponseRemainder, UnfinishedReason};
pub use self::state::Dialogue;

use self::awaited_input::AwaitedInput;
use self::greeting::GreetingState;
use self::read_step::{DialogueInput, ReadStep, UnreadReason};
use self::state::{DialogueDirection, DirectionReading};
use self::tls::TlsState;
use crate::banner::recognise::FirstWord;
use crate::event::Side;
use crate::flow::TrackingMode;

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
            let Some(count) = self.step(DialogueInput { from, input: rest, peer }, context) else { break };
            // A step that took nothing only changed the reading.
            if count == 0 {
                continue;
            }
            at += count;
            // Here, since the rest may be something else: a body behind a head.
            self.search(from, input.get(..at).unwrap_or_default(), within_body, context);
            // Not what packets held: what is told must not depend on how bytes were split.
            context.find(DialogueFinding::Bytes(count));
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
    fn step(&mut self, turn: DialogueInput<'_>, context: &mut ReadContext<'_>) -> Option<usize> {
        let from = turn.from;
        let reading = std::mem::take(&mut self.direction_mut(from).reading);
        let step = match reading {
            DirectionReading::New => self.recognise(turn, context),
            DirectionReading::Resync => self.resume(turn, context),
            DirectionReading::Lines(place) => self.read_lines(place, turn, context),
            DirectionReading::Ssh(reading) => self.read_ssh(reading, turn, context),
            DirectionReading::Http(reading) => self.read_http(reading, turn, context),
            DirectionReading::Tls => self.read_tls(turn, context),
            DirectionReading::Greeting(reading) => self.read_greeting(reading, turn, context),
            reading @ (DirectionReading::Done | DirectionReading::Foreign(_)) => {
                ReadStep::Used(turn.input.len(), reading)
            }
        };
        let count = match step {
            ReadStep::Wait(need, reading) => {
                let direction = self.direction_mut(from);
                direction.reading = reading;
                direction.awaited = Some(AwaitedInput::new(turn.input.len(), need));
                return None;
            }
            ReadStep::Used(count, reading) => {
                self.direction_mut(from).reading = reading;
                count
            }
            ReadStep::HandsOver(count, handover) => {
                self.hand_over(from, handover);
                count
            }
        };
        self.settle(turn, context);
        Some(count)
    }

    fn read_ssh(
        &mut self,
        reading: ssh::SshReading,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        self.ssh.read(reading, turn, context).map(|next| match next {
            ssh::SshNext::Reading(reading) => DirectionReading::Ssh(reading),
            ssh::SshNext::Done => DirectionReading::Done,
            ssh::SshNext::NotSsh => self.foreign(turn.from, UnreadReason::NotSsh),
        })
    }

    /// Draws conclusions of one direction for the other, and tells what is complete.
    fn settle(&mut self, turn: DialogueInput<'_>, context: &mut ReadContext<'_>) {
        if self.ssh.is_identified(Side::Client) && self.ssh.is_identified(Side::Server) && self.is_decided() {
            self.ssh.emit(context);
        }
        if self.is_decided() {
            self.tls.emit(context);
        }
        let requested = if turn.from == Side::Client { &[] } else { turn.peer };
        self.settle_http(requested, context);
    }

    /// A capture begins with one side in the middle: of a body, or of the silence that keep-alive probes
    /// break.
    pub(super) fn begin_amid(&mut self, from: Side) {
        let reading = &mut self.direction_mut(from).reading;
        if matches!(reading, DirectionReading::New) {
            *reading = DirectionReading::Resync;
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
            DirectionReading::Http(reading) => {
                self.pass_over_http(reading, count, DialogueInput { from, input: &[], peer }, context)
            }
            DirectionReading::Ssh(reading) if self.ssh.end(from, &reading, context) => DirectionReading::Done,
            DirectionReading::Ssh(_) => DirectionReading::Resync,
            DirectionReading::Tls => self.leave_tls(from),
            DirectionReading::Greeting(_) => self.leave_greeting(from),
            reading @ (DirectionReading::Done | DirectionReading::Foreign(_)) => reading,
            // The receiver has them, so that what began as no message goes on as none.
            DirectionReading::Lines(_) if context.settings.tracking == TrackingMode::Inline => {
                DirectionReading::Lines(0)
            }
            DirectionReading::New | DirectionReading::Resync | DirectionReading::Lines(_) => {
                DirectionReading::Resync
            }
        };
        self.direction_mut(from).reading = reading;
    }

    /// Reads what there is of a message whose end will not come.
    pub(super) fn read_unfinished(
        &mut self,
        from: Side,
        unread: &[u8],
        why: UnfinishedReason,
        context: &mut ReadContext<'_>,
    ) {
        let begins = match &self.direction(from).reading {
            DirectionReading::New | DirectionReading::Resync => true,
            DirectionReading::Http(reading) => reading.is_before_end_of_head(),
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
            DirectionReading::Http(reading) => DirectionReading::Http(self.end_http(from, reading, context)),
            DirectionReading::Ssh(reading) if self.ssh.end(from, &reading, context) => DirectionReading::Done,
            DirectionReading::Tls => self.leave_tls(from),
            reading => reading,
        };
        self.direction_mut(from).reading = reading;
    }

    /// Tells everything that was seen and not told yet.
    pub(super) fn emit_rest(&mut self, context: &mut ReadContext<'_>) {
        self.ssh.emit(context);
        self.tls.emit(context);
        self.http.emit_rest(context);
    }

    /// Starts a side again whose bytes its receiver did not accept.
    pub(super) fn rewind(&mut self, from: Side) {
        *self.direction_mut(from) = DialogueDirection::default();
        self.http.forget();
        match from {
            Side::Client => self.tls = TlsState::default(),
            Side::Server => self.greeting = GreetingState::default(),
        }
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod tests;
