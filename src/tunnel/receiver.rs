//! Datagrams from the peer: reads many in a call, decrypts them, reassembles packets, and passes them to the
//! device.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use bannerwall_ffi::udp_segmentation::DatagramTrain;

use prometheus::IntCounter;

use super::device::{self, HEADER, PendingChecksums, TunDevice};
use super::inspection::{self, TunnelInspector};
use super::ip::is_ip;
use super::key_agreement::{AgreementReply, INITIATION, NoiseSessions, RESPONSE};
use super::packet_counters::DirectionCounters;
use super::peer_socket::PeerSocket;
use super::piece_number::PieceNumber;
use super::reassembly::{PacketReassembler, PushResult};
use super::sender::{PLAIN, PLAIN_HEADER, PieceProtection, TunnelSender};
use super::session;
use super::train_switch::{LossReport, LossTally, TrainSwitch};
use crate::diagnostics::log_line;
use crate::guard::CarriedVerdict;
use crate::metrics::TunnelDrop as Reason;

/// Receiving direction of the tunnel.
#[derive(Debug)]
pub struct TunnelReceiver {
    pub carrier: Arc<PeerSocket>,
    pub device: Arc<TunDevice>,
    pub cover: PieceProtection,
    pub account: DirectionCounters,
    pub assembly: PacketReassembler,
    /// Decrypted pieces, one after the other.
    pub opened: Vec<u8>,
    /// Sending direction, for key agreements.
    pub outlet: TunnelSender,
    pub agreed: AgreementCounter,
    /// Loss report to the peer, and reaction to the peer's reports.
    pub tally: LossTally,
    pub trains: Arc<TrainSwitch>,
    /// Inspector of packets, if there is one.
    pub guard: Option<TunnelInspector>,
}

/// Counter of key agreements, which logs the first one.
#[derive(Debug)]
pub struct AgreementCounter(pub IntCounter);

impl AgreementCounter {
    fn note(&self) {
        if self.0.get() == 0 {
            log_line("bannerwall: connected to the peer, keys are agreed on");
        }
        self.0.inc();
    }
}

/// Piece of a packet, from one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReceivedPiece<'a> {
    /// Session of its number; 0 without keys.
    session: u32,
    place: PieceNumber,
    octets: &'a [u8],
}

impl ReceivedPiece<'_> {
    fn follows(&self, other: &Self) -> bool {
        self.session == other.session && self.place.follows(other.place)
    }
}

impl TunnelReceiver {
    /// Waits for datagrams and handles them.
    ///
    /// # Errors
    ///
    /// The socket is unusable.
    pub fn receive(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        let train = self.carrier.receive(buffer)?;
        self.take(buffer, train);
        Ok(())
    }

    fn take(&mut self, octets: &[u8], train: DatagramTrain) {
        let octets = octets.get(..train.length).unwrap_or_default();
        let each = if train.each == 0 { train.length } else { train.each };
        let datagrams = octets.chunks(each.max(1));
        // An empty datagram counts, too.
        self.account.datagrams(datagrams.len().max(1));
        self.account.dropped(Reason::Malformed, u64::from(octets.is_empty()));
        let mut opened = std::mem::take(&mut self.opened);
        let mut room = opened.as_mut_slice();
        let mut pieces = Vec::with_capacity(datagrams.len());
        for datagram in datagrams {
            match self.read(datagram, &mut room) {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => {}
                Err(reason) => self.account.dropped(reason, 1),
            }
        }
        for run in pieces.chunk_by(|one, next| next.follows(one)) {
            self.take_run(run);
        }
        self.opened = opened;
        let incomplete = self.assembly.take_incomplete();
        self.account.dropped(Reason::Incomplete, incomplete);
        self.tally.incomplete(incomplete);
        if let Some(report) = self.tally.due(Instant::now) {
            // A lost report needs no retry: a later one follows.
            let _ = self.outlet.send_octets(&report.to_octets());
        }
    }

    /// Parses a datagram; `None` if it carries no piece of a packet.
    fn read<'a>(
        &mut self,
        datagram: &'a [u8],
        room: &mut &'a mut [u8],
    ) -> Result<Option<ReceivedPiece<'a>>, Reason> {
        match &self.cover {
            PieceProtection::Plain(_) => read_plain(datagram).map(Some).ok_or(Reason::Malformed),
            PieceProtection::Noise(noise) if matches!(datagram.first(), Some(&(INITIATION | RESPONSE))) => {
                let answer = noise.take(datagram, Instant::now())?;
                self.answer(answer);
                Ok(None)
            }
            PieceProtection::Noise(noise) => open(noise, &self.agreed, datagram, room),
        }
    }

    fn answer(&mut self, answer: AgreementReply) {
        let sent = match answer {
            AgreementReply::Send(message) => self.carrier.send_one(&message),
            AgreementReply::Confirm => {
                self.agreed.note();
                self.outlet.send_octets(&[])
            }
        };
        if let Err(reason) = sent {
            self.account.dropped(reason, 1);
        }
    }

    /// Handles consecutive pieces of one packet.
    fn take_run(&mut self, run: &[ReceivedPiece<'_>]) {
        let is_whole = matches!((run.first(), run.last()),
            (Some(first), Some(last)) if first.place.piece == 0 && last.place.is_last);
        if is_whole {
            if run.len() > 1 {
                self.tally.whole();
            }
            return self.deliver(run.iter().map(|piece| IoSlice::new(piece.octets)));
        }
        let mut assembly = std::mem::take(&mut self.assembly);
        for piece in run {
            match assembly.push(piece.session, piece.place, piece.octets) {
                PushResult::Waiting => {}
                PushResult::Refused => self.account.dropped(Reason::Contradictory, 1),
                PushResult::Whole(slot) => {
                    self.tally.whole();
                    self.deliver(assembly.parts(slot).into_iter());
                }
            }
        }
        self.assembly = assembly;
    }
}

impl TunnelReceiver {
    /// Passes a packet to the device, or drops it.
    fn deliver<'a>(&mut self, pieces: impl Iterator<Item = IoSlice<'a>>) {
        let parts: Vec<IoSlice<'a>> = std::iter::once(IoSlice::new(&[])).chain(pieces).collect();
        let packet = parts.get(1..).unwrap_or_default();
        if let Some(report) = LossReport::read(packet) {
            return self.trains.heard(report, &self.device, Instant::now());
        }
        // The peer never splits a packet inside its header. The inspector and the device could see different
        // packets there.
        let is_cut_short = packet.first().is_some_and(|first| !is_ip(first) && first.len() <= HEADER);
        if is_cut_short || !device::fits(packet) {
            return self.account.packet(&parts).discard(Reason::Malformed);
        }
        let Some(guard) = &self.guard else { return write(&self.device, &self.account, parts) };
        match PendingChecksums::of(packet) {
            PendingChecksums::Usual => {}
            PendingChecksums::Other(octets) => return self.deliver(std::iter::once(IoSlice::new(&octets))),
            PendingChecksums::Unfit => return self.account.packet(&parts).discard(Reason::Malformed),
        }
        let patched = match guard.judge_received(packet, &self.device, &mut self.outlet) {
            CarriedVerdict::Pass => return write(&self.device, &self.account, parts),
            CarriedVerdict::Stop => None,
            CarriedVerdict::Patch(patch) => inspection::patched(packet, &patch),
        };
        match patched {
            None => self.account.packet(&parts).discard(Reason::Judged),
            Some(octets) => {
                write(&self.device, &self.account, vec![IoSlice::new(&[]), IoSlice::new(&octets)]);
            }
        }
    }
}

/// Passes a packet, after an empty part, to the device.
fn write(device: &TunDevice, account: &DirectionCounters, mut parts: Vec<IoSlice<'_>>) {
    let dressed = device.dress(&mut parts);
    let packet = account.packet(&parts);
    match dressed.and_then(|()| device.write(packet.parts())) {
        Ok(()) => packet.forwarded(),
        Err(reason) => packet.discard(reason),
    }
}

fn read_plain(datagram: &[u8]) -> Option<ReceivedPiece<'_>> {
    let (header, octets) = datagram.split_first_chunk::<PLAIN_HEADER>()?;
    let [PLAIN, place @ ..] = *header else { return None };
    (!octets.is_empty()).then(|| ReceivedPiece { session: 0, place: PieceNumber::from_octets(place), octets })
}

/// Decrypts a datagram into the start of `room`, and shrinks `room` to the rest.
fn open<'a>(
    noise: &NoiseSessions,
    agreed: &AgreementCounter,
    datagram: &[u8],
    room: &mut &'a mut [u8],
) -> Result<Option<ReceivedPiece<'a>>, Reason> {
    let (index, place, sealed) = session::read(datagram).ok_or(Reason::Malformed)?;
    let session = noise.session(index).ok_or(Reason::Forged)?;
    let all = std::mem::take(room);
    let length = match session.open(place, sealed, all) {
        Ok(length) => length,
        Err(reason) => {
            *room = all;
            return Err(reason);
        }
    };
    if noise.confirm(&session) {
        agreed.note();
    }
    let (octets, rest) = all.split_at_mut(length);
    *room = rest;
    // A datagram without a piece only proves that the peer has the keys.
    Ok((length > 0).then_some(ReceivedPiece { session: index.0, place, octets }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pieces_of_a_tunnel_are_read() {
        let place = PieceNumber::new(5, 0, 1);
        let mut datagram = vec![PLAIN];
        datagram.extend(place.to_octets());
        assert_eq!(read_plain(&datagram), None, "nothing in it");
        datagram.push(0x45);
        assert_eq!(read_plain(&datagram), Some(ReceivedPiece { session: 0, place, octets: &[0x45] }));
        datagram[0] = 9;
        assert_eq!(read_plain(&datagram), None);
        assert_eq!(read_plain(&[]), None);
    }
}
