//! The input and the output of an engine: a packet, and the decision about it.

use std::net::IpAddr;
use std::time::Duration;

use crate::event::Timestamp;
use crate::packet::{self, PacketPatch, Reset, Segment};
use crate::rules::PacketMark;

/// The state of a packet's checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumState {
    /// Nobody has verified them yet: segments with a wrong one are ignored, as their receiver will.
    Verify,
    /// They are not written yet (segmentation offload, `NFQA_SKB_CSUMNOTREADY`) or were verified.
    NotReady,
}

/// One packet for an engine.
#[derive(Debug, Clone, Copy)]
pub struct PacketInput<'a> {
    /// Time at which it was seen.
    pub now: Timestamp,
    /// The packet from its IP header on, as far as it was captured.
    pub ip: &'a [u8],
    /// Its length on the wire; more than `ip.len()` where a copy range or snap length cut it.
    pub wire_length: usize,
    /// The state of the checksums.
    pub checksums: ChecksumState,
    /// Interface name, for events.
    pub interface: Option<&'a str>,
    /// VLAN ids, outermost first, for events.
    pub vlan: &'a [u16],
    /// Number in its capture, counted from 1, for events.
    pub packet_number: Option<u64>,
}

impl PacketInput<'static> {
    /// No packet: something happens because time goes by.
    pub(super) const fn none(now: Timestamp) -> Self {
        let checksums = ChecksumState::NotReady;
        Self { now, ip: &[], wire_length: 0, checksums, interface: None, vlan: &[], packet_number: None }
    }
}

/// The decision about a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Let it through, and show the engine the flow's next packets.
    Undecided,
    /// As `Undecided`, and a body goes on that need not be seen: up to the client's next byte, what the
    /// server sends and what the client acknowledges may go by (see `src/engine/body_offload.rs`).
    Release,
    /// As `Undecided`, and what the server sends need not be seen any more, nor what the client acknowledges:
    /// both may go by whatever the client says (see `src/engine/response_offload.rs`).
    Stand,
    /// As `Undecided`, and that goes on.
    Keep,
    /// As `Undecided`, but nothing more may go by unseen from this packet on.
    Regain,
    /// As `Undecided`, but with these bytes in place of its own.
    Patch(Box<PacketPatch>),
    /// Let it through; nothing more of this flow needs to be seen.
    Pass,
    /// Show the same packet again with at least so many bytes of it, from the IP header on,
    /// before anything else is done with it.
    More {
        /// Bytes needed.
        octets: usize,
    },
    /// Drop it, and show the engine the flow's next packets.
    Drop,
    /// Drop it and everything else of its flow.
    Block,
    /// As `Block`, and send both ends a reset at once.
    Reject(Box<ResetPair>),
}

/// The result of inspecting a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectionResult {
    /// The decision about the packet.
    pub decision: Decision,
    /// The mark that rules ask for, for this and every later packet of the flow.
    pub mark: Option<PacketMark>,
}

impl From<Decision> for InspectionResult {
    fn from(decision: Decision) -> Self {
        Self { decision, mark: None }
    }
}

/// The ban that a rule asks for: the client of a confirmed flow that was blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanRequest {
    /// Address of the client.
    pub client: IpAddr,
    /// Id of the rule.
    pub rule: String,
    /// The banner's deciding line, as events may show it.
    pub banner: String,
    /// Time that the ban holds.
    pub time: Duration,
}

/// Two ready IP packets that end a connection at once for both of its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetPair {
    /// The packet for the receiver of the segment that was stopped.
    pub to_receiver: Vec<u8>,
    /// Its destination.
    pub receiver: IpAddr,
    /// The packet for the sender of the segment that was stopped.
    pub to_sender: Vec<u8>,
    /// Its destination.
    pub sender: IpAddr,
}

impl ResetPair {
    /// Resets for the connection of `segment`, which is stopped on its way.
    ///
    /// RFC 5961 section 3.2: a receiver takes a reset at once only when its sequence number is
    /// exactly what it expects next. `receiver_expects` is that number for the segment's receiver, and
    /// `sender_expects` for its sender: what was let through towards it, which is more than the segment
    /// acknowledges while data is under way. Before the sender has seen anything of its peer (SYN-SENT)
    /// it looks at the reset's acknowledgement number only.
    pub fn new(segment: &Segment<'_>, receiver_expects: u32, sender_expects: Option<u32>) -> Self {
        let addresses = segment.addresses();
        let sent = segment.sequence().wrapping_add(segment.sequence_length());
        // Without ACK the field has no meaning (RFC 9293 section 3.1).
        let acknowledged = if segment.flags().ack() { segment.acknowledgement() } else { 0 };
        let expected_back = sender_expects.unwrap_or(acknowledged);
        let to_receiver = packet::reset(&Reset {
            addresses,
            source_port: segment.source_port(),
            destination_port: segment.destination_port(),
            sequence: receiver_expects,
            acknowledgement: acknowledged,
        });
        let back = addresses.reversed();
        let to_sender = packet::reset(&Reset {
            addresses: back,
            source_port: segment.destination_port(),
            destination_port: segment.source_port(),
            sequence: expected_back,
            acknowledgement: sent,
        });
        Self { to_receiver, receiver: addresses.destination(), to_sender, sender: back.destination() }
    }
}
