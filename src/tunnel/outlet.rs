//! Packets to the peer: cut into pieces that fit the way, numbered, and sent many a call.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use super::account::{Account, Packet};
use super::carrier::{Carrier, MOST_SEGMENTS};
use super::place::{self, MOST_PIECES, Place};
use crate::metrics::TunnelDrop as Reason;

/// The kind of a datagram that carries a piece as it is.
pub const PLAIN: u8 = 1;

/// Octets before a piece: its kind and number.
pub const PLAIN_HEADER: usize = 1 + place::OCTETS;

/// The numbers of packets, none twice.
#[derive(Debug, Clone)]
pub struct Numbers(Arc<AtomicU64>);

impl Numbers {
    /// Begins where nobody has been for long: pieces of an earlier run may still be awaited by the peer.
    pub fn from_the_clock() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(Arc::new(AtomicU64::new(u64::try_from(since.as_micros()).unwrap_or_default())))
    }

    fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

/// One thread's way to the peer.
#[derive(Debug)]
pub struct Outlet {
    carrier: Arc<Carrier>,
    numbers: Numbers,
    account: Account,
    headers: Vec<[u8; PLAIN_HEADER]>,
}

impl Outlet {
    /// A way by `carrier`; all outlets of one run take from the same `numbers`.
    pub fn new(carrier: Arc<Carrier>, numbers: Numbers, account: Account) -> Self {
        Self { carrier, numbers, account, headers: vec![[0; PLAIN_HEADER]; MOST_SEGMENTS] }
    }

    /// Sends a packet, or drops it.
    pub fn send(&mut self, packet: Packet<'_>) {
        // An outbound packet is in one part.
        let [octets] = packet.parts() else { return packet.discard(Reason::Malformed) };
        let mut sent = self.try_to_send(octets);
        if sent == Err(Reason::TooLong) {
            sent = self.try_to_send(octets);
        }
        match sent {
            Ok(()) => packet.forwarded(),
            Err(reason) => packet.discard(reason),
        }
    }

    fn try_to_send(&mut self, octets: &[u8]) -> Result<(), Reason> {
        let each = self.carrier.each();
        let room = each.saturating_sub(PLAIN_HEADER).max(1);
        let pieces = octets.len().div_ceil(room);
        if pieces > MOST_PIECES {
            return Err(Reason::TooLong);
        }
        let number = self.numbers.next();
        let at_once = self.carrier.at_once(each);
        for (turn, train) in octets.chunks(room * at_once).enumerate() {
            let mut parts = [IoSlice::new(&[]); 2 * MOST_SEGMENTS];
            let count = train.len().div_ceil(room);
            for (index, header) in self.headers.iter_mut().take(count).enumerate() {
                let place = Place::new(number, turn * at_once + index, pieces);
                header[0] = PLAIN;
                header[1..].copy_from_slice(&place.to_octets());
            }
            let pairs = parts.chunks_exact_mut(2).zip(self.headers.iter().zip(train.chunks(room)));
            for (pair, (header, piece)) in pairs {
                pair.copy_from_slice(&[IoSlice::new(header), IoSlice::new(piece)]);
            }
            self.carrier.send(parts.get(..2 * count).unwrap_or_default())?;
            self.account.datagrams(count);
        }
        Ok(())
    }
}
