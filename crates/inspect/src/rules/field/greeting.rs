//! Fields of a greeting, the same for every protocol of the table.

use super::{Field, Row};
use crate::terms::Side;

pub(super) const FIELDS: &[Row] = &[
    Row::of(Side::Server, "banner", Field::Banner),
    Row::of(Side::Server, "code", Field::Code),
    Row::of(Side::Server, "text", Field::Text),
];
