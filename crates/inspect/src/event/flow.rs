//! The record of a flow at its end.

use super::{DropReason, Protocol, Timestamp};

/// Packets and their bytes, IP headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub octets: u64,
}

impl Volume {
    /// Counts a packet.
    pub const fn add(&mut self, octets: u64) {
        self.packets += 1;
        self.octets += octets;
    }

    /// Takes packets out that were counted here and belong elsewhere.
    pub const fn take(&mut self, other: Self) {
        self.packets = self.packets.saturating_sub(other.packets);
        self.octets = self.octets.saturating_sub(other.octets);
    }
}

/// What went by in a flow, and what was made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRecord {
    /// Time at which its first packet was seen.
    pub start: Timestamp,
    /// Time at which its last packet was seen.
    pub last: Timestamp,
    /// What the client sent.
    pub to_server: Volume,
    /// What the server sent.
    pub to_client: Volume,
    /// All TCP flags that the client set.
    pub flags_to_server: u8,
    /// All TCP flags that the server set.
    pub flags_to_client: u8,
    /// How far it got.
    pub state: FlowState,
    /// Why it is told of now.
    pub end: FlowEnd,
    /// What was decided about it.
    pub verdict: FlowVerdict,
    /// Why it was blocked.
    pub reason: Option<DropReason>,
    /// The rule behind that.
    pub rule: Option<String>,
    /// The application protocol that was heard.
    pub protocol: Option<Protocol>,
    /// True if there was an alert about it.
    pub alerted: bool,
    /// True if everything that went by is counted, not only what did until the flow was decided.
    pub whole: bool,
    /// Bytes of bodies that went by without being seen, whose packets are not among the counts.
    pub unseen: u64,
}

/// How far a flow got, in EVE's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowState {
    /// Nobody has confirmed it.
    New,
    /// Open.
    Established,
    /// Closed by both ends, or reset.
    Closed,
    /// Handed over to the kernel once it was let pass.
    Bypassed,
}

impl FlowState {
    /// EVE's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Established => "established",
            Self::Closed => "closed",
            Self::Bypassed => "bypassed",
        }
    }
}

/// Why a flow's record is told, in EVE's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowEnd {
    /// Nothing came of it for as long as its state allows.
    Timeout,
    /// It gave way to another one.
    Forced,
    /// It was blocked: nothing of it gets by any more.
    Stopped,
    /// The run or the capture has ended.
    Shutdown,
    /// Its ends have begun another one with the same ports.
    Reused,
}

impl FlowEnd {
    /// EVE's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Forced | Self::Stopped => "forced",
            Self::Shutdown => "shutdown",
            Self::Reused => "tcp_reuse",
        }
    }
}

/// What was decided about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowVerdict {
    /// Nothing.
    Undecided,
    /// It was let pass.
    Passed,
    /// It was blocked.
    Blocked,
    /// It was blocked, and its ends were to be reset.
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

    /// EVE's name for what was done; none where nothing was decided.
    pub const fn action(self) -> Option<&'static str> {
        match self {
            Self::Undecided => None,
            Self::Passed => Some("accept"),
            Self::Blocked | Self::Rejected => Some("drop"),
        }
    }
}

impl FlowRecord {
    /// Whole seconds from its first packet to its last.
    pub fn age(&self) -> u64 {
        self.last.since(self.start).as_secs()
    }

    /// How much of the flow the counts are of.
    pub const fn counted(&self) -> &'static str {
        match (self.whole, self.unseen) {
            (false, _) => "until decided",
            (true, 0) => "whole",
            (true, _) => "outside of bodies",
        }
    }
}
