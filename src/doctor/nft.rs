//! The rules of `nf_tables` as `nft -j list ruleset` shows them (libnftables-json(5)).
//!
//! Rules that iptables-nft made stand among them, but what they do is hidden there; those are read with
//! `iptables-nft-save`.

use std::fmt;

use serde_json::Value;

use crate::hook;

/// One rule.
#[derive(Debug, Clone)]
pub(super) struct NftRule {
    family: String,
    table: String,
    chain: String,
    handle: u64,
    /// Its matches and statements, in order.
    pub(super) statements: Vec<Value>,
}

impl fmt::Display for NftRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, table, chain, handle, .. } = self;
        write!(formatter, "nft rule {family} {table} {chain} handle {handle}")
    }
}

/// Every rule that is not ours.
#[derive(Debug, Default)]
pub(super) struct Nft {
    pub(super) rules: Vec<NftRule>,
}

impl Nft {
    pub(super) fn read(ruleset: &Value) -> Self {
        let objects = ruleset["nftables"].as_array().map_or(&[][..], Vec::as_slice);
        let rules = objects.iter().filter_map(|object| object.get("rule")).filter_map(NftRule::read);
        Self { rules: rules.filter(|rule| !hook::is_our_chain(&rule.chain)).collect() }
    }

    /// Rules that keep TCP connections out of connection tracking.
    pub(super) fn untracking(&self) -> impl Iterator<Item = &NftRule> {
        self.rules.iter().filter(|rule| rule.does("notrack") && rule.may_meet_tcp())
    }

    /// Rules that hand flows to a flowtable.
    pub(super) fn offloading(&self) -> impl Iterator<Item = &NftRule> {
        self.rules.iter().filter(|rule| rule.does("flow") && rule.may_meet_tcp())
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

    fn does(&self, statement: &str) -> bool {
        self.statements.iter().any(|there| there.get(statement).is_some())
    }

    /// Whether no match of the rule leaves TCP out.
    fn may_meet_tcp(&self) -> bool {
        self.statements.iter().filter_map(|statement| statement.get("match")).all(match_meets_tcp)
    }
}

/// Whether a match lets TCP by: `meta l4proto`, `ip protocol`, `ip6 nexthdr`, or a field of a transport
/// header, which implies its protocol.
fn match_meets_tcp(condition: &Value) -> bool {
    const OTHERS: [&str; 8] = ["udp", "udplite", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah"];
    let left = &condition["left"];
    if left["payload"]["protocol"].as_str().is_some_and(|name| OTHERS.contains(&name)) {
        return false;
    }
    let asks_protocol = left["meta"]["key"] == "l4proto"
        || matches!(left["payload"]["field"].as_str(), Some("protocol" | "nexthdr"));
    if !asks_protocol {
        return true;
    }
    let is_tcp = |value: &Value| value == "tcp" || value == 6;
    let right = &condition["right"];
    let named = is_tcp(right) || right["set"].as_array().is_some_and(|set| set.iter().any(is_tcp));
    // A named set, a range or a map may hold TCP.
    let open = !(right.is_string() || right.is_number() || right["set"].is_array())
        || right.as_str().is_some_and(|text| text.starts_with('@'));
    open || named == (condition["op"] != "!=")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        ]});
        let nft = Nft::read(&ruleset);
        let chains = |rules: Vec<&NftRule>| rules.iter().map(|rule| rule.chain.clone()).collect::<Vec<_>>();
        assert_eq!(chains(nft.untracking().collect()), ["a", "d"]);
        assert_eq!(chains(nft.offloading().collect()), ["e"]);
        assert_eq!(nft.rules[0].to_string(), "nft rule inet t a handle 4");
    }
}
