//! Inspection of packets in the tunnel, and resets to both ends of a connection: one end is behind the
//! device, the other behind the peer.

use std::io::IoSlice;
use std::sync::Arc;

use super::device::{self, HEADER, TunDevice};
use super::ip::is_ip;
use super::sender::TunnelSender;
use crate::engine::ChecksumState;
use crate::event::ResetOutcome;
use crate::guard::{CarriedPacket, CarriedVerdict, CarrierInspector, ResetOutcomes};
use crate::metrics::TunnelDrop as Reason;
use crate::packet::PacketPatch;

/// Inspector of a device's packets.
#[derive(Debug, Clone)]
pub struct TunnelInspector {
    pub inspector: Arc<CarrierInspector>,
    /// Name of the device.
    pub interface: String,
}

impl TunnelInspector {
    /// Inspects a packet to the peer.
    pub fn judge_sent(
        &self,
        parts: &[IoSlice<'_>],
        device: &TunDevice,
        outlet: &mut TunnelSender,
    ) -> CarriedVerdict {
        self.judge(parts, |resets| ResetOutcomes {
            receiver: outcome(outlet.send_octets(&resets.to_receiver)),
            sender: outcome(device.inject(&resets.to_sender)),
        })
    }

    /// Inspects a packet from the peer.
    pub fn judge_received(
        &self,
        parts: &[IoSlice<'_>],
        device: &TunDevice,
        outlet: &mut TunnelSender,
    ) -> CarriedVerdict {
        self.judge(parts, |resets| ResetOutcomes {
            receiver: outcome(device.inject(&resets.to_receiver)),
            sender: outcome(outlet.send_octets(&resets.to_sender)),
        })
    }

    fn judge(
        &self,
        parts: &[IoSlice<'_>],
        send: impl FnOnce(&crate::engine::ResetPair) -> ResetOutcomes,
    ) -> CarriedVerdict {
        let mut parts = parts.to_vec();
        let Some(first) = parts.first_mut() else { return CarriedVerdict::Stop };
        let checksums =
            if device::lacks_checksum(first) { ChecksumState::NotReady } else { ChecksumState::Verify };
        if !is_ip(first) {
            first.advance(HEADER.min(first.len()));
        }
        self.inspector.judge(CarriedPacket { parts: &parts, checksums, interface: &self.interface }, send)
    }
}

/// The packet that `patch` makes, among its bytes the checksum, so that it needs no header any more. None if
/// it is written into a packet that is still to be segmented: each segment would need a patch of its own.
pub fn patched(parts: &[IoSlice<'_>], patch: &PacketPatch) -> Option<Vec<u8>> {
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    if matches!(patch, PacketPatch::Write { .. }) && device::is_super_packet(&whole) {
        return None;
    }
    let packet = device::packet(&whole);
    patch.apply(packet, packet.len())
}

fn outcome(sent: Result<(), Reason>) -> ResetOutcome {
    match sent {
        Ok(()) => ResetOutcome::Routed,
        Err(reason) => ResetOutcome::Failed(reason.name().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patched_packet_needs_no_header_and_segments_are_not_patched() {
        let patch = PacketPatch::Write { at: 2, octets: vec![9; 7] };
        let packet = [0x45, 1, 2, 3, 4, 5, 6, 7, 8, 10];
        let header = |kind: u8| [1, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let wanted = [0x45, 1, 9, 9, 9, 9, 9, 9, 9, 10].to_vec();
        assert_eq!(patched(&[IoSlice::new(&packet)], &patch), Some(wanted.clone()));
        let with = |header: &[u8; 10]| {
            patched(&[IoSlice::new(header), IoSlice::new(&packet[..4]), IoSlice::new(&packet[4..])], &patch)
        };
        assert_eq!(with(&header(0)), Some(wanted));
        assert_eq!(with(&header(1)), None);
        assert_eq!(patched(&[IoSlice::new(&packet[..8])], &patch), None, "it is too short");
        let replaced = PacketPatch::Replace(packet[..3].to_vec());
        let header = header(1);
        let parts = [IoSlice::new(&header), IoSlice::new(&packet)];
        assert_eq!(patched(&parts, &replaced), Some(packet[..3].to_vec()));
    }
}
