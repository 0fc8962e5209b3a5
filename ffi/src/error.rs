//! What can go wrong with a queue, each error with the call's name and errno.

use std::io;

/// A system or library call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// The call's name as the manual has it, with the option where one call has many.
    pub call: &'static str,
    /// Its errno.
    pub source: io::Error,
}

impl CallError {
    /// An error of the call `call` that has just set errno.
    pub(crate) fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    /// An error of the call `call` with this errno, positive.
    pub(crate) fn of(call: &'static str, errno: i32) -> Self {
        Self { call, source: io::Error::from_raw_os_error(errno) }
    }

    /// The errno, where there is one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// Why a queue could not be bound, read or answered.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// A call failed for a reason that has no variant of its own.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Somebody else listens on the queue.
    #[error("queue {queue} is already bound by portid {portid} (for most programs their process id)")]
    AlreadyBound {
        /// The queue's number.
        queue: u16,
        /// The netlink address of its owner.
        portid: u32,
    },
    /// The kernel did not let us bind.
    #[error(
        "not permitted to bind queue {queue}: this takes CAP_NET_ADMIN in the network namespace (run as root)"
    )]
    NotPermitted {
        /// The queue's number.
        queue: u16,
    },
    /// The kernel has no queues or lacks an option that was asked for.
    #[error("{what} is not supported by this kernel: {source}")]
    Unsupported {
        /// What was asked for, with the kernel option behind it.
        what: &'static str,
        /// What the kernel said.
        source: CallError,
    },
}

impl QueueError {
    /// True if the cause is a missing permission or kernel feature, not a fault or a conflict.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NotPermitted { .. } | Self::Unsupported { .. })
    }
}
