//! Packet counters: each packet is counted as forwarded, or as dropped with a reason.

use std::io::IoSlice;

use super::device::HEADER;
use crate::metrics::{TunnelDirection, TunnelDrop as Reason, TunnelMetrics};

/// Counters of one direction.
#[derive(Debug, Clone)]
pub struct DirectionCounters {
    metrics: TunnelMetrics,
    way: TunnelDirection,
}

impl DirectionCounters {
    /// Returns the counters of a direction.
    pub fn new(metrics: TunnelMetrics, way: TunnelDirection) -> Self {
        Self { metrics, way }
    }

    /// Takes a packet. It is counted as dropped with [`Reason::Unfinished`] unless its result is recorded.
    pub fn packet<'a>(&'a self, parts: &'a [IoSlice<'a>]) -> CountedPacket<'a> {
        CountedPacket { parts, account: self, reason: Some(Reason::Unfinished) }
    }

    /// Counts sent or received datagrams.
    pub fn datagrams(&self, datagrams: usize) {
        self.metrics.datagrams(self.way).inc_by(datagrams as u64);
    }

    /// Counts data that was dropped before it became a packet.
    pub fn dropped(&self, reason: Reason, times: u64) {
        if times > 0 {
            self.metrics.dropped(reason).inc_by(times);
        }
    }
}

/// Packet on its way through the tunnel; dropping it counts it with its reason.
#[derive(Debug)]
pub struct CountedPacket<'a> {
    parts: &'a [IoSlice<'a>],
    account: &'a DirectionCounters,
    reason: Option<Reason>,
}

impl<'a> CountedPacket<'a> {
    /// Returns its bytes in parts, perhaps after a segmentation header.
    pub fn parts(&self) -> &'a [IoSlice<'a>] {
        self.parts
    }

    /// Returns its length in bytes, without a segmentation header.
    pub fn length(&self) -> usize {
        let all: usize = self.parts.iter().map(|part| part.len()).sum();
        match self.parts.iter().find(|part| !part.is_empty()) {
            Some(first) if !super::ip::is_ip(first) => all.saturating_sub(HEADER),
            _ => all,
        }
    }

    /// Counts the packet as forwarded.
    pub fn forwarded(mut self) {
        self.reason = None;
        self.account.metrics.packets(self.account.way).inc();
        self.account.metrics.octets(self.account.way).inc_by(self.length() as u64);
    }

    /// Counts the packet as dropped.
    pub fn discard(mut self, reason: Reason) {
        self.reason = Some(reason);
    }
}

impl Drop for CountedPacket<'_> {
    fn drop(&mut self) {
        // A packet that is neither forwarded nor discarded, as by an early return, still counts as
        // dropped.
        if let Some(reason) = self.reason {
            self.account.dropped(reason, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsRegistry;

    #[test]
    fn a_packet_is_counted_whatever_becomes_of_it() {
        let metrics = TunnelMetrics::new(&MetricsRegistry::default()).expect("no family twice");
        let account = DirectionCounters::new(metrics.clone(), TunnelDirection::Sent);
        let parts = [IoSlice::new(&[0; 10]), IoSlice::new(&[0x45; 10]), IoSlice::new(&[2; 5])];
        account.packet(&parts).forwarded();
        account.packet(&parts).discard(Reason::Unreachable);
        drop(account.packet(&parts));
        let counted = |reason| metrics.dropped(reason).get();
        assert_eq!((counted(Reason::Unreachable), counted(Reason::Unfinished)), (1, 1));
        assert_eq!(
            (metrics.packets(TunnelDirection::Sent).get(), metrics.octets(TunnelDirection::Sent).get()),
            (1, 15)
        );
        assert_eq!(metrics.packets(TunnelDirection::Received).get(), 0);
    }
}
