//! Stored heads: the bytes and the positions of their parts, so that no head is parsed twice.

use super::{parse_request, parse_response};
use crate::banner::message_head::{HttpHeader, HttpHeaders, RequestHead, ResponseHead};

/// Number of fields whose positions are stored. A head with more (no real software sends one) is parsed
/// again. This bounds the memory that a sender of tiny fields can cause for each byte.
const FIELDS: usize = 256;

/// Number of bytes of one field's positions.
const PLACE: usize = 16;

/// A parsed head that is kept for later use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptHead {
    /// The head, followed by the positions of its fields, in one allocation.
    octets: Vec<u8>,
    /// Length of the head.
    length: usize,
    line: HeadSpan,
    /// The parts of the first line, in order.
    parts: [HeadSpan; 3],
    /// A version that the parser replaced by a constant.
    version: Option<&'static [u8]>,
    status: u16,
    /// True if there are too many fields to store their positions.
    crowded: bool,
}

/// Position of a part in a head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct HeadSpan {
    start: u32,
    length: u32,
}

impl HeadSpan {
    /// Returns the position of `part` in `head`; an empty position if it is no part of it.
    fn of(head: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr().addr().checked_sub(head.as_ptr().addr());
        let within = start.filter(|start| start.saturating_add(part.len()) <= head.len());
        let known = within.and_then(|start| Some((u32::try_from(start).ok()?, part.len().try_into().ok()?)));
        known.map_or_else(Self::default, |(start, length)| Self { start, length })
    }

    fn read(self, head: &[u8]) -> &[u8] {
        let (Ok(start), Ok(length)) = (usize::try_from(self.start), usize::try_from(self.length)) else {
            return &[];
        };
        head.get(start..start.saturating_add(length)).unwrap_or_default()
    }
}

/// Returns a version that is not stored in the head, because the parser returns a constant.
fn named(version: &[u8]) -> Option<&'static [u8]> {
    [&b"HTTP/1.1"[..], b"HTTP/1.0"].into_iter().find(|name| *name == version)
}

impl KeptHead {
    /// Stores a request's head; `request` was parsed from `head`.
    pub fn of_request(head: &[u8], request: &RequestHead<'_>) -> Self {
        let parts = [request.method, request.url, request.version];
        Self::new(head, request.line, parts, request.version, 0, &request.headers)
    }

    /// Stores a response's head; `response` was parsed from `head`.
    pub fn of_response(head: &[u8], response: &ResponseHead<'_>) -> Self {
        let parts = [&[][..], response.reason, response.version];
        Self::new(head, response.line, parts, response.version, response.status, &response.headers)
    }

    fn new(
        head: &[u8],
        line: &[u8],
        parts: [&[u8]; 3],
        version: &[u8],
        status: u16,
        headers: &HttpHeaders<'_>,
    ) -> Self {
        let count = headers.iter().len();
        let crowded = count > FIELDS;
        // The positions follow the head in the same allocation: a flow waits with one block of memory, not
        // with one for each field.
        let mut octets = Vec::with_capacity(head.len() + if crowded { 0 } else { count * PLACE });
        octets.extend_from_slice(head);
        // A head of more fields is rare. It is parsed again when a rule asks, which is slower and bounds the
        // memory.
        for field in headers.iter().filter(|_| !crowded) {
            for HeadSpan { start, length } in [field.name, field.value].map(|part| HeadSpan::of(head, part)) {
                octets.extend(start.to_ne_bytes());
                octets.extend(length.to_ne_bytes());
            }
        }
        Self {
            octets,
            length: head.len(),
            line: HeadSpan::of(head, line),
            parts: parts.map(|part| HeadSpan::of(head, part)),
            version: named(version),
            status,
            crowded,
        }
    }

    /// Returns the request without its body; none if it is a response.
    pub fn request(&self) -> Option<RequestHead<'_>> {
        if self.crowded {
            return parse_request(self.head()).done().map(|read| read.message);
        }
        let [method, url, version] = self.parts.map(|part| part.read(self.head()));
        let version = self.version.unwrap_or(version);
        let line = self.line.read(self.head());
        (self.length > 0).then(|| RequestHead {
            line,
            method,
            url,
            version,
            headers: self.headers(),
            body: &[],
        })
    }

    /// Returns the response without its body; none if it is a request.
    pub fn response(&self) -> Option<ResponseHead<'_>> {
        if self.crowded {
            return parse_response(self.head()).done().map(|read| read.message);
        }
        let [_, reason, version] = self.parts.map(|part| part.read(self.head()));
        let version = self.version.unwrap_or(version);
        let (line, status) = (self.line.read(self.head()), self.status);
        let headers = || self.headers();
        (self.length > 0).then(|| ResponseHead {
            line,
            version,
            status,
            reason,
            headers: headers(),
            body: &[],
        })
    }

    /// Number of bytes of memory held.
    pub fn memory(&self) -> usize {
        self.octets.capacity()
    }

    fn head(&self) -> &[u8] {
        self.octets.get(..self.length).unwrap_or_default()
    }

    fn headers(&self) -> HttpHeaders<'_> {
        let head = self.head();
        let places = self.octets.get(self.length..).unwrap_or_default();
        let number = |octets: &[u8]| octets.try_into().map(u32::from_ne_bytes).unwrap_or_default();
        let span = |place: &[u8]| {
            let (start, length) = place.split_at_checked(PLACE / 4).unwrap_or_default();
            HeadSpan { start: number(start), length: number(length) }.read(head)
        };
        let field = |place: &'_ [u8]| {
            let (name, value) = place.split_at_checked(PLACE / 2).unwrap_or_default();
            HttpHeader { name: span(name), value: span(value) }
        };
        HttpHeaders::new(places.chunks_exact(PLACE).map(field).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{parse_unfinished_request, parse_unfinished_response};
    use super::*;

    /// Whether what is kept of a head says what was read from it.
    fn hold_both(octets: &[u8]) {
        let requests = [parse_request(octets).done(), parse_unfinished_request(octets, true)];
        for read in requests.into_iter().flatten() {
            let kept = KeptHead::of_request(octets, &read.message);
            assert_eq!(kept.request().as_ref(), Some(&read.message), "{}", octets.escape_ascii());
        }
        let responses = [parse_response(octets).done(), parse_unfinished_response(octets, true)];
        for read in responses.into_iter().flatten() {
            let kept = KeptHead::of_response(octets, &read.message);
            assert_eq!(kept.response().as_ref(), Some(&read.message), "{}", octets.escape_ascii());
        }
    }

    #[test]
    fn a_kept_head_says_what_was_read() {
        for head in [
            &b"GET /a HTTP/1.1\r\nHost: h\r\nX:\r\n\r\n"[..],
            b"\r\n\r\nGET  /a b  HTTP/1.0\nHost : h\n folded\n\n",
            b"GET /simple\r\n",
            b"POST / HTTP/3.7\r\n: x\r\nno colon\r\n\r\nbody",
            b"HTTP/1.1 200 OK\r\nServer: a\r\n b\r\nserver: c\r\n\r\nbody",
            b"HTTP/1.0 404\n\n",
            b"HTTP/2.0 +20  Odd \r\nA: b\rC: d\r\n\r\n",
        ] {
            hold_both(head);
        }
        assert_eq!((KeptHead::default().request(), KeptHead::default().response()), (None, None));
    }

    #[test]
    fn heads_of_many_fields_hold_no_more_than_their_octets() {
        let head = format!("GET / HTTP/1.1\r\n{}\r\n", "a:\n".repeat(FIELDS + 1));
        hold_both(head.as_bytes());
        let read = parse_request(head.as_bytes()).done().expect("a head");
        assert_eq!(KeptHead::of_request(head.as_bytes(), &read.message).memory(), head.len());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_kept_as_it_was_read(
            first in "(GET|get|P\u{0}) ?/?[a ]{0,3} ?(HTTP/1[.][019])?|HTTP/[12][.][01] ?[0-9+]{0,4} ?[A-Z]{0,3}",
            fields in prop::collection::vec("[ \t]?[A-Za-z:]{0,4}:? ?[a-z\r ,]{0,6}", 0..5),
            end in "\r\n|\n",
        ) {
            let head = std::iter::once(first).chain(fields).map(|line| line + &end).collect::<String>() + &end;
            hold_both(head.as_bytes());
        }
    }
}
