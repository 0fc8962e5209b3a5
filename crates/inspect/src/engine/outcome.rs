//! The outcome of inspection: the only way back from the inspector to the layers of segments and datagrams.

use super::decision::BanRequest;
use crate::event::{DropReason, Protocol, Side};
use crate::rules::{PacketMark, PolicyRuleResult};

/// Why a flow is to be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlowStop {
    pub(super) reason: DropReason,
    pub(super) rule: Option<String>,
    pub(super) reject: bool,
    /// The ban that comes with it, once the flow is confirmed.
    pub(super) ban: Option<Box<BanRequest>>,
}

impl FlowStop {
    /// A stop that no rule asks for.
    pub(super) const fn because(reason: DropReason) -> Self {
        Self { reason, rule: None, reject: false, ban: None }
    }
}

/// Bytes of a flow that nobody has confirmed: they are dropped whenever they come, and once the flow is
/// confirmed it is stopped.
#[derive(Debug)]
pub(super) struct DeferredStop {
    pub(super) stop: FlowStop,
    /// The sender.
    pub(super) side: Side,
    /// Sequence number of the first.
    pub(super) sequence: u32,
    /// The number of bytes.
    pub(super) count: u32,
}

/// The outcome of one packet.
#[derive(Debug, Default)]
pub(super) struct PacketOutcome {
    /// The flow is to be stopped with this packet.
    pub(super) stop: Option<FlowStop>,
    /// Only this packet is to be dropped.
    pub(super) refuse: Option<DropReason>,
    /// The mark that rules asked for.
    pub(super) mark: Option<PacketMark>,
    /// The protocol of the last exchange that was reported.
    pub(super) recognised: Option<Protocol>,
    /// The results of the rules that the flow's policy names, by their number in it.
    pub(super) opinions: Vec<(usize, PolicyRuleResult)>,
    /// The notes for the flow's record.
    pub(super) notes: FlowNotes,
}

/// The parts of a flow's record besides its volume.
#[derive(Debug, Default)]
pub(super) struct FlowNotes {
    pub(super) protocol: Option<Protocol>,
    pub(super) alerted: bool,
    /// Bytes that turned out to have gone by unseen.
    pub(super) unseen: u64,
    /// Why a packet was dropped first, and by which rule.
    pub(super) dropped: Option<(DropReason, Option<String>)>,
}

impl FlowNotes {
    /// Adds what was observed later.
    pub(super) fn add(&mut self, later: Self) {
        self.protocol = later.protocol.or(self.protocol);
        self.alerted |= later.alerted;
        self.unseen += later.unseen;
        if self.dropped.is_none() {
            self.dropped = later.dropped;
        }
    }
}
