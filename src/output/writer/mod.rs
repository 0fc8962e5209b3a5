//! The consumer that writes: turns events into a format's bytes and writes these to a destination, on its
//! own thread.
//!
//! A [`ChannelHandle`] never waits if losing an event is better than losing a packet (the guard). It always
//! waits if nothing may be lost (replay, scan). Events that could not be written are counted, reported on
//! stderr when that starts and stops, and shown in the [`WriteReport`]. They never stop the process. A reader
//! that closes a pipe ends a command without another purpose (replay, scan). For the guard it is only a
//! loss: the reader of a FIFO may come late, leave and return.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::diagnostics::log_line;
use crate::event::Event;

use super::OutputFormat;
use super::channel::{ChannelCounters, OverflowPolicy, channel};
pub use super::channel::{ChannelHandle, WriterConfig};
use super::consumer::{ConsumerThread, EventConsumer};
pub use super::sink::OutputDestination;
use super::sink::{OutputSink, PartialWrite};

/// Number of bytes that are gathered before they are written ahead of the deadline.
const BATCH: usize = 64 * 1024;

/// Results for all events.
#[derive(Debug)]
pub struct WriteReport {
    /// Number of events whose bytes the destination accepted.
    pub written: u64,
    /// Number of events that were dropped because the channel was full.
    pub overflowed: u64,
    /// Number of events that the destination refused (a full disk, a closed pipe) or that the format
    /// could not write.
    pub failed: u64,
    /// Number of events that the destination neither accepted nor refused: its reader has stalled.
    pub stuck: u64,
    /// The first error of the destination.
    pub first_error: Option<io::Error>,
}

/// The writer's thread; it must be finished at the end of the run. Its counters are those of its first
/// output.
#[derive(Debug)]
pub struct OutputWriter(ConsumerThread<Vec<EventWriter>>);

impl OutputWriter {
    /// Opens the destination and starts the thread.
    ///
    /// # Errors
    /// The destination cannot be opened, or the system has no thread left.
    pub fn start(
        config: WriterConfig,
        destination: OutputDestination,
        format: Box<dyn OutputFormat>,
    ) -> io::Result<Self> {
        Self::start_with_copies(config, (destination, format), Vec::new())
    }

    /// Does the same as [`OutputWriter::start`], and writes the same events to further files, each in its
    /// own format.
    ///
    /// # Errors
    /// A destination cannot be opened, or the system has no thread left.
    pub fn start_with_copies(
        config: WriterConfig,
        (destination, format): (OutputDestination, Box<dyn OutputFormat>),
        copies: Vec<OutputCopy>,
    ) -> io::Result<Self> {
        let (handle, queue) = channel(config);
        let mut writers = vec![EventWriter::open(config, destination, format, Arc::clone(&handle.shared))?];
        for copy in copies {
            let destination = match copy.continues {
                true => OutputDestination::Log(copy.path),
                false => OutputDestination::File(copy.path),
            };
            // Copies have counters of their own: the channel's say what the first output has lost.
            let counters = Arc::new(ChannelCounters::new(config));
            writers.push(EventWriter::open(config, destination, copy.format, counters)?);
        }
        ConsumerThread::start("writer", (handle, queue), writers).map(Self)
    }

    /// Returns a sender for this writer.
    pub fn handle(&self) -> ChannelHandle {
        self.0.handle()
    }

    /// Writes every event that was emitted before, stops the thread and returns the results.
    ///
    /// # Panics
    /// Propagates a panic of the writer's thread.
    pub fn finish(self) -> WriteReport {
        let handle = self.handle();
        let writers = self.0.finish();
        let copies: u64 = writers.iter().skip(1).map(|writer| writer.shared.failed.load(Relaxed)).sum();
        let report = handle.shared.report(writers.into_iter().find_map(|writer| writer.first_error));
        WriteReport { failed: report.failed + copies, ..report }
    }

    /// Does the same as [`OutputWriter::finish`], but gives up after `patience` on a destination that accepts
    /// nothing: a pipe whose reader has stalled. The remaining events are lost with the process and
    /// counted as stuck.
    ///
    /// # Panics
    /// The same as [`OutputWriter::finish`].
    pub fn finish_within(self, patience: Duration) -> WriteReport {
        let handle = self.handle();
        let writers = self.0.finish_within(patience).unwrap_or_default();
        handle.shared.report(writers.into_iter().find_map(|writer| writer.first_error))
    }
}

impl ChannelCounters {
    fn report(&self, first_error: Option<io::Error>) -> WriteReport {
        let (written, failed) = (self.written.load(Relaxed), self.failed.load(Relaxed));
        WriteReport {
            written,
            overflowed: self.overflowed.load(Relaxed),
            failed,
            // A reader that has seen enough closed the output: events behind that are neither written
            // nor lost.
            stuck: match self.closed.load(Relaxed) {
                true => 0,
                false => self.accepted.load(Relaxed).saturating_sub(written + failed),
            },
            first_error,
        }
    }
}

/// A further file with the same events.
pub struct OutputCopy {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Box<dyn OutputFormat>,
    /// True if the file of an earlier run is continued.
    pub continues: bool,
}

/// Bytes that are not written yet, and the events that they belong to.
#[derive(Debug, Default)]
struct PendingBytes {
    bytes: Vec<u8>,
    /// End of the bytes of some events, with the number of these events.
    ends: Vec<(usize, u64)>,
    since: Option<Instant>,
}

impl PendingBytes {
    fn events(&self) -> u64 {
        self.ends.iter().map(|(_, events)| events).sum()
    }

    /// Number of events whose bytes are all among the first `taken`.
    fn events_within(&self, taken: usize) -> u64 {
        self.ends.iter().take_while(|(end, _)| *end <= taken).map(|(_, events)| events).sum()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.since = None;
    }
}

/// The consumer on the writer's thread: a format and a sink.
struct EventWriter {
    format: Box<dyn OutputFormat>,
    sink: OutputSink,
    shared: Arc<ChannelCounters>,
    pending: PendingBytes,
    first_error: Option<io::Error>,
    /// Number of events that were lost before the destination started to refuse them, while it does.
    failing: Option<u64>,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("sink", &self.sink.name()).finish_non_exhaustive()
    }
}

impl EventConsumer for EventWriter {
    fn begin(&mut self) {
        let begun = self.format.begin(&mut self.pending.bytes);
        self.note(begun);
    }

    fn take(&mut self, event: &Event) {
        self.spell(1, |format, bytes| format.event(event, bytes));
    }

    fn group(&mut self, events: &[Event]) {
        self.spell(events.len(), |format, bytes| format.group(events, bytes));
    }

    fn holds_since(&self) -> Option<Instant> {
        self.pending.since
    }

    fn flush(&mut self) {
        if self.pending.bytes.is_empty() {
            // Events for which the format writes no bytes count as written, too.
            self.shared.written.fetch_add(self.pending.events(), Relaxed);
        } else if !self.shared.closed.load(Relaxed) {
            match self.write() {
                Ok(()) => self.succeed(),
                Err(broken) => self.fail(broken),
            }
        }
        self.pending.clear();
    }

    fn reopen(&mut self) {
        let opened = self.sink.reopen();
        self.note(opened);
    }

    fn idle(&mut self) {
        if self.sink.awaits_reader() {
            self.reopen();
        }
    }

    fn end(&mut self) {
        self.write_rest();
        let ended = self.format.end(&mut self.pending.bytes);
        self.note(ended);
    }
}

impl EventWriter {
    fn open(
        config: WriterConfig,
        destination: OutputDestination,
        format: Box<dyn OutputFormat>,
        shared: Arc<ChannelCounters>,
    ) -> io::Result<Self> {
        // A writer that drops events must not wait for the reader of a FIFO either.
        let sink = OutputSink::open(destination, config.overflow == OverflowPolicy::Count)?;
        if sink.awaits_reader() {
            log_line(format_args!(
                "bannerwall: {} has no reader yet; events are lost until one opens it",
                sink.name()
            ));
        }
        let pending = PendingBytes::default();
        Ok(Self { format, sink, shared, pending, first_error: None, failing: None })
    }

    /// Writes the events that the format held back, one part at a time.
    fn write_rest(&mut self) {
        loop {
            match self.format.rest(&mut self.pending.bytes) {
                Ok(true) if self.pending.bytes.len() < BATCH => {}
                Ok(true) => self.flush(),
                Ok(false) => return,
                Err(error) => return self.note(Err(error)),
            }
        }
    }

    fn spell(
        &mut self,
        events: usize,
        spell: impl FnOnce(&mut dyn OutputFormat, &mut Vec<u8>) -> io::Result<()>,
    ) {
        let events = events as u64;
        let pending = &mut self.pending;
        let whole = pending.bytes.len();
        match spell(self.format.as_mut(), &mut pending.bytes) {
            Ok(()) => {
                pending.ends.push((pending.bytes.len(), events));
                // The age of the oldest event bounds how long a half-filled batch waits.
                pending.since.get_or_insert_with(Instant::now);
            }
            Err(error) => {
                // A half-written event would make the output invalid.
                pending.bytes.truncate(whole);
                self.shared.failed.fetch_add(events, Relaxed);
                self.note(Err(error));
            }
        }
        if self.pending.bytes.len() >= BATCH {
            self.flush();
        }
    }

    fn write(&mut self) -> Result<(), PartialWrite> {
        if self.sink.awaits_reader() {
            // A reader may have come since the last check.
            self.sink.reopen().map_err(|error| PartialWrite { taken: 0, error })?;
        } else if self.sink.is_stale() {
            // The error was reported when the request came.
            let _ = self.sink.reopen();
        }
        self.sink.write(&self.pending.bytes)
    }

    fn succeed(&mut self) {
        self.shared.written.fetch_add(self.pending.events(), Relaxed);
        if !self.sink.is_stale()
            && let Some(before) = self.failing.take()
        {
            let lost = self.shared.failed.load(Relaxed) - before;
            log_line(format_args!(
                "bannerwall: events go to {} again; {lost} were lost meanwhile",
                self.sink.name()
            ));
        }
    }

    fn fail(&mut self, PartialWrite { taken, error }: PartialWrite) {
        let gone = error.kind() == io::ErrorKind::BrokenPipe;
        if gone && self.shared.overflow() == OverflowPolicy::Wait {
            // `| head`: the reader has seen enough.
            self.shared.closed.store(true, Relaxed);
            return;
        }
        // A part of the batch may have reached the file before the error: those events are not lost.
        let written = self.pending.events_within(taken);
        let before = self.shared.failed.fetch_add(self.pending.events() - written, Relaxed);
        self.shared.written.fetch_add(written, Relaxed);
        // A later write opens the FIFO again if it has a reader then.
        if gone {
            self.sink.close_fifo();
        }
        self.tell_failure(before, error);
    }

    /// Reports refused events once, until events are accepted again: a full disk refuses many.
    fn tell_failure(&mut self, before: u64, error: io::Error) {
        if self.failing.is_none() {
            self.failing = Some(before);
            let name = self.sink.name();
            log_line(match error.kind() {
                io::ErrorKind::BrokenPipe => {
                    format!("bannerwall: {name} has no reader any more; lost events are counted")
                }
                _ => format!("bannerwall: cannot write events to {name}: {error}; losses are counted"),
            });
        }
        // The first error is usually the cause, and later ones its consequences.
        self.first_error.get_or_insert(error);
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.tell_failure(self.shared.failed.load(Relaxed), error);
        }
    }
}

#[cfg(test)]
mod tests;
