//! Opens a queue with the backend of its settings.

use std::os::fd::OwnedFd;

use super::libnetfilter_queue::LibnetfilterQueue;
use super::nfq::NfqCrate;
use super::packet_source::{PacketSource, QueueBackend, SourceConfig, SourceError};

impl SourceConfig {
    /// Binds the queue.
    ///
    /// # Errors
    ///
    /// Another process owns the queue, or a permission or a kernel feature is missing.
    pub fn open(&self) -> Result<Box<dyn PacketSource>, SourceError> {
        Ok(match self.backend {
            QueueBackend::LibnetfilterQueue => Box::new(LibnetfilterQueue::open(self)?),
            QueueBackend::Nfq => Box::new(NfqCrate::open(self)?),
        })
    }

    /// Takes over a queue that another process has bound. `marks_connections` is that process's finding.
    ///
    /// # Errors
    ///
    /// The socket has not bound that queue, or the backend does not support a takeover.
    pub fn adopt(
        &self,
        socket: OwnedFd,
        marks_connections: bool,
    ) -> Result<Box<dyn PacketSource>, SourceError> {
        Ok(Box::new(LibnetfilterQueue::adopt(self, socket, marks_connections)?))
    }
}
