//! The seam between who chooses targets and who connects to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One address and port to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Address and port.
    pub address: SocketAddr,
    /// Position in the run's order; what a checkpoint remembers.
    pub index: u64,
    /// The name that the user gave, where there was one; goes into the `Host` field.
    pub host: Option<Arc<str>>,
}

/// What a thread is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Connect to this one now.
    Target(Target),
    /// Ask again after so long: the pace does not allow another one yet.
    Wait(Duration),
    /// There are no more; what is in flight is finished.
    End,
}

/// A thread's own source of targets.
///
/// The loop asks as long as it has room, and is told when the pace allows no more. It must be
/// cheap: it is called once a target.
pub trait Targets {
    /// The next target, given the time.
    fn next(&mut self, now: Instant) -> Next;

    /// So many targets were asked again: they count against the pace as the first time.
    fn asked_again(&mut self, _times: u32) {}
}
