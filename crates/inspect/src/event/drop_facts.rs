//! Facts about a dropped packet: the reason, its headers, and the result of the resets.

/// A packet that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropFacts {
    /// The reason.
    pub reason: DropReason,
    /// The rule that caused it, if there is one.
    pub rule: Option<String>,
    /// True if both ends should get a reset.
    pub rejected: bool,
    /// The result of those resets, if the guard sends them.
    pub resets: Option<Box<ResetFacts>>,
    /// The IP and TCP header of the packet.
    pub header: PacketHeader,
}

/// Results of the resets for the two ends of a rejected flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetFacts {
    /// The client's.
    pub to_client: ResetOutcome,
    /// The server's.
    pub to_server: ResetOutcome,
}

/// Result of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetOutcome {
    /// Sent by the routing table.
    Routed,
    /// Sent through the bridge port of the packet's sender or receiver.
    Bridged,
    /// The kernel refused it, for this reason.
    Failed(String),
    /// Not sent, because of the rate limit.
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

    /// True if it was sent.
    pub const fn is_sent(&self) -> bool {
        matches!(self, Self::Routed | Self::Bridged)
    }
}

impl ResetFacts {
    /// Returns the resets that were not sent and the reason, for a person; none if all were sent.
    pub fn unsent_reason(&self) -> Option<String> {
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

/// The reason why a packet was dropped, by EVE's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A rule matched.
    Rules,
    /// TCP that could mislead an inspector, under `--on-anomaly drop`.
    StreamError,
    /// The flow table was full, under `--on-failure closed`.
    FlowMemcap,
    /// A packet that cannot be read, under `--on-anomaly drop`.
    DecodeError,
    /// An application message that could mislead an inspector, under `--on-anomaly drop`.
    AppLayerError,
    /// A policy does not allow it.
    Policy,
}

impl DropReason {
    /// The name in EVE.
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
    /// UDP length, header and payload; 0 for a TCP segment.
    pub udp_length: u16,
}
