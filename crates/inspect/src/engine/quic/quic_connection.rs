//! One connection between two ports, as far as its client's hello.

use std::sync::Arc;

use super::flow_datagram::FlowDatagram;
use crate::banner::quic::{
    ConnectionId, CryptoStream, CryptoStreamError, InitialKeys, LongPacket, LongPacketType, MalformedFrame,
    crypto_frames,
};
use crate::engine::dialogue::MatchedRules;
use crate::event::{Timestamp, TlsFacts};
use crate::flow::{Anomaly, AnomalySet, KeyEnd};
use crate::terms::QuicVersion;

/// CRYPTO frames that a hello may come in; clients that scatter it on purpose use some dozen, and send again.
const FRAMES: usize = 512;

/// The contents of a datagram.
#[derive(Debug, Default)]
pub struct DatagramContents {
    pub(super) anomalies: AnomalySet,
    /// A version that is not read.
    pub(super) unknown: Option<QuicVersion>,
    /// A part of a hello that is not let through.
    pub(super) condemned: bool,
    /// Packets that are QUIC's.
    pub(super) packets: usize,
    /// Initials of clients that were looked at.
    pub(super) initials: usize,
    /// It is too short for one with an Initial of a client.
    pub(super) short: bool,
}

impl DatagramContents {
    pub(super) const fn is_quic(&self) -> bool {
        self.packets > 0 || self.unknown.is_some()
    }
}

/// One connection, from its client's first Initial on.
#[derive(Debug)]
pub struct QuicConnection {
    pub(super) client: KeyEnd,
    /// The destination id of the client's first Initial: the keys follow from it.
    pub(super) original: ConnectionId,
    /// The id by which the client wants to be addressed.
    pub(super) source: ConnectionId,
    /// The id by which the server wants to be addressed, once its own Initial has shown it.
    pub(super) server: Option<ConnectionId>,
    /// The id from a Retry, with which the client starts again.
    retry: Option<ConnectionId>,
    /// True if the server has gone on to the handshake proper: it has the hello.
    pub(super) handshaken: bool,
    /// True if a part of the hello was let through.
    pub(super) parted: bool,
    /// CRYPTO frames so far.
    frames: usize,
    pub(super) version: QuicVersion,
    /// Nothing once the server goes on behind the hello.
    pub(super) keys: Option<InitialKeys>,
    /// The packet number behind the highest.
    expected: u64,
    pub(super) hellos: CryptoStream,
    pub(super) state: HelloState,
    /// Time at which its first Initial came.
    pub(super) since: Timestamp,
    pub(super) matched: MatchedRules,
    pub(super) facts: Option<Arc<TlsFacts>>,
    /// The hello of the connection that this one goes on with behind a Retry, which was judged.
    pub(super) before: Option<Arc<TlsFacts>>,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloState {
    /// Its hello is not whole.
    Undecided,
    /// Its hello is what was judged with the datagram at hand, and is to be stopped.
    Suspect,
    /// Its hello was judged, and may pass.
    Judged,
    /// The server goes on: it has the hello.
    Settled,
    /// Its hello is not let through.
    Condemned,
}

impl QuicConnection {
    pub(super) fn new(
        packet: &LongPacket<'_>,
        keys: InitialKeys,
        number: u64,
        before: Option<Arc<TlsFacts>>,
        seen: FlowDatagram<'_>,
    ) -> Self {
        Self {
            client: seen.from,
            original: packet.destination,
            source: packet.source,
            server: None,
            retry: None,
            handshaken: false,
            parted: false,
            frames: 0,
            version: packet.version,
            keys: Some(keys),
            expected: number + 1,
            hellos: CryptoStream::default(),
            state: HelloState::Undecided,
            since: seen.packet.now,
            matched: MatchedRules::default(),
            facts: None,
            before,
        }
    }

    /// Opens an Initial of this connection. Its version may be another one than at first, RFC 9368.
    pub(super) fn open(
        &mut self,
        packet: &LongPacket<'_>,
        room: &mut Vec<u8>,
    ) -> Option<std::ops::Range<usize>> {
        let keys = self.keys.as_ref()?;
        let other = match keys.version() == packet.version {
            true => None,
            false => Some(InitialKeys::new(packet.version, &self.original)?),
        };
        let keys = other.as_ref().unwrap_or(keys);
        // The server may not have what was seen last, and count from what it has.
        let opened = keys.open(packet, self.expected, room).or_else(|| keys.open(packet, 0, room));
        let (number, range) = opened?;
        self.expected = self.expected.max(number + 1);
        Some(range)
    }

    /// Takes note of a packet that goes to whom this connection's client says it is.
    pub(super) fn observe_answer(&mut self, packet: &LongPacket<'_>, room: &mut Vec<u8>) {
        match packet.kind {
            LongPacketType::Retry => self.retry = Some(packet.source),
            LongPacketType::Initial if self.server.is_none() => {
                let keys = InitialKeys::of_server(packet.version, &self.original);
                let opened = keys.and_then(|keys| keys.open(packet, 0, room));
                self.server = opened.map(|_| packet.source);
            }
            LongPacketType::Handshake => self.handshaken |= self.server == Some(packet.source),
            LongPacketType::Initial | LongPacketType::ZeroRtt => {}
        }
    }

    /// Takes the bytes of the hello out of frames.
    pub(super) fn take(&mut self, frames: &[u8], found: &mut DatagramContents) {
        if self.state == HelloState::Condemned {
            return;
        }
        for frame in crypto_frames(frames) {
            self.frames += 1;
            let refused = match frame {
                Ok(_) if self.frames > FRAMES => Anomaly::QuicMalformed,
                Ok((offset, octets)) => match self.hellos.take(offset, octets) {
                    Ok(()) => continue,
                    Err(CryptoStreamError::Conflict) => Anomaly::QuicConflict,
                    Err(CryptoStreamError::TooMany) => Anomaly::QuicMalformed,
                },
                Err(MalformedFrame) => Anomaly::QuicMalformed,
            };
            found.anomalies.insert(refused);
        }
    }

    /// True if a packet goes on with this connection behind a Retry of its server.
    pub(super) fn retries_to(&self, packet: &LongPacket<'_>, from: KeyEnd) -> bool {
        self.client == from && self.state == HelloState::Judged && self.retry == Some(packet.destination)
    }

    /// Nothing that is said of the hello any more changes it.
    pub(super) fn settle(&mut self) {
        self.keys = None;
        self.hellos = CryptoStream::default();
        self.facts = None;
        self.before = None;
        if self.state != HelloState::Condemned {
            self.state = HelloState::Settled;
        }
    }
}
