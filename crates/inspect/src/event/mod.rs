//! The one reportable fact, from every path: what happened, owned, to be written once by any sink.
//!
//! This is a leaf: it knows neither rules nor packets nor how a sink spells its fields. The sinks
//! in `output` turn these values into EVE JSON, text, CSV and the rest.

mod application;
mod flow;
mod stopped;
mod tls;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::application::{
    Application, GreetingFacts, Hassh, HeaderField, HostKey, HttpFacts, HttpRequestFacts, HttpResponseFacts,
    OtherFacts, ProductFacts, Signature, SshFacts, SshSide,
};
pub use self::flow::{FlowEnd, FlowRecord, FlowState, FlowVerdict, Volume};
pub use self::stopped::{DropFacts, DropReason, PacketHeader, ResetFacts, ResetOutcome};
pub use self::tls::{Certificate, Ja3, TlsAlert, TlsClient, TlsFacts, TlsServer};
use crate::terms::hash::fnv32;
pub use crate::terms::{
    Action, AnomalyLayer, Endpoint, Endpoints, Protocol, Severity, Side, Timestamp, Transport, Verdict,
};
use crate::terms::{Anomaly, place};

/// Which of the three paths saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Live packets from a netfilter queue.
    Guard,
    /// A capture file.
    Replay,
    /// A connection that the scan made itself.
    Scan,
}

impl Source {
    /// The name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Replay => "replay",
            Self::Scan => "scan",
        }
    }
}

/// A reportable fact with its context.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time at which it was seen.
    pub timestamp: Timestamp,
    /// Which path saw it.
    pub source: Source,
    /// The flow it belongs to; absent for `Stats`, `Hook`, `Ban` and `Change`.
    pub flow: Option<FlowContext>,
    /// What happened.
    pub kind: EventKind,
}

impl Event {
    /// Bytes of memory that it takes, roughly. Facts that alerts share with their transaction count for
    /// the transaction alone.
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
    /// Stable for the life of the flow, unlike any other one's at that time.
    pub id: u64,
    /// Client and server.
    pub endpoints: Endpoints,
    /// What carries it.
    pub transport: Transport,
    /// Who sent the packet or banner that the event is about, where that is one side.
    pub from: Option<Side>,
    /// Interface name, where known.
    pub interface: Option<String>,
    /// VLAN ids, outermost first.
    pub vlan: Vec<u16>,
    /// Number of the packet in its capture, counted from 1.
    pub packet_number: Option<u64>,
    /// Number of the HTTP transaction in its flow, counted from 0.
    pub transaction: Option<u32>,
    /// The application protocol, once recognised.
    pub protocol: Option<Protocol>,
    /// True once each end has acknowledged what the other sent: neither address is forged. Absent for scans,
    /// and never true over UDP.
    pub established: Option<bool>,
}

/// What happened. The facts of an application protocol are shared with the alerts about them.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// What was said in one of the protocols that bannerwall reads.
    Application(Application),
    /// A rule matched.
    Alert(Arc<AlertFacts>),
    /// A packet was dropped.
    Drop(DropFacts),
    /// Something that an inspector could be misled with, or that no honest peer sends.
    Anomaly(AnomalyFacts),
    /// A flow has ended.
    Flow(Box<FlowRecord>),
    /// The result of one scan target.
    Connect(ConnectFacts),
    /// Counters of a run, at its end or on an interval.
    Stats(Box<StatsFacts>),
    /// The rules that lead packets to the guard are not as they should be, or are again.
    Hook(Box<HookFacts>),
    /// A client was banned, or is no longer.
    Ban(Box<BanFacts>),
    /// Something of the inventory became different.
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
    /// What the rule asks for.
    pub action: Action,
    /// True when the flow was really stopped; false in monitor mode and in scan and replay
    /// without `--enforce`.
    pub blocked: bool,
    /// How grave.
    pub severity: Severity,
    /// CVE numbers and addresses.
    pub references: Vec<String>,
    /// Product and version as the rule captured them or a fingerprint named them.
    pub product: ProductFacts,
    /// Who sent the banner.
    pub from: Side,
    /// The banner's deciding line: the SSH identification, or the HTTP request or status line.
    pub banner: String,
    /// The field that matched, and its value; absent of a policy, and of a rule without `match`.
    pub matched: Option<Box<MatchedText>>,
    /// The override that let the flow pass, if one did.
    pub let_pass: Option<LetPass>,
    /// What the banner was, in full.
    pub application: Application,
    /// What became of the resets, where the flow was rejected and somebody sends them.
    pub resets: Option<Box<ResetFacts>>,
    /// What an advisory says of the package, where the rule holds one.
    pub verdict: Option<Box<VerdictFacts>>,
}

/// An override that let a flow pass which its rule would block.
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
    /// Time from which on it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl OverrideFacts {
    /// True if it has an effect at `now`.
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
    /// The override.
    pub fn facts(&self) -> &OverrideFacts {
        match self {
            Self::Exemption(facts) | Self::Action(facts) => facts,
        }
    }
}

impl AlertFacts {
    /// True if an override exempts the client or the server: the rule leaves the flow alone.
    pub const fn is_exempt(&self) -> bool {
        matches!(self.let_pass, Some(LetPass::Exemption(_)))
    }
}

/// A field of a banner that a rule's condition matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedText {
    /// The field, as rules name it.
    pub field: String,
    /// Its value, as events may show it.
    pub text: String,
}

/// What a distribution's data say of a package, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictFacts {
    /// One of the three values.
    pub verdict: Verdict,
    /// Why, on one line.
    pub reason: String,
    /// The package version that fixes, of the package's own release where that is known.
    pub fixed: Option<String>,
    /// Whose data it is.
    pub source: String,
    /// When the data were taken, `2026-11-20`.
    pub date: Option<String>,
    /// What of the key exchange told, by its name in `rules/markers.toml`.
    pub marker: Option<&'static str>,
}

/// The number that stands for a rule's id where EVE asks for one: the same in every run and on every
/// machine, whatever other rules there are.
///
/// FNV-1a of the id's bytes, folded into 1 to 2^31 - 1 so that readers with signed numbers keep it.
pub const fn signature_id(rule: &str) -> u32 {
    let hash = fnv32(rule.as_bytes());
    match (hash >> 31) ^ (hash & 0x7fff_ffff) {
        0 => 1,
        folded => folded,
    }
}

/// How the rules that lead packets to the guard stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFacts {
    /// The address families that this is about, `IPv4`.
    pub families: String,
    /// A stable name: `up`, `restored`, `gone`, `led_away`, `changed`, `damaged`, `doubled`, `not_last`,
    /// `skipped`, `bypass_off`.
    pub state: &'static str,
    /// What was found or done, for a person.
    pub detail: String,
}

/// A client was banned, or is no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanFacts {
    /// Address of the client.
    pub address: IpAddr,
    /// A stable name: `banned`, `extended`, `unbanned`, `failed`.
    pub state: &'static str,
    /// Remaining time of the ban.
    pub time: Option<Duration>,
    /// The rule that asked for it; none of a ban by hand.
    pub rule: Option<String>,
    /// The banner that the rule matched, perhaps cut.
    pub banner: String,
    /// Of `unbanned`: `expired`, `removed` or `evicted`; of `failed`: why.
    pub detail: Option<String>,
}

/// Something of the inventory became different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeFacts {
    /// A stable name: `new_host`, `new_service`, `new_client`, `banner_changed`, `hassh_changed`,
    /// `certificate_changed`, `host_key_changed`, `new_host_key`, `finding_new`, `finding_gone`,
    /// `service_gone`, `service_back`.
    pub kind: String,
    /// The host.
    pub address: String,
    /// The TCP port, 0 of a client.
    pub port: u16,
    /// What is spoken there.
    pub protocol: String,
    /// What was said before.
    pub old: Option<String>,
    /// What is said since.
    pub new: Option<String>,
    /// The rule that tells of it, or did.
    pub rule: Option<String>,
    /// Of `service_gone`: `refused` or `unseen`.
    pub why: Option<String>,
    /// The name of the place of observation.
    pub sensor: String,
}

impl ChangeFacts {
    /// `192.0.2.1:22`, `[2001:db8::1]:22`; of a client the address.
    pub fn place(&self) -> String {
        place(&self.address, self.port)
    }

    fn weight(&self) -> usize {
        let texts = [&self.old, &self.new, &self.rule].into_iter().flatten().map(String::len).sum::<usize>();
        size_of::<Self>() + texts + self.kind.len() + self.address.len() + self.sensor.len()
    }
}

/// Something that an inspector could be misled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnomalyFacts {
    /// Which layer it was seen at.
    pub layer: AnomalyLayer,
    /// A stable name, `overlap_different_data`.
    pub name: &'static str,
    /// What was seen, for a person.
    pub detail: String,
}

impl AnomalyFacts {
    /// An anomaly of the house's table, and what was seen of it.
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
    /// What the target's port was.
    pub state: PortState,
    /// Why, for `Error` (`EADDRNOTAVAIL`) and for `Filtered` (`no-response`, `EHOSTUNREACH`), or how
    /// the talk with an open port went (`complete`, `silent`, `foreign`).
    pub reason: Cow<'static, str>,
    /// The first that an open port said where that was no banner of the protocol asked for, lossily
    /// as text; else empty.
    pub said: String,
    /// From the connect request to its completion.
    pub round_trip: Option<Duration>,
    /// How long an open port was listened to that said nothing, or not all: milliseconds since it accepted.
    pub waited_ms: Option<u32>,
}

/// What a scanned port was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortState {
    /// The connection was accepted.
    Open,
    /// The connection was refused.
    Closed,
    /// No answer, or an unreachable message on the way.
    Filtered,
    /// A shortage or fault of this machine, which says nothing about the target.
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

/// Where events go: a channel to the writer, a vector in a test.
///
/// A sink must not block: the guard calls it on the packet path.
pub trait EventSink {
    /// Takes one event; a sink that has no room counts the loss itself.
    fn emit(&mut self, event: Event);
}

impl EventSink for Vec<Event> {
    fn emit(&mut self, event: Event) {
        self.push(event);
    }
}
