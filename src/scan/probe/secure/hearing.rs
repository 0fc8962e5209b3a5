//! What a server says in the open, heard beside the handshake: of servers that the library refuses it tells
//! nothing, and they have said their version, their certificates or an alert all the same.

use rustls::pki_types::CertificateDer;

use crate::banner::tls::{self, Answer, CERTIFICATE, FATAL, Piece, Records, SERVER_HELLO, SUPPLEMENTAL_DATA};
use crate::event::{TlsAlert, TlsFacts};
use crate::terms::{AlertCode, Side};

/// How far the records of a server were heard.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    records: Records,
    /// What came and was not gone over.
    unread: Vec<u8>,
    /// What was heard.
    pub(super) facts: TlsFacts,
    /// The certificates as they were sent, the server's own first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// Nothing more is said in the open.
    is_over: bool,
    /// What came is no TLS.
    is_foreign: bool,
}

impl Hearing {
    /// Goes over what came.
    pub(super) fn hear(&mut self, octets: &[u8]) {
        if self.is_over {
            return;
        }
        self.unread.extend_from_slice(octets);
        let Self { records, unread, facts, chain, is_over, is_foreign } = self;
        *is_over = loop {
            let goes_on = match records.next(unread) {
                Piece::More(_) => break false,
                Piece::Message(kind, body) => take(facts, chain, kind, body),
                Piece::Alert(level, code) => {
                    let alert = TlsAlert { from: Side::Server, fatal: level == FATAL, code: AlertCode(code) };
                    facts.alert.get_or_insert(alert);
                    level != FATAL
                }
                // A server may say that behind its wish for another hello, RFC 8446 appendix D.4.
                Piece::ChangeCipherSpec => facts.server.is_none(),
                Piece::Opaque => false,
                Piece::Never => {
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

    /// Nothing more is said in the open.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What came is no TLS.
    pub(super) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// True if anything was heard that is worth telling.
    pub(super) fn has_facts(&self) -> bool {
        self.facts.server.is_some() || self.facts.alert.is_some()
    }
}

/// Takes a handshake message; whether more is said in the open behind it.
fn take(facts: &mut TlsFacts, chain: &mut Vec<CertificateDer<'static>>, kind: u8, body: &[u8]) -> bool {
    match kind {
        SERVER_HELLO => match tls::server(body) {
            Some(Answer::Hello(server)) => {
                let goes_on = !server.version.encrypts_handshake();
                facts.server = Some(server);
                goes_on
            }
            Some(Answer::Retry) => {
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
