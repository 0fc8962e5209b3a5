//! The packets of undecided flows, so that another process can inspect them again after a takeover.
//!
//! The state of such a flow follows from its packets alone. So the packets are kept, not the state: then
//! predecessor and successor need no common format, whatever their versions are. The bytes of each flow
//! and of all flows are bounded. The oldest packets are dropped first; such a flow is picked up in its
//! middle.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{ChecksumState, DecidedFlow, Decision, PacketInput, UnseenBody};
use crate::event::{Timestamp, TransportProtocol};
use crate::flow::FlowKey;
use crate::packet::{self, ParsedPacket};

/// Number of bytes of one flow: an HTTP head and SSH's key exchange are shorter.
const OF_A_FLOW: usize = 128 << 10;
/// Memory of a packet's entry, and the overhead of its allocated bytes.
const PLACE: usize = size_of::<Packet>();
const ALLOCATED: usize = 16;
/// Memory of a flow besides its packets, at most: entries in a table that has just doubled, with a byte
/// each, and in an order in which every second one is gone and that has just doubled, too.
const OF_A_LOG: usize =
    16 * (size_of::<(Name, FlowPacketLog)>() + 1) / 7 + 4 * size_of::<(Name, u64)>() + ALLOCATED;
/// Largest number of flows that one sweep inspects, so that it stays short.
const SWEPT: usize = 256;

/// State that one inspector passes to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InspectorState {
    /// Flows that are decided.
    pub decided: Vec<DecidedFlow>,
    /// Packets of undecided flows, in the order in which they came.
    pub kept: Vec<LoggedPacket>,
    /// Flows whose bodies pass unseen.
    pub unseen: Vec<UnseenBody>,
}

impl InspectorState {
    /// Largest number of decided flows that are passed on.
    pub const DECIDED: usize = 1 << 17;
}

/// A packet that passed, or was dropped without a decision about its flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedPacket {
    /// Time since it came.
    pub age: Duration,
    /// Its length on the wire.
    pub wire_length: usize,
    /// The state of its checksums.
    pub checksums: ChecksumState,
    /// The interface that it went through.
    pub interface: Option<Arc<str>>,
    /// Its captured part, from the IP header on.
    pub octets: Box<[u8]>,
}

impl LoggedPacket {
    /// Returns the packet as it was inspected, with its time by another process's clock.
    pub fn packet(&self, now: Timestamp) -> PacketInput<'_> {
        PacketInput {
            now: now.before(self.age),
            ip: &self.octets,
            wire_length: self.wire_length,
            checksums: self.checksums,
            interface: self.interface.as_deref(),
            vlan: &[],
            packet_number: None,
        }
    }
}

/// Identifies a flow.
pub(super) type Name = (TransportProtocol, FlowKey);

/// A packet with its number and time.
type Packet = (u64, Timestamp, LoggedPacket);

/// The packets of undecided flows.
#[derive(Debug)]
pub(super) struct PacketLog {
    flows: HashMap<Name, FlowPacketLog, ahash::RandomState>,
    /// Flows in the order in which they began or were last swept, with the number of their log. It may
    /// contain flows that were removed since.
    order: VecDeque<(Name, u64)>,
    octets: usize,
    limit: usize,
    /// Numbers packets and logs.
    serial: u64,
    /// The interface of the last packet, most often also of the next one.
    interface: Option<Arc<str>>,
}

/// The packets of one flow.
#[derive(Debug)]
struct FlowPacketLog {
    number: u64,
    octets: usize,
    packets: VecDeque<Packet>,
}

impl PacketLog {
    /// Creates an empty journal for `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            flows: HashMap::default(),
            order: VecDeque::new(),
            octets: 0,
            limit,
            serial: 0,
            interface: None,
        }
    }

    /// Keeps a packet of an undecided flow; drops the packets of a flow that is decided now.
    pub(super) fn take(&mut self, packet: &PacketInput<'_>, decision: &Decision) {
        match decision {
            // The packet comes again, with more of its bytes.
            Decision::More { .. } => {}
            Decision::Undecided
            | Decision::Release
            | Decision::Keep
            | Decision::Regain
            | Decision::Drop
            | Decision::Patch(_) => {
                if let Some(name) = name(packet) {
                    self.note(name, packet);
                }
            }
            // No request is open. The packets before would not show what has passed, so the successor
            // picks the flow up here.
            Decision::Pass | Decision::Stand | Decision::Block | Decision::Reject(_) => {
                if !self.flows.is_empty()
                    && let Some(name) = name(packet)
                {
                    self.forget(&name);
                }
            }
        }
    }

    /// Inspects some flows and drops those that are decided or gone.
    pub(super) fn remove_decided(&mut self, is_undecided: impl Fn(TransportProtocol, &FlowKey) -> bool) {
        for _ in 0..SWEPT.min(self.order.len()) {
            let Some((name, number)) = self.order.pop_front() else { return };
            if self.flows.get(&name).is_none_or(|log| log.number != number) {
                continue;
            }
            if is_undecided(name.0, &name.1) {
                self.order.push_back((name, number));
            } else {
                self.forget(&name);
            }
        }
    }

    /// Returns the packets of undecided flows in their order, and empties the journal.
    pub(super) fn hand_over(
        &mut self,
        now: Timestamp,
        is_undecided: impl Fn(TransportProtocol, &FlowKey) -> bool,
    ) -> Vec<LoggedPacket> {
        self.order.clear();
        self.octets = 0;
        let flows = self.flows.drain().filter(|((transport, key), _)| is_undecided(*transport, key));
        let mut packets: Vec<_> = flows.flat_map(|(_, log)| log.packets).collect();
        packets.sort_unstable_by_key(|(serial, ..)| *serial);
        packets.into_iter().map(|(_, came, kept)| LoggedPacket { age: now.since(came), ..kept }).collect()
    }

    fn note(&mut self, name: Name, packet: &PacketInput<'_>) {
        if self.interface.as_deref() != packet.interface {
            self.interface = packet.interface.map(Arc::from);
        }
        self.serial += 1;
        let serial = self.serial;
        let kept = LoggedPacket {
            age: Duration::ZERO,
            wire_length: packet.wire_length,
            checksums: packet.checksums,
            interface: self.interface.clone(),
            octets: packet.ip.into(),
        };
        let log = self.flows.entry(name).or_insert_with(|| {
            self.order.push_back((name, serial));
            // Most flows of a flood have one packet.
            FlowPacketLog { number: serial, octets: 0, packets: VecDeque::with_capacity(1) }
        });
        let (before, own) = if log.number == serial { (0, OF_A_LOG) } else { (log.weight(), 0) };
        log.octets += weight(&kept);
        log.packets.push_back((serial, packet.now, kept));
        while log.octets + log.packets.len() * PLACE > OF_A_FLOW
            && let Some((_, _, oldest)) = log.packets.pop_front()
        {
            log.octets -= weight(&oldest);
        }
        self.octets = self.octets + own + log.weight() - before;
        self.make_room();
    }

    /// Drops the flows that began first, while there are too many bytes.
    fn make_room(&mut self) {
        while self.octets > self.limit
            && let Some((name, number)) = self.order.pop_front()
        {
            if self.flows.get(&name).is_some_and(|log| log.number == number) {
                self.forget(&name);
            }
        }
        if self.order.len() > 2 * self.flows.len() + SWEPT {
            let flows = &self.flows;
            self.order.retain(|(name, number)| flows.get(name).is_some_and(|log| log.number == *number));
            self.order.shrink_to(2 * flows.len());
        }
    }

    fn forget(&mut self, name: &Name) {
        if let Some(log) = self.flows.remove(name) {
            self.octets -= log.weight() + OF_A_LOG;
        }
    }
}

impl FlowPacketLog {
    /// Number of bytes that its packets take.
    fn weight(&self) -> usize {
        self.octets + self.packets.capacity() * PLACE
    }
}

/// Number of bytes that a packet takes.
const fn weight(kept: &LoggedPacket) -> usize {
    kept.octets.len() + ALLOCATED
}

/// Returns the flow of a packet; none if it is a fragment, or neither TCP nor UDP.
pub(super) fn name(packet: &PacketInput<'_>) -> Option<Name> {
    match packet::parse(packet.ip, packet.wire_length).ok()? {
        ParsedPacket::Tcp(segment) => Some((TransportProtocol::Tcp, FlowKey::of(&segment).0)),
        ParsedPacket::Udp(datagram) => Some((TransportProtocol::Udp, FlowKey::of_datagram(&datagram).0)),
        ParsedPacket::Fragment(_) | ParsedPacket::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::testing::{SegmentBuilder, endpoint};

    const SECOND: u64 = 1_000_000_000;

    fn packet(port: u16, length: usize) -> Vec<u8> {
        let source = endpoint(&format!("192.0.2.1:{port}"));
        SegmentBuilder::new(source, endpoint("198.51.100.1:80")).payload(&vec![b'a'; length]).build()
    }

    fn input(octets: &[u8], second: u64) -> PacketInput<'_> {
        PacketInput {
            now: Timestamp::from_nanos(second * SECOND),
            ip: octets,
            wire_length: octets.len(),
            checksums: ChecksumState::Verify,
            interface: Some("lo"),
            vlan: &[],
            packet_number: None,
        }
    }

    fn handed(journal: &mut PacketLog, second: u64) -> Vec<(u64, usize)> {
        let kept = journal.hand_over(Timestamp::from_nanos(second * SECOND), |_, _| true);
        kept.iter().map(|kept| (kept.age.as_secs(), kept.octets.len() - 40)).collect()
    }

    #[test]
    fn packets_of_undecided_flows_come_in_their_order_with_their_ages() {
        let mut journal = PacketLog::new(1 << 20);
        for (second, port, length) in [(1, 1, 10), (2, 2, 20), (3, 1, 11), (4, 3, 30), (5, 2, 21)] {
            journal.take(&input(&packet(port, length), second), &Decision::Undecided);
        }
        journal.take(&input(&packet(3, 31), 6), &Decision::Pass);
        journal.take(&input(&packet(1, 12), 6), &Decision::More { octets: 1000 });
        assert_eq!(handed(&mut journal, 7), [(6, 10), (5, 20), (4, 11), (2, 21)]);
        assert!(handed(&mut journal, 7).is_empty(), "they were given");
        assert_eq!(journal.octets, 0);
    }

    #[test]
    fn octets_are_bounded_and_the_oldest_go_first() {
        let mut journal = PacketLog::new(10 * (1000 + 40 + ALLOCATED + PLACE + OF_A_LOG));
        for port in 0..100 {
            journal.take(&input(&packet(port + 1, 1000), u64::from(port)), &Decision::Undecided);
            assert!(journal.octets <= journal.limit);
        }
        assert_eq!(journal.flows.len(), 10);
        assert_eq!(handed(&mut journal, 99).first(), Some(&(9, 1000)));
        let mut journal = PacketLog::new(usize::MAX);
        for second in 0..1000 {
            journal.take(&input(&packet(1, 1000), second), &Decision::Undecided);
        }
        assert!(journal.octets <= 2 * OF_A_FLOW && journal.octets > OF_A_FLOW / 2);
        assert_eq!(handed(&mut journal, 1000).last(), Some(&(1, 1000)));
    }

    /// What a journal holds on the heap, by what its parts have room for.
    fn held(journal: &PacketLog) -> usize {
        // Of eight places of a table seven are used, and each has a byte beside it.
        let table = journal.flows.capacity() * 8 / 7 * (size_of::<(Name, FlowPacketLog)>() + 1);
        let order = journal.order.capacity() * size_of::<(Name, u64)>();
        let packets = |log: &FlowPacketLog| {
            let octets = log.packets.iter().map(|(.., kept)| kept.octets.len() + ALLOCATED);
            log.packets.capacity() * PLACE + ALLOCATED + octets.sum::<usize>()
        };
        table + order + journal.flows.values().map(packets).sum::<usize>()
    }

    #[test]
    fn a_flood_of_syns_takes_no_more_than_it_may() {
        let limit = 4 << 20;
        let mut journal = PacketLog::new(limit);
        let mut most = 0;
        for number in 0..40_000_u32 {
            let source = endpoint(&format!("192.0.{}.1:{}", number >> 15, 1 + (number & 0x7fff)));
            let octets = SegmentBuilder::new(source, endpoint("198.51.100.1:80"))
                .flags(crate::packet::TcpFlags::SYN)
                .build();
            journal.take(&input(&octets, u64::from(number)), &Decision::Undecided);
            // Some of them are decided, some sent again.
            if number % 5 == 0 {
                journal.take(&input(&octets, u64::from(number)), &Decision::Pass);
            } else if number % 3 == 0 {
                journal.take(&input(&octets, u64::from(number)), &Decision::Undecided);
            }
            if number % 512 == 0 {
                most = most.max(held(&journal));
            }
        }
        assert!(most <= limit + (64 << 10), "{most} of {limit}");
        assert!(most > limit / 3, "{most} of {limit}: what it may have is used");
        while let Some(name) = journal.flows.keys().next().copied() {
            journal.forget(&name);
        }
        assert_eq!(journal.octets, 0);
    }

    #[test]
    fn what_is_decided_or_forgotten_meanwhile_is_swept_out() {
        let mut journal = PacketLog::new(1 << 20);
        for port in 1..=1000 {
            journal.take(&input(&packet(port, 10), 1), &Decision::Undecided);
        }
        for _ in 0..4 {
            journal.remove_decided(|_, key| key.octets()[33] == 7 || key.octets()[35] == 7);
        }
        assert!(journal.flows.len() <= 1 + 1000 / 256 + 1, "{}", journal.flows.len());
        let mut journal = PacketLog::new(1 << 20);
        for port in 1..=10_000 {
            journal.take(&input(&packet(port, 10), 1), &Decision::Undecided);
            journal.take(&input(&packet(port, 10), 1), &Decision::Block);
        }
        assert_eq!((journal.octets, journal.flows.len()), (0, 0));
        journal.take(&input(&packet(1, 10), 1), &Decision::Undecided);
        assert!(journal.order.len() <= SWEPT + 2, "{}", journal.order.len());
    }
}
