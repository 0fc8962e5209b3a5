//! Fields of what is not read: what its first octets tell, and these themselves.

use super::{Field, Row};

pub(super) const FIELDS: &[Row] = &[
    Row::either("name", Field::Name),
    Row::either("first", Field::First),
    Row::either("banner", Field::Banner),
];
