//! The lines of both sides behind a greeting, up to where they hand over to another protocol.

use super::GreetingReading;
use super::starttls::UpgradeReply;
use crate::banner::greeting::LINE_LIMIT;
use crate::banner::http::count_steps;
use crate::engine::dialogue::awaited_input::{FEW, InputNeed};
use crate::engine::dialogue::finding::ReadContext;
use crate::engine::dialogue::read_step::{DialogueInput, ProtocolSwitch, RequestedUpgrade, UnreadReason};
use crate::engine::dialogue::state::{self, Dialogue, FirstProtocol};
use crate::terms::Side;

type Step = crate::engine::dialogue::read_step::ReadStep<state::DirectionReading>;

fn used(count: usize, reading: GreetingReading) -> Step {
    Step::Used(count, state::DirectionReading::Greeting(reading))
}

impl Dialogue {
    /// Reads on in lines.
    pub fn read_greeting(
        &mut self,
        reading: GreetingReading,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step {
        match reading {
            GreetingReading::First => {
                let count = self.greeting.read_first(turn.input, context);
                let goes_on = self.follows(Side::Client) || self.asked == RequestedUpgrade::Upgrade;
                match self.greeting.reading(Side::Server) {
                    Some(GreetingReading::Replies) if !goes_on => {
                        Step::Used(count, self.leave_greeting(Side::Server))
                    }
                    Some(reading) => used(count, reading),
                    None => Step::Used(0, self.leave_greeting(Side::Server)),
                }
            }
            GreetingReading::Commands => self.read_command(turn),
            GreetingReading::Replies => self.read_reply(turn),
        }
    }

    fn read_command(&mut self, turn: DialogueInput<'_>) -> Step {
        let Some(line) = first_line(turn.input) else {
            return self.wait_for_line(turn, GreetingReading::Commands);
        };
        match self.greeting.commands.take(line, self.greeting.protocol) {
            Some(upgrades) if upgrades => {
                Step::HandsOver(line.len(), ProtocolSwitch::Asked(RequestedUpgrade::Upgrade))
            }
            Some(_) => used(line.len(), GreetingReading::Commands),
            None => Step::Used(0, self.leave_greeting(Side::Client)),
        }
    }

    fn read_reply(&mut self, turn: DialogueInput<'_>) -> Step {
        let (Some(line), Some(protocol)) = (first_line(turn.input), self.greeting.protocol) else {
            return self.wait_for_line(turn, GreetingReading::Replies);
        };
        match self.greeting.commands.answer(line, protocol) {
            UpgradeReply::More => used(line.len(), GreetingReading::Replies),
            UpgradeReply::Granted => Step::HandsOver(line.len(), ProtocolSwitch::Granted),
            UpgradeReply::Refused => {
                let commands = state::DirectionReading::Greeting(GreetingReading::Commands);
                self.refuse(RequestedUpgrade::Upgrade, FirstProtocol::Other, commands);
                match self.follows(Side::Client) {
                    true => used(line.len(), GreetingReading::Replies),
                    false => Step::Used(line.len(), self.leave_greeting(Side::Server)),
                }
            }
            UpgradeReply::Unasked => Step::Used(0, self.leave_greeting(Side::Server)),
        }
    }

    /// Waits for the end of a line, unless it is none or too long.
    fn wait_for_line(&mut self, turn: DialogueInput<'_>, reading: GreetingReading) -> Step {
        if !begins_as_text(turn.input) || turn.input.len() >= LINE_LIMIT {
            return Step::Used(0, self.leave_greeting(turn.from));
        }
        let need =
            if turn.input.len() < FEW { InputNeed::another(turn.input) } else { InputNeed::line(LINE_LIMIT) };
        Step::Wait(need, state::DirectionReading::Greeting(reading))
    }

    /// True if a side is in the dialogue.
    const fn follows(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, state::DirectionReading::Greeting(_))
    }

    /// Nothing more is read of a dialogue, of either side that is in it or waits for what it was to become;
    /// gives what is left of `from`. A greeting that is not whole is heard to its end all the same.
    pub fn leave_greeting(&mut self, from: Side) -> state::DirectionReading {
        let peer = from.other();
        if self.greeting.is_over() {
            self.greeting.leave();
            self.asked = RequestedUpgrade::Nothing;
            let direction = self.direction(peer);
            let waits = matches!(direction.reading, state::DirectionReading::Lines(_))
                && direction.first.spoken == FirstProtocol::Other;
            if self.follows(peer) || waits {
                let reading = self.foreign(peer, UnreadReason::BehindGreeting);
                self.change(peer, reading);
            }
        }
        self.direction_mut(from).first.spoken = FirstProtocol::Other;
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
