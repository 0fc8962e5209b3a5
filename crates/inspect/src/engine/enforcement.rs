//! The flows that are enforced: all, or a part during a rollout in steps.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use crate::flow::{FlowKey, KeyEnd};
use crate::packet;
use crate::rules::parse_network;

/// The flows that rules, policies and anomalies may stop; in all others they only alert.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EnforceOnly {
    /// All flows.
    #[default]
    All,
    /// Flows with an end in one of these networks.
    Networks(Vec<IpNet>),
    /// This percentage of flows, by a hash of their addresses and ports: the same flows in both directions,
    /// over restarts and on every machine.
    Share(u8),
}

impl EnforceOnly {
    /// True if a flow is enforced.
    pub(super) fn holds(&self, key: &FlowKey) -> bool {
        match self {
            Self::All => true,
            Self::Networks(networks) => {
                let [low, high] = [KeyEnd::Low, KeyEnd::High].map(|end| key.endpoint(end).address);
                networks.iter().any(|network| network.contains(&low) || network.contains(&high))
            }
            Self::Share(percent) => key.flow_id(0) % 100 < u64::from(*percent),
        }
    }

    /// True if a packet that belongs to no flow is enforced. No share holds it: it could be any flow's.
    pub(super) fn holds_packet(&self, ip: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Networks(networks) => packet::ends(ip).is_some_and(|ends| {
                networks.iter().any(|network| ends.iter().any(|end| network.contains(end)))
            }),
            Self::Share(_) => false,
        }
    }
}

/// Text that is neither a percentage nor a list of networks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnforceOnlyError {
    /// Not a percentage.
    #[error("`{0}` is not a share of flows: use 1% to 100%")]
    Share(String),
    /// Not a network.
    #[error("`{0}` is not a network: use 192.0.2.0/24 or 2001:db8::/32, or a share of flows such as 10%")]
    Network(String),
}

/// `10%`, or networks and addresses separated by commas.
impl FromStr for EnforceOnly {
    type Err = EnforceOnlyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(number) = text.strip_suffix('%') {
            let share = number.parse().ok().filter(|share| (1..=100).contains(share));
            return share.map(Self::Share).ok_or_else(|| EnforceOnlyError::Share(text.to_owned()));
        }
        let network =
            |text: &str| parse_network(text).ok_or_else(|| EnforceOnlyError::Network(text.to_owned()));
        text.split(',').map(str::trim).map(network).collect::<Result<_, _>>().map(Self::Networks)
    }
}

/// As it stands behind "enforcing".
impl fmt::Display for EnforceOnly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Networks(networks) => {
                let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
                write!(formatter, " only {}", networks.join(","))
            }
            Self::Share(percent) => write!(formatter, " only {percent}% of flows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::testing::{SegmentBuilder, endpoint};
    use crate::packet::{ParsedPacket, parse};

    fn key(source: &str, destination: &str) -> FlowKey {
        let packet = SegmentBuilder::new(endpoint(source), endpoint(destination)).build();
        let Ok(ParsedPacket::Tcp(segment)) = parse(&packet, packet.len()) else { panic!("a segment") };
        FlowKey::of(&segment).0
    }

    #[test]
    fn a_share_is_that_of_flows_and_the_same_in_both_directions() {
        let share: EnforceOnly = "30%".parse().unwrap();
        let held = (1024..11_024).filter(|port| {
            let (client, server) = (format!("192.0.2.1:{port}"), "198.51.100.2:22");
            let held = share.holds(&key(&client, server));
            assert_eq!(held, share.holds(&key(server, &client)));
            held
        });
        let held = held.count();
        assert!((2_700..3_300).contains(&held), "{held} of 10000");
        assert!(EnforceOnly::Share(100).holds(&key("192.0.2.1:1", "192.0.2.2:2")));
    }

    #[test]
    fn a_network_holds_flows_with_either_end_in_it() {
        let networks: EnforceOnly = "192.0.2.0/24, 2001:db8::1".parse().unwrap();
        for (source, destination, expected) in [
            ("192.0.2.7:1", "198.51.100.1:2", true),
            ("198.51.100.1:1", "192.0.2.7:2", true),
            ("198.51.100.1:1", "203.0.113.7:2", false),
            ("[2001:db8::1]:1", "[2001:db8::2]:2", true),
            ("[2001:db8::3]:1", "[2001:db8::2]:2", false),
        ] {
            assert_eq!(networks.holds(&key(source, destination)), expected, "{source} {destination}");
            let packet = SegmentBuilder::new(endpoint(source), endpoint(destination)).build();
            assert_eq!(networks.holds_packet(&packet), expected, "{source} {destination}");
        }
        assert!(!networks.holds_packet(&[]) && !networks.holds_packet(&[0x45, 0]));
    }

    #[test]
    fn what_is_neither_a_share_nor_a_network_is_refused() {
        for wrong in ["", "0%", "101%", "x%", "192.0.2.0/33", "192.0.2.0/24,", "half"] {
            assert!(wrong.parse::<EnforceOnly>().is_err(), "{wrong}");
        }
    }
}
