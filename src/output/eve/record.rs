//! One EVE line: the header in EVE's order, then the object of the event's type.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::banner::unread_protocols::UNKNOWN;
use crate::event::{
    AlertFacts, AnomalyFacts, AnomalyLayer, ApplicationFacts, ConnectFacts, DropFacts, Endpoint, Event,
    EventKind, EventSource, FlowContext, PacketHeader, Protocol, ResetFacts, RuleAction, Side,
    TransportProtocol, signature_id,
};
use crate::output::time::EveTime;

use super::EveOptions;
use super::application::{EveDetail, EveHttp, EveSsh};
use super::bannerwall_fields::BannerwallFields;
use super::community_id::community_id;
use super::flow::{EveFlow, EveTcp};
use super::greeting::{EveFtp, EvePop3};
use super::quic::EveQuic;
use super::stats;
use super::tls::EveTls;

/// Flow ids are cut to 51 bits, as Suricata does, so that JSON readers with floating-point numbers keep
/// them exact.
const FLOW_ID_BITS: u64 = (1 << 51) - 1;

#[derive(Debug, Default, Serialize)]
pub(super) struct EveRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<EveTime>,
    #[serde(flatten)]
    header: EveHeader<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<EveTcp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<EveFlow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<EveAlert<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh: Option<EveSsh<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<EveHttp<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<EveTls<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quic: Option<EveQuic<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ftp: Option<EveFtp<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pop3: Option<EvePop3<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<EveDrop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anomaly: Option<EveAnomaly<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<EveVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bannerwall: Option<BannerwallFields<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct EveHeader<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_iface: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcap_cnt: Option<u64>,
    event_type: &'static str,
    #[serde(skip_serializing_if = "<[u16]>::is_empty")]
    vlan: &'a [u16],
    #[serde(skip_serializing_if = "Option::is_none")]
    src_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proto: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_v: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pkt_src: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    community_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_proto: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct EveAlert<'a> {
    action: &'static str,
    gid: u32,
    signature_id: u32,
    rev: u32,
    signature: &'a str,
    category: &'a str,
    severity: u8,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    references: &'a [String],
    metadata: EveMetadata<'a>,
}

#[derive(Debug, Serialize)]
struct EveMetadata<'a> {
    signature_severity: [&'static str; 1],
    rule: [&'a str; 1],
}

#[derive(Debug, Default, Serialize)]
struct EveDrop {
    len: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tos: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tc: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hoplimit: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flowlbl: Option<u32>,
    #[serde(flatten)]
    tcp: Option<DroppedTcp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    udplen: Option<u16>,
    reason: &'static str,
}

/// The fields of a TCP header in a drop event.
#[derive(Debug, Default, Serialize)]
struct DroppedTcp {
    tcpseq: u32,
    tcpack: u32,
    tcpwin: u16,
    syn: bool,
    ack: bool,
    psh: bool,
    rst: bool,
    urg: bool,
    fin: bool,
    tcpres: u8,
    tcpurgp: u16,
}

#[derive(Debug, Serialize)]
struct EveAnomaly<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    app_proto: Option<&'static str>,
    r#type: &'static str,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct EveVerdict {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reject: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reject_target: Option<&'static str>,
}

impl<'a> EveRecord<'a> {
    pub(super) fn new(event: &'a Event, options: &EveOptions) -> Self {
        let strict = options.strict;
        let mut record = Self {
            timestamp: Some(EveTime(event.timestamp)),
            header: EveHeader::new(event),
            ..Self::default()
        };
        let mut own_stats = None;
        match &event.kind {
            EventKind::Application(said) => {
                let scan = event.source == EventSource::Scan;
                record.application(said, EveDetail { lists: options.headers, brief: false, scan });
            }
            EventKind::Alert(facts) => record.alert(facts, event),
            EventKind::Drop(facts) => record.dropped(facts, event),
            EventKind::Anomaly(facts) => record.anomaly = Some(EveAnomaly::new(facts, event.flow.as_ref())),
            EventKind::Flow(facts) => {
                record.flow = Some(EveFlow::new(facts));
                let tcp = event.flow.as_ref().is_none_or(|flow| flow.transport == TransportProtocol::Tcp);
                record.tcp = tcp.then(|| EveTcp::of(facts));
            }
            EventKind::Connect(facts) => record.connect(facts, strict),
            EventKind::Stats(facts) => {
                let (known, own) = stats::nested(facts);
                record.stats = Some(known);
                own_stats = Some(own);
            }
            // All their fields are in `bannerwall`.
            EventKind::Hook(_) | EventKind::Ban(_) | EventKind::Change(_) => {}
        }
        if !strict {
            record.bannerwall = Some(BannerwallFields::new(event, own_stats));
        }
        record
    }

    fn alert(&mut self, facts: &'a AlertFacts, event: &Event) {
        let source = event.source;
        // UDP has no resets.
        let tcp = event.flow.as_ref().is_none_or(|flow| flow.transport == TransportProtocol::Tcp);
        self.alert = Some(EveAlert::new(facts));
        let target =
            reject_target(source, tcp && facts.action == RuleAction::Reject, facts.resets.as_deref());
        self.verdict = Some(EveVerdict::new(facts.blocked, target, "alert"));
        let scan = source == EventSource::Scan;
        // The transaction's own event has the rest.
        self.application(&facts.application, EveDetail { lists: false, brief: true, scan });
    }

    fn application(&mut self, said: &'a ApplicationFacts, extent: EveDetail) {
        match said {
            ApplicationFacts::Ssh(facts) => self.ssh = Some(EveSsh::new(facts, extent)),
            ApplicationFacts::Http(facts) => self.http = Some(EveHttp::new(facts, extent)),
            ApplicationFacts::Tls(facts) => match facts.quic {
                None => self.tls = Some(EveTls::new(facts, extent)),
                Some(version) => self.quic = Some(EveQuic::new(facts, version, extent)),
            },
            ApplicationFacts::Greeting(facts) => {
                self.ftp = EveFtp::new(facts);
                self.pop3 = EvePop3::new(facts);
            }
            // EVE has no object for it; all fields are in `bannerwall`.
            ApplicationFacts::Other(_) => {}
        }
    }

    fn dropped(&mut self, facts: &DropFacts, event: &Event) {
        let six = event.flow.as_ref().is_some_and(|flow| flow.endpoints.server.address.is_ipv6());
        let udp = event.flow.as_ref().is_some_and(|flow| flow.transport == TransportProtocol::Udp);
        self.drop = Some(EveDrop::new(&facts.header, facts.reason.name(), six, udp));
        let target = reject_target(event.source, facts.rejected, facts.resets.as_deref());
        self.verdict = Some(EveVerdict::new(true, target, "accept"));
    }

    /// EVE has no event for a scan's result. The nearest field of its schema is `tcp.state`.
    fn connect(&mut self, facts: &ConnectFacts, strict: bool) {
        if strict {
            self.tcp = Some(EveTcp::with_state(facts.state.name()));
        } else {
            self.state = Some(facts.state.name());
        }
    }
}

impl<'a> EveHeader<'a> {
    fn new(event: &'a Event) -> Self {
        let event_type = event_type(&event.kind);
        let Some(flow) = &event.flow else { return Self { event_type, ..Self::default() } };
        let from = sender(&event.kind, flow);
        let (source, destination) = match from {
            Some(Side::Server) => (flow.endpoints.server, flow.endpoints.client),
            Some(Side::Client) | None => (flow.endpoints.client, flow.endpoints.server),
        };
        // The scan knows its own address, if there is a route, but not its port: the kernel chose that
        // for a direct socket, which cannot be asked.
        let scan = event.source == EventSource::Scan;
        let address = |end: Endpoint| (!end.address.is_unspecified()).then_some(end.address);
        let port = |end: Endpoint| address(end).and((!scan || end.port != 0).then_some(end.port));
        let both = port(source).is_some() && port(destination).is_some();
        Self {
            flow_id: Some(flow.id & FLOW_ID_BITS),
            in_iface: flow.interface.as_deref(),
            pcap_cnt: flow.packet_number,
            event_type,
            vlan: &flow.vlan,
            src_ip: address(source),
            src_port: port(source),
            dest_ip: address(destination),
            dest_port: port(destination),
            proto: Some(flow.transport.name()),
            ip_v: Some(if flow.endpoints.server.address.is_ipv4() { 4 } else { 6 }),
            pkt_src: (!scan).then_some("wire/pcap"),
            community_id: both.then(|| community_id(&flow.endpoints, flow.transport)),
            tx_id: flow.transaction,
            app_proto: protocol(&event.kind, flow)
                .map(|protocol| app_proto(&event.kind, protocol, flow.transport)),
            direction: from.map(direction),
        }
    }
}

impl<'a> EveAlert<'a> {
    fn new(facts: &'a AlertFacts) -> Self {
        Self {
            action: if facts.blocked { "blocked" } else { "allowed" },
            gid: 1,
            signature_id: signature_id(&facts.rule),
            rev: 1,
            signature: &facts.title,
            category: &facts.category,
            severity: facts.severity.eve(),
            references: &facts.references,
            metadata: EveMetadata { signature_severity: [facts.severity.name()], rule: [&facts.rule] },
        }
    }
}

impl EveDrop {
    fn new(header: &PacketHeader, reason: &'static str, six: bool, udp: bool) -> Self {
        let (four, six) = (!six, six);
        Self {
            len: header.length,
            tos: four.then_some(header.traffic_class),
            ttl: four.then_some(header.hop_limit),
            ipid: four.then_some(header.identification),
            tc: six.then_some(header.traffic_class),
            hoplimit: six.then_some(header.hop_limit),
            flowlbl: six.then_some(header.identification),
            tcp: (!udp).then(|| DroppedTcp::new(header)),
            udplen: udp.then_some(header.udp_length),
            reason,
        }
    }
}

impl DroppedTcp {
    fn new(header: &PacketHeader) -> Self {
        let flag = |bit: u8| header.flags & bit != 0;
        Self {
            tcpseq: header.sequence,
            tcpack: header.acknowledgement,
            tcpwin: header.window,
            syn: flag(0x02),
            ack: flag(0x10),
            psh: flag(0x08),
            rst: flag(0x04),
            urg: flag(0x20),
            fin: flag(0x01),
            tcpres: 0,
            tcpurgp: header.urgent_pointer,
        }
    }
}

impl<'a> EveAnomaly<'a> {
    fn new(facts: &'a AnomalyFacts, flow: Option<&FlowContext>) -> Self {
        let application = facts.layer == AnomalyLayer::Application;
        Self {
            app_proto: flow.and_then(name).filter(|_| application),
            r#type: facts.layer.name(),
            event: facts.name,
            layer: application.then_some("proto_parser"),
        }
    }
}

impl EveVerdict {
    /// `target` is the end that was reset; `otherwise` is the verdict of a packet that passed.
    fn new(stopped: bool, target: Option<&'static str>, otherwise: &'static str) -> Self {
        let target = target.filter(|_| stopped);
        Self {
            action: if stopped { "drop" } else { otherwise },
            reject: target.map(|_| ["tcp-reset"]),
            reject_target: target,
        }
    }
}

/// Returns the ends that were sent a reset. Only the guard sends any; for a capture it returns those that
/// would get one.
fn reject_target(source: EventSource, rejected: bool, resets: Option<&ResetFacts>) -> Option<&'static str> {
    let Some(resets) = resets else { return (rejected && source != EventSource::Guard).then_some("both") };
    match (resets.to_client.is_sent(), resets.to_server.is_sent()) {
        (true, true) => Some("both"),
        (true, false) => Some("to_client"),
        (false, true) => Some("to_server"),
        (false, false) => None,
    }
}

fn event_type(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Application(said) => said.name(),
        EventKind::Alert(_) => "alert",
        EventKind::Drop(_) => "drop",
        EventKind::Flow(_) => "flow",
        EventKind::Anomaly(_) => "anomaly",
        EventKind::Connect(_) => "connect",
        EventKind::Stats(_) => "stats",
        EventKind::Hook(_) => "hook",
        EventKind::Ban(_) => "ban",
        EventKind::Change(_) => "change",
    }
}

/// Returns the sender of the event's banner or packet. An event about a whole flow is written from the
/// client's side, as EVE does.
fn sender(kind: &EventKind, flow: &FlowContext) -> Option<Side> {
    match kind {
        EventKind::Application(_)
        | EventKind::Flow(_)
        | EventKind::Connect(_)
        | EventKind::Stats(_)
        | EventKind::Hook(_)
        | EventKind::Ban(_)
        | EventKind::Change(_) => None,
        EventKind::Alert(facts) => Some(facts.from),
        EventKind::Drop(_) | EventKind::Anomaly(_) => flow.from,
    }
}

fn protocol(kind: &EventKind, flow: &FlowContext) -> Option<Protocol> {
    match kind {
        EventKind::Application(said) => Some(said.protocol()),
        _ => flow.protocol,
    }
}

/// Returns the protocol of a flow, if it is known.
fn name(flow: &FlowContext) -> Option<&'static str> {
    match (flow.protocol?, flow.transport) {
        (Protocol::Tls, TransportProtocol::Udp) => Some("quic"),
        (protocol, _) => Some(protocol.name()),
    }
}

/// Returns EVE's name of a protocol. For a protocol that is not read, it is the name by the first bytes,
/// or that nothing was recognized.
fn app_proto(kind: &EventKind, protocol: Protocol, transport: TransportProtocol) -> &'static str {
    let said = match kind {
        EventKind::Application(said) => Some(said),
        EventKind::Alert(facts) => Some(&facts.application),
        _ => None,
    };
    match (protocol, said) {
        (Protocol::Other, Some(ApplicationFacts::Other(facts))) if facts.name != UNKNOWN => facts.name,
        (Protocol::Other, _) => "failed",
        (Protocol::Tls, _) if transport == TransportProtocol::Udp => "quic",
        (protocol, _) => protocol.name(),
    }
}

fn direction(from: Side) -> &'static str {
    match from {
        Side::Client => "to_server",
        Side::Server => "to_client",
    }
}
