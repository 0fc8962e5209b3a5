//! The record of a flow at its end.

use super::drop_facts::DropReason;
use crate::terms::{Protocol, Timestamp};

/// Number of packets and of their bytes, IP headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficVolume {
    /// Packets.
    pub packets: u64,
    /// Number of bytes of IP packets.
    pub octets: u64,
}

impl TrafficVolume {
    /// Counts a packet.
    pub const fn add(&mut self, octets: u64) {
        self.packets += 1;
        self.octets += octets;
    }

    /// Subtracts packets that were counted here and belong elsewhere.
    pub const fn take(&mut self, other: Self) {
        self.packets = self.packets.saturating_sub(other.packets);
        self.octets = self.octets.saturating_sub(other.octets);
    }
}

/// The traffic of a flow and the decision about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRecord {
    /// Time at which its first packet was seen.
    pub start: Timestamp,
    /// Time at which its last packet was seen.
    pub last: Timestamp,
    /// Traffic that the client sent.
    pub to_server: TrafficVolume,
    /// Traffic that the server sent.
    pub to_client: TrafficVolume,
    /// All TCP flags that the client set.
    pub flags_to_server: u8,
    /// All TCP flags that the server set.
    pub flags_to_client: u8,
    /// State of the connection.
    pub state: FlowState,
    /// The reason why the record is written now.
    pub end: FlowEnd,
    /// The decision about the flow.
    pub verdict: FlowVerdict,
    /// The reason why it was blocked.
    pub reason: Option<DropReason>,
    /// The rule that blocked it.
    pub rule: Option<String>,
    /// The application protocol that was recognized.
    pub protocol: Option<Protocol>,
    /// True if there was an alert about it.
    pub alerted: bool,
    /// True if the counts cover the whole flow, false if they end at the decision.
    pub whole: bool,
    /// Number of bytes of bodies that passed without inspection; their packets are not counted.
    pub unseen: u64,
}

/// State of a flow, by EVE's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowState {
    /// No answer was seen.
    New,
    /// Open.
    Established,
    /// Closed by both ends, or reset.
    Closed,
    /// Offloaded to the kernel after it was allowed.
    Bypassed,
}

impl FlowState {
    /// The name in EVE.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Established => "established",
            Self::Closed => "closed",
            Self::Bypassed => "bypassed",
        }
    }
}

/// The reason why a flow's record is written, by EVE's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowEnd {
    /// It was silent for longer than its state allows.
    Timeout,
    /// It was evicted for another flow.
    Forced,
    /// It was blocked: none of its packets pass any more.
    Stopped,
    /// The run or the capture has ended.
    Shutdown,
    /// Its ends opened another connection with the same ports.
    Reused,
}

impl FlowEnd {
    /// The name in EVE.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Forced | Self::Stopped => "forced",
            Self::Shutdown => "shutdown",
            Self::Reused => "tcp_reuse",
        }
    }
}

/// The decision about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowVerdict {
    /// No decision.
    Undecided,
    /// The flow was allowed.
    Passed,
    /// The flow was blocked.
    Blocked,
    /// The flow was blocked, and its ends should be reset.
    Rejected,
}

impl FlowVerdict {
    /// The name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undecided => "undecided",
            Self::Passed => "passed",
            Self::Blocked => "blocked",
            Self::Rejected => "rejected",
        }
    }

    /// The name of the action in EVE; none if nothing was decided.
    pub const fn action(self) -> Option<&'static str> {
        match self {
            Self::Undecided => None,
            Self::Passed => Some("accept"),
            Self::Blocked | Self::Rejected => Some("drop"),
        }
    }
}

impl FlowRecord {
    /// Number of whole seconds from its first packet to its last.
    pub fn age(&self) -> u64 {
        self.last.since(self.start).as_secs()
    }

    /// The part of the flow that the counts cover.
    pub const fn counted(&self) -> &'static str {
        match (self.whole, self.unseen) {
            (false, _) => "until decided",
            (true, 0) => "whole",
            (true, _) => "outside of bodies",
        }
    }
}
