//! Events: facts that guard, replay and scan report. An event owns its data, so any output format can
//! write it.
//!
//! This module knows no rules, no packets and no output formats. The formats in `output` turn these
//! values into EVE JSON, text, CSV and others.

mod application;
mod application_summary;
mod drop_facts;
mod flow_record;
mod tls;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::application::{
    ApplicationFacts, GreetingFacts, HasshFingerprint, HeaderField, HostKey, HttpFacts, HttpRequestFacts,
    HttpResponseFacts, OtherFacts, SignatureResult, SshFacts, SshSide,
};
pub use self::application_summary::{ApplicationSummary, ProductFacts};
pub use self::drop_facts::{DropFacts, DropReason, PacketHeader, ResetFacts, ResetOutcome};
pub use self::flow_record::{FlowEnd, FlowRecord, FlowState, FlowVerdict, TrafficVolume};
pub use self::tls::{CertificateFacts, Ja3Fingerprint, TlsAlert, TlsClient, TlsFacts, TlsServer};
use crate::terms::hash::fnv32;
pub use crate::terms::{
    AdvisoryVerdict, AnomalyLayer, Endpoint, FlowEndpoints, Protocol, RuleAction, Severity, Side, Timestamp,
    TransportProtocol,
};
use crate::terms::{Anomaly, place};

/// The command that saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// Live packets from a netfilter queue.
    Guard,
    /// A capture file.
    Replay,
    /// A connection that the scan opened.
    Scan,
}

impl EventSource {
    /// The name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Replay => "replay",
            Self::Scan => "scan",
        }
    }
}

/// A fact to report, with its context.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time at which it was seen.
    pub timestamp: Timestamp,
    /// The command that saw it.
    pub source: EventSource,
    /// The flow it belongs to; absent for `Stats`, `Hook`, `Ban` and `Change`.
    pub flow: Option<FlowContext>,
    /// The fact itself.
    pub kind: EventKind,
}

impl Event {
    /// The approximate number of bytes of memory that it takes. Facts that alerts share with their
    /// transaction count only for the transaction.
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match &self.kind {
                EventKind::Application(said) => said.weight(),
                EventKind::Alert(facts) => {
                    let references: usize = facts.references.iter().map(String::len).sum();
                    let verdict = facts.verdict.as_ref();
                    let told = verdict.map_or(0, |told| size_of::<VerdictFacts>() + told.reason.len());
                    let matched = facts
                        .matched
                        .as_ref()
                        .map_or(0, |found| size_of::<MatchedText>() + found.field.len() + found.text.len());
                    let texts = facts.title.len() + facts.banner.len();
                    size_of::<AlertFacts>() + texts + references + told + matched
                }
                EventKind::Anomaly(facts) => facts.detail.len(),
                EventKind::Connect(facts) => facts.said.len(),
                EventKind::Stats(facts) => size_of_val(facts.counters.as_slice()),
                EventKind::Hook(facts) => size_of::<HookFacts>() + facts.families.len() + facts.detail.len(),
                EventKind::Ban(facts) => size_of::<BanFacts>() + facts.banner.len(),
                EventKind::Change(facts) => facts.weight(),
                EventKind::Flow(facts) => {
                    size_of::<FlowRecord>() + facts.rule.as_ref().map_or(0, String::len)
                }
                EventKind::Drop(_) => 0,
            }
    }
}

/// The flow that an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowContext {
    /// Constant for the life of the flow, and unique among the flows of that time.
    pub id: u64,
    /// Client and server.
    pub endpoints: FlowEndpoints,
    /// The transport protocol.
    pub transport: TransportProtocol,
    /// The side that sent the packet or banner of the event, if it is one side.
    pub from: Option<Side>,
    /// Interface name, if known.
    pub interface: Option<String>,
    /// VLAN ids, outermost first.
    pub vlan: Vec<u16>,
    /// Number of the packet in its capture, counted from 1.
    pub packet_number: Option<u64>,
    /// Number of the HTTP transaction in its flow, counted from 0.
    pub transaction: Option<u32>,
    /// The application protocol, once it is recognized.
    pub protocol: Option<Protocol>,
    /// True once each end has acknowledged data of the other: neither address is forged. Absent for
    /// scans, and never true over UDP.
    pub established: Option<bool>,
    /// True if neither end's SYN was seen: what the ends said before is not known.
    pub midstream: bool,
}

/// The kinds of facts. Alerts share the facts of an application protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// An exchange in one of the protocols that bannerwall reads.
    Application(ApplicationFacts),
    /// A rule matched.
    Alert(Arc<AlertFacts>),
    /// A packet was dropped.
    Drop(DropFacts),
    /// Traffic that could mislead an inspector, or that no honest peer sends.
    Anomaly(AnomalyFacts),
    /// A flow has ended.
    Flow(Box<FlowRecord>),
    /// The result of one scan target.
    Connect(ConnectFacts),
    /// Counters of a run, at its end or on an interval.
    Stats(Box<StatsFacts>),
    /// The iptables rules of the guard are not as they should be, or are correct again.
    Hook(Box<HookFacts>),
    /// A client was banned, or a ban ended.
    Ban(Box<BanFacts>),
    /// The inventory changed.
    Change(Box<ChangeFacts>),
}

/// A rule matched a banner.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertFacts {
    /// The rule's id.
    pub rule: String,
    /// The rule's title.
    pub title: String,
    /// The rule's category, perhaps empty.
    pub category: String,
    /// The action of the rule.
    pub action: RuleAction,
    /// True if the flow was really stopped; false in monitor mode and in scan and replay without
    /// `--enforce`.
    pub blocked: bool,
    /// True if blocking rules are enforced for the flow.
    pub enforced: bool,
    /// The severity.
    pub severity: Severity,
    /// CVE numbers and URLs.
    pub references: Vec<String>,
    /// Product and version as the rule captured them or a fingerprint named them.
    pub product: ProductFacts,
    /// The side that sent the banner.
    pub from: Side,
    /// The banner's deciding line: the SSH identification, or the HTTP request or status line.
    pub banner: String,
    /// The field that matched, and its value; absent for a policy and for a rule without `match`.
    pub matched: Option<Box<MatchedText>>,
    /// The override that let the flow pass, if one did.
    pub let_pass: Option<LetPass>,
    /// The whole banner as facts.
    pub application: ApplicationFacts,
    /// The result of the resets, if the flow was rejected and the guard sends them.
    pub resets: Option<Box<ResetFacts>>,
    /// The verdict of the rule's advisory about the package, if the rule has one.
    pub verdict: Option<Box<VerdictFacts>>,
}

/// An override that allowed a flow although its rule would block it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetPass {
    /// It exempts the client or the server.
    Exemption(Arc<OverrideFacts>),
    /// It gives the rule an action that does not block.
    Action(Arc<OverrideFacts>),
}

/// An override of a local file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideFacts {
    /// Its file.
    pub file: String,
    /// The line of its `[[override]]`, from 1.
    pub line: usize,
    /// The person or team that answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl OverrideFacts {
    /// True if it is in force at `now`.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// `local.toml:3, netops, until 2026-12-31T00:00:00Z: the lab is rebuilt`.
impl std::fmt::Display for OverrideFacts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)?;
        if let Some(owner) = &self.owner {
            write!(formatter, ", {owner}")?;
        }
        if let Some(until) = self.until {
            write!(formatter, ", until {until}")?;
        }
        match &self.reason {
            Some(reason) => write!(formatter, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl LetPass {
    /// The facts of the override.
    pub fn facts(&self) -> &OverrideFacts {
        match self {
            Self::Exemption(facts) | Self::Action(facts) => facts,
        }
    }
}

impl AlertFacts {
    /// True if an override exempts the client or the server: the rule does not affect the flow.
    pub const fn is_exempt(&self) -> bool {
        matches!(self.let_pass, Some(LetPass::Exemption(_)))
    }
}

/// A field of a banner that matched a rule's condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedText {
    /// The field, by its name in rules.
    pub field: String,
    /// Its value, as events may show it; empty for a body.
    pub text: String,
}

/// The verdict of a distribution's data about a package, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictFacts {
    /// The verdict.
    pub verdict: AdvisoryVerdict,
    /// The reason, in one line.
    pub reason: String,
    /// The package version with the fix, of the package's own release if that is known.
    pub fixed: Option<String>,
    /// Publisher of the data.
    pub source: String,
    /// Date of the data, `2026-11-20`.
    pub date: Option<String>,
    /// The marker of the key exchange that decided, by its name in `rules/markers.toml`.
    pub marker: Option<&'static str>,
}

/// Returns the number of a rule's id for EVE. It is the same in every run and on every machine, for any
/// other rules.
///
/// The number is FNV-1a of the id's bytes, folded into 1 to 2^31 - 1 for readers with signed numbers.
pub const fn signature_id(rule: &str) -> u32 {
    let hash = fnv32(rule.as_bytes());
    match (hash >> 31) ^ (hash & 0x7fff_ffff) {
        0 => 1,
        folded => folded,
    }
}

/// State of the iptables rules that lead packets to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFacts {
    /// The address families that it is about, `IPv4`.
    pub families: String,
    /// A stable name: `up`, `restored`, `gone`, `led_away`, `changed`, `damaged`, `doubled`, `not_last`,
    /// `skipped`, `bypass_off`.
    pub state: &'static str,
    /// A description for a person.
    pub detail: String,
}

/// A client was banned, or a ban ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanFacts {
    /// Address of the client.
    pub address: IpAddr,
    /// A stable name: `banned`, `extended`, `unbanned`, `failed`.
    pub state: &'static str,
    /// Remaining time of the ban.
    pub time: Option<Duration>,
    /// The rule that caused it; none for a manual ban.
    pub rule: Option<String>,
    /// The banner that the rule matched; may be cut.
    pub banner: String,
    /// For `unbanned`: `expired`, `removed` or `evicted`; for `failed`: the reason.
    pub detail: Option<String>,
}

/// A change of the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeFacts {
    /// A stable name: `new_host`, `new_service`, `new_client`, `banner_changed`, `hassh_changed`,
    /// `certificate_changed`, `host_key_changed`, `new_host_key`, `finding_new`, `finding_gone`,
    /// `service_gone`, `service_back`.
    pub kind: String,
    /// The host.
    pub address: String,
    /// The TCP port, 0 for a client.
    pub port: u16,
    /// The protocol of the service.
    pub protocol: String,
    /// The earlier value.
    pub old: Option<String>,
    /// The new value.
    pub new: Option<String>,
    /// The rule that the finding is about.
    pub rule: Option<String>,
    /// For `service_gone`: `refused` or `unseen`.
    pub why: Option<String>,
    /// The name of the sensor.
    pub sensor: String,
}

impl ChangeFacts {
    /// Returns `192.0.2.1:22`, `[2001:db8::1]:22`; for a client, the address.
    pub fn place(&self) -> String {
        place(&self.address, self.port)
    }

    fn weight(&self) -> usize {
        let texts = [&self.old, &self.new, &self.rule].into_iter().flatten().map(String::len).sum::<usize>();
        size_of::<Self>() + texts + self.kind.len() + self.address.len() + self.sensor.len()
    }
}

/// Traffic that could mislead an inspector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnomalyFacts {
    /// The layer at which it was seen.
    pub layer: AnomalyLayer,
    /// A stable name, `overlap_different_data`.
    pub name: &'static str,
    /// A description for a person.
    pub detail: String,
}

impl AnomalyFacts {
    /// Creates the facts of an anomaly of the table, with details.
    pub const fn new(anomaly: Anomaly, detail: String) -> Self {
        Self { layer: anomaly.layer(), name: anomaly.name(), detail }
    }
}

impl From<Anomaly> for AnomalyFacts {
    fn from(anomaly: Anomaly) -> Self {
        Self::new(anomaly, anomaly.detail().to_owned())
    }
}

/// The result of one scan target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectFacts {
    /// State of the target's port.
    pub state: PortState,
    /// The reason, for `Error` (`EADDRNOTAVAIL`) and for `Filtered` (`no-response`, `EHOSTUNREACH`), or
    /// the course of the exchange with an open port (`complete`, `silent`, `foreign`).
    pub reason: Cow<'static, str>,
    /// The first bytes of an open port, if they were no banner of the expected protocol, lossily as text;
    /// else empty.
    pub said: String,
    /// Time from the connect request to its completion.
    pub round_trip: Option<Duration>,
    /// Time for which the scan waited for an open port that sent nothing, or not everything: milliseconds
    /// since it accepted.
    pub waited_ms: Option<u32>,
}

/// State of a scanned port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortState {
    /// The connection was accepted.
    Open,
    /// The connection was refused.
    Closed,
    /// No answer, or an ICMP unreachable message.
    Filtered,
    /// A shortage or fault of this machine: the target's state is unknown.
    Error,
}

impl PortState {
    /// The name in results and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Filtered => "filtered",
            Self::Error => "error",
        }
    }
}

/// Counters of a run, EVE's `stats`, as `(path, value)`: `("capture.kernel_packets", 12)`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatsFacts {
    /// Time since the start.
    pub uptime: Duration,
    /// Dotted paths below `stats` and their values.
    pub counters: Vec<(&'static str, u64)>,
}

/// Receiver of events: a channel to the writer, a vector in a test.
///
/// `emit` must not block: the guard calls it on the packet path.
pub trait EventSink {
    /// Takes one event. A sink that is full counts the loss itself.
    fn emit(&mut self, event: Event);
}

impl EventSink for Vec<Event> {
    fn emit(&mut self, event: Event) {
        self.push(event);
    }
}
