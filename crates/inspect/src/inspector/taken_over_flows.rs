//! Results of inspecting a predecessor's packets again: only what the own rules find in them.
//!
//! Those packets have passed already. If a rule rejects such a flow, the resets use the sequence numbers
//! after the flow's last packet.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::packet_log::{InspectorState, Name, name};
use crate::engine::{ChecksumState, PacketInput, ResetPair};
use crate::event::{DropReason, Event, EventKind, FlowEnd, Timestamp};
use crate::flow::{FlowKey, distance};
use crate::packet::{self, ParsedPacket, Segment};
use crate::rules::RuleSet;

/// Distance from earlier segments within which a segment belongs to the same connection.
const STRANGE: u32 = 1 << 20;

/// Result of taking over another inspector's flows.
#[derive(Debug, Default)]
pub struct TakenOverFlows {
    /// The numbers to count.
    pub news: TakeoverCounts,
    /// Rejected flows.
    pub rejections: Vec<RejectedFlow>,
}

/// Numbers that the other inspector has not counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TakeoverCounts {
    /// Number of flows that were dropped without resets.
    pub dropped: u64,
    /// Number of flows that were rejected: dropped, with resets for their ends.
    pub rejected: u64,
    /// Matches by the rule's index in the rule set in force.
    pub matches: BTreeMap<usize, u64>,
    /// Number of flows that a policy refused, by the policy's id.
    pub refusals: BTreeMap<String, u64>,
}

/// A flow that is rejected because of its earlier packets.
#[derive(Debug)]
pub struct RejectedFlow {
    /// Resets for its ends, by the data that they have received.
    pub resets: ResetPair,
    /// The interface of its packets.
    pub interface: Option<Arc<str>>,
    /// Its events, without the results of the resets.
    pub events: Vec<Event>,
}

/// True if an event is new, given that its packet stops a flow.
pub(super) fn is_news(event: &Event) -> bool {
    match &event.kind {
        EventKind::Alert(_) | EventKind::Drop(_) => true,
        EventKind::Flow(record) => record.end == FlowEnd::Stopped,
        _ => false,
    }
}

impl TakeoverCounts {
    /// Counts a packet's results: the numbers of stopped flows before and after it, its events, and the
    /// rules in them.
    pub(super) fn count_results(
        &mut self,
        before: [u64; 2],
        behind: [u64; 2],
        told: &[Event],
        rules: &RuleSet,
    ) {
        self.dropped += behind[0].saturating_sub(before[0]);
        self.rejected += behind[1].saturating_sub(before[1]);
        for event in told {
            match &event.kind {
                EventKind::Alert(facts) if !facts.is_exempt() => {
                    let index = rules.rules().iter().position(|rule| rule.id() == facts.rule);
                    index.into_iter().for_each(|index| *self.matches.entry(index).or_default() += 1);
                }
                EventKind::Drop(facts) if facts.reason == DropReason::Policy => {
                    let policy = facts.rule.iter().cloned();
                    policy.for_each(|policy| *self.refusals.entry(policy).or_default() += 1);
                }
                _ => {}
            }
        }
    }
}

/// Positions of the ends of rejected flows.
#[derive(Debug, Default)]
pub(super) struct SequenceTracker(HashMap<Name, FlowSequence, ahash::RandomState>);

#[derive(Debug, Default)]
struct FlowSequence {
    /// The number after everything that each end has sent, the low end first.
    next: [Option<u32>; 2],
    /// The last of the kept packets.
    last: Option<usize>,
    events: Vec<Event>,
}

impl SequenceTracker {
    /// Records that the flow of a packet is rejected.
    pub(super) fn track_rejected(&mut self, packet: &PacketInput<'_>, events: impl Iterator<Item = Event>) {
        if let Some(name) = name(packet) {
            self.0.entry(name).or_default().events.extend(events);
        }
    }

    /// Returns the rejections, after all packets of their flows.
    pub(super) fn rejections(mut self, state: &InspectorState, now: Timestamp) -> Vec<RejectedFlow> {
        if self.0.is_empty() {
            return Vec::new();
        }
        for (at, kept) in state.kept.iter().enumerate() {
            let packet = kept.packet(now);
            let Some(course) = name(&packet).and_then(|name| self.0.get_mut(&name)) else { continue };
            if let Ok(ParsedPacket::Tcp(segment)) = packet::parse(packet.ip, packet.wire_length) {
                course.follow(at, &segment, packet.checksums);
            }
        }
        let mut courses: Vec<FlowSequence> = self.0.into_values().collect();
        courses.sort_unstable_by_key(|course| course.last);
        courses.into_iter().filter_map(|course| course.end(state)).collect()
    }
}

impl FlowSequence {
    /// Moves the position by a segment.
    fn follow(&mut self, at: usize, segment: &Segment<'_>, checksums: ChecksumState) {
        if checksums == ChecksumState::Verify && segment.is_whole() && !segment.checksums_valid() {
            return;
        }
        let (_, from) = FlowKey::of(segment);
        let flags = segment.flags();
        if flags.syn() && !flags.ack() {
            // Another connection with the same ports.
            self.next = [None; 2];
        }
        let behind = segment.sequence().wrapping_add(segment.sequence_length());
        let [low, high] = &mut self.next;
        let next = if from as usize == 0 { low } else { high };
        let ahead = next.map_or(0, |next| distance(next, behind));
        if ahead.unsigned_abs() > STRANGE {
            return;
        }
        if next.is_none() || ahead > 0 {
            *next = Some(behind);
        }
        self.last = Some(at);
    }

    fn end(self, state: &InspectorState) -> Option<RejectedFlow> {
        let kept = state.kept.get(self.last?)?;
        let Ok(ParsedPacket::Tcp(segment)) = packet::parse(&kept.octets, kept.wire_length) else {
            return None;
        };
        let (_, from) = FlowKey::of(&segment);
        let [low, high] = self.next;
        let (own, other) = if from as usize == 0 { (low, high) } else { (high, low) };
        let resets = ResetPair::new(&segment, own.unwrap_or_else(|| segment.sequence()), other);
        Some(RejectedFlow { resets, interface: kept.interface.clone(), events: self.events })
    }
}
