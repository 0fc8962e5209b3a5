//! Buffers for many datagrams, allocated once, filled by one `recvmmsg`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libc::{c_uint, iovec, mmsghdr};

use crate::error::CallError;

/// Number of bytes of a message besides the payload: two headers and some fifteen attributes.
const METADATA: usize = 512;
/// Slots start on different cache lines so that they do not compete for one set of the cache.
const ALIGNMENT: usize = 64;
/// Smallest number of slots that a receive offers. Offering all slots each time would cost a single
/// packet some eighty cache lines of headers.
const FEWEST: usize = 16;

/// The kind of wait for the first datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveWait {
    /// Waits until it comes or the socket's receive timeout passes.
    Timeout,
    /// Does not wait.
    Never,
    /// Does not wait, and leaves the datagrams in the socket.
    Peek,
}

/// Slots for datagrams, and the headers that point the kernel to them.
#[derive(Debug)]
pub(super) struct DatagramSlots {
    /// `headers.len()` slots of `stride` bytes.
    buffer: Box<[u8]>,
    stride: usize,
    /// One for each slot; the pointers are valid only within `receive`, which sets them.
    vectors: Box<[iovec]>,
    /// One for each slot; the pointers are valid only within `receive`, which sets them.
    headers: Box<[mmsghdr]>,
    /// Number of slots that the next receive offers: twice as many as the last one filled.
    offered: usize,
}

// SAFETY: the pointers in `vectors` and `headers` are dead outside of `receive`, which sets them anew
// before it uses them, so that nothing of the thread that made them is ever reached through them.
unsafe impl Send for DatagramSlots {}

impl DatagramSlots {
    /// Allocates `count` slots for payloads of `copy_range` bytes.
    pub(super) fn new(count: usize, copy_range: usize) -> Self {
        let stride = (METADATA + copy_range).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        let vector = iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            buffer: vec![0; count * stride].into_boxed_slice(),
            stride,
            vectors: vec![vector; count].into_boxed_slice(),
            headers: (0..count).map(|_slot| empty_header()).collect(),
            offered: FEWEST,
        }
    }

    /// Number of slots.
    pub(super) fn count(&self) -> usize {
        self.headers.len()
    }

    /// True if a payload of `copy_range` bytes fits.
    pub(super) fn fits(&self, copy_range: usize) -> bool {
        METADATA + copy_range <= self.stride
    }

    /// Receives up to `limit` datagrams. It waits for the first one; others are only taken if they are
    /// there.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        limit: usize,
        wait: ReceiveWait,
    ) -> Result<usize, CallError> {
        let flags = match wait {
            // MSG_WAITFORONE: after the first datagram the call does not wait for more (recvmmsg(2)).
            ReceiveWait::Timeout => libc::MSG_WAITFORONE,
            ReceiveWait::Never => libc::MSG_DONTWAIT,
            ReceiveWait::Peek => libc::MSG_DONTWAIT | libc::MSG_PEEK,
        };
        let limit = limit.min(self.offered).min(self.count());
        let slots = self.buffer.chunks_exact_mut(self.stride);
        for ((header, vector), slot) in self.headers.iter_mut().zip(&mut self.vectors).zip(slots).take(limit)
        {
            // Set before each call: the values may have moved since, and the kernel has written the lengths.
            *vector = iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        let headers = self.headers.as_mut_ptr();
        let limit = c_uint::try_from(limit).unwrap_or(0);
        // SAFETY: the first `limit` headers were just pointed to one vector each, and those to one slot
        // each with its length; headers, vectors and slots are `self`'s, which is borrowed mutably.
        let received =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, limit, flags as _, ptr::null_mut()) };
        let received = usize::try_from(received).map_err(|_negative| CallError::last("recvmmsg"))?;
        self.offered = (2 * received).max(FEWEST);
        Ok(received)
    }

    /// Returns the datagram in slot `index` of the last receive, and true if it was too long for the
    /// slot.
    pub(super) fn datagram(&self, index: usize) -> Option<(&[u8], bool)> {
        let header = self.headers.get(index)?;
        let start = index.checked_mul(self.stride)?;
        let length = usize::try_from(header.msg_len).ok()?.min(self.stride);
        let datagram = self.buffer.get(start..start.checked_add(length)?)?;
        Some((datagram, header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0))
    }
}

/// Returns a message header that points to nothing.
fn empty_header() -> mmsghdr {
    // SAFETY: an mmsghdr is numbers and pointers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}
