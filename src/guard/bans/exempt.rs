//! Addresses that are never banned: those in the configuration, this machine's own, and its default gateways.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde_json::Value;

use crate::hook::{IpFamily, MachineQuery, ProgramRunner};

/// Time for which the machine's addresses are cached.
const FRESH: Duration = Duration::from_secs(5);

/// The reason why an address is not banned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BanExemption {
    /// The address belongs to no single remote host.
    #[error("it is a loopback, multicast, broadcast or unspecified address")]
    Kind,
    /// The configuration names it.
    #[error("--ban-exempt names {0}")]
    Network(IpNet),
    /// It belongs to this machine.
    #[error("it is an address of this machine")]
    Own,
    /// It is a default gateway.
    #[error("it is a default gateway of this machine")]
    Gateway,
    /// The addresses of this machine are unreadable.
    #[error("the addresses of this machine cannot be read: {0}")]
    Unknown(String),
}

/// The exemptions, with the cached addresses of this machine.
#[derive(Debug)]
pub(super) struct BanExemptions {
    networks: Vec<IpNet>,
    machine: Option<(Instant, MachineAddresses)>,
}

/// Addresses of this machine.
#[derive(Debug, Default, PartialEq, Eq)]
struct MachineAddresses {
    own: Vec<IpAddr>,
    gateways: Vec<IpAddr>,
}

impl BanExemptions {
    pub(super) const fn new(networks: Vec<IpNet>) -> Self {
        Self { networks, machine: None }
    }

    /// Returns the reason why an address must not be banned, if there is one.
    pub(super) fn of(
        &mut self,
        address: IpAddr,
        programs: &ProgramRunner,
        now: Instant,
    ) -> Option<BanExemption> {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        if address.is_loopback() || address.is_multicast() || address.is_unspecified() || is_broadcast {
            return Some(BanExemption::Kind);
        }
        if let Some(network) = self.networks.iter().find(|network| network.contains(&address)) {
            return Some(BanExemption::Network(*network));
        }
        match self.machine(programs, now) {
            Ok(machine) if machine.own.contains(&address) => Some(BanExemption::Own),
            Ok(machine) if machine.gateways.contains(&address) => Some(BanExemption::Gateway),
            Ok(_) => None,
            Err(why) => Some(BanExemption::Unknown(why)),
        }
    }

    fn machine(&mut self, programs: &ProgramRunner, now: Instant) -> Result<&MachineAddresses, String> {
        if let Some((read, _)) = &self.machine
            && now.saturating_duration_since(*read) > FRESH
        {
            self.machine = None;
        }
        if self.machine.is_none() {
            self.machine = Some((now, MachineAddresses::read(programs)?));
        }
        self.machine.as_ref().map(|(_, machine)| machine).ok_or_else(String::new)
    }
}

impl MachineAddresses {
    fn read(programs: &ProgramRunner) -> Result<Self, String> {
        let mut machine =
            Self { own: addresses(&ask(programs, MachineQuery::Addresses)?), gateways: Vec::new() };
        for family in IpFamily::ALL {
            machine.gateways.extend(gateways(&ask(programs, MachineQuery::DefaultRoutes(family))?));
        }
        Ok(machine)
    }
}

fn ask(programs: &ProgramRunner, question: MachineQuery) -> Result<Value, String> {
    let ended = programs.look(question).map_err(|error| format!("`{question}`: {error}"))?;
    match ended.code {
        Some(0) if ended.stdout.trim().is_empty() => Ok(Value::Null),
        Some(0) => serde_json::from_str(&ended.stdout).map_err(|error| format!("`{question}`: {error}")),
        _ => Err(format!("`{question}`: {}", ended.stderr.trim())),
    }
}

/// Returns the addresses in the output of `ip -j addr`.
fn addresses(links: &Value) -> Vec<IpAddr> {
    let links = links.as_array().into_iter().flatten();
    let infos = links.filter_map(|link| link.get("addr_info")?.as_array()).flatten();
    infos.filter_map(|info| info.get("local")?.as_str()?.parse().ok()).collect()
}

/// Returns the next hops in the output of `ip -j route show default`, including those of multipath routes.
fn gateways(routes: &Value) -> Vec<IpAddr> {
    let routes = routes.as_array().into_iter().flatten();
    let hops = routes.flat_map(|route| {
        let paths = route.get("nexthops").and_then(Value::as_array).into_iter().flatten();
        std::iter::once(route).chain(paths)
    });
    let hop = |hop: &Value| {
        let via = hop.get("via").and_then(|via| via.get("host")).and_then(Value::as_str);
        hop.get("gateway").and_then(Value::as_str).or(via)?.parse().ok()
    };
    hops.filter_map(hop).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_and_gateways_of_all_paths_are_read() {
        let links = serde_json::json!([
            {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
            {},
            {"ifname": "a", "addr_info": [{"local": "192.0.2.1"}, {"local": "2001:db8::1"}, {}]},
        ]);
        let own = ["127.0.0.1", "192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(addresses(&links), own);
        let routes = serde_json::json!([
            {"dst": "default", "gateway": "192.0.2.254", "dev": "a"},
            {"dst": "default", "via": {"family": "inet6", "host": "fe80::1"}, "dev": "a"},
            {"dst": "default", "nexthops": [{"gateway": "198.51.100.1"}, {"dev": "ppp0"}]},
            {"dst": "default", "dev": "ppp0"},
        ]);
        let hops = ["192.0.2.254", "fe80::1", "198.51.100.1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(gateways(&routes), hops);
        assert!(gateways(&Value::Null).is_empty() && addresses(&Value::Null).is_empty());
    }

    #[test]
    fn what_is_no_single_host_and_what_is_configured_is_exempt_without_a_look() {
        let networks = vec!["198.51.100.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let mut exemptions = BanExemptions::new(networks.clone());
        let mut of = |address: &str| {
            let known = MachineAddresses { own: vec!["192.0.2.1".parse().unwrap()], gateways: Vec::new() };
            exemptions.machine = Some((Instant::now(), known));
            exemptions.of(address.parse().unwrap(), &ProgramRunner::Here, Instant::now())
        };
        for address in ["127.0.0.1", "::1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1"] {
            assert_eq!(of(address), Some(BanExemption::Kind), "{address}");
        }
        assert_eq!(of("198.51.100.7"), Some(BanExemption::Network(networks[0])));
        assert_eq!(of("2001:db8::7"), Some(BanExemption::Network(networks[1])));
        assert_eq!(of("192.0.2.1"), Some(BanExemption::Own));
        assert_eq!(of("192.0.2.2"), None);
    }
}
