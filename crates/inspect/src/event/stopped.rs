//! A packet that was dropped: why, what it looked like, and what became of the resets to its flow's ends.

/// A packet that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropFacts {
    /// Why.
    pub reason: DropReason,
    /// The rule behind it, where there is one.
    pub rule: Option<String>,
    /// Both ends are to be sent a reset.
    pub rejected: bool,
    /// What became of those resets, where somebody sends them.
    pub resets: Option<Box<ResetFacts>>,
    /// The IP and TCP header of the packet.
    pub header: PacketHeader,
}

/// What became of the resets for the two ends of a rejected flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetFacts {
    /// Of the client's.
    pub to_client: ResetOutcome,
    /// Of the server's.
    pub to_server: ResetOutcome,
}

/// What became of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetOutcome {
    /// It was handed to the network, on the way that the routing table knows.
    Routed,
    /// It left by the bridge port that the packet's sender or receiver is behind.
    Bridged,
    /// The kernel refused it, and why.
    Failed(String),
    /// It was held back, as there were too many.
    Limited,
}

impl ResetOutcome {
    /// The name in events.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::Bridged => "bridged",
            Self::Failed(_) => "failed",
            Self::Limited => "limited",
        }
    }

    /// True if it left.
    pub const fn is_sent(&self) -> bool {
        matches!(self, Self::Routed | Self::Bridged)
    }
}

impl ResetFacts {
    /// What did not leave and why, for a person.
    pub fn complaint(&self) -> Option<String> {
        let why = |end: &str, outcome: &ResetOutcome| match outcome {
            ResetOutcome::Failed(reason) => Some(format!("no reset to the {end}: {reason}")),
            ResetOutcome::Limited => Some(format!("no reset to the {end}: too many")),
            ResetOutcome::Routed | ResetOutcome::Bridged => None,
        };
        let parts = [why("client", &self.to_client), why("server", &self.to_server)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Why a packet was dropped, in EVE's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A rule said so.
    Rules,
    /// TCP that an inspector could be misled with, under `--on-anomaly drop`.
    StreamError,
    /// The flow table was full, under `--on-failure closed`.
    FlowMemcap,
    /// Not a packet that can be read, under `--on-anomaly drop`.
    DecodeError,
    /// An application message that an inspector could be misled with, under `--on-anomaly drop`.
    AppLayerError,
    /// It is not what a policy allows.
    Policy,
}

impl DropReason {
    /// EVE's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::StreamError => "stream error",
            Self::FlowMemcap => "flow memcap",
            Self::DecodeError => "decode error",
            Self::AppLayerError => "applayer error",
            Self::Policy => "default app policy",
        }
    }
}

/// The header fields that a drop event shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketHeader {
    /// Length of the IP packet in bytes.
    pub length: u32,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 identification or IPv6 flow label.
    pub identification: u32,
    /// TCP sequence number.
    pub sequence: u32,
    /// TCP acknowledgement number.
    pub acknowledgement: u32,
    /// TCP window, unscaled.
    pub window: u16,
    /// TCP flags, RFC 9293's low byte: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32.
    pub flags: u8,
    /// TCP urgent pointer.
    pub urgent_pointer: u16,
    /// UDP length, header and payload; 0 of a TCP segment.
    pub udp_length: u16,
}
