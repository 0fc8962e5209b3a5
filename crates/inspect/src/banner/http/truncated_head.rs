//! Incomplete heads: the sender closed before the end, or the capture lacks it.
//!
//! Clients accept a response whose head ends with the connection, so it must be judged. Only complete
//! lines count: half a value would be wrong.

use super::{ParsedHead, lenient};
use crate::banner::http_start::{could_be_response, is_known_method, skip_leading};
use crate::banner::message_head::{HttpHeaders, RequestHead, ResponseHead};
use crate::banner::protocol_recognition::ProtocolRecognition;
use crate::banner::recognise;
use crate::terms::AnomalySet as Anomalies;
use crate::terms::{Anomaly, Side};

/// Parses the known part of a request head; of an incomplete first line, method and target.
///
/// If the sender has `ended` there, the last line counts although it has no end: servers accept it, too.
pub fn parse_unfinished_request(collected: &[u8], ended: bool) -> Option<ParsedHead<RequestHead<'_>>> {
    let text = skip_leading(collected);
    match whole_lines(text).map(|lines| if ended { text } else { lines }) {
        Some(_) if recognise(Side::Client, text) != ProtocolRecognition::Http => None,
        Some(head) => lenient::request(head).map(noted),
        None => cut_request_line(text),
    }
}

/// Parses the known part of a response head; it needs at least a status.
///
/// If the sender has `ended` there, the last line counts although it has no end: clients accept it, too.
pub fn parse_unfinished_response(collected: &[u8], ended: bool) -> Option<ParsedHead<ResponseHead<'_>>> {
    let text = skip_leading(collected);
    let head = whole_lines(text).filter(|_| !ended).unwrap_or(text);
    let read = if could_be_response(head) { lenient::response(head) } else { None };
    // A status that is cut may be incomplete.
    read.filter(|read| ended || !read.anomalies.contains(Anomaly::StatusInvalid)).map(noted)
}

fn noted<T>(mut read: ParsedHead<T>) -> ParsedHead<T> {
    read.anomalies.insert(Anomaly::UnfinishedHead);
    read
}

fn whole_lines(text: &[u8]) -> Option<&[u8]> {
    let end = memchr::memrchr(b'\n', text)?;
    text.get(..=end)
}

fn cut_request_line(line: &[u8]) -> Option<ParsedHead<RequestHead<'_>>> {
    let space = line.iter().position(|octet| *octet == b' ')?;
    let (method, behind) = line.split_at_checked(space)?;
    let rest = behind.trim_ascii();
    let last = rest.rsplit(|octet| *octet == b' ').next().unwrap_or_default();
    let (target, version) = match rest.len() - last.len() {
        // The last word may belong to the target, or be a part of the version.
        0 => (rest, &[][..]),
        before if lenient::is_version(last) => (rest.get(..before)?, last),
        before if b"HTTP/".starts_with(last) => (rest.get(..before)?, &[][..]),
        _ => (rest, &[][..]),
    };
    let url = target.trim_ascii();
    if url.is_empty() || !is_known_method(method) {
        return None;
    }
    let headers = HttpHeaders::new(Vec::new());
    let message = RequestHead { line, method, url, version, headers, body: &[] };
    Some(noted(ParsedHead { message, anomalies: Anomalies::NONE }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_of_an_unfinished_request_are_read() {
        for (octets, url, version, host) in [
            (&b"GET /a HTTP/1.1\r\nHost: h\r\nAccept: te"[..], &b"/a"[..], &b"HTTP/1.1"[..], Some(&b"h"[..])),
            (b"GET /a HTTP/1.1\r\nHost: h.exa", b"/a", b"HTTP/1.1", None),
            (b"GET /a HTTP/1.1", b"/a", b"HTTP/1.1", None),
            (b"GET /a/b HTT", b"/a/b", b"", None),
            (b"\r\nGET /a/b", b"/a/b", b"", None),
        ] {
            let shown = octets.escape_ascii();
            let Some(read) = parse_unfinished_request(octets, false) else { panic!("{shown}") };
            assert_eq!((read.message.url, read.message.version), (url, version), "{shown}");
            assert_eq!(read.message.headers.first("host"), host, "{shown}");
            assert!(read.anomalies.contains(Anomaly::UnfinishedHead), "{shown}");
        }
    }

    #[test]
    fn whole_lines_of_an_unfinished_response_are_read() {
        for (octets, server) in [
            (&b"HTTP/1.1 200 OK\r\nServer: Apache/2.2\r\nX: y"[..], Some(&b"Apache/2.2"[..])),
            (b"HTTP/1.1 200 OK\r\nServer: Apache/2", None),
            (b"HTTP/1.1 200", None),
        ] {
            let shown = octets.escape_ascii();
            let Some(read) = parse_unfinished_response(octets, false) else { panic!("{shown}") };
            assert_eq!(read.message.status, 200);
            assert_eq!(read.message.headers.first("server"), server, "{shown}");
        }
    }

    #[test]
    fn too_little_says_nothing() {
        for octets in [&b""[..], b"GET", b"GET ", b"POSTING /a", b"BREW /pot", b"EHLO h\r\n", b"\x16\x03\x01"]
        {
            assert_eq!(parse_unfinished_request(octets, false), None, "{}", octets.escape_ascii());
        }
        for octets in [&b""[..], b"HTTP/1.1", b"HTTP/1.1 20", b"220 mail", b"HTTP/1.1 OK\r\n"] {
            assert_eq!(parse_unfinished_response(octets, false), None, "{}", octets.escape_ascii());
        }
    }
}
