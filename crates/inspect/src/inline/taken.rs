//! What comes of showing an inspector the packets of another one's flows: what only its own rules see in
//! them.
//!
//! Those packets have gone by. What rejects a flow by one of them resets its ends by the numbers that the
//! packets behind it have brought them to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::journal::{Name, State, name};
use crate::engine::{Checksums, PacketInput, Resets};
use crate::event::{DropReason, Event, EventKind, FlowEnd, Timestamp};
use crate::flow::{FlowKey, distance};
use crate::packet::{self, Parsed, Segment};
use crate::rules::RuleSet;

/// How far a segment may lie from those before it, to be one of the same connection.
const STRANGE: u32 = 1 << 20;

/// What came of the flows of another inspector.
#[derive(Debug, Default)]
pub struct Taken {
    /// What is to be counted of it.
    pub news: News,
    /// Flows that are rejected.
    pub rejections: Vec<Rejection>,
}

/// What the other inspector has not counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct News {
    /// Flows that were stopped, and only that.
    pub dropped: u64,
    /// Flows that were stopped and whose ends get resets.
    pub rejected: u64,
    /// Matches by the rule's index in the rule set in force.
    pub matches: BTreeMap<usize, u64>,
    /// Flows that were not what a policy allows, by the policy's id.
    pub refusals: BTreeMap<String, u64>,
}

/// A flow that is rejected by what was said in it before.
#[derive(Debug)]
pub struct Rejection {
    /// For its ends, by what has gone through to them.
    pub resets: Resets,
    /// The interface that its packets went through.
    pub interface: Option<Arc<str>>,
    /// What there is to tell of it, but for what becomes of the resets.
    pub events: Vec<Event>,
}

/// True if an event is not of the past, where its packet stops a flow.
pub(super) fn is_news(event: &Event) -> bool {
    match &event.kind {
        EventKind::Alert(_) | EventKind::Drop(_) => true,
        EventKind::Flow(record) => record.end == FlowEnd::Stopped,
        _ => false,
    }
}

impl News {
    /// Counts what a packet has led to: flows stopped before and behind it, what is told, and by which rules.
    pub(super) fn note(&mut self, before: [u64; 2], behind: [u64; 2], told: &[Event], rules: &RuleSet) {
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

/// How far the packets of rejected flows have brought their ends.
#[derive(Debug, Default)]
pub(super) struct Courses(HashMap<Name, Course, ahash::RandomState>);

#[derive(Debug, Default)]
struct Course {
    /// Sequence number behind all that each end has sent, the low one first.
    next: [Option<u32>; 2],
    /// The last packet among those that were kept.
    last: Option<usize>,
    events: Vec<Event>,
}

impl Courses {
    /// Notes that the flow of a packet is rejected.
    pub(super) fn begin(&mut self, packet: &PacketInput<'_>, events: impl Iterator<Item = Event>) {
        if let Some(name) = name(packet) {
            self.0.entry(name).or_default().events.extend(events);
        }
    }

    /// The rejections, by all packets of their flows.
    pub(super) fn rejections(mut self, state: &State, now: Timestamp) -> Vec<Rejection> {
        if self.0.is_empty() {
            return Vec::new();
        }
        for (at, kept) in state.kept.iter().enumerate() {
            let packet = kept.packet(now);
            let Some(course) = name(&packet).and_then(|name| self.0.get_mut(&name)) else { continue };
            if let Ok(Parsed::Tcp(segment)) = packet::parse(packet.ip, packet.wire_length) {
                course.follow(at, &segment, packet.checksums);
            }
        }
        let mut courses: Vec<Course> = self.0.into_values().collect();
        courses.sort_unstable_by_key(|course| course.last);
        courses.into_iter().filter_map(|course| course.end(state)).collect()
    }
}

impl Course {
    /// Goes on to where a segment brings its receiver.
    fn follow(&mut self, at: usize, segment: &Segment<'_>, checksums: Checksums) {
        if checksums == Checksums::Verify && segment.is_whole() && !segment.checksums_valid() {
            return;
        }
        let (_, from) = FlowKey::of(segment);
        let flags = segment.flags();
        if flags.syn() && !flags.ack() {
            // Another connection of the same ports.
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

    fn end(self, state: &State) -> Option<Rejection> {
        let kept = state.kept.get(self.last?)?;
        let Ok(Parsed::Tcp(segment)) = packet::parse(&kept.octets, kept.wire_length) else { return None };
        let (_, from) = FlowKey::of(&segment);
        let [low, high] = self.next;
        let (own, other) = if from as usize == 0 { (low, high) } else { (high, low) };
        let resets = Resets::new(&segment, own.unwrap_or_else(|| segment.sequence()), other);
        Some(Rejection { resets, interface: kept.interface.clone(), events: self.events })
    }
}
