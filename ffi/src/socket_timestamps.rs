//! Time stamps of received packets, which the kernel makes only while a socket requests them.

use std::mem::size_of_val;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, socklen_t};

use crate::error::CallError;

/// Request for time stamps. While it lives, the kernel stamps every packet that it receives
/// (`net_enable_timestamp` in `net/core/dev.c`), for the price of one clock reading each. Queues then
/// report how long a packet has waited, on hooks up to FORWARD.
#[derive(Debug)]
pub struct PacketStamps {
    /// Kept only for its option.
    _socket: OwnedFd,
}

impl PacketStamps {
    /// Opens a datagram socket with `SO_TIMESTAMPNS`. This needs no privilege.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left, or no IPv4.
    pub fn enable() -> Result<Self, CallError> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(CallError::last("socket(AF_INET)"));
        }
        // SAFETY: `fd` was just opened and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let on: c_int = 1;
        let length = socklen_t::try_from(size_of_val(&on)).unwrap_or(socklen_t::MAX);
        // SAFETY: `on` is a live integer of `length` bytes for the length of the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPNS,
                ptr::from_ref(&on).cast(),
                length,
            )
        };
        if result < 0 {
            Err(CallError::last("setsockopt(SO_TIMESTAMPNS)"))
        } else {
            Ok(Self { _socket: socket })
        }
    }
}
