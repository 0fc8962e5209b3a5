//! The context of inspection, for all flows: settings and rules to read, shared state to write.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::EngineConfig;
use super::counters::EngineCounters;
use super::decision::{BanRequest, PacketInput};
use super::dialogue::DialogueSettings;
use super::event_quota::EventQuotas;
use super::identification_cache::IdentificationCache;
use crate::event::{EventSink, Side};
use crate::flow::{Anomaly, FlowKey, TrackingMode};
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{MatchHistory, PacketMark, RuleSet};

/// The largest copy range that a netfilter queue gives: more of a packet can't be asked for.
const COPY_LIMIT: usize = 65_531;

/// The context of inspection, for all flows.
#[derive(Debug)]
pub(super) struct EngineContext {
    pub(super) settings: EngineSettings,
    pub(super) shared: SharedState,
    /// True while a packet is followed that passes whatever it holds.
    pub(super) passes_by: bool,
}

/// The settings in force. No packet changes them.
#[derive(Debug)]
pub(super) struct EngineSettings {
    pub(super) config: EngineConfig,
    pub(super) rules: Arc<RuleSet>,
    pub(super) tracking: TrackingMode,
    /// The limits of reading under these rules.
    pub(super) dialogue: DialogueSettings,
}

/// The state and counters of all flows together.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) identifications: IdentificationCache,
    pub(super) thresholds: MatchHistory,
    pub(super) counters: EngineCounters,
    pub(super) quotas: EventQuotas,
    pub(super) marks: MarkTable,
    /// The ban that the packet at hand leads to.
    pub(super) ban: Option<Box<BanRequest>>,
}

/// The context with somebody who hears what it tells.
pub(super) struct InspectionSession<'e> {
    pub(super) settings: &'e EngineSettings,
    pub(super) shared: &'e mut SharedState,
    pub(super) sink: &'e mut dyn EventSink,
}

impl EngineContext {
    pub(super) fn new(
        config: EngineConfig,
        rules: Arc<RuleSet>,
        fingerprints: Option<Arc<FingerprintSet>>,
    ) -> Self {
        let tracking = config.tracking;
        let counters = EngineCounters { matches: vec![0; rules.rules().len()], ..EngineCounters::default() };
        let shared = SharedState {
            identifications: IdentificationCache::default(),
            thresholds: MatchHistory::default(),
            counters,
            quotas: EventQuotas::default(),
            marks: MarkTable::default(),
            ban: None,
        };
        let dialogue = dialogue_settings(&config, &rules, fingerprints);
        Self { settings: EngineSettings { config, rules, tracking, dialogue }, shared, passes_by: false }
    }

    pub(super) fn session<'e>(&'e mut self, sink: &'e mut dyn EventSink) -> InspectionSession<'e> {
        InspectionSession { settings: &self.settings, shared: &mut self.shared, sink }
    }

    /// True if the packet can be shown again with more of its bytes.
    pub(super) fn may_ask_for_more(&self, packet: &PacketInput<'_>) -> bool {
        self.settings.tracking == TrackingMode::Inline
            && !self.passes_by
            && packet.ip.len() < packet.wire_length
            && packet.ip.len() < COPY_LIMIT
    }

    /// Puts other rules in force; counts of rules that stay (by their id) go on.
    pub(super) fn set_rules(&mut self, rules: Arc<RuleSet>) {
        let counters = &mut self.shared.counters;
        let old = self.settings.rules.rules().iter().zip(&counters.matches);
        let known: HashMap<&str, u64> = old.map(|(rule, count)| (rule.id(), *count)).collect();
        let matches =
            rules.rules().iter().map(|rule| known.get(rule.id()).copied().unwrap_or_default()).collect();
        counters.matches = matches;
        self.shared.identifications.forget();
        let fingerprints = self.settings.dialogue.fingerprints.take();
        self.settings.dialogue = dialogue_settings(&self.settings.config, &rules, fingerprints);
        self.settings.rules = rules;
    }
}

impl EngineSettings {
    /// True if what blocks really does in this flow.
    pub(super) fn enforces(&self, flow: &FlowKey) -> bool {
        self.config.enforce && self.config.enforce_only.holds(flow)
    }
}

/// Returns the limits of reading, from the settings and the rules.
fn dialogue_settings(
    config: &EngineConfig,
    rules: &RuleSet,
    fingerprints: Option<Arc<FingerprintSet>>,
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
pub(super) struct MarkTable(Vec<PacketMark>);

impl MarkTable {
    /// The mark of a flow with this label.
    pub(super) fn of(&self, label: u16) -> Option<PacketMark> {
        usize::from(label).checked_sub(1).and_then(|index| self.0.get(index)).copied()
    }

    /// Puts `asked` to the mark of a flow, and gives what that is now.
    pub(super) fn add(&mut self, label: &mut u16, asked: Option<PacketMark>) -> Option<PacketMark> {
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
pub(super) const fn merge(earlier: Option<PacketMark>, later: PacketMark) -> PacketMark {
    match earlier {
        None => later,
        Some(earlier) => {
            PacketMark { value: (earlier.value & !later.mask) | later.value, mask: earlier.mask | later.mask }
        }
    }
}
