//! Reassembly of fragmented IP packets, within fixed bounds.
//!
//! Of conflicting bytes the first ones win, and the caller learns of the conflict. The caller lets
//! fragments pass as they come. Only the one that completes a packet can be judged; without it the
//! receiver has no packet either.

use std::collections::VecDeque;
use std::time::Duration;

use etherparse::{Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice};

use super::PacketExtent;
use crate::event::Timestamp;

/// Length of the longest reassembled IP packet, in bytes.
const PACKET_LIMIT: usize = 65_535;

/// One fragment of an IP packet.
#[derive(Debug, Clone)]
pub struct IpFragment<'a> {
    key: FragmentKey,
    /// Headers of the reassembled packet: for IPv4 its header, for IPv6 everything before the fragment
    /// header.
    prefix: &'a [u8],
    /// Position in an IPv6 prefix of the number of the header after it.
    next_header_at: usize,
    next_header: u8,
    offset: usize,
    more: bool,
    body: &'a [u8],
    wire_length: usize,
}

/// Identity of one packet: RFC 791 section 3.2 and RFC 8200 section 4.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FragmentKey {
    source: [u8; 16],
    destination: [u8; 16],
    identification: u32,
    /// The protocol of IPv4; RFC 8200 does not include it for IPv6.
    protocol: Option<u8>,
}

impl<'a> IpFragment<'a> {
    pub(super) fn v4(header: &Ipv4HeaderSlice<'a>, body: PacketExtent<'a>) -> Self {
        Self {
            key: FragmentKey {
                source: header.source_addr().to_ipv6_mapped().octets(),
                destination: header.destination_addr().to_ipv6_mapped().octets(),
                identification: u32::from(header.identification()),
                protocol: Some(header.protocol().0),
            },
            prefix: header.slice(),
            next_header_at: 9,
            next_header: header.protocol().0,
            offset: usize::from(header.fragments_offset().byte_offset()),
            more: header.more_fragments(),
            body: body.captured,
            wire_length: body.wire,
        }
    }

    pub(super) fn v6(
        ip: &'a [u8],
        prefix_length: usize,
        header: &Ipv6HeaderSlice<'a>,
        fragment: &Ipv6FragmentHeaderSlice<'a>,
        body: PacketExtent<'a>,
    ) -> Self {
        let prefix = ip.get(..prefix_length).unwrap_or_default();
        Self {
            key: FragmentKey {
                source: header.source(),
                destination: header.destination(),
                identification: fragment.identification(),
                protocol: None,
            },
            prefix,
            next_header_at: next_header_position(prefix),
            next_header: fragment.next_header().0,
            offset: usize::from(fragment.fragment_offset().byte_offset()),
            more: fragment.more_fragments(),
            body: body.captured,
            wire_length: body.wire,
        }
    }

    /// True if all of the fragment was captured.
    pub fn is_whole(&self) -> bool {
        self.body.len() == self.wire_length
    }
}

/// Position of the byte that names the header after `prefix`: the IPv6 header's own if there is no
/// extension header, else the first byte of the last extension header.
fn next_header_position(prefix: &[u8]) -> usize {
    let mut position = 6;
    let mut at = Ipv6HeaderSlice::from_slice(prefix).map_or(prefix.len(), |header| header.slice().len());
    while let Some(units) = prefix.get(at + 1) {
        position = at;
        at += (usize::from(*units) + 1) * 8;
    }
    position
}

/// Bounds of a [`FragmentReassembler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Number of packets in reassembly at once; beyond it, the oldest is evicted.
    pub packets: usize,
    /// Number of bytes of fragments held in all.
    pub octets: usize,
    /// Number of separate runs of bytes that are kept of one packet; adjacent fragments form one run.
    pub runs: usize,
    /// Time after its first fragment at which a packet is given up; Linux waits 30 s.
    pub timeout: Duration,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self { packets: 256, octets: 4 << 20, runs: 64, timeout: Duration::from_secs(30) }
    }
}

/// Result of one fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReassemblyResult {
    /// More fragments are needed.
    Waiting,
    /// The complete IP packet, its headers as if it had never been fragmented (including the checksum of
    /// an IPv4 header).
    Whole(Vec<u8>),
    /// The fragment contradicts an earlier one and was dropped.
    Conflict,
    /// The fragment can't be part of any packet: it is too long, its length is no multiple of eight, or
    /// it is after the packet's end. Or it makes more gaps than are tracked. It was dropped.
    Malformed,
}

/// Packets in reassembly.
#[derive(Debug)]
pub struct FragmentReassembler {
    limits: ReassemblyLimits,
    packets: VecDeque<PartialPacket>,
    octets: usize,
}

#[derive(Debug)]
struct PartialPacket {
    key: FragmentKey,
    started: Timestamp,
    prefix: Vec<u8>,
    /// Sorted by offset, not overlapping.
    pieces: Vec<FragmentPiece>,
    end: Option<usize>,
}

#[derive(Debug)]
struct FragmentPiece {
    offset: usize,
    octets: Vec<u8>,
}

impl FragmentPiece {
    fn end(&self) -> usize {
        self.offset + self.octets.len()
    }
}

impl FragmentReassembler {
    /// Creates an empty reassembler.
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self { limits, packets: VecDeque::new(), octets: 0 }
    }

    /// Takes one fragment.
    pub fn push(&mut self, fragment: &IpFragment<'_>, now: Timestamp) -> ReassemblyResult {
        // Here rather than in a tick: without fragments there is nothing to expire.
        self.expire(now);
        let end = fragment.offset + fragment.wire_length;
        // Only the last fragment may have a length that is no multiple of eight (RFC 791 section 3.2).
        let ragged = fragment.more && !fragment.wire_length.is_multiple_of(8);
        if ragged || fragment.wire_length == 0 || fragment.prefix.len() + end > PACKET_LIMIT {
            return ReassemblyResult::Malformed;
        }
        let index = self.find_or_start(fragment, now);
        let Some(partial) = self.packets.get_mut(index) else {
            return ReassemblyResult::Waiting;
        };
        let before = partial.octets();
        // Sizes are compared before and after: a refused fragment may have added some of its bytes.
        let outcome = partial.insert(fragment, self.limits.runs);
        self.octets = self.octets - before + partial.octets();
        if outcome != ReassemblyResult::Waiting {
            return outcome;
        }
        if let Some(packet) = partial.whole() {
            self.forget(index);
            return ReassemblyResult::Whole(packet);
        }
        // The packet at hand may be evicted, too: it is the oldest if it is alone.
        while self.octets > self.limits.octets {
            self.evict_oldest();
        }
        ReassemblyResult::Waiting
    }

    fn find_or_start(&mut self, fragment: &IpFragment<'_>, now: Timestamp) -> usize {
        if let Some(index) = self.packets.iter().position(|partial| partial.key == fragment.key) {
            return index;
        }
        if self.packets.len() >= self.limits.packets {
            self.evict_oldest();
        }
        self.packets.push_back(PartialPacket {
            key: fragment.key,
            started: now,
            prefix: Vec::new(),
            pieces: Vec::new(),
            end: None,
        });
        self.packets.len() - 1
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some(oldest) = self.packets.front() {
            if now.since(oldest.started) < self.limits.timeout {
                return;
            }
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        if self.packets.is_empty() {
            self.octets = 0;
            return;
        }
        self.forget(0);
    }

    fn forget(&mut self, index: usize) {
        if let Some(partial) = self.packets.remove(index) {
            self.octets -= partial.octets();
        }
    }
}

impl PartialPacket {
    fn octets(&self) -> usize {
        self.pieces.iter().map(|piece| piece.octets.len()).sum()
    }

    fn insert(&mut self, fragment: &IpFragment<'_>, limit: usize) -> ReassemblyResult {
        let end = fragment.offset + fragment.wire_length;
        let reach = self.pieces.last().map_or(0, FragmentPiece::end);
        // A packet has one end. Fragments that disagree about it were made to be read in two ways.
        let contradicts_end = match self.end {
            Some(known) => end > known || (!fragment.more && end != known),
            None => !fragment.more && reach > end,
        };
        if contradicts_end {
            return ReassemblyResult::Malformed;
        }
        if self.contradicts(fragment) {
            return ReassemblyResult::Conflict;
        }
        if !fragment.more {
            self.end = Some(end);
        }
        // The headers of the reassembled packet are those of the first fragment (RFC 8200 section 4.5).
        // The first one stays, as with all other bytes.
        if fragment.offset == 0 && self.prefix.is_empty() {
            self.prefix = fragment.prefix.to_vec();
            if let Some(octet) = self.prefix.get_mut(fragment.next_header_at) {
                *octet = fragment.next_header;
            }
        }
        if self.fill(fragment.offset, fragment.body, limit) {
            ReassemblyResult::Waiting
        } else {
            ReassemblyResult::Malformed
        }
    }

    /// True if a byte of the fragment differs from a known one.
    fn contradicts(&self, fragment: &IpFragment<'_>) -> bool {
        self.pieces.iter().any(|piece| {
            let start = piece.offset.max(fragment.offset);
            let end = piece.end().min(fragment.offset + fragment.body.len());
            if start >= end {
                return false;
            }
            let old = piece.octets.get(start - piece.offset..end - piece.offset);
            let new = fragment.body.get(start - fragment.offset..end - fragment.offset);
            old != new
        })
    }

    /// Adds the missing parts of `body`; returns false if that would make more than `limit` runs.
    fn fill(&mut self, offset: usize, body: &[u8], limit: usize) -> bool {
        if self.pieces.len() >= limit {
            // Merging copies bytes, so it waits until the limit is reached.
            self.join();
        }
        let end = offset + body.len();
        let mut at = offset;
        let mut index = self.pieces.partition_point(|piece| piece.end() <= at);
        while at < end {
            let next = self.pieces.get(index).map_or(end, |piece| piece.offset);
            if at >= next {
                at = self.pieces.get(index).map_or(end, FragmentPiece::end);
                index += 1;
                continue;
            }
            let until = next.min(end);
            let octets = body.get(at - offset..until - offset).unwrap_or_default();
            let full = self.pieces.len() >= limit;
            // Extending a neighbour makes no new piece, so fragments in order never reach the limit.
            match index.checked_sub(1).and_then(|before| self.pieces.get_mut(before)) {
                Some(before) if before.end() == at => before.octets.extend_from_slice(octets),
                _ if full => return false,
                _ => {
                    self.pieces.insert(index, FragmentPiece { offset: at, octets: octets.to_vec() });
                    index += 1;
                }
            }
            at = until;
        }
        true
    }

    /// Merges adjacent pieces.
    fn join(&mut self) {
        let mut joined: Vec<FragmentPiece> = Vec::with_capacity(self.pieces.len());
        for piece in self.pieces.drain(..) {
            match joined.last_mut() {
                Some(last) if last.end() == piece.offset => last.octets.extend(piece.octets),
                _ => joined.push(piece),
            }
        }
        self.pieces = joined;
    }

    /// Returns the packet, once it has no gaps.
    fn whole(&self) -> Option<Vec<u8>> {
        let end = self.end?;
        // Without the first fragment the headers are unknown.
        if self.prefix.is_empty() {
            return None;
        }
        let mut packet = self.prefix.clone();
        packet.reserve_exact(end);
        let mut at = 0;
        for piece in &self.pieces {
            if piece.offset != at {
                return None;
            }
            packet.extend_from_slice(&piece.octets);
            at = piece.end();
        }
        (at == end).then(|| finish_headers(packet))
    }
}

/// Writes the length, clears the fragment field and recomputes the checksum of an IPv4 header.
fn finish_headers(mut packet: Vec<u8>) -> Vec<u8> {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    if let Ok((mut header, _)) = etherparse::Ipv4Header::from_slice(&packet) {
        header.total_len = total;
        header.more_fragments = false;
        header.fragment_offset = etherparse::IpFragOffset::default();
        header.header_checksum = header.calc_header_checksum();
        let bytes = header.to_bytes();
        if let Some(place) = packet.get_mut(..bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    } else if let Some(place) = packet.get_mut(4..6) {
        // IPv6's payload length excludes the fixed header of 40 bytes.
        let payload = total.saturating_sub(40);
        place.copy_from_slice(&payload.to_be_bytes());
    }
    packet
}

#[cfg(test)]
mod tests;
