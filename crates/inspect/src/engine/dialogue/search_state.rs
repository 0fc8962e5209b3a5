//! The progress of the search for banners after bytes that are not read (`search_banners.rs`).

use super::ssh::begins_identification;
use crate::banner::http::count_steps;
use crate::banner::ssh as identification;
use crate::banner::tls::{CLIENT_HELLO, MAJOR_LIMIT, MESSAGE_LIMIT, RecordReader, SERVER_HELLO};
use crate::terms::Side;

/// Bytes of one side that are searched.
pub(super) const LIMIT: usize = 1 << 20;

/// Start of a record with a handshake message; the major version follows.
const RECORD: u8 = 0x16;

/// The most significant byte of a message's length.
const LONGEST: u8 = 2;

const _: () = assert!(MESSAGE_LIMIT >> 16 == LONGEST as usize, "three bytes hold the length of a message");

/// Hellos that may be unfinished at once, and bytes of the oldest of them.
pub(super) const CANDIDATES: usize = 8;
pub(super) const CANDIDATE_LIMIT: usize = 2 * MESSAGE_LIMIT;

/// Lines that are kept until the server says whether it speaks SSH.
const KEPT_LINES: usize = 8;

/// The progress of the search in one direction.
#[derive(Debug, Default)]
pub struct BannerSearch {
    /// Bytes of the unread input that were searched.
    pub(super) seen: usize,
    /// All bytes that were searched.
    pub(super) total: usize,
    /// The bytes since the start of the first incomplete hello, or of a possible one.
    pub(super) held: Vec<u8>,
    /// The byte before that; a line end where a side begins to answer.
    pub(super) before: Option<u8>,
    pub(super) candidates: Vec<HelloCandidate>,
    line: SearchLine,
    /// Whole lines that may be identifications.
    pub(super) lines: Vec<KeptLine>,
    /// The other end has said something since.
    pub(super) is_turn: bool,
}

/// A possible hello.
#[derive(Debug)]
pub struct HelloCandidate {
    /// The start within the held bytes.
    pub(super) start: usize,
    pub(super) records: RecordReader,
    /// Its first message was a hello.
    pub(super) begun: bool,
}

/// A line that may be an identification.
#[derive(Debug)]
pub struct KeptLine {
    pub(super) octets: Vec<u8>,
    /// True if it stands in a request's body, which may hold anything.
    pub(super) within_body: bool,
}

/// The state of the search for lines.
#[derive(Debug, Default)]
enum SearchLine {
    /// In a line that is no identification, or the first one, which is read as what it is.
    #[default]
    Other,
    /// In a line that may be one, so far this.
    Perhaps(Vec<u8>),
}

impl BannerSearch {
    /// Advances past this number of unread bytes.
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
    pub(super) fn take<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let fresh = input.get(self.seen..).unwrap_or_default();
        self.seen = self.seen.max(input.len());
        self.total += fresh.len();
        count_steps(fresh.len());
        fresh
    }

    /// Finds where further records of a handshake begin, only where lines do for `line_starts`.
    pub(super) fn hold(&mut self, fresh: &[u8], line_starts: bool) {
        if self.held.is_empty() && memchr::memchr(RECORD, fresh).is_none() {
            self.before = fresh.last().copied().or(self.before);
            return;
        }
        let from = self.held.len().saturating_sub(1);
        self.held.extend_from_slice(fresh);
        let new = self.held.get(from..).unwrap_or_default();
        for at in memchr::memchr_iter(RECORD, new) {
            // Each has a fresh byte, so that none was found before.
            if new.get(at + 1).is_none_or(|major| *major > MAJOR_LIMIT) {
                continue;
            }
            let start = from + at;
            let before = start.checked_sub(1).map_or(self.before, |before| self.held.get(before).copied());
            if !line_starts || before == Some(b'\n') {
                self.candidates.push(HelloCandidate {
                    start,
                    records: RecordReader::default(),
                    begun: false,
                });
            }
        }
    }

    /// Forgets what no hello may begin with.
    pub(super) fn let_go(&mut self) {
        let begins = self.held.last() == Some(&RECORD);
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
    pub(super) fn keep_lines(&mut self, fresh: &[u8], within_body: bool) {
        for piece in fresh.split_inclusive(|octet| *octet == b'\n') {
            if let SearchLine::Perhaps(line) = &mut self.line {
                let room = identification::LINE_LIMIT.saturating_sub(line.len());
                line.extend_from_slice(piece.get(..room).unwrap_or(piece));
                let begins = begins_identification(line);
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
                    self.line = SearchLine::Other;
                }
            }
            if piece.ends_with(b"\n") {
                self.line = SearchLine::Perhaps(Vec::new());
            }
        }
    }
}

/// True if bytes that begin with [`RECORD`] may be a hello, as far as they go.
pub(super) fn may_be_hello(from: Side, octets: &[u8]) -> bool {
    let kind = if from == Side::Client { CLIENT_HELLO } else { SERVER_HELLO };
    let length = match octets {
        [_, _, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => return true,
    };
    let is = |at: usize, wanted: &dyn Fn(u8) -> bool| octets.get(at).is_none_or(|octet| wanted(*octet));
    let message = |at: u16| length > at;
    length > 0 && is(5, &|octet| octet == kind) && (!message(1) || is(6, &|octet| octet <= LONGEST))
}
