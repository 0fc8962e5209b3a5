//! What is scanned, as it lies in the database: everything that decides which targets are asked what, and in
//! which order. Names are looked up and files are read where it is made, so that every worker does the same,
//! and reads no file that a row of a table names.

use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A scan's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// `ssh`, `http`, …
    pub mode: String,
    /// Flags of `scan` that decide how it asks.
    pub flags: Vec<String>,
    /// Addresses and ranges, less what is left out.
    pub targets: Vec<String>,
    /// Addresses that are asked by a name.
    pub named: Vec<(IpAddr, String)>,
    /// Addresses with a port of their own, and the names that they are asked by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<(SocketAddr, Option<String>)>,
    /// What tells these targets from others.
    pub fingerprint: String,
    /// The seed of their order.
    pub seed: u64,
    /// The rules' files; none where banners are not judged.
    pub rules: Vec<RuleFile>,
    /// Targets that do not accept are told of, too.
    pub every: bool,
    /// How fast networks may be asked.
    pub limits: Vec<NetworkRate>,
    /// When nothing is asked.
    pub not_at: Vec<String>,
}

/// A file of rules, or of a list that they name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// Where it lies, below a folder of the order's own.
    pub path: String,
    /// What stands in it.
    pub text: String,
    /// What it is read as.
    pub kind: FileKind,
}

/// True if a path leads nowhere but down.
pub fn leads_down(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// What a file of an order is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Rules.
    Rules,
    /// Overrides and rules of one's own, behind the others.
    Local,
    /// A list that rules name.
    List,
}

/// `CIDR=N`: targets a second in a network, all workers together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRate {
    /// Which.
    pub network: IpNet,
    /// Targets a second.
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
