//! Builds the two kinds of packets that bannerwall sends: TCP resets and keep-alive probes.

use std::net::IpAddr;

use etherparse::{Ipv4Header, Ipv6FlowLabel, Ipv6Header, TcpHeader, TcpOptionElement, ip_number};

use super::Segment;

/// Hop limit of most hosts, so that only its timing distinguishes a reset. Probes have it, too: the sender's
/// own may not reach the receiver.
const HOP_LIMIT: u8 = 64;

/// Source and destination address of one IP version, network byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4 source and destination.
    V4([u8; 4], [u8; 4]),
    /// IPv6 source and destination.
    V6([u8; 16], [u8; 16]),
}

impl Addresses {
    /// Returns the addresses with source and destination exchanged.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4(source, destination) => Self::V4(destination, source),
            Self::V6(source, destination) => Self::V6(destination, source),
        }
    }

    /// The destination.
    pub fn destination(self) -> IpAddr {
        match self {
            Self::V4(_, destination) => destination.into(),
            Self::V6(_, destination) => destination.into(),
        }
    }
}

/// The fields of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// Addresses of the peer that it speaks for, and of its receiver.
    pub addresses: Addresses,
    /// Port of the peer that it speaks for.
    pub source_port: u16,
    /// Port of its receiver.
    pub destination_port: u16,
    /// Exactly the number that its receiver expects next: RFC 5961 answers any other with a challenge.
    pub sequence: u32,
    /// The number after the receiver's own data; a receiver in SYN-SENT needs it (RFC 9293 section
    /// 3.10.7.3).
    pub acknowledgement: u32,
}

/// Returns a complete IP packet with a RST+ACK segment and checksums.
pub fn reset(reset: &Reset) -> Vec<u8> {
    let mut tcp = TcpHeader::new(reset.source_port, reset.destination_port, reset.sequence, 0);
    // With ACK, because a receiver in SYN-SENT accepts a reset only if it acknowledges the SYN (RFC 9293
    // section 3.10.7.3).
    tcp.rst = true;
    tcp.ack = true;
    tcp.acknowledgment_number = reset.acknowledgement;
    build(reset.addresses, tcp)
}

/// Returns a keep-alive probe in place of a segment: at `sequence`, without data. The receiver answers a
/// segment outside of its window with its next expected number (RFC 9293 sections 3.8.4 and 3.10.7.4).
///
/// A receiver may silently discard a segment for its hop limit, extension headers or options. The probe keeps
/// only the timestamp of these. `None` if a routing header will change the destination.
pub fn probe(segment: &Segment<'_>, sequence: u32) -> Option<Vec<u8>> {
    if segment.rerouted {
        return None;
    }
    let mut tcp =
        TcpHeader::new(segment.source_port(), segment.destination_port(), sequence, segment.window());
    tcp.ack = true;
    tcp.acknowledgment_number = segment.acknowledgement();
    // A receiver that negotiated timestamps drops segments without one (RFC 7323 section 3.2).
    let options = segment.tcp.options_iterator();
    if let Some(timestamp) = options.flatten().find(|it| matches!(it, TcpOptionElement::Timestamp(..))) {
        tcp.set_options(&[TcpOptionElement::Noop, TcpOptionElement::Noop, timestamp]).ok()?;
    }
    Some(build(segment.addresses(), tcp))
}

/// Returns the packet with this TCP header and no data.
fn build(addresses: Addresses, mut tcp: TcpHeader) -> Vec<u8> {
    let mut packet = Vec::with_capacity(Ipv6Header::LEN + tcp.header_len());
    match addresses {
        Addresses::V4(source, destination) => {
            let mut ip = Ipv4Header {
                total_len: Ipv4Header::MIN_LEN_U16 + tcp.header_len_u16(),
                dont_fragment: true,
                time_to_live: HOP_LIMIT,
                protocol: ip_number::TCP,
                source,
                destination,
                ..Ipv4Header::default()
            };
            ip.header_checksum = ip.calc_header_checksum();
            tcp.checksum = tcp.calc_checksum_ipv4_raw(source, destination, &[]).unwrap_or_default();
            packet.extend_from_slice(&ip.to_bytes());
        }
        Addresses::V6(source, destination) => {
            let ip = Ipv6Header {
                traffic_class: 0,
                flow_label: Ipv6FlowLabel::default(),
                payload_length: tcp.header_len_u16(),
                next_header: ip_number::TCP,
                hop_limit: HOP_LIMIT,
                source,
                destination,
            };
            tcp.checksum = tcp.calc_checksum_ipv6_raw(source, destination, &[]).unwrap_or_default();
            packet.extend_from_slice(&ip.to_bytes());
        }
    }
    packet.extend_from_slice(&tcp.to_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use crate::packet::testing::{SegmentBuilder, endpoint};
    use crate::packet::{ParsedPacket, Segment, TcpFlags, parse, probe};

    fn segment(octets: &[u8]) -> Segment<'_> {
        let Ok(ParsedPacket::Tcp(segment)) = parse(octets, octets.len()) else { panic!("a segment") };
        segment
    }

    #[test]
    fn a_probe_carries_no_data_and_nothing_for_which_its_receiver_discards_it() {
        for [from, to] in
            [["192.0.2.1:40000", "198.51.100.2:80"], ["[2001:db8::1]:40000", "[2001:db8::2]:80"]]
        {
            let flags = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN | TcpFlags::URG;
            let data = SegmentBuilder::new(endpoint(from), endpoint(to)).sequence(1000).acknowledgement(77);
            let data = data.flags(flags).hop_limit(2).payload(b"GET / HTTP/1.1");
            for (option, timestamp) in [(&[19, 18][..], None), (&[8, 10, 0, 0, 0, 7, 0, 0, 0, 9], Some(7))] {
                let data = data.clone().raw_options(option).build();
                let packet = probe(&segment(&data), 999).expect("it is not routed on");
                let (asks, data) = (segment(&packet), segment(&data));
                assert!(asks.checksums_valid() && asks.flags().is_plain() && !asks.is_signed());
                assert_eq!((asks.sequence(), asks.sequence_length(), asks.acknowledgement()), (999, 0, 77));
                assert_eq!((asks.hop_limit(), asks.timestamp()), (64, timestamp));
                assert_eq!((asks.source(), asks.destination()), (data.source(), data.destination()));
            }
        }
    }
}
