//! Packets in a datagram, RFC 9000 sections 12.2 and 17.2, and the parts that are the same in every
//! version, RFC 8999.

use memchr::memmem;

use crate::banner::byte_reader::ByteReader;
use crate::terms::QuicVersion;

/// The highest bit of the first byte: a long header.
const LONG: u8 = 0x80;

/// Length of the longest connection ID of versions 1 and 2, in bytes.
const ID_LIMIT: usize = 20;

/// Length of the shortest datagram with a client's first Initial, in bytes, RFC 9000 section 14.1.
pub const FIRST_DATAGRAM: usize = 1200;

/// The identifier that one end of a connection chooses for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionId {
    length: u8,
    octets: [u8; ID_LIMIT],
}

impl ConnectionId {
    /// Returns a connection ID; none if it is too long for versions 1 and 2.
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut octets = [0; ID_LIMIT];
        octets.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { length: u8::try_from(id.len()).ok()?, octets })
    }

    /// Its bytes.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// Kinds of packets with a long header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongPacketType {
    /// Carries the hellos; its encryption hides nothing.
    Initial,
    /// Early data of a client that has connected before.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// A server's request to confirm the client's address.
    Retry,
}

/// A packet with a long header of a version that is read.
#[derive(Debug, Clone, Copy)]
pub struct LongPacket<'p> {
    /// Its version.
    pub version: QuicVersion,
    /// Its kind.
    pub kind: LongPacketType,
    /// The connection ID that the receiver has chosen.
    pub destination: ConnectionId,
    /// The connection ID that the sender has chosen for itself.
    pub source: ConnectionId,
    /// The whole packet.
    pub(super) octets: &'p [u8],
    /// Offset of its packet number.
    pub(super) number_at: usize,
}

/// The next part of a datagram.
#[derive(Debug)]
pub enum NextPacket<'p> {
    /// A packet with a long header, and what follows it.
    Long(LongPacket<'p>, &'p [u8]),
    /// Probably a connection's first packet, of a version that is not read.
    Unknown(QuicVersion),
    /// Anything else.
    Other,
}

/// Returns the next packet of a datagram.
///
/// UDP does not say whether it carries QUIC. A long header of a version that is not read counts as QUIC
/// only if the datagram is long enough for a client's first one. Google's own versions encode no lengths
/// of connection IDs as others do.
pub fn next_packet(octets: &[u8]) -> NextPacket<'_> {
    let mut reader = ByteReader(octets);
    let Some(first) = reader.u8().filter(|first| first & LONG != 0) else { return NextPacket::Other };
    let Some(version) = reader.u32().map(QuicVersion) else { return NextPacket::Other };
    let (destination, source) = (reader.after_u8(), reader.after_u8());
    if version == QuicVersion::NEGOTIATION {
        return NextPacket::Other;
    }
    if !is_read(version) {
        let fixed = first & 0x40 != 0;
        let google = matches!(version.0.to_be_bytes(), [b'Q' | b'T', b'0', b'0'..=b'9', b'0'..=b'9']);
        let lengths = [destination, source].map(|id| id.map_or(usize::MAX, <[u8]>::len));
        let honest = google || (8..=ID_LIMIT).contains(&lengths[0]) && lengths[1] <= ID_LIMIT;
        let first = fixed && honest && octets.len() >= FIRST_DATAGRAM;
        return if first { NextPacket::Unknown(version) } else { NextPacket::Other };
    }
    let id = |id: Option<&[u8]>| id.and_then(ConnectionId::new);
    let (Some(destination), Some(source)) = (id(destination), id(source)) else {
        return NextPacket::Other;
    };
    let kind = kind(version, first);
    let packet = |octets, number_at| LongPacket { version, kind, destination, source, octets, number_at };
    if kind == LongPacketType::Retry {
        return NextPacket::Long(packet(octets, octets.len()), &[]);
    }
    // The token of a Retry or of an earlier connection.
    if kind == LongPacketType::Initial && reader.after_varint().is_none() {
        return NextPacket::Other;
    }
    let Some(length) = reader.varint().and_then(|length| usize::try_from(length).ok()) else {
        return NextPacket::Other;
    };
    let number_at = octets.len() - reader.0.len();
    match number_at.checked_add(length).and_then(|end| octets.split_at_checked(end)) {
        Some((octets, rest)) => NextPacket::Long(packet(octets, number_at), rest),
        None => NextPacket::Other,
    }
}

/// Returns possible datagrams after the first, if the kernel delivered a train of datagrams as one. Each
/// starts at a byte that may begin a long header, followed by a version that is read.
pub fn trains(octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    let places = SPELLED.into_iter().flat_map(move |spelled| memmem::find_iter(octets, spelled));
    let behind = places.filter(|at| *at > 1).filter_map(|at| octets.get(at - 1..));
    let begins = |octets: &&[u8]| octets.first().is_some_and(|first| first & LONG != 0);
    behind.filter(begins).filter(|octets| is_spelled(octets))
}

/// First bytes of the versions that are read; of the drafts, without their number.
const SPELLED: [&[u8]; 3] =
    [&QuicVersion::V1.0.to_be_bytes(), &QuicVersion::V2.0.to_be_bytes(), &[0xff, 0, 0]];

/// True if a version that is read follows the first byte.
fn is_spelled(octets: &[u8]) -> bool {
    octets.get(1..).and_then(|rest| ByteReader(rest).u32()).is_some_and(|word| is_read(QuicVersion(word)))
}

/// Largest number of datagrams in a train, `UDP_MAX_SEGMENTS` of Linux.
pub const TRAIN_LIMIT: usize = 128;

/// True if packets of a version are read: those of the RFCs, and of the drafts with known keys.
const fn is_read(version: QuicVersion) -> bool {
    matches!(version, QuicVersion::V1 | QuicVersion::V2) || matches!(version.draft(), Some(29..=34))
}

/// RFC 9000 section 17.2, RFC 9369 section 3.2.
const fn kind(version: QuicVersion, first: u8) -> LongPacketType {
    let bits = first >> 4 & 3;
    let shift = matches!(version, QuicVersion::V2) as u8;
    match bits.wrapping_sub(shift) & 3 {
        0 => LongPacketType::Initial,
        1 => LongPacketType::ZeroRtt,
        2 => LongPacketType::Handshake,
        _ => LongPacketType::Retry,
    }
}
