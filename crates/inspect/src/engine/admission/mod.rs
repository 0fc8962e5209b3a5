//! Admission of a flow: compares its first bytes with its policy.
//!
//! A flow under a policy is let through byte by byte as long as it may turn out to be something that the
//! policy allows. The segment with the first byte that it can't be is the one that is stopped, so that a
//! receiver never has enough of anything else to act on. What a flow is allowed to be is decided once; what
//! is said behind that is the rules' affair.

mod allowed_protocol;
mod first_bytes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::allowed_protocol::AllowedProtocol;
use self::first_bytes::FirstBytes;
use super::banner_inspector::BannerInspector;
use super::outcome::PacketOutcome;
use crate::banner::Banner;
use crate::banner::unread_protocols::{FIRST_OCTETS, OtherBanner, ProtocolNaming};
use crate::event::{FlowEndpoints, OtherFacts, Protocol, Side};
use crate::rules::{BannerStage, Policy, PolicyRuleResult, RuleSet};

/// The state of one flow's admission.
#[derive(Debug, Default)]
pub(super) struct FlowAdmission {
    first: FirstBytes,
    /// The protocol that was recognized and reported last: the engine reads the flow.
    said: Option<Protocol>,
    begun: bool,
    /// It is none that is read, and what was said so far does not tell its name.
    nameless: bool,
    gate: Option<Box<PendingAdmission>>,
}

/// A flow that is not known yet to be what its policy allows.
#[derive(Debug)]
struct PendingAdmission {
    policy: Arc<Policy>,
    /// The protocols that the flow may still have.
    ways: Vec<AllowedProtocol>,
    /// Bytes of both sides, but for what follows a request line of HTTP: an upload may be of any length
    /// before its answer comes.
    octets: u64,
    /// The results of the policy's rules that are not considered yet.
    opinions: Vec<(usize, PolicyRuleResult)>,
}

impl FlowAdmission {
    /// Finds the policy of a flow, once.
    pub(super) fn begin(&mut self, rules: &RuleSet, ends: impl FnOnce() -> FlowEndpoints, from_start: bool) {
        if std::mem::replace(&mut self.begun, true) || rules.policies().is_empty() {
            return;
        }
        let Some(policy) = rules.policy(&ends()) else { return };
        if policy.allows_any() || (!from_start && !policy.judges_midstream()) {
            return;
        }
        self.gate = Some(Box::new(PendingAdmission::new(Arc::clone(policy), rules)));
    }

    /// Takes the next bytes of a side, in order.
    pub(super) fn take_bytes(&mut self, from: Side, octets: &[u8]) {
        self.first.take_bytes(from, octets);
        let Some(gate) = &mut self.gate else { return };
        for way in &mut gate.ways {
            way.take_bytes(from, octets, self.first.of(from));
        }
        if !gate.is_request(from) {
            gate.octets += octets.len() as u64;
        }
    }

    /// Bytes of a side are missing for good, as a capture may lack some: what comes behind them is the
    /// middle of something.
    pub(super) fn skip_missing(&mut self) {
        if self.gate.as_ref().is_some_and(|gate| !gate.policy.judges_midstream()) {
            self.gate = None;
        }
    }

    /// A side begins afresh.
    pub(super) fn rewind(&mut self, side: Side) {
        self.first.forget(side);
        for way in self.gate.iter_mut().flat_map(|gate| &mut gate.ways) {
            way.rewind(side);
        }
    }

    /// True if bytes of a side that nobody reads any more are worth a look.
    pub(super) fn needs_bytes(&self, side: Side) -> bool {
        (self.gate.is_some() || self.nameless) && self.first.of(side).len() < FIRST_OCTETS
    }

    /// True if nothing speaks against letting the flow pass unseen: no policy, and no name that is not told
    /// yet.
    pub(super) const fn may_pass(&self) -> bool {
        self.gate.is_none() && !self.nameless
    }

    /// The policy whose rules must be asked about every banner.
    pub(super) fn policy_with_rules(&self) -> Option<Arc<Policy>> {
        let gate = self.gate.as_ref()?;
        gate.ways.iter().any(|way| way.rule.is_some()).then(|| Arc::clone(&gate.policy))
    }

    /// Remembers what judging led to, whether or not more of the segment is asked for.
    pub(super) fn observe(&mut self, outcome: &mut PacketOutcome) {
        self.said = outcome.recognised.or(self.said);
        if let Some(gate) = &mut self.gate {
            gate.opinions.append(&mut outcome.opinions);
        }
    }

    /// Takes out the protocols that the flow can't have any more, and stops nothing.
    pub(super) fn narrow(
        &mut self,
        opinions: &mut Vec<(usize, PolicyRuleResult)>,
        judge: &BannerInspector<'_>,
    ) {
        let Some(gate) = &mut self.gate else { return opinions.clear() };
        gate.opinions.append(opinions);
        gate.consider(self.said, false, &mut self.first, judge);
    }

    /// Draws the conclusions of what was read of a segment. Nothing more will be read where the flow is
    /// `decided`, and it is none that is read where it is `foreign`.
    pub(super) fn review(&mut self, decided: bool, foreign: bool, judge: &mut BannerInspector<'_>) {
        // What begins like TLS has a name beside what was read of it.
        if judge.settings.rules.needs().other && self.said.is_none_or(|said| said == Protocol::Tls) {
            self.first.ask_named(judge);
        }
        self.nameless = foreign && self.said.is_none() && !self.first.is_settled();
        if foreign && self.said.is_none() && !self.nameless {
            self.first.conclude(judge);
        }
        let Some(gate) = &mut self.gate else { return };
        gate.consider(self.said, decided, &mut self.first, judge);
        if gate.ways.iter().any(|way| way.rule.is_none() && way.is_sure()) {
            self.gate = None;
        } else if gate.ways.is_empty() || gate.octets > gate.policy.budget() {
            self.refuse(judge);
        }
    }

    /// Stops a flow that is not known to be allowed and can't be waited for; false where it may pass.
    pub(super) fn refuse(&mut self, judge: &mut BannerInspector<'_>) -> bool {
        let Some(gate) = self.gate.take() else { return false };
        let facts = self.first.facts_of_any(judge.flow.server_port());
        judge.refuse(&gate.policy, facts);
        true
    }

    /// Tells a flow in which nothing was recognised; nothing more will be read.
    pub(super) fn conclude(&mut self, judge: &mut BannerInspector<'_>) {
        self.observe(&mut judge.outcome);
        if self.said.is_none() {
            self.first.conclude(judge);
        }
    }

    /// True if anybody has said anything.
    pub(super) const fn is_silent(&self) -> bool {
        self.first.from.is_none()
    }

    /// Bytes of memory held, roughly.
    pub(super) fn memory(&self) -> usize {
        self.first.memory()
    }

    /// Forgets everything but buffers, for another flow.
    pub(super) fn recycle(&mut self) -> Self {
        Self { first: self.first.recycle(), ..Self::default() }
    }
}

impl PendingAdmission {
    fn new(policy: Arc<Policy>, rules: &RuleSet) -> Self {
        let allowed = policy.allow().iter().map(|allowed| AllowedProtocol::new(Some(*allowed), None));
        let named = policy.allow_rules().enumerate().filter_map(|(at, (index, id))| {
            let rule = rules.rules().get(index).filter(|rule| rule.id() == id)?;
            Some(AllowedProtocol::new(rule.shape(), Some(at)))
        });
        let ways = allowed.chain(named).collect();
        Self { policy, ways, octets: 0, opinions: Vec::new() }
    }

    /// True if what a side says now belongs to a request that may be answered.
    fn is_request(&self, from: Side) -> bool {
        from == Side::Client && self.ways.iter().any(AllowedProtocol::is_requested)
    }

    /// Takes out the ways that the flow can't go any more, and the rule of one that has matched.
    fn consider(
        &mut self,
        said: Option<Protocol>,
        decided: bool,
        first: &mut FirstBytes,
        judge: &BannerInspector<'_>,
    ) {
        if let Some(Protocol::Greeting(greeting)) = said {
            self.ways.iter_mut().for_each(|way| way.greeted(greeting));
        }
        for (rule, opinion) in std::mem::take(&mut self.opinions) {
            let own = |way: &AllowedProtocol| way.rule == Some(rule);
            match opinion {
                PolicyRuleResult::Matches => {
                    self.ways.iter_mut().filter(|way| own(way)).for_each(|way| way.rule = None);
                }
                PolicyRuleResult::Differs => self.ways.retain(|way| !own(way)),
                PolicyRuleResult::Silent => {}
            }
        }
        self.evaluate_first_bytes(first, judge);
        // A rule that was not asked yet never will be.
        self.ways.retain(|way| !(way.is_out() || decided && way.rule.is_some()));
    }
}

impl PendingAdmission {
    /// Asks rules about what is not read as soon as first bytes have a name, or can't have one.
    fn evaluate_first_bytes(&mut self, first: &mut FirstBytes, judge: &BannerInspector<'_>) {
        let Self { policy, ways, .. } = self;
        for side in [Side::Client, Side::Server] {
            if first.of(side).is_empty() || !ways.iter().any(|way| way.shape.is_none() && way.rule.is_some())
            {
                continue;
            }
            let name = match first.naming(side) {
                ProtocolNaming::More => continue,
                ProtocolNaming::Named(name) => Some(name),
                ProtocolNaming::Unknown => None,
            };
            let banner = Banner::Other(OtherBanner { from: side, name, first: first.of(side) });
            let context = judge.context(BannerStage::Whole, None, None);
            ways.retain_mut(|way| {
                let (None, Some(at)) = (way.shape, way.rule) else { return true };
                let Some(rule) = policy.allow_rules().nth(at) else { return false };
                let opinion = judge.settings.rules.opinion(rule, &banner, &context);
                if opinion == PolicyRuleResult::Matches {
                    way.rule = None;
                }
                opinion != PolicyRuleResult::Differs
            });
        }
    }
}

/// Facts of a flow in which nobody says anything.
pub(super) fn silence() -> OtherFacts {
    OtherFacts { name: "silent", ..OtherFacts::default() }
}
