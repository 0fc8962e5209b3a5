//! Check for third-party use of the hook's mark bits.
//!
//! There are two faults. If rules use just those bits, choose other bits. If rules compare, set or copy the
//! whole mark, add a mask to those rules.

mod bits;

use serde_json::Value;

use super::CheckReport;
use super::machine_state::MachineState;
use crate::hook::MarkField;

/// All bits of a mark.
const WHOLE: u32 = u32::MAX;

pub(super) fn check(scene: &MachineState, mark: MarkField) -> CheckReport {
    let iptables = scene
        .foreign_rules()
        .map(|rule| (bits::of_iptables_rule(&rule.text), format!("{}: {}", rule.place, rule.text)));
    let nft = scene.nft.iter().flat_map(|nft| &nft.rules);
    let nft = nft.map(|rule| (bits::of_nft_rule(&rule.statements), rule.to_string()));
    let routing = scene.routing.iter().flatten().flat_map(routing_rules);
    let users: Vec<(u32, String)> =
        iptables.chain(nft).chain(routing).filter(|(used, _)| used & mark.mask() != 0).collect();
    let mut report = CheckReport::fine(format!("no other rule uses bits {mark}"));
    let names = |whole: bool| {
        let named = users.iter().filter(|(used, _)| (*used == WHOLE) == whole).map(|(_, name)| name.as_str());
        named.collect::<Vec<_>>().join("; ")
    };
    let (some, whole) = (names(false), names(true));
    if !some.is_empty() {
        report.add_fault(format!("other rules use bits {mark}: {some}; choose others with --mark BIT"));
    }
    if !whole.is_empty() {
        report.add_fault(format!(
            "these rules compare, set or copy the whole mark, with bits {mark}: {whole}; add a mask to them \
             without bits {mark} (as in 2/0xff)"
        ));
    }
    for blind in scene.unread_rules().chain(scene.routing.iter().filter_map(|read| read.as_ref().err())) {
        report.add_blind(format!("third-party use of bits {mark}: {blind}"));
    }
    report
}

/// Returns the routing rules that match the mark, from `ip -j rule`. Without a mask all 32 bits are compared.
fn routing_rules(rules: &Value) -> Vec<(u32, String)> {
    let rules = rules.as_array().map_or(&[][..], Vec::as_slice);
    let look = |rule: &Value| {
        let mark = rule["fwmark"].as_str()?;
        let mask = rule["fwmask"].as_str();
        let used = mask.map_or(Some(WHOLE), bits::number)?;
        let shown = mask.map_or(mark.to_owned(), |mask| format!("{mark}/{mask}"));
        Some((used, format!("ip rule {}: fwmark {shown} lookup {}", rule["priority"], rule["table"])))
    };
    rules.iter().filter_map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routing_rule_without_a_mask_compares_every_bit() {
        let rules = serde_json::json!([
            {"priority": 0, "src": "all", "table": "local"},
            {"priority": 5, "src": "all", "fwmark": "0x3", "fwmask": "0xff", "table": "100"},
            {"priority": 6, "src": "all", "fwmark": "0x2", "table": "100"}
        ]);
        let found = routing_rules(&rules);
        assert_eq!(
            found,
            [
                (0xff, "ip rule 5: fwmark 0x3/0xff lookup \"100\"".to_owned()),
                (WHOLE, "ip rule 6: fwmark 0x2 lookup \"100\"".to_owned())
            ]
        );
    }
}
