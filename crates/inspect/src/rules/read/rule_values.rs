//! Reads the single values of a rule.

use std::ops::Range;
use std::time::Duration;

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::debian::FixedPackage;
use super::super::field::header_name;
use super::super::limits;
use super::super::probe_request::ProbeRequest;
use super::super::rule::MatchThreshold;
use super::super::rule::PacketMark;
use super::super::version::VersionRequirement;
use super::toml_value::{SpannedText, ValueReader};
use crate::terms::Protocol;

/// Reads an id. It becomes a metric's label, and users type it.
pub(super) fn identifier(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<SpannedText> {
    let text = line(reader, "id", value)?;
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_.:/".contains(character);
    if text.value.is_empty() || !text.value.chars().all(allowed) {
        reader.error(&text.span, "an id is made of letters, digits, `-`, `_`, `.`, `:` and `/`");
        return None;
    }
    Some(text)
}

/// The protocol that a rule is about.
pub(super) fn protocol(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<Protocol> {
    let known: Vec<(&str, Protocol)> = Protocol::all().map(|protocol| (protocol.name(), protocol)).collect();
    reader.name("protocol", value, &known)
}

/// Reads names of groups: words that users type on a command line.
pub(super) fn labels(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
    let texts = lines(reader, key, value);
    let is_label = |text: &SpannedText| {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "-_.:/".contains(character);
        !text.value.is_empty() && text.value.chars().all(allowed)
    };
    for text in texts.iter().filter(|text| !is_label(text)) {
        let message = format!("`{key}` are words of letters, digits, `-`, `_`, `.`, `:` and `/`");
        reader.error(&text.span, message);
    }
    texts.into_iter().map(|text| text.value).collect()
}

/// Reads a text of one line.
pub(super) fn line(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Option<SpannedText> {
    let text = reader.text(key, value)?;
    check_line(reader, key, &text).then_some(text)
}

/// Reads texts of one line each.
pub(super) fn lines(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Vec<SpannedText> {
    let mut texts = reader.texts(key, value);
    texts.retain(|text| check_line(reader, key, text));
    texts
}

fn check_line(reader: &mut ValueReader<'_>, key: &str, text: &SpannedText) -> bool {
    if text.value.len() > limits::NAME_OCTETS {
        reader.error(&text.span, format!("`{key}` is longer than {} bytes", limits::NAME_OCTETS));
        return false;
    }
    if text.value.chars().any(char::is_control) {
        reader.error(&text.span, format!("`{key}` holds a line end or another control character"));
        return false;
    }
    true
}

/// Reads `version = ">=8.5p1, <9.8p1"`.
pub(super) fn requirement(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Option<(VersionRequirement, Range<usize>)> {
    let text = reader.text(key, value)?;
    match VersionRequirement::parse(&text.value) {
        Ok(requirement) => Some((requirement, text.span)),
        Err(fault) => {
            let span = reader.within(&text, &fault.span);
            reader.error(&span, fault.message);
            None
        }
    }
}

/// Reads `fixed_in = ["Debian-2+deb12u3"]`.
pub(super) fn fixed_in(
    reader: &mut ValueReader<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Vec<(FixedPackage, Range<usize>)> {
    let mut all = Vec::new();
    for text in reader.texts("fixed_in", value) {
        match FixedPackage::parse(&text.value) {
            Ok(fixed) => all.push((fixed, text.span)),
            Err(message) => reader.error(&text.span, message),
        }
    }
    all
}

/// Reads `mark = 1`, `mark = "0x1"` or `mark = "0x1/0xff"`.
pub(super) fn mark(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<PacketMark> {
    if let DeValue::Integer(_) = value.get_ref() {
        let value = reader.number("mark", value, 0..=u32::MAX)?;
        return Some(PacketMark { value, mask: u32::MAX });
    }
    let text = reader.text("mark", value)?;
    let (number, mask) = match text.value.split_once('/') {
        Some((number, mask)) => (mark_number(number), mark_number(mask)),
        None => (mark_number(&text.value), Some(u32::MAX)),
    };
    let (Some(value), Some(mask)) = (number, mask) else {
        reader.error(&text.span, "`mark` must be a number or `VALUE/MASK`, such as \"0x1/0xff\"");
        return None;
    };
    if mask == 0 || value & !mask != 0 {
        reader.error(&text.span, "the mark's value has bits outside its mask");
        return None;
    }
    Some(PacketMark { value, mask })
}

fn mark_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads `request = { method = "GET", path = "/server-status" }`.
pub(super) fn request(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<ProbeRequest> {
    let errors = reader.report.errors();
    let mut request = ProbeRequest { method: "GET".to_owned(), path: String::new(), headers: Vec::new() };
    for (key, span, value) in reader.table("request", value)? {
        match key {
            "method" => request.method = method(reader, value).unwrap_or_default(),
            "path" => request.path = path(reader, value).unwrap_or_default(),
            "headers" => request.headers = headers(reader, value),
            _ => reader.unknown_key(&span, key, "`request`", ["method", "path", "headers"]),
        }
    }
    // Not if another error explains already why there is none.
    if request.path.is_empty() && reader.report.errors() == errors {
        reader.error(&value.span(), "`request` has no `path`");
    }
    (reader.report.errors() == errors).then_some(request)
}

fn method(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let text = reader.text("method", value)?;
    if text.value.is_empty() || !text.value.bytes().all(|octet| octet.is_ascii_uppercase() || octet == b'-') {
        reader.error(&text.span, "a method is made of capital letters, such as `GET`");
        return None;
    }
    Some(text.value)
}

fn path(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let text = reader.text("path", value)?;
    let visible = text.value.bytes().all(|octet| octet.is_ascii_graphic());
    // A request never holds a fragment (RFC 9110 section 7.1), so `#` would match nothing.
    if !visible || !(text.value.starts_with('/') || text.value == "*") || text.value.contains('#') {
        reader.error(&text.span, "a path starts with `/` and has no spaces, no `#` and ASCII only");
        return None;
    }
    Some(text.value)
}

fn headers(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, span, value) in reader.table("headers", value).unwrap_or_default() {
        if header_name(name).is_none() {
            reader.error(&span, "not the name of a header field");
            continue;
        }
        let Some(text) = line(reader, name, value) else { continue };
        headers.push((name.to_owned(), text.value.trim().to_owned()));
    }
    headers
}

/// Reads `count = { times = 5, within = "60s" }`.
pub(super) fn count(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<MatchThreshold> {
    let errors = reader.report.errors();
    let (mut times, mut within) = (None, None);
    for (key, span, value) in reader.table("count", value)? {
        match key {
            "times" => times = reader.number(key, value, 1..=limits::COUNT_TIMES),
            "within" => within = duration(reader, key, value),
            _ => reader.unknown_key(&span, key, "`count`", ["times", "within"]),
        }
    }
    if reader.report.errors() > errors {
        return None;
    }
    let (Some(times), Some(within)) = (times, within) else {
        let message = "`count` needs both `times` and `within`";
        reader.error_with_help(&value.span(), message, "for instance `{ times = 5, within = \"60s\" }`");
        return None;
    };
    Some(MatchThreshold { times, within })
}

/// Reads `"60s"`.
pub(super) fn duration(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Option<Duration> {
    let text = reader.text(key, value)?;
    let seconds = seconds(&text.value);
    if seconds.is_none() {
        let message = "a time is a whole number and one of `s`, `m`, `h`, `d`, from `1s` to `30d`";
        reader.error(&text.span, message);
    }
    seconds.map(Duration::from_secs)
}

fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let digits = !number.is_empty() && number.bytes().all(|octet| octet.is_ascii_digit());
    let seconds = digits.then(|| number.parse::<u64>().ok())??.checked_mul(unit)?;
    (1..=limits::COUNT_SECONDS).contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, expected) in [
            ("60s", Some(60)),
            ("5m", Some(300)),
            ("1h", Some(3_600)),
            ("30d", Some(2_592_000)),
            ("31d", None),
            ("0s", None),
            ("s", None),
            ("60", None),
            ("+1s", None),
            ("1.5h", None),
            ("1é", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
