//! One TCP segment in its packet: accessors that cannot fail, since its headers are whole.

use std::net::IpAddr;
use std::ops::Range;

use etherparse::checksum::Sum16BitWords;
use etherparse::err::tcp::HeaderSliceError as TcpError;
use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, TcpSlice};

use super::unambiguous::MULTIPATH;
use super::{Addresses, PacketError, PacketExtent, ParsedPacket};
use crate::event::{Endpoint, PacketHeader};

/// Number of bytes of a TCP header before its options.
const TCP_OPTIONS: usize = 20;

#[derive(Debug, Clone)]
pub(super) enum IpHeader<'a> {
    V4(Ipv4HeaderSlice<'a>),
    V6(Ipv6HeaderSlice<'a>),
}

/// A TCP segment: IP header, complete TCP header, and the captured part of the payload.
#[derive(Debug, Clone)]
pub struct Segment<'a> {
    pub(super) ip: IpHeader<'a>,
    pub(super) tcp: TcpSlice<'a>,
    wire_length: usize,
    wire_payload_length: usize,
    pub(super) rerouted: bool,
}

/// The TCP flags that the engine evaluates, RFC 9293 section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFlags(u8);

impl TcpFlags {
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

    /// The byte in the header.
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

    /// True if ACK is set, and no flag that opens, ends or hurries a connection.
    pub const fn is_plain(self) -> bool {
        self.0 & (Self::FIN | Self::SYN | Self::RST | Self::ACK | Self::URG) == Self::ACK
    }
}

impl IpHeader<'_> {
    pub(super) fn addresses(&self) -> Addresses {
        match self {
            Self::V4(header) => {
                // RFC 791 section 3.1. Every packet needs these, and etherparse copies them byte by byte.
                let address = |at: usize| header.slice().get(at..at + 4).and_then(<[u8]>::first_chunk);
                let [source, destination] = [12, 16].map(|at| address(at).copied().unwrap_or_default());
                Addresses::V4(source, destination)
            }
            Self::V6(header) => Addresses::V6(header.source(), header.destination()),
        }
    }

    /// IPv4 time to live or IPv6 hop limit.
    pub(super) fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(header) => header.ttl(),
            Self::V6(header) => header.hop_limit(),
        }
    }

    /// The fields of a drop event, for a packet with this number of bytes.
    pub(super) fn header_facts(&self, wire_length: usize) -> PacketHeader {
        let (traffic_class, identification) = match self {
            Self::V4(header) => {
                (header.slice().get(1).copied().unwrap_or_default(), u32::from(header.identification()))
            }
            Self::V6(header) => (header.traffic_class(), header.flow_label().value()),
        };
        PacketHeader {
            length: u32::try_from(wire_length).unwrap_or(u32::MAX),
            traffic_class,
            hop_limit: self.hop_limit(),
            identification,
            ..PacketHeader::default()
        }
    }
}

impl<'a> Segment<'a> {
    pub(super) fn parse(
        ip: IpHeader<'a>,
        extent: PacketExtent<'a>,
        offset: usize,
        rerouted: bool,
    ) -> Result<ParsedPacket<'a>, PacketError> {
        let slice = extent.captured.get(offset..).unwrap_or_default();
        let tcp = TcpSlice::from_slice(slice).map_err(|error| match error {
            TcpError::Len(error) => extent.short(offset + error.required_len),
            // A data offset below 5 (RFC 9293 section 3.1).
            TcpError::Content(_) => PacketError::HeaderLength,
        })?;
        let wire_payload_length = extent.wire.saturating_sub(offset + tcp.header_len());
        let wire_length = extent.wire;
        Ok(ParsedPacket::Tcp(Self { ip, tcp, wire_length, wire_payload_length, rerouted }))
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

    /// Source and destination address in the IP header.
    pub fn addresses(&self) -> Addresses {
        self.ip.addresses()
    }

    /// TCP port of the sender.
    pub fn source_port(&self) -> u16 {
        self.tcp.source_port()
    }

    /// TCP port of the receiver.
    pub fn destination_port(&self) -> u16 {
        self.tcp.destination_port()
    }

    /// TCP sequence number of the first byte (of SYN, if that is set).
    pub fn sequence(&self) -> u32 {
        self.tcp.sequence_number()
    }

    /// TCP acknowledgement number; valid only with ACK.
    pub fn acknowledgement(&self) -> u32 {
        self.tcp.acknowledgment_number()
    }

    /// TCP flags.
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.tcp.header_slice().get(13).copied().unwrap_or_default())
    }

    /// TCP window, unscaled.
    pub fn window(&self) -> u16 {
        self.tcp.window_size()
    }

    /// TCP urgent pointer; valid only with URG.
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

    /// The bytes of the first TCP option of this kind, after its kind and length (RFC 9293 section 3.1).
    pub fn option(&self, kind: u8) -> Option<&'a [u8]> {
        let (_, place) = self.options().find(|(found, _)| *found == kind)?;
        self.tcp.header_slice().get(place.start + 2..place.end)
    }

    /// Kinds and positions in the header of the TCP options that have a length, up to one that can't be read.
    pub(super) fn options(&self) -> impl Iterator<Item = (u8, Range<usize>)> {
        let header = self.tcp.header_slice();
        let mut at = TCP_OPTIONS;
        std::iter::from_fn(move || {
            loop {
                match header.get(at..)? {
                    [] | [0, ..] | [_] => return None,
                    [1, ..] => at += 1,
                    [kind, length, ..] => {
                        let place = at..at + usize::from(*length);
                        // A length that does not cover kind and length, or exceeds the header. Receivers stop
                        // reading here, too (net/ipv4/tcp_input.c: tcp_parse_options).
                        if place.len() < 2 || place.end > header.len() {
                            return None;
                        }
                        at = place.end;
                        return Some((*kind, place));
                    }
                }
            }
        })
    }

    /// True if the segment is signed: TCP MD5 (RFC 2385) or TCP-AO (RFC 5925).
    pub fn is_signed(&self) -> bool {
        self.options().any(|(kind, _)| matches!(kind, 19 | 29))
    }

    /// True if a SYN asks to join a Multipath TCP connection (RFC 8684 section 3.2).
    pub fn joins_multipath(&self) -> bool {
        self.option(MULTIPATH).and_then(<[u8]>::first).is_some_and(|first| first >> 4 == 1)
    }

    /// IPv4 time to live or IPv6 hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.ip.hop_limit()
    }

    /// The captured part of the payload.
    pub fn payload(&self) -> &'a [u8] {
        self.tcp.payload()
    }

    /// Number of bytes of payload on the wire; exceeds `payload().len()` if the capture was cut short.
    pub fn wire_payload_length(&self) -> usize {
        self.wire_payload_length
    }

    /// Number of bytes of the whole IP packet on the wire.
    pub fn wire_length(&self) -> usize {
        self.wire_length
    }

    /// True if all of the payload was captured.
    pub fn is_whole(&self) -> bool {
        self.payload().len() == self.wire_payload_length
    }

    /// Number of sequence numbers that the segment takes: its payload, SYN and FIN.
    pub fn sequence_length(&self) -> u32 {
        let flags = self.flags();
        let payload = u32::try_from(self.wire_payload_length).unwrap_or(u32::MAX);
        payload.wrapping_add(u32::from(flags.syn())).wrapping_add(u32::from(flags.fin()))
    }

    /// True if the IPv4 header's and the TCP checksum are right.
    ///
    /// Also true if they can't be verified: part of the packet was not captured, or a routing header will
    /// change the destination.
    pub fn checksums_valid(&self) -> bool {
        // The TCP checksum covers the whole payload and the final destination.
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
        // All ones and zero are the same number in ones' complement; receivers accept both.
        calculated.is_ok_and(|checksum| checksum % 0xffff == self.tcp.checksum() % 0xffff)
    }

    /// The header fields that a drop event shows.
    pub fn header_facts(&self) -> PacketHeader {
        PacketHeader {
            sequence: self.sequence(),
            acknowledgement: self.acknowledgement(),
            window: self.window(),
            flags: self.flags().bits(),
            urgent_pointer: self.urgent_pointer(),
            ..self.ip.header_facts(self.wire_length)
        }
    }
}
