//! TLS: the hello of each side, and in the open alerts and the server's certificates.
//!
//! A client's hello is heard beside whatever else its first bytes may be, and judged as soon as it is whole.
//! That it is one is certain once the server answers by TLS; until then its bytes stay unread, so that what
//! answers otherwise has them read as anything else. Bytes that look like a hello and hold an SSH
//! identification behind a line end are read for that at once: some servers find it there. A server of TLS
//! has a hello all the same, which is not judged: by default such a flow is stopped.

mod read;

use std::sync::Arc;

use memchr::memmem;

use super::finding::{DialogueFinding, FoundBanner, MatchedRules, ReadContext};
use crate::banner::tls::{
    self, CERTIFICATE, CLIENT_HELLO, FATAL, RecordReader, SERVER_HELLO, SUPPLEMENTAL_DATA, ServerHelloAnswer,
};
use crate::banner::{Banner, TlsBanner};
use crate::event::{ApplicationFacts, Protocol, TlsAlert, TlsFacts};
use crate::rules::BannerStage;
use crate::terms::{AlertCode, Anomaly, Side, TransportProtocol};

/// An SSH identification behind a line end.
const IDENTIFICATION: &[u8] = b"\nSSH-";

/// The facts about both sides.
#[derive(Debug, Default)]
pub struct TlsState {
    /// Nothing before a hello was read; shared with the events that tell it.
    facts: Option<Arc<TlsFacts>>,
    matched: MatchedRules,
    is_told: bool,
    /// Both ends began with TLS.
    both: bool,
    /// A client's hello was found behind other bytes, whose answer is looked for.
    found: bool,
}

/// The progress in the records of one direction.
#[derive(Debug, Default)]
pub struct HelloRecords {
    records: RecordReader,
    /// Unread bytes that were searched for an identification.
    searched: usize,
    /// Nothing is listened for any more.
    pub(super) over: bool,
}

impl HelloRecords {
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

impl TlsState {
    /// Takes a client's hello that was found behind other bytes.
    pub(super) fn take_found_hello(&mut self, body: &[u8], context: &mut ReadContext<'_>) {
        self.found = true;
        self.take_hello(body, context);
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
        let Some(client) = tls::client(body, TransportProtocol::Tcp) else {
            context.note(Anomaly::TlsMalformed);
            return false;
        };
        let facts = self.facts_mut();
        if facts.client.is_none() {
            facts.client = Some(client);
            context.find(DialogueFinding::Seen(Protocol::Tls, Side::Client));
            self.ask(Side::Client, BannerStage::Whole, context);
        } else {
            let again = TlsFacts { client: Some(client), ..TlsFacts::default() };
            self.ask_about(Side::Client, BannerStage::Whole, &Arc::new(again), context);
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
            Some(ServerHelloAnswer::Retry) => !std::mem::replace(&mut self.facts_mut().retried, true),
            Some(ServerHelloAnswer::Hello(server)) => {
                let goes_on = !server.version.encrypts_handshake();
                self.facts_mut().server = Some(server);
                context.find(DialogueFinding::Seen(Protocol::Tls, Side::Server));
                self.ask(Side::Server, if goes_on { BannerStage::Head } else { BannerStage::Whole }, context);
                goes_on
            }
        }
    }

    /// Takes the server's certificates, behind which nothing more is read.
    fn take_certificates(&mut self, body: &[u8], context: &mut ReadContext<'_>) -> bool {
        let certificates = tls::certificates(body);
        if certificates.is_empty() {
            context.note(Anomaly::TlsMalformed);
        } else if let Some(server) = &mut self.facts_mut().server {
            server.certificates = certificates;
            self.ask(Side::Server, BannerStage::Rest, context);
        }
        false
    }

    /// Takes an alert; whether more is read behind it.
    fn take_alert(&mut self, from: Side, (level, code): (u8, u8), context: &mut ReadContext<'_>) -> bool {
        let fatal = level == FATAL;
        let alert = TlsAlert { from, fatal, code: AlertCode(code) };
        if self.facts_mut().alert.get_or_insert(alert) == &alert {
            self.ask(from, BannerStage::Whole, context);
        }
        !fatal
    }

    /// Tells what was seen, once; nothing if nothing was.
    pub(super) fn emit(&mut self, context: &mut ReadContext<'_>) {
        if !self.is_told
            && let Some(facts) = &self.facts
        {
            self.is_told = true;
            let said = ApplicationFacts::Tls(Arc::clone(facts));
            context.find(DialogueFinding::Exchange(said, None));
        }
    }

    /// True if a client's hello was found behind other bytes and the server's answer is looked for.
    pub(super) const fn is_awaiting_answer(&self) -> bool {
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

    /// True if the hellos of both sides were read.
    pub(super) fn is_answered_by_hello(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.client.is_some() && facts.server.is_some())
    }

    fn facts_mut(&mut self) -> &mut TlsFacts {
        Arc::make_mut(self.facts.get_or_insert_default())
    }

    fn ask(&mut self, from: Side, stage: BannerStage, context: &mut ReadContext<'_>) {
        if let Some(facts) = self.facts.clone() {
            self.ask_about(from, stage, &facts, context);
        }
    }

    fn ask_about(
        &mut self,
        from: Side,
        stage: BannerStage,
        facts: &Arc<TlsFacts>,
        context: &mut ReadContext<'_>,
    ) {
        let line = facts.line(from);
        let banner = Banner::Tls(TlsBanner { from, facts, line: &line });
        context.find(DialogueFinding::Banner(FoundBanner {
            banner: &banner,
            stage,
            request: None,
            product: None,
            transaction: None,
            matched: &mut self.matched,
            facts: &|| ApplicationFacts::Tls(Arc::clone(facts)),
        }));
    }
}

#[cfg(test)]
mod tests;
