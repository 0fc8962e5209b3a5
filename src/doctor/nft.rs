//! Rules of `nf_tables` from `nft -j list ruleset` (libnftables-json(5)).
//!
//! They include rules of iptables-nft without their details; those are read with `iptables-nft-save`.

use std::fmt;

use serde_json::Value;

use crate::hook;
use crate::hook::hook_state::HookedTraffic;

/// One rule.
#[derive(Debug, Clone)]
pub(super) struct NftRule {
    family: String,
    table: String,
    chain: String,
    handle: u64,
    /// Matches and statements, in order.
    pub(super) statements: Vec<Value>,
}

impl fmt::Display for NftRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, table, chain, handle, .. } = self;
        write!(formatter, "nft rule {family} {table} {chain} handle {handle}")
    }
}

/// All third-party rules.
#[derive(Debug, Default)]
pub(super) struct NftRuleset {
    pub(super) rules: Vec<NftRule>,
}

impl NftRuleset {
    pub(super) fn read(ruleset: &Value) -> Self {
        let objects = ruleset["nftables"].as_array().map_or(&[][..], Vec::as_slice);
        let rules = objects.iter().filter_map(|object| object.get("rule")).filter_map(NftRule::read);
        let is_ours = |rule: &NftRule| hook::is_our_chain(&rule.chain) || rule.is_our_jump();
        Self { rules: rules.filter(|rule| !is_ours(rule)).collect() }
    }

    /// Returns rules that exclude the hook's traffic from connection tracking.
    pub(super) fn untracking(&self, led: &[HookedTraffic]) -> impl Iterator<Item = &NftRule> {
        self.rules.iter().filter(|rule| rule.does("notrack") && rule.may_meet(led))
    }

    /// Returns rules that add flows of the hook's traffic to a flowtable.
    pub(super) fn offloading(&self, led: &[HookedTraffic]) -> impl Iterator<Item = &NftRule> {
        self.rules.iter().filter(|rule| rule.does("flow") && rule.may_meet(led))
    }
}

impl NftRule {
    fn read(rule: &Value) -> Option<Self> {
        let text = |key: &str| rule[key].as_str().map(str::to_owned);
        Some(Self {
            family: text("family")?,
            table: text("table")?,
            chain: text("chain")?,
            handle: rule["handle"].as_u64()?,
            statements: rule["expr"].as_array()?.clone(),
        })
    }

    /// True if the rule leads to one of the hook's chains; some of these jumps ask for the mark.
    fn is_our_jump(&self) -> bool {
        let mut targets = self.statements.iter().filter_map(|statement| statement["jump"]["target"].as_str());
        targets.any(hook::is_our_chain)
    }

    fn does(&self, statement: &str) -> bool {
        self.statements.iter().any(|there| there.get(statement).is_some())
    }

    /// True if every match of the rule includes some of the hook's traffic.
    fn may_meet(&self, led: &[HookedTraffic]) -> bool {
        let matches = || self.statements.iter().filter_map(|statement| statement.get("match"));
        led.iter().any(|led| matches().all(|condition| match_meets(condition, led)))
    }
}

/// True if a match includes some of the hook's traffic: `meta l4proto`, `ip protocol`, `ip6 nexthdr`, or a
/// field of a transport header, which implies its protocol.
fn match_meets(condition: &Value, led: &HookedTraffic) -> bool {
    const TRANSPORTS: [&str; 9] = ["tcp", "udp", "udplite", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah"];
    let left = &condition["left"];
    if let Some(name) = left["payload"]["protocol"].as_str().filter(|name| TRANSPORTS.contains(name)) {
        let is_port = matches!(left["payload"]["field"].as_str(), Some("sport" | "dport"));
        let port = condition["right"].as_u64().filter(|_| is_port && condition["op"] == "==");
        let port = port.and_then(|port| u16::try_from(port).ok());
        return name == led.carried.name() && port.is_none_or(|port| led.has_port(port));
    }
    let asks_protocol = left["meta"]["key"] == "l4proto"
        || matches!(left["payload"]["field"].as_str(), Some("protocol" | "nexthdr"));
    if !asks_protocol {
        return true;
    }
    let is_it = |value: &Value| value == led.carried.name() || *value == led.carried.number();
    let right = &condition["right"];
    let named = is_it(right) || right["set"].as_array().is_some_and(|set| set.iter().any(is_it));
    // A named set, a range or a map may contain it.
    let open = !(right.is_string() || right.is_number() || right["set"].is_array())
        || right.as_str().is_some_and(|text| text.starts_with('@'));
    open || named == (condition["op"] != "!=")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hook::HookConfig;

    fn rule(chain: &str, statements: &Value) -> Value {
        json!({"rule": {"family": "inet", "table": "t", "chain": chain, "handle": 4, "expr": statements}})
    }

    #[test]
    fn rules_that_untrack_or_offload_tcp_are_found() {
        let protocol =
            |value| json!({"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": value}});
        let port = |name: &str| {
            let left = json!({"payload": {"protocol": name, "field": "dport"}});
            json!({"match": {"op": "==", "left": left, "right": 53}})
        };
        let ruleset = json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            rule("a", &json!([port("tcp"), {"notrack": null}])),
            rule("b", &json!([port("udp"), {"notrack": null}])),
            rule("c", &json!([protocol(json!("udp")), {"notrack": null}])),
            rule("d", &json!([protocol(json!({"set": ["tcp", "udp"]})), {"notrack": null}])),
            rule("e", &json!([{"flow": {"op": "add", "flowtable": "@f"}}])),
            rule("BANNERWALL", &json!([{"notrack": null}])),
            rule("PREROUTING", &json!([{"notrack": null}, {"jump": {"target": "BANNERWALL-CLEAN"}}])),
        ]});
        let nft = NftRuleset::read(&ruleset);
        let chains = |rules: Vec<&NftRule>| rules.iter().map(|rule| rule.chain.clone()).collect::<Vec<_>>();
        let all_of_tcp = HookConfig::default();
        let led: Vec<HookedTraffic> = HookedTraffic::by(&all_of_tcp).collect();
        assert_eq!(chains(nft.untracking(&led).collect()), ["a", "d"]);
        assert_eq!(chains(nft.offloading(&led).collect()), ["e"]);
        let ports = |list: &str| Some(list.parse().unwrap());
        let quic = HookConfig { ports: ports("443"), udp: ports("443"), ..all_of_tcp.clone() };
        assert_eq!(
            chains(nft.untracking(&HookedTraffic::by(&quic).collect::<Vec<_>>()).collect()),
            ["c", "d"]
        );
        let other = HookConfig { ports: ports("22"), udp: ports("50-60"), ..all_of_tcp };
        assert_eq!(
            chains(nft.untracking(&HookedTraffic::by(&other).collect::<Vec<_>>()).collect()),
            ["b", "c", "d"]
        );
        assert_eq!(nft.rules[0].to_string(), "nft rule inet t a handle 4");
    }
}
