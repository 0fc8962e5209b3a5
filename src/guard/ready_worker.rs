//! The worker of a queue, ready for its thread.

use rustix::thread::{CpuSet, sched_setaffinity};

use super::source::SourceError;
use super::worker::QueueWorker;
use crate::diagnostics::log_line;
use crate::privileges::{NETWORK, keep_or_warn};

/// A worker that is ready to run on a thread of its own.
pub(super) struct ReadyWorker {
    pub(super) number: u16,
    pub(super) worker: QueueWorker,
    /// True if another process bound the queue.
    pub(super) is_adopted: bool,
    /// The CPU that the thread is bound to.
    pub(super) cpu: Option<usize>,
}

impl ReadyWorker {
    /// Runs the worker on the calling thread.
    pub(super) fn run(self) -> Result<(), SourceError> {
        if let Some(cpu) = self.cpu {
            let mut only = CpuSet::new();
            only.set(cpu);
            if let Err(error) = sched_setaffinity(None, &only) {
                log_line(format_args!("bannerwall: queue {}: cannot pin to CPU {cpu}: {error}", self.number));
            }
        }
        keep_or_warn(&format!("queue-{}", self.number), NETWORK);
        self.worker.run()
    }
}
