//! Banners behind bytes that are not read: hellos of TLS at any place, and a client's lines that begin like
//! an SSH identification.
//!
//! Servers of LDAP, `PostgreSQL`, `MySQL`, XMPP, mail, news and many others go on in TLS once a client asks
//! for it in some words of their own, and some servers of SSH overlook any lines. So this runs beside
//! whatever a client's bytes are read as, and judges what it finds, until both ends agree on a protocol or
//! the client has said [`LIMIT`] bytes. Of the server the answer to a hello that was found is looked for,
//! too.

use super::finding::ReadContext;
use super::hand_over::Asked;
use super::opening::Spoken;
use super::{Dialogue, Reading};
use crate::banner::http::count_steps;
use crate::banner::ssh as identification;
use crate::banner::tls::{self, CLIENT_HELLO, MESSAGE_LIMIT, Piece, Records, SERVER_HELLO};
use crate::terms::{Anomaly, Side, Transport};

/// Bytes of one side that are searched.
const LIMIT: usize = 1 << 20;

/// What a record with a handshake message begins with: its type and the major version.
const RECORD: [u8; 2] = [0x16, 3];

/// The most significant byte of a message's length.
const LONGEST: u8 = 2;

const _: () = assert!(MESSAGE_LIMIT >> 16 == LONGEST as usize, "three octets say how long a message is");

/// Hellos that may be unfinished at once, and bytes of the oldest of them.
const CANDIDATES: usize = 8;
const CANDIDATE_LIMIT: usize = 2 * MESSAGE_LIMIT;

/// Lines that are kept until the server says whether it speaks SSH.
const KEPT_LINES: usize = 8;

/// How far one direction was searched.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Bytes of the unread input that were searched.
    seen: usize,
    /// All bytes that were searched.
    total: usize,
    /// What was said since the first hello began that is not whole, or what may begin one.
    held: Vec<u8>,
    /// The byte before that; a line end where a side begins to answer.
    before: Option<u8>,
    candidates: Vec<Candidate>,
    line: Line,
    /// Whole lines that may be identifications.
    lines: Vec<KeptLine>,
    /// The other end has said something since.
    is_turn: bool,
}

/// What may be a hello.
#[derive(Debug)]
struct Candidate {
    /// Where it begins in what is held.
    start: usize,
    records: Records,
    /// Its first message was a hello.
    begun: bool,
}

/// A line that may be an identification.
#[derive(Debug)]
struct KeptLine {
    octets: Vec<u8>,
    /// True if it stands in a request's body, which may hold anything.
    within_body: bool,
}

/// Where a search for lines stands.
#[derive(Debug, Default)]
enum Line {
    /// In a line that is no identification, or the first one, which is read as what it is.
    #[default]
    Other,
    /// In a line that may be one, so far this.
    Perhaps(Vec<u8>),
}

impl Search {
    /// So many unread bytes were read.
    pub(super) const fn advance(&mut self, count: usize) {
        self.seen = self.seen.saturating_sub(count);
    }

    /// Bytes are missing: nothing that was begun goes on.
    pub(super) fn pass_over(&mut self) {
        *self = Self { total: self.total, lines: std::mem::take(&mut self.lines), ..Self::default() };
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let records: usize = self.candidates.iter().map(|candidate| candidate.records.memory()).sum();
        self.held.capacity() + records + self.lines.iter().map(|line| line.octets.capacity()).sum::<usize>()
    }

    /// The bytes of `input` that were not searched yet.
    fn take<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let fresh = input.get(self.seen..).unwrap_or_default();
        self.seen = self.seen.max(input.len());
        self.total += fresh.len();
        count_steps(fresh.len());
        fresh
    }

    /// Finds where further records of a handshake begin, only where lines do for `line_starts`.
    fn hold(&mut self, fresh: &[u8], line_starts: bool) {
        let [kind, _] = RECORD;
        if self.held.is_empty() && memchr::memchr(kind, fresh).is_none() {
            self.before = fresh.last().copied().or(self.before);
            return;
        }
        let from = self.held.len().saturating_sub(1);
        self.held.extend_from_slice(fresh);
        let new = self.held.get(from..).unwrap_or_default();
        for at in memchr::memmem::find_iter(new, &RECORD) {
            let start = from + at;
            let before = start.checked_sub(1).map_or(self.before, |before| self.held.get(before).copied());
            let known = self.candidates.iter().any(|candidate| candidate.start == start);
            if !known && (!line_starts || before == Some(b'\n')) {
                self.candidates.push(Candidate { start, records: Records::default(), begun: false });
            }
        }
    }

    /// Forgets what no hello may begin with.
    fn let_go(&mut self) {
        let [kind, _] = RECORD;
        let begins = self.held.last() == Some(&kind);
        let free = match self.candidates.iter().map(|candidate| candidate.start).min() {
            Some(first) => first,
            None => self.held.len() - usize::from(begins),
        };
        if free > 0 {
            self.before = self.held.get(free - 1).copied();
            self.held.drain(..free);
            self.candidates.iter_mut().for_each(|candidate| candidate.start -= free);
        }
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// Whole lines that begin like an identification are kept.
    fn keep_lines(&mut self, fresh: &[u8], within_body: bool) {
        for piece in fresh.split_inclusive(|octet| *octet == b'\n') {
            if let Line::Perhaps(line) = &mut self.line {
                let room = identification::LINE_LIMIT.saturating_sub(line.len());
                line.extend_from_slice(piece.get(..room).unwrap_or(piece));
                let begins = super::lines::begins_identification(line);
                let whole = piece.ends_with(b"\n") || line.len() >= identification::LINE_LIMIT;
                if begins
                    && whole
                    && line.len() > identification::PREFIX.len()
                    && self.lines.len() < KEPT_LINES
                {
                    let octets = line.trim_ascii_end().to_vec();
                    self.lines.push(KeptLine { octets, within_body });
                }
                if !begins || whole {
                    self.line = Line::Other;
                }
            }
            if piece.ends_with(b"\n") {
                self.line = Line::Perhaps(Vec::new());
            }
        }
    }
}

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
        let mut search = std::mem::take(&mut self.direction_mut(from).search);
        let fresh = search.take(input);
        let pending = self.asked == Asked::Upgrade && !self.tls.was_found();
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
        let overlooks_lines = match &self.direction(from).reading {
            Reading::New => matches!(input, [4 | 5, ..]),
            Reading::Http(_) => true,
            Reading::Done => self.http.was_asked() && !self.ssh.knows(from),
            _ => false,
        };
        if from == Side::Client && overlooks_lines {
            search.keep_lines(fresh, within_body);
        }
        self.direction_mut(from).search = search;
        self.direction_mut(from.other()).search.is_turn = true;
        if from == Side::Client {
            self.judge_lines(context);
        }
    }

    /// True if a side's bytes are searched.
    pub(super) fn searches(&self, from: Side) -> bool {
        let client = &self.direction(Side::Client).reading;
        let agreed = self.direction(Side::Server).first.spoken == Spoken::Http
            || matches!(client, Reading::Tls)
            || (self.ssh.knows(Side::Client) && self.ssh.knows(Side::Server));
        let wanted = match from {
            Side::Client => !self.tls.is_agreed(),
            Side::Server => self.tls.was_found(),
        };
        wanted && !agreed && self.direction(from).search.total < LIMIT
    }

    /// Reads what may be a hello; false where it is none, or was judged.
    fn read_candidate(
        &mut self,
        from: Side,
        candidate: &mut Candidate,
        held: &[u8],
        context: &mut ReadContext<'_>,
    ) -> bool {
        let input = held.get(candidate.start..).unwrap_or_default();
        if !candidate.begun && !may_be_hello(from, input) {
            return false;
        }
        loop {
            match candidate.records.next(input) {
                Piece::More(_) => return input.len() < CANDIDATE_LIMIT,
                Piece::Message(CLIENT_HELLO, body) if from == Side::Client => {
                    // Not within what may be uploaded to a server of HTTP, which answers behind it.
                    let client = self.direction(Side::Client).first.spoken;
                    let server = self.direction(Side::Server).first.spoken;
                    let uploads =
                        (client, server) == (Spoken::Http, Spoken::Nothing) && !self.http.is_doubtful();
                    if !uploads && tls::client(body, Transport::Tcp).is_some() {
                        self.take_found_hello(body, context);
                    }
                    return false;
                }
                Piece::Message(kind, body) if from == Side::Server => {
                    let hello = kind == SERVER_HELLO && tls::server(body).is_some();
                    if !(candidate.begun || hello) {
                        return false;
                    }
                    candidate.begun = true;
                    if !self.take_message(from, kind, body, context) {
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
        let server = self.direction(Side::Server).first.spoken;
        let lines = std::mem::take(&mut self.direction_mut(Side::Client).search.lines);
        let waits = |line: &KeptLine| server == Spoken::Nothing && line.within_body;
        let (waiting, due): (Vec<_>, Vec<_>) = lines.into_iter().partition(waits);
        self.direction_mut(Side::Client).search.lines = waiting;
        for line in due.iter().filter(|_| matches!(server, Spoken::Nothing | Spoken::Ssh)) {
            self.ssh.suspect(Side::Client, &line.octets, context);
        }
    }

    /// True if what one side says next belongs to the body of a request.
    pub(super) fn is_within_body(&self, from: Side) -> bool {
        match &self.direction(from).reading {
            _ if from == Side::Server => false,
            Reading::Http(reading) => reading.is_body(),
            _ => self.http.left_body(),
        }
    }
}

/// True if bytes that begin with [`RECORD`] may be a hello, as far as they go.
fn may_be_hello(from: Side, octets: &[u8]) -> bool {
    let kind = if from == Side::Client { CLIENT_HELLO } else { SERVER_HELLO };
    let length = match octets {
        [_, _, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => return true,
    };
    let is = |at: usize, wanted: &dyn Fn(u8) -> bool| octets.get(at).is_none_or(|octet| wanted(*octet));
    let message = |at: u16| length > at;
    length > 0
        && is(5, &|octet| octet == kind)
        && (!message(1) || is(6, &|octet| octet <= LONGEST))
        && (!message(4) || is(9, &|octet| octet == 3))
}
