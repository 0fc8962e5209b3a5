//! The order of a scan, as the database stores it: everything that decides which targets are probed how and
//! in which sequence. Names are resolved and files are read when the order is made. So every worker does the
//! same, and reads no file that a row of a table names.

use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The order of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanOrder {
    /// `ssh`, `http`, …
    pub mode: String,
    /// Flags of `scan` that decide how it probes.
    pub flags: Vec<String>,
    /// Addresses and ranges, without exclusions.
    pub targets: Vec<String>,
    /// Addresses that are probed under a name.
    pub named: Vec<(IpAddr, String)>,
    /// Addresses with their own port, and the names for their probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<(SocketAddr, Option<String>)>,
    /// Fingerprint of the set of targets.
    pub fingerprint: String,
    /// Seed of the sequence of the targets.
    pub seed: u64,
    /// Rule files; none if banners are not judged.
    pub rules: Vec<RuleFile>,
    /// True if targets that do not accept are reported too.
    pub every: bool,
    /// Rate limits of networks.
    pub limits: Vec<NetworkRate>,
    /// Crontabs of the times without probes.
    pub not_at: Vec<String>,
}

/// A rule file, or a list file that rules name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// Path in the order's own folder.
    pub path: String,
    /// Contents of the file.
    pub text: String,
    /// Kind of the file.
    pub kind: FileKind,
}

/// True if a path stays below its folder.
pub fn leads_down(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// The kind of a file in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Rules.
    Rules,
    /// Overrides and local rules, which follow the others.
    Local,
    /// A list that rules name.
    List,
}

/// `CIDR=N`: limit of the targets per second in a network, for all workers together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRate {
    /// The network.
    pub network: IpNet,
    /// Targets per second.
    pub rate: u32,
}

impl std::str::FromStr for NetworkRate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (network, rate) = text.split_once('=')?;
            let network = match network.parse::<IpAddr>() {
                Ok(address) => address.into(),
                Err(_) => network.parse::<IpNet>().ok()?.trunc(),
            };
            Some(Self { network, rate: rate.parse().ok().filter(|rate| *rate > 0)? })
        };
        read().ok_or("a network and targets a second, as in 192.0.2.0/24=100")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_networks_rate_is_read_and_nothing_else() {
        let read = |text: &str| text.parse::<NetworkRate>().map(|it| (it.network.to_string(), it.rate));
        assert_eq!(read("192.0.2.7/24=100"), Ok(("192.0.2.0/24".to_owned(), 100)));
        assert_eq!(read("2001:db8::1=5"), Ok(("2001:db8::1/128".to_owned(), 5)));
        for wrong in ["", "192.0.2.0/24", "192.0.2.0/24=0", "192.0.2.0/33=1", "host=1", "192.0.2.0/24=-1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
