//! The memory for receives: a few buffers from which the kernel picks when data comes (a provided buffer
//! ring). So silent sockets need no buffers.
//!
//! A buffer belongs to the kernel until a completion names it, then to the caller until `give_back`.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::RingError;

/// The number of the only buffer group.
pub(super) const GROUP: u16 = 0;
/// The kernel requires its part to be aligned to a page.
const PAGE: usize = 4096;

/// The buffers of a ring, and the small ring that passes them to the kernel.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    /// `count` ring entries, then, from `data` on, `count` buffers of `size` bytes.
    memory: Option<NonNull<u8>>,
    layout: Layout,
    data: usize,
    count: u16,
    size: usize,
    /// Our copy of the kernel's tail.
    tail: u16,
    /// The last buffer that was taken, and the number of its bytes.
    taken: Option<(u16, usize)>,
}

// SAFETY: the memory belongs to this value alone (and to the kernel, which does not care about
// threads); nothing else points to it.
unsafe impl Send for ReceiveBuffers {}

impl ReceiveBuffers {
    /// Allocates `count` buffers of `size` bytes and gives them to the kernel.
    pub(super) fn register(ring: &IoUring, count: u16, size: u32) -> Result<Self, RingError> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let data = usize::from(count) * size_of::<BufRingEntry>();
        let octets = size.saturating_mul(usize::from(count)).saturating_add(data);
        let layout = Layout::from_size_align(octets, PAGE).map_err(|_overflow| RingError::Full)?;
        let mut buffers = Self { memory: None, layout, data, count, size, tail: 0, taken: None };
        if octets == 0 {
            return Ok(buffers);
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        buffers.memory = Some(memory);
        let address = memory.as_ptr().expose_provenance() as u64;
        // SAFETY: the memory stays allocated until `buffers` is dropped, which is after the ring
        // (and with it this registration) is gone, or never.
        let registered = unsafe { ring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0) };
        registered.map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) => RingError::NotSupported { what: "IORING_REGISTER_PBUF_RING (Linux 5.19)" },
            _ => RingError::call("io_uring_register(PBUF_RING)", source),
        })?;
        // The kernel starts with an empty ring: a buffer is its own only once it is offered.
        for buffer in 0..count {
            buffers.offer(memory, buffer);
        }
        Ok(buffers)
    }

    /// Records the buffer that a completion named, and the number of bytes in it.
    pub(super) fn take(&mut self, buffer: u16, octets: u32) {
        self.give_back();
        if buffer < self.count {
            let octets = usize::try_from(octets).unwrap_or(usize::MAX).min(self.size);
            self.taken = Some((buffer, octets));
        }
    }

    /// The bytes that the kernel wrote into the last buffer, exactly.
    pub(super) fn taken(&self) -> &[u8] {
        let (Some(memory), Some((buffer, octets))) = (self.memory, self.taken) else { return &[] };
        // SAFETY: `buffer` is below `count`, so the place is inside the allocation.
        let start = unsafe { memory.add(self.data + usize::from(buffer) * self.size) };
        // SAFETY: `octets` is at most `size`; the memory was zeroed at first and has been written
        // by the kernel since, which leaves the buffer alone until `give_back` (`&mut self`).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), octets) }
    }

    /// Returns the last buffer to the kernel.
    pub(super) fn give_back(&mut self) {
        if let (Some(memory), Some((buffer, _))) = (self.memory, self.taken.take()) {
            self.offer(memory, buffer);
        }
    }

    /// Adds `buffer` (below `count`) at the tail of the kernel's ring.
    fn offer(&mut self, memory: NonNull<u8>, buffer: u16) {
        // SAFETY: `buffer` is below `count`, so the place is inside the allocation.
        let start = unsafe { memory.add(self.data + usize::from(buffer) * self.size) };
        let ring = memory.cast::<BufRingEntry>();
        // `count` is a power of two; the kernel refuses others.
        let place = usize::from(self.tail & (self.count - 1));
        // SAFETY: `place` is below `count`, so the entry is inside the allocation.
        let mut entry = unsafe { ring.add(place) };
        // SAFETY: the memory is zeroed or written before, aligned to a page; the kernel only reads
        // entries between its head and the tail, and this one is not among them.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.as_ptr().expose_provenance() as u64);
        entry.set_len(u32::try_from(self.size).unwrap_or(u32::MAX));
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `ring` is the first entry of a registered, initialised buffer ring.
        let tail = unsafe { BufRingEntry::tail(ring.as_ptr()) };
        // SAFETY: the pointer is valid and aligned as long as the memory; the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // The entry must be visible before the tail is.
        tail.store(self.tail, Ordering::Release);
    }

    /// Leaks the memory, because the kernel still holds some of it.
    pub(super) fn leak(&mut self) {
        self.memory = None;
        self.taken = None;
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        if let Some(memory) = self.memory {
            // SAFETY: allocated with this layout in `register`, and freed nowhere else.
            unsafe { dealloc(memory.as_ptr(), self.layout) };
        }
    }
}
