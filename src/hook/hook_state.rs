//! State of a whole hook: its presence, its place among other rules, and the listeners of its queues.
//!
//! This module is pure: it takes listed rules and served queues, and returns the state.

use std::fmt;

use super::hooked_traffic::may_meet;
pub use super::hooked_traffic::{HookTransport, HookedTraffic};
use super::table_listing::TableListing;
use super::{
    BaseChain, FamilyStatus, HookConfig, InstalledHook, IpFamily, QueueListener, rule_text, third_party_rules,
};

/// Jump to bannerwall's chain in a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookJump {
    /// Base chain that holds it.
    pub chain: BaseChain,
    /// Position in the chain, counted from 1 as iptables does.
    pub position: usize,
    /// Rule, as `iptables -S` prints it after `-A CHAIN`.
    pub rule: String,
    /// Third-party rules before it that let its packets leave the chain uninspected, as printed.
    pub before: Vec<String>,
    /// Third-party rules after it that queued packets miss, as printed.
    pub behind: Vec<String>,
}

/// Fault of a hook with all its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookFlaw {
    /// A base chain has several jumps: each packet is queued several times.
    Doubled {
        /// Base chain.
        chain: BaseChain,
        /// Number of jumps.
        times: usize,
    },
    /// Third-party rules before the jump let packets leave the chain uninspected.
    Skipped {
        /// Base chain.
        chain: BaseChain,
        /// Rules.
        rules: Vec<String>,
    },
    /// Third-party rules stand after the jump: queued packets never meet them.
    Behind {
        /// Base chain.
        chain: BaseChain,
        /// Rules.
        rules: Vec<String>,
    },
}

impl fmt::Display for HookFlaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doubled { chain, times } => {
                write!(formatter, "{} has {times} jumps to it", chain.base())
            }
            Self::Skipped { chain, rules } => write!(
                formatter,
                "rules before the jump in {} let packets pass uninspected: {}",
                chain.base(),
                rules.join("; ")
            ),
            Self::Behind { chain, rules } => write!(
                formatter,
                "rules after the jump in {} do not see the queued packets, such as the first of each \
                 connection: {}",
                chain.base(),
                rules.join("; ")
            ),
        }
    }
}

/// State of the hook over all families and variants, the most important fault first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookState {
    /// There is no hook.
    Down,
    /// Part of the hook is missing: a family, or some of its rules.
    Half,
    /// The hook leads to a queue that no guard reads.
    LedNowhere,
    /// The hook works with faults, see [`HookFlaw`].
    Flawed,
    /// The hook is complete, in its place, and served.
    Up,
}

/// Evaluates the result of [`status`](super::status()); `serves` returns true if a guard reads the queue.
pub fn state(places: &[FamilyStatus], serves: impl Fn(u16) -> bool) -> HookState {
    // An unreadable place counts as one that may hold a hook.
    if places.iter().all(|place| place.installed == InstalledHook::Absent) {
        return HookState::Down;
    }
    let damaged = places.iter().any(|place| matches!(place.installed, InstalledHook::Damaged(_)));
    let covered = |family: IpFamily| hooks(places).any(|(place, _)| place.family == family);
    if damaged || !places.iter().all(|place| covered(place.family)) {
        return HookState::Half;
    }
    if !unserved(places, serves).is_empty() {
        return HookState::LedNowhere;
    }
    if places.iter().all(|place| place.flaws().is_empty()) { HookState::Up } else { HookState::Flawed }
}

/// Returns the unserved queues of a hook, sorted and without duplicates.
pub fn unserved(places: &[FamilyStatus], serves: impl Fn(u16) -> bool) -> Vec<u16> {
    let mut queues: Vec<u16> = hooks(places).flat_map(|(_, config)| config.queues.numbers()).collect();
    queues.sort_unstable();
    queues.dedup();
    queues.retain(|queue| !serves(*queue));
    queues
}

/// Describes the fault of a queue, and the handling of its packets.
pub fn fault_of_queue(places: &[FamilyStatus], queue: u16, listener: Option<&QueueListener>) -> String {
    listener.map_or_else(|| format!("no guard listens: {}", fate(places, queue)), ToString::to_string)
}

/// Describes the handling of packets in a queue without a listener.
fn fate(places: &[FamilyStatus], queue: u16) -> &'static str {
    let leads_here = |config: &HookConfig| config.queues.numbers().contains(&queue);
    if hooks(places).any(|(_, config)| leads_here(config) && !config.bypass) {
        "its packets are dropped (on failure closed)"
    } else {
        "its packets pass uninspected (on failure open)"
    }
}

/// Returns the complete hooks with their options.
pub fn hooks(places: &[FamilyStatus]) -> impl Iterator<Item = (&FamilyStatus, &HookConfig)> {
    places.iter().filter_map(|place| match &place.installed {
        InstalledHook::Complete(config, _) => Some((place, config)),
        InstalledHook::Absent | InstalledHook::Unknown(_) | InstalledHook::Damaged(_) => None,
    })
}

impl FamilyStatus {
    /// Returns the faults of the jumps' places.
    pub fn flaws(&self) -> Vec<HookFlaw> {
        BaseChain::ALL.into_iter().flat_map(|chain| self.flaws_of(chain)).collect()
    }

    fn flaws_of(&self, chain: BaseChain) -> Vec<HookFlaw> {
        let jumps: Vec<&HookJump> = self.jumps.iter().filter(|jump| jump.chain == chain).collect();
        let mut flaws = Vec::new();
        for carried in [HookTransport::Tcp, HookTransport::Udp] {
            let mut jumps = jumps.iter().filter(|jump| may_meet(&jump.rule, carried));
            let Some(first) = jumps.next() else { continue };
            // For one protocol at a time: a jump for TCP and one for UDP are no duplicates.
            let times = 1 + jumps.count();
            if times > 1 {
                flaws.push(HookFlaw::Doubled { chain, times });
            }
            let skipped = HookFlaw::Skipped { chain, rules: first.before.clone() };
            let behind = HookFlaw::Behind { chain, rules: first.behind.clone() };
            for (flaw, rules) in [(skipped, &first.before), (behind, &first.behind)] {
                if !rules.is_empty() && !flaws.contains(&flaw) {
                    flaws.push(flaw);
                }
            }
        }
        flaws
    }
}

/// Returns the jumps in the base chains that lead packets to the guard, with the misplaced third-party rules
/// of each; `led` are the hook's packets.
pub(super) fn jumps(listing: &TableListing, led: &[HookedTraffic]) -> Vec<HookJump> {
    let is_ours = rule_text::is_jump;
    let in_chain = |chain: BaseChain| {
        let rules: Vec<&str> = listing.rules(chain.base()).collect();
        let jump = |(index, rule): (usize, &&str)| {
            let led: Vec<HookedTraffic> =
                led.iter().filter(|led| may_meet(rule, led.carried)).cloned().collect();
            let (before, behind) = rules.split_at(index);
            let others = |rules: &[&str], is_wrong: &dyn Fn(&str) -> bool| {
                let wrong = rules.iter().filter(|other| !is_ours(other) && is_wrong(other));
                wrong.map(|other| (*other).to_owned()).collect()
            };
            let lets_pass =
                |other: &str| !is_apart(rule, other) && third_party_rules::lets_pass(listing, other, &led);
            HookJump {
                chain,
                position: index + 1,
                rule: (*rule).to_owned(),
                before: others(before, &lets_pass),
                behind: others(behind, &|other| third_party_rules::misses(listing, other, &led)),
            }
        };
        // The jump to the CLEAN chain queues nothing, so rules before or after it lose nothing.
        let leads_to_us = |rule: &str| is_ours(rule) && !rule.ends_with(rule_text::CLEAN);
        rules.iter().enumerate().filter(|(_, rule)| leads_to_us(rule)).map(jump).collect::<Vec<_>>()
    };
    BaseChain::ALL.into_iter().flat_map(in_chain).collect()
}

/// Returns the number of packets that rules before the jumps let pass uninspected.
pub(super) fn skipped(listing: &TableListing, jumps: &[HookJump], led: &[HookedTraffic]) -> u64 {
    let mut seen = Vec::new();
    let mut packets = 0_u64;
    for jump in jumps {
        for (rule, count) in listing.counted(jump.chain.base()) {
            // A rule may be ahead of several jumps; its packets count once.
            if jump.before.iter().any(|before| before == rule) && !seen.contains(&(jump.chain, rule)) {
                seen.push((jump.chain, rule));
                packets = packets.saturating_add(third_party_rules::passed(listing, rule, count, led));
            }
        }
    }
    packets
}

/// True if a jump excludes the interface that another rule requires.
fn is_apart(jump: &str, other: &str) -> bool {
    jump.starts_with("! -o lo ") && other.contains("-o lo ") && !other.contains("! -o lo ")
}

#[cfg(test)]
mod tests {
    use super::super::{HookCounters, IptablesVariant};
    use super::*;

    fn place(family: IpFamily, variant: IptablesVariant, installed: InstalledHook) -> FamilyStatus {
        FamilyStatus { family, variant, installed, jumps: Vec::new() }
    }

    fn jumps_of(listing: &TableListing) -> Vec<HookJump> {
        let udp = Some("443".parse().expect("ports"));
        jumps(listing, &HookedTraffic::by(&HookConfig { udp, ..HookConfig::default() }).collect::<Vec<_>>())
    }

    fn whole() -> InstalledHook {
        InstalledHook::Complete(HookConfig::default(), HookCounters::default())
    }

    #[test]
    fn up_means_a_whole_and_served_hook_for_each_family_in_some_variant() {
        let v4 = place(IpFamily::V4, IptablesVariant::Nft, whole());
        let v6 = place(IpFamily::V6, IptablesVariant::Nft, InstalledHook::Absent);
        let v6_legacy = place(IpFamily::V6, IptablesVariant::Legacy, whole());
        let all = [v4.clone(), v6.clone(), v6_legacy.clone()];
        assert_eq!(state(std::slice::from_ref(&v6), |_| true), HookState::Down);
        assert_eq!(state(&[v4.clone(), v6.clone()], |_| true), HookState::Half);
        assert_eq!(state(&all, |queue| queue == 0), HookState::Up);
        assert_eq!(state(&all, |_| false), HookState::LedNowhere);
        let damaged = place(IpFamily::V4, IptablesVariant::Legacy, InstalledHook::Damaged("half".to_owned()));
        assert_eq!(state(&[v4, damaged, v6, v6_legacy], |_| true), HookState::Half);
    }

    #[test]
    fn jumps_for_tcp_and_udp_are_two_and_each_has_its_own_rules_behind_it() {
        let listing = TableListing::read(
            "-N BANNERWALL\n-A FORWARD -p tcp -j BANNERWALL\n-A FORWARD -p udp -j BANNERWALL\n\
             -A FORWARD -p 17 -j DROP\n-A INPUT -p tcp -j BANNERWALL\n-A INPUT -p udp -j DROP",
        );
        let found =
            FamilyStatus { jumps: jumps_of(&listing), ..place(IpFamily::V4, IptablesVariant::Nft, whole()) };
        let behind = HookFlaw::Behind { chain: BaseChain::Forward, rules: vec!["-p 17 -j DROP".to_owned()] };
        assert_eq!(found.flaws(), [behind]);
    }

    #[test]
    fn queues_without_a_listener_are_told_once() {
        let config = HookConfig { queues: "2:4".parse().expect("queues"), ..HookConfig::default() };
        let installed = InstalledHook::Complete(config, HookCounters::default());
        let places = IpFamily::ALL.map(|family| place(family, IptablesVariant::Nft, installed.clone()));
        assert_eq!(unserved(&places, |queue| queue == 3), [2, 4]);
    }

    #[test]
    fn rules_on_the_wrong_side_of_the_jump_and_doubled_jumps_are_flaws() {
        let listing = TableListing::read(
            "-N BANNERWALL\n-A FORWARD -s 192.0.2.1/32 -j ACCEPT\n-A FORWARD -p tcp -j BANNERWALL\n\
             -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000\n\
             -A FORWARD -p udp -j ACCEPT\n-A FORWARD -p tcp -j BANNERWALL\n-A FORWARD ! -p tcp -j ACCEPT\n\
             -A INPUT -p tcp -j BANNERWALL\n-A INPUT ! -p udp -j DROP",
        );
        let found =
            FamilyStatus { jumps: jumps_of(&listing), ..place(IpFamily::V4, IptablesVariant::Nft, whole()) };
        let positions: Vec<(BaseChain, usize)> =
            found.jumps.iter().map(|jump| (jump.chain, jump.position)).collect();
        assert_eq!(positions, [(BaseChain::Input, 1), (BaseChain::Forward, 2), (BaseChain::Forward, 5)]);
        assert_eq!(
            found.flaws(),
            [
                HookFlaw::Behind { chain: BaseChain::Input, rules: vec!["! -p udp -j DROP".to_owned()] },
                HookFlaw::Doubled { chain: BaseChain::Forward, times: 2 },
                HookFlaw::Skipped {
                    chain: BaseChain::Forward,
                    rules: vec!["-s 192.0.2.1/32 -j ACCEPT".to_owned()]
                },
                HookFlaw::Behind {
                    chain: BaseChain::Forward,
                    rules: vec!["-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000".to_owned()]
                },
            ]
        );
        assert_eq!(state(&[found], |_| true), HookState::Flawed);
    }

    #[test]
    fn packets_that_pass_before_the_jump_are_counted_once_and_loopback_where_it_is_left_out_is_none() {
        let listing = TableListing::read(
            ":BANNERWALL - [0:0]\n[7:1] -A OUTPUT -o lo -j ACCEPT\n[0:0] -A OUTPUT ! -o lo -p tcp -j BANNERWALL\n\
             [5:1] -A INPUT -p 6 -j RETURN\n[1:1] -A INPUT -p tcp -j BANNERWALL\n[1:1] -A INPUT -p tcp -j BANNERWALL",
        );
        let led: Vec<HookedTraffic> = HookedTraffic::by(&HookConfig::default()).collect();
        let jumps = jumps(&listing, &led);
        assert_eq!(skipped(&listing, &jumps, &led), 5, "{jumps:?}");
    }
}
