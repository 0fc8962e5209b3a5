//! Fields of a protocol that is not read: the name by its first bytes, and these bytes.

use super::{BannerField, FieldRow};

pub(super) const FIELDS: &[FieldRow] = &[
    FieldRow::either("name", BannerField::Name),
    FieldRow::either("first", BannerField::First),
    FieldRow::either("banner", BannerField::Banner),
];
