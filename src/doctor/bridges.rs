//! Check for bridges: iptables sees their forwarded frames only with `br_netfilter`.

use serde_json::Value;

use super::CheckReport;
use super::machine_state::MachineState;
use super::program_query::ask_json;
use crate::hook::{BaseChain, hook_state};

/// Switches of the kernel, one for each family.
const SWITCHES: [(&str, &str); 2] =
    [("bridge-nf-call-iptables", "nf_call_iptables"), ("bridge-nf-call-ip6tables", "nf_call_ip6tables")];

pub(super) fn check(scene: &MachineState) -> CheckReport {
    let links = match ask_json("ip", "iproute2", &["-j", "-d", "link"]) {
        Ok(links) => links,
        Err(blind) => return CheckReport::blind(blind.to_string()),
    };
    let forwarding =
        hook_state::hooks(scene.places()).any(|(_, config)| config.chains.contains(&BaseChain::Forward));
    let is_up = hook_state::hooks(scene.places()).next().is_some();
    if is_up && !forwarding {
        return CheckReport::nothing("the hook does not cover forwarded traffic");
    }
    let global = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/net/bridge/{name}")).is_ok_and(|text| text.trim() == "1")
    };
    let blind = unseen(&links, SWITCHES.map(|(sysctl, _)| global(sysctl)));
    if blind.is_empty() {
        let tags = unseen(&links, [false; 2]).is_empty() || global("bridge-nf-filter-vlan-tagged");
        return CheckReport::fine(match tags {
            true => "no bridge forwards frames past iptables",
            false => {
                "no bridge forwards frames past iptables, except for frames with VLAN tags; sysctl \
                 net.bridge.bridge-nf-filter-vlan-tagged=1 shows them to the hook"
            }
        });
    }
    CheckReport::fault(format!(
        "iptables does not see frames that {} forwards; `modprobe br_netfilter` and sysctl \
         net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 show it to the hook",
        blind.join(", ")
    ))
}

/// Returns bridges with several ports and a switch that is off, both globally and for the bridge.
fn unseen(links: &Value, global: [bool; 2]) -> Vec<String> {
    let links: &[Value] = links.as_array().map_or(&[], Vec::as_slice);
    let ports = |bridge: &str| links.iter().filter(|link| link["master"] == bridge).count();
    let is_seen = |bridge: &Value| {
        SWITCHES
            .iter()
            .zip(global)
            .all(|((_, own), global)| global || bridge["linkinfo"]["info_data"][*own] == 1)
    };
    links
        .iter()
        .filter(|link| link["linkinfo"]["info_kind"] == "bridge" && !is_seen(link))
        .filter_map(|link| link["ifname"].as_str())
        .filter(|name| ports(name) > 1)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_counts_where_it_has_ports_and_no_switch_is_on() {
        let bridge = |own: u8| {
            serde_json::json!([
                {"ifname": "br0", "linkinfo": {"info_kind": "bridge",
                 "info_data": {"nf_call_iptables": own, "nf_call_ip6tables": own}}},
                {"ifname": "a", "master": "br0"}, {"ifname": "b", "master": "br0"},
                {"ifname": "br1", "linkinfo": {"info_kind": "bridge", "info_data": {}}},
                {"ifname": "c", "master": "br1"}
            ])
        };
        assert_eq!(unseen(&bridge(0), [false, false]), ["br0"]);
        assert_eq!(unseen(&bridge(0), [true, false]), ["br0"], "IPv6 is not seen");
        assert!(unseen(&bridge(0), [true, true]).is_empty());
        assert!(unseen(&bridge(1), [false, false]).is_empty());
    }
}
