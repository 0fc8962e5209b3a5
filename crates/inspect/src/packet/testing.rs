//! Builder of packets for tests, benchmarks and fuzzing; the program does not use it.

use std::net::IpAddr;

use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, PacketBuilder,
    TcpHeader, TcpOptionElement, ip_number,
};

use super::TcpFlags;
use crate::event::Endpoint;

/// Parts of a TCP segment; every field may be set to a value that no honest host would send.
#[derive(Debug, Clone)]
pub struct SegmentBuilder {
    source: Endpoint,
    destination: Endpoint,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    urgent_pointer: u16,
    hop_limit: u8,
    identification: u16,
    options: Vec<TcpOptionElement>,
    raw_options: Vec<u8>,
    payload: Vec<u8>,
    bad_checksum: bool,
}

/// Parses an endpoint, `192.0.2.1:22` or `[2001:db8::1]:22`.
///
/// # Panics
///
/// When the text is no address and port.
pub fn endpoint(text: &str) -> Endpoint {
    let address: std::net::SocketAddr = text.parse().expect("an address and a port");
    Endpoint { address: address.ip(), port: address.port() }
}

/// A UDP datagram in its packet.
///
/// # Panics
///
/// When the ends are of different families, or the payload is too long for a packet.
pub fn datagram(source: Endpoint, destination: Endpoint, payload: &[u8]) -> Vec<u8> {
    let builder = match (source.address, destination.address) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            PacketBuilder::ipv4(source.octets(), destination.octets(), 64)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            PacketBuilder::ipv6(source.octets(), destination.octets(), 64)
        }
        _ => panic!("two ends of one family"),
    };
    let mut packet = Vec::new();
    builder.udp(source.port, destination.port).write(&mut packet, payload).expect("a payload of one packet");
    packet
}

impl SegmentBuilder {
    /// A segment with only ACK set, window 65,535 and hop limit 64.
    pub fn new(source: Endpoint, destination: Endpoint) -> Self {
        Self {
            source,
            destination,
            sequence: 0,
            acknowledgement: 0,
            flags: TcpFlags::ACK,
            window: u16::MAX,
            urgent_pointer: 0,
            hop_limit: 64,
            identification: 0,
            options: Vec::new(),
            raw_options: Vec::new(),
            payload: Vec::new(),
            bad_checksum: false,
        }
    }

    /// Sequence number.
    #[must_use]
    pub fn sequence(mut self, sequence: u32) -> Self {
        self.sequence = sequence;
        self
    }

    /// Acknowledgement number.
    #[must_use]
    pub fn acknowledgement(mut self, acknowledgement: u32) -> Self {
        self.acknowledgement = acknowledgement;
        self
    }

    /// Exactly these flags, [`TcpFlags`] combined.
    #[must_use]
    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// Window, unscaled.
    #[must_use]
    pub fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    /// Urgent pointer, and URG.
    #[must_use]
    pub fn urgent(mut self, pointer: u16) -> Self {
        self.urgent_pointer = pointer;
        self.flags |= TcpFlags::URG;
        self
    }

    /// Time to live or hop limit.
    #[must_use]
    pub fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    /// IP identification, which fragments share.
    #[must_use]
    pub fn identification(mut self, identification: u16) -> Self {
        self.identification = identification;
        self
    }

    /// One TCP option in place of all others: its kind, its length, and its first bytes.
    #[must_use]
    pub fn raw_options(mut self, option: &[u8]) -> Self {
        let length = usize::from(option.get(1).copied().unwrap_or_default());
        self.raw_options = option.to_vec();
        self.raw_options.resize(length, 0);
        self.raw_options.resize(length.next_multiple_of(4), 1);
        self
    }

    /// TCP options in place of all others, with the padding that they have.
    #[must_use]
    pub fn all_options(mut self, options: &[u8]) -> Self {
        self.raw_options = options.to_vec();
        self
    }

    /// One more TCP option.
    #[must_use]
    pub fn option(mut self, option: TcpOptionElement) -> Self {
        self.options.push(option);
        self
    }

    /// Payload.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// A TCP checksum that no receiver accepts.
    #[must_use]
    pub fn bad_checksum(mut self) -> Self {
        self.bad_checksum = true;
        self
    }

    /// The whole IP packet.
    ///
    /// # Panics
    ///
    /// When source and destination are not of one IP version, or something does not fit.
    pub fn build(&self) -> Vec<u8> {
        let mut packet = ip_header(self, ip_number::TCP, self.tcp().len());
        packet.extend_from_slice(&self.tcp());
        packet
    }

    /// The packet as IP fragments whose payloads have `size` bytes each (a multiple of eight), in
    /// order.
    ///
    /// # Panics
    ///
    /// As [`SegmentBuilder::build`].
    pub fn fragments(&self, size: usize) -> Vec<Vec<u8>> {
        let tcp = self.tcp();
        let pieces: Vec<&[u8]> = tcp.chunks(size).collect();
        let last = pieces.len() - 1;
        let mut offset = 0;
        let mut packets = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            packets.push(self.fragment(offset, index != last, piece));
            offset += piece.len();
        }
        packets
    }

    /// One IP fragment of this packet with any payload; `offset` is a multiple of eight.
    ///
    /// # Panics
    ///
    /// As [`SegmentBuilder::build`].
    pub fn fragment(&self, offset: usize, more: bool, piece: &[u8]) -> Vec<u8> {
        let offset = IpFragOffset::try_new(u16::try_from(offset / 8).expect("an offset"))
            .expect("an offset of 13 bits");
        let mut packet;
        if self.source.address.is_ipv4() {
            packet = ip_header(self, ip_number::TCP, piece.len());
            let (mut header, _) = Ipv4Header::from_slice(&packet).expect("our own header");
            header.dont_fragment = false;
            header.more_fragments = more;
            header.fragment_offset = offset;
            header.header_checksum = header.calc_header_checksum();
            packet = header.to_bytes().to_vec();
        } else {
            let header = Ipv6FragmentHeader::new(ip_number::TCP, offset, more, self.identification.into());
            packet = ip_header(self, ip_number::IPV6_FRAGMENTATION_HEADER, 8 + piece.len());
            packet.extend_from_slice(&header.to_bytes());
        }
        packet.extend_from_slice(piece);
        packet
    }

    /// TCP header and payload.
    fn tcp(&self) -> Vec<u8> {
        let mut tcp = TcpHeader::new(self.source.port, self.destination.port, self.sequence, self.window);
        tcp.acknowledgment_number = self.acknowledgement;
        tcp.fin = self.flags & TcpFlags::FIN != 0;
        tcp.syn = self.flags & TcpFlags::SYN != 0;
        tcp.rst = self.flags & TcpFlags::RST != 0;
        tcp.psh = self.flags & TcpFlags::PSH != 0;
        tcp.ack = self.flags & TcpFlags::ACK != 0;
        tcp.urg = self.flags & TcpFlags::URG != 0;
        tcp.urgent_pointer = self.urgent_pointer;
        tcp.set_options(&self.options).expect("40 octets of options");
        if !self.raw_options.is_empty() {
            tcp.set_options_raw(&self.raw_options).expect("40 octets of options");
        }
        let checksum = match (self.source.address, self.destination.address) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                tcp.calc_checksum_ipv4_raw(source.octets(), destination.octets(), &self.payload)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                tcp.calc_checksum_ipv6_raw(source.octets(), destination.octets(), &self.payload)
            }
            _ => panic!("addresses of two IP versions"),
        };
        tcp.checksum = checksum.expect("a payload that fits") ^ u16::from(self.bad_checksum);
        let mut octets = tcp.to_bytes().to_vec();
        octets.extend_from_slice(&self.payload);
        octets
    }
}

fn ip_header(segment: &SegmentBuilder, protocol: IpNumber, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).expect("a packet that fits");
    match (segment.source.address, segment.destination.address) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header =
                Ipv4Header::new(length, segment.hop_limit, protocol, source.octets(), destination.octets())
                    .expect("a packet that fits");
            header.identification = segment.identification;
            header.header_checksum = header.calc_header_checksum();
            header.to_bytes().to_vec()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Header {
            traffic_class: 0,
            flow_label: Ipv6FlowLabel::default(),
            payload_length: length,
            next_header: protocol,
            hop_limit: segment.hop_limit,
            source: source.octets(),
            destination: destination.octets(),
        }
        .to_bytes()
        .to_vec(),
        _ => panic!("addresses of two IP versions"),
    }
}
