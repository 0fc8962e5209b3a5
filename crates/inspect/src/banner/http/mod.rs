//! HTTP/1.x message heads, RFC 9112: request lines, status lines, header fields.
//!
//! A complete head is first read by `httparse`. A head that `httparse` refuses is read a second time,
//! like common servers and dissectors would (see `http/lenient.rs`), and the anomalies are recorded. An
//! inspector that gave up there could be evaded with one odd byte.
//!
//! A head that will never end is read as far as it came (see `http/truncated_head.rs`). This module reads
//! heads only; [`super::framing`] finds the end of the body.

mod lenient;
mod line_search;
mod partial_head;
mod stored_head;
mod truncated_head;

pub use line_search::{HeadLine, HeadSearch};
pub use partial_head::{part_of_request, part_of_response};
pub use stored_head::KeptHead;
pub use truncated_head::{parse_unfinished_request, parse_unfinished_response};

use super::http_start::{LEADING_LIMIT, LEADING_USUAL, could_be_response, skip_leading};
use super::message_head::{HttpHeader, HttpHeaders, RequestHead, ResponseHead};
use super::parse_progress::{ParseProgress, ParseRejection};
use crate::terms::Anomaly;
use crate::terms::AnomalySet as Anomalies;

/// Length of the longest head that is read, in bytes. Of a longer one, the complete lines within this
/// limit are read, with [`Anomaly::HeadTooLong`].
pub const HEAD_LIMIT: usize = 64 * 1024;

/// Number of header fields in one head above which there is an anomaly.
pub const FIELD_LIMIT: usize = 2048;

/// Number of header fields for which `httparse` gets memory; heads with more are read by the lenient
/// parser.
const USUAL_FIELDS: usize = 96;

/// A parsed message head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedHead<T> {
    /// The head; its `body` is empty.
    pub message: T,
    /// The anomalies of the head.
    pub anomalies: Anomalies,
}

/// Parses the request head at the start of `collected`.
///
/// Empty lines before it are skipped (RFC 9112 section 2.2). A request line without a version is a
/// complete HTTP/0.9 request.
pub fn parse_request(collected: &[u8]) -> ParseProgress<ParsedHead<RequestHead<'_>>> {
    let text = skip_leading(collected);
    let skipped = collected.len() - text.len();
    if text.is_empty() {
        return if skipped < LEADING_LIMIT {
            ParseProgress::More
        } else {
            ParseProgress::Never(ParseRejection::NotARequest)
        };
    }
    let extent = match HeadExtent::of_request(text) {
        Ok(Some(extent)) => extent,
        Ok(None) => return ParseProgress::More,
        Err(reason) => return ParseProgress::Never(reason),
    };
    let head = text.get(..extent.length).unwrap_or(text);
    // httparse refuses an incomplete head, so a cut one goes to the lenient parser at once.
    let mut read = if extent.cut { None } else { strict_request(head) }
        .or_else(|| lenient::request(head))
        .ok_or(ParseRejection::NotARequest);
    if let Ok(read) = &mut read {
        let leading = collected.get(..skipped).unwrap_or_default();
        read.anomalies.insert_if(is_spaced(leading), Anomaly::LeadingSpace);
        read.anomalies.insert_if(skipped > LEADING_USUAL, Anomaly::LongLeading);
        read.anomalies.insert_if(extent.cut, Anomaly::HeadTooLong);
        read.anomalies.insert_if(hosts_disagree(&read.message.headers), Anomaly::HostConflict);
    }
    finish(read, skipped + extent.length)
}

/// Parses the response head at the start of `collected`.
pub fn parse_response(collected: &[u8]) -> ParseProgress<ParsedHead<ResponseHead<'_>>> {
    let text = skip_leading(collected);
    let skipped = collected.len() - text.len();
    if text.is_empty() {
        return if skipped < LEADING_LIMIT {
            ParseProgress::More
        } else {
            ParseProgress::Never(ParseRejection::NotAResponse)
        };
    }
    if !could_be_response(text) {
        return ParseProgress::Never(ParseRejection::NotAResponse);
    }
    let Some(extent) = HeadExtent::of(text) else { return ParseProgress::More };
    let head = text.get(..extent.length).unwrap_or(text);
    let mut read = if extent.cut { None } else { strict_response(head) }
        .or_else(|| lenient::response(head))
        .ok_or(ParseRejection::NotAResponse);
    if let Ok(read) = &mut read {
        let leading = collected.get(..skipped).unwrap_or_default();
        read.anomalies.insert_if(is_spaced(leading), Anomaly::LeadingSpace);
        read.anomalies.insert_if(skipped > LEADING_USUAL, Anomaly::LongLeading);
        read.anomalies.insert_if(extent.cut, Anomaly::HeadTooLong);
    }
    finish(read, skipped + extent.length)
}

/// True if the bytes that are skipped before a message hold more than line ends.
pub fn is_spaced(leading: &[u8]) -> bool {
    leading.iter().any(|octet| !matches!(octet, b'\r' | b'\n'))
}

fn finish<T>(read: Result<T, ParseRejection>, consumed: usize) -> ParseProgress<T> {
    match read {
        Ok(value) => ParseProgress::Done { value, consumed },
        Err(reason) => ParseProgress::Never(reason),
    }
}

/// Counts inspected bytes in tests: the work must be bounded by the new bytes.
pub fn count_steps(octets: usize) {
    line_search::steps::count(octets);
}

/// Returns the number of bytes inspected since the last call.
#[cfg(test)]
pub fn take_steps() -> usize {
    line_search::steps::take()
}

/// True if a request line has no version, so that some servers read no header: HTTP/0.9.
pub fn is_simple_request(line: &[u8]) -> bool {
    lenient::is_simple_request(line)
}

/// True if a byte is allowed in a token: `tchar`, RFC 9110 section 5.6.2.
pub const fn is_token(octet: u8) -> bool {
    lenient::is_token(octet)
}

/// Returns the fields in a line, as read by applications that take a bare CR for a line end.
pub fn fields_of_line(line: &[u8]) -> impl Iterator<Item = HttpHeader<'_>> {
    lenient::fields_of_line(line)
}

/// Returns the field in a line (without its end) whose name is a token directly before the colon.
pub fn field_of_line(line: &[u8]) -> Option<HttpHeader<'_>> {
    let colon = memchr::memchr(b':', line)?;
    let (name, value) = line.split_at_checked(colon)?;
    let token = !name.is_empty() && name.iter().all(|octet| lenient::is_token(*octet));
    token.then(|| HttpHeader { name, value: lenient::trim_value(value.get(1..).unwrap_or_default()) })
}

/// Extent of a head.
struct HeadExtent {
    /// Number of bytes, with the empty line.
    length: usize,
    /// True if the limit came before the empty line.
    cut: bool,
}

impl HeadExtent {
    fn of(text: &[u8]) -> Option<Self> {
        let readable = text.get(..HEAD_LIMIT).unwrap_or(text);
        match head_end(readable) {
            Some(length) => Some(Self { length, cut: false }),
            None if text.len() >= HEAD_LIMIT => Some(Self { length: HEAD_LIMIT, cut: true }),
            None => None,
        }
    }

    fn of_request(text: &[u8]) -> Result<Option<Self>, ParseRejection> {
        let Some(line_end) = memchr::memchr(b'\n', text.get(..HEAD_LIMIT).unwrap_or(text)) else {
            return Ok(Self::of(text));
        };
        let line = text.get(..line_end).unwrap_or_default();
        if lenient::is_simple_request(line) {
            return Ok(Some(Self { length: line_end + 1, cut: false }));
        }
        let extent = Self::of(text);
        // Only an empty line follows: LF or CR LF.
        let is_whole = |extent: &Self| extent.length == line_end + 2 || extent.length == line_end + 3;
        // With header fields, it is a request like any other: Go's server answers it.
        if line.starts_with(b"PRI * HTTP/2") && extent.as_ref().is_some_and(is_whole) {
            return Err(ParseRejection::Http2Preface);
        }
        Ok(extent)
    }
}

/// Returns the length of the head with its empty line: up to the first LF that another LF follows, with
/// nothing but CR between.
fn head_end(text: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', text).find_map(|at| {
        let behind = text.get(at + 1..)?;
        let returns = behind.iter().take_while(|octet| **octet == b'\r').count();
        (behind.get(returns) == Some(&b'\n')).then_some(at + returns + 2)
    })
}

fn strict_request(head: &[u8]) -> Option<ParsedHead<RequestHead<'_>>> {
    let mut fields = [httparse::EMPTY_HEADER; USUAL_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(head) else { return None };
    if length != head.len() {
        return None;
    }
    let version = version_name(parsed.version?);
    let line = first_line(head);
    let message = RequestHead {
        line,
        method: parsed.method?.as_bytes(),
        url: parsed.path?.as_bytes(),
        version,
        headers: headers(parsed.headers),
        body: &[],
    };
    Some(ParsedHead { message, anomalies: line_ends(head) })
}

fn strict_response(head: &[u8]) -> Option<ParsedHead<ResponseHead<'_>>> {
    let mut fields = [httparse::EMPTY_HEADER; USUAL_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(head) else { return None };
    if length != head.len() {
        return None;
    }
    let line = first_line(head);
    let message = ResponseHead {
        line,
        version: version_name(parsed.version?),
        status: parsed.code?,
        reason: lenient::reason_of(line),
        headers: headers(parsed.headers),
        body: &[],
    };
    Some(ParsedHead { message, anomalies: line_ends(head) })
}

const fn version_name(minor: u8) -> &'static [u8] {
    if minor == 0 { b"HTTP/1.0" } else { b"HTTP/1.1" }
}

fn headers<'a>(fields: &[httparse::Header<'a>]) -> HttpHeaders<'a> {
    let field = |field: &httparse::Header<'a>| HttpHeader {
        name: field.name.as_bytes(),
        value: lenient::trim_value(field.value),
    };
    HttpHeaders::new(fields.iter().map(field).collect())
}

fn first_line(head: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\n', head).unwrap_or(head.len());
    let line = head.get(..end).unwrap_or(head);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Records line ends of two kinds in one head; RFC 9112 section 2.2 allows LF alone throughout.
fn line_ends(head: &[u8]) -> Anomalies {
    let mut anomalies = Anomalies::NONE;
    let (mut bare, mut full) = (false, false);
    for at in memchr::memchr_iter(b'\n', head) {
        let carriage_return = at.checked_sub(1).and_then(|before| head.get(before)) == Some(&b'\r');
        if carriage_return { full = true } else { bare = true }
    }
    anomalies.insert_if(bare && full, Anomaly::MixedLineEnds);
    anomalies
}

fn hosts_disagree(headers: &HttpHeaders<'_>) -> bool {
    let mut hosts = headers.all("host");
    let first = hosts.next();
    hosts.any(|host| Some(host) != first)
}

#[cfg(test)]
mod tests;
