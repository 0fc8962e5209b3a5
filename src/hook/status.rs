//! State of the hook: its options, read from the rules, and the rules' counters.

use super::hook_state::{self, HookJump, HookedTraffic};
use super::iptables::IptablesInstance;
use super::rule_text::{self, MAIN};
use super::table_listing::TableListing;
use super::{BaseChain, HookConfig, HookError, IpFamily, IptablesVariant, MarkField, PortList, QueueRange};

/// Hook of one family and variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyStatus {
    /// Address family.
    pub family: IpFamily,
    /// Implementation of iptables; [`IptablesVariant::System`] only if it is unknown.
    pub variant: IptablesVariant,
    /// State of the hook.
    pub installed: InstalledHook,
    /// Jumps to the hook's chain, even if that is missing.
    pub jumps: Vec<HookJump>,
}

impl FamilyStatus {
    pub(super) fn unknown(family: IpFamily, variant: IptablesVariant, error: &HookError) -> Self {
        Self { family, variant, installed: InstalledHook::Unknown(error.to_string()), jumps: Vec::new() }
    }
}

/// State of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstalledHook {
    /// No rule of the hook.
    Absent,
    /// Not inspected, with the reason.
    Unknown(String),
    /// Rules that differ from those of [`up`](super::up).
    Damaged(String),
    /// Hook with these options and counters.
    Complete(HookConfig, HookCounters),
}

/// Numbers of packets that matched the rules since their creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookCounters {
    /// Packets that reached a queue rule, inspected or not.
    pub queued: u64,
    /// Packets of connections that were already decided to pass.
    pub passed: u64,
    /// Packets of connections that were already decided to be blocked.
    pub blocked: u64,
    /// Packets of bodies that passed unread, and their acknowledgements.
    pub released: u64,
    /// Packets that third-party rules before the jumps let pass uninspected.
    pub skipped: u64,
}

pub(super) fn of(tables: &IptablesInstance) -> Result<FamilyStatus, HookError> {
    let listing = tables.list()?;
    let mut installed = installed(&listing);
    let led: Vec<HookedTraffic> = match &installed {
        InstalledHook::Complete(config, _) => HookedTraffic::by(config).collect(),
        // The options of a damaged hook are unknown.
        _ => HookedTraffic::by(&HookConfig::default()).collect(),
    };
    let jumps = hook_state::jumps(&listing, &led);
    if let InstalledHook::Complete(_, counters) = &mut installed {
        counters.skipped = hook_state::skipped(&listing, &jumps, &led);
    }
    Ok(FamilyStatus { family: tables.family(), variant: tables.variant(), installed, jumps })
}

fn installed(listing: &TableListing) -> InstalledHook {
    if !listing.has_chain(MAIN) {
        let has_jumps =
            rule_text::BASES.into_iter().any(|base| rule_text::our_jumps(listing, base).next().is_some());
        return match has_jumps {
            true => InstalledHook::Damaged(format!("its jumps lead to a missing chain {MAIN}")),
            false => InstalledHook::Absent,
        };
    }
    let Some(config) = read_config(listing) else {
        return InstalledHook::Damaged(format!("chain {MAIN} differs from bannerwall's rules"));
    };
    for (chain, rules) in rule_text::chains(&config) {
        if !listing.rules(chain).eq(rules.iter().map(String::as_str)) {
            return InstalledHook::Damaged(format!("chain {chain} differs from bannerwall's rules"));
        }
    }
    if config.chains.is_empty() {
        return InstalledHook::Damaged("no base chain leads to it".to_owned());
    }
    let wanted = rule_text::jumps(&config);
    for base in rule_text::BASES {
        let mut there: Vec<&str> = rule_text::our_jumps(listing, base).collect();
        // A repeated jump is a flaw of its own, reported by `FamilyStatus::flaws`.
        there.dedup();
        if !rule_text::in_base(&wanted, base).eq(there) {
            return InstalledHook::Damaged(format!("the jumps in {base} differ from bannerwall's"));
        }
    }
    InstalledHook::Complete(config, read_counters(listing))
}

/// Returns the options behind the existing main chain and jumps.
pub(super) fn read_config(listing: &TableListing) -> Option<HookConfig> {
    let first = listing.rules(MAIN).next()?;
    let (_, mask) = option(first, "--mark")?.split_once("/0x")?;
    let mark = MarkField::from_mask(u32::from_str_radix(mask, 16).ok()?)?;
    let queue_rules = |protocol: &str| -> Vec<&str> {
        // Rules about decided connections show no ports.
        let queues = |rule: &&str| rule.contains("NFQUEUE") && !rule.contains("connmark");
        listing.rules(MAIN).filter(|rule| queues(rule) && rule.starts_with(protocol)).collect()
    };
    let (queue_rules, udp_rules) = (queue_rules("-p tcp"), queue_rules("-p udp"));
    let queue_rule = queue_rules.first()?;
    let queues = option(queue_rule, "--queue-num").or_else(|| option(queue_rule, "--queue-balance"))?;
    let leads =
        |chain: &BaseChain| rule_text::our_jumps(listing, chain.base()).any(|rule| rule.ends_with(MAIN));
    Some(HookConfig {
        chains: BaseChain::ALL.into_iter().filter(leads).collect(),
        ports: read_ports(&queue_rules)?,
        udp: if udp_rules.is_empty() { None } else { read_ports(&udp_rules)? },
        queues: queues.parse::<QueueRange>().ok()?,
        bypass: queue_rule.ends_with("--queue-bypass"),
        mark,
        releases: listing.rules(MAIN).any(|rule| rule.contains("--bytecode")),
    })
}

/// Returns the ports of all queue rules; `Some(None)` if every port is queued.
fn read_ports(queue_rules: &[&str]) -> Option<Option<PortList>> {
    let lists: Option<Vec<&str>> = queue_rules.iter().map(|rule| option(rule, "--ports")).collect();
    match lists {
        Some(lists) => lists.join(",").parse().ok().map(Some),
        None => Some(None),
    }
}

/// Returns the word after `name`.
fn option<'a>(rule: &'a str, name: &str) -> Option<&'a str> {
    rule.split(' ').skip_while(|word| *word != name).nth(1)
}

pub(super) fn read_counters(listing: &TableListing) -> HookCounters {
    let mut counters = HookCounters::default();
    for (rule, packets) in listing.counted(MAIN) {
        match option(rule, "-j") {
            Some("NFQUEUE") => counters.queued += packets,
            // Before the next arm: these rules have a connection mark, too.
            Some("RETURN") if rule.contains("--ctdir") => counters.released += packets,
            Some("RETURN") if rule.contains("connmark") => counters.passed += packets,
            Some("DROP") => counters.blocked += packets,
            _ => {}
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing_of(config: &HookConfig) -> TableListing {
        TableListing::read(&rule_text::changes(config, &TableListing::default()).join("\n"))
    }

    #[test]
    fn the_options_are_read_back_from_the_rules_they_make() {
        let configs = [
            HookConfig::default(),
            HookConfig { chains: vec![BaseChain::Forward], bypass: false, ..HookConfig::default() },
            HookConfig {
                queues: QueueRange { first: 3, last: 9 },
                mark: MarkField::new(4).expect("within the mark"),
                ports: Some("1,2,3,4,5,6,7,8,9,10,11,12,13,14,8000-8010,22".parse().expect("ports")),
                ..HookConfig::default()
            },
            HookConfig { udp: Some("443,8443".parse().expect("ports")), ..HookConfig::default() },
            HookConfig { releases: false, ..HookConfig::default() },
        ];
        for config in configs {
            let listing = listing_of(&config);
            assert_eq!(installed(&listing), InstalledHook::Complete(config, HookCounters::default()));
        }
    }

    /// The hook with lines of `iptables-save` behind it.
    fn with(more: &str) -> TableListing {
        let lines = rule_text::changes(&HookConfig::default(), &TableListing::default()).join("\n");
        TableListing::read(&format!("{lines}\n{more}"))
    }

    #[test]
    fn a_foreign_rule_in_our_chain_and_a_missing_jump_are_damage() {
        assert!(matches!(installed(&with("")), InstalledHook::Complete(..)));
        assert!(matches!(installed(&with("-A BANNERWALL -j ACCEPT")), InstalledHook::Damaged(_)));
        let lines = rule_text::changes(&HookConfig::default(), &TableListing::default());
        for jump in lines.iter().filter(|line| line.starts_with("-A PREROUTING")) {
            let rest: Vec<&str> = lines.iter().filter(|line| *line != jump).map(String::as_str).collect();
            assert!(
                matches!(installed(&TableListing::read(&rest.join("\n"))), InstalledHook::Damaged(_)),
                "{jump}"
            );
        }
        assert_eq!(installed(&TableListing::read("-A INPUT -p udp -j DROP")), InstalledHook::Absent);
    }

    #[test]
    fn a_doubled_jump_is_still_a_whole_hook() {
        let listing = with("-A INPUT -p tcp -j BANNERWALL");
        assert!(matches!(installed(&listing), InstalledHook::Complete(..)));
    }

    #[test]
    fn counters_are_told_apart_by_what_their_rule_does() {
        let counted = TableListing::read(
            "[1:40] -A BANNERWALL -m mark --mark 0xc0000000/0xc0000000 -j RETURN\n\
             [2:80] -A BANNERWALL -m connmark --mark 0x80000000/0xc0000000 -j DROP\n\
             [3:120] -A BANNERWALL -m connmark --mark 0x40000000/0xc0000000 -j RETURN\n\
             [6:120] -A BANNERWALL -p tcp -m connmark --mark 0xc0000000/0xc0000000 -m conntrack --ctdir REPLY -j RETURN\n\
             [4:160] -A BANNERWALL -p tcp -m multiport --ports 22 -j NFQUEUE --queue-num 0\n\
             [5:160] -A BANNERWALL -p tcp -m multiport --ports 23 -j NFQUEUE --queue-num 0",
        );
        assert_eq!(
            read_counters(&counted),
            HookCounters { queued: 9, passed: 3, blocked: 2, released: 6, skipped: 0 }
        );
    }
}
