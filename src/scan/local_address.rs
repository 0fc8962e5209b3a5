//! This machine's address as targets see it.
//!
//! The local address of a direct socket cannot be queried. So this module connects a UDP socket, which looks
//! up the route and sends nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ahash::AHashMap;

/// Limit of cached networks.
const MOST: usize = 4096;

/// Cache of local addresses by the target's network.
#[derive(Debug, Default)]
pub(super) struct LocalAddressCache {
    known: AHashMap<IpAddr, IpAddr>,
}

impl LocalAddressCache {
    /// Returns the local address toward `target`, or the unspecified address without a route.
    ///
    /// The lookup is cached for each /24 or /64, so routes of single hosts inside may give a wrong address.
    pub(super) fn toward(&mut self, target: IpAddr) -> IpAddr {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        *self.known.entry(network(target)).or_insert_with(|| look_up(target).unwrap_or(unspecified(target)))
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

fn unspecified(target: IpAddr) -> IpAddr {
    match target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn look_up(target: IpAddr) -> Option<IpAddr> {
    // The discard port; any port but 0 works.
    const PORT: u16 = 9;
    let socket = UdpSocket::bind(SocketAddr::new(unspecified(target), 0)).ok()?;
    socket.connect(SocketAddr::new(target, PORT)).ok()?;
    socket.local_addr().ok().map(|here| here.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback_and_remembered_by_network() {
        let mut here = LocalAddressCache::default();
        let targets: [IpAddr; 2] = [Ipv4Addr::new(127, 0, 0, 1).into(), Ipv4Addr::new(127, 0, 0, 200).into()];
        assert!(targets.iter().all(|target| here.toward(*target).is_loopback()));
        assert_eq!(here.known.len(), 1);
    }

    #[test]
    fn where_there_is_no_way_nothing_is_told() {
        // Port and address of no use to anybody: a broadcast may not be sent to unasked.
        assert_eq!(
            LocalAddressCache::default().toward(Ipv4Addr::BROADCAST.into()),
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        );
    }
}
