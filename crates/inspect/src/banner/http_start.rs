//! The start of an HTTP message: the white space before it, its methods, and its versions.

use super::protocol_recognition::ProtocolRecognition;

/// Methods that are HTTP even if the request line has no version (HTTP/0.9) or no visible end, ignoring
/// case.
const METHODS: [&[u8]; 9] =
    [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"PATCH"];

/// Other methods that servers accept (above all those that use llhttp): `PROPFIND /xHTTP/1.1` is one's
/// HTTP/0.9.
const OTHER_METHODS: [&[u8]; 37] = [
    b"ACL",
    b"ANNOUNCE",
    b"BIND",
    b"CHECKOUT",
    b"COPY",
    b"DESCRIBE",
    b"FLUSH",
    b"GET_PARAMETER",
    b"LINK",
    b"LOCK",
    b"M-SEARCH",
    b"MERGE",
    b"MKACTIVITY",
    b"MKCALENDAR",
    b"MKCOL",
    b"MOVE",
    b"NOTIFY",
    b"PAUSE",
    b"PLAY",
    b"PRI",
    b"PROPFIND",
    b"PROPPATCH",
    b"PURGE",
    b"QUERY",
    b"REBIND",
    b"RECORD",
    b"REDIRECT",
    b"REPORT",
    b"SEARCH",
    b"SETUP",
    b"SET_PARAMETER",
    b"SOURCE",
    b"SUBSCRIBE",
    b"TEARDOWN",
    b"UNBIND",
    b"UNLINK",
    b"UNLOCK",
];

/// Start of a version, as some server reads it: those that use llhttp also accept `RTSP/1.0`.
const VERSIONS: [&[u8]; 2] = [b"HTTP/", b"RTSP/"];

/// Start of a status line, as some client reads it.
const STATUS_LINES: [&[u8]; 3] = [b"HTTP/", b"ICY ", b"RTSP/"];

/// Number of bytes of empty lines and white space that are skipped before a message.
pub(super) const LEADING_LIMIT: usize = 64 * 1024;

/// Number of bytes of empty lines and white space before a message above which there is an anomaly.
pub const LEADING_USUAL: usize = 256;

/// True if `word` begins like a version.
pub(super) fn is_version(word: &[u8]) -> bool {
    VERSIONS.iter().any(|version| begins_with(word, version))
}

/// True if `method` is a known method of HTTP.
pub(super) fn is_known_method(method: &[u8]) -> bool {
    METHODS.iter().any(|known| known.eq_ignore_ascii_case(method)) || OTHER_METHODS.contains(&method)
}

/// True if `text` begins with a method of [`METHODS`], as far as it goes.
pub(super) fn begins_known_method(text: &[u8]) -> bool {
    let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    METHODS.iter().any(|known| {
        if word.len() < text.len() { known.eq_ignore_ascii_case(word) } else { known.starts_with(word) }
    })
}

/// True if `word` begins with a method of [`METHODS`], followed by a path or by a byte that no word has.
pub(super) fn is_glued_method(word: &[u8]) -> bool {
    let behind = |method: &&[u8]| begins_with(word, method).then(|| word.get(method.len())).flatten();
    METHODS.iter().filter_map(behind).any(|next| *next == b'/' || !next.is_ascii_graphic())
}

/// Returns whether `octets` begin like a status line, as far as they go.
pub(super) fn status_line(octets: &[u8]) -> ProtocolRecognition {
    for prefix in STATUS_LINES {
        let length = octets.len().min(prefix.len());
        if octets
            .get(..length)
            .is_some_and(|start| prefix.get(..length).is_some_and(|p| p.eq_ignore_ascii_case(start)))
        {
            return if length == prefix.len() {
                ProtocolRecognition::Http
            } else {
                ProtocolRecognition::More
            };
        }
    }
    ProtocolRecognition::PerhapsSsh
}

/// True if `text` begins like a status line, as far as it goes.
pub(super) fn could_be_response(text: &[u8]) -> bool {
    status_line(text) != ProtocolRecognition::PerhapsSsh
}

/// Returns the bytes after the empty lines and white space that servers skip before a request line, and
/// clients before a status line.
pub(super) fn skip_leading(octets: &[u8]) -> &[u8] {
    let readable = octets.get(..LEADING_LIMIT).unwrap_or(octets);
    let skip = readable.len() - trim_leading(readable).len();
    octets.get(skip..).unwrap_or_default()
}

pub(super) fn trim_leading(octets: &[u8]) -> &[u8] {
    let skip = octets.iter().position(|octet| !is_space(*octet)).unwrap_or(octets.len());
    octets.get(skip..).unwrap_or_default()
}

pub(super) fn first_word(text: &[u8]) -> &[u8] {
    text.split(|octet| is_space(*octet)).next().unwrap_or_default()
}

pub(super) fn begins_with(word: &[u8], prefix: &[u8]) -> bool {
    word.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// True if some reader takes the byte for a separator of words: `CPython`'s `str.split` of Latin-1
/// accepts most.
pub(super) const fn is_space(octet: u8) -> bool {
    SPACES[octet as usize]
}

/// A table, because each byte of every message's first line is looked up.
static SPACES: [bool; 256] = {
    let mut spaces = [false; 256];
    let mut octet = 0;
    while octet < spaces.len() {
        spaces[octet] = matches!(octet, 0x09..=0x0d | 0x1c..=0x20 | 0x85 | 0xa0);
        octet += 1;
    }
    spaces
};
