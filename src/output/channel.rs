//! The way from those that have events to a consumer: bounded in events and in bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::event::{Event, EventSink};

/// What a full channel means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The event is lost and counted; the caller never waits.
    Count,
    /// The caller waits until there is room.
    Wait,
}

/// How a channel works.
#[derive(Debug, Clone, Copy)]
pub struct WriterConfig {
    /// Events (or batches of them) that the channel holds.
    pub capacity: usize,
    /// Bytes of memory that the events in the channel take, roughly.
    pub octets: usize,
    /// What a full channel means.
    pub overflow: Overflow,
}

impl WriterConfig {
    /// For the packet path: never wait.
    pub const COUNTING: Self = Self { capacity: 8192, octets: 16 << 20, overflow: Overflow::Count };
    /// For events by the batch, none of which may be lost.
    pub const BATCHES: Self = Self { capacity: 16, octets: 32 << 20, overflow: Overflow::Wait };
    /// For paths where nothing may be lost.
    pub const WAITING: Self = Self { capacity: 4096, octets: 16 << 20, overflow: Overflow::Wait };
}

/// Counters that the consumer's thread and all handles share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Events that found room.
    pub(super) accepted: AtomicU64,
    /// Events that the destination took.
    pub(super) written: AtomicU64,
    /// Events that found no room.
    pub(super) overflowed: AtomicU64,
    /// Events that the destination refused.
    pub(super) failed: AtomicU64,
    /// The reader of a pipe went away.
    pub(super) closed: AtomicBool,
    reopen: AtomicBool,
    /// Bytes that the events in the channel take.
    octets: AtomicUsize,
    limit: usize,
    overflow: Overflow,
    /// Whether the consumer has ended, so that no room will ever be made; guards the waiting for room.
    ended: Mutex<bool>,
    freed: Condvar,
}

pub(super) enum Message {
    One(Arc<Event>, usize),
    Groups(Vec<Vec<Event>>, usize),
    /// Write what came before, then say so by dropping the sender.
    Sync(Sender<()>),
}

/// The consumer's end.
pub(super) struct Queue {
    pub(super) messages: Receiver<Message>,
    shared: Arc<Shared>,
}

/// A way to a consumer, to be cloned for each thread that has events.
#[derive(Debug, Clone)]
pub struct Handle {
    channel: Sender<Message>,
    pub(super) shared: Arc<Shared>,
}

/// Both ends of a new channel.
pub(super) fn channel(config: WriterConfig) -> (Handle, Queue) {
    let (sender, messages) = bounded(config.capacity);
    let shared = Arc::new(Shared {
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
    });
    let queue = Queue { messages, shared: Arc::clone(&shared) };
    (Handle { channel: sender, shared }, queue)
}

impl Handle {
    /// Takes an event that others read, too.
    pub fn share(&self, event: &Arc<Event>) {
        let weight = event.weight();
        self.send(Message::One(Arc::clone(event), weight), weight);
    }

    /// Takes groups of events that belong together, so that none of another thread comes between
    /// those of a group.
    pub fn emit_groups(&self, groups: Vec<Vec<Event>>) {
        if !groups.is_empty() {
            let weight = groups.iter().flatten().map(Event::weight).sum();
            self.send(Message::Groups(groups, weight), weight);
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

    /// True if the reader of a pipe went away for good, so that more work for it is in vain.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Relaxed)
    }

    /// Asks the consumer to open its log again by its name, after it was moved away.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
    }

    fn send(&self, message: Message, weight: usize) {
        let events = message.len();
        let sent = match self.shared.overflow {
            Overflow::Wait => {
                self.shared.wait_for_room(weight);
                // Refused only where the consumer has ended.
                self.channel.send(message).is_ok()
            }
            Overflow::Count => {
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

impl EventSink for Handle {
    fn emit(&mut self, event: Event) {
        let weight = event.weight();
        self.send(Message::One(Arc::new(event), weight), weight);
    }
}

impl Queue {
    pub(super) fn give_back(&self, weight: usize) {
        self.shared.give_back(weight);
    }

    pub(super) fn reopen_was_asked(&self) -> bool {
        self.shared.reopen.swap(false, Relaxed)
    }
}

impl Shared {
    pub(super) fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Takes room where there is some; an empty channel has room for anything.
    fn take_room(&self, weight: usize) -> bool {
        let fits = |taken: usize| {
            let sum = taken.saturating_add(weight);
            (taken == 0 || sum <= self.limit).then_some(sum)
        };
        self.octets.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Takes room as soon as there is some, or none where the consumer has ended.
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
        if self.overflow == Overflow::Wait {
            // Under the lock, lest it comes between a waiting caller's look and its sleep.
            let _ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            self.freed.notify_all();
        }
    }
}

/// Wakes who waits for room when the consumer ends, by a panic too.
impl Drop for Queue {
    fn drop(&mut self) {
        *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.freed.notify_all();
    }
}

impl Message {
    fn len(&self) -> u64 {
        match self {
            Self::One(..) => 1,
            Self::Groups(groups, _) => groups.iter().map(|events| events.len() as u64).sum(),
            Self::Sync(_) => 0,
        }
    }
}
