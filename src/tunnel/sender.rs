//! Packets to the peer: splits them into pieces, numbers and encrypts these, and sends many in a call.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use super::key_agreement::NoiseSessions;
use super::packet_counters::{CountedPacket, DirectionCounters};
use super::peer_socket::{MOST_SEGMENTS, PeerSocket};
use super::piece_number::{self, MOST_PIECES, PieceNumber};
use super::session::{self, TunnelSession};
use crate::metrics::TunnelDrop as Reason;

/// Kind of a datagram with an unencrypted piece.
pub const PLAIN: u8 = 1;

/// Size of the header before a piece, in bytes: its kind and number.
pub const PLAIN_HEADER: usize = 1 + piece_number::OCTETS;

/// Protection of sent pieces.
#[derive(Debug, Clone)]
pub enum PieceProtection {
    /// Unencrypted, with the counter of packet numbers.
    Plain(Arc<AtomicU64>),
    /// Encrypted.
    Noise(Arc<NoiseSessions>),
}

impl PieceProtection {
    /// Returns an unencrypted cover. Its numbers start at the current time, since the peer may still wait for
    /// pieces of an earlier run.
    pub fn plain() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::Plain(Arc::new(AtomicU64::new(u64::try_from(since.as_micros()).unwrap_or_default())))
    }

    /// Returns the size of a datagram's header and tag, in bytes.
    pub fn overhead(&self) -> usize {
        match self {
            Self::Plain(_) => PLAIN_HEADER,
            Self::Noise(_) => session::HEADER + session::TAG,
        }
    }
}

/// Sending direction of one thread.
#[derive(Debug)]
pub struct TunnelSender {
    carrier: Arc<PeerSocket>,
    cover: PieceProtection,
    account: DirectionCounters,
    headers: Vec<[u8; PLAIN_HEADER]>,
    /// Buffer for a train of encrypted pieces.
    sealed: Vec<u8>,
}

/// Splitting of a packet.
#[derive(Debug, Clone, Copy)]
struct PacketSplit {
    /// Number of the packet.
    packet: u64,
    /// Number of its pieces.
    pieces: usize,
    /// Size of each piece but the last, in bytes.
    room: usize,
    /// Size of a datagram with such a piece, in bytes.
    each: usize,
}

impl TunnelSender {
    /// Returns a sender over `carrier`.
    pub fn new(carrier: Arc<PeerSocket>, cover: PieceProtection, account: DirectionCounters) -> Self {
        let sealed = match cover {
            PieceProtection::Plain(_) => Vec::new(),
            PieceProtection::Noise(_) => vec![0; 1 << 16],
        };
        Self { carrier, cover, account, headers: vec![[0; PLAIN_HEADER]; MOST_SEGMENTS], sealed }
    }

    /// Sends a packet, or drops it.
    pub fn send(&mut self, packet: CountedPacket<'_>) {
        // An outgoing packet has one part.
        let [octets] = packet.parts() else { return packet.discard(Reason::Malformed) };
        match self.send_octets(octets) {
            Ok(()) => packet.forwarded(),
            Err(reason) => packet.discard(reason),
        }
    }

    /// Sends a packet of the tunnel, or an empty one to prove possession of the keys.
    ///
    /// # Errors
    ///
    /// Reason of the failure.
    pub fn send_octets(&mut self, octets: &[u8]) -> Result<(), Reason> {
        match self.try_to_send(octets) {
            // The kernel has just learnt a smaller path MTU, so one retry is enough.
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
            PieceProtection::Plain(_) => None,
            PieceProtection::Noise(noise) => Some(noise.current().ok_or(Reason::NoKey)?),
        };
        let packet = match (&self.cover, &session) {
            (_, Some(session)) => session.next(),
            (PieceProtection::Plain(numbers), None) => numbers.fetch_add(1, Relaxed),
            (PieceProtection::Noise(_), None) => return Err(Reason::NoKey),
        };
        let cut = PacketSplit { packet, pieces, room, each };
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

    /// Sends unencrypted pieces in one call.
    fn send_plain(&mut self, cut: PacketSplit, first: usize, train: &[u8]) -> Result<(), Reason> {
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

    /// Sends encrypted pieces in one call.
    fn send_sealed(
        &mut self,
        session: &TunnelSession,
        cut: PacketSplit,
        first: usize,
        train: &[u8],
    ) -> Result<(), Reason> {
        let mut end = 0;
        // An empty train has one empty piece.
        let (start, others) = train.split_at(train.len().min(cut.room));
        for (index, piece) in std::iter::once(start).chain(others.chunks(cut.room)).enumerate() {
            let room = self.sealed.get_mut(end..).unwrap_or_default();
            end += session.seal(cut.place(first + index), piece, room)?;
        }
        self.carrier.send(&[IoSlice::new(self.sealed.get(..end).unwrap_or_default())], cut.each)
    }
}

impl PacketSplit {
    fn place(self, index: usize) -> PieceNumber {
        PieceNumber::new(self.packet, index, self.pieces)
    }
}
