//! One validated rule.

use std::sync::Arc;
use std::time::Duration;

use super::advisory::{Advisory, Finding};
use super::debian::Fixed;
use super::example::Example;
use super::field::{Field, Sender};
use super::list::Values;
use super::local::{Change, Validity};
use super::pattern::PatternId;
use super::probe::ProbeRequest;
use super::scope::Scope;
use super::text::Place;
use super::version::Requirement;
use crate::event::{Action, OverrideFacts, Protocol, Severity};
use crate::terms::hash::fnv64;

/// Time for which a ban holds if its rule does not say.
const DEFAULT_BAN: Duration = Duration::from_secs(600);

/// One validated rule; what it asks for is reached by getters.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) index: usize,
    pub(super) id: String,
    pub(super) title: String,
    pub(super) protocol: Protocol,
    pub(super) from: Sender,
    pub(super) action: Action,
    pub(super) mark: Option<Mark>,
    /// The time of a ban, where the rule gives one.
    pub(super) ban: Option<Duration>,
    pub(super) severity: Severity,
    pub(super) category: String,
    pub(super) references: Vec<String>,
    /// Further names of groups of rules, beside the category.
    pub(super) tags: Vec<String>,
    /// Uses in which it makes sense; all where there are none.
    pub(super) profiles: Vec<String>,
    /// Why a match is certain although only a version was seen.
    pub(super) certain: Option<String>,
    /// Why it is not in force, if it isn't.
    pub(super) off: Option<String>,
    /// What overrides changed.
    pub(super) changes: Vec<Change>,
    /// The override that gave it an action which does not block.
    pub(super) weakened_by: Option<Arc<OverrideFacts>>,
    pub(super) validity: Validity,
    pub(super) request: Option<ProbeRequest>,
    pub(super) all: Vec<Condition>,
    pub(super) unless: Vec<Condition>,
    /// Header fields that must not be there, names in lower case.
    pub(super) absent: Vec<String>,
    /// Header fields that must be there, names in lower case.
    pub(super) present: Vec<String>,
    pub(super) version: Option<Requirement>,
    pub(super) fixed_in: Vec<Fixed>,
    pub(super) advisory: Option<Advisory>,
    /// Versions outside of these match nothing, which is for the index alone to know.
    pub(super) bounds: Option<Requirement>,
    pub(super) scope: Scope,
    /// The server's certificate expires within this time, or has.
    pub(super) expires_within: Option<Duration>,
    pub(super) count: Option<Count>,
    pub(super) examples: Vec<Example>,
    pub(super) counterexamples: Vec<Example>,
    /// True if it is about what comes behind the head.
    pub(super) later: bool,
    /// True if it asks a fingerprint database.
    pub(super) fingerprint: bool,
    pub(super) file: Arc<str>,
    pub(super) place: Place,
}

/// A field and what is tried on it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    pub(super) field: Field,
    pub(super) test: Test,
}

/// What is tried on a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// One of these patterns matches.
    Patterns(Vec<PatternId>),
    /// The whole value is an entry of the list.
    Values(Arc<Values>),
}

/// The value and mask of `action = "mark"`, as `iptables -j MARK --set-xmark` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Bits to set.
    pub value: u32,
    /// Bits that are the rule's; all others are left alone.
    pub mask: u32,
}

/// A rule's `count`: it takes effect from the `times`-th match of a source `within` that time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Matches.
    pub times: u32,
    /// Length of the sliding window.
    pub within: Duration,
}

impl Rule {
    /// Its position in [`RuleSet::rules`](super::RuleSet::rules).
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The name by which events, metrics and people call it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// One line for a person.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Which protocol it is about.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whose banners it judges.
    pub const fn from(&self) -> Sender {
        self.from
    }

    /// What it asks for.
    pub const fn action(&self) -> Action {
        self.action
    }

    /// The mark to set, for `action = "mark"`.
    pub const fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Time for which a client is banned, for `action = "ban"`.
    pub fn ban(&self) -> Option<Duration> {
        (self.action == Action::Ban).then(|| self.ban.unwrap_or(DEFAULT_BAN))
    }

    /// How grave a match is.
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// What kind of weakness, perhaps empty.
    pub fn category(&self) -> &str {
        &self.category
    }

    /// CVE numbers and addresses.
    pub fn references(&self) -> &[String] {
        &self.references
    }

    /// Its groups: the category, and what the rule and its pack name beside it.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let category = Some(self.category.as_str()).filter(|category| !category.is_empty());
        category.into_iter().chain(self.tags.iter().map(String::as_str))
    }

    /// The uses in which it makes sense; all where there are none.
    pub fn profiles(&self) -> &[String] {
        &self.profiles
    }

    /// Why it is not in force, if it isn't.
    pub fn off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// What overrides changed, in the order in which they did.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// What a scan must ask to see what the rule is about.
    pub const fn request(&self) -> Option<&ProbeRequest> {
        self.request.as_ref()
    }

    /// From how many matches of one source on it takes effect; [`Thresholds`](super::Thresholds)
    /// keeps the count.
    pub const fn count(&self) -> Option<Count> {
        self.count
    }

    /// The file that holds it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Where its `[[rule]]` stands in the file.
    pub const fn place(&self) -> Place {
        self.place
    }

    /// True if it can be judged only when the KEXINIT was seen.
    pub fn needs_kex(&self) -> bool {
        self.asks_markers() || self.conditions().any(|condition| condition.field.needs_kex())
    }

    /// True if it may stop a flow for an HTTP request.
    pub fn blocks_requests(&self) -> bool {
        self.protocol == Protocol::Http && self.from != Sender::Server && self.action.blocks()
    }

    /// True if it may stop a flow for something else than an HTTP request.
    pub fn blocks_beside_requests(&self) -> bool {
        (self.protocol != Protocol::Http || self.from != Sender::Client) && self.action.blocks()
    }

    /// True if the key exchange may tell what its advisory leaves open.
    pub(super) fn asks_markers(&self) -> bool {
        self.advisory.as_ref().is_some_and(Advisory::asks_markers)
    }

    /// What a match asks for: its action, unless its advisory does not say that the package is vulnerable.
    pub(super) fn action_by(&self, finding: Option<&Finding<'_>>) -> Action {
        match finding {
            Some(finding) if !finding.blocks() => Action::Alert,
            _ => self.action,
        }
    }

    /// True if it is about the head, and what its advisory leaves open there is told only at the end.
    pub(super) fn is_weighed_at_end(&self) -> bool {
        !self.later && self.asks_markers()
    }

    /// True if it can be judged only when the body was collected.
    pub fn needs_body(&self) -> bool {
        self.conditions().any(|condition| condition.field.needs_body())
    }

    /// True if it asks a fingerprint database.
    pub fn needs_fingerprints(&self) -> bool {
        self.fingerprint
    }

    /// A number for EVE's `signature_id`: made of the id, so that it stays when rules come and go.
    pub fn signature_id(&self) -> u32 {
        crate::event::signature_id(&self.id)
    }

    /// FNV-1a of the id: the same in every run and on every machine.
    pub(super) fn identity(&self) -> u64 {
        fnv64(self.id.as_bytes())
    }

    /// Everything tried on fields, `match` first.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.all.iter().chain(&self.unless)
    }
}
