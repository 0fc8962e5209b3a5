//! A queue that goes on in another process.

use std::os::fd::{AsFd as _, OwnedFd};

use super::message::{Malformed, Message, messages};
use super::outgoing::{Outgoing, Settings};
use super::slots::Wait;
use super::{KernelCounters, Queue, QueueConfig, Verdict, refusal, send_patiently, socket};
use crate::error::{CallError, QueueError};
use crate::namespace;
use crate::sys;

impl Queue {
    /// Goes on with a queue that another process has bound by `socket`, packets that wait in it included: a
    /// queue belongs to the socket's address, whoever holds the socket (`nfqnl_recv_config` compares
    /// portids).
    ///
    /// Nothing changes for whoever still reads from it, until [`Queue::resume`] is called here.
    ///
    /// `marks_connections` is what the other process has found out; where that is nothing it is asked again.
    ///
    /// # Errors
    ///
    /// When it is no netlink socket to netfilter, or one of another network, or the queue is another
    /// socket's.
    pub fn adopt(socket: OwnedFd, config: &QueueConfig, marks_connections: bool) -> Result<Self, QueueError> {
        if !socket::is_netfilter(socket.as_fd()) {
            return Err(CallError::of("getsockopt(SO_PROTOCOL)", libc::EPROTOTYPE).into());
        }
        if !namespace::is_own(socket.as_fd()) {
            return Err(CallError::of("getsockopt(SO_NETNS_COOKIE)", libc::EXDEV).into());
        }
        socket::close_on_exec(socket.as_fd())?;
        let marks_connections = marks_connections || finds_connections(config.number);
        let queue = Self { marks_connections, ..Self::of(socket, config)? };
        // Who may not read the table is told by the kernel's answer to what `resume` says.
        match KernelCounters::of(config.number).map(|found| found.map(|counters| counters.portid)) {
            Ok(Some(portid)) if portid != queue.portid => {
                Err(QueueError::AlreadyBound { queue: config.number, portid })
            }
            Ok(None) => Err(CallError::of("nfnetlink_queue", libc::ENOENT).into()),
            Ok(Some(_)) | Err(_) => Ok(queue),
        }
    }

    /// Begins to read a queue that was adopted, with its own settings and a copy range of `octets` at least:
    /// as many as the packets that wait were copied by.
    ///
    /// Does not wait for an acknowledgement, which packets would stand in front of; a refusal is counted when
    /// it arrives, and [`Queue::is_lost`] then where nothing comes to this queue.
    ///
    /// # Errors
    ///
    /// When the message cannot be sent.
    pub fn resume(&mut self, config: &QueueConfig, octets: u32) -> Result<(), QueueError> {
        self.set_copy_range(octets.max(config.copy_range))?;
        let settings = Settings {
            maximum_length: Some(config.maximum_length),
            flags: Some(config.flags()),
            ..Settings::default()
        };
        let mut message = Outgoing::new(self.number, 0);
        if message.push_settings(&settings) {
            send_patiently(&self.socket, message.octets(), &mut self.counters)?;
        }
        Ok(())
    }

    /// Answers the packets that somebody has read who had the socket before, and who answers them no more:
    /// the kernel would hold them for ever. Those that wait to be read stay. Gives how many there were, where
    /// the kernel's table can be read.
    ///
    /// Packets are numbered in the order in which they are put into the socket (`__nfqnl_enqueue_packet`), so
    /// that those were read that stand before the first that can be read now, or all where none can. Nobody
    /// else may read meanwhile.
    ///
    /// # Errors
    ///
    /// When the socket cannot be read, or the verdict not be sent.
    pub fn answer_read(&mut self, verdict: Verdict) -> Result<Option<u64>, QueueError> {
        // Before the socket is looked at: of what came in between nothing is said then.
        let before = KernelCounters::of(self.number).ok().flatten();
        let last = match self.first_unread()? {
            Some(first) => first.wrapping_sub(1),
            None => match before {
                Some(KernelCounters { waiting: 0, .. }) => return Ok(Some(0)),
                Some(counters) => counters.last_packet,
                None => return Ok(None),
            },
        };
        let mut message = Outgoing::new(self.number, 1);
        if message.push_batch_verdict(last, verdict) {
            send_patiently(&self.socket, message.octets(), &mut self.counters)?;
            self.counters.sends += 1;
        }
        let after = KernelCounters::of(self.number).ok().flatten();
        Ok(before.zip(after).map(|(before, after)| {
            let came = u64::from(after.last_packet.wrapping_sub(before.last_packet));
            let lost = after.dropped_socket_full.saturating_sub(before.dropped_socket_full);
            (before.waiting + came.saturating_sub(lost)).saturating_sub(after.waiting)
        }))
    }

    /// The identification of the first packet that can be read, which stays.
    fn first_unread(&mut self) -> Result<Option<u32>, QueueError> {
        loop {
            match self.slots.receive(&self.socket, 1, Wait::Peek) {
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
                Some(Ok(Message::Packet(packet))) => return Ok(Some(packet.id)),
                Some(Err(Malformed { packet: Some(id) })) => return Ok(Some(id)),
                // What the kernel says to somebody who is gone.
                _ => self.slots.receive(&self.socket, 1, Wait::Never)?,
            };
        }
    }

    /// Binds the queue by the same socket once more, where whoever had the socket too has given it back:
    /// nothing comes to it otherwise. What waited in it is gone, and the kernel counts from zero.
    ///
    /// # Errors
    ///
    /// As [`Queue::bind`]; the queue must not be bound.
    pub fn bind_again(&mut self, config: &QueueConfig) -> Result<(), QueueError> {
        let settings = Settings {
            command: Some(sys::NFQNL_CFG_CMD_BIND),
            copy_range: Some(self.copy_range),
            maximum_length: Some(config.maximum_length),
            flags: Some(config.flags()),
            acknowledge: None,
        };
        self.configure(&settings).map_err(|error| refusal(self.number, self.portid, error))?;
        self.last_packet = None;
        self.is_lost = false;
        Ok(())
    }

    /// True if the kernel has said that nobody has bound this queue, or that another socket has: nothing
    /// comes to it before it is bound again.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// True if this kernel takes a connection's mark with a verdict, as [`Queue::bind`] finds out, without a word
/// to the queue itself: the kernel looks at what is asked for before it looks whose queue that is
/// (`nfqnl_recv_config`), and the socket that asks has none.
fn finds_connections(number: u16) -> bool {
    let config = QueueConfig { batch: 1, receive_buffer: 1 << 16, ..QueueConfig::new(number) };
    let flag = sys::NFQA_CFG_F_CONNTRACK;
    let show = Settings { flags: Some((flag, flag)), ..Settings::default() };
    let asked = socket::open().map(|socket| Queue::of(socket, &config));
    let Ok(Ok(mut asker)) = asked else { return false };
    asker.configure(&show).is_err_and(|error| matches!(error.errno(), Some(libc::EPERM | libc::ENODEV)))
}
