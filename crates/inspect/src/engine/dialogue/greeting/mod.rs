//! Dialogues in lines that a server opens with a greeting: the greeting, and what both say behind it up
//! to where they hand over to another protocol.
//!
//! A greeting is listened to beside whatever else a server's first bytes may be: lines before an SSH
//! identification look the same. What follows is read only once both ends have shown that they speak
//! nothing else, and only as long as a client says what may come before it asks for an upgrade
//! (`STARTTLS`, `STLS`, `AUTH TLS`): mail is nobody's banner.

mod hearing;
mod upgrade;

use self::hearing::{Heard, Hearing};
use self::upgrade::{Commands, Reply};
use super::finding::ReadContext;
use super::foreign::Foreign;
use super::hand_over::{Asked, Handover};
use super::need::{FEW, Need};
use super::opening::Spoken;
use super::{Dialogue, Step, Turn};
use crate::banner::greeting::LINE_LIMIT;
use crate::banner::http::count_steps;
use crate::terms::{self, Side};

/// What both directions know of it.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    hearing: Hearing,
    /// Which protocol greeted, once that is told.
    protocol: Option<terms::Greeting>,
    commands: Commands,
    /// The client had said something before the server did: what looks like a greeting answers that.
    answers: bool,
}

/// How far one direction was read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reading {
    /// Within the server's greeting.
    First,
    /// Commands of the client.
    Commands,
    /// What the server answers.
    Replies,
}

impl Greeting {
    /// Listens to the next bytes of the server; gives how many belong to its greeting, all as long as that
    /// goes on.
    pub(super) fn hear(&mut self, octets: &[u8], context: &mut ReadContext<'_>) -> usize {
        match self.hearing.hear(octets, self.answers, context) {
            Heard::More => octets.len(),
            Heard::Whole(protocol, used) => {
                self.protocol = Some(protocol);
                used
            }
            Heard::Nothing => 0,
        }
    }

    /// The server says no more: what there is of a greeting is all of it.
    pub(super) fn end(&mut self, context: &mut ReadContext<'_>) {
        self.hearing.end(self.answers, context);
    }

    /// The server says its first bytes, after the client or not.
    pub(super) const fn begin(&mut self, answers: bool) {
        self.answers = answers;
    }

    /// True if a greeting has begun and is not whole.
    pub(super) const fn is_amid(&self) -> bool {
        self.hearing.is_amid()
    }

    /// True if nothing more of a greeting is to be heard.
    pub(super) const fn is_over(&self) -> bool {
        self.hearing.is_over()
    }

    /// Nothing more of it is read.
    fn leave(&mut self) {
        self.protocol = None;
        self.commands = Commands::default();
    }

    /// What one side is read as once both have shown that they speak nothing else.
    pub(super) const fn reading(&self, from: Side) -> Option<Reading> {
        match (from, self.protocol, self.is_over()) {
            (_, None, true) => None,
            (Side::Client, ..) => Some(Reading::Commands),
            (Side::Server, Some(_), _) => Some(Reading::Replies),
            (Side::Server, None, false) => Some(Reading::First),
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.hearing.memory() + self.commands.memory()
    }
}

fn used(count: usize, reading: Reading) -> Step {
    Step::Used(count, super::Reading::Greeting(reading))
}

impl Dialogue {
    /// Reads on in lines.
    pub(super) fn read_greeting(
        &mut self,
        reading: Reading,
        turn: Turn<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        match reading {
            Reading::First => {
                let count = self.greeting.hear(turn.input, context);
                let goes_on = self.follows(Side::Client) || self.asked == Asked::Upgrade;
                match self.greeting.reading(Side::Server) {
                    Some(Reading::Replies) if !goes_on => {
                        Step::Used(count, self.leave_greeting(Side::Server))
                    }
                    Some(reading) => used(count, reading),
                    None => Step::Used(0, self.leave_greeting(Side::Server)),
                }
            }
            Reading::Commands => self.read_command(turn),
            Reading::Replies => self.read_reply(turn),
        }
    }

    fn read_command(&mut self, turn: Turn<'_>) -> Step {
        let Some(line) = first_line(turn.input) else { return self.wait_for_line(turn, Reading::Commands) };
        match self.greeting.commands.take(line, self.greeting.protocol) {
            Some(upgrades) if upgrades => Step::HandsOver(line.len(), Handover::Asked(Asked::Upgrade)),
            Some(_) => used(line.len(), Reading::Commands),
            None => Step::Used(0, self.leave_greeting(Side::Client)),
        }
    }

    fn read_reply(&mut self, turn: Turn<'_>) -> Step {
        let (Some(line), Some(protocol)) = (first_line(turn.input), self.greeting.protocol) else {
            return self.wait_for_line(turn, Reading::Replies);
        };
        match self.greeting.commands.answer(line, protocol) {
            Reply::More => used(line.len(), Reading::Replies),
            Reply::Granted => Step::HandsOver(line.len(), Handover::Granted),
            Reply::Refused => {
                let commands = super::Reading::Greeting(Reading::Commands);
                self.refuse(Asked::Upgrade, Spoken::Other, commands);
                match self.follows(Side::Client) {
                    true => used(line.len(), Reading::Replies),
                    false => Step::Used(line.len(), self.leave_greeting(Side::Server)),
                }
            }
            Reply::Unasked => Step::Used(0, self.leave_greeting(Side::Server)),
        }
    }

    /// Waits for the end of a line, unless it is none or too long.
    fn wait_for_line(&mut self, turn: Turn<'_>, reading: Reading) -> Step {
        if !begins_as_text(turn.input) || turn.input.len() >= LINE_LIMIT {
            return Step::Used(0, self.leave_greeting(turn.from));
        }
        let need = if turn.input.len() < FEW { Need::another(turn.input) } else { Need::line(LINE_LIMIT) };
        Step::Wait(need, super::Reading::Greeting(reading))
    }

    /// True if a side is in the dialogue.
    const fn follows(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, super::Reading::Greeting(_))
    }

    /// Nothing more is read of a dialogue, of either side that is in it or waits for what it was to become;
    /// gives what is left of `from`. A greeting that is not whole is heard to its end all the same.
    pub(super) fn leave_greeting(&mut self, from: Side) -> super::Reading {
        let peer = from.other();
        if self.greeting.is_over() {
            self.greeting.leave();
            self.asked = Asked::Nothing;
            let direction = self.direction(peer);
            let waits = matches!(direction.reading, super::Reading::Lines(_))
                && direction.first.spoken == Spoken::Other;
            if self.follows(peer) || waits {
                let reading = self.foreign(peer, Foreign::BehindGreeting);
                self.change(peer, reading);
            }
        }
        self.direction_mut(from).first.spoken = Spoken::Other;
        self.foreign(from, Foreign::BehindGreeting)
    }
}

/// The first line with its end, if it is one of text.
fn first_line(input: &[u8]) -> Option<&[u8]> {
    count_steps(input.len().min(LINE_LIMIT));
    let end = memchr::memchr(b'\n', input.get(..LINE_LIMIT).unwrap_or(input))?;
    input.get(..=end).filter(|line| begins_as_text(line))
}

/// True if the first few bytes may be a line's.
fn begins_as_text(input: &[u8]) -> bool {
    let start = input.get(..FEW).unwrap_or(input);
    start.iter().all(|octet| !octet.is_ascii_control() || octet.is_ascii_whitespace())
}

#[cfg(test)]
mod tests;
