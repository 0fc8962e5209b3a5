//! Access to the netlink socket inside another library's queue, for features that the library lacks.
//!
//! The `nfq` crate does not expose its socket. But a queue in production needs a larger receive buffer, a
//! wait with a time limit and the socket's loss counter. So this module finds the socket among the
//! process's descriptors and duplicates it. Options, readiness and counters belong to the socket, not to
//! the descriptor, and our duplicate stays valid whatever the library does with its own.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::netlink_socket;
use crate::error::CallError;

/// Allows one search at a time: two searches would each see the other's new socket.
static SEARCH: Mutex<()> = Mutex::new(());

/// A second descriptor of a netfilter socket that another library opened.
#[derive(Debug)]
pub struct ForeignSocket(OwnedFd);

impl ForeignSocket {
    /// Runs `open` and finds the netfilter socket that it opened.
    ///
    /// # Errors
    ///
    /// `open` fails, or there is not exactly one new netfilter socket in this process.
    pub fn of<T>(open: impl FnOnce() -> io::Result<T>) -> Result<(T, Self), CallError> {
        let _one_at_a_time = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
        let before: HashSet<PathBuf> = descriptors()?.into_iter().map(|(_fd, target)| target).collect();
        let opened = open().map_err(|source| CallError { call: "open a netfilter queue", source })?;
        let mut found = Vec::new();
        for (fd, target) in descriptors()? {
            if before.contains(&target) {
                continue;
            }
            // SAFETY: descriptor `fd` was open a moment ago. Should another thread have closed it since,
            // the duplication fails or yields something that is not a netfilter socket of ours and is
            // closed again without having been read or written.
            let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
            let Ok(duplicate) = borrowed.try_clone_to_owned() else { continue };
            if netlink_socket::is_netfilter(duplicate.as_fd()) {
                // Programs that we start (iptables) must not inherit a socket that can give verdicts.
                netlink_socket::close_on_exec(borrowed)?;
                found.push(duplicate);
            }
        }
        match (found.pop(), found.is_empty()) {
            (Some(socket), true) => Ok((opened, Self(socket))),
            _ => Err(CallError { call: "find a queue's socket", source: io::ErrorKind::NotFound.into() }),
        }
    }

    /// Requests a receive buffer of `octets` bytes; returns the size that the kernel granted.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn set_receive_buffer(&self, octets: usize) -> Result<usize, CallError> {
        netlink_socket::set_receive_buffer(self.0.as_fd(), octets)
    }

    /// Waits until the socket is readable, up to `timeout`; returns false on a timeout.
    ///
    /// # Errors
    ///
    /// The wait fails for a reason other than a signal.
    pub fn wait_readable(&self, timeout: Duration) -> Result<bool, CallError> {
        netlink_socket::wait_readable(self.0.as_fd(), timeout)
    }

    /// Returns the number of messages that did not fit into the socket.
    ///
    /// # Errors
    ///
    /// The kernel does not report it.
    pub fn drops(&self) -> Result<u64, CallError> {
        netlink_socket::drops(self.0.as_fd())
    }

    /// The socket's netlink address.
    ///
    /// # Errors
    ///
    /// The kernel does not report it.
    pub fn portid(&self) -> Result<u32, CallError> {
        netlink_socket::portid(self.0.as_fd())
    }
}

/// Returns the process's open descriptors and their targets: `socket:[4711]`.
fn descriptors() -> Result<Vec<(RawFd, PathBuf)>, CallError> {
    let failed = |source| CallError { call: "read(/proc/self/fd)", source };
    let mut list = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A descriptor that was closed since (the directory's own is) has no target.
        if let (Some(fd), Ok(target)) = (fd, fs::read_link(entry.path())) {
            list.push((fd, target));
        }
    }
    Ok(list)
}
