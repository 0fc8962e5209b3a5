//! Fields of a protocol that is not read: the name by its first bytes, and these bytes.

use super::{Field, Row};

pub(super) const FIELDS: &[Row] = &[
    Row::either("name", Field::Name),
    Row::either("first", Field::First),
    Row::either("banner", Field::Banner),
];
