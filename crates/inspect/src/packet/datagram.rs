//! One UDP datagram in its packet (RFC 768): accessors that cannot fail, since its headers are whole.

use etherparse::UdpHeader;
use etherparse::checksum::Sum16BitWords;

use super::segment::IpHeader;
use super::{Addresses, PacketError, PacketExtent, ParsedPacket};
use crate::event::PacketHeader;

/// Number of bytes of a UDP header.
const HEADER: usize = 8;

/// A UDP datagram: IP header, complete UDP header, and the captured part of the payload.
#[derive(Debug, Clone)]
pub struct Datagram<'a> {
    ip: IpHeader<'a>,
    udp: UdpHeader,
    payload: &'a [u8],
    wire_length: usize,
    wire_payload_length: usize,
    rerouted: bool,
}

impl<'a> Datagram<'a> {
    /// A datagram whose length differs from its packet's is refused: receivers drop it.
    pub(super) fn parse(
        ip: IpHeader<'a>,
        extent: PacketExtent<'a>,
        offset: usize,
        rerouted: bool,
    ) -> Result<ParsedPacket<'a>, PacketError> {
        if extent.wire < offset + HEADER {
            return Ok(ParsedPacket::Other);
        }
        let slice = extent.captured.get(offset..).unwrap_or_default();
        let Ok((udp, rest)) = UdpHeader::from_slice(slice) else { return Err(extent.short(offset + HEADER)) };
        let there = extent.wire - offset - HEADER;
        let wire_payload_length = match usize::from(udp.length) {
            // A jumbogram, or one that the network card will split.
            0 => there,
            length if (HEADER..=there + HEADER).contains(&length) => length - HEADER,
            _ => return Ok(ParsedPacket::Other),
        };
        let payload = rest.get(..wire_payload_length).unwrap_or(rest);
        let wire_length = extent.wire;
        Ok(ParsedPacket::Udp(Self { ip, udp, payload, wire_length, wire_payload_length, rerouted }))
    }

    /// Source and destination address in the IP header.
    pub fn addresses(&self) -> Addresses {
        self.ip.addresses()
    }

    /// UDP port of the sender.
    pub const fn source_port(&self) -> u16 {
        self.udp.source_port
    }

    /// UDP port of the receiver.
    pub const fn destination_port(&self) -> u16 {
        self.udp.destination_port
    }

    /// The captured part of the payload.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Number of bytes of the whole IP packet on the wire.
    pub const fn wire_length(&self) -> usize {
        self.wire_length
    }

    /// True if all of the payload was captured.
    pub const fn is_whole(&self) -> bool {
        self.payload.len() == self.wire_payload_length
    }

    /// True if the IPv4 header's and the UDP checksum are right.
    ///
    /// Also true if they can't be verified: part of the packet was not captured, a routing header will
    /// change the destination, or the sender omitted the checksum, as IPv4 allows.
    pub fn checksums_valid(&self) -> bool {
        if !self.is_whole() || self.rerouted {
            return true;
        }
        let calculated = match &self.ip {
            IpHeader::V4(header) => {
                if Sum16BitWords::new().add_slice(header.slice()).ones_complement() != 0 {
                    return false;
                }
                if self.udp.checksum == 0 {
                    return true;
                }
                self.udp.calc_checksum_ipv4_raw(header.source(), header.destination(), self.payload)
            }
            IpHeader::V6(header) => {
                self.udp.calc_checksum_ipv6_raw(header.source(), header.destination(), self.payload)
            }
        };
        calculated.is_ok_and(|checksum| checksum % 0xffff == self.udp.checksum % 0xffff)
    }

    /// The header fields that a drop event shows.
    pub fn header_facts(&self) -> PacketHeader {
        PacketHeader { udp_length: self.udp.length, ..self.ip.header_facts(self.wire_length) }
    }
}

#[cfg(test)]
mod tests {
    use crate::packet::testing::{datagram, endpoint};
    use crate::packet::{ParsedPacket, parse};

    fn udp(octets: &[u8], wire: usize) -> Option<(Vec<u8>, bool, bool)> {
        match parse(octets, wire).expect("whole headers") {
            ParsedPacket::Udp(datagram) => {
                Some((datagram.payload().to_vec(), datagram.is_whole(), datagram.checksums_valid()))
            }
            _ => None,
        }
    }

    #[test]
    fn a_datagram_is_read_over_ipv4_and_ipv6() {
        for (client, server) in
            [("192.0.2.1:50000", "198.51.100.2:443"), ("[2001:db8::1]:50000", "[2001:db8::2]:443")]
        {
            let mut packet = datagram(endpoint(client), endpoint(server), b"hello");
            assert_eq!(udp(&packet, packet.len()), Some((b"hello".to_vec(), true, true)));
            // Ethernet fills its shortest frames.
            let padded = [packet.as_slice(), &[0; 9]].concat();
            assert_eq!(udp(&padded, padded.len()), Some((b"hello".to_vec(), true, true)));
            let cut = &packet[..packet.len() - 2];
            assert_eq!(udp(cut, packet.len()), Some((b"hel".to_vec(), false, true)));
            *packet.last_mut().unwrap() ^= 1;
            assert_eq!(udp(&packet, packet.len()), Some((b"helln".to_vec(), true, false)));
        }
    }

    #[test]
    fn what_says_to_be_longer_than_its_packet_is_nothing_to_a_receiver() {
        let mut packet = datagram(endpoint("192.0.2.1:50000"), endpoint("198.51.100.2:443"), b"hello");
        packet[25] = 14;
        assert_eq!(udp(&packet, packet.len()), None);
        packet[25] = 7;
        assert_eq!(udp(&packet, packet.len()), None);
    }
}
