//! What consumes the guard's events beside its outputs. The guard starts, confines and stops such readers,
//! and knows nothing else of them; they are implemented above it.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::confinement::Confinement;
use crate::event::Event;
use crate::output::Handle;
use crate::privileges::User;

/// An error of what is attached to a guard, with a message that names the flag.
pub type AttachedError = Box<dyn Error + Send + Sync>;

/// Passes events to a reader, for one thread. Never waits: it runs on the packet path.
pub type EventSender = Box<dyn FnMut(&Arc<Event>) + Send>;

/// A configured reader of events.
pub trait EventReader {
    /// Reads what a start would read, and makes nothing.
    ///
    /// # Errors
    /// A start would fail.
    fn check(&self) -> Result<(), AttachedError> {
        Ok(())
    }

    /// Makes, while the process still has all its rights, what it needs as `user`.
    ///
    /// # Errors
    /// The system's error.
    fn prepare(&self, _user: Option<&User>) -> Result<(), AttachedError> {
        Ok(())
    }

    /// Adds the files and system calls that it needs once the process is confined, beside files that it writes.
    fn confine(&self, confinement: Confinement) -> Confinement {
        confinement
    }

    /// Starts the reader.
    ///
    /// # Errors
    /// What it writes cannot be opened, or there is no thread for it.
    fn start(self: Box<Self>, start: ReaderStart) -> Result<Box<dyn RunningReader>, AttachedError>;
}

/// Prepares all of these readers, see [`EventReader::prepare`].
///
/// # Errors
/// As that.
pub(super) fn prepare(readers: &[Box<dyn EventReader>], user: Option<&User>) -> Result<(), AttachedError> {
    readers.iter().try_for_each(|reader| reader.prepare(user))
}

/// Returns what these readers need once the process is confined.
pub(super) fn confinement(readers: &[Box<dyn EventReader>]) -> Confinement {
    readers.iter().fold(Confinement::default(), |confinement, reader| reader.confine(confinement))
}

/// What a reader gets at its start.
pub struct ReaderStart {
    /// The outputs, for events of its own. They are finished after it.
    pub outputs: Vec<Handle>,
    /// True if it takes over from another process that is about to exit.
    pub succeeds: bool,
}

/// A reader that has started.
pub trait RunningReader: Send {
    /// Returns a new way to it.
    fn sender(&self) -> EventSender;

    /// Opens what only one process can have, once a predecessor is gone; returns the address that it serves
    /// on, if it does.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&mut self) -> Result<Option<SocketAddr>, AttachedError> {
        Ok(None)
    }

    /// Closes what [`Self::open`] opened, for a successor.
    fn close(&mut self) {}

    /// Returns the totals since its start.
    fn counts(&self) -> ReaderCounts {
        ReaderCounts::default()
    }

    /// What keeps it from its work now; the guard is not ready as long as anything does.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// Waits at most this long until it has taken all events, and returns the final totals.
    fn finish(self: Box<Self>, patience: Duration) -> ReaderCounts;
}

/// Totals of a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// Events and sightings that were lost.
    pub lost: u64,
    /// Records that were evicted to make room.
    pub evicted: u64,
    /// Times that its file was replaced under it.
    pub replaced: u64,
    /// Sightings that were dropped before they were sent.
    pub dropped: u64,
    /// Batches that were set aside.
    pub set_aside: u64,
    /// Batches that wait to be sent, and their bytes; none if it sends nothing.
    pub waiting: Option<(u64, u64)>,
}

impl ReaderCounts {
    /// Adds the totals of another reader.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let waiting = self.waiting.zip(other.waiting).map(|(one, two)| (one.0 + two.0, one.1 + two.1));
        Self {
            lost: self.lost + other.lost,
            evicted: self.evicted + other.evicted,
            replaced: self.replaced + other.replaced,
            dropped: self.dropped + other.dropped,
            set_aside: self.set_aside + other.set_aside,
            waiting: waiting.or(self.waiting).or(other.waiting),
        }
    }
}
