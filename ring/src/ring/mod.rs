//! The ring: what is queued, submitted, waited for and taken.
//!
//! Sockets are direct descriptors: numbers in a table that belongs to the ring. Everything is
//! allocated when the ring is created.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};

use crate::buffers::Buffers;
use crate::operation::{self, Ended, Kind};
use crate::slab::Slab;
use crate::{Family, Key, Link, Operation, RingError, Socket, Unattended};

/// Sizes of a ring, fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Entries of the submission queue: operations handed over in one call.
    pub submissions: u32,
    /// Operations in flight at most.
    pub operations: u32,
    /// Direct sockets.
    pub sockets: u32,
    /// Receive buffers, a power of two up to 32,768; none for a ring that never receives.
    pub buffers: u16,
    /// Bytes of each receive buffer.
    pub buffer_size: u32,
    /// Find out whether this kernel lets [`Unattended::NoDelay`] have an effect.
    pub no_delay: bool,
}

/// An operation that is over.
#[derive(Debug)]
pub struct Completion<T> {
    /// What was pushed along with the operation.
    pub state: T,
    /// The kernel's result: bytes moved, or a positive error number.
    pub result: Result<u32, i32>,
    /// The bytes that a [`Operation::Send`] owned; empty for other operations.
    pub octets: Vec<u8>,
}

/// What [`Ring::pop`] gives.
#[derive(Debug)]
pub enum Completed<T> {
    /// An operation is over.
    Operation(Completion<T>),
    /// An operation that nobody waits for failed; those that succeed are not reported.
    Failed {
        /// Which socket it was about.
        socket: Socket,
        /// Positive error number.
        error: i32,
    },
}

/// A completion ring whose operations carry a `T`.
///
/// It belongs to the thread that created it: other threads' submissions are refused by the kernel.
#[derive(Debug)]
pub struct Ring<T> {
    // Dropped first: once the kernel has let go of the ring, the memory below may go.
    ring: Inner,
    slab: Slab<T>,
    buffers: Buffers,
    /// Places in the table of sockets.
    sockets: u32,
    /// `TCP_NODELAY` can be set on direct sockets.
    no_delay: bool,
}

struct Inner(IoUring);

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("IoUring")
    }
}

impl<T> Ring<T> {
    /// Creates a ring and everything that it will ever use.
    ///
    /// # Errors
    ///
    /// [`RingError::NotPermitted`] and [`RingError::NotSupported`] name what this machine lacks;
    /// [`RingError::Call`] is a shortage of memory or descriptors.
    pub fn new(options: &Options) -> Result<Self, RingError> {
        let ring = build(options)?;
        require(&ring)?;
        ring.submitter()
            .register_files_sparse(options.sockets)
            .map_err(|source| RingError::call("io_uring_register(FILES2)", source))?;
        let buffers = Buffers::register(&ring, options.buffers, options.buffer_size)?;
        restrict(&ring)?;
        let slab = Slab::with_capacity(options.operations);
        let mut ring = Self { ring: Inner(ring), slab, buffers, sockets: options.sockets, no_delay: false };
        ring.no_delay = options.no_delay && ring.try_no_delay()?;
        Ok(ring)
    }

    /// True if [`Unattended::NoDelay`] has an effect.
    pub fn has_no_delay(&self) -> bool {
        self.no_delay
    }

    /// Makes room for a chain of `operations`, submitting what is queued when there is not enough.
    ///
    /// A chain must reach the kernel in one submission, else its links are cut.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit`].
    pub fn reserve(&mut self, operations: usize) -> Result<(), RingError> {
        if self.room() < operations { self.submit() } else { Ok(()) }
    }

    /// How many more operations one submission can hold.
    pub fn room(&mut self) -> usize {
        let queue = self.ring.0.submission();
        queue.capacity() - queue.len()
    }

    /// How many operations were queued and not yet submitted.
    pub fn queued(&mut self) -> usize {
        self.ring.0.submission().len()
    }

    /// Queues an operation; `state` comes back with its completion.
    ///
    /// # Errors
    ///
    /// [`RingError::Full`] when no room was [reserved](Ring::reserve), or when more than
    /// [`Options::operations`] would be in flight; [`RingError::NoSocket`] beyond [`Options::sockets`].
    pub fn push(&mut self, operation: Operation, link: Link, state: T) -> Result<Key, RingError> {
        self.check(operation.socket())?;
        let key = self.slab.insert(state).ok_or(RingError::Full)?;
        let entry = operation.prepare(&mut self.slab, key).flags(link.flags()).user_data(key.user_data());
        match self.enqueue(&entry) {
            Ok(()) => Ok(key),
            Err(error) => {
                self.slab.remove(key);
                Err(error)
            }
        }
    }

    /// Queues an operation that nobody waits for: only its failure is reported.
    ///
    /// It may only be the head of a hard-linked chain, or stand behind others that are. (The kernel posts
    /// no completion for what is cut off behind a failed silent operation, so a soft link would lose the
    /// followers' values.)
    ///
    /// # Errors
    ///
    /// [`RingError::Full`] when no room was [reserved](Ring::reserve); [`RingError::NoSocket`] beyond
    /// [`Options::sockets`].
    pub fn push_unattended(&mut self, operation: Unattended, chained: bool) -> Result<(), RingError> {
        if let Some(socket) = operation.socket() {
            self.check(socket)?;
        }
        if matches!(operation, Unattended::NoDelay { .. }) && !self.no_delay {
            return Ok(());
        }
        let mut flags = squeue::Flags::SKIP_SUCCESS;
        if chained {
            flags |= squeue::Flags::IO_HARDLINK;
        }
        self.enqueue(&operation.prepare().flags(flags).user_data(operation.user_data()))
    }

    /// Refuses a socket outside the table: the kernel would make an ordinary descriptor for the highest
    /// number, which nobody would ever close.
    fn check(&self, Socket(socket): Socket) -> Result<(), RingError> {
        if socket < self.sockets { Ok(()) } else { Err(RingError::NoSocket { socket }) }
    }

    fn enqueue(&mut self, entry: &squeue::Entry) -> Result<(), RingError> {
        let mut queue = self.ring.0.submission();
        // SAFETY: every pointer in an entry made by `operation` leads to static memory or to
        // memory owned by `slab` or `buffers`, which keep it in place until the completion has
        // been taken, and which `drop` leaks if the kernel does not let go.
        let pushed = unsafe { queue.push(entry) };
        pushed.map_err(|_full| RingError::Full)
    }

    /// Hands everything queued to the kernel.
    ///
    /// # Errors
    ///
    /// [`RingError::Call`] for what `io_uring_enter(2)` gives, but for passing conditions.
    pub fn submit(&mut self) -> Result<(), RingError> {
        passing(self.ring.0.submit())
    }

    /// Hands everything queued to the kernel, then waits for `want` completions or `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit`].
    pub fn submit_and_wait(&mut self, want: usize, timeout: Duration) -> Result<(), RingError> {
        let timeout = Timespec::from(timeout);
        passing(self.ring.0.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&timeout)))
    }

    /// Takes the next completion, if there is one.
    ///
    /// What [`Ring::received`] gave for the one before goes back to the kernel.
    pub fn pop(&mut self) -> Option<Completed<T>> {
        self.buffers.give_back();
        loop {
            let entry = self.ring.0.completion().next()?;
            if let Some(completed) = self.take(&entry) {
                return Some(completed);
            }
        }
    }

    /// The bytes that the receive taken last brought, exactly; empty if it was another operation.
    pub fn received(&self) -> &[u8] {
        self.buffers.taken()
    }

    /// Operations in flight, those that nobody waits for left out.
    pub fn in_flight(&self) -> usize {
        self.slab.len()
    }

    fn take(&mut self, entry: &cqueue::Entry) -> Option<Completed<T>> {
        let result = u32::try_from(entry.result()).map_err(|_negative| entry.result().wrapping_neg());
        if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
            self.buffers.take(buffer, result.unwrap_or(0));
        }
        if let Some(Ended { kind, socket }) = Ended::of_user_data(entry.user_data()) {
            return match (kind, result.err()?) {
                // It had ended by itself: the race that every cancellation can lose.
                (Kind::Cancel, libc::ENOENT | libc::EALREADY) => None,
                // What matters is told by what was to make the socket, or does not matter.
                (Kind::NoDelay, _) => None,
                (_, error) => Some(Completed::Failed { socket, error }),
            };
        }
        let (state, octets) = self.slab.remove(Key::of_user_data(entry.user_data()))?;
        Some(Completed::Operation(Completion { state, result, octets }))
    }

    /// Sets `TCP_NODELAY` on a first socket, to see whether the kernel is able to: that it knows the
    /// operation's number does not tell.
    fn try_no_delay(&mut self) -> Result<bool, RingError> {
        let socket = Socket(0);
        let chain = [
            (Unattended::Open { socket, family: Family::Inet }, Link::Order),
            (Unattended::NoDelay { socket }, Link::Order),
            (Unattended::Close { socket }, Link::End),
        ];
        for (operation, link) in chain {
            self.enqueue(&operation.prepare().flags(link.flags()).user_data(operation.user_data()))?;
        }
        let (mut left, mut able) = (chain.len(), false);
        while left > 0 {
            self.submit_and_wait(left, Duration::from_millis(100))?;
            while let Some(entry) = self.ring.0.completion().next() {
                left = left.saturating_sub(1);
                let ended = Ended::of_user_data(entry.user_data());
                able |= entry.result() >= 0 && ended.is_some_and(|ended| ended.kind == Kind::NoDelay);
            }
        }
        Ok(able)
    }

    /// Cancels what is in flight and takes the completions; true when nothing is left.
    ///
    /// Adds the values to `states` and drops none of them: a drop may panic, and while anything is in flight
    /// the unwinding would free its memory.
    fn drain(&mut self, states: &mut Vec<T>) -> bool {
        const ROUNDS: u32 = 50;
        for _ in 0..ROUNDS {
            if self.submit().is_err() {
                return false;
            }
            while let Some(completed) = self.pop() {
                if let Completed::Operation(Completion { state, .. }) = completed {
                    states.push(state);
                }
            }
            if self.slab.len() == 0 {
                return true;
            }
            let timeout = Some(Timespec::from(Duration::from_millis(20)));
            // Its only failures are that nothing is left to cancel or that it took longer: both
            // are seen by the count.
            let _ = self.ring.0.submitter().register_sync_cancel(timeout, CancelBuilder::any());
        }
        false
    }
}

impl<T> AsFd for Ring<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsRawFd as _;
        let descriptor = self.ring.0.as_raw_fd();
        // SAFETY: the descriptor is open as long as `self.ring`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut states = Vec::new();
        if !self.drain(&mut states) {
            self.slab.leak();
            self.buffers.leak();
        }
        // The kernel holds nothing any more that could be freed.
        drop(states);
    }
}

/// Creates the kernel's ring.
fn build(options: &Options) -> Result<IoUring, RingError> {
    IoUring::builder()
        .setup_coop_taskrun()
        .setup_single_issuer()
        .setup_submit_all()
        // Until it is restricted; see `restrict`.
        .setup_r_disabled()
        .setup_clamp()
        // Room for every operation and for failures that nobody waits for.
        .setup_cqsize(options.operations.saturating_mul(2).max(options.submissions.saturating_mul(2)))
        .build(options.submissions)
        .map_err(RingError::setup)
}

/// Refuses a kernel without an operation or feature that the ring relies on, by its name.
fn require(ring: &IoUring) -> Result<(), RingError> {
    let mut probe = io_uring::Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|source| RingError::call("io_uring_register(PROBE)", source))?;
    for (code, name) in operation::REQUIRED {
        if !probe.is_supported(code) {
            return Err(RingError::NotSupported { what: name });
        }
    }
    let parameters = ring.params();
    let features = [
        (parameters.is_feature_nodrop(), "IORING_FEAT_NODROP (Linux 5.5)"),
        (parameters.is_feature_fast_poll(), "IORING_FEAT_FAST_POLL (Linux 5.7)"),
        (parameters.is_feature_ext_arg(), "IORING_FEAT_EXT_ARG (Linux 5.11)"),
        (parameters.is_feature_skip_cqe_on_success(), "IORING_FEAT_CQE_SKIP (Linux 5.17)"),
        (parameters.is_feature_linked_file(), "IORING_FEAT_LINKED_FILE (Linux 5.17)"),
    ];
    match features.into_iter().find(|(present, _)| !present) {
        Some((_, what)) => Err(RingError::NotSupported { what }),
        None => Ok(()),
    }
}

/// `IORING_REGISTER_SYNC_CANCEL` of `linux/io_uring.h`, which the end of a ring needs.
const SYNC_CANCEL: u8 = 24;

/// Restricts the ring for good to the operations in use and starts it (`io_uring_register(2)`,
/// `IORING_REGISTER_RESTRICTIONS`): no seccomp filter sees what is submitted by a ring.
fn restrict(ring: &IoUring) -> Result<(), RingError> {
    let codes = operation::CODES.iter().copied();
    let mut restrictions: Vec<Restriction> = codes.map(Restriction::sqe_op).collect();
    restrictions.push(Restriction::sqe_flags_allowed(operation::FLAGS.bits()));
    restrictions.push(Restriction::register_op(SYNC_CANCEL));
    let submitter = ring.submitter();
    submitter
        .register_restrictions(&mut restrictions)
        .map_err(|source| RingError::call("io_uring_register(RESTRICTIONS)", source))?;
    submitter
        .register_enable_rings()
        .map_err(|source| RingError::call("io_uring_register(ENABLE_RINGS)", source))
}

/// Turns conditions that pass by themselves into success: what was not submitted stays queued.
fn passing(result: std::io::Result<usize>) -> Result<(), RingError> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(RingError::call("io_uring_enter", error)),
        },
    }
}

#[cfg(test)]
mod tests;
