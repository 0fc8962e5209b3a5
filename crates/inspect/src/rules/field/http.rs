//! Fields of an HTTP message; `header.NAME` stands for any header field.

use super::{BannerField, FieldFault, FieldRow, header_name};
use crate::terms::Side;

pub(super) const FIELDS: &[FieldRow] = &[
    FieldRow::either("protocol", BannerField::Protocol),
    FieldRow::of(Side::Server, "status", BannerField::Status),
    FieldRow::of(Side::Server, "reason", BannerField::Reason),
    FieldRow::of(Side::Server, "title", BannerField::Title),
    FieldRow::either("body", BannerField::Body),
    FieldRow::of(Side::Client, "method", BannerField::Method),
    FieldRow::of(Side::Client, "url", BannerField::Url),
];

/// Header fields with a short name, of requests only.
const SHORT: &[(&str, &str)] = &[("host", "host"), ("user_agent", "user-agent")];

/// Returns the header field that the name stands for, if it is the name of one.
pub(super) fn named(name: &str) -> Result<Option<(BannerField, Option<Side>)>, FieldFault> {
    if let Some(header) = name.strip_prefix("header.") {
        let header = header_name(header).ok_or(FieldFault::HeaderName)?;
        return Ok(Some((BannerField::Header(header), None)));
    }
    let short = SHORT.iter().find(|(short, _)| *short == name);
    Ok(short.map(|(_, header)| (BannerField::Header((*header).to_owned()), Some(Side::Client))))
}

/// Returns the names of header fields, including those of requests if `requests` is set.
pub(super) fn names(requests: bool) -> impl Iterator<Item = String> {
    let short = SHORT.iter().filter(move |_| requests).map(|(name, _)| (*name).to_owned());
    short.chain(["header.NAME".to_owned()])
}
