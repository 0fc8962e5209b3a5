//! Packets to the peer: cut into pieces that fit the way, numbered, sealed where there are keys, and sent
//! many a call.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use super::account::{Account, Packet};
use super::carrier::{Carrier, MOST_SEGMENTS};
use super::noise::Noise;
use super::place::{self, MOST_PIECES, Place};
use super::session::{self, Session};
use crate::metrics::TunnelDrop as Reason;

/// The kind of a datagram that carries a piece as it is.
pub const PLAIN: u8 = 1;

/// Octets before a piece: its kind and number.
pub const PLAIN_HEADER: usize = 1 + place::OCTETS;

/// How what is sent looks.
#[derive(Debug, Clone)]
pub enum Cover {
    /// As it is; with the numbers of packets, none twice.
    Plain(Arc<AtomicU64>),
    /// Sealed.
    Noise(Arc<Noise>),
}

impl Cover {
    /// None. Its numbers begin where nobody has been for long: pieces of an earlier run may still be awaited
    /// by the peer.
    pub fn plain() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::Plain(Arc::new(AtomicU64::new(u64::try_from(since.as_micros()).unwrap_or_default())))
    }

    /// Octets of a datagram that are no piece.
    pub fn overhead(&self) -> usize {
        match self {
            Self::Plain(_) => PLAIN_HEADER,
            Self::Noise(_) => session::HEADER + session::TAG,
        }
    }
}

/// One thread's way to the peer.
#[derive(Debug)]
pub struct Outlet {
    carrier: Arc<Carrier>,
    cover: Cover,
    account: Account,
    headers: Vec<[u8; PLAIN_HEADER]>,
    /// Room for a train of sealed pieces.
    sealed: Vec<u8>,
}

/// A packet that is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Its number.
    packet: u64,
    /// How many pieces it has in all.
    pieces: usize,
    /// Octets of each but the last.
    room: usize,
    /// Octets of a datagram with such a piece.
    each: usize,
}

impl Outlet {
    /// A way by `carrier`.
    pub fn new(carrier: Arc<Carrier>, cover: Cover, account: Account) -> Self {
        let sealed = match cover {
            Cover::Plain(_) => Vec::new(),
            Cover::Noise(_) => vec![0; 1 << 16],
        };
        Self { carrier, cover, account, headers: vec![[0; PLAIN_HEADER]; MOST_SEGMENTS], sealed }
    }

    /// Sends a packet, or drops it.
    pub fn send(&mut self, packet: Packet<'_>) {
        // An outbound packet is in one part.
        let [octets] = packet.parts() else { return packet.discard(Reason::Malformed) };
        match self.send_octets(octets) {
            Ok(()) => packet.forwarded(),
            Err(reason) => packet.discard(reason),
        }
    }

    /// Sends a packet of our own, or nothing, which shows the peer that we have the keys.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn send_octets(&mut self, octets: &[u8]) -> Result<(), Reason> {
        match self.try_to_send(octets) {
            // The way has become narrower, as the kernel has just learnt.
            Err(Reason::TooLong) => self.try_to_send(octets),
            outcome => outcome,
        }
    }

    fn try_to_send(&mut self, octets: &[u8]) -> Result<(), Reason> {
        let each = self.carrier.each();
        let room = each.saturating_sub(self.cover.overhead()).max(1);
        let pieces = octets.len().div_ceil(room).max(1);
        if pieces > MOST_PIECES {
            return Err(Reason::TooLong);
        }
        let at_once = self.carrier.at_once(each);
        let session = match &self.cover {
            Cover::Plain(_) => None,
            Cover::Noise(noise) => Some(noise.current().ok_or(Reason::NoKey)?),
        };
        let packet = match (&self.cover, &session) {
            (_, Some(session)) => session.next(),
            (Cover::Plain(numbers), None) => numbers.fetch_add(1, Relaxed),
            (Cover::Noise(_), None) => return Err(Reason::NoKey),
        };
        let cut = Cut { packet, pieces, room, each };
        let mut first = 0;
        let mut rest = octets;
        while first < pieces {
            let (train, behind) = rest.split_at(rest.len().min(room * at_once));
            let count = train.len().div_ceil(room).max(1);
            match &session {
                None => self.send_plain(cut, first, train)?,
                Some(session) => self.send_sealed(session, cut, first, train)?,
            }
            self.account.datagrams(count);
            (first, rest) = (first + count, behind);
        }
        Ok(())
    }

    /// Sends pieces by one call, as they are.
    fn send_plain(&mut self, cut: Cut, first: usize, train: &[u8]) -> Result<(), Reason> {
        let mut parts = [IoSlice::new(&[]); 2 * MOST_SEGMENTS];
        let count = train.len().div_ceil(cut.room);
        for (index, header) in self.headers.iter_mut().take(count).enumerate() {
            header[0] = PLAIN;
            header[1..].copy_from_slice(&cut.place(first + index).to_octets());
        }
        let pairs = parts.chunks_exact_mut(2).zip(self.headers.iter().zip(train.chunks(cut.room)));
        for (pair, (header, piece)) in pairs {
            pair.copy_from_slice(&[IoSlice::new(header), IoSlice::new(piece)]);
        }
        self.carrier.send(parts.get(..2 * count).unwrap_or_default(), cut.each)
    }

    /// Sends pieces by one call, sealed.
    fn send_sealed(&mut self, session: &Session, cut: Cut, first: usize, train: &[u8]) -> Result<(), Reason> {
        let mut end = 0;
        // An empty train is one empty piece.
        let (start, others) = train.split_at(train.len().min(cut.room));
        for (index, piece) in std::iter::once(start).chain(others.chunks(cut.room)).enumerate() {
            let room = self.sealed.get_mut(end..).unwrap_or_default();
            end += session.seal(cut.place(first + index), piece, room)?;
        }
        self.carrier.send(&[IoSlice::new(self.sealed.get(..end).unwrap_or_default())], cut.each)
    }
}

impl Cut {
    fn place(self, index: usize) -> Place {
        Place::new(self.packet, index, self.pieces)
    }
}
