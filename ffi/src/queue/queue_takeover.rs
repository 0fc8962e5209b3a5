//! Takeover of a queue from another process.

use std::os::fd::{AsFd as _, OwnedFd};

use super::datagram_slots::ReceiveWait;
use super::netlink_message::{MalformedMessage, QueueMessage, messages};
use super::outgoing_messages::{OutgoingMessages, QueueSettings};
use super::{KernelCounters, Queue, QueueConfig, Verdict, netlink_socket, refusal, send_with_retry};
use crate::error::{CallError, QueueError};
use crate::namespace;
use crate::sys;

impl Queue {
    /// Takes over a queue that another process has bound by `socket`, with the packets that wait in it. A
    /// queue belongs to the socket's address, whichever process holds the socket (`nfqnl_recv_config`
    /// compares portids).
    ///
    /// A process that still reads from it is not affected until [`Queue::resume`] is called here.
    ///
    /// `marks_connections` is the result of the other process; if it is false, the kernel is asked again.
    ///
    /// # Errors
    ///
    /// It is no netlink socket to netfilter, or one of another namespace, or the queue belongs to another
    /// socket.
    pub fn adopt(socket: OwnedFd, config: &QueueConfig, marks_connections: bool) -> Result<Self, QueueError> {
        if !netlink_socket::is_netfilter(socket.as_fd()) {
            return Err(CallError::of("getsockopt(SO_PROTOCOL)", libc::EPROTOTYPE).into());
        }
        if !namespace::is_own(socket.as_fd()) {
            return Err(CallError::of("getsockopt(SO_NETNS_COOKIE)", libc::EXDEV).into());
        }
        netlink_socket::close_on_exec(socket.as_fd())?;
        let marks_connections = marks_connections || finds_connections(config.number);
        let queue = Self { marks_connections, ..Self::of(socket, config)? };
        // A process that may not read the table learns it from the kernel's answer to the message of
        // `resume`.
        match KernelCounters::of(config.number).map(|found| found.map(|counters| counters.portid)) {
            Ok(Some(portid)) if portid != queue.portid => {
                Err(QueueError::AlreadyBound { queue: config.number, portid })
            }
            Ok(None) => Err(CallError::of("nfnetlink_queue", libc::ENOENT).into()),
            Ok(Some(_)) | Err(_) => Ok(queue),
        }
    }

    /// Starts to read an adopted queue with its own settings. The copy range is at least `octets`, the
    /// range with which the waiting packets were copied.
    ///
    /// It does not wait for an acknowledgement, because packets would come before it. A refusal is
    /// counted when it arrives; then [`Queue::is_lost`] is true if the queue receives nothing.
    ///
    /// # Errors
    ///
    /// The message cannot be sent.
    pub fn resume(&mut self, config: &QueueConfig, octets: u32) -> Result<(), QueueError> {
        // First, since this also makes the slots large enough for the packets that wait.
        self.set_copy_range(octets.max(config.copy_range))?;
        let settings = QueueSettings {
            maximum_length: Some(config.maximum_length),
            flags: Some(config.flags()),
            ..QueueSettings::default()
        };
        let mut message = OutgoingMessages::new(self.number, 0);
        if message.push_settings(&settings) {
            send_with_retry(&self.socket, message.octets(), &mut self.counters)?;
        }
        Ok(())
    }

    /// Lets so many packets wait until another process takes over: [`Queue::resume`] sets its own limit.
    ///
    /// # Errors
    ///
    /// The message cannot be sent.
    pub fn set_maximum_length(&mut self, packets: u32) -> Result<(), QueueError> {
        let settings = QueueSettings { maximum_length: Some(packets), ..QueueSettings::default() };
        let mut message = OutgoingMessages::new(self.number, 0);
        if message.push_settings(&settings) {
            send_with_retry(&self.socket, message.octets(), &mut self.counters)?;
        }
        Ok(())
    }

    /// Answers the packets that the socket's previous holder has read and not answered: the kernel would
    /// hold them for ever. Packets that wait to be read stay. Returns their number, if the kernel's table
    /// can be read.
    ///
    /// Packets are numbered in the order in which they enter the socket (`__nfqnl_enqueue_packet`). So
    /// the packets before the first readable one were read; if none is readable, all were. No other
    /// process may read meanwhile.
    ///
    /// # Errors
    ///
    /// The socket cannot be read, or the verdict cannot be sent.
    pub fn answer_read(&mut self, verdict: Verdict) -> Result<Option<u64>, QueueError> {
        // The counter is read before the socket, so that packets which come in between are not answered.
        let before = KernelCounters::of(self.number).ok().flatten();
        let last = match self.first_unread()? {
            Some(first) => first.wrapping_sub(1),
            None => match before {
                Some(KernelCounters { waiting: 0, .. }) => return Ok(Some(0)),
                Some(counters) => counters.last_packet,
                None => {
                    // These packets must not get the verdict on later ones.
                    self.outgoing.separate_verdicts();
                    return Ok(None);
                }
            },
        };
        let mut message = OutgoingMessages::new(self.number, 1);
        if message.push_batch_verdict(last, verdict) {
            send_with_retry(&self.socket, message.octets(), &mut self.counters)?;
            self.counters.sends += 1;
        }
        let after = KernelCounters::of(self.number).ok().flatten();
        Ok(before.zip(after).map(|(before, after)| {
            let came = u64::from(after.last_packet.wrapping_sub(before.last_packet));
            let lost = after.dropped_socket_full.saturating_sub(before.dropped_socket_full);
            (before.waiting + came.saturating_sub(lost)).saturating_sub(after.waiting)
        }))
    }

    /// Returns the identification of the first readable packet, which stays.
    fn first_unread(&mut self) -> Result<Option<u32>, QueueError> {
        loop {
            match self.slots.receive(&self.socket, 1, ReceiveWait::Peek) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.errno() == Some(libc::EAGAIN) => return Ok(None),
                Err(error) => {
                    self.note_receive_error(error)?;
                    continue;
                }
            }
            let (datagram, _cut) = self.slots.datagram(0).unwrap_or_default();
            match messages(datagram).next() {
                Some(Ok(QueueMessage::Packet(packet))) => return Ok(Some(packet.id)),
                Some(Err(MalformedMessage { packet: Some(id) })) => return Ok(Some(id)),
                // The kernel's answers to the previous holder are skipped.
                _ => self.slots.receive(&self.socket, 1, ReceiveWait::Never)?,
            };
        }
    }

    /// Binds the queue by the same socket again, after the other holder of the socket has unbound it.
    /// Packets that waited in it are gone, and the kernel counts from zero.
    ///
    /// # Errors
    ///
    /// The same as [`Queue::bind`]; the queue must not be bound.
    pub fn bind_again(&mut self, config: &QueueConfig) -> Result<(), QueueError> {
        let settings = QueueSettings {
            command: Some(sys::NFQNL_CFG_CMD_BIND),
            copy_range: Some(self.copy_range),
            maximum_length: Some(config.maximum_length),
            flags: Some(config.flags()),
            acknowledge: None,
        };
        self.configure(&settings).map_err(|error| refusal(self.number, self.portid, error))?;
        // The next number says nothing about lost packets.
        self.last_packet = None;
        self.is_lost = false;
        Ok(())
    }

    /// True if the kernel has reported that this queue is not bound, or bound by another socket. It
    /// receives nothing until it is bound again.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// True if this kernel accepts a connection's mark with a verdict, like [`Queue::bind`] finds out, but
/// without a message to the queue itself. The kernel checks the requested options before it checks the
/// owner (`nfqnl_recv_config`), and the asking socket owns no queue.
fn finds_connections(number: u16) -> bool {
    let config = QueueConfig { batch: 1, receive_buffer: 1 << 16, ..QueueConfig::new(number) };
    let flag = sys::NFQA_CFG_F_CONNTRACK;
    let show = QueueSettings { flags: Some((flag, flag)), ..QueueSettings::default() };
    let asked = netlink_socket::open().map(|socket| Queue::of(socket, &config));
    let Ok(Ok(mut asker)) = asked else { return false };
    asker.configure(&show).is_err_and(|error| matches!(error.errno(), Some(libc::EPERM | libc::ENODEV)))
}
