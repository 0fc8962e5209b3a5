//! The findings of a dialogue in the bytes of both ends, and their receiver.
//!
//! A dialogue knows neither rules nor events, neither packets nor flows: it reads bytes, and each thing that
//! it finds goes to a [`FindingSink`]. The engine's sink is the judge; tests have one that only collects.

use std::sync::Arc;

use crate::banner::disclosure::DisclosureLimits;
use crate::banner::{Anomalies, Banner, RequestHead, SshBanner, ssh};
use crate::engine::config::HttpInspect;
use crate::event::{ApplicationFacts, ProductFacts, Protocol, SshSide};
use crate::flow::TrackingMode;
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{BannerStage, EarlyHeadParts};
use crate::terms::{Anomaly, Side};

/// One thing that a dialogue found.
#[derive(Debug)]
pub enum DialogueFinding<'f> {
    /// A side has sent a banner of this protocol.
    Seen(Protocol, Side),
    /// A banner, or as much of it as there is.
    Banner(FoundBanner<'f>),
    /// Something that could mislead an inspector.
    Odd(Anomaly),
    /// All that is known of a handshake, greeting or transaction; a transaction's number.
    Exchange(ApplicationFacts, Option<u32>),
    /// Number of bytes that were read for good.
    Bytes(usize),
    /// Number of bytes of lines that were read before an SSH identification.
    Preamble(usize),
}

/// A banner with what belongs to it.
pub struct FoundBanner<'f> {
    pub banner: &'f Banner<'f>,
    pub stage: BannerStage,
    /// The request that a response answers.
    pub request: Option<&'f RequestHead<'f>>,
    pub product: Option<&'f ProductFacts>,
    pub transaction: Option<u32>,
    /// The rules that have matched the same banner before.
    pub matched: &'f mut MatchedRules,
    /// Returns the facts for an alert; called only when a rule matches.
    pub facts: &'f dyn Fn() -> ApplicationFacts,
}

impl std::fmt::Debug for FoundBanner<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.banner.line().escape_ascii().to_string();
        formatter
            .debug_struct("FoundBanner")
            .field("from", &self.banner.from())
            .field("line", &line)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

/// Rules that matched something, by whose banner: each is reported once of that.
#[derive(Debug, Default)]
pub struct MatchedRules(Vec<(Side, usize)>);

impl MatchedRules {
    /// True if it is the first time.
    pub fn insert(&mut self, from: Side, rule: usize) -> bool {
        let first = !self.0.contains(&(from, rule));
        if first {
            self.0.push((from, rule));
        }
        first
    }
}

/// An SSH identification line by itself: the same few lines come again with every connection.
#[derive(Debug, Clone)]
pub struct KnownIdentification {
    /// The facts for events.
    pub side: Arc<SshSide>,
    /// True if no rule matches it, whatever the addresses and the port.
    pub indifferent: bool,
}

/// Takes what a dialogue finds.
///
/// Three answers come back, since reading depends on them; a sink that only collects needs none.
pub trait FindingSink {
    /// Takes one finding.
    fn take(&mut self, finding: DialogueFinding<'_>);

    /// True once what was found stops the flow: the dialogue reads nothing more.
    fn is_stopped(&self) -> bool {
        false
    }

    /// True if a part of an HTTP head is enough to stop the flow, whatever follows.
    fn would_stop(
        &self,
        _part: &Banner<'_>,
        _request: Option<&RequestHead<'_>>,
        _product: Option<&ProductFacts>,
    ) -> bool {
        false
    }

    /// Returns what is known of an identification line by itself, without a KEXINIT.
    fn identify(&mut self, from: Side, line: &[u8]) -> KnownIdentification {
        let (identification, _) = ssh::parse_line(line);
        let side = SshSide::from(&SshBanner { from, identification, kex: None });
        KnownIdentification { side: Arc::new(side), indifferent: false }
    }
}

/// The limits of dialogues: the same for all flows while the same rules are in force.
#[derive(Debug)]
pub struct DialogueSettings {
    pub tracking: TrackingMode,
    /// The part of an HTTP connection that is read; never [`HttpInspect::Auto`].
    pub http_inspect: HttpInspect,
    /// True if the KEXINIT behind an SSH identification is read.
    pub kex: bool,
    /// Bytes of HTTP bodies that are kept.
    pub body_limit: usize,
    /// True if rules are about bodies: a head waits for its body to be judged with it.
    pub body_rules: bool,
    /// True if there are rules at all.
    pub any_rules: bool,
    /// True if rules are about names of products.
    pub product_rules: bool,
    /// True if a flow is stopped for bytes between HTTP messages.
    pub stops_unexpected: bool,
    /// The parts of the client's and the server's heads that blocking rules need.
    pub early: [EarlyHeadParts; 2],
    /// The parts of messages that events show.
    pub disclosure: DisclosureLimits,
    /// Names of products.
    pub fingerprints: Option<Arc<FingerprintSet>>,
}

impl DialogueSettings {
    pub(super) fn early(&self, from: Side) -> &EarlyHeadParts {
        let [client, server] = &self.early;
        if from == Side::Client { client } else { server }
    }

    pub(super) fn fingerprints(&self) -> Option<&FingerprintSet> {
        self.fingerprints.as_deref()
    }

    /// True if more than the first transaction of an HTTP connection is read.
    pub fn reads_on(&self) -> bool {
        self.http_inspect != HttpInspect::First
    }
}

/// The context of reading, besides the bytes.
pub struct ReadContext<'r> {
    pub settings: &'r DialogueSettings,
    pub server_port: u16,
    /// True if blocking rules really block in this flow: heads are judged line by line.
    pub enforced: bool,
    /// True if a policy needs to know what rules say of every banner, also that none matches.
    pub asks_policy: bool,
    pub sink: &'r mut dyn FindingSink,
}

impl ReadContext<'_> {
    pub(super) fn find(&mut self, finding: DialogueFinding<'_>) {
        self.sink.take(finding);
    }

    /// Reports something odd.
    pub(super) fn note(&mut self, anomaly: Anomaly) {
        self.find(DialogueFinding::Odd(anomaly));
    }

    /// Reports what is odd about a message.
    pub(super) fn note_all(&mut self, anomalies: Anomalies) {
        for anomaly in anomalies.iter() {
            self.note(anomaly);
        }
    }
}
