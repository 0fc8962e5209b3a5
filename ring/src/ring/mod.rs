//! The ring: queues, submits and completes operations.
//!
//! Sockets are direct descriptors: indices into a table of the ring. Everything is allocated when the
//! ring is created.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};

use crate::operation::{self, DetachedCompletion, DetachedKind};
use crate::receive_buffers::ReceiveBuffers;
use crate::slab::OperationSlab;
use crate::{
    DetachedOperation, DirectSocket, Operation, OperationKey, OperationLink, RingError, SocketFamily,
};

/// Sizes of a ring, fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingOptions {
    /// Number of entries of the submission queue: operations in one call.
    pub submissions: u32,
    /// Largest number of operations in flight.
    pub operations: u32,
    /// Number of direct sockets.
    pub sockets: u32,
    /// Number of receive buffers, a power of two up to 32,768; zero for a ring that never receives.
    pub buffers: u16,
    /// Size of each receive buffer in bytes.
    pub buffer_size: u32,
    /// True to test whether [`DetachedOperation::NoDelay`] works on this kernel.
    pub no_delay: bool,
}

/// A finished operation.
#[derive(Debug)]
pub struct Completion<T> {
    /// The value that was pushed with the operation.
    pub state: T,
    /// The kernel's result: number of bytes, or a positive error number.
    pub result: Result<u32, i32>,
    /// The bytes of an [`Operation::Send`]; empty for other operations.
    pub octets: Vec<u8>,
}

/// Result of [`Ring::pop`].
#[derive(Debug)]
pub enum RingCompletion<T> {
    /// A finished operation.
    Operation(Completion<T>),
    /// An detached operation failed; success is not reported.
    Failed {
        /// Its socket.
        socket: DirectSocket,
        /// Positive error number.
        error: i32,
    },
}

/// A completion ring whose operations carry a `T`.
///
/// It belongs to the thread that created it: the kernel refuses other threads' submissions.
#[derive(Debug)]
pub struct Ring<T> {
    // Dropped first: the memory below may be freed once the kernel has released the ring.
    ring: RingHandle,
    slab: OperationSlab<T>,
    buffers: ReceiveBuffers,
    /// Size of the socket table.
    sockets: u32,
    /// True if `TCP_NODELAY` works on direct sockets.
    no_delay: bool,
}

struct RingHandle(IoUring);

impl std::fmt::Debug for RingHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("IoUring")
    }
}

impl<T> Ring<T> {
    /// Creates a ring with all its memory.
    ///
    /// # Errors
    ///
    /// [`RingError::NotPermitted`] and [`RingError::NotSupported`] name the missing feature;
    /// [`RingError::Call`] is a shortage of memory or descriptors.
    pub fn new(options: &RingOptions) -> Result<Self, RingError> {
        let ring = build(options)?;
        // Tables and buffers are registered before `restrict`, which permits no registration but SYNC_CANCEL.
        require(&ring)?;
        ring.submitter()
            .register_files_sparse(options.sockets)
            .map_err(|source| RingError::call("io_uring_register(FILES2)", source))?;
        let buffers = ReceiveBuffers::register(&ring, options.buffers, options.buffer_size)?;
        restrict(&ring)?;
        let slab = OperationSlab::with_capacity(options.operations);
        let mut ring =
            Self { ring: RingHandle(ring), slab, buffers, sockets: options.sockets, no_delay: false };
        // On the restricted ring, which is the one that will be used.
        ring.no_delay = options.no_delay && ring.try_no_delay()?;
        Ok(ring)
    }

    /// True if [`DetachedOperation::NoDelay`] works.
    pub fn has_no_delay(&self) -> bool {
        self.no_delay
    }

    /// Ensures space for a chain of `operations`; submits the queue if there is not enough.
    ///
    /// A chain must reach the kernel in one submission, else its links are cut.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit`].
    pub fn reserve(&mut self, operations: usize) -> Result<(), RingError> {
        if self.room() < operations { self.submit() } else { Ok(()) }
    }

    /// Number of further operations that fit into the submission queue.
    pub fn room(&mut self) -> usize {
        let queue = self.ring.0.submission();
        queue.capacity() - queue.len()
    }

    /// Number of operations that are queued and not submitted.
    pub fn queued(&mut self) -> usize {
        self.ring.0.submission().len()
    }

    /// Queues an operation; its completion returns `state`.
    ///
    /// # Errors
    ///
    /// Returns [`RingError::Full`] if no space was [reserved](Ring::reserve), or if more than
    /// [`RingOptions::operations`] would be in flight; [`RingError::NoSocket`] beyond
    /// [`RingOptions::sockets`].
    pub fn push(
        &mut self,
        operation: Operation,
        link: OperationLink,
        state: T,
    ) -> Result<OperationKey, RingError> {
        self.check(operation.socket())?;
        let key = self.slab.insert(state).ok_or(RingError::Full)?;
        let entry = operation.prepare(&mut self.slab, key).flags(link.flags()).user_data(key.user_data());
        match self.enqueue(&entry) {
            Ok(()) => Ok(key),
            Err(error) => {
                // The entry has not reached the queue, so the kernel has no pointer into it.
                self.slab.remove(key);
                Err(error)
            }
        }
    }

    /// Queues an detached operation: only its failure is reported.
    ///
    /// It may only be the head of a hard-linked chain, or follow others that are. The kernel posts no
    /// completion for operations that are cancelled after a failed silent one, so a soft link would lose
    /// the followers' values.
    ///
    /// # Errors
    ///
    /// Returns [`RingError::Full`] if no space was [reserved](Ring::reserve); [`RingError::NoSocket`]
    /// beyond [`RingOptions::sockets`].
    pub fn push_detached(&mut self, operation: DetachedOperation, chained: bool) -> Result<(), RingError> {
        if let Some(socket) = operation.socket() {
            self.check(socket)?;
        }
        if matches!(operation, DetachedOperation::NoDelay { .. }) && !self.no_delay {
            return Ok(());
        }
        // Every connection opens and closes a socket. Completions of these successes would only fill the
        // queue.
        let mut flags = squeue::Flags::SKIP_SUCCESS;
        if chained {
            flags |= squeue::Flags::IO_HARDLINK;
        }
        self.enqueue(&operation.prepare().flags(flags).user_data(operation.user_data()))
    }

    /// Refuses a socket outside of the table: for the highest number, the kernel would make an ordinary
    /// descriptor that is never closed.
    fn check(&self, DirectSocket(socket): DirectSocket) -> Result<(), RingError> {
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

    /// Submits the queue to the kernel.
    ///
    /// # Errors
    ///
    /// Returns [`RingError::Call`] for errors of `io_uring_enter(2)`, except temporary ones.
    pub fn submit(&mut self) -> Result<(), RingError> {
        ignore_temporary(self.ring.0.submit())
    }

    /// Submits the queue to the kernel, then waits for `want` completions or `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit`].
    pub fn submit_and_wait(&mut self, want: usize, timeout: Duration) -> Result<(), RingError> {
        let timeout = Timespec::from(timeout);
        // One system call submits and waits. The kernel copies the timeout (IORING_ENTER_EXT_ARG), so it may
        // live on the stack.
        ignore_temporary(
            self.ring.0.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&timeout)),
        )
    }

    /// Takes the next completion, if there is one.
    ///
    /// The buffer of the previous [`Ring::received`] returns to the kernel.
    pub fn pop(&mut self) -> Option<RingCompletion<T>> {
        self.buffers.give_back();
        loop {
            let entry = self.ring.0.completion().next()?;
            if let Some(completed) = self.take(&entry) {
                return Some(completed);
            }
        }
    }

    /// The bytes of the last receive, exactly; empty after another operation.
    pub fn received(&self) -> &[u8] {
        self.buffers.taken()
    }

    /// Number of operations in flight, without detached ones.
    pub fn in_flight(&self) -> usize {
        self.slab.len()
    }

    fn take(&mut self, entry: &cqueue::Entry) -> Option<RingCompletion<T>> {
        let result = u32::try_from(entry.result()).map_err(|_negative| entry.result().wrapping_neg());
        // A named buffer is ours whatever the result is. It must return to the kernel even after an error, or
        // the group runs dry.
        if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
            self.buffers.take(buffer, result.unwrap_or(0));
        }
        if let Some(DetachedCompletion { kind, socket }) = DetachedCompletion::of_user_data(entry.user_data())
        {
            return match (kind, result.err()?) {
                // The operation had finished already: the race that every cancellation can lose.
                (DetachedKind::Cancel, libc::ENOENT | libc::EALREADY) => None,
                // The socket's own operation reports what matters.
                (DetachedKind::NoDelay, _) => None,
                (_, error) => Some(RingCompletion::Failed { socket, error }),
            };
        }
        // Only now may the memory of the operation go: the kernel is done with it.
        let (state, octets) = self.slab.remove(OperationKey::of_user_data(entry.user_data()))?;
        Some(RingCompletion::Operation(Completion { state, result, octets }))
    }

    /// Sets `TCP_NODELAY` on a first socket to test the kernel. Its list of operations does not show
    /// whether this works.
    fn try_no_delay(&mut self) -> Result<bool, RingError> {
        let socket = DirectSocket(0);
        let chain = [
            (DetachedOperation::Open { socket, family: SocketFamily::Inet }, OperationLink::Order),
            (DetachedOperation::NoDelay { socket }, OperationLink::Order),
            (DetachedOperation::Close { socket }, OperationLink::End),
        ];
        // Without SKIP_SUCCESS, so that each of the three is counted. A hard link lets the socket be closed
        // even if the option fails.
        for (operation, link) in chain {
            self.enqueue(&operation.prepare().flags(link.flags()).user_data(operation.user_data()))?;
        }
        let (mut left, mut able) = (chain.len(), false);
        while left > 0 {
            self.submit_and_wait(left, Duration::from_millis(100))?;
            while let Some(entry) = self.ring.0.completion().next() {
                left = left.saturating_sub(1);
                let ended = DetachedCompletion::of_user_data(entry.user_data());
                able |= entry.result() >= 0 && ended.is_some_and(|ended| ended.kind == DetachedKind::NoDelay);
            }
        }
        Ok(able)
    }

    /// Cancels operations in flight and takes their completions; true if none is left.
    ///
    /// It adds the values to `states` and drops none of them: a drop may panic, and while operations are
    /// in flight, unwinding would free their memory.
    fn drain(&mut self, states: &mut Vec<T>) -> bool {
        const ROUNDS: u32 = 50;
        for _ in 0..ROUNDS {
            // A cancellation finds submitted operations only, so those that wait in the queue are submitted
            // first.
            if self.submit().is_err() {
                return false;
            }
            while let Some(completed) = self.pop() {
                if let RingCompletion::Operation(Completion { state, .. }) = completed {
                    states.push(state);
                }
            }
            if self.slab.len() == 0 {
                return true;
            }
            let timeout = Some(Timespec::from(Duration::from_millis(20)));
            // It fails only if nothing is left to cancel or if it took longer; the count shows both.
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
        // The kernel holds no memory any more that dropping could free.
        drop(states);
    }
}

/// Creates the kernel's ring.
fn build(options: &RingOptions) -> Result<IoUring, RingError> {
    IoUring::builder()
        // The thread enters the kernel often enough: no interrupt needs to force it there for each completion
        // (io_uring_setup(2)).
        .setup_coop_taskrun()
        .setup_single_issuer()
        // An entry that the kernel refuses must not leave the rest of the batch unsubmitted.
        .setup_submit_all()
        // Disabled until `restrict` has restricted it.
        .setup_r_disabled()
        // Sizes above the kernel's limits are reduced instead of refused; a smaller queue only needs more
        // calls.
        .setup_clamp()
        // Space for every operation, and for failures of detached ones.
        .setup_cqsize(options.operations.saturating_mul(2).max(options.submissions.saturating_mul(2)))
        .build(options.submissions)
        .map_err(RingError::setup)
}

/// Refuses a kernel that lacks a required operation or feature; the error names it.
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

/// `IORING_REGISTER_SYNC_CANCEL` of `linux/io_uring.h`, which dropping a ring needs.
const SYNC_CANCEL: u8 = 24;

/// Restricts the ring for good to the operations in use, and starts it (`io_uring_register(2)`,
/// `IORING_REGISTER_RESTRICTIONS`). A seccomp filter cannot see a ring's operations.
fn restrict(ring: &IoUring) -> Result<(), RingError> {
    // The kernel accepts restrictions only as long as the ring is disabled (io_uring/register.c:
    // io_register_restrictions).
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

/// Turns temporary errors into success: operations that were not submitted stay queued.
fn ignore_temporary(result: std::io::Result<usize>) -> Result<(), RingError> {
    match result {
        Ok(_) => Ok(()),
        // ETIME: the wait is over. EINTR: a signal. EAGAIN: no memory for requests now. EBUSY: completions
        // have to be taken first (io_uring_enter(2)).
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(RingError::call("io_uring_enter", error)),
        },
    }
}

#[cfg(test)]
mod tests;
