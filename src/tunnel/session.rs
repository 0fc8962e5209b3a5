//! Session of one key agreement: encrypts and decrypts pieces. Each datagram carries one transport message of
//! the Noise protocol, and is authentic without any other:
//!
//! ```text
//! | kind | number of the piece (7) | session (4) | sealed piece | tag (16) |
//! ```
//!
//! The number is the nonce, so a datagram with a changed number fails to decrypt. The session's index lets
//! the receiver find the keys.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use snow::StatelessTransportState;

use super::piece_number::{self, PieceNumber};
use super::replay_window::ReplayWindow;
use crate::metrics::TunnelDrop as Reason;

/// Kind of a datagram with an encrypted piece.
pub const SEALED: u8 = 2;

/// Sizes before and after an encrypted piece, in bytes.
pub const HEADER: usize = 1 + piece_number::OCTETS + 4;
pub const TAG: usize = 16;

/// Index of a session, chosen by its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionIndex(pub u32);

/// Session.
pub struct TunnelSession {
    /// Index in received datagrams.
    pub ours: SessionIndex,
    /// Index in sent datagrams.
    theirs: SessionIndex,
    transport: StatelessTransportState,
    next: AtomicU64,
    window: Mutex<ReplayWindow>,
    /// Time of the key agreement.
    pub born: Instant,
    /// True once the peer has proved possession of the keys.
    pub is_confirmed: AtomicBool,
}

impl TunnelSession {
    /// Returns a session with `transport`, agreed on at `born`.
    pub fn new(
        ours: SessionIndex,
        theirs: SessionIndex,
        transport: StatelessTransportState,
        born: Instant,
    ) -> Self {
        let is_confirmed = AtomicBool::new(transport.is_initiator());
        let (next, window) = (AtomicU64::new(0), Mutex::new(ReplayWindow::new()));
        Self { ours, theirs, transport, next, window, born, is_confirmed }
    }

    /// True if this end started the agreement.
    pub fn is_initiator(&self) -> bool {
        self.transport.is_initiator()
    }

    /// Returns a new packet number.
    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Writes a datagram with `piece` into `room`, and returns its length.
    ///
    /// # Errors
    ///
    /// `room` is too small.
    pub fn seal(&self, place: PieceNumber, piece: &[u8], room: &mut [u8]) -> Result<usize, Reason> {
        let (header, sealed) = room.split_first_chunk_mut::<HEADER>().ok_or(Reason::TooLong)?;
        let [kind, rest @ ..] = header;
        *kind = SEALED;
        let (number, index) = rest.split_at_mut(piece_number::OCTETS);
        number.copy_from_slice(&place.to_octets());
        index.copy_from_slice(&self.theirs.0.to_be_bytes());
        let length =
            self.transport.write_message(place.number(), piece, sealed).map_err(|_| Reason::TooLong)?;
        Ok(HEADER + length)
    }

    /// Decrypts the result of [`read`] into `room`, which must have the length of the encrypted piece with
    /// its tag. Returns the length.
    ///
    /// # Errors
    ///
    /// The piece is forged or replayed.
    pub fn open(&self, place: PieceNumber, sealed: &[u8], room: &mut [u8]) -> Result<usize, Reason> {
        if room.len() < sealed.len() {
            return Err(Reason::Malformed);
        }
        let length = self.transport.read_message(place.number(), sealed, room).map_err(|_| Reason::Forged)?;
        // Only one thread receives, so this lock never waits.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.admit(place) { Ok(length) } else { Err(Reason::Replayed) }
    }
}

impl fmt::Debug for TunnelSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TunnelSession").field("ours", &self.ours).finish_non_exhaustive()
    }
}

/// Parses a datagram with an encrypted piece: its session, its number, and the encrypted bytes.
pub fn read(datagram: &[u8]) -> Option<(SessionIndex, PieceNumber, &[u8])> {
    let (header, sealed) = datagram.split_first_chunk::<HEADER>()?;
    let [SEALED, rest @ ..] = header else { return None };
    let (number, index) = rest.split_first_chunk::<{ piece_number::OCTETS }>()?;
    let index = SessionIndex(u32::from_be_bytes(index.try_into().ok()?));
    (sealed.len() >= TAG).then(|| (index, PieceNumber::from_octets(*number), sealed))
}
