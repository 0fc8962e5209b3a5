//! The data that rules need: what the engine must collect and a scan must request.

use super::probe_request::ProbeRequest;
use super::rule::Rule;
use crate::event::{Protocol, RuleAction};

/// Data that the rules of a set need to be judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleNeeds {
    /// The KEXINIT after an SSH identification.
    pub kex: bool,
    /// Number of bytes of an HTTP body, 0 for none.
    pub body: usize,
    /// A fingerprint database.
    pub fingerprints: bool,
    /// A way to ban clients.
    pub bans: bool,
    /// First bytes of connections whose protocol is not read.
    pub other: bool,
    /// Every request of a keep-alive connection, because a rule may block a later one.
    pub every_request: bool,
    /// Every response of a keep-alive connection, and the content of a tunnel after a later
    /// request: a rule may block for something other than a request.
    pub beside_requests: bool,
    /// Exemptions of overrides, because the engine reports what they let pass.
    pub exemptions: bool,
    /// Requests that a scan must make, each once.
    pub requests: Vec<ProbeRequest>,
}

/// Number of bytes of a body that the rules see, unless the user configures another.
pub const BODY_OCTETS: usize = 4 << 10;

impl RuleNeeds {
    pub(super) fn of(rules: &[Rule]) -> Self {
        let mut requests: Vec<ProbeRequest> = rules.iter().filter_map(|rule| rule.request.clone()).collect();
        requests.sort();
        requests.dedup();
        Self {
            kex: rules.iter().any(Rule::needs_kex),
            body: if rules.iter().any(Rule::needs_body) { BODY_OCTETS } else { 0 },
            fingerprints: rules.iter().any(Rule::needs_fingerprints),
            every_request: rules.iter().any(Rule::blocks_requests),
            beside_requests: rules.iter().any(Rule::blocks_beside_requests),
            bans: rules.iter().any(|rule| rule.action == RuleAction::Ban),
            other: rules.iter().any(|rule| rule.protocol == Protocol::Other),
            exemptions: rules.iter().any(|rule| rule.action.blocks() && rule.scope.exempts_some()),
            requests,
        }
    }
}
