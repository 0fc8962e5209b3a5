//! Scopes: the addresses and ports that a rule is about.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;

use crate::event::{OverrideFacts, Timestamp};

/// A set of addresses as merged, sorted ranges. An IPv4-mapped address counts as the IPv4 one.
///
/// A look-up is a binary search, so block lists of many thousand networks are cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddressSet(Vec<(Number, Number)>);

/// Family (4 or 6) and number of an address, so that `::/0` contains no IPv4 address.
type Number = (u8, u128);

impl AddressSet {
    pub(super) fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let ends = |network: IpNet| (number(network.network()), number(network.broadcast()));
        Self::merge(networks.into_iter().map(ends).collect())
    }

    fn merge(mut ranges: Vec<(Number, Number)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(Number, Number)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                // Adjacent ranges are joined too: `covers` finds a range only if a single one contains it.
                Some(previous) if first <= (previous.1.0, previous.1.1.saturating_add(1)) => {
                    previous.1 = previous.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Returns the union of both sets.
    pub(super) fn union(self, other: Self) -> Self {
        Self::merge(self.0.into_iter().chain(other.0).collect())
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        behind.checked_sub(1).and_then(|index| self.0.get(index)).is_some_and(|(_, last)| number <= *last)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if some address is in both.
    fn meets(&self, other: &Self) -> bool {
        self.0.iter().any(|(low, high)| other.0.iter().any(|(first, last)| low <= last && first <= high))
    }

    /// True if this set contains every address of `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(first, last)| self.0.iter().any(|(low, high)| low <= first && last <= high))
    }
}

fn number(address: IpAddr) -> Number {
    // An IPv4-mapped address is the IPv4 address, as a socket of both families shows it.
    match address.to_canonical() {
        IpAddr::V4(address) => (4, u128::from(address.to_bits())),
        IpAddr::V6(address) => (6, address.to_bits()),
    }
}

/// Reads a network, an address, or an IPv4-mapped one.
pub fn parse_network(text: &str) -> Option<IpNet> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(network);
    }
    text.parse::<IpAddr>().ok().map(IpNet::from)
}

/// Addresses that are admitted, and exceptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddressRule {
    /// Admitted addresses; any if `None`.
    pub(super) within: Option<AddressSet>,
    /// Exceptions.
    pub(super) without: AddressSet,
}

impl AddressRule {
    /// True if every address is admitted.
    pub(super) fn is_any(&self) -> bool {
        self.within.is_none() && self.without.is_empty()
    }

    /// True if `address` is admitted. An unknown address is admitted only by a rule without
    /// conditions.
    pub(super) fn admits(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return self.is_any() };
        self.within.as_ref().is_none_or(|within| within.contains(address)) && !self.without.contains(address)
    }

    /// True if it admits every address that `other` admits. It finds only easy cases.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let within = match (&self.within, &other.within) {
            (None, _) => true,
            (Some(own), Some(theirs)) => own.covers(theirs),
            (Some(_), None) => false,
        };
        let left_out = || {
            other.within.as_ref().is_some_and(|within| !self.without.meets(within))
                || other.without.covers(&self.without)
        };
        within && (self.without.is_empty() || left_out())
    }

    /// True if both may admit the same address.
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (&self.within, &other.within) {
            (Some(own), Some(theirs)) => {
                own.meets(theirs) && !self.without.covers(theirs) && !other.without.covers(own)
            }
            (Some(own), None) => !other.without.covers(own),
            (None, Some(theirs)) => !self.without.covers(theirs),
            (None, None) => true,
        }
    }

    /// True if no address can be admitted.
    pub(super) fn is_never(&self) -> bool {
        self.within.as_ref().is_some_and(|within| within.is_empty() || self.without.covers(within))
    }
}

/// Ports that are admitted, and exceptions. Both lists are short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PortRule {
    /// Admitted ports; any if empty.
    pub(super) within: Vec<RangeInclusive<u16>>,
    /// Exceptions.
    pub(super) without: Vec<RangeInclusive<u16>>,
}

impl PortRule {
    /// True if every port is admitted.
    pub(super) fn is_any(&self) -> bool {
        self.within.is_empty() && self.without.is_empty()
    }

    /// True if `port` is admitted. An unknown port is admitted only by a rule without conditions.
    pub(super) fn admits(&self, port: Option<u16>) -> bool {
        let Some(port) = port else { return self.is_any() };
        let inside = |ranges: &[RangeInclusive<u16>]| ranges.iter().any(|range| range.contains(&port));
        (self.within.is_empty() || inside(&self.within)) && !inside(&self.without)
    }

    /// Returns the admitted ports as ranges in order.
    pub(super) fn ranges(&self) -> Vec<RangeInclusive<u16>> {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for port in (0..=u16::MAX).filter(|port| self.admits(Some(*port))) {
            match ranges.last_mut() {
                Some(last) if last.end().checked_add(1) == Some(port) => *last = *last.start()..=port,
                _ => ranges.push(port..=port),
            }
        }
        ranges
    }

    /// True if no port can be admitted.
    pub(super) fn is_never(&self) -> bool {
        (0..=u16::MAX).all(|port| !self.admits(Some(port)))
    }
}

/// Reads `22` or `8000-8010`.
pub(super) fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let number = |text: &str| text.trim().parse::<u16>().ok();
    match text.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(first..=last)
        }
        None => number(text).map(|port| port..=port),
    }
}

/// The connection that a banner is assumed to belong to, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AssumedConnection {
    /// The client's address.
    pub source: Option<IpAddr>,
    /// The server's address.
    pub destination: Option<IpAddr>,
    /// The server's port.
    pub port: Option<u16>,
}

/// The scope of a rule: source, destination and port of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuleScope {
    /// The client's address.
    pub(super) source: AddressRule,
    /// The server's address.
    pub(super) destination: AddressRule,
    /// The server's port.
    pub(super) port: PortRule,
    /// Connections that overrides exempt.
    exemptions: Vec<ScopeExemption>,
}

/// Connections that an override exempts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScopeExemption {
    /// Clients' addresses.
    source: AddressSet,
    /// Servers' addresses.
    destination: AddressSet,
    by: Arc<OverrideFacts>,
}

impl RuleScope {
    /// True if every connection is in scope.
    pub(super) fn is_any(&self) -> bool {
        self.source.is_any() && self.destination.is_any() && self.port.is_any() && !self.exempts_some()
    }

    /// True if `ends` names everything that the scope tests.
    pub(super) fn is_settled(&self, ends: AssumedConnection) -> bool {
        let asks =
            |of: fn(&ScopeExemption) -> &AddressSet| self.exemptions.iter().any(|one| !of(one).is_empty());
        (ends.source.is_some() || (self.source.is_any() && !asks(|one| &one.source)))
            && (ends.destination.is_some() || (self.destination.is_any() && !asks(|one| &one.destination)))
            && (ends.port.is_some() || self.port.is_any())
    }

    /// Exempts connections from `source` and connections to `destination`.
    pub(super) fn exempt(&mut self, source: &AddressSet, destination: &AddressSet, by: &Arc<OverrideFacts>) {
        let (source, destination, by) = (source.clone(), destination.clone(), Arc::clone(by));
        self.exemptions.push(ScopeExemption { source, destination, by });
    }

    /// True if any address is exempt.
    pub(super) fn exempts_some(&self) -> bool {
        !self.exemptions.is_empty()
    }

    /// Returns the override that exempts a connection at `now`, if there is one. An unknown address
    /// is never exempt.
    pub(super) fn exemption(
        &self,
        source: Option<IpAddr>,
        destination: Option<IpAddr>,
        now: Timestamp,
    ) -> Option<&Arc<OverrideFacts>> {
        let exempts = |one: &&ScopeExemption| {
            let is_meant = source.is_some_and(|address| one.source.contains(address))
                || destination.is_some_and(|address| one.destination.contains(address));
            is_meant && one.by.is_in_force(now)
        };
        self.exemptions.iter().find(exempts).map(|one| &one.by)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(networks: &[&str]) -> AddressSet {
        AddressSet::new(networks.iter().map(|text| parse_network(text).unwrap()))
    }

    #[test]
    fn sets_hold_both_families_and_mapped_addresses() {
        let set = addresses(&["192.0.2.0/25", "192.0.2.128/25", "2001:db8::/32", "198.51.100.7"]);
        assert_eq!(set.0.len(), 3, "neighbours are merged");
        for (address, inside) in [
            ("192.0.2.200", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.3.0", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
        ] {
            assert_eq!(set.contains(address.parse().unwrap()), inside, "{address}");
        }
    }

    #[test]
    fn negation_takes_back() {
        let rule =
            AddressRule { within: Some(addresses(&["192.0.2.0/24"])), without: addresses(&["192.0.2.7"]) };
        assert!(rule.admits(Some("192.0.2.8".parse().unwrap())));
        assert!(!rule.admits(Some("192.0.2.7".parse().unwrap())));
        assert!(!rule.admits(None));
        assert!(AddressRule::default().admits(None));
        assert!(!rule.is_never());
        assert!(AddressRule { without: addresses(&["0.0.0.0/0"]), ..rule }.is_never());
    }

    #[test]
    fn ports_are_numbers_and_ranges() {
        assert_eq!(parse_ports("22"), Some(22..=22));
        assert_eq!(parse_ports("8000-8010"), Some(8000..=8010));
        for text in ["", "x", "70000", "9-8", "1-", "-1", "1-2-3"] {
            assert_eq!(parse_ports(text), None, "{text}");
        }
        let rule = PortRule { within: vec![1..=100], without: vec![22..=22] };
        assert!(rule.admits(Some(23)) && !rule.admits(Some(22)) && !rule.admits(Some(101)));
        assert!(!rule.admits(None) && PortRule::default().admits(None));
        assert!(PortRule { within: vec![22..=22], without: vec![20..=30] }.is_never());
    }

    proptest! {
        #[test]
        fn a_set_holds_what_its_networks_hold(
            networks in prop::collection::vec((any::<u16>(), 16_u8..=32), 0..12),
            probe in any::<u16>(),
        ) {
            let address = |low: u16| std::net::Ipv4Addr::from(0xC000_0000 | u32::from(low));
            let networks: Vec<IpNet> = networks
                .into_iter()
                .map(|(low, length)| IpNet::new(address(low).into(), length).unwrap())
                .collect();
            let probe = IpAddr::from(address(probe));
            let expected = networks.iter().any(|network| network.contains(&probe));
            prop_assert_eq!(AddressSet::new(networks).contains(probe), expected);
        }
    }
}
