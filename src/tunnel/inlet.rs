//! Datagrams from the peer: read many a call, put together to packets, given to the device.

use std::io::IoSlice;
use std::sync::Arc;

use bannerwall_ffi::datagrams::Train;

use super::account::Account;
use super::assembly::{Assembly, Pushed};
use super::device::Device;
use super::outlet::{PLAIN, PLAIN_HEADER};
use super::place::Place;
use crate::metrics::TunnelDrop as Reason;

/// The way from the peer.
#[derive(Debug)]
pub struct Inlet {
    device: Arc<Device>,
    account: Account,
    assembly: Assembly,
}

impl Inlet {
    /// A way to `device`.
    pub fn new(device: Arc<Device>, account: Account) -> Self {
        Self { device, account, assembly: Assembly::default() }
    }

    /// Takes what one call received.
    pub fn take(&mut self, octets: &[u8], train: Train) {
        let octets = octets.get(..train.length).unwrap_or_default();
        let each = if train.each == 0 { train.length } else { train.each };
        let datagrams = octets.chunks(each.max(1));
        // One without an octet is one all the same.
        self.account.datagrams(datagrams.len().max(1));
        self.account.dropped(Reason::Malformed, u64::from(octets.is_empty()));
        let mut pieces = Vec::with_capacity(datagrams.len());
        for datagram in datagrams {
            match read(datagram) {
                Some(piece) => pieces.push(piece),
                None => self.account.dropped(Reason::Malformed, 1),
            }
        }
        for run in pieces.chunk_by(|one, next| next.0.follows(one.0)) {
            self.take_run(run);
        }
        self.account.dropped(Reason::Incomplete, self.assembly.take_incomplete());
    }

    /// Takes pieces that follow one another in one packet.
    fn take_run(&mut self, run: &[(Place, &[u8])]) {
        let is_whole = matches!((run.first(), run.last()),
            (Some((first, _)), Some((last, _))) if first.piece == 0 && last.is_last);
        if is_whole {
            let pieces = run.iter().map(|(_, piece)| IoSlice::new(piece));
            return deliver(&self.device, &self.account, pieces);
        }
        for (place, piece) in run {
            match self.assembly.push(*place, piece) {
                Pushed::Waiting => {}
                Pushed::Refused => self.account.dropped(Reason::Contradictory, 1),
                Pushed::Whole(slot) => {
                    deliver(&self.device, &self.account, self.assembly.parts(slot).into_iter());
                }
            }
        }
    }
}

/// Gives a packet to the device, or drops it.
fn deliver<'a>(device: &Device, account: &Account, pieces: impl Iterator<Item = IoSlice<'a>>) {
    let mut parts: Vec<IoSlice<'a>> = std::iter::once(IoSlice::new(&[])).chain(pieces).collect();
    let dressed = device.dress(&mut parts);
    let packet = account.packet(&parts);
    match dressed.and_then(|()| device.write(packet.parts())) {
        Ok(()) => packet.forwarded(),
        Err(reason) => packet.discard(reason),
    }
}

/// Reads a datagram.
fn read(datagram: &[u8]) -> Option<(Place, &[u8])> {
    let (header, piece) = datagram.split_first_chunk::<PLAIN_HEADER>()?;
    let [PLAIN, place @ ..] = *header else { return None };
    (!piece.is_empty()).then(|| (Place::from_octets(place), piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pieces_of_a_tunnel_are_read() {
        let place = Place::new(5, 0, 1);
        let mut datagram = vec![PLAIN];
        datagram.extend(place.to_octets());
        assert_eq!(read(&datagram), None, "nothing in it");
        datagram.push(0x45);
        assert_eq!(read(&datagram), Some((place, &[0x45][..])));
        datagram[0] = 9;
        assert_eq!(read(&datagram), None);
        assert_eq!(read(&[]), None);
    }
}
