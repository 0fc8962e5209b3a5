//! The times and the count of a sighting.

/// First and last time, in milliseconds since the epoch, and count.
#[derive(Debug, Clone, Copy)]
pub(super) struct SightingSpan {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) count: i64,
}
