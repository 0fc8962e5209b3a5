//! The policies of a rule set, and the one that decides about a connection.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ahash::AHashMap;

use super::policy::Policy;
use super::scope::PortRule;
use crate::event::FlowEndpoints;

/// The policies of a set, in order of precedence.
#[derive(Debug, Default)]
pub(super) struct PolicySet {
    all: Vec<Arc<Policy>>,
    /// Policies about a few ports, by port.
    by_port: AHashMap<u16, Vec<u32>>,
    /// Policies about many ports.
    wide: Vec<u32>,
    /// True if a policy has a limit on silence.
    pub(super) impatient: bool,
}

/// Policies about more ports than this are tested for every connection.
const FEW_PORTS: usize = 64;

impl PolicySet {
    pub(super) fn new(mut policies: Vec<Policy>) -> Self {
        // The sort is stable: the order of files and lines stays among local and among other
        // policies.
        policies.sort_by_key(|policy| !policy.local);
        let impatient = policies.iter().any(|policy| policy.silent_after.is_some());
        let mut index = Self { impatient, ..Self::default() };
        for (number, policy) in (0..).zip(&policies) {
            match few_ports(&policy.scope.port) {
                Some(ports) => {
                    for port in ports {
                        index.by_port.entry(port).or_default().push(number);
                    }
                }
                None => index.wide.push(number),
            }
        }
        Self { all: policies.into_iter().map(Arc::new).collect(), ..index }
    }

    pub(super) fn all(&self) -> &[Arc<Policy>] {
        &self.all
    }

    pub(super) fn find(&self, ends: &FlowEndpoints) -> Option<&Arc<Policy>> {
        if self.all.is_empty() {
            return None;
        }
        let narrow = self.by_port.get(&ends.server.port).map_or(&[][..], Vec::as_slice);
        let first = |numbers: &[u32]| {
            let policy = |number: &u32| self.all.get(usize::try_from(*number).ok()?);
            // The lists are in order of precedence, so the first of each suffices; the lower number
            // wins.
            numbers.iter().copied().find(|number| policy(number).is_some_and(|policy| policy.is_about(ends)))
        };
        let number = first(narrow).into_iter().chain(first(&self.wide)).min()?;
        self.all.get(usize::try_from(number).ok()?)
    }
}

/// Returns the admitted ports, if they are few.
fn few_ports(rule: &PortRule) -> Option<Vec<u16>> {
    let count = |range: &RangeInclusive<u16>| usize::from(range.end() - range.start()) + 1;
    if rule.within.is_empty() || rule.within.iter().map(count).sum::<usize>() > FEW_PORTS {
        return None;
    }
    let mut ports: Vec<u16> = rule.within.iter().flat_map(Clone::clone).collect();
    ports.retain(|port| rule.admits(Some(*port)));
    ports.sort_unstable();
    ports.dedup();
    Some(ports)
}
