//! Consumers of events, which run off the path on which the events arise.
//!
//! A [`EventConsumer`] runs on its own thread behind a channel that is bounded in events and in bytes. One
//! writes events in an output format, another keeps an inventory.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};

use super::channel::{ChannelHandle, ChannelMessage, ChannelReceiver, OverflowPolicy, WriterConfig, channel};
use crate::event::Event;
use crate::privileges::{FILES, keep_or_warn};

/// Longest time for which a consumer holds back an event.
const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// Time for which events gather before a thread reads them, if its callers never wait. Without this
/// pause, each event would wake the thread: one system call on the packet path and two context switches
/// for an event.
const GATHER: Duration = Duration::from_millis(10);

/// Interval at which an idle thread checks for a request to reopen its file.
const LOOK_UP: Duration = Duration::from_millis(500);

/// Takes events, in order.
pub trait EventConsumer: Send {
    /// Called before the first event.
    fn begin(&mut self) {}

    /// Takes one event.
    fn take(&mut self, event: &Event);

    /// Takes events that belong together: all results for one target.
    fn group(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.take(event));
    }

    /// Time since which it has held something back; none if it holds nothing.
    fn holds_since(&self) -> Option<Instant> {
        None
    }

    /// Passes on everything that it holds.
    fn flush(&mut self) {}

    /// Reopens its destination, because the log was rotated.
    fn reopen(&mut self) {}

    /// Checks its destination; called when there is nothing else to do.
    fn idle(&mut self) {}

    /// Called after the last event.
    fn end(&mut self);
}

/// Several consumers of the same events, one after the other.
impl<C: EventConsumer> EventConsumer for Vec<C> {
    fn begin(&mut self) {
        self.iter_mut().for_each(C::begin);
    }

    fn take(&mut self, event: &Event) {
        self.iter_mut().for_each(|consumer| consumer.take(event));
    }

    fn group(&mut self, events: &[Event]) {
        self.iter_mut().for_each(|consumer| consumer.group(events));
    }

    fn holds_since(&self) -> Option<Instant> {
        self.iter().filter_map(C::holds_since).min()
    }

    fn flush(&mut self) {
        self.iter_mut().for_each(C::flush);
    }

    fn reopen(&mut self) {
        self.iter_mut().for_each(C::reopen);
    }

    fn idle(&mut self) {
        self.iter_mut().for_each(C::idle);
    }

    fn end(&mut self) {
        self.iter_mut().for_each(C::end);
    }
}

/// A consumer on its thread; it must be finished at the end of the run.
#[derive(Debug)]
pub struct ConsumerThread<C> {
    handle: ChannelHandle,
    stop: Sender<()>,
    thread: JoinHandle<C>,
}

impl<C: EventConsumer + 'static> ConsumerThread<C> {
    /// Starts a thread of this name with a new channel.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn open(name: &str, config: WriterConfig, consumer: C) -> io::Result<Self> {
        Self::start(name, channel(config), consumer)
    }

    /// Starts a thread of this name for an existing channel. If no event may be lost, callers
    /// [wait](OverflowPolicy::Wait) for space. Such a consumer must not be used on the packet path, except
    /// for rare events (a new host, for instance).
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(
        name: &str,
        (handle, queue): (ChannelHandle, ChannelReceiver),
        mut consumer: C,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        // No pause if callers wait for space: it would make them wait longer.
        let gather = handle.shared.overflow() == OverflowPolicy::Count;
        let thread = std::thread::Builder::new().name(name.to_owned());
        let name = name.to_owned();
        let thread = thread.spawn(move || {
            keep_or_warn(&name, FILES);
            run(&mut consumer, &queue, &stopped, gather);
            consumer
        })?;
        Ok(Self { handle, stop, thread })
    }

    /// Returns a sender for the consumer.
    pub fn handle(&self) -> ChannelHandle {
        self.handle.clone()
    }

    /// Waits until every event that was emitted before is taken, and stops the thread.
    ///
    /// # Panics
    /// Propagates a panic of the consumer's thread.
    pub fn finish(self) -> C {
        self.tell_to_stop();
        self.end()
    }

    /// Does the same as [`ConsumerThread::finish`], but gives up on a consumer that has not stopped after
    /// `patience`.
    ///
    /// # Panics
    /// The same as [`ConsumerThread::finish`].
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
        // The thread can be gone already only if it panicked, which `join` reports.
        let _ = self.stop.send(());
    }

    fn end(self) -> C {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Passes events from the channel to `consumer` until the stop signal, and then the rest of the channel.
fn run(consumer: &mut dyn EventConsumer, queue: &ChannelReceiver, stopped: &Receiver<()>, gather: bool) {
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
    // Events that were emitted before the stop signal may still be in the channel.
    for message in queue.messages.try_iter() {
        take(consumer, queue, message);
    }
    consumer.end();
    consumer.flush();
}

fn take(consumer: &mut dyn EventConsumer, queue: &ChannelReceiver, message: ChannelMessage) {
    match message {
        ChannelMessage::One(event, weight) => {
            queue.give_back(weight);
            consumer.take(&event);
        }
        ChannelMessage::Groups(groups, weight) => {
            queue.give_back(weight);
            groups.iter().for_each(|events| consumer.group(events));
        }
        ChannelMessage::Sync(done) => {
            consumer.flush();
            drop(done);
        }
    }
}

/// Returns the next message; `Some(None)` if a deadline has passed, `None` if it must stop.
fn next(
    consumer: &dyn EventConsumer,
    queue: &ChannelReceiver,
    stopped: &Receiver<()>,
    gather: bool,
) -> Option<Option<ChannelMessage>> {
    if let Ok(message) = queue.messages.try_recv() {
        return Some(Some(message));
    }
    let holds = consumer.holds_since().is_some();
    if gather && holds {
        // The thread sleeps without watching the channel, so that no sender has to wake it.
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
