//! Dialogues in lines that a server opens with a greeting: the greeting, and what both say behind it up
//! to where they hand over to another protocol.
//!
//! A greeting is listened to beside whatever else a server's first bytes may be: lines before an SSH
//! identification look the same. What follows is read only once both ends have shown that they speak
//! nothing else, and only as long as a client says what may come before it asks for an upgrade
//! (`STARTTLS`, `STLS`, `AUTH TLS`): mail is nobody's banner.

mod read_commands;
mod server_greeting;
mod starttls;

use self::server_greeting::{GreetingPart, GreetingProgress};
use self::starttls::PendingCommands;
use super::finding::ReadContext;
use crate::terms::{self, Side};

/// The state that both directions share.
#[derive(Debug, Default)]
pub struct GreetingState {
    progress: GreetingProgress,
    /// The protocol of the greeting, once it is known.
    protocol: Option<terms::GreetingProtocol>,
    commands: PendingCommands,
    /// The client had said something before the server did: what looks like a greeting answers that.
    answers: bool,
}

/// The progress in one direction.
#[derive(Debug, Clone, Copy)]
pub enum GreetingReading {
    /// Within the server's greeting.
    First,
    /// Commands of the client.
    Commands,
    /// The server's replies.
    Replies,
}

impl GreetingState {
    /// Listens to the next bytes of the server; gives how many belong to its greeting, all as long as that
    /// goes on.
    pub(super) fn read_first(&mut self, octets: &[u8], context: &mut ReadContext<'_>) -> usize {
        match self.progress.read_first(octets, self.answers, context) {
            GreetingPart::More => octets.len(),
            GreetingPart::Whole(protocol, used) => {
                self.protocol = Some(protocol);
                used
            }
            GreetingPart::Nothing => 0,
        }
    }

    /// The server says no more: what there is of a greeting is all of it.
    pub(super) fn end(&mut self, context: &mut ReadContext<'_>) {
        self.progress.end(self.answers, context);
    }

    /// The server says its first bytes, after the client or not.
    pub(super) const fn begin(&mut self, answers: bool) {
        self.answers = answers;
    }

    /// True if a greeting has begun and is not whole.
    pub(super) const fn is_amid(&self) -> bool {
        self.progress.is_amid()
    }

    /// True if nothing more of a greeting is to be heard.
    pub(super) const fn is_over(&self) -> bool {
        self.progress.is_over()
    }

    /// Nothing more of it is read.
    fn leave(&mut self) {
        self.protocol = None;
        self.commands = PendingCommands::default();
    }

    /// Returns the reading of one side once both have shown that they speak nothing else.
    pub(super) const fn reading(&self, from: Side) -> Option<GreetingReading> {
        match (from, self.protocol, self.is_over()) {
            (_, None, true) => None,
            (Side::Client, ..) => Some(GreetingReading::Commands),
            (Side::Server, Some(_), _) => Some(GreetingReading::Replies),
            (Side::Server, None, false) => Some(GreetingReading::First),
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.progress.memory() + self.commands.memory()
    }
}

#[cfg(test)]
mod tests;
