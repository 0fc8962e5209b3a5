//! Fields of an HTTP message; `header.NAME` stands for any header field.

use super::{Field, FieldFault, Row, header_name};
use crate::terms::Side;

pub(super) const FIELDS: &[Row] = &[
    Row::either("protocol", Field::Protocol),
    Row::of(Side::Server, "status", Field::Status),
    Row::of(Side::Server, "reason", Field::Reason),
    Row::of(Side::Server, "title", Field::Title),
    Row::either("body", Field::Body),
    Row::of(Side::Client, "method", Field::Method),
    Row::of(Side::Client, "url", Field::Url),
];

/// Header fields with a short name, of requests only.
const SHORT: &[(&str, &str)] = &[("host", "host"), ("user_agent", "user-agent")];

/// Returns the header field that the name stands for, if it is the name of one.
pub(super) fn named(name: &str) -> Result<Option<(Field, Option<Side>)>, FieldFault> {
    if let Some(header) = name.strip_prefix("header.") {
        let header = header_name(header).ok_or(FieldFault::HeaderName)?;
        return Ok(Some((Field::Header(header), None)));
    }
    let short = SHORT.iter().find(|(short, _)| *short == name);
    Ok(short.map(|(_, header)| (Field::Header((*header).to_owned()), Some(Side::Client))))
}

/// Returns the names of header fields, including those of requests if `requests` is set.
pub(super) fn names(requests: bool) -> impl Iterator<Item = String> {
    let short = SHORT.iter().filter(move |_| requests).map(|(name, _)| (*name).to_owned());
    short.chain(["header.NAME".to_owned()])
}
