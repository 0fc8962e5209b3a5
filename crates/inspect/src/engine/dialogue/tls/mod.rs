//! TLS: the hello of each side, and in the open alerts and the server's certificates.
//!
//! A client's hello is heard beside whatever else its first bytes may be, and judged as soon as it is whole.
//! That it is one is certain once the server answers by TLS; until then its bytes stay unread, so that what
//! answers otherwise has them read as anything else. Bytes that look like a hello and hold an SSH
//! identification behind a line end are read for that at once: some servers find it there. A server of TLS
//! has a hello all the same, which is not judged: by default such a flow is stopped.

use std::sync::Arc;

use memchr::memmem;

use super::finding::{Finding, FoundBanner, Matched, ReadContext};
use super::need::Need;
use super::opening::Spoken;
use super::{Dialogue, Reading, Step, Turn};
use crate::banner::other::{Fit, Name};
use crate::banner::tls::{
    self, Answer, CERTIFICATE, CLIENT_HELLO, FATAL, Piece, Records, SERVER_HELLO, SUPPLEMENTAL_DATA,
};
use crate::banner::{Banner, TlsBanner};
use crate::event::{Application, Protocol, TlsAlert, TlsFacts};
use crate::rules::Stage;
use crate::terms::{AlertCode, Anomaly, Side, Transport};

/// An SSH identification behind a line end.
const IDENTIFICATION: &[u8] = b"\nSSH-";

/// What is known of both sides.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// Nothing before a hello was read; shared with the events that tell it.
    facts: Option<Arc<TlsFacts>>,
    matched: Matched,
    is_told: bool,
    /// Both ends began with TLS.
    both: bool,
    /// A client's hello was found behind other bytes, whose answer is looked for.
    found: bool,
}

/// How far the records of one direction were heard.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    records: Records,
    /// Unread bytes that were searched for an identification.
    searched: usize,
    /// Nothing is listened for any more.
    over: bool,
}

impl Hearing {
    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.records.memory()
    }

    fn stop(&mut self) {
        *self = Self { over: true, ..Self::default() };
    }

    /// True if an identification begins within bytes that are unread, those that were searched before left
    /// out.
    fn finds_identification(&mut self, unread: &[u8]) -> bool {
        let from = self.searched.saturating_sub(IDENTIFICATION.len() - 1);
        self.searched = unread.len();
        memmem::find(unread.get(from..).unwrap_or_default(), IDENTIFICATION).is_some()
    }
}

impl Dialogue {
    /// True if what the client says first, which is this so far, is listened to as a hello.
    pub(super) fn may_begin_with_hello(&self, input: &[u8]) -> bool {
        let client = self.direction(Side::Client);
        matches!(client.reading, Reading::New)
            && !client.hearing.over
            && self.heard(Side::Server) == Spoken::Nothing
            && Name::TLS.fit(Side::Client, input) != Fit::No
    }

    /// Takes a client's hello that was found behind other bytes.
    pub(super) fn take_found_hello(&mut self, body: &[u8], context: &mut ReadContext<'_>) {
        self.tls.found = true;
        self.take_hello(body, context);
    }

    /// Listens for a hello in what the client says first; nothing where it is none.
    pub(super) fn hear_hello(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Option<Step> {
        let hearing = &mut self.direction_mut(Side::Client).hearing;
        if hearing.over {
            return None;
        }
        match Name::TLS.fit(Side::Client, turn.input) {
            Fit::More => return Some(Step::Wait(Need::another(turn.input), Reading::New)),
            Fit::Yes if !hearing.finds_identification(turn.input) => {}
            fit => {
                hearing.stop();
                if fit == Fit::Yes {
                    context.note(Anomaly::TlsDisputed);
                }
                return None;
            }
        }
        let mut records = std::mem::take(&mut hearing.records);
        let needed = loop {
            match records.next(turn.input) {
                Piece::More(needed) => break Some(needed),
                Piece::Message(CLIENT_HELLO, body) if !self.take_hello(body, context) => break None,
                Piece::Never => break None,
                _ => {}
            }
        };
        let hearing = &mut self.direction_mut(Side::Client).hearing;
        if needed.is_none() {
            hearing.stop();
            return None;
        }
        hearing.records = records;
        // Not when the record is whole: whatever comes of it may hold an identification.
        Some(Step::Wait(Need::another(turn.input), Reading::New))
    }

    /// Looks whether the server answers by TLS what may be a hello; nothing where it does not.
    pub(super) fn hear_answer(&mut self, turn: Turn<'_>) -> Option<Step> {
        if !self.client_is_strange(turn.peer) && self.heard(Side::Client) != Spoken::Other {
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
                client.hearing.stop();
                client.awaited = None;
                None
            }
        }
    }

    /// Reads the records of one side.
    pub(super) fn read_tls(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step {
        let from = turn.from;
        let mut records = std::mem::take(&mut self.direction_mut(from).hearing.records);
        let needed = loop {
            let goes_on = match records.next(turn.input) {
                Piece::More(needed) => break Some(needed),
                Piece::Message(kind, body) => self.take_message(from, kind, body, context),
                Piece::Alert(level, code) => self.take_alert(from, (level, code), context),
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
        self.direction_mut(from).hearing.records = records;
        match used {
            0 => Step::Wait(Need::octets(needed), Reading::Tls),
            used => Step::Used(used, Reading::Tls),
        }
    }

    /// Nothing more is read of a side; of the client nothing behind the server's end.
    pub(super) fn leave_tls(&mut self, from: Side) -> Reading {
        if from == Side::Server && matches!(self.direction(Side::Client).reading, Reading::Tls) {
            self.change(Side::Client, Reading::Done);
        }
        Reading::Done
    }

    /// Takes a handshake message; whether more is read behind it.
    pub(super) fn take_message(
        &mut self,
        from: Side,
        kind: u8,
        body: &[u8],
        context: &mut ReadContext<'_>,
    ) -> bool {
        match (from, kind) {
            (Side::Client, CLIENT_HELLO) => self.take_hello(body, context),
            (Side::Client, _) => true,
            (Side::Server, SERVER_HELLO) => self.take_answer(body, context),
            (Side::Server, CERTIFICATE) => self.take_certificates(body, context),
            (Side::Server, SUPPLEMENTAL_DATA) => true,
            (Side::Server, _) => false,
        }
    }

    /// Takes a client's hello; false where it can't be read. Events tell the first one.
    fn take_hello(&mut self, body: &[u8], context: &mut ReadContext<'_>) -> bool {
        let Some(client) = tls::client(body, Transport::Tcp) else {
            context.note(Anomaly::TlsMalformed);
            return false;
        };
        let facts = self.tls.facts_mut();
        if facts.client.is_none() {
            facts.client = Some(client);
            context.find(Finding::Seen(Protocol::Tls, Side::Client));
            self.tls.ask(Side::Client, Stage::Whole, context);
        } else {
            let again = TlsFacts { client: Some(client), ..TlsFacts::default() };
            self.tls.ask_about(Side::Client, Stage::Whole, &Arc::new(again), context);
        }
        true
    }

    /// Takes a server's hello; whether more is read behind it.
    fn take_answer(&mut self, body: &[u8], context: &mut ReadContext<'_>) -> bool {
        match tls::server(body) {
            None => {
                context.note(Anomaly::TlsMalformed);
                false
            }
            Some(Answer::Retry) => !std::mem::replace(&mut self.tls.facts_mut().retried, true),
            Some(Answer::Hello(server)) => {
                let goes_on = !server.version.encrypts_handshake();
                self.tls.facts_mut().server = Some(server);
                context.find(Finding::Seen(Protocol::Tls, Side::Server));
                self.tls.ask(Side::Server, if goes_on { Stage::Head } else { Stage::Whole }, context);
                goes_on
            }
        }
    }

    /// Takes the server's certificates, behind which nothing more is read.
    fn take_certificates(&mut self, body: &[u8], context: &mut ReadContext<'_>) -> bool {
        let certificates = tls::certificates(body);
        if certificates.is_empty() {
            context.note(Anomaly::TlsMalformed);
        } else if let Some(server) = &mut self.tls.facts_mut().server {
            server.certificates = certificates;
            self.tls.ask(Side::Server, Stage::Rest, context);
        }
        false
    }

    /// Takes an alert; whether more is read behind it.
    fn take_alert(&mut self, from: Side, (level, code): (u8, u8), context: &mut ReadContext<'_>) -> bool {
        let fatal = level == FATAL;
        let alert = TlsAlert { from, fatal, code: AlertCode(code) };
        if self.tls.facts_mut().alert.get_or_insert(alert) == &alert {
            self.tls.ask(from, Stage::Whole, context);
        }
        !fatal
    }
}

impl Tls {
    /// Tells what was seen, once; nothing if nothing was.
    pub(super) fn tell(&mut self, context: &mut ReadContext<'_>) {
        if !self.is_told
            && let Some(facts) = &self.facts
        {
            self.is_told = true;
            let said = Application::Tls(Arc::clone(facts));
            context.find(Finding::Exchange(said, None));
        }
    }

    /// True if a client's hello was found behind other bytes and the server's answer is looked for.
    pub(super) const fn was_found(&self) -> bool {
        self.found
    }

    /// All that is read of the server's answer was.
    pub(super) const fn end_search(&mut self) {
        self.found = false;
    }

    /// True if both ends speak TLS.
    pub(super) fn is_agreed(&self) -> bool {
        self.both || self.is_answered()
    }

    /// True if the server's hello was read; a request to try again is none.
    fn is_answered(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.server.is_some())
    }

    fn facts_mut(&mut self) -> &mut TlsFacts {
        Arc::make_mut(self.facts.get_or_insert_default())
    }

    fn ask(&mut self, from: Side, stage: Stage, context: &mut ReadContext<'_>) {
        if let Some(facts) = self.facts.clone() {
            self.ask_about(from, stage, &facts, context);
        }
    }

    fn ask_about(&mut self, from: Side, stage: Stage, facts: &Arc<TlsFacts>, context: &mut ReadContext<'_>) {
        let line = facts.line(from);
        let banner = Banner::Tls(TlsBanner { from, facts, line: &line });
        context.find(Finding::Banner(FoundBanner {
            banner: &banner,
            stage,
            request: None,
            product: None,
            transaction: None,
            indifferent: false,
            matched: &mut self.matched,
            facts: &|| Application::Tls(Arc::clone(facts)),
        }));
    }
}

#[cfg(test)]
mod tests;
