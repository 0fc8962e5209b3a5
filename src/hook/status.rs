//! What of the hook is there: the options read back out of the rules, and the rules' counters.

use super::inspect::{self, Jump};
use super::plan::{self, MAIN};
use super::tables::{Listing, Tables};
use super::{Chain, Family, HookConfig, HookError, MarkField, Ports, Queues, Variant};

/// The hook of one family and variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyStatus {
    /// Address family.
    pub family: Family,
    /// Which iptables holds it; never [`Variant::System`].
    pub variant: Variant,
    /// What is there.
    pub installed: Installed,
    /// The jumps that lead to our chain, whether or not it is there.
    pub jumps: Vec<Jump>,
}

/// What is there of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// Nothing of ours.
    Absent,
    /// Something of ours, but not what [`up`](super::up) makes.
    Damaged(String),
    /// The hook with these options, and what its rules have counted.
    Complete(HookConfig, Counters),
}

/// How many packets the rules have seen since they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that reached a queue rule, whether or not anybody inspected them.
    pub queued: u64,
    /// Packets of connections that were decided to pass before.
    pub passed: u64,
    /// Packets of connections that were decided to be blocked before.
    pub blocked: u64,
}

pub(super) fn of(tables: &Tables) -> Result<FamilyStatus, HookError> {
    let listing = tables.list()?;
    let jumps = inspect::jumps(&listing);
    let installed = if listing.has_chain(MAIN) {
        installed(&listing, &tables.list_counters(MAIN)?)
    } else if jumps.is_empty() {
        Installed::Absent
    } else {
        Installed::Damaged(format!("jumps to a chain {MAIN} that is not there"))
    };
    Ok(FamilyStatus { family: tables.family(), variant: tables.variant(), installed, jumps })
}

fn installed(listing: &Listing, counted: &Listing) -> Installed {
    let Some(config) = read_config(listing) else {
        return Installed::Damaged(format!("chain {MAIN} is not as bannerwall makes it"));
    };
    for (chain, rules) in plan::chains(&config) {
        if !listing.rules(chain).eq(rules.iter().map(String::as_str)) {
            return Installed::Damaged(format!("chain {chain} is not as bannerwall makes it"));
        }
    }
    if config.chains.is_empty() {
        return Installed::Damaged("no base chain leads to it".to_owned());
    }
    let jumps = plan::jumps(&config);
    if !super::our_jumps(listing).iter().all(|jump| jumps.contains(jump)) {
        return Installed::Damaged("a base chain leads to it in the wrong way".to_owned());
    }
    let counters = read_counters(counted);
    Installed::Complete(config, counters)
}

/// The options that would make the main chain and the jumps that are there.
fn read_config(listing: &Listing) -> Option<HookConfig> {
    let first = listing.rules(MAIN).next()?;
    let (_, mask) = option(first, "--mark")?.split_once("/0x")?;
    let mark = MarkField::from_mask(u32::from_str_radix(mask, 16).ok()?)?;
    let queue_rules: Vec<&str> = listing.rules(MAIN).filter(|rule| rule.contains("NFQUEUE")).collect();
    let queue_rule = queue_rules.first()?;
    let queues = option(queue_rule, "--queue-num").or_else(|| option(queue_rule, "--queue-balance"))?;
    let jumps = super::our_jumps(listing);
    Some(HookConfig {
        chains: Chain::ALL
            .into_iter()
            .filter(|chain| jumps.iter().any(|(base, _)| *base == chain.base()))
            .collect(),
        ports: read_ports(&queue_rules)?,
        queues: queues.parse::<Queues>().ok()?,
        bypass: queue_rule.ends_with("--queue-bypass"),
        mark,
    })
}

/// The ports of all queue rules together; `Some(None)` where every port is queued.
fn read_ports(queue_rules: &[&str]) -> Option<Option<Ports>> {
    let lists: Option<Vec<&str>> = queue_rules.iter().map(|rule| option(rule, "--ports")).collect();
    match lists {
        Some(lists) => lists.join(",").parse().ok().map(Some),
        None => Some(None),
    }
}

/// The word behind `name`.
fn option<'a>(rule: &'a str, name: &str) -> Option<&'a str> {
    rule.split(' ').skip_while(|word| *word != name).nth(1)
}

pub(super) fn read_counters(counted: &Listing) -> Counters {
    let mut counters = Counters::default();
    for rule in counted.rules(MAIN) {
        let packets = option(rule, "-c").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        match option(rule, "-j") {
            Some("NFQUEUE") => counters.queued += packets,
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

    fn listing_of(config: &HookConfig) -> Listing {
        let text = super::super::print(config, Variant::System);
        let lines = text.lines().filter(|line| line.starts_with("iptables"));
        let lines: Vec<&str> = lines.filter_map(|line| line.strip_prefix("iptables -w -t mangle ")).collect();
        Listing::from_text(&lines.join("\n"))
    }

    #[test]
    fn the_options_are_read_back_from_the_rules_they_make() {
        let configs = [
            HookConfig::default(),
            HookConfig { chains: vec![Chain::Forward], bypass: false, ..HookConfig::default() },
            HookConfig {
                queues: Queues { first: 3, last: 9 },
                mark: MarkField::new(4).expect("within the mark"),
                ports: Some("1,2,3,4,5,6,7,8,9,10,11,12,13,14,8000-8010,22".parse().expect("ports")),
                ..HookConfig::default()
            },
        ];
        for config in configs {
            let listing = listing_of(&config);
            assert_eq!(installed(&listing, &listing), Installed::Complete(config, Counters::default()));
        }
    }

    #[test]
    fn a_foreign_rule_in_our_chain_is_damage() {
        let listing = listing_of(&HookConfig::default());
        let text = super::super::print(&HookConfig::default(), Variant::System);
        assert!(text.contains("-N BANNERWALL\n"));
        assert!(matches!(installed(&listing, &listing), Installed::Complete(..)));
        let damaged =
            Listing::from_text("-N BANNERWALL\n-A BANNERWALL -j ACCEPT\n-A INPUT -p tcp -j BANNERWALL");
        assert!(matches!(installed(&damaged, &damaged), Installed::Damaged(_)));
    }

    #[test]
    fn counters_are_told_apart_by_what_their_rule_does() {
        let counted = Listing::from_text(
            "-N BANNERWALL\n\
             -A BANNERWALL -m mark --mark 0xc0000000/0xc0000000 -c 1 40 -j RETURN\n\
             -A BANNERWALL -m connmark --mark 0x80000000/0xc0000000 -c 2 80 -j DROP\n\
             -A BANNERWALL -m connmark --mark 0x40000000/0xc0000000 -c 3 120 -j RETURN\n\
             -A BANNERWALL -p tcp -m multiport --ports 22 -c 4 160 -j NFQUEUE --queue-num 0\n\
             -A BANNERWALL -p tcp -m multiport --ports 23 -c 5 160 -j NFQUEUE --queue-num 0",
        );
        assert_eq!(read_counters(&counted), Counters { queued: 9, passed: 3, blocked: 2 });
    }
}
