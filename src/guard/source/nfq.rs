//! Packet source that uses the `nfq` crate.
//!
//! It takes one packet per receive call and sends one verdict per send call. Two properties of the crate
//! determine the rest:
//!
//! - `Queue::set_copy_range` discards every packet that arrives before its acknowledgement, so it can only be
//!   called before packets arrive. So the queue is bound with the whole packet as its copy range, and
//!   [`PacketSource::set_copy_range`] does not change it.
//! - `Queue::bind` sets the copy mode in a second message. The kernel drops packets that it queues in
//!   between, so the queue must be bound before packets are led to it.

use std::io;
use std::time::Duration;

use bannerwall_ffi::error::{CallError, QueueError};
use bannerwall_ffi::queue::{ForeignSocket, KernelCounters};

use bannerwall_ffi::queue::MAXIMUM_COPY_RANGE;

use super::packet_source::{
    BATCH, BatchCounts, PacketAnswer, PacketSource, PacketVerdict, QueueStatistics, QueuedPacket,
    SourceConfig, SourceError,
};

/// Pause after a call that failed for lack of kernel memory.
const PAUSE: Duration = Duration::from_millis(5);

/// A queue that is read and answered packet by packet.
pub struct NfqCrate {
    queue: nfq::Queue,
    socket: ForeignSocket,
    number: u16,
    failure: PacketVerdict,
    counters: QueueStatistics,
    last_packet: u32,
}

impl NfqCrate {
    /// Binds the queue.
    ///
    /// # Errors
    ///
    /// As [`SourceConfig::open`].
    pub fn open(config: &SourceConfig) -> Result<Self, SourceError> {
        let number = config.queue;
        let (mut queue, socket) = ForeignSocket::of(nfq::Queue::open)?;
        socket.set_receive_buffer(config.receive_buffer)?;
        queue.bind(number).map_err(|source| refusal(number, &socket, source))?;
        let failed = |call: &'static str| move |source| SourceError::from(CallError { call, source });
        queue.set_queue_max_len(number, config.maximum_length).map_err(failed("NFQA_CFG_QUEUE_MAXLEN"))?;
        queue.set_fail_open(number, config.fail_open).map_err(failed("NFQA_CFG_F_FAIL_OPEN"))?;
        queue.set_recv_gso(number, true).map_err(failed("NFQA_CFG_F_GSO"))?;
        queue.set_nonblocking(true);
        Ok(Self {
            queue,
            socket,
            number,
            failure: config.failure(),
            counters: QueueStatistics::default(),
            last_packet: 0,
        })
    }

    /// Receives one packet; `None` if none has arrived.
    fn receive(&mut self) -> Result<Option<nfq::Message>, SourceError> {
        loop {
            match self.queue.recv() {
                Ok(message) => {
                    self.count(message.get_packet_id());
                    return Ok(Some(message));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => self.note(error)?,
            }
        }
    }

    fn count(&mut self, id: u32) {
        let gap = id.wrapping_sub(self.last_packet).wrapping_sub(1);
        self.counters.missed += if gap > u32::MAX / 2 { 0 } else { u64::from(gap) };
        self.counters.received += 1;
        self.counters.receive_calls += 1;
        self.last_packet = id;
    }

    /// Counts signals, overruns, late verdicts and lack of memory. Returns all other errors.
    fn note(&mut self, source: io::Error) -> Result<(), SourceError> {
        match source.raw_os_error() {
            Some(libc::EINTR) => self.counters.interrupted += 1,
            Some(libc::ENOBUFS) => self.counters.overruns += 1,
            Some(libc::ENOMEM) => {
                self.counters.refused += 1;
                std::thread::sleep(PAUSE);
            }
            // The kernel's answer to a verdict on a packet that it had already given up.
            Some(libc::ENOENT) => self.counters.late_verdicts += 1,
            // The crate's error for a message that is longer than its buffer.
            Some(libc::ENOSPC) => self.counters.malformed += 1,
            _ => return Err(CallError { call: "recv(AF_NETLINK)", source }.into()),
        }
        Ok(())
    }
}

impl PacketSource for NfqCrate {
    fn batch(
        &mut self,
        patience: Duration,
        judge: &mut dyn FnMut(&QueuedPacket<'_>) -> PacketAnswer,
    ) -> Result<BatchCounts, SourceError> {
        let mut received = BatchCounts::default();
        if !patience.is_zero() && !self.socket.wait_readable(patience)? {
            return Ok(received);
        }
        while received.packets < BATCH {
            let Some(message) = self.receive()? else {
                break;
            };
            let mut pending = UnansweredPacket {
                queue: &mut self.queue,
                counters: &mut self.counters,
                failure: self.failure,
                message: Some(message),
            };
            let (answer, octets) = pending.judge(judge);
            pending.verdict(answer)?;
            received.packets += 1;
            received.octets += octets;
        }
        Ok(received)
    }

    fn copy_range(&self) -> u32 {
        MAXIMUM_COPY_RANGE
    }

    fn set_copy_range(&mut self, _octets: u32) -> Result<(), SourceError> {
        Ok(())
    }

    fn statistics(&self) -> QueueStatistics {
        let socket_drops = self.socket.drops().unwrap_or(0);
        QueueStatistics { socket_drops, ..self.counters }.with_kernel_counters(self.number)
    }

    fn close(mut self: Box<Self>) -> Result<(), SourceError> {
        let unbind = |source| CallError { call: "NFQNL_CFG_CMD_UNBIND", source };
        Ok(self.queue.unbind(self.number).map_err(unbind)?)
    }
}

/// True if a send failed for a temporary reason.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}

/// A packet that gets the failure verdict if it is dropped without another one.
struct UnansweredPacket<'a> {
    queue: &'a mut nfq::Queue,
    counters: &'a mut QueueStatistics,
    failure: PacketVerdict,
    message: Option<nfq::Message>,
}

impl UnansweredPacket<'_> {
    /// Has the packet judged. Returns the verdict and the packet's length on the wire.
    fn judge(&mut self, judge: &mut dyn FnMut(&QueuedPacket<'_>) -> PacketAnswer) -> (PacketAnswer, u64) {
        let Some(message) = &self.message else {
            return (PacketAnswer::new(self.failure), 0);
        };
        let queued = queued(message);
        (judge(&queued), queued.wire_length as u64)
    }

    fn verdict(mut self, answer: PacketAnswer) -> Result<(), CallError> {
        self.answer(answer)
    }

    fn answer(&mut self, answer: PacketAnswer) -> Result<(), CallError> {
        let Some(mut message) = self.message.take() else {
            return Ok(());
        };
        let wire_length = message.get_original_len().max(message.get_payload().len());
        let patched = answer.patch.map(|patch| patch.apply(message.get_payload(), wire_length));
        let cannot_patch = matches!(patched, Some(None));
        if let Some(payload) = patched.flatten() {
            message.set_payload(payload);
        }
        message.set_verdict(match answer.verdict {
            _ if cannot_patch => nfq::Verdict::Drop,
            PacketVerdict::Accept => nfq::Verdict::Accept,
            PacketVerdict::Drop => nfq::Verdict::Drop,
            PacketVerdict::Repeat => nfq::Verdict::Repeat,
        });
        if let Some(mark) = answer.mark {
            message.set_nfmark(mark);
        }
        self.counters.send_calls += 1;
        match self.queue.verdict(message) {
            // The crate has consumed the message, so it cannot be sent again: the packet waits until the
            // queue is released.
            Err(error) if is_passing(&error) => {
                self.counters.refused += 1;
                std::thread::sleep(PAUSE);
                Ok(())
            }
            result => result.map_err(|source| CallError { call: "sendto(AF_NETLINK)", source }),
        }
    }
}

impl Drop for UnansweredPacket<'_> {
    fn drop(&mut self) {
        if self.message.is_some() {
            self.counters.unanswered += 1;
            // Errors are ignored, since this happens while a panic unwinds.
            let _ = self.answer(PacketAnswer::new(self.failure));
        }
    }
}

fn queued(message: &nfq::Message) -> QueuedPacket<'_> {
    let payload = message.get_payload();
    let input_port = message.get_physindev();
    QueuedPacket {
        payload,
        wire_length: message.get_original_len().max(payload.len()),
        mark: message.get_nfmark(),
        checksum_ready: message.is_checksum_ready(),
        input_interface: message.get_indev(),
        output_interface: message.get_outdev(),
        input_port,
        output_port: message.get_physoutdev(),
        // Elsewhere it may be longer than the crate's buffer for it.
        hardware_address: (input_port != 0)
            .then(|| message.get_hw_addr().and_then(|address| address.try_into().ok()))
            .flatten(),
        hook: message.get_hook(),
        hardware_protocol: message.get_hw_protocol(),
        // `Message::get_timestamp` of nfq 0.2 reads through a pointer that is not aligned.
        timestamp: None,
    }
}

/// Returns the error for a refused `bind`. `bannerwall_ffi::queue` explains why errno alone is ambiguous.
fn refusal(queue: u16, socket: &ForeignSocket, source: io::Error) -> SourceError {
    let own = socket.portid().ok();
    let owner = KernelCounters::of(queue).ok().flatten().map(|counters| counters.portid);
    SourceError::Queue(match (source.raw_os_error(), owner) {
        (Some(libc::EPERM | libc::EBUSY), Some(portid)) if Some(portid) != own => {
            QueueError::AlreadyBound { queue, portid }
        }
        (Some(libc::EPERM), _) => QueueError::NotPermitted { queue },
        _ => QueueError::Call(CallError { call: "NFQNL_CFG_CMD_BIND", source }),
    })
}
