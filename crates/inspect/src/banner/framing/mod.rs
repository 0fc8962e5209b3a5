//! Framing of HTTP/1.x messages: finds the exact end of each, RFC 9112 section 6.
//!
//! [`of_request`] and [`of_response`] derive the framing from a head. A [`FramedMessage`] then reads the
//! bytes after it. Engine and scan use the same code, so a response is never matched to the wrong request. If
//! two readers could disagree about the end, the framing is *hostile*: it carries the reason, and the
//! interpretation that most servers choose. The caller decides whether to read on.

mod body_reader;
mod chunked;
mod message;

pub use body_reader::{BodyAdvance, BodyBuffer, BodyReader};
pub use message::FramedMessage;

use super::http::is_token;
use super::message_head::{HttpHeaders, RequestHead, ResponseHead};
use crate::terms::{Anomaly, Side};

/// The kind of data after a message head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// A body of this number of bytes, perhaps none.
    Length(u64),
    /// A body in chunks.
    Chunked,
    /// A body that ends with the connection.
    UntilClose,
    /// Bytes of another connection, after a successful `CONNECT`.
    Tunnel,
    /// Bytes of another protocol, after `101 Switching Protocols`.
    Upgrade,
}

/// A framing, with a reason if another reader could see another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramingResult {
    /// The framing; for a hostile message the most likely one.
    pub framing: BodyFraming,
    /// The reason why the message is not trustworthy.
    pub hostile: Option<Anomaly>,
}

/// Size of the largest accepted chunk, in bytes (1 TiB).
pub const CHUNK_LIMIT: u64 = 1 << 40;

/// Length of the longest chunk-size line without an anomaly, in bytes.
pub const EXTENSION_LIMIT: u32 = 4 * 1024;

/// Length of the longest name of a field that frames a message, in bytes.
const NAME_LIMIT: usize = 32;

/// Largest number of trailer bytes without an anomaly.
pub const TRAILER_LIMIT: u32 = 64 * 1024;

/// Returns the framing of a request.
///
/// A `CONNECT` has no body here: it becomes a tunnel only once the server agrees.
pub fn of_request(request: &RequestHead<'_>) -> FramingResult {
    // HTTP/0.9 has no bodies in requests.
    if request.version.is_empty() {
        return FramingResult { framing: BodyFraming::Length(0), hostile: None };
    }
    let framed = of_fields(&request.headers, request.version, BodyFraming::Length(0), MessageRole::Request);
    // RFC 9110 section 9.3.6: only the tunnel follows a `CONNECT`. But servers that do not support
    // tunnels read on at once.
    let lost = is_connect(request.method) && framed.framing != BodyFraming::Length(0);
    FramingResult { hostile: framed.hostile.or(lost.then_some(Anomaly::FramingLost)), ..framed }
}

/// Returns the framing of a response. `method` is that of the request that it answers, if it was seen.
pub fn of_response(response: &ResponseHead<'_>, method: Option<&[u8]>) -> FramingResult {
    let plain = |framing| FramingResult { framing, hostile: None };
    match response.status {
        SWITCHING => return plain(BodyFraming::Upgrade),
        // RFC 9110 section 9.3.6: any of them grants the tunnel.
        200..=299 if method.is_some_and(is_connect) => {
            // But a server may have taken the method for an ordinary one, whose body follows.
            let framed =
                of_fields(&response.headers, response.version, BodyFraming::Tunnel, MessageRole::Response);
            let lost = !matches!(framed.framing, BodyFraming::Tunnel | BodyFraming::Length(0));
            return FramingResult {
                framing: BodyFraming::Tunnel,
                hostile: lost.then_some(Anomaly::FramingLost),
            };
        }
        100..=199 | 204 | 304 => return plain(BodyFraming::Length(0)),
        _ if method == Some(b"HEAD") => return plain(BodyFraming::Length(0)),
        _ => {}
    }
    of_fields(&response.headers, response.version, BodyFraming::UntilClose, MessageRole::Response)
}

/// The status of a response behind which another protocol begins.
pub const SWITCHING: u16 = 101;

/// True if a request asks for a tunnel. Methods are case-sensitive, but some proxies ignore that.
pub const fn is_connect(method: &[u8]) -> bool {
    method.eq_ignore_ascii_case(b"CONNECT")
}

impl BodyFraming {
    /// True if the bytes after the head are not messages of this connection.
    pub const fn is_foreign(self) -> bool {
        matches!(self, Self::Tunnel | Self::Upgrade)
    }
}

/// True if a field of this name affects the end of a message.
pub fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

/// True if receivers disagree where a message of `from` with this anomaly ends. Servers refuse such a request
/// (RFC 9112 sections 6.3 and 7.1), so a server that accepts it may read on anywhere; all of them read other
/// odd requests alike. Clients refuse less.
pub const fn is_lost(hostile: Anomaly, from: Side) -> bool {
    match hostile {
        Anomaly::ContentLengthConflict
        | Anomaly::ContentLengthInvalid
        | Anomaly::ContentLengthOverflow
        | Anomaly::TransferEncodingInvalid
        | Anomaly::TransferEncodingUnknown
        | Anomaly::FoldedFraming
        | Anomaly::ChunkSizeInvalid
        | Anomaly::ChunkSizeHuge
        | Anomaly::ChunkUnterminated
        | Anomaly::ChunkLineEnd
        | Anomaly::FramingLost => true,
        // Of both a length and chunks, clients take the chunks alike.
        Anomaly::ChunkedBeforeHttp11 => matches!(from, Side::Server),
        _ => false,
    }
}

/// Search of a head for fields that frame the message for some readers and are malformed for others, which
/// have to refuse it (RFC 9112 sections 2.2, 5.1 and 5.2): white space or a control byte around the name, a
/// bare CR before it, a bare LF beside it in a head with CR LF, a value with more than visible ASCII.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisputedFraming {
    found: bool,
    /// A line ended with CR LF.
    has_returns: bool,
    /// The last line ended with LF alone.
    is_behind_bare: bool,
    /// A field that frames the message stands before or behind a bare LF.
    is_beside_bare: bool,
}

impl DisputedFraming {
    /// Searches these lines of the head, with their line ends.
    pub fn search(&mut self, lines: &[u8]) {
        for line in lines.split_inclusive(|octet| *octet == b'\n') {
            let is_bare = !line.ends_with(b"\r\n");
            self.has_returns |= !is_bare;
            if let Some(is_malformed) = framing_field(line) {
                self.found |= is_malformed;
                self.is_beside_bare |= is_bare || self.is_behind_bare;
            }
            self.is_behind_bare = is_bare;
        }
    }

    /// True if there was one.
    pub const fn is_found(self) -> bool {
        self.found || self.has_returns && self.is_beside_bare
    }
}

/// Returns whether a field of this line that frames the message is malformed; none if there is no such field.
fn framing_field(line: &[u8]) -> Option<bool> {
    let end = line.iter().rposition(|octet| !matches!(octet, b'\r' | b'\n')).map_or(0, |last| last + 1);
    let line = line.get(..end).unwrap_or_default();
    let fields = line.split(|octet| *octet == b'\r').enumerate().filter_map(|(returns, piece)| {
        let (name, value) = piece.split_at(memchr::memchr(b':', piece)?);
        let token: Vec<u8> = name.iter().copied().filter(|octet| is_token(*octet)).take(NAME_LIMIT).collect();
        let is_malformed = || {
            returns > 0
                || token.len() < name.len()
                || line.contains(&b'\r')
                || !value.iter().all(|octet| matches!(octet, b'\t' | b' '..=b'~'))
        };
        is_framing(&token).then(is_malformed)
    });
    fields.reduce(|one, other| one || other)
}

/// True if a response only precedes the final one: 1xx but `101`.
pub const fn is_interim(status: u16) -> bool {
    status >= 100 && status < 200 && status != SWITCHING
}

/// True if the sender will keep the connection open behind a message, RFC 9112 section 9.3.
pub fn is_persistent(version: &[u8], headers: &HttpHeaders<'_>) -> bool {
    let option = |wanted: &[u8]| {
        headers
            .all("connection")
            .flat_map(|value| value.split(|&octet| octet == b','))
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    // RFC 9112 section 9.3: HTTP/1.0 closes by default, later versions stay open.
    match version {
        b"HTTP/1.0" => option(b"keep-alive") && !option(b"close"),
        b"" => false,
        _ => !option(b"close"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageRole {
    Request,
    Response,
}

fn of_fields(
    headers: &HttpHeaders<'_>,
    version: &[u8],
    unframed: BodyFraming,
    role: MessageRole,
) -> FramingResult {
    let length = content_length(headers);
    match transfer_encoding(headers) {
        TransferCoding::None => match length {
            None => FramingResult { framing: unframed, hostile: None },
            Some(Ok(length)) => FramingResult { framing: BodyFraming::Length(length), hostile: None },
            Some(Err((guess, reason))) => {
                FramingResult { framing: guess.map_or(unframed, BodyFraming::Length), hostile: Some(reason) }
            }
        },
        coding => FramingResult {
            framing: if coding == TransferCoding::Other { unframed } else { BodyFraming::Chunked },
            hostile: coding_hostility(coding, length.is_some(), version, role),
        },
    }
}

fn coding_hostility(
    coding: TransferCoding,
    has_length: bool,
    version: &[u8],
    role: MessageRole,
) -> Option<Anomaly> {
    match coding {
        TransferCoding::Dubious(reason) => Some(reason),
        _ if has_length => Some(Anomaly::LengthAndChunked),
        TransferCoding::Other if role == MessageRole::Request => Some(Anomaly::TransferEncodingUnknown),
        TransferCoding::Chunked if version == b"HTTP/1.0" => Some(Anomaly::ChunkedBeforeHttp11),
        _ => None,
    }
}

/// The result of the `Transfer-Encoding` fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferCoding {
    /// No coding (or only `identity`, from RFC 2616).
    None,
    /// `chunked` is last, and occurs once.
    Chunked,
    /// Another coding is last.
    Other,
    /// `chunked` occurs in a form that only some servers accept.
    Dubious(Anomaly),
}

fn transfer_encoding(headers: &HttpHeaders<'_>) -> TransferCoding {
    let mut coding = TransferCoding::None;
    for value in headers.all("transfer-encoding") {
        // Readers disagree about folded lines.
        if value.contains(&b'\n') {
            return TransferCoding::Dubious(Anomaly::FoldedFraming);
        }
        for name in value.split(|&octet| octet == b',').map(<[u8]>::trim_ascii) {
            let plain = name.split(|&octet| octet == b';').next().unwrap_or_default().trim_ascii();
            coding = match coding {
                // Nothing may follow the final coding, not even the same coding again.
                TransferCoding::Chunked if !name.is_empty() => {
                    return TransferCoding::Dubious(Anomaly::TransferEncodingInvalid);
                }
                coding if name.is_empty() || plain.eq_ignore_ascii_case(b"identity") => coding,
                _ if name.eq_ignore_ascii_case(b"chunked") => TransferCoding::Chunked,
                _ if looks_chunked(name) => {
                    return TransferCoding::Dubious(Anomaly::TransferEncodingInvalid);
                }
                _ => TransferCoding::Other,
            };
        }
    }
    coding
}

/// True if `chunked` occurs in a coding that is not exactly that.
fn looks_chunked(name: &[u8]) -> bool {
    name.windows(b"chunked".len()).any(|part| part.eq_ignore_ascii_case(b"chunked"))
}

type Length = Result<u64, (Option<u64>, Anomaly)>;

/// Returns the length on which the fields agree, or the most likely one with the anomaly.
fn content_length(headers: &HttpHeaders<'_>) -> Option<Length> {
    let mut agreed: Option<u64> = None;
    let mut seen = false;
    for value in headers.all("content-length") {
        seen = true;
        if value.contains(&b'\n') {
            return Some(Err((agreed, Anomaly::FoldedFraming)));
        }
        // A proxy joins repeated fields into a list of equal values, RFC 9110 section 8.6.
        for part in value.split(|&octet| octet == b',').map(<[u8]>::trim_ascii) {
            let length = match decimal(part) {
                Ok(length) => length,
                Err(reason) => return Some(Err((agreed, reason))),
            };
            if agreed.is_some_and(|other| other != length) {
                return Some(Err((agreed, Anomaly::ContentLengthConflict)));
            }
            agreed = Some(length);
        }
    }
    seen.then(|| agreed.ok_or((None, Anomaly::ContentLengthInvalid)))
}

fn decimal(digits: &[u8]) -> Result<u64, Anomaly> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Anomaly::ContentLengthInvalid);
    }
    let value = digits
        .iter()
        .try_fold(0_i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
    value.and_then(|value| u64::try_from(value).ok()).ok_or(Anomaly::ContentLengthOverflow)
}

#[cfg(test)]
mod tests;
