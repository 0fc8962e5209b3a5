//! Repeated checks of a running guard's hook.

use std::fmt;

use super::hook_state::HookFlaw;
use super::iptables::IptablesInstance;
use super::status::{self, FamilyStatus, InstalledHook};
use super::{
    HookConfig, HookCounters, HookError, HookUpResult, IpFamily, IptablesScope, IptablesVariant, QueueRange,
};

/// State of one family's hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FamilyHookState {
    /// In order.
    Up,
    /// Removed.
    Gone,
    /// Leads to other queues.
    LedAway(QueueRange),
    /// Has other options than at its creation.
    Changed,
    /// Incomplete, with the reason.
    Damaged(String),
    /// Complete, but misplaced.
    Flawed(Vec<HookFlaw>),
}

impl FamilyHookState {
    /// Returns one word for events.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Gone => "gone",
            Self::LedAway(_) => "led_away",
            Self::Changed => "changed",
            Self::Damaged(_) => "damaged",
            Self::Flawed(flaws) if flaws.iter().any(|flaw| matches!(flaw, HookFlaw::Skipped { .. })) => {
                "skipped"
            }
            Self::Flawed(flaws) if flaws.iter().any(|flaw| matches!(flaw, HookFlaw::Doubled { .. })) => {
                "doubled"
            }
            Self::Flawed(_) => "not_last",
        }
    }
}

impl fmt::Display for FamilyHookState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => formatter.write_str("up"),
            Self::Gone => formatter.write_str("gone: packets pass uninspected"),
            Self::LedAway(queues) => write!(formatter, "redirected to queue {queues}"),
            Self::Changed => formatter.write_str("changed: its options differ"),
            Self::Damaged(why) => write!(formatter, "damaged: {why}"),
            Self::Flawed(flaws) => {
                let flaws: Vec<String> = flaws.iter().map(ToString::to_string).collect();
                formatter.write_str(&flaws.join("; "))
            }
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookCheckResult {
    /// State of each family's hook; a family that never had one is left out.
    pub families: Vec<(IpFamily, FamilyHookState)>,
    /// Reason why a place could not be inspected.
    pub unknown: Option<String>,
    /// All complete hooks, for any queue, with their counters.
    pub hooks: Vec<(IpFamily, HookConfig, HookCounters)>,
    /// True if a place uses the legacy interface, which sends no notifications of changes.
    pub has_legacy: bool,
}

impl HookCheckResult {
    /// True if all found hooks are in order.
    pub fn is_sound(&self) -> bool {
        self.families.iter().all(|(_, standing)| *standing == FamilyHookState::Up)
    }
}

/// Checks the hook that leads to given queues.
#[derive(Debug)]
pub struct HookMonitor {
    scope: IptablesScope,
    queues: QueueRange,
    /// Expected hook; without one, any hook that leads to the queues.
    wanted: Option<HookConfig>,
    /// Places to check; empty if they must be determined again.
    places: Vec<IptablesInstance>,
    /// Families that have had a hook to these queues.
    known: Vec<IpFamily>,
}

impl HookMonitor {
    /// Watches the hooks that lead to `queues`, and expects `wanted` if it is given.
    pub fn new(scope: impl Into<IptablesScope>, queues: QueueRange, wanted: Option<HookConfig>) -> Self {
        let scope = scope.into();
        let known = if wanted.is_some() { scope.families().collect() } else { Vec::new() };
        Self { scope, queues, wanted, places: Vec::new(), known }
    }

    /// Checks once: an `iptables-save` for each family and variant, some 4 ms each.
    pub fn check(&mut self) -> HookCheckResult {
        let mut look = HookCheckResult::default();
        let mut statuses = Vec::new();
        if self.places.is_empty() {
            for (_, tables) in self.scope.places() {
                match tables {
                    Ok(tables) => self.places.push(tables),
                    Err(error) => look.unknown = Some(error.to_string()),
                }
            }
        }
        // Places are kept between checks: to find them takes a run of `iptables --version` each.
        for tables in &self.places {
            look.has_legacy |= tables.variant() == IptablesVariant::Legacy;
            match status::of(tables) {
                Ok(status) => statuses.push(status),
                Err(error) => look.unknown = Some(error.to_string()),
            }
        }
        look.hooks = statuses.iter().filter_map(whole).collect();
        // A place that cannot be read may hold the hook, so nothing is said about families then.
        if look.unknown.is_none() {
            let families: Vec<IpFamily> = self.scope.families().collect();
            for family in families {
                let of_family: Vec<&FamilyStatus> =
                    statuses.iter().filter(|status| status.family == family).collect();
                look.families.extend(self.standing(family, &of_family).map(|standing| (family, standing)));
            }
        }
        if look.unknown.is_some() || !look.is_sound() {
            // The hook may have moved to the other variant.
            self.places.clear();
        }
        look
    }

    /// Restores the hook.
    ///
    /// # Errors
    ///
    /// As [`up`](super::up).
    pub fn restore(&mut self) -> Result<HookUpResult, HookError> {
        match &self.wanted {
            Some(wanted) => super::up(wanted, self.scope.clone()),
            None => Ok(HookUpResult::Unchanged),
        }
    }

    /// Returns the state of a family's hook over all its places; `None` if it never had one.
    fn standing(&mut self, family: IpFamily, places: &[&FamilyStatus]) -> Option<FamilyHookState> {
        // One complete hook serves the family, even if the other variant has remains of an old one.
        if let Some(place) = places.iter().find(|place| self.leads_here(place)) {
            if !self.known.contains(&family) {
                self.known.push(family);
            }
            let flaws = place.flaws();
            return Some(if flaws.is_empty() { FamilyHookState::Up } else { FamilyHookState::Flawed(flaws) });
        }
        if !self.known.contains(&family) {
            return None;
        }
        let elsewhere = places.iter().find_map(|place| match &place.installed {
            InstalledHook::Complete(config, _) if !overlap(config.queues, self.queues) => {
                Some(FamilyHookState::LedAway(config.queues))
            }
            InstalledHook::Complete(..) => Some(FamilyHookState::Changed),
            InstalledHook::Damaged(why) => Some(FamilyHookState::Damaged(why.clone())),
            InstalledHook::Absent | InstalledHook::Unknown(_) => None,
        });
        Some(elsewhere.unwrap_or(FamilyHookState::Gone))
    }

    /// True if a place holds the expected hook, or any that leads to the queues if none is expected.
    fn leads_here(&self, place: &FamilyStatus) -> bool {
        match (&place.installed, &self.wanted) {
            (InstalledHook::Complete(config, _), Some(wanted)) => wanted.is_served_by(config),
            (InstalledHook::Complete(config, _), None) => overlap(config.queues, self.queues),
            _ => false,
        }
    }
}

fn whole(place: &FamilyStatus) -> Option<(IpFamily, HookConfig, HookCounters)> {
    match &place.installed {
        InstalledHook::Complete(config, counters) => Some((place.family, config.clone(), *counters)),
        InstalledHook::Absent | InstalledHook::Unknown(_) | InstalledHook::Damaged(_) => None,
    }
}

fn overlap(one: QueueRange, other: QueueRange) -> bool {
    one.first <= other.last && other.first <= one.last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(installed: InstalledHook) -> FamilyStatus {
        FamilyStatus { family: IpFamily::V4, variant: IptablesVariant::Nft, installed, jumps: Vec::new() }
    }

    fn hook(queues: &str) -> InstalledHook {
        let queues = queues.parse().expect("queues");
        InstalledHook::Complete(HookConfig { queues, ..HookConfig::default() }, HookCounters::default())
    }

    #[test]
    fn a_hook_that_is_wanted_has_to_be_there_as_it_was_made() {
        let wanted = Some(HookConfig::default());
        let mut lookout = HookMonitor::new(IptablesVariant::Nft, QueueRange::default(), wanted);
        let mut standing = |installed| lookout.standing(IpFamily::V4, &[&place(installed)]);
        assert_eq!(standing(InstalledHook::Absent), Some(FamilyHookState::Gone));
        assert_eq!(standing(hook("0")), Some(FamilyHookState::Up));
        assert_eq!(standing(hook("7")), Some(FamilyHookState::LedAway(QueueRange { first: 7, last: 7 })));
        assert_eq!(standing(hook("0:3")), Some(FamilyHookState::Changed));
        let damaged = InstalledHook::Damaged("half".to_owned());
        assert_eq!(standing(damaged), Some(FamilyHookState::Damaged("half".to_owned())));
    }

    #[test]
    fn a_hook_of_others_is_told_of_once_it_was_found() {
        let mut lookout = HookMonitor::new(IptablesVariant::Nft, QueueRange::default(), None);
        let mut standing = |installed| lookout.standing(IpFamily::V4, &[&place(installed)]);
        assert_eq!(standing(InstalledHook::Absent), None);
        assert_eq!(standing(hook("7")), None, "another guard's");
        assert_eq!(standing(hook("0:3")), Some(FamilyHookState::Up));
        assert_eq!(standing(hook("7")), Some(FamilyHookState::LedAway(QueueRange { first: 7, last: 7 })));
        assert_eq!(standing(InstalledHook::Absent), Some(FamilyHookState::Gone));
    }
}
