//! Fields of a greeting, the same for every protocol of the table.

use super::{BannerField, FieldRow};
use crate::terms::Side;

pub(super) const FIELDS: &[FieldRow] = &[
    FieldRow::of(Side::Server, "banner", BannerField::Banner),
    FieldRow::of(Side::Server, "code", BannerField::Code),
    FieldRow::of(Side::Server, "text", BannerField::Text),
];
