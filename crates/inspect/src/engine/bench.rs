//! What judging takes, whatever flow a packet is of: the engine beside its flows.

use std::collections::HashMap;
use std::sync::Arc;

use super::accounts::Heard;
use super::conversation::Conversation;
use super::dialogue::DialogueSettings;
use super::familiar::Familiar;
use super::judge::merge;
use super::quota::Quotas;
use super::{BanRequest, Counters, EngineConfig};
use crate::event::{EventSink, Side};
use crate::flow::{Anomaly, FlowKey, Tracking};
use crate::rules::fingerprint::Fingerprints;
use crate::rules::{Mark, RuleSet, Thresholds};

/// Conversations that are kept for the next flows instead of being freed.
const SPARE_CONVERSATIONS: usize = 256;

/// What a judge borrows: the law to read, the desk to write on.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) law: Law,
    pub(super) desk: Desk,
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
    pub(super) spare: Spare,
    /// What was told of the flow at hand, for its record.
    pub(super) heard: Heard,
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
            spare: Spare::default(),
            heard: Heard::default(),
            ban: None,
        };
        let dialogue = dialogue_settings(&config, &rules, fingerprints);
        Self { law: Law { config, rules, tracking, dialogue }, desk }
    }

    pub(super) fn sit<'e>(&'e mut self, sink: &'e mut dyn EventSink) -> Sitting<'e> {
        Sitting { law: &self.law, desk: &mut self.desk, sink }
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

impl Desk {
    /// Takes the buffers of a conversation back that has ended.
    pub(super) fn take_back(&mut self, conversation: Box<Conversation>) {
        self.counters.buffered_now -= conversation.accounted;
        self.spare.keep(conversation);
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

/// Conversations that have ended, with their buffers, for flows that begin.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "flows take and give the boxes themselves")]
pub(super) struct Spare(Vec<Box<Conversation>>);

impl Spare {
    /// One for a flow that begins to speak.
    pub(super) fn take(&mut self) -> Box<Conversation> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps a conversation's buffers for another flow.
    pub(super) fn keep(&mut self, mut conversation: Box<Conversation>) {
        if self.0.len() < SPARE_CONVERSATIONS && conversation.recycle() {
            self.0.push(conversation);
        }
    }
}
