//! Recognition of a stream's protocol by its first bytes, never by its port.

pub use super::http_start::LEADING_USUAL;
use super::http_start::{
    LEADING_LIMIT, begins_known_method, begins_with, first_word, is_glued_method, is_known_method, is_space,
    is_version, skip_leading, status_line, trim_leading,
};
use super::parse_progress::ParseProgress;
use super::protocol_recognition::ProtocolRecognition;
use super::{http, socks, ssh};
use crate::terms::Side;

/// Length of the longest accepted method, in bytes.
const LONGEST_METHOD: usize = 64;

/// Length of the longest accepted first line, in bytes: `CPython` reads 64 KiB, others more. It is
/// shorter than the part of the longest packet that a queue copies, so one such packet is enough.
pub const FIRST_LINE_LIMIT: usize = 65_400;

/// Recognizes the protocol of the bytes that `from` has sent from the start of its stream.
pub fn recognise(from: Side, octets: &[u8]) -> ProtocolRecognition {
    if octets.starts_with(ssh::PREFIX) {
        return ProtocolRecognition::Ssh;
    }
    if ssh::PREFIX.starts_with(octets) {
        return ProtocolRecognition::More;
    }
    match from {
        Side::Client => client(octets),
        Side::Server => server(octets),
    }
}

fn client(octets: &[u8]) -> ProtocolRecognition {
    if let Some(4 | 5) = octets.first() {
        match socks::handshake(Side::Client, octets) {
            ParseProgress::More => return ProtocolRecognition::More,
            ParseProgress::Done { .. } => return ProtocolRecognition::Relayed,
            ParseProgress::Never(_) => {}
        }
    }
    request(octets)
}

/// Returns whether the bytes begin a request.
fn request(octets: &[u8]) -> ProtocolRecognition {
    let text = skip_leading(octets);
    let readable = text.get(..FIRST_LINE_LIMIT).unwrap_or(text);
    match memchr::memchr(b'\n', readable) {
        Some(end) if is_request_line(readable.get(..end).unwrap_or_default()) => ProtocolRecognition::Http,
        Some(_) => ProtocolRecognition::PerhapsSsh,
        None if readable.len() < FIRST_LINE_LIMIT => ProtocolRecognition::More,
        None if is_known_method(first_word(readable)) => ProtocolRecognition::Http,
        None => ProtocolRecognition::PerhapsSsh,
    }
}

/// True if some server takes this line (without LF) for a request line. One of these is enough: a later
/// word is a version (Twisted finds one in `GET/x HTTP/ 1.1`); the first word is a known method; the
/// second of three words is a path; the first word is a known method glued to its target (Twisted
/// requires only three words).
///
/// Servers differ about what separates words and what a word may hold, so neither is tested.
pub fn is_request_line(line: &[u8]) -> bool {
    let line = trim_leading(line);
    let end = line.iter().rposition(|octet| !is_space(*octet)).map_or(0, |last| last + 1);
    let line = line.get(..end).unwrap_or_default();
    let first = first_word(line);
    if first.len() == line.len() {
        return false;
    }
    let last = line.rsplit(|octet| is_space(*octet)).next().unwrap_or_default();
    let foreign = [&b"SIP/"[..], b"ICAP/"].iter().any(|prefix| last.starts_with(prefix));
    let mut words = line.split(|octet| is_space(*octet)).skip(1);
    let versioned = words.clone().any(is_version);
    let path = words.next().is_some_and(|word| word.starts_with(b"/"));
    let three = words.next().is_some() && (path || is_glued_method(first));
    versioned || ((is_known_method(first) || three) && !foreign)
}

/// True if a line (without LF) is a request line by RFC 9112 section 3 or RFC 1945 section 5, with any
/// number of spaces between its parts. Streams of other protocols do not hold one by chance.
pub fn is_plain_request_line(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = |octet: &u8| matches!(octet, b'\t' | b' '..=b'~' | 0x80..);
    let mut words = line.split(|octet| matches!(octet, b' ' | b'\t')).filter(|word| !word.is_empty());
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return false };
    if !line.iter().all(text) || !method.iter().all(|octet| http::is_token(*octet)) {
        return false;
    }
    match words.next_back() {
        Some(version) => begins_with(version, b"HTTP/"),
        None => is_known_method(method) && target.starts_with(b"/"),
    }
}

/// True if `text`, which is incomplete, may become such a line.
pub fn may_become_plain_request(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let readable = text.get(..LONGEST_METHOD).unwrap_or(text);
    if !readable.iter().all(|octet| matches!(octet, b'\t' | b'\r' | b'\n' | b' '..=b'~')) {
        return false;
    }
    let word = text.split(|octet| matches!(octet, b' ' | b'\t')).next().unwrap_or_default();
    !word.is_empty() && word.len() <= LONGEST_METHOD && word.iter().all(|octet| http::is_token(*octet))
}

/// Search for the first word of a client that has sent no line end yet: a request begins with a word of
/// letters. Each byte is inspected once.
#[derive(Debug, Clone, Default)]
pub struct FirstWord {
    seen: usize,
    stands: FirstWordState,
}

/// State of the first word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FirstWordState {
    /// Only white space so far.
    #[default]
    Before,
    Within,
    Ended,
    /// It contains a byte that no word has.
    Broken,
}

impl FirstWord {
    /// Inspects the new bytes in `octets`, which are all that the client has sent. True if they may
    /// become a request.
    pub fn may_become_request(&mut self, octets: &[u8]) -> bool {
        let new = octets.get(self.seen..).unwrap_or_default();
        self.seen = octets.len();
        for octet in new {
            self.stands = match self.stands {
                FirstWordState::Before if is_space(*octet) => FirstWordState::Before,
                FirstWordState::Within if is_space(*octet) => FirstWordState::Ended,
                FirstWordState::Before | FirstWordState::Within if octet.is_ascii_graphic() => {
                    FirstWordState::Within
                }
                FirstWordState::Before | FirstWordState::Within => FirstWordState::Broken,
                FirstWordState::Ended | FirstWordState::Broken => break,
            };
            http::count_steps(1);
        }
        self.stands != FirstWordState::Broken
    }
}

/// The bytes at a position where an HTTP message may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageStart {
    /// A message, as far as is known.
    Message,
    /// Too few bytes to decide.
    More,
    /// This number of bytes begin no message: a line, or all that there are.
    Other(usize),
}

/// Returns the kind of bytes between two messages of `from`. If they are not `contiguous`, bytes before
/// them are missing, so they may be the middle of anything.
pub fn beginning(from: Side, octets: &[u8], contiguous: bool) -> MessageStart {
    let text = skip_leading(octets);
    if text.is_empty() {
        // White space other than empty lines is an anomaly of the next message.
        let spaced = http::is_spaced(octets) && octets.len() < LEADING_LIMIT;
        return if contiguous && spaced { MessageStart::More } else { MessageStart::Other(octets.len()) };
    }
    let line = memchr::memchr(b'\n', text).map(|end| octets.len() - text.len() + end + 1);
    let other = MessageStart::Other(line.unwrap_or(octets.len()));
    match from {
        Side::Server => match status_line(text) {
            ProtocolRecognition::Http => MessageStart::Message,
            ProtocolRecognition::More => MessageStart::More,
            _ => other,
        },
        Side::Client => match request(text) {
            ProtocolRecognition::Http => MessageStart::Message,
            ProtocolRecognition::More if contiguous || begins_known_method(text) => MessageStart::More,
            _ => other,
        },
    }
}

/// Number of bytes of complete empty lines, with or without white space in them, at the start of
/// `octets`.
pub fn empty_lines(octets: &[u8]) -> usize {
    let blank = octets.len() - trim_leading(octets).len();
    let blank = octets.get(..blank).unwrap_or_default();
    memchr::memrchr(b'\n', blank).map_or(0, |end| end + 1)
}

fn server(octets: &[u8]) -> ProtocolRecognition {
    status_line(skip_leading(octets))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_first_word_is_the_same_however_it_comes(
            octets in proptest::collection::vec(
                proptest::sample::select(b" \n\x01aZ/\xa0".as_slice()), 0..12),
            cuts in proptest::collection::vec(0..12_usize, 0..4),
        ) {
            let text = skip_leading(&octets);
            let word = first_word(text);
            let whole = text.is_empty() || word.iter().all(u8::is_ascii_graphic);
            let mut first = FirstWord::default();
            let mut cuts = cuts;
            cuts.sort_unstable();
            for cut in cuts {
                first.may_become_request(octets.get(..cut).unwrap_or(&octets));
            }
            prop_assert_eq!(first.may_become_request(&octets), whole);
        }
    }

    #[test]
    fn protocols_are_told_by_their_octets() {
        for (from, octets, expected) in [
            (Side::Client, &b"SSH-2.0-x\r\n"[..], ProtocolRecognition::Ssh),
            (Side::Server, b"SSH-", ProtocolRecognition::Ssh),
            (Side::Server, b"SS", ProtocolRecognition::More),
            (Side::Server, b"", ProtocolRecognition::More),
            (Side::Server, b"HTTP/1.1 200 OK\r\n", ProtocolRecognition::Http),
            (Side::Server, b"http/1.0 200", ProtocolRecognition::Http),
            (Side::Server, b"ICY 200 OK\r\n", ProtocolRecognition::Http),
            (Side::Server, b"HTT", ProtocolRecognition::More),
            (Side::Server, b"220 mail ESMTP\r\n", ProtocolRecognition::PerhapsSsh),
            (Side::Server, b"220 mail", ProtocolRecognition::PerhapsSsh),
            (Side::Server, b" \r\n HTTP/1.1 200 OK", ProtocolRecognition::Http),
            (Side::Server, b"RTSP/1.0 200 OK", ProtocolRecognition::Http),
            (Side::Server, b"\x16\x03\x01", ProtocolRecognition::PerhapsSsh),
            (Side::Client, b"GET /", ProtocolRecognition::More),
            (Side::Client, b"GET /\r\n", ProtocolRecognition::Http),
            (Side::Client, b"get / HTTP/1.0\n", ProtocolRecognition::Http),
            (Side::Client, b"OPTIONS rtsp://x RTSP/1.0\r\n", ProtocolRecognition::Http),
            (Side::Client, b"OPTIONS sip:x SIP/2.0\r\n", ProtocolRecognition::PerhapsSsh),
            (Side::Client, b"GE", ProtocolRecognition::More),
            (Side::Client, b"\r\n\r\nPOST / HTTP/1.0\r\n", ProtocolRecognition::Http),
            (Side::Client, b"BREW /pot HTCPCP/1.0\r\n", ProtocolRecognition::Http),
            (Side::Client, b"BREW /pot HTTP/1.0\r\n", ProtocolRecognition::Http),
            (Side::Client, b"BREW /pot", ProtocolRecognition::More),
            (Side::Client, b"EHLO example\r\n", ProtocolRecognition::PerhapsSsh),
            (Side::Client, b"\x05\x01\x00", ProtocolRecognition::More),
            (
                Side::Client,
                b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50",
                ProtocolRecognition::Relayed,
            ),
            (Side::Client, b"\x05\x00\x0b\x03", ProtocolRecognition::More),
            (Side::Client, b"\x16\x03\x01\x02\x00\x01", ProtocolRecognition::More),
        ] {
            assert_eq!(recognise(from, octets), expected, "{from:?} {:?}", octets.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_message_is_told_from_what_stands_between_messages() {
        use MessageStart::{Message, More, Other};
        for (from, octets, whole, behind_gap) in [
            (Side::Client, &b"GET /"[..], More, More),
            (Side::Client, b"\r\nGET / HTTP/1.1\r\n", Message, Message),
            (Side::Client, b"BREW /", More, Other(6)),
            (Side::Client, b"BREW / HTTP/1.1\r\n", Message, Message),
            (Side::Client, b"name=value", More, Other(10)),
            (Side::Client, b"--B\r\nX: y\r\n", Other(5), Other(5)),
            (Side::Client, b"\r\n", Other(2), Other(2)),
            (Side::Client, b"\r\n\x0c", More, Other(3)),
            (Side::Client, b"P", More, More),
            (Side::Client, b"\0\0", More, Other(2)),
            (Side::Client, b"\x05/ HTTP/1.1\n", Message, Message),
            (Side::Server, b"HT", More, More),
            (Side::Server, b"\nhttp/1.1 200 OK\n", Message, Message),
            (Side::Server, b"rest of a body", Other(14), Other(14)),
            (Side::Server, b"rest\nHTTP/1.1 200 OK\n", Other(5), Other(5)),
        ] {
            let shown = octets.escape_ascii().to_string();
            assert_eq!(beginning(from, octets, true), whole, "{from:?} {shown}");
            assert_eq!(beginning(from, octets, false), behind_gap, "{from:?} {shown}");
        }
    }

    #[test]
    fn a_request_line_is_what_some_server_takes_for_one() {
        let long = [&[b'M'; 300], &b" / HTTP/1.1"[..]].concat();
        for line in [
            &b"BREW /\x01 HTTP/1.1"[..],
            b"BREW / HTTP/1.1\x0c",
            b"GET\x0b/\x85HTTP/1.1",
            b"\xa0GET / HTTP/1.1",
            b"GET / RTSP/1.0",
            b"PROPFIND /xHTTP/1.1",
            b"PRI * HTTP/2.0",
            b"PRI /HTTP/1.1",
            b"BREW / #",
            b"GET/x HTTP/ 1.1",
            b"GET/x HTTP /1.1",
            b"GET\0/x HTTP /1.1",
            &long,
        ] {
            assert!(is_request_line(line), "{}", line.escape_ascii());
        }
        for line in [
            &b"EHLO example"[..],
            b"GET/x HTTP",
            b"get-set and go",
            b"OPTIONS sip:x SIP/2.0",
            b"GET",
            b"HTTP/1.1",
            b"",
            b"\x16\x03\x01 x",
        ] {
            assert!(!is_request_line(line), "{}", line.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = recognise(Side::Client, &octets);
            let _ = recognise(Side::Server, &octets);
            for (from, contiguous) in [(Side::Client, true), (Side::Client, false), (Side::Server, true)] {
                if let MessageStart::Other(count) = beginning(from, &octets, contiguous) {
                    prop_assert!(count <= octets.len() && (count > 0 || octets.is_empty()));
                }
            }
        }

        #[test]
        fn more_octets_never_change_a_decision(text in "[A-Z]{1,12} [ -~\r\n]{0,60}", cut in 0_usize..60) {
            for from in [Side::Client, Side::Server] {
                let whole = recognise(from, text.as_bytes());
                let part = recognise(from, &text.as_bytes()[..cut.min(text.len())]);
                prop_assert!(part == ProtocolRecognition::More || part == whole, "{:?} {:?}", part, whole);
            }
        }
    }
}
