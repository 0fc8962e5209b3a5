//! The blocks of a pcapng section and the interfaces that they speak of.

use pcap_parser::pcapng::{Block, parse_block_be, parse_block_le};

use super::{FrameAt, Record, SECOND, incomplete, length, link_type};
use crate::event::Timestamp;

/// More interfaces than this in one section are not remembered.
const INTERFACE_LIMIT: usize = 65_536;

/// The type of the obsolete packet block, which old captures have.
const PACKET_BLOCK: u32 = 2;

/// Octets before the data of an enhanced (and of an obsolete) packet block.
const ENHANCED_HEADER: usize = 28;

/// Octets before the data of a simple packet block.
const SIMPLE_HEADER: usize = 12;

/// What the blocks since the last section header said.
#[derive(Debug, Default)]
pub(super) struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

#[derive(Debug)]
struct Interface {
    link: u16,
    snap_length: usize,
    resolution: u8,
    offset: i64,
    name: Option<String>,
}

impl Section {
    /// The block at the start of `data`.
    pub(super) fn record(&mut self, data: &[u8]) -> Record {
        if data.len() < 8 {
            return Record::More(12);
        }
        let parse = if self.big_endian { parse_block_be } else { parse_block_le };
        let (rest, block) = match parse(data) {
            Ok(parsed) => parsed,
            Err(error) => return incomplete(&error, data.len(), "a block that contradicts itself"),
        };
        let consumed = data.len() - rest.len();
        match block {
            Block::SectionHeader(header) => {
                *self = Self { big_endian: header.big_endian(), interfaces: Vec::new() };
                Record::Other(consumed)
            }
            Block::InterfaceDescription(description) => {
                if self.interfaces.len() < INTERFACE_LIMIT {
                    self.interfaces.push(Interface {
                        link: link_type(description.linktype.0),
                        snap_length: length(description.snaplen),
                        resolution: description.if_tsresol,
                        offset: description.if_tsoffset,
                        name: description.if_name().and_then(Result::ok).map(str::to_owned),
                    });
                }
                Record::Other(consumed)
            }
            Block::EnhancedPacket(packet) => self.frame(
                consumed,
                &Packet {
                    start: ENHANCED_HEADER,
                    room: packet.data.len(),
                    captured: length(packet.caplen),
                    wire_length: length(packet.origlen),
                    interface: length(packet.if_id),
                    time: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                },
            ),
            Block::SimplePacket(packet) => {
                let wire_length = length(packet.origlen);
                let snap_length = self.interfaces.first().map_or(0, |interface| interface.snap_length);
                self.frame(
                    consumed,
                    &Packet {
                        start: SIMPLE_HEADER,
                        room: packet.data.len(),
                        captured: if snap_length == 0 { wire_length } else { wire_length.min(snap_length) },
                        wire_length,
                        interface: 0,
                        time: 0,
                    },
                )
            }
            // The parser gives an unknown block's type in little-endian order whatever the section's.
            Block::Unknown(block) if self.word(data, 0) == Some(PACKET_BLOCK) => {
                match self.obsolete_packet(block.data) {
                    Some(packet) => self.frame(consumed, &packet),
                    None => Record::Damaged("a packet block that is too short"),
                }
            }
            _ => Record::Other(consumed),
        }
    }

    /// The name of an interface.
    pub(super) fn interface_name(&self, index: usize) -> Option<&str> {
        self.interfaces.get(index)?.name.as_deref()
    }

    fn frame(&self, consumed: usize, packet: &Packet) -> Record {
        let Some(interface) = self.interfaces.get(packet.interface) else {
            return Record::Damaged("a packet of an interface that was never described");
        };
        if packet.start + packet.room > consumed {
            return Record::Damaged("a packet that is longer than its block");
        }
        Record::Frame(FrameAt {
            consumed,
            start: packet.start,
            captured: packet.captured.min(packet.room),
            wire_length: packet.wire_length,
            timestamp: interface.timestamp(packet.time),
            link: interface.link,
            interface: Some(packet.interface),
        })
    }

    fn word(&self, octets: &[u8], at: usize) -> Option<u32> {
        let octets = octets.get(at..)?.first_chunk::<4>()?;
        Some(if self.big_endian { u32::from_be_bytes(*octets) } else { u32::from_le_bytes(*octets) })
    }

    /// The fields of an obsolete packet block: interface (16 bit), drops (16 bit), time (64 bit, high
    /// word first), captured and original length (32 bit each).
    fn obsolete_packet(&self, body: &[u8]) -> Option<Packet> {
        let word = |at| self.word(body, at);
        let index = body.first_chunk::<2>()?;
        let index = if self.big_endian { u16::from_be_bytes(*index) } else { u16::from_le_bytes(*index) };
        Some(Packet {
            start: ENHANCED_HEADER,
            room: body.len().checked_sub(20)?,
            captured: length(word(12)?),
            wire_length: length(word(16)?),
            interface: usize::from(index),
            time: u64::from(word(4)?) << 32 | u64::from(word(8)?),
        })
    }
}

/// The fields of any block that holds a packet.
struct Packet {
    start: usize,
    room: usize,
    captured: usize,
    wire_length: usize,
    interface: usize,
    time: u64,
}

impl Interface {
    /// Units of `if_tsresol` (a power of ten, or of two with the upper bit set) and whole seconds of
    /// `if_tsoffset`.
    fn timestamp(&self, units: u64) -> Timestamp {
        let exponent = u32::from(self.resolution & 0x7f);
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        let nanos = base
            .checked_pow(exponent)
            .map_or(0, |resolution| u128::from(units) * u128::from(SECOND) / resolution);
        let offset = i128::from(self.offset) * i128::from(SECOND);
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset).max(0);
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
