//! Packets in, decisions and events out: the one inspector behind guard and replay.
//!
//! The engine does no I/O, reads no clock, and never waits. It finds each packet's flow, collects the first
//! bytes of both directions in order, recognises SSH, HTTP and others by those bytes, or opens the first
//! packets of QUIC, asks the rules about every complete banner and decides what to do with the packet.
//!
//! The segment that completes a matching banner is the one that is stopped, so that its receiver
//! never has the whole banner. Decided flows cost a look-up and nothing else.
//!
//! # The way of a segment
//!
//! Knowledge points one way: each layer knows those above it in this table, and none below.
//!
//! - `dialogue` takes bytes of both sides, in order, and gives a `Finding` for each banner, oddity and
//!   exchange
//! - `banner_inspector` takes findings; asks the rules, emits events, and gives one `PacketOutcome`: stop,
//!   refusal, mark, notes for the flow's record
//! - `admission`, `undecided_flow` takes a flow's bytes, and gives whether its policy allows it; what is
//!   unread, held or missing
//! - `tcp_flows`, `silent_flows`, `flow_accounts` takes flows, and gives room for them, their timers and
//!   records
//! - `segment`, `quic` takes a segment, a datagram, and gives a [`Decision`], by the outcome
//!
//! `dialogue/cases` tests each protocol's dialogue by itself; `cases` tests the whole by packets. The context
//! that all layers get (settings and rules to read, counters and caches to write) is `context`.

mod admission;
mod anomaly_policy;
mod banner_inspector;
mod blocked_keys;
mod body_offload;
mod config;
mod context;
mod counters;
mod decided_flows;
mod decision;
mod dialogue;
mod enforcement;
pub mod evasion;
mod event_quota;
mod flow_accounts;
mod flow_facts;
mod identification_cache;
mod midstream_roles;
mod mirrored_roles;
mod offload_state;
mod outcome;
mod quic;
mod report_limit;
mod response_offload;
mod segment;
mod silent_flows;
mod tcp_flows;
mod undecided_flow;

use std::sync::Arc;

pub use self::anomaly_policy::{AnomalyAction, AnomalyPolicy};
pub use self::config::{EngineConfig, FlowTimeouts, HttpInspect, OnFailure};
pub use self::counters::{EngineCounters, FlowCounts};
pub use self::decided_flows::{DecidedFlow, UnseenBody};
pub use self::decision::{BanRequest, ChecksumState, Decision, InspectionResult, PacketInput, ResetPair};
pub use self::enforcement::EnforceOnly;
pub use crate::flow::{Anomaly, TrackingMode};

use self::context::EngineContext;
use self::quic::QuicFlows;
use self::segment::SegmentInspector;
use self::tcp_flows::TcpFlows;
use crate::event::{
    AnomalyFacts, DropFacts, Event, EventKind, EventSink, FlowEnd, PacketHeader, Timestamp, TransportProtocol,
};
use crate::flow::{FlowClass, FlowKey};
use crate::packet::{
    self, FragmentReassembler, IpFragment, PacketError, PacketPatch, ParsedPacket, ReassemblyLimits,
    ReassemblyResult, Segment,
};
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;

/// Flows of each class that one tick forgets at most, so that it stays short.
const TICK_LIMIT: usize = 1 << 14;

/// The inspector.
#[derive(Debug)]
pub struct Engine {
    flows: TcpFlows,
    datagrams: QuicFlows,
    fragments: FragmentReassembler,
    context: EngineContext,
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(config: EngineConfig, rules: Arc<RuleSet>, fingerprints: Option<Arc<FingerprintSet>>) -> Self {
        Self {
            flows: TcpFlows::new(config.flow_limit),
            datagrams: QuicFlows::new(&config),
            fragments: FragmentReassembler::new(ReassemblyLimits::default()),
            context: EngineContext::new(config, rules, fingerprints),
        }
    }

    /// Takes one packet and says what to do with it.
    pub fn inspect(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) -> InspectionResult {
        let inspected = self.inspect_any(packet, sink);
        let counters = &mut self.context.shared.counters;
        if !matches!(inspected.decision, Decision::More { .. }) {
            counters.packets += 1;
            counters.octets += packet.wire_length.max(packet.ip.len()) as u64;
        }
        counters.count_decision(&inspected.decision);
        inspected
    }

    /// Returns the ban that the last packet led to.
    pub fn take_ban(&mut self) -> Option<Box<BanRequest>> {
        self.context.shared.ban.take()
    }

    /// Forgets flows that have been silent for too long, and tells what they still owed.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        let mut session = self.context.session(sink);
        // Before idle flows expire: an overdue banner blocks or passes its flow, and expiry would only forget
        // it.
        self.flows.end_overdue_banners(now, &mut session);
        self.flows.end_silent_flows(now, &mut session);
        for class in FlowClass::ALL {
            let timeout = session.settings.config.timeouts.of(class);
            for _ in 0..TICK_LIMIT {
                let Some(id) = self.flows.table.expired(class, timeout, now) else { break };
                self.flows.forget(id, FlowEnd::Timeout, now, &mut session);
            }
        }
        self.flows.refresh(&mut session.shared.counters);
        self.datagrams.tick(now, &mut session);
    }

    /// Forgets every flow, at the end of the input, and tells what they still owed.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        let mut session = self.context.session(sink);
        for class in FlowClass::ALL {
            while let Some(id) = self.flows.table.oldest(class) {
                self.flows.forget(id, FlowEnd::Shutdown, now, &mut session);
            }
        }
        self.flows.refresh(&mut session.shared.counters);
        self.datagrams.finish(now, &mut session);
        // Fragments of packets that never became whole have nothing to report.
        self.fragments = FragmentReassembler::new(ReassemblyLimits::default());
    }

    /// Takes note that packets have gone by lately that were not shown, as a full queue lets them under
    /// `--on-failure open`.
    ///
    /// The ends of flows of that time then speak of bytes that were never seen, and go on speaking of them:
    /// they are gone over like what a capture lacks, and not refused for ever.
    pub fn record_missed(&mut self, now: Timestamp) {
        self.flows.note_missed(now);
    }

    /// Follows a TCP segment that passes unjudged, as one that has waited for too long does. Its bytes count
    /// as missing, so that copies of them that come later are old, and lead to no alert or drop of what has
    /// passed.
    pub fn follow_uninspected(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) {
        let Ok(ParsedPacket::Tcp(segment)) = packet::parse(packet.ip, packet.wire_length) else { return };
        if packet.checksums == ChecksumState::Verify && segment.is_whole() && !segment.checksums_valid() {
            return;
        }
        // Parsed again from the headers alone, so that the payload counts as bytes that were not captured.
        let headers = packet.ip.len().saturating_sub(segment.payload().len());
        let ip = packet.ip.get(..headers).unwrap_or_default();
        let packet = PacketInput { ip, checksums: ChecksumState::NotReady, ..*packet };
        let Ok(ParsedPacket::Tcp(segment)) = packet::parse(packet.ip, packet.wire_length) else { return };
        // The packet passes in any case, so it must not stop its flow.
        let enforce = std::mem::replace(&mut self.context.settings.config.enforce, false);
        self.context.passes_by = true;
        self.inspect_segment(&segment, &packet, sink);
        self.context.passes_by = false;
        self.context.settings.config.enforce = enforce;
    }

    /// Undecided flows whose bodies go by unseen.
    pub fn offloaded_flows(&self) -> Vec<UnseenBody> {
        decided_flows::offloaded_flows(&self.flows)
    }

    /// Takes note that the kernel may let a flow's body by.
    pub fn expect_offload(&mut self, unseen: &UnseenBody) {
        decided_flows::expect_offload(&mut self.flows, unseen);
    }

    /// Decided flows as of `now`, `limit` at most: those that are blocked first, then those that were seen
    /// last.
    pub fn decided_flows(&self, now: Timestamp, limit: usize) -> Vec<DecidedFlow> {
        decided_flows::decided_flows(&self.flows, &self.datagrams, &self.context.shared.marks, now, limit)
    }

    /// Takes a decided flow over, unless it is known or there is no room for it.
    pub fn restore_decided(&mut self, flow: &DecidedFlow, now: Timestamp) {
        decided_flows::restore(flow, &mut self.flows, &mut self.datagrams, &mut self.context, now);
    }

    /// True if a flow is known and not decided yet.
    pub fn is_undecided(&self, transport: TransportProtocol, key: &FlowKey) -> bool {
        match transport {
            TransportProtocol::Tcp => decided_flows::is_undecided(&self.flows.table, key),
            TransportProtocol::Udp => decided_flows::is_undecided(self.datagrams.table(), key),
        }
    }

    /// Puts other rules in force; counts of rules that stay (by their id) go on.
    pub fn set_rules(&mut self, rules: Arc<RuleSet>) {
        self.context.set_rules(rules);
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.context.settings.rules
    }

    /// Returns the counters.
    pub fn counters(&self) -> &EngineCounters {
        &self.context.shared.counters
    }

    /// Returns the configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.context.settings.config
    }

    fn inspect_any(&mut self, packet: &PacketInput<'_>, sink: &mut dyn EventSink) -> InspectionResult {
        match packet::parse(packet.ip, packet.wire_length) {
            Ok(ParsedPacket::Tcp(segment)) => self.inspect_segment(&segment, packet, sink),
            Ok(ParsedPacket::Fragment(fragment)) => self.inspect_fragment(&fragment, packet, sink),
            Ok(ParsedPacket::Udp(datagram)) => {
                self.datagrams.inspect(&datagram, packet, &mut self.context, sink)
            }
            Ok(ParsedPacket::Other) => {
                self.context.shared.counters.not_tcp += 1;
                Decision::Pass.into()
            }
            Err(PacketError::Captured { needed, .. }) if self.context.may_ask_for_more(packet) => {
                Decision::More { octets: needed }.into()
            }
            Err(_) => {
                self.context.shared.counters.malformed += 1;
                self.note_packet(Anomaly::MalformedPacket, packet, sink)
            }
        }
    }

    fn inspect_segment(
        &mut self,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        let Self { flows, context, .. } = self;
        SegmentInspector { flows, context }.inspect(segment, packet, sink)
    }

    fn inspect_fragment(
        &mut self,
        fragment: &IpFragment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        if !fragment.is_whole() && self.context.may_ask_for_more(packet) {
            return Decision::More { octets: packet.wire_length }.into();
        }
        self.context.shared.counters.fragments += 1;
        // Fragments pass as they come. Without the one that completes a packet its receiver has no packet
        // either.
        match self.fragments.push(fragment, packet.now) {
            ReassemblyResult::Waiting => Decision::Undecided.into(),
            ReassemblyResult::Conflict => self.note_packet(Anomaly::FragmentConflict, packet, sink),
            ReassemblyResult::Malformed => self.note_packet(Anomaly::FragmentMalformed, packet, sink),
            ReassemblyResult::Whole(whole) => {
                self.context.shared.counters.reassembled += 1;
                // The decision about the whole packet is the verdict on its last fragment.
                let whole = PacketInput { ip: &whole, wire_length: whole.len(), ..*packet };
                match packet::parse(whole.ip, whole.wire_length) {
                    Ok(ParsedPacket::Tcp(segment)) => {
                        let inspected = self.inspect_segment(&segment, &whole, sink);
                        // The bytes to change are not in the fragment that came last. A whole packet can
                        // take its place.
                        let changed = matches!(&inspected.decision, Decision::Patch(patch)
                            if matches!(**patch, PacketPatch::Write { .. }));
                        if changed { Decision::Drop.into() } else { inspected }
                    }
                    Ok(ParsedPacket::Udp(datagram)) => {
                        self.datagrams.inspect(&datagram, &whole, &mut self.context, sink)
                    }
                    Ok(_) => Decision::Pass.into(),
                    Err(_) => {
                        self.context.shared.counters.malformed += 1;
                        self.note_packet(Anomaly::MalformedPacket, packet, sink)
                    }
                }
            }
        }
    }

    /// An anomaly of a packet that belongs to no flow.
    fn note_packet(
        &mut self,
        anomaly: Anomaly,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        self.context.shared.counters.count_anomaly(anomaly);
        let told = self.context.shared.quotas.of(anomaly).admit(packet.now);
        let mut emit = |kind| {
            let (timestamp, source) = (packet.now, self.context.settings.config.source);
            sink.emit(Event { timestamp, source, flow: None, kind });
        };
        match told {
            Some(suppressed) => {
                let detail = event_quota::detail(anomaly.detail(), suppressed);
                emit(EventKind::Anomaly(AnomalyFacts::new(anomaly, detail)));
            }
            None => self.context.shared.counters.events_suppressed += 1,
        }
        if !self.context.settings.config.on_anomaly.drops(anomaly) {
            return Decision::Undecided.into();
        }
        let config = &self.context.settings.config;
        let enforces = config.enforce && config.enforce_only.holds_packet(packet.ip);
        // A drop without a flow is as cheap to provoke as its anomaly, so both have the same quota.
        if enforces && told.is_some() {
            emit(EventKind::Drop(DropFacts {
                reason: anomaly.drop_reason(),
                rule: None,
                rejected: false,
                resets: None,
                header: PacketHeader::default(),
            }));
        }
        if enforces { Decision::Drop.into() } else { Decision::Undecided.into() }
    }
}

impl FlowTimeouts {
    const fn of(&self, class: FlowClass) -> std::time::Duration {
        match class {
            FlowClass::Opening => self.opening,
            FlowClass::Unconfirmed => self.unconfirmed,
            FlowClass::Undecided => self.undecided,
            FlowClass::Passed => self.passed,
            FlowClass::Blocked => self.blocked,
            FlowClass::Closed => self.closed,
        }
    }
}

#[cfg(test)]
mod application_tests;
#[cfg(test)]
mod ban_tests;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod framing_tests;
#[cfg(test)]
mod missed_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
