//! Where packets come from and where verdicts go: the seam between the guard and a netfilter queue.
//!
//! Two backends do the same work and pass the same tests: [`LibnetfilterQueue`] by our own binding of
//! `libnetfilter_queue` (many packets a receive call, many verdicts a send call), and [`NfqCrate`] by
//! the `nfq` crate (one packet and one verdict a call). Nothing here looks into a packet.

mod libnetfilter_queue;
mod nfq;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bannerwall_ffi::error::{CallError, QueueError};
use bannerwall_ffi::queue::KernelCounters;
pub use bannerwall_ffi::queue::{ConnectionMark, MAXIMUM_COPY_RANGE};

pub use self::libnetfilter_queue::LibnetfilterQueue;
pub use self::nfq::NfqCrate;
use crate::event::Timestamp;
use crate::packet::Patch;

/// Time for which a call waits for the first packet, so that the loop can tick, reload and stop.
pub const IDLE: Duration = Duration::from_millis(100);

/// Packets that one call answers at most.
pub const BATCH: usize = 64;

/// Which library talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// `libnetfilter_queue` through our own binding.
    #[default]
    LibnetfilterQueue,
    /// The `nfq` crate.
    Nfq,
}

impl Backend {
    /// Both of them, for tests and measurements.
    pub const ALL: [Self; 2] = [Self::LibnetfilterQueue, Self::Nfq];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LibnetfilterQueue => "libnetfilter_queue",
            Self::Nfq => "nfq",
        }
    }

    /// What talks to the kernel in this build.
    pub const fn what(self) -> &'static str {
        match self {
            Self::LibnetfilterQueue if !cfg!(feature = "libnetfilter_queue") => {
                "nfnetlink (built without libnetfilter_queue)"
            }
            _ => self.name(),
        }
    }
}

/// What a queue is to be bound with.
#[derive(Debug, Clone)]
pub struct SourceConfig {
    /// Number of the queue.
    pub queue: u16,
    /// Which library talks to the kernel.
    pub backend: Backend,
    /// Octets of each packet to copy at first; [`MAXIMUM_COPY_RANGE`] at most.
    pub copy_range: u32,
    /// Packets that may wait for a verdict before the kernel calls the queue full.
    pub maximum_length: u32,
    /// Octets to ask for as the socket's receive buffer.
    pub receive_buffer: usize,
    /// True: what cannot be queued or judged passes. False: it is dropped.
    pub fail_open: bool,
}

impl SourceConfig {
    /// Defaults for queue `queue`: `libnetfilter_queue`, 512 octets a packet, 1024 packets, fail open.
    ///
    /// A long queue loses nothing that a short one inspects, and holds a network up while a guard hangs
    /// (measured: `bench/runs`, `bench/outage/hang`).
    pub fn new(queue: u16) -> Self {
        Self {
            queue,
            backend: Backend::default(),
            copy_range: 512,
            maximum_length: 1024,
            receive_buffer: 32 << 20,
            fail_open: true,
        }
    }

    /// Binds the queue.
    ///
    /// # Errors
    ///
    /// When somebody else owns the queue, or when a permission or a kernel feature is missing.
    pub fn open(&self) -> Result<Box<dyn Source>, SourceError> {
        Ok(match self.backend {
            Backend::LibnetfilterQueue => Box::new(LibnetfilterQueue::open(self)?),
            Backend::Nfq => Box::new(NfqCrate::open(self)?),
        })
    }

    /// Goes on with a queue that another process has bound; `marks_connections` is what it found out.
    ///
    /// # Errors
    ///
    /// When the socket is not that queue's, or the backend can't do that.
    pub fn adopt(&self, socket: OwnedFd, marks_connections: bool) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(LibnetfilterQueue::adopt(self, socket, marks_connections)?))
    }

    /// Verdict of a packet that cannot be judged.
    fn failure(&self) -> Verdict {
        if self.fail_open { Verdict::Accept } else { Verdict::Drop }
    }
}

/// What is to become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves the hook; later rules of the chain that queued it are not asked.
    Accept,
    /// It is gone.
    Drop,
    /// It enters the same hook again from the start, with the answer's mark.
    Repeat,
}

/// A verdict and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What is to become of the packet.
    pub verdict: Verdict,
    /// Replaces the packet's whole mark; `None` keeps it.
    pub mark: Option<u32>,
    /// Replaces these bits of its connection's mark, where [`Source::marks_connections`] is true.
    pub connection_mark: Option<ConnectionMark>,
    /// The copy range that has to be in force before the verdict takes effect.
    pub copy_range: Option<u32>,
    /// How the packet is changed before it goes on.
    pub patch: Option<Patch>,
}

impl Answer {
    /// A verdict and nothing else.
    pub const fn new(verdict: Verdict) -> Self {
        Self { verdict, mark: None, connection_mark: None, copy_range: None, patch: None }
    }

    /// A verdict that replaces the packet's whole mark.
    pub fn with_mark(verdict: Verdict, mark: u32) -> Self {
        Self { mark: Some(mark), ..Self::new(verdict) }
    }

    /// A verdict that marks the packet's connection.
    pub fn with_connection_mark(verdict: Verdict, mark: ConnectionMark) -> Self {
        Self { connection_mark: Some(mark), ..Self::new(verdict) }
    }

    /// Sends the packet around again, to come back with `octets` of itself.
    ///
    /// A packet that comes back no longer than before (its copy range was [`MAXIMUM_COPY_RANGE`], or
    /// the kernel refused) must get another answer, or it goes around for ever.
    pub fn again_with(octets: u32) -> Self {
        Self { copy_range: Some(octets), ..Self::new(Verdict::Repeat) }
    }
}

/// A packet that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct Queued<'a> {
    /// The packet from its IP header on, cut at the copy range.
    pub payload: &'a [u8],
    /// Length of the whole packet in octets.
    pub wire_length: usize,
    /// Its mark.
    pub mark: u32,
    /// True if the checksums were filled in, so that verifying them makes sense.
    pub checksum_ready: bool,
    /// Index of the interface that it came in by, 0 where there is none.
    pub input_interface: u32,
    /// Index of the interface that it goes out by, 0 where there is none.
    pub output_interface: u32,
    /// Index of the bridge port that it came in by, 0 where there is none.
    pub input_port: u32,
    /// Index of the bridge port that it goes out by, 0 where there is none.
    pub output_port: u32,
    /// The Ethernet address that its frame came from, where a bridge port received it.
    pub hardware_address: Option<[u8; 6]>,
    /// `NF_INET_*`: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting.
    pub hook: u8,
    /// `EtherType`: 0x0800 IPv4, 0x86dd IPv6.
    pub hardware_protocol: u16,
    /// Time at which the kernel saw it; on hooks up to forward only.
    pub timestamp: Option<Timestamp>,
}

impl Queued<'_> {
    /// Index of the interface to name: where it came in, by the port and not the bridge, or else goes out.
    pub fn interface(&self) -> u32 {
        let known = [self.input_port, self.input_interface, self.output_interface];
        known.into_iter().find(|index| *index != 0).unwrap_or_default()
    }
}

/// What one call brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Packets judged.
    pub packets: usize,
    /// Their octets on the wire.
    pub octets: u64,
}

/// What happened on a queue since it was bound: every packet that was or was not inspected.
///
/// One loss is not in here because the kernel counts it nowhere: packets that passed by fail-open
/// when the queue was full. They are (packets that reached the NFQUEUE rule) − `received` −
/// (waiting).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Packets received.
    pub received: u64,
    /// Receive calls that brought something.
    pub receive_calls: u64,
    /// Sends of verdicts.
    pub send_calls: u64,
    /// Packets that the kernel numbered and could not deliver, dropped or passed by fail-open.
    pub missed: u64,
    /// Verdicts for packets that the kernel had already given up.
    pub late_verdicts: u64,
    /// Verdicts that could not be sent, other messages that the kernel refused, and calls that it was too
    /// short of memory for.
    pub refused: u64,
    /// Packets that got the failure verdict because nothing else answered them.
    pub unanswered: u64,
    /// Messages of the kernel that could not be read whole.
    pub malformed: u64,
    /// Receives that said that messages were lost (`ENOBUFS`).
    pub overruns: u64,
    /// Receives that a signal interrupted.
    pub interrupted: u64,
    /// True if the kernel's counts could be read: those of the next three.
    pub knows_kernel: bool,
    /// Packets that wait for a verdict now, the kernel's count.
    pub waiting: u64,
    /// Packets dropped because the queue was full, the kernel's count (0 under fail-open).
    pub dropped_queue_full: u64,
    /// Packets dropped because the socket was full, the kernel's count (0 under fail-open).
    pub dropped_socket_full: u64,
    /// Messages that did not fit into the socket, the socket's own count (under fail-open too).
    pub socket_drops: u64,
}

impl Statistics {
    /// Adds what the kernel counts for `queue`, as far as it can be read.
    fn with_kernel_counters(mut self, queue: u16) -> Self {
        if let Ok(Some(kernel)) = KernelCounters::of(queue) {
            self.knows_kernel = true;
            self.waiting = kernel.waiting;
            self.dropped_queue_full = kernel.dropped_queue_full;
            self.dropped_socket_full = kernel.dropped_socket_full;
        }
        self
    }
}

/// Why a queue could not be bound, read or answered.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The binding's error, which says all there is to say.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl SourceError {
    /// True if a permission or a kernel feature is missing, for which the program ends with code 3.
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
pub trait Source: Send {
    /// Waits up to [`IDLE`] for packets, has each judged, and sends the answers.
    ///
    /// # Errors
    ///
    /// When packets can no longer be received or answered. Signals, overruns and late verdicts are
    /// counted events, not errors.
    fn next_batch(&mut self, judge: &mut dyn FnMut(&Queued<'_>) -> Answer) -> Result<Received, SourceError> {
        self.batch(IDLE, judge)
    }

    /// As [`Source::next_batch`] with a wait of `patience`; zero takes only what is there.
    ///
    /// # Errors
    ///
    /// As [`Source::next_batch`].
    fn batch(
        &mut self,
        patience: Duration,
        judge: &mut dyn FnMut(&Queued<'_>) -> Answer,
    ) -> Result<Received, SourceError>;

    /// Octets of each packet that the kernel copies.
    fn copy_range(&self) -> u32;

    /// Changes the copy range for packets that are queued from now on, where the backend can.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be told.
    fn set_copy_range(&mut self, octets: u32) -> Result<(), SourceError>;

    /// Begins to read a queue that was adopted, whose packets were copied up to `octets` so far.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be told.
    fn resume(&mut self, octets: u32) -> Result<(), SourceError> {
        self.set_copy_range(octets)
    }

    /// Gives the failure verdict to packets of a queue that was adopted which another process has read, and
    /// is gone: nobody else answers them. Gives how many there were, where that can be known.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be told.
    fn answer_read(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(0))
    }

    /// Binds a queue that was adopted once more, where another process has given it back.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or the backend can't.
    fn bind_again(&mut self) -> Result<(), SourceError> {
        let source = io::Error::from(io::ErrorKind::Unsupported);
        Err(CallError { call: "nfqnl_recv_config", source }.into())
    }

    /// True if the kernel has said that nothing comes to a queue that was adopted: it is not its socket's any
    /// more.
    fn is_lost(&self) -> bool {
        false
    }

    /// The netlink port id of the queue's socket, if the backend tells it.
    fn port_id(&self) -> Option<u32> {
        None
    }

    /// The socket, where another process can go on with it.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Netlink address of the socket that has bound the queue, where the backend knows it.
    fn address(&self) -> Option<u32> {
        None
    }

    /// True if a verdict can mark the packet's connection: not by every backend, nor in every kernel.
    fn marks_connections(&self) -> bool {
        false
    }

    /// What happened so far; reads the kernel's counters, so not for the packet path.
    fn statistics(&self) -> Statistics;

    /// Answers what is in hand until nothing is left or `limit` has passed; call it after the hook is
    /// gone and before [`Source::close`].
    ///
    /// # Errors
    ///
    /// As [`Source::next_batch`].
    fn drain(
        &mut self,
        limit: Duration,
        judge: &mut dyn FnMut(&Queued<'_>) -> Answer,
    ) -> Result<Received, SourceError> {
        let deadline = Instant::now() + limit;
        let mut total = Received::default();
        let mut patience = Duration::ZERO;
        loop {
            let received = self.batch(patience, judge)?;
            total.packets += received.packets;
            total.octets += received.octets;
            let idle = received.packets == 0 && self.statistics().waiting == 0;
            if idle || Instant::now() >= deadline {
                return Ok(total);
            }
            // What the kernel counts as waiting but has not put into the socket is on its way there.
            patience = if received.packets == 0 { IDLE } else { Duration::ZERO };
        }
    }

    /// Gives the queue back; the kernel drops what still waits in it.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    fn close(self: Box<Self>) -> Result<(), SourceError>;
}

#[cfg(test)]
mod tests {
    use super::Backend;

    #[test]
    fn what_talks_to_the_kernel_is_told_as_it_was_built() {
        let by_library = cfg!(feature = "libnetfilter_queue");
        assert_eq!(Backend::LibnetfilterQueue.what() == "libnetfilter_queue", by_library);
        assert_eq!(Backend::Nfq.what(), "nfq");
        // Flags are the same in every build.
        assert_eq!(Backend::ALL.map(Backend::name), ["libnetfilter_queue", "nfq"]);
    }
}
