//! TLS as one of the things that both sides may speak: what listens for a hello, and reads on behind it.

use crate::banner::other::{Fit, Name};
use crate::banner::tls::{CLIENT_HELLO, Piece};
use crate::engine::dialogue::finding::ReadContext;
use crate::engine::dialogue::need::Need;
use crate::engine::dialogue::state::{Dialogue, Reading, Spoken};
use crate::engine::dialogue::step::{Step, Turn};
use crate::terms::{Anomaly, Side};

impl Dialogue {
    /// Listens for a hello in what the client says first; nothing where it is none.
    pub fn read_hello(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Option<Step<Reading>> {
        let hello = &mut self.direction_mut(Side::Client).hello;
        if hello.over {
            return None;
        }
        match Name::TLS.fit(Side::Client, turn.input) {
            Fit::More => return Some(Step::Wait(Need::another(turn.input), Reading::New)),
            Fit::Yes if !hello.finds_identification(turn.input) => {}
            fit => {
                hello.stop();
                if fit == Fit::Yes {
                    context.note(Anomaly::TlsDisputed);
                }
                return None;
            }
        }
        let mut records = std::mem::take(&mut hello.records);
        let goes_on = loop {
            match records.next(turn.input) {
                Piece::More(_) => break true,
                Piece::Message(CLIENT_HELLO, body) if !self.tls.take_hello(body, context) => break false,
                Piece::Never => break false,
                _ => {}
            }
        };
        let hello = &mut self.direction_mut(Side::Client).hello;
        if !goes_on {
            hello.stop();
            return None;
        }
        hello.records = records;
        // Not when the record is whole: whatever comes of it may hold an identification.
        Some(Step::Wait(Need::another(turn.input), Reading::New))
    }

    /// Looks whether the server answers by TLS what may be a hello; nothing where it does not.
    pub fn read_answer(&mut self, turn: Turn<'_>) -> Option<Step<Reading>> {
        if !self.client_is_strange(turn.peer) && self.spoken(Side::Client) != Spoken::Other {
            return None;
        }
        match Name::TLS.fit(Side::Server, turn.input) {
            Fit::More => Some(Step::Wait(Need::another(turn.input), Reading::New)),
            Fit::Yes => {
                for side in [Side::Client, Side::Server] {
                    self.direction_mut(side).first.spoken = Spoken::Other;
                }
                self.tls.both = true;
                self.change(Side::Client, Reading::Tls);
                Some(Step::Used(0, Reading::Tls))
            }
            Fit::No => {
                let client = self.direction_mut(Side::Client);
                client.hello.stop();
                client.awaited = None;
                None
            }
        }
    }

    /// Reads the records of one side.
    pub fn read_tls(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step<Reading> {
        let from = turn.from;
        let mut records = std::mem::take(&mut self.direction_mut(from).hello.records);
        let needed = loop {
            let goes_on = match records.next(turn.input) {
                Piece::More(needed) => break Some(needed),
                Piece::Message(kind, body) => self.tls.take_message(from, kind, body, context),
                Piece::Alert(level, code) => self.tls.take_alert(from, (level, code), context),
                // Either side may say that before its second hello, RFC 8446 appendix D.4.
                Piece::ChangeCipherSpec => from == Side::Client || !self.tls.is_answered(),
                Piece::Opaque => from == Side::Client,
                Piece::Never => false,
            };
            if !goes_on {
                break None;
            }
        };
        let Some(needed) = needed else { return Step::Used(turn.input.len(), self.leave_tls(from)) };
        let used = records.take();
        self.direction_mut(from).hello.records = records;
        match used {
            0 => Step::Wait(Need::octets(needed), Reading::Tls),
            used => Step::Used(used, Reading::Tls),
        }
    }

    /// Nothing more is read of a side; of the client nothing behind the server's end.
    pub fn leave_tls(&mut self, from: Side) -> Reading {
        if from == Side::Server && matches!(self.direction(Side::Client).reading, Reading::Tls) {
            self.change(Side::Client, Reading::Done);
        }
        Reading::Done
    }
}
