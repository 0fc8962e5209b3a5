//! What becomes of packets, told in the metrics: a packet has an end, or it is counted why not.

use std::io::IoSlice;

use super::device::HEADER;
use crate::metrics::{TunnelDrop as Reason, TunnelMetrics, Way};

/// The counts of one direction.
#[derive(Debug, Clone)]
pub struct Account {
    metrics: TunnelMetrics,
    way: Way,
}

impl Account {
    /// Counts what goes this way.
    pub fn new(metrics: TunnelMetrics, way: Way) -> Self {
        Self { metrics, way }
    }

    /// Takes up a packet, which is dropped as [`Reason::Unfinished`] unless it is told what becomes of it.
    pub fn packet<'a>(&'a self, parts: &'a [IoSlice<'a>]) -> Packet<'a> {
        Packet { parts, account: self, reason: Some(Reason::Unfinished) }
    }

    /// Counts datagrams that were sent or received.
    pub fn datagrams(&self, datagrams: usize) {
        self.metrics.datagrams(self.way).inc_by(datagrams as u64);
    }

    /// Counts what was dropped before it was a packet.
    pub fn dropped(&self, reason: Reason, times: u64) {
        if times > 0 {
            self.metrics.dropped(reason).inc_by(times);
        }
    }
}

/// A packet on its way through. Dropped in any way, it is counted with the reason.
#[derive(Debug)]
pub struct Packet<'a> {
    parts: &'a [IoSlice<'a>],
    account: &'a Account,
    reason: Option<Reason>,
}

impl<'a> Packet<'a> {
    /// Its octets, perhaps behind a header for segmentation, in parts.
    pub fn parts(&self) -> &'a [IoSlice<'a>] {
        self.parts
    }

    /// Its octets in all, without a header for segmentation.
    pub fn length(&self) -> usize {
        let all: usize = self.parts.iter().map(|part| part.len()).sum();
        match self.parts.iter().find(|part| !part.is_empty()) {
            Some(first) if !super::ip::is_ip(first) => all.saturating_sub(HEADER),
            _ => all,
        }
    }

    /// It has arrived.
    pub fn forwarded(mut self) {
        self.reason = None;
        self.account.metrics.packets(self.account.way).inc();
        self.account.metrics.octets(self.account.way).inc_by(self.length() as u64);
    }

    /// It goes no further.
    pub fn discard(mut self, reason: Reason) {
        self.reason = Some(reason);
    }
}

impl Drop for Packet<'_> {
    fn drop(&mut self) {
        if let Some(reason) = self.reason {
            self.account.dropped(reason, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Registry;

    #[test]
    fn a_packet_is_counted_whatever_becomes_of_it() {
        let metrics = TunnelMetrics::new(&Registry::default()).expect("no family twice");
        let account = Account::new(metrics.clone(), Way::Sent);
        let parts = [IoSlice::new(&[0; 10]), IoSlice::new(&[0x45; 10]), IoSlice::new(&[2; 5])];
        account.packet(&parts).forwarded();
        account.packet(&parts).discard(Reason::Unreachable);
        drop(account.packet(&parts));
        let counted = |reason| metrics.dropped(reason).get();
        assert_eq!((counted(Reason::Unreachable), counted(Reason::Unfinished)), (1, 1));
        assert_eq!((metrics.packets(Way::Sent).get(), metrics.octets(Way::Sent).get()), (1, 15));
        assert_eq!(metrics.packets(Way::Received).get(), 0);
    }
}
