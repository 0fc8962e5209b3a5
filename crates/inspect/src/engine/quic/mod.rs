//! UDP flows: QUIC connections between two ports, each judged by its client's hello.
//!
//! A flow begins with an Initial that its own keys open: garbage takes no place in the table. What the
//! hello's parts came in is let through until the hello is whole; the datagram that makes it whole is the one
//! that is judged, so that no server has a hello that was not. All bytes of a hello are kept until
//! the server shows, by going on with the handshake, that it has them: what comes instead of them is dropped.
//!
//! Between the same two ports there may be many connections. Whatever begins one (a long header) is looked at
//! even where the flow may pass; packets with short headers are worth nothing to anybody who has no keys from
//! a hello, and pass.

mod association;
mod flow_datagram;
mod flow_record;
mod inspect_hello;
mod quic_connection;
#[cfg(test)]
mod tests;
mod udp_flows;

use self::association::QuicAssociation;
use self::flow_datagram::FlowDatagram;
use self::quic_connection::DatagramContents;
pub(super) use self::udp_flows::QuicFlows;
use self::udp_flows::new_inspector;
use super::banner_inspector::BannerInspector;
use super::context::{EngineContext, InspectionSession};
use super::decision::{ChecksumState, Decision, InspectionResult, PacketInput};
use super::flow_facts::FlowFacts;
use super::outcome::FlowStop;
use crate::banner::quic::{self, NextPacket};
use crate::event::{EventSink, Side};
use crate::flow::{Anomaly, AnomalySet, Flow, FlowClass, FlowDecision, FlowId, FlowKey, TrackingMode};
use crate::packet::Datagram;

impl QuicFlows {
    pub(super) fn inspect(
        &mut self,
        datagram: &Datagram<'_>,
        packet: &PacketInput<'_>,
        context: &mut EngineContext,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        let (key, from) = FlowKey::of_datagram(datagram);
        let seen = FlowDatagram { datagram, packet, key, from };
        let found = self.find(&key);
        let blocked = found.filter(|id| self.get(*id).ruling.blocks());
        if let Some(id) = blocked {
            self.count(id, seen, context);
            self.touch(id, packet);
            return InspectionResult { decision: Decision::Block, mark: None };
        }
        if !may_begin(seen) {
            return match found {
                Some(id) => {
                    self.count(id, seen, context);
                    self.inspect_later(id, seen, context)
                }
                None => {
                    context.shared.counters.not_tcp += 1;
                    Decision::Pass.into()
                }
            };
        }
        if !datagram.is_whole() && context.may_ask_for_more(packet) {
            return Decision::More { octets: datagram.wire_length() }.into();
        }
        if let Some(id) = found {
            self.count(id, seen, context);
        }
        if !datagram.is_whole() && context.settings.tracking == TrackingMode::Inline {
            // Longer than a queue shows.
            return self.refuse(found, seen, Anomaly::QuicUnreadable, context, sink);
        }
        if packet.checksums == ChecksumState::Verify && !datagram.checksums_valid() {
            return self.refuse(found, seen, Anomaly::BadChecksum, context, sink);
        }
        self.inspect_possible_start(found, seen, context, sink)
    }
}

/// True if a datagram may hold the first packet of a connection.
fn may_begin(seen: FlowDatagram<'_>) -> bool {
    let payload = seen.datagram.payload();
    let long = payload.first().is_some_and(|first| first & 0x80 != 0);
    // Of a packet that was cut its length tells nothing.
    let begins =
        long && (!seen.datagram.is_whole() || !matches!(quic::next_packet(payload), NextPacket::Other));
    begins || is_train(seen) && (!seen.datagram.is_whole() || quic::trains(payload).next().is_some())
}

/// True if what the kernel hands over may be many datagrams in one: the checksum of such is not written yet.
fn is_train(seen: FlowDatagram<'_>) -> bool {
    seen.packet.checksums == ChecksumState::NotReady
}

impl QuicFlows {
    /// A datagram of a flow that begins nothing.
    fn inspect_later(
        &mut self,
        id: FlowId,
        seen: FlowDatagram<'_>,
        context: &EngineContext,
    ) -> InspectionResult {
        let flow = self.touch(id, seen.packet);
        let mark = context.shared.marks.of(flow.label);
        let passes = flow.ruling == FlowDecision::Passed;
        InspectionResult { decision: if passes { Decision::Pass } else { Decision::Undecided }, mark }
    }

    /// A datagram that its receiver throws away, or should.
    fn refuse(
        &mut self,
        found: Option<FlowId>,
        seen: FlowDatagram<'_>,
        anomaly: Anomaly,
        context: &mut EngineContext,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        let facts = self.facts(found, seen);
        let mut judge = new_inspector(context.session(sink), facts, seen);
        let mut none = AnomalySet::default();
        let reported = match found {
            Some(id) => &mut self.get_mut(id).reported,
            None => &mut none,
        };
        judge.report_anomalies(AnomalySet::of(anomaly), reported);
        refused(&mut judge).unwrap_or(Decision::Undecided).into()
    }

    /// A datagram that may begin a connection.
    fn inspect_possible_start(
        &mut self,
        known: Option<FlowId>,
        seen: FlowDatagram<'_>,
        context: &mut EngineContext,
        sink: &mut dyn EventSink,
    ) -> InspectionResult {
        let facts = self.facts(known, seen);
        let mut association = match known {
            Some(id) => self.get_mut(id).conversation.take().unwrap_or_default(),
            None => Box::default(),
        };
        let mut session = context.session(sink);
        if !self.has_octets(seen.packet.now, &mut session) {
            if let Some(id) = known {
                self.put_back(id, association, session.shared);
            }
            return Self::refuse_flow(facts, seen, &mut session);
        }
        let found = association.read(seen.datagram.payload(), is_train(seen), seen, &mut self.room);
        let id = match known {
            Some(id) => id,
            None if association.is_empty() => {
                return Self::inspect_unrelated(&found, facts, seen, &mut session);
            }
            None => match self.begin(seen, &mut session) {
                Some(id) => id,
                None => return Self::refuse_flow(facts, seen, &mut session),
            },
        };
        if known.is_none() {
            session.shared.counters.datagrams += 1;
            association.volume(seen.from).add(seen.datagram.wire_length() as u64);
        }
        let facts = FlowFacts::of_datagrams(seen.key, self.get(id).started(), association.client(seen.from));
        let mut judge = new_inspector(session, facts, seen);
        association.last = seen.packet.now;
        association.judge_hellos(&mut judge);
        report_anomalies(&found, &mut self.get_mut(id).reported, &mut judge);
        let inspected = self.conclude(id, &mut association, &found, seen, &mut judge);
        association.notes.add(std::mem::take(&mut judge.outcome.notes));
        self.put_back(id, association, judge.shared);
        inspected
    }

    /// A datagram that belongs to no flow and begins none.
    fn inspect_unrelated(
        found: &DatagramContents,
        facts: FlowFacts,
        seen: FlowDatagram<'_>,
        session: &mut InspectionSession<'_>,
    ) -> InspectionResult {
        if !found.is_quic() {
            session.shared.counters.not_tcp += 1;
            return Decision::Pass.into();
        }
        session.shared.counters.datagrams += 1;
        let mut judge = new_inspector(session.reborrow(), facts, seen);
        report_anomalies(found, &mut AnomalySet::default(), &mut judge);
        refused(&mut judge).unwrap_or(Decision::Undecided).into()
    }

    /// Turns what a datagram led to into a decision, and puts the flow where it stands.
    fn conclude(
        &mut self,
        id: FlowId,
        association: &mut QuicAssociation,
        found: &DatagramContents,
        seen: FlowDatagram<'_>,
        judge: &mut BannerInspector<'_>,
    ) -> InspectionResult {
        let flow = self.touch(id, seen.packet);
        let mark = judge.shared.marks.add(&mut flow.label, judge.outcome.mark.take());
        let late = association.is_late(judge);
        let stopped = match judge.outcome.stop.take() {
            Some(stop) => self.stop(id, association, stop, judge),
            None if late => self.give_up(id, association, judge),
            None => None,
        };
        let dropped = stopped.or_else(|| refused(judge));
        if dropped.is_none() {
            association.remember_partial_hellos();
        }
        let condemned = found.condemned && judge.enforces();
        let (class, ruling) = match self.get(id).ruling {
            FlowDecision::Undecided | FlowDecision::Passed => association.standing(),
            blocked => (FlowClass::Blocked, blocked),
        };
        self.get_mut(id).ruling = ruling;
        self.set_class(id, class, seen.packet);
        let decision = match dropped {
            Some(decision) => decision,
            None if condemned => Decision::Drop,
            None if ruling == FlowDecision::Passed && !association.is_amid() => Decision::Pass,
            None => Decision::Undecided,
        };
        InspectionResult { decision, mark }
    }

    /// Stops the connection whose hello was judged with this datagram, or says that it would have been
    /// stopped.
    ///
    /// Where the server has not answered that very connection, only what belongs to its hello is dropped:
    /// anybody can send a hello with somebody else's address.
    fn stop(
        &mut self,
        id: FlowId,
        association: &mut QuicAssociation,
        stop: FlowStop,
        judge: &mut BannerInspector<'_>,
    ) -> Option<Decision> {
        judge.emit_drop(stop.reason, stop.rule, false);
        if !judge.enforces() {
            return None;
        }
        judge.shared.counters.count_blocked(false);
        let is_known = association.has_answered_suspect();
        association.block_hellos();
        if !is_known {
            return Some(Decision::Drop);
        }
        self.get_mut(id).ruling = FlowDecision::Blocked;
        association.forget_hellos();
        Some(Decision::Block)
    }

    /// The budget is spent without a whole hello.
    fn give_up(
        &mut self,
        id: FlowId,
        association: &mut QuicAssociation,
        judge: &mut BannerInspector<'_>,
    ) -> Option<Decision> {
        judge.shared.counters.budget_spent += 1;
        judge.report_anomalies(AnomalySet::of(Anomaly::BudgetSpent), &mut self.get_mut(id).reported);
        if judge.settings.config.on_anomaly.drops(Anomaly::BudgetSpent) {
            let reason = Anomaly::BudgetSpent.drop_reason();
            association.suspect_unfinished();
            let stopped = self.stop(id, association, FlowStop::because(reason), judge);
            if stopped.is_some() {
                return stopped;
            }
        }
        association.pass_unfinished();
        None
    }

    fn facts(&self, found: Option<FlowId>, seen: FlowDatagram<'_>) -> FlowFacts {
        let known = found.map(|id| self.get(id));
        let client = known.map(|flow| match &flow.conversation {
            Some(association) => association.client(seen.from),
            // Another engine has known it.
            None => flow.end(Side::Client),
        });
        let started = known.map_or(seen.packet.now, Flow::started);
        FlowFacts::of_datagrams(seen.key, started, client.unwrap_or(seen.from))
    }
}

/// Notes what was odd about a datagram.
fn report_anomalies(found: &DatagramContents, reported: &mut AnomalySet, judge: &mut BannerInspector<'_>) {
    judge.report_anomalies(found.anomalies, reported);
    if let Some(version) = found.unknown {
        let anomaly = Anomaly::QuicUnknownVersion;
        judge.report_anomaly_with(anomaly, &format!("{}: {}", anomaly.detail(), version.name()), reported);
    }
    // What was let through is fixed, whatever else is only to be told.
    if found.anomalies.contains(Anomaly::QuicConflict) && judge.enforces() {
        judge.outcome.refuse.get_or_insert(Anomaly::QuicConflict.drop_reason());
    }
}

/// The decision about a datagram that is refused by itself, if it is.
fn refused(judge: &mut BannerInspector<'_>) -> Option<Decision> {
    let reason = judge.outcome.refuse.take()?;
    judge.emit_drop(reason, None, false);
    judge.enforces().then_some(Decision::Drop)
}
