//! Banners behind bytes that are not read: hellos of TLS at any place, and a client's lines that begin like
//! an SSH identification.
//!
//! Servers of LDAP, `PostgreSQL`, `MySQL`, XMPP, mail, news and many others go on in TLS once a client asks
//! for it in some words of their own, and some servers of SSH overlook any lines. So this runs beside
//! whatever a client's bytes are read as, and judges what it finds, until both ends agree on a protocol or
//! the client has said [`LIMIT`] bytes. Of the server the answer to a hello that was found is looked for,
//! too.

use super::finding::ReadContext;
use super::read_step::{RequestedUpgrade, UnreadReason};
use super::search_state::{CANDIDATE_LIMIT, CANDIDATES, HelloCandidate, KeptLine, LIMIT, may_be_hello};
use super::state::{Dialogue, DirectionReading, FirstProtocol};
use crate::banner::tls::{self, CLIENT_HELLO, RecordPiece, SERVER_HELLO};
use crate::terms::{Anomaly, Side, TransportProtocol};

impl Dialogue {
    /// Searches the end of `input` that was not searched yet, which was read, or waits to be, as bytes of a
    /// request's body or not.
    pub(super) fn search(
        &mut self,
        from: Side,
        input: &[u8],
        within_body: bool,
        context: &mut ReadContext<'_>,
    ) {
        if from == Side::Server {
            self.judge_lines(context);
        }
        let is_first = from == Side::Client && self.may_begin_with_hello(input);
        if is_first || !self.searches(from) {
            if from == Side::Server {
                // What was said before a hello answers none, also where it waits to be read: `S` of
                // PostgreSQL.
                let search = &mut self.direction_mut(from).search;
                search.seen = search.seen.max(input.len());
            }
            return;
        }
        if self.direction(from).search.seen >= input.len() {
            self.direction_mut(from.other()).search.is_turn = true;
            if from == Side::Client {
                self.judge_lines(context);
            }
            return;
        }
        let mut search = std::mem::take(&mut self.direction_mut(from).search);
        let fresh = search.take(input);
        let pending = self.asked == RequestedUpgrade::Upgrade && !self.tls.is_awaiting_answer();
        if from == Side::Client && search.total >= LIMIT && pending {
            context.note(Anomaly::UpgradeNotFollowed);
        }
        if search.is_turn && !fresh.is_empty() {
            search.before = Some(b'\n').filter(|_| search.held.is_empty()).or(search.before);
            search.is_turn = false;
        }
        // A server that repeats a client's bytes may be led to repeat a server's hello amid a line.
        search.hold(fresh, from == Side::Server);
        let mut candidates = std::mem::take(&mut search.candidates);
        candidates.retain_mut(|candidate| self.read_candidate(from, candidate, &search.held, context));
        if candidates.len() > CANDIDATES {
            context.note(Anomaly::TlsDisputed);
            candidates.clear();
        }
        search.candidates = candidates;
        search.let_go();
        if from == Side::Client && self.may_overlook_lines(input) {
            search.keep_lines(fresh, within_body);
        }
        self.direction_mut(from).search = search;
        self.direction_mut(from.other()).search.is_turn = true;
        if from == Side::Client {
            self.judge_lines(context);
        }
    }

    /// True if a server may overlook these bytes of the client's, up to a line that is an identification.
    fn may_overlook_lines(&self, input: &[u8]) -> bool {
        match &self.direction(Side::Client).reading {
            DirectionReading::New => matches!(input, [4 | 5, ..]),
            DirectionReading::Http(_) | DirectionReading::Foreign(UnreadReason::NotHttp(_)) => true,
            DirectionReading::Done => self.http.was_asked() && !self.ssh.is_identified(Side::Client),
            _ => false,
        }
    }

    /// Reads what may be a hello; false where it is none, or was judged.
    fn read_candidate(
        &mut self,
        from: Side,
        candidate: &mut HelloCandidate,
        held: &[u8],
        context: &mut ReadContext<'_>,
    ) -> bool {
        let input = held.get(candidate.start..).unwrap_or_default();
        if !candidate.begun && !may_be_hello(from, input) {
            return false;
        }
        loop {
            match candidate.records.next(input) {
                RecordPiece::More(_) => return input.len() < CANDIDATE_LIMIT,
                RecordPiece::Message(CLIENT_HELLO, body) if from == Side::Client => {
                    // Not within what may be uploaded to a server of HTTP, which answers behind it.
                    let client = self.direction(Side::Client).first.spoken;
                    let server = self.direction(Side::Server).first.spoken;
                    let uploads = (client, server) == (FirstProtocol::Http, FirstProtocol::Nothing)
                        && !self.http.is_doubtful();
                    if !uploads && tls::client(body, TransportProtocol::Tcp).is_some() {
                        self.tls.take_found_hello(body, context);
                    }
                    return false;
                }
                RecordPiece::Message(kind, body) if from == Side::Server => {
                    let hello = kind == SERVER_HELLO && tls::server(body).is_some();
                    if !(candidate.begun || hello) {
                        return false;
                    }
                    candidate.begun = true;
                    if !self.tls.take_message(from, kind, body, context) {
                        self.tls.end_search();
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }

    /// Judges lines of the client that may be identifications, once it is known that they may be.
    fn judge_lines(&mut self, context: &mut ReadContext<'_>) {
        if self.direction(Side::Client).search.lines.is_empty() {
            return;
        }
        let server = self.direction(Side::Server).first.spoken;
        let lines = std::mem::take(&mut self.direction_mut(Side::Client).search.lines);
        let waits = |line: &KeptLine| server == FirstProtocol::Nothing && line.within_body;
        let (waiting, due): (Vec<_>, Vec<_>) = lines.into_iter().partition(waits);
        self.direction_mut(Side::Client).search.lines = waiting;
        for line in due.iter().filter(|_| matches!(server, FirstProtocol::Nothing | FirstProtocol::Ssh)) {
            self.ssh.judge_disputed_line(Side::Client, &line.octets, context);
        }
    }
}
