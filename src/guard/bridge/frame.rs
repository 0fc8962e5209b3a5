//! Ethernet frames: reading those that open connections, and building our own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bannerwall_ffi::packet_socket::BpfInstruction;
use etherparse::EtherType;

use super::BridgeHost;

/// Minimum length of a frame without its tag and its check sequence, in bytes (IEEE 802.3 section 4.2.3.3).
const SHORTEST: usize = 60;

/// Number of bytes of a frame that are read: the headers up to the addresses of IPv6.
pub(super) const LENGTH: usize = 96;

/// Socket filter that accepts frames with a TCP SYN segment in an unfragmented IP packet.
///
/// It is the output of `tcpdump -dd 'tcp[tcpflags] & tcp-syn != 0'`, extended by IPv6. Offsets count from the
/// start of the frame, from which the kernel has removed the outer tag.
pub(super) const OPENING: [BpfInstruction; 16] = {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_OCTET: u16 = 0x30;
    const LOAD_OCTET_BEHIND: u16 = 0x50;
    const IPV4_LENGTH: u16 = 0xb1;
    const IS: u16 = 0x15;
    const HAS: u16 = 0x45;
    const GIVE: u16 = 0x06;
    [
        BpfInstruction(LOAD_HALF, 0, 0, 12),
        BpfInstruction(IS, 0, 7, 0x0800),
        BpfInstruction(LOAD_OCTET, 0, 0, 23),
        BpfInstruction(IS, 0, 11, 6),
        BpfInstruction(LOAD_HALF, 0, 0, 20),
        BpfInstruction(HAS, 9, 0, 0x1fff),
        BpfInstruction(IPV4_LENGTH, 0, 0, 14),
        BpfInstruction(LOAD_OCTET_BEHIND, 0, 0, 14 + 13),
        BpfInstruction(HAS, 5, 6, 0x02),
        BpfInstruction(IS, 0, 5, 0x86dd),
        BpfInstruction(LOAD_OCTET, 0, 0, 20),
        BpfInstruction(IS, 0, 3, 6),
        BpfInstruction(LOAD_OCTET, 0, 0, 54 + 13),
        BpfInstruction(HAS, 0, 1, 0x02),
        // LENGTH
        BpfInstruction(GIVE, 0, 0, 96),
        BpfInstruction(GIVE, 0, 0, 0),
    ]
};

/// Returns the sender of the packet in a frame, and its Ethernet address.
pub(super) fn read(frame: &[u8]) -> Option<(IpAddr, [u8; 6])> {
    let (_destination, rest) = frame.split_first_chunk::<6>()?;
    let (source, rest) = rest.split_first_chunk::<6>()?;
    let (_kind, packet) = rest.split_first_chunk::<2>()?;
    Some((sender(packet)?, *source))
}

/// Returns the source address of an IP packet.
pub(super) fn sender(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(12..)?.first_chunk().map(|octets: &[u8; 4]| Ipv4Addr::from(*octets).into()),
        6 => packet.get(8..)?.first_chunk().map(|octets: &[u8; 16]| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

/// Returns the frame that carries an IP packet to `receiver` from the Ethernet address `source`.
pub(super) fn frame(receiver: BridgeHost, source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    frame.extend(receiver.address);
    frame.extend(source);
    if let Some(tag) = receiver.tag {
        frame.extend(tag.protocol.to_be_bytes());
        frame.extend(tag.control.to_be_bytes());
    }
    let is_six = packet.first().is_some_and(|first| first >> 4 == 6);
    let kind = if is_six { EtherType::IPV6 } else { EtherType::IPV4 };
    frame.extend(kind.0.to_be_bytes());
    frame.extend(packet);
    // The tag comes on top of Ethernet's minimum, so that a switch which removes it forwards a valid frame.
    let shortest = if receiver.tag.is_some() { SHORTEST + 4 } else { SHORTEST };
    frame.resize(frame.len().max(shortest), 0);
    frame
}

#[cfg(test)]
mod tests {
    use bannerwall_ffi::packet_socket::VlanTag;

    use super::*;
    use crate::packet::{Addresses, Reset, reset};

    #[test]
    fn a_frame_is_read_as_it_was_built() {
        for addresses in [Addresses::V4([192, 0, 2, 1], [192, 0, 2, 2]), Addresses::V6([1; 16], [2; 16])] {
            let packet = reset(&Reset {
                addresses,
                source_port: 1,
                destination_port: 2,
                sequence: 3,
                acknowledgement: 4,
            });
            let host = BridgeHost { address: [7; 6], tag: None, witnessed: true };
            let whole = frame(host, [8; 6], &packet);
            assert!(whole.len() >= 60 && whole[14..].starts_with(&packet));
            assert_eq!(read(&whole), Some((addresses.reversed().destination(), [8; 6])));
            for cut in 0..whole.len() {
                let _ = read(&whole[..cut]);
            }
            let tagged = frame(
                BridgeHost { tag: Some(VlanTag { protocol: 0x8100, control: 5 }), ..host },
                [8; 6],
                &packet,
            );
            assert_eq!(tagged[12..16], [0x81, 0, 0, 5]);
            assert!(tagged.len() >= 64 && tagged[16..].starts_with(&whole[12..14]));
        }
    }
}
