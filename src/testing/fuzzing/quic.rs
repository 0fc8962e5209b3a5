//! Fuzz target for QUIC: packets, frames and the bytes of a hello.

use std::sync::Arc;

use super::FuzzChoices;
use crate::banner::quic::testing::{InitialBuilder, hello};
use crate::banner::quic::{
    CryptoStream, InitialKeys, LongPacketType, NextPacket, crypto_frames, next_packet, trains,
};
use crate::banner::tls;
use crate::engine::{ChecksumState, Engine, EngineConfig, PacketInput};
use crate::packet::testing::{datagram, endpoint};
use crate::rules::RuleSet;
use crate::terms::{QuicVersion, Timestamp, TransportProtocol};

/// Fuzzes bytes as a datagram, as the frames of a client's Initial, and as the order of a message's parts.
pub fn quic(data: &[u8]) {
    packets(data);
    trains(data).for_each(packets);
    let mut choices = FuzzChoices(data);
    let v2 = choices.octet() & 1 == 1;
    let version = if v2 { QuicVersion::V2 } else { QuicVersion::V1 };
    frames(version, choices.0);
    order(choices);
    judged(data);
}

/// Parses the packets of a datagram; each must shorten the rest.
fn packets(mut octets: &[u8]) {
    while let NextPacket::Long(packet, rest) = next_packet(octets) {
        assert!(rest.len() < octets.len(), "goes on");
        octets = rest;
        if packet.kind == LongPacketType::Initial
            && let Some(keys) = InitialKeys::new(packet.version, &packet.destination)
        {
            let mut room = Vec::new();
            if let Some((_, range)) = keys.open(&packet, 0, &mut room) {
                assert!(room.get(range).is_some(), "frames lie in the room");
            }
        }
    }
}

/// Encrypts frames, and checks that decryption returns them.
fn frames(version: QuicVersion, octets: &[u8]) {
    let payload = octets.get(..octets.len().min(1000)).unwrap_or_default();
    let datagram = InitialBuilder { version, ..InitialBuilder::new(b"12345678") }.frames(payload).build();
    let NextPacket::Long(packet, _) = next_packet(&datagram) else { panic!("an Initial") };
    let keys = InitialKeys::new(packet.version, &packet.destination).expect("a version that is read");
    let mut room = Vec::new();
    let (_, range) = keys.open(&packet, 0, &mut room).expect("the keys that it was encrypted with");
    let opened = &room[range];
    assert!(opened.starts_with(payload), "the same frames");
    let mut hellos = CryptoStream::default();
    for (offset, octets) in crypto_frames(opened).flatten() {
        let _ = hellos.take(offset, octets);
    }
    while let Ok(Some((kind, body))) = hellos.next_message() {
        if kind == tls::CLIENT_HELLO
            && let Some(client) = tls::client(body, TransportProtocol::Udp)
        {
            assert!(client.ja4.starts_with('q'), "over QUIC");
        }
    }
}

/// Delivers parts of a message in any order: the result must be the same message, or none.
fn order(mut choices: FuzzChoices<'_>) {
    let body: Vec<u8> = (0..200).collect();
    let message = [&[1, 0, 0, 200][..], &body].concat();
    let mut hellos = CryptoStream::default();
    let mut seen = vec![false; message.len()];
    while !choices.is_empty() {
        let from = usize::from(choices.octet()) % message.len();
        let to = (from + usize::from(choices.octet())).min(message.len());
        hellos.take(from as u64, &message[from..to]).expect("octets that agree");
        seen[from..to].fill(true);
    }
    let whole = seen.iter().all(|seen| *seen);
    assert_eq!(hellos.next_message(), Ok(whole.then_some((1, &body[..]))));
}

/// Sends arbitrary data between two parts of a hello, in both directions.
fn judged(octets: &[u8]) {
    let octets = octets.get(..octets.len().min(1000)).unwrap_or_default();
    let mut engine = Engine::new(EngineConfig::default(), Arc::new(RuleSet::default()), None);
    let (client, server) = (endpoint("192.0.2.1:50000"), endpoint("198.51.100.2:443"));
    let message = hello("www.example", 0);
    let (first, rest) = message.split_at(octets.len() % message.len());
    let initial = |number| InitialBuilder::new(b"12345678").number(number);
    let said = [
        (true, initial(0).crypto(0, first).build()),
        (true, initial(1).frames(octets).build()),
        (true, octets.to_vec()),
        (false, octets.to_vec()),
        (true, initial(2).crypto(first.len(), rest).build()),
    ];
    let mut events = Vec::new();
    for (number, (from_client, payload)) in (1..).zip(&said) {
        let (source, destination) = if *from_client { (client, server) } else { (server, client) };
        let packet = datagram(source, destination, payload);
        let input = PacketInput {
            now: Timestamp::from_nanos(number),
            ip: &packet,
            wire_length: packet.len(),
            checksums: ChecksumState::NotReady,
            interface: None,
            vlan: &[],
            packet_number: None,
        };
        engine.inspect(&input, &mut events);
    }
    engine.finish(Timestamp::from_nanos(9), &mut events);
    assert_eq!(engine.counters().udp_buffered_now, 0, "nothing is left");
}
