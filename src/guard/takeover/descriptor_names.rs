//! Names under which the descriptors of a run are handed over.

/// Name of the metrics listener.
pub(in crate::guard) const METRICS: &str = "metrics";

/// Prefix of the names of queue sockets.
pub(super) const QUEUE: &str = "queue-";

/// Prefix of the names of states.
pub(super) const STATE: &str = "state-";

/// Name of the state that belongs to no queue.
pub(super) const RUN: &str = "state-run";

/// Returns the name of a queue's socket.
pub(in crate::guard) fn queue_name(queue: u16) -> String {
    format!("{QUEUE}{queue}")
}

/// Returns the name of the state of a queue's worker.
pub(in crate::guard) fn state_name(queue: u16) -> String {
    format!("{STATE}{QUEUE}{queue}")
}

/// Returns the name of the state of the rest of a run.
pub(in crate::guard) fn run_name() -> String {
    RUN.to_owned()
}
