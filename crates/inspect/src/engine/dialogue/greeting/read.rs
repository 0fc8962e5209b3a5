//! The lines of both sides behind a greeting, up to where they hand over to another protocol.

use super::Reading;
use super::upgrade::Reply;
use crate::banner::greeting::LINE_LIMIT;
use crate::banner::http::count_steps;
use crate::engine::dialogue::finding::ReadContext;
use crate::engine::dialogue::need::{FEW, Need};
use crate::engine::dialogue::state::{self, Dialogue, Spoken};
use crate::engine::dialogue::step::{Asked, Handover, Turn, UnreadReason};
use crate::terms::Side;

type Step = crate::engine::dialogue::step::Step<state::Reading>;

fn used(count: usize, reading: Reading) -> Step {
    Step::Used(count, state::Reading::Greeting(reading))
}

impl Dialogue {
    /// Reads on in lines.
    pub fn read_greeting(&mut self, reading: Reading, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        match reading {
            Reading::First => {
                let count = self.greeting.read_first(turn.input, context);
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
                let commands = state::Reading::Greeting(Reading::Commands);
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
        Step::Wait(need, state::Reading::Greeting(reading))
    }

    /// True if a side is in the dialogue.
    const fn follows(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, state::Reading::Greeting(_))
    }

    /// Nothing more is read of a dialogue, of either side that is in it or waits for what it was to become;
    /// gives what is left of `from`. A greeting that is not whole is heard to its end all the same.
    pub fn leave_greeting(&mut self, from: Side) -> state::Reading {
        let peer = from.other();
        if self.greeting.is_over() {
            self.greeting.leave();
            self.asked = Asked::Nothing;
            let direction = self.direction(peer);
            let waits = matches!(direction.reading, state::Reading::Lines(_))
                && direction.first.spoken == Spoken::Other;
            if self.follows(peer) || waits {
                let reading = self.foreign(peer, UnreadReason::BehindGreeting);
                self.change(peer, reading);
            }
        }
        self.direction_mut(from).first.spoken = Spoken::Other;
        self.foreign(from, UnreadReason::BehindGreeting)
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
