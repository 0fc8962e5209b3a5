//! Parsing of the tunnel's packets, as far as the tunnel needs it.

use std::net::{IpAddr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// True if the bytes start an IPv4 or IPv6 packet.
pub fn is_ip(packet: &[u8]) -> bool {
    matches!(packet.first().map(|octet| octet >> 4), Some(4 | 6))
}

/// Returns the source and destination of a UDP datagram; `None` for other packets.
pub fn udp_ends(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    const UDP: u8 = 17;
    // This cheap check spares other protocols the parsing of all headers.
    let protocol_at = if packet.first()? >> 4 == 4 { 9 } else { 6 };
    if *packet.get(protocol_at)? != UDP {
        return None;
    }
    let sliced = LaxSlicedPacket::from_ip(packet).ok()?;
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { return None };
    let (source, destination): (IpAddr, IpAddr) = match sliced.net? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Arp(_) => return None,
    };
    Some((SocketAddr::new(source, udp.source_port()), SocketAddr::new(destination, udp.destination_port())))
}

/// Returns the start of a whole packet's TCP segment or UDP datagram, and the offset of the checksum in it;
/// `None` for fragments and other packets.
pub fn checksum_place(packet: &[u8]) -> Option<(usize, usize)> {
    let sliced = LaxSlicedPacket::from_ip(packet).ok()?;
    let (start, offset) = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.slice(), 16),
        Some(TransportSlice::Udp(udp)) => (udp.slice(), 6),
        _ => return None,
    };
    // Both slices lie in the same packet, so the difference is the offset.
    Some((start.as_ptr().addr().checked_sub(packet.as_ptr().addr())?, offset))
}

/// True if the checksum of an IPv4 header is correct (RFC 791 section 3.1); IPv6 has none.
pub fn has_right_header(packet: &[u8]) -> bool {
    match packet.first().map(|first| (first >> 4, usize::from(first & 15) * 4)) {
        Some((4, length)) => packet
            .get(..length)
            .is_some_and(|header| Sum16BitWords::new().add_slice(header).ones_complement() == 0),
        Some((6, _)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn ends_of_datagrams_are_read_and_nothing_else_is_one() {
        let ends = |builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>| {
            let mut packet = Vec::new();
            builder.udp(7777, 7778).write(&mut packet, &[0; 9]).unwrap();
            for length in 0..packet.len() {
                // Cut anywhere it is no datagram, or the same one.
                let ends = udp_ends(&packet[..length]);
                assert!(ends.is_none() || ends == udp_ends(&packet), "{length}");
            }
            udp_ends(&packet).map(|(from, to)| (from.to_string(), to.to_string()))
        };
        let text = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
        let v4 = PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64);
        assert_eq!(ends(v4), text("192.0.2.1:7777", "198.51.100.2:7778"));
        let v6 = PacketBuilder::ipv6([1; 16], [2; 16], 64);
        let address = |octet: u8| IpAddr::from([octet; 16]);
        let (from, to) = (SocketAddr::new(address(1), 7777), SocketAddr::new(address(2), 7778));
        assert_eq!(ends(v6), text(&from.to_string(), &to.to_string()));
        let mut tcp = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64).tcp(1, 2, 3, 4);
        builder.write(&mut tcp, &[]).unwrap();
        assert_eq!(udp_ends(&tcp), None);
        assert_eq!(checksum_place(&tcp), Some((20, 16)));
        tcp[6] = 0x20;
        assert_eq!(checksum_place(&tcp), None, "a fragment");
        let mut udp = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(1, 2).write(&mut udp, &[0; 9]).unwrap();
        assert_eq!(checksum_place(&udp), Some((40, 6)));
        assert_eq!(checksum_place(&[]), None);
        assert!(is_ip(&tcp) && !is_ip(&[]) && !is_ip(&[1, 0x45]));
    }
}
