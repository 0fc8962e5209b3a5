//! TLS as one of the things that both sides may speak: what listens for a hello, and reads on behind it.

use crate::banner::tls::{CLIENT_HELLO, RecordPiece};
use crate::banner::unread_protocols::{OtherProtocol, SignatureFit};
use crate::engine::dialogue::awaited_input::InputNeed;
use crate::engine::dialogue::finding::ReadContext;
use crate::engine::dialogue::read_step::{DialogueInput, ReadStep};
use crate::engine::dialogue::state::{Dialogue, DirectionReading, FirstProtocol};
use crate::terms::{Anomaly, Side};

impl Dialogue {
    /// Listens for a hello in what the client says first; nothing where it is none.
    pub fn read_hello(
        &mut self,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> Option<ReadStep<DirectionReading>> {
        let hello = &mut self.direction_mut(Side::Client).hello;
        if hello.over {
            return None;
        }
        match OtherProtocol::TLS.fit(Side::Client, turn.input) {
            SignatureFit::More => {
                return Some(ReadStep::Wait(InputNeed::another(turn.input), DirectionReading::New));
            }
            SignatureFit::Yes if !hello.finds_identification(turn.input) => {}
            fit => {
                hello.stop();
                if fit == SignatureFit::Yes {
                    context.note(Anomaly::TlsDisputed);
                }
                return None;
            }
        }
        let mut records = std::mem::take(&mut hello.records);
        let goes_on = loop {
            match records.next(turn.input) {
                RecordPiece::More(_) => break true,
                RecordPiece::Message(CLIENT_HELLO, body) if !self.tls.take_hello(body, context) => {
                    break false;
                }
                RecordPiece::Never => break false,
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
        Some(ReadStep::Wait(InputNeed::another(turn.input), DirectionReading::New))
    }

    /// Looks whether the server answers by TLS what may be a hello; nothing where it does not.
    pub fn read_answer(&mut self, turn: DialogueInput<'_>) -> Option<ReadStep<DirectionReading>> {
        if !self.client_cannot_be_http(turn.peer) && self.spoken(Side::Client) != FirstProtocol::Other {
            return None;
        }
        match OtherProtocol::TLS.fit(Side::Server, turn.input) {
            SignatureFit::More => Some(ReadStep::Wait(InputNeed::another(turn.input), DirectionReading::New)),
            SignatureFit::Yes => {
                for side in [Side::Client, Side::Server] {
                    self.direction_mut(side).first.spoken = FirstProtocol::Other;
                }
                self.tls.both = true;
                self.change(Side::Client, DirectionReading::Tls);
                Some(ReadStep::Used(0, DirectionReading::Tls))
            }
            SignatureFit::No => {
                let client = self.direction_mut(Side::Client);
                client.hello.stop();
                client.awaited = None;
                None
            }
        }
    }

    /// Reads the records of one side.
    pub fn read_tls(
        &mut self,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        let from = turn.from;
        let mut records = std::mem::take(&mut self.direction_mut(from).hello.records);
        let needed = loop {
            let goes_on = match records.next(turn.input) {
                RecordPiece::More(needed) => break Some(needed),
                RecordPiece::Message(kind, body) => self.tls.take_message(from, kind, body, context),
                RecordPiece::Alert(level, code) => self.tls.take_alert(from, (level, code), context),
                // Either side may say that before its second hello, RFC 8446 appendix D.4.
                RecordPiece::ChangeCipherSpec => from == Side::Client || !self.tls.is_answered(),
                RecordPiece::Opaque => from == Side::Client,
                RecordPiece::Never => false,
            };
            if !goes_on {
                break None;
            }
        };
        let Some(needed) = needed else { return ReadStep::Used(turn.input.len(), self.leave_tls(from)) };
        let used = records.take();
        self.direction_mut(from).hello.records = records;
        match used {
            0 => ReadStep::Wait(InputNeed::octets(needed), DirectionReading::Tls),
            used => ReadStep::Used(used, DirectionReading::Tls),
        }
    }

    /// Nothing more is read of a side; of the client nothing behind the server's end.
    pub fn leave_tls(&mut self, from: Side) -> DirectionReading {
        if from == Side::Server && matches!(self.direction(Side::Client).reading, DirectionReading::Tls) {
            self.change(Side::Client, DirectionReading::Done);
        }
        DirectionReading::Done
    }
}
