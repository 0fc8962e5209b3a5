//! Connections to the guard's own metrics endpoint and page, which it does not inspect: otherwise each scrape
//! over loopback would cause an event and a client in the inventory.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use super::source::QueuedPacket;
use crate::packet::{self, ParsedPacket};

/// `NF_INET_LOCAL_IN`.
const INPUT: u8 = 1;
/// `NF_INET_LOCAL_OUT`.
const OUTPUT: u8 = 3;
/// `LOOPBACK_IFINDEX` of the kernel: the loopback interface has this index in each network namespace.
const LOOPBACK: u32 = 1;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// Addresses that this guard listens on. Its threads share them, and they are known once it listens.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnListeners(Arc<OnceLock<Vec<SocketAddr>>>);

impl OwnListeners {
    /// Sets the addresses once.
    pub(super) fn set(&self, addresses: Vec<SocketAddr>) {
        // A run opens its endpoints only once.
        let _ = self.0.set(addresses);
    }

    /// True if the packet belongs to a connection to one of these addresses.
    pub(super) fn serve(&self, queued: &QueuedPacket<'_>) -> bool {
        let Some(addresses) = self.0.get().filter(|addresses| !addresses.is_empty()) else { return false };
        // Another machine may use the same port, so the address must also be local.
        let (is_source_local, is_destination_local) = match queued.hook {
            INPUT => (queued.input_interface == LOOPBACK, true),
            OUTPUT => (true, queued.output_interface == LOOPBACK),
            _ => return false,
        };
        // The engine parses the packet, too, so that here the ports alone tell of most packets.
        let is_perhaps_own = |ports: [u16; 2]| addresses.iter().any(|own| ports.contains(&own.port()));
        if !ports(queued.payload).is_none_or(is_perhaps_own) {
            return false;
        }
        let Ok(ParsedPacket::Tcp(segment)) = packet::parse(queued.payload, queued.wire_length) else {
            return false;
        };
        let (source, destination) = (segment.source(), segment.destination());
        let is_own = |address: IpAddr, port: u16| addresses.iter().any(|own| includes(*own, address, port));
        is_source_local && is_own(source.address, source.port)
            || is_destination_local && is_own(destination.address, destination.port)
    }
}

/// Returns the ports of a packet whose TCP header follows the IP header.
fn ports(packet: &[u8]) -> Option<[u16; 2]> {
    let first = *packet.first()?;
    let at = match first >> 4 {
        4 => 4 * usize::from(first & 0x0f),
        6 if packet.get(6) == Some(&TCP) => 40,
        _ => return None,
    };
    let [source_high, source_low, high, low] = *packet.get(at..)?.first_chunk()?;
    Some([u16::from_be_bytes([source_high, source_low]), u16::from_be_bytes([high, low])])
}

/// True if a listener on `own` accepts connections to this address and port.
fn includes(own: SocketAddr, address: IpAddr, port: u16) -> bool {
    // A socket on `::` also accepts IPv4 connections, unless IPV6_V6ONLY is set (ipv6(7)).
    let takes_any = own.ip().is_unspecified() && (own.is_ipv6() || address.is_ipv4());
    own.port() == port && (takes_any || own.ip().to_canonical() == address)
}
