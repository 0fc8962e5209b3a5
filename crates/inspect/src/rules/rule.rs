//! One validated rule.

use std::sync::Arc;
use std::time::Duration;

use super::advisory::{Advisory, AdvisoryFinding};
use super::debian::FixedPackage;
use super::example::RuleExample;
use super::field::{BannerField, BannerSender};
use super::list_file::ListValues;
use super::pattern::PatternId;
use super::probe_request::ProbeRequest;
use super::rule_change::{RuleChange, RuleValidity};
use super::scope::RuleScope;
use super::source_file::TextPosition;
use super::version::VersionRequirement;
use crate::event::{OverrideFacts, Protocol, RuleAction, Severity};
use crate::terms::hash::fnv64;

/// Default time of a ban.
const DEFAULT_BAN: Duration = Duration::from_secs(600);

/// One validated rule. Getters give access to its parts.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) index: usize,
    pub(super) id: String,
    pub(super) title: String,
    pub(super) protocol: Protocol,
    pub(super) from: BannerSender,
    pub(super) action: RuleAction,
    pub(super) mark: Option<PacketMark>,
    /// The time of a ban, if the rule gives one.
    pub(super) ban: Option<Duration>,
    pub(super) severity: Severity,
    pub(super) category: String,
    pub(super) references: Vec<String>,
    /// Further group names besides the category.
    pub(super) tags: Vec<String>,
    /// Uses for which the rule is made; empty for all.
    pub(super) profiles: Vec<String>,
    /// The reason why a match is certain although only a version was seen.
    pub(super) certain: Option<String>,
    /// The reason why the rule is switched off, if it is.
    pub(super) off: Option<String>,
    /// Changes by overrides.
    pub(super) changes: Vec<RuleChange>,
    /// The override that replaced a blocking action by one that does not block.
    pub(super) weakened_by: Option<Arc<OverrideFacts>>,
    pub(super) validity: RuleValidity,
    pub(super) request: Option<ProbeRequest>,
    pub(super) all: Vec<RuleCondition>,
    pub(super) unless: Vec<RuleCondition>,
    /// Header fields that must be absent, names in lower case.
    pub(super) absent: Vec<String>,
    /// Header fields that must be present, names in lower case.
    pub(super) present: Vec<String>,
    pub(super) version: Option<VersionRequirement>,
    pub(super) fixed_in: Vec<FixedPackage>,
    pub(super) advisory: Option<Advisory>,
    /// Versions outside of these never match. Only the index uses this.
    pub(super) bounds: Option<VersionRequirement>,
    pub(super) scope: RuleScope,
    /// The server's certificate has expired or expires within this time.
    pub(super) expires_within: Option<Duration>,
    pub(super) count: Option<MatchThreshold>,
    pub(super) examples: Vec<RuleExample>,
    pub(super) counterexamples: Vec<RuleExample>,
    /// True if the rule needs data after the head.
    pub(super) later: bool,
    /// True if the rule uses a fingerprint database.
    pub(super) fingerprint: bool,
    pub(super) file: Arc<str>,
    pub(super) place: TextPosition,
}

/// A field and the test of its values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleCondition {
    pub(super) field: BannerField,
    pub(super) test: FieldTest,
}

/// The test of a field's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldTest {
    /// One of these patterns matches.
    Patterns(Vec<PatternId>),
    /// The whole value is an entry of the list.
    Values(Arc<ListValues>),
}

/// The value and mask of `action = "mark"`, as `iptables -j MARK --set-xmark` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketMark {
    /// Bits to set.
    pub value: u32,
    /// Bits that the mark may change; all others stay.
    pub mask: u32,
}

/// A rule's `count`: the rule takes effect from a source's `times`-th match `within` that time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchThreshold {
    /// Number of matches.
    pub times: u32,
    /// Length of the sliding window.
    pub within: Duration,
}

impl Rule {
    /// Position in [`RuleSet::rules`](super::RuleSet::rules).
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The id in events, metrics and messages.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// One line for a person.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The protocol that it is about.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The sender whose banners it judges.
    pub const fn from(&self) -> BannerSender {
        self.from
    }

    /// The action of a match.
    pub const fn action(&self) -> RuleAction {
        self.action
    }

    /// The mark to set, for `action = "mark"`.
    pub const fn mark(&self) -> Option<PacketMark> {
        self.mark
    }

    /// Time for which a client is banned, for `action = "ban"`.
    pub fn ban(&self) -> Option<Duration> {
        (self.action == RuleAction::Ban).then(|| self.ban.unwrap_or(DEFAULT_BAN))
    }

    /// The severity of a match.
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// The kind of weakness, perhaps empty.
    pub fn category(&self) -> &str {
        &self.category
    }

    /// CVE numbers and URLs.
    pub fn references(&self) -> &[String] {
        &self.references
    }

    /// Its groups: the category, and further tags of the rule and its pack.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let category = Some(self.category.as_str()).filter(|category| !category.is_empty());
        category.into_iter().chain(self.tags.iter().map(String::as_str))
    }

    /// Uses for which it is made; empty for all.
    pub fn profiles(&self) -> &[String] {
        &self.profiles
    }

    /// The reason why it is switched off, if it is.
    pub fn off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// Changes by overrides, in the order in which they were applied.
    pub fn changes(&self) -> &[RuleChange] {
        &self.changes
    }

    /// The request that a scan must make for this rule.
    pub const fn request(&self) -> Option<&ProbeRequest> {
        self.request.as_ref()
    }

    /// The number of matches of one source from which it takes effect;
    /// [`MatchHistory`](super::MatchHistory) counts them.
    pub const fn count(&self) -> Option<MatchThreshold> {
        self.count
    }

    /// The file that defines it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Position of its `[[rule]]` in the file.
    pub const fn place(&self) -> TextPosition {
        self.place
    }

    /// True if it needs the KEXINIT.
    pub fn needs_kex(&self) -> bool {
        self.asks_markers() || self.conditions().any(|condition| condition.field.needs_kex())
    }

    /// True if it may block a flow because of an HTTP request.
    pub fn blocks_requests(&self) -> bool {
        self.protocol == Protocol::Http && self.from != BannerSender::Server && self.action.blocks()
    }

    /// True if it may block a flow because of something other than an HTTP request.
    pub fn blocks_beside_requests(&self) -> bool {
        (self.protocol != Protocol::Http || self.from != BannerSender::Client) && self.action.blocks()
    }

    /// True if the key exchange may settle an unknown verdict of its advisory.
    pub(super) fn asks_markers(&self) -> bool {
        self.advisory.as_ref().is_some_and(Advisory::asks_markers)
    }

    /// The action of a match: weaker if its advisory does not say that the package is affected.
    pub(super) fn action_by(&self, finding: Option<&AdvisoryFinding<'_>>) -> RuleAction {
        match finding {
            Some(finding) if !finding.blocks() => RuleAction::Alert,
            _ => self.action,
        }
    }

    /// True if it is about the head, and an unknown verdict of its advisory is settled only at the
    /// end.
    pub(super) fn is_weighed_at_end(&self) -> bool {
        !self.later && self.asks_markers()
    }

    /// True if it needs the body.
    pub fn needs_body(&self) -> bool {
        self.conditions().any(|condition| condition.field.needs_body())
    }

    /// True if it needs a fingerprint database.
    pub fn needs_fingerprints(&self) -> bool {
        self.fingerprint
    }

    /// The number for EVE's `signature_id`. It is derived from the id, so it stays when other rules
    /// come and go.
    pub fn signature_id(&self) -> u32 {
        crate::event::signature_id(&self.id)
    }

    /// FNV-1a of the id: the same in every run and on every machine.
    pub(super) fn identity(&self) -> u64 {
        fnv64(self.id.as_bytes())
    }

    /// All conditions, those of `match` first.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &RuleCondition> {
        self.all.iter().chain(&self.unless)
    }
}
