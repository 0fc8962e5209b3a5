//! One agreement on keys: what is sealed and opened by it. The Noise protocol's transport messages, one a
//! datagram, so that each is authentic by itself and none needs another:
//!
//! ```text
//! | kind | number of the piece (7) | session (4) | sealed piece | tag (16) |
//! ```
//!
//! The number is the nonce, so that a datagram whose number was changed does not open. The session is told so
//! that the receiver need not try several.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use snow::StatelessTransportState;

use super::place::{self, Place};
use super::window::Window;
use crate::metrics::TunnelDrop as Reason;

/// The kind of a datagram that carries a sealed piece.
pub const SEALED: u8 = 2;

/// Octets before a sealed piece, and behind it.
pub const HEADER: usize = 1 + place::OCTETS + 4;
pub const TAG: usize = 16;

/// The name that a receiver has given to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index(pub u32);

/// A session.
pub struct Session {
    /// In what comes to us.
    pub ours: Index,
    /// In what goes to the peer.
    theirs: Index,
    transport: StatelessTransportState,
    next: AtomicU64,
    window: Mutex<Window>,
    /// Time at which its keys were agreed on.
    pub born: Instant,
    /// True if the peer has shown that it has the keys, too.
    pub is_confirmed: AtomicBool,
}

impl Session {
    /// A session by `transport`, agreed on at `born`.
    pub fn new(ours: Index, theirs: Index, transport: StatelessTransportState, born: Instant) -> Self {
        let is_confirmed = AtomicBool::new(transport.is_initiator());
        let (next, window) = (AtomicU64::new(0), Mutex::new(Window::new()));
        Self { ours, theirs, transport, next, window, born, is_confirmed }
    }

    /// True if this end began.
    pub fn is_initiator(&self) -> bool {
        self.transport.is_initiator()
    }

    /// A number for a packet, which no other one has.
    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Writes a datagram with `piece` into `room`; gives its length.
    ///
    /// # Errors
    /// There is not room enough.
    pub fn seal(&self, place: Place, piece: &[u8], room: &mut [u8]) -> Result<usize, Reason> {
        let (header, sealed) = room.split_first_chunk_mut::<HEADER>().ok_or(Reason::TooLong)?;
        let [kind, rest @ ..] = header;
        *kind = SEALED;
        let (number, index) = rest.split_at_mut(place::OCTETS);
        number.copy_from_slice(&place.to_octets());
        index.copy_from_slice(&self.theirs.0.to_be_bytes());
        let length =
            self.transport.write_message(place.number(), piece, sealed).map_err(|_| Reason::TooLong)?;
        Ok(HEADER + length)
    }

    /// Opens what [`read`] gave into `room`, which must be as long as the sealed piece with its tag; gives
    /// its length.
    ///
    /// # Errors
    /// It is not the peer's, or was taken before.
    pub fn open(&self, place: Place, sealed: &[u8], room: &mut [u8]) -> Result<usize, Reason> {
        if room.len() < sealed.len() {
            return Err(Reason::Malformed);
        }
        let length = self.transport.read_message(place.number(), sealed, room).map_err(|_| Reason::Forged)?;
        // One thread receives; nobody is waited for.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.admit(place) { Ok(length) } else { Err(Reason::Replayed) }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").field("ours", &self.ours).finish_non_exhaustive()
    }
}

/// Reads a datagram with a sealed piece: of which session, its number, and what is sealed.
pub fn read(datagram: &[u8]) -> Option<(Index, Place, &[u8])> {
    let (header, sealed) = datagram.split_first_chunk::<HEADER>()?;
    let [SEALED, rest @ ..] = header else { return None };
    let (number, index) = rest.split_first_chunk::<{ place::OCTETS }>()?;
    let index = Index(u32::from_be_bytes(index.try_into().ok()?));
    (sealed.len() >= TAG).then(|| (index, Place::from_octets(*number), sealed))
}
