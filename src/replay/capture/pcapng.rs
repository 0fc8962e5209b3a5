//! Blocks of a pcapng section, and its interfaces.

use std::collections::HashSet;
use std::sync::Arc;

use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock, parse_block_be, parse_block_le};

use super::{CaptureRecord, FrameAt, SECOND, SECTION_HEADER, length, link_type};
use crate::event::Timestamp;

/// Limit of interfaces in one section; further ones are ignored.
const INTERFACE_LIMIT: usize = 65_536;

/// Limit of the interface names in one section, in bytes; equal names count once.
const NAMES_LIMIT: usize = 1 << 20;

/// Limit of one name, since every event repeats it. Linux allows 15 bytes; Windows' device names have 50.
const NAME_LIMIT: usize = 255;

/// Size of the smallest block in bytes: type, length, and the length again.
const SMALLEST_BLOCK: usize = 12;

/// Types of the parsed blocks.
const INTERFACE_BLOCK: u32 = 1;
const SIMPLE_BLOCK: u32 = 3;
const ENHANCED_BLOCK: u32 = 6;

/// Type of the obsolete packet block, which occurs in old captures.
const PACKET_BLOCK: u32 = 2;

/// Value after a section header's length, in the section's byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Size of the header of an enhanced (and of an obsolete) packet block, in bytes.
const ENHANCED_HEADER: usize = 28;

/// Size of the header of a simple packet block, in bytes.
const SIMPLE_HEADER: usize = 12;

/// State since the last section header.
#[derive(Debug, Default)]
pub(super) struct PcapNgSection {
    big_endian: bool,
    interfaces: Vec<CaptureInterface>,
    names: InterfaceNames,
}

/// Names of interfaces without duplicates, up to [`NAMES_LIMIT`] bytes.
#[derive(Debug, Default)]
struct InterfaceNames {
    known: HashSet<Arc<str>>,
    octets: usize,
}

impl InterfaceNames {
    /// Returns the name to store; none if it is too long, or the limit is reached.
    fn keep(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.known.get(name) {
            return Some(Arc::clone(known));
        }
        // Names are kept for the whole file. A crafted one could describe any number of interfaces.
        if name.len() > NAME_LIMIT || self.octets + name.len() > NAMES_LIMIT {
            return None;
        }
        let name: Arc<str> = name.into();
        self.octets += name.len();
        self.known.insert(Arc::clone(&name));
        Some(name)
    }
}

#[derive(Debug)]
struct CaptureInterface {
    link: u16,
    snap_length: usize,
    resolution: u8,
    offset: i64,
    name: Option<Arc<str>>,
}

impl PcapNgSection {
    /// Returns the block at the start of `data`.
    ///
    /// Its length is checked here: the parser sees only whole blocks of relevant types.
    pub(super) fn record(&mut self, data: &[u8]) -> CaptureRecord {
        let Some(header) = data.get(..SMALLEST_BLOCK) else { return CaptureRecord::More(SMALLEST_BLOCK) };
        let is_section = header.starts_with(&SECTION_HEADER);
        if is_section && !self.begin(header) {
            return CaptureRecord::Damaged("a section with an unknown byte order");
        }
        let (Some(kind), Some(field)) = (self.word(header, 0), self.word(header, 4)) else {
            return CaptureRecord::More(SMALLEST_BLOCK);
        };
        let consumed = length(field);
        if consumed < SMALLEST_BLOCK {
            return CaptureRecord::Damaged("a block that is shorter than its header");
        }
        let Some(block) = data.get(..consumed) else { return CaptureRecord::More(consumed) };
        // The length is repeated at the end of each block, so a cut or overwritten block shows.
        if self.word(block, consumed - 4) != Some(field) {
            return CaptureRecord::Damaged("an inconsistent block");
        }
        match kind {
            INTERFACE_BLOCK | PACKET_BLOCK | SIMPLE_BLOCK | ENHANCED_BLOCK => self.parsed(block),
            _ => CaptureRecord::Other(consumed),
        }
    }

    /// Starts a section with its header's byte order; returns `false` if that is invalid.
    fn begin(&mut self, header: &[u8]) -> bool {
        let Some(magic) = header.get(8..).and_then(|rest| rest.first_chunk::<4>()) else { return false };
        let big_endian = u32::from_be_bytes(*magic) == BYTE_ORDER_MAGIC;
        // A new section starts afresh: its byte order and interfaces do not depend on the one before.
        *self = Self { big_endian, ..Self::default() };
        big_endian || u32::from_le_bytes(*magic) == BYTE_ORDER_MAGIC
    }

    /// Parses a whole block.
    fn parsed(&mut self, data: &[u8]) -> CaptureRecord {
        let parse = if self.big_endian { parse_block_be } else { parse_block_le };
        let Ok((_, block)) = parse(data) else { return CaptureRecord::Damaged("an inconsistent block") };
        let consumed = data.len();
        match block {
            Block::InterfaceDescription(description) => {
                self.describe(&description);
                CaptureRecord::Other(consumed)
            }
            Block::EnhancedPacket(packet) => self.frame(
                consumed,
                &PacketBlock {
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
                    &PacketBlock {
                        start: SIMPLE_HEADER,
                        room: packet.data.len(),
                        // A simple block has no captured length: the snapshot length of the interface
                        // limits it (0: no limit).
                        captured: if snap_length == 0 { wire_length } else { wire_length.min(snap_length) },
                        wire_length,
                        interface: 0,
                        time: 0,
                    },
                )
            }
            // The parser returns an unknown block's type in little-endian order for every section.
            Block::Unknown(block) if self.word(data, 0) == Some(PACKET_BLOCK) => {
                match self.obsolete_packet(block.data) {
                    Some(packet) => self.frame(consumed, &packet),
                    None => CaptureRecord::Damaged("a packet block that is too short"),
                }
            }
            _ => CaptureRecord::Other(consumed),
        }
    }

    fn describe(&mut self, description: &InterfaceDescriptionBlock<'_>) {
        if self.interfaces.len() == INTERFACE_LIMIT {
            return;
        }
        let name = description.if_name().and_then(Result::ok).and_then(|name| self.names.keep(name));
        self.interfaces.push(CaptureInterface {
            link: link_type(description.linktype.0),
            snap_length: length(description.snaplen),
            resolution: description.if_tsresol,
            offset: description.if_tsoffset,
            name,
        });
    }

    /// Returns the name of an interface.
    pub(super) fn interface_name(&self, index: usize) -> Option<&str> {
        self.interfaces.get(index)?.name.as_deref()
    }

    fn frame(&self, consumed: usize, packet: &PacketBlock) -> CaptureRecord {
        let Some(interface) = self.interfaces.get(packet.interface) else {
            return CaptureRecord::Damaged("a packet of an undescribed interface");
        };
        if packet.start + packet.room > consumed {
            return CaptureRecord::Damaged("a packet that is longer than its block");
        }
        CaptureRecord::Frame(FrameAt {
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

    /// Parses an obsolete packet block: interface (16 bits), drops (16 bits), time (64 bits, high word
    /// first), captured and original length (32 bits each).
    fn obsolete_packet(&self, body: &[u8]) -> Option<PacketBlock> {
        let word = |at| self.word(body, at);
        let index = body.first_chunk::<2>()?;
        let index = if self.big_endian { u16::from_be_bytes(*index) } else { u16::from_le_bytes(*index) };
        Some(PacketBlock {
            start: ENHANCED_HEADER,
            room: body.len().checked_sub(20)?,
            captured: length(word(12)?),
            wire_length: length(word(16)?),
            interface: usize::from(index),
            time: u64::from(word(4)?) << 32 | u64::from(word(8)?),
        })
    }
}

/// Fields of any block with a packet.
struct PacketBlock {
    start: usize,
    room: usize,
    captured: usize,
    wire_length: usize,
    interface: usize,
    time: u64,
}

impl CaptureInterface {
    /// Converts units of `if_tsresol` (a power of ten, or of two if the upper bit is set), with whole seconds
    /// of `if_tsoffset`.
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
