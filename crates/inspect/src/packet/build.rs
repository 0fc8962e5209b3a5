//! Builds the only kind of packet that bannerwall sends: a TCP reset.

use std::net::IpAddr;

use etherparse::{Ipv4Header, Ipv6FlowLabel, Ipv6Header, TcpHeader, ip_number};

/// Hop limit of resets: that of most hosts, so that only its timing distinguishes a reset.
const HOP_LIMIT: u8 = 64;

/// Number of bytes of a TCP header without options.
const TCP_LENGTH: u16 = 20;

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
    tcp.rst = true;
    tcp.ack = true;
    tcp.acknowledgment_number = reset.acknowledgement;
    let mut packet = Vec::with_capacity(Ipv6Header::LEN + TcpHeader::MIN_LEN);
    match reset.addresses {
        Addresses::V4(source, destination) => {
            let mut ip = Ipv4Header {
                total_len: Ipv4Header::MIN_LEN_U16 + TCP_LENGTH,
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
                payload_length: TCP_LENGTH,
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
