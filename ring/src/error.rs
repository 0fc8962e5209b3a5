//! Errors of a ring.

use std::io;

/// Error of creating or using a ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel has `io_uring`, but this process may not use it.
    #[error(
        "io_uring is not permitted here (sysctl kernel.io_uring_disabled, or a container's seccomp filter)"
    )]
    NotPermitted,
    /// The kernel lacks a feature that the ring requires.
    #[error("this kernel does not support {what}")]
    NotSupported {
        /// The kernel's name of the feature.
        what: &'static str,
    },
    /// More operations than the ring's capacity.
    #[error("the ring is full")]
    Full,
    /// The socket is outside of the ring's table.
    #[error("the ring has no socket {socket}")]
    NoSocket {
        /// The number of the socket.
        socket: u32,
    },
    /// A system call failed.
    #[error("{call}: {source}")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl RingError {
    pub(super) fn call(call: &'static str, source: io::Error) -> Self {
        Self::Call { call, source }
    }

    /// Converts the error of `io_uring_setup(2)`.
    pub(super) fn setup(source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted,
            Some(libc::ENOSYS) => Self::NotSupported { what: "io_uring (CONFIG_IO_URING)" },
            Some(libc::EINVAL) => Self::NotSupported {
                what: "IORING_SETUP_COOP_TASKRUN and IORING_SETUP_SINGLE_ISSUER (Linux 6.0)",
            },
            _ => Self::call("io_uring_setup", source),
        }
    }
}
