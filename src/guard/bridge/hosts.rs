//! Bounded memory of the Ethernet address and VLAN of the hosts behind each port.

use std::collections::HashMap;
use std::net::IpAddr;

use bannerwall_ffi::packet_socket::VlanTag;
use serde::{Deserialize, Serialize};

/// Number of hosts in one generation. At most twice as many are kept.
const GENERATION: usize = 1 << 15;

/// The Ethernet address and tag of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BridgeHost {
    /// Its Ethernet address, or that of the router towards it.
    pub(super) address: [u8; 6],
    /// The tag of its frames.
    pub(super) tag: Option<VlanTag>,
    /// True if the host's own frame was seen, so that the tag is known.
    pub(super) witnessed: bool,
}

/// A host behind a port, for a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guard) struct KnownBridgeHost {
    /// Index of the port.
    pub(super) port: u32,
    address: IpAddr,
    ethernet: [u8; 6],
    /// Protocol and control information of its frames' tag.
    pub(super) tag: Option<(u16, u16)>,
    witnessed: bool,
}

#[cfg(test)]
impl KnownBridgeHost {
    /// Returns a host behind a tagged port.
    pub(in crate::guard) fn example() -> Self {
        let address = IpAddr::from([192, 0, 2, 7]);
        Self { port: 3, address, ethernet: [2, 0, 0, 0, 0, 7], tag: Some((0x8100, 5)), witnessed: true }
    }
}

type Generation = HashMap<(u32, IpAddr), BridgeHost, ahash::RandomState>;

/// Hosts by the port that they are behind. If a host behind another port claims the same address, it gets its
/// own entry, so it cannot divert packets for the first.
#[derive(Debug, Default)]
pub(super) struct BridgeHosts {
    young: Generation,
    old: Generation,
}

impl BridgeHosts {
    /// Stores the host that a frame has shown.
    pub(super) fn learn(&mut self, port: u32, address: IpAddr, host: BridgeHost) {
        // Two generations bound the table without an order to maintain: a host that is used within either
        // stays.
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert((port, address), host);
    }

    /// Stores the Ethernet address that a packet came from, with the known tag of the host.
    pub(super) fn learn_address(&mut self, port: u32, address: IpAddr, ethernet: [u8; 6]) {
        let known = self.get(port, address);
        if known.is_none_or(|known| known.address != ethernet) {
            let tag = known.and_then(|known| known.tag);
            let witnessed = known.is_some_and(|known| known.witnessed);
            self.learn(port, address, BridgeHost { address: ethernet, tag, witnessed });
        }
    }

    /// Returns all hosts.
    pub(super) fn all(&self) -> Vec<KnownBridgeHost> {
        let hosts = self.old.iter().chain(&self.young);
        let known = hosts.map(|((port, address), host)| KnownBridgeHost {
            port: *port,
            address: *address,
            ethernet: host.address,
            tag: host.tag.map(|tag| (tag.protocol, tag.control)),
            witnessed: host.witnessed,
        });
        known.collect()
    }

    /// Stores a host of a predecessor, unless its own frames have shown it since.
    pub(super) fn restore(&mut self, known: &KnownBridgeHost) {
        let KnownBridgeHost { port, address, ethernet, tag, witnessed } = *known;
        if self.get(port, address).is_none() {
            let tag = tag.map(|(protocol, control)| VlanTag { protocol, control });
            self.learn(port, address, BridgeHost { address: ethernet, tag, witnessed });
        }
    }

    /// Returns the host, and keeps it in the memory.
    pub(super) fn get(&mut self, port: u32, address: IpAddr) -> Option<BridgeHost> {
        let key = (port, address);
        if let Some(host) = self.young.get(&key) {
            return Some(*host);
        }
        // A look-up counts as use, so the host moves to the young generation.
        let host = self.old.remove(&key)?;
        self.learn(port, address, host);
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TAG: VlanTag = VlanTag { protocol: 0x8100, control: 10 };

    #[test]
    fn a_queued_packet_moves_a_host_and_leaves_it_its_tag() {
        let (mut hosts, server) = (BridgeHosts::default(), IpAddr::from([192, 0, 2, 1]));
        hosts.learn(1, server, BridgeHost { address: [1; 6], tag: Some(TAG), witnessed: true });
        hosts.learn_address(1, server, [2; 6]);
        assert_eq!(
            hosts.get(1, server),
            Some(BridgeHost { address: [2; 6], tag: Some(TAG), witnessed: true })
        );
        hosts.learn_address(2, server, [3; 6]);
        assert_eq!(hosts.get(2, server), Some(BridgeHost { address: [3; 6], tag: None, witnessed: false }));
        assert_eq!(hosts.get(1, server).map(|host| host.address), Some([2; 6]), "another port, another host");
    }

    #[test]
    fn a_flood_of_senders_takes_no_more_room_than_there_is() {
        let mut hosts = BridgeHosts::default();
        let kept = IpAddr::from([192, 0, 2, 1]);
        hosts.learn_address(1, kept, [1; 6]);
        for number in 0..300_000_u32 {
            hosts.learn_address(1, Ipv4Addr::from_bits(0x0a00_0000 + number).into(), [2; 6]);
            assert!(hosts.young.len() <= GENERATION && hosts.old.len() <= GENERATION);
            if number % 10_000 == 0 {
                assert!(hosts.get(1, kept).is_some(), "one that is spoken to stays");
            }
        }
    }
}
