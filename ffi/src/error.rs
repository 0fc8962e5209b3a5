//! Errors of a queue, each with the call's name and errno.

use std::io;

/// A system or library call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// The call's name as in the manual, with the option if one call has many.
    pub call: &'static str,
    /// Its errno.
    pub source: io::Error,
}

impl CallError {
    /// Returns an error of the call `call` with the current errno.
    pub(crate) fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    /// Returns an error of the call `call` with this errno, positive.
    pub(crate) fn of(call: &'static str, errno: i32) -> Self {
        Self { call, source: io::Error::from_raw_os_error(errno) }
    }

    /// Returns the errno, if there is one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// Error of binding, reading or answering a queue.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// A call failed for any other reason.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Another socket is bound to the queue.
    #[error("queue {queue} is already bound by portid {portid} (for most programs their process id)")]
    AlreadyBound {
        /// The queue's number.
        queue: u16,
        /// The netlink address of the owner.
        portid: u32,
    },
    /// The kernel refused the bind.
    #[error(
        "not permitted to bind queue {queue}: this takes CAP_NET_ADMIN in the network namespace (run as root)"
    )]
    NotPermitted {
        /// The queue's number.
        queue: u16,
    },
    /// The kernel has no queues, or lacks a requested option.
    #[error("{what} is not supported by this kernel: {source}")]
    Unsupported {
        /// The requested feature, with its kernel option.
        what: &'static str,
        /// The kernel's error.
        source: CallError,
    },
}

impl QueueError {
    /// True if the cause is a missing permission or kernel feature, not a fault or a conflict.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NotPermitted { .. } | Self::Unsupported { .. })
    }
}
