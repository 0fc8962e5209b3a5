//! Packet source that uses our own binding of `libnetfilter_queue`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use bannerwall_ffi::queue::{Queue, QueueConfig, Verdict as Code, netlink_message::PacketMessage};

use super::packet_source::{
    BATCH, BatchCounts, IDLE, PacketAnswer, PacketSource, PacketVerdict, QueueStatistics, QueuedPacket,
    SourceConfig, SourceError,
};
use crate::event::Timestamp;

/// Packets that may wait in a queue until a successor reads it: a start takes seconds on a busy machine.
const WAITING_FOR_SUCCESSOR: u32 = 16_384;

/// A queue that is read and answered in batches.
#[derive(Debug)]
pub struct LibnetfilterQueue {
    queue: Queue,
    config: QueueConfig,
}

impl LibnetfilterQueue {
    /// Binds the queue.
    ///
    /// # Errors
    ///
    /// As [`SourceConfig::open`].
    pub fn open(config: &SourceConfig) -> Result<Self, SourceError> {
        let config = settings(config);
        Ok(Self { queue: Queue::bind(&config)?, config })
    }

    /// Takes over a queue that another process has bound.
    ///
    /// # Errors
    ///
    /// As [`SourceConfig::adopt`].
    pub fn adopt(
        config: &SourceConfig,
        socket: OwnedFd,
        marks_connections: bool,
    ) -> Result<Self, SourceError> {
        let config = settings(config);
        Ok(Self { queue: Queue::adopt(socket, &config, marks_connections)?, config })
    }
}

fn settings(config: &SourceConfig) -> QueueConfig {
    QueueConfig {
        copy_range: config.copy_range,
        maximum_length: config.maximum_length,
        receive_buffer: config.receive_buffer,
        batch: BATCH,
        fail_open: config.fail_open,
        failure: code(config.failure()),
        receive_timeout: IDLE,
        ..QueueConfig::new(config.queue)
    }
}

impl PacketSource for LibnetfilterQueue {
    fn batch(
        &mut self,
        patience: Duration,
        judge: &mut dyn FnMut(&QueuedPacket<'_>) -> PacketAnswer,
    ) -> Result<BatchCounts, SourceError> {
        let mut received = BatchCounts::default();
        let mut batch =
            if patience.is_zero() { self.queue.receive_waiting()? } else { self.queue.receive()? };
        let mut wanted = 0;
        while let Some(packet) = batch.next_packet() {
            let queued = queued(packet.message());
            received.packets += 1;
            received.octets += queued.wire_length as u64;
            let answer = judge(&queued);
            // One message for the whole batch: the largest request serves all of them.
            wanted = wanted.max(answer.copy_range.unwrap_or(0));
            let Some(patch) = answer.patch else {
                packet.verdict(code(answer.verdict), answer.mark, answer.connection_mark);
                continue;
            };
            match patch.apply(queued.payload, queued.wire_length) {
                Some(payload) => packet.replace(code(answer.verdict), answer.mark, &payload),
                // The engine decided about the changed packet, so the unchanged one must not pass.
                None => packet.verdict(Code::Drop, None, None),
            }
        }
        batch.raise_copy_range(wanted);
        batch.finish()?;
        Ok(received)
    }

    fn copy_range(&self) -> u32 {
        self.queue.copy_range()
    }

    fn set_copy_range(&mut self, octets: u32) -> Result<(), SourceError> {
        Ok(self.queue.set_copy_range(octets)?)
    }

    fn await_successor(&mut self) -> Result<(), SourceError> {
        Ok(self.queue.set_maximum_length(self.config.maximum_length.max(WAITING_FOR_SUCCESSOR))?)
    }

    fn resume(&mut self, octets: u32) -> Result<(), SourceError> {
        Ok(self.queue.resume(&self.config, octets)?)
    }

    fn answer_read(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(self.queue.answer_read(self.config.failure)?)
    }

    fn bind_again(&mut self) -> Result<(), SourceError> {
        Ok(self.queue.bind_again(&self.config)?)
    }

    fn is_lost(&self) -> bool {
        self.queue.is_lost()
    }

    fn port_id(&self) -> Option<u32> {
        Some(self.queue.portid())
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn address(&self) -> Option<u32> {
        Some(self.queue.portid())
    }

    fn marks_connections(&self) -> bool {
        self.queue.marks_connections()
    }

    fn statistics(&self) -> QueueStatistics {
        let counters = self.queue.counters();
        QueueStatistics {
            received: counters.packets,
            receive_calls: counters.receives,
            send_calls: counters.sends,
            missed: counters.missed,
            late_verdicts: counters.late_verdicts,
            refused: counters.refused + counters.unsent + counters.shortages,
            unanswered: counters.unanswered,
            malformed: counters.malformed,
            overruns: counters.overruns,
            interrupted: counters.interrupted,
            socket_drops: self.queue.socket_drops().unwrap_or(0),
            ..QueueStatistics::default()
        }
        .with_kernel_counters(self.queue.number())
    }

    fn close(self: Box<Self>) -> Result<(), SourceError> {
        self.queue.unbind()?;
        Ok(())
    }
}

fn queued<'a>(message: &PacketMessage<'a>) -> QueuedPacket<'a> {
    QueuedPacket {
        payload: message.payload,
        wire_length: message.wire_length,
        mark: message.mark,
        checksum_ready: message.checksums_ready(),
        input_interface: message.input_interface,
        output_interface: message.output_interface,
        input_port: message.input_bridge_port,
        output_port: message.output_bridge_port,
        hardware_address: message.hardware_address,
        hook: message.hook,
        hardware_protocol: message.hardware_protocol,
        timestamp: message.timestamp.map(Timestamp::from_nanos),
    }
}

const fn code(verdict: PacketVerdict) -> Code {
    match verdict {
        PacketVerdict::Accept => Code::Accept,
        PacketVerdict::Drop => Code::Drop,
        PacketVerdict::Repeat => Code::Repeat,
    }
}
