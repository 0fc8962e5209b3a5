//! TCP packets to be, with every field open, and packets that came.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, NetSlice,
    SlicedPacket, TcpHeader, TransportSlice, ip_number,
};

/// TCP flags, as in the header's thirteenth octet.
#[derive(Debug, Clone, Copy)]
pub struct Flags;

impl Flags {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// PSH.
    pub const PSH: u8 = 0x08;
    /// ACK.
    pub const ACK: u8 = 0x10;
    /// URG.
    pub const URG: u8 = 0x20;
}

/// An extension header of IPv6 in front of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// Hop-by-hop options, padding only.
    HopByHop,
    /// Destination options with one option of this type, empty.
    Destination(u8),
    /// A routing header of type 0 with so many segments left.
    Routing(u8),
    /// A fragment header of a packet that is whole.
    AtomicFragment,
}

/// A TCP packet to be.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the header's own field names")]
pub struct Packet {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent_pointer: u16,
    pub hop_limit: u8,
    pub dont_fragment: bool,
    pub identification: u16,
    /// TCP options as they stand in the header; filled up with zeros.
    pub options: Vec<u8>,
    pub extensions: Vec<Extension>,
    pub payload: Vec<u8>,
    /// Whether the TCP checksum is wrong.
    pub bad_checksum: bool,
}

impl Packet {
    /// A segment with ACK and PSH set.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            source,
            destination,
            sequence: 0,
            acknowledgement: 0,
            flags: Flags::ACK | Flags::PSH,
            window: 60_000,
            urgent_pointer: 0,
            hop_limit: 64,
            dont_fragment: true,
            identification: 0,
            options: Vec::new(),
            extensions: Vec::new(),
            payload: Vec::new(),
            bad_checksum: false,
        }
    }

    /// With these flags and no others.
    #[must_use]
    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// With one more TCP option.
    #[must_use]
    pub fn option(mut self, option: &[u8]) -> Self {
        self.options.extend_from_slice(option);
        self
    }

    /// With one more IPv6 extension header.
    #[must_use]
    pub fn extension(mut self, extension: Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    /// With an RFC 2385 signature that nobody asked for.
    #[must_use]
    pub fn signed(self) -> Self {
        self.option(&[19, 18, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7])
    }

    /// The whole IP packet.
    ///
    /// # Panics
    /// When the addresses are of two kinds, or something does not fit.
    pub fn build(&self) -> Vec<u8> {
        let mut octets = self.ip(self.extensions.as_slice(), ip_number::TCP, &self.tcp());
        if self.source.is_ipv4() && self.dont_fragment {
            set_dont_fragment(&mut octets);
        }
        octets
    }

    /// The packet in IP fragments whose payloads have `size` octets (a multiple of eight).
    ///
    /// # Panics
    /// As [`Packet::build`].
    pub fn fragments(&self, size: usize) -> Vec<Vec<u8>> {
        let tcp = self.tcp();
        let pieces = tcp.chunks(size.next_multiple_of(8));
        let last = pieces.len() - 1;
        let mut offset = 0;
        let mut packets = Vec::new();
        for (index, piece) in pieces.enumerate() {
            packets.push(self.fragment(offset, index != last, piece));
            offset += piece.len();
        }
        packets
    }

    fn fragment(&self, offset: usize, more: bool, piece: &[u8]) -> Vec<u8> {
        let units = u16::try_from(offset / 8).expect("an offset");
        let place = IpFragOffset::try_new(units).expect("13 bits");
        if self.source.is_ipv4() {
            let octets = self.ip(&[], ip_number::TCP, piece);
            let (mut header, _) = Ipv4Header::from_slice(&octets).expect("our own header");
            header.more_fragments = more;
            header.fragment_offset = place;
            header.identification = self.identification;
            header.header_checksum = header.calc_header_checksum();
            return [header.to_bytes().as_slice(), piece].concat();
        }
        let header = Ipv6FragmentHeader::new(ip_number::TCP, place, more, self.identification.into());
        let payload = [header.to_bytes().as_slice(), piece].concat();
        self.ip(&[], ip_number::IPV6_FRAGMENTATION_HEADER, &payload)
    }

    /// TCP header and payload.
    fn tcp(&self) -> Vec<u8> {
        let mut header =
            TcpHeader::new(self.source.port(), self.destination.port(), self.sequence, self.window);
        header.acknowledgment_number = self.acknowledgement;
        header.set_options_raw(&self.options).expect("at most 40 octets of options");
        header.urgent_pointer = self.urgent_pointer;
        let has = |flag| self.flags & flag != 0;
        (header.fin, header.syn, header.rst) = (has(Flags::FIN), has(Flags::SYN), has(Flags::RST));
        (header.psh, header.ack, header.urg) = (has(Flags::PSH), has(Flags::ACK), has(Flags::URG));
        let checksum = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                header.calc_checksum_ipv4_raw(source.octets(), destination.octets(), &self.payload)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                header.calc_checksum_ipv6_raw(source.octets(), destination.octets(), &self.payload)
            }
            _ => panic!("addresses of two kinds"),
        };
        header.checksum = checksum.expect("it fits") ^ if self.bad_checksum { 0x5555 } else { 0 };
        [header.to_bytes().as_slice(), &self.payload].concat()
    }

    /// `payload` behind an IP header and these extension headers.
    fn ip(&self, extensions: &[Extension], protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Ipv4Header {
                    total_len: u16::try_from(Ipv4Header::MIN_LEN + payload.len()).expect("it fits"),
                    time_to_live: self.hop_limit,
                    protocol,
                    identification: self.identification,
                    dont_fragment: false,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv4Header::default()
                };
                header.header_checksum = header.calc_header_checksum();
                [header.to_bytes().as_slice(), payload].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (first, between) = self.chain(extensions, protocol);
                let header = Ipv6Header {
                    traffic_class: 0,
                    flow_label: Ipv6FlowLabel::default(),
                    payload_length: u16::try_from(between.len() + payload.len()).expect("it fits"),
                    next_header: first,
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                [header.to_bytes().as_slice(), &between, payload].concat()
            }
            _ => panic!("addresses of two kinds"),
        }
    }

    /// The first header's number and the octets of all of them.
    fn chain(&self, extensions: &[Extension], protocol: IpNumber) -> (IpNumber, Vec<u8>) {
        let mut next = protocol;
        let mut chain = Vec::new();
        for extension in extensions.iter().rev() {
            let (number, body) = match *extension {
                Extension::HopByHop => (ip_number::IPV6_HEADER_HOP_BY_HOP, vec![0, 1, 4, 0, 0, 0, 0]),
                Extension::Destination(option) => {
                    (ip_number::IPV6_DESTINATION_OPTIONS, vec![0, option, 4, 0, 0, 0, 0])
                }
                Extension::Routing(left) => {
                    let mut body = vec![2, 0, left, 0, 0, 0, 0];
                    body.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
                    (ip_number::IPV6_ROUTE_HEADER, body)
                }
                Extension::AtomicFragment => {
                    let [high, low] = self.identification.to_be_bytes();
                    (ip_number::IPV6_FRAGMENTATION_HEADER, vec![0, 0, 0, 0, 0, high, low])
                }
            };
            chain.splice(0..0, [next.0].into_iter().chain(body));
            next = number;
        }
        (next, chain)
    }
}

fn set_dont_fragment(packet: &mut [u8]) {
    let (mut header, _) = Ipv4Header::from_slice(packet).expect("our own header");
    header.dont_fragment = true;
    header.header_checksum = header.calc_header_checksum();
    packet[..Ipv4Header::MIN_LEN].copy_from_slice(&header.to_bytes());
}

/// A TCP packet that came.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the header's own field names")]
pub struct Received {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent_pointer: u16,
    pub hop_limit: u8,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Whether the checksum is right; packets that offloading left without one have a wrong one.
    pub checksum_valid: bool,
    /// Whether there was a routing header with segments left, or an option to be discarded by.
    pub refused_by_ip: bool,
}

impl Received {
    /// Reads an IP packet; `None` unless it is whole TCP.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let sliced = SlicedPacket::from_ip(octets).ok()?;
        let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return None };
        let (source, destination, hop_limit) = match sliced.net.as_ref()? {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()), header.ttl())
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()), header.hop_limit())
            }
            NetSlice::Arp(_) => return None,
        };
        let checksum = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                tcp.calc_checksum_ipv4(source.octets(), destination.octets()).ok()?
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                tcp.calc_checksum_ipv6(source.octets(), destination.octets()).ok()?
            }
            _ => return None,
        };
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        Some(Self {
            source: SocketAddr::new(source, tcp.source_port()),
            destination: SocketAddr::new(destination, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            acknowledgement: tcp.acknowledgment_number(),
            flags: flag(tcp.fin(), Flags::FIN)
                | flag(tcp.syn(), Flags::SYN)
                | flag(tcp.rst(), Flags::RST)
                | flag(tcp.psh(), Flags::PSH)
                | flag(tcp.ack(), Flags::ACK)
                | flag(tcp.urg(), Flags::URG),
            window: tcp.window_size(),
            urgent_pointer: tcp.urgent_pointer(),
            hop_limit,
            options: tcp.options().to_vec(),
            payload: tcp.payload().to_vec(),
            checksum_valid: checksum == tcp.checksum(),
            refused_by_ip: refused_by_ip(octets),
        })
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The value of an option by its kind.
    pub fn option(&self, kind: u8) -> Option<&[u8]> {
        let mut rest = self.options.as_slice();
        loop {
            match rest {
                [] | [0, ..] => return None,
                [1, behind @ ..] => rest = behind,
                [this, length, ..] => {
                    let length = usize::from(*length);
                    if length < 2 || length > rest.len() {
                        return None;
                    }
                    if *this == kind {
                        return Some(&rest[2..length]);
                    }
                    rest = &rest[length..];
                }
                [_] => return None,
            }
        }
    }

    /// Whether every option that a signature could follow is as long as it says: Linux drops others
    /// (`tcp_do_parse_auth_options`).
    pub fn has_whole_options(&self) -> bool {
        let mut rest = self.options.as_slice();
        loop {
            match rest {
                [0, ..] => return true,
                rest if rest.len() < 18 => return true,
                [1, behind @ ..] => rest = behind,
                [_, length, ..] if (2..=rest.len()).contains(&usize::from(*length)) => {
                    rest = &rest[usize::from(*length)..];
                }
                _ => return false,
            }
        }
    }

    /// Value of the timestamp option.
    pub fn timestamp(&self) -> Option<u32> {
        let (value, _) = self.option(8).filter(|value| value.len() == 8)?.split_first_chunk()?;
        Some(u32::from_be_bytes(*value))
    }

    /// The packet in words; numbers relative to where each side's data begins.
    pub fn describe(&self, sequence_base: u32, acknowledgement_base: u32) -> String {
        let signed = |number: u32, base: u32| number.wrapping_sub(base).cast_signed();
        let names = [(Flags::SYN, 'S'), (Flags::FIN, 'F'), (Flags::RST, 'R'), (Flags::PSH, 'P')];
        let names = names.into_iter().chain([(Flags::ACK, 'A'), (Flags::URG, 'U')]);
        let flags: String = names.filter(|(flag, _)| self.has(*flag)).map(|(_, name)| name).collect();
        let mut text = format!("[{flags}] seq {}", signed(self.sequence, sequence_base));
        if self.has(Flags::ACK) {
            let _ = write!(text, " ack {}", signed(self.acknowledgement, acknowledgement_base));
        }
        if self.hop_limit < 48 {
            let _ = write!(text, " hops {}", self.hop_limit);
        }
        if self.has(Flags::URG) || self.urgent_pointer != 0 {
            let _ = write!(text, " urgent {}", self.urgent_pointer);
        }
        if !self.checksum_valid {
            text.push_str(" badsum");
        }
        if self.refused_by_ip {
            text.push_str(" refused-by-ip");
        }
        if !self.options.is_empty() {
            let _ = write!(text, " options {:02x?}", self.options);
        }
        if !self.payload.is_empty() {
            let shown = &self.payload[..self.payload.len().min(80)];
            let _ = write!(text, " {} octets \"{}\"", self.payload.len(), shown.escape_ascii());
        }
        text
    }
}

/// Whether a host discards the packet for its IPv6 extension headers: segments left in a routing
/// header of type 0 (RFC 5095), an unknown option that says so (RFC 8200 section 4.2), or hop-by-hop
/// options elsewhere than first (section 4.1).
fn refused_by_ip(octets: &[u8]) -> bool {
    if octets.first().is_none_or(|first| first >> 4 != 6) {
        return false;
    }
    let Some(mut next) = octets.get(6).copied() else { return true };
    let mut at = 40;
    loop {
        let length = match next {
            0 | 43 | 60 => octets.get(at + 1).map(|length| (usize::from(*length) + 1) * 8),
            44 => Some(8),
            _ => return false,
        };
        let Some(header) = length.and_then(|length| octets.get(at..at + length)) else { return true };
        let refuses = match next {
            0 => at != 40,
            43 => header[3] != 0,
            60 => header[2] >> 6 != 0,
            _ => false,
        };
        if refuses {
            return true;
        }
        (next, at) = (header[0], at + header.len());
    }
}
