//! Third-party configuration that a forwarded packet would meet and a bypassed one would skip; if there is
//! any, the bypass is refused.

use std::path::Path;

use serde_json::Value;

use crate::diagnostics::several;
use crate::hook::{self, IpFamily, MachineQuery, ProgramRunner};

/// Hooks of `nf_tables` on the path of a forwarded packet.
const MET: [&str; 5] = ["prerouting", "forward", "postrouting", "ingress", "egress"];
/// The same for iptables.
const MET_BY_IPTABLES: [&str; 3] = ["PREROUTING", "FORWARD", "POSTROUTING"];

/// Exists if the kernel supports `IPsec` (`CONFIG_XFRM`).
const IPSEC: &str = "/proc/sys/net/core/xfrm_acq_expires";

/// Interface of the bypass.
#[derive(Debug, Clone)]
pub(crate) struct BypassInterface {
    /// Name of the interface.
    pub(crate) name: String,
    /// Index at the program's attachment; none before.
    pub(crate) index: Option<u32>,
}

/// Returns the third-party configuration; empty if there is none. Without `interfaces` their own state is
/// left out.
///
/// # Errors
///
/// The configuration cannot be read, with the reason.
pub(crate) fn find_third_party(
    programs: &ProgramRunner,
    interfaces: &[BypassInterface],
) -> Result<Vec<String>, String> {
    let ask = |question: MachineQuery| {
        let ended = programs.look(question).map_err(|error| format!("`{question}`: {error}"))?;
        let said = || ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        if ended.code == Some(0) { Ok(ended.stdout) } else { Err(format!("`{question}` failed: {}", said())) }
    };
    let ask_json = |question: MachineQuery| {
        // Not every program prints brackets for an empty list.
        let text = ask(question)?;
        let text = if text.trim().is_empty() { "[]" } else { &text };
        serde_json::from_str::<Value>(text).map_err(|error| format!("`{question}`: {error}"))
    };
    let mut found = nft(&ask_json(MachineQuery::Nft)?);
    for family in IpFamily::ALL {
        found.extend(legacy(family, &ask(MachineQuery::Legacy(family))?));
        found.extend(routing(family, &ask_json(MachineQuery::Routing(family))?));
    }
    // A kernel without IPsec has no policies.
    if Path::new(IPSEC).exists() && !ask(MachineQuery::Policies)?.trim().is_empty() {
        found.push("IPsec policies (`ip xfrm policy`)".to_owned());
    }
    if !interfaces.is_empty() {
        found.extend(links(&ask_json(MachineQuery::Links)?, interfaces));
        found.extend(disciplines(&ask_json(MachineQuery::Disciplines)?, interfaces));
    }
    Ok(found)
}

/// Returns base chains of `nf_tables`, also those of iptables-nft, with third-party rules.
fn nft(ruleset: &Value) -> Vec<String> {
    let objects = || ruleset["nftables"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for chain in objects().filter_map(|object| object.get("chain")) {
        let text = |key: &str| chain[key].as_str().unwrap_or_default();
        let (family, table, name) = (text("family"), text("table"), text("name"));
        let is_of_bans = (family, table) == hook::ban_call::OWN_TABLE;
        // Chains of bridges and ARP do not meet a routed packet, and `links` refuses interfaces that are part
        // of a bridge.
        if is_of_bans || family == "bridge" || family == "arp" || !MET.contains(&text("hook")) {
            continue;
        }
        // A policy counts without any rule: `drop` decides about packets that no rule accepts.
        let place = format!("chain {name} of nf_tables' table {family} {table}");
        if text("policy") == "drop" {
            found.push(format!("the policy of {place}"));
        }
        let is_there =
            |rule: &&Value| rule["family"] == family && rule["table"] == table && rule["chain"] == name;
        let is_ours = |rule: &Value| {
            let statements = rule["expr"].as_array().into_iter().flatten();
            let mut jumps = statements.filter_map(|statement| statement["jump"]["target"].as_str());
            jumps.any(hook::is_our_chain)
        };
        let rules = objects().filter_map(|object| object.get("rule")).filter(is_there);
        let foreign = rules.filter(|rule| !is_ours(rule)).count();
        if foreign > 0 {
            let kind = if text("type") == "nat" { "address translation in " } else { "" };
            found.push(format!("{kind}{place} ({})", several(foreign, "rule")));
        }
    }
    found
}

/// Returns chains of the legacy iptables, from the output of `iptables-save`.
fn legacy(family: IpFamily, saved: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut table = "";
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        }
        let place = |chain: &str| format!("chain {chain} of iptables-legacy's table {table} ({family})");
        let words: Vec<&str> = line.split(' ').collect();
        let new = match words[..] {
            [chain, policy, ..] if chain.strip_prefix(':').is_some_and(is_met) && policy != "ACCEPT" => {
                Some(format!("the policy of {}", place(&chain[1..])))
            }
            // iptables-nft's rules show up in the list of `nft`, so only the legacy tables are read here.
            ["-A", chain, ..] if is_met(chain) && !hook::is_ours(line) => Some(place(chain)),
            _ => None,
        };
        found.extend(new.filter(|new| !found.contains(new)));
    }
    found
}

fn is_met(chain: &str) -> bool {
    MET_BY_IPTABLES.contains(&chain)
}

/// Returns routing rules beyond the default ones: some match marks, which a bypassed packet never gets.
fn routing(family: IpFamily, rules: &Value) -> Option<String> {
    let is_usual = |rule: &Value| {
        let asks = |key: &String| !matches!(key.as_str(), "priority" | "src" | "table" | "protocol");
        rule["src"] == "all"
            && matches!(rule["table"].as_str(), Some("local" | "main" | "default"))
            && !rule.as_object().is_some_and(|rule| rule.keys().any(asks))
    };
    let foreign = rules.as_array().into_iter().flatten().filter(|rule| !is_usual(rule)).count();
    (foreign > 0).then(|| format!("{foreign} routing rules (`ip rule`, {family})"))
}

/// Returns interfaces that are not plain Ethernet, or were replaced.
fn links(links: &Value, interfaces: &[BypassInterface]) -> Vec<String> {
    let of = |name: &str| links.as_array().into_iter().flatten().find(|link| link["ifname"] == *name);
    let wrong = |BypassInterface { name, index }: &BypassInterface| {
        let Some(link) = of(name) else { return Some(format!("interface {name}, which does not exist")) };
        // The attachment went away with the old interface of this name.
        if index.is_some_and(|index| link["ifindex"] != index) {
            return Some(format!("interface {name}, which was recreated"));
        }
        let kind = link["linkinfo"]["info_kind"].as_str().unwrap_or_default();
        match (link["master"].as_str(), kind) {
            (Some(master), _) => Some(format!("{master}, which interface {name} belongs to")),
            (None, "bridge" | "vrf") => Some(format!("interface {name}, a {kind}")),
            (None, _) if link["link_type"] != "ether" => {
                Some(format!("interface {name}, which is not Ethernet"))
            }
            (None, _) => None,
        }
    };
    interfaces.iter().filter_map(wrong).collect()
}

/// Returns ingress filters of `tc`, which run before the program.
fn disciplines(disciplines: &Value, interfaces: &[BypassInterface]) -> Vec<String> {
    let is_ours = |discipline: &&Value| interfaces.iter().any(|it| discipline["dev"] == *it.name.as_str());
    let kinds = disciplines.as_array().into_iter().flatten().filter(is_ours);
    let ingress =
        kinds.filter(|discipline| matches!(discipline["kind"].as_str(), Some("ingress" | "clsact")));
    ingress
        .map(|discipline| {
            format!("filters of `tc` on interface {}", discipline["dev"].as_str().unwrap_or("?"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_own_hook_is_no_neighbour_and_rules_of_others_are() {
        let chain = |name: &str, hook: &str, policy: &str| json!({"chain": {"family": "ip", "table": "mangle", "name": name, "type": "filter", "hook": hook, "prio": -150, "policy": policy}});
        let rule = |chain: &str, expr: Value| json!({"rule": {"family": "ip", "table": "mangle", "chain": chain, "handle": 3, "expr": expr}});
        let ours = json!([{"match": {}}, {"counter": {}}, {"jump": {"target": "BANNERWALL"}}]);
        let base = vec![
            chain("FORWARD", "forward", "accept"),
            rule("FORWARD", ours),
            chain("INPUT", "input", "drop"),
            rule("INPUT", json!([{"drop": null}])),
        ];
        let found = |more: Vec<Value>| {
            let objects = [base.clone(), more].concat();
            nft(&json!({"nftables": objects}))
        };
        assert!(found(vec![]).is_empty());
        assert!(found(vec![rule("BANNERWALL", json!([{"drop": null}]))]).is_empty(), "no base chain");
        assert_eq!(
            found(vec![rule("FORWARD", json!([{"accept": null}]))]),
            ["chain FORWARD of nf_tables' table ip mangle (1 rule)"]
        );
        assert_eq!(
            found(vec![chain("x", "postrouting", "drop")]),
            ["the policy of chain x of nf_tables' table ip mangle"]
        );
        let nat = json!({"chain": {"family": "inet", "table": "t", "name": "n", "type": "nat", "hook": "postrouting", "policy": "accept"}});
        let masquerade =
            json!({"rule": {"family": "inet", "table": "t", "chain": "n", "expr": [{"masquerade": null}]}});
        assert_eq!(
            found(vec![nat, masquerade]),
            ["address translation in chain n of nf_tables' table inet t (1 rule)"]
        );
    }

    #[test]
    fn legacy_rules_and_policies_are_found() {
        let found = |saved: &str| legacy(IpFamily::V4, saved);
        assert!(found("*mangle\n:PREROUTING ACCEPT [0:0]\n:BANNERWALL - [0:0]\n-A FORWARD -p tcp -j BANNERWALL\nCOMMIT\n").is_empty());
        assert_eq!(
            found(
                "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\n-A OUTPUT -j DNAT\n*filter\n:FORWARD DROP [0:0]\n:INPUT DROP [0:0]\n"
            ),
            [
                "chain POSTROUTING of iptables-legacy's table nat (IPv4)",
                "the policy of chain FORWARD of iptables-legacy's table filter (IPv4)"
            ]
        );
    }

    #[test]
    fn routing_interfaces_and_filters_are_looked_at() {
        let usual = json!([{"priority": 0, "src": "all", "table": "local"}, {"priority": 32766, "src": "all", "table": "main"}]);
        assert_eq!(routing(IpFamily::V4, &usual), None);
        for foreign in [
            json!([{"priority": 5, "src": "all", "table": "main", "fwmark": "0x2"}]),
            json!([{"priority": 5, "src": "192.0.2.1", "table": "main"}]),
            json!([{"priority": 5, "src": "all", "table": "7"}]),
        ] {
            assert!(routing(IpFamily::V4, &foreign).is_some(), "{foreign}");
        }
        let there = json!([{"ifname": "a", "ifindex": 5, "link_type": "ether"}, {"ifname": "b", "link_type": "ether", "master": "br0"}, {"ifname": "br0", "link_type": "ether", "linkinfo": {"info_kind": "bridge"}}, {"ifname": "t", "link_type": "none"}]);
        let named = |name: &str, index| BypassInterface { name: name.to_owned(), index };
        let found =
            |names: &[&str]| links(&there, &names.iter().map(|name| named(name, None)).collect::<Vec<_>>());
        assert!(found(&["a"]).is_empty());
        assert_eq!(found(&["b", "br0", "t", "x"]).len(), 4);
        assert!(links(&there, &[named("a", Some(5))]).is_empty());
        assert_eq!(links(&there, &[named("a", Some(4))]), ["interface a, which was recreated"]);
        let filters = json!([{"kind": "noqueue", "dev": "a", "root": true}, {"kind": "clsact", "dev": "b"}]);
        assert_eq!(
            disciplines(&filters, &[named("a", None), named("b", None)]),
            ["filters of `tc` on interface b"]
        );
    }
}
