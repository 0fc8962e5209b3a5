//! The second reading, for heads that `httparse` refuses.
//!
//! It reads as servers and dissectors that forgive do: a line ends at LF, white space around names
//! and between the parts of the first line is skipped, a folded value goes on, control octets stay
//! where they are. Every liberty is noted.

use super::{FIELD_LIMIT, Read, line_ends};
use crate::banner::{Anomalies, Anomaly, Header, Headers, Request, Response};

/// Whether a request line (without LF) has no version, and the request so no header: HTTP/0.9.
pub(super) fn is_simple_request(line: &[u8]) -> bool {
    let line = trim_space(line);
    let last = line.rsplit(|octet| is_space(*octet)).next().unwrap_or_default();
    last.len() == line.len() || !is_version(last)
}

/// Reads a whole request head, or one that was cut at the limit.
pub(super) fn request(head: &[u8]) -> Option<Read<Request<'_>>> {
    let mut anomalies = octet_anomalies(head);
    let (line, fields) = split_line(head);
    let text = trim_space(line);
    let method_length = text.iter().position(|octet| is_space(*octet)).unwrap_or(text.len());
    let (method, behind) = text.split_at_checked(method_length)?;
    if method.is_empty() {
        return None;
    }
    let rest = trim_space(behind);
    let last = rest.rsplit(|octet| is_space(*octet)).next().unwrap_or_default();
    let version = if is_version(last) { last } else { &[] };
    let target = trim_space(rest.get(..rest.len() - version.len()).unwrap_or_default());
    let parts: [&[u8]; 3] = [method, target, version];
    let spaced = line.len() != parts.iter().map(|part| part.len()).sum::<usize>() + spaces(parts);
    anomalies.insert_if(spaced || line.contains(&b'\t'), Anomaly::LineSpacing);
    anomalies.insert_if(target.iter().any(|octet| is_space(*octet)), Anomaly::SpaceInTarget);
    anomalies.insert_if(!method.iter().all(|octet| is_token(*octet)), Anomaly::MethodInvalid);
    anomalies.insert_if(version.is_empty(), Anomaly::VersionMissing);
    anomalies.insert_if(!version.is_empty() && unusual(version), Anomaly::VersionUnusual);
    let headers = header_fields(fields, &mut anomalies);
    let message = Request { line, method, url: target, version, headers, body: &[] };
    Some(Read { message, anomalies })
}

/// Reads a whole response head, or one that was cut at the limit.
pub(super) fn response(head: &[u8]) -> Option<Read<Response<'_>>> {
    let mut anomalies = octet_anomalies(head);
    let (line, fields) = split_line(head);
    let text = trim_space(line);
    let version_length = text.iter().position(|octet| is_space(*octet)).unwrap_or(text.len());
    let (version, behind) = text.split_at_checked(version_length)?;
    let rest = trim_space(behind);
    let digits = rest.iter().take_while(|octet| octet.is_ascii_digit()).count();
    let status = digits_value(rest.get(..digits)?)?;
    let reason = trim_space(rest.get(digits..)?);
    anomalies.insert_if(digits != 3, Anomaly::StatusInvalid);
    anomalies.insert_if(unusual(version), Anomaly::VersionUnusual);
    let single =
        line.len() > version_length + 1 && line.get(version_length + 1).is_some_and(u8::is_ascii_digit);
    anomalies.insert_if(!single, Anomaly::LineSpacing);
    let headers = header_fields(fields, &mut anomalies);
    let message = Response { line, version, status, reason, headers, body: &[] };
    Some(Read { message, anomalies })
}

/// The reason phrase of a status line.
pub(super) fn reason_of(line: &[u8]) -> &[u8] {
    let mut parts = line.splitn(3, |octet| *octet == b' ');
    trim_space(parts.nth(2).unwrap_or_default())
}

/// Whether `text` begins, as far as it goes, like a status line.
pub(super) fn could_be_response(text: &[u8]) -> bool {
    [&b"HTTP/"[..], b"ICY "].into_iter().any(|prefix| {
        let length = text.len().min(prefix.len());
        prefix.get(..length).zip(text.get(..length)).is_some_and(|(p, t)| p.eq_ignore_ascii_case(t))
    })
}

/// The first three digits: some clients read no more.
fn digits_value(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() {
        return None;
    }
    Some(digits.iter().take(3).fold(0, |value, digit| value * 10 + u16::from(digit - b'0')))
}

fn spaces(parts: [&[u8]; 3]) -> usize {
    parts.iter().filter(|part| !part.is_empty()).count().saturating_sub(1)
}

fn header_fields<'a>(mut rest: &'a [u8], anomalies: &mut Anomalies) -> Headers<'a> {
    let mut fields: Vec<Header<'a>> = Vec::new();
    while !rest.is_empty() {
        let (line, behind) = split_line(rest);
        if line.is_empty() {
            break;
        }
        if fields.len() == FIELD_LIMIT {
            anomalies.insert(Anomaly::TooManyHeaders);
            break;
        }
        // A folded value goes on: it is one slice, from its first line to its last.
        let (folded, behind) = folded_field(rest, line, behind);
        anomalies.insert_if(folded.len() > line.len(), Anomaly::FoldedHeader);
        anomalies.insert_if(matches!(line.first(), Some(b' ' | b'\t')), Anomaly::LeadingSpace);
        fields.extend(header_field(folded, anomalies));
        rest = behind;
    }
    Headers::new(fields)
}

/// The field at the start of `text` with its continuation lines, and what lies behind them.
fn folded_field<'a>(text: &'a [u8], line: &'a [u8], behind: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let (mut end, mut rest) = (line.len(), behind);
    while matches!(rest.first(), Some(b' ' | b'\t')) {
        let start = text.len() - rest.len();
        let (more, behind) = split_line(rest);
        end = start + more.len();
        rest = behind;
    }
    (text.get(..end).unwrap_or(line), rest)
}

fn header_field<'a>(field: &'a [u8], anomalies: &mut Anomalies) -> Option<Header<'a>> {
    let Some(colon) = memchr::memchr(b':', field) else {
        anomalies.insert(Anomaly::HeaderWithoutColon);
        return None;
    };
    let (sent, value) = (field.get(..colon)?, field.get(colon + 1..)?);
    let name = trim_space(sent);
    anomalies.insert_if(sent.last().is_some_and(|octet| is_space(*octet)), Anomaly::SpaceBeforeColon);
    anomalies
        .insert_if(name.is_empty() || !name.iter().all(|octet| is_token(*octet)), Anomaly::HeaderNameInvalid);
    Some(Header { name, value: trim_space(value) })
}

/// The line at the start of `text` without its line end (LF, or any number of CR before LF), and
/// what lies behind.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let (mut line, behind) = match memchr::memchr(b'\n', text) {
        Some(end) => (text.get(..end).unwrap_or_default(), text.get(end + 1..).unwrap_or_default()),
        None => (text, &[][..]),
    };
    while let Some(shorter) = line.strip_suffix(b"\r") {
        line = shorter;
    }
    (line, behind)
}

fn octet_anomalies(head: &[u8]) -> Anomalies {
    let mut anomalies = line_ends(head);
    anomalies.insert_if(head.contains(&0), Anomaly::NulOctet);
    let control = |octet: &u8| octet.is_ascii_control() && !b"\0\t\r\n".contains(octet);
    anomalies.insert_if(head.iter().any(control), Anomaly::ControlOctet);
    let bare = |at: usize| head.get(at + 1).is_some_and(|&next| next != b'\n');
    anomalies.insert_if(memchr::memchr_iter(b'\r', head).any(bare), Anomaly::BareCarriageReturn);
    anomalies
}

/// Trims what servers skip as white space: space, tab, CR, vertical tab and form feed.
fn trim_space(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

const fn is_space(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// `tchar`, RFC 9110 section 5.6.2.
pub(super) const fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric()
        || matches!(
            octet,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

pub(super) fn is_version(word: &[u8]) -> bool {
    word.get(..5).is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"HTTP/"))
}

fn unusual(version: &[u8]) -> bool {
    !matches!(version, b"HTTP/1.0" | b"HTTP/1.1")
}
