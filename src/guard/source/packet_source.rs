//! A bound queue: packets in, verdicts out.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use bannerwall_ffi::error::{CallError, QueueError};
use bannerwall_ffi::queue::ConnectionMark;
use bannerwall_ffi::queue::KernelCounters;

use crate::event::Timestamp;
use crate::packet::PacketPatch;

/// Limit of the wait for the first packet, so that the loop can tick, reload and stop.
pub const IDLE: Duration = Duration::from_millis(100);

/// Maximum number of packets that one call answers.
pub const BATCH: usize = 64;

/// The library that talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueBackend {
    /// `libnetfilter_queue` through our own binding.
    #[default]
    LibnetfilterQueue,
    /// The `nfq` crate.
    Nfq,
}

impl QueueBackend {
    /// All backends, for tests and measurements.
    pub const ALL: [Self; 2] = [Self::LibnetfilterQueue, Self::Nfq];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LibnetfilterQueue => "libnetfilter_queue",
            Self::Nfq => "nfq",
        }
    }

    /// Returns the library that talks to the kernel in this build.
    pub const fn what(self) -> &'static str {
        match self {
            Self::LibnetfilterQueue if !cfg!(feature = "libnetfilter_queue") => {
                "nfnetlink (built without libnetfilter_queue)"
            }
            _ => self.name(),
        }
    }
}

/// Settings of a queue.
#[derive(Debug, Clone)]
pub struct SourceConfig {
    /// Number of the queue.
    pub queue: u16,
    /// The library that talks to the kernel.
    pub backend: QueueBackend,
    /// Number of bytes of each packet to copy at first; at most [`MAXIMUM_COPY_RANGE`](super::MAXIMUM_COPY_RANGE).
    pub copy_range: u32,
    /// Number of packets that may wait for a verdict before the kernel treats the queue as full.
    pub maximum_length: u32,
    /// Size to request for the socket's receive buffer, in bytes.
    pub receive_buffer: usize,
    /// True if packets that cannot be queued or judged pass; false if they are dropped.
    pub fail_open: bool,
}

impl SourceConfig {
    /// Returns the defaults for queue `queue`: `libnetfilter_queue`, 512 bytes per packet, 1024 packets, fail
    /// open.
    ///
    /// A longer queue saves no packets that a short one would lose, but it delays a network while a guard
    /// hangs (measured: `bench/runs`, `bench/outage/hang`).
    pub fn new(queue: u16) -> Self {
        Self {
            queue,
            backend: QueueBackend::default(),
            copy_range: 512,
            maximum_length: 1024,
            receive_buffer: 32 << 20,
            fail_open: true,
        }
    }

    /// Returns the verdict on a packet that cannot be judged.
    pub(super) fn failure(&self) -> PacketVerdict {
        if self.fail_open { PacketVerdict::Accept } else { PacketVerdict::Drop }
    }
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketVerdict {
    /// It leaves the hook. Later rules of the chain that queued it do not see it.
    Accept,
    /// It is dropped.
    Drop,
    /// It enters the same hook again from the start, with the answer's mark.
    Repeat,
}

/// A verdict and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketAnswer {
    /// The fate of the packet.
    pub verdict: PacketVerdict,
    /// Replaces the packet's whole mark; `None` keeps it.
    pub mark: Option<u32>,
    /// Replaces these bits of its connection's mark, if [`PacketSource::marks_connections`] is true.
    pub connection_mark: Option<ConnectionMark>,
    /// The copy range that must be in effect before the verdict is.
    pub copy_range: Option<u32>,
    /// The change of the packet before it is forwarded.
    pub patch: Option<Box<PacketPatch>>,
}

impl PacketAnswer {
    /// Returns a plain verdict.
    pub const fn new(verdict: PacketVerdict) -> Self {
        Self { verdict, mark: None, connection_mark: None, copy_range: None, patch: None }
    }

    /// A verdict that replaces the packet's whole mark.
    pub fn with_mark(verdict: PacketVerdict, mark: u32) -> Self {
        Self { mark: Some(mark), ..Self::new(verdict) }
    }

    /// A verdict that marks the packet's connection.
    pub fn with_connection_mark(verdict: PacketVerdict, mark: ConnectionMark) -> Self {
        Self { connection_mark: Some(mark), ..Self::new(verdict) }
    }

    /// Requeues the packet with a copy of `octets` bytes.
    ///
    /// A packet that comes back no longer than before (its copy range was [`MAXIMUM_COPY_RANGE`](super::MAXIMUM_COPY_RANGE), or
    /// the kernel refused) must get another answer, or it goes around for ever.
    pub fn again_with(octets: u32) -> Self {
        Self { copy_range: Some(octets), ..Self::new(PacketVerdict::Repeat) }
    }
}

/// A packet that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct QueuedPacket<'a> {
    /// The packet from its IP header on, truncated at the copy range.
    pub payload: &'a [u8],
    /// Length of the whole packet, in bytes.
    pub wire_length: usize,
    /// Its mark.
    pub mark: u32,
    /// True if the checksums are filled in and can be verified.
    pub checksum_ready: bool,
    /// Index of the interface on which it arrived; 0 if there is none.
    pub input_interface: u32,
    /// Index of the interface by which it leaves; 0 if there is none.
    pub output_interface: u32,
    /// Index of the bridge port on which it arrived; 0 if there is none.
    pub input_port: u32,
    /// Index of the bridge port by which it leaves; 0 if there is none.
    pub output_port: u32,
    /// The source Ethernet address of its frame, if a bridge port received it.
    pub hardware_address: Option<[u8; 6]>,
    /// `NF_INET_*`: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting.
    pub hook: u8,
    /// `EtherType`: 0x0800 IPv4, 0x86dd IPv6.
    pub hardware_protocol: u16,
    /// Time when the kernel saw it; only on hooks up to forward.
    pub timestamp: Option<Timestamp>,
}

impl QueuedPacket<'_> {
    /// Returns the index of the interface for events: the one on which it arrived, as a port rather than a
    /// bridge, or else the one by which it leaves.
    pub fn interface(&self) -> u32 {
        let known = [self.input_port, self.input_interface, self.output_interface];
        known.into_iter().find(|index| *index != 0).unwrap_or_default()
    }
}

/// The packets that one call handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchCounts {
    /// Number of packets judged.
    pub packets: usize,
    /// Their length on the wire, in bytes.
    pub octets: u64,
}

/// Counts of all events on a queue since it was bound: of every packet that was inspected or not.
///
/// One loss is missing because the kernel does not count it: packets that passed by fail-open when the queue
/// was full. Their number is (packets that reached the NFQUEUE rule) − `received` − (waiting).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStatistics {
    /// Number of packets received.
    pub received: u64,
    /// Number of receive calls that returned messages.
    pub receive_calls: u64,
    /// Number of calls that sent verdicts.
    pub send_calls: u64,
    /// Number of packets that the kernel numbered but could not deliver; it dropped them or let them pass by
    /// fail-open.
    pub missed: u64,
    /// Number of verdicts on packets that the kernel had already given up, except within a run of accepted
    /// packets.
    pub late_verdicts: u64,
    /// Number of verdicts that could not be sent, of other messages that the kernel refused, and of calls
    /// that failed for lack of memory.
    pub refused: u64,
    /// Number of packets that got the failure verdict because nothing else answered them.
    pub unanswered: u64,
    /// Number of messages of the kernel that could not be parsed.
    pub malformed: u64,
    /// Number of receive calls that reported lost messages (`ENOBUFS`).
    pub overruns: u64,
    /// Number of receive calls that a signal interrupted.
    pub interrupted: u64,
    /// True if the kernel's counts are readable: those in the next three fields.
    pub knows_kernel: bool,
    /// Number of packets that wait for a verdict now, counted by the kernel.
    pub waiting: u64,
    /// Number of packets dropped because the queue was full, counted by the kernel (0 under fail-open).
    pub dropped_queue_full: u64,
    /// Number of packets dropped because the socket was full, counted by the kernel (0 under fail-open).
    pub dropped_socket_full: u64,
    /// Number of messages that did not fit into the socket, counted by the socket (under fail-open too).
    pub socket_drops: u64,
}

impl QueueStatistics {
    /// Adds the kernel's counts for `queue`, if they are readable.
    pub(super) fn with_kernel_counters(mut self, queue: u16) -> Self {
        if let Ok(Some(kernel)) = KernelCounters::of(queue) {
            self.knows_kernel = true;
            self.waiting = kernel.waiting;
            self.dropped_queue_full = kernel.dropped_queue_full;
            self.dropped_socket_full = kernel.dropped_socket_full;
        }
        self
    }
}

/// Error of binding, reading or answering a queue.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Error of the binding.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl SourceError {
    /// True if a permission or a kernel feature is missing, so that the program exits with code 3.
    pub fn is_unsupported(&self) -> bool {
        let Self::Queue(error) = self;
        error.is_unsupported()
    }
}

impl From<CallError> for SourceError {
    fn from(error: CallError) -> Self {
        Self::Queue(error.into())
    }
}

/// A bound queue, for one thread.
pub trait PacketSource: Send {
    /// Waits up to [`IDLE`] for packets, has each judged, and sends the verdicts.
    ///
    /// # Errors
    ///
    /// Packets can no longer be received or answered. Signals, overruns and late verdicts are counted rather
    /// than returned as errors.
    fn next_batch(
        &mut self,
        judge: &mut dyn FnMut(&QueuedPacket<'_>) -> PacketAnswer,
    ) -> Result<BatchCounts, SourceError> {
        self.batch(IDLE, judge)
    }

    /// Like [`PacketSource::next_batch`] with a wait of `patience`. Zero takes only packets that have
    /// arrived.
    ///
    /// # Errors
    ///
    /// As [`PacketSource::next_batch`].
    fn batch(
        &mut self,
        patience: Duration,
        judge: &mut dyn FnMut(&QueuedPacket<'_>) -> PacketAnswer,
    ) -> Result<BatchCounts, SourceError>;

    /// Returns the number of bytes of each packet that the kernel copies.
    fn copy_range(&self) -> u32;

    /// Changes the copy range for packets queued from now on, if the backend can.
    ///
    /// # Errors
    ///
    /// The kernel does not accept the message.
    fn set_copy_range(&mut self, octets: u32) -> Result<(), SourceError>;

    /// Lets more packets wait than this process does, until a successor reads them, if the backend can.
    ///
    /// # Errors
    ///
    /// The kernel does not accept the message.
    fn await_successor(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Starts to read an adopted queue, whose packets were copied up to `octets` bytes so far.
    ///
    /// # Errors
    ///
    /// The kernel does not accept the message.
    fn resume(&mut self, octets: u32) -> Result<(), SourceError> {
        self.set_copy_range(octets)
    }

    /// Gives the failure verdict to packets of an adopted queue that another process had read before it
    /// exited, since no other process answers them. Returns their number, if known.
    ///
    /// # Errors
    ///
    /// The kernel does not accept the message.
    fn answer_read(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(0))
    }

    /// Binds an adopted queue again after another process has released it.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or the backend does not support it.
    fn bind_again(&mut self) -> Result<(), SourceError> {
        let source = io::Error::from(io::ErrorKind::Unsupported);
        Err(CallError { call: "nfqnl_recv_config", source }.into())
    }

    /// True if the kernel has reported that an adopted queue is no longer bound to its socket, so that no
    /// packets arrive.
    fn is_lost(&self) -> bool {
        false
    }

    /// Returns the netlink port id of the queue's socket, if the backend knows it.
    fn port_id(&self) -> Option<u32> {
        None
    }

    /// Returns the socket, if another process can take it over.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the netlink address of the socket that has bound the queue, if the backend knows it.
    fn address(&self) -> Option<u32> {
        None
    }

    /// True if a verdict can mark the packet's connection, which depends on the backend and the kernel.
    fn marks_connections(&self) -> bool {
        false
    }

    /// Returns the counts so far. It reads the kernel's counters, so the packet path must not call it.
    fn statistics(&self) -> QueueStatistics;

    /// Answers the remaining packets until none are left or `limit` has passed. Call it after the hook is
    /// gone and before [`PacketSource::close`].
    ///
    /// # Errors
    ///
    /// As [`PacketSource::next_batch`].
    fn drain(
        &mut self,
        limit: Duration,
        judge: &mut dyn FnMut(&QueuedPacket<'_>) -> PacketAnswer,
    ) -> Result<BatchCounts, SourceError> {
        let deadline = Instant::now() + limit;
        let mut total = BatchCounts::default();
        let mut patience = Duration::ZERO;
        loop {
            // The hook is gone, so the queue only shrinks: an empty socket and no waiting packet means the
            // end.
            let received = self.batch(patience, judge)?;
            total.packets += received.packets;
            total.octets += received.octets;
            let idle = received.packets == 0 && self.statistics().waiting == 0;
            if idle || Instant::now() >= deadline {
                return Ok(total);
            }
            // Packets that the kernel counts as waiting but that are not in the socket are on their way
            // there.
            patience = if received.packets == 0 { IDLE } else { Duration::ZERO };
        }
    }

    /// Releases the queue. The kernel drops the packets that still wait in it.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    fn close(self: Box<Self>) -> Result<(), SourceError>;
}

#[cfg(test)]
mod tests {
    use super::QueueBackend;

    #[test]
    fn what_talks_to_the_kernel_is_told_as_it_was_built() {
        let by_library = cfg!(feature = "libnetfilter_queue");
        assert_eq!(QueueBackend::LibnetfilterQueue.what() == "libnetfilter_queue", by_library);
        assert_eq!(QueueBackend::Nfq.what(), "nfq");
        // Flags are the same in every build.
        assert_eq!(QueueBackend::ALL.map(QueueBackend::name), ["libnetfilter_queue", "nfq"]);
    }
}
