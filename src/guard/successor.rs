//! The process that takes over from this one.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::takeover::{ConnectedSuccessor, DescriptorStore};

/// The process that takes over from this one.
pub(super) enum Successor {
    /// A guard that waits to take over.
    Guard(ConnectedSuccessor),
    /// The next guard that the service manager starts.
    Stored(DescriptorStore),
}

impl Successor {
    /// Notes that the loops are told to stop now.
    pub(super) fn mark_served(&self) {
        if let Self::Guard(guard) = self {
            guard.mark_served();
        }
    }

    /// Makes the successor wait for the end of this process.
    pub(super) fn hold_until_exit(&self) {
        if let Self::Guard(guard) = self {
            guard.hold_until_exit();
        }
    }

    pub(super) fn send_state(&self, name: String, state: &OwnedFd) -> io::Result<()> {
        match self {
            Self::Guard(guard) => guard.send_state(name, state),
            Self::Stored(store) => {
                store.keep(&name, state.as_fd());
                Ok(())
            }
        }
    }

    pub(super) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Guard(guard) => guard.finish(),
            Self::Stored(store) => {
                store.wait();
                Ok(())
            }
        }
    }
}
