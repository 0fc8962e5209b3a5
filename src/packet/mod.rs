//! Read-only views of IPv4 and IPv6 packets that carry TCP, the reassembly of IP fragments, and the
//! way from a frame to the packet in it: link layers and tunnels.
//!
//! [`parse`] checks a packet once; a [`Segment`] that exists has whole headers, and nothing
//! rechecks them. The octets come from the network: they may be cut short by a copy range or a
//! snap length, padded, or hostile. This room knows neither flows nor the clock.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use etherparse::err::ipv4::HeaderSliceError as Ipv4Error;
use etherparse::err::ipv6::HeaderSliceError as Ipv6Error;
use etherparse::err::tcp::HeaderSliceError as TcpError;
use etherparse::{
    IpAuthHeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice,
    Ipv6RawExtHeaderSlice, TcpSlice, ip_number,
};

use crate::event::{Endpoint, PacketHeader};

mod build;
pub mod encapsulation;
mod fragment;
pub mod link;
#[doc(hidden)]
pub mod testing;
mod urgent;

pub use build::{Addresses, Reset, reset};
pub use fragment::{Fragment, Reassembled, Reassembler, ReassemblyLimits};
pub use urgent::Patch;

/// Extension headers that are walked before a packet is given up; real ones have one or two.
const EXTENSION_HEADER_LIMIT: usize = 16;

/// Octets of a TCP header before its options.
const TCP_OPTIONS: usize = 20;

/// A packet, by what bannerwall can do with it.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A TCP segment with whole headers.
    Tcp(Segment<'a>),
    /// A fragment of an IP packet, for a [`Reassembler`].
    Fragment(Fragment<'a>),
    /// An IP packet that carries something other than TCP.
    Other,
}

/// Why a packet could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The headers go on behind what was captured; the packet had at least `needed` octets.
    #[error("headers need {needed} octets of which {captured} were captured")]
    Captured {
        /// Octets from the start of the IP header that reading on needs.
        needed: usize,
        /// Octets that were there.
        captured: usize,
    },
    /// The packet ends, on the wire, before its headers do.
    #[error("the packet is shorter than its headers")]
    Short,
    /// Neither version 4 nor 6.
    #[error("IP version {0}")]
    Version(u8),
    /// A header's own length field is smaller than the header.
    #[error("a header length smaller than the header")]
    HeaderLength,
    /// More extension headers than any honest packet has.
    #[error("more than {EXTENSION_HEADER_LIMIT} IPv6 extension headers")]
    ExtensionHeaders,
}

/// Reads the IP packet `ip`, of which `wire_length` octets were on the wire.
///
/// `wire_length` exceeds `ip.len()` where a copy range or snap length cut the packet short. Octets
/// behind the length that the IP header states (Ethernet padding) are left out. A stated length of
/// zero (segmentation offload, IPv6 jumbograms) means the whole packet.
///
/// # Errors
///
/// A [`PacketError`] when the IP or TCP headers are cut short or contradict themselves.
pub fn parse(ip: &[u8], wire_length: usize) -> Result<Parsed<'_>, PacketError> {
    let wire_length = wire_length.max(ip.len());
    match ip.first().map(|octet| octet >> 4) {
        Some(4) => parse_ipv4(ip, wire_length),
        Some(6) => parse_ipv6(ip, wire_length),
        Some(version) => Err(PacketError::Version(version)),
        None => Err(short(1, 0, wire_length)),
    }
}

fn parse_ipv4(ip: &[u8], wire_length: usize) -> Result<Parsed<'_>, PacketError> {
    let header = Ipv4HeaderSlice::from_slice(ip).map_err(|error| match error {
        Ipv4Error::Len(error) => short(error.required_len, ip.len(), wire_length),
        Ipv4Error::Content(_) => PacketError::HeaderLength,
    })?;
    let header_length = header.slice().len();
    let extent = Extent::new(ip, stated(usize::from(header.total_len())), wire_length);
    if extent.wire < header_length {
        return Err(PacketError::HeaderLength);
    }
    if header.is_fragmenting_payload() {
        let body = extent.body(header_length);
        return Ok(Parsed::Fragment(Fragment::v4(&header, body)));
    }
    if header.protocol() != ip_number::TCP {
        return Ok(Parsed::Other);
    }
    Segment::parse(IpHeader::V4(header), extent, header_length, false)
}

fn parse_ipv6(ip: &[u8], wire_length: usize) -> Result<Parsed<'_>, PacketError> {
    let header = Ipv6HeaderSlice::from_slice(ip).map_err(|error| match error {
        Ipv6Error::Len(error) => short(error.required_len, ip.len(), wire_length),
        Ipv6Error::Content(_) => PacketError::HeaderLength,
    })?;
    let mut at = header.slice().len();
    let total = stated(usize::from(header.payload_length())).map(|length| length + at);
    let extent = Extent::new(ip, total, wire_length);
    let mut next = header.next_header();
    let mut rerouted = false;
    for _ in 0..EXTENSION_HEADER_LIMIT {
        let rest = extent.captured.get(at..).unwrap_or_default();
        let (length, following) = match next {
            ip_number::TCP => return Segment::parse(IpHeader::V6(header), extent, at, rerouted),
            ip_number::IPV6_FRAGMENTATION_HEADER => {
                let fragment = Ipv6FragmentHeaderSlice::from_slice(rest)
                    .map_err(|error| extent.short(at + error.required_len))?;
                if fragment.is_fragmenting_payload() {
                    let body = extent.body(at + fragment.slice().len());
                    return Ok(Parsed::Fragment(Fragment::v6(ip, at, &header, &fragment, body)));
                }
                (fragment.slice().len(), fragment.next_header())
            }
            ip_number::AUTHENTICATION_HEADER => {
                let authentication = IpAuthHeaderSlice::from_slice(rest).map_err(|error| match error {
                    etherparse::err::ip_auth::HeaderSliceError::Len(error) => {
                        extent.short(at + error.required_len)
                    }
                    etherparse::err::ip_auth::HeaderSliceError::Content(_) => PacketError::HeaderLength,
                })?;
                (authentication.slice().len(), authentication.next_header())
            }
            other if Ipv6RawExtHeaderSlice::header_type_supported(other) => {
                let extension = Ipv6RawExtHeaderSlice::from_slice(rest)
                    .map_err(|error| extent.short(at + error.required_len))?;
                rerouted |= routes_on(other, extension.payload());
                (extension.slice().len(), extension.next_header())
            }
            _ => return Ok(Parsed::Other),
        };
        at += length;
        next = following;
    }
    Err(PacketError::ExtensionHeaders)
}

/// Whether a routing header still has segments left, so that the destination will change on the
/// way and the TCP checksum can't be verified here (RFC 8200 section 8.1).
fn routes_on(kind: IpNumber, payload: &[u8]) -> bool {
    kind == ip_number::IPV6_ROUTE_HEADER && payload.get(1).is_some_and(|left| *left != 0)
}

fn stated(length: usize) -> Option<usize> {
    (length != 0).then_some(length)
}

fn short(needed: usize, captured: usize, wire_length: usize) -> PacketError {
    if needed <= wire_length { PacketError::Captured { needed, captured } } else { PacketError::Short }
}

/// What was captured of a packet, without padding, and how long it was on the wire.
#[derive(Debug, Clone, Copy)]
struct Extent<'a> {
    captured: &'a [u8],
    wire: usize,
}

impl<'a> Extent<'a> {
    fn new(ip: &'a [u8], stated: Option<usize>, wire_length: usize) -> Self {
        let wire = stated.map_or(wire_length, |stated| stated.min(wire_length));
        let captured = ip.get(..wire).unwrap_or(ip);
        Self { captured, wire }
    }

    fn short(&self, needed: usize) -> PacketError {
        short(needed, self.captured.len(), self.wire)
    }

    /// What follows `offset`.
    fn body(&self, offset: usize) -> Self {
        Self {
            captured: self.captured.get(offset..).unwrap_or_default(),
            wire: self.wire.saturating_sub(offset),
        }
    }
}

#[derive(Debug, Clone)]
enum IpHeader<'a> {
    V4(Ipv4HeaderSlice<'a>),
    V6(Ipv6HeaderSlice<'a>),
}

/// A TCP segment: IP header, whole TCP header, and as much payload as was captured.
#[derive(Debug, Clone)]
pub struct Segment<'a> {
    ip: IpHeader<'a>,
    tcp: TcpSlice<'a>,
    wire_length: usize,
    wire_payload_length: usize,
    rerouted: bool,
}

/// The TCP flags that the engine acts upon, RFC 9293 section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Reset the connection.
    pub const RST: u8 = 4;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
    /// The urgent pointer is valid.
    pub const URG: u8 = 32;

    /// The octet as it stands in the header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// FIN is set.
    pub const fn fin(self) -> bool {
        self.0 & Self::FIN != 0
    }

    /// SYN is set.
    pub const fn syn(self) -> bool {
        self.0 & Self::SYN != 0
    }

    /// RST is set.
    pub const fn rst(self) -> bool {
        self.0 & Self::RST != 0
    }

    /// ACK is set.
    pub const fn ack(self) -> bool {
        self.0 & Self::ACK != 0
    }

    /// URG is set.
    pub const fn urg(self) -> bool {
        self.0 & Self::URG != 0
    }
}

impl<'a> Segment<'a> {
    fn parse(
        ip: IpHeader<'a>,
        extent: Extent<'a>,
        offset: usize,
        rerouted: bool,
    ) -> Result<Parsed<'a>, PacketError> {
        let slice = extent.captured.get(offset..).unwrap_or_default();
        let tcp = TcpSlice::from_slice(slice).map_err(|error| match error {
            TcpError::Len(error) => extent.short(offset + error.required_len),
            TcpError::Content(_) => PacketError::HeaderLength,
        })?;
        let wire_payload_length = extent.wire.saturating_sub(offset + tcp.header_len());
        let wire_length = extent.wire;
        Ok(Parsed::Tcp(Self { ip, tcp, wire_length, wire_payload_length, rerouted }))
    }

    /// Address and port of the sender.
    pub fn source(&self) -> Endpoint {
        let address = match &self.ip {
            IpHeader::V4(header) => IpAddr::V4(header.source_addr()),
            IpHeader::V6(header) => IpAddr::V6(header.source_addr()),
        };
        Endpoint { address, port: self.tcp.source_port() }
    }

    /// Address and port of the receiver.
    pub fn destination(&self) -> Endpoint {
        let address = match &self.ip {
            IpHeader::V4(header) => IpAddr::V4(header.destination_addr()),
            IpHeader::V6(header) => IpAddr::V6(header.destination_addr()),
        };
        Endpoint { address, port: self.tcp.destination_port() }
    }

    /// Source and destination address as they stand in the IP header.
    pub fn addresses(&self) -> Addresses {
        match &self.ip {
            IpHeader::V4(header) => Addresses::V4(header.source(), header.destination()),
            IpHeader::V6(header) => Addresses::V6(header.source(), header.destination()),
        }
    }

    /// TCP port of the sender.
    pub fn source_port(&self) -> u16 {
        self.tcp.source_port()
    }

    /// TCP port of the receiver.
    pub fn destination_port(&self) -> u16 {
        self.tcp.destination_port()
    }

    /// TCP sequence number of the first octet (of SYN, where that is set).
    pub fn sequence(&self) -> u32 {
        self.tcp.sequence_number()
    }

    /// TCP acknowledgement number; means something only with ACK.
    pub fn acknowledgement(&self) -> u32 {
        self.tcp.acknowledgment_number()
    }

    /// TCP flags.
    pub fn flags(&self) -> Flags {
        Flags(self.tcp.header_slice().get(13).copied().unwrap_or_default())
    }

    /// TCP window, unscaled.
    pub fn window(&self) -> u16 {
        self.tcp.window_size()
    }

    /// TCP urgent pointer; means something only with URG.
    pub fn urgent_pointer(&self) -> u16 {
        self.tcp.urgent_pointer()
    }

    /// Shift of the window scale option (RFC 7323), at most 14; only a SYN carries it.
    pub fn window_scale(&self) -> Option<u8> {
        self.tcp.options_iterator().find_map(|option| match option {
            Ok(etherparse::TcpOptionElement::WindowScale(shift)) => Some(shift.min(14)),
            _ => None,
        })
    }

    /// TCP timestamp option (RFC 7323): the sender's clock.
    pub fn timestamp(&self) -> Option<u32> {
        self.tcp.options_iterator().find_map(|option| match option {
            Ok(etherparse::TcpOptionElement::Timestamp(value, _)) => Some(value),
            _ => None,
        })
    }

    /// The octets of the first TCP option of this kind, behind its kind and length (RFC 9293 section 3.1).
    pub fn option(&self, kind: u8) -> Option<&'a [u8]> {
        let mut options = self.tcp.header_slice().get(TCP_OPTIONS..).unwrap_or_default();
        loop {
            let (&found, rest) = options.split_first()?;
            match found {
                0 => return None,
                1 => options = rest,
                _ => {
                    let length = usize::from(*rest.first()?);
                    let option = options.get(2..length)?;
                    if found == kind {
                        return Some(option);
                    }
                    options = options.get(length..)?;
                }
            }
        }
    }

    /// Whether the segment is signed: TCP MD5 (RFC 2385) or TCP-AO (RFC 5925).
    pub fn is_signed(&self) -> bool {
        self.option(19).or_else(|| self.option(29)).is_some()
    }

    /// Whether a SYN asks to join a Multipath TCP connection (RFC 8684 section 3.2).
    pub fn joins_multipath(&self) -> bool {
        self.option(30).and_then(<[u8]>::first).is_some_and(|first| first >> 4 == 1)
    }

    /// IPv4 time to live or IPv6 hop limit.
    pub fn hop_limit(&self) -> u8 {
        match &self.ip {
            IpHeader::V4(header) => header.ttl(),
            IpHeader::V6(header) => header.hop_limit(),
        }
    }

    /// As much of the payload as was captured.
    pub fn payload(&self) -> &'a [u8] {
        self.tcp.payload()
    }

    /// Octets of payload on the wire; exceeds `payload().len()` where the capture was cut short.
    pub fn wire_payload_length(&self) -> usize {
        self.wire_payload_length
    }

    /// Octets of the whole IP packet on the wire.
    pub fn wire_length(&self) -> usize {
        self.wire_length
    }

    /// Whether all of the payload was captured.
    pub fn is_whole(&self) -> bool {
        self.payload().len() == self.wire_payload_length
    }

    /// Octets of sequence space that the segment takes: its payload, SYN and FIN.
    pub fn sequence_length(&self) -> u32 {
        let flags = self.flags();
        let payload = u32::try_from(self.wire_payload_length).unwrap_or(u32::MAX);
        payload.wrapping_add(u32::from(flags.syn())).wrapping_add(u32::from(flags.fin()))
    }

    /// Whether the IPv4 header's and the TCP checksum are right.
    ///
    /// True also where that can't be told: when not all was captured, or when a routing header
    /// will change the destination on the way.
    pub fn checksums_valid(&self) -> bool {
        if !self.is_whole() || self.rerouted {
            return true;
        }
        let calculated = match &self.ip {
            IpHeader::V4(header) => {
                if Sum16BitWords::new().add_slice(header.slice()).ones_complement() != 0 {
                    return false;
                }
                self.tcp.calc_checksum_ipv4(header.source(), header.destination())
            }
            IpHeader::V6(header) => self.tcp.calc_checksum_ipv6(header.source(), header.destination()),
        };
        // All ones and zero are the same number in ones' complement: receivers take either.
        calculated.is_ok_and(|checksum| checksum % 0xffff == self.tcp.checksum() % 0xffff)
    }

    /// The header fields that a drop event shows.
    pub fn header_facts(&self) -> PacketHeader {
        let (traffic_class, identification) = match &self.ip {
            IpHeader::V4(header) => {
                (header.slice().get(1).copied().unwrap_or_default(), u32::from(header.identification()))
            }
            IpHeader::V6(header) => (header.traffic_class(), header.flow_label().value()),
        };
        PacketHeader {
            length: u32::try_from(self.wire_length).unwrap_or(u32::MAX),
            traffic_class,
            hop_limit: self.hop_limit(),
            identification,
            sequence: self.sequence(),
            acknowledgement: self.acknowledgement(),
            window: self.window(),
            flags: self.flags().bits(),
            urgent_pointer: self.urgent_pointer(),
        }
    }
}

#[cfg(test)]
mod tests;
