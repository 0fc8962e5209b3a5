//! Channel from the emitters of events to a consumer, bounded in events and in bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::event::{Event, EventSink};

/// Behavior of a full channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// The event is dropped and counted; the caller never waits.
    Count,
    /// The caller waits until there is space.
    Wait,
}

/// Settings of a channel.
#[derive(Debug, Clone, Copy)]
pub struct WriterConfig {
    /// Number of events (or batches of them) that the channel holds.
    pub capacity: usize,
    /// Approximate number of bytes that the events in the channel may take.
    pub octets: usize,
    /// Behavior of a full channel.
    pub overflow: OverflowPolicy,
}

impl WriterConfig {
    /// For the packet path: never wait.
    pub const COUNTING: Self = Self { capacity: 8192, octets: 16 << 20, overflow: OverflowPolicy::Count };
    /// For events in batches, none of which may be lost.
    pub const BATCHES: Self = Self { capacity: 16, octets: 32 << 20, overflow: OverflowPolicy::Wait };
    /// For callers whose events may not be lost.
    pub const WAITING: Self = Self { capacity: 4096, octets: 16 << 20, overflow: OverflowPolicy::Wait };
}

/// Counters that the consumer's thread and all handles share.
#[derive(Debug)]
pub(super) struct ChannelCounters {
    /// Number of events that entered the channel.
    pub(super) accepted: AtomicU64,
    /// Number of events that the destination accepted.
    pub(super) written: AtomicU64,
    /// Number of events that were dropped because the channel was full.
    pub(super) overflowed: AtomicU64,
    /// Number of events that the destination refused.
    pub(super) failed: AtomicU64,
    /// True if the reader of a pipe is gone.
    pub(super) closed: AtomicBool,
    reopen: AtomicBool,
    /// Number of bytes that the events in the channel take.
    octets: AtomicUsize,
    limit: usize,
    overflow: OverflowPolicy,
    /// True if the consumer has stopped, so there will never be space again. The lock also guards the
    /// wait for space.
    ended: Mutex<bool>,
    freed: Condvar,
}

pub(super) enum ChannelMessage {
    One(Arc<Event>, usize),
    Groups(Vec<Vec<Event>>, usize),
    /// Write everything before, then confirm by dropping the sender.
    Sync(Sender<()>),
}

/// The consumer's end of the channel.
pub(super) struct ChannelReceiver {
    pub(super) messages: Receiver<ChannelMessage>,
    shared: Arc<ChannelCounters>,
}

/// The sender's end of the channel, to be cloned for each thread with events.
#[derive(Debug, Clone)]
pub struct ChannelHandle {
    channel: Sender<ChannelMessage>,
    pub(super) shared: Arc<ChannelCounters>,
}

/// Creates a channel and returns both ends.
pub(super) fn channel(config: WriterConfig) -> (ChannelHandle, ChannelReceiver) {
    let (sender, messages) = bounded(config.capacity);
    let shared = Arc::new(ChannelCounters::new(config));
    let queue = ChannelReceiver { messages, shared: Arc::clone(&shared) };
    (ChannelHandle { channel: sender, shared }, queue)
}

impl ChannelCounters {
    pub(super) fn new(config: WriterConfig) -> Self {
        Self {
            accepted: AtomicU64::new(0),
            written: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            octets: AtomicUsize::new(0),
            limit: config.octets,
            overflow: config.overflow,
            ended: Mutex::new(false),
            freed: Condvar::new(),
        }
    }
}

impl ChannelHandle {
    /// Sends an event that other readers share.
    pub fn share(&self, event: &Arc<Event>) {
        let weight = event.weight();
        self.send(ChannelMessage::One(Arc::clone(event), weight), weight);
    }

    /// Sends groups of events. No event of another thread comes between the events of a group.
    pub fn emit_groups(&self, groups: Vec<Vec<Event>>) {
        if !groups.is_empty() {
            let weight = groups.iter().flatten().map(Event::weight).sum();
            self.send(ChannelMessage::Groups(groups, weight), weight);
        }
    }

    /// Waits until every event that was emitted before is written (or lost and counted).
    pub fn sync(&self) {
        let (done, written) = bounded::<()>(0);
        if self.channel.send(ChannelMessage::Sync(done)).is_ok() {
            // Nothing is ever sent: the consumer drops the sender when it is done.
            let _ = written.recv();
        }
    }

    /// Number of events lost so far: the channel was full, or the destination refused them.
    pub fn lost(&self) -> u64 {
        self.shared.overflowed.load(Relaxed) + self.shared.failed.load(Relaxed)
    }

    /// Number of events that the destination accepted so far.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// True if the reader of a pipe is gone for good: further events are useless.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Relaxed)
    }

    /// Requests that the consumer reopens its log by name, after a rotation.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
    }

    fn send(&self, message: ChannelMessage, weight: usize) {
        let events = message.len();
        let sent = match self.shared.overflow {
            OverflowPolicy::Wait => {
                self.shared.wait_for_room(weight);
                // This fails only if the consumer has stopped.
                self.channel.send(message).is_ok()
            }
            OverflowPolicy::Count => {
                self.shared.take_room(weight)
                    && match self.channel.try_send(message) {
                        Ok(()) => true,
                        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                            self.shared.give_back(weight);
                            false
                        }
                    }
            }
        };
        let counter = if sent { &self.shared.accepted } else { &self.shared.overflowed };
        counter.fetch_add(events, Relaxed);
    }
}

impl EventSink for ChannelHandle {
    fn emit(&mut self, event: Event) {
        let weight = event.weight();
        self.send(ChannelMessage::One(Arc::new(event), weight), weight);
    }
}

impl ChannelReceiver {
    pub(super) fn give_back(&self, weight: usize) {
        self.shared.give_back(weight);
    }

    pub(super) fn reopen_was_asked(&self) -> bool {
        self.shared.reopen.swap(false, Relaxed)
    }
}

impl ChannelCounters {
    pub(super) fn overflow(&self) -> OverflowPolicy {
        self.overflow
    }

    /// Reserves space if there is enough; an empty channel accepts an event of any size.
    fn take_room(&self, weight: usize) -> bool {
        let fits = |taken: usize| {
            let sum = taken.saturating_add(weight);
            (taken == 0 || sum <= self.limit).then_some(sum)
        };
        self.octets.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Waits for space and reserves it. If the consumer has stopped, it returns without space.
    fn wait_for_room(&self, weight: usize) {
        if self.take_room(weight) {
            return;
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended && !self.take_room(weight) {
            ended = self.freed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, weight: usize) {
        self.octets.fetch_sub(weight, Relaxed);
        if self.overflow == OverflowPolicy::Wait {
            // The lock ensures that this does not come between a waiting caller's check and its sleep.
            let _ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            self.freed.notify_all();
        }
    }
}

/// Wakes callers that wait for space when the consumer stops, also by a panic.
impl Drop for ChannelReceiver {
    fn drop(&mut self) {
        *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.freed.notify_all();
    }
}

impl ChannelMessage {
    fn len(&self) -> u64 {
        match self {
            Self::One(..) => 1,
            Self::Groups(groups, _) => groups.iter().map(|events| events.len() as u64).sum(),
            Self::Sync(_) => 0,
        }
    }
}
