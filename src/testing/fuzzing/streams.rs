//! Fuzz targets below the application layer.

use std::collections::BTreeMap;
use std::io::Cursor;

use bannerwall_ffi::queue::netlink_message::{QueueMessage, messages};

use super::FuzzChoices;
use crate::event::Timestamp;
use crate::flow::{CollectorLimits, StreamCollector, StreamState};
use crate::packet::link::FrameContent;
use crate::packet::tunnels;
use crate::packet::{FragmentReassembler, ParsedPacket, ReassemblyLimits, ReassemblyResult, Segment, parse};
use crate::replay::capture::CaptureReader;

/// Fuzzes one IP packet: whole, truncated and as fragments.
pub fn packet(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let beyond = usize::from(choices.octet());
    let packet = choices.0;
    if let Ok(ParsedPacket::Tcp(segment)) = parse(packet, packet.len() + beyond) {
        look_at(&segment, packet);
    }
    reassemble(packet);
}

fn look_at(segment: &Segment<'_>, packet: &[u8]) {
    assert!(segment.payload().len() <= segment.wire_payload_length(), "captured more than was sent");
    assert!(segment.payload().len() < packet.len(), "the payload is part of the packet");
    let _ = (segment.source(), segment.destination(), segment.flags(), segment.window_scale());
    let _ = (segment.timestamp(), segment.checksums_valid(), segment.sequence_length());
}

/// Treats `data` as a list of packets with length prefixes.
fn reassemble(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let mut reassembler = FragmentReassembler::new(ReassemblyLimits::default());
    while !choices.is_empty() {
        let length = usize::from(choices.octet());
        let packet = choices.take(length);
        if let Ok(ParsedPacket::Fragment(fragment)) = parse(packet, packet.len())
            && let ReassemblyResult::Whole(whole) = reassembler.push(&fragment, Timestamp::default())
            && let Ok(ParsedPacket::Tcp(segment)) = parse(&whole, whole.len())
        {
            look_at(&segment, &whole);
        }
    }
}

/// Fuzzes segments of one direction in any order, against a map of bytes in which the first one wins.
pub fn flow(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let start = u32::from(choices.word()) << 16 | 0xff00;
    let mut stream = StreamState::default();
    let mut collector = StreamCollector::default();
    let mut reference: BTreeMap<u32, u8> = BTreeMap::new();
    let mut read = Vec::new();
    let limits = CollectorLimits { pieces: usize::MAX, octets: usize::MAX };
    // The first segment sets the start of the direction.
    let offer = collector.offer(&mut stream, start, b"!", limits);
    collector.keep(offer.fresh);
    reference.insert(0, b'!');
    while !choices.is_empty() {
        let offset = u32::from(choices.word() & 0x03ff);
        let length = usize::from(choices.octet() & 0x3f) + 1;
        let reads = usize::from(choices.octet());
        let payload = choices.take(length);
        if payload.is_empty() {
            break;
        }
        for (at, octet) in (offset..).zip(payload) {
            reference.entry(at).or_insert(*octet);
        }
        let offer = collector.offer(&mut stream, start.wrapping_add(offset), payload, limits);
        collector.keep(offer.fresh);
        let (taken, _) = collector.unread().split_at(reads.min(collector.unread().len()));
        read.extend_from_slice(taken);
        let count = taken.len();
        collector.advance(&stream, count);
    }
    read.extend_from_slice(collector.unread());
    let expected: Vec<u8> = (0..).map_while(|at| reference.get(&at).copied()).collect();
    assert_eq!(read, expected, "the collector and the map of octets differ");
}

/// Fuzzes a capture file of any kind with its link layers and tunnels.
pub fn capture(data: &[u8]) {
    let Ok(mut capture) = CaptureReader::open(Cursor::new(data.to_vec())) else { return };
    let mut frames = 0;
    while let Ok(Some(frame)) = capture.next_frame() {
        frames += 1;
        assert!(frames <= data.len(), "more frames than octets");
        assert!(frame.wire_length >= frame.octets.len(), "captured more than was sent");
        if let FrameContent::Ip { packet, .. } = tunnels::innermost(frame.link, frame.octets) {
            let _ = parse(packet, packet.len());
        }
    }
}

/// Fuzzes a datagram from the kernel's queue.
pub fn netlink(data: &[u8]) {
    for message in messages(data).flatten() {
        if let QueueMessage::Packet(packet) = message {
            assert!(packet.payload.len() <= data.len(), "the payload is part of the datagram");
            let _ = parse(packet.payload, packet.wire_length.max(packet.payload.len()));
        }
    }
}
