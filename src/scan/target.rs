//! Interface between the source of targets and the ring workers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Address and port to probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Address and port.
    pub address: SocketAddr,
    /// Position in the scan's order, for checkpoints.
    pub index: u64,
    /// Host name from the user, if any; used for the `Host` field.
    pub host: Option<Arc<str>>,
}

/// Next action of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextTarget {
    /// Connect to this target now.
    Target(Target),
    /// Call again after this time, because of the rate limit.
    Wait(Duration),
    /// No targets are left; those under way are finished.
    End,
}

/// Source of targets for one thread.
///
/// The loop calls it while it has free slots, so it must be cheap.
pub trait TargetSource {
    /// Returns the next target at the time `now`.
    fn next(&mut self, now: Instant) -> NextTarget;

    /// Reports retries: they count against the rate limit like first attempts.
    fn asked_again(&mut self, _times: u32) {}
}
