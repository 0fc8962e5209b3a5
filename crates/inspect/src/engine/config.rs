//! The configuration of an engine.

use std::time::Duration;

use super::anomaly_policy::{AnomalyAction, AnomalyPolicy};
use super::enforcement::EnforceOnly;
use crate::banner::disclosure::DisclosureLimits;
use crate::event::EventSource;
use crate::flow::TrackingMode;
use crate::rules::RuleSet;

/// Handling of flows if memory is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Traffic goes on uninspected.
    #[default]
    Open,
    /// Traffic stops.
    Closed,
}

/// The part of an HTTP connection that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpInspect {
    /// The first transaction decides the connection.
    #[default]
    First,
    /// Every request of a kept-alive connection, and the first response.
    Requests,
    /// Every transaction of a kept-alive connection.
    All,
    /// Every request where a rule in force would block one, and every response where anything else would be
    /// blocked for what is said; the first transaction otherwise.
    Auto,
}

impl HttpInspect {
    /// Returns the part that is read under these rules; never [`HttpInspect::Auto`].
    pub(super) fn under(self, rules: &RuleSet, config: &EngineConfig) -> Self {
        match self {
            Self::Auto if !config.enforce || !rules.needs().every_request => Self::First,
            Self::Auto if rules.needs().beside_requests || config.on_anomaly.drops_messages() => Self::All,
            // What comes by anyway is read.
            Self::Auto | Self::Requests if !config.may_offload() => Self::All,
            Self::Auto => Self::Requests,
            chosen => chosen,
        }
    }
}

/// Time that the engine remembers a silent flow, by its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowTimeouts {
    /// Only a SYN was seen.
    pub opening: Duration,
    /// Begun in its middle, and nobody has confirmed it.
    pub unconfirmed: Duration,
    /// Open, and not yet decided: as long as Linux remembers an idle connection. A flow that comes back
    /// within that is not a new one.
    pub undecided: Duration,
    /// Open, and let pass.
    pub passed: Duration,
    /// Blocked: as long as Linux or either end might go on with it.
    pub blocked: Duration,
    /// Closed by both ends or reset. What the other end of a reset connection has not shown to be over stays
    /// blocked.
    pub closed: Duration,
    /// Flows of UDP that their servers have answered, or that are blocked.
    pub datagrams: Duration,
}

/// `nf_conntrack_tcp_timeout_established` of Linux: 5 days.
const ESTABLISHED: Duration = Duration::from_secs(5 * 24 * 3600);

/// `nf_conntrack_tcp_timeout_syn_sent` of Linux: longer than its pauses between SYNs (64 s at most). Once a
/// SYN is forgotten its receiver could pass for the client by a SYN of its own.
const SYN_SENT: Duration = Duration::from_secs(120);

/// `nf_conntrack_udp_timeout_stream` of Linux: after it the kernel has forgotten what it was told of the
/// flow, too.
const UDP_STREAM: Duration = Duration::from_secs(120);

impl Default for FlowTimeouts {
    fn default() -> Self {
        Self {
            opening: SYN_SENT,
            unconfirmed: Duration::from_secs(20),
            undecided: ESTABLISHED,
            passed: Duration::from_secs(120),
            blocked: ESTABLISHED,
            closed: Duration::from_secs(20),
            datagrams: UDP_STREAM,
        }
    }
}

/// The settings of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// The source of the packets: a label for events, which changes nothing.
    pub source: EventSource,
    /// The completeness of the packets. If the engine sees every packet, it may ask for more of one; a
    /// capture may lack packets.
    pub tracking: TrackingMode,
    /// True if blocking rules really block. Otherwise events say what would have been blocked.
    pub enforce: bool,
    /// The flows that are enforced.
    pub enforce_only: EnforceOnly,
    /// Handling of flows if memory is short.
    pub on_failure: OnFailure,
    /// Reactions to anomalies.
    pub on_anomaly: AnomalyPolicy,
    /// Flows remembered at once.
    pub flow_limit: usize,
    /// The part of an HTTP connection that is read.
    pub http_inspect: HttpInspect,
    /// Bytes of an HTTP response's body that are kept for rules and the title; rules may ask for
    /// more.
    pub body_limit: usize,
    /// True if KEXINIT is read for HASSH even if no rule asks for it.
    pub collect_kex: bool,
    /// Bytes of one flow that are inspected without coming to a decision.
    pub stream_budget: u64,
    /// Time from a banner's first byte in which it must be whole. A side that has said nothing takes as
    /// long as it likes.
    pub time_budget: Duration,
    /// Bytes held in buffers of undecided flows in all.
    pub buffer_limit: usize,
    /// Time that flows are remembered.
    pub timeouts: FlowTimeouts,
    /// The parts of messages that events show.
    pub disclosure: DisclosureLimits,
    /// True if each flow is told of at its end.
    pub flow_events: bool,
    /// True if somebody else passes decided flows on, so that no more of them is seen.
    pub hands_over: bool,
}

impl EngineConfig {
    /// True if packets of flows that are not decided may be let by unseen.
    pub(super) fn may_offload(&self) -> bool {
        self.hands_over && self.tracking == TrackingMode::Inline
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            source: EventSource::Guard,
            tracking: TrackingMode::Inline,
            enforce: false,
            enforce_only: EnforceOnly::default(),
            on_failure: OnFailure::default(),
            on_anomaly: AnomalyPolicy::all(AnomalyAction::Alert),
            flow_limit: 1 << 18,
            http_inspect: HttpInspect::default(),
            body_limit: 0,
            collect_kex: false,
            stream_budget: 256 << 10,
            time_budget: Duration::from_secs(120),
            buffer_limit: 64 << 20,
            timeouts: FlowTimeouts::default(),
            disclosure: DisclosureLimits::default(),
            flow_events: false,
            hands_over: false,
        }
    }
}
