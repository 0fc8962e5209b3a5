//! Readers of events: whatever takes them off the path that they were made on.
//!
//! A [`Consumer`] runs on a thread of its own behind a channel that is bounded in events and in bytes.
//! One spells events in a format and writes them, another one keeps an inventory.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};

use super::channel::{Handle, Message, Overflow, Queue, WriterConfig, channel};
use crate::event::Event;
use crate::privileges::{FILES, keep_or_tell};

/// The longest that an event stays in a consumer's hands while it could be handed on.
const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// Time for which events gather before a thread that its callers must not wait for looks again. Without a
/// pause each event would wake the thread, which costs the packet path a system call and the machine
/// two context switches an event.
const GATHER: Duration = Duration::from_millis(10);

/// Interval at which an idle thread looks for a request to reopen its file.
const LOOK_UP: Duration = Duration::from_millis(500);

/// Takes events, in order.
pub trait Consumer: Send {
    /// Before the first event.
    fn begin(&mut self) {}

    /// One event.
    fn take(&mut self, event: &Event);

    /// Events that belong together: all that was found out about one target.
    fn group(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.take(event));
    }

    /// Since when it has held something back; none where it holds nothing.
    fn holds_since(&self) -> Option<Instant> {
        None
    }

    /// Hands on what it holds.
    fn flush(&mut self) {}

    /// Opens its destination anew: a log was rotated. Also called when nothing happens, as `idle`.
    fn reopen(&mut self) {}

    /// Looks after its destination when there is nothing else to do.
    fn idle(&mut self) {}

    /// Behind the last event.
    fn end(&mut self);
}

/// A consumer on its thread, to be finished at the end of the run.
#[derive(Debug)]
pub struct Feed<C> {
    handle: Handle,
    stop: Sender<()>,
    thread: JoinHandle<C>,
}

impl<C: Consumer + 'static> Feed<C> {
    /// Starts a thread of this name at the end of a new channel.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn open(name: &str, config: WriterConfig, consumer: C) -> io::Result<Self> {
        Self::start(name, channel(config), consumer)
    }

    /// Starts a thread of this name at the end of a channel. A consumer that must not lose anything gets
    /// one in which callers [wait](Overflow::Wait) for room, so that it has no place on the packet path
    /// unless little is led to it (what was never seen before, for instance).
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(name: &str, (handle, queue): (Handle, Queue), mut consumer: C) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        // Not where callers wait for room, which a pause would make them do.
        let gather = handle.shared.overflow() == Overflow::Count;
        let thread = std::thread::Builder::new().name(name.to_owned());
        let name = name.to_owned();
        let thread = thread.spawn(move || {
            keep_or_tell(&name, FILES);
            run(&mut consumer, &queue, &stopped, gather);
            consumer
        })?;
        Ok(Self { handle, stop, thread })
    }

    /// A way to the consumer.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Has everything taken that was emitted before this call, and ends the thread.
    ///
    /// # Panics
    /// Hands on a panic of the consumer's thread.
    pub fn finish(self) -> C {
        self.tell_to_stop();
        self.end()
    }

    /// As [`Feed::finish`], but gives a consumer up that has not ended after `patience`.
    ///
    /// # Panics
    /// As [`Feed::finish`].
    pub fn finish_within(self, patience: Duration) -> Option<C> {
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

    fn end(self) -> C {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Has `consumer` take what comes by the channel until told to stop, and then what is left in it.
fn run(consumer: &mut dyn Consumer, queue: &Queue, stopped: &Receiver<()>, gather: bool) {
    consumer.begin();
    while let Some(message) = next(consumer, queue, stopped, gather) {
        match message {
            Some(message) => take(consumer, queue, message),
            None => consumer.idle(),
        }
        if consumer.holds_since().is_some_and(|since| since.elapsed() >= FLUSH_AFTER) {
            consumer.flush();
        }
        if queue.reopen_was_asked() {
            consumer.flush();
            consumer.reopen();
        }
    }
    for message in queue.messages.try_iter() {
        take(consumer, queue, message);
    }
    consumer.end();
    consumer.flush();
}

fn take(consumer: &mut dyn Consumer, queue: &Queue, message: Message) {
    match message {
        Message::One(event, weight) => {
            queue.give_back(weight);
            consumer.take(&event);
        }
        Message::Groups(groups, weight) => {
            queue.give_back(weight);
            groups.iter().for_each(|events| consumer.group(events));
        }
        Message::Sync(done) => {
            consumer.flush();
            drop(done);
        }
    }
}

/// The next message; `Some(None)` when it is time to look at the clock, `None` when it is time to stop.
fn next(
    consumer: &dyn Consumer,
    queue: &Queue,
    stopped: &Receiver<()>,
    gather: bool,
) -> Option<Option<Message>> {
    if let Ok(message) = queue.messages.try_recv() {
        return Some(Some(message));
    }
    let holds = consumer.holds_since().is_some();
    if gather && holds {
        let stop = !matches!(stopped.recv_timeout(GATHER), Err(RecvTimeoutError::Timeout));
        return if stop { None } else { Some(None) };
    }
    let patience = if holds { FLUSH_AFTER } else { LOOK_UP };
    select! {
        recv(queue.messages) -> message => message.ok().map(Some),
        recv(stopped) -> _ => None,
        default(patience) => Some(None),
    }
}
