//! Identity of the network namespace.

use std::mem::size_of_val;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::ptr;

use libc::{c_int, socklen_t};

use crate::error::CallError;

/// `SO_NETNS_COOKIE` (`asm-generic/socket.h`, Linux 5.14).
const SO_NETNS_COOKIE: c_int = 71;

/// Returns the number of the calling thread's network namespace, which is unique until the next boot.
/// Inode numbers, as in namespaces(7), are reused for new namespaces.
///
/// # Errors
///
/// The system has no descriptor left, or its kernel is older than 5.14.
pub fn cookie() -> Result<u64, CallError> {
    // A pair, which confined threads may open, too.
    let (socket, _peer) = UnixDatagram::pair()
        .map_err(|error| CallError::of("socketpair(AF_UNIX)", error.raw_os_error().unwrap_or_default()))?;
    cookie_of(socket.as_fd())
}

/// True if a socket belongs to the calling thread's network namespace. Before Linux 5.14 the kernel
/// cannot show it.
pub(crate) fn is_own(socket: BorrowedFd<'_>) -> bool {
    cookie_of(socket).ok().zip(cookie().ok()).is_none_or(|(its, own)| its == own)
}

fn cookie_of(socket: BorrowedFd<'_>) -> Result<u64, CallError> {
    let mut cookie = 0_u64;
    let mut length = socklen_t::try_from(size_of_val(&cookie)).unwrap_or_default();
    // SAFETY: `cookie` is live and writable, of `length` bytes that may be any; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            ptr::from_mut(&mut cookie).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(CallError::last("getsockopt(SO_NETNS_COOKIE)")) } else { Ok(cookie) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_number() {
        let own = cookie().expect("Linux 5.14");
        assert_ne!(own, 0);
        assert_eq!(std::thread::spawn(cookie).join().expect("no panic").expect("as before"), own);
    }
}
