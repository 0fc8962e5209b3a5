//! State of the machine, read once for several checks: all firewall rules, and the hook.

use serde_json::Value;

use super::nft::NftRuleset;
use super::program_query::{ProgramQueryError, ask, ask_json};
use crate::hook::hook_state::{self, HookedTraffic};
use crate::hook::{
    self, FamilyStatus, HookConfig, HookError, IpFamily, IptablesScope, IptablesVariant, MarkField,
};

/// Third-party rule, in the notation of the program that lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignRule {
    /// Program that shows it, and the table.
    pub(super) place: String,
    /// Rule, as `iptables-save` prints it.
    pub(super) text: String,
}

/// State of the machine.
pub(super) struct MachineState {
    /// The hook, or the error of reading it.
    pub(super) hook: Result<Vec<FamilyStatus>, HookError>,
    /// Third-party rules of iptables, in both variants and families.
    pub(super) iptables: Vec<Result<Vec<ForeignRule>, ProgramQueryError>>,
    /// Rules of `nf_tables`.
    pub(super) nft: Result<NftRuleset, ProgramQueryError>,
    /// Routing rules of each family.
    pub(super) routing: Vec<Result<Value, ProgramQueryError>>,
}

impl MachineState {
    pub(super) fn read(scope: &IptablesScope) -> Self {
        Self {
            hook: hook::status(scope.clone()),
            iptables: SAVES.iter().filter_map(read_save).collect(),
            nft: ask_json("nft", "nftables", &["-j", "list", "ruleset"])
                .map(|ruleset| NftRuleset::read(&ruleset)),
            routing: ["-4", "-6"]
                .iter()
                .map(|family| ask_json("ip", "iproute2", &["-j", family, "rule"]))
                .collect(),
        }
    }

    /// Returns the hook's state; empty if it could not be read.
    pub(super) fn places(&self) -> &[FamilyStatus] {
        self.hook.as_deref().unwrap_or_default()
    }

    /// Returns the traffic that the active hooks queue; all TCP if there is none.
    pub(super) fn led(&self) -> Vec<HookedTraffic> {
        let led: Vec<HookedTraffic> =
            hook_state::hooks(self.places()).flat_map(|(_, config)| HookedTraffic::by(config)).collect();
        // Without a hook, the check shows what would disturb a default one.
        if led.is_empty() { HookedTraffic::by(&HookConfig::default()).collect() } else { led }
    }

    /// Returns the mark bits of the active hook, or the default ones.
    pub(super) fn mark(&self) -> MarkField {
        hook_state::hooks(self.places()).map(|(_, config)| config.mark).next().unwrap_or_default()
    }

    /// Returns every third-party rule of iptables that could be read.
    pub(super) fn foreign_rules(&self) -> impl Iterator<Item = &ForeignRule> {
        self.iptables.iter().flatten().flatten()
    }

    /// Returns the errors of reading rules.
    pub(super) fn unread_rules(&self) -> impl Iterator<Item = &ProgramQueryError> {
        self.iptables.iter().filter_map(|read| read.as_ref().err()).chain(self.nft.as_ref().err())
    }
}

/// Program that lists the rules of one variant and family.
struct IptablesSave {
    family: IpFamily,
    variant: IptablesVariant,
    program: &'static str,
    /// File with the kernel's existing legacy tables.
    legacy_tables: &'static str,
}

const SAVES: [IptablesSave; 4] = [
    IptablesSave {
        family: IpFamily::V4,
        variant: IptablesVariant::Nft,
        program: "iptables-nft-save",
        legacy_tables: "/proc/net/ip_tables_names",
    },
    IptablesSave {
        family: IpFamily::V6,
        variant: IptablesVariant::Nft,
        program: "ip6tables-nft-save",
        legacy_tables: "/proc/net/ip6_tables_names",
    },
    IptablesSave {
        family: IpFamily::V4,
        variant: IptablesVariant::Legacy,
        program: "iptables-legacy-save",
        legacy_tables: "/proc/net/ip_tables_names",
    },
    IptablesSave {
        family: IpFamily::V6,
        variant: IptablesVariant::Legacy,
        program: "ip6tables-legacy-save",
        legacy_tables: "/proc/net/ip6_tables_names",
    },
];

/// Returns the rules from a program; `None` if the kernel can have none, since the query itself would create
/// a table.
fn read_save(save: &IptablesSave) -> Option<Result<Vec<ForeignRule>, ProgramQueryError>> {
    let program = save.program;
    // The program for the legacy tables would load their kernel modules. Without tables it has nothing
    // to list.
    if save.variant == IptablesVariant::Legacy {
        match std::fs::read_to_string(save.legacy_tables) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Ok(names) if names.trim().is_empty() => return None,
            Err(error) => {
                return Some(Err(ProgramQueryError::Failed { program, message: error.to_string() }));
            }
            Ok(_) => {}
        }
    }
    let rules = ask(program, "iptables", &[]).map(|text| foreign(save.family, program, &text));
    Some(rules)
}

/// Returns the third-party rules of a listing: not in one of the hook's chains, and not a jump to one.
fn foreign(family: IpFamily, program: &str, listing: &str) -> Vec<ForeignRule> {
    let mut table = "";
    let mut rules = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if line.starts_with("-A ") && !hook::is_ours(line) {
            let variant = program.trim_end_matches("-save");
            rules.push(ForeignRule {
                place: format!("{family} ({variant} -t {table})"),
                text: line.to_owned(),
            });
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_ours_are_left_out_and_the_table_is_named() {
        let listing = "# made\n*mangle\n:FORWARD ACCEPT [0:0]\n:BANNERWALL - [0:0]\n\
                       -A FORWARD -p tcp -j BANNERWALL\n-A BANNERWALL -j DROP\n\
                       -A FORWARD -j MARK --set-xmark 0x1/0xff\nCOMMIT\n*raw\n-A PREROUTING -j CT --notrack\n";
        let rules = foreign(IpFamily::V4, "iptables-nft-save", listing);
        let texts: Vec<String> = rules.iter().map(|rule| format!("{}: {}", rule.place, rule.text)).collect();
        assert_eq!(
            texts,
            [
                "IPv4 (iptables-nft -t mangle): -A FORWARD -j MARK --set-xmark 0x1/0xff",
                "IPv4 (iptables-nft -t raw): -A PREROUTING -j CT --notrack"
            ]
        );
    }
}
