//! The part of an undecided flow that the kernel forwards: a body, or all responses.

use super::dialogue::ResponseRemainder;
use crate::flow::{StreamState, distance};

/// Minimum of bytes that must be left: fewer would pass in a few packets.
const WORTH: u64 = 64 << 10;

/// Maximum of bytes that a body may have left.
const LIMIT: u64 = 1 << 30;

/// Maximum distance of bytes behind the body's end: Linux's largest window by itself (`tcp_rmem`) is 6 MiB.
const BEHIND: i32 = 1 << 24;

/// A body that passes without being seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyOffload {
    /// Sequence number behind its last byte.
    pub until: u32,
    /// Nobody knows yet that the kernel has taken the release back.
    pub stands: bool,
}

impl BodyOffload {
    /// One of the rest of a body, of which `stream` was read so far, if that is worth it and its head can't
    /// be replaced any more.
    pub(super) fn of(rest: ResponseRemainder, stream: &StreamState) -> Option<Self> {
        let at = stream.next();
        let ResponseRemainder { left, read, judged } = rest;
        if !(WORTH..LIMIT).contains(&left) || read >= LIMIT {
            return None;
        }
        let number = |count: u64| u32::try_from(count).ok();
        let judged = at.wrapping_sub(number(read)?).wrapping_add(u32::try_from(judged).ok()?);
        let fixed = stream.is_acknowledged_to(judged);
        fixed.then_some(Self { until: at.wrapping_add(number(left)?), stands: true })
    }

    /// True if it says what one that stands has said. One body is released once as long as the client says
    /// nothing: it may have spoken already, behind acknowledgements that are waiting to be judged, and what
    /// comes of the kernel's taking that release back must not be undone by another one.
    pub(super) fn repeats(&self, standing: &Self) -> bool {
        standing.stands && standing.until == self.until
    }

    /// True if bytes up to `at` may have gone by unseen.
    pub(super) fn covers(&self, stream: &StreamState, at: u32) -> bool {
        let behind = if self.stands { BEHIND } else { 0 };
        distance(stream.next(), at) > 0 && distance(at, self.until.wrapping_add(behind.unsigned_abs())) >= 0
    }
}

/// A release that stands, or stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseOffload {
    /// The kernel was not told yet that it is over, nor has ended it itself.
    pub(super) stands: bool,
    /// Bytes that have gone by and were not counted yet.
    pub(super) unseen: u64,
}
