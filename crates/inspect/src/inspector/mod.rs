//! The engine with the rules in force and its own time. Guard and replay both drive it, so that they give
//! the same results.
//!
//! It reads no clock and opens nothing: the caller passes packets and the time, and receives the events.

mod packet_log;
mod taken_over_flows;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::engine::{
    BanRequest, Decision, Engine, EngineConfig, EngineCounters, InspectionResult, PacketInput,
};
use crate::event::{Event, EventSink, Timestamp};
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;

use self::packet_log::PacketLog;
pub use self::packet_log::{InspectorState, LoggedPacket};
pub use self::taken_over_flows::{RejectedFlow, TakenOverFlows, TakeoverCounts};
use self::taken_over_flows::{SequenceTracker, is_news};
pub use crate::engine::{DecidedFlow, UnseenBody};

/// An engine with the rules in force and its own time.
#[derive(Debug)]
pub struct InlineInspector {
    engine: Engine,
    /// The rules that should be in force; they differ from the engine's after an exchange.
    in_force: Arc<ArcSwap<RuleSet>>,
    /// The rules that the engine uses.
    rules: Arc<RuleSet>,
    /// Interval of the search for silent flows.
    every: Duration,
    /// Time of the last search.
    ticked: Option<Timestamp>,
    /// The packets of undecided flows, for a successor.
    journal: Option<PacketLog>,
}

impl InlineInspector {
    /// Creates an inspector that searches for silent flows at the interval `every`.
    pub fn new(
        config: EngineConfig,
        in_force: Arc<ArcSwap<RuleSet>>,
        fingerprints: Option<Arc<FingerprintSet>>,
        every: Duration,
    ) -> Self {
        let rules = in_force.load_full();
        let engine = Engine::new(config, Arc::clone(&rules), fingerprints);
        Self { engine, in_force, rules, every, ticked: None, journal: None }
    }

    /// Keeps up to `octets` bytes of packets of undecided flows from now on, for [`Self::hand_over`].
    pub fn keep_packet_log(&mut self, octets: usize) {
        self.journal = Some(PacketLog::new(octets));
    }

    /// Inspects one packet and returns what to do with it.
    pub fn inspect(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) -> InspectionResult {
        let inspected = self.engine.inspect(packet, sink);
        if let Some(journal) = &mut self.journal {
            journal.take(packet, &inspected.decision);
        }
        inspected
    }

    /// Follows a packet that passes without judgement.
    pub fn follow_uninspected(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) {
        self.engine.follow_uninspected(packet, sink);
    }

    /// Returns the ban that the last packet caused.
    pub fn take_ban(&mut self) -> Option<Box<BanRequest>> {
        self.engine.take_ban()
    }

    /// True if it is time for [`Self::tick`]; the first call only starts the interval. Time may jump
    /// back, as that of captures does.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        now.since(*self.ticked.get_or_insert(now)) >= self.every
    }

    /// Removes flows that have been silent for too long, and emits their last events.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        self.ticked = Some(now);
        self.engine.tick(now, sink);
        if let Some(journal) = &mut self.journal {
            journal.remove_decided(|transport, key| self.engine.is_undecided(transport, key));
        }
    }

    /// Records that packets passed recently without inspection.
    pub fn record_missed(&mut self, now: Timestamp) {
        self.engine.record_missed(now);
    }

    /// Takes over exchanged rules and returns them. Read the counts by rule before, because they refer to
    /// the old rules.
    pub fn apply_new_rules(&mut self) -> Option<Arc<RuleSet>> {
        let in_force = self.in_force.load();
        if Arc::ptr_eq(&in_force, &self.rules) {
            return None;
        }
        self.rules = Arc::clone(&in_force);
        self.engine.set_rules(Arc::clone(&in_force));
        Some(Arc::clone(&self.rules))
    }

    /// Removes every flow at the end of the input, and emits their last events.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        self.engine.finish(now, sink);
        self.ticked = None;
    }

    /// Returns the state that a successor needs to continue all flows.
    pub fn hand_over(&mut self, now: Timestamp) -> InspectorState {
        let engine = &self.engine;
        let kept = self
            .journal
            .as_mut()
            .map(|journal| journal.hand_over(now, |transport, key| engine.is_undecided(transport, key)));
        let decided = engine.decided_flows(now, InspectorState::DECIDED);
        InspectorState { decided, kept: kept.unwrap_or_default(), unseen: engine.offloaded_flows() }
    }

    /// Continues the flows of another inspector. That one has emitted the events of their packets
    /// already. Only new results count: the rules in force here may block a flow that was undecided
    /// there.
    pub fn take_over(
        &mut self,
        state: &InspectorState,
        now: Timestamp,
        sink: &mut impl EventSink,
    ) -> TakenOverFlows {
        for flow in &state.decided {
            self.engine.restore_decided(flow, now);
        }
        let (mut taken, mut courses) = (TakenOverFlows::default(), SequenceTracker::default());
        let mut told: Vec<Event> = Vec::new();
        for kept in &state.kept {
            told.clear();
            let packet = kept.packet(now);
            let stopped = self.stopped();
            let decision = self.inspect(&packet, &mut told).decision;
            if !matches!(decision, Decision::Block | Decision::Reject(_)) {
                continue;
            }
            told.retain(is_news);
            taken.news.count_results(stopped, self.stopped(), &told, &self.rules);
            match decision {
                Decision::Reject(_) => courses.track_rejected(&packet, told.drain(..)),
                _ => told.drain(..).for_each(|event| sink.emit(event)),
            }
        }
        state.unseen.iter().for_each(|unseen| self.engine.expect_offload(unseen));
        taken.rejections = courses.rejections(state, now);
        taken
    }

    /// Numbers of flows that were dropped and rejected so far.
    fn stopped(&self) -> [u64; 2] {
        let counters = self.counters();
        [counters.flows_dropped, counters.flows_rejected]
    }

    /// The counters.
    pub fn counters(&self) -> &EngineCounters {
        self.engine.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ChecksumState;
    use crate::event::EventKind;
    use crate::packet::testing::{SegmentBuilder, endpoint};
    use crate::packet::{self, ParsedPacket, TcpFlags};

    fn second(number: u64) -> Timestamp {
        Timestamp::from_nanos(number * 1_000_000_000)
    }

    #[test]
    fn ticks_are_counted_from_the_first_time_that_is_told() {
        let rules = Arc::new(ArcSwap::from_pointee(RuleSet::empty()));
        let mut inspector =
            InlineInspector::new(EngineConfig::default(), rules, None, Duration::from_secs(2));
        assert_eq!([100, 101, 102, 50].map(|now| inspector.is_due(second(now))), [false, false, true, false]);
        inspector.tick(second(102), &mut Vec::new());
        assert_eq!([103, 104].map(|now| inspector.is_due(second(now))), [false, true]);
        inspector.finish(second(104), &mut Vec::new());
        assert!(!inspector.is_due(second(200)), "another input begins");
    }

    #[test]
    fn rules_are_taken_over_once_they_were_exchanged() {
        let rules = Arc::new(ArcSwap::from_pointee(RuleSet::empty()));
        let mut inspector =
            InlineInspector::new(EngineConfig::default(), Arc::clone(&rules), None, Duration::from_secs(1));
        assert!(inspector.apply_new_rules().is_none());
        let text = "[[rule]]\nid = 'a'\ntitle = 'A'\nprotocol = 'ssh'\nseverity = 'low'\naction = 'alert'\nmatch = { banner = 'x' }\n";
        rules.store(Arc::new(RuleSet::parse("a.toml", text).expect("a rule").rules));
        assert_eq!(inspector.apply_new_rules().expect("they were exchanged").rules().len(), 1);
        assert_eq!(inspector.counters().matches, [0], "the engine has them");
        assert!(inspector.apply_new_rules().is_none());
    }

    const OLD_SSH: &str = "[[rule]]\nid = 'old'\ntitle = 'Old'\nprotocol = 'ssh'\nfrom = 'server'\nseverity = 'low'\n\
                           action = 'drop'\nmatch.software = '^OpenSSH_7'\n";

    fn enforcing(rules: &str) -> InlineInspector {
        let rules = RuleSet::parse("a.toml", rules).expect("rules").rules;
        let config = EngineConfig { enforce: true, ..EngineConfig::default() };
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        let mut inspector = InlineInspector::new(config, rules, None, Duration::from_secs(2));
        inspector.keep_packet_log(1 << 20);
        inspector
    }

    /// What a server says, in segments behind a handshake.
    fn shown(
        inspector: &mut InlineInspector,
        said: &[&[u8]],
        told: &mut Vec<Event>,
        mut at: usize,
    ) -> Decision {
        let (client, server) = (endpoint("192.0.2.1:40000"), endpoint("198.51.100.1:22"));
        let syn = SegmentBuilder::new(client, server).sequence(99).flags(TcpFlags::SYN);
        let answer = SegmentBuilder::new(server, client).sequence(499).acknowledgement(100);
        let open = SegmentBuilder::new(client, server).sequence(100).acknowledgement(500);
        let mut segments = Vec::new();
        if at == 0 {
            segments = vec![syn, answer.flags(TcpFlags::SYN | TcpFlags::ACK), open];
        }
        for octets in said {
            let sequence = 500 + u32::try_from(at).expect("few octets");
            let segment = SegmentBuilder::new(server, client).sequence(sequence).acknowledgement(100);
            segments.push(segment.payload(octets));
            at += octets.len();
        }
        let decisions = segments.iter().map(|segment| {
            let octets = segment.build();
            let packet = PacketInput {
                now: second(10),
                ip: &octets,
                wire_length: octets.len(),
                checksums: ChecksumState::Verify,
                interface: None,
                vlan: &[],
                packet_number: None,
            };
            inspector.inspect(&packet, told).decision
        });
        decisions.last().expect("a segment")
    }

    #[test]
    fn half_a_banner_goes_on_in_another_inspector_and_is_told_once() {
        let (mut first, mut told) = (enforcing(OLD_SSH), Vec::new());
        assert_eq!(shown(&mut first, &[b"SSH-2.0-Open"], &mut told, 0), Decision::Undecided);
        let state = first.hand_over(second(12));
        assert_eq!((state.kept.len(), state.kept[0].age), (4, Duration::from_secs(2)));
        let mut next = enforcing(OLD_SSH);
        next.take_over(&state, second(1000), &mut told);
        assert!(told.is_empty(), "nothing is new");
        assert_eq!(shown(&mut next, &[b"SSH_7.2\r\n"], &mut told, 12), Decision::Block);
        assert!(told.iter().any(|event| matches!(event.kind, EventKind::Alert(_))));
        let state = next.hand_over(second(1001));
        assert_eq!((state.kept.len(), state.decided.len()), (0, 1));
        // The third does not know the rule, and the flow stays blocked.
        let mut third = enforcing("");
        third.take_over(&state, second(5), &mut told);
        assert_eq!(shown(&mut third, &[b"more"], &mut told, 21), Decision::Block);
    }

    #[test]
    fn rules_that_only_the_other_inspector_has_tell_of_what_was_said_before() {
        let (mut first, mut told) = (enforcing(""), Vec::new());
        let banner: &[u8] = b"SSH-2.0-OpenSSH_7.2\r\n";
        shown(&mut first, &[banner], &mut told, 0);
        told.clear();
        let state = first.hand_over(second(12));
        let mut next = enforcing(OLD_SSH);
        let taken = next.take_over(&state, second(13), &mut told);
        let news = TakeoverCounts { dropped: 1, matches: [(0, 1)].into(), ..TakeoverCounts::default() };
        assert_eq!((taken.news, taken.rejections.len()), (news, 0));
        let kinds = |kind: fn(&EventKind) -> bool| told.iter().filter(|event| kind(&event.kind)).count();
        assert_eq!(kinds(|kind| matches!(kind, EventKind::Alert(_))), 1, "{told:?}");
        assert_eq!(kinds(|kind| matches!(kind, EventKind::Drop(_))), 1);
        assert_eq!(told.len(), 2, "the rest was told");
        assert_eq!(shown(&mut next, &[b"more"], &mut told, banner.len()), Decision::Block);
    }

    #[test]
    fn what_is_rejected_by_what_was_said_before_is_reset_where_its_ends_are_now() {
        let (mut first, mut told) = (enforcing(""), Vec::new());
        let said: [&[u8]; 2] = [b"SSH-2.0-OpenSSH_7.2\r\n", b"and more"];
        shown(&mut first, &said, &mut told, 0);
        told.clear();
        let state = first.hand_over(second(12));
        let mut next = enforcing(&OLD_SSH.replace("drop", "reject"));
        let taken = next.take_over(&state, second(13), &mut told);
        assert!(told.is_empty(), "not before it is known what becomes of the resets");
        let news = TakeoverCounts { rejected: 1, matches: [(0, 1)].into(), ..TakeoverCounts::default() };
        assert_eq!(taken.news, news);
        let [rejection] = taken.rejections.try_into().expect("one flow");
        let kinds: Vec<_> = rejection.events.iter().map(|event| &event.kind).collect();
        assert!(matches!(kinds[..], [EventKind::Alert(_), EventKind::Drop(_)]), "{kinds:?}");
        let behind = 500 + u32::try_from(said.concat().len()).expect("few octets");
        for (octets, expected) in
            [(&rejection.resets.to_receiver, behind), (&rejection.resets.to_sender, 100)]
        {
            let Ok(ParsedPacket::Tcp(reset)) = packet::parse(octets, octets.len()) else {
                panic!("a segment")
            };
            assert!(reset.flags().rst());
            assert_eq!(reset.sequence(), expected);
        }
        assert_eq!(shown(&mut next, &[b"more"], &mut told, said.concat().len()), Decision::Block);
    }
}
