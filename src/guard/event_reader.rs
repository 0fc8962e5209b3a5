//! Interface of the consumers of events other than the outputs. The guard starts, confines and stops such
//! readers, and knows nothing else about them. Other modules implement them.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::confinement::Confinement;
use crate::event::Event;
use crate::output::ChannelHandle;
use crate::privileges::UnprivilegedUser;

/// Error of a reader or rule source of the guard. Its message names the flag.
pub type AttachedError = Box<dyn Error + Send + Sync>;

/// Passes events to a reader, for one thread. It never waits, since it runs on the packet path.
pub type EventSender = Box<dyn FnMut(&Arc<Event>) + Send>;

/// A configured reader of events.
pub trait EventReader {
    /// Checks everything that a start would read, and creates nothing.
    ///
    /// # Errors
    ///
    /// A start would fail.
    fn check(&self) -> Result<(), AttachedError> {
        Ok(())
    }

    /// Creates what the reader needs as `user`, while the process still has all its privileges.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn prepare(&self, _user: Option<&UnprivilegedUser>) -> Result<(), AttachedError> {
        Ok(())
    }

    /// Adds the files and system calls that the reader needs in the confined process, other than the files
    /// that it writes.
    fn confine(&self, confinement: Confinement) -> Confinement {
        confinement
    }

    /// Starts the reader.
    ///
    /// # Errors
    ///
    /// A file that it writes cannot be opened, or the system has no free thread.
    fn start(self: Box<Self>, start: ReaderStart) -> Result<Box<dyn RunningReader>, AttachedError>;
}

/// Prepares all of these readers, see [`EventReader::prepare`].
///
/// # Errors
///
/// As [`EventReader::prepare`].
pub(super) fn prepare(
    readers: &[Box<dyn EventReader>],
    user: Option<&UnprivilegedUser>,
) -> Result<(), AttachedError> {
    readers.iter().try_for_each(|reader| reader.prepare(user))
}

/// Returns the files and system calls that these readers need in the confined process.
pub(super) fn confinement(readers: &[Box<dyn EventReader>]) -> Confinement {
    readers.iter().fold(Confinement::default(), |confinement, reader| reader.confine(confinement))
}

/// Everything that a reader gets at its start.
pub struct ReaderStart {
    /// The outputs, for the reader's own events. They finish after the reader.
    pub outputs: Vec<ChannelHandle>,
    /// True if the reader takes over from another process that is about to exit.
    pub succeeds: bool,
}

/// A reader that has started.
pub trait RunningReader: Send {
    /// Returns a new sender to the reader.
    fn sender(&self) -> EventSender;

    /// Opens what only one process can have, after the predecessor has exited. Returns the address that the
    /// reader serves on, if it serves.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    fn open(&mut self) -> Result<Option<SocketAddr>, AttachedError> {
        Ok(None)
    }

    /// Closes what [`Self::open`] opened, for a successor.
    fn close(&mut self) {}

    /// Returns the totals since the start.
    fn counts(&self) -> ReaderCounts {
        ReaderCounts::default()
    }

    /// Returns the obstacle to its work now. The guard is not ready while there is one.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// Waits at most this long until it has taken all events, and returns the final totals.
    fn finish(self: Box<Self>, patience: Duration) -> ReaderCounts;
}

/// Totals of a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// Number of lost events and sightings.
    pub lost: u64,
    /// Number of records evicted to make room.
    pub evicted: u64,
    /// Number of times that another program replaced the reader's file.
    pub replaced: u64,
    /// Number of sightings dropped before they were sent.
    pub dropped: u64,
    /// Number of batches set aside.
    pub set_aside: u64,
    /// Number of batches that wait to be sent, and their size in bytes; absent if the reader sends nothing.
    pub waiting: Option<(u64, u64)>,
}

impl ReaderCounts {
    /// Returns the sum of these totals and those of another reader.
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
