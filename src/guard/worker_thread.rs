//! The thread of a worker, and how it ends.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::ready_worker::ReadyWorker;
use super::source::SourceError;
use super::worker_counts::SharedWorkerCounts;
use super::{GuardError, GuardMessage};

/// Interval between checks for the end of a thread or process.
pub(super) const MOMENT: Duration = Duration::from_millis(2);

/// A worker with its thread.
pub(super) struct WorkerThread {
    pub(super) number: u16,
    /// Netlink address of the socket that has bound the queue.
    pub(super) address: Option<u32>,
    pub(super) tally: Arc<SharedWorkerCounts>,
    pub(super) thread: JoinHandle<()>,
}

impl WorkerThread {
    /// Starts the thread, which sends [`GuardMessage::Ended`] as the last message.
    pub(super) fn spawn(queue: ReadyWorker, sender: Sender<GuardMessage>) -> io::Result<Self> {
        let number = queue.number;
        let tally = Arc::clone(&queue.worker.judge.inspection.tally);
        let address = queue.worker.source.address();
        let thread = std::thread::Builder::new().name(format!("queue-{number}")).spawn(move || {
            WorkerExitNotifier::run_reporting_exit(number, sender, || queue.run());
        })?;
        Ok(Self { number, address, tally, thread })
    }
}

/// Reports to the main thread how a worker ended, even after a panic.
struct WorkerExitNotifier {
    number: u16,
    outcome: Option<Result<(), SourceError>>,
    sender: Sender<GuardMessage>,
}

impl WorkerExitNotifier {
    /// Does the work of a worker, and reports how it ended.
    fn run_reporting_exit(
        number: u16,
        sender: Sender<GuardMessage>,
        work: impl FnOnce() -> Result<(), SourceError>,
    ) {
        let mut farewell = Self { number, outcome: None, sender };
        farewell.outcome = Some(work());
    }
}

impl Drop for WorkerExitNotifier {
    fn drop(&mut self) {
        // The main thread is gone only after a forced stop.
        let _ = self.sender.send(GuardMessage::Ended(self.number, self.outcome.take()));
    }
}

/// Returns the error that ended a worker, if any. `None` in place of an outcome is a panic.
pub(super) fn failure(queue: u16, outcome: Option<Result<(), SourceError>>) -> Option<GuardError> {
    match outcome {
        None => Some(GuardError::Worker(queue)),
        Some(Err(source)) => Some(GuardError::Source { queue, source }),
        Some(Ok(())) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_panics_has_failed_as_one_that_tells_why() {
        let ended = |work: fn() -> Result<(), SourceError>| {
            let (sender, receiver) = crossbeam_channel::bounded(1);
            let worker = std::thread::spawn(move || WorkerExitNotifier::run_reporting_exit(7, sender, work));
            let Ok(GuardMessage::Ended(7, outcome)) = receiver.recv() else { panic!("a farewell") };
            (failure(7, outcome).map(|error| error.to_string()), worker.join().is_err())
        };
        let failed = Some("the worker of queue 7 has failed".to_owned());
        assert_eq!(ended(|| panic!("as a test wants it")), (failed, true));
        assert_eq!(ended(|| Ok(())), (None, false));
    }
}
