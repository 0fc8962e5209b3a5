//! The lenient parser, for heads that `httparse` refuses.
//!
//! It reads as tolerant servers and dissectors do. LF ends a line; white space around names and between
//! the parts of the first line is skipped; a folded value continues; control bytes stay. It records an
//! anomaly for each deviation.

use super::{FIELD_LIMIT, ParsedHead, line_ends};
pub(super) use crate::banner::http_start::{is_space, is_version};
use crate::banner::message_head::{HttpHeader, HttpHeaders, RequestHead, ResponseHead};
use crate::terms::Anomaly;
use crate::terms::AnomalySet as Anomalies;

/// True if a request line (without LF) has no version, so that the request has no header: HTTP/0.9.
pub(super) fn is_simple_request(line: &[u8]) -> bool {
    let line = trim_space(line);
    let last = last_word(line);
    last.len() == line.len() || !is_version(last)
}

/// Reads a complete request head, or one that was cut at the limit.
pub(super) fn request(head: &[u8]) -> Option<ParsedHead<RequestHead<'_>>> {
    let mut anomalies = octet_anomalies(head);
    let (line, fields) = split_line(head);
    let text = trim_space(line);
    let method_length = text.iter().position(|octet| is_space(*octet)).unwrap_or(text.len());
    let (method, behind) = text.split_at_checked(method_length)?;
    if method.is_empty() {
        return None;
    }
    let rest = trim_space(behind);
    let last = last_word(rest);
    let version = if is_version(last) { last } else { &[] };
    let target = trim_space(rest.get(..rest.len() - version.len()).unwrap_or_default());
    let parts: [&[u8]; 3] = [method, target, version];
    let plain = line.len() == parts.iter().map(|part| part.len()).sum::<usize>() + spaces(parts);
    let only_spaces = || line.iter().all(|octet| *octet == b' ' || !octet.is_ascii() || !is_space(*octet));
    anomalies.insert_if(!plain || !only_spaces(), Anomaly::LineSpacing);
    anomalies
        .insert_if(target.iter().any(|octet| octet.is_ascii() && is_space(*octet)), Anomaly::SpaceInTarget);
    anomalies.insert_if(!method.iter().all(|octet| is_token(*octet)), Anomaly::MethodInvalid);
    anomalies.insert_if(version.is_empty(), Anomaly::VersionMissing);
    anomalies.insert_if(!version.is_empty() && unusual(version), Anomaly::VersionUnusual);
    let headers = header_fields(fields, &mut anomalies);
    let message = RequestHead { line, method, url: target, version, headers, body: &[] };
    Some(ParsedHead { message, anomalies })
}

fn last_word(line: &[u8]) -> &[u8] {
    line.rsplit(|octet| is_space(*octet)).next().unwrap_or_default()
}

/// Reads a complete response head, or one that was cut at the limit.
pub(super) fn response(head: &[u8]) -> Option<ParsedHead<ResponseHead<'_>>> {
    let mut anomalies = octet_anomalies(head);
    let (line, fields) = split_line(head);
    let text = trim_space(line);
    let version_length = text.iter().position(|octet| is_space(*octet)).unwrap_or(text.len());
    let (version, behind) = text.split_at_checked(version_length)?;
    let rest = trim_space(behind);
    // Some clients accept `+` and `_` in numbers, as Python does.
    let digits = rest.iter().take_while(|octet| octet.is_ascii_digit() || b"+_".contains(octet)).count();
    let code = rest.get(..digits)?;
    let status = digits_value(code)?;
    let reason = trim_space(rest.get(digits..)?);
    anomalies.insert_if(digits != 3 || !code.iter().all(u8::is_ascii_digit), Anomaly::StatusInvalid);
    anomalies.insert_if(unusual(version), Anomaly::VersionUnusual);
    let single =
        line.len() > version_length + 1 && line.get(version_length + 1).is_some_and(u8::is_ascii_digit);
    anomalies.insert_if(!single, Anomaly::LineSpacing);
    let headers = header_fields(fields, &mut anomalies);
    let message = ResponseHead { line, version, status, reason, headers, body: &[] };
    Some(ParsedHead { message, anomalies })
}

/// Returns the reason phrase of a status line.
pub(super) fn reason_of(line: &[u8]) -> &[u8] {
    let mut parts = line.splitn(3, |octet| *octet == b' ');
    trim_space(parts.nth(2).unwrap_or_default())
}

/// Returns the value of the first three digits, as some clients read no more. A sign, leading zeros and
/// underscores between digits are ignored, as in Python.
fn digits_value(code: &[u8]) -> Option<u16> {
    let digits: Vec<u8> = code.iter().copied().filter(u8::is_ascii_digit).collect();
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count().min(digits.len().saturating_sub(3));
    let digits = digits.get(zeros..).filter(|digits| !digits.is_empty())?;
    Some(digits.iter().take(3).fold(0, |value, digit| value * 10 + u16::from(digit - b'0')))
}

fn spaces(parts: [&[u8]; 3]) -> usize {
    parts.iter().filter(|part| !part.is_empty()).count().saturating_sub(1)
}

fn header_fields<'a>(mut rest: &'a [u8], anomalies: &mut Anomalies) -> HttpHeaders<'a> {
    let mut fields: Vec<HttpHeader<'a>> = Vec::new();
    while !rest.is_empty() {
        let (line, behind) = split_line(rest);
        if line.is_empty() {
            break;
        }
        anomalies.insert_if(fields.len() >= FIELD_LIMIT, Anomaly::TooManyHeaders);
        // A folded value continues on the next line: it is one slice, from its first line to its last.
        let (folded, behind) = folded_field(rest, line, behind);
        anomalies.insert_if(folded.len() > line.len(), Anomaly::FoldedHeader);
        // Only the first field can still begin with a space: any later one would have been taken as a
        // continuation.
        anomalies.insert_if(matches!(line.first(), Some(b' ' | b'\t')), Anomaly::LeadingSpace);
        fields.extend(header_field(folded, anomalies));
        // Both readings are kept, so that a rule matches whichever the receiver takes.
        fields.extend(behind_returns(folded));
        rest = behind;
    }
    HttpHeaders::new(fields)
}

/// Returns the field at the start of `text` with its continuation lines, and the rest.
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

/// Returns the fields after a CR without LF: for `CPython`, in servers and clients, it ends a line.
fn behind_returns(field: &[u8]) -> impl Iterator<Item = HttpHeader<'_>> {
    let bare =
        memchr::memchr_iter(b'\r', field).filter(|at| field.get(at + 1).is_some_and(|next| *next != b'\n'));
    bare.filter_map(|at| {
        let behind = field.get(at + 1..)?;
        let end = behind.iter().position(|octet| matches!(octet, b'\r' | b'\n')).unwrap_or(behind.len());
        super::field_of_line(behind.get(..end)?)
    })
}

/// Returns the fields of one line, including those that only some readers see.
pub(super) fn fields_of_line(line: &[u8]) -> impl Iterator<Item = HttpHeader<'_>> {
    let (line, _) = split_line(line);
    let mut unnoted = Anomalies::NONE;
    header_field(line, &mut unnoted).into_iter().chain(behind_returns(line))
}

fn header_field<'a>(field: &'a [u8], anomalies: &mut Anomalies) -> Option<HttpHeader<'a>> {
    let Some(colon) = memchr::memchr(b':', field) else {
        anomalies.insert(Anomaly::HeaderWithoutColon);
        return None;
    };
    let (sent, value) = (field.get(..colon)?, field.get(colon + 1..)?);
    let name = trim_space(sent);
    anomalies.insert_if(sent.last().is_some_and(|octet| is_space(*octet)), Anomaly::SpaceBeforeColon);
    anomalies
        .insert_if(name.is_empty() || !name.iter().all(|octet| is_token(*octet)), Anomaly::HeaderNameInvalid);
    Some(HttpHeader { name, value: trim_value(value) })
}

/// Returns the line at the start of `text` without its line end (LF, or any number of CR before LF), and
/// the rest.
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

/// Trims everything that some reader skips as white space. Beyond ASCII it trims only at the front: at
/// the end, such a byte may be part of a UTF-8 character, which never begins like that.
pub(super) fn trim_value(text: &[u8]) -> &[u8] {
    let mut text = text;
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && last.is_ascii()
        && is_space(*last)
    {
        text = rest;
    }
    text
}

/// Trims the parts of a first line in the same way.
fn trim_space(text: &[u8]) -> &[u8] {
    trim_value(text)
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

fn unusual(version: &[u8]) -> bool {
    !matches!(version, b"HTTP/1.0" | b"HTTP/1.1" | b"RTSP/1.0")
}
