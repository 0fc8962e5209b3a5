//! Unencrypted messages of a server, read in parallel to the handshake. The library reports nothing about
//! servers that it refuses, but they have sent their version, their certificates or an alert.

use rustls::pki_types::CertificateDer;

use crate::banner::tls::{
    self, CERTIFICATE, FATAL, RecordPiece, RecordReader, SERVER_HELLO, SUPPLEMENTAL_DATA, ServerHelloAnswer,
};
use crate::event::{TlsAlert, TlsFacts};
use crate::terms::{AlertCode, Side};

/// Reader of a server's unencrypted records.
#[derive(Debug, Default)]
pub(super) struct TlsRecordReader {
    records: RecordReader,
    /// Received bytes that are not parsed yet.
    unread: Vec<u8>,
    /// Collected facts.
    pub(super) facts: TlsFacts,
    /// Certificates as sent, the server's own first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// True once no further message is unencrypted.
    is_over: bool,
    /// True if the bytes are not TLS.
    is_foreign: bool,
}

impl TlsRecordReader {
    /// Parses received bytes.
    pub(super) fn hear(&mut self, octets: &[u8]) {
        if self.is_over {
            return;
        }
        self.unread.extend_from_slice(octets);
        let Self { records, unread, facts, chain, is_over, is_foreign } = self;
        *is_over = loop {
            let goes_on = match records.next(unread) {
                RecordPiece::More(_) => break false,
                RecordPiece::Message(kind, body) => take(facts, chain, kind, body),
                RecordPiece::Alert(level, code) => {
                    let alert = TlsAlert { from: Side::Server, fatal: level == FATAL, code: AlertCode(code) };
                    facts.alert.get_or_insert(alert);
                    level != FATAL
                }
                // A server may send this after a HelloRetryRequest, RFC 8446 appendix D.4.
                RecordPiece::ChangeCipherSpec => facts.server.is_none(),
                RecordPiece::Opaque => false,
                RecordPiece::Never => {
                    *is_foreign = facts.server.is_none() && facts.alert.is_none() && !facts.retried;
                    false
                }
            };
            if !goes_on {
                break true;
            }
        };
        if self.is_over {
            self.unread = Vec::new();
        } else {
            let gone_over = self.records.take();
            self.unread.drain(..gone_over.min(self.unread.len()));
        }
    }

    /// True once no further message is unencrypted.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// True if the bytes are not TLS.
    pub(super) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// True if the facts are worth reporting.
    pub(super) fn has_facts(&self) -> bool {
        self.facts.server.is_some() || self.facts.alert.is_some()
    }
}

/// Handles a handshake message, and returns whether further messages are unencrypted.
fn take(facts: &mut TlsFacts, chain: &mut Vec<CertificateDer<'static>>, kind: u8, body: &[u8]) -> bool {
    match kind {
        SERVER_HELLO => match tls::server(body) {
            Some(ServerHelloAnswer::Hello(server)) => {
                let goes_on = !server.version.encrypts_handshake();
                facts.server = Some(server);
                goes_on
            }
            Some(ServerHelloAnswer::Retry) => {
                facts.retried = true;
                true
            }
            None => false,
        },
        CERTIFICATE => {
            *chain = tls::raw_chain(body).into_iter().map(|der| der.to_vec().into()).collect();
            false
        }
        SUPPLEMENTAL_DATA => true,
        _ => false,
    }
}
