//! One engine on its way: the rules in force and the time that flows age by. What has packets to show (the
//! guard's queues, a replay's captures) drives this one driver, so that none differs from the others.
//!
//! It reads no clock and opens nothing: whoever has packets says what time it is and hears the events.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::engine::{Counters, Engine, EngineConfig, Inspected, PacketInput};
use crate::event::{EventSink, Timestamp};
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;

/// An engine with the rules in force and its own time.
#[derive(Debug)]
pub struct Inspector {
    engine: Engine,
    /// The rules that are to be in force; others than the engine's once they were exchanged.
    in_force: Arc<ArcSwap<RuleSet>>,
    /// The rules that the engine has.
    rules: Arc<RuleSet>,
    /// How often silent flows are looked for.
    every: Duration,
    /// When they were last looked for.
    ticked: Option<Timestamp>,
}

impl Inspector {
    /// One that has seen nothing, and looks for silent flows `every` so often.
    pub fn new(
        config: EngineConfig,
        in_force: Arc<ArcSwap<RuleSet>>,
        fingerprints: Option<Arc<Fingerprints>>,
        every: Duration,
    ) -> Self {
        let rules = in_force.load_full();
        let engine = Engine::new(config, Arc::clone(&rules), fingerprints);
        Self { engine, in_force, rules, every, ticked: None }
    }

    /// Takes one packet and says what to do with it.
    pub fn inspect(&mut self, packet: &PacketInput<'_>, sink: &mut impl EventSink) -> Inspected {
        self.engine.inspect(packet, sink)
    }

    /// Whether it is time to [`Self::tick`]; the first look only starts the count. Time may jump back, as
    /// that of captures does.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        now.since(*self.ticked.get_or_insert(now)) >= self.every
    }

    /// Forgets flows that have been silent for too long, and tells what they still owed.
    pub fn tick(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        self.ticked = Some(now);
        self.engine.tick(now, sink);
    }

    /// Takes over rules that were exchanged; gives them where they were. Counts by rule are others then: what
    /// was counted until now is to be read before.
    pub fn take_rules(&mut self) -> Option<Arc<RuleSet>> {
        let in_force = self.in_force.load();
        if Arc::ptr_eq(&in_force, &self.rules) {
            return None;
        }
        self.rules = Arc::clone(&in_force);
        self.engine.set_rules(Arc::clone(&in_force));
        Some(Arc::clone(&self.rules))
    }

    /// Forgets every flow, at the end of the input, and tells what they still owed.
    pub fn finish(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        self.engine.finish(now, sink);
        self.ticked = None;
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        self.engine.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Timestamp {
        Timestamp::from_nanos(number * 1_000_000_000)
    }

    #[test]
    fn ticks_are_counted_from_the_first_time_that_is_told() {
        let rules = Arc::new(ArcSwap::from_pointee(RuleSet::empty()));
        let mut inspector = Inspector::new(EngineConfig::default(), rules, None, Duration::from_secs(2));
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
            Inspector::new(EngineConfig::default(), Arc::clone(&rules), None, Duration::from_secs(1));
        assert!(inspector.take_rules().is_none());
        let text = "[[rule]]\nid = 'a'\ntitle = 'A'\nprotocol = 'ssh'\nseverity = 'low'\naction = 'alert'\nmatch = { banner = 'x' }\n";
        rules.store(Arc::new(RuleSet::parse("a.toml", text).expect("a rule").rules));
        assert_eq!(inspector.take_rules().expect("they were exchanged").rules().len(), 1);
        assert_eq!(inspector.counters().matches, [0], "the engine has them");
        assert!(inspector.take_rules().is_none());
    }
}
