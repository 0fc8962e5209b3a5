//! Who else uses our two bits of the packet mark and the connection mark.
//!
//! Two faults are told apart: somebody uses just those bits (then other bits are the way out), and
//! somebody compares, sets or copies the whole mark (then only a mask in that rule is).

mod bits;

use serde_json::Value;

use super::Report;
use super::scene::Scene;
use crate::hook::MarkField;

/// All bits of a mark.
const WHOLE: u32 = u32::MAX;

pub(super) fn check(scene: &Scene, mark: MarkField) -> Report {
    let iptables = scene
        .foreign_rules()
        .map(|rule| (bits::of_iptables_rule(&rule.text), format!("{}: {}", rule.place, rule.text)));
    let nft = scene.nft.iter().flat_map(|nft| &nft.rules);
    let nft = nft.map(|rule| (bits::of_nft_rule(&rule.statements), rule.to_string()));
    let routing = scene.routing.iter().flatten().flat_map(routing_rules);
    let users: Vec<(u32, String)> =
        iptables.chain(nft).chain(routing).filter(|(used, _)| used & mark.mask() != 0).collect();
    let mut report = Report::fine(format!("nobody else uses bits {mark}"));
    let names = |whole: bool| {
        let named = users.iter().filter(|(used, _)| (*used == WHOLE) == whole).map(|(_, name)| name.as_str());
        named.collect::<Vec<_>>().join("; ")
    };
    let (some, whole) = (names(false), names(true));
    if !some.is_empty() {
        report.add_fault(format!("bits {mark} are used by: {some}; choose others with --mark BIT"));
    }
    if !whole.is_empty() {
        report.add_fault(format!(
            "the whole mark, bits {mark} with it, is compared, set or copied by: {whole}; give those a mask \
             without bits {mark} (as in 2/0xff)"
        ));
    }
    for blind in scene.unread_rules().chain(scene.routing.iter().filter_map(|read| read.as_ref().err())) {
        report.add_blind(format!("who else uses bits {mark}: {blind}"));
    }
    report
}

/// Routing rules that look at the mark: `ip -j rule`. Without a mask all 32 bits are compared.
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
