//! Packets in, decisions and events out: the one inspector behind guard and replay.
//!
//! The engine does no I/O, reads no clock, and never waits. It finds each packet's flow, collects the first
//! bytes of both directions in order, recognises SSH, HTTP and others by those bytes, or opens the first
//! packets of QUIC, asks the rules about every complete banner and says what to do with the packet.
//!
//! The segment that completes a matching banner is the one that is stopped, so that its receiver
//! never has the whole banner. Decided flows cost a look-up and nothing else.

mod accounts;
mod admission;
mod allowance;
mod barred;
mod bench;
mod config;
mod conversation;
mod counters;
mod decision;
mod dialogue;
mod enforcement;
pub mod evasion;
mod facts;
mod familiar;
mod flows;
mod judge;
mod policy;
mod quic;
mod quota;
mod release;
mod remembered;
mod segment;
mod silence;
mod standing;

use std::sync::Arc;
use std::time::Duration;

pub use self::config::{EngineConfig, HttpInspect, OnFailure, Timeouts};
pub use self::counters::{Counters, FlowCounts};
pub use self::decision::{BanRequest, Checksums, Decision, Inspected, PacketInput, Resets};
pub use self::enforcement::EnforceOnly;
pub use self::policy::{AnomalyAction, AnomalyPolicy};
pub use self::remembered::{Remembered, Unseen};
pub use crate::flow::{Anomaly, Tracking};

use self::bench::Bench;
use self::conversation::Conversation;
use self::flows::Flows;
use self::quic::Datagrams;
use crate::event::{AnomalyFacts, DropFacts, Event, EventKind, EventSink, FlowEnd, PacketHeader, Timestamp};
use crate::flow::{Class, Flow};
use crate::packet::{self, Fragment, PacketError, Parsed, Reassembled, Reassembler, ReassemblyLimits};
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;

/// The largest copy range that a netfilter queue gives: more of a packet can't be asked for.
const COPY_LIMIT: usize = 65_531;

/// Flows of each class that one tick forgets at most, so that it stays short.
const TICK_LIMIT: usize = 1 << 14;

/// The inspector.
#[derive(Debug)]
pub struct Engine {
    flows: Flows,
    datagrams: Datagrams,
    fragments: Reassembler,
    bench: Bench,
    /// When packets went by that nobody has shown, or were known to have.
    missed: Option<Timestamp>,
    /// True while a packet is followed that passes whatever it holds.
    passes_by: bool,
}

/// So long after packets went by unseen the flows of that time may show it: what their ends repeat comes
/// again within it (RFC 6298 section 2.4 has a minute as the least bound of a retransmission's timer).
const MISSED_SHOWS: Duration = Duration::from_secs(120);

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(config: EngineConfig, rules: Arc<RuleSet>, fingerprints: Option<Arc<Fingerprints>>) -> Self {
        Self {
            flows: Flows::new(config.flow_limit),
            datagrams: Datagrams::new(&config),
            fragments: Reassembler::new(ReassemblyLimits::default()),
            bench: Bench::new(config, rules, fingerprints),
            missed: None,
            passes_by: false,
        }
    }

    /// Takes one packet and says what to do with it.
    pub fn inspect(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) -> Inspected {
        let inspected = self.inspect_any(packet, sink);
        let counters = &mut self.bench.desk.counters;
        if !matches!(inspected.decision, Decision::More { .. }) {
            counters.packets += 1;
            counters.octets += packet.wire_length.max(packet.ip.len()) as u64;
        }
        counters.count_decision(&inspected.decision);
        inspected
    }

    /// Returns the ban that the last packet led to.
    pub fn take_ban(&mut self) -> Option<Box<BanRequest>> {
        self.bench.desk.ban.take()
    }

    /// Forgets flows that have been silent for too long, and tells what they still owed.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        let mut sitting = self.bench.sit(sink);
        self.flows.end_the_late(now, &mut sitting);
        self.flows.end_the_silent(now, &mut sitting);
        for class in Class::ALL {
            let timeout = sitting.law.config.timeouts.of(class);
            for _ in 0..TICK_LIMIT {
                let Some(id) = self.flows.table.expired(class, timeout, now) else { break };
                self.flows.forget(id, FlowEnd::Timeout, now, &mut sitting);
            }
        }
        self.flows.refresh(&mut sitting.desk.counters);
        self.datagrams.tick(now, &mut sitting);
    }

    /// Forgets every flow, at the end of the input, and tells what they still owed.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        let mut sitting = self.bench.sit(sink);
        for class in Class::ALL {
            while let Some(id) = self.flows.table.oldest(class) {
                self.flows.forget(id, FlowEnd::Shutdown, now, &mut sitting);
            }
        }
        self.flows.refresh(&mut sitting.desk.counters);
        self.datagrams.finish(now, &mut sitting);
        self.fragments = Reassembler::new(ReassemblyLimits::default());
    }

    /// Takes note that packets have gone by lately that were not shown, as a full queue lets them under
    /// `--on-failure open`.
    ///
    /// The ends of flows of that time then speak of bytes that were never seen, and go on speaking of them:
    /// they are gone over like what a capture lacks, and not refused for ever.
    pub fn note_missed(&mut self, now: Timestamp) {
        self.missed = Some(now);
    }

    /// Follows a TCP segment that passes unjudged, as one that has waited for too long does. Its bytes count
    /// as missing, so that copies of them that come later are old, and lead to no alert or drop of what has
    /// passed.
    pub fn pass_by(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) {
        let Ok(Parsed::Tcp(segment)) = packet::parse(packet.ip, packet.wire_length) else { return };
        if packet.checksums == Checksums::Verify && segment.is_whole() && !segment.checksums_valid() {
            return;
        }
        let headers = packet.ip.len().saturating_sub(segment.payload().len());
        let ip = packet.ip.get(..headers).unwrap_or_default();
        let packet = PacketInput { ip, checksums: Checksums::NotReady, ..*packet };
        let Ok(Parsed::Tcp(segment)) = packet::parse(packet.ip, packet.wire_length) else { return };
        let enforce = std::mem::replace(&mut self.bench.law.config.enforce, false);
        self.passes_by = true;
        self.inspect_segment(&segment, &packet, sink);
        self.passes_by = false;
        self.bench.law.config.enforce = enforce;
    }

    /// True if packets of a flow may have gone by unseen.
    fn may_have_missed(&self, flow: &Flow<Conversation>, now: Timestamp) -> bool {
        self.missed.is_some_and(|missed| flow.started() <= missed && now.since(missed) <= MISSED_SHOWS)
    }

    /// Puts other rules in force; counts of rules that stay (by their id) go on.
    pub fn set_rules(&mut self, rules: Arc<RuleSet>) {
        self.bench.set_rules(rules);
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.bench.law.rules
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.bench.desk.counters
    }

    /// What it was told at its start.
    pub fn config(&self) -> &EngineConfig {
        &self.bench.law.config
    }

    fn inspect_any(&mut self, packet: &PacketInput<'_>, sink: &mut dyn EventSink) -> Inspected {
        match packet::parse(packet.ip, packet.wire_length) {
            Ok(Parsed::Tcp(segment)) => self.inspect_segment(&segment, packet, sink),
            Ok(Parsed::Fragment(fragment)) => self.inspect_fragment(&fragment, packet, sink),
            Ok(Parsed::Udp(datagram)) => self.inspect_datagram(&datagram, packet, sink),
            Ok(Parsed::Other) => {
                self.bench.desk.counters.not_tcp += 1;
                Decision::Pass.into()
            }
            Err(PacketError::Captured { needed, .. }) if self.may_ask_for_more(packet) => {
                Decision::More { octets: needed }.into()
            }
            Err(_) => {
                self.bench.desk.counters.malformed += 1;
                self.note_packet(Anomaly::MalformedPacket, packet, sink)
            }
        }
    }

    fn inspect_fragment(
        &mut self,
        fragment: &Fragment<'_>,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        if !fragment.is_whole() && self.may_ask_for_more(packet) {
            return Decision::More { octets: packet.wire_length }.into();
        }
        self.bench.desk.counters.fragments += 1;
        match self.fragments.push(fragment, packet.now) {
            Reassembled::Waiting => Decision::Undecided.into(),
            Reassembled::Conflict => self.note_packet(Anomaly::FragmentConflict, packet, sink),
            Reassembled::Malformed => self.note_packet(Anomaly::FragmentMalformed, packet, sink),
            Reassembled::Whole(whole) => {
                self.bench.desk.counters.reassembled += 1;
                let whole = PacketInput { ip: &whole, wire_length: whole.len(), ..*packet };
                match packet::parse(whole.ip, whole.wire_length) {
                    Ok(Parsed::Tcp(segment)) => {
                        let inspected = self.inspect_segment(&segment, &whole, sink);
                        // The bytes to change are not in the fragment that came last.
                        let changed = matches!(inspected.decision, Decision::Patch(_));
                        if changed { Decision::Drop.into() } else { inspected }
                    }
                    Ok(Parsed::Udp(datagram)) => self.inspect_datagram(&datagram, &whole, sink),
                    Ok(_) => Decision::Pass.into(),
                    Err(_) => {
                        self.bench.desk.counters.malformed += 1;
                        self.note_packet(Anomaly::MalformedPacket, packet, sink)
                    }
                }
            }
        }
    }

    /// True if the packet can be shown again with more of its bytes.
    fn may_ask_for_more(&self, packet: &PacketInput<'_>) -> bool {
        self.bench.law.tracking == Tracking::Inline
            && !self.passes_by
            && packet.ip.len() < packet.wire_length
            && packet.ip.len() < COPY_LIMIT
    }

    /// An anomaly of a packet that belongs to no flow.
    fn note_packet(
        &mut self,
        anomaly: Anomaly,
        packet: &PacketInput<'_>,
        sink: &mut dyn EventSink,
    ) -> Inspected {
        self.bench.desk.counters.count_anomaly(anomaly);
        let told = self.bench.desk.quotas.of(anomaly).admit(packet.now);
        let mut emit = |kind| {
            let (timestamp, source) = (packet.now, self.bench.law.config.source);
            sink.emit(Event { timestamp, source, flow: None, kind });
        };
        match told {
            Some(suppressed) => {
                let detail = quota::detail(anomaly.detail(), suppressed);
                emit(EventKind::Anomaly(AnomalyFacts::new(anomaly, detail)));
            }
            None => self.bench.desk.counters.events_suppressed += 1,
        }
        if !self.bench.law.config.on_anomaly.drops(anomaly) {
            return Decision::Undecided.into();
        }
        let config = &self.bench.law.config;
        let enforces = config.enforce && config.enforce_only.holds_packet(packet.ip);
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

impl Timeouts {
    const fn of(&self, class: Class) -> std::time::Duration {
        match class {
            Class::Opening => self.opening,
            Class::Unconfirmed => self.unconfirmed,
            Class::Undecided => self.undecided,
            Class::Passed => self.passed,
            Class::Blocked => self.blocked,
            Class::Closed => self.closed,
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
