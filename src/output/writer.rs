//! The thread that owns a destination: events come in by a bounded channel, bytes go out.
//!
//! A [`Handle`] never waits where losing an event is better than losing a packet (the guard), and
//! always waits where nothing may be lost (replay, scan). What could not be written is counted, told
//! once on stderr and shown in the [`Report`]; it never ends the process. A reader that closed the pipe is
//! not an error: what follows is thrown away, and [`Handle::is_closed`] says so.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded, select};

use crate::diagnostics::tell;
use crate::event::{Event, EventSink};
use crate::privileges::{FILES, keep_or_tell};

use super::Format;

/// Bytes that are gathered before they are written without waiting for the clock.
const BATCH: usize = 64 * 1024;

/// The longest that an event stays in memory while its destination takes bytes.
const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// How long events gather before a thread that its callers must not wait for looks again. Without a
/// pause each event would wake the thread, which costs the packet path a system call and the machine
/// two context switches an event.
const GATHER: Duration = Duration::from_millis(10);

/// How often an idle thread looks for a request to reopen its file.
const LOOK_UP: Duration = Duration::from_millis(500);

/// Where the bytes go.
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file, made new when the run starts.
    File(PathBuf),
    /// A file that is appended to, as logs are; opened again on [`Handle::reopen`].
    Log(PathBuf),
    /// Anything else, such as standard output under a progress bar.
    Other(Box<dyn Write + Send>),
}

/// What a full channel means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The event is lost and counted; the caller never waits.
    Count,
    /// The caller waits until there is room.
    Wait,
}

/// How a writer works.
#[derive(Debug, Clone, Copy)]
pub struct WriterConfig {
    /// Events that the channel holds.
    pub capacity: usize,
    /// What a full channel means.
    pub overflow: Overflow,
}

impl WriterConfig {
    /// For the packet path: never wait.
    pub const COUNTING: Self = Self { capacity: 8192, overflow: Overflow::Count };
    /// For events by the batch, none of which may be lost.
    pub const BATCHES: Self = Self { capacity: 16, overflow: Overflow::Wait };
    /// For paths where nothing may be lost.
    pub const WAITING: Self = Self { capacity: 4096, overflow: Overflow::Wait };
}

/// What became of the events.
#[derive(Debug)]
pub struct Report {
    /// Events whose bytes the destination took.
    pub written: u64,
    /// Events that found the channel full.
    pub overflowed: u64,
    /// Events that the destination refused (a full disk) or could not be spelled.
    pub failed: u64,
    /// The first thing that the destination said.
    pub first_error: Option<io::Error>,
    /// The reader of a pipe went away.
    pub closed: bool,
}

/// Counters that the writer's thread and all handles share.
#[derive(Debug, Default)]
struct Shared {
    written: AtomicU64,
    overflowed: AtomicU64,
    failed: AtomicU64,
    closed: AtomicBool,
    reopen: AtomicBool,
}

enum Message {
    One(Event),
    Groups(Vec<Vec<Event>>),
    /// Write what came before, then say so by dropping the sender.
    Sync(Sender<()>),
}

/// The writer's thread, to be finished at the end of the run.
#[derive(Debug)]
pub struct Writer {
    handle: Handle,
    stop: Sender<()>,
    thread: JoinHandle<Option<io::Error>>,
}

/// A way to a writer, to be cloned for each thread that has events.
#[derive(Debug, Clone)]
pub struct Handle {
    channel: Sender<Message>,
    shared: Arc<Shared>,
    overflow: Overflow,
}

impl Writer {
    /// Opens the destination and starts the thread.
    ///
    /// # Errors
    /// The destination cannot be opened, or the system has no thread left.
    pub fn start(
        config: WriterConfig,
        destination: Destination,
        format: Box<dyn Format>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (channel, events) = bounded(config.capacity);
        let (stop, stopped) = bounded(1);
        let sink = Sink::open(destination)?;
        let scribe = Scribe {
            format,
            sink,
            shared: Arc::clone(&shared),
            pending: Pending::default(),
            first_error: None,
            gather: config.overflow == Overflow::Count,
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(move || {
            keep_or_tell("writer", FILES);
            scribe.run(&events, &stopped)
        })?;
        let handle = Handle { channel, shared, overflow: config.overflow };
        Ok(Self { handle, stop, thread })
    }

    /// A way to this writer.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Writes everything that was emitted before this call, ends the thread and says what became of it all.
    ///
    /// # Panics
    /// Hands on a panic of the writer's thread.
    pub fn finish(self) -> Report {
        self.tell_to_stop();
        self.end()
    }

    /// As [`Writer::finish`], but gives a destination that takes nothing up after `patience`: a pipe whose
    /// reader has stalled. What it did not take is lost with the process; so `None`.
    ///
    /// # Panics
    /// As [`Writer::finish`].
    pub fn finish_within(self, patience: Duration) -> Option<Report> {
        self.tell_to_stop();
        let start = Instant::now();
        while !self.thread.is_finished() {
            if start.elapsed() > patience {
                return None;
            }
            std::thread::sleep(GATHER);
        }
        Some(self.end())
    }

    fn tell_to_stop(&self) {
        // The thread can only be gone already if it panicked, which join tells.
        let _ = self.stop.send(());
    }

    fn end(self) -> Report {
        let Self { handle, thread, .. } = self;
        let first_error = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let shared = &handle.shared;
        Report {
            written: shared.written.load(Relaxed),
            overflowed: shared.overflowed.load(Relaxed),
            failed: shared.failed.load(Relaxed),
            first_error,
            closed: shared.closed.load(Relaxed),
        }
    }
}

impl Handle {
    /// Takes groups of events that belong together, so that none of another thread comes between
    /// those of a group.
    pub fn emit_groups(&self, groups: Vec<Vec<Event>>) {
        if !groups.is_empty() {
            self.send(Message::Groups(groups));
        }
    }

    /// Waits until everything that was emitted before this call is written (or lost, and counted).
    pub fn sync(&self) {
        let (done, written) = bounded::<()>(0);
        if self.channel.send(Message::Sync(done)).is_ok() {
            // Nothing is ever sent: the sender is dropped when it is done.
            let _ = written.recv();
        }
    }

    /// Events that were lost so far: no room in the channel, or refused by the destination.
    pub fn lost(&self) -> u64 {
        self.shared.overflowed.load(Relaxed) + self.shared.failed.load(Relaxed)
    }

    /// Events that the destination took so far.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// Whether the reader of a pipe went away, so that more work for it is in vain.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Relaxed)
    }

    /// Asks the thread to open a [`Destination::Log`] again by its name, after it was moved away.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
    }

    fn send(&self, message: Message) {
        let lost = match self.overflow {
            Overflow::Wait => self.channel.send(message).map_err(|error| error.0),
            Overflow::Count => self.channel.try_send(message).map_err(TrySendError::into_inner),
        };
        if let Err(message) = lost {
            self.shared.overflowed.fetch_add(message.len(), Relaxed);
        }
    }
}

impl EventSink for Handle {
    fn emit(&mut self, event: Event) {
        self.send(Message::One(event));
    }
}

impl Message {
    fn len(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Groups(groups) => groups.iter().map(|events| events.len() as u64).sum(),
            Self::Sync(_) => 0,
        }
    }
}

/// Bytes that were spelled but not yet written, and how many events they are.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    events: u64,
    since: Option<Instant>,
}

/// What runs on the writer's thread.
struct Scribe {
    format: Box<dyn Format>,
    sink: Sink,
    shared: Arc<Shared>,
    pending: Pending,
    first_error: Option<io::Error>,
    /// Lets events gather while there are some, rather than being woken for each. Not where callers
    /// wait for room, which a pause would make them do.
    gather: bool,
}

impl Scribe {
    fn run(mut self, events: &Receiver<Message>, stopped: &Receiver<()>) -> Option<io::Error> {
        let begun = self.format.begin(&mut self.pending.bytes);
        self.note(begun);
        while let Some(message) = self.next(events, stopped) {
            if let Some(message) = message {
                self.take(message);
            }
            if self.is_due() {
                self.flush();
            }
            if self.shared.reopen.swap(false, Relaxed) {
                self.flush();
                let opened = self.sink.reopen();
                self.note(opened);
            }
        }
        events.try_iter().for_each(|message| self.take(message));
        self.write_rest();
        let ended = self.format.end(&mut self.pending.bytes);
        self.note(ended);
        self.flush();
        self.first_error
    }

    /// Writes what the format held back, a part at a time.
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

    /// The next message; `Some(None)` when it is time to look at the clock, `None` when it is time to stop.
    fn next(&self, events: &Receiver<Message>, stopped: &Receiver<()>) -> Option<Option<Message>> {
        if let Ok(message) = events.try_recv() {
            return Some(Some(message));
        }
        if self.gather && self.pending.since.is_some() {
            let stop = !matches!(stopped.recv_timeout(GATHER), Err(RecvTimeoutError::Timeout));
            return if stop { None } else { Some(None) };
        }
        let patience = if self.pending.since.is_some() { FLUSH_AFTER } else { LOOK_UP };
        select! {
            recv(events) -> message => message.ok().map(Some),
            recv(stopped) -> _ => None,
            default(patience) => Some(None),
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::One(event) => self.spell(1, |format, bytes| format.event(&event, bytes)),
            Message::Groups(groups) => {
                for events in groups {
                    self.spell(events.len(), |format, bytes| format.group(&events, bytes));
                }
            }
            Message::Sync(done) => {
                self.flush();
                drop(done);
            }
        }
    }

    fn spell(&mut self, events: usize, spell: impl FnOnce(&mut dyn Format, &mut Vec<u8>) -> io::Result<()>) {
        let pending = &mut self.pending;
        let whole = pending.bytes.len();
        match spell(self.format.as_mut(), &mut pending.bytes) {
            Ok(()) => {
                pending.events += events as u64;
                pending.since.get_or_insert_with(Instant::now);
            }
            Err(error) => {
                pending.bytes.truncate(whole);
                self.shared.failed.fetch_add(events as u64, Relaxed);
                self.note(Err(error));
            }
        }
        if self.pending.bytes.len() >= BATCH {
            self.flush();
        }
    }

    fn is_due(&self) -> bool {
        self.pending.since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER)
    }

    fn flush(&mut self) {
        let Pending { mut bytes, events, .. } = std::mem::take(&mut self.pending);
        if !bytes.is_empty() && !self.shared.closed.load(Relaxed) {
            match self.sink.write(&bytes) {
                Ok(()) => {
                    self.shared.written.fetch_add(events, Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.shared.closed.store(true, Relaxed);
                }
                Err(error) => {
                    self.shared.failed.fetch_add(events, Relaxed);
                    self.note(Err(error));
                }
            }
        }
        // The buffer itself is used again.
        bytes.clear();
        self.pending.bytes = bytes;
    }

    /// Keeps the first error and tells it; later ones are only counted, for a full disk has many.
    fn note(&mut self, result: io::Result<()>) {
        let Err(error) = result else { return };
        if self.first_error.is_none() {
            tell(format_args!(
                "bannerwall: cannot write events to {}: {error}; losses are counted",
                self.sink.name()
            ));
            self.first_error = Some(error);
        }
    }
}

/// An open destination.
struct Sink {
    out: Box<dyn Write + Send>,
    path: Option<PathBuf>,
    log: bool,
    /// The last write ended somewhere within a line.
    torn: bool,
}

impl Sink {
    fn open(destination: Destination) -> io::Result<Self> {
        let (out, path, log): (Box<dyn Write + Send>, _, _) = match destination {
            // A descriptor of its own: the standard library's would buffer lines once more.
            Destination::Stdout => {
                (Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)), None, false)
            }
            Destination::Other(out) => (out, None, false),
            Destination::File(path) => (Box::new(File::create(&path)?), Some(path), false),
            Destination::Log(path) => (Box::new(open_log(&path)?), Some(path), true),
        };
        Ok(Self { out, path, log, torn: false })
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let (Some(path), true) = (&self.path, self.log) {
            self.out = Box::new(open_log(path)?);
            self.torn = false;
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string())
    }

    /// Writes all of `bytes`. Where an earlier write broke off, a line end first makes the next line whole.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.torn {
            self.write_counting(b"\n")?;
        }
        self.write_counting(bytes)?;
        self.out.flush()
    }

    fn write_counting(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (taken, rest) = match self.out.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => bytes.split_at(length.min(bytes.len())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.torn = taken.last() != Some(&b'\n');
            bytes = rest;
        }
        Ok(())
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests;
