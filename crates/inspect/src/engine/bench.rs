//! What judging takes, whatever flow a packet is of: the engine beside its flows.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::EngineConfig;
use super::counters::Counters;
use super::decision::{BanRequest, PacketInput};
use super::dialogue::DialogueSettings;
use super::familiar::Familiar;
use super::quota::Quotas;
use crate::event::{EventSink, Side};
use crate::flow::{Anomaly, FlowKey, Tracking};
use crate::rules::fingerprint::Fingerprints;
use crate::rules::{Mark, RuleSet, Thresholds};

/// The largest copy range that a netfilter queue gives: more of a packet can't be asked for.
const COPY_LIMIT: usize = 65_531;

/// What a judge borrows: the law to read, the desk to write on.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) law: Law,
    pub(super) desk: Desk,
    /// True while a packet is followed that passes whatever it holds.
    pub(super) passes_by: bool,
}

/// What is in force: nothing that a packet says changes it.
#[derive(Debug)]
pub(super) struct Law {
    pub(super) config: EngineConfig,
    pub(super) rules: Arc<RuleSet>,
    pub(super) tracking: Tracking,
    /// How much is read under these rules.
    pub(super) dialogue: DialogueSettings,
}

/// What is remembered and counted across flows.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) familiar: Familiar,
    pub(super) thresholds: Thresholds,
    pub(super) counters: Counters,
    pub(super) quotas: Quotas,
    pub(super) marks: Marks,
    /// The ban that the packet at hand leads to.
    pub(super) ban: Option<Box<BanRequest>>,
}

/// The bench with somebody who hears what it tells.
pub(super) struct Sitting<'e> {
    pub(super) law: &'e Law,
    pub(super) desk: &'e mut Desk,
    pub(super) sink: &'e mut dyn EventSink,
}

impl Bench {
    pub(super) fn new(
        config: EngineConfig,
        rules: Arc<RuleSet>,
        fingerprints: Option<Arc<Fingerprints>>,
    ) -> Self {
        let tracking = config.tracking;
        let counters = Counters { matches: vec![0; rules.rules().len()], ..Counters::default() };
        let desk = Desk {
            familiar: Familiar::default(),
            thresholds: Thresholds::default(),
            counters,
            quotas: Quotas::default(),
            marks: Marks::default(),
            ban: None,
        };
        let dialogue = dialogue_settings(&config, &rules, fingerprints);
        Self { law: Law { config, rules, tracking, dialogue }, desk, passes_by: false }
    }

    pub(super) fn sit<'e>(&'e mut self, sink: &'e mut dyn EventSink) -> Sitting<'e> {
        Sitting { law: &self.law, desk: &mut self.desk, sink }
    }

    /// True if the packet can be shown again with more of its bytes.
    pub(super) fn may_ask_for_more(&self, packet: &PacketInput<'_>) -> bool {
        self.law.tracking == Tracking::Inline
            && !self.passes_by
            && packet.ip.len() < packet.wire_length
            && packet.ip.len() < COPY_LIMIT
    }

    /// Puts other rules in force; counts of rules that stay (by their id) go on.
    pub(super) fn set_rules(&mut self, rules: Arc<RuleSet>) {
        let counters = &mut self.desk.counters;
        let old = self.law.rules.rules().iter().zip(&counters.matches);
        let known: HashMap<&str, u64> = old.map(|(rule, count)| (rule.id(), *count)).collect();
        let matches =
            rules.rules().iter().map(|rule| known.get(rule.id()).copied().unwrap_or_default()).collect();
        counters.matches = matches;
        self.desk.familiar.forget();
        let fingerprints = self.law.dialogue.fingerprints.take();
        self.law.dialogue = dialogue_settings(&self.law.config, &rules, fingerprints);
        self.law.rules = rules;
    }
}

impl Law {
    /// True if what blocks really does in this flow.
    pub(super) fn enforces(&self, flow: &FlowKey) -> bool {
        self.config.enforce && self.config.enforce_only.holds(flow)
    }
}

/// How much is read, by the settings and by what rules ask for.
fn dialogue_settings(
    config: &EngineConfig,
    rules: &RuleSet,
    fingerprints: Option<Arc<Fingerprints>>,
) -> DialogueSettings {
    let needs = rules.needs();
    DialogueSettings {
        tracking: config.tracking,
        http_inspect: config.http_inspect.under(rules, config),
        kex: config.collect_kex || needs.kex,
        body_limit: needs.body.max(config.body_limit),
        body_rules: needs.body > 0,
        any_rules: !rules.rules().is_empty(),
        product_rules: needs.fingerprints,
        stops_unexpected: config.on_anomaly.drops(Anomaly::UnexpectedData),
        early: [Side::Client, Side::Server].map(|side| rules.early(side).clone()),
        disclosure: config.disclosure,
        fingerprints,
    }
}

/// The different marks that rules asked for; flows hold their position, counted from 1.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Mark>);

impl Marks {
    /// The mark of a flow with this label.
    pub(super) fn of(&self, label: u16) -> Option<Mark> {
        usize::from(label).checked_sub(1).and_then(|index| self.0.get(index)).copied()
    }

    /// Puts `asked` to the mark of a flow, and gives what that is now.
    pub(super) fn add(&mut self, label: &mut u16, asked: Option<Mark>) -> Option<Mark> {
        let before = self.of(*label);
        let Some(asked) = asked else { return before };
        let mark = merge(before, asked);
        let index = match self.0.iter().position(|known| *known == mark) {
            Some(index) => index,
            None => {
                self.0.push(mark);
                self.0.len() - 1
            }
        };
        *label = u16::try_from(index + 1).unwrap_or(0);
        Some(mark)
    }
}

/// Both marks in one; where they touch the same bits the later one wins.
pub(super) const fn merge(earlier: Option<Mark>, later: Mark) -> Mark {
    match earlier {
        None => later,
        Some(earlier) => {
            Mark { value: (earlier.value & !later.mask) | later.value, mask: earlier.mask | later.mask }
        }
    }
}
