//! A netfilter queue: receives packets in batches and sends verdicts in batches.
//!
//! This module owns the netlink socket, its buffers and the wire format. It reads no packet's content. It
//! decides only the failure verdict of a packet without an answer.
//!
//! The kernel's side is `net/netfilter/nfnetlink_queue.c`. A datagram carries one packet; a send may
//! carry many verdicts, and has taken effect when it returns.

mod attribute;
mod batch;
mod datagram_slots;
mod foreign_socket;
mod kernel_counters;
#[cfg(feature = "libnetfilter_queue")]
mod libnetfilter_queue;
pub mod netlink_message;
mod netlink_socket;
mod outgoing_messages;
mod packet;
mod queue_takeover;
#[cfg(any(test, not(feature = "libnetfilter_queue")))]
mod rust_messages;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub use self::batch::PacketBatch;
pub use self::foreign_socket::ForeignSocket;
pub use self::kernel_counters::{KernelCounters, hold_table};
pub use self::packet::Packet;

use self::datagram_slots::{DatagramSlots, ReceiveWait};
use self::netlink_message::{QueueMessage, messages};
use self::outgoing_messages::{OutgoingMessages, QueueSettings};
use crate::error::{CallError, QueueError};
use crate::sys;

/// The largest copy range: an attribute's 16-bit length less its header (`nfqnl_recv_config`).
pub const MAXIMUM_COPY_RANGE: u32 = 65_531;

/// Largest number of bytes of a security context: the kernel writes it as an attribute.
const LABEL: usize = 4096;
/// Time within which the kernel must acknowledge a configuration; it does so within the send.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of attempts of a send that fails for lack of memory, with [`PAUSE`] between them: a second in
/// all.
const SEND_ATTEMPTS: u32 = 200;
/// Pause that gives a kernel short of memory time to free some.
const PAUSE: Duration = Duration::from_millis(5);

/// The answer for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet leaves this hook; the chain's later rules are skipped.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet enters the same hook again from the start.
    Repeat,
    /// The packet continues to the queue of this number; dropped if nothing is bound there.
    Queue(u16),
}

impl Verdict {
    /// Returns `NF_*` of `linux/netfilter.h`.
    const fn code(self) -> u32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            // NF_QUEUE_NR
            Self::Queue(number) => 3 | (number as u32) << 16,
            Self::Repeat => 4,
        }
    }
}

/// New values for some bits of a connection's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionMark {
    /// The bits; none outside of `mask`.
    pub value: u32,
    /// The bits to change; all others stay as they are.
    pub mask: u32,
}

/// Settings of a queue.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// The queue's number.
    pub number: u16,
    /// Number of bytes of each packet to copy, at most [`MAXIMUM_COPY_RANGE`].
    pub copy_range: u32,
    /// Number of packets that may wait for a verdict before the queue is full.
    pub maximum_length: u32,
    /// Size of the socket's receive buffer to request, in bytes.
    pub receive_buffer: usize,
    /// Largest number of packets for one receive call.
    pub batch: usize,
    /// True if the kernel accepts packets that it cannot queue; false if it drops them.
    pub fail_open: bool,
    /// Verdict for a packet without an answer.
    pub failure: Verdict,
    /// Time for which [`Queue::receive`] waits for the first packet.
    pub receive_timeout: Duration,
    /// True if the kernel reports whose socket sent a packet.
    pub owners: bool,
    /// True if the kernel reports the security contexts of packets.
    pub security_contexts: bool,
}

impl QueueConfig {
    /// Returns defaults for queue `number`: fail open, 512 bytes of each packet.
    pub fn new(number: u16) -> Self {
        Self {
            number,
            copy_range: 512,
            maximum_length: 16_384,
            receive_buffer: 32 << 20,
            batch: 64,
            fail_open: true,
            failure: Verdict::Accept,
            receive_timeout: Duration::from_millis(100),
            owners: false,
            security_contexts: false,
        }
    }

    /// Returns the `NFQA_CFG_F_*` that are set, and the mask of those in the message.
    fn flags(&self) -> (u32, u32) {
        let asked = [
            (self.fail_open, sys::NFQA_CFG_F_FAIL_OPEN),
            (true, sys::NFQA_CFG_F_GSO),
            (self.owners, sys::NFQA_CFG_F_UID_GID),
            (self.security_contexts, sys::NFQA_CFG_F_SECCTX),
        ];
        let set = asked.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        // Younger options are only in the message if they are requested: the kernel may not know them.
        (set, set | sys::NFQA_CFG_F_FAIL_OPEN)
    }

    /// Number of bytes of a message besides packet and usual attributes.
    const fn labels(&self) -> usize {
        if self.security_contexts { LABEL } else { 0 }
    }
}

/// Counters of a queue, as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounters {
    /// Packets received.
    pub packets: u64,
    /// Receive calls that brought at least one datagram.
    pub receives: u64,
    /// Sends of verdicts.
    pub sends: u64,
    /// Packets that the kernel numbered and that never came, because the socket's buffer was full.
    pub missed: u64,
    /// Verdicts that came too late: the kernel had already given up the packet. One message accepts a run of
    /// packets; the kernel does not report which of them it had given up.
    pub late_verdicts: u64,
    /// Other messages of ours that the kernel refused.
    pub refused: u64,
    /// Verdicts that could not be sent.
    pub unsent: u64,
    /// Packets that were dropped without an answer and got the failure verdict.
    pub unanswered: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// Times that the socket reported lost messages (`ENOBUFS`).
    pub overruns: u64,
    /// Receives that a signal interrupted.
    pub interrupted: u64,
    /// Calls that failed because the kernel was short of memory (`ENOMEM`, or `ENOBUFS` of a send).
    pub shortages: u64,
}

/// A bound queue.
#[derive(Debug)]
pub struct Queue {
    socket: OwnedFd,
    number: u16,
    portid: u32,
    copy_range: u32,
    /// A larger copy range that a packet of the current batch requires.
    wanted_copy_range: u32,
    receive_buffer: usize,
    marks_connections: bool,
    failure: Verdict,
    slots: DatagramSlots,
    /// Number of bytes of each slot for security contexts.
    labels: usize,
    outgoing: OutgoingMessages,
    counters: QueueCounters,
    /// Absent if packets came before this process had the queue.
    last_packet: Option<u32>,
    sequence: u32,
    /// True if the kernel has reported that the queue is not bound by this socket.
    is_lost: bool,
}

impl Queue {
    /// Opens a socket and binds the queue with all its settings in one message. So there is no moment in
    /// which the kernel drops packets for a queue without a copy mode.
    ///
    /// # Errors
    ///
    /// Another process owns the queue, a permission is missing, the kernel has no queues, or a call
    /// fails.
    pub fn bind(config: &QueueConfig) -> Result<Self, QueueError> {
        let socket = netlink_socket::open().map_err(unsupported)?;
        let mut queue = Self::of(socket, config)?;
        queue.last_packet = Some(0);
        let settings = QueueSettings {
            command: Some(sys::NFQNL_CFG_CMD_BIND),
            copy_range: Some(queue.copy_range),
            maximum_length: Some(config.maximum_length),
            flags: Some(config.flags()),
            acknowledge: None,
        };
        queue.configure(&settings).map_err(|error| refusal(config.number, queue.portid, error))?;
        queue.marks_connections = queue.finds_connections()?;
        Ok(queue)
    }

    /// Creates a queue in the state before its first packet.
    fn of(socket: OwnedFd, config: &QueueConfig) -> Result<Self, QueueError> {
        let copy_range = config.copy_range.min(MAXIMUM_COPY_RANGE);
        let receive_buffer = netlink_socket::set_receive_buffer(socket.as_fd(), config.receive_buffer)?;
        netlink_socket::set_no_enobufs(socket.as_fd())?;
        netlink_socket::set_receive_timeout(socket.as_fd(), config.receive_timeout)?;
        let batch = config.batch.max(1);
        Ok(Self {
            portid: netlink_socket::portid(socket.as_fd())?,
            socket,
            number: config.number,
            copy_range,
            wanted_copy_range: 0,
            receive_buffer,
            marks_connections: false,
            failure: config.failure,
            slots: DatagramSlots::new(batch, copy_range as usize + config.labels()),
            labels: config.labels(),
            outgoing: OutgoingMessages::new(config.number, batch),
            counters: QueueCounters::default(),
            last_packet: None,
            sequence: 0,
            is_lost: false,
        })
    }

    /// Returns true if this kernel accepts a connection's mark with a verdict
    /// (`NETFILTER_NETLINK_GLUE_CT`).
    ///
    /// If it does not, it ignores the mark silently. But it refuses a request to show connections, so
    /// this function requests that and then takes it back.
    fn finds_connections(&mut self) -> Result<bool, CallError> {
        let flag = sys::NFQA_CFG_F_CONNTRACK;
        let show = |value| QueueSettings { flags: Some((value, flag)), ..QueueSettings::default() };
        match self.configure(&show(flag)) {
            Ok(()) => self.configure(&show(0)).map(|()| true),
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The queue's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Netlink address of the socket that owns the queue.
    pub fn portid(&self) -> u32 {
        self.portid
    }

    /// Number of bytes of each packet that the kernel copies.
    pub fn copy_range(&self) -> u32 {
        self.copy_range
    }

    /// Size of the socket's receive buffer in bytes, as the kernel granted it, including overhead.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// True if a verdict can mark the packet's connection.
    pub fn marks_connections(&self) -> bool {
        self.marks_connections
    }

    /// The counters.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Returns the number of messages that did not fit into the socket, by the socket's own count.
    ///
    /// # Errors
    ///
    /// The kernel does not report it.
    pub fn socket_drops(&self) -> Result<u64, CallError> {
        netlink_socket::drops(self.socket.as_fd())
    }

    /// Waits for packets, up to the receive timeout; a batch may be empty.
    ///
    /// # Errors
    ///
    /// The receive fails for a reason other than a timeout, a signal, an overrun or lack of memory.
    pub fn receive(&mut self) -> Result<PacketBatch<'_>, QueueError> {
        self.receive_batch(ReceiveWait::Timeout)
    }

    /// Takes the packets that are waiting, without a pause.
    ///
    /// # Errors
    ///
    /// The same as [`Queue::receive`].
    pub fn receive_waiting(&mut self) -> Result<PacketBatch<'_>, QueueError> {
        self.receive_batch(ReceiveWait::Never)
    }

    /// Changes the copy range of packets that are queued from now on.
    ///
    /// It does not wait for an acknowledgement, because packets would come before it. A refusal is
    /// counted when it arrives.
    ///
    /// # Errors
    ///
    /// The message cannot be sent.
    pub fn set_copy_range(&mut self, octets: u32) -> Result<(), QueueError> {
        let octets = octets.min(MAXIMUM_COPY_RANGE);
        let room = octets as usize + self.labels;
        if !self.slots.fits(room) {
            self.slots = DatagramSlots::new(self.slots.count(), room);
        }
        let mut message = OutgoingMessages::new(self.number, 0);
        let settings = QueueSettings { copy_range: Some(octets), ..QueueSettings::default() };
        if message.push_settings(&settings) {
            match send_with_retry(&self.socket, message.octets(), &mut self.counters) {
                Ok(()) => self.copy_range = octets,
                // The old range stays until the next change is requested.
                Err(error) if is_shortage(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Unbinds the queue. The kernel drops packets that still wait in it, so answer these first (call
    /// [`Queue::receive_waiting`] until it returns none).
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn unbind(mut self) -> Result<QueueCounters, QueueError> {
        let settings = QueueSettings { command: Some(sys::NFQNL_CFG_CMD_UNBIND), ..QueueSettings::default() };
        self.configure(&settings)?;
        Ok(self.counters)
    }

    fn receive_batch(&mut self, wait: ReceiveWait) -> Result<PacketBatch<'_>, QueueError> {
        let count = match self.slots.receive(&self.socket, usize::MAX, wait) {
            Ok(count) => {
                self.counters.receives += 1;
                count
            }
            Err(error) => {
                self.note_receive_error(error)?;
                0
            }
        };
        Ok(PacketBatch::new(self, count))
    }

    /// Counts a timeout, a signal, an overrun and lack of memory; returns any other error.
    fn note_receive_error(&mut self, error: CallError) -> Result<(), CallError> {
        match error.errno() {
            Some(libc::EAGAIN) => {}
            Some(libc::EINTR) => self.counters.interrupted += 1,
            Some(libc::ENOBUFS) => self.counters.overruns += 1,
            Some(libc::ENOMEM) => {
                self.counters.shortages += 1;
                std::thread::sleep(PAUSE);
            }
            _ => return Err(error),
        }
        Ok(())
    }

    /// Sends one configuration message and waits for the kernel's answer.
    fn configure(&mut self, settings: &QueueSettings) -> Result<(), CallError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let settings = QueueSettings { acknowledge: Some(self.sequence), ..*settings };
        let mut message = OutgoingMessages::new(self.number, 0);
        if !message.push_settings(&settings) {
            return Err(CallError::of("nfq_nlmsg_put", libc::ENOMEM));
        }
        netlink_socket::send(&self.socket, message.octets())?;
        let deadline = Instant::now() + ACKNOWLEDGEMENT_TIMEOUT;
        while Instant::now() < deadline {
            match self.read_answer() {
                Ok(Some(0)) => return Ok(()),
                Ok(Some(errno)) => return Err(CallError::of("nfqnl_recv_config", errno)),
                Ok(None) => {}
                Err(error) => self.note_receive_error(error)?,
            }
        }
        Err(CallError::of("nfqnl_recv_config", libc::ETIMEDOUT))
    }

    /// Reads one datagram; returns the errno if it answers the last configuration.
    ///
    /// A packet that comes first is repeated at its hook: the kernel queues it again, after the answer.
    fn read_answer(&mut self) -> Result<Option<i32>, CallError> {
        let mut answer = None;
        for index in 0..self.slots.receive(&self.socket, 1, ReceiveWait::Timeout)? {
            let Some((datagram, _cut)) = self.slots.datagram(index) else { continue };
            for message in messages(datagram) {
                match message {
                    Ok(QueueMessage::Answer(message)) if message.sequence == self.sequence => {
                        answer = Some(message.errno);
                    }
                    Ok(QueueMessage::Packet(packet)) => {
                        self.last_packet = Some(packet.id);
                        let mut verdict = OutgoingMessages::new(self.number, 1);
                        if verdict.push_verdict(packet.id, Verdict::Repeat, None, None) {
                            netlink_socket::send(&self.socket, verdict.octets())?;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(answer)
    }
}

/// Readable when packets wait, for `poll` and event loops. Then [`Queue::receive_waiting`] takes them.
impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends, and retries for up to a second if the kernel is short of memory, and at once after a signal.
fn send_with_retry(socket: &OwnedFd, messages: &[u8], counters: &mut QueueCounters) -> Result<(), CallError> {
    let mut attempts = 0;
    loop {
        let Err(error) = netlink_socket::send(socket, messages) else { return Ok(()) };
        if error.errno() == Some(libc::EINTR) {
            counters.interrupted += 1;
            continue;
        }
        attempts += 1;
        if !is_shortage(&error) || attempts == SEND_ATTEMPTS {
            return Err(error);
        }
        counters.shortages += 1;
        std::thread::sleep(PAUSE);
    }
}

/// True if a send failed for a temporary reason.
fn is_shortage(error: &CallError) -> bool {
    matches!(error.errno(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}

/// Returns the error for a refused BIND.
///
/// For a queue of another socket the kernel returns EPERM (`nfqnl_recv_config` compares portids before it
/// reads the command); it returns EBUSY only for our own. So errno alone cannot distinguish it from a
/// missing capability.
fn refusal(queue: u16, portid: u32, error: CallError) -> QueueError {
    let errno = error.errno();
    if matches!(errno, Some(libc::EPERM | libc::EBUSY)) {
        let owner = KernelCounters::of(queue).ok().flatten().map(|counters| counters.portid);
        if let Some(owner) = owner.filter(|owner| *owner != portid) {
            return QueueError::AlreadyBound { queue, portid: owner };
        }
    }
    match errno {
        Some(libc::EPERM) => QueueError::NotPermitted { queue },
        Some(libc::EINVAL | libc::EOPNOTSUPP) => unsupported(error),
        _ => QueueError::Call(error),
    }
}

fn unsupported(source: CallError) -> QueueError {
    let kind = source.source.kind();
    match source.errno() {
        Some(libc::EPROTONOSUPPORT | libc::EINVAL | libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => {
            QueueError::Unsupported { what: "a netfilter queue (CONFIG_NETFILTER_NETLINK_QUEUE)", source }
        }
        _ if kind == io::ErrorKind::Unsupported => {
            QueueError::Unsupported { what: "a netfilter queue (CONFIG_NETFILTER_NETLINK_QUEUE)", source }
        }
        _ => QueueError::Call(source),
    }
}
